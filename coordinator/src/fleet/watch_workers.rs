//! Detects lost workers and withdraws their leases without waiting for them to expire.
//!
//! [`watch_workers`] passes the workers' notices to the registry and the usage figures. [`UnresponsiveWorkers`]
//! remembers which lost workers held a message, and adds them to the fault of an item that crashes workers.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use lumos_queue::nats::NatsError;
use lumos_tasks::fleet::{ClaimNotice, WorkerNotice};
use lumos_tasks::{Ending, FaultKind};

use super::Around;
use crate::events::Event;

/// Interval at which the workers are checked.
const LOOK: Duration = Duration::from_millis(500);
/// Pause of this task after which missing notices do not count, for example because the machine was
/// suspended.
const GAP: Duration = Duration::from_secs(2);
/// Maximum number of messages with lost holders, of bytes per message id, and of holders per message.
const SUSPECTS: usize = 10_000;
const LONGEST_NAME: usize = 400;
const MOST_HOLDERS: usize = 16;

/// Lost workers that held each message. Several of them indicate an item that crashes workers.
#[derive(Debug, Default)]
pub(super) struct UnresponsiveWorkers(Mutex<HashMap<String, Vec<String>>>);

impl UnresponsiveWorkers {
    fn add(&self, message: &str, worker: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_named = message.len() <= LONGEST_NAME && worker.len() <= LONGEST_NAME;
        if is_named && (held.len() < SUSPECTS || held.contains_key(message)) {
            let workers = held.entry(message.to_owned()).or_default();
            if workers.len() < MOST_HOLDERS && !workers.iter().any(|known| known == worker) {
                workers.push(worker.to_owned());
            }
        }
    }

    /// Returns a function that adds the lost holders of a message to its fault.
    pub(super) fn annotate(self: &Arc<Self>) -> crate::dispatch::Annotate {
        let unresponsive = Arc::clone(self);
        Arc::new(move |message, outcome| {
            let Ending::Faulted(fault) = &mut outcome.ending else { return };
            let held = unresponsive.0.lock().unwrap_or_else(PoisonError::into_inner);
            if fault.kind == FaultKind::Worker
                && let Some(workers) = held.get(message)
            {
                fault.message =
                    format!("{} (workers lost while executing it: {})", fault.message, workers.join(", "));
            }
        })
    }
}

/// Processes the workers' notices until the session ends.
pub(super) async fn watch_workers(around: Around, unresponsive: Arc<UnresponsiveWorkers>) {
    let mut watcher = Watcher {
        around,
        unresponsive,
        recalls: Vec::new(),
        looked: Instant::now(),
        alone_since: Some(Instant::now()),
        told: false,
    };
    let (workers, claims) = loop {
        let server = &watcher.around.server;
        let opened = async { Ok::<_, NatsError>((server.workers().await?, server.claims().await?)) };
        match opened.await {
            Ok(opened) => break opened,
            Err(error) => tracing::debug!(%error, "failed to watch the workers"),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = watcher.around.over.cancelled() => return,
        }
    };
    let mut changes = std::pin::pin!(workers.watch());
    let mut claims = std::pin::pin!(claims);
    let over = watcher.around.over.clone();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = over.cancelled() => return,
            Some(change) = changes.next() => {
                let now = Instant::now();
                let mut registry = watcher.around.registry();
                match change.value.as_deref().map(|value| notice_of(&change.key, value)) {
                    Some(Some(notice)) => {
                        watcher.around.engines().receive(&notice);
                        registry.receive(notice, now);
                    }
                    Some(None) => {
                        tracing::debug!(worker = change.key, "ignored a malformed notice of a worker");
                    }
                    None => drop(registry.leave(&change.key)),
                }
                watcher.around.gauges.concurrency.store(registry.concurrency(), Ordering::Relaxed);
            }
            Some((worker, claimed)) = claims.next() => match serde_json::from_slice::<ClaimNotice>(&claimed) {
                Ok(claimed) => {
                    watcher.around.engines().receive_claims(&worker, &claimed);
                    watcher.around.registry().receive_claims(&worker, claimed);
                }
                Err(error) => tracing::debug!(%error, worker, "ignored malformed claims of a worker"),
            },
            _ = look.tick() => tokio::select! {
                () = watcher.look() => {}
                () = over.cancelled() => return,
            },
        }
    }
}

