//! Measures the overhead of the queue and the scaling of a fleet. Requires nats-server (`LUMOS_NATS_SERVER`,
//! or on the `PATH`).
//!
//! `cargo bench --bench fleet -- overhead [items]` runs items that need no compute time through coordinator,
//! queue, four worker processes with eight slots each, and checkpoint. It compares them with messages of the
//! same size sent directly over JetStream: publish, pull, publish the result, consume it, acknowledge both.
//!
//! `cargo bench --bench fleet -- alone [items] [rounds]` omits the comparison, for use with a profiler.
//!
//! `cargo bench --bench fleet -- scale [seconds]` runs simulated GPU workers (200 ms per turn, eight slots
//! each) and prints the share of slot time spent on turns.
//!
//! Prints figures and asserts none.

#[path = "../tests/it/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests, which use more of it")]
mod support;

use std::time::{Duration, Instant};

use async_nats::jetstream::{self, AckKind, consumer, stream};
use futures::StreamExt;
use serde_json::Value;

use crate::support::nats::{NatsServer, program as server};
use crate::support::rehearsal::{Rehearsal, TURNS};
use crate::support::{Fleet, Process};

const WORKERS: usize = 4;
const CONCURRENCY: usize = 8;
/// Size in bytes of a null item's message, and of its outcome's message.
const ITEM: usize = 1024;
const OUTCOME: usize = 2048;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |index: usize, default: u64| {
        arguments.get(index).map_or(default, |text| text.parse().expect("a number"))
    };
    match arguments.first().map(String::as_str) {
        Some("bare-worker") => block_on(bare_worker(&arguments[1])),
        Some("overhead") => overhead(number(1, 50_000)),
        Some("alone") => alone(number(1, 50_000), number(2, 3)),
        Some("scale") => scale(number(1, 30)),
        // `cargo bench` without arguments: a short run of both.
        None => {
            overhead(5_000);
            scale(5);
        }
        Some(other) => panic!("unknown benchmark `{other}`: expected overhead, alone or scale"),
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(future)
}

/// Runs null items through lumos and directly over JetStream, alternately.
fn overhead(items: u64) {
    if server().is_none() {
        return;
    }
    let rounds = 3;
    println!(
        "{items} null items of {ITEM} bytes with outcomes of {OUTCOME} bytes, {WORKERS} workers × {CONCURRENCY} slots"
    );
    println!("round  bare items/s  lumos items/s  share");
    let folder = tempfile::tempdir().unwrap();
    let rehearsal = Rehearsal::write_null(folder.path(), items, ITEM, OUTCOME);
    let mut shares = Vec::new();
    for round in 1..=rounds {
        let bare = items as f64 / bare(items).as_secs_f64();
        let ours = items as f64 / ours(&rehearsal, items).as_secs_f64();
        shares.push(ours / bare);
        println!("{round:>5}  {bare:>12.0}  {ours:>13.0}  {:>4.0} %", 100.0 * ours / bare);
    }
    shares.sort_by(f64::total_cmp);
    println!("median share {:.0} %", 100.0 * shares[shares.len() / 2]);
}

/// Runs null items through lumos only, for a profiler.
fn alone(items: u64, rounds: u64) {
    if server().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rehearsal = Rehearsal::write_null(folder.path(), items, ITEM, OUTCOME);
    for _ in 0..rounds {
        println!("{:.0} items/s", items as f64 / ours(&rehearsal, items).as_secs_f64());
    }
}

/// Time from the first published unit to the last recorded outcome.
fn ours(rehearsal: &Rehearsal, items: u64) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let nats = NatsServer::start().unwrap();
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = format!("--allow-path '{}' --concurrency {CONCURRENCY}", rehearsal.script.display());
    let _workers: Vec<Process> = (0..WORKERS).map(|_| fleet.worker(&worker)).collect();
    let arguments = format!("{} --formulation direct --json", rehearsal.arguments());
    let seconds = session_seconds(&fleet, &arguments, items);
    Duration::from_secs_f64(seconds)
}

/// Runs a coordinator to completion and returns the duration of its session in seconds.
fn session_seconds(fleet: &Fleet, arguments: &str, items: u64) -> f64 {
    let mut coordinator = fleet.coordinator("bench", arguments);
    let status = coordinator.wait(Duration::from_secs(900));
    let said = coordinator.said();
    assert_eq!(status.code(), Some(0), "{}", said.lines().rev().take(20).collect::<Vec<_>>().join("\n"));
    let finished: Value = said
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|event| event["event"] == "finished")
        .expect("the last event");
    assert_eq!(finished["settled"], items);
    finished["seconds"].as_f64().unwrap()
}

