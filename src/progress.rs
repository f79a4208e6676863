//! Progress output of a run on standard error.
//!
//! [`Progress`] consumes the run's events and shows a progress bar on a terminal, or a line every 15 seconds
//! otherwise. [`suspended`] hides the bar while a log line is written, and [`write_line`] writes other lines of a run.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use comfy_table::Table;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use lumos_coordinator::Event;
use lumos_tasks::Throughput;

use crate::fleet::view::printable;
use crate::table::USUAL_COLUMNS;

/// The visible progress bar, which log lines must not overwrite.
static CURRENT: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Runs `write` while the progress bar is hidden.
pub(crate) fn suspended(write: impl FnOnce()) {
    let bar = CURRENT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Writes a line to standard error. Unlike `eprintln!`, it does not panic if standard error is closed: a run continues without
/// a reader.
pub(crate) fn write_line(line: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Interval between lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// No rates are shown before this time.
const FIRST_RATES: Duration = Duration::from_millis(500);

/// Shows the progress of a run from its events.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// Width available for the figures, in columns.
    columns: usize,
    quiet: bool,
    last_line: Instant,
    tally: Tally,
}

/// Figures of a progress line.
#[derive(Debug, Default)]
struct Tally {
    planned: u64,
    settled: u64,
    faulted: u64,
    correct: u64,
    scored: u64,
    /// Units of this session; `None` before it starts.
    throughput: Option<Throughput>,
    /// Episodes in progress, if no more are started.
    ending: Option<u64>,
}

impl Tally {
    fn started(planned: u64, settled: u64, now: Instant) -> Self {
        Self { planned, settled, throughput: Some(Throughput::since(now)), ..Self::default() }
    }

    fn settle(&mut self, now: Instant, correct: Option<bool>, tokens: u64) {
        self.settled += 1;
        self.ending = self.ending.map(|left| left.saturating_sub(1));
        self.scored += u64::from(correct.is_some());
        self.correct += u64::from(correct == Some(true));
        if let Some(throughput) = &self.throughput {
            throughput.count(now, tokens);
        }
    }

    /// Returns recent items and tokens per second.
    fn rates(&self, now: Instant) -> Option<(f64, f64)> {
        let throughput = self.throughput.as_ref()?;
        (throughput.elapsed(now) > FIRST_RATES).then(|| throughput.rates(now))
    }

    /// Estimates how long a number of episodes take, from the recent rate.
    fn time_of(&self, episodes: u64, now: Instant) -> Option<Duration> {
        let (items, _) = self.rates(now).filter(|(items, _)| *items > 0.0)?;
        Some(Duration::from_secs_f64((episodes as f64 / items).max(1.0)))
    }

    /// Describes what the run waits for after an interrupt.
    fn waits(&self, reason: &str, episodes: u64, at_most: Option<f64>, now: Instant) -> String {
        let noun = if episodes == 1 { "episode" } else { "episodes" };
        let at_most = at_most.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let time = self.time_of(episodes, now).filter(|time| at_most.is_none_or(|most| *time < most));
        let time = match (time, at_most) {
            (Some(time), _) => format!(", about {}", HumanDuration(time)),
            (None, Some(most)) => format!(", at most {}", HumanDuration(most)),
            (None, None) => String::new(),
        };
        format!(
            "{reason}: waiting for {episodes} {noun} in progress{time}; interrupt again to stop immediately \
             (recorded outcomes are safe)"
        )
    }

    /// Formats the figures in a number of columns. Figures that do not fit are omitted; the remaining time is
    /// omitted last.
    fn line(&self, now: Instant, columns: usize) -> String {
        // In the order of the line, each with its priority.
        let mut parts: Vec<(u8, String)> = Vec::new();
        if self.scored > 0 {
            let percent = 100.0 * self.correct as f64 / self.scored as f64;
            parts.push((1, format!("accuracy {percent:.1} %")));
        }
        if let Some((items, tokens)) = self.rates(now) {
            parts.push((3, format!("{items:.1} items/s")));
            parts.push((4, format!("{tokens:.0} tokens/s")));
            let left = self.ending.unwrap_or_else(|| self.planned.saturating_sub(self.settled));
            if items > 0.0 && left > 0 {
                let seconds = Duration::from_secs_f64(left as f64 / items);
                parts.push((0, format!("{} left", HumanDuration(seconds))));
            }
        }
        if self.faulted > 0 {
            parts.push((2, format!("{} faulted attempts", self.faulted)));
        }
        let joined = |parts: &[(u8, String)]| {
            parts.iter().map(|(_, part)| part.as_str()).collect::<Vec<_>>().join(", ")
        };
        while parts.len() > 1 && joined(&parts).len() > columns {
            let last = parts.iter().map(|(rank, _)| *rank).max();
            parts.retain(|(rank, _)| Some(*rank) != last);
        }
        joined(&parts)
    }
}

/// Width of the bar in columns.
const BAR: usize = 20;

/// Width left for the figures next to the counts and the bar, if there is one.
fn columns_beside(terminal: Option<u16>, planned: u64) -> usize {
    let counts = 2 * planned.to_string().len() + "/ ".len();
    let bar = if terminal.is_some() { BAR + " ".len() } else { 0 };
    usize::from(terminal.unwrap_or(USUAL_COLUMNS)).saturating_sub(bar + counts)
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            bar: None,
            columns: USUAL_COLUMNS.into(),
            quiet,
            last_line: Instant::now(),
            tally: Tally::default(),
        }
    }

    /// Adds an event.
    pub(crate) fn record(&mut self, event: &Event) {
        let now = Instant::now();
        match event {
            Event::Started { run, planned, settled, configurations } => {
                self.tally = Tally::started(*planned, *settled, now);
                tracing::info!(run, planned, settled, "run started");
                self.start(run, *planned, *settled, configurations.len());
            }
            Event::Settled { unit, correct, prompt_tokens, completion_tokens, status, seconds, .. } => {
                tracing::debug!(%unit, status, ?correct, seconds, "settled");
                self.tally.settle(now, *correct, prompt_tokens + completion_tokens);
                self.show(now);
            }
            Event::Faulted { item, attempt, fault, will_retry, .. } => {
                self.tally.faulted += 1;
                let again = if *will_retry { "retrying" } else { "no attempts left" };
                tracing::warn!("item {item}, attempt {attempt}: {fault}; {again}");
                self.show(now);
            }
            Event::Duplicate { unit } => tracing::debug!(%unit, "dropped a duplicate outcome"),
            Event::Draining { reason, at_hand, at_most } => {
                self.tally.ending = Some(*at_hand);
                self.print(&self.tally.waits(reason, *at_hand, *at_most, now));
            }
            Event::Stopped { label, reason, units, .. } => {
                self.tally.planned = self.tally.planned.saturating_sub(*units);
                if let Some(bar) = &self.bar {
                    bar.set_length(self.tally.planned);
                }
                self.print(&format!("{label}: {reason}"));
            }
            Event::Recovered { units } => {
                tracing::info!(units, "requeued units whose message or worker was lost");
            }
            Event::QueueAway { detail } => self.print(&format!("lost connection to the queue ({detail}); reconnecting")),
            Event::QueueBack { seconds } => self.print(&format!("reconnected to the queue after {seconds:.0} s")),
            Event::WorkerLost { worker, recalled } => self.print(&format!(
                "worker {worker} stopped responding; requeued {recalled} units"
            )),
            Event::NoWorkers { hint } => self.print(&format!("no worker can execute the run's units: {hint}")),
            Event::Waiting { host, process, seconds } => self.print(&format!(
                "process {process} on {host} owns this run; waiting up to {seconds:.0} s for its claim to expire"
            )),
            Event::Cancelled { at_hand } => {
                self.print(&format!("the run was cancelled; {at_hand} units were in progress"));
            }
            Event::Finished { settled, faulted, outstanding, seconds } => {
                self.finish();
                tracing::info!(settled, faulted, outstanding, seconds, "session ended");
            }
        }
    }

    fn start(&mut self, run: &str, planned: u64, settled: u64, configurations: usize) {
        if self.quiet {
            return;
        }
        let resumed = if settled > 0 { format!(", {settled} already settled") } else { String::new() };
        write_line(format_args!("run {run}: {planned} units in {configurations} configurations{resumed}"));
        if !std::io::stderr().is_terminal() {
            self.columns = columns_beside(None, planned);
            return;
        }
        let terminal = Table::new().use_stderr().width();
        self.columns = columns_beside(terminal.or(Some(USUAL_COLUMNS)), planned);
        let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr_with_hz(8));
        if let Ok(style) =
            ProgressStyle::with_template(&format!("{{bar:{BAR}}} {{pos}}/{{len}} {{wide_msg}}"))
        {
            bar.set_style(style);
        }
        bar.set_position(settled);
        *CURRENT.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        self.bar = Some(bar);
    }

    fn show(&mut self, now: Instant) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.tally.settled);
            bar.set_message(self.tally.line(now, self.columns));
        } else if !self.quiet && now.duration_since(self.last_line) >= LINE_EVERY {
            self.last_line = now;
            let line = self.tally.line(now, self.columns);
            write_line(format_args!("{}/{} {line}", self.tally.settled, self.tally.planned));
        }
    }

    fn print(&self, text: &str) {
        if let Some(line) = self.message(text) {
            suspended(|| write_line(format_args!("{line}")));
        }
    }

    /// Returns a message as it is shown, if it is. Events contain texts from the queue.
    fn message(&self, text: &str) -> Option<String> {
        (!self.quiet).then(|| printable(text))
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
        let mut tally = Tally::started(30, 0, began);
        for index in 0..10u64 {
            tally.settle(began + Duration::from_secs(index), Some(index % 2 == 0), 50);
        }
        let line = |tally: &Tally, columns| tally.line(began + Duration::from_secs(10), columns);
        assert_eq!(line(&tally, 80), "accuracy 50.0 %, 1.0 items/s, 50 tokens/s, 20 seconds left");
        tally.faulted = 3;
        let narrow = |columns| line(&tally, columns);
        assert_eq!(
            narrow(79),
            "accuracy 50.0 %, 1.0 items/s, 50 tokens/s, 20 seconds left, 3 faulted attempts"
        );
        assert_eq!(narrow(70), "accuracy 50.0 %, 1.0 items/s, 20 seconds left, 3 faulted attempts");
        assert_eq!(narrow(55), "accuracy 50.0 %, 20 seconds left, 3 faulted attempts");
        assert_eq!(narrow(40), "accuracy 50.0 %, 20 seconds left");
        assert_eq!(narrow(20), "20 seconds left");
        assert_eq!(narrow(5), "20 seconds left");
    }

    /// Bar, counts and figures together must fit in eighty columns.
    #[test]
    fn a_line_of_a_large_run_keeps_the_remaining_time_in_eighty_columns() {
        let began = Instant::now();
        let (planned, now) = (1_319_000, began + Duration::from_secs(20));
        let mut tally = Tally { faulted: 12, ..Tally::started(planned, 0, began) };
        for index in 0..4_000u64 {
            tally.settle(began + Duration::from_millis(index * 5), Some(index % 3 == 0), 4_000);
        }
        for terminal in [Some(80), None] {
            let line = tally.line(now, columns_beside(terminal, planned));
            let bar = if terminal.is_some() { BAR + 1 } else { 0 };
            let columns = bar + format!("{}/{} {line}", tally.settled, tally.planned).len();
            assert!(columns <= 80 && line.contains("2 hours left"), "{columns}: {line}");
        }
    }

    #[test]
    fn messages_contain_no_control_sequences() {
        let message = |quiet| Progress::new(quiet).message("worker \u{1b}[2J stopped\nhint: \u{9b}m");
        assert_eq!(message(false).as_deref(), Some("worker \u{fffd}[2J stopped\nhint: \u{fffd}m"));
        assert_eq!(message(true), None);
    }

    #[test]
    fn after_an_interrupt_only_episodes_in_progress_are_counted() {
        let began = Instant::now();
        let mut tally = Tally::started(30, 0, began);
        for index in 0..10u64 {
            tally.settle(began + Duration::from_secs(index), Some(index % 2 == 0), 50);
        }
        // After an interrupt, the run waits only for the episodes in progress.
        let now = began + Duration::from_secs(10);
        assert_eq!(
            tally.waits("interrupted", 8, None, now),
            "interrupted: waiting for 8 episodes in progress, about 8 seconds; interrupt again to stop immediately \
             (recorded outcomes are safe)"
        );
        tally.ending = Some(8);
        assert!(tally.line(now, 80).ends_with("8 seconds left"), "{}", tally.line(now, 80));
        let fresh = Tally::started(30, 0, now);
        assert!(
            fresh
                .waits("interrupted", 1, None, now)
                .starts_with("interrupted: waiting for 1 episode in progress; ")
        );
        // With a fleet, the wait is limited by the grace time.
        for tally in [&fresh, &tally] {
            assert!(
                tally
                    .waits("interrupted", 8, Some(4.0), now)
                    .starts_with("interrupted: waiting for 8 episodes in progress, at most 4 seconds; ")
            );
        }
    }
}
