//! Counts the messages that were requested from the server and not delivered yet.
//!
//! A message does not name the request that it belongs to, and the server serves several requests in turn. So
//! each message is counted against the oldest request. When the server reports how many messages of a request
//! it left undelivered, the difference is corrected in the other requests. The sum is exact as long as
//! nothing is lost, and lost requests expire.

use std::collections::VecDeque;

use tokio::time::Instant;

#[derive(Debug)]
struct Request {
    number: u64,
    batch: usize,
    remaining: usize,
    until: Instant,
}

/// Open requests.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    requests: VecDeque<Request>,
    outstanding: usize,
    last: u64,
}

impl OpenRequests {
    /// Returns the number of messages that may still arrive.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Registers a request that expires at `until`. Returns its number.
    pub(super) fn open(&mut self, batch: usize, until: Instant) -> u64 {
        self.last += 1;
        self.requests.push_back(Request { number: self.last, batch, remaining: batch, until });
        self.outstanding += batch;
        self.last
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.requests.iter().any(|request| request.number == number)
    }

    /// Records the arrival of a message.
    pub(super) fn arrived(&mut self) {
        self.withdraw(1);
    }

    /// Records the end of a request that left `unanswered` messages undelivered; if unknown, all that remain.
    pub(super) fn ended(&mut self, number: u64, unanswered: Option<usize>) {
        let found = self.requests.iter().position(|request| request.number == number);
        let Some(request) = found.and_then(|place| self.requests.remove(place)) else {
            // It was counted as complete because of messages that belonged to later requests.
            self.withdraw(unanswered.unwrap_or(0));
            return;
        };
        self.outstanding -= request.remaining;
        let unanswered = unanswered.unwrap_or(request.remaining).min(request.batch);
        if unanswered > request.remaining {
            self.withdraw(unanswered - request.remaining);
        } else if unanswered < request.remaining {
            // More messages belonged to it than were counted, so fewer belonged to others than were counted.
            let more = request.remaining - unanswered;
            self.requests.push_back(Request {
                number: 0,
                batch: more,
                remaining: more,
                until: request.until,
            });
            self.outstanding += more;
        }
    }

    fn withdraw(&mut self, mut count: usize) {
        while count > 0 {
            let Some(oldest) = self.requests.front_mut() else { return };
            let less = count.min(oldest.remaining);
            oldest.remaining -= less;
            self.outstanding -= less;
            count -= less;
            if oldest.remaining == 0 {
                self.requests.pop_front();
            }
        }
    }

    /// Removes requests that the server should have ended by now. Returns whether there were any.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.requests.len();
        let outstanding = &mut self.outstanding;
        self.requests.retain(|request| {
            let open = request.until > now;
            if !open {
                *outstanding -= request.remaining;
            }
            open
        });
        self.requests.len() < before
    }

    /// Removes all requests: a restarted server has lost them.
    pub(super) fn forget(&mut self) {
        self.requests.clear();
        self.outstanding = 0;
    }

    /// Returns when the next request expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.requests.iter().map(|request| request.until).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_unanswered_is_put_right() {
        let later = Instant::now() + Duration::from_secs(1);
        let mut demand = OpenRequests::default();
        let first = demand.open(3, later);
        let second = demand.open(2, later);
        // The server served them in turn: two for the first, one for the second.
        (0..3).for_each(|_| demand.arrived());
        assert_eq!((demand.outstanding(), demand.is_open(first)), (2, false));
        demand.ended(first, Some(1));
        assert_eq!(demand.outstanding(), 1);
        demand.ended(second, Some(1));
        assert_eq!(demand.outstanding(), 0);
    }

    proptest! {
        /// For any distribution of messages over requests, the sum is correct once every request has ended.
        #[test]
        fn sums_are_exact(batches in proptest::collection::vec(1usize..9, 1..8), picks in proptest::collection::vec(0usize..8, 0..40)) {
            let later = Instant::now() + Duration::from_secs(1);
            let mut demand = OpenRequests::default();
            let mut truth: Vec<(u64, usize)> = batches.iter().map(|batch| (demand.open(*batch, later), *batch)).collect();
            for pick in picks {
                let place = pick % truth.len();
                if truth[place].1 > 0 {
                    truth[place].1 -= 1;
                    demand.arrived();
                    prop_assert_eq!(demand.outstanding(), truth.iter().map(|(_, left)| left).sum::<usize>());
                }
            }
            for place in 0..truth.len() {
                let (number, left) = truth[place];
                // The server does not report requests that it served completely.
                if left > 0 {
                    demand.ended(number, Some(left));
                    truth[place].1 = 0;
                }
                prop_assert_eq!(demand.outstanding(), truth.iter().map(|(_, left)| left).sum::<usize>());
            }
        }
    }
}
