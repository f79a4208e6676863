//! Attacks over the queue: malformed, huge and countless notices of workers, and a server whose storage is
//! full.

use std::path::Path;
use std::time::{Duration, Instant};

use lumos_tasks::fleet::{HeldLease, PROTOCOL, WorkerNotice};
use lumos_tasks::{ContentHash, RunToken};

use super::{MOST_MEMORY, is_full, line, peak_memory, watched};
use crate::support::nats::{NatsServer, program, programs};
use crate::support::{Ended, Fleet, PATIENCE, block_on, lumos, set_up};

/// A run whose workers need no other resources.
const RUN: &str = "--tasks gsm8k --model builtin:tiny --limit 4";

fn status(nats: &NatsServer) -> (Ended, u64) {
    watched(0, lumos().args("status --queue").arg(nats.url()))
}

fn notice(name: &str) -> WorkerNotice {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WorkerNotice {
        protocol: PROTOCOL,
        name: name.to_owned(),
        host: "host".to_owned(),
        written_ms: i64::try_from(since.as_millis()).unwrap(),
        ..WorkerNotice::default()
    }
}

fn json(notice: &WorkerNotice) -> Vec<u8> {
    serde_json::to_vec(notice).unwrap()
}

/// Sets up a server and writes into the workers' bucket.
fn write(nats: &NatsServer, entries: impl IntoIterator<Item = (String, Vec<u8>)>) {
    set_up(nats);
    block_on(async {
        let plain = async_nats::connect(nats.url()).await.unwrap();
        for (key, value) in entries {
            plain.request(format!("$KV.lumos-2-workers.{key}"), value.into()).await.unwrap();
        }
    });
}

/// Completes a run with a worker and returns the peak memory of its coordinator in MiB.
fn run_beside(nats: &NatsServer, folder: &Path) -> u64 {
    let fleet = Fleet::new(folder, &nats.url());
    let _worker = fleet.worker("--concurrency 4");
    let mut coordinator = fleet.coordinator("beside", RUN);
    let mut peak = 0;
    let began = Instant::now();
    let ended = loop {
        peak = peak.max(peak_memory(coordinator.id()).unwrap_or(0));
        if let Some(ended) = coordinator.ended() {
            break ended;
        }
        assert!(began.elapsed() < PATIENCE, "{}", coordinator.said());
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended.code(), Some(0), "{}", coordinator.said());
    peak
}

/// With the permissions in deploy/nats, a worker may write any key of its bucket.
#[test]
fn v06_a_hostile_writer_of_a_bucket_hides_nothing_and_stops_nobody() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsServer::with_jetstream(&program);
        let mut extreme = notice("extreme");
        extreme.holdings.concurrency = u32::MAX;
        (extreme.in_use, extreme.finished, extreme.spooled) = (u32::MAX, u64::MAX, u64::MAX);
        (extreme.started_ms, extreme.written_ms) = (i64::MIN, i64::MIN);
        extreme.refusals = vec!["\u{1b}[2J\u{1b}]0;owned\u{7}".to_owned()];
        let written: Vec<(String, Vec<u8>)> = vec![
            ("w\u{f6}rker".to_owned(), json(&notice("w\u{f6}rker"))),
            ("a!b".to_owned(), b"{".to_vec()),
            ("\u{1b}[2J".to_owned(), Vec::new()),
            ("k".repeat(900), json(&notice("long"))),
            ("deep".to_owned(), "[".repeat(100_000).into_bytes()),
            ("binary".to_owned(), vec![0xff; 5000]),
            ("quoted".to_owned(), b"{\"protocol\": \"\\u001b[2J\"}".to_vec()),
            ("other".to_owned(), json(&notice("somebody-else"))),
            ("extreme".to_owned(), json(&extreme)),
            ("honest".to_owned(), json(&notice("honest"))),
        ];
        let count = written.len() - 1;
        write(&nats, written);
        let Ended { stdout, stderr, .. } = status(&nats).0;
        assert!(stdout.contains("honest") && stdout.contains("extreme"), "{stdout}");
        assert!(!stdout.contains("somebody-else") && !stdout.contains('\u{1b}'), "{stdout}");
        for part in ["ignoring malformed keys", "ignored a malformed notice", "stored under a different name"]
        {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
        assert!(!stderr.contains('\u{1b}'), "{stderr:?}");
        let mut watch = Fleet::new(folder.path(), &nats.url()).watch("");
        watch.until_said("honest");
        run_beside(&nats, folder.path());
        assert!(watch.ended().is_none(), "{}", watch.said());
        line(
            "V6",
            &format!("{count} bad keys and notices in the workers' bucket"),
            "skipped with warnings; `status` and `watch` show the others, a concurrent run completes",
        );
    }
}

/// Notices of the maximum message size, with the content that uses the most memory after parsing.
#[test]
fn v06_huge_notices_are_read_within_bounds() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = RunToken::of(&ContentHash::of_bytes(b"run"));
    let lease = HeldLease { run, message: String::new(), token: String::new() };
    let count = if is_full() { 300 } else { 80 };
    let notices = (0..count).map(|number| {
        // Sorted after the valid notice.
        let mut one = notice(&format!("z{number}"));
        match number % 3 {
            0 => one.refusals = vec![String::new(); 330_000],
            1 => one.held = vec![lease.clone(); 20_000],
            _ => one.holdings.tools = vec![String::new(); 330_000],
        }
        (one.name.clone(), json(&one))
    });
    let notices: Vec<_> =
        std::iter::once(("honest".to_owned(), json(&notice("honest")))).chain(notices).collect();
    let bytes: usize = notices.iter().map(|(_, value)| value.len()).sum();
    write(&nats, notices);
    let (status, peak) = status(&nats);
    status.prints(["honest"]).reports(["the values are too large"]);
    let of_coordinator = run_beside(&nats, folder.path());
    assert!(of_coordinator < MOST_MEMORY, "{of_coordinator} MiB");
    line(
        "V6",
        &format!("{count} notices of workers with {} MiB in total", bytes >> 20),
        &format!(
            "`status` reads 64 MiB of them and warns, {peak} MiB; the coordinator has {of_coordinator} MiB"
        ),
    );
}

#[test]
fn v13_a_store_of_exactly_twenty_gibibytes() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let nats = NatsServer::configured(&program, "jetstream { max_file_store: 21474836480 }");
    let peak = run_beside(&nats, folder.path());
    line(
        "V13",
        "a run on a NATS server with room for exactly 20 GiB",
        &format!("completes; coordinator {peak} MiB"),
    );
    let small = NatsServer::configured(&program, "jetstream { max_file_store: 104857600 }");
    let run = lumos().args("run").args(RUN).args("--queue").arg(small.url()).output(folder.path(), "small");
    run.exits(2).reports(["has no space for stream", "at least 64 MiB", "max_file_store"]);
    line(
        "V13",
        "a run on a NATS server with room for 100 MiB",
        "refused, with the required and the reserved storage",
    );
}
