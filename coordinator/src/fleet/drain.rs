//! Stopping in good order: queued units are taken back, and what workers hold is waited for.
//!
//! The run's notice loses its lanes first, so that workers take no more of its units; it stays active until the session
//! ends, because workers drop the episodes of a run that has ended.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Around;
use super::announce::close_lanes;
use crate::dispatch::Command;

/// How often it is looked whether everything has come.
const LOOK: Duration = Duration::from_millis(250);
/// Notices that are older than this, counted from the beginning of the drain, may not know of it.
const NEWS: Duration = Duration::from_millis(2500);

/// How long taking the run off the server may take when a session ends.
const FAREWELL: Duration = Duration::from_secs(10);
/// The same when it drains: within its grace time.
const HASTY_FAREWELL: Duration = Duration::from_secs(3);
/// What of the grace time is left for the end: the farewell, and letting go of the run.
const RESERVE: Duration = Duration::from_secs(6);

/// How long taking the run off the server may take.
pub(super) fn farewell(draining: bool) -> Duration {
    if draining { HASTY_FAREWELL } else { FAREWELL }
}

/// How long workers are waited for, so that the process ends within its grace time.
pub(super) fn patience(grace: Duration) -> Duration {
    grace.saturating_sub(RESERVE.min(grace / 2))
}

/// Waits for the session to be drained, then sees to it that it ends.
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
    // The session may be over already.
    let _ = around.commands.send(Command::End).await;
}

/// What a drain did not wait for any longer, for people.
fn left_over(around: &Around) -> String {
    let crew = around.crew.lock().unwrap_or_else(PoisonError::into_inner);
    match crew.holders(&around.run) {
        holders if holders.is_empty() => "results are still on the NATS server".to_owned(),
        holders => format!("workers still hold units ({})", holders.join(", ")),
    }
}

/// Closes the run's lanes for workers, and takes back the units that are queued.
async fn take_back(around: &Around) {
    loop {
        let taken_back = async {
            match close_lanes(&around.server.runs().await?, &around.run).await {
                // The notice was deleted; it is restored without lanes.
                Ok(_) | Err(super::FleetError::NoRun(_)) => {}
                Err(error) => return Err(error),
            }
            Ok::<_, super::FleetError>(around.server.purge_work(around.run.as_str()).await?)
        };
        match taken_back.await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "failed to withdraw queued units"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Until no worker holds anything and every result was recorded.
async fn all_in(around: &Around, news: Instant) {
    loop {
        tokio::time::sleep(LOOK).await;
        let idle = {
            let crew = around.crew.lock().unwrap_or_else(PoisonError::into_inner);
            crew.is_empty() || crew.is_idle(&around.run, news)
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
