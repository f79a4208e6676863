//! Tests of shards, results, recalled leases and listings, and of servers with limited space.

use std::collections::HashSet;

use lumos_queue::QueueError;
use lumos_queue::nats::NatsError;

use super::*;

on_servers! {
    async fn a_server_is_set_up_once_and_keeps_its_limits(program) {
        let bench = Bench::new(program, Layout::default()).await;
        bench.connection.check().await.unwrap();
        let other = connect(&bench.server, Layout { results_max_messages: 5, ..Layout::default() }).await;
        other.ensure().await.unwrap();
        let strange = connect(&bench.server, Layout { protocol: 3, ..Layout::default() }).await;
        let error = strange.check().await.unwrap_err();
        assert!(matches!(&error, NatsError::Missing(why) if why.contains("no coordinator")), "{error}");
        assert!(matches!(strange.runs().await, Err(NatsError::Missing(_))));
        assert!(matches!(strange.shared().await, Err(NatsError::Missing(_))));
        assert!(matches!(other.shard_consumer::<u32>(SHARD).await, Err(NatsError::Missing(_))));
    }

    async fn a_stream_of_another_kind_is_refused(program) {
        let server = NatsServer::with_jetstream(program);
        let plain = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
        let config = async_nats::jetstream::stream::Config {
            name: "lumos-2-work".to_owned(),
            subjects: vec!["lumos.2.work.>".to_owned()],
            ..Default::default()
        };
        plain.create_stream(config).await.unwrap();
        let error = connect(&server, Layout::default()).await.ensure().await.unwrap_err();
        assert!(error.to_string().contains("other settings"), "{error}");
    }

    async fn ends_do_one_thing(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        assert!(matches!(publisher.claim(1).await, Err(QueueError::Refused(_))));
        assert!(matches!(consumer.publish("a", 1).await, Err(QueueError::Refused(_))));
        for id in ["", "a.b", "a b", "*", "ä"] {
            assert!(matches!(publisher.publish(id, 1).await, Err(QueueError::Refused(_))), "{id}");
        }
    }

    async fn what_is_there_can_be_claimed_without_waiting(program) {
        let bench = Bench::new(program, long_lease()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        assert!(timeout(LONG, consumer.try_claim(3)).await.unwrap().unwrap().is_empty());
        publisher.publish_all((0..2).map(|number| (number.to_string(), number)).collect()).await.unwrap();
        let mut two = Vec::new();
        // The server may offer a message shortly after it has acknowledged it.
        let both = async {
            while two.len() < 2 {
                two.extend(consumer.try_claim(5).await.unwrap());
            }
        };
        timeout(LONG, both).await.unwrap();
        assert_eq!(two.len(), 2);
        assert!(consumer.try_claim(1).await.unwrap().is_empty());
        drop(two);
        assert_eq!(claim_one(&consumer).await.deliveries(), 2);
    }

    async fn a_full_results_stream_refuses_and_drops_nothing(program) {
        let bench = Bench::new(program, Layout { results_max_messages: 5, ..Layout::default() }).await;
        let publisher = bench.connection.results_publisher::<u32>(RUN).await.unwrap();
        for number in 0..5 {
            publisher.publish(&number.to_string(), number).await.unwrap();
        }
        assert_eq!(publisher.publish("5", 5).await, Err(QueueError::Full));
        publisher.publish("2", 2).await.unwrap();
        let consumer = bench.connection.results_consumer::<u32>(RUN).await.unwrap();
        claim_one(&consumer).await.acknowledge().await.unwrap();
        eventually("the stream has space again", async || publisher.publish("5", 5).await.is_ok()).await;
        assert_eq!(bench.connection.results_present(RUN).await.unwrap().len(), 5);
    }

    async fn a_recalled_lease_is_delivered_before_it_runs_out(program) {
        let bench = Bench::new(program, long_lease()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        publisher.publish("a", 1).await.unwrap();
        // The holder disappears without returning its lease.
        let gone = connect(&bench.server, Layout::default()).await;
        let lease = claim_one(&gone.shard_consumer::<u32>(SHARD).await.unwrap()).await;
        let token = lease.token().unwrap().to_owned();
        std::mem::forget(lease);
        bench.connection.reassign(&token).await.unwrap();
        assert_eq!(claim_one(&consumer).await.deliveries(), 2);
        for wrong in ["", "lumos.2.work.x", "$JS.API.STREAM.DELETE.lumos-2-work", "$JS.ACK.other.c.1.2.3.4.5"] {
            assert!(matches!(bench.connection.reassign(wrong).await, Err(NatsError::Address(_))), "{wrong}");
        }
    }

    async fn a_lease_lasts_as_long_as_its_consumer_says(program) {
        let bench = Bench::new(program, short_lease()).await;
        let publisher = bench.publisher::<u32>().await;
        // A worker, which does not know the coordinator's `--lease`.
        let other = connect(&bench.server, Layout::default()).await;
        let consumer = other.shard_consumer::<u32>(SHARD).await.unwrap();
        publisher.publish("a", 1).await.unwrap();
        let lease = claim_one(&consumer).await;
        assert_eq!(lease.duration(), Some(short_lease().lease));
    }

    async fn two_consumers_of_a_shard_share_its_messages(program) {
        let bench = Bench::new(program, long_lease()).await;
        let publisher = bench.publisher::<u32>().await;
        let other = connect(&bench.server, Layout::default()).await;
        let consumers = [bench.consumer::<u32>().await, other.shard_consumer::<u32>(SHARD).await.unwrap()];
        publisher.publish_all((0..300).map(|number| (number.to_string(), number)).collect()).await.unwrap();
        let mut seen = Vec::new();
        while seen.len() < 300 {
            for consumer in &consumers {
                let Ok(leases) = timeout(Duration::from_millis(300), consumer.claim(7)).await else { continue };
                for lease in leases.unwrap() {
                    assert_eq!(lease.deliveries(), 1);
                    seen.push(*lease.body());
                    lease.acknowledge().await.unwrap();
                }
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<u32>>());
    }

    async fn demand_is_never_more_than_what_is_claimed(program) {
        let bench = Bench::new(program, long_lease()).await;
        let publisher = bench.publisher::<u32>().await;
        publisher.publish_all((0..40).map(|number| (number.to_string(), number)).collect()).await.unwrap();
        let (greedy, modest) = (bench.consumer::<u32>().await, bench.consumer::<u32>().await);
        let mut held = Vec::new();
        while held.len() < 10 {
            held.extend(timeout(LONG, greedy.claim(10 - held.len())).await.unwrap().unwrap());
        }
        // The server handles requests in order, so after this claim it has delivered exactly the claimed
        // messages.
        held.push(claim_one(&greedy).await);
        let standing = bench.connection.shard_standing(SHARD).await.unwrap();
        assert_eq!((standing.unacknowledged, standing.pending), (11, 29));
        let mut rest = Vec::new();
        while rest.len() < 29 {
            rest.extend(timeout(LONG, modest.claim(29 - rest.len())).await.unwrap().unwrap());
        }
        let bodies: HashSet<u32> = held.iter().chain(&rest).map(|lease| *lease.body()).collect();
        assert_eq!(bodies.len(), 40);
    }

    async fn what_came_for_a_dropped_claim_is_given_back_once(program) {
        let bench = Bench::new(program, long_lease()).await;
        let (publisher, first) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        assert!(timeout(Duration::from_millis(200), first.claim(8)).await.is_err());
        publisher.publish("a", 1).await.unwrap();
        // It may be delivered to the first end, whose claim was dropped, and is returned from there.
        let lease = claim_one(&bench.consumer::<u32>().await).await;
        assert!(lease.deliveries() <= 2, "{lease:?}");
    }

    async fn what_comes_for_a_closed_end_is_given_back_once(program) {
        let bench = Bench::new(program, long_lease()).await;
        let (publisher, first) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        assert!(timeout(Duration::from_millis(200), first.claim(8)).await.is_err());
        first.close();
        publisher.publish("a", 1).await.unwrap();
        let lease = claim_one(&bench.consumer::<u32>().await).await;
        assert!(lease.deliveries() <= 2, "{lease:?}");
    }

    async fn a_message_that_is_returned_with_a_delay_comes_later(program) {
        let bench = Bench::new(program, long_lease()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        publisher.publish("a", 1).await.unwrap();
        claim_one(&consumer).await.release_after(Duration::from_secs(2));
        let early = timeout(Duration::from_secs(1), consumer.claim(1)).await;
        assert!(early.is_err(), "{early:?}");
        assert_eq!(claim_one(&consumer).await.deliveries(), 2);
    }

    async fn a_deleted_shard_is_told(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let publisher = bench.publisher::<u32>().await;
        let consumer = bench.consumer::<u32>().await;
        let plain = async_nats::jetstream::new(bench.plain().await);
        let stream = plain.get_stream("lumos-2-work").await.unwrap();
        let (told, ()) = tokio::join!(timeout(LONG, consumer.claim(1)), async {
            sleep(Duration::from_millis(200)).await;
            stream.delete_consumer("lane-00000000000000aa-5").await.unwrap();
        });
        assert!(matches!(told.unwrap(), Err(QueueError::Gone(_))));
        assert!(matches!(timeout(LONG, consumer.claim(1)).await.unwrap(), Err(QueueError::Gone(_))));
        // Claiming continues once the consumer is recreated.
        let _again = bench.publisher::<u32>().await;
        publisher.publish("a", 1).await.unwrap();
        eventually("the shard exists again", async || {
            matches!(timeout(LONG, consumer.claim(1)).await.unwrap(), Ok(leases) if leases.len() == 1)
        })
        .await;
    }

    async fn a_run_can_be_listed_and_removed(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let work = bench.publisher::<String>().await;
        let other_shard = bench.connection.shard_publisher::<String>("00000000000000ac.0", RUN).await.unwrap();
        let other_run = bench.connection.shard_publisher::<String>(SHARD, "00000000000000bc").await.unwrap();
        let results = bench.connection.results_publisher::<String>(RUN).await.unwrap();
        work.publish("a-1", String::new()).await.unwrap();
        work.publish("b-1", noise(2 << 20)).await.unwrap();
        other_shard.publish("c-2", String::new()).await.unwrap();
        other_run.publish("d-1", String::new()).await.unwrap();
        results.publish("a-1", noise(2 << 20)).await.unwrap();
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<HashSet<_>>();
        let held = claim_one(&bench.consumer::<String>().await).await;
        assert_eq!(bench.connection.work_present(RUN).await.unwrap(), ids(&["a-1", "b-1", "c-2"]));
        assert_eq!(bench.connection.results_present(RUN).await.unwrap(), ids(&["a-1"]));
        let shards = ids(&[SHARD, "00000000000000ac.0"]);
        assert_eq!(bench.connection.shards_present(RUN).await.unwrap(), shards);
        drop(held);
        assert_eq!(bench.connection.purge_work(RUN).await.unwrap(), 3);
        bench.connection.remove_run(RUN).await.unwrap();
        assert!(bench.connection.work_present(RUN).await.unwrap().is_empty());
        assert!(bench.connection.results_present(RUN).await.unwrap().is_empty());
        assert_eq!(bench.connection.work_present("00000000000000bc").await.unwrap(), ids(&["d-1"]));
        assert_eq!(super::bodies::stored(&bench).await, 0);
    }

    async fn results_of_a_dead_coordinator_are_deliverable_at_once(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let results = bench.connection.results_publisher::<u32>(RUN).await.unwrap();
        results.publish("a", 1).await.unwrap();
        let dead = bench.connection.results_consumer::<u32>(RUN).await.unwrap();
        std::mem::forget(claim_one(&dead).await);
        let anew = bench.connection.results_consumer::<u32>(RUN).await.unwrap();
        assert_eq!(claim_one(&anew).await.id(), "a");
    }

    async fn closing_gives_back_what_is_held(program) {
        let bench = Bench::new(program, long_lease()).await;
        let publisher = bench.publisher::<u32>().await;
        let leaving = connect(&bench.server, Layout::default()).await;
        let queue = leaving.shard_consumer::<u32>(SHARD).await.unwrap();
        publisher.publish("a", 1).await.unwrap();
        let lease = claim_one(&queue).await;
        drop(lease);
        leaving.close().await;
        assert!(timeout(LONG, queue.claim(1)).await.unwrap().unwrap().is_empty());
        assert_eq!(claim_one(&bench.consumer::<u32>().await).await.deliveries(), 2);
    }
}

/// Generates text that compresses poorly.
pub(crate) fn noise(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b' ' + u8::try_from(state % 90).unwrap())
        })
        .collect::<String>()
        .replace(['"', '\\'], "'")
}

const GIB: i64 = 1 << 30;

/// Starts a server with a store of `bytes` bytes and sets it up. Returns it with the number of bytes that its
/// streams reserve.
async fn set_up(program: &std::path::Path, bytes: i64) -> Result<(NatsServer, Server, i64), NatsError> {
    let server = NatsServer::configured(program, &format!("jetstream {{ max_file_store: {bytes} }}"));
    let connection = connect(&server, Layout::default()).await;
    connection.ensure().await?;
    let streams = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let mut reserved = 0;
    for name in ["lumos-2-work", "lumos-2-results", "lumos-2-room"] {
        reserved += streams.get_stream(name).await.unwrap().cached_info().config.max_bytes;
    }
    Ok((server, connection, reserved))
}

on_servers! {
    // Regression test: work and results reserved 16 and 4 GiB, so that no bucket could be created.
    async fn a_store_of_exactly_twenty_gibibytes_has_room_for_the_buckets(program) {
        let (_server, connection, reserved) = set_up(program, 20 * GIB).await.unwrap();
        assert!(reserved <= 20 * GIB, "{reserved}");
        connection.check().await.unwrap();
        let (runs, workers) = (connection.runs().await.unwrap(), connection.workers().await.unwrap());
        let (owners, status) = (connection.owners().await.unwrap(), connection.status().await.unwrap());
        for bucket in [runs, workers, owners, status] {
            bucket.put(RUN, b"value").await.unwrap();
        }
        connection.shared().await.unwrap().put(&[7; 4096]).await.unwrap();
        // Setting it up again changes nothing.
        connection.ensure().await.unwrap();
    }

    async fn stores_of_any_size_are_divided(program) {
        for bytes in [GIB / 2, GIB, 16 * GIB, 24 * GIB, 64 * GIB] {
            let (_server, connection, reserved) = set_up(program, bytes).await.unwrap();
            assert!(reserved <= bytes, "{reserved} of {bytes}");
            connection.check().await.unwrap();
        }
    }

    async fn too_little_room_is_said_with_numbers(program) {
        let error = set_up(program, 150 << 20).await.map(|_| ()).unwrap_err();
        assert!(matches!(error, NatsError::Unsuitable(_)), "{error}");
        let message = error.to_string();
        for part in ["lumos-2-work", "at least 64 MiB", "lumos-2-room 64 MiB", "max_file_store", "nats stream edit"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}
