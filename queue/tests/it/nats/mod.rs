//! Tests of the NATS queue beyond the contract, with real servers.

mod access;
mod bodies;
mod buckets;
mod crash;
mod faults;
mod hostile;
mod queues;

use std::future::Future;
use std::time::Duration;

use crate::nats_server::NatsServer;
use lumos_queue::nats::{Access, Connecting, Layout, NatsQueue, Server};
use lumos_queue::{Lease, Queue};
use tokio::time::{Instant, sleep, timeout};

const SHARD: &str = "00000000000000aa.5";
const RUN: &str = "00000000000000bb";
const LONG: Duration = Duration::from_secs(120);

/// A server with streams and buckets, and a connection to it.
struct Bench {
    server: NatsServer,
    connection: Server,
}

impl Bench {
    async fn new(program: &std::path::Path, layout: Layout) -> Self {
        let server = NatsServer::with_jetstream(program);
        let connection = connect(&server, layout).await;
        connection.ensure().await.unwrap();
        Self { server, connection }
    }

    async fn publisher<T>(&self) -> NatsQueue<T>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        self.connection.shard_publisher(SHARD, RUN).await.unwrap()
    }

    async fn consumer<T>(&self) -> NatsQueue<T>
    where
        T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
    {
        self.connection.shard_consumer(SHARD).await.unwrap()
    }

    /// A plain NATS client, for operations that the queue does not support.
    async fn plain(&self) -> async_nats::Client {
        async_nats::connect(self.server.url()).await.unwrap()
    }
}

fn connecting(layout: Layout) -> Connecting {
    Connecting { name: "test".to_owned(), patience: Some(LONG), layout }
}

async fn connect(server: &NatsServer, layout: Layout) -> Server {
    Server::connect(&Access::new(&server.url()).unwrap(), connecting(layout)).await.unwrap()
}

/// A layout with leases that do not expire during a test.
fn long_lease() -> Layout {
    Layout { lease: LONG * 20, ..Layout::default() }
}

fn short_lease() -> Layout {
    Layout { lease: Duration::from_secs(2), ..Layout::default() }
}

async fn claim_one<T>(queue: &NatsQueue<T>) -> Lease<T>
where
    T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    timeout(LONG, queue.claim(1)).await.expect("timed out waiting for a message").unwrap().remove(0)
}

/// Waits until a condition holds.
async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let deadline = Instant::now() + LONG;
    while !holds().await {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Runs a test once per available server.
macro_rules! on_servers {
    ($(async fn $name:ident($program:ident) $body:block)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            for $program in crate::nats_server::programs() {
                let $program = $program.as_path();
                $body
            }
        }
    )* };
}
use on_servers;
