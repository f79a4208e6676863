//! The status file of a run that a worker in this process executes, for `lumos serve`.

use std::sync::Arc;
use std::time::Duration;

use lumos_coordinator::dispatch::RunProgress;
use lumos_models::ModelRegistry;
use lumos_reports::live::StatusFile;
use lumos_tasks::fleet::{Holdings, PROTOCOL, WorkerNotice};
use lumos_worker::activity::Activity;
use tokio_util::sync::CancellationToken;

/// Interval between writes. A run that is shorter writes no file.
const EVERY: Duration = Duration::from_secs(2);

/// What the status of a run in this process consists of.
pub(super) struct LocalStatus {
    pub(super) file: StatusFile,
    pub(super) progress: RunProgress,
    pub(super) activity: Activity,
    pub(super) models: Arc<ModelRegistry>,
    /// The worker's name.
    pub(super) worker: String,
    pub(super) device: String,
    pub(super) concurrency: usize,
}

/// Writes the status until the run has ended, then removes it.
pub(super) async fn write_status(local: LocalStatus, ended: CancellationToken) {
    let LocalStatus { file, progress, activity, models, worker, device, concurrency } = local;
    let file = Arc::new(file);
    loop {
        tokio::select! {
            () = ended.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let status = progress.status();
        let loaded = models.list().await.into_iter().map(|model| model.identity).collect();
        let notice = WorkerNotice {
            protocol: PROTOCOL,
            name: worker.clone(),
            host: status.host.clone(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            holdings: Holdings {
                device: device.clone(),
                models: loaded,
                concurrency: u32::try_from(concurrency).unwrap_or(u32::MAX),
                ..Holdings::default()
            },
            in_use: u32::try_from(activity.in_progress()).unwrap_or(u32::MAX),
            finished: progress.finished(),
            units_per_second: status.units_per_second,
            tokens_per_second: status.tokens_per_second,
            engines: models.engines(),
            oldest: activity.oldest(Some(&status.run)),
            started_ms: status.started_ms,
            written_ms: status.written_ms,
            ..WorkerNotice::default()
        };
        // The next status replaces one that could not be written.
        let file = Arc::clone(&file);
        let written = tokio::task::spawn_blocking(move || file.write(status, notice)).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "failed to write the status file");
        }
    }
}
