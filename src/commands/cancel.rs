//! `lumos cancel`: stops a run, independent of where its coordinator runs.

use std::time::Duration;

use lumos_coordinator::fleet::Cancellation;

use crate::cli::CancelArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::fleet::{connect, find_run};

pub(crate) async fn run(arguments: &CancelArgs) -> CommandResult {
    let server = connect(&arguments.queue, "lumos cancel", Some(Duration::from_secs(10))).await?;
    let run = find_run(&server, &arguments.run).await?;
    match lumos_coordinator::fleet::cancel(&server, &run).await.map_err(Failure::usage)? {
        Cancellation::Cancelled { name, withdrawn } => println!(
            "cancelled run {name}: removed {withdrawn} units from the queue; recorded outcomes are kept, and \
             `lumos resume` continues the run"
        ),
        Cancellation::Ended(status) if status.settled() >= status.planned() => {
            println!("nothing to cancel: run {} is complete", status.name);
        }
        Cancellation::Ended(status) => println!(
            "nothing to cancel: run {} has ended with {} of {} units settled; `lumos resume` continues it",
            status.name,
            status.settled(),
            status.planned()
        ),
    }
    Ok(Exit::Complete)
}
