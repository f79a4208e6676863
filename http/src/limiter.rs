//! How many requests of a client are in progress at the same time: a number that follows what the service can take,
//! between bounds.
//!
//! [`Controller`] decides, without a clock of its own; [`Limiter`] applies its decisions to a semaphore.
//!
//! | observed | limit |
//! |---|---|
//! | as many successes as the limit, all while every permit was in use | + 1 |
//! | status 429 or 503, or a timeout; at most once per median latency | × 0.7 |
//! | 32 successes with more than twice the best median latency, and not more per second than before | × 0.9 |
//! | the service reports more than half as many waiting requests as running ones | × 0.8 |
//! | the service reports no waiting requests and free cache; at most once per second | + 1 |

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// First limit, if the bounds allow it.
const FIRST: usize = 8;
/// Number of most recent latencies that are compared.
const WINDOW: usize = 32;
/// Minimum time between two decreases while no latency is known.
const UNKNOWN_LATENCY: Duration = Duration::from_secs(1);
/// Share of the cache from which a service counts as full.
const FULL_CACHE: f64 = 0.8;
/// Factor by which the best median latency is forgotten per window, since requests become longer or shorter.
const FORGETTING: f64 = 1.05;

/// Smallest and largest number of concurrent requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConcurrencyBounds {
    least: usize,
    most: usize,
}

impl ConcurrencyBounds {
    /// No limit.
    pub const UNLIMITED: Self = Self { least: Semaphore::MAX_PERMITS, most: Semaphore::MAX_PERMITS };

    /// Creates bounds. Values are raised to 1, and `most` to `least`.
    pub fn new(least: usize, most: usize) -> Self {
        let least = least.clamp(1, Semaphore::MAX_PERMITS);
        Self { least, most: most.clamp(least, Semaphore::MAX_PERMITS) }
    }

    /// A constant number.
    pub fn fixed(concurrency: usize) -> Self {
        Self::new(concurrency, concurrency)
    }

    /// The smallest number.
    pub fn least(self) -> usize {
        self.least
    }

    /// The largest number.
    pub fn most(self) -> usize {
        self.most
    }
}

impl FromStr for ConcurrencyBounds {
    type Err = String;

    /// Parses `16` or `2..64`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (least, most) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number > 0);
        match number(least).zip(number(most)) {
            Some((least, most)) if least <= most => Ok(Self::new(least, most)),
            _ => Err("expected a positive integer, or a range such as 2..64".to_owned()),
        }
    }
}

impl fmt::Display for ConcurrencyBounds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { least, most } if least == most => write!(formatter, "{most}"),
            Self { least, most } => write!(formatter, "{least}..{most}"),
        }
    }
}

/// Load that a service reports of itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServerLoad {
    /// Requests that are being computed.
    pub running: f64,
    /// Requests that wait.
    pub waiting: f64,
    /// Share of the KV cache in use, 0 to 1, if known.
    pub cache_usage: Option<f64>,
}

/// How a client's limit developed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimiterSummary {
    /// Smallest limit so far.
    pub lowest: usize,
    /// Largest limit so far.
    pub highest: usize,
    /// Current limit.
    pub last: usize,
    /// Number of decreases.
    pub decreases: u64,
    /// Requests that the service rejected or that timed out.
    pub rejections: u64,
    /// Requests that succeeded.
    pub successes: u64,
    /// Whether the service reported its load.
    pub has_load: bool,
}

/// Determines the limit.
#[derive(Debug)]
pub(crate) struct Controller {
    bounds: ConcurrencyBounds,
    summary: LimiterSummary,
    /// Successes since the last change, all while every permit was in use.
    full_successes: usize,
    latencies: VecDeque<Duration>,
    /// Successes and start of the current window.
    window: (usize, Option<Instant>),
    best_median: Option<Duration>,
    /// Successes per second of the previous window.
    rate: f64,
    decreased: Option<Instant>,
    increased: Option<Instant>,
}

