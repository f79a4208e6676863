//! Routes of the live page.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use futures::StreamExt;
use lumos_reports::live::CONTENT_TYPE;
use lumos_reports::viewer::PAGE_STYLE;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::access::{AccessRules, Denied};
use super::feeds::Feeds;
use super::files;

/// Maximum number of clients that receive events at the same time.
const STREAMS: usize = 64;
/// Maximum number of files that are read at the same time.
const FILES: usize = 8;
/// Interval between comments on an idle connection, so that proxies keep it open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The policy of the live page: only this server's scripts, styles and events.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The policy of reports, whose pages restrict scripts and styles further, by hash.
const REPORT_POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; \
                             img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PAGE: &str = include_str!("page/live.html");
const SCRIPT: &str = include_str!("page/live.js");
const STYLE: &str = include_str!("page/live.css");

/// State shared by all connections.
pub(super) struct Shared {
    access: AccessRules,
    feeds: Arc<Feeds>,
    /// Folders of runs, by key.
    folders: BTreeMap<String, PathBuf>,
    streams: Arc<Semaphore>,
    files: Semaphore,
    drain: CancellationToken,
}

impl Shared {
    pub(super) fn new(
        access: AccessRules,
        feeds: Arc<Feeds>,
        folders: BTreeMap<String, PathBuf>,
        drain: CancellationToken,
    ) -> Arc<Self> {
        let (streams, files) = (Arc::new(Semaphore::new(STREAMS)), Semaphore::new(FILES));
        Arc::new(Self { access, feeds, folders, streams, files, drain })
    }

    fn knows(&self, key: &str) -> bool {
        self.folders.contains_key(key) || self.feeds.has(key)
    }
}

type App = State<Arc<Shared>>;

/// Creates the router.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    let guard = middleware::from_fn_with_state(Arc::clone(&shared), guard);
    Router::new()
        .route("/", get(list))
        .route("/runs/{key}/", get(run))
        .route("/runs/{key}/report/", get(report_page))
        .route("/runs/{key}/report/{*path}", get(report_file))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/assets/live.js", get(script))
        .route("/assets/live.css", get(style))
        .fallback(not_found)
        .layer(guard)
        .with_state(shared)
}

/// Rejects requests that are not for this server or lack the token, and adds headers to all responses.
async fn guard(State(shared): App, request: Request, next: Next) -> Response {
    let (headers, uri) = (request.headers(), request.uri());
    let mut response = match shared.access.check(headers) {
        Ok(()) => next.run(request).await,
        Err(Denied::Host) => {
            let message = "unknown host name; start the server with --allow-host HOST to accept it\n";
            (StatusCode::MISDIRECTED_REQUEST, message).into_response()
        }
        Err(Denied::Token) => match shared.access.cookie(headers, uri.query()) {
            // Without the token, which would stay in the history of the browser.
            Some(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to(uri.path())).into_response(),
            None => {
                let message = "missing or wrong token; open /?token=TOKEN, or send it as `Authorization: Bearer TOKEN`\n";
                (StatusCode::UNAUTHORIZED, message).into_response()
            }
        },
    };
    let headers = response.headers_mut();
    let standard: [(HeaderName, &'static str); 4] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in standard {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "not found; the list of runs is at /\n").into_response()
}

fn asset(content_type: &'static str, content: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, content_type)], content).into_response()
}

fn page() -> Response {
    asset("text/html; charset=utf-8", PAGE)
}

async fn list(State(shared): App) -> Response {
    // One run needs no list.
    match shared.folders.keys().next() {
        Some(key) if shared.folders.len() == 1 && !shared.feeds.has_others(key) => {
            Redirect::to(&format!("/runs/{key}/")).into_response()
        }
        _ => page(),
    }
}

async fn run(State(shared): App, Path(key): Path<String>) -> Response {
    if shared.knows(&key) { page() } else { not_found().await }
}

async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT)
}

async fn style() -> Response {
    asset("text/css; charset=utf-8", format!("{PAGE_STYLE}\n{STYLE}"))
}

async fn metrics(State(shared): App) -> Response {
    asset(CONTENT_TYPE, shared.feeds.metrics())
}

#[derive(Deserialize)]
struct Chosen {
    /// The run; the list without it.
    #[serde(default)]
    run: String,
}

async fn events(State(shared): App, Query(chosen): Query<Chosen>) -> Response {
    let Ok(permit) = Arc::clone(&shared.streams).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many open pages\n").into_response();
    };
    let Some(events) = shared.feeds.events(&chosen.run, shared.drain.clone()) else {
        return not_found().await;
    };
    let events = events.map(move |event| {
        // Held until the client has received its last event.
        let _held = &permit;
        let data = event.data.to_string();
        Ok::<_, Infallible>(Event::default().event(event.kind).id(event.sequence.to_string()).data(data))
    });
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    ([(HeaderName::from_static("x-accel-buffering"), "no"), (header::CACHE_CONTROL, "no-store")], stream)
        .into_response()
}

async fn report_page(State(shared): App, Path(key): Path<String>) -> Response {
    report(&shared, &key, String::new()).await
}

async fn report_file(State(shared): App, Path((key, path)): Path<(String, String)>) -> Response {
    report(&shared, &key, path).await
}

async fn report(shared: &Shared, key: &str, path: String) -> Response {
    let Some(folder) = shared.folders.get(key).cloned() else { return not_found().await };
    let Ok(_held) = shared.files.acquire().await else { return not_found().await };
    match tokio::task::spawn_blocking(move || files::read(&folder, &path)).await {
        Ok(Some(file)) => {
            let policy = HeaderValue::from_static(REPORT_POLICY);
            let kind = HeaderValue::from_static(file.content_type);
            ([(header::CONTENT_SECURITY_POLICY, policy), (header::CONTENT_TYPE, kind)], file.bytes)
                .into_response()
        }
        _ => not_found().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of models and workers reach the page only as text, and the policy allows no inline code.
    #[test]
    fn the_page_has_no_inline_code_and_builds_no_markup_from_texts() {
        for unsafe_call in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
        {
            assert!(!SCRIPT.contains(unsafe_call), "{unsafe_call}");
        }
        assert!(!SCRIPT.contains("setAttribute('style'") && !PAGE.contains("style="));
        assert!(!PAGE.contains("<script>") && !PAGE.contains("<style>") && !PAGE.contains("onload"));
        assert!(!POLICY.contains("unsafe"));
    }
}
