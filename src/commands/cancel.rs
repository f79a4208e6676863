//! `lumos cancel`: a run is stopped, wherever its coordinator is.

use std::time::Duration;

use crate::cli::CancelArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::fleet::{connect, find_run};

pub(crate) async fn run(arguments: &CancelArgs) -> Outcome {
    let server = connect(&arguments.queue, "lumos cancel", Some(Duration::from_secs(10))).await?;
    let run = find_run(&server, &arguments.run).await?;
    let cancelled = lumos_coordinator::fleet::cancel(&server, &run).await.map_err(Failure::usage)?;
    println!(
        "run {} is cancelled: {} units were taken out of the queue; what was recorded stays, and `lumos resume` goes on \
         with it",
        cancelled.name, cancelled.withdrawn
    );
    Ok(Exit::Complete)
}
