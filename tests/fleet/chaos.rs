//! Processes die, freeze and lose the network, at random; the results are those of an undisturbed run.
//!
//! A short campaign runs with the tests. A long one:
//! `LUMOS_CHAOS=runs=20,items=2000,events=12,seed=1 cargo test --release --test fleet chaos -- --nocapture`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::fleet::{Fleet, Process, settled};
use crate::namespace::Namespace;
use crate::nats::{NatsServer, program};
use crate::program::{content, expect, lumos};
use crate::rehearsal::{Rehearsal, TURNS};

/// Workers, and places of each.
const WORKERS: usize = 4;
const PLACES: u64 = 8;

/// Seconds a lease lasts: short, so that a frozen worker outlives its own.
const LEASE: f64 = 3.0;

/// What a campaign is.
#[derive(Debug, Clone, Copy)]
struct Campaign {
    runs: u64,
    items: u64,
    events: u64,
    seed: u64,
    /// Milliseconds a scripted reply takes.
    latency: u64,
}

impl Campaign {
    fn from_environment() -> Self {
        let mut campaign = Self { runs: 1, items: 300, events: 8, seed: 1, latency: 60 };
        for setting in
            std::env::var("LUMOS_CHAOS").unwrap_or_default().split(',').filter(|text| !text.is_empty())
        {
            let (name, value) = setting.split_once('=').expect("LUMOS_CHAOS=runs=20,items=2000,…");
            let value = value.parse().expect("a number");
            match name {
                "runs" => campaign.runs = value,
                "items" => campaign.items = value,
                "events" => campaign.events = value,
                "seed" => campaign.seed = value,
                "latency" => campaign.latency = value,
                other => panic!("LUMOS_CHAOS knows no `{other}`"),
            }
        }
        campaign
    }

    /// How long a run takes if nothing happens.
    fn undisturbed(self) -> Duration {
        let turns = self.items * u64::from(TURNS);
        Duration::from_millis(turns * self.latency / (WORKERS as u64 * PLACES))
    }
}

/// What may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    KillWorker,
    KillCoordinator,
    KillNats,
    FreezeWorker,
    CutNetwork,
}

impl Event {
    fn draw(random: &mut StdRng, cuts: bool) -> Self {
        match random.random_range(0..if cuts { 11 } else { 9 }) {
            0..=3 => Self::KillWorker,
            4..=5 => Self::KillCoordinator,
            6 => Self::KillNats,
            7..=8 => Self::FreezeWorker,
            _ => Self::CutNetwork,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::KillWorker => "kill -9 worker",
            Self::KillCoordinator => "kill -9 coordinator",
            Self::KillNats => "kill -9 nats-server",
            Self::FreezeWorker => "freeze worker past its lease",
            Self::CutNetwork => "cut a worker's network",
        }
    }
}

/// What a run came to.
#[derive(Debug, Default)]
struct Count {
    events: BTreeMap<Event, u64>,
    recorded: u64,
    lost: u64,
    double: u64,
    recovered: u64,
    dropped: u64,
    seconds: f64,
}

#[test]
fn chaos_changes_no_result() {
    if program().is_none() {
        return;
    }
    let campaign = Campaign::from_environment();
    let folder = tempfile::tempdir().unwrap();
    let rehearsal = Rehearsal::write(folder.path(), campaign.items);
    let arguments = run_arguments(&rehearsal);
    let mut undisturbed = vec!["run"];
    undisturbed.extend(arguments.iter().map(String::as_str));
    undisturbed.extend(["--output-path", folder.path().to_str().unwrap(), "--name", "undisturbed"]);
    expect(0, &undisturbed);
    let (samples, results) = content(&folder.path().join("undisturbed"));
    let expected = (serde_json::to_value(samples).unwrap(), results);

    println!("{campaign:?}");
    println!("run  seconds  recorded  lost  double  recovered  dropped  events");
    for run in 0..campaign.runs {
        let seed = campaign.seed + run;
        let below = folder.path().join(format!("run-{seed}"));
        std::fs::create_dir(&below).unwrap();
        let count = disturbed(&below, &arguments, campaign, seed);
        let events: Vec<_> =
            count.events.iter().map(|(event, times)| format!("{times} × {}", event.name())).collect();
        println!(
            "{run:>3}  {:>7.1}  {:>8}  {:>4}  {:>6}  {:>9}  {:>7}  {}",
            count.seconds,
            count.recorded,
            count.lost,
            count.double,
            count.recovered,
            count.dropped,
            events.join(", ")
        );
        assert_eq!((count.lost, count.double), (0, 0), "seed {seed}");
        let (samples, results) = content(&below.join("disturbed"));
        let samples = serde_json::to_value(samples).unwrap();
        assert_eq!(difference(&expected.0, &samples, "samples"), None, "seed {seed}");
        assert_eq!(difference(&expected.1, &results, "results"), None, "seed {seed}");
        std::fs::remove_dir_all(&below).unwrap();
    }
}

/// The first place where two values differ, and what stands there.
fn difference(expected: &Value, found: &Value, place: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) if left.keys().eq(right.keys()) => {
            left.iter().find_map(|(key, value)| difference(value, &right[key], &format!("{place}.{key}")))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let mut pairs = left.iter().zip(right).enumerate();
            pairs.find_map(|(index, (left, right))| difference(left, right, &format!("{place}[{index}]")))
        }
        _ if expected == found => None,
        _ => Some(format!("{place}: {expected} and {found}")),
    }
}

