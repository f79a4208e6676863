//! HTTP routes of the server: convert HTTP requests to engine requests, and results to HTTP responses.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::future::try_join_all;
use futures::stream::{self, StreamExt};
use lumos_engine::{GenerateError, GenerateRequest, Prompt, lost_gpu};
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::chat::ChatRequest;
use super::completions::CompletionRequest;
use super::error::ApiError;
use super::flow::Flow;
use super::options::Options;
use super::reply::{Heading, Interface};
use super::served::ServedModel;
use super::settings::{ServeSettings, check, check_host};

/// Factor of the body limit up to which a too large body is read and discarded, because clients send the
/// whole body before they read the response.
const DISCARDED: usize = 4;
/// Bodies and prompts longer than this are parsed and encoded outside the threads that serve connections.
const LONG: usize = 16 << 10;

/// State shared by all connections.
pub(super) struct Shared {
    pub(super) models: Vec<ServedModel>,
    pub(super) settings: ServeSettings,
    /// Slots for waiting and running sequences.
    pub(super) places: Arc<Semaphore>,
    /// Remaining bytes for bodies being received.
    pub(super) bodies: Arc<Semaphore>,
    /// Remaining bytes for long bodies and prompts being parsed and encoded.
    pub(super) preparing: Arc<Semaphore>,
    pub(super) started: i64,
    pub(super) drain: CancellationToken,
}

type App = State<Arc<Shared>>;

/// Creates the router.
pub(super) fn routes(shared: Arc<Shared>) -> Router {
    let with_key = middleware::from_fn_with_state(Arc::clone(&shared), authenticate);
    let for_this_machine = middleware::from_fn_with_state(Arc::clone(&shared), reject_foreign_hosts);
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route_layer(with_key)
        .route("/health", get(health))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_path)
        // Bodies are read and limited by `Shared::receive`.
        .layer(DefaultBodyLimit::disable())
        .layer(for_this_machine)
        .with_state(shared)
}

async fn reject_foreign_hosts(State(shared): App, request: Request, next: Next) -> Response {
    if shared.settings.loopback_hosts_only
        && let Err(error) = check_host(request.headers())
    {
        return error.into_response();
    }
    next.run(request).await
}

async fn authenticate(State(shared): App, request: Request, next: Next) -> Response {
    if let Some(key) = &shared.settings.key
        && let Err(error) = check(key, request.headers())
    {
        return error.into_response();
    }
    next.run(request).await
}

async fn health(State(shared): App) -> Response {
    let status = if lost_gpu().is_some() {
        "gpu_lost"
    } else if shared.drain.is_cancelled() {
        "draining"
    } else {
        return Json(json!({"status": "ok"})).into_response();
    };
    (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": status}))).into_response()
}

async fn no_such_path(method: Method, uri: Uri) -> ApiError {
    let message = format!("Unknown request URL: {method} {}", uri.path());
    ApiError::new(StatusCode::NOT_FOUND, "unknown_url", message)
}

async fn models(State(shared): App) -> Json<Value> {
    let models: Vec<Value> = shared.models.iter().map(|model| model.object(shared.started)).collect();
    Json(json!({"object": "list", "data": models}))
}

async fn model(State(shared): App, Path(id): Path<String>) -> Result<Json<Value>, ApiError> {
    Ok(Json(shared.model(&id)?.object(shared.started)))
}

async fn completions(State(shared): App, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = shared.receive(&headers, body).await?;
    let read = |_: &Shared, body: &[u8]| CompletionRequest::read(body, rand::random());
    let (CompletionRequest { model, prompts, options }, room) = shared.read(body, read).await?;
    let model = shared.model(&model)?;
    answer(&shared, model, Interface::Completions, prompts, room, &options).await
}

async fn chat_completions(State(shared): App, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = shared.receive(&headers, body).await?;
    let read = |shared: &Shared, body: &[u8]| {
        let ChatRequest { model, messages, options } = ChatRequest::read(body, rand::random())?;
        let prompt = shared.model(&model)?.prompt(&messages)?;
        Ok((model, prompt, options))
    };
    let ((model, prompt, options), room) = shared.read(body, read).await?;
    let model = shared.model(&model)?;
    answer(&shared, model, Interface::Chat, vec![prompt], room, &options).await
}

/// Generates and responds, in full or streamed. Dropping the future, when the client disconnects, cancels the
/// sequences.
async fn answer(
    shared: &Shared,
    model: &ServedModel,
    interface: Interface,
    prompts: Vec<Prompt>,
    room: OwnedSemaphorePermit,
    options: &Options,
) -> Result<Response, ApiError> {
    let places = shared.places(prompts.len())?;
    let heading = Heading {
        interface,
        id: format!("{}-{:032x}", interface.id_prefix(), rand::random::<u128>()),
        created: jiff::Timestamp::now().as_second(),
        model: model.id().to_owned(),
        include_usage: options.include_usage,
    };
    let prompts = try_join_all(prompts.into_iter().map(|prompt| shared.encoded(model, prompt))).await?;
    drop(room);
    let requests = prompts.into_iter().map(|prompt| options.request(prompt));
    if options.stream {
        let streams = try_join_all(requests.map(|request| model.engine().stream(request)));
        return Ok(server_sent(Flow::new(heading, streams.await?, places)));
    }
    let generate = |request: GenerateRequest| model.engine().generate(request);
    let generations = try_join_all(requests.map(generate)).await?;
    drop(places);
    Ok(Json(heading.whole(&generations)).into_response())
}

fn server_sent(flow: Flow) -> Response {
    let events = stream::unfold(flow, |mut flow| async {
        let data = flow.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), flow))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// A body, with its permit for the bytes it takes.
struct Received {
    bytes: Vec<u8>,
    room: OwnedSemaphorePermit,
}

fn overloaded(message: &str) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
}

