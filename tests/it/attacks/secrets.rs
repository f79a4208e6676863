//! Untrusted runs: what a worker sends to servers named by a run, and what it reveals about files named by
//! it.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::line;
use super::rogue_server::{greeting, serve};
use crate::fleet::{holds_a_hash, refusals};
use crate::own_tool;
use crate::support::mariadb::PASSWORD;
use crate::support::model_server::{KEY, Server};
use crate::support::nats::NatsServer;
use crate::support::{Fleet, Lumos, Process, lumos};

/// Plans a run, waits until the worker refuses it, and returns the refusal.
fn refused(fleet: &Fleet, name: &str, arguments: &str, command: Lumos, part: &str) -> String {
    let mut coordinator = fleet.coordinator_with(command, name, arguments);
    let told = |status: &Value| refusals(status).iter().any(|one| one.contains(part));
    let status = fleet.until(&format!("a refusal of {part}"), told);
    coordinator.kill();
    refusals(&status).into_iter().find(|one| one.contains(part)).unwrap()
}

/// Starts a worker with all kinds of secrets and the default restrictions.
fn worker(fleet: &Fleet, folder: &Path) -> Process {
    let command = lumos().env("LUMOS_DATA", folder.join("data-of-the-worker"));
    let command = command.env("LUMOS_SQL_USER", "keeper").env("LUMOS_SQL_PASSWORD", PASSWORD);
    let keys = ["OPENAI_API_KEY", "HF_TOKEN", "WOLFRAM_APP_ID"];
    let command = keys.into_iter().fold(command, |command, variable| command.env(variable, KEY));
    fleet.restricted_worker(command, "--concurrency 2")
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
    let place = format!("0.0.0.0:{port}");
    let arguments =
        format!("--tasks intercode_sql --model builtin:tiny --limit 1 --tool sql=mysql://{place}");
    // The attacker allows the host for its own process.
    let attacker = lumos().env("LUMOS_SQL_HOSTS", &place);
    let refusal = refused(&fleet, "rogue", &arguments, attacker, &place);
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
    let _worker = worker(&fleet, folder.path());
    let server = Server::start(|_, _| Ok("Yes, I will stop planning.".to_owned()));
    let state = Arc::clone(&server.state);
    let run = |url: &str| format!("--tasks gsm8k --limit 2 --model openai:m@{url}");
    // A loopback server is allowed: it receives requests without a key.
    fleet.coordinator("loopback", run(&server.url)).exits(0);
    let asked = server.requests();
    assert!(asked >= 2, "{asked}");
    // Off loopback, the worker sends no requests; the coordinator sends some before the run.
    let elsewhere = run(&server.url.replace("127.0.0.1", "0.0.0.0"));
    let refusal = refused(&fleet, "elsewhere", &elsewhere, lumos(), "0.0.0.0");
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
    lumos().args(format!("data import-sql samples --to 'sqlite:{}'", file("databases"))).ok();
    let fleet = Fleet::new(folder.path(), &nats.url());
    let _worker = worker(&fleet, folder.path());
    for (name, arguments, path) in [
        ("wiki", "hotpotqa --model builtin:tiny --tool rank=bm25 --tool wiki=corpus", file("pages.jsonl")),
        ("sql", "intercode_sql --model builtin:tiny --tool sql=sqlite", file("databases")),
        ("script", "gsm8k --formulation cot --model script", file("cases.jsonl")),
    ] {
        let arguments = format!("--limit 1 --tasks {arguments}:'{path}'");
        let refusal = refused(&fleet, name, &arguments, lumos(), &path);
        assert!(refusal.contains("does not allow the path"), "{refusal}");
        assert!(!holds_a_hash(&refusal.replace(&path, "")), "{refusal}");
    }
    line(
        "V7",
        "runs name `wiki=corpus:`, `sql=sqlite:` and `script:` paths outside the worker's folders",
        "refused without being opened; the refusals contain no hash",
    );
}

/// The program writes a file when it starts.
#[test]
fn v15_a_worker_starts_no_program_that_a_run_names() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let task = own_tool::weather(folder.path(), &["Kyoto"]);
    let named = own_tool::tool(folder.path());
    let fleet = Fleet::new(folder.path(), &nats.url());
    // The same tool is allowed with other arguments.
    let strict = lumos().env("LUMOS_ALLOW_TOOLS", format!("{named} --other\nweather=exec:sh"));
    let _worker = fleet.worker_with(strict, "");
    let run =
        |tool: &str| format!("--tasks '{}' --limit 1 --model builtin:tiny --tool '{tool}'", task.display());
    let mut refusals = Vec::new();
    for (name, tool) in [
        ("exec", named.clone()),
        ("mcp", named.replace("=exec:", "=mcp:")),
        ("http", "weather=http://127.0.0.1:9/".to_owned()),
        ("mcp-http", "weather=mcp:http://127.0.0.1:9/".to_owned()),
    ] {
        let refusal = refused(&fleet, name, &run(&tool), lumos(), &tool);
        assert!(refusal.contains("does not allow the tool") && refusal.contains("--allow-tool"), "{refusal}");
        assert!(!holds_a_hash(&refusal), "the refusal contains a hash: {refusal}");
        refusals.push(refusal);
    }
    assert!(!folder.path().join("started").exists(), "a program was started");
    line("V15", "runs name a program, an MCP server and HTTP services as tools", &refusals[0]);
}
