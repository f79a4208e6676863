//! Runs over a local OpenAI-compatible server: what it is asked, what becomes of its failures, and that its key is in
//! no file and no output.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::support::{content, lumos, text};

pub(crate) const KEY: &str = "sk-0123456789-secret-key";

/// A server that knows some replies; it runs until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) state: Arc<Asked>,
    _runtime: tokio::runtime::Runtime,
}

/// What the server was asked, and what it answers with.
pub(crate) struct Asked {
    pub(crate) requests: AtomicUsize,
    pub(crate) bodies: Mutex<Vec<Value>>,
    reply: fn(usize, &Value) -> Result<String, u16>,
}

impl Server {
    /// A server that answers the prompt or the last message of each request, counted from 0.
    pub(crate) fn start(reply: fn(usize, &Value) -> Result<String, u16>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let state = Arc::new(Asked { requests: AtomicUsize::new(0), bodies: Mutex::default(), reply });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/v1/completions", post(answer))
            .route("/v1/chat/completions", post(answer))
            .with_state(Arc::clone(&state));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { url, state, _runtime: runtime }
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Runs the program with the key in its environment; exit code, standard output and standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = lumos()
            .args(arguments)
            .env("OPENAI_API_KEY", KEY)
            .env("LUMOS_OPENAI_RETRIES", "1")
            .env("LUMOS_OPENAI_PRICES", "tiny=1/2,judge=30/60")
            .env("LUMOS_LOG", "trace")
            .output()
            .unwrap();
        let (code, stdout, stderr) = text(&output);
        assert!(!stdout.contains(KEY) && !stderr.contains(KEY), "the key is shown:\n{stdout}\n{stderr}");
        (code, stdout, stderr)
    }
}

async fn answer(State(state): State<Arc<Asked>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let request = state.requests.fetch_add(1, Ordering::SeqCst);
    state.bodies.lock().unwrap().push(body.clone());
    let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match (state.reply)(request, &body) {
        Ok(text) => {
            let text = text.replace("{key}", key);
            let choice = match body.get("messages") {
                Some(_) => json!({"message": {"content": text}, "finish_reason": "stop"}),
                None => json!({"text": text, "finish_reason": "stop"}),
            };
            let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
            Json(json!({"choices": [choice], "usage": usage})).into_response()
        }
        Err(status) => {
            let message = format!("not with {key}, and {key} again");
            (StatusCode::from_u16(status).unwrap(), Json(json!({"error": {"message": message}})))
                .into_response()
        }
    }
}

/// Insists that the key is in no file below a folder.
pub(crate) fn assert_no_key(folder: &Path) {
    let mut folders = vec![folder.to_owned()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
            assert!(!found, "the key is in {}", path.display());
        }
    }
    assert!(files > 5, "{files} files only");
}

/// A planner and a grounder in one; the third item's planner always fails.
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