/// Decodes a notice. Returns `None` if it is malformed, its key is invalid as a name, or its name differs from the key.
fn notice_of(key: &str, value: &[u8]) -> Option<WorkerNotice> {
    // Names are shown on terminals.
    if !WorkerNotice::is_valid_name(key) {
        return None;
    }
    let notice = serde_json::from_slice::<WorkerNotice>(value).ok()?;
    (notice.name == key).then_some(notice)
}

struct Watcher {
    around: Around,
    unresponsive: Arc<UnresponsiveWorkers>,
    /// Leases whose withdrawal failed.
    recalls: Vec<String>,
    looked: Instant,
    alone_since: Option<Instant>,
    told: bool,
}

impl Watcher {
    async fn look(&mut self) {
        let now = Instant::now();
        let slept = now.duration_since(self.looked) > GAP;
        self.looked = now;
        let (lost, concurrency, alone, refused) = {
            let mut registry = self.around.registry();
            if slept || !self.around.server.is_connected() {
                registry.forgive(now);
            }
            let lost = registry.lost(now, self.around.settings.worker_lost_after);
            (lost, registry.concurrency(), registry.is_empty(), registry.has_refusals())
        };
        self.around.gauges.concurrency.store(concurrency, Ordering::Relaxed);
        for worker in lost {
            self.lose(&worker).await;
        }
        let mut again = Vec::new();
        for token in std::mem::take(&mut self.recalls) {
            if let Err(NatsError::Unreachable(_)) = self.around.server.reassign(&token).await {
                again.push(token);
            }
        }
        self.recalls = again;
        self.look_for_workers(now, alone, refused).await;
    }

    async fn lose(&mut self, worker: &WorkerNotice) {
        let mut recalled = 0;
        for lease in worker.held.iter().filter(|lease| lease.run == self.around.run) {
            self.unresponsive.add(&lease.message, &worker.name);
            recalled += 1;
            match self.around.server.reassign(&lease.token).await {
                Ok(()) => {}
                Err(NatsError::Unreachable(_)) => self.recalls.push(lease.token.clone()),
                Err(error) => {
                    tracing::debug!(%error, worker = worker.name, "failed to withdraw a lease");
                }
            }
        }
        self.around.sink.emit(Event::WorkerLost { worker: worker.name.clone(), recalled }).await;
    }

    /// Warns when units are queued and no worker takes them.
    async fn look_for_workers(&mut self, now: Instant, alone: bool, refused: bool) {
        let waiting = self.around.gauges.in_flight.load(Ordering::Relaxed) > 0;
        let idle = alone || (refused && self.around.gauges.silence() > self.around.settings.quiet);
        if !idle || !waiting {
            self.alone_since = None;
            self.told = false;
            return;
        }
        let since = *self.alone_since.get_or_insert(now);
        if self.told || now.duration_since(since) < self.around.settings.lonely_after {
            return;
        }
        self.told = true;
        let hint = if let Some(trouble) = self.around.gauges.trouble() {
            format!(
                "the NATS server refuses to store anything, so workers cannot register: {trouble}; free disk space on it or \
                 raise its max_file_store, and the run continues automatically"
            )
        } else if alone {
            format!(
                "no worker has registered: start one with `lumos worker --queue {}`",
                self.around.settings.address
            )
        } else {
            let refusals = self.around.registry().refusals();
            format!("connected workers cannot execute this run's units: {refusals}")
        };
        self.around.sink.emit(Event::NoWorkers { hint }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::worker_registry::tests::notice;
    use super::*;

    #[test]
    fn a_notice_whose_name_could_write_to_the_terminal_is_ignored() {
        let stored = |key: &str, name: &str| {
            notice_of(key, &serde_json::to_vec(&notice(name, vec![])).unwrap()).map(|notice| notice.name)
        };
        let (longest, longer) = ("w".repeat(200), "w".repeat(201));
        for name in ["gpu-1_b", longest.as_str()] {
            assert_eq!(stored(name, name).as_deref(), Some(name));
        }
        for name in ["", "\u{1b}[2J", "gpu 1", "gpu.1", "w\u{f6}rker", longer.as_str()] {
            assert_eq!(stored(name, name), None, "{name:?}");
        }
        assert_eq!(stored("gpu-1", "gpu-2"), None);
        assert!(notice_of("gpu-1", b"{}").is_none());
    }
}
