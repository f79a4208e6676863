//! Screenshots of the steps of an episode.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use lumos_tasks::UnitId;

/// A folder for the screenshots of one episode, named by the identifier of its unit as in the samples.
/// Failures are logged and do not stop the episode.
#[derive(Debug)]
pub(crate) struct Screenshots {
    folder: PathBuf,
    taken: AtomicU32,
}

impl Screenshots {
    /// Starts the screenshots of an episode. Removes those of an earlier attempt.
    pub(crate) async fn begin(below: &Path, unit: &UnitId) -> Self {
        let folder = below.join(unit.as_str());
        match tokio::fs::remove_dir_all(&folder).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %folder.display(), %error, "failed to remove older screenshots");
            }
            _ => {}
        }
        Self { folder, taken: AtomicU32::new(0) }
    }

    /// Writes the screenshot of the next step, a PNG.
    pub(crate) async fn keep_next(&self, picture: Vec<u8>) {
        self.keep(self.taken.fetch_add(1, Ordering::Relaxed) + 1, picture).await;
    }

    /// Writes the screenshot of the step with this number, a PNG.
    pub(crate) async fn keep(&self, number: u32, picture: Vec<u8>) {
        let path = self.folder.join(format!("{number:04}.png"));
        let kept = async {
            tokio::fs::create_dir_all(&self.folder).await?;
            tokio::fs::write(&path, picture).await
        };
        if let Err(error) = kept.await {
            tracing::warn!(path = %path.display(), %error, "failed to write a screenshot");
        }
    }
}
