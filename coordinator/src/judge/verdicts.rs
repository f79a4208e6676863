//! The verdicts of a pass, for reports and samples.

use std::collections::HashMap;
use std::path::Path;

use lumos_benchmarks::Scoring;
use lumos_benchmarks::judge::{Judgement, Verdict, question_about};
use lumos_tasks::{
    ContentHash, EpisodeUnit, Evidence, Item, ModelIdentity, NanoDollars, Outcome, Role, UnitId,
};
use serde::Serialize;

use super::pass::question_id;
use super::{CURRENT, passes};
use crate::checkpoint::{CheckpointError, CheckpointReader, Settlement};
use crate::manifest::Manifest;

/// What a judge replied to one question.
#[derive(Debug, Clone)]
struct Said {
    reply: String,
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    cost: Option<NanoDollars>,
}

/// The verdicts of a run's current pass.
#[derive(Debug, Clone)]
pub struct Verdicts {
    model: ModelIdentity,
    configuration: ContentHash,
    prompt: ContentHash,
    planned: u64,
    by_unit: HashMap<UnitId, Said>,
}

/// What a pass came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JudgeReport {
    /// The judge.
    pub model: ModelIdentity,
    /// Hash of the prompt it was asked with.
    pub prompt: ContentHash,
    /// Questions put together: each prediction for an item once.
    pub questions: u64,
    /// Questions that have a verdict.
    pub verdicts: u64,
    /// Verdicts that say neither correct nor incorrect, under corrected scoring.
    pub unclear: u64,
    /// Tokens the judge read.
    pub prompt_tokens: u64,
    /// Tokens it wrote.
    pub completion_tokens: u64,
    /// What the verdicts cost in US dollars, where a price was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Verdicts {
    /// The verdicts that lie beside a run's checkpoint; `None` where nobody judged.
    ///
    /// # Errors
    /// If the pass cannot be read.
    pub fn beside(checkpoint: &CheckpointReader) -> Result<Option<Self>, CheckpointError> {
        let Some(run) = checkpoint.folder().parent() else { return Ok(None) };
        let Ok(current) = std::fs::read_to_string(passes(run).join(CURRENT)) else { return Ok(None) };
        let current = current.trim();
        // A name and nothing that leads elsewhere.
        if current.is_empty() || !current.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        Self::read(&passes(run).join(current)).map(Some)
    }

    fn read(pass: &Path) -> Result<Self, CheckpointError> {
        let damaged = |detail: String| CheckpointError::Corrupt { folder: pass.to_owned(), detail };
        let manifest = Manifest::read(pass).map_err(|error| damaged(error.to_string()))?;
        let planned = manifest.configurations.first().ok_or_else(|| damaged("missing judge".to_owned()))?;
        let model = planned.configuration.models.get(&Role::Judge);
        let model = model.ok_or_else(|| damaged("missing judge".to_owned()))?.clone();
        let checkpoint = CheckpointReader::open(&pass.join("checkpoint"))?;
        let mut verdicts = Self {
            model,
            configuration: planned.identity.clone(),
            prompt: planned.configuration.prompts.clone(),
            planned: planned.planned,
            by_unit: HashMap::new(),
        };
        for record in checkpoint.records() {
            let record = record?;
            if Settlement::of(&record.outcome).is_some() {
                verdicts.by_unit.insert(record.unit, Said::of(&record.outcome, record.telemetry.cost));
            }
        }
        Ok(verdicts)
    }

    /// The verdict on a settled outcome; `None` where the judge has not been asked yet. One without a prediction is
    /// incorrect unasked.
    pub fn of(&self, unit: &UnitId, item: &Item, outcome: &Outcome) -> Option<Verdict> {
        let said = match question_about(&item.task, &item.target, outcome) {
            Some(messages) => {
                let question = EpisodeUnit::identity_of(&question_id(&messages), &self.configuration);
                Some(self.by_unit.get(&question)?)
            }
            None => None,
        };
        Some(Verdict {
            unit: unit.clone(),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            reply: said.map(|said| said.reply.clone()),
            prompt_tokens: said.and_then(|said| said.prompt_tokens),
            completion_tokens: said.and_then(|said| said.completion_tokens),
            cost: said.and_then(|said| said.cost).map(NanoDollars::dollars),
        })
    }

    /// The figures of the pass.
    pub fn report(&self) -> JudgeReport {
        let mut cost: Option<NanoDollars> = None;
        let (mut unclear, mut prompt_tokens, mut completion_tokens) = (0, 0, 0);
        for said in self.by_unit.values() {
            unclear += u64::from(Judgement::read(&said.reply, Scoring::Corrected) == Judgement::Unclear);
            prompt_tokens += u64::from(said.prompt_tokens.unwrap_or(0));
            completion_tokens += u64::from(said.completion_tokens.unwrap_or(0));
            if let Some(each) = said.cost {
                *cost.get_or_insert_default() += each;
            }
        }
        JudgeReport {
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            questions: self.planned,
            verdicts: self.by_unit.len() as u64,
            unclear,
            prompt_tokens,
            completion_tokens,
            cost: cost.map(NanoDollars::dollars),
        }
    }
}

impl Said {
    fn of(outcome: &Outcome, cost: Option<NanoDollars>) -> Self {
        let reply = match &outcome.evidence {
            Some(Evidence::Judge { reply }) => reply.clone(),
            _ => String::new(),
        };
        let (read, written) = outcome.tokens();
        // A count of zero is one that the backend did not give.
        let count = |tokens: u64| u32::try_from(tokens).ok().filter(|tokens| *tokens > 0);
        Self { reply, prompt_tokens: count(read), completion_tokens: count(written), cost }
    }
}
