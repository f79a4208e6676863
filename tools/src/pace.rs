//! A limit of requests per second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Longest time between two requests.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Limits the rate of requests. A service can request a pause.
#[derive(Debug)]
pub(super) struct Pace {
    every: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    next: Instant,
    rested: Instant,
}

impl Pace {
    pub(super) fn new(every: Duration) -> Self {
        let now = Instant::now();
        Self { every, state: Mutex::new(State { next: now, rested: now }) }
    }

    /// Waits until the next request may be sent.
    pub(super) async fn turn(&self) {
        loop {
            let turn = self.with(|state| {
                let turn = state.next.max(state.rested).max(Instant::now());
                state.next = turn + self.every;
                turn
            });
            sleep_until(turn).await;
            // A pause may have been requested in the meantime.
            if self.with(|state| state.rested <= turn) {
                return;
            }
        }
    }

    /// Delays all requests by at least `time`.
    pub(super) fn rest(&self, time: Duration) {
        self.with(|state| state.rested = state.rested.max(Instant::now() + time.min(LONGEST)));
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the time between two requests, from an environment variable with the number of requests per
/// second.
///
/// # Errors
/// If the value is not a positive number.
pub(super) fn from_environment(variable: &str) -> Result<Option<Duration>, String> {
    let Some(rate) = std::env::var(variable).ok().filter(|rate| !rate.is_empty()) else { return Ok(None) };
    rate.parse::<f64>()
        .ok()
        .filter(|rate| *rate > 0.0)
        .and_then(|rate| Duration::try_from_secs_f64(1.0 / rate).ok())
        // Later times may not be representable.
        .filter(|every| *every <= LONGEST)
        .map(Some)
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
        pace.turn().await;
        assert_eq!(elapsed(), 0);
        pace.turn().await;
        assert!((500..510).contains(&elapsed()), "{}", elapsed());
        let (waiting, ()) = tokio::join!(pace.turn(), async { pace.rest(Duration::from_secs(3)) });
        let () = waiting;
        assert!((3_500..3_520).contains(&elapsed()), "{}", elapsed());
        // Unused time does not accumulate.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let began = Instant::now();
        pace.turn().await;
        pace.turn().await;
        assert!(began.elapsed() >= Duration::from_millis(499));
    }
}
