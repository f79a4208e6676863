//! Orderly shutdown: withdraws queued units and waits for those that workers hold.
//!
//! The run's shards are removed from its notice first, so that workers take no more of its units. The run
//! stays active until the session ends, because workers drop the episodes of a run that has ended.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Around;
use super::announce::close_shards;
use super::worker_registry::first_of;
use crate::dispatch::Command;

/// Interval at which completion is checked.
const LOOK: Duration = Duration::from_millis(250);
/// Notices older than this, relative to the start of the drain, may not reflect it.
const NEWS: Duration = Duration::from_millis(2500);

/// Time limit for removing the run from the server when a session ends.
const FAREWELL: Duration = Duration::from_secs(10);
/// The same limit when the session drains, as part of the grace time.
const HASTY_FAREWELL: Duration = Duration::from_secs(3);
/// Part of the grace time reserved for removing the run from the server and releasing the claim.
const RESERVE: Duration = Duration::from_secs(6);

/// Returns the time limit for removing the run from the server.
pub(super) fn farewell(draining: bool) -> Duration {
    if draining { HASTY_FAREWELL } else { FAREWELL }
}

/// Returns how long to wait for workers, so that the process ends within its grace time.
pub(super) fn patience(grace: Duration) -> Duration {
    grace.saturating_sub(RESERVE.min(grace / 2))
}

/// Waits until the session is asked to drain, then drains it and ends it.
pub(super) async fn drain(around: Around, drain: CancellationToken) {
    tokio::select! {
        () = drain.cancelled() => {}
        () = around.over.cancelled() => return,
    }
    let began = Instant::now();
    let patience = patience(around.settings.drain_grace);
    tokio::select! {
        () = take_back(&around) => {}
        () = tokio::time::sleep(patience) => tracing::warn!(
            "failed to withdraw the queued units in time: the NATS server does not respond or refuses; \
             they stay on the server and the next session records them"
        ),
        () = around.over.cancelled() => return,
    }
    let end = tokio::time::sleep(patience.saturating_sub(began.elapsed()));
    tokio::select! {
        () = all_in(&around, began + NEWS) => {}
        () = end => {
            let left = left_over(&around);
            tracing::warn!("{left} after draining for {} s; these units stay outstanding", patience.as_secs());
        }
        () = around.over.cancelled() => return,
    }
    // The session may have ended.
    let _ = around.commands.send(Command::End).await;
}

/// Describes the work that a drain stopped waiting for.
fn left_over(around: &Around) -> String {
    match around.registry().holders(&around.run) {
        holders if holders.is_empty() => "results are still on the NATS server".to_owned(),
        holders => {
            let named = first_of(holders.iter().map(String::as_str), ", ");
            format!("workers still hold units ({named})")
        }
    }
}

/// Closes the run's shards and withdraws its queued units.
async fn take_back(around: &Around) {
    loop {
        let taken_back = async {
            match close_shards(&around.server.runs().await?, &around.run).await {
                // The notice was deleted; it is restored without shards.
                Ok(_) | Err(super::CoordinatorError::NoRun(_)) => {}
                Err(error) => return Err(error),
            }
            Ok::<_, super::CoordinatorError>(around.server.purge_work(around.run.as_str()).await?)
        };
        match taken_back.await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "failed to withdraw queued units"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until no worker holds units and every result is recorded.
async fn all_in(around: &Around, news: Instant) {
    loop {
        tokio::time::sleep(LOOK).await;
        let idle = {
            let registry = around.registry();
            registry.is_empty() || registry.is_idle(&around.run, news)
        };
        if idle && around.server.results_present(around.run.as_str()).await.is_ok_and(|left| left.is_empty())
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draining_and_its_farewell_fit_into_the_grace_time() {
        for grace in [0, 1, 4, 12, 20, 600].map(Duration::from_secs) {
            assert!(patience(grace) <= grace);
        }
        let released = Duration::from_secs(3);
        let grace = Duration::from_secs(20);
        assert!(patience(grace) + farewell(true) + released <= grace);
    }
}
