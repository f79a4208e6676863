//! `lumos status`, `watch` and `cancel`: the runs and workers on a queue.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use lumos_coordinator::fleet::{self, Cancellation};
use serde_json::json;

use crate::cli::{CancelArgs, StatusArgs, WatchArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::fleet::{PATIENCE, connect, find_run, look, view};
use crate::interrupt::Signals;
use crate::table::width;

/// `lumos status`: prints the status of runs and workers on a queue.
pub(crate) async fn status(arguments: &StatusArgs) -> CommandResult {
    let server = connect(&arguments.queue, "lumos status", Some(PATIENCE)).await?;
    let (runs, workers) = look(&server, arguments.run.as_deref()).await?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", json!({ "runs": runs, "workers": workers }))?;
    } else {
        out.write_all(view::render(&runs, &workers, now(), width(), "--json").as_bytes())?;
    }
    Ok(Exit::Complete)
}

/// `lumos watch`: prints the status of runs and workers on a queue, and refreshes it.
pub(crate) async fn watch(arguments: &WatchArgs) -> CommandResult {
    let server = connect(&arguments.queue, "lumos watch", Some(PATIENCE)).await?;
    let pause = Duration::try_from_secs_f64(arguments.interval.max(0.1)).unwrap_or(PATIENCE);
    let terminal = std::io::stdout().is_terminal();
    // One stream for all waits, so that no signal is lost while the queue is read.
    let mut signals = Signals::listen();
    loop {
        let found = tokio::select! {
            found = look(&server, arguments.run.as_deref()) => found,
            () = signals.signalled() => return Ok(Exit::Complete),
        };
        let text = match found {
            Ok((runs, workers)) => view::render(&runs, &workers, now(), width(), "lumos status --json"),
            // The server may become available, and the run may be created later.
            Err(failure) => format!("{}; retrying\n", failure.error),
        };
        {
            let mut out = std::io::stdout().lock();
            if terminal {
                // Move the cursor home, write the text, and clear the rest of the previous one.
                let text = text.replace('\n', "\x1b[K\n");
                write!(out, "\x1b[H{text}\x1b[J")?;
            } else {
                writeln!(out, "{text}")?;
            }
            out.flush()?;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = signals.signalled() => return Ok(Exit::Complete),
        }
    }
}

/// `lumos cancel`: stops a run, independent of where its coordinator runs.
pub(crate) async fn cancel(arguments: &CancelArgs) -> CommandResult {
    let server = connect(&arguments.queue, "lumos cancel", Some(PATIENCE)).await?;
    let run = find_run(&server, &arguments.run).await?;
    match fleet::cancel(&server, &run).await.map_err(Failure::usage)? {
        Cancellation::Cancelled { name, withdrawn } => println!(
            "cancelled run {name}: removed {withdrawn} units from the queue; recorded outcomes are kept, and \
             `lumos resume` with the same --queue continues the run"
        ),
        Cancellation::Ended(status) if status.settled() >= status.planned() => {
            println!("nothing to cancel: run {} is complete", status.name);
        }
        Cancellation::Ended(status) => println!(
            "nothing to cancel: run {} has ended with {} of {} units settled; `lumos resume` with the same \
             --queue continues it",
            status.name,
            status.settled(),
            status.planned()
        ),
    }
    Ok(Exit::Complete)
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}
