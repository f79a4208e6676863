//! Authentication and permissions of a queue.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use lumos_capabilities::{Capability, skip};

use crate::certificates::certificates;
use crate::fleet::{Fleet, settled};
use crate::nats::{NatsServer, programs};
use crate::program::lumos;

const PATIENCE: Duration = Duration::from_secs(300);

fn status(queue: &[&str]) -> (Option<i32>, String) {
    let output = lumos().arg("status").args(queue).output().unwrap();
    let mut said = String::from_utf8_lossy(&output.stderr).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stdout));
    (output.status.code(), said)
}

#[test]
fn wrong_credentials_are_refused_and_never_shown() {
    for program in programs() {
        let nats = NatsServer::with_arguments(&program, &["--user", "lumos", "--pass", "open-sesame"]);
        let right = nats.url().replace("//", "//lumos:open-sesame@");
        let wrong = nats.url().replace("//", "//lumos:close-sesame@");
        let (code, said) = status(&["--queue", &right]);
        // With the right password, the server is reachable and not set up yet.
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("no runs"), "{said}");
        for (queue, presented) in
            [(&wrong, "user `lumos` with the given password"), (&nats.url(), "a client without credentials")]
        {
            let (code, said) = status(&["--queue", queue]);
            assert_eq!(code, Some(2), "{said}");
            let refusal = format!("the NATS server at {} rejected {presented}; hint: ", nats.url());
            assert!(said.contains(&refusal), "{said}");
            assert!(!said.contains("sesame"), "{said}");
        }
    }
}

/// Starts a server with the permissions in deploy/nats, or with a part of them.
fn permitting(program: &Path, folder: &Path, keeps: impl Fn(&str) -> bool) -> NatsServer {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/nats/accounts.conf");
    let accounts = std::fs::read_to_string(shipped).unwrap();
    let kept: String = accounts.lines().filter(|line| keeps(line)).map(|line| format!("{line}\n")).collect();
    let file = folder.join("nats.conf");
    // An included file is searched next to the including file.
    std::fs::write(folder.join("accounts.conf"), kept).unwrap();
    std::fs::write(&file, "include ./accounts.conf\n").unwrap();
    open_to_others(folder);
    NatsServer::with_arguments(program, &["-c", file.to_str().unwrap()])
}

/// The stream that reserves space for the buckets was added later than the other permissions.
#[test]
fn a_run_with_permissions_of_an_earlier_version() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let removed = std::cell::Cell::new(0);
        let nats = permitting(&program, folder.path(), |line| {
            let is_kept = !line.contains("lumos-2-room\"");
            removed.set(removed.get() + u32::from(!is_kept));
            is_kept
        });
        assert_eq!(removed.get(), 2, "permissions to create the stream and to read it");
        let queue_of =
            |user: &str| Fleet::new(folder.path(), &nats.url()).with_user(user, &format!("pass-of-{user}"));
        let worker = queue_of("worker").worker(&["--concurrency", "8"]);
        let mut coordinator = queue_of("coordinator")
            .coordinator("earlier", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "2"]);
        let ended = coordinator.wait(PATIENCE);
        assert_eq!(ended.code(), Some(0), "{}\n{}", coordinator.said(), worker.said());
    }
}

#[test]
fn a_run_with_the_permissions_that_we_ship() {
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let nats = permitting(&program, folder.path(), |_| true);
        let queue_of = |user: &str| {
            let fleet = Fleet::new(folder.path(), &nats.url());
            fleet.with_user(user, &format!("pass-of-{user}"))
        };
        let mut worker = queue_of("worker").worker(&["--concurrency", "8"]);
        let mut coordinator = queue_of("coordinator")
            .coordinator("least", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "10"]);
        let ended = coordinator.wait(PATIENCE);
        assert_eq!(ended.code(), Some(0), "{}\n{}", coordinator.said(), worker.said());
        queue_of("observer").until("the observer's status", PATIENCE, |status| settled(status) == 10);
        worker.signal("-TERM");
        assert_eq!(worker.wait(PATIENCE).code(), Some(0), "{}", worker.said());
        let said = worker.said() + &coordinator.said();
        assert!(!said.to_lowercase().contains("permission"), "a permission is missing:\n{said}");
        // A worker's user cannot coordinate.
        let mut usurper = queue_of("worker")
            .coordinator("more", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "1"]);
        let ended = usurper.wait(PATIENCE);
        assert_eq!(ended.code(), Some(2), "{}", usurper.said());
    }
}

/// The server may run as another user.
fn open_to_others(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_run_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    open_to_others(folder.path());
    if !certificates(folder.path()) {
        skip(Capability::OpenSsl, "openssl not found");
        return;
    }
    for program in programs() {
        let below = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let nats = NatsServer::with_arguments(
            &program,
            &["--tls", "--tlscert", &file("certificate.pem"), "--tlskey", &file("key.pem")],
        );
        let url = nats.url().replace("nats://", "tls://");
        let mut fleet = Fleet::new(below.path(), &url);
        // A certificate of an unknown authority is not trusted.
        let (code, said) = status(&["--queue", &url]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("unknown certificate authority") && said.contains("--queue-tls-ca"), "{said}");
        fleet.queue.extend(["--queue-tls-ca".to_owned(), file("ca.pem")]);
        let mut worker = fleet.worker(&["--concurrency", "8"]);
        let mut coordinator =
            fleet.coordinator("secret", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "10"]);
        let status = coordinator.wait(PATIENCE);
        assert_eq!(status.code(), Some(0), "{}", coordinator.said());
        worker.signal("-TERM");
        assert_eq!(worker.wait(PATIENCE).code(), Some(0), "{}", worker.said());
    }
}
