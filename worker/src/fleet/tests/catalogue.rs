//! Runs that appear, change and end, and invalid notices.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use lumos_queue::nats::{Change, NatsError};
use lumos_tasks::fleet::{NEWEST, PROTOCOL, RunState, ShardId, WorkMessage};
use lumos_tasks::{Configuration, ContentHash};
use tokio_util::sync::CancellationToken;

use super::support::{MemoryShared, Run, assignment, configuration, identity, script};
use crate::Runs;
use crate::fleet::catalogue::{Catalogue, Unpacking};
use crate::fleet::source::SharedStore;

fn run() -> (tempfile::TempDir, Run) {
    let folder = tempfile::tempdir().unwrap();
    let configuration = configuration(identity(&script(folder.path(), "one", 1, 0)));
    (folder, Run::new("run", vec![configuration]))
}

fn update(catalogue: &Catalogue, run: &Run) {
    catalogue.update(run.token().as_str(), Some(&run.written()));
}

#[test]
fn a_run_is_served_once_its_shared_inputs_are_here() {
    let (_folder, mut run) = run();
    let catalogue = Catalogue::default();
    run.notice.time_limit = Some(7.5);
    assert_eq!(catalogue.unpack(&run.notice.shards[0], &run.message(0, 0)), Err(Unpacking::Unknown));
    update(&catalogue, &run);
    assert_eq!(catalogue.unpack(&run.notice.shards[0], &run.message(0, 0)), Err(Unpacking::Unknown));
    assert!(catalogue.shards().is_empty());
    assert_eq!(catalogue.wanted().into_iter().collect::<Vec<_>>(), [run.notice.shared.clone()]);

    catalogue.supply(&run.notice.shared, Ok(run.shared.clone()));
    assert!(catalogue.wanted().is_empty());
    let unpacked = catalogue.unpack(&run.notice.shards[0], &run.message(0, 0)).unwrap();
    assert_eq!(unpacked.unit, assignment(&run.configurations[0], 0).unit);
    assert_eq!(unpacked.run.as_ref(), Some(run.token()));
    assert_eq!(catalogue.shards()[0].id, run.notice.shards[0]);
    let terms = catalogue.terms(Some(run.token()));
    assert_eq!(terms.limits.time.unwrap().as_secs_f64(), 7.5);
    assert!(!terms.cancelled.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_bucket_is_followed_and_what_is_missing_is_asked_for_again() {
    let (_folder, run) = run();
    let catalogue = Arc::new(Catalogue::default());
    let store = Arc::new(MemoryShared::default());
    let value = Some(run.written().into());
    let change = Change { key: run.token().to_string(), value, revision: 1 };
    let changes = futures::stream::iter([change.clone(), change]).chain(futures::stream::pending());
    let stop = CancellationToken::new();
    let following =
        tokio::spawn(Arc::clone(&catalogue).follow(changes, Arc::clone(&store) as _, stop.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(catalogue.shards().is_empty());
    store.0.lock().unwrap().insert(run.notice.shared.to_string(), run.shared.clone());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(catalogue.shards().len(), 1);
    stop.cancel();
    following.await.unwrap();
}

/// A store without content, which either replies so or never replies. Counts the requests.
struct Empty {
    replies: bool,
    asked: AtomicUsize,
}

#[async_trait]
impl SharedStore for Empty {
    async fn get(&self, _hash: &ContentHash) -> Result<Vec<u8>, NatsError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.replies { Err(NatsError::Missing("not found".to_owned())) } else { pending().await }
    }
}

/// Follows these notices for a minute. Returns the catalogue and the number of requests to the store.
async fn followed(notices: Vec<Vec<u8>>, run: &Run, replies: bool) -> (Arc<Catalogue>, usize) {
    let catalogue = Arc::new(Catalogue::default());
    let store = Arc::new(Empty { replies, asked: AtomicUsize::new(0) });
    let key = run.token().to_string();
    let change = move |value: Vec<u8>| Change { key: key.clone(), value: Some(value.into()), revision: 1 };
    let changes = futures::stream::iter(notices).map(change).chain(futures::stream::pending());
    let stop = CancellationToken::new();
    let following =
        tokio::spawn(Arc::clone(&catalogue).follow(changes, Arc::clone(&store) as _, stop.clone()));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.cancel();
    following.await.unwrap();
    (catalogue, store.asked.load(Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_while_its_inputs_are_fetched() {
    let (_folder, mut run) = run();
    let active = run.written();
    run.notice.state = RunState::Cancelled;
    let (catalogue, asked) = followed(vec![active, run.written()], &run, false).await;
    assert_eq!(catalogue.state_of(run.token()), Some(RunState::Cancelled));
    assert!(asked <= 1, "{asked} requests");
}

#[tokio::test(start_paused = true)]
async fn missing_inputs_are_asked_for_at_growing_intervals() {
    let (_folder, run) = run();
    let (catalogue, asked) = followed(vec![run.written(); 1000], &run, true).await;
    assert_eq!(catalogue.wanted().len(), 1);
    assert!((5..=8).contains(&asked), "{asked} requests in a minute");
}

#[test]
fn runs_with_the_same_configurations_add_them_once() {
    let (_folder, one) = run();
    let other = Arc::new(Configuration { seed: 9, ..(*one.configurations[0]).clone() });
    let both = vec![Arc::clone(&one.configurations[0]), other];
    let runs = [
        one,
        Run::new("same", vec![Arc::clone(&both[0])]),
        Run::with_priority("urgent", vec![Arc::clone(&both[0])], 1),
        Run::new("more", both),
    ];
    let catalogue = Catalogue::default();
    for run in &runs {
        update(&catalogue, run);
        catalogue.supply(&run.notice.shared, Ok(run.shared.clone()));
    }
    let shards = catalogue.shards();
    let sizes: BTreeMap<&ShardId, usize> =
        shards.iter().map(|shard| (&shard.id, shard.configurations.len())).collect();
    let expected = [(&runs[2].notice.shards[0], 2), (&runs[0].notice.shards[0], 2)];
    assert_eq!(sizes, BTreeMap::from(expected));
}

/// Otherwise the spooled results of a run whose notice is written again would be lost.
#[test]
fn a_run_without_a_notice_has_not_ended() {
    let (_folder, mut run) = run();
    let catalogue = Catalogue::default();
    update(&catalogue, &run);
    catalogue.update(run.token().as_str(), None);
    assert!(catalogue.terms(Some(run.token())).cancelled.is_cancelled());
    assert!(!catalogue.has_ended(run.token()));
    run.notice.state = RunState::Ended;
    update(&catalogue, &run);
    assert!(catalogue.has_ended(run.token()));
}

#[test]
fn a_cancelled_run_is_over_and_may_be_taken_up_again() {
    let (_folder, mut run) = run();
    let catalogue = Catalogue::default();
    update(&catalogue, &run);
    catalogue.supply(&run.notice.shared, Ok(run.shared.clone()));
    let terms = catalogue.terms(Some(run.token()));
    for over in [RunState::Cancelled, RunState::Ended] {
        run.notice.state = over;
        update(&catalogue, &run);
        assert!(terms.cancelled.is_cancelled() && catalogue.shards().is_empty());
        assert_eq!(catalogue.unpack(&run.notice.shards[0], &run.message(0, 0)), Err(Unpacking::Over));
    }
    run.notice.state = RunState::Active;
    update(&catalogue, &run);
    assert!(!catalogue.terms(Some(run.token())).cancelled.is_cancelled());
    let terms = catalogue.terms(Some(run.token()));
    catalogue.update(run.token().as_str(), None);
    assert!(terms.cancelled.is_cancelled(), "a deleted notice ends the run");
}

#[test]
fn other_protocols_and_nonsense_are_left_alone() {
    let (_folder, mut run) = run();
    let catalogue = Catalogue::default();
    run.notice.protocol = NEWEST + 1;
    update(&catalogue, &run);
    catalogue.update(run.token().as_str(), Some(b"{\"protocol\":5,\"name\":17}"));
    catalogue.update(run.token().as_str(), Some(b"\xff\x00 no notice"));
    run.notice.protocol = PROTOCOL;
    catalogue.update("00000000000000ff", Some(&run.written()));
    assert_eq!(catalogue.state_of(run.token()), None);
    assert!(catalogue.wanted().is_empty() && catalogue.shards().is_empty());
    run.notice.protocol = NEWEST;
    update(&catalogue, &run);
    assert!(catalogue.state_of(run.token()).is_some(), "both versions are served");
    run.notice.protocol = PROTOCOL;

    // Shared inputs that are missing or invalid.
    update(&catalogue, &run);
    catalogue.supply(&run.notice.shared, Err(NatsError::Missing("not yet".to_owned())));
    assert_eq!(catalogue.wanted().len(), 1, "requested again");
    catalogue.supply(&run.notice.shared, Ok(b"nonsense".to_vec()));
    assert!(catalogue.wanted().is_empty() && catalogue.shards().is_empty());
}

#[test]
fn units_that_are_not_what_they_say_are_told() {
    let (_folder, run) = run();
    let catalogue = Catalogue::default();
    update(&catalogue, &run);
    catalogue.supply(&run.notice.shared, Ok(run.shared.clone()));
    let mut message: WorkMessage = run.message(0, 0);
    message.work.item.occurrence += 1;
    assert!(matches!(catalogue.unpack(&run.notice.shards[0], &message), Err(Unpacking::Bad(_))));
    let other = Run::new(
        "run",
        vec![Arc::new(lumos_tasks::Configuration { seed: 9, ..(*run.configurations[0]).clone() })],
    );
    assert!(matches!(
        catalogue.unpack(&other.notice.shards[0], &other.message(0, 0)),
        Err(Unpacking::Bad(_))
    ));
}
