//! Reconciliation between the session and the server.
//!
//! Publishes lost units again (published, and neither queued, held by a worker, nor among the results),
//! recreates data that was deleted from the server, recreates consumers that no longer deliver the messages
//! of their stream, and warns about long waits.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lumos_queue::nats::{NatsError, Server, ShardState};
use lumos_tasks::{Reminder, RunToken};

use super::error::CoordinatorError;
use super::restore::Restorer;
use super::retrying_client::RetryingClient;
use super::stall::{Situation, Wait};
use super::{Around, token};
use crate::dispatch::{Command, Present};

/// Interval at which due work is checked.
const LOOK: Duration = Duration::from_millis(500);

/// Message ids of a run that are on the server.
#[derive(Debug, Default)]
struct Asked {
    work: HashSet<String>,
    results: HashSet<String>,
}

impl Asked {
    fn present(&self) -> Present {
        self.work.iter().chain(&self.results).flat_map(|id| token::tickets(id)).collect()
    }
}

/// Requests the run's message ids from the server. Work comes first, because a unit leaves the work queue
/// only after its result is stored.
async fn ask(server: &Server, run: &RunToken) -> Result<Asked, NatsError> {
    let work = server.work_present(run.as_str()).await?;
    let results = server.results_present(run.as_str()).await?;
    Ok(Asked { work, results })
}

/// Requests the run's message ids before anything is published.
pub(super) async fn present(
    server: &Server,
    run: &RunToken,
    client: &RetryingClient,
) -> Result<Present, CoordinatorError> {
    Ok(client.call(|| ask(server, run)).await?.present())
}

/// Reconciles until the session ends: periodically, after a reconnection, after something was restored, and
/// when no results arrive.
pub(super) async fn reconcile(around: Around, restorer: Restorer) {
    let over = around.over.clone();
    let reconnections = around.server.connection().borrow().reconnections;
    let now = Instant::now();
    let mut keeper = Keeper {
        reconnections,
        asked: now,
        restored: now,
        forced: false,
        stuck: Stuck::default(),
        reminder: Reminder::new(around.settings.stall_warning),
        examiner: Reminder::new(around.settings.quiet * 2),
        restorer,
        around,
    };
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = over.cancelled() => return,
        }
        tokio::select! {
            going_on = keeper.look() => if !going_on {
                return;
            },
            () = over.cancelled() => return,
        }
    }
}

struct Keeper {
    around: Around,
    restorer: Restorer,
    /// State at the last request.
    reconnections: u64,
    asked: Instant,
    restored: Instant,
    /// Whether something was restored since the last request.
    forced: bool,
    stuck: Stuck,
    reminder: Reminder,
    /// Schedules the search for unreadable messages.
    examiner: Reminder,
}

/// Consumers and streams that appeared stuck. They are recreated only after appearing stuck twice in a row.
#[derive(Debug, Default)]
struct Stuck {
    results: bool,
    shards: HashSet<String>,
    streams: HashSet<String>,
    /// How often the results consumer was recreated while the results remained.
    remade: u32,
}

impl Keeper {
    /// Returns false when the session has ended.
    async fn look(&mut self) -> bool {
        let state = *self.around.server.connection().borrow();
        let settings = self.around.settings.clone();
        if state.connected && self.restored.elapsed() >= settings.restore_every {
            self.forced |= self.restorer.restore(&self.around).await;
            self.restored = Instant::now();
        }
        if self.around.gauges.in_flight.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let silence = self.around.gauges.silence();
        if self.reminder.is_due(silence) {
            self.warn(state.connected, silence).await;
        }
        if !state.connected {
            return true;
        }
        let quiet = silence > settings.quiet && self.asked.elapsed() > settings.quiet;
        let due = self.asked.elapsed() >= settings.reconcile_every;
        if !(quiet || due || self.forced || state.reconnections != self.reconnections) {
            return true;
        }
        // Only units published before the request can be reported missing by the response.
        let round = self.around.gauges.round.fetch_add(1, Ordering::AcqRel) + 1;
        let asked = match ask(&self.around.server, &self.around.run).await {
            Ok(asked) => asked,
            Err(error) => {
                tracing::debug!(%error, "failed to list the messages on the server");
                return true;
            }
        };
        let mut present = asked.present();
        present.extend(self.held().iter().flat_map(|id| token::tickets(id)));
        (self.asked, self.reconnections, self.forced) = (Instant::now(), state.reconnections, false);
        if self.around.commands.send(Command::Present { present, round }).await.is_err() {
            return false;
        }
        if self.examiner.is_due(silence) {
            self.remove_unreadable().await;
        }
        if silence > settings.quiet {
            self.loosen(&asked, silence).await;
            self.give_up_hung_streams(&asked).await;
        } else if asked.results.is_empty() {
            self.stuck = Stuck::default();
        }
        true
    }

    /// Ids of the work messages that workers hold.
    fn held(&self) -> HashSet<String> {
        self.around.registry().held(&self.around.run).map(|lease| lease.message.clone()).collect()
    }

    /// Removes messages whose delivery breaks the receiver's connection. Their units are then missing and are
    /// published again.
    async fn remove_unreadable(&mut self) {
        let Around { server, run, .. } = &self.around;
        match server.remove_unreadable(run.as_str()).await {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => {
                self.forced = true;
                tracing::warn!(
                    "removed {} messages with damaged headers from the NATS server: {}; their units are published \
                     again",
                    removed.len(),
                    removed.join(", ")
                );
            }
            Err(error) => tracing::debug!(%error, "failed to inspect messages"),
        }
    }

