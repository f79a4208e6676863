//! The number of messages that were requested from the server and not delivered yet.
//!
//! A message does not name the request that it answers, and the server serves several requests in turn. So each message
//! is counted against the oldest request; when the server reports how much of a request it left unanswered, the
//! difference is corrected among the others. The sum is exact as long as nothing is lost, and lost requests expire.

use std::collections::VecDeque;

use tokio::time::Instant;

#[derive(Debug)]
struct Request {
    number: u64,
    batch: usize,
    remaining: usize,
    until: Instant,
}

/// Requests that are open.
#[derive(Debug, Default)]
pub(super) struct Demand {
    requests: VecDeque<Request>,
    outstanding: usize,
    last: u64,
}

impl Demand {
    /// Messages that may still come.
    pub(super) fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Notes a request that is forgotten at `until`; its number.
    pub(super) fn open(&mut self, batch: usize, until: Instant) -> u64 {
        self.last += 1;
        self.requests.push_back(Request { number: self.last, batch, remaining: batch, until });
        self.outstanding += batch;
        self.last
    }

    pub(super) fn is_open(&self, number: u64) -> bool {
        self.requests.iter().any(|request| request.number == number)
    }

    /// A message came.
    pub(super) fn arrived(&mut self) {
        self.withdraw(1);
    }

    /// The server is done with a request, of which it left so many unanswered; all of them if it does not say.
    pub(super) fn ended(&mut self, number: u64, unanswered: Option<usize>) {
        let found = self.requests.iter().position(|request| request.number == number);
        let Some(request) = found.and_then(|place| self.requests.remove(place)) else {
            // All of it was put down to messages that in truth answered later requests.
            self.withdraw(unanswered.unwrap_or(0));
            return;
        };
        self.outstanding -= request.remaining;
        let unanswered = unanswered.unwrap_or(request.remaining).min(request.batch);
        if unanswered > request.remaining {
            self.withdraw(unanswered - request.remaining);
        } else if unanswered < request.remaining {
            // It answered more than was put down to it, so others have answered less than was put down to them.
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

    /// Forgets requests that the server should have given up by now; whether there were any.
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

    /// Forgets all requests: a server that was started again knows none.
    pub(super) fn forget(&mut self) {
        self.requests.clear();
        self.outstanding = 0;
    }

    /// When the next request is forgotten.
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
        let mut demand = Demand::default();
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
        /// However the server spreads its messages over requests, the sum is right once every request has ended.
        #[test]
        fn sums_are_exact(batches in proptest::collection::vec(1usize..9, 1..8), picks in proptest::collection::vec(0usize..8, 0..40)) {
            let later = Instant::now() + Duration::from_secs(1);
            let mut demand = Demand::default();
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
                // The server says nothing about requests it answered in full.
                if left > 0 {
                    demand.ended(number, Some(left));
                    truth[place].1 = 0;
                }
                prop_assert_eq!(demand.outstanding(), truth.iter().map(|(_, left)| left).sum::<usize>());
            }
        }
    }
}
