//! Runs with a real nats-server and workers that call the queue directly. Skipped if nats-server is not
//! installed.

#[path = "../../../../queue/tests/support/nats_server.rs"]
mod nats_server;
mod owners;
mod stage;

use std::time::Duration;

use lumos_queue::Queue;
use lumos_tasks::RunToken;

use super::*;
use nats_server::NatsServer;
use stage::{Stage, settings};

fn count(events: &[Event], what: impl Fn(&Event) -> bool) -> usize {
    events.iter().filter(|event| what(event)).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_done_once_and_leaves_nothing_behind() {
    let Some(stage) = Stage::new(30).await else { return };
    let worker = stage.worker("w").answering(None);
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    let summary = summary.unwrap();
    assert_eq!((summary.planned, summary.settled, summary.cancelled), (60, 60, false));
    assert_eq!(count(&events, |event| matches!(event, Event::Settled { .. })), 60);
    assert_eq!(stage.checkpoint.duplicates(), 0);
    assert_eq!(stage.checkpoint.records().count(), 60);
    let status = stage.status().await;
    assert_eq!((status.state, status.configurations[0].answered, status.in_flight), (RunState::Ended, 30, 0));
    assert_eq!(stage.notice().await.state, RunState::Ended);
    assert!(stage.server.work_present(stage.run.as_str()).await.unwrap().is_empty());
    // The claim was released, so the same process can run it again at once.
    let (again, _) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(again.unwrap().settled, 60);
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_outcomes_and_retries_are_counted() {
    let Some(stage) = Stage::new(5).await else { return };
    let (faulty, honest) = (stage.worker("faulty"), stage.worker("honest"));
    let worker = tokio::spawn(async move {
        let (work, results) = honest.open().await;
        loop {
            for lease in work.claim(2).await.unwrap() {
                let first = (lease.body().attempt == 1).then_some("broken");
                faulty.deliver(&results, faulty.result(lease.body(), first)).await;
                honest.deliver(&results, honest.result(lease.body(), first)).await;
                lease.acknowledge().await.unwrap();
            }
        }
    });
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 10);
    assert_eq!(count(&events, |event| matches!(event, Event::Faulted { will_retry: true, .. })), 10);
    assert!(count(&events, |event| matches!(event, Event::Duplicate { .. })) >= 10);
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_worker_held_is_worked_on_without_waiting_for_its_leases() {
    let Some(stage) = Stage::new(10).await else { return };
    let (lost, other) = (stage.worker("lost"), stage.worker("other"));
    let workers = tokio::spawn(async move {
        let leases = lost.claim(6).await;
        lost.show(&leases).await;
        // Simulates kill -9: no lease is returned.
        std::mem::forget(leases);
        other.answering(None).await
    });
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 20);
    let told = |event: &Event| matches!(event, Event::WorkerLost { worker, recalled: 6 } if worker == "lost");
    assert_eq!(count(&events, told), 1);
    assert_eq!(stage.status().await.recovered, 6);
    workers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_whose_messages_vanished_are_given_out_again() {
    let Some(stage) = Stage::new(10).await else { return };
    let (zombie, other) = (stage.worker("zombie"), stage.worker("other"));
    let workers = tokio::spawn(async move {
        for lease in zombie.claim(5).await {
            lease.acknowledge().await.unwrap();
        }
        other.answering(None).await
    });
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 20);
    let recovered: u64 =
        events.iter().map(|event| if let Event::Recovered { units } = event { *units } else { 0 }).sum();
    assert_eq!(recovered, 5);
    workers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poison_item_names_the_workers_it_killed() {
    let Some(stage) = Stage::new(1).await else { return };
    let (lost, other) = (stage.worker("lost"), stage.worker("other"));
    let workers = tokio::spawn(async move {
        let leases = lost.claim(2).await;
        lost.show(&leases).await;
        std::mem::forget(leases);
        other.answering(Some("delivered 6 times and never finished")).await
    });
    let terms = DispatchConfig { retry_on_error: 0, ..stage.terms() };
    let (summary, events) = stage.coordinate(terms, settings()).await;
    assert_eq!(summary.unwrap().faulted, 2);
    let named = |event: &Event| {
        matches!(event, Event::Faulted { fault, will_retry: false, .. }
            if fault.message == "delivered 6 times and never finished (workers lost while executing it: lost)")
    };
    assert_eq!(count(&events, named), 2, "{events:?}");
    assert_eq!(stage.status().await.recent_faults.len(), 2);
    workers.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_does_not_fit_into_a_message_is_written_as_totals() {
    let Some(program) = nats_server::program() else { return };
    // Twenty faults of 1 KiB exceed the limit, every other message is shorter.
    let stage = Stage::on(NatsServer::configured(&program, "max_payload: 16KB"), 12).await;
    let long: &'static str = "long ".repeat(1000).leak();
    let worker = stage.worker("w").answering(Some(long));
    let terms = DispatchConfig { retry_on_error: 0, ..stage.terms() };
    let (summary, _) = stage.coordinate(terms, settings()).await;
    assert_eq!(summary.unwrap().faulted, 24);
    let status = stage.status().await;
    assert_eq!((status.state, status.planned(), status.faulted()), (RunState::Ended, 24, 24));
    assert_eq!((status.configurations.len(), status.recent_faults.len()), (1, 0));
    worker.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_and_comes_back_loses_nothing() {
    let Some(mut stage) = Stage::new(300).await else { return };
    let nats = std::mem::replace(&mut stage.nats, NatsServer::start().unwrap());
    let worker = stage.worker("w").answering(None);
    let (killed, killing) = tokio::sync::oneshot::channel();
    let killer = tokio::spawn(async move {
        let mut nats = nats;
        killing.await.unwrap();
        tokio::task::spawn_blocking(move || {
            nats.kill();
            std::thread::sleep(Duration::from_secs(1));
            nats.restart();
            nats
        })
        .await
        .unwrap()
    });
    let watch = async {
        while stage.checkpoint.settled() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        killed.send(()).unwrap();
    };
    let ((summary, _), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), watch);
    assert_eq!(summary.unwrap().settled, 600);
    assert_eq!(stage.checkpoint.records().count(), 600);
    worker.abort();
    drop(killer.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_run_ends_and_can_be_started_again() {
    let Some(stage) = Stage::new(20).await else { return };
    let canceller = async {
        let leases = stage.worker("w").claim(1).await;
        match cancel(&stage.server, &stage.run).await.unwrap() {
            Cancellation::Cancelled { name, .. } => assert_eq!(name, stage.manifest.spec.name),
            ended @ Cancellation::Ended(_) => panic!("{ended:?}"),
        }
        drop(leases);
    };
    let ((summary, events), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), canceller);
    let summary = summary.unwrap();
    assert!(summary.cancelled && summary.settled == 0, "{summary:?}");
    assert_eq!(count(&events, |event| matches!(event, Event::Cancelled { .. })), 1);
    assert_eq!(stage.notice().await.state, RunState::Cancelled);
    assert_eq!(stage.status().await.state, RunState::Cancelled);
    let stranger = RunToken::of(&lumos_tasks::ContentHash::of_bytes(b"stranger"));
    assert!(matches!(cancel(&stage.server, &stranger).await, Err(CoordinatorError::NoRun(_))));

    let worker = stage.worker("w").answering(None);
    let (summary, _) = stage.coordinate(stage.terms(), settings()).await;
    assert_eq!(summary.unwrap().settled, 40);
    worker.abort();
    // Its coordinator has ended, so there is nothing to cancel and the run is unchanged.
    match cancel(&stage.server, &stage.run).await.unwrap() {
        Cancellation::Ended(status) => assert_eq!((status.settled(), status.planned()), (40, 40)),
        cancelled @ Cancellation::Cancelled { .. } => panic!("{cancelled:?}"),
    }
    assert_eq!(stage.notice().await.state, RunState::Ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_run_waits_for_what_workers_hold() {
    let Some(stage) = Stage::new(20).await else { return };
    let hand = stage.worker("w");
    let holding = async {
        let (_, results) = hand.open().await;
        let leases = hand.claim(3).await;
        hand.show(&leases).await;
        stage.drain.cancel();
        tokio::time::sleep(Duration::from_millis(300)).await;
        for lease in leases {
            hand.deliver(&results, hand.result(lease.body(), None)).await;
            let _ = lease.acknowledge().await;
        }
        for _ in 0..8 {
            hand.show(&[]).await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let ((summary, events), ()) = tokio::join!(stage.coordinate(stage.terms(), settings()), holding);
    let summary = summary.unwrap();
    assert_eq!((summary.settled, summary.outstanding(), summary.cancelled), (3, 37, false));
    assert_eq!(count(&events, |event| matches!(event, Event::Draining { .. })), 1);
    assert_eq!(stage.notice().await.state, RunState::Ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_a_dead_session_are_taken_up_and_missing_workers_told_of() {
    let Some(stage) = Stage::new(4).await else { return };
    // A session that ends after its units were done and before their results were recorded.
    let (hand, leases) = stage.killed_session(8).await;
    let results = stage.server.results_publisher(stage.run.as_str()).await.unwrap();
    for lease in leases {
        hand.deliver(&results, hand.result(lease.body(), None)).await;
        lease.acknowledge().await.unwrap();
    }
    let (summary, events) = stage.coordinate(stage.terms(), settings()).await;
    // No worker ran in this session; the existing results are sufficient.
    assert_eq!(summary.unwrap().settled, 8);
    assert_eq!(count(&events, |event| matches!(event, Event::NoWorkers { .. })), 0);

    let Some(stage) = Stage::new(1).await else { return };
    let drain = |event: &Event| {
        if matches!(event, Event::NoWorkers { .. }) {
            stage.drain.cancel();
        }
    };
    let (summary, events) = stage.coordinate_with(stage.terms(), settings(), drain).await;
    assert_eq!(summary.unwrap().outstanding(), 2);
    assert_eq!(count(&events, |event| matches!(event, Event::NoWorkers { .. })), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_a_dead_session_queued_at_another_priority_are_executed_once() {
    let Some(stage) = Stage::new(10).await else { return };
    let (hand, leases) = stage.killed_session(1).await;
    drop(leases);
    let first = stage.worker_at("first", 0).answering(None);
    let announced = async {
        while stage.notice().await.shards.len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        hand.answering(None).abort_handle()
    };
    let settings = CoordinatorSettings { priority: 0, ..settings() };
    let ((summary, _), other) = tokio::join!(stage.coordinate(stage.terms(), settings), announced);
    assert_eq!(summary.unwrap().settled, 20);
    assert_eq!(stage.checkpoint.duplicates(), 0);
    let priorities: Vec<u8> = stage.notice().await.shards.iter().map(|shard| shard.priority).collect();
    assert_eq!(priorities, [0, 5]);
    first.abort();
    other.abort();
}

#[tokio::test]
async fn a_task_that_panics_ends_the_session_with_an_error() {
    async fn panicking() {
        panic!("no shard 7");
    }
    let mut tasks = JoinSet::new();
    tasks.spawn(async {});
    let waiting = tokio::time::timeout(Duration::from_millis(50), panicked(&mut tasks)).await;
    assert!(waiting.is_err(), "a task that ends normally is not an error");
    tasks.spawn(pending());
    tasks.spawn(panicking());
    let error = panicked(&mut tasks).await.to_string();
    assert!(error.starts_with("a task of this coordinator panicked: no shard 7; hint: "), "{error}");
}
