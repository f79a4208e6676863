//! What every queue promises. A new queue adds itself to `queues!`.

use std::time::Duration;

use lumos_queue::{MemoryQueue, Queue, QueueError};
use proptest::prelude::*;
use tokio::time::timeout;

const SOON: Duration = Duration::from_millis(50);

async fn published(queue: &impl Queue<u32>, count: u32) {
    for number in 0..count {
        queue.publish(&number.to_string(), number).await.unwrap();
    }
}

macro_rules! contract {
    ($($name:ident => $queue:expr),* $(,)?) => { $( mod $name {
        use super::*;

        #[tokio::test]
        async fn delivers_in_order_and_ends_on_acknowledge() {
            let queue = $queue;
            published(&queue, 3).await;
            let leases = queue.claim(2).await.unwrap();
            assert_eq!(leases.iter().map(|lease| *lease.body()).collect::<Vec<_>>(), [0, 1]);
            for lease in leases {
                lease.acknowledge().await.unwrap();
            }
            let rest = queue.claim(9).await.unwrap();
            assert_eq!(rest.len(), 1);
            assert_eq!((rest[0].id(), rest[0].deliveries()), ("2", 1));
        }

        #[tokio::test]
        async fn a_dropped_lease_is_delivered_again() {
            let queue = $queue;
            published(&queue, 1).await;
            drop(queue.claim(1).await.unwrap());
            let again = queue.claim(1).await.unwrap().remove(0);
            assert_eq!(again.deliveries(), 2);
            again.release();
            assert_eq!(queue.claim(1).await.unwrap()[0].deliveries(), 3);
        }

        #[tokio::test]
        async fn a_cancelled_task_gives_its_lease_back() {
            let queue = $queue;
            published(&queue, 1).await;
            let lease = queue.claim(1).await.unwrap();
            let task = tokio::spawn(async move {
                let _held = lease;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            task.abort();
            let _ = task.await;
            assert_eq!(timeout(SOON, queue.claim(1)).await.unwrap().unwrap().len(), 1);
        }

        #[tokio::test]
        async fn a_buried_message_is_gone() {
            let queue = $queue;
            published(&queue, 1).await;
            queue.claim(1).await.unwrap().remove(0).bury().await.unwrap();
            assert!(timeout(SOON, queue.claim(1)).await.is_err());
        }

        #[tokio::test]
        async fn publishing_an_id_twice_is_harmless() {
            let queue = $queue;
            published(&queue, 1).await;
            published(&queue, 1).await;
            let leases = queue.claim(9).await.unwrap();
            assert_eq!(leases.len(), 1);
            published(&queue, 1).await;
            assert!(timeout(SOON, queue.claim(1)).await.is_err(), "it is leased, so it is not queued again");
        }

        #[tokio::test]
        async fn a_closed_queue_is_emptied_and_then_says_so() {
            let queue = $queue;
            published(&queue, 1).await;
            queue.close();
            assert_eq!(queue.publish("x", 9).await, Err(QueueError::Closed));
            let lease = queue.claim(1).await.unwrap().remove(0);
            assert!(timeout(SOON, queue.claim(1)).await.is_err(), "what is leased may come back");
            lease.acknowledge().await.unwrap();
            assert!(queue.claim(1).await.unwrap().is_empty());
        }

        #[tokio::test]
        async fn a_held_lease_can_be_extended() {
            let queue = $queue;
            published(&queue, 1).await;
            queue.claim(1).await.unwrap()[0].extend().await.unwrap();
        }
    } )* };
}

contract! {
    memory => MemoryQueue::bounded(64),
}

#[tokio::test]
async fn publishing_waits_for_room() {
    let queue = MemoryQueue::bounded(2);
    published(&queue, 2).await;
    assert!(timeout(SOON, queue.publish("2", 2)).await.is_err());
    let lease = queue.claim(1).await.unwrap().remove(0);
    timeout(SOON, queue.publish("2", 2)).await.unwrap().unwrap();
    lease.acknowledge().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_claimers_share_all_messages() {
    let queue = MemoryQueue::bounded(16);
    let claimers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let leases = queue.claim(3).await.unwrap();
                    if leases.is_empty() {
                        return taken;
                    }
                    for lease in leases {
                        taken.push(*lease.body());
                        lease.acknowledge().await.unwrap();
                    }
                }
            })
        })
        .collect();
    published(&queue, 500).await;
    queue.close();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    all.sort_unstable();
    assert_eq!(all, (0..500).collect::<Vec<u32>>());
}

proptest! {
    /// Whatever is done with leases, every message is acknowledged once in the end.
    #[test]
    fn nothing_is_lost(choices in proptest::collection::vec(0u8..3, 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let queue = MemoryQueue::bounded(64);
            published(&queue, 10).await;
            queue.close();
            let mut done = Vec::new();
            for choice in choices {
                if done.len() == 10 {
                    break;
                }
                let lease = queue.claim(1).await.unwrap().remove(0);
                match choice {
                    0 => drop(lease),
                    1 => lease.release(),
                    _ => {
                        done.push(*lease.body());
                        lease.acknowledge().await.unwrap();
                    }
                }
            }
            for lease in queue.claim(64).await.unwrap() {
                done.push(*lease.body());
                lease.acknowledge().await.unwrap();
            }
            done.sort_unstable();
            assert_eq!(done, (0..10).collect::<Vec<u32>>());
        });
    }
}
