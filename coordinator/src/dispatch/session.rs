//! The loop of a session, which executes the unit tracker's decisions.
//!
//! [`Session`] publishes units to the work queue, claims results, records them and acknowledges their
//! messages. It handles a temporary failure of either queue by retrying with a delay, and receives commands
//! from the fleet tasks if there are any.

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::{Assignment, Finished};
use tokio_util::sync::CancellationToken;

use super::assignments::{AssignmentBuilder, tracker, watches};
use super::control::{Asker, Command, ControlChannel, EventSink};
use super::ingest::PendingResult;
use super::results::DropWarnings;
use super::unit_tracker::{UnitAttempt, UnitTracker};
use super::{DispatchConfig, DispatchError, Summary};
use crate::checkpoint::{CheckpointError, Recorded, RunStore};
use crate::events::Event;
use crate::manifest::Manifest;
use crate::spec::{StopWatch, Stopped};
use crate::unit_key::UnitKey;

/// Maximum number of result messages recorded together, with one flush.
const RESULTS: usize = 256;
/// Maximum number of units published together.
const UNITS: usize = 256;
/// Results of a fleet that arrive within this time are recorded together.
const GATHERED: Duration = Duration::from_millis(5);
/// Units given out per unit of concurrency of a large fleet.
const PER_SLOT: usize = 4;
/// Initial and maximum delay before a failed queue is used again.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(3));

/// Interval at which the run's elapsed time is written to the checkpoint.
const NOTE_SECONDS_EVERY: Duration = Duration::from_secs(1);

type Publishing<'q> = BoxFuture<'q, (Vec<UnitAttempt>, Result<(), QueueError>)>;
type Claiming<'q, R> = BoxFuture<'q, Result<Vec<Lease<R>>, QueueError>>;
type Recording<'q> = BoxFuture<'q, Result<Vec<(PendingResult, Recorded)>, CheckpointError>>;

/// A session over a run's open units.
pub(crate) struct Session<'a> {
    terms: DispatchConfig,
    run: String,
    pub(crate) labels: Vec<String>,
    pub(super) store: &'a dyn RunStore,
    pub(crate) sink: EventSink,
    pub(crate) tracker: UnitTracker,
    pub(super) builder: AssignmentBuilder<'a>,
    pub(super) link: Option<ControlChannel>,
    /// Warnings about results that are not recorded.
    pub(super) dropped: DropWarnings,
    /// Whether units are still published.
    publishing: bool,
    /// Whether the session ends after recording the claimed results.
    ending: bool,
    too_many_faults: bool,
    cancelled: bool,
    /// Scores for the stop rules, by configuration.
    pub(super) watches: HashMap<u32, StopWatch>,
    /// Configurations that stop rules ended in this session.
    stopped: Vec<(usize, Stopped)>,
    /// Number of consecutive failures of each queue.
    failures: [u32; 2],
    away_since: Option<Instant>,
    began: Instant,
    /// Seconds of earlier sessions.
    seconds_before: f64,
    /// When the elapsed time was last written.
    seconds_noted: Instant,
    /// Whether something was recorded since.
    seconds_due: bool,
}

/// The two queues, each of which can fail independently.
#[derive(Clone, Copy)]
enum QueueName {
    Work = 0,
    Results = 1,
}

/// Returns the delay before a queue is used again, after a number of consecutive failures.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => Duration::ZERO,
        failures => (PATIENCE.0 * 2u32.saturating_pow(failures.min(8) - 1)).min(PATIENCE.1),
    }
}

