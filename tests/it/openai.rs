//! Runs with a local OpenAI-compatible server: its requests, its failures, and that no file or output
//! contains its key.

use std::fs;
use std::path::Path;

use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::model_server::{KEY, Server, assert_no_key};
use crate::support::{content, lumos, text};

/// Replies as planner and grounder. The third item's planner always fails.
fn agent(request: usize, body: &Value) -> Result<String, u16> {
    let prompt = body["prompt"].as_str().unwrap();
    if request == 0 {
        return Err(500);
    }
    if prompt.contains("Subgoal to be grounded") {
        return Ok(" R1 = Calculator(1 + 2)\nand more".to_owned());
    }
    if prompt.contains("The executed result") {
        return Ok(" Yes, I will stop planning. {key}".to_owned());
    }
    if prompt.contains(third_question()) { Err(503) } else { Ok(" Subgoal 1: Add.\n".to_owned()) }
}

fn third_question() -> &'static str {
    static QUESTION: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    QUESTION.get_or_init(|| {
        let line = include_str!("../../benchmarks/samples/gsm8k.jsonl").lines().nth(2).unwrap();
        serde_json::from_str::<Value>(line).unwrap()["question"].as_str().unwrap().to_owned()
    })
}

#[test]
fn a_server_s_failures_are_faults_and_its_key_is_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(agent);
    let model = format!("openai:tiny@{}", server.url);
    let runs = folder.path().to_str().unwrap();
    let arguments = [
        "run",
        "--tasks",
        "gsm8k",
        "--model",
        &model,
        "--limit",
        "4",
        "--output-path",
        runs,
        "--name",
        "remote",
        "--retry-on-error",
        "1",
    ];
    let (code, stdout, stderr) = server.run(&arguments);
    assert_eq!(code, 5, "{stdout}\n{stderr}");
    assert!(stderr.contains("0 units are outstanding and 1 faulted"), "{stderr}");
    assert!(stdout.contains("models cost 0.0011 US dollars for 3 items"), "{stdout}");
    let run = folder.path().join("remote");
    let (samples, _) = content(&run);
    let rows = &samples["gsm8k"];
    assert_eq!(rows.iter().filter(|row| row["status"] == "answered").count(), 3, "{rows:?}");
    let fault = rows[2]["error"]["message"].as_str().unwrap();
    assert!(fault.contains("503 Service Unavailable") && fault.contains("[key]"), "{fault}");
    assert_eq!(rows[0]["resps"][0][0], " Subgoal 1: Add.");
    assert!(rows[0]["resps"][2][0].as_str().unwrap().ends_with("[key]"));
    let (_, stdout, _) = server.run(&["show", run.to_str().unwrap(), "2", "--json"]);
    assert!(stdout.contains("503"), "{stdout}");
    assert_no_key(folder.path());
    let bodies = server.state.bodies.lock().unwrap();
    assert!(bodies.iter().all(|body| body["stop"] == json!(["\n"]) && body["max_tokens"] == 512));
}

/// Replies for two models and an alias.
fn two_models(_: usize, body: &Value) -> Result<String, u16> {
    match body["model"].as_str().unwrap() {
        "tiny" | "other" | "alias" => Ok("No, I will keep planning.".to_owned()),
        _ => Err(404),
    }
}

#[test]
fn a_model_that_the_server_does_not_have_is_refused_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let server = Server::start_listing(Some(&["tiny", "other"]), two_models);
    let asked = |model: &str, name: &str| {
        let model = format!("openai:{model}@{}", server.url);
        server.run(&[
            "run",
            "--tasks",
            "svamp",
            "--model",
            &model,
            "--limit",
            "2",
            "--output-path",
            runs,
            "--name",
            name,
        ])
    };
    let (code, stdout, stderr) = asked("wrong-name", "wrong");
    assert_eq!(code, 2, "{stdout}\n{stderr}");
    assert!(stderr.contains("the server has no model `wrong-name` (404 Not Found"), "{stderr}");
    assert!(stderr.contains("it lists `tiny`, `other`"), "{stderr}");
    assert_eq!(server.requests(), 1, "one token is requested");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no run is created");
    let before = server.requests();
    assert_eq!(asked("tiny", "listed").0, 0);
    assert!(server.state.bodies.lock().unwrap()[before..].iter().all(|body| body["max_tokens"] == 512));
    assert_eq!(asked("alias", "alias").0, 0, "an unlisted name may be valid");
}

