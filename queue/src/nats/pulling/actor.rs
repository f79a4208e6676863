//! The task that requests messages from the server and receives them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use serde_json::json;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Delivery, PullRequest, Shared, Source, fitness, settle};
use crate::QueueError;
use crate::nats::NatsError;
use crate::nats::codec;
use crate::nats::layout::{ConsumerName, parse_lease_token};
use crate::nats::lease::NatsLease;
use crate::nats::objects::Objects;

/// How long a pull request waits on the server. Short, since the client is not notified if the server loses a
/// request.
const EXPIRY: Duration = Duration::from_secs(5);
/// Additional time before a request expires on the client, so that it expires on the server first.
const SLACK: Duration = Duration::from_secs(1);
/// How long a message is buffered without a claimer, and the pause after a failure.
pub(super) const HOLD: Duration = Duration::from_secs(1);
/// Time limit for the server to end the requests of an inbox.
const WITHDRAWAL: Duration = Duration::from_secs(1);
/// Maximum number of messages received before claimers are woken.
const SWEEP: usize = 256;

pub(super) struct Actor {
    shared: Arc<Shared>,
    source: Source,
    ended: CancellationToken,
    inbox: String,
    subscriber: Subscriber,
    chores: JoinSet<ActorTask>,
    /// The task that looks up the consumer.
    checking: Option<Id>,
    /// Whether there was no claimer at the last check.
    idle: bool,
    /// Whether the consumer did not exist at the last check.
    gone: bool,
    /// No requests are sent before this time.
    pause: Instant,
    /// Number of consecutive requests that the server rejected.
    refused: u32,
}

/// Number of consecutive rejected requests after which claimers get an error. A single request may have been
/// corrupted in transit.
const REFUSALS: u32 = 5;

/// Result of a background task.
enum ActorTask {
    /// A body was fetched.
    Fetched(Box<Delivery>, Result<Vec<u8>, NatsError>),
    /// The consumer was looked up.
    Checked(Result<(), NatsError>),
}

impl Actor {
    pub(super) async fn new(
        shared: Arc<Shared>,
        source: Source,
        ended: CancellationToken,
    ) -> Result<Self, NatsError> {
        let subscribed = timeout(crate::nats::link::PATIENCE, subscribe(&shared)).await;
        let late = |_| NatsError::Unreachable("not connected to the NATS server".to_owned());
        let (inbox, subscriber) = subscribed.map_err(late)??;
        Ok(Self {
            shared,
            source,
            ended,
            inbox,
            subscriber,
            chores: JoinSet::new(),
            checking: None,
            idle: false,
            gone: false,
            pause: Instant::now(),
            refused: 0,
        })
    }

