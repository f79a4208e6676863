//! `lumos score --judge MODEL`: asks a model for verdicts on a run's predictions and records them.

use std::path::Path;
use std::sync::Arc;

use lumos_coordinator::dispatch::Summary;
use lumos_coordinator::{Checkpoint, Record};
use lumos_models::{ModelPricing, ModelRegistry, ModelsSettings, Price};
use lumos_reports::judge::{self, Asked, JudgeError, Pass};
use lumos_reports::results::ScoreError;
use lumos_tasks::{BackendChoice, Formulation, Role, Swap};

use super::results::{open, rescore};
use crate::budget::Budget;
use crate::cli::{ScoreArgs, Verbosity};
use crate::exit::{CommandResult, Exit, Failure};
use crate::pipeline::{Executor, Options, Report, Run, checkpoint_failure, identify, model_record};
use crate::progress::write_line;
use crate::{fleet, settings};

pub(crate) async fn run(arguments: &ScoreArgs, name: &str, verbosity: Verbosity) -> CommandResult {
    let run = arguments.runs.folder(&arguments.run)?;
    let name = &settings::model_name(name.to_owned());
    crate::writable::check_folder(&run, None)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let device = settings::placement(&arguments.engine, BackendChoice::Auto)?;
    let engine = settings::engine(&arguments.engine, device.of(Role::Judge))?;
    let placed = ModelsSettings { placement: device.clone(), ..ModelsSettings::from(engine) };
    let models = Arc::new(ModelRegistry::new(placed));
    let judge = identify(&models, name, Role::Judge, Formulation::Direct).await?;
    let price = check_budget(&models, name, arguments.max_cost)?;
    let fleet = fleet::coordinator(&arguments.fleet).await?;
    let stall_warning = fleet::stall_warning(&arguments.fleet)?;
    let options = Options { verbosity, stall_warning, ..Options::default() };
    let executor = Executor { models, tools: Arc::default(), fleet, options };
    // Check memory before the pass's folder is created.
    let alone = vec![Arc::new(judge::configuration(&judge.identity))];
    executor.arrange(alone, arguments.memory, Swap::default()).await?;
    let asked = Asked { model: model_record(judge), device, memory: arguments.memory };
    let Pass { mut manifest, folder, checkpoint, unasked } = plan(&run, asked).await?;
    if !verbosity.quiet {
        write_line(format_args!(
            "{} questions for the judge; {unasked} units without a prediction",
            manifest.planned()
        ));
    }
    // Settings of the run do not apply to its judge.
    manifest.spec.swap = Swap::default();
    manifest.spec.concurrency = u32::try_from(arguments.concurrency).ok();
    let mut budget = arguments.max_cost.map(|limit| Budget::new(limit, price));
    if let Some(budget) = &mut budget {
        add_earlier(budget, &checkpoint)?;
    }
    let pass = Run { manifest, folder, checkpoint, executor, in_phases: None, budget };
    let judged = pass.execute().await?;
    let is_interrupted = judged.is_interrupted();
    let Report { checkpoint, summary, budget, interrupts: _interrupts, .. } = judged;
    // The report reads the verdicts from the checkpoint.
    checkpoint.close()?;
    rescore(&run, &scorings, verbosity)?;
    let budget = budget.as_ref().filter(|budget| budget.is_reached());
    Ok(conclude(&summary, budget, is_interrupted))
}

/// Returns the price of a judge, if it has one and its costs are limited. A cost limit is an error for a model without
/// a known price, because it would have no effect.
fn check_budget(models: &ModelRegistry, name: &str, limit: Option<f64>) -> Result<Option<Price>, Failure> {
    let Some(limit) = limit else { return Ok(None) };
    if !(limit.is_finite() && limit >= 0.0) {
        return Err(Failure::input(format!(
            "invalid value `{limit}` for --max-cost: expected a number of US dollars"
        )));
    }
    match models.pricing(name).map_err(Failure::usage)? {
        ModelPricing::Known(price) => Ok(Some(price)),
        ModelPricing::Free => Ok(None),
        ModelPricing::Unknown { model } => {
            Err(Failure::input(format!("--max-cost needs a price, and the price of `{model}` is unknown"))
                .hint(format!(
                    "set LUMOS_OPENAI_PRICES={model}=READ/WRITTEN, in US dollars per million tokens"
                )))
        }
    }
}

