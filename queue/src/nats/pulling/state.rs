//! State of the claiming end of a queue, and what a claimer gets from it. Performs no I/O.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::actor::HOLD;
use super::open_requests::OpenRequests;
use super::{Delivery, FETCHED};
use crate::QueueError;

/// Messages that are available, and the claims and requests for more.
#[derive(Default)]
pub(super) struct State {
    pub(super) ready: VecDeque<Delivery>,
    /// Messages whose bodies are in the object store and not being fetched yet.
    pub(super) waiting: VecDeque<Delivery>,
    /// Number of messages whose bodies are being fetched.
    pub(super) fetching: usize,
    /// Maximum decoded size of a body in bytes, and of all bodies of a claim.
    pub(super) body_limit: usize,
    /// Whether the last claim left messages behind that did not fit or were not fetched yet, so that another is expected.
    pub(super) cut: bool,
    pub(super) demand: OpenRequests,
    pub(super) claimers: HashMap<u64, PullRequest>,
    pub(super) last_claimer: u64,
    /// The last failure, with the number of the last claimer at that time. Claimers up to that number get it.
    pub(super) failure: Option<(u64, QueueError)>,
    pub(super) closed: bool,
}

/// State of a claimer's request.
#[derive(Debug, Clone, Copy)]
pub(super) enum PullRequest {
    /// Waits for up to this many messages.
    Await(usize),
    /// Takes up to this many available messages; not sent to the server yet.
    Probe(usize),
    /// Sent to the server as the request with this number.
    Probing(u64),
}

/// What is available to a claimer.
pub(super) enum PullReply {
    Nothing,
    Deliveries(Vec<Delivery>),
    Closed,
    Failed(QueueError),
}

impl State {
    /// Takes the messages that are available to a claimer. With `last`, the claimer does not try again. A
    /// claim that gets messages is removed in the same step: otherwise the task could request the same number
    /// of messages from the server again.
    pub(super) fn take(&mut self, number: u64, max: usize, last: bool) -> PullReply {
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
    pub(super) fn next_to_fetch(&mut self) -> Option<Delivery> {
        let fetched = self.ready.iter().filter(|delivery| delivery.object.is_some()).count();
        if self.closed || self.fetching + fetched >= FETCHED {
            return None;
        }
        let delivery = self.waiting.pop_front()?;
        self.fetching += 1;
        Some(delivery)
    }

    /// How long messages of a lease's duration are held. A claimer that could not take everything is expected to return.
    pub(super) fn patience(&self, lease: Duration) -> Duration {
        if self.cut || !self.claimers.is_empty() { lease / 2 } else { HOLD }
    }

    /// Extends the leases of messages whose bodies wait to be fetched for a claimer, once half of them is used up.
    pub(super) fn extend_waiting(&mut self, lease: Duration, now: Instant) {
        if !self.claimers.is_empty() {
            let old = self.waiting.iter_mut().filter(|delivery| delivery.since + lease / 2 <= now);
            old.for_each(Delivery::extend);
        }
    }

    /// Removes and returns the messages that arrived before `limit`.
    pub(super) fn remove_older(&mut self, limit: Instant) -> Vec<Delivery> {
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
    pub(super) fn missing(&self) -> usize {
        let wanted: usize = self
            .claimers
            .values()
            .map(|wish| if let PullRequest::Await(max) = wish { *max } else { 0 })
            .sum();
        let held = self.ready.len() + self.waiting.len() + self.fetching;
        wanted.saturating_sub(held + self.demand.outstanding())
    }
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderMap;
    use bytes::Bytes;

    use super::super::PROBE;
    use super::*;
    use crate::nats::codec;

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
