//! The claiming end of a queue.
//!
//! Claimers register how many messages they need. One task per end requests them from the server and puts
//! them into a small buffer, from which each claimer takes its messages in one step without awaiting. A claim
//! can therefore be dropped at any point without losing messages: messages requested for it go to the next
//! claim, and are returned if no claim waits.

mod actor;
mod open_requests;
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

use super::NatsError;
use super::codec::{self, Kind, Unfit};
use super::layout::{ConsumerName, is_message_id};
use super::lease::NatsLease;
use super::link::SharedLink;
use crate::{Lease, LeaseControl, QueueError};
use actor::{Actor, HOLD};
use open_requests::OpenRequests;
pub use rejected::Rejected;

/// Redelivery delay of a message of another protocol, which leaves it to consumers of that protocol.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(60);

/// Maximum number of deliveries of a corrupt message. Corruption in transit, or a replica of the store that
/// lags behind, does not affect the next delivery.
const TRIES: u32 = 3;

/// Redelivery delay of such a message.
const AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of bodies from the object store that are held, or being fetched, before they are claimed.
const FETCHED: usize = 4;

/// Time limit of [`Puller::try_claim`] for the response of the server.
const PROBE: Duration = Duration::from_secs(3);

/// Pulls the messages of one consumer. Its task ends when it is dropped.
pub(super) struct Puller {
    shared: Arc<Shared>,
    _ended: DropGuard,
}

/// The consumer that messages are pulled from.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) consumer: ConsumerName,
    /// Duration of a lease.
    pub(super) term: Duration,
}

/// State shared by claimers and the task.
struct Shared {
    link: SharedLink,
    state: Mutex<State>,
    /// Notifies claimers of new messages, failures and the end of the queue.
    arrived: Notify,
    /// Notifies the task of a new claim, or of the end of the queue.
    wanted: Notify,
    /// Receives messages that are not delivered to claimers.
    rejected: OnceLock<mpsc::Sender<Rejected>>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<Delivery>,
    /// Messages whose bodies are in the object store and not being fetched yet.
    waiting: VecDeque<Delivery>,
    /// Number of messages whose bodies are being fetched.
    fetching: usize,
    /// Maximum decoded size of a body in bytes, and of all bodies of a claim.
    body_limit: usize,
    /// Whether the last claim left messages behind that did not fit or were not fetched yet, so that another is expected.
    cut: bool,
    demand: OpenRequests,
    claimers: HashMap<u64, PullRequest>,
    last_claimer: u64,
    /// The last failure, with the number of the last claimer at that time. Claimers up to that number get it.
    failure: Option<(u64, QueueError)>,
    closed: bool,
}

/// State of a claimer's request.
#[derive(Debug, Clone, Copy)]
enum PullRequest {
    /// Waits for up to this many messages.
    Await(usize),
    /// Takes up to this many available messages; not sent to the server yet.
    Probe(usize),
    /// Sent to the server as the request with this number.
    Probing(u64),
}

/// A message to be delivered to a claimer. Returned to the queue when dropped.
struct Delivery {
    id: String,
    deliveries: u32,
    headers: Option<HeaderMap>,
    /// Name of the object that holds the body.
    object: Option<String>,
    body: Bytes,
    lease: Option<NatsLease>,
    since: Instant,
}

impl Delivery {
    /// Returns the memory in bytes that the body needs: its decoded size, as declared, or its encoded size if that is
    /// larger.
    fn needs(&self, limit: usize) -> usize {
        codec::declared_size(self.headers.as_ref(), &self.body, limit).max(self.body.len())
    }

    /// Extends the lease of a message whose body is not fetched yet.
    fn extend(&mut self) {
        if let Some(lease) = &self.lease {
            lease.extend_later();
        }
        self.since = Instant::now();
    }

