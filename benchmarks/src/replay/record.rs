//! Writes a recorded case from an outcome.

use lumos_tasks::outcome::Step;
use lumos_tasks::recorded::{Case, Expected, RecordedCall, Script};
use lumos_tasks::{AnswerForm, Behaviour, Evidence, Item, Outcome, Role, Target, Task, ToolCall, WorkUnit};
use serde_json::json;
use thiserror::Error;

use super::compare::taken_for;
use super::drive::{CORRECTED, MAX_ROUNDS};
use super::web;
use crate::benchmark::Benchmark;
use crate::metrics::F1;
use crate::registry::{UnknownBenchmark, get};
use crate::score::Scoring;
use crate::webshop::EXEMPLARS;

/// Error of writing an outcome as a case.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotRecordable {
    /// The episode ended with a fault, so there is nothing to compare with.
    #[error("the episode ended with a fault")]
    Faulted,
    /// The benchmark is unknown.
    #[error(transparent)]
    Benchmark(#[from] UnknownBenchmark),
}

/// Writes an outcome as a case that [`replay`](super::replay()) passes.
///
/// Properties without a field in the schema are stored as tags: behaviour `corrected`, and a limit of rounds
/// that differs from the benchmark's. An item that the original rejects (a gold answer of 0) is recorded as
/// rejected in behaviour `paper`.
///
/// # Errors
/// If the outcome is a fault or the unit's benchmark is unknown.
pub fn record(item: &Item, unit: &WorkUnit, outcome: &Outcome) -> Result<Case, NotRecordable> {
    record_on(item, unit, outcome, get(&unit.configuration.benchmark)?)
}

/// As [`record`], with the benchmark of a task file.
///
/// # Errors
/// As [`record`].
pub fn record_on(
    item: &Item,
    unit: &WorkUnit,
    outcome: &Outcome,
    benchmark: &dyn Benchmark,
) -> Result<Case, NotRecordable> {
    let evidence = outcome.evidence.as_ref().ok_or(NotRecordable::Faulted)?;
    let configuration = &unit.configuration;
    let score = benchmark.score(&item.target, outcome, Scoring::Paper).ok_or(NotRecordable::Faulted)?;

    let mut case = Case {
        id: unit.id.as_str().to_owned(),
        benchmark: configuration.benchmark.clone(),
        formulation: configuration.formulation,
        tags: Vec::new(),
        item: item.record.clone(),
        script: Script::default(),
        prompts: Script::default(),
        tools: Vec::new(),
        effective_turns: None,
        expected: Expected::default(),
        randint: Vec::new(),
    };
    if configuration.behaviour == Behaviour::Corrected {
        case.tags.push(CORRECTED.to_owned());
    }
    if configuration.max_rounds != benchmark.max_rounds(configuration.behaviour) {
        case.tags.push(format!("{MAX_ROUNDS}{}", configuration.max_rounds));
    }
    for step in &outcome.steps {
        match step {
            Step::Generate { role, prompt, reply, .. } => {
                case.prompts.push(*role, prompt);
                case.script.push(*role, reply);
            }
            // The replies for candidates follow from the item's pages.
            Step::Call { call: ToolCall::Candidates { .. }, .. } => {}
            Step::Call { call, reply, .. } => case.tools.push(RecordedCall::of(call, reply)),
            Step::Action { .. } => {}
        }
    }
    if let (Evidence::Web(evidence), Target::Web { steps, .. }) = (evidence, &item.target) {
        web::write(&mut case, evidence, steps, &outcome.ending);
        return Ok(case);
    }
    let has_modules = configuration.formulation.has_modules();
    let turns = case.script.of(if has_modules { Role::Planner } else { Role::Answerer }).len();
    case.effective_turns = u32::try_from(turns).ok();
    let refusal = match configuration.behaviour {
        Behaviour::Paper => benchmark.refused_by_original(&item.record),
        Behaviour::Corrected => None,
    };
    if let Some(exception) = refusal {
        case.effective_turns = Some(0);
        case.expected.raises = Some(format!("{exception}: the original refuses this record"));
        return Ok(case);
    }
    if let (Evidence::Shop(_), Task::Shop { exemplars, .. }) = (evidence, &item.task) {
        if let (Some(exemplars), Some(fields)) = (exemplars, case.item.as_object_mut()) {
            fields.insert(EXEMPLARS.to_owned(), json!(exemplars));
        }
        case.expected.evidence = Some(json!(evidence));
        return Ok(case);
    }
    let evidence = evidence.plan().ok_or(NotRecordable::Faulted)?;
    if has_modules {
        case.expected.subgoals = Some(evidence.subgoals.clone());
        case.expected.actions = Some(evidence.actions.clone());
        case.expected.results = Some(evidence.results.clone());
    }
    case.expected.pred = evidence.prediction.clone();
    case.expected.answer = item.target.text().into();
    let is_correct = score.is_correct(benchmark.metrics());
    case.expected.correct = Some(is_correct);
    case.expected.f1 = score.share(F1.name).map(|share| share.numerator);
    case.expected.em = case.expected.f1.map(|_| u8::from(is_correct));
    case.expected.raises.clone_from(&evidence.raised);
    if has_modules && matches!(item.task, Task::Qa { answer: AnswerForm::YesNo, .. }) {
        case.expected.final_pred = Some(taken_for(&item.task, evidence.prediction.as_ref()));
    }
    Ok(case)
}