    /// Recreates consumers that do not deliver existing messages.
    async fn loosen(&mut self, asked: &Asked, silence: Duration) {
        let Around { server, run, gauges, .. } = &self.around;
        let pending = !asked.results.is_empty() && !gauges.recording.load(Ordering::Relaxed);
        if pending && std::mem::replace(&mut self.stuck.results, pending) {
            let count = asked.results.len();
            match server.remake_results(run.as_str()).await {
                Ok(()) => tracing::warn!(
                    "{count} result messages on the NATS server were not delivered for {} s: recreated the \
                     consumer of the results",
                    silence.as_secs()
                ),
                Err(error) => {
                    tracing::debug!(%error, "failed to recreate the consumer of the results");
                }
            }
            self.stuck.results = false;
            self.stuck.remade += 1;
        }
        if asked.results.is_empty() {
            self.stuck.remade = 0;
        }
        self.stuck.results &= pending;
        let held = self.held();
        let unheld = asked.work.iter().filter(|id| !held.contains(*id)).count();
        let mut stuck = HashSet::new();
        for shard in self.restorer.shards().iter().filter(|_| unheld > 0) {
            let Ok(standing) = server.shard_standing(shard).await else { continue };
            if !is_stuck(&standing, silence, server.layout().lease) {
                continue;
            }
            if !self.stuck.shards.contains(shard) {
                stuck.insert(shard.clone());
                continue;
            }
            match server.remake_shard(shard).await {
                Ok(()) => tracing::warn!(
                    "{unheld} units queued on the NATS server were not delivered to workers that request \
                     them: recreated the consumer of shard {shard}"
                ),
                Err(error) => {
                    tracing::debug!(%error, shard, "failed to recreate the consumer of a shard");
                }
            }
        }
        self.stuck.shards = stuck;
    }

    /// Recreates streams that store nothing although they could, as after a full disk on the server. Does so
    /// only if there is something to store, and after all results of the run in the stream were delivered: the
    /// ones that remain are there because the stream cannot remove them either.
    async fn give_up_hung_streams(&mut self, asked: &Asked) {
        let Around { server, gauges, .. } = &self.around;
        let spooled = self.around.registry().spooled();
        let delivered = asked.results.is_empty() || self.stuck.remade > 0;
        if (spooled == 0 && gauges.trouble().is_none()) || !delivered {
            self.stuck.streams.clear();
            return;
        }
        let hung: HashSet<String> = match server.hung().await {
            Ok(hung) => hung.into_iter().collect(),
            Err(error) => {
                tracing::debug!(%error, "failed to check whether streams hang");
                return;
            }
        };
        for stream in hung.intersection(&self.stuck.streams) {
            tracing::warn!(
                "stream `{stream}` of the NATS server responds but stores nothing, as after a full disk: deleting and \
                 recreating it"
            );
            if let Err(error) = server.give_up(stream).await {
                tracing::warn!("failed to delete stream `{stream}`: {error}\nhint: restart the NATS server");
            }
        }
        self.stuck.streams = hung;
    }

    /// Warns about the cause of a wait.
    async fn warn(&self, connected: bool, silence: Duration) {
        let Around { server, run, gauges, settings, .. } = &self.around;
        let asked = if connected { ask(server, run).await } else { Ok(Asked::default()) };
        let unanswered = matches!(asked, Err(NatsError::Unreachable(_)));
        let asked = asked.unwrap_or_default();
        let held = self.held();
        let situation = {
            let registry = self.around.registry();
            Situation {
                connected,
                unanswered,
                trouble: gauges.trouble(),
                recording: gauges.recording.load(Ordering::Relaxed),
                in_flight: gauges.in_flight.load(Ordering::Relaxed),
                workers: registry.count(),
                refusals: registry.refusals(),
                results: asked.results.len(),
                held: held.len(),
                holders: registry.holders(run),
                spooled: registry.spooled(),
                queued: asked.work.iter().filter(|id| !held.contains(*id)).count(),
            }
        };
        let wait = Wait::of(situation);
        let now = jiff::Timestamp::now();
        tracing::warn!("{}", super::stall::message(&wait, silence, now, &settings.address));
    }
}

/// Whether a shard's consumer fails to deliver: it has lost messages that its stream contains, or workers
/// request messages and receive none although some are undelivered or due for redelivery.
fn is_stuck(standing: &ShardState, silence: Duration, lease: Duration) -> bool {
    let ShardState { pending, unacknowledged, waiting, messages } = *standing;
    let lost = pending + unacknowledged < messages;
    let deaf = waiting > 0 && pending > 0;
    let overdue = waiting > 0 && unacknowledged > 0 && silence > lease * 2;
    lost || deaf || overdue
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_stuck_if_what_it_holds_does_not_reach_those_who_ask() {
        let lease = Duration::from_secs(30);
        let standing = |pending, unacknowledged, waiting, messages| ShardState {
            pending,
            unacknowledged,
            waiting,
            messages,
        };
        let stuck = |standing, seconds| is_stuck(&standing, Duration::from_secs(seconds), lease);
        assert!(!stuck(standing(5, 3, 0, 8), 300), "no worker requests units: they load models");
        assert!(!stuck(standing(0, 3, 2, 3), 40), "workers hold all units");
        assert!(!stuck(standing(0, 0, 2, 0), 300), "no units are queued");
        assert!(stuck(standing(0, 3, 2, 8), 20), "five are lost");
        assert!(stuck(standing(5, 3, 2, 8), 20), "requested and not delivered");
        assert!(stuck(standing(0, 3, 2, 3), 61), "no lease lasts this long without renewal");
    }
}
