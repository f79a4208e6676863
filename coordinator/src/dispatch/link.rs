//! What a session and the tasks that look after a fleet know of each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lumos_tasks::{Outcome, RunToken};
use tokio::sync::mpsc;

use super::board::Present;
use super::sheet::Sheet;
use crate::events::Event;

/// What a session is told.
#[derive(Debug)]
pub(crate) enum Command {
    /// What of the run is on the server, asked for after the round began.
    Present { present: Present, round: u32 },
    /// Somebody cancelled the run: end at once.
    Cancelled,
    /// Nothing more is to be expected of workers: end.
    End,
    /// Another coordinator has the run: end at once and record nothing more.
    Displaced(String),
}

/// How a session stands, for those who look after the fleet.
#[derive(Debug)]
pub(crate) struct Gauge {
    /// The round of reconciliation that is going on, or was last.
    pub(crate) round: AtomicU32,
    /// Units given out and not settled.
    pub(crate) in_flight: AtomicUsize,
    /// Places of the fleet.
    pub(crate) places: AtomicUsize,
    began: Instant,
    /// When a result came last, milliseconds after `began`.
    heard: AtomicU64,
    /// Whether results are on their way to disk.
    pub(crate) recording: AtomicBool,
    /// What the server said last to whom it refused something, and has not done since.
    trouble: Mutex<[Option<String>; 2]>,
}

/// Who asks the server to store something.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    /// The session: units to publish, results to claim.
    Session = 0,
    /// The owner's claim, written every few seconds.
    Owner = 1,
}

impl Gauge {
    pub(crate) fn new() -> Self {
        Self {
            round: AtomicU32::new(0),
            in_flight: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            began: Instant::now(),
            heard: AtomicU64::new(0),
            recording: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// Notes what the server refused, or that it no longer does.
    pub(crate) fn set_trouble(&self, asker: Asker, trouble: Option<String>) {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)[asker as usize] = trouble;
    }

    /// What the server refuses at present.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).iter().flatten().next().cloned()
    }

    pub(crate) fn hear(&self) {
        let since = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard.store(since, Ordering::Relaxed);
    }

    /// For how long no result has come.
    pub(crate) fn silence(&self) -> Duration {
        let heard = Duration::from_millis(self.heard.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(heard)
    }
}

/// Adds to a fault what is known of its message: who else held it.
pub(crate) type Annotate = Arc<dyn Fn(&str, &mut Outcome) + Send + Sync>;

/// A session's end of the link.
pub(crate) struct Link {
    pub(crate) run: RunToken,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) annotate: Annotate,
    /// For how long workers are waited for when the session drains.
    pub(crate) patience: Duration,
}

/// Tells whoever listens what happens, and keeps the status sheet where there is one.
#[derive(Debug, Clone)]
pub(crate) struct Voice {
    events: mpsc::Sender<Event>,
    sheet: Option<Arc<Mutex<Sheet>>>,
}

impl Voice {
    pub(crate) fn new(events: mpsc::Sender<Event>) -> Self {
        Self { events, sheet: None }
    }

    pub(crate) fn with_sheet(self, sheet: Arc<Mutex<Sheet>>) -> Self {
        Self { sheet: Some(sheet), ..self }
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Sheet) -> T) -> Option<T> {
        let sheet = self.sheet.as_ref()?;
        Some(look(&mut sheet.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Tells whoever listens. Nobody listening is no reason to stop.
    pub(crate) async fn say(&self, event: Event) {
        self.with(|sheet| sheet.see(&event));
        let _ = self.events.send(event).await;
    }
}
