//! Ctrl-C and SIGTERM: the first signal drains, the second stops at once. The run can be resumed after both.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;

/// Watches for signals until it is dropped.
pub(crate) struct Interrupts {
    /// Cancelled at the first signal.
    pub(crate) drain: CancellationToken,
    /// Cancelled at the second signal, for commands that must return leases before they end.
    pub(crate) stop: CancellationToken,
    watcher: JoinHandle<()>,
}

impl Interrupts {
    /// Watches for signals. The second one ends the process.
    pub(crate) fn watch() -> Self {
        Self::watch_with(false)
    }

    /// Watches for signals. The second one requests an immediate stop; a third one ends the process.
    pub(crate) fn watch_releasing() -> Self {
        Self::watch_with(true)
    }

    fn watch_with(releasing: bool) -> Self {
        let (drain, stop) = (CancellationToken::new(), CancellationToken::new());
        let (first, second) = (drain.clone(), stop.clone());
        let watcher = tokio::spawn(async move {
            signalled().await;
            first.cancel();
            signalled().await;
            if releasing {
                second.cancel();
                signalled().await;
            }
            eprintln!("stopped; recorded outcomes are safe, and the same command continues the run");
            // Everything recorded is flushed before it is acknowledged, so nothing must be awaited.
            std::process::exit(Exit::Interrupted as i32);
        });
        Self { drain, stop, watcher }
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
