//! What workers allow untrusted runs to use.

use serde_json::Value;

use crate::fleet::{holds_a_hash, refusals};
use crate::support::model_server::Server;
use crate::support::nats::NatsServer;
use crate::support::rehearsal::Rehearsal;
use crate::support::{Fleet, lumos};

#[test]
fn a_worker_uses_only_what_its_operator_allows() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let rehearsal = Rehearsal::write(folder.path(), 4);
    let fleet = Fleet::new(folder.path(), &nats.url());
    // A worker without access to anything except its own folder.
    let strict = lumos().env("LUMOS_DATA", folder.path().join("data-of-the-worker"));
    let strict = fleet.restricted_worker(strict, "");
    let mut coordinator = fleet.coordinator("refused", rehearsal.arguments());
    let status = fleet.until("a refusal", |status| !refusals(status).is_empty());
    let refusal = refusals(&status).remove(0);
    let script = format!("script:{}", rehearsal.script.display());
    assert!(refusal.contains(&script) && refusal.contains("does not allow the path"), "{refusal}");
    assert!(
        refusal.contains("hint: its operator can allow it with `lumos worker --allow-path <PATH>`"),
        "{refusal}"
    );
    assert!(!holds_a_hash(&refusal), "the refusal contains a hash: {refusal}");

    // The worker also refuses a server named by the run, and sends no request to it.
    let remote = "--tasks gsm8k --model openai:m@https://attacker.example/v1 --limit 1";
    let mut attacker = fleet.coordinator("remote", remote);
    let told = |status: &Value| refusals(status).iter().any(|one| one.contains("does not allow the host"));
    let status = fleet.until("a refusal of the host", told);
    assert!(refusals(&status).iter().any(|one| one.contains("`attacker.example:443`")), "{status}");
    attacker.kill();

    // A worker whose operator allows the path executes the run.
    let allowing = lumos().env("LUMOS_ALLOW_PATHS", format!("/nowhere,{}", folder.path().display()));
    let allowing = fleet.restricted_worker(allowing, "");
    coordinator.exits(0);
    strict.drained();
    allowing.drained();
}

#[test]
fn a_worker_refuses_a_model_that_its_server_does_not_have_and_names_those_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let Some(nats) = NatsServer::start() else { return };
    let server = Server::start_listing(Some(&["plan-7b"]), |_, _| Err(404));
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = fleet.worker("--concurrency 2");
    let arguments =
        format!("--tasks gsm8k --model openai:plan-8b@{} --limit 2 --stall-warning 2", server.url);
    let mut coordinator = fleet.coordinator("refused", arguments);
    let status = fleet.until("a refusal", |status| !refusals(status).is_empty());
    let refusal = refusals(&status).remove(0);
    assert!(refusal.contains("the server has no model `plan-8b`"), "{refusal}");
    assert!(refusal.contains("it lists `plan-7b`"), "{refusal}");
    coordinator.until_said("it lists `plan-7b`");
    // The coordinator publishes its status later than the worker its refusal.
    let has_runs = |status: &Value| !status["runs"].as_array().unwrap().is_empty();
    let status = fleet.until("the run's status", has_runs);
    let configuration = &status["runs"][0]["configurations"][0];
    let counts = ["planned", "answered", "gave_up", "faulted"].map(|name| configuration[name].as_u64());
    assert_eq!(counts, [Some(2), Some(0), Some(0), Some(0)], "no unit is tried: {status}");
    worker.drained();
}
