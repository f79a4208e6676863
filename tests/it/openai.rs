//! Runs over OpenAI's API. With a local server: its requests, its failures, and that no file or output contains its
//! key. With `lumos serve-model`: the replies equal those of the engine in the run's own process, for all roles or one
//! of them.

use std::fs;
use std::path::Path;

use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use crate::support::model_server::{KEY, Server};
use crate::support::{Lumos, Serving, assert_nowhere, content, lumos, replies, unwrapped};

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

/// Returns the command of a run with a model of the server.
fn run(server: &Server, model: &str, arguments: &str, folder: &Path, name: &str) -> Lumos {
    let model = format!("--model openai:{model}@{}", server.url);
    server.lumos().args("run").args(arguments).args(model).output(folder, name)
}

#[test]
fn a_server_s_failures_are_faults_and_its_key_is_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(agent);
    let arguments = "--tasks gsm8k --limit 4 --retry-on-error 1";
    let ended = run(&server, "tiny", arguments, folder.path(), "remote").exits(5);
    ended
        .reports(["0 units are outstanding and 1 faulted"])
        .prints(["models cost 0.0011 US dollars for 3 items"]);
    let planned = |arguments: &str| run(&server, "tiny", arguments, folder.path(), "planned");
    let like =
        format!("--tasks gsm8k --limit 12 --dry-run --like '{}'", folder.path().join("remote").display());
    planned(&like).ok().prints(["US dollars", "about 0.0043 US dollars for models with a price"]);
    let run = folder.path().join("remote");
    let (samples, _) = content(&run);
    let rows = &samples["gsm8k"];
    assert_eq!(rows.iter().filter(|row| row["status"] == "answered").count(), 3, "{rows:?}");
    let fault = rows[2]["error"]["message"].as_str().unwrap();
    assert!(fault.contains("503 Service Unavailable") && fault.contains("[key]"), "{fault}");
    assert_eq!(replies(&rows[0])[0], " Subgoal 1: Add.");
    assert!(replies(&rows[0])[2].ends_with("[key]"));
    server.lumos().args("show --json").arg(&run).args("2").run().prints(["503"]);
    assert_nowhere(KEY, folder.path());
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
    let server = Server::start_listing(Some(&["tiny", "other"]), two_models);
    let asked = |model: &str, name: &str| run(&server, model, "--tasks svamp --limit 2", folder.path(), name);
    asked("wrong-name", "wrong")
        .exits(2)
        .reports(["the server has no model `wrong-name` (404 Not Found", "it lists `tiny`, `other`"]);
    assert_eq!(server.requests(), 1, "one token is requested");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no run is created");
    let before = server.requests();
    asked("tiny", "listed").ok();
    assert!(server.state.bodies.lock().unwrap()[before..].iter().all(|body| body["max_tokens"] == 512));
    // An unlisted name may be valid.
    asked("alias", "alias").ok();
}

#[test]
fn a_server_that_lists_no_models_is_asked_and_its_faults_are_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(two_models);
    let arguments = "--tasks svamp --limit 2 --retry-on-error 0";
    let ended = run(&server, "wrong-name", arguments, folder.path(), "r").exits(5);
    let told = unwrapped(&ended.stdout);
    assert!(told.contains("2 faulted (model 2)"), "{ended}");
    assert!(
        told.contains("2 of 2 faulted: model: planner: the server rejected the request for wrong-name (404"),
        "{ended}"
    );
}

#[test]
fn a_wrong_key_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Err(401));
    run(&server, "tiny", "--tasks svamp --limit 8", folder.path(), "r").exits(5);
    assert!(server.requests() <= 8, "{} requests", server.requests());
    let shown = server.lumos().args("show").arg(folder.path().join("r")).args("0").run();
    shown.prints(["set OPENAI_API_KEY"]);
    assert_nowhere(KEY, folder.path());
    let named = server.lumos().args("run --tasks svamp --model openai:m@http://u:sk-hidden@h/v1");
    let named = named.exits(2).reports(["environment"]);
    assert!(!named.stderr.contains("sk-hidden"), "{named}");
}

/// Returns the headers received by a server named by a run, with a key in an environment variable.
fn shown(variable: &str, server: &Server, folder: &Path) -> Vec<HeaderMap> {
    let run =
        lumos().args("run --tasks gsm8k --limit 2").output(folder, "run").hiding(KEY).env(variable, KEY);
    run.args(format!("--model openai:tiny@{}", server.url)).run();
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
        let run =
            lumos().args("run --tasks gsm8k --model openai:m@http://attacker.example:8000/v1 --limit 1");
        let run = run.env(variable, KEY).env("OPENAI_BASE_URL", base).hiding(KEY);
        run.exits(2).reports(["unencrypted", "hint", own]);
    }
}

/// Returns the samples and scores of a run without the names of its models. Also removes how a reply ended:
/// over HTTP, a stop text and the end of the sequence cannot be distinguished.
fn samples(run: &Path) -> Vec<Value> {
    let (samples, _) = content(run);
    let mut rows = samples.into_values().flatten().collect::<Vec<Value>>();
    for row in &mut rows {
        for name in ["configuration", "unit"] {
            assert!(row.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        for step in row["trajectory"].as_array_mut().unwrap() {
            step.as_object_mut().unwrap().remove("finish");
        }
    }
    rows
}

#[test]
fn a_run_over_the_server_is_the_run_in_process() {
    let server = Serving::models(&["builtin:tiny"]);
    assert_eq!(server.models.len(), 3, "{:?}", server.models);
    let folder = tempfile::tempdir().unwrap();
    for formulation in ["iterative", "onetime"] {
        let run = |name: &str, planner: &str, grounder: &str| {
            let name = format!("{formulation}-{name}");
            let run =
                lumos().args("run --tasks gsm8k --limit 4 -q --batch-size 2").output(folder.path(), &name);
            let what = format!("--formulation {formulation} --planner {planner} --grounder {grounder}");
            run.args(what).ok();
            samples(&folder.path().join(name))
        };
        let planner = format!("openai:tiny-planner-{formulation}@{}", server.url);
        let grounder = format!("openai:tiny-grounder@{}", server.url);
        let here = run("here", "builtin:tiny", "builtin:tiny");
        let count = here.iter().map(|row| replies(row).len()).sum::<usize>();
        assert!(here.len() == 4 && count >= 8, "{count} replies");
        assert_eq!(run("there", &planner, &grounder), here, "both on the server");
        assert_eq!(run("mixed", "builtin:tiny", &grounder), here, "the grounder on the server");
        assert_eq!(run("other", &planner, "builtin:tiny"), here, "the planner on the server");
    }
}
