//! The paths of the server: what comes over HTTP becomes a request, what is generated goes back.

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
use lumos_engine::{GenerateRequest, Input};
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
use super::settings::ServeSettings;

/// Of a body that is too large, so many times the limit is read and thrown away: clients write it to the end before they
/// read the answer.
const DISCARDED: usize = 4;

/// What all connections share.
pub(super) struct Shared {
    pub(super) models: Vec<ServedModel>,
    pub(super) settings: ServeSettings,
    /// Places of sequences that wait or are generated.
    pub(super) places: Arc<Semaphore>,
    pub(super) started: i64,
    pub(super) drain: CancellationToken,
}

type App = State<Arc<Shared>>;

/// The server's paths.
pub(super) fn routes(shared: Arc<Shared>) -> Router {
    let with_key = middleware::from_fn_with_state(Arc::clone(&shared), authenticate);
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/v1/completions", post(completions))
        .route("/v1/chat/completions", post(chat_completions))
        .route_layer(with_key)
        .route("/health", get(health))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_path)
        // Bodies are read, and bounded, by hand.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared)
}

async fn authenticate(State(shared): App, request: Request, next: Next) -> Response {
    if let Some(key) = &shared.settings.key
        && let Err(error) = key.check(request.headers())
    {
        return error.into_response();
    }
    next.run(request).await
}

async fn health(State(shared): App) -> Response {
    if shared.drain.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"status": "draining"}))).into_response();
    }
    Json(json!({"status": "ok"})).into_response()
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
    let body = read_body(&shared.settings, &headers, body).await?;
    let CompletionRequest { model, prompts, options } = CompletionRequest::read(&body, rand::random())?;
    let model = shared.model(&model)?;
    answer(&shared, model, Interface::Completions, prompts, &options).await
}

async fn chat_completions(State(shared): App, headers: HeaderMap, body: Body) -> Result<Response, ApiError> {
    let body = read_body(&shared.settings, &headers, body).await?;
    let ChatRequest { model, messages, options } = ChatRequest::read(&body, rand::random())?;
    let model = shared.model(&model)?;
    let prompt = model.prompt(&messages)?;
    answer(&shared, model, Interface::Chat, vec![prompt], &options).await
}

/// Generates, and answers whole or in pieces. When the client goes away this is dropped, and with it the sequences.
async fn answer(
    shared: &Shared,
    model: &ServedModel,
    interface: Interface,
    prompts: Vec<Input>,
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
    let requests = prompts.into_iter().map(|prompt| options.request(prompt));
    if options.stream {
        let streams = try_join_all(requests.map(|request| async {
            Ok::<_, ApiError>(model.engine().stream(model.encoded(request).await?).await?)
        }));
        return Ok(server_sent(Flow::new(heading, streams.await?, places)));
    }
    let generate = |request: GenerateRequest| async {
        Ok::<_, ApiError>(model.engine().generate(model.encoded(request).await?).await?)
    };
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

/// Reads a body of JSON: as large as it may be, and no longer than it may take.
async fn read_body(settings: &ServeSettings, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // Pages of other sites cannot send this type unasked.
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let message = "The request must have `Content-Type: application/json`";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let reading = async {
        let mut bytes = Vec::new();
        let mut length = 0;
        let mut pieces = body.into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| {
                let message = format!("The request broke off: {error}");
                ApiError::new(StatusCode::BAD_REQUEST, "incomplete_body", message)
            })?;
            length += piece.len();
            if length <= settings.max_body {
                bytes.extend_from_slice(&piece);
            } else if length > settings.max_body.saturating_mul(DISCARDED) {
                break;
            }
        }
        if length > settings.max_body {
            let message = format!("The request is larger than {} bytes", settings.max_body);
            return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message));
        }
        Ok(bytes)
    };
    let late = |_| {
        let message = "The request took too long to arrive";
        Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
    };
    tokio::time::timeout(settings.body_time, reading).await.unwrap_or_else(late)
}

impl Shared {
    fn model(&self, id: &str) -> Result<&ServedModel, ApiError> {
        self.models.iter().find(|model| model.id() == id).ok_or_else(|| {
            let known: Vec<&str> = self.models.iter().map(ServedModel::id).collect();
            ApiError::no_such_model(id, &known)
        })
    }

    /// Places for so many sequences.
    fn places(&self, count: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let most = self.settings.max_sequences;
        if count > most {
            let message = format!("`prompt` holds {count} prompts; at most {most} go into a request");
            return Err(ApiError::invalid("prompt", message));
        }
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        Arc::clone(&self.places).try_acquire_many_owned(count).map_err(|_| {
            let message = "The server is busy: too many sequences wait already. Ask again in a while";
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", message)
        })
    }
}