impl<'a> Session<'a> {
    /// Opens a session: finds the units that are not settled.
    pub(crate) fn open(
        manifest: &Manifest,
        terms: DispatchConfig,
        store: &'a dyn RunStore,
        sink: EventSink,
        link: Option<ControlChannel>,
    ) -> Result<Self, CheckpointError> {
        let run = link.as_ref().map(|link| link.run.clone());
        let tracker = tracker(manifest, store, terms.retry_on_error)?;
        let watches = watches(manifest, store, &tracker)?;
        Ok(Self {
            terms,
            run: manifest.spec.name.clone(),
            labels: manifest.configurations.iter().map(|planned| planned.label.clone()).collect(),
            store,
            sink,
            tracker,
            builder: AssignmentBuilder::new(manifest, store, run),
            link,
            dropped: DropWarnings::default(),
            publishing: true,
            ending: false,
            too_many_faults: false,
            cancelled: false,
            watches,
            stopped: Vec::new(),
            failures: [0; 2],
            away_since: None,
            began: Instant::now(),
            seconds_before: store.seconds()?.unwrap_or_default(),
            seconds_noted: Instant::now(),
            seconds_due: false,
        })
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            planned: self.tracker.planned(),
            settled: self.tracker.settled(),
            faulted: self.tracker.faulted(),
            too_many_faults: self.too_many_faults,
            cancelled: self.cancelled,
            stopped: self.stopped.clone(),
        }
    }

    pub(crate) async fn start(&mut self) {
        self.sink
            .emit(Event::Started {
                run: self.run.clone(),
                planned: self.tracker.planned(),
                settled: self.tracker.settled(),
                configurations: self.labels.clone(),
            })
            .await;
        self.apply_stop_rules().await;
    }

    /// Ends or continues the configurations whose first items have ended.
    async fn apply_stop_rules(&mut self) {
        for configuration in self.tracker.take_due() {
            let decided = self.tracker.end(configuration).and_then(|end| {
                let units = self.tracker.tallies().get(configuration as usize)?.planned;
                self.watches.remove(&configuration)?.decide(end, units)
            });
            let Some(stopped) = decided else {
                self.tracker.release(configuration);
                continue;
            };
            let units = self.tracker.stop(configuration);
            let configuration = configuration as usize;
            let label = self.labels.get(configuration).cloned().unwrap_or_default();
            let reason = stopped.describe();
            self.sink.emit(Event::Stopped { configuration, label, reason, units }).await;
            self.stopped.push((configuration, stopped));
        }
    }

    pub(crate) async fn run<R: Into<Vec<Finished>> + Send + Sync>(
        &mut self,
        work: &dyn Queue<Assignment>,
        results: &dyn Queue<R>,
        drain: &CancellationToken,
    ) -> Result<(), DispatchError> {
        // Never drop these futures before they complete. An interrupted publish would have to be repeated
        // although it may already have succeeded.
        let mut publishing: Option<Publishing<'_>> = None;
        let mut claiming: Option<Claiming<'_, R>> = None;
        let mut recording: Option<Recording<'_>> = None;
        let mut claimed: Option<Vec<Lease<R>>> = None;
        let mut again: Vec<UnitAttempt> = Vec::new();
        let mut closed = false;
        let mut gathering = Duration::ZERO;
        let store = self.store;
        loop {
            if recording.is_none()
                && let Some(leases) = claimed.take()
            {
                recording = Some(Box::pin(self.admit(leases).record(store)));
            }
            self.show_gauges(recording.is_some());
            let idle = recording.is_none() && claimed.is_none();
            if idle && (self.tracker.is_done() || self.ending || closed) {
                return self.note_seconds(store);
            }
            if publishing.is_none() && self.publishing {
                publishing = self.publish(work, std::mem::take(&mut again))?;
            }
            if claiming.is_none() && claimed.is_none() && !closed {
                let pause = pause(self.failures[QueueName::Results as usize]).max(gathering);
                claiming = Some(claim(results, pause));
            }
            tokio::select! {
                biased;
                command = command(&mut self.link) => self.apply(command, work).await?,
                () = drain.cancelled(), if self.publishing => self.stop(work, "interrupted").await,
                noted = going(&mut recording) => {
                    recording = None;
                    for (note, recorded) in noted? {
                        self.conclude(note, recorded).await;
                    }
                    self.seconds_due = true;
                    if self.seconds_noted.elapsed() >= NOTE_SECONDS_EVERY {
                        self.note_seconds(store)?;
                    }
                    self.apply_stop_rules().await;
                    self.stop_if_too_many_faulted(work, drain).await;
                }
                (tickets, published) = going(&mut publishing) => {
                    publishing = None;
                    match published {
                        Ok(()) => {
                            self.tracker.sent(&tickets, self.round());
                            self.queue_worked(QueueName::Work).await;
                        }
                        // A queue that closes after publishing has stopped is not an error.
                        Err(QueueError::Closed) if !self.publishing => {}
                        Err(error) => {
                            self.queue_failed(QueueName::Work, error).await?;
                            again = tickets;
                        }
                    }
                }
                leases = going(&mut claiming) => {
                    claiming = None;
                    match leases {
                        Ok(leases) => {
                            self.queue_worked(QueueName::Results).await;
                            closed = leases.is_empty();
                            let more = self.link.is_some() && leases.len() < RESULTS;
                            gathering = if more { GATHERED } else { Duration::ZERO };
                            claimed = Some(leases);
                        }
                        Err(error) => self.queue_failed(QueueName::Results, error).await?,
                    }
                }
            }
        }
    }

    /// Starts publishing the next units; units that failed to be sent go first.
    fn publish<'q>(
        &mut self,
        work: &'q dyn Queue<Assignment>,
        again: Vec<UnitAttempt>,
    ) -> Result<Option<Publishing<'q>>, CheckpointError> {
        let mut tickets: Vec<UnitAttempt> =
            again.into_iter().filter(|unit_attempt| self.tracker.is_sending(unit_attempt)).collect();
        if tickets.is_empty() {
            tickets = self.tracker.next(self.window(), self.at_once(), UNITS);
        }
        if tickets.is_empty() {
            return Ok(None);
        }
        // Messages are large; collecting into a `Result` would copy the vector while it grows.
        let mut messages = Vec::with_capacity(tickets.len());
        for unit_attempt in &tickets {
            messages.push(self.builder.message(&self.tracker, unit_attempt)?);
        }
        let pause = pause(self.failures[QueueName::Work as usize]);
        Ok(Some(Box::pin(async move {
            tokio::time::sleep(pause).await;
            let published = work.publish_all(messages).await;
            (tickets, published)
        })))
    }

    /// Writes the run's elapsed time if something was recorded since the last write.
    fn note_seconds(&mut self, store: &dyn RunStore) -> Result<(), DispatchError> {
        if std::mem::take(&mut self.seconds_due) {
            self.seconds_noted = Instant::now();
            store.note_seconds(self.seconds_before + self.began.elapsed().as_secs_f64())?;
        }
        Ok(())
    }

    async fn apply(&mut self, command: Command, work: &dyn Queue<Assignment>) -> Result<(), DispatchError> {
        match command {
            Command::Present { present, round } => {
                let store = self.store;
                let recorded = |unit: &UnitKey, attempt| store.has(unit, attempt);
                let units = self.tracker.missing(&present, round, recorded);
                if units > 0 && self.publishing {
                    self.sink.emit(Event::Recovered { units }).await;
                }
            }
            Command::Cancelled => {
                self.cancelled = true;
                self.ending = true;
                self.publishing = false;
                work.close();
                self.sink.emit(Event::Cancelled { at_hand: self.tracker.in_flight() as u64 }).await;
            }
            Command::End => self.ending = true,
            Command::Displaced(why) => return Err(DispatchError::Displaced(why)),
        }
        Ok(())
    }

    async fn stop(&mut self, work: &dyn Queue<Assignment>, reason: &str) {
        self.publishing = false;
        work.close();
        let at_hand = self.at_hand();
        let at_most = self.link.as_ref().map(|link| link.patience.as_secs_f64());
        self.sink.emit(Event::Draining { reason: reason.to_owned(), at_hand, at_most }).await;
    }

    async fn stop_if_too_many_faulted(&mut self, work: &dyn Queue<Assignment>, drain: &CancellationToken) {
        let stops = self.terms.fail_on_error.stops(self.tracker.faulted(), self.tracker.planned());
        if self.publishing && stops {
            self.too_many_faults = true;
            self.stop(work, "too many items faulted").await;
            drain.cancel();
        }
    }

    /// Records a temporary failure of a queue, which is then retried with a delay. Returns any other error.
    async fn queue_failed(&mut self, queue: QueueName, error: QueueError) -> Result<(), QueueError> {
        if !matches!(error, QueueError::Unreachable(_) | QueueError::Full | QueueError::Gone(_)) {
            return Err(error);
        }
        if let Some(link) = &self.link {
            link.gauges.set_trouble(Asker::Session, Some(error.to_string()));
        }
        tracing::debug!(%error, "the queue is currently unavailable");
        let failures = &mut self.failures[queue as usize];
        *failures = failures.saturating_add(1);
        if self.away_since.is_none() {
            self.away_since = Some(Instant::now());
            self.sink.emit(Event::QueueAway { detail: error.to_string() }).await;
        }
        Ok(())
    }

    async fn queue_worked(&mut self, queue: QueueName) {
        self.failures[queue as usize] = 0;
        if self.failures == [0; 2]
            && let Some(since) = self.away_since.take()
        {
            if let Some(link) = &self.link {
                link.gauges.set_trouble(Asker::Session, None);
            }
            self.sink.emit(Event::QueueBack { seconds: since.elapsed().as_secs_f64() }).await;
        }
    }

    /// Large enough that no worker waits for the coordinator.
    fn window(&self) -> usize {
        let concurrency =
            self.link.as_ref().map_or(0, |link| link.gauges.concurrency.load(Ordering::Relaxed));
        self.terms.window.max(concurrency.saturating_mul(PER_SLOT))
    }

    /// Maximum number of episodes driven at the same time; for a fleet, at most the concurrency of its
    /// workers.
    fn at_once(&self) -> usize {
        let concurrency = self.link.as_ref().map(|link| link.gauges.concurrency.load(Ordering::Relaxed));
        concurrency.map_or(self.terms.at_once, |concurrency| self.terms.at_once.min(concurrency))
    }

    /// Number of episodes in progress, at most.
    pub(super) fn at_hand(&self) -> u64 {
        self.tracker.in_flight().min(self.at_once()) as u64
    }

    fn round(&self) -> u32 {
        self.link.as_ref().map_or(0, |link| link.gauges.round.load(Ordering::Acquire))
    }

    fn show_gauges(&self, recording: bool) {
        if let Some(link) = &self.link {
            link.gauges.recording.store(recording, Ordering::Relaxed);
            link.gauges.in_flight.store(self.tracker.in_flight(), Ordering::Relaxed);
        }
        self.sink.with(|stats| stats.in_flight = self.tracker.in_flight() as u64);
    }
}

fn claim<'q, R: Into<Vec<Finished>> + Send + Sync>(
    results: &'q dyn Queue<R>,
    pause: Duration,
) -> Claiming<'q, R> {
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        results.claim(RESULTS).await
    })
}

/// Awaits a pending future; never resolves if there is none.
async fn going<T>(future: &mut Option<BoxFuture<'_, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

/// Receives the next command; never resolves if there is no control channel.
async fn command(link: &mut Option<ControlChannel>) -> Command {
    match link {
        Some(link) => match link.commands.recv().await {
            Some(command) => command,
            None => pending().await,
        },
        None => pending().await,
    }
}
