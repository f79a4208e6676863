//! Who may come in, and what they may do there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::fleet::Fleet;
use crate::nats::{NatsServer, programs};
use crate::program::lumos;

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
        // The right ones come in and find that nothing has been set up yet.
        assert_ne!(code, Some(1), "{said}");
        assert!(!said.contains("credentials"), "{said}");
        for queue in [&["--queue", &wrong][..], &["--queue", &nats.url()]] {
            let (code, said) = status(queue);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.to_lowercase().contains("authori") || said.contains("credentials"), "{said}");
            assert!(!said.contains("sesame"), "{said}");
        }
    }
}

/// A certificate authority and a server's certificate, made by openssl.
fn certificates(folder: &Path) -> bool {
    let openssl = |arguments: &str| {
        Command::new("openssl")
            .args(arguments.split(' '))
            .current_dir(folder)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
    let made = [
        "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout ca.key -out ca.pem -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout key.pem -out request.pem -subj /CN=localhost",
        "x509 -req -days 2 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out certificate.pem",
    ]
    .iter()
    .all(|arguments| openssl(arguments));
    if made {
        // The server may run as somebody else; the key is worth nothing.
        std::fs::set_permissions(folder.join("key.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    made
}

#[test]
fn a_run_with_the_permissions_that_we_ship() {
    let accounts = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/nats/accounts.conf");
    for program in programs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nats.conf");
        // What is included is looked for beside the including file.
        std::fs::copy(accounts, folder.path().join("accounts.conf")).unwrap();
        std::fs::write(&file, "include ./accounts.conf\n").unwrap();
        open_to_others(folder.path());
        let nats = NatsServer::with_arguments(&program, &["-c", file.to_str().unwrap()]);
        let queue_of = |user: &str| {
            let fleet = Fleet::new(folder.path(), &nats.url());
            fleet.with_user(user, &format!("pass-of-{user}"))
        };
        let mut worker = queue_of("worker").worker(&["--places", "8"]);
        let mut coordinator = queue_of("coordinator")
            .coordinator("least", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "10"]);
        let ended = coordinator.wait(Duration::from_secs(120));
        assert_eq!(ended.code(), Some(0), "{}\n{}", coordinator.said(), worker.said());
        let seen = queue_of("observer").status().expect("an observer sees the status");
        assert_eq!(crate::fleet::settled(&seen), 10);
        worker.signal("-TERM");
        assert_eq!(worker.wait(Duration::from_secs(60)).code(), Some(0), "{}", worker.said());
        let said = worker.said() + &coordinator.said();
        assert!(!said.to_lowercase().contains("permission"), "nothing needed more than it may do:\n{said}");
        // A worker cannot coordinate.
        let mut usurper = queue_of("worker")
            .coordinator("more", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "1"]);
        let ended = usurper.wait(Duration::from_secs(120));
        assert_eq!(ended.code(), Some(2), "{}", usurper.said());
    }
}

/// The server may run as somebody else.
fn open_to_others(folder: &Path) {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_run_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    open_to_others(folder.path());
    if !certificates(folder.path()) {
        eprintln!("a_run_over_tls: skipped, there is no openssl");
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
        // An authority that nobody knows is not trusted.
        let (code, said) = status(&["--queue", &url]);
        assert_eq!(code, Some(2), "{said}");
        fleet.queue.extend(["--queue-tls-ca".to_owned(), file("ca.pem")]);
        let mut worker = fleet.worker(&["--places", "8"]);
        let mut coordinator =
            fleet.coordinator("secret", &["--tasks", "gsm8k", "--model", "builtin:tiny", "--limit", "10"]);
        let status = coordinator.wait(Duration::from_secs(120));
        assert_eq!(status.code(), Some(0), "{}", coordinator.said());
        worker.signal("-TERM");
        assert_eq!(worker.wait(Duration::from_secs(60)).code(), Some(0), "{}", worker.said());
    }
}