async fn plan(run: &Path, judge: Asked) -> Result<Pass, Failure> {
    let run = run.to_owned();
    tokio::task::spawn_blocking(move || {
        let (manifest, checkpoint) = open(&run)?;
        judge::plan(&run, &manifest, &checkpoint, judge).map_err(|error| match error {
            error @ JudgeError::Unjudged(_) => Failure::usage(error)
                .hint("judge a run of hotpotqa, or list `llm_accuracy` in the metrics of a task file"),
            JudgeError::Score(ScoreError::Checkpoint(error)) => checkpoint_failure(error),
            error => Failure::from(error),
        })
    })
    .await?
}

/// Adds the cost of the recorded verdicts.
fn add_earlier(budget: &mut Budget, checkpoint: &Checkpoint) -> Result<(), Failure> {
    for record in checkpoint.records() {
        let Record { outcome, telemetry, .. } = record?;
        // An attempt without a reply faulted, or the server rejected its prompt: it costs nothing.
        if outcome.has_reply() || telemetry.cost.is_some() {
            budget.add_earlier(telemetry.cost, outcome.tokens());
        }
    }
    Ok(())
}

/// Prints what is left of a pass and determines the exit code. `budget` is given if it is used up.
fn conclude(summary: &Summary, budget: Option<&Budget>, is_interrupted: bool) -> Exit {
    if summary.planned == summary.settled {
        return Exit::Complete;
    }
    if let Some(budget) = budget {
        write_line(format_args!("stopped: {budget}"));
    }
    write_line(format_args!(
        "{} verdicts are outstanding and {} faulted: the same command continues them",
        summary.outstanding(),
        summary.faulted
    ));
    if is_interrupted && budget.is_none() { Exit::Interrupted } else { Exit::Outstanding }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{
        ChatReply, ContentHash, Ending, Evidence, Fault, FaultKind, Outcome, Step, Telemetry, ToolCall,
        ToolReply, UnitId,
    };

    use super::*;

    fn verdict(text: &str, prompt_tokens: Option<u32>) -> Outcome {
        let call = ToolCall::Chat { role: Role::Judge, messages: Vec::new(), max_new_tokens: 100 };
        let reply = ChatReply { prompt_tokens, ..ChatReply::recorded(text) };
        Outcome {
            ending: Ending::Answered,
            evidence: Some(Evidence::Judge { reply: text.to_owned() }),
            steps: vec![Step::Call { turn: 1, call, reply: ToolReply::Chat(reply) }],
        }
    }

    #[tokio::test]
    async fn recorded_verdicts_without_a_cost_count() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::create(folder.path()).unwrap();
        let record = async |item: u64, outcome: Outcome| {
            let unit = UnitId::new(ContentHash::of_json(&item));
            let telemetry = Telemetry::default();
            let record = Record { unit, configuration: 0, item, attempt: 1, outcome, telemetry };
            checkpoint.record(record).await.unwrap();
        };
        let is_reached = |limit| {
            let mut budget = Budget::new(limit, Some(Price { read: 10.0, written: 10.0 }));
            add_earlier(&mut budget, &checkpoint).unwrap();
            budget.is_reached()
        };
        let fault = Fault { kind: FaultKind::Model, message: "503".to_owned() };
        record(0, Outcome { ending: Ending::Faulted(fault), evidence: None, steps: Vec::new() }).await;
        // Its prompt was rejected.
        record(1, verdict("", None)).await;
        assert!(!is_reached(0.001));
        record(2, verdict("CORRECT", Some(100))).await;
        assert_eq!([0.001, 0.002].map(is_reached), [true, false]);
        // A server that does not report usage.
        record(3, verdict("CORRECT", None)).await;
        assert!(is_reached(0.002));
        checkpoint.close().unwrap();
    }
}
