//! Tests of key-value buckets.

use futures::StreamExt;
use lumos_queue::nats::KeyValueError;

use super::*;

on_servers! {
    async fn whoever_comes_second_is_told(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let owners = bench.connection.owners().await.unwrap();
        let first = owners.create(RUN, b"one").await.unwrap();
        assert_eq!(owners.create(RUN, b"two").await, Err(KeyValueError::Conflict(RUN.to_owned())));
        let second = owners.update(RUN, b"one again", first).await.unwrap();
        assert_eq!(owners.update(RUN, b"late", first).await, Err(KeyValueError::Conflict(RUN.to_owned())));
        assert_eq!(owners.get(RUN).await.unwrap(), Some(("one again".into(), second)));
        owners.delete(RUN).await.unwrap();
        assert_eq!(owners.get(RUN).await.unwrap(), None);
        assert!(owners.update(RUN, b"late", second).await.is_err());
        owners.create(RUN, b"anew").await.unwrap();
        for key in ["", "a b", ".a", "a.", "a..b", "*", ">", "ä"] {
            assert!(matches!(owners.put(key, b"").await, Err(KeyValueError::Key(_))), "{key}");
        }
    }

    async fn what_does_not_fit_into_a_message_is_refused(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let status = bench.connection.status().await.unwrap();
        let limit = bench.plain().await.max_payload();
        let (whole, more) = (vec![b' '; limit], vec![b' '; limit + 1]);
        status.put(RUN, &whole).await.unwrap();
        let refused = KeyValueError::TooLarge { key: RUN.to_owned(), bytes: limit + 1, limit };
        assert_eq!(status.put(RUN, &more).await, Err(refused));
        assert!(matches!(status.create("other", &more).await, Err(KeyValueError::TooLarge { .. })));
        assert!(status.get(RUN).await.unwrap().unwrap().0 == whole, "the previous value is kept");
    }

    async fn values_run_out_of_age(program) {
        let age = Duration::from_secs(1);
        let bench = Bench::new(program, Layout { owners_max_age: age, workers_max_age: age, ..Layout::default() }).await;
        let owners = bench.connection.owners().await.unwrap();
        let revision = owners.create(RUN, b"one").await.unwrap();
        eventually("the claim expires", async || owners.get(RUN).await.unwrap().is_none()).await;
        assert!(owners.update(RUN, b"late", revision).await.is_err());
        owners.create(RUN, b"two").await.unwrap();
        assert_eq!(owners.entries().await.unwrap(), [(RUN.to_owned(), "two".into())]);
    }

    async fn entries_are_listed_in_order(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let workers = bench.connection.workers().await.unwrap();
        assert!(workers.entries().await.unwrap().is_empty());
        for number in (0..200).rev() {
            workers.put(&format!("host-{number:03}"), number.to_string().as_bytes()).await.unwrap();
        }
        workers.delete("host-000").await.unwrap();
        let entries = workers.entries().await.unwrap();
        assert_eq!(entries.len(), 199);
        assert_eq!(entries[0], ("host-001".to_owned(), "1".into()));
    }

    // Any client with write access to a bucket can write arbitrary keys.
    async fn what_cannot_be_a_key_is_left_out(program) {
        let bench = Bench::new(program, Layout::default()).await;
        let workers = bench.connection.workers().await.unwrap();
        workers.put("honest", b"1").await.unwrap();
        let mut changes = Box::pin(workers.watch());
        let plain = bench.plain().await;
        let long = "k".repeat(500);
        for key in ["w\u{f6}rker", "a!b", "%41", "a=*", "\u{1b}[2J", long.as_str()] {
            let subject = format!("$KV.lumos-2-workers.{key}");
            plain.request(subject, "{".into()).await.unwrap();
        }
        workers.put("later", b"2").await.unwrap();
        let entries = workers.entries().await.unwrap();
        assert_eq!(entries, [("honest".to_owned(), "1".into()), ("later".to_owned(), "2".into())]);
        let mut next = async || timeout(LONG, changes.next()).await.expect("timed out waiting for a change").unwrap();
        while next().await.key != "later" {}
    }

    async fn watchers_see_what_is_there_and_what_changes_and_restarts(program) {
        let mut bench = Bench::new(program, Layout::default()).await;
        let runs = bench.connection.runs().await.unwrap();
        runs.put("a", b"1").await.unwrap();
        let mut changes = Box::pin(runs.watch());
        let mut next = async || timeout(LONG, changes.next()).await.expect("timed out waiting for a change").unwrap();
        let first = next().await;
        assert_eq!((first.key.as_str(), first.value.as_deref()), ("a", Some(b"1".as_slice())));
        runs.put("b", b"2").await.unwrap();
        assert_eq!(next().await.key, "b");
        runs.delete("a").await.unwrap();
        let gone = next().await;
        assert_eq!((gone.key.as_str(), gone.value), ("a", None));
        bench.server.restart();
        runs.put("c", b"3").await.unwrap();
        while next().await.key != "c" {}
    }
}