    pub(super) async fn run(mut self) {
        let ended = self.ended.clone();
        let mut connection = self.shared.link.connection.clone();
        let mut violations = self.shared.link.violations.clone();
        violations.mark_unchanged();
        loop {
            self.fetch();
            let ordered = tokio::select! {
                () = ended.cancelled() => break,
                ordered = self.order() => ordered,
            };
            if !ordered {
                self.pause = Instant::now() + HOLD;
            }
            let wake = self.next_look();
            tokio::select! {
                () = ended.cancelled() => break,
                message = self.subscriber.next() => match message {
                    Some(message) => self.sweep(message),
                    // The client was closed.
                    None => break,
                },
                () = self.shared.wanted.notified() => {
                    self.idle = false;
                    if self.shared.lock().closed {
                        break;
                    }
                }
                changed = connection.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    // A restarted server has lost all requests, and so has a server that lost the connection.
                    self.shared.lock().demand.forget();
                    self.shared.arrived.notify_waiters();
                }
                Ok(()) = violations.changed() => {
                    let said = violations.borrow_and_update().clone();
                    self.handle_violation(said);
                }
                Some(chore) = self.chores.join_next(), if !self.chores.is_empty() => match chore {
                    Ok(chore) => self.finish(chore),
                    Err(error) => self.recover(&error),
                },
                () = sleep_until(wake) => self.clean_up().await,
            }
        }
        self.end().await;
    }

    /// Returns all messages, including those in transit.
    async fn end(mut self) {
        let held = self.shared.close();
        // Requests end first: returned messages would be delivered to them.
        self.drain().await;
        drop(held);
        self.chores.shutdown().await;
    }

    /// Ends all requests by unsubscribing from their inbox, and receives the messages that were sent before.
    async fn drain(&mut self) {
        if self.shared.lock().demand.outstanding() == 0 {
            return;
        }
        let draining = async {
            if self.subscriber.drain().await.is_ok() {
                while let Some(message) = self.subscriber.next().await {
                    self.receive(message);
                }
            }
        };
        // A message that is lost here is redelivered when its lease expires.
        let _ = timeout(WITHDRAWAL, draining).await;
        self.shared.lock().demand.forget();
    }

    /// Ends requests without a claimer, so that their messages go to other consumers.
    async fn withdraw(&mut self) {
        self.drain().await;
        let ended = self.ended.clone();
        // If the client was closed, the remaining subscription has ended, too.
        if let Some(Ok(subscribed)) = ended.run_until_cancelled(subscribe(&self.shared)).await {
            (self.inbox, self.subscriber) = subscribed;
        }
    }

    /// Requests the messages that claimers need and that were not requested yet. Returns false if sending
    /// failed.
    async fn order(&mut self) -> bool {
        // A request to a missing consumer never gets a response.
        if self.gone && Instant::now() >= self.pause && !self.shared.lock().claimers.is_empty() {
            self.check();
        }
        let ConsumerName { stream, name, .. } = &self.source.consumer;
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        for (number, question) in self.orders() {
            let reply = format!("{}.{number}", self.inbox);
            let sent = self.shared.link.client.publish_with_reply(
                next.clone(),
                reply,
                Bytes::from(question.to_string()),
            );
            if !matches!(timeout(EXPIRY, sent).await, Ok(Ok(()))) {
                self.shared.lock().demand.ended(number, None);
                return false;
            }
        }
        true
    }

    /// Opens the missing requests. Returns their numbers and contents.
    fn orders(&self) -> Vec<(u64, serde_json::Value)> {
        let now = Instant::now();
        if self.checking.is_some() || self.gone || now < self.pause || !self.shared.link.is_connected() {
            return Vec::new();
        }
        let mut orders = Vec::new();
        let mut state = self.shared.lock();
        if state.closed {
            return orders;
        }
        let missing = state.missing();
        if missing > 0 {
            let number = state.demand.open(missing, now + EXPIRY + SLACK);
            let expires = u64::try_from(EXPIRY.as_nanos()).unwrap_or(u64::MAX);
            orders.push((number, json!({ "batch": missing, "expires": expires })));
        }
        let state = &mut *state;
        for wish in state.claimers.values_mut() {
            if let PullRequest::Probe(max) = *wish {
                let number = state.demand.open(max, now + super::PROBE);
                *wish = PullRequest::Probing(number);
                orders.push((number, json!({ "batch": max, "no_wait": true })));
            }
        }
        orders
    }

    /// Returns when [`Actor::clean_up`] must run next if nothing else happens.
    fn next_look(&self) -> Instant {
        let now = Instant::now();
        let state = self.shared.lock();
        let waiting = !state.claimers.is_empty();
        let oldest = state.ready.front().or(state.waiting.front());
        let looks = [
            state.demand.next_expiry(),
            (state.demand.outstanding() > 0).then_some(now + HOLD),
            oldest.map(|oldest| (oldest.since + HOLD).max(now + HOLD / 10)),
            (waiting && self.pause > now).then_some(self.pause),
            (waiting && !self.shared.link.is_connected()).then_some(now + HOLD / 4),
        ];
        looks.into_iter().flatten().fold(now + EXPIRY, Instant::min)
    }

    /// Expires requests, and returns buffered messages that have no claimer or have used up half of their
    /// lease.
    async fn clean_up(&mut self) {
        let now = Instant::now();
        let (unheard, abandoned) = {
            let mut state = self.shared.lock();
            state.extend_waiting(self.source.term, now);
            let unheard = state.demand.expire(now);
            let idle = state.claimers.is_empty();
            let was_idle = std::mem::replace(&mut self.idle, idle);
            let unclaimed = state.ready.front().is_some_and(|oldest| oldest.since + HOLD <= now);
            (unheard, idle && (was_idle || unclaimed) && state.demand.outstanding() > 0)
        };
        if abandoned && self.shared.link.is_connected() {
            // Before messages are returned: they would be delivered to these requests again and again.
            self.withdraw().await;
        }
        let stale = {
            let mut state = self.shared.lock();
            now.checked_sub(state.patience(self.source.term)).map(|limit| state.remove_older(limit))
        };
        drop(stale);
        // The server reports the end of a request, unless the consumer was deleted.
        if unheard {
            self.check();
        }
        self.shared.arrived.notify_waiters();
    }

    /// Receives a message and all others that are already available, then wakes claimers once.
    fn sweep(&mut self, first: Message) {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(message) = next.take() {
            self.receive(message);
            taken += 1;
            if taken < SWEEP {
                next = self.subscriber.next().now_or_never().flatten();
            }
        }
        self.shared.arrived.notify_waiters();
    }

    fn receive(&mut self, message: Message) {
        if message.status.is_some() && message.subject.starts_with(&self.inbox) {
            self.handle(&message);
            return;
        }
        let link = &self.shared.link;
        // Only replies to leases of this stream are sent: a message written to the inbox by another client
        // could name any reply subject.
        let Some(token) = message.reply.as_deref() else { return };
        let Some((stream, deliveries)) = parse_lease_token(token) else { return };
        if stream != self.source.consumer.stream {
            return;
        }
        let object = codec::header(message.headers.as_ref(), codec::OBJECT).map(str::to_owned);
        let id = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
        let term = self.source.term;
        let lease = NatsLease::new(link.clone(), id.clone(), token.to_owned(), term, object.clone());
        let fit = fitness(&message, &id, &self.source, link.layout.protocol);
        let delivery = Delivery {
            id,
            deliveries,
            headers: message.headers,
            object,
            body: message.payload,
            lease: Some(lease),
            since: Instant::now(),
        };
        self.refused = 0;
        let mut state = self.shared.lock();
        state.demand.arrived();
        match fit {
            Err(unfit) => {
                drop(state);
                delivery.dismiss(&self.shared, &unfit);
            }
            Ok(()) if state.closed => {
                drop(state);
                drop(delivery);
            }
            Ok(()) if delivery.object.is_none() => state.ready.push_back(delivery),
            Ok(()) => state.waiting.push_back(delivery),
        }
    }

    /// Starts to fetch bodies from the object store, as many as may be held.
    fn fetch(&mut self) {
        let link = &self.shared.link;
        while let Some(mut delivery) = self.shared.lock().next_to_fetch() {
            let objects = Objects::payloads(link);
            let (limit, term) = (link.layout.body_limit, self.source.term);
            self.chores.spawn(async move {
                let object = delivery.object.clone().unwrap_or_default();
                let mut body = pin!(objects.get(&object, limit));
                let body = loop {
                    match timeout(term / 3, &mut body).await {
                        Ok(body) => break body,
                        Err(_) => delivery.extend(),
                    }
                };
                ActorTask::Fetched(Box::new(delivery), body)
            });
        }
    }

    /// Handles a status message of the server about a request.
    fn handle(&mut self, message: &Message) {
        let code = message.status.map_or(0, |status| status.as_u16());
        let number = message.subject.rsplit('.').next().and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number.filter(|_| code != 100) else { return };
        let unanswered = codec::header(message.headers.as_ref(), codec::PENDING);
        self.shared.lock().demand.ended(number, unanswered.and_then(|count| count.parse().ok()));
        let said = message.description.as_deref().unwrap_or_default();
        match code {
            // No messages are available, or none arrived in time.
            404 | 408 => self.refused = 0,
            // No responders: the consumer does not exist, or JetStream is starting.
            503 => self.check(),
            409 if said.contains("Consumer Deleted") => self.check(),
            // Temporary: a new leader, or a limit on requests.
            409 => {
                let consumer = &self.source.consumer.name;
                tracing::debug!(code, said, consumer, "a pull request ended with a status");
                self.pause = Instant::now() + HOLD / 4;
            }
            _ => {
                self.pause = Instant::now() + HOLD;
                self.refused += 1;
                let refusal =
                    format!("pull request to consumer `{}`: {code} {said}", self.source.consumer.name);
                if self.refused < REFUSALS {
                    tracing::warn!("the NATS server rejected a request: {refusal}; retrying");
                } else {
                    self.fail(QueueError::Refused(refusal));
                }
            }
        }
    }

    /// Handles a permission violation, which the server reports for the connection instead of a request.
    fn handle_violation(&mut self, said: String) {
        let ConsumerName { stream, name, .. } = &self.source.consumer;
        let next = format!("CONSUMER.MSG.NEXT.{stream}.{name}\"");
        if said.contains(&next) || said.contains(&self.inbox) {
            self.pause = Instant::now() + HOLD;
            self.shared.lock().demand.forget();
            self.fail(QueueError::Refused(said));
        }
    }

    /// Checks whether the consumer exists. No requests are sent meanwhile.
    fn check(&mut self) {
        if self.checking.is_some() {
            return;
        }
        let (link, consumer) = (self.shared.link.clone(), self.source.consumer.clone());
        let checking = async move { ActorTask::Checked(link.consumer(&consumer).await.map(|_| ())) };
        self.checking = Some(self.chores.spawn(checking).id());
    }

    /// Fails all current claims.
    fn fail(&self, error: QueueError) {
        let mut state = self.shared.lock();
        let last = state.last_claimer;
        state.failure = Some((last, error));
        drop(state);
        self.shared.arrived.notify_waiters();
    }

    fn finish(&mut self, chore: ActorTask) {
        match chore {
            ActorTask::Checked(found) => {
                self.checking = None;
                self.pause = Instant::now() + HOLD / 4;
                match found {
                    Ok(()) => self.gone = false,
                    Err(NatsError::Missing(what)) => {
                        self.gone = true;
                        self.pause = Instant::now() + HOLD;
                        self.fail(QueueError::Gone(what));
                    }
                    Err(error) => tracing::debug!(%error, "failed to look up a consumer"),
                }
            }
            ActorTask::Fetched(delivery, body) => {
                settle(&self.shared, *delivery, body);
                self.shared.arrived.notify_waiters();
            }
        }
    }

    /// Handles the panic of a background task. A check counts as failed; a message whose body was being fetched was
    /// returned when the task dropped it.
    fn recover(&mut self, error: &JoinError) {
        let consumer = &self.source.consumer.name;
        tracing::error!(%error, consumer, "a background task of a queue failed");
        self.pause = Instant::now() + HOLD;
        if self.checking == Some(error.id()) {
            self.checking = None;
        } else {
            let mut state = self.shared.lock();
            state.fetching = state.fetching.saturating_sub(1);
        }
        self.shared.arrived.notify_waiters();
    }
}

