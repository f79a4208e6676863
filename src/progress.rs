//! What a person sees while a run goes on.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use lumos_coordinator::events::Event;

/// The bar that is on screen, so that log lines can step around it.
static CURRENT: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs `write` with no bar in its way.
pub(crate) fn suspended(write: impl FnOnce()) {
    let bar = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// How often a line is written where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// The time that rates are measured over.
const WINDOW: Duration = Duration::from_secs(20);

/// Follows the events of a run.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    last_line: Instant,
    tally: Tally,
}

/// The figures behind a progress line.
#[derive(Debug, Default)]
struct Tally {
    planned: u64,
    settled: u64,
    faulted: u64,
    correct: u64,
    scored: u64,
    /// When units of this session were settled, and the tokens each took; the latest [`WINDOW`].
    recent: VecDeque<(Instant, u64)>,
    began: Option<Instant>,
}

impl Tally {
    fn settle(&mut self, now: Instant, correct: Option<bool>, tokens: u64) {
        self.settled += 1;
        self.scored += u64::from(correct.is_some());
        self.correct += u64::from(correct == Some(true));
        self.recent.push_back((now, tokens));
        while self.recent.front().is_some_and(|(then, _)| now.duration_since(*then) > WINDOW) {
            self.recent.pop_front();
        }
    }

    /// Items and tokens per second of late.
    fn rates(&self, now: Instant) -> Option<(f64, f64)> {
        let began = self.began?;
        let seconds = now.duration_since(began).min(WINDOW).as_secs_f64();
        let tokens: u64 = self.recent.iter().map(|(_, tokens)| tokens).sum();
        (seconds > 0.5).then(|| (self.recent.len() as f64 / seconds, tokens as f64 / seconds))
    }

    fn line(&self, now: Instant) -> String {
        let mut line = String::new();
        if self.scored > 0 {
            let percent = 100.0 * self.correct as f64 / self.scored as f64;
            line.push_str(&format!("accuracy {percent:.1} %"));
        }
        if let Some((items, tokens)) = self.rates(now) {
            line.push_str(&format!(", {items:.1} items/s, {tokens:.0} tokens/s"));
            let left = self.planned.saturating_sub(self.settled);
            if items > 0.0 && left > 0 {
                let seconds = Duration::from_secs_f64(left as f64 / items);
                line.push_str(&format!(", {} left", HumanDuration(seconds)));
            }
        }
        if self.faulted > 0 {
            line.push_str(&format!(", {} faulted attempts", self.faulted));
        }
        line.trim_start_matches(", ").to_owned()
    }
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self { bar: None, quiet, last_line: Instant::now(), tally: Tally::default() }
    }

    /// Takes one event in.
    pub(crate) fn see(&mut self, event: &Event) {
        let now = Instant::now();
        match event {
            Event::Started { run, planned, settled, configurations } => {
                self.tally = Tally { planned: *planned, settled: *settled, began: Some(now), ..Tally::default() };
                tracing::info!(run, planned, settled, "the run begins");
                self.start(run, *planned, *settled, configurations.len());
            }
            Event::Settled { unit, correct, prompt_tokens, completion_tokens, status, seconds, .. } => {
                tracing::debug!(%unit, status, ?correct, seconds, "settled");
                self.tally.settle(now, *correct, prompt_tokens + completion_tokens);
                self.show(now);
            }
            Event::Faulted { item, attempt, fault, will_retry, .. } => {
                self.tally.faulted += 1;
                let again = if *will_retry { "it is tried again" } else { "its attempts are used up" };
                tracing::warn!("item {item}, attempt {attempt}: {fault}; {again}");
                self.show(now);
            }
            Event::Duplicate { unit } => tracing::debug!(%unit, "a second outcome was dropped"),
            Event::Draining { reason, at_hand } => self.say(&format!(
                "{reason}: waiting for {at_hand} episodes at hand; interrupt again to stop at once (nothing recorded is lost)"
            )),
            Event::Recovered { units } => tracing::info!(units, "units that had vanished are given out again"),
            Event::QueueAway { detail } => {
                self.say(&format!("the queue cannot be used at present, waiting for it: {detail}"));
            }
            Event::QueueBack { seconds } => self.say(&format!("the queue is back after {seconds:.0} s")),
            Event::WorkerLost { worker, recalled } => {
                tracing::warn!("worker {worker} is lost; {recalled} items it held are given to others");
            }
            Event::NoWorkers { hint } => self.say(hint),
            Event::Waiting { host, process, seconds } => self.say(&format!(
                "process {process} on {host} had this run and may have it still; waiting up to {seconds:.0} s for its claim to run out"
            )),
            Event::Cancelled { at_hand } => {
                self.say(&format!("the run was cancelled; {at_hand} items that were given out stay outstanding"));
            }
            Event::Finished { settled, faulted, outstanding, seconds } => {
                self.finish();
                tracing::info!(settled, faulted, outstanding, seconds, "the session ends");
            }
        }
    }

    fn start(&mut self, run: &str, planned: u64, settled: u64, configurations: usize) {
        if self.quiet {
            return;
        }
        let resumed = if settled > 0 { format!(", {settled} settled before") } else { String::new() };
        eprintln!("run {run}: {planned} units in {configurations} configurations{resumed}");
        if !std::io::stderr().is_terminal() {
            return;
        }
        let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_position(settled);
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        self.bar = Some(bar);
    }

    fn show(&mut self, now: Instant) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.tally.settled);
            bar.set_message(self.tally.line(now));
        } else if !self.quiet && now.duration_since(self.last_line) >= LINE_EVERY {
            self.last_line = now;
            eprintln!("{}/{} {}", self.tally.settled, self.tally.planned, self.tally.line(now));
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            suspended(|| eprintln!("{text}"));
        }
    }

    fn finish(&mut self) {
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_accuracy_rates_and_what_is_left() {
        let began = Instant::now();
        let mut tally = Tally { planned: 30, began: Some(began), ..Tally::default() };
        for index in 0..10u64 {
            tally.settle(began + Duration::from_secs(index), Some(index % 2 == 0), 50);
        }
        let line = tally.line(began + Duration::from_secs(10));
        assert_eq!(line, "accuracy 50.0 %, 1.0 items/s, 50 tokens/s, 20 seconds left");
    }
}
