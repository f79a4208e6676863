//! Output of `lumos status` and `lumos watch`: renders notices as text. Performs no I/O.

use std::fmt::Write;
use std::time::Duration;

use indicatif::HumanDuration;
use lumos_reports::live::SILENT_MS;
use lumos_reports::thousands;
use lumos_tasks::fleet::{PROTOCOL, RunState, RunStatus, WorkerNotice};

use crate::table::{self, Column, wrapped};

/// Width of a progress bar in characters.
const BAR: usize = 30;

const CONFIGURATIONS: [Column; 7] = [
    Column::new("configuration"),
    Column::new("planned").right(),
    Column::new("answered").right(),
    Column::new("gave up").right(),
    Column::new("faulted").right(),
    Column::new("outstanding").right(),
    Column::new("accuracy").right(),
];

const WORKERS: [Column; 8] = [
    Column::new("worker"),
    Column::new("device").rank(4),
    Column::new("models").rank(1),
    Column::new("slots").right(),
    Column::new("items/s").right().rank(2),
    Column::new("tokens/s").right().rank(3),
    Column::new("finished").right(),
    Column::new("heartbeat"),
];

const FAULTS: [Column; 5] = [
    Column::new("when"),
    Column::new("unit"),
    Column::new("attempt").rank(2),
    Column::new("worker").rank(1),
    Column::new("fault"),
];

/// Renders runs, workers and the latest faults. `all` is the flag or the command that prints all columns.
pub(crate) fn render(
    runs: &[RunStatus],
    workers: &[WorkerNotice],
    now_ms: i64,
    width: u16,
    all: &str,
) -> String {
    let mut text = String::new();
    if runs.is_empty() {
        text.push_str("no runs on this queue; start one with `lumos run … --queue …`\n\n");
    }
    for run in runs {
        run_block(&mut text, run, now_ms, width, all);
    }
    worker_block(&mut text, workers, now_ms, width, all);
    fault_block(&mut text, runs, now_ms, width, all);
    printable(&text)
}

/// Replaces control characters other than line breaks, so that texts from the queue cannot send control
/// sequences to the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.replace(|character: char| character.is_control() && character != '\n', "\u{fffd}")
}

/// Milliseconds since a time reported by another machine.
fn since(now_ms: i64, then_ms: i64) -> i64 {
    now_ms.saturating_sub(then_ms)
}

fn run_block(text: &mut String, run: &RunStatus, now_ms: i64, width: u16, all: &str) {
    let (planned, settled, faulted) = (run.planned(), run.settled(), run.faulted());
    let silence = since(now_ms, run.written_ms);
    let state = match run.state {
        RunState::Active if silence > SILENT_MS => {
            format!("no status from its coordinator for {}", seconds(silence))
        }
        RunState::Active => "active".to_owned(),
        RunState::Cancelled => "cancelled".to_owned(),
        RunState::Ended if settled == planned => "complete".to_owned(),
        RunState::Ended => "ended".to_owned(),
    };
    let heading = format!("{} · {state} · coordinator on {} · {}", run.name, run.host, run.run);
    text.push_str(&wrapped(&heading, width));
    let share = if planned == 0 { 1.0 } else { settled as f64 / planned as f64 };
    let full = ((share * BAR as f64) as usize).min(BAR);
    let mut line = format!(
        "{}{} {:.1} %  {} of {}",
        "█".repeat(full),
        "░".repeat(BAR - full),
        100.0 * share,
        thousands(settled),
        thousands(planned)
    );
    if run.state == RunState::Active {
        let _ = write!(line, " · {} in flight", thousands(run.in_flight));
        if run.units_per_second > 0.0 {
            let _ = write!(
                line,
                " · {} items/s · {} tokens/s",
                figure(run.units_per_second),
                figure(run.tokens_per_second)
            );
            let left = planned.saturating_sub(settled).saturating_sub(faulted) as f64 / run.units_per_second;
            if left >= 1.0 {
                let _ = write!(line, " · {} left", seconds((left * 1000.0) as i64));
            }
        }
    }
    text.push_str(&wrapped(&line, width));
    if run.recovered > 0 || run.duplicates > 0 {
        let _ = writeln!(
            text,
            "{} units requeued after a loss · {} duplicate outcomes dropped",
            thousands(run.recovered),
            thousands(run.duplicates)
        );
    }
    let rows = run.configurations.iter().map(|one| {
        let ended = one.answered.saturating_add(one.gave_up).saturating_add(one.faulted);
        let outstanding = one.planned.saturating_sub(ended);
        let accuracy = match one.correct {
            Some((correct, scored)) if scored > 0 => {
                format!("{:.1} %", 100.0 * correct as f64 / scored as f64)
            }
            _ => "—".to_owned(),
        };
        let mut row = vec![one.label.clone()];
        row.extend([one.planned, one.answered, one.gave_up, one.faulted, outstanding].map(thousands));
        row.push(accuracy);
        row
    });
    table(text, &CONFIGURATIONS, &rows.collect::<Vec<_>>(), width, all);
}

