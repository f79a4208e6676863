//! The engine as an OpenAI-compatible server: `GET /v1/models`, `POST /v1/completions` and `/v1/chat/completions`, whole
//! or streamed, and `GET /health` (<https://platform.openai.com/docs/api-reference>).
//!
//! Requests are read by pure code (`completions`, `chat`, `options`), answers are made by pure code (`reply`); the
//! rest moves them over HTTP. What a request asks for and this server does not do is refused by name, never left
//! out in silence. Prompts of completions are taken as they are: no BOS is put before them.

mod chat;
mod completions;
mod error;
mod fields;
mod flow;
mod key;
mod options;
mod reply;
mod routes;
mod served;
mod settings;

use std::sync::Arc;

use lumos_engine::Engine;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::http_server;
use routes::Shared;

pub use key::ApiKey;
pub use served::{ServedModel, folder_id};
pub use settings::ServeSettings;

/// Serves models until it is asked to end: at `drain` no new connection is taken and what was asked is answered; at
/// `stop` that is given up too, and clients are told.
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
    let serving = http_server::serve(listener, routes::routes(Arc::new(shared)), limits, drain);
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return,
        () = stop.cancelled() => {}
    }
    // Sequences end with an error, which their clients are told.
    let stopped = tokio::task::spawn_blocking(move || engines.iter().for_each(Engine::shutdown));
    let _ = tokio::time::timeout(farewell, async { tokio::join!(stopped, serving) }).await;
}
