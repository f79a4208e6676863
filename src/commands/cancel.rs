//! `lumos cancel`: a run is stopped, wherever its coordinator is.

use std::time::Duration;

use crate::cli::CancelArgs;
use crate::exit::{Exit, Outcome};
use crate::fleet::{connect, find_run};

pub(crate) async fn run(arguments: &CancelArgs) -> Outcome {
    let server = connect(&arguments.queue, "lumos cancel", Some(Duration::from_secs(10))).await?;
    let run = find_run(&server, &arguments.run).await?;
    let removed = lumos_coordinator::fleet::cancel(&server, &run).await?;
    println!("run {run} is cancelled: {removed} units were taken out of the queue; what was recorded stays");
    Ok(Exit::Complete)
}
