//! The claiming end of a queue.
//!
//! Claimers register how many messages they need. One task per end requests them from the server and puts them into a
//! small buffer, from which each claimer takes its messages in one step without awaiting. A claim can therefore be
//! dropped at any point without losing messages: those requested for it go to the next claim, and are returned if there
//! is none.

mod actor;
mod bodies;
mod demand;
mod rejected;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::DropGuard;

use super::codec::{self, Unfit};
use super::complaints::Kind;
use super::layout::is_message_id;
use super::lease::NatsLease;
use super::link::SharedLink;
use crate::{Lease, LeaseControl, QueueError};
use actor::Actor;
use demand::Demand;
pub use rejected::Rejected;

/// How long a message of another protocol is left to those who speak it.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(60);

/// How often a message that is not what was published is delivered before it is given up. What was damaged on its way
/// from the server, or lags behind in a copy of its store, is whole the next time.
const TRIES: u32 = 3;

/// When such a message is looked at again.
const AGAIN: Duration = Duration::from_secs(1);

/// How long [`Puller::try_claim`] waits for the server to say that there is nothing.
const PROBE: Duration = Duration::from_secs(3);

/// Pulls the messages of one consumer. Its task ends when it is dropped.
pub(super) struct Puller {
    shared: Arc<Shared>,
    _ended: DropGuard,
}

/// Where messages come from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) stream: String,
    pub(super) consumer: String,
    /// What the subjects of its messages begin with, the last dot included.
    pub(super) root: String,
    /// How long a lease holds.
    pub(super) term: Duration,
}

/// What claimers and the task share.
struct Shared {
    link: SharedLink,
    state: Mutex<State>,
    /// Rung for claimers: something came, or never will.
    arrived: Notify,
    /// Rung for the task: somebody wants something.
    wanted: Notify,
    /// Where messages go that no claimer is to see.
    rejected: OnceLock<mpsc::Sender<Rejected>>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Delivery>,
    /// Messages whose bodies are being fetched.
    fetching: usize,
    demand: Demand,
    claimers: HashMap<u64, Wish>,
    last_claimer: u64,
    /// What went wrong last, and when by the count of claimers: those who came before are told.
    failure: Option<(u64, QueueError)>,
    closed: bool,
}

/// What a claimer wants.
#[derive(Debug, Clone, Copy)]
enum Wish {
    /// Up to so many, and wait for them.
    Await(usize),
    /// Up to so many of those that are there; not asked for yet.
    Probe(usize),
    /// Asked for, by the request of that number.
    Probing(u64),
}

/// A message on its way to a claimer. Given back when it is dropped.
struct Delivery {
    id: String,
    deliveries: u32,
    headers: Option<HeaderMap>,
    body: Bytes,
    lease: Option<NatsLease>,
    since: Instant,
}

impl Delivery {
    /// Disposes of a message that nobody is to see: it is delivered again where that may help, else handed to whoever
    /// keeps such messages, else left to others or taken out.
    fn dismiss(mut self, shared: &Shared, unfit: &Unfit) {
        let Some(lease) = self.lease.take() else { return };
        let outlet = shared.rejected.get();
        let may_pass = match unfit.kind {
            Kind::Damaged | Kind::Body => true,
            Kind::Protocol => outlet.is_some(),
            _ => false,
        };
        let again = may_pass && self.deliveries < TRIES;
        let fate = match (again, outlet, unfit.kind) {
            (true, ..) => "it is redelivered",
            (false, Some(_), _) => "it is set aside",
            (false, None, Kind::Protocol) => "it is returned for other consumers",
            (false, None, _) => "it is dropped",
        };
        shared.link.complaints.warn(unfit.kind, &self.id, &format!("{}: {fate}", unfit.why));
        match (again, outlet, unfit.kind) {
            (true, ..) => lease.give_back_after(AGAIN),
            (false, Some(outlet), _) => {
                let body = std::mem::take(&mut self.body);
                let rejected = Rejected::new(&self.id, &unfit.why, self.headers.as_ref(), body, lease);
                if let Err(mpsc::error::TrySendError::Full(rejected)) = outlet.try_send(rejected) {
                    rejected.leave(AGAIN);
                }
            }
            (false, None, Kind::Protocol) => lease.give_back_after(LEFT_TO_OTHERS),
            (false, None, _) => lease.terminate_later(),
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.release();
        }
    }
}

/// Whether a message is one that may be seen, by all but its body.
fn fitness(message: &Message, id: &str, source: &Source, protocol: u32) -> Result<(), Unfit> {
    if !message.subject.starts_with(&source.root) || !is_message_id(id) {
        return Err(Unfit::new(Kind::Undecodable, "unexpected subject"));
    }
    codec::check_protocol(message.headers.as_ref(), protocol)
}

/// What a claimer finds.
enum Found {
    Nothing,
    Deliveries(Vec<Delivery>),
    Closed,
    Failed(QueueError),
}

/// A claimer's wish, withdrawn when dropped.
struct Claimer<'shared> {
    shared: &'shared Shared,
    number: u64,
}

impl Shared {
    /// The state is consistent between statements, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, wish: Wish) -> Claimer<'_> {
        let mut state = self.lock();
        state.last_claimer += 1;
        let number = state.last_claimer;
        state.claimers.insert(number, wish);
        drop(state);
        self.wanted.notify_one();
        Claimer { shared: self, number }
    }
}

impl Drop for Claimer<'_> {
    fn drop(&mut self) {
        self.shared.lock().claimers.remove(&self.number);
    }
}

