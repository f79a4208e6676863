//! Contract tests that every queue passes. Add a new queue to `contract!`.

use std::any::Any;
use std::path::Path;
use std::time::Duration;

use crate::nats_server::NatsServer;
use lumos_queue::nats::{Access, Connecting, Layout, Server};
use lumos_queue::{Lease, MemoryQueue, Queue, QueueError};
use proptest::prelude::*;
use tokio::time::{Instant, sleep, timeout};

const SOON: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(120);
/// Duration of a lease that expires during a test.
const TERM: Duration = Duration::from_secs(3);

/// A queue under test.
struct Fixture {
    publisher: Box<dyn Queue<u32>>,
    claimer: Box<dyn Queue<u32>>,
    /// Time without a message after which the queue is considered empty.
    soon: Duration,
    /// Duration of leases, if they expire.
    term: Option<Duration>,
    /// Values that must live as long as the queue.
    _rest: Box<dyn Any>,
}

impl Fixture {
    async fn publish(&self, count: u32) {
        for number in 0..count {
            self.publisher.publish(&number.to_string(), number).await.unwrap();
        }
    }

    /// Claims `count` messages, and checks that no claim returns more than requested.
    async fn claim(&self, count: usize) -> Vec<Lease<u32>> {
        let mut leases = Vec::new();
        timeout(LONG, async {
            while leases.len() < count {
                let more = self.claimer.claim(count - leases.len()).await.unwrap();
                assert!(!more.is_empty() && leases.len() + more.len() <= count);
                leases.extend(more);
            }
        })
        .await
        .expect("timed out waiting for messages");
        leases
    }

    async fn claim_one(&self) -> Lease<u32> {
        self.claim(1).await.remove(0)
    }

    async fn nothing_comes(&self) -> bool {
        timeout(self.soon, self.claimer.claim(1)).await.is_err()
    }
}

async fn memory(_term: Duration) -> Option<Fixture> {
    let queue = MemoryQueue::bounded(64);
    Some(Fixture {
        publisher: Box::new(queue.clone()),
        claimer: Box::new(queue),
        soon: SOON,
        term: None,
        _rest: Box::new(()),
    })
}

async fn nats(term: Duration) -> Option<Fixture> {
    Some(over_nats(&crate::nats_server::program()?, term).await)
}

async fn nats_current(term: Duration) -> Option<Fixture> {
    Some(over_nats(&crate::nats_server::current_program()?, term).await)
}

async fn over_nats(program: &Path, term: Duration) -> Fixture {
    let server = NatsServer::with_jetstream(program);
    let layout = Layout { lease: term, ..Layout::default() };
    let connecting = Connecting { name: "contract".to_owned(), patience: Some(LONG), layout };
    let connection = Server::connect(&Access::new(&server.url()).unwrap(), connecting).await.unwrap();
    connection.ensure().await.unwrap();
    let publisher =
        connection.shard_publisher::<u32>("00000000000000aa.5", "00000000000000bb").await.unwrap();
    let claimer = connection.shard_consumer::<u32>("00000000000000aa.5").await.unwrap();
    Fixture {
        publisher: Box::new(publisher),
        claimer: Box::new(claimer),
        soon: Duration::from_millis(400),
        term: Some(term),
        _rest: Box::new((connection, server)),
    }
}

