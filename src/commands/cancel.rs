//! `lumos cancel`: a run is stopped, wherever its coordinator is.

use std::time::Duration;

use lumos_coordinator::fleet::Cancellation;

use crate::cli::CancelArgs;
use crate::exit::{Exit, Failure, Outcome};
use crate::fleet::{connect, find_run};

pub(crate) async fn run(arguments: &CancelArgs) -> Outcome {
    let server = connect(&arguments.queue, "lumos cancel", Some(Duration::from_secs(10))).await?;
    let run = find_run(&server, &arguments.run).await?;
    match lumos_coordinator::fleet::cancel(&server, &run).await.map_err(Failure::usage)? {
        Cancellation::Cancelled { name, withdrawn } => println!(
            "run {name} is cancelled: {withdrawn} units were taken out of the queue; what was recorded stays, and \
             `lumos resume` continues it"
        ),
        Cancellation::Ended(status) if status.settled() >= status.planned() => {
            println!("run {} is finished: nothing to cancel", status.name);
        }
        Cancellation::Ended(status) => println!(
            "run {} has ended with {} of {} units settled: nothing to cancel, and `lumos resume` continues it",
            status.name,
            status.settled(),
            status.planned()
        ),
    }
    Ok(Exit::Complete)
}
