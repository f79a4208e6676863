//! A model server that begins only as many mathematics episodes as a test allows, so that a run cannot end
//! before the test has killed or interrupted it.

use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{Lumos, wait_until};

/// A server that runs until it is dropped.
pub(crate) struct Paced {
    url: String,
    gate: Arc<Gate>,
    _runtime: tokio::runtime::Runtime,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// Number of processes admitted so far. Only the last one may begin episodes, because requests of one
    /// that was killed may arrive late.
    processes: u32,
    /// How many more episodes it may begin.
    left: usize,
    /// How many of its episodes wait.
    waiting: usize,
}

impl State {
    /// The API key of the last process.
    fn key(&self) -> String {
        format!("key-of-process-{}", self.processes)
    }
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until an episode may begin. Returns false if another process was admitted.
    async fn begin(&self, authorization: &str) -> bool {
        let mut has_arrived = false;
        loop {
            // Created before the state is read, so that no change is missed.
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if authorization != format!("Bearer {}", state.key()) {
                    return false;
                }
                if !has_arrived {
                    state.waiting += 1;
                    has_arrived = true;
                }
                if state.left > 0 {
                    state.left -= 1;
                    state.waiting -= 1;
                    return true;
                }
            }
            changed.await;
        }
    }
}

impl Paced {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let gate = Arc::new(Gate::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let routes = Router::new().route("/v1/completions", post(answer)).with_state(Arc::clone(&gate));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { url, gate, _runtime: runtime }
    }

    /// The model's name.
    pub(crate) fn model(&self) -> String {
        format!("openai:paced@{}", self.url)
    }

    /// Prepares the command of the next process, which may begin this many episodes.
    pub(crate) fn admit(&self, command: Lumos, episodes: usize) -> Lumos {
        {
            let mut state = self.gate.state();
            *state = State { processes: state.processes + 1, left: episodes, waiting: 0 };
        }
        self.gate.changed.notify_waiters();
        self.join(command)
    }

    /// Prepares the command of a further process, which shares the episodes of the last one.
    pub(crate) fn join(&self, command: Lumos) -> Lumos {
        command
            .env("OPENAI_API_KEY", self.gate.state().key())
            .env("OPENAI_BASE_URL", &self.url)
            // Replies may take as long as the test needs.
            .env("LUMOS_OPENAI_TIMEOUT", "3600")
    }

    /// Lets all further episodes begin.
    pub(crate) fn open(&self) {
        self.gate.state().left = usize::MAX;
        self.gate.changed.notify_waiters();
    }

    /// Waits until this many episodes wait for their beginning.
    pub(crate) fn until_waiting(&self, episodes: usize) {
        let waiting = || self.gate.state().waiting;
        wait_until(|| waiting() == episodes, || format!("{} episodes wait instead of {episodes}", waiting()));
    }
}

/// Replies as planner and grounder. The first request of an episode waits until the episode may begin.
async fn answer(
    extract::State(gate): extract::State<Arc<Gate>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let prompt = body["prompt"].as_str().unwrap();
    let text = if prompt.contains("to be grounded: ") {
        // Differs between items.
        format!("R1 = Calculator({} + 1)", prompt.len())
    } else if prompt.contains("The executed result for ") {
        "Yes, I will stop planning.".to_owned()
    } else {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if !gate.begin(authorization.unwrap_or_default()).await {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        "Subgoal 1: Add.".to_owned()
    };
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 10});
    Json(json!({"choices": [{"text": text, "finish_reason": "stop"}], "usage": usage})).into_response()
}
