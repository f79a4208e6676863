//! When the next request may be sent: a limit of requests per second, and pauses that a service asks for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Longest time between two requests.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Limits the rate of requests.
#[derive(Debug)]
pub(crate) struct Pace {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: Instant,
    rested: Instant,
    /// Until when no request may be sent, and why.
    suspended: Option<(Instant, String)>,
}

impl Pace {
    pub(crate) fn new(every: Duration) -> Self {
        let now = Instant::now();
        Self { every, state: Mutex::new(State { next: now, rested: now, suspended: None }) }
    }

    /// Waits until the next request may be sent.
    ///
    /// # Errors
    /// If requests are suspended. The error is the reason.
    pub(crate) async fn turn(&self) -> Result<(), String> {
        loop {
            let turn = self.with(|state| {
                let now = Instant::now();
                if let Some((_, reason)) = state.suspended.as_ref().filter(|(until, _)| *until > now) {
                    return Err(reason.clone());
                }
                let turn = state.next.max(state.rested).max(now);
                state.next = turn + self.every;
                Ok(turn)
            })?;
            sleep_until(turn).await;
            // A pause may have been requested in the meantime.
            if self.with(|state| state.rested <= turn) {
                return Ok(());
            }
        }
    }

    /// Delays all requests by at least `time`.
    pub(crate) fn rest(&self, time: Duration) {
        self.with(|state| state.rested = state.rested.max(Instant::now() + time.min(LONGEST)));
    }

    /// Rejects all requests for `time`.
    pub(crate) fn suspend(&self, time: Duration, reason: String) {
        self.with(|state| state.suspended = Some((Instant::now() + time, reason)));
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the time between two requests, from a number of requests per second: the value of an environment variable.
///
/// # Errors
/// If the value is not a positive number. The error names the variable.
pub fn pace_of_rate(variable: &str, rate: &str) -> Result<Duration, String> {
    rate.parse::<f64>()
        .ok()
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .and_then(|rate| Duration::try_from_secs_f64(1.0 / rate).ok())
        // Later times may not be representable.
        .filter(|every| *every <= LONGEST)
        .ok_or_else(|| {
            format!(
                "invalid value `{rate}` for {variable}: expected a positive number of requests per second"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_the_pace_and_after_a_rest() {
        let pace = Pace::new(Duration::from_millis(500));
        let began = Instant::now();
        let elapsed = || began.elapsed().as_millis();
        pace.turn().await.unwrap();
        assert_eq!(elapsed(), 0);
        pace.turn().await.unwrap();
        assert!((500..510).contains(&elapsed()), "{}", elapsed());
        let (waiting, ()) = tokio::join!(pace.turn(), async { pace.rest(Duration::from_secs(3)) });
        waiting.unwrap();
        assert!((3_500..3_520).contains(&elapsed()), "{}", elapsed());
        // Unused time does not accumulate.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let began = Instant::now();
        pace.turn().await.unwrap();
        pace.turn().await.unwrap();
        assert!(began.elapsed() >= Duration::from_millis(499));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_while_requests_are_suspended() {
        let pace = Pace::new(Duration::ZERO);
        pace.suspend(Duration::from_secs(60), "the key was rejected".to_owned());
        assert_eq!(pace.turn().await, Err("the key was rejected".to_owned()));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(pace.turn().await, Ok(()));
    }

    #[test]
    fn rates_are_positive_numbers() {
        assert_eq!(pace_of_rate("RATE", "4"), Ok(Duration::from_millis(250)));
        for wrong in ["0", "-1", "fast", "NaN", "inf", "1e-18"] {
            let error = pace_of_rate("RATE", wrong).unwrap_err();
            assert!(error.contains(wrong) && error.contains("RATE"), "{error}");
        }
    }
}
