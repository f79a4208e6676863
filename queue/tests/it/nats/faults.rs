//! Tests of streams, buckets and messages that are deleted, corrupted or created by others while in use.

use std::collections::BTreeSet;

use futures::StreamExt;
use lumos_queue::QueueError;
use lumos_queue::nats::NatsError;
use tokio::sync::mpsc;

use super::*;
use crate::proxy::{Direction, Proxy};

fn shards() -> Vec<String> {
    vec![SHARD.to_owned()]
}

/// Deletes a stream, as an administrator would.
async fn delete_stream(bench: &Bench, name: &str) {
    let context = async_nats::jetstream::new(bench.plain().await);
    context.delete_stream(name).await.unwrap();
}

on_servers! {
    async fn what_is_deleted_is_made_anew_and_used_further(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        let results = bench.connection.results_consumer::<u32>(RUN).await.unwrap();
        assert_eq!(bench.connection.restore(RUN, &shards()).await.unwrap(), Vec::<String>::new());
        publisher.publish("before", 1).await.unwrap();
        let context = async_nats::jetstream::new(bench.plain().await);
        let mut names: Vec<String> = context.stream_names().map(Result::unwrap).collect().await;
        names.sort();
        // The empty stream that reserves space for the buckets is created with them and not reported.
        names.retain(|name| name != "lumos-2-room");
        assert_eq!(names.len(), 8, "{names:?}");
        for name in &names {
            delete_stream(&bench, name).await;
        }
        let gone = timeout(LONG, consumer.claim(1)).await.unwrap();
        assert!(matches!(gone, Err(QueueError::Gone(ref why)) if why.contains("was deleted")), "{gone:?}");
        let gone = bench.connection.shard_consumer::<u32>(SHARD).await.unwrap_err();
        assert!(matches!(gone, NatsError::Missing(ref why) if why.contains("lumos-2-work")), "{gone:?}");

        let restored: BTreeSet<String> = bench.connection.restore(RUN, &shards()).await.unwrap().into_iter().collect();
        let consumers = ["lumos-2-results/results-00000000000000bb", "lumos-2-work/lane-00000000000000aa-5"];
        let expected: BTreeSet<String> = names.into_iter().chain(consumers.map(str::to_owned)).collect();
        assert_eq!(restored, expected);
        // Existing ends of the queues continue to work.
        publisher.publish("after", 2).await.unwrap();
        let lease = loop {
            match timeout(LONG, consumer.claim(1)).await.expect("timed out waiting for a message") {
                Ok(mut leases) => break leases.remove(0),
                Err(QueueError::Gone(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!((lease.id(), *lease.body()), ("after", 2));
        bench.connection.results_publisher::<u32>(RUN).await.unwrap().publish("result", 3).await.unwrap();
        loop {
            match timeout(LONG, results.claim(1)).await.expect("timed out waiting for a result") {
                Ok(leases) => break assert_eq!(*leases[0].body(), 3),
                Err(QueueError::Gone(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn a_watch_goes_on_with_a_bucket_that_was_made_anew(program) {
        let bench = Bench::new(program, Layout::default()).await;
        // One connection recreates the bucket; the other one has to detect that.
        let other = connect(&bench.server, Layout::default()).await;
        for connection in [&bench.connection, &other] {
            let runs = connection.runs().await.unwrap();
            runs.put("a", b"1").await.unwrap();
            let mut changes = Box::pin(runs.watch());
            while timeout(LONG, changes.next()).await.unwrap().unwrap().key != "a" {}
            delete_stream(&bench, "KV_lumos-2-runs").await;
            assert_eq!(bench.connection.restore(RUN, &shards()).await.unwrap()[0], "KV_lumos-2-runs");
            runs.put("b", b"2").await.unwrap();
            let change = timeout(LONG, changes.next()).await.expect("timed out waiting for the change").unwrap();
            assert_eq!((change.key.as_str(), change.value.as_deref()), ("b", Some(b"2".as_slice())));
        }
    }

    async fn one_flipped_bit_is_noticed_and_the_message_delivered_again(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let proxy = Proxy::before(bench.server.address());
        let through = Server::connect(&Access::new(&proxy.url()).unwrap(), connecting(Layout::default())).await.unwrap();
        let publisher = bench.publisher::<String>().await;
        let question = |number: u32| format!("How many pears are in crate {number}?");
        for number in 0..20 {
            publisher.publish(&number.to_string(), question(number)).await.unwrap();
        }
        proxy.flip(Direction::ToClient, "pears", 3);
        proxy.flip(Direction::ToClient, "Lumos-Checksum", 1);
        let consumer = through.shard_consumer::<String>(SHARD).await.unwrap();
        let mut seen = BTreeSet::new();
        while seen.len() < 20 {
            for lease in timeout(LONG, consumer.claim(4)).await.expect("timed out waiting for a message").unwrap() {
                let number: u32 = lease.id().parse().unwrap();
                assert_eq!(*lease.body(), question(number));
                assert!(seen.insert(number), "message {number} was delivered twice");
                lease.acknowledge().await.unwrap();
            }
        }
        assert_eq!(proxy.flipped(), 4);

        // A message that was corrupted before it was stored stays corrupt: it is terminated, and its
        // publisher finds it missing.
        proxy.flip(Direction::ToServer, "pears", 1);
        let through_publisher = through.shard_publisher::<String>(SHARD, RUN).await.unwrap();
        through_publisher.publish("damaged", question(21)).await.unwrap();
        tokio::select! {
            leases = consumer.claim(1) => panic!("{:?}", leases.unwrap()[0].body()),
            () = eventually("the message is removed", async || bench.connection.work_present(RUN).await.unwrap().is_empty()) => {}
        }
        assert_eq!(proxy.flipped(), 5);
    }

    async fn foreign_results_are_handed_over_and_taken_out(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let results = bench.connection.results_consumer::<u32>(RUN).await.unwrap();
        let (outlet, mut rejected) = mpsc::channel(4);
        results.reject_to(outlet).unwrap();
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Lumos-Protocol", "9");
        let subject = format!("lumos.2.results.{RUN}.foreign");
        bench.plain().await.request_with_headers(subject, headers, "{\"version\":9}".into()).await.unwrap();
        let taking = async {
            let message = timeout(LONG, rejected.recv()).await.expect("timed out waiting for the message").unwrap();
            assert_eq!((message.id(), message.body()), ("foreign", b"{\"version\":9}".as_slice()));
            assert_eq!(message.headers(), [("Lumos-Protocol".to_owned(), "9".to_owned())]);
            assert!(message.why().contains("protocol 9"), "{}", message.why());
            message.take_out().await.unwrap();
            eventually("the stream is empty", async || bench.connection.results_present(RUN).await.unwrap().is_empty()).await;
        };
        tokio::select! {
            leases = results.claim(1) => panic!("{leases:?}"),
            () = taking => {}
        }
    }

    async fn a_consumer_that_is_made_anew_delivers_everything_again(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        for number in 0..3 {
            publisher.publish(&number.to_string(), number).await.unwrap();
        }
        // Simulates a consumer that lost its deliveries: this one is never settled.
        std::mem::forget(claim_one(&consumer).await);
        let standing = bench.connection.shard_standing(SHARD).await.unwrap();
        assert_eq!((standing.pending, standing.unacknowledged, standing.messages), (2, 1, 3));
        bench.connection.remake_shard(SHARD).await.unwrap();
        let mut seen = BTreeSet::new();
        while seen.len() < 3 {
            for lease in timeout(LONG, consumer.claim(4)).await.expect("timed out waiting for a message").unwrap_or_default() {
                seen.insert(*lease.body());
                lease.acknowledge().await.unwrap();
            }
        }
    }
}