async fn bare_streams(context: &jetstream::Context) {
    for name in ["work", "results"] {
        context
            .create_stream(stream::Config {
                name: format!("bare-{name}"),
                subjects: vec![format!("bare.{name}.>")],
                retention: stream::RetentionPolicy::WorkQueue,
                discard: stream::DiscardPolicy::New,
                ..stream::Config::default()
            })
            .await
            .unwrap()
            .create_consumer(consumer::pull::Config {
                durable_name: Some("all".to_owned()),
                max_ack_pending: 100_000,
                ..consumer::pull::Config::default()
            })
            .await
            .unwrap();
    }
}

/// Exchanges messages directly over JetStream, with workers as separate processes.
fn bare(items: u64) -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let nats = NatsServer::start().unwrap();
    let url = nats.url();
    block_on(async {
        let context = jetstream::new(async_nats::connect(&url).await.unwrap());
        bare_streams(&context).await;
        let log = folder.path().join("bare.log");
        let _workers: Vec<Process> = (0..WORKERS)
            .map(|_| {
                let mut command = std::process::Command::new(std::env::current_exe().unwrap());
                command.args(["bare-worker", &url]);
                Process::start(&mut command, &log)
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let began = Instant::now();
        let publisher = {
            let context = context.clone();
            tokio::spawn(async move {
                let body = bytes::Bytes::from(vec![b'x'; ITEM]);
                futures::stream::iter(0..items)
                    .map(|index| {
                        let (context, body) = (context.clone(), body.clone());
                        async move {
                            let subject = format!("bare.work.{index}");
                            context.publish(subject, body).await.unwrap().await.unwrap();
                        }
                    })
                    .buffer_unordered(256)
                    .collect::<Vec<()>>()
                    .await;
            })
        };
        let results: consumer::PullConsumer =
            context.get_consumer_from_stream("all", "bare-results").await.unwrap();
        let mut messages = results.stream().max_messages_per_batch(500).messages().await.unwrap();
        for _ in 0..items {
            messages.next().await.unwrap().unwrap().ack().await.unwrap();
        }
        let taken = began.elapsed();
        publisher.await.unwrap();
        taken
    })
}

/// Pulls a message, publishes the result, awaits its acknowledgement and acknowledges the message, in as many
/// concurrent tasks as there are slots.
async fn bare_worker(url: &str) {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let body = bytes::Bytes::from(vec![b'y'; OUTCOME]);
    let work: consumer::PullConsumer = context.get_consumer_from_stream("all", "bare-work").await.unwrap();
    let shards = (0..CONCURRENCY).map(|_| {
        let (context, body, work) = (context.clone(), body.clone(), work.clone());
        tokio::spawn(async move {
            loop {
                let mut batch =
                    work.batch().max_messages(1).expires(Duration::from_secs(30)).messages().await.unwrap();
                while let Some(Ok(message)) = batch.next().await {
                    let subject = message.subject.replace("bare.work.", "bare.results.");
                    context.publish(subject, body.clone()).await.unwrap().await.unwrap();
                    message.ack_with(AckKind::Ack).await.unwrap();
                }
            }
        })
    });
    futures::future::join_all(shards).await;
}

/// Measures the efficiency of simulated GPU workers for several fleet sizes.
fn scale(seconds: u64) {
    if server().is_none() {
        return;
    }
    const TURN: f64 = 0.2;
    println!(
        "{CONCURRENCY} slots per worker, {TURN} s per turn, {TURNS} turns per item, about {seconds} s each"
    );
    println!("workers  items  seconds  items/s  efficiency");
    for workers in [1usize, 4, 16, 64] {
        let concurrency = workers * CONCURRENCY;
        let item_seconds = TURN * f64::from(TURNS);
        let waves = (seconds as f64 / item_seconds).ceil() as u64;
        let items = waves * concurrency as u64;
        let folder = tempfile::tempdir().unwrap();
        let rehearsal = Rehearsal::write(folder.path(), items);
        let nats = NatsServer::start().unwrap();
        let fleet = Fleet::new(folder.path(), &nats.url());
        let latency = (TURN * 1000.0) as u64;
        let worker = format!(
            "--allow-path '{}' --concurrency {CONCURRENCY} --script-latency {latency} --threads 1",
            rehearsal.script.display()
        );
        let _workers: Vec<Process> = (0..workers).map(|_| fleet.worker(&worker)).collect();
        // The first coordinator creates the streams and gives every worker an item, so that the measurement
        // excludes the time that 64 processes on one machine need to read the script.
        let run = format!("{} --json", rehearsal.arguments());
        fleet.coordinator("first", format!("{run} --limit {concurrency}")).exits(0);
        fleet.until("all workers", |status| status["workers"].as_array().unwrap().len() == workers);
        let taken = session_seconds(&fleet, &run, items);
        let turns: u64 = (0..items).map(|index| u64::from(Rehearsal::turns(index))).sum();
        let ideal = turns as f64 * TURN / concurrency as f64;
        println!(
            "{workers:>7}  {items:>5}  {taken:>7.1}  {:>7.0}  {:>8.1} %",
            items as f64 / taken,
            100.0 * ideal / taken
        );
    }
}
