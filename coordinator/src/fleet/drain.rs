//! Stopping in good order: what waits is taken back, what workers hold is waited for.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use lumos_tasks::fleet::RunState;
use tokio_util::sync::CancellationToken;

use super::Around;
use super::announce::set_state;
use crate::dispatch::Command;

/// How often it is looked whether everything has come.
const LOOK: Duration = Duration::from_millis(250);
/// Notices that are older than this, counted from the beginning of the drain, may not know of it.
const NEWS: Duration = Duration::from_millis(2500);

/// Waits for the session to be drained, then sees to it that it ends.
pub(super) async fn drain(around: Around, drain: CancellationToken) {
    tokio::select! {
        () = drain.cancelled() => {}
        () = around.over.cancelled() => return,
    }
    let began = Instant::now();
    tokio::select! {
        () = take_back(&around) => {}
        () = tokio::time::sleep(around.settings.drain_grace) => {}
        () = around.over.cancelled() => return,
    }
    let end = tokio::time::sleep(around.settings.drain_grace.saturating_sub(began.elapsed()));
    tokio::select! {
        () = all_in(&around, began + NEWS) => {}
        () = end => tracing::warn!("workers did not end what they held in time; it stays outstanding"),
        () = around.over.cancelled() => return,
    }
    // The session may be over already.
    let _ = around.commands.send(Command::End).await;
}

/// Tells workers to take nothing more of the run, and takes back what waits.
async fn take_back(around: &Around) {
    loop {
        let told = async {
            set_state(&around.server.runs().await?, &around.run, RunState::Ended).await?;
            Ok::<_, super::FleetError>(around.server.purge_work(around.run.as_str()).await?)
        };
        match told.await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, "what waits could not be taken back"),
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
