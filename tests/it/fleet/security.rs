//! Authentication and permissions of a queue.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::certificates::authority;
use crate::support::nats::{NatsServer, programs};
use crate::support::{Fleet, lumos, repository, settled};

/// A run whose workers need no other resources.
const TINY: &str = "--tasks gsm8k --model builtin:tiny";

#[test]
fn wrong_credentials_are_refused_and_never_shown() {
    for program in programs() {
        let nats = NatsServer::with_arguments(&program, &["--user", "lumos", "--pass", "open-sesame"]);
        let right = nats.url().replace("//", "//lumos:open-sesame@");
        let wrong = nats.url().replace("//", "//lumos:close-sesame@");
        let status = |queue: &str| lumos().args("status --queue").arg(queue).hiding("sesame");
        // With the right password, the server is reachable and not set up yet.
        status(&right).ok().prints(["no runs"]);
        for (queue, presented) in
            [(&wrong, "user `lumos` with the given password"), (&nats.url(), "a client without credentials")]
        {
            let refusal = format!("the NATS server at {} rejected {presented}\nhint: ", nats.url());
            status(queue).exits(2).reports([refusal]);
        }
    }
}

/// Starts a server with the permissions in deploy/nats, or with a part of them.
fn permitting(program: &Path, folder: &Path, keeps: impl Fn(&str) -> bool) -> NatsServer {
    let accounts = std::fs::read_to_string(repository("deploy/nats/accounts.conf")).unwrap();
    let kept: String = accounts.lines().filter(|line| keeps(line)).map(|line| format!("{line}\n")).collect();
    let file = folder.join("nats.conf");
    // An included file is searched next to the including file.
    std::fs::write(folder.join("accounts.conf"), kept).unwrap();
    std::fs::write(&file, "include ./accounts.conf\n").unwrap();
    // The server may run as another user.
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
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
        let _worker = queue_of("worker").worker("--concurrency 8");
        queue_of("coordinator").coordinator("earlier", format!("{TINY} --limit 2")).exits(0);
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
        let worker = queue_of("worker").worker("--concurrency 8");
        let mut coordinator = queue_of("coordinator").coordinator("least", format!("{TINY} --limit 10"));
        coordinator.exits(0);
        queue_of("observer").until("the observer's status", |status| settled(status) == 10);
        let said = worker.drained() + &coordinator.said();
        assert!(!said.to_lowercase().contains("permission"), "a permission is missing:\n{said}");
        // A worker's user cannot coordinate.
        queue_of("worker").coordinator("more", format!("{TINY} --limit 1")).exits(2);
    }
}

#[test]
fn a_run_over_tls() {
    let Some(folder) = authority() else { return };
    for program in programs() {
        let below = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).display().to_string();
        let nats = NatsServer::with_arguments(
            &program,
            &["--tls", "--tlscert", &file("certificate.pem"), "--tlskey", &file("key.pem")],
        );
        let url = nats.url().replace("nats://", "tls://");
        // A certificate of an unknown authority is not trusted.
        let fleet = Fleet::new(below.path(), &url);
        fleet.run("status").with_code(2).reports(["unknown certificate authority", "--queue-tls-ca"]);
        let fleet = fleet.with(&format!("--queue-tls-ca '{}'", file("ca.pem")));
        let worker = fleet.worker("--concurrency 8");
        fleet.coordinator("secret", format!("{TINY} --limit 10")).exits(0);
        worker.drained();
    }
}