macro_rules! contract {
    ($($name:ident),* $(,)?) => { $( mod $name {
        use super::*;

        macro_rules! queue {
            () => { queue!(LONG * 10) };
            ($term:expr) => { match super::$name($term).await { Some(queue) => queue, None => return } };
        }

        #[tokio::test]
        async fn a_claim_gives_at_most_what_is_asked_for_and_an_acknowledgement_ends_a_message() {
            let queue = queue!();
            queue.publish(3).await;
            let two = queue.claim(2).await;
            assert_eq!(two.len(), 2);
            let mut seen = Vec::new();
            for lease in two {
                assert_eq!((lease.id().to_owned(), lease.deliveries()), (lease.body().to_string(), 1));
                seen.push(*lease.body());
                lease.acknowledge().await.unwrap();
            }
            let rest = timeout(LONG, queue.claimer.claim(9)).await.unwrap().unwrap();
            assert_eq!(rest.len(), 1);
            seen.push(*rest[0].body());
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        }

        #[tokio::test]
        async fn nothing_asked_for_is_nothing_given() {
            let queue = queue!();
            queue.publish(1).await;
            assert!(queue.claimer.claim(0).await.unwrap().is_empty());
            assert_eq!(queue.claim(1).await.len(), 1);
        }

        #[tokio::test]
        async fn a_dropped_lease_is_delivered_again() {
            let queue = queue!();
            queue.publish(1).await;
            drop(queue.claim_one().await);
            let again = queue.claim_one().await;
            assert_eq!(again.deliveries(), 2);
            again.release();
            assert_eq!(queue.claim_one().await.deliveries(), 3);
        }

        #[tokio::test]
        async fn a_cancelled_task_gives_its_lease_back() {
            let queue = queue!();
            queue.publish(1).await;
            let lease = queue.claim_one().await;
            let task = tokio::spawn(async move {
                let _held = lease;
                std::future::pending::<()>().await;
            });
            tokio::task::yield_now().await;
            task.abort();
            let _ = task.await;
            assert_eq!(queue.claim_one().await.deliveries(), 2);
        }

        #[tokio::test]
        async fn a_dropped_claim_loses_nothing() {
            let queue = queue!();
            for _ in 0..5 {
                assert!(timeout(SOON, queue.claimer.claim(2)).await.is_err());
            }
            queue.publish(4).await;
            let mut seen: Vec<u32> = queue.claim(4).await.iter().map(|lease| *lease.body()).collect();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3]);
        }

        #[tokio::test]
        async fn a_claim_waits_for_what_is_published_later() {
            let queue = queue!();
            let (leases, ()) = tokio::join!(queue.claim(1), async {
                sleep(SOON).await;
                queue.publish(1).await;
            });
            assert_eq!(leases.len(), 1);
        }

        #[tokio::test]
        async fn a_buried_message_is_gone() {
            let queue = queue!();
            queue.publish(1).await;
            queue.claim_one().await.terminate().await.unwrap();
            assert!(queue.nothing_comes().await);
        }

        #[tokio::test]
        async fn publishing_an_id_twice_is_harmless() {
            let queue = queue!();
            queue.publish(2).await;
            queue.publish(2).await;
            let leases = queue.claim(2).await;
            let twice = (0..2).chain(0..2).map(|number: u32| (number.to_string(), number)).collect();
            queue.publisher.publish_all(twice).await.unwrap();
            assert!(queue.nothing_comes().await, "they are leased, so they are not queued again");
            assert_ne!(leases[0].id(), leases[1].id());
        }

        #[tokio::test]
        async fn an_acknowledged_id_can_be_published_again() {
            let queue = queue!();
            queue.publish(1).await;
            queue.claim_one().await.acknowledge().await.unwrap();
            let deadline = Instant::now() + LONG;
            loop {
                assert!(Instant::now() < deadline);
                queue.publish(1).await;
                if !queue.nothing_comes().await {
                    break;
                }
            }
        }

        #[tokio::test]
        async fn a_held_lease_can_be_extended_beyond_its_term() {
            let queue = queue!(TERM);
            queue.publish(1).await;
            let lease = queue.claim_one().await;
            for _ in 0..15 {
                lease.extend().await.unwrap();
                if let Some(term) = queue.term {
                    sleep(term / 10).await;
                }
            }
            assert!(queue.nothing_comes().await);
            lease.extend().await.unwrap();
            lease.acknowledge().await.unwrap();
            assert!(queue.nothing_comes().await);
        }

        #[tokio::test]
        async fn a_lease_that_ran_out_is_delivered_again() {
            let queue = queue!(TERM);
            let Some(term) = queue.term else { return };
            queue.publish(1).await;
            let late = queue.claim_one().await;
            sleep(term + SOON).await;
            assert_eq!(late.extend().await, Err(QueueError::LeaseLost("0".to_owned())));
            let second = queue.claim_one().await;
            assert!(second.deliveries() >= 2);
            // The first holder returns a lease that it no longer holds.
            drop(late);
            assert!(queue.nothing_comes().await);
        }

        #[tokio::test]
        async fn a_closed_queue_takes_nothing() {
            let queue = queue!();
            queue.publisher.close();
            assert_eq!(queue.publisher.publish("x", 9).await, Err(QueueError::Closed));
            queue.claimer.close();
            assert!(timeout(LONG, queue.claimer.claim(1)).await.unwrap().unwrap().is_empty());
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn many_claimers_share_all_messages() {
            let queue = queue!();
            let taken = std::sync::Mutex::new(Vec::new());
            let claimer = || async {
                while taken.lock().unwrap().len() < 500 {
                    let Ok(leases) = timeout(queue.soon, queue.claimer.claim(3)).await else { continue };
                    let leases = leases.unwrap();
                    assert!(leases.len() <= 3);
                    for lease in leases {
                        taken.lock().unwrap().push(*lease.body());
                        lease.acknowledge().await.unwrap();
                    }
                }
            };
            timeout(LONG, async { tokio::join!(queue.publish(500), claimer(), claimer(), claimer(), claimer()) })
                .await
                .unwrap();
            let mut taken = taken.into_inner().unwrap();
            taken.sort_unstable();
            assert_eq!(taken, (0..500).collect::<Vec<u32>>());
        }
    } )* };
}

contract!(memory, nats, nats_current);

async fn published(queue: &impl Queue<u32>, count: u32) {
    for number in 0..count {
        queue.publish(&number.to_string(), number).await.unwrap();
    }
}

#[tokio::test]
async fn the_memory_queue_delivers_in_order() {
    let queue = MemoryQueue::bounded(8);
    published(&queue, 3).await;
    let leases = queue.claim(2).await.unwrap();
    assert_eq!(leases.iter().map(|lease| *lease.body()).collect::<Vec<_>>(), [0, 1]);
}

#[tokio::test]
async fn a_closed_memory_queue_is_emptied_and_then_says_so() {
    let queue = MemoryQueue::bounded(8);
    published(&queue, 1).await;
    queue.close();
    let lease = queue.claim(1).await.unwrap().remove(0);
    assert!(timeout(SOON, queue.claim(1)).await.is_err(), "a leased message may be returned");
    lease.acknowledge().await.unwrap();
    assert!(queue.claim(1).await.unwrap().is_empty());
}

#[tokio::test]
async fn publishing_to_a_full_memory_queue_waits_for_room() {
    let queue = MemoryQueue::bounded(2);
    published(&queue, 2).await;
    assert!(timeout(SOON, queue.publish("2", 2)).await.is_err());
    let lease = queue.claim(1).await.unwrap().remove(0);
    timeout(SOON, queue.publish("2", 2)).await.unwrap().unwrap();
    lease.acknowledge().await.unwrap();
}
proptest! {
    /// For any sequence of operations on leases, every message is acknowledged exactly once.
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