fn worker_block(text: &mut String, workers: &[WorkerNotice], now_ms: i64, width: u16, all: &str) {
    if workers.is_empty() {
        text.push_str("no workers on this queue; start one with `lumos worker --queue …`\n\n");
        return;
    }
    let concurrency: u64 = workers.iter().map(|worker| u64::from(worker.holdings.concurrency)).sum();
    let in_use: u64 = workers.iter().map(|worker| u64::from(worker.in_use)).sum();
    let _ = writeln!(text, "{} workers · {in_use} of {concurrency} slots in use", workers.len());
    let rows = workers.iter().map(|worker| {
        let mut models: Vec<&str> = worker.holdings.models.iter().map(|model| model.name.as_str()).collect();
        models.dedup();
        let models = if models.is_empty() { "—".to_owned() } else { models.join(", ") };
        let mut heartbeat = format!("{} ago", seconds(since(now_ms, worker.written_ms)));
        if worker.draining {
            heartbeat.push_str(", draining");
        }
        if worker.spooled > 0 {
            let _ = write!(heartbeat, ", {} outcomes unsent", worker.spooled);
        }
        if worker.protocol != PROTOCOL {
            let _ = write!(heartbeat, ", protocol {}", worker.protocol);
        }
        vec![
            worker.name.clone(),
            worker.holdings.device.clone(),
            models,
            format!("{}/{}", worker.in_use, worker.holdings.concurrency),
            figure(worker.units_per_second),
            figure(worker.tokens_per_second),
            thousands(worker.finished),
            heartbeat,
        ]
    });
    table(text, &WORKERS, &rows.collect::<Vec<_>>(), width, all);
    for worker in workers {
        for refusal in &worker.refusals {
            text.push_str(&wrapped(&format!("{}: {refusal}", worker.name), width));
        }
    }
}

fn fault_block(text: &mut String, runs: &[RunStatus], now_ms: i64, width: u16, all: &str) {
    let mut faults: Vec<_> = runs.iter().flat_map(|run| &run.recent_faults).collect();
    if faults.is_empty() {
        return;
    }
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.at_ms));
    text.push_str("recent faults\n");
    let rows = faults.into_iter().take(10).map(|recent| {
        vec![
            format!("{} ago", seconds(since(now_ms, recent.at_ms))),
            recent.unit.short().to_owned(),
            recent.attempt.to_string(),
            recent.worker.clone(),
            recent.fault.to_string(),
        ]
    });
    table(text, &FAULTS, &rows.collect::<Vec<_>>(), width, all);
}

/// Appends a table and an empty line.
fn table(text: &mut String, columns: &[Column], rows: &[Vec<String>], width: u16, all: &str) {
    text.push_str(&table::render(columns, rows, width, all));
    text.push('\n');
}

/// Formats a duration: `61s`, `3m`.
fn seconds(milliseconds: i64) -> String {
    format!("{:#}", HumanDuration(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))))
}

