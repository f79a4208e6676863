//! What `status` and `watch` show. Pure: notices in, text out.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};
use indicatif::{HumanCount, HumanDuration};
use lumos_tasks::fleet::{PROTOCOL, RunState, RunStatus, WorkerNotice};

/// Cells of a bar.
const BAR: usize = 30;

/// A coordinator that has written nothing for so long is gone, or cut off.
const SILENT_MS: i64 = 10_000;

/// Runs, workers and the latest faults.
pub(crate) fn render(runs: &[RunStatus], workers: &[WorkerNotice], now_ms: i64, width: u16) -> String {
    let mut text = String::new();
    if runs.is_empty() {
        text.push_str("no run is on this queue; `lumos run … --queue …` puts one there\n\n");
    }
    for run in runs {
        run_block(&mut text, run, now_ms, width);
    }
    worker_block(&mut text, workers, now_ms, width);
    fault_block(&mut text, runs, now_ms, width);
    text
}

fn run_block(text: &mut String, run: &RunStatus, now_ms: i64, width: u16) {
    let sum = |of: fn(&lumos_tasks::fleet::ConfigurationStatus) -> u64| -> u64 {
        run.configurations.iter().map(of).sum()
    };
    let planned = sum(|one| one.planned);
    let settled = sum(|one| one.answered + one.gave_up);
    let faulted = sum(|one| one.faulted);
    let state = match run.state {
        RunState::Active if now_ms - run.written_ms > SILENT_MS => {
            format!("its coordinator has been silent for {}", seconds(now_ms - run.written_ms))
        }
        RunState::Active => "active".to_owned(),
        RunState::Cancelled => "cancelled".to_owned(),
        RunState::Ended if settled == planned => "complete".to_owned(),
        RunState::Ended => "ended".to_owned(),
    };
    let _ = writeln!(text, "{} · {state} · coordinator on {} · {}", run.name, run.host, run.run);
    let share = if planned == 0 { 1.0 } else { settled as f64 / planned as f64 };
    let full = ((share * BAR as f64) as usize).min(BAR);
    let _ = write!(
        text,
        "{}{} {:.1} %  {} of {}",
        "█".repeat(full),
        "░".repeat(BAR - full),
        100.0 * share,
        thousands(settled),
        thousands(planned)
    );
    if run.state == RunState::Active {
        let _ = write!(text, " · {} in flight", thousands(run.in_flight));
        if run.units_per_second > 0.0 {
            let _ = write!(
                text,
                " · {} items/s · {} tokens/s",
                figure(run.units_per_second),
                figure(run.tokens_per_second)
            );
            let left = planned.saturating_sub(settled + faulted) as f64 / run.units_per_second;
            if left >= 1.0 {
                let _ = write!(text, " · {} left", seconds((left * 1000.0) as i64));
            }
        }
    }
    text.push('\n');
    if run.recovered > 0 || run.duplicates > 0 {
        let _ = writeln!(
            text,
            "{} given out again after a loss · {} second outcomes dropped",
            thousands(run.recovered),
            thousands(run.duplicates)
        );
    }
    let header = ["configuration", "planned", "answered", "gave up", "faulted", "outstanding", "accuracy"];
    let rows = run.configurations.iter().map(|one| {
        let outstanding = one.planned.saturating_sub(one.answered + one.gave_up + one.faulted);
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
    table(text, &header, 1, rows.collect(), width);
}

fn worker_block(text: &mut String, workers: &[WorkerNotice], now_ms: i64, width: u16) {
    if workers.is_empty() {
        text.push_str("no worker is registered; start some with `lumos worker --queue …`\n\n");
        return;
    }
    let places: u32 = workers.iter().map(|worker| worker.holdings.places).sum();
    let in_use: u32 = workers.iter().map(|worker| worker.in_use).sum();
    let _ = writeln!(text, "{} workers · {in_use} of {places} places in use", workers.len());
    let header = ["worker", "device", "models", "places", "items/s", "tokens/s", "finished", "heartbeat"];
    let rows = workers.iter().map(|worker| {
        let mut models: Vec<&str> = worker.holdings.models.iter().map(|model| model.name.as_str()).collect();
        models.dedup();
        let models = if models.is_empty() { "—".to_owned() } else { models.join(", ") };
        let mut heartbeat = format!("{} ago", seconds(now_ms - worker.written_ms));
        if worker.draining {
            heartbeat.push_str(", draining");
        }
        if worker.spooled > 0 {
            let _ = write!(heartbeat, ", {} outcomes wait to be sent", worker.spooled);
        }
        if worker.protocol != PROTOCOL {
            let _ = write!(heartbeat, ", speaks protocol {}", worker.protocol);
        }
        vec![
            worker.name.clone(),
            worker.holdings.device.clone(),
            models,
            format!("{}/{}", worker.in_use, worker.holdings.places),
            figure(worker.units_per_second),
            figure(worker.tokens_per_second),
            thousands(worker.finished),
            heartbeat,
        ]
    });
    table(text, &header, 3, rows.collect(), width);
    for worker in workers {
        for refusal in &worker.refusals {
            let _ = writeln!(text, "{}: {refusal}", worker.name);
        }
    }
}

fn fault_block(text: &mut String, runs: &[RunStatus], now_ms: i64, width: u16) {
    let mut faults: Vec<_> = runs.iter().flat_map(|run| &run.recent_faults).collect();
    if faults.is_empty() {
        return;
    }
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.at_ms));
    text.push_str("recent faults\n");
    let rows = faults.into_iter().take(10).map(|recent| {
        vec![
            format!("{} ago", seconds(now_ms - recent.at_ms)),
            recent.unit.short().to_owned(),
            recent.attempt.to_string(),
            recent.worker.clone(),
            recent.fault.to_string(),
        ]
    });
    table(text, &["when", "unit", "attempt", "worker", "fault"], 5, rows.collect(), width);
}

