//! Tests with servers that are killed.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use lumos_queue::QueueError;

use super::*;

on_servers! {
    async fn a_claim_survives_a_restart(program) {
        let mut bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        let before = bench.connection.connection().borrow().reconnections;
        let waiting = tokio::spawn(async move { claim_one(&consumer).await.id().to_owned() });
        sleep(Duration::from_millis(300)).await;
        bench.server.kill();
        eventually("the lost connection is detected", async || !bench.connection.is_connected()).await;
        bench.server.restart();
        let mut connection = bench.connection.connection();
        timeout(LONG, connection.wait_for(|state| state.connected && state.reconnections > before)).await.unwrap().unwrap();
        publisher.publish("a", 1).await.unwrap();
        assert_eq!(timeout(LONG, waiting).await.unwrap().unwrap(), "a");
    }

    async fn a_server_that_stays_away_is_told(program) {
        let mut bench = Bench::new(program, Layout::default()).await;
        let (publisher, consumer) = (bench.publisher::<u32>().await, bench.consumer::<u32>().await);
        publisher.publish("a", 1).await.unwrap();
        let lease = claim_one(&consumer).await;
        bench.server.kill();
        eventually("the lost connection is detected", async || !bench.connection.is_connected()).await;
        assert!(matches!(lease.extend().await, Err(QueueError::Unreachable(_))));
        assert!(matches!(publisher.publish("b", 2).await, Err(QueueError::Unreachable(_))));
    }

    async fn nothing_that_was_confirmed_is_lost_when_the_server_is_killed(program) {
        const COUNT: u32 = 3000;
        let mut bench = Bench::new(program, short_lease()).await;
        let publisher = bench.publisher::<u32>().await;
        let consumers = [bench.consumer::<u32>().await, bench.consumer::<u32>().await];
        let seen = Mutex::new(HashSet::new());
        let published = AtomicBool::new(false);
        let publishing = async {
            for start in (0..COUNT).step_by(100) {
                let batch: Vec<(String, u32)> = (start..start + 100).map(|number| (number.to_string(), number)).collect();
                while let Err(error) = publisher.publish_all(batch.clone()).await {
                    assert!(matches!(error, QueueError::Unreachable(_)), "{error}");
                }
                sleep(Duration::from_millis(20)).await;
            }
            published.store(true, Ordering::Relaxed);
        };
        let claiming = async |consumer: &NatsQueue<u32>| {
            let all = || published.load(Ordering::Relaxed) && seen.lock().unwrap().len() == COUNT as usize;
            while !all() {
                let Ok(leases) = timeout(Duration::from_millis(500), consumer.claim(8)).await else { continue };
                for lease in leases.unwrap() {
                    seen.lock().unwrap().insert(*lease.body());
                    let _ = lease.acknowledge().await;
                }
            }
        };
        let killing = async {
            for _ in 0..3 {
                sleep(Duration::from_millis(400)).await;
                bench.server.restart();
            }
        };
        let all = async { tokio::join!(publishing, claiming(&consumers[0]), claiming(&consumers[1]), killing) };
        let done = timeout(Duration::from_secs(90), all).await.is_ok();
        let seen = seen.into_inner().unwrap();
        assert!(done, "{} of {COUNT} messages were delivered; the stream holds {:?}", seen.len(), bench.connection.work_present(RUN).await.map(|ids| ids.len()));
    }
}