/// Formats a rate with an appropriate number of digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.1} k", value / 1000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use lumos_tasks::fleet::{ConfigurationStatus, Holdings, RecentFault, RunToken};
    use lumos_tasks::{ContentHash, Fault, FaultKind, ModelIdentity, UnitId};

    use super::*;

    const NOW: i64 = 1_000_000_000;

    pub(crate) fn run() -> RunStatus {
        let one = |label: &str, answered| ConfigurationStatus {
            label: label.to_owned(),
            planned: 1319,
            answered,
            gave_up: 40,
            faulted: 1,
            correct: Some((answered / 3, answered)),
        };
        RunStatus {
            protocol: PROTOCOL,
            run: RunToken::of(&ContentHash::of_bytes(b"run")),
            name: "sweep".to_owned(),
            state: RunState::Active,
            host: "head".to_owned(),
            configurations: vec![
                one("gsm8k iterative paper seed 0", 900),
                one("gsm8k onetime paper seed 0", 12),
            ],
            in_flight: 128,
            duplicates: 2,
            recovered: 16,
            units_per_second: 12.3,
            tokens_per_second: 15_432.0,
            recent_faults: vec![RecentFault {
                at_ms: NOW - 61_000,
                unit: UnitId::new(ContentHash::of_bytes(b"unit")),
                worker: "node-1-77-ab".to_owned(),
                attempt: 2,
                fault: Fault { kind: FaultKind::Tool, message: "quota is used up".to_owned() },
            }],
            faults: BTreeMap::from([(FaultKind::Tool, 1)]),
            started_ms: NOW - 90_000,
            written_ms: NOW - 500,
        }
    }

    fn worker(name: &str, draining: bool) -> WorkerNotice {
        WorkerNotice {
            protocol: PROTOCOL,
            name: name.to_owned(),
            host: "node-1".to_owned(),
            process: 77,
            version: "0.1.0".to_owned(),
            holdings: Holdings {
                device: "cpu".to_owned(),
                memory: None,
                tools: Vec::new(),
                models: vec![ModelIdentity {
                    name: "builtin:tiny".to_owned(),
                    content: ContentHash::of_bytes(b"model"),
                    dtype: None,
                }],
                concurrency: 64,
            },
            in_use: 60,
            finished: 1234,
            spooled: u64::from(draining) * 3,
            units_per_second: 6.15,
            tokens_per_second: 7716.0,
            draining,
            started_ms: NOW - 80_000,
            written_ms: NOW - 1200,
            ..WorkerNotice::default()
        }
    }

    #[test]
    fn runs_workers_and_faults() {
        let mut refusing = worker("node-2-12-cd", true);
        refusing.refusals = vec!["model candle:/models/plan is not here".to_owned()];
        let text = render(&[run()], &[worker("node-1-77-ab", false), refusing], NOW, 110, "--json");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn the_given_command_prints_omitted_columns() {
        let text = render(&[run()], &[worker("node-1-77-ab", false)], NOW, 60, "lumos status --json");
        let unwrapped = text.replace("\n  ", " ");
        assert!(unwrapped.contains("; lumos status --json prints all)"), "{text}");
    }

    #[test]
    fn an_empty_queue_says_what_to_do() {
        let text = render(&[], &[], NOW, 80, "--json");
        assert!(text.contains("no runs on this queue") && text.contains("lumos run"), "{text}");
        assert!(text.contains("lumos worker"), "{text}");
    }

    #[test]
    fn everything_fits_into_eighty_columns_and_the_remaining_time_stays() {
        let mut refusing = worker("a-host-with-a-long-name.example.org-12345-6f", true);
        refusing.refusals = vec!["model candle:/models/plan is not here ".repeat(4)];
        let text = render(&[run()], &[worker("node-1-77-ab", false), refusing], NOW, 80, "--json");
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{text}");
        }
        assert!(text.contains("left") && text.contains("outstanding") && text.contains("6f"), "{text}");
    }

    /// Any client of the queue may write these values: no number may cause a panic, and no text may reach the
    /// terminal as a control sequence.
    #[test]
    fn hostile_notices_are_shown_as_text() {
        let mut status = run();
        status.name = "\u{1b}]0;title\u{7}\u{1b}[2J".to_owned();
        for configuration in &mut status.configurations {
            configuration.answered = u64::MAX;
            configuration.gave_up = u64::MAX;
            configuration.faulted = u64::MAX;
        }
        status.written_ms = i64::MIN;
        status.units_per_second = f64::NAN;
        status.recent_faults[0].at_ms = i64::MIN;
        let mut hostile = worker("w\u{9b}31m\r\u{8}", true);
        hostile.holdings.concurrency = u32::MAX;
        hostile.in_use = u32::MAX;
        hostile.written_ms = i64::MIN;
        hostile.tokens_per_second = f64::INFINITY;
        let other = WorkerNotice { written_ms: i64::MAX, ..hostile.clone() };
        let text = render(&[status], &[hostile, other], NOW, 80, "--json");
        assert!(!text.chars().any(|character| character.is_control() && character != '\n'), "{text:?}");
    }

    #[test]
    fn a_silent_coordinator_is_told() {
        let silent = RunStatus { written_ms: NOW - 150_000, ..run() };
        assert!(render(&[silent], &[], NOW, 80, "--json").contains("no status from its coordinator for"));
        let complete = RunStatus { state: RunState::Ended, configurations: Vec::new(), ..run() };
        assert!(render(&[complete], &[], NOW, 80, "--json").contains("complete"));
    }
}
