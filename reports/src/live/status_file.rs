//! `status.json`: the status of a run that a worker in the same process executes.
//!
//! The process replaces the file every few seconds and removes it at the end, so that `lumos serve` can show the units
//! in progress, rates and the device of a run without a queue. The fields are those of `lumos status --json`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use lumos_tasks::fleet::{RunStatus, WorkerNotice};
use serde::{Deserialize, Serialize};

use lumos_coordinator::atomic_file::write_whole;

/// Name of the file in a run's folder.
const FILE_NAME: &str = "status.json";
/// Maximum size of the file in bytes.
const LARGEST: u64 = 4 << 20;

/// Contents of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StatusContents {
    pub(super) runs: Vec<RunStatus>,
    pub(super) workers: Vec<WorkerNotice>,
}

/// The status file of a run in progress. Dropping it removes the file.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
}

impl StatusFile {
    /// Names the file in a run's folder. It is written by [`StatusFile::write`].
    pub fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(FILE_NAME) }
    }

    /// Writes the status of the run and of its worker.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, status: RunStatus, worker: WorkerNotice) -> io::Result<()> {
        let contents = StatusContents { runs: vec![status], workers: vec![worker] };
        write_whole(&self.path, |out| Ok(serde_json::to_writer(out, &contents)?))
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // A file that stays is ignored while no process writes the run. The next session removes it.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads the file in a run's folder; `None` if it is missing, too large or malformed.
pub(super) fn read(folder: &Path) -> Option<StatusContents> {
    let mut bytes = Vec::new();
    File::open(folder.join(FILE_NAME)).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::super::notices::tests::{notice, status};
    use super::*;

    #[test]
    fn the_file_is_there_while_the_run_is() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).is_none());
        let file = StatusFile::in_folder(folder.path());
        file.write(status(), notice("local", 1)).unwrap();
        let StatusContents { runs, workers } = read(folder.path()).unwrap();
        assert_eq!((runs, workers), (vec![status()], vec![notice("local", 1)]));
        std::fs::write(folder.path().join(FILE_NAME), b"{\"runs\": [").unwrap();
        assert!(read(folder.path()).is_none());
        drop(file);
        assert!(!folder.path().join(FILE_NAME).exists());
    }
}