impl Controller {
    pub(crate) fn new(bounds: ConcurrencyBounds) -> Self {
        let last = FIRST.clamp(bounds.least, bounds.most);
        let (lowest, highest) = (last, last);
        let (decreases, rejections, successes, has_load) = Default::default();
        let summary = LimiterSummary { lowest, highest, last, decreases, rejections, successes, has_load };
        Self {
            bounds,
            summary,
            full_successes: 0,
            latencies: VecDeque::with_capacity(WINDOW),
            window: (0, None),
            best_median: None,
            rate: 0.0,
            decreased: None,
            increased: None,
        }
    }

    pub(crate) fn limit(&self) -> usize {
        self.summary.last
    }

    /// A request succeeded while `in_flight` were in progress, itself included.
    pub(crate) fn completed(&mut self, now: Instant, latency: Duration, in_flight: usize) {
        self.summary.successes += 1;
        if self.latencies.len() == WINDOW {
            self.latencies.pop_front();
        }
        self.latencies.push_back(latency);
        self.full_successes = if in_flight >= self.limit() { self.full_successes + 1 } else { 0 };
        let is_slower = self.window_is_slower(now);
        if is_slower {
            self.decrease(now, 0.9);
        } else if self.full_successes >= self.limit() {
            self.increase();
        }
    }

    /// The service rejected a request because of its load, or did not respond in time.
    pub(crate) fn overloaded(&mut self, now: Instant) {
        self.summary.rejections += 1;
        let pause = self.median().unwrap_or(UNKNOWN_LATENCY);
        if self.decreased.is_none_or(|before| now.duration_since(before) >= pause) {
            self.decrease(now, 0.7);
        }
    }

    /// The service reported its load.
    pub(crate) fn load(&mut self, now: Instant, load: &ServerLoad) {
        self.summary.has_load = true;
        if load.waiting > load.running / 2.0 {
            self.decrease(now, 0.8);
        } else if load.waiting == 0.0 && load.cache_usage.is_none_or(|usage| usage < FULL_CACHE) {
            let may =
                self.increased.is_none_or(|before| now.duration_since(before) >= Duration::from_secs(1));
            // More than the client uses is not needed.
            if may && self.full_successes > 0 {
                self.increase();
                self.increased = Some(now);
            }
        }
    }

    /// Counts a success, and compares the window with earlier ones if it is complete.
    fn window_is_slower(&mut self, now: Instant) -> bool {
        let (successes, started) = &mut self.window;
        *successes += 1;
        let started = *started.get_or_insert(now);
        if *successes < WINDOW {
            return false;
        }
        self.window = (0, Some(now));
        let Some(median) = self.median() else { return false };
        let seconds = now.duration_since(started).as_secs_f64().max(1e-3);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let rate = WINDOW as f64 / seconds;
        let is_faster = rate > self.rate;
        self.rate = rate;
        let best = self.best_median.map_or(median, |best| best.mul_f64(FORGETTING).min(median));
        self.best_median = Some(best);
        median > best * 2 && !is_faster
    }

    fn median(&self) -> Option<Duration> {
        let mut sorted: Vec<_> = self.latencies.iter().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied()
    }

    fn increase(&mut self) {
        self.set(self.limit() + 1);
    }

    fn decrease(&mut self, now: Instant, factor: f64) {
        self.decreased = Some(now);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a positive number that becomes smaller"
        )]
        let limit = (self.limit() as f64 * factor) as usize;
        if self.set(limit) {
            self.summary.decreases += 1;
        }
    }

    /// Sets the limit within the bounds. Returns whether it changed.
    fn set(&mut self, limit: usize) -> bool {
        let limit = limit.clamp(self.bounds.least, self.bounds.most);
        let summary = &mut self.summary;
        let changed = limit != summary.last;
        summary.last = limit;
        summary.lowest = summary.lowest.min(limit);
        summary.highest = summary.highest.max(limit);
        self.full_successes = 0;
        changed
    }
}

/// Limits the concurrent requests of a client.
#[derive(Debug)]
pub(crate) struct Limiter {
    permits: Semaphore,
    state: Mutex<Issued>,
}

#[derive(Debug)]
struct Issued {
    controller: Controller,
    /// Permits that exist: in use, or available.
    issued: usize,
    in_use: usize,
}

