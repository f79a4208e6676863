//! Ctrl-C and SIGTERM: the first drains, the second stops at once. Both leave a run that resumes.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// Watches for signals until it is dropped.
pub(crate) struct Interrupts {
    /// Cancelled at the first signal.
    pub(crate) drain: CancellationToken,
    watcher: JoinHandle<()>,
}

impl Interrupts {
    pub(crate) fn watch() -> Self {
        let drain = CancellationToken::new();
        let first = drain.clone();
        let watcher = tokio::spawn(async move {
            signalled().await;
            first.cancel();
            signalled().await;
            eprintln!("stopped; what was recorded is safe, and the same command goes on");
            // Everything recorded is flushed before it is acknowledged, so there is nothing to wait for.
            std::process::exit(Exit::Interrupted as i32);
        });
        Self { drain, watcher }
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

#[cfg(unix)]
async fn signalled() {
    use tokio::signal::unix::{SignalKind, signal};

    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
        }
        Err(_) => {
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}

#[cfg(not(unix))]
async fn signalled() {
    let _ = tokio::signal::ctrl_c().await;
}
