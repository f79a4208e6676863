//! One unit for the viewer: its result for the index, and its trajectory as the texts that the page shows.
//!
//! Texts are bounded: a model's reply or a page may have megabytes, and the record keeps them whole.

use std::collections::BTreeMap;

use lumos_benchmarks::{Benchmark, ItemScore, Scoring, Share, main_metric};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::{Record, UnitView};
use lumos_tasks::outcome::Observation;
use lumos_tasks::{Ending, Finish, Step, ToolCall};
use serde::Serialize;

use super::page::visible_text;
use crate::display::{
    ROUNDS_EXHAUSTED, call_text, ending_text, observation_text, prediction_text, reply_text,
    rounds_exhausted, task_text,
};
use crate::judge::Verdicts;
use crate::results::{Cause, ScoreError, benchmark};

/// Maximum length of a text in bytes, of all texts of a unit, and of a text after that.
const TEXT_BYTES: usize = 64 << 10;
const UNIT_BYTES: usize = 4 << 20;
const LATE_BYTES: usize = 512;

/// Scores units with the scorings of a report, and with the judge's verdicts.
pub(super) struct Scorer<'a> {
    /// The benchmarks of the configurations, by their positions in the manifest.
    benchmarks: Vec<&'static dyn Benchmark>,
    scorings: &'a [Scoring],
    verdicts: Option<Verdicts>,
}

/// Scores and cause of one unit.
pub(super) struct ScoredUnit {
    pub(super) cause: Cause,
    /// The main metric under the main scoring, as a share of its weight.
    pub(super) main: Option<f64>,
    scores: Vec<(Scoring, ItemScore)>,
    judge: Option<String>,
}

impl<'a> Scorer<'a> {
    /// Creates a scorer for the units of a run.
    ///
    /// # Errors
    /// If a benchmark is unknown.
    pub(super) fn new(
        manifest: &Manifest,
        scorings: &'a [Scoring],
        verdicts: Option<Verdicts>,
    ) -> Result<Self, ScoreError> {
        let names = manifest.configurations.iter().map(|planned| &planned.configuration.benchmark);
        let benchmarks = names.map(|name| benchmark(&manifest.spec, name)).collect::<Result<_, _>>()?;
        Ok(Self { benchmarks, scorings, verdicts })
    }

    /// Scores a unit of the run.
    pub(super) fn score(&self, view: &UnitView<'_>) -> ScoredUnit {
        let configuration = &view.configuration.configuration;
        let benchmark = self.benchmarks[view.position];
        let measured = benchmark.measured_metrics(configuration);
        let (mut scores, mut judge) = (Vec::new(), None);
        if let Some(record) = view.settled() {
            let verdict = self
                .verdicts
                .as_ref()
                .and_then(|verdicts| verdicts.of(&measured, &view.unit, view.item, &record.outcome));
            judge = verdict.as_ref().and_then(|verdict| verdict.reply.clone());
            for &scoring in self.scorings {
                let score = benchmark.score(&view.item.target, &record.outcome, scoring);
                scores.extend(score.map(|score| match &verdict {
                    Some(verdict) => (scoring, verdict.add_to(score, scoring)),
                    None => (scoring, score),
                }));
            }
        }
        let first = scores.first().filter(|(scoring, _)| Some(scoring) == self.scorings.first());
        let main = first.and_then(|(_, score)| {
            score.share(main_metric(&measured, |metric| score.share(metric.name).is_some())?.name)
        });
        let cause = view.record.as_ref().map_or(Cause::Outstanding, |record| {
            let is_correct = first.is_some_and(|(_, score)| score.is_correct(&measured));
            Cause::of(&record.outcome, is_correct)
        });
        let main = main.map(Share::value).filter(|value| value.is_finite());
        ScoredUnit { cause, main, scores, judge }
    }
}

/// A unit as a chunk has it.
#[derive(Serialize)]
pub(super) struct UnitTexts {
    unit: String,
    item: u64,
    task: String,
    gold: String,
    prediction: Option<String>,
    /// Numerator and denominator by scoring and metric.
    scores: BTreeMap<&'static str, BTreeMap<String, (f64, f64)>>,
    judge: Option<String>,
    /// Faults by attempt, then the outcome that settled the unit.
    records: Vec<RecordTexts>,
    /// Numbers of screenshots that belong to no step.
    shots: Vec<u32>,
}

#[derive(Serialize)]
struct RecordTexts {
    attempt: u32,
    ending: String,
    /// Only of the last record.
    steps: Vec<StepTexts>,
}

