//! Reports the rounds: one line each during the campaign, a table by kind of fault at the end, and a JSON
//! file.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::round::Round;
use crate::schedule::Kind;

/// Figures of a kind of fault.
#[derive(Debug, Default)]
struct OfKind {
    injected: usize,
    skipped: usize,
    recoveries: Vec<Duration>,
}

pub(crate) struct Report {
    seed: u64,
    rounds: Vec<Value>,
    kinds: BTreeMap<Kind, OfKind>,
    failed: Vec<u64>,
    faults: usize,
    units: usize,
    lost: usize,
    double: usize,
    different: usize,
    hangs: usize,
    stated: usize,
    problems: usize,
    restarts: usize,
}

impl Report {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            rounds: Vec::new(),
            kinds: BTreeMap::new(),
            failed: Vec::new(),
            faults: 0,
            units: 0,
            lost: 0,
            double: 0,
            different: 0,
            hangs: 0,
            stated: 0,
            problems: 0,
            restarts: 0,
        }
    }

    pub(crate) fn is_good(&self) -> bool {
        self.failed.is_empty()
    }

    /// Adds a round and prints its line, with all details if it failed.
    pub(crate) fn add(&mut self, round: &Round, began: Instant, kept: Option<&Path>) {
        for injected in &round.injected {
            let kind = self.kinds.entry(injected.fault.kind).or_default();
            match injected.what {
                Ok(_) => kind.injected += 1,
                Err(_) => kind.skipped += 1,
            }
            kind.recoveries.extend(injected.recovery);
        }
        self.faults += round.faults();
        self.units += round.units;
        self.lost += round.comparison.lost.len();
        self.double += round.comparison.double.len();
        self.different += round.comparison.different.len();
        self.hangs += usize::from(round.hang == Some(None));
        self.stated += usize::from(matches!(round.hang, Some(Some(_))));
        self.problems += round.problems.len();
        self.restarts += round.restarts;
        let mut value = round.to_json(began);
        value["folder"] = json!(kept);
        self.rounds.push(value);
        let faults: Vec<String> = round
            .injected
            .iter()
            .map(|one| match &one.what {
                Ok(what) => format!("{} ({what})", one.fault),
                Err(why) => format!("{} (skipped: {why})", one.fault),
            })
            .collect();
        let plan = &round.plan;
        println!(
            "round {} of seed {}, nats-server {}{}: {:.1} s, {} units, {}: {}",
            plan.round,
            plan.seed,
            round.server,
            if plan.browser { ", browser" } else { "" },
            round.seconds,
            round.units,
            if round.is_good() { "equal to the undisturbed run" } else { "FAILED" },
            faults.join("; ")
        );
        if !round.is_good() {
            self.failed.push(plan.round);
            let comparison = &round.comparison;
            for (name, found) in [
                ("lost", &comparison.lost),
                ("double", &comparison.double),
                ("different", &comparison.different),
            ] {
                for one in found {
                    println!("  {name}: {}", one.chars().take(600).collect::<String>());
                }
            }
            match &round.hang {
                None => {}
                Some(None) => println!("  hangs without a stated reason"),
                Some(Some(reason)) => println!("  hangs: {reason}"),
            }
            for problem in &round.problems {
                println!("  {problem}");
            }
        }
        if let Some(folder) = kept {
            println!("  kept in {}", folder.display());
        }
        if !round.is_good() {
            println!("  repeat with: just campaign --seed {} --round {}", plan.seed, plan.round);
        }
    }

    /// Writes all rounds so far.
    pub(crate) fn write(&self, file: &Path) {
        let kinds: serde_json::Map<String, Value> = self
            .kinds
            .iter()
            .map(|(kind, of)| {
                let (median, max) =
                    (seconds(median(&of.recoveries)), seconds(of.recoveries.iter().max().copied()));
                let value =
                    json!({ "injected": of.injected, "skipped": of.skipped, "median": median, "max": max });
                (kind.name().to_owned(), value)
            })
            .collect();
        let all = json!({
            "seed": self.seed,
            "rounds": self.rounds.len(),
            "faults": self.faults,
            "units": self.units,
            "lost": self.lost,
            "double": self.double,
            "different": self.different,
            "hangs_without_reason": self.hangs,
            "hangs_with_reason": self.stated,
            "problems": self.problems,
            "nats_servers_restarted": self.restarts,
            "failed": self.failed,
            "kinds": kinds,
            "all": self.rounds,
        });
        let text = serde_json::to_vec_pretty(&all).unwrap();
        std::fs::write(file, text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// Prints the table.
    pub(crate) fn print(&self) {
        println!();
        println!("| fault | injected | median recovery (s) | longest (s) |");
        println!("|---|---|---|---|");
        for (kind, of) in &self.kinds {
            let number =
                |time| seconds(time).map_or_else(|| "–".to_owned(), |seconds| format!("{seconds:.1}"));
            let skipped = if of.skipped > 0 { format!(" ({} skipped)", of.skipped) } else { String::new() };
            println!(
                "| {} | {}{skipped} | {} | {} |",
                kind.name(),
                of.injected,
                number(median(&of.recoveries)),
                number(of.recoveries.iter().max().copied())
            );
        }
        println!();
        println!(
            "{} rounds, {} units in total, {} faults: {} lost, {} double, {} different, {} hangs without a stated \
             reason, {} with one, {} other problems; {} restarts of servers that did not respond after a full disk",
            self.rounds.len(),
            self.units,
            self.faults,
            self.lost,
            self.double,
            self.different,
            self.hangs,
            self.stated,
            self.problems,
            self.restarts
        );
        if !self.failed.is_empty() {
            println!("failed: rounds {:?} of seed {}", self.failed, self.seed);
        }
    }
}

fn median(times: &[Duration]) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied()
}

fn seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}