fn run_arguments(rehearsal: &Rehearsal) -> Vec<String> {
    let script = format!("script:{}", rehearsal.script.display());
    let data = rehearsal.data.display().to_string();
    ["--tasks", "gsm8k", "--model", &script, "--data", &data, "--retry-on-error", "5"]
        .map(str::to_owned)
        .to_vec()
}

/// One run with its disturbances.
fn disturbed(folder: &Path, arguments: &[String], campaign: Campaign, seed: u64) -> Count {
    let mut random = StdRng::seed_from_u64(seed);
    let namespace = Namespace::make(seed);
    // From another namespace it is reached on every address.
    let address = if namespace.is_some() { "0.0.0.0" } else { "127.0.0.1" };
    let mut nats = NatsServer::with_arguments(&program().unwrap(), &["-a", address]);
    let fleet = Fleet::new(folder, &nats.url());
    let lease = LEASE.to_string();
    let mut coordinating: Vec<&str> = arguments.iter().map(String::as_str).collect();
    coordinating.extend(["--lease", &lease]);
    let latency = campaign.latency.to_string();
    let places = PLACES.to_string();
    let working = ["--places", &places, "--script-latency", &latency, "--stall-limit", "30"];
    // The last worker sits behind a network that can be cut.
    let start_worker = |index: usize| -> Process {
        match &namespace {
            Some(namespace) if index == WORKERS - 1 => {
                let command = namespace.command(&lumos());
                Fleet::new(folder, &nats_url_from(namespace, &fleet)).worker_with(command, &working)
            }
            _ => fleet.worker(&working),
        }
    };
    let began = Instant::now();
    let mut coordinator = fleet.coordinator("disturbed", &coordinating);
    let mut workers: Vec<Process> = (0..WORKERS).map(start_worker).collect();
    let mut count = Count::default();
    let mut last: Option<Value> = None;

    // Spread over the time that an undisturbed run takes, once it is under way.
    let mut moments: Vec<Duration> = (0..campaign.events)
        .map(|_| campaign.undisturbed().mul_f64(random.random_range(0.05..1.0)))
        .collect();
    moments.sort();
    std::thread::sleep(Duration::from_millis(700));
    for moment in moments {
        let due = Duration::from_millis(700) + moment;
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        last = fleet.status().or(last);
        let event = Event::draw(&mut random, namespace.is_some());
        let victim = random.random_range(0..WORKERS);
        match event {
            Event::KillWorker => {
                workers[victim].kill();
                workers[victim] = start_worker(victim);
            }
            Event::KillCoordinator => {
                if coordinator.ended().is_none() {
                    coordinator.kill();
                    std::thread::sleep(Duration::from_millis(random.random_range(0..1500)));
                    coordinator = fleet.coordinator("disturbed", &coordinating);
                }
            }
            Event::KillNats => {
                nats.kill();
                std::thread::sleep(Duration::from_millis(random.random_range(0..2500)));
                nats.restart();
            }
            Event::FreezeWorker => {
                workers[victim].signal("-STOP");
                std::thread::sleep(Duration::from_secs_f64(LEASE + random.random_range(0.5..3.0)));
                workers[victim].signal("-CONT");
            }
            Event::CutNetwork => {
                if let Some(namespace) = &namespace {
                    namespace.cut(true);
                    std::thread::sleep(Duration::from_secs_f64(LEASE + random.random_range(0.5..3.0)));
                    namespace.cut(false);
                }
            }
        }
        *count.events.entry(event).or_default() += 1;
    }
    let status = coordinator.wait(Duration::from_secs(120) + campaign.undisturbed() * 4);
    count.seconds = began.elapsed().as_secs_f64();
    assert_eq!(status.code(), Some(0), "seed {seed}, {:?}:\n{}", count.events, coordinator.said());
    last = fleet.status().or(last);
    for worker in &mut workers {
        worker.signal("-TERM");
    }
    for worker in &mut workers {
        let status = worker.wait(Duration::from_secs(60));
        assert_eq!(status.code(), Some(0), "seed {seed}: a worker does not end well:\n{}", worker.said());
    }
    if let Some(status) = last {
        assert_eq!(settled(&status), campaign.items);
        count.recovered = status["runs"][0]["recovered"].as_u64().unwrap();
        count.dropped = status["runs"][0]["duplicates"].as_u64().unwrap();
    }
    tally(&folder.join("disturbed"), campaign.items, &mut count);
    count
}

fn nats_url_from(namespace: &Namespace, fleet: &Fleet) -> String {
    let port = fleet.queue[1].rsplit(':').next().unwrap();
    format!("nats://{}:{port}", namespace.outside())
}

/// Counts the record itself.
fn tally(folder: &Path, items: u64, count: &mut Count) {
    let (samples, _) = content(folder);
    let mut times: BTreeMap<String, u64> = BTreeMap::new();
    for row in samples.values().flatten() {
        // Outstanding and faulted units stand in the samples as such.
        assert!(matches!(row["status"].as_str(), Some("answered" | "gave_up")), "{row}");
        *times.entry(row["unit"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    count.recorded = times.len() as u64;
    count.lost = items - count.recorded;
    count.double = times.values().filter(|times| **times > 1).count() as u64;
}