/// A step: `g` is a query of a model, `c` a call of a tool, `a` an action.
#[derive(Serialize)]
#[serde(tag = "k")]
enum StepTexts {
    #[serde(rename = "g")]
    Generate {
        turn: u32,
        role: &'static str,
        prompt: String,
        reply: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        pt: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ct: Option<u32>,
        /// The reply was cut off at the limit on new tokens.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
    },
    #[serde(rename = "c")]
    Call {
        turn: u32,
        call: String,
        reply: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        shot: Option<u32>,
    },
    #[serde(rename = "a")]
    Action {
        turn: u32,
        action: String,
        observation: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        refused: bool,
    },
}

/// Limits the texts of one unit.
struct TextBudget {
    left: usize,
    /// First digits of the unit.
    unit: String,
}

impl TextBudget {
    fn take(&mut self, text: &str) -> String {
        let most = TEXT_BYTES.min(self.left.max(LATE_BYTES));
        let end = text.floor_char_boundary(most);
        self.left = self.left.saturating_sub(end);
        let shown = visible_text(&text[..end]);
        if end == text.len() {
            return shown.into_owned();
        }
        format!("{shown}…[{} more bytes: lumos show RUN {} --json]", text.len() - end, self.unit)
    }
}

impl UnitTexts {
    /// Collects the texts of a unit. `shots` are the numbers of its screenshots, in ascending order.
    pub(super) fn of(view: &UnitView<'_>, scored: ScoredUnit, mut shots: Vec<u32>) -> Self {
        let mut budget = TextBudget { left: UNIT_BYTES, unit: view.unit.short().to_owned() };
        let outcome = view.record.as_ref().map(|record| &record.outcome);
        let prediction = outcome.and_then(prediction_text).map(|text| budget.take(&text));
        let ended = |record: &Record, budget: &mut TextBudget| {
            let (ending, detail) = ending_text(&record.outcome);
            let exhausted = record.outcome.ending == Ending::Answered && rounds_exhausted(&record.outcome);
            let note = if exhausted { format!("; {ROUNDS_EXHAUSTED}") } else { String::new() };
            budget.take(&format!("{ending}: {detail}{note}"))
        };
        let earlier = view.earlier.iter().map(|record| RecordTexts {
            attempt: record.attempt,
            ending: ended(record, &mut budget),
            steps: Vec::new(),
        });
        let mut records: Vec<_> = earlier.collect();
        if let Some(record) = &view.record {
            records.push(RecordTexts {
                attempt: record.attempt,
                ending: ended(record, &mut budget),
                steps: steps(&record.outcome.steps, &mut shots, &mut budget),
            });
        }
        let scores = scored.scores.iter().map(|(scoring, score)| {
            let shares = score.shares();
            let shares =
                shares.map(|(metric, share)| (metric.to_owned(), (share.numerator, share.denominator)));
            (scoring.name(), shares.collect())
        });
        Self {
            unit: view.unit.as_str().to_owned(),
            item: view.item.index,
            task: budget.take(task_text(&view.item.task)),
            gold: budget.take(view.item.target.text()),
            prediction,
            scores: scores.collect(),
            judge: scored.judge.map(|reply| budget.take(&reply)),
            records,
            shots,
        }
    }
}

/// Formats steps. Removes the screenshots that belong to one from `shots`.
fn steps(steps: &[Step], shots: &mut Vec<u32>, budget: &mut TextBudget) -> Vec<StepTexts> {
    let mut visited = 0;
    let mut shot_of = |call: &ToolCall| {
        let number = match call {
            ToolCall::Carry(action) => action.step.saturating_add(1),
            ToolCall::Shop(_) => {
                visited += 1;
                visited
            }
            _ => return None,
        };
        let at = shots.binary_search(&number).ok()?;
        Some(shots.remove(at))
    };
    let texts = steps.iter().map(|step| match step {
        Step::Generate { turn, role, prompt, reply, finish, prompt_tokens, completion_tokens } => {
            StepTexts::Generate {
                turn: *turn,
                role: role.name(),
                prompt: budget.take(prompt),
                reply: budget.take(reply),
                pt: *prompt_tokens,
                ct: *completion_tokens,
                cut: *finish == Finish::Length,
            }
        }
        Step::Call { turn, call, reply } => StepTexts::Call {
            turn: *turn,
            call: budget.take(&call_text(call)),
            reply: budget.take(&reply_text(reply)),
            shot: shot_of(call),
        },
        Step::Action { turn, action, observation } => StepTexts::Action {
            turn: *turn,
            action: budget.take(action),
            observation: budget.take(&observation_text(observation)),
            refused: matches!(observation, Observation::Refused(_)),
        },
    });
    texts.collect()
}
