//! What workers allow untrusted runs to use.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::nats::NatsServer;
use crate::program::lumos;
use crate::rehearsal::Rehearsal;
use crate::runs::{drained, ends_well};

const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the refusals of the only worker in a status.
fn refusals(status: &Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap();
    let refusals =
        workers.iter().flat_map(|worker| worker["refusals"].as_array().cloned().unwrap_or_default());
    refusals.map(|refusal| refusal.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_worker_uses_only_what_its_operator_allows() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let rehearsal = Rehearsal::write(folder.path(), 4);
    let script = format!("script:{}", rehearsal.script.display());
    let data = rehearsal.data.to_str().unwrap();
    let arguments = ["--tasks", "gsm8k", "--model", &script, "--data", data];
    let fleet = Fleet::new(folder.path(), &nats.url());
    let mut strict = lumos();
    // A worker without access to anything except its own folder.
    strict.env("LUMOS_DATA", folder.path().join("data-of-the-worker"));
    let strict = fleet.restricted_worker(strict, &[]);
    let mut coordinator = fleet.coordinator("refused", &arguments);
    let status = fleet.until("a refusal", PATIENCE, |status| !refusals(status).is_empty());
    let refusal = refusals(&status).remove(0);
    assert!(refusal.contains(&script) && refusal.contains("does not allow the path"), "{refusal}");
    assert!(
        refusal.contains("hint: its operator can allow it with `lumos worker --allow-path <PATH>`"),
        "{refusal}"
    );
    let hexadecimal = |word: &str| word.len() >= 8 && word.chars().all(|one| one.is_ascii_hexdigit());
    let words = refusal.split(|one: char| !one.is_ascii_alphanumeric());
    assert_eq!(words.filter(|word| hexadecimal(word)).count(), 0, "the refusal contains a hash: {refusal}");

    // The worker also refuses a server named by the run, and sends no request to it.
    let remote = ["--tasks", "gsm8k", "--model", "openai:m@https://attacker.example/v1", "--limit", "1"];
    let mut attacker = fleet.coordinator("remote", &remote);
    let told = |status: &Value| refusals(status).iter().any(|one| one.contains("does not allow the host"));
    let status = fleet.until("a refusal of the host", PATIENCE, told);
    assert!(refusals(&status).iter().any(|one| one.contains("`attacker.example:443`")), "{status}");
    attacker.kill();

    // A worker whose operator allows the path executes the run.
    let mut allowing = lumos();
    allowing.env("LUMOS_ALLOW_PATHS", format!("/nowhere,{}", folder.path().display()));
    let allowing = fleet.restricted_worker(allowing, &[]);
    ends_well(&mut coordinator);
    drained(strict);
    drained(allowing);
}

/// Starts a model server that lists one model and rejects all others. Returns its address.
fn model_server() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    // Ends with the test process.
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut request = vec![0; 1 << 16];
            let count = client.read(&mut request).unwrap_or(0);
            let (status, body) = if request[..count].starts_with(b"GET /v1/models") {
                ("200 OK", r#"{"object":"list","data":[{"id":"plan-7b"}]}"#)
            } else {
                ("404 Not Found", r#"{"error":{"message":"unknown model"}}"#)
            };
            let length = body.len();
            let headers = "content-type: application/json\r\nconnection: close";
            let _ =
                write!(client, "HTTP/1.1 {status}\r\n{headers}\r\ncontent-length: {length}\r\n\r\n{body}");
        }
    });
    address
}

#[test]
fn a_worker_refuses_a_model_that_its_server_does_not_have_and_names_those_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let model = format!("openai:plan-8b@{}", model_server());
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = fleet.worker(&["--concurrency", "2"]);
    let arguments = ["--tasks", "gsm8k", "--model", &model, "--limit", "2", "--stall-warning", "2"];
    let coordinator = fleet.coordinator("refused", &arguments);
    let status = fleet.until("a refusal", PATIENCE, |status| !refusals(status).is_empty());
    let refusal = refusals(&status).remove(0);
    assert!(refusal.contains("the server has no model `plan-8b`"), "{refusal}");
    assert!(refusal.contains("it lists `plan-7b`"), "{refusal}");
    let began = std::time::Instant::now();
    while !coordinator.said().contains("it lists `plan-7b`") {
        assert!(began.elapsed() < PATIENCE, "the coordinator gives no reason:\n{}", coordinator.said());
        std::thread::sleep(Duration::from_millis(50));
    }
    // The coordinator publishes its status later than the worker its refusal.
    let has_runs = |status: &Value| !status["runs"].as_array().unwrap().is_empty();
    let status = fleet.until("the run's status", PATIENCE, has_runs);
    let configuration = &status["runs"][0]["configurations"][0];
    let counts = ["planned", "answered", "gave_up", "faulted"].map(|name| configuration[name].as_u64());
    assert_eq!(counts, [Some(2), Some(0), Some(0), Some(0)], "no unit is tried: {status}");
    drained(worker);
}
