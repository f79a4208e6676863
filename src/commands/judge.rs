//! `lumos score --judge MODEL`: asks a model for verdicts on a run's predictions and records them.

use std::path::Path;
use std::sync::Arc;

use lumos_coordinator::Checkpoint;
use lumos_coordinator::dispatch::Summary;
use lumos_models::{ModelPricing, ModelRegistry, ModelsSettings};
use lumos_reports::judge::{self, Asked, JudgeError, Pass};
use lumos_reports::results::ScoreError;
use lumos_tasks::{BackendChoice, Formulation, NanoDollars, Role, Swap};

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
    check_budget(&models, name, arguments.max_cost)?;
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
    let spent = spent(&checkpoint)?;
    let budget = arguments.max_cost.map(|limit| Budget::new(limit, spent));
    let pass = Run { manifest, folder, checkpoint, executor, in_phases: None, budget };
    let judged = pass.execute().await?;
    let is_interrupted = judged.is_interrupted();
    let Report { checkpoint, summary, budget, interrupts: _interrupts, .. } = judged;
    // The report reads the verdicts from the checkpoint.
    checkpoint.close()?;
    rescore(&run, open(&run)?, &scorings, verbosity)?;
    let budget = budget.as_ref().filter(|budget| budget.is_reached());
    Ok(conclude(&summary, budget, is_interrupted))
}

/// A cost limit is an error for a model without a known price, because it would have no effect.
fn check_budget(models: &ModelRegistry, name: &str, limit: Option<f64>) -> Result<(), Failure> {
    let Some(limit) = limit else { return Ok(()) };
    if !(limit.is_finite() && limit >= 0.0) {
        return Err(Failure::input(format!(
            "invalid value `{limit}` for --max-cost: expected a number of US dollars"
        )));
    }
    match models.pricing(name).map_err(Failure::usage)? {
        ModelPricing::Known | ModelPricing::Free => Ok(()),
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

/// Returns the cost of the recorded verdicts.
fn spent(checkpoint: &Checkpoint) -> Result<NanoDollars, Failure> {
    let mut spent = NanoDollars::default();
    for record in checkpoint.records() {
        spent += record?.telemetry.cost.unwrap_or_default();
    }
    Ok(spent)
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
