//! Judging a run by a model: a pass of its own, with a manifest and a checkpoint of its own below the run's folder.
//!
//! ```text
//! runs/<name>/judge/<pass>/manifest.json    the judge
//!                          checkpoint/      every question and every reply: the truth
//!             judge/current                 the pass whose verdicts are reported
//! ```
//! A question that is put to the judge is an item, and its unit an episode of one call
//! ([`Task::Judge`](lumos_tasks::Task)). So a pass is dispatched, tried again, spread over workers, interrupted and
//! taken up again by the code that does it for runs, and no record of the run itself is touched. What a question is,
//! follows from its text: outcomes that give the same prediction for the same item are judged once.

mod pass;
mod verdicts;

pub use pass::{Asked, JudgeError, Pass, configuration, plan};
pub use verdicts::{JudgeReport, Verdicts};

use std::path::{Path, PathBuf};

/// What a pass's questions are called where runs have a benchmark.
pub const BENCHMARK: &str = "judge";

/// Folder of the passes in a run's folder.
const FOLDER: &str = "judge";
/// File that names the pass whose verdicts count.
const CURRENT: &str = "current";

/// The folders of a run's passes, in the order of their names.
///
/// # Errors
/// If the folder cannot be read.
pub fn pass_folders(run: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(passes(run)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut folders = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        if folder.join("checkpoint").is_dir() {
            folders.push(folder);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The folder of passes in a run's folder.
fn passes(run: &Path) -> PathBuf {
    run.join(FOLDER)
}

#[cfg(test)]
mod tests;
