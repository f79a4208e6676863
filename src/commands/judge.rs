//! `lumos score --judge MODEL`: asks a model for verdicts on a run's predictions and records them.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use lumos_coordinator::dispatch::Summary;
use lumos_coordinator::export;
use lumos_coordinator::judge::{self, Asked, JudgeError, Pass};
use lumos_models::ModelRegistry;
use lumos_models::{Identified, ModelPricing, ModelsSettings};
use lumos_tasks::{Formulation, NanoDollars, Role, Swap};
use lumos_tools::ToolSets;
use lumos_worker::stall::{Wait, reminded};

use super::results::open;
use super::run::{arrange_all, fleet_of, stall_warning};
use crate::budget::Budget;
use crate::cli::ScoreArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::interrupt::Interrupts;
use crate::planning::model_record;
use crate::session::{Executor, Output, Session, terminal};
use crate::settings;

pub(crate) async fn run(arguments: &ScoreArgs, name: &str, quiet: bool) -> CommandResult {
    let run = arguments.runs.folder(&arguments.run)?;
    let name = &settings::model_name(name.to_owned());
    crate::writable::check_folder(&run, None)?;
    let scorings = settings::scorings(&arguments.scoring)?;
    let device = settings::placement(&arguments.engine)?;
    let engine = settings::engine(&arguments.engine, device.of(Role::Judge))?;
    let placed = ModelsSettings { placement: device.clone(), ..ModelsSettings::from(engine) };
    let models = Arc::new(ModelRegistry::new(placed));
    let judge = identify(&models, name).await?;
    check_budget(&models, name, arguments.max_cost)?;
    let fleet = fleet_of(&arguments.fleet).await?;
    let stall_warning = stall_warning(&arguments.fleet)?;
    if fleet.is_none() {
        // Check memory before the pass's folder is created.
        let alone = vec![Arc::new(judge::configuration(&judge.identity))];
        arrange_all(alone, arguments.memory, Swap::default(), &models).await?;
    }
    let asked = Asked { model: model_record(judge), device, memory: arguments.memory };
    let Pass { manifest, folder, checkpoint, unasked } = plan(&run, asked).await?;
    if !quiet {
        eprintln!("{} questions for the judge; {unasked} units without a prediction", manifest.planned());
    }
    let planned = &manifest.configurations[0].configuration;
    if fleet.is_none()
        && checkpoint.settled() < manifest.planned()
        && let Some(identity) = planned.models.get(&Role::Judge)
    {
        let checking = models.check(identity, Role::Judge, planned);
        reminded(stall_warning, Wait::Loading, checking).await.map_err(Failure::usage)?;
    }
    let means = match fleet {
        Some((server, settings)) => Executor::Fleet { server, settings },
        None => Executor::Here {
            models,
            tools: Arc::new(ToolSets::default()),
            concurrency: usize::try_from(arguments.concurrency).unwrap_or(usize::MAX),
            stall_warning,
        },
    };
    let spent = spent(&checkpoint)?;
    let budget = arguments.max_cost.map(|limit| Arc::new(Budget::new(limit, spent)));
    let session = Session { manifest, folder, checkpoint, means, in_phases: false };
    let interrupts = Interrupts::watch();
    let output = Output { quiet, json: false, record: None, fail_under: None };
    let judged = session.dispatch(&output, &interrupts, budget.as_ref()).await;
    let summary = match judged {
        Ok(summary) => summary,
        Err(failure) => {
            session.checkpoint.abandon();
            return Err(failure);
        }
    };
    // The report reads the verdicts from the checkpoint.
    session.checkpoint.close()?;
    let interrupted = interrupts.drain.is_cancelled();
    report(&run, &scorings)?;
    Ok(conclude(summary, budget.as_deref(), interrupted))
}

async fn identify(models: &Arc<ModelRegistry>, name: &str) -> Result<Identified, Failure> {
    let (models, name) = (Arc::clone(models), name.to_owned());
    let identified =
        tokio::task::spawn_blocking(move || models.identify(&name, Role::Judge, Formulation::Direct));
    identified.await?.map_err(Failure::usage)
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
            error @ JudgeError::Unjudged(_) => Failure::usage(error),
            error => Failure::from(error),
        })
    })
    .await?
}

/// Returns the cost of the recorded verdicts.
fn spent(checkpoint: &lumos_coordinator::Checkpoint) -> Result<NanoDollars, Failure> {
    let mut spent = NanoDollars::default();
    for record in checkpoint.records() {
        spent += record?.telemetry.cost.unwrap_or_default();
    }
    Ok(spent)
}

/// Writes the run's results again, including the verdicts.
fn report(run: &Path, scorings: &[lumos_benchmarks::Scoring]) -> Result<(), Failure> {
    let (manifest, checkpoint) = open(run)?;
    let report = export::export(run, &manifest, &checkpoint, scorings, jiff::Timestamp::now())?;
    let mut out = io::stdout().lock();
    report.render(terminal(), &mut out)?;
    out.flush()?;
    Ok(())
}

fn conclude(summary: Summary, budget: Option<&Budget>, interrupted: bool) -> Exit {
    let open = summary.planned - summary.settled;
    if open == 0 {
        return Exit::Complete;
    }
    if let Some(budget) = budget.filter(|budget| budget.is_reached()) {
        eprintln!("stopped: {budget}");
    }
    eprintln!(
        "{} verdicts are outstanding and {} faulted: the same command continues them",
        summary.outstanding(),
        summary.faulted
    );
    match budget {
        Some(budget) if budget.is_reached() => Exit::Outstanding,
        _ if interrupted && !summary.too_many_faults => Exit::Interrupted,
        _ => Exit::Outstanding,
    }
}
