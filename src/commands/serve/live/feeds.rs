//! The latest state of every run and of the list of runs, and the events of one client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{Stream, stream};
use lumos_reports::live::{LiveRun, LiveWorker, delta, openmetrics};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// A state as clients receive it.
#[derive(Debug, Clone)]
struct State {
    sequence: u64,
    fields: Map<String, Value>,
    has_ended: bool,
}

type Feed = watch::Sender<Option<Arc<State>>>;

/// An event for a client.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PageEvent {
    /// `snapshot`: all fields. `delta`: the fields that have changed. `end`: the run is complete, and
    /// its session has ended.
    pub(super) kind: &'static str,
    /// Number of the state.
    pub(super) sequence: u64,
    /// `fields`, and `now_ms`, the clock of this machine.
    pub(super) data: Value,
}

/// The latest states.
#[derive(Debug)]
pub(super) struct Feeds {
    /// By key; the list of runs has the empty key.
    feeds: Mutex<BTreeMap<String, Feed>>,
    latest: Mutex<(Vec<LiveRun>, Vec<LiveWorker>)>,
}

impl Feeds {
    /// Creates the feeds of runs whose state is not known yet.
    pub(super) fn new<'a>(keys: impl Iterator<Item = &'a String>) -> Self {
        let feeds = keys.map(|key| (key.clone(), Feed::default())).collect();
        Self { feeds: Mutex::new(feeds), latest: Mutex::default() }
    }

    /// Publishes the state of all runs, and of all workers on the queue. Runs that are missing have ended their feed.
    pub(super) fn publish(&self, runs: &[LiveRun], workers: &[LiveWorker]) {
        *lock(&self.latest) = (runs.to_vec(), workers.to_vec());
        let mut feeds = lock(&self.feeds);
        feeds.retain(|key, _| key.is_empty() || runs.iter().any(|run| run.key == *key));
        let list = json!({ "runs": runs.iter().map(summary).collect::<Vec<_>>(), "workers": workers });
        update(feeds.entry(String::new()).or_default(), list, false);
        for run in runs {
            let state = serde_json::to_value(run).unwrap_or_default();
            update(feeds.entry(run.key.clone()).or_default(), state, run.has_ended());
        }
    }

    /// Whether this run is known.
    pub(super) fn has(&self, key: &str) -> bool {
        lock(&self.feeds).contains_key(key)
    }

    /// Whether another run is known.
    pub(super) fn has_others(&self, key: &str) -> bool {
        lock(&self.feeds).keys().any(|known| !known.is_empty() && known != key)
    }

    /// Returns the latest state as OpenMetrics text.
    pub(super) fn metrics(&self) -> String {
        let (runs, workers) = &*lock(&self.latest);
        let revision = option_env!("LUMOS_GIT_REVISION").unwrap_or("unknown");
        openmetrics(runs, workers, env!("CARGO_PKG_VERSION"), revision)
    }

    /// Returns the events of a run, or of the list for the empty key: a snapshot, then what changes. They end with the
    /// run, or when `drain` is cancelled. Returns `None` if the run is unknown.
    pub(super) fn events(
        &self,
        key: &str,
        drain: CancellationToken,
    ) -> Option<impl Stream<Item = PageEvent> + use<>> {
        let feed = match key {
            "" => lock(&self.feeds).entry(String::new()).or_default().subscribe(),
            key => lock(&self.feeds).get(key)?.subscribe(),
        };
        let client = Client { feed, drain, sent: None, waiting: VecDeque::new(), ended: false };
        Some(stream::unfold(client, |mut client| async move {
            let event = client.next().await?;
            Some((event, client))
        }))
    }
}

/// What the list shows of a run.
fn summary(run: &LiveRun) -> Value {
    json!({
        "key": run.key,
        "name": run.name,
        "state": run.state,
        "ledger": run.ledger,
        "units_per_second": run.units_per_second,
        "seconds_left": run.seconds_left,
    })
}

/// Replaces the state of a feed if it has changed.
fn update(feed: &Feed, state: Value, has_ended: bool) {
    let Value::Object(fields) = state else { return };
    let sequence = match &*feed.borrow() {
        Some(before) if before.fields == fields && before.has_ended == has_ended => return,
        before => before.as_ref().map_or(1, |before| before.sequence + 1),
    };
    feed.send_replace(Some(Arc::new(State { sequence, fields, has_ended })));
}

/// A client, and the state that it was sent last.
struct Client {
    feed: watch::Receiver<Option<Arc<State>>>,
    drain: CancellationToken,
    sent: Option<Arc<State>>,
    waiting: VecDeque<PageEvent>,
    ended: bool,
}

