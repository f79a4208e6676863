//! Serves the engine over an OpenAI-compatible interface: `GET /v1/models`, `POST /v1/completions` and
//! `/v1/chat/completions`, in full or streamed, and `GET /health`
//! (<https://platform.openai.com/docs/api-reference>).
//!
//! Parsing of requests (`completions`, `chat`, `options`) and construction of responses (`reply`) are pure;
//! the other modules handle HTTP. Unsupported fields are rejected by name, never silently ignored. Prompts of
//! completions are used unchanged, without a BOS token.

mod chat;
mod completions;
mod error;
mod fields;
mod flow;
mod options;
mod reply;
mod routes;
mod served;
mod settings;

use std::sync::Arc;

use lumos_engine::Engine;
use lumos_http::serve as serve_http;
use routes::Shared;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use lumos_http::ApiKey;
pub use served::{ServedModel, folder_id};
pub use settings::ServeSettings;

/// Serves models until shutdown. When `drain` is cancelled, the server stops accepting connections and
/// completes requests in progress. When `stop` is cancelled, it aborts them with an error.
pub async fn serve_models(
    listener: TcpListener,
    models: Vec<ServedModel>,
    settings: ServeSettings,
    drain: CancellationToken,
    stop: CancellationToken,
) {
    let engines: Vec<Engine> = models.iter().map(|model| model.engine().clone()).collect();
    let farewell = settings.farewell;
    let shared = Shared {
        places: Arc::new(Semaphore::new(settings.max_sequences)),
        bodies: Arc::new(Semaphore::new(settings.bodies)),
        preparing: Arc::new(Semaphore::new(settings.preparing)),
        models,
        settings,
        started: jiff::Timestamp::now().as_second(),
        drain: drain.clone(),
    };
    let limits = shared.settings.http.clone();
    let serving = serve_http(listener, routes::routes(Arc::new(shared)), limits, drain);
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return,
        () = stop.cancelled() => {}
    }
    // Aborted sequences send an error to their clients.
    let stopped = tokio::task::spawn_blocking(move || engines.iter().for_each(Engine::shutdown));
    let _ = tokio::time::timeout(farewell, async { tokio::join!(stopped, serving) }).await;
}