/// Fails all current and later claims, which would wait forever, if the task ends without closing the queue, as in a
/// panic.
impl Drop for Actor {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if !state.closed {
            state.failure = Some((u64::MAX, QueueError::Stopped));
        }
        drop(state);
        self.shared.arrived.notify_waiters();
    }
}

/// Creates an inbox and subscribes to it.
async fn subscribe(shared: &Shared) -> Result<(String, Subscriber), NatsError> {
    let inbox = shared.link.client.new_inbox();
    match shared.link.client.subscribe(format!("{inbox}.*")).await {
        Ok(subscriber) => Ok((inbox, subscriber)),
        Err(error) => Err(NatsError::Refused(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, OnceLock};

    use async_nats::ConnectOptions;
    use tokio::sync::{Notify, mpsc, watch};
    use tokio_util::task::TaskTracker;

    use super::super::{Puller, TRIES};
    use super::*;
    use crate::nats::codec::Complaints;
    use crate::nats::lease::Outgoing;
    use crate::nats::link::Link;
    use crate::nats::{ConnectionState, Layout};

    /// An actor without a server, and the end of the queue that it serves.
    async fn start() -> (Actor, Puller) {
        start_with(mpsc::channel(1).0).await
    }

    /// As `start`; replies to deliveries are sent to `answers`.
    async fn start_with(answers: mpsc::Sender<Outgoing>) -> (Actor, Puller) {
        let options = ConnectOptions::new().retry_on_initial_connect();
        let disconnected = ConnectionState { connected: false, reconnections: 0 };
        let link = Arc::new(Link {
            client: options.connect("127.0.0.1:9").await.unwrap(),
            layout: Layout::default(),
            version: String::new(),
            connection: watch::channel(disconnected).1,
            violations: watch::channel(String::new()).1,
            answers,
            complaints: Complaints::default(),
            remade: watch::Sender::new(0),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
        });
        let shared = Arc::new(Shared {
            link,
            state: Mutex::default(),
            arrived: Notify::new(),
            wanted: Notify::new(),
            rejected: OnceLock::new(),
        });
        let [stream, name, filter] = ["stream", "consumer", "subject.>"].map(str::to_owned);
        let source = Source { consumer: ConsumerName { stream, name, filter }, term: HOLD };
        let ended = CancellationToken::new();
        let actor = Actor::new(Arc::clone(&shared), source, ended.clone()).await.unwrap();
        (actor, Puller { shared, _ended: ended.drop_guard() })
    }

    #[tokio::test]
    async fn claims_fail_once_the_task_ended_unexpectedly() {
        let (actor, puller) = start().await;
        let ending = async {
            tokio::task::yield_now().await;
            drop(actor);
        };
        let (failed, ()) = tokio::join!(timeout(EXPIRY, puller.claim::<u32>(1)), ending);
        assert_eq!(failed.unwrap().unwrap_err(), QueueError::Stopped);
        let later = timeout(EXPIRY, puller.claim::<u32>(1)).await;
        assert_eq!(later.unwrap().unwrap_err(), QueueError::Stopped);
        assert_eq!(puller.try_claim::<u32>(1).await.unwrap_err(), QueueError::Stopped);
    }

    #[tokio::test]
    async fn a_queue_that_was_closed_does_not_fail() {
        let (actor, puller) = start().await;
        puller.close();
        drop(actor);
        assert!(puller.claim::<u32>(1).await.unwrap().is_empty());
    }

    /// Each delivery counts towards the limit beyond which a worker records a fault for a unit. Results have no limit.
    #[tokio::test]
    async fn units_whose_bodies_are_unavailable_are_removed_in_time_and_results_are_kept() {
        let again = "-NAK {\"delay\": 1000000000}";
        for (is_result, deliveries, expected) in
            [(false, 1, again), (false, TRIES, "+TERM"), (true, TRIES, again), (true, 100, again)]
        {
            let (answers, mut sent) = mpsc::channel(1);
            let (_actor, puller) = start_with(answers).await;
            let (outlet, mut rejected) = mpsc::channel(1);
            if is_result {
                puller.reject_to(outlet);
            }
            let (id, link) = ("id".to_owned(), puller.shared.link.clone());
            let lease = NatsLease::new(link, id.clone(), "token".to_owned(), EXPIRY * 100, None);
            let delivery = Delivery {
                id,
                deliveries,
                headers: None,
                object: Some("object".to_owned()),
                body: Bytes::new(),
                lease: Some(lease),
                since: Instant::now(),
            };
            settle(&puller.shared, delivery, Err(NatsError::Unreachable("no response".to_owned())));
            let Ok(Outgoing::Reply { payload, .. }) = sent.try_recv() else { panic!("no reply") };
            assert_eq!(payload, expected, "{is_result} {deliveries}");
            assert!(rejected.try_recv().is_err());
        }
    }

    async fn panicking() -> ActorTask {
        panic!("no such task")
    }

    #[tokio::test]
    async fn background_tasks_that_panic_do_not_stop_the_queue() {
        let (mut actor, puller) = start().await;
        actor.checking = Some(actor.chores.spawn(panicking()).id());
        actor.chores.spawn(panicking());
        puller.shared.lock().fetching = 1;
        while let Some(chore) = actor.chores.join_next().await {
            actor.recover(&chore.err().unwrap());
        }
        assert!(actor.checking.is_none());
        assert_eq!(puller.shared.lock().fetching, 0);
    }
}