impl Client {
    async fn next(&mut self) -> Option<PageEvent> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.ended {
                return None;
            }
            let state = self.feed.borrow_and_update().clone();
            if let Some(state) = state {
                self.send(state);
            }
            if self.waiting.is_empty() {
                tokio::select! {
                    biased;
                    () = self.drain.cancelled() => return None,
                    // The run was removed from the queue.
                    changed = self.feed.changed() => changed.ok()?,
                }
            }
        }
    }

    /// Queues the events of a new state.
    fn send(&mut self, state: Arc<State>) {
        let (kind, fields) = match &self.sent {
            None => ("snapshot", state.fields.clone()),
            Some(sent) => ("delta", delta(&sent.fields, &state.fields)),
        };
        let sequence = state.sequence;
        if !fields.is_empty() {
            let now_ms = jiff::Timestamp::now().as_millisecond();
            let data = json!({ "now_ms": now_ms, "fields": fields });
            self.waiting.push_back(PageEvent { kind, sequence, data });
        }
        if state.has_ended {
            self.ended = true;
            self.waiting.push_back(PageEvent { kind: "end", sequence, data: Value::Null });
        }
        self.sent = Some(state);
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use std::pin::pin;

    use futures::{FutureExt, StreamExt};
    use lumos_reports::live::{Heartbeats, LiveState};
    use lumos_tasks::ContentHash;
    use lumos_tasks::fleet::{ConfigurationStatus, PROTOCOL, RunState, RunStatus, RunToken};

    use super::*;

    pub(crate) fn status(answered: u64) -> RunStatus {
        RunStatus {
            protocol: PROTOCOL,
            run: RunToken::of(&ContentHash::of_bytes(b"run")),
            name: "sweep".to_owned(),
            state: RunState::Active,
            host: String::new(),
            configurations: vec![ConfigurationStatus {
                label: "svamp".to_owned(),
                planned: 10,
                answered,
                gave_up: 0,
                faulted: 0,
                correct: None,
            }],
            in_flight: 1,
            duplicates: 0,
            recovered: 0,
            units_per_second: 0.0,
            tokens_per_second: 0.0,
            recent_faults: Vec::new(),
            faults: BTreeMap::new(),
            started_ms: 0,
            written_ms: 0,
        }
    }

    fn run(answered: u64) -> LiveRun {
        LiveRun::of_status(&status(answered), &mut Heartbeats::default(), 0)
    }

    #[tokio::test]
    async fn a_client_gets_a_snapshot_then_changes_then_the_end() {
        let (feeds, drain) = (Feeds::new([].iter()), CancellationToken::new());
        assert!(feeds.events(&run(0).key, drain.clone()).is_none());
        feeds.publish(&[run(0)], &[]);
        let mut events = pin!(feeds.events(&run(0).key, drain.clone()).unwrap());
        let first = events.next().await.unwrap();
        assert_eq!((first.kind, first.sequence), ("snapshot", 1));
        assert_eq!(first.data["fields"]["ledger"]["outstanding"], 10);
        // Equal states are not sent, and missed states are merged.
        for answered in [0, 1, 2, 3] {
            feeds.publish(&[run(answered)], &[]);
        }
        let second = events.next().await.unwrap();
        assert_eq!((second.kind, second.sequence), ("delta", 4));
        let fields = second.data["fields"].as_object().unwrap();
        assert_eq!(fields["ledger"]["answered"], 3);
        assert!(!fields.contains_key("name"), "{fields:?}");
        feeds.publish(&[run(10)], &[]);
        let last: Vec<_> = events.map(|event| event.kind).collect().await;
        assert_eq!(last, ["delta", "end"]);
        assert_eq!(run(10).state, LiveState::Complete);
    }

    #[tokio::test]
    async fn the_events_of_a_complete_run_end_with_its_session() {
        // A process that is killed after the last unit writes no report.
        for report in [true, false] {
            let feeds = Feeds::new([].iter());
            let mut run = run(10);
            run.in_use = true;
            feeds.publish(std::slice::from_ref(&run), &[]);
            let mut events = pin!(feeds.events(&run.key, CancellationToken::new()).unwrap());
            assert_eq!(events.next().await.map(|event| event.kind), Some("snapshot"));
            assert_eq!(events.next().now_or_never(), None);
            (run.in_use, run.report) = (false, report);
            feeds.publish(std::slice::from_ref(&run), &[]);
            let last: Vec<_> = events.map(|event| event.kind).collect().await;
            let expected: &[&str] = if report { &["delta", "end"] } else { &["end"] };
            assert_eq!(last, expected);
        }
    }

    #[tokio::test]
    async fn the_events_end_when_the_server_drains_or_the_run_is_gone() {
        let (feeds, drain) = (Feeds::new([].iter()), CancellationToken::new());
        feeds.publish(&[run(1)], &[]);
        let of_run = feeds.events(&run(1).key, drain.clone()).unwrap();
        let of_list = feeds.events("", drain.clone()).unwrap();
        feeds.publish(&[], &[]);
        // The last state of the run was not read before the run was gone.
        assert_eq!(of_run.count().await, 1);
        let mut of_list = pin!(of_list);
        let list = of_list.next().await.unwrap();
        assert_eq!(list.data["fields"]["runs"], json!([]));
        drain.cancel();
        assert_eq!(of_list.next().await, None);
    }
}