impl Limiter {
    pub(crate) fn new(bounds: ConcurrencyBounds) -> Self {
        let controller = Controller::new(bounds);
        let issued = controller.limit();
        Self { permits: Semaphore::new(issued), state: Mutex::new(Issued { controller, issued, in_use: 0 }) }
    }

    /// Waits for a permit. `None` if the semaphore is closed, which does not happen.
    pub(crate) async fn acquire(&self) -> Option<RequestPermit<'_>> {
        let permit = self.permits.acquire().await.ok()?;
        self.state().in_use += 1;
        Some(RequestPermit { limiter: self, permit: Some(permit), started: Instant::now() })
    }

    pub(crate) fn bounds(&self) -> ConcurrencyBounds {
        self.state().controller.bounds
    }

    pub(crate) fn summary(&self) -> LimiterSummary {
        self.state().controller.summary
    }

    pub(crate) fn overloaded(&self) {
        self.change(|state| state.controller.overloaded(Instant::now()));
    }

    pub(crate) fn load(&self, load: &ServerLoad) {
        self.change(|state| state.controller.load(Instant::now(), load));
    }

    /// Changes the state, and adds or removes available permits. Those in use are removed when they are released.
    fn change(&self, change: impl FnOnce(&mut Issued)) {
        let mut state = self.state();
        change(&mut state);
        let limit = state.controller.limit();
        if limit > state.issued {
            self.permits.add_permits(limit - state.issued);
            state.issued = limit;
        } else {
            state.issued -= self.permits.forget_permits(state.issued - limit);
        }
    }

    fn state(&self) -> MutexGuard<'_, Issued> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission for one request in progress.
#[derive(Debug)]
pub(crate) struct RequestPermit<'a> {
    limiter: &'a Limiter,
    permit: Option<SemaphorePermit<'a>>,
    started: Instant,
}

