//! A local OpenAI-compatible server with replies given by a test. Records the bodies and headers of requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::{Lumos, lumos};

pub(crate) const KEY: &str = "sk-0123456789-secret-key";

/// Returns the reply to a request (counted from 0) and its body, or an error status.
type Answer = dyn Fn(usize, &Value) -> Result<String, u16> + Send + Sync;

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) state: Arc<Asked>,
    _runtime: tokio::runtime::Runtime,
}

/// Recorded requests, and the function that replies.
pub(crate) struct Asked {
    pub(crate) requests: AtomicUsize,
    pub(crate) bodies: Mutex<Vec<Value>>,
    /// The headers of each request.
    pub(crate) headers: Mutex<Vec<HeaderMap>>,
    reply: Box<Answer>,
}

impl Server {
    /// Starts a server that replies to the prompt or the last message of each request.
    pub(crate) fn start(
        reply: impl Fn(usize, &Value) -> Result<String, u16> + Send + Sync + 'static,
    ) -> Self {
        Self::start_listing(None, reply)
    }

    /// Starts a server that also lists its models, if there is a list.
    pub(crate) fn start_listing(
        models: Option<&'static [&'static str]>,
        reply: impl Fn(usize, &Value) -> Result<String, u16> + Send + Sync + 'static,
    ) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let state = Arc::new(Asked {
            requests: AtomicUsize::new(0),
            bodies: Mutex::default(),
            headers: Mutex::default(),
            reply: Box::new(reply),
        });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let routes = Router::new()
            .route("/v1/completions", post(answer))
            .route("/v1/chat/completions", post(answer))
            .with_state(Arc::clone(&state));
        let routes = match models {
            Some(models) => {
                let listed: Vec<_> = models.iter().map(|id| json!({"id": id, "object": "model"})).collect();
                let listed = json!({"object": "list", "data": listed});
                routes.route("/v1/models", get(move || async move { Json(listed) }))
            }
            None => routes,
        };
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { url, state, _runtime: runtime }
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Returns a command with the key in its environment, which must not show it.
    pub(crate) fn lumos(&self) -> Lumos {
        lumos()
            .hiding(KEY)
            .env("OPENAI_API_KEY", KEY)
            .env("OPENAI_BASE_URL", &self.url)
            .env("LUMOS_OPENAI_RETRIES", "1")
            .env("LUMOS_OPENAI_PRICES", "tiny=1/2,judge=30/60")
            .env("LUMOS_LOG", "trace")
    }
}

async fn answer(State(state): State<Arc<Asked>>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let request = state.requests.fetch_add(1, Ordering::SeqCst);
    state.bodies.lock().unwrap().push(body.clone());
    state.headers.lock().unwrap().push(headers.clone());
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
