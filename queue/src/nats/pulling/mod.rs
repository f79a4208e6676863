//! The claiming end of a queue.
//!
//! Claimers register how many messages they need. One task per end requests them from the server and puts
//! them into a small buffer, from which each claimer takes its messages in one step without awaiting. A claim
//! can therefore be dropped at any point without losing messages: messages requested for it go to the next
//! claim, and are returned if no claim waits.

mod actor;
mod open_requests;
mod rejected;
mod state;

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
use actor::Actor;
pub use rejected::Rejected;
use state::{PullReply, PullRequest, State};

/// Redelivery delay of a message of another protocol, which leaves it to consumers of that protocol.
const LEFT_TO_OTHERS: Duration = Duration::from_secs(60);

/// Maximum number of deliveries of a corrupt message, and of a unit whose body is unavailable. Corruption in transit,
/// or a replica of the store that lags behind, does not affect the next delivery.
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
    ///
    /// With an outlet (results), a message whose body is unavailable is always redelivered. Without one (units), it is
    /// terminated at the third delivery: more deliveries would exceed the worker's limit, and the worker would record a
    /// fault. The coordinator publishes the unit again, which resets its delivery count, including deliveries to lost
    /// workers.
    fn dismiss(mut self, shared: &Shared, unfit: &Unfit) {
        let Some(lease) = &self.lease else { return };
        let outlet = shared.rejected.get();
        let may_pass = match unfit.kind {
            Kind::Damaged | Kind::Body | Kind::Unavailable => true,
            Kind::Protocol => outlet.is_some(),
            _ => false,
        };
        let is_kept = unfit.kind == Kind::Unavailable && outlet.is_some();
        let again = may_pass && (is_kept || self.deliveries < TRIES);
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
            lease.release_after(delay);
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
            let kind = match error {
                NatsError::Damaged(_) | NatsError::Missing(_) => Kind::Body,
                _ => Kind::Unavailable,
            };
            let why = format!("failed to read the body of a message: {error}");
            delivery.dismiss(shared, &Unfit::new(kind, why));
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
