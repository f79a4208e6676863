//! Commands on servers that no coordinator has set up.

use std::path::Path;
use std::time::Duration;

use crate::fleet::{Fleet, Process};
use crate::nats::{NatsServer, programs};
use crate::program::{lumos, text};

const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a command on a queue. Returns exit code, standard output and standard error.
fn on(nats: &NatsServer, arguments: &[&str]) -> (i32, String, String) {
    text(&lumos().args(arguments).args(["--queue", &nats.url()]).output().unwrap())
}

fn until(process: &mut Process, said: &str) {
    let began = std::time::Instant::now();
    while !process.said().contains(said) {
        assert!(process.ended().is_none(), "the process ended:\n{}", process.said());
        assert!(began.elapsed() < PATIENCE, "timed out waiting for `{said}`:\n{}", process.said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn watching(nats: &NatsServer, folder: &Path, run: &[&str]) -> Process {
    let mut command = lumos();
    command.arg("watch").args(run).args(["--interval", "0.1", "--queue", &nats.url()]);
    Process::start(&mut command, &folder.join(format!("watch-{}.log", run.len())))
}

#[test]
fn a_fresh_server_has_no_runs() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let nats = NatsServer::with_jetstream(&program);
        let (code, stdout, stderr) = on(&nats, &["status"]);
        assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
        assert!(stdout.contains("no runs on this queue"), "{stdout}");
        let (code, stdout, _) = on(&nats, &["status", "--json"]);
        assert_eq!((code, stdout.trim()), (0, "{\"runs\":[],\"workers\":[]}"));
        for command in ["status", "cancel"] {
            let (code, _, stderr) = on(&nats, &[command, "sweep"]);
            assert_eq!(code, 2, "{stderr}");
            assert!(stderr.contains("run `sweep` not found on this queue"), "{stderr}");
        }
        let (code, _, stderr) = on(&nats, &["cancel", "0123456789abcdef"]);
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains("run `0123456789abcdef` not found on this queue"), "{stderr}");
        // `watch` waits for runs (all or one) and shows them once they exist.
        let mut all = watching(&nats, folder.path(), &[]);
        let mut one = watching(&nats, folder.path(), &["sweep"]);
        until(&mut all, "no runs on this queue");
        until(&mut one, "run `sweep` not found on this queue: the queue has no runs; retrying");
        let fleet = Fleet::new(folder.path(), &nats.url());
        let worker = fleet.worker(&["--concurrency", "4"]);
        let arguments = ["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "4"];
        let mut coordinator = fleet.coordinator("sweep", &arguments);
        assert_eq!(coordinator.wait(PATIENCE).code(), Some(0), "{}", coordinator.said());
        until(&mut all, "sweep · complete");
        until(&mut one, "sweep · complete");
        // There is nothing to cancel.
        let (code, stdout, stderr) = on(&nats, &["cancel", "sweep"]);
        assert_eq!((code, stdout.as_str()), (0, "nothing to cancel: run sweep is complete\n"), "{stderr}");
        let (_, stdout, _) = on(&nats, &["status", "sweep"]);
        assert!(stdout.contains("sweep · complete"), "{stdout}");
        drop(worker);
    }
}
