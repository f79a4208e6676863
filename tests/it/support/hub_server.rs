//! A local Hugging Face hub with one data set, `org/data`, whose branch `main` a test moves.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lumos_tasks::ContentHash;
use serde_json::json;

use super::{Lumos, lumos};

/// A server that runs until it is dropped.
pub(crate) struct HubServer {
    url: String,
    state: Arc<Commits>,
    _runtime: tokio::runtime::Runtime,
}

/// The files of each commit, and the paths that were asked for.
#[derive(Default)]
struct Commits {
    all: Mutex<BTreeMap<String, BTreeMap<String, Vec<u8>>>>,
    main: Mutex<String>,
    asked: Mutex<Vec<String>>,
}

impl HubServer {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let state = Arc::new(Commits::default());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&state));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Self { url, state, _runtime: runtime }
    }

    /// Moves `main` to a new commit with one file. Returns the commit.
    pub(crate) fn commit(&self, file: &str, content: impl Into<Vec<u8>>) -> String {
        let mut all = self.state.all.lock().unwrap();
        let commit = format!("{:040x}", all.len() + 1);
        all.insert(commit.clone(), BTreeMap::from([(file.to_owned(), content.into())]));
        self.state.main.lock().unwrap().clone_from(&commit);
        commit
    }

    /// Returns a command that uses this hub and a cache.
    pub(crate) fn lumos(&self, cache: &Path) -> Lumos {
        lumos().env("HF_ENDPOINT", &self.url).env("HF_HOME", cache).without_env("HF_HUB_CACHE")
    }

    /// Number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.state.asked.lock().unwrap().len()
    }
}

async fn answer(State(state): State<Arc<Commits>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    state.asked.lock().unwrap().push(path.clone());
    let all = state.all.lock().unwrap();
    if let Some(revision) = path.strip_prefix("/api/datasets/org/data/revision/") {
        let main = state.main.lock().unwrap().clone();
        let commit = if revision == "main" { main.as_str() } else { revision };
        let Some(files) = all.get(commit) else {
            return (StatusCode::NOT_FOUND, [("x-error-code", "RevisionNotFound")]).into_response();
        };
        let siblings: Vec<_> = files.keys().map(|name| json!({"rfilename": name})).collect();
        return json!({"id": "org/data", "sha": commit, "siblings": siblings}).to_string().into_response();
    }
    let file = path.strip_prefix("/datasets/org/data/resolve/").and_then(|rest| rest.split_once('/'));
    let Some((commit, content)) = file.and_then(|(commit, file)| Some((commit, all.get(commit)?.get(file)?)))
    else {
        return (StatusCode::NOT_FOUND, [("x-error-code", "RepoNotFound")]).into_response();
    };
    let about = [
        (header::ETAG, format!("\"{}\"", ContentHash::of_bytes(content))),
        (header::CONTENT_LENGTH, content.len().to_string()),
        (header::HeaderName::from_static("x-repo-commit"), commit.to_owned()),
    ];
    let body = if request.method() == Method::HEAD { Vec::new() } else { content.clone() };
    (about, body).into_response()
}
