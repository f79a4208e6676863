//! Tools of one's own: called by hand, by the agent of a task file, and on a queue.

use std::fs;
use std::path::{Path, PathBuf};

use lumos_capabilities::{Capability, on_path, skip};
use serde_json::{Value, json};

use crate::support::model_server::Server;
use crate::support::nats::NatsServer;
use crate::support::{Fleet, content, lumos, set_up, wait_until};

const TASK: &str = r#"
name = "weather"
family = "custom"

[data]
file = "questions.jsonl"

[fields]
id = "id"

[answer]
kind = "text"

[[agent.actions]]
name = "Forecast"
description = "Highest temperature of tomorrow in a city."
arguments = ["city"]
tool = "weather"
result = "{high} degrees"
"#;

const PROGRAM: &str = r#"
echo started >> "$(dirname "$0")/started"
while read -r line; do
  case $line in
    *Kyoto*) echo '{"text": {"high": 31}}' ;;
    *Oslo*) echo '{"text": {"high": 12}}' ;;
    *Crash*) echo 'out of order' >&2; exit 1 ;;
    *Hang*) sleep 600 & echo $! > "$(dirname "$0")/child"; wait ;;
    *) echo '{"refused": "unknown city"}' ;;
  esac
done
"#;

/// Writes a task file, its questions and a program.
pub(crate) fn weather(folder: &Path, cities: &[&str]) -> PathBuf {
    let question = |city: &&str| {
        let answer = if *city == "Oslo" { "12 degrees" } else { "31 degrees" };
        json!({ "id": city, "question": format!("How warm is it tomorrow in {city}?"), "answer": answer })
            .to_string()
    };
    let questions: Vec<String> = cities.iter().map(question).collect();
    fs::write(folder.join("questions.jsonl"), questions.join("\n")).unwrap();
    fs::write(folder.join("weather.sh"), PROGRAM).unwrap();
    let file = folder.join("weather.toml");
    fs::write(&file, TASK).unwrap();
    file
}

/// The tool with the program in a folder: `weather=exec:…`.
pub(crate) fn tool(folder: &Path) -> String {
    format!("weather=exec:sh {}", folder.join("weather.sh").display())
}

/// Plans one subgoal and one action for the city in the prompt.
fn model() -> Server {
    Server::start(|_, body| {
        let prompt = body["prompt"].as_str().unwrap_or_default();
        let (_, rest) = prompt.rsplit_once("tomorrow in ").unwrap_or(("", "Kyoto?"));
        let city: String = rest.chars().take_while(|one| one.is_alphanumeric()).collect();
        Ok(match body["model"].as_str() {
            Some("ground") => format!("R1 = Forecast({city})"),
            _ => format!("Subgoal 1: Find how warm it is tomorrow in {city}."),
        })
    })
}

fn arguments(server: &Server, task: &Path, folder: &Path) -> String {
    format!(
        "--formulation onetime --planner openai:plan@{0} --grounder openai:ground@{0} --tasks '{1}' --tool '{2}'",
        server.url,
        task.display(),
        tool(folder)
    )
}

fn row<'a>(rows: &'a [Value], city: &str) -> &'a Value {
    rows.iter().find(|row| row["doc"]["id"] == city).unwrap()
}

#[test]
fn an_agent_calls_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let task = weather(folder, &["Kyoto", "Oslo", "Atlantis"]);
    let server = model();
    let run = lumos().args("run").args(arguments(&server, &task, folder)).output(folder, "first");
    run.ok().prints(["weather=exec:"]);
    let rows = content(&folder.join("first")).0.remove("weather").unwrap();
    for (city, score) in [("Kyoto", 1.0), ("Oslo", 1.0), ("Atlantis", 0.0)] {
        let row = row(&rows, city);
        assert_ne!(row["status"], "faulted", "{row:#}");
        assert_eq!(row["exact_match"], score, "{row:#}");
    }
    // The agent is shown why a call is rejected; it is recorded as its error.
    assert!(row(&rows, "Atlantis").to_string().contains("unknown city"));
    lumos().args("show").arg(folder.join("first")).args("Kyoto").ok().prints(["31 degrees"]);
}

#[test]
fn a_program_that_fails_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let task = weather(folder, &["Crash", "Kyoto"]);
    let server = model();
    let run = lumos().args("run --retry-on-error 1").args(arguments(&server, &task, folder));
    let ended = run.output(folder, "faulted").run();
    assert_ne!(ended.code, 0, "{ended}");
    let rows = content(&folder.join("faulted")).0.remove("weather").unwrap();
    assert_eq!(row(&rows, "Kyoto")["exact_match"], 1.0);
    assert!(rows.iter().all(|row| row["doc"]["id"] != "Crash" || row["status"] == "faulted"), "{rows:#?}");
    let shown = lumos().args("show").arg(folder.join("faulted")).args("Crash").run();
    assert!(format!("{shown}").contains("out of order"), "{shown}");
}

