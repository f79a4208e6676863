//! Judging a run by a model: a separate pass with its own manifest and checkpoint in the run's folder.
//!
//! ```text
//! runs/<name>/judge/<pass>/manifest.json    the judge
//!                          checkpoint/      every question and every reply
//!             judge/current                 the pass whose verdicts are reported
//! ```
//! A question to the judge is an item, and its unit is an episode of one call
//! ([`Task::Judge`](lumos_tasks::Task)). Passes are therefore dispatched, retried, distributed to workers and
//! resumed by the same code as runs, and the run's own checkpoint is not changed. The identity of a question
//! is derived from its text, so outcomes with the same prediction for the same item are judged once.

mod pass;
mod verdicts;

pub use pass::{Asked, JudgeError, Pass, configuration, plan};
pub use verdicts::{JudgeReport, Verdicts};

use std::path::{Path, PathBuf};

/// Benchmark name of the questions of a pass.
pub const BENCHMARK: &str = "judge";

/// Name of the folder of passes in a run's folder.
const FOLDER: &str = "judge";
/// Name of the file that contains the name of the pass whose verdicts are reported.
const CURRENT: &str = "current";

/// Returns the folders of a run's passes, sorted by name.
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

/// Returns the folder of passes in a run's folder.
fn passes(run: &Path) -> PathBuf {
    run.join(FOLDER)
}

#[cfg(test)]
mod tests;