/// A table whose columns from `numbers` on, but the last, are aligned to the right.
fn table(text: &mut String, header: &[&str], numbers: usize, rows: Vec<Vec<String>>, width: u16) {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_style(TableComponent::HeaderLines, '─')
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    let last = header.len() - 1;
    for (index, column) in table.column_iter_mut().enumerate() {
        if index >= numbers && (index < last || header[last] == "accuracy") {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push('\n');
}

/// A time span for people: `61s`, `3m`.
fn seconds(milliseconds: i64) -> String {
    format!("{:#}", HumanDuration(Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))))
}

/// A rate with as many digits as it deserves.
fn figure(value: f64) -> String {
    match value {
        value if value >= 10_000.0 => format!("{:.1} k", value / 1000.0),
        value if value >= 100.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

/// 12345 as 12,345.
fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

#[cfg(test)]
mod tests {
    use lumos_tasks::fleet::{ConfigurationStatus, Holdings, RecentFault, RunToken};
    use lumos_tasks::{ContentHash, Fault, FaultKind, ModelIdentity, UnitId};

    use super::*;

    const NOW: i64 = 1_000_000_000;

    fn run() -> RunStatus {
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
                places: 64,
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
        let text = render(&[run()], &[worker("node-1-77-ab", false), refusing], NOW, 110);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn an_empty_queue_says_what_to_do() {
        let text = render(&[], &[], NOW, 80);
        assert!(text.contains("lumos run") && text.contains("lumos worker"), "{text}");
    }

    #[test]
    fn a_silent_coordinator_is_told() {
        let silent = RunStatus { written_ms: NOW - 150_000, ..run() };
        assert!(render(&[silent], &[], NOW, 80).contains("silent for"));
        let complete = RunStatus { state: RunState::Ended, configurations: Vec::new(), ..run() };
        assert!(render(&[complete], &[], NOW, 80).contains("complete"));
    }
}