    /// Handles a message that is not delivered to claimers. A message that may be intact the next time is
    /// redelivered. Otherwise it is sent to the outlet; without an outlet, it is returned for other consumers
    /// (of another protocol) or terminated.
    fn dismiss(mut self, shared: &Shared, unfit: &Unfit) {
        let Some(lease) = &self.lease else { return };
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
            (true, ..) => self.give_back_after(AGAIN),
            (false, Some(outlet), _) => {
                let rejected = Rejected::new(self, unfit.why.clone());
                if let Err(mpsc::error::TrySendError::Full(rejected)) = outlet.try_send(rejected) {
                    rejected.leave(AGAIN);
                }
            }
            (false, None, Kind::Protocol) => self.give_back_after(LEFT_TO_OTHERS),
            (false, None, _) => {
                lease.terminate_later();
                self.lease = None;
            }
        }
    }

    /// Returns the message for redelivery after `delay`.
    fn give_back_after(mut self, delay: Duration) {
        if let Some(lease) = self.lease.take() {
            lease.give_back_after(delay);
        }
    }
}

/// Adds a fetched body to its message, or dismisses the message if fetching failed.
fn settle(shared: &Shared, mut delivery: Delivery, body: Result<Vec<u8>, NatsError>) {
    let mut state = shared.lock();
    state.fetching = state.fetching.saturating_sub(1);
    match body {
        Ok(bytes) if !state.closed => {
            delivery.body = bytes.into();
            state.ready.push_back(delivery);
        }
        Ok(_) => {
            drop(state);
            drop(delivery);
        }
        Err(error) => {
            drop(state);
            if matches!(error, NatsError::Damaged(_) | NatsError::Missing(_)) {
                let why = format!("failed to read the body of a message: {error}");
                delivery.dismiss(shared, &Unfit::new(Kind::Body, why));
            } else {
                delivery.give_back_after(AGAIN);
            }
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

/// Checks the subject, id and protocol of a message.
fn fitness(message: &Message, id: &str, source: &Source, protocol: u32) -> Result<(), Unfit> {
    let root = source.consumer.filter.trim_end_matches('>');
    if !message.subject.starts_with(root) || !is_message_id(id) {
        return Err(Unfit::new(Kind::Undecodable, "unexpected subject"));
    }
    codec::check_protocol(message.headers.as_ref(), protocol)
}

/// What is available to a claimer.
enum PullReply {
    Nothing,
    Deliveries(Vec<Delivery>),
    Closed,
    Failed(QueueError),
}

/// A registered claim, withdrawn when dropped.
struct Claimer<'shared> {
    shared: &'shared Shared,
    number: u64,
}

impl Shared {
    /// Locks the state. Ignores poisoning, since the state is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the queue: subsequent claims are empty. Returns the buffered messages.
    fn close(&self) -> Vec<Delivery> {
        let mut state = self.lock();
        state.closed = true;
        let held = state.remove_older(Instant::now());
        drop(state);
        self.arrived.notify_waiters();
        held
    }

    fn register(&self, wish: PullRequest) -> Claimer<'_> {
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
    /// Takes the messages that are available to a claimer. With `last`, the claimer does not try again. A
    /// claim that gets messages is removed in the same step: otherwise the task could request the same number
    /// of messages from the server again.
    fn take(&mut self, number: u64, max: usize, last: bool) -> PullReply {
        if self.closed {
            return PullReply::Closed;
        }
        let patient = match self.claimers.get(&number) {
            Some(PullRequest::Await(_)) => false,
            Some(PullRequest::Probe(_)) => !last,
            Some(PullRequest::Probing(request)) => {
                !last && (self.demand.is_open(*request) || self.fetching > 0 || !self.waiting.is_empty())
            }
            None => return PullReply::Nothing,
        };
        let enough = self.ready.len() >= max || !patient || self.is_full();
        if enough && !self.ready.is_empty() {
            self.claimers.remove(&number);
            return PullReply::Deliveries(self.take_next(max));
        }
        match &self.failure {
            Some((before, error)) if number <= *before => PullReply::Failed(error.clone()),
            _ if matches!(self.claimers.get(&number), Some(PullRequest::Probing(_))) && !patient => {
                PullReply::Deliveries(Vec::new())
            }
            _ => PullReply::Nothing,
        }
    }

    /// Removes the next messages that are ready: at least one, at most `max`, and otherwise no more than fit into
    /// `body_limit`.
    fn take_next(&mut self, max: usize) -> Vec<Delivery> {
        let most = max.min(self.ready.len());
        let mut bytes: usize = 0;
        let fitting = self.ready.iter().take(most).take_while(|delivery| {
            bytes = bytes.saturating_add(delivery.needs(self.body_limit));
            bytes <= self.body_limit
        });
        let count = fitting.count().max(1);
        self.cut = count < max && (count < most || self.fetching > 0 || !self.waiting.is_empty());
        self.ready.drain(..count).collect()
    }

    /// Whether waiting gives a claimer nothing more: what is ready fills a claim, or bodies are fetched only once it is
    /// taken.
    fn is_full(&self) -> bool {
        let bytes: usize = self.ready.iter().map(|delivery| delivery.needs(self.body_limit)).sum();
        bytes >= self.body_limit || (self.fetching == 0 && !self.waiting.is_empty())
    }

    /// Removes the next message whose body may be fetched now. It counts as being fetched.
    fn next_to_fetch(&mut self) -> Option<Delivery> {
        let fetched = self.ready.iter().filter(|delivery| delivery.object.is_some()).count();
        if self.closed || self.fetching + fetched >= FETCHED {
            return None;
        }
        let delivery = self.waiting.pop_front()?;
        self.fetching += 1;
        Some(delivery)
    }

    /// How long messages of a lease's duration are held. A claimer that could not take everything is expected to return.
    fn patience(&self, lease: Duration) -> Duration {
        if self.cut || !self.claimers.is_empty() { lease / 2 } else { HOLD }
    }

    /// Extends the leases of messages whose bodies wait to be fetched for a claimer, once half of them is used up.
    fn extend_waiting(&mut self, lease: Duration, now: Instant) {
        if !self.claimers.is_empty() {
            let old = self.waiting.iter_mut().filter(|delivery| delivery.since + lease / 2 <= now);
            old.for_each(Delivery::extend);
        }
    }

    /// Removes and returns the messages that arrived before `limit`.
    fn remove_older(&mut self, limit: Instant) -> Vec<Delivery> {
        let mut older = Vec::new();
        for kept in [&mut self.ready, &mut self.waiting] {
            let (stale, fresh): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(kept).into_iter().partition(|delivery| delivery.since <= limit);
            *kept = fresh;
            older.extend(stale);
        }
        self.cut &= self.fetching > 0 || !self.ready.is_empty() || !self.waiting.is_empty();
        older
    }

    /// Returns the number of messages that claimers wait for and that were not requested yet.
    fn missing(&self) -> usize {
        let wanted: usize = self
            .claimers
            .values()
            .map(|wish| if let PullRequest::Await(max) = wish { *max } else { 0 })
            .sum();
        let held = self.ready.len() + self.waiting.len() + self.fetching;
        wanted.saturating_sub(held + self.demand.outstanding())
    }
}

impl Puller {
    /// Starts the task that serves claimers.
    pub(super) async fn start(link: SharedLink, source: Source) -> Result<Self, NatsError> {
        let shared = Arc::new(Shared {
            link: link.clone(),
            state: Mutex::new(State { body_limit: link.layout.body_limit, ..State::default() }),
            arrived: Notify::new(),
            wanted: Notify::new(),
            rejected: OnceLock::new(),
        });
        let ended = link.ended.child_token();
        let actor = Actor::new(Arc::clone(&shared), source, ended.clone()).await?;
        link.tasks.spawn(actor.run());
        Ok(Self { shared, _ended: ended.drop_guard() })
    }

    /// Claims up to `max` messages, whose bodies have at most the limit of one body in total; waits until there is at
    /// least one.
    pub(super) async fn claim<T: DeserializeOwned>(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        self.pull(PullRequest::Await(max), max, None).await
    }

    /// Claims up to `max` messages that are available now, with the same limit.
    pub(super) async fn try_claim<T: DeserializeOwned>(
        &self,
        max: usize,
    ) -> Result<Vec<Lease<T>>, QueueError> {
        self.pull(PullRequest::Probe(max), max, Some(Instant::now() + PROBE)).await
    }

    /// Waits for messages, until the deadline if there is one. Without a deadline, returns at least one message
    /// unless the queue is closed.
    async fn pull<T: DeserializeOwned>(
        &self,
        request: PullRequest,
        max: usize,
        deadline: Option<Instant>,
    ) -> Result<Vec<Lease<T>>, QueueError> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut claimer = self.shared.register(request);
        loop {
            let arrived = self.shared.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let found = self.shared.lock().take(claimer.number, max, late);
            match (found, deadline) {
                (PullReply::Closed, _) => return Ok(Vec::new()),
                (PullReply::Failed(error), _) => return Err(error),
                (PullReply::Deliveries(deliveries), _) => {
                    let fetched = deliveries.iter().any(|delivery| delivery.object.is_some());
                    let leases = self.opened(deliveries);
                    if fetched {
                        // Other bodies may be fetched.
                        self.shared.wanted.notify_one();
                    }
                    if deadline.is_some() || !leases.is_empty() {
                        return Ok(leases);
                    }
                    // All of them were dismissed, so others are requested.
                    claimer = self.shared.register(request);
                }
                (PullReply::Nothing, None) => arrived.await,
                (PullReply::Nothing, Some(_)) if late => {
                    return Err(QueueError::Unreachable(
                        "timed out waiting for messages from the NATS server".to_owned(),
                    ));
                }
                (PullReply::Nothing, Some(deadline)) => {
                    let _ = timeout_at(deadline, arrived).await;
                }
            }
        }
    }

    /// Verifies and decodes bodies. Invalid messages are dismissed and left out.
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

    /// Sends messages that are not delivered to claimers to `outlet` instead of terminating them. Only the
    /// first call has an effect.
    pub(super) fn reject_to(&self, outlet: mpsc::Sender<Rejected>) {
        let _ = self.shared.rejected.set(outlet);
    }

    /// Returns all buffered messages. Subsequent claims are empty.
    pub(super) fn close(&self) {
        drop(self.shared.close());
        self.shared.wanted.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery() -> Delivery {
        let (id, body, since) = (String::new(), Bytes::new(), Instant::now());
        Delivery { id, deliveries: 1, headers: None, object: None, body, lease: None, since }
    }

    fn delivery_of(bytes: usize) -> Delivery {
        let mut delivery = delivery();
        delivery.body = vec![0; bytes].into();
        delivery
    }

    /// The task may compute the missing messages at any time, even before a claimer that took messages has
    /// returned.
    #[test]
    fn what_a_claimer_was_given_is_not_requested_again() {
        let mut state = State::default();
        state.claimers.insert(1, PullRequest::Await(10));
        let missing = state.missing();
        state.demand.open(missing, Instant::now() + PROBE);
        for _ in 0..3 {
            state.demand.arrived();
            state.ready.push_back(delivery());
        }
        assert!(matches!(state.take(1, 10, false), PullReply::Deliveries(taken) if taken.len() == 3));
        assert_eq!((state.missing(), state.demand.outstanding()), (0, 7));
    }

    /// Regression test: 256 messages of a few kilobytes each were decoded to 16 GiB.
    #[test]
    fn a_claim_takes_no_more_than_its_bodies_declare() {
        let body_limit = 1 << 20;
        let mut state = State { body_limit, ..State::default() };
        // As a publisher encodes it.
        let (body, encoding) = codec::encoded("id", &" ".repeat(300 << 10), body_limit).unwrap();
        let body = Bytes::from(body);
        assert!(body.len() < 1 << 10, "{}", body.len());
        for number in 0..10 {
            let mut next = delivery();
            next.id = number.to_string();
            let mut headers = HeaderMap::new();
            headers.insert(codec::ENCODING, encoding.unwrap());
            next.headers = Some(headers);
            next.body = body.clone();
            state.ready.push_back(next);
        }
        let (mut taken, mut counts) = (Vec::new(), Vec::new());
        while !state.ready.is_empty() {
            let number = counts.len() as u64;
            state.claimers.insert(number, PullRequest::Await(256));
            let PullReply::Deliveries(claimed) = state.take(number, 256, false) else {
                panic!("nothing was taken")
            };
            counts.push(claimed.len());
            let patience = if state.ready.is_empty() { HOLD } else { Duration::from_secs(50) };
            assert_eq!(state.patience(Duration::from_secs(100)), patience);
            taken.extend(claimed.iter().map(|one| one.id.clone()));
        }
        assert_eq!(counts, [3, 3, 3, 1]);
        assert_eq!(taken, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn a_body_above_the_limit_is_claimed_alone() {
        let mut state = State { body_limit: 100, ..State::default() };
        state.ready.extend([101, 1, 100].map(delivery_of));
        assert_eq!([(); 3].map(|()| state.take_next(256).len()), [1, 1, 1]);
        state.ready.extend([9; 5].map(delivery_of));
        assert_eq!((state.take_next(3).len(), state.cut), (3, false));
        assert_eq!((state.take_next(3).len(), state.cut), (2, false));
    }

    /// Otherwise a claim would wait for bodies that are fetched only once it has taken those that are ready.
    #[test]
    fn bodies_are_fetched_a_few_at_a_time_and_a_claim_does_not_wait_for_the_others() {
        let mut state = State { body_limit: 1000, ..State::default() };
        for _ in 0..FETCHED + 2 {
            let mut large = delivery();
            large.object = Some("object".to_owned());
            state.waiting.push_back(large);
        }
        let request = state.demand.open(8, Instant::now() + PROBE);
        state.claimers.insert(1, PullRequest::Probing(request));
        let fetched: Vec<Delivery> = std::iter::from_fn(|| state.next_to_fetch()).collect();
        assert_eq!((fetched.len(), state.fetching, state.missing()), (FETCHED, FETCHED, 0));
        for large in fetched {
            assert!(matches!(state.take(1, 8, false), PullReply::Nothing));
            state.fetching -= 1;
            state.ready.push_back(large);
        }
        assert!(state.next_to_fetch().is_none());
        assert!(matches!(state.take(1, 8, false), PullReply::Deliveries(taken) if taken.len() == FETCHED));
        assert_eq!(std::iter::from_fn(|| state.next_to_fetch()).count(), 2);
        assert!(state.remove_older(Instant::now()).is_empty());
    }

    #[test]
    fn messages_are_held_for_a_claimer_that_left_some_and_only_then() {
        let lease = Duration::from_secs(100);
        let mut state = State { body_limit: 100, ..State::default() };
        state.ready.extend([60; 3].map(delivery_of));
        assert_eq!((state.take_next(1).len(), state.patience(lease)), (1, HOLD), "it took what it wanted");
        assert_eq!((state.take_next(2).len(), state.patience(lease)), (1, lease / 2));
        assert_eq!(state.remove_older(Instant::now()).len(), 1);
        assert_eq!(state.patience(lease), HOLD, "nothing is left");
        // What waits for its body is extended for a claimer and does not get old.
        state.waiting.push_back(delivery());
        let later = Instant::now() + lease;
        state.extend_waiting(lease, later);
        let since = state.waiting[0].since;
        state.claimers.insert(1, PullRequest::Await(8));
        state.extend_waiting(lease, Instant::now());
        assert_eq!(state.waiting[0].since, since, "too early");
        state.extend_waiting(lease, later);
        assert!(state.waiting[0].since > since);
    }
}
