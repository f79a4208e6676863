//! Tests of bodies above the message limit, and of shared inputs.

use lumos_queue::QueueError;
use lumos_queue::nats::NatsError;

use super::queues::noise;
use super::*;

/// Returns the number of messages in the bucket of message bodies.
pub(crate) async fn stored(bench: &Bench) -> u64 {
    let plain = async_nats::jetstream::new(bench.plain().await);
    plain.get_stream("OBJ_lumos-2-payloads").await.unwrap().cached_info().state.messages
}

/// Claims `count` messages with this body and acknowledges them. A claim has at most `most`.
async fn claim_in_parts(consumer: &NatsQueue<String>, body: &str, count: usize, most: usize) {
    let mut seen = Vec::new();
    while seen.len() < count {
        let leases = timeout(LONG, consumer.claim(256)).await.unwrap().unwrap();
        assert!((1..=most).contains(&leases.len()), "{} messages in a claim", leases.len());
        for lease in leases {
            assert!(lease.body() == body);
            seen.push(lease.id().to_owned());
            lease.acknowledge().await.unwrap();
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

on_servers! {
    async fn large_bodies_go_through_the_object_store_and_leave_it(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<String>().await, bench.consumer::<String>().await);
        let body = noise(2 << 20);
        publisher.publish("large", body.clone()).await.unwrap();
        publisher.publish("large", body.clone()).await.unwrap();
        publisher.publish("small", "small".to_owned()).await.unwrap();
        let chunks = stored(&bench).await;
        assert!(chunks > 8, "{chunks}");
        let mut leases = Vec::new();
        while leases.len() < 2 {
            leases.extend(timeout(LONG, consumer.claim(2)).await.unwrap().unwrap());
        }
        let large = leases.iter().find(|lease| lease.id() == "large").unwrap();
        assert!(*large.body() == body);
        for lease in leases {
            lease.acknowledge().await.unwrap();
        }
        assert_eq!(stored(&bench).await, 0);
    }

    async fn a_large_body_survives_being_given_back_and_leaves_when_buried(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<String>().await, bench.consumer::<String>().await);
        publisher.publish("large", noise(2 << 20)).await.unwrap();
        drop(claim_one(&consumer).await);
        let lease = claim_one(&consumer).await;
        assert_eq!((lease.deliveries(), lease.body().len()), (2, 2 << 20));
        lease.terminate().await.unwrap();
        assert_eq!(stored(&bench).await, 0);
    }

    async fn a_large_body_is_published_again_once_its_deleted_bucket_is_back(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let publisher = bench.publisher::<String>().await;
        let plain = async_nats::jetstream::new(bench.plain().await);
        plain.delete_stream("OBJ_lumos-2-payloads").await.unwrap();
        let gone = publisher.publish("large", noise(2 << 20)).await;
        assert!(matches!(&gone, Err(QueueError::Gone(why)) if why.contains("lumos-2-payloads")), "{gone:?}");
        bench.connection.ensure().await.unwrap();
        publisher.publish("large", noise(2 << 20)).await.unwrap();
    }

    async fn bodies_above_the_limit_are_refused(program) {
        let bench = Bench::new(program, Layout { body_limit: 1000, ..Layout::default() }).await;
        let refused = bench.publisher::<String>().await.publish("a", "x".repeat(1000)).await;
        assert_eq!(refused, Err(QueueError::TooLarge { id: "a".to_owned(), bytes: 1002, limit: 1000 }));
    }

    // Regression test: 256 messages of a few kilobytes each were decoded to 16 GiB.
    async fn bodies_of_a_claim_have_at_most_the_limit_of_one(program) {
        let layout = Layout { body_limit: 1 << 20, ..long_lease() };
        let bench = Bench::new(program, layout).await;
        let (publisher, consumer) = (bench.publisher::<String>().await, bench.consumer::<String>().await);
        let body = " ".repeat(300 << 10);
        for number in 0..10 {
            publisher.publish(&number.to_string(), body.clone()).await.unwrap();
        }
        claim_in_parts(&consumer, &body, 10, 3).await;
    }

    async fn large_bodies_are_fetched_a_few_at_a_time(program) {
        let layout = Layout { body_limit: 4 << 20, ..long_lease() };
        let bench = Bench::new(program, layout).await;
        let (publisher, consumer) = (bench.publisher::<String>().await, bench.consumer::<String>().await);
        let body = noise(3 << 19);
        for number in 0..12 {
            publisher.publish(&number.to_string(), body.clone()).await.unwrap();
        }
        claim_in_parts(&consumer, &body, 12, 2).await;
        assert_eq!(stored(&bench).await, 0);
    }

    async fn what_is_shared_is_stored_under_its_hash(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let blobs = bench.connection.shared().await.unwrap();
        let bytes = noise(3 << 20).into_bytes();
        let hash = blobs.put(&bytes).await.unwrap();
        assert_eq!(blobs.put(&bytes).await.unwrap(), hash);
        assert!(blobs.get(&hash).await.unwrap() == bytes);
        assert_eq!(blobs.get(&blobs.put(b"").await.unwrap()).await.unwrap(), b"");
        assert!(matches!(blobs.get(&"0".repeat(64)).await, Err(NatsError::Missing(_))));
        // A corrupt object is not returned, and can be stored again.
        let plain = async_nats::jetstream::new(bench.plain().await);
        let stream = plain.get_stream("OBJ_lumos-2-shared").await.unwrap();
        stream.delete_message(3).await.unwrap();
        assert!(blobs.get(&hash).await.is_err());
        blobs.put(&bytes).await.unwrap();
        assert!(blobs.get(&hash).await.unwrap() == bytes);
    }
}