#[test]
fn a_server_that_lists_no_models_is_asked_and_its_faults_are_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(two_models);
    let model = format!("openai:wrong-name@{}", server.url);
    let runs = folder.path().to_str().unwrap();
    let arguments = ["run", "--tasks", "svamp", "--model", &model, "--limit", "2", "--retry-on-error", "0"];
    let (code, stdout, stderr) =
        server.run(&[&arguments[..], &["--output-path", runs, "--name", "r"]].concat());
    assert_eq!(code, 5, "{stdout}\n{stderr}");
    let told = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("2 faulted (model 2)"), "{stdout}");
    assert!(
        told.contains("2 of 2 faulted: model: planner: the server rejected the request for wrong-name (404"),
        "{stdout}"
    );
}

#[test]
fn a_wrong_key_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Err(401));
    let model = format!("openai:tiny@{}", server.url);
    let runs = folder.path().to_str().unwrap();
    let arguments =
        ["run", "--tasks", "svamp", "--model", &model, "--limit", "8", "--output-path", runs, "--name", "r"];
    let (code, _, stderr) = server.run(&arguments);
    assert_eq!(code, 5, "{stderr}");
    assert!(server.requests() <= 8, "{} requests", server.requests());
    let (_, stdout, _) = server.run(&["show", folder.path().join("r").to_str().unwrap(), "0"]);
    assert!(stdout.contains("set OPENAI_API_KEY"), "{stdout}");
    assert_no_key(folder.path());
    let (code, _, stderr) =
        server.run(&["run", "--tasks", "svamp", "--model", "openai:m@http://u:sk-hidden@h/v1"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("environment") && !stderr.contains("sk-hidden"), "{stderr}");
}

/// Returns the headers received by a server named by a run, with a key in an environment variable.
fn shown(variable: &str, server: &Server, folder: &Path) -> Vec<HeaderMap> {
    let model = format!("openai:tiny@{}", server.url);
    let output = lumos()
        .args(["run", "--tasks", "gsm8k", "--model", &model, "--limit", "2"])
        .args(["--output-path", folder.to_str().unwrap(), "--name", "run"])
        .env(variable, KEY)
        .output()
        .unwrap();
    let (_, stdout, stderr) = text(&output);
    assert!(!stdout.contains(KEY) && !stderr.contains(KEY), "{stdout}\n{stderr}");
    server.state.headers.lock().unwrap().clone()
}

#[test]
fn a_server_that_a_run_names_does_not_get_the_general_key() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Ok("Subgoal 1: Add.".to_owned()));
    let seen = shown("OPENAI_API_KEY", &server, folder.path());
    assert!(!seen.is_empty());
    let values = seen.iter().flat_map(HeaderMap::values);
    assert!(values.filter_map(|value| value.to_str().ok()).all(|value| !value.contains(KEY)), "{seen:?}");

    // A server with its own key receives that key.
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Ok("Subgoal 1: Add.".to_owned()));
    let host = server.url.trim_start_matches("http://").trim_end_matches("/v1");
    let own = format!("OPENAI_API_KEY_{}", host.replace(['.', ':'], "_"));
    let seen = shown(&own, &server, folder.path());
    assert!(
        !seen.is_empty()
            && seen.iter().all(|headers| headers[header::AUTHORIZATION] == format!("Bearer {KEY}"))
    );
}

#[test]
fn no_key_leaves_this_machine_unencrypted() {
    let own = "OPENAI_API_KEY_ATTACKER_EXAMPLE_8000";
    for (variable, base) in [(own, ""), ("OPENAI_API_KEY", "http://attacker.example:8000/v1")] {
        let output = lumos()
            .args([
                "run",
                "--tasks",
                "gsm8k",
                "--model",
                "openai:m@http://attacker.example:8000/v1",
                "--limit",
                "1",
            ])
            .env(variable, KEY)
            .env("OPENAI_BASE_URL", base)
            .output()
            .unwrap();
        let (code, stdout, stderr) = text(&output);
        assert_eq!(code, 2, "{stdout}\n{stderr}");
        assert!(
            stderr.contains("unencrypted") && stderr.contains("hint") && stderr.contains(own),
            "{stderr}"
        );
        assert!(!stderr.contains(KEY), "{stderr}");
    }
}
