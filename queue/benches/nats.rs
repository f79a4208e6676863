//! Throughput of the work queue on a local nats-server, with four consumers of eight slots each.

#[path = "../tests/support/nats_server.rs"]
mod nats_server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lumos_queue::nats::{Access, Connecting, Layout, NatsQueue, Server};
use lumos_queue::{Lease, Queue};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const SHARD: &str = "00000000000000aa.5";
const RUN: &str = "00000000000000bb";
const CONSUMERS: usize = 4;
const PLACES: usize = 8;

/// Number of items per round: `LUMOS_BENCH_ITEMS`, by default 30,000. Listings above 100,000 are paged.
fn items() -> usize {
    static ITEMS: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *ITEMS.get_or_init(|| {
        std::env::var("LUMOS_BENCH_ITEMS").ok().and_then(|text| text.parse().ok()).unwrap_or(30_000)
    })
}

async fn connect(server: &nats_server::NatsServer) -> Server {
    let connecting = Connecting {
        name: "bench".to_owned(),
        patience: Some(Duration::from_secs(10)),
        layout: Layout::default(),
    };
    Server::connect(&Access::new(&server.url()).expect("a URL"), connecting).await.expect("a connection")
}

fn report(what: &str, items: usize, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!("{what}: {:.0} items/s", items as f64 / seconds);
}

fn messages(bytes: usize) -> Vec<(String, String)> {
    (0..items()).map(|number| (format!("{number:016x}-1"), "x".repeat(bytes))).collect()
}

/// Claims as many messages as there are free slots, runs `work` on each, and acknowledges them.
async fn consume<W>(queue: NatsQueue<String>, done: Arc<AtomicUsize>, work: W)
where
    W: AsyncFn(&Lease<String>) + Clone + 'static,
{
    let places = Arc::new(Semaphore::new(PLACES));
    let local = tokio::task::LocalSet::new();
    let claiming = async {
        loop {
            let first = places.clone().acquire_owned().await.expect("places");
            let free = 1 + places.available_permits();
            drop(first);
            let Ok(leases) = tokio::time::timeout(Duration::from_millis(200), queue.claim(free)).await else {
                if done.load(Ordering::Relaxed) >= items() {
                    return;
                }
                continue;
            };
            for lease in leases.expect("a claim") {
                let place = places.clone().acquire_owned().await.expect("places");
                let (done, work) = (Arc::clone(&done), work.clone());
                tokio::task::spawn_local(async move {
                    work(&lease).await;
                    lease.acknowledge().await.expect("an acknowledgement");
                    done.fetch_add(1, Ordering::Relaxed);
                    drop(place);
                });
            }
        }
    };
    local.run_until(claiming).await;
}

/// Runs the consumers, each with its own connection and thread, until all items are done. Returns the start
/// time for the throughput.
fn consumers(server: &nats_server::NatsServer, with_results: bool) -> Instant {
    let done = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..CONSUMERS {
            let done = Arc::clone(&done);
            scope.spawn(move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    let connection = connect(server).await;
                    let queue = connection.shard_consumer::<String>(SHARD).await.expect("a shard");
                    if with_results {
                        let results = connection.results_publisher::<String>(RUN).await.expect("results");
                        let body = "y".repeat(2048);
                        let work = async move |lease: &Lease<String>| {
                            results.publish(lease.id(), body.clone()).await.expect("a result");
                        };
                        consume(queue, done, work).await;
                    } else {
                        consume(queue, done, async |_: &Lease<String>| {}).await;
                    }
                });
            });
        }
    });
    // Excludes the last claims, which time out because the queue is empty.
    began + Duration::from_millis(200)
}

fn main() {
    for program in nats_server::programs() {
        let server = nats_server::NatsServer::with_jetstream(&program);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let (connection, shard) = runtime.block_on(async {
            let connection = connect(&server).await;
            connection.ensure().await.expect("streams");
            let shard = connection.shard_publisher::<String>(SHARD, RUN).await.expect("a shard");
            (connection, shard)
        });
        println!(
            "nats-server {}, {} items of 1 KiB, {CONSUMERS} consumers x {PLACES} slots",
            connection.version(),
            items()
        );
        let began = Instant::now();
        runtime.block_on(shard.publish_all(messages(1024))).expect("published");
        report("publish, 256 in flight", items(), began);

        let began = Instant::now();
        let present = runtime.block_on(connection.work_present(RUN)).expect("a listing");
        println!("list {} ids: {:.0} ms", present.len(), began.elapsed().as_secs_f64() * 1000.0);

        let began = consumers(&server, false);
        report("claim and acknowledge", items(), began);

        runtime.block_on(shard.publish_all(messages(1024))).expect("published");
        let began = Instant::now();
        let taken = std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                runtime.block_on(async {
                    let results = connection.results_consumer::<String>(RUN).await.expect("results");
                    let mut taken = 0;
                    let mut acknowledging = JoinSet::new();
                    while taken < items() {
                        let leases = results.claim(256).await.expect("results");
                        taken += leases.len();
                        acknowledging.spawn(async move {
                            for lease in leases {
                                lease.acknowledge().await.expect("an acknowledgement");
                            }
                        });
                    }
                    acknowledging.join_all().await;
                    Instant::now()
                })
            });
            consumers(&server, true);
            taking.join().expect("all results")
        });
        println!(
            "claim, result of 2 KiB, acknowledge, take and acknowledge the result: {:.0} items/s",
            items() as f64 / taken.duration_since(began).as_secs_f64()
        );
        runtime.block_on(connection.close());
    }
}