impl State {
    /// Gives a claimer what is there for it. With `last`, it does not come again. A claimer that is given something wants
    /// nothing more: if its wish outlasted this step, the task could ask the server for as much once more.
    fn take(&mut self, number: u64, max: usize, last: bool) -> Found {
        if self.closed {
            return Found::Closed;
        }
        let patient = match self.claimers.get(&number) {
            Some(Wish::Await(_)) => false,
            Some(Wish::Probe(_)) => !last,
            Some(Wish::Probing(request)) => !last && (self.demand.is_open(*request) || self.fetching > 0),
            None => return Found::Nothing,
        };
        if self.ready.len() >= max || (!patient && !self.ready.is_empty()) {
            let count = max.min(self.ready.len());
            self.claimers.remove(&number);
            return Found::Deliveries(self.ready.drain(..count).collect());
        }
        match &self.failure {
            Some((before, error)) if number <= *before => Found::Failed(error.clone()),
            _ if matches!(self.claimers.get(&number), Some(Wish::Probing(_))) && !patient => {
                Found::Deliveries(Vec::new())
            }
            _ => Found::Nothing,
        }
    }

    /// Messages that claimers wait for and nobody has asked for yet.
    fn missing(&self) -> usize {
        let wanted: usize =
            self.claimers.values().map(|wish| if let Wish::Await(max) = wish { *max } else { 0 }).sum();
        wanted.saturating_sub(self.ready.len() + self.fetching + self.demand.outstanding())
    }
}

impl Puller {
    /// Begins to serve claimers.
    pub(super) async fn start(link: SharedLink, source: Source) -> Result<Self, super::NatsError> {
        let shared = Arc::new(Shared {
            link: link.clone(),
            state: Mutex::default(),
            arrived: Notify::new(),
            wanted: Notify::new(),
            rejected: OnceLock::new(),
        });
        let ended = link.ended.child_token();
        let actor = Actor::new(Arc::clone(&shared), source, ended.clone()).await?;
        link.tasks.spawn(actor.run());
        Ok(Self { shared, _ended: ended.drop_guard() })
    }

    /// Waits for messages; up to `max`.
    pub(super) async fn claim<T: DeserializeOwned>(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut claimer = self.shared.register(Wish::Await(max));
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let found = self.shared.lock().take(claimer.number, max, false);
            match found {
                Found::Nothing => arrived.await,
                Found::Closed => return Ok(Vec::new()),
                Found::Failed(error) => return Err(error),
                Found::Deliveries(deliveries) => {
                    let leases = self.opened(deliveries);
                    if !leases.is_empty() {
                        return Ok(leases);
                    }
                    // None of them was fit to be seen; others have to be asked for.
                    claimer = self.shared.register(Wish::Await(max));
                }
            }
        }
    }

    /// Messages that are there now; up to `max`.
    pub(super) async fn try_claim<T: DeserializeOwned>(
        &self,
        max: usize,
    ) -> Result<Vec<Lease<T>>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let deadline = Instant::now() + PROBE;
        let claimer = self.shared.register(Wish::Probe(max));
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let late = Instant::now() >= deadline;
            let found = self.shared.lock().take(claimer.number, max, late);
            match found {
                Found::Closed => return Ok(Vec::new()),
                Found::Failed(error) => return Err(error),
                Found::Deliveries(deliveries) => return Ok(self.opened(deliveries)),
                Found::Nothing if late => {
                    return Err(QueueError::Unreachable(
                        "timed out waiting for messages from the NATS server".to_owned(),
                    ));
                }
                Found::Nothing => {
                    let _ = timeout_at(deadline, arrived).await;
                }
            }
        }
    }

    /// Decodes bodies. What is not what it should be is disposed of and not among them.
    fn opened<T: DeserializeOwned>(&self, deliveries: Vec<Delivery>) -> Vec<Lease<T>> {
        let limit = self.shared.link.layout.body_limit;
        let mut leases = Vec::with_capacity(deliveries.len());
        for mut delivery in deliveries {
            let headers = delivery.headers.as_ref();
            let whole = codec::check_content(headers, &delivery.id, &delivery.body);
            match whole.and_then(|()| codec::decoded(headers, &delivery.body, limit)) {
                Ok(body) => {
                    if let Some(lease) = delivery.lease.take() {
                        let id = std::mem::take(&mut delivery.id);
                        leases.push(Lease::new(id, body, delivery.deliveries, Box::new(lease)));
                    }
                }
                Err(unfit) => delivery.dismiss(&self.shared, &unfit),
            }
        }
        leases
    }

    /// Sends messages that no claimer is to see to `outlet`, instead of taking them out; the first outlet counts.
    pub(super) fn reject_to(&self, outlet: mpsc::Sender<Rejected>) {
        let _ = self.shared.rejected.set(outlet);
    }

    /// Gives everything back; claims are empty from now on.
    pub(super) fn close(&self) {
        let held = {
            let mut state = self.shared.lock();
            state.closed = true;
            std::mem::take(&mut state.ready)
        };
        drop(held);
        self.shared.arrived.notify_waiters();
        self.shared.wanted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        let since = Instant::now();
        Delivery { id: String::new(), deliveries: 1, headers: None, body: Bytes::new(), lease: None, since }
    }

    /// The task may look at what is missing at any moment, also before a claimer that took something has returned.
    #[test]
    fn what_a_claimer_was_given_is_not_requested_again() {
        let mut state = State::default();
        state.claimers.insert(1, Wish::Await(10));
        let missing = state.missing();
        state.demand.open(missing, Instant::now() + PROBE);
        for _ in 0..3 {
            state.demand.arrived();
            state.ready.push_back(delivery());
        }
        assert!(matches!(state.take(1, 10, false), Found::Deliveries(taken) if taken.len() == 3));
        assert_eq!((state.missing(), state.demand.outstanding()), (0, 7));
    }
}
