//! Ctrl-C and SIGTERM: the first signal drains, the second stops at once. The run can be resumed after both.

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::progress::write_line;

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
        let mut signals = Signals::listen();
        let watcher = tokio::spawn(async move {
            signals.signalled().await;
            // A session that drains for another reason, such as too many faults, stops at the first signal.
            if !first.is_cancelled() {
                first.cancel();
                signals.signalled().await;
            }
            if releasing {
                second.cancel();
                signals.signalled().await;
            }
            write_line(format_args!(
                "stopped; recorded outcomes are safe, and the same command continues the run"
            ));
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

/// Ctrl-C and SIGTERM. A signal that arrives between two waits is returned by the next one.
pub(crate) struct Signals {
    /// SIGINT and SIGTERM; `None` if their handlers cannot be installed.
    #[cfg(unix)]
    streams: Option<[tokio::signal::unix::Signal; 2]>,
}

impl Signals {
    /// Starts listening. Signals no longer end the process.
    pub(crate) fn listen() -> Self {
        Self {
            #[cfg(unix)]
            streams: streams().ok(),
        }
    }

    /// Waits for the next signal.
    pub(crate) async fn signalled(&mut self) {
        #[cfg(unix)]
        if let Some([interrupt, terminate]) = &mut self.streams {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}

#[cfg(unix)]
fn streams() -> std::io::Result<[tokio::signal::unix::Signal; 2]> {
    use tokio::signal::unix::{SignalKind, signal};

    Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])
}

#[cfg(test)]
mod tests {
    #[cfg(unix)]
    #[tokio::test]
    async fn the_first_signal_stops_a_session_that_drains_already() {
        use std::time::Duration;

        use super::Interrupts;

        // A session that does not drain yet stops at the second one.
        for signals in [2, 1] {
            let interrupts = Interrupts::watch_releasing();
            if signals == 1 {
                interrupts.drain.cancel();
            }
            for _ in 0..signals {
                assert!(!interrupts.stop.is_cancelled());
                // SAFETY: the handler of the signal is installed, so it does not end the process.
                let raised = unsafe { libc::raise(libc::SIGTERM) };
                assert_eq!(raised, 0);
                let drained = interrupts.drain.cancelled();
                tokio::time::timeout(Duration::from_secs(60), drained).await.unwrap();
            }
            let stopped = interrupts.stop.cancelled();
            tokio::time::timeout(Duration::from_secs(60), stopped).await.unwrap();
        }
    }
}