#[test]
fn a_task_file_alone_starts_no_program() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let task = weather(folder, &["Kyoto"]);
    let named = format!("{TASK}\n[tools]\n{}\"\n", tool(folder).replacen('=', " = \"", 1));
    fs::write(&task, named).unwrap();
    let run = lumos().args("run --model builtin:tiny --tasks").arg(&task).output(folder, "refused");
    run.exits(2).reports(["which starts a program or sends calls to a server", "--tool 'weather=exec:sh "]);
    assert!(!folder.join("started").exists());
}

#[test]
fn a_tool_is_called_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    weather(folder, &[]);
    let (_, backend) =
        tool(folder).split_once('=').map(|(name, backend)| (name.to_owned(), backend.to_owned())).unwrap();
    let by_hand = |more: &str| lumos().args("tool weather --backend").arg(&backend).args(more);
    by_hand("--operation forecast '{\"city\":\"Kyoto\"}'").ok().prints(["{\"high\":31}"]);
    by_hand("--operation forecast '{\"city\":\"Atlantis\"}'").run().reports(["refused: unknown city"]);
    by_hand("--operation forecast Kyoto").exits(2).reports(["expected", "pass a JSON object"]);
    by_hand("'{\"city\":\"Kyoto\"}'").exits(2).reports(["missing --operation"]);
    lumos()
        .args("tool weather")
        .args("--operation x '{}'")
        .exits(2)
        .reports(["lumos tool weather --backend 'exec:…'"]);
    lumos()
        .args("tool weather --backend exec:no-such-program-here --operation x '{}'")
        .exits(2)
        .reports(["not found"]);
    lumos()
        .args("run --tasks svamp --model builtin:tiny --tool math=native")
        .output(folder, "typo")
        .exits(2)
        .reports(["unknown tool `math`: expected one of maths, rank", "exec:<command>"]);
}

#[test]
fn an_interrupt_of_a_call_by_hand_ends_the_program_and_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    weather(folder, &[]);
    let backend = tool(folder).replacen("weather=", "", 1);
    let hanging = lumos().args("tool weather --backend").arg(backend);
    let hanging = hanging.args("--operation forecast '{\"city\":\"Hang\"}'");
    let mut hanging = hanging.start(&folder.join("log"));
    let child = || fs::read_to_string(folder.join("child")).unwrap_or_default().trim().to_owned();
    wait_until(|| !child().is_empty(), || "the program was not called".to_owned());
    hanging.signal("-INT");
    hanging.exits(130);
    let status = || fs::read_to_string(format!("/proc/{}/status", child())).unwrap_or_default();
    let is_running = || status().contains("State:") && !status().contains("State:\tZ");
    wait_until(|| !is_running(), || format!("process {} was not killed", child()));
}

#[test]
fn a_worker_calls_the_programs_that_its_operator_allows() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let task = weather(folder, &["Kyoto", "Oslo"]);
    let server = model();
    set_up(&nats);
    let fleet = Fleet::new(folder, &nats.url());
    let allowing = lumos().env("LUMOS_ALLOW_TOOLS", format!("other=exec:sh\n{}", tool(folder)));
    let worker = fleet.restricted_worker(allowing, "--concurrency 2");
    fleet.coordinator("together", arguments(&server, &task, folder)).exits(0);
    let rows = content(&folder.join("together")).0.remove("weather").unwrap();
    assert!(rows.iter().all(|row| row["exact_match"] == 1.0), "{rows:#?}");
    worker.drained();
}

#[test]
fn an_mcp_server_lists_and_runs_its_tools() {
    let server = std::env::var("LUMOS_MCP_SERVER").unwrap_or_default();
    if server.is_empty() || on_path("node").is_none() {
        return skip(Capability::Mcp, "LUMOS_MCP_SERVER is not set, or node is not installed");
    }
    let by_hand =
        |more: &str| lumos().args("tool everything --backend").arg(format!("mcp:node {server}")).args(more);
    by_hand("").ok().prints(["get-sum", "a*  number"]);
    by_hand("--operation get-sum '{\"a\":2,\"b\":3}'").ok().prints(["The sum of 2 and 3 is 5."]);
    by_hand("--operation none '{}'").run().reports(["no tool `none`"]);
}
