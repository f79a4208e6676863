//! Untrusted runs: what a worker sends to servers named by a run, and what it reveals about files named by
//! it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::mariadb::PASSWORD;
use crate::model_server::{KEY, Server};
use crate::nats::NatsServer;
use crate::record::line;
use crate::rogue_server::{greeting, serve};
use crate::support::lumos;

const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the workers' refusals in the status.
fn refusals(status: &Value) -> Vec<String> {
    let workers = status["workers"].as_array().unwrap();
    let refusals =
        workers.iter().flat_map(|worker| worker["refusals"].as_array().cloned().unwrap_or_default());
    refusals.map(|refusal| refusal.as_str().unwrap().to_owned()).collect()
}

/// Plans a run, waits until the worker refuses it, and returns the refusal.
fn refused(
    fleet: &Fleet,
    name: &str,
    arguments: &[&str],
    environment: &[(&str, &str)],
    part: &str,
) -> String {
    let mut command = lumos();
    command.envs(environment.iter().copied());
    let mut coordinator = fleet.coordinator_with(command, name, arguments);
    let told = |status: &Value| refusals(status).iter().any(|one| one.contains(part));
    let status = fleet.until(&format!("a refusal of {part}"), PATIENCE, told);
    coordinator.kill();
    refusals(&status).into_iter().find(|one| one.contains(part)).unwrap()
}

/// Starts a worker with all kinds of secrets and the default restrictions.
fn worker(fleet: &Fleet, folder: &Path) -> crate::fleet::Process {
    let mut command = lumos();
    command.env("LUMOS_DATA", folder.join("data-of-the-worker"));
    for variable in ["OPENAI_API_KEY", "HF_TOKEN", "WOLFRAM_APP_ID"] {
        command.env(variable, KEY);
    }
    command.env("LUMOS_SQL_USER", "keeper").env("LUMOS_SQL_PASSWORD", PASSWORD);
    fleet.restricted_worker(command, &["--concurrency", "2"])
}

fn holds(heard: &[u8], secret: &str) -> bool {
    heard.windows(secret.len()).any(|window| window == secret.as_bytes())
}

#[test]
fn v01_a_worker_connects_to_no_database_server_that_a_run_names() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(folder.path(), &nats.url());
    let _worker = worker(&fleet, folder.path());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (port, heard) = runtime.block_on(serve(vec![greeting("mysql_clear_password", true)]));
    // This machine under an address that does not count as loopback.
    let (place, tool) = (format!("0.0.0.0:{port}"), format!("sql=mysql://0.0.0.0:{port}"));
    let arguments = ["--tasks", "intercode_sql", "--model", "builtin:tiny", "--limit", "1", "--tool", &tool];
    // The attacker allows the host for its own process.
    let refusal = refused(&fleet, "rogue", &arguments, &[("LUMOS_SQL_HOSTS", &place)], &place);
    assert!(refusal.contains("does not allow the host"), "{refusal}");
    let heard = heard.lock().unwrap().clone();
    assert!(!holds(&heard, PASSWORD) && !holds(&heard, "keeper"), "{:?}", String::from_utf8_lossy(&heard));
    line("V1", "a run names `sql=mysql://attacker:port` to a worker with LUMOS_SQL_PASSWORD", &refusal);
}

#[test]
fn v02_a_worker_sends_no_key_to_a_model_server_that_a_run_names() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = worker(&fleet, folder.path());
    let server = Server::start(|_, _| Ok("Yes, I will stop planning.".to_owned()));
    let state = Arc::clone(&server.state);
    let run = |model: &str| ["--tasks", "gsm8k", "--limit", "2", "--model", model].map(str::to_owned);
    // A loopback server is allowed: it receives requests without a key.
    let loopback = run(&format!("openai:m@{}", server.url));
    let mut coordinator = fleet.coordinator("loopback", &loopback.each_ref().map(String::as_str));
    let ended = coordinator.wait(PATIENCE);
    assert_eq!(ended.code(), Some(0), "{}\n{}", coordinator.said(), worker.said());
    let asked = server.requests();
    assert!(asked >= 2, "{asked}");
    // Off loopback, the worker sends no requests; the coordinator sends some before the run.
    let elsewhere = server.url.replace("127.0.0.1", "0.0.0.0");
    let off = run(&format!("openai:m@{elsewhere}"));
    let refusal = refused(&fleet, "elsewhere", &off.each_ref().map(String::as_str), &[], "0.0.0.0");
    assert!(refusal.contains("does not allow the host"), "{refusal}");
    let headers = state.headers.lock().unwrap();
    let told =
        headers.iter().flat_map(axum::http::HeaderMap::values).any(|value| holds(value.as_bytes(), KEY));
    assert!(!told, "{headers:?}");
    assert!(headers.iter().all(|headers| !headers.contains_key("authorization")), "{headers:?}");
    line(
        "V2",
        "a run names `openai:m@http://attacker` to a worker with OPENAI_API_KEY",
        &format!("on loopback: {asked} requests without a key; elsewhere: {refusal}"),
    );
}

#[test]
fn v07_a_worker_says_nothing_of_files_that_a_run_names() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let file = |name: &str| outside.path().join(name).display().to_string();
    std::fs::write(file("pages.jsonl"), "{\"title\": \"A\", \"text\": \"secret\"}\n").unwrap();
    std::fs::write(file("cases.jsonl"), "").unwrap();
    let (code, stdout, stderr) = crate::support::text(
        &lumos()
            .args(["data", "import-sql", "samples", "--to", &format!("sqlite:{}", file("databases"))])
            .output()
            .unwrap(),
    );
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let fleet = Fleet::new(folder.path(), &nats.url());
    let _worker = worker(&fleet, folder.path());
    let (wiki, sql, script) = (
        format!("wiki=corpus:{}", file("pages.jsonl")),
        format!("sql=sqlite:{}", file("databases")),
        format!("script:{}", file("cases.jsonl")),
    );
    let runs: [(&str, Vec<&str>, String); 3] = [
        (
            "wiki",
            vec!["hotpotqa", "--model", "builtin:tiny", "--tool", &wiki, "--tool", "rank=bm25"],
            file("pages.jsonl"),
        ),
        ("sql", vec!["intercode_sql", "--model", "builtin:tiny", "--tool", &sql], file("databases")),
        ("script", vec!["gsm8k", "--formulation", "cot", "--model", &script], file("cases.jsonl")),
    ];
    for (name, arguments, path) in runs {
        let arguments = [&["--limit", "1", "--tasks"], &arguments[..]].concat();
        let refusal = refused(&fleet, name, &arguments, &[], &path);
        assert!(refusal.contains("does not allow the path"), "{refusal}");
        let words = refusal.replace(&path, "");
        let hexadecimal = |word: &str| word.len() >= 8 && word.chars().all(|one| one.is_ascii_hexdigit());
        let hashes =
            words.split(|one: char| !one.is_ascii_alphanumeric()).filter(|word| hexadecimal(word)).count();
        assert_eq!(hashes, 0, "{refusal}");
    }
    line(
        "V7",
        "runs name `wiki=corpus:`, `sql=sqlite:` and `script:` paths outside the worker's folders",
        "refused without being opened; the refusals contain no hash",
    );
}
