//! Channels and shared state between a session and the fleet tasks that run next to it.
//!
//! The tasks in [`crate::fleet`] send a [`Command`] through the [`ControlChannel`] and read the session's state from
//! the [`RunGauges`]. [`EventSink`] emits the events of both.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lumos_tasks::{Outcome, RunToken};
use tokio::sync::mpsc;

use super::run_stats::RunStats;
use super::unit_tracker::Present;
use crate::events::Event;

/// Message to a session.
#[derive(Debug)]
pub(crate) enum Command {
    /// Message ids of the run that are on the server, requested after the round began.
    Present { present: Present, round: u32 },
    /// The run was cancelled: end at once.
    Cancelled,
    /// No more results are expected from workers: end.
    End,
    /// Another coordinator has taken over the run: end at once and record nothing more.
    Displaced(String),
}

/// State of a session, for the fleet tasks.
#[derive(Debug)]
pub(crate) struct RunGauges {
    /// The current or last round of reconciliation.
    pub(crate) round: AtomicU32,
    /// Number of units that were given out and are not settled.
    pub(crate) in_flight: AtomicUsize,
    /// Concurrency of the fleet: sum over its workers.
    pub(crate) concurrency: AtomicUsize,
    began: Instant,
    /// Arrival time of the last result, in milliseconds after `began`.
    heard: AtomicU64,
    /// Whether results are being written to disk.
    pub(crate) recording: AtomicBool,
    /// The last error of each component whose requests the server currently refuses.
    trouble: Mutex<[Option<String>; 2]>,
}

/// Component that stores data on the server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    /// The session: publishes units and claims results.
    Session = 0,
    /// The owner: writes its claim every few seconds.
    Owner = 1,
}

impl RunGauges {
    pub(crate) fn new() -> Self {
        Self {
            round: AtomicU32::new(0),
            in_flight: AtomicUsize::new(0),
            concurrency: AtomicUsize::new(0),
            began: Instant::now(),
            heard: AtomicU64::new(0),
            recording: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// Sets or clears the server's error for a component.
    pub(crate) fn set_trouble(&self, asker: Asker, trouble: Option<String>) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)[asker as usize] = trouble;
    }

    /// Returns an error that the server currently returns, if any.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().next().cloned()
    }

    pub(crate) fn receive(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(since, Ordering::Relaxed);
    }

    /// Time since the last result.
    pub(crate) fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(heard)
    }
}

/// Adds to a fault which other workers held its message.
pub(crate) type Annotate = Arc<dyn Fn(&str, &mut Outcome) + Send + Sync>;

/// The session's side of the control channel.
pub(crate) struct ControlChannel {
    pub(crate) run: RunToken,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) gauges: Arc<RunGauges>,
    pub(crate) annotate: Annotate,
    /// How long to wait for workers when the session drains.
    pub(crate) patience: Duration,
}

/// Receives the events of a session: forwards them, and updates the status figures if there are any.
#[derive(Debug, Clone)]
pub struct EventSink {
    events: mpsc::Sender<Event>,
    stats: Option<Arc<Mutex<RunStats>>>,
}

impl From<&mpsc::Sender<Event>> for EventSink {
    /// Forwards the events only.
    fn from(events: &mpsc::Sender<Event>) -> Self {
        Self { events: events.clone(), stats: None }
    }
}

impl EventSink {
    pub(crate) fn with_stats(self, stats: Arc<Mutex<RunStats>>) -> Self {
        Self { stats: Some(stats), ..self }
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut RunStats) -> T) -> Option<T> {
        let stats = self.stats.as_ref()?;
        Some(look(&mut stats.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Emits an event. A missing receiver is not an error.
    pub(crate) async fn emit(&self, event: Event) {
        self.with(|stats| stats.record(&event));
        let _ = self.events.send(event).await;
    }
}