impl Shared {
    /// Receives a JSON body within the limits on size and time.
    async fn receive(&self, headers: &HeaderMap, body: Body) -> Result<Received, ApiError> {
        let kind =
            headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        // Web pages of other origins cannot send this type without a CORS preflight. A page whose host name
        // resolves to this machine has the same origin; `check_host` rejects it.
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let message = "The request must have `Content-Type: application/json`";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
        }
        let late = |_| {
            let message = "The request took too long to arrive";
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        };
        tokio::time::timeout(self.settings.body_time, self.collect(body)).await.unwrap_or_else(late)
    }

    async fn collect(&self, body: Body) -> Result<Received, ApiError> {
        let most = self.settings.max_body;
        let room = |bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            Arc::clone(&self.bodies).try_acquire_many_owned(bytes).map_err(|_| {
                overloaded("The server is busy: it is receiving too many large requests. Try again later")
            })
        };
        let mut received = Received { bytes: Vec::new(), room: room(0)? };
        let mut length = 0;
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| {
                let message = format!("Failed to read the request: {error}");
                ApiError::new(StatusCode::BAD_REQUEST, "incomplete_body", message)
            })?;
            length += piece.len();
            if length <= most {
                received.room.merge(room(piece.len())?);
                received.bytes.extend_from_slice(&piece);
                continue;
            }
            received = Received { bytes: Vec::new(), room: room(0)? };
            if length > most.saturating_mul(DISCARDED) {
                break;
            }
        }
        if length > most {
            let message = format!("The request is larger than {most} bytes");
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
        }
        Ok(received)
    }

    /// Parses a request from its body. Returns the body's permit too, which is held until the prompts are
    /// encoded.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        body: Received,
        read: impl FnOnce(&Self, &[u8]) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<(T, OwnedSemaphorePermit), ApiError> {
        let Received { bytes, room } = body;
        if bytes.len() <= LONG {
            return read(self, &bytes).map(|request| (request, room));
        }
        let shared = Arc::clone(self);
        self.prepared(bytes.len(), move || read(&shared, &bytes).map(|request| (request, room))).await
    }

    /// Encodes a long prompt as token ids. Other prompts are returned unchanged.
    async fn encoded(&self, model: &ServedModel, prompt: Prompt) -> Result<Prompt, ApiError> {
        let Prompt::Text(text) = prompt else { return Ok(prompt) };
        model.check_length(&text, self.settings.max_prompt)?;
        if text.len() <= LONG {
            return Ok(Prompt::Text(text));
        }
        let (engine, bytes) = (model.engine().clone(), text.len());
        let encode = move || Ok(Prompt::Tokens(engine.tokenizer().encode(&text)?));
        self.prepared(bytes, encode).await
    }

    /// Runs work on `bytes` bytes outside the threads that serve connections, once enough bytes are
    /// available. The work holds its permit, so that a client that disconnects does not release it before the
    /// work ends.
    async fn prepared<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let bytes = u32::try_from(bytes.min(self.settings.preparing)).unwrap_or(u32::MAX);
        let ended = || ApiError::from(GenerateError::ShutDown);
        let room = Arc::clone(&self.preparing).acquire_many_owned(bytes).await.map_err(|_| ended())?;
        let work = move || {
            let _room = room;
            work()
        };
        tokio::task::spawn_blocking(work).await.map_err(|_| ended())?
    }

    fn model(&self, id: &str) -> Result<&ServedModel, ApiError> {
        self.models.iter().find(|model| model.id() == id).ok_or_else(|| {
            let known: Vec<&str> = self.models.iter().map(ServedModel::id).collect();
            ApiError::no_such_model(id, &known)
        })
    }

    /// Reserves slots for sequences.
    fn places(&self, count: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let most = self.settings.max_sequences;
        if count > most {
            let message = format!("`prompt` has {count} prompts; a request may have at most {most}");
            return Err(ApiError::invalid("prompt", message));
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Arc::clone(&self.places)
            .try_acquire_many_owned(count)
            .map_err(|_| overloaded("The server is busy: too many sequences are waiting. Try again later"))
    }
}
