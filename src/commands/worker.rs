//! `lumos worker`: executes units of runs that a coordinator publishes on a queue.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lumos_http::AccessPolicy;
use lumos_models::{ModelRegistry, ModelsSettings};
use lumos_tasks::{BackendChoice, Role};
use lumos_tools::ToolSets;
use lumos_worker::fleet::{WorkerError, WorkerSettings, serve_fleet, worker_access, worker_name};

use crate::cli::WorkerArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::fleet::connect;
use crate::interrupt::Interrupts;
use crate::progress::write_line;
use crate::settings::{self, seconds};

pub(crate) async fn run(arguments: &WorkerArgs, quiet: bool) -> CommandResult {
    let fleet = fleet_settings(arguments)?;
    if let Some(spool) = &fleet.spool {
        crate::writable::check_folder(spool, Some("--spool (LUMOS_SPOOL)"))?;
    }
    let access = worker_access(&arguments.allow_host, &arguments.allow_path, &arguments.allow_tool).map_err(
        |error| {
            Failure::input(format!("invalid value for --allow-host or --allow-path: {error}"))
                .hint("for example --allow-host grid.example:4444 --allow-path /models")
        },
    )?;
    let models = Arc::new(ModelRegistry::new(models_settings(arguments, &access)?));
    let interrupts = Interrupts::watch_releasing();
    let name = format!("lumos worker {}", fleet.name);
    let server = tokio::select! {
        server = connect(&arguments.queue, &name, None) => server?,
        () = interrupts.drain.cancelled() => return Ok(Exit::Complete),
    };
    if !quiet {
        write_line(format_args!(
            "worker {}: concurrency {}, device {}, nats-server {}",
            fleet.name,
            fleet.concurrency,
            fleet.device,
            server.version()
        ));
    }
    let tools = Arc::new(ToolSets::with_screenshots(arguments.screenshots.clone()).restricted_to(access));
    let served = serve_fleet(
        server.clone(),
        fleet,
        models,
        Arc::clone(&tools),
        interrupts.drain.clone(),
        interrupts.stop.clone(),
    )
    .await;
    tools.close().await;
    server.close().await;
    let summary = served.map_err(|error| match error {
        error @ (WorkerError::Serve(_) | WorkerError::Panicked { .. }) => Failure::from(error),
        error => Failure::usage(error),
    })?;
    if !quiet {
        let why = if summary.idle { "idle" } else { "stopped" };
        write_line(format_args!("worker {}: {}, {} units finished", summary.name, why, summary.finished));
    }
    Ok(Exit::Complete)
}

fn fleet_settings(arguments: &WorkerArgs) -> Result<WorkerSettings, Failure> {
    let name = arguments.name.clone().unwrap_or_else(worker_name);
    let placement = settings::placement(&arguments.engine, BackendChoice::Auto)?;
    let concurrency = match arguments.concurrency {
        Some(concurrency) => usize::try_from(concurrency.max(1)).unwrap_or(1),
        None => settings::concurrency_of(&arguments.engine, &placement)?,
    };
    // A separate folder per name: workers that share a spool would send each other's outcomes.
    let usual_spool = || std::env::temp_dir().join(format!("lumos-spool-{name}"));
    let spool = arguments.spool.clone().unwrap_or_else(usual_spool);
    Ok(WorkerSettings {
        device: placement.to_string(),
        concurrency,
        memory: arguments.memory.map(|memory| memory.0),
        swap: arguments.swap.unwrap_or_default(),
        grace: seconds("--grace", arguments.grace)?,
        stall: seconds("--stall-limit", arguments.stall_limit)?,
        stall_warning: seconds("--stall-warning", arguments.stall_warning)?,
        idle_exit: arguments.idle_exit.map(|limit| seconds("--idle-exit", limit)).transpose()?,
        spool: Some(spool),
        name,
        ..WorkerSettings::default()
    })
}

fn models_settings(arguments: &WorkerArgs, access: &AccessPolicy) -> Result<ModelsSettings, Failure> {
    let mut names = BTreeMap::new();
    for text in &arguments.model_at {
        let (planned, here) = text.split_once('=').ok_or_else(|| {
            Failure::input(format!("invalid value `{text}` for --model-at: expected PLANNED=LOCAL"))
                .hint("for example --model-at candle:/models/plan=candle:/scratch/plan")
        })?;
        names.insert(planned.to_owned(), settings::model_name(here.to_owned()));
    }
    let latency = Duration::from_millis(arguments.script_latency);
    let placement = settings::placement(&arguments.engine, BackendChoice::Auto)?;
    let engine = settings::engine(&arguments.engine, placement.of(Role::Planner))?;
    Ok(ModelsSettings {
        placement,
        pinned_only: true,
        script_latency: (!latency.is_zero()).then_some(latency),
        names,
        access: access.clone(),
        ..ModelsSettings::from(engine)
    })
}