impl RequestPermit<'_> {
    /// The request is sent now.
    pub(crate) fn start(&mut self) {
        self.started = Instant::now();
    }

    /// The request succeeded.
    pub(crate) fn completed(&self) {
        let now = Instant::now();
        let latency = now.duration_since(self.started);
        self.limiter.change(|state| state.controller.completed(now, latency, state.in_use));
    }
}

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.state();
        state.in_use -= 1;
        // A released permit would go to the next request that waits.
        if state.issued > state.controller.limit()
            && let Some(permit) = self.permit.take()
        {
            permit.forget();
            state.issued -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Completes requests of a second each that use all permits.
    fn successes(controller: &mut Controller, now: &mut Instant, count: usize) {
        for _ in 0..count {
            *now += SECOND / u32::try_from(controller.limit()).unwrap();
            controller.completed(*now, SECOND, controller.limit());
        }
    }

    #[test]
    fn bounds_are_a_number_or_a_range() {
        for (text, least, most) in [("16", 16, 16), ("2..64", 2, 64), ("1..1", 1, 1)] {
            let bounds: ConcurrencyBounds = text.parse().unwrap();
            assert_eq!((bounds.least(), bounds.most()), (least, most));
        }
        assert_eq!(ConcurrencyBounds::new(2, 64).to_string(), "2..64");
        assert_eq!(ConcurrencyBounds::fixed(3).to_string(), "3");
        for wrong in ["0", "0..4", "4..2", "..", "a", "-1", "2..", ""] {
            assert!(wrong.parse::<ConcurrencyBounds>().is_err(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_grows_while_all_permits_are_in_use() {
        let mut now = Instant::now();
        let mut controller = Controller::new(ConcurrencyBounds::new(1, 10));
        successes(&mut controller, &mut now, 7);
        assert_eq!(controller.limit(), 8);
        successes(&mut controller, &mut now, 1);
        assert_eq!(controller.limit(), 9);
        for _ in 0..100 {
            controller.completed(now, SECOND, 3);
        }
        assert_eq!(controller.limit(), 9, "unused permits need no more");
        successes(&mut controller, &mut now, 100);
        assert_eq!(controller.limit(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn rejections_decrease_the_limit_once_per_latency() {
        let mut now = Instant::now();
        let mut controller = Controller::new(ConcurrencyBounds::new(2, 64));
        for _ in 0..20 {
            controller.overloaded(now);
        }
        assert_eq!(controller.limit(), 5);
        successes(&mut controller, &mut now, 1);
        controller.overloaded(now + SECOND);
        assert_eq!(controller.limit(), 3);
        for second in 2..20 {
            controller.overloaded(now + SECOND * second);
        }
        let LimiterSummary { lowest, highest, decreases, rejections, .. } = controller.summary;
        assert_eq!((lowest, highest, decreases, rejections), (2, 8, 3, 39));
    }

    #[tokio::test(start_paused = true)]
    async fn latency_that_buys_no_throughput_decreases_the_limit() {
        let mut now = Instant::now();
        let mut controller = Controller::new(ConcurrencyBounds::new(1, 64));
        let mut window = |controller: &mut Controller, latency: Duration, pause: Duration| {
            for _ in 0..WINDOW {
                now += pause;
                controller.completed(now, latency, 1);
            }
            controller.limit()
        };
        assert_eq!(window(&mut controller, SECOND, SECOND / 8), 8);
        assert_eq!(window(&mut controller, SECOND * 3, SECOND / 16), 8, "throughput has doubled");
        assert_eq!(window(&mut controller, SECOND * 3, SECOND / 16), 7);
        assert_eq!(window(&mut controller, SECOND, SECOND / 16), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn the_reported_load_moves_the_limit() {
        let mut now = Instant::now();
        let mut controller = Controller::new(ConcurrencyBounds::new(1, 64));
        let load = |running, waiting, usage| ServerLoad { running, waiting, cache_usage: Some(usage) };
        controller.load(now, &load(4.0, 3.0, 0.1));
        assert_eq!(controller.limit(), 6);
        controller.load(now, &load(4.0, 0.0, 0.1));
        assert_eq!(controller.limit(), 6, "the permits were not in use");
        successes(&mut controller, &mut now, 1);
        controller.load(now, &load(4.0, 0.0, 0.9));
        controller.load(now, &load(4.0, 1.0, 0.1));
        assert_eq!(controller.limit(), 6);
        controller.load(now, &load(4.0, 0.0, 0.1));
        assert_eq!(controller.limit(), 7);
        assert!(controller.summary.has_load);
    }

    #[tokio::test(start_paused = true)]
    async fn permits_in_use_are_removed_when_they_are_released() {
        let limiter = Arc::new(Limiter::new(ConcurrencyBounds::new(1, 8)));
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(limiter.acquire().await.unwrap());
        }
        limiter.overloaded();
        assert_eq!(limiter.summary().last, 5);
        let waiting = Arc::new(AtomicUsize::new(0));
        for _ in 0..8 {
            let (limiter, waiting) = (Arc::clone(&limiter), Arc::clone(&waiting));
            tokio::spawn(async move {
                let _permit = limiter.acquire().await.unwrap();
                waiting.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            });
        }
        tokio::task::yield_now().await;
        held.truncate(5);
        tokio::time::sleep(SECOND).await;
        assert_eq!(waiting.load(Ordering::SeqCst), 0, "three permits were removed");
        held.truncate(2);
        tokio::time::sleep(SECOND).await;
        assert_eq!(waiting.load(Ordering::SeqCst), 3);
    }

    proptest! {
        #[test]
        fn the_limit_stays_within_the_bounds(
            least in 1usize..20,
            more in 0usize..50,
            events in proptest::collection::vec((0u8..3, 0u64..5_000, 0usize..80), 0..300),
        ) {
            let bounds = ConcurrencyBounds::new(least, least + more);
            let mut controller = Controller::new(bounds);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            let mut now = Instant::now();
            for (kind, milliseconds, number) in events {
                now += Duration::from_millis(milliseconds / 4);
                match kind {
                    0 => controller.completed(now, Duration::from_millis(milliseconds), number),
                    1 => controller.overloaded(now),
                    _ => {
                        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
                        let (running, waiting) = (number as f64, (milliseconds % 7) as f64);
                        controller.load(now, &ServerLoad { running, waiting, cache_usage: None });
                    }
                }
                prop_assert!((bounds.least()..=bounds.most()).contains(&controller.limit()));
            }
        }
    }
}
