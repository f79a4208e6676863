//! Verdicts of a pass, for reports and samples.

use std::collections::HashMap;
use std::path::Path;

use lumos_benchmarks::judge::{JudgeVerdict, Judgement, question_about};
use lumos_benchmarks::{MetricDefinition, Scoring};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{CheckpointError, CheckpointReader};
use lumos_tasks::{ContentHash, Evidence, Item, ModelIdentity, NanoDollars, Outcome, Role, UnitId, WorkUnit};
use serde::Serialize;

use super::{CURRENT, passes, question_id};

/// A judge's reply to one question.
#[derive(Debug, Clone)]
struct Said {
    reply: String,
    prompt_tokens: Option<u32>,
    completion_tokens: Option<u32>,
    cost: Option<NanoDollars>,
}

/// The verdicts of a run's current pass.
#[derive(Debug, Clone)]
pub(crate) struct Verdicts {
    model: ModelIdentity,
    configuration: ContentHash,
    prompt: ContentHash,
    planned: u64,
    by_unit: HashMap<UnitId, Said>,
}

/// Figures of a pass.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct JudgeReport {
    /// The judge.
    pub(crate) model: ModelIdentity,
    /// Hash of the judge's prompt.
    pub(crate) prompt: ContentHash,
    /// Number of distinct questions: each prediction for an item counts once.
    pub(crate) questions: u64,
    /// Number of questions with a verdict.
    pub(crate) verdicts: u64,
    /// Number of verdicts that are neither correct nor incorrect, under corrected scoring.
    pub(crate) unclear: u64,
    /// Prompt tokens of the judge.
    pub(crate) prompt_tokens: u64,
    /// Generated tokens of the judge.
    pub(crate) completion_tokens: u64,
    /// Cost of the verdicts in US dollars, if a price was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
}

impl Verdicts {
    /// Reads the verdicts of a run, given its checkpoint; `None` if the run was not judged.
    ///
    /// # Errors
    /// If the pass cannot be read.
    pub(crate) fn beside(checkpoint: &CheckpointReader) -> Result<Option<Self>, CheckpointError> {
        let Some(run) = checkpoint.folder().parent() else { return Ok(None) };
        let Ok(current) = std::fs::read_to_string(passes(run).join(CURRENT)) else { return Ok(None) };
        let current = current.trim();
        // Accept a plain name only, not a path.
        if current.is_empty() || !current.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        Self::read(&passes(run).join(current)).map(Some)
    }

    fn read(pass: &Path) -> Result<Self, CheckpointError> {
        let damaged = |detail: String| CheckpointError::corrupt(pass, detail);
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
            if !record.outcome.is_fault() {
                verdicts.by_unit.insert(record.unit, Said::of(&record.outcome, record.telemetry.cost));
            }
        }
        Ok(verdicts)
    }

    /// Returns the verdict on a settled outcome; `None` if none of the measured metrics is judged, or if the judge has
    /// not replied yet. An outcome without a prediction is incorrect without a question.
    pub(crate) fn of(
        &self,
        metrics: &[MetricDefinition],
        unit: &UnitId,
        item: &Item,
        outcome: &Outcome,
    ) -> Option<JudgeVerdict> {
        if !metrics.iter().any(|metric| metric.judged) {
            return None;
        }
        let said = match question_about(&item.task, &item.target, outcome) {
            Some(messages) => {
                let question = WorkUnit::identity_of(&question_id(&messages), &self.configuration);
                Some(self.by_unit.get(&question)?)
            }
            None => None,
        };
        Some(JudgeVerdict {
            unit: unit.clone(),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            reply: said.map(|said| said.reply.clone()),
            prompt_tokens: said.and_then(|said| said.prompt_tokens),
            completion_tokens: said.and_then(|said| said.completion_tokens),
            cost: said.and_then(|said| said.cost).map(NanoDollars::dollars),
        })
    }

    /// Returns the figures of the pass.
    pub(crate) fn report(&self) -> JudgeReport {
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
        // A backend that does not report token counts yields zero.
        let count = |tokens: u64| u32::try_from(tokens).ok().filter(|tokens| *tokens > 0);
        Self { reply, prompt_tokens: count(read), completion_tokens: count(written), cost }
    }
}
