//! The fault campaign: repeats a mixed run of all seven benchmarks while processes are killed and frozen,
//! networks fail, disks fill up, streams vanish, files are damaged, memory runs out and clocks jump. After
//! each round it compares every sample, result and unit with the undisturbed run.
//!
//! `just campaign --rounds 200 --seed 1` runs the long form, and `just campaign --seed 1 --round 17` repeats
//! one round. A short form with a fixed seed and without browsers runs with the other tests.
//!
//! A round ([`round`]) has two coordinators (`worlds`: all benchmarks with scripted agents, SQL on a real
//! MariaDB, and in some rounds the shop and web pages in a real browser; `engine`: the built-in agent in two
//! formulations) and two workers on a real nats-server, whose version differs between even and odd rounds.
//! Its faults are drawn from the seed ([`schedule`]) and injected by [`inject`] into the participants
//! ([`stage`]), whose processes are restarted whenever they end ([`actor`]). [`report`] summarizes the
//! rounds.

mod actor;
mod compare;
mod inject;
mod report;
mod round;
mod schedule;
mod stage;
#[allow(dead_code, unused_imports, reason = "shared with the other tests, which use more of it")]
#[path = "../it/support/mod.rs"]
mod support;
mod world;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use lumos_capabilities::{Capability, skip_part};

use crate::report::Report;
use crate::schedule::{Kind, Plan};
use crate::support::{faketime, nats};
use crate::world::World;

/// Rounds of the short form, without browsers. A round with browsers takes minutes.
const SHORT: u64 = 2;

/// Runs the fault campaign.
#[derive(Debug, Parser)]
struct Arguments {
    /// Number of rounds; by default two, without browsers.
    #[arg(long)]
    rounds: Option<u64>,
    /// Seed from which faults are drawn.
    #[arg(long, env = "LUMOS_TEST_SEED", default_value_t = 1)]
    seed: u64,
    /// Run only this round.
    #[arg(long)]
    round: Option<u64>,
    /// Index of the first round.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of concurrent rounds.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Inject only faults whose names contain one of these texts, comma-separated.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Run without browsers and skip their faults.
    #[arg(long)]
    no_browser: bool,
    /// Write all rounds to this file as JSON.
    #[arg(long, default_value = concat!(env!("CARGO_TARGET_TMPDIR"), "/campaign.json"))]
    json: PathBuf,
    /// Keep the folders of successful rounds, too.
    #[arg(long)]
    keep: bool,
    /// Names of tests, as `cargo test -- NAME` passes them.
    filters: Vec<String>,
    #[command(flatten)]
    harness: Harness,
}

/// Arguments that `cargo test` passes to every test program.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Accepted and ignored")]
#[allow(clippy::struct_excessive_bools, reason = "flags of the test harness")]
struct Harness {
    #[arg(long)]
    nocapture: bool,
    #[arg(long, short)]
    quiet: bool,
    #[arg(long)]
    exact: bool,
    #[arg(long)]
    ignored: bool,
    #[arg(long)]
    list: bool,
    #[arg(long)]
    test_threads: Option<usize>,
    #[arg(long)]
    skip: Vec<String>,
}

impl Arguments {
    /// Whether the campaign is among the selected tests.
    fn is_selected(&self) -> bool {
        let named = |name: &String| "campaign".contains(name.as_str());
        let selected = self.filters.is_empty() || self.filters.iter().any(named);
        selected && !self.harness.ignored && !self.harness.list && !self.harness.skip.iter().any(named)
    }

    /// Whether browsers take part.
    fn has_browsers(&self) -> bool {
        !self.no_browser && (self.rounds.is_some() || self.round.is_some())
    }

    fn kinds(&self) -> Vec<Kind> {
        let named = |kind: &Kind| self.faults.iter().any(|name| kind.name().contains(name.as_str()));
        Kind::ALL.into_iter().filter(|kind| self.faults.is_empty() || named(kind)).collect()
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !arguments.is_selected() {
        return ExitCode::SUCCESS;
    }
    let servers: Vec<(PathBuf, String)> = nats::programs()
        .into_iter()
        .map(|program| (version(&program), program))
        .map(|(version, program)| (program, version))
        .collect();
    if servers.is_empty() {
        return ExitCode::SUCCESS;
    }
    say_what_is_missing(&arguments);
    let rounds = match arguments.round {
        Some(round) => round..round + 1,
        None => arguments.first..arguments.first + arguments.rounds.unwrap_or(SHORT),
    };
    let kinds = arguments.kinds();
    assert!(!kinds.is_empty(), "no fault matches --faults");
    let plans: Vec<Plan> = rounds.map(|round| Plan::draw(arguments.seed, round, &kinds)).collect();
    let browser = world::has_browser() && arguments.has_browsers() && plans.iter().any(|plan| plan.browser);
    let making = Mutex::new(());
    let (next, report) = (AtomicU64::new(0), Mutex::new(Report::new(arguments.seed)));
    std::thread::scope(|scope| {
        for _ in 0..arguments.jobs.clamp(1, plans.len() as u64) {
            scope.spawn(|| {
                let mut world = {
                    let _one_at_a_time = making.lock();
                    World::new(browser)
                };
                while let Some(plan) =
                    plans.get(usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX))
                {
                    let plan = Plan { browser: plan.browser && browser, ..plan.clone() };
                    let server = &servers[usize::try_from(plan.round).unwrap_or(0) % servers.len()];
                    let folder = tempfile::Builder::new().prefix("lumos-campaign-").tempdir().unwrap();
                    let (round, began) =
                        round::perform(&mut world, &plan, (&server.0, &server.1), folder.path());
                    let kept = (!round.is_good() || arguments.keep).then(|| folder.keep());
                    let mut report = report.lock().unwrap();
                    report.add(&round, began, kept.as_deref());
                    report.write(&arguments.json);
                }
            });
        }
    });
    let report = report.into_inner().unwrap();
    report.print();
    println!("all rounds: {}", arguments.json.display());
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say_what_is_missing(arguments: &Arguments) {
    if faketime().is_none() {
        skip_part(Capability::Faketime, "clock jumps: libfaketime is not installed (Debian: faketime)");
    }
    if arguments.has_browsers() && !world::has_browser() {
        skip_part(Capability::Browser, "faults of browsers: chromium and chromedriver are not installed");
    }
}

/// Returns the version that a server reports.
fn version(program: &Path) -> String {
    let output = std::process::Command::new(program).arg("--version").output();
    let text =
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    text.rsplit(' ').next().unwrap_or_default().trim_start_matches('v').to_owned()
}
