//! `lumos merge`: merges the parts of a run into one run.

use lumos_coordinator::Checkpoint;
use lumos_coordinator::merge::merge;

use crate::cli::MergeArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::session::{self, Output};

pub(crate) async fn run(arguments: &MergeArgs) -> CommandResult {
    crate::writable::check_folder(&arguments.into, Some("--into"))?;
    let parts: Result<Vec<_>, _> = arguments.parts.iter().map(|part| arguments.runs.folder(part)).collect();
    let (parts, into, incomplete) = (parts?, arguments.into.clone(), arguments.allow_incomplete);
    let merged = tokio::task::spawn_blocking(move || merge(&parts, &into, incomplete))
        .await?
        .map_err(Failure::usage)?;
    let checkpoint = session::open(&arguments.into, Checkpoint::open).await?;
    let output = Output { quiet: true, json: false, record: None, fail_under: None };
    let written = session::write_results(&merged.manifest, &arguments.into, &checkpoint, &output);
    checkpoint.close()?;
    let total = written?.total;
    println!(
        "merged {} parts into one run of {} units, {} of them outstanding: {}",
        arguments.parts.len(),
        total.planned,
        total.outstanding + total.faulted,
        arguments.into.display()
    );
    Ok(if total.is_complete() { Exit::Complete } else { Exit::Outstanding })
}
