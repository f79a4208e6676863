//! Retries requests while the server is unavailable.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lumos_queue::nats::Server;
use lumos_tasks::Reminder;
use tokio_util::sync::CancellationToken;

use super::CoordinatorSettings;
use super::error::CoordinatorError;
use super::stall::{Wait, remind};
use crate::dispatch::EventSink;
use crate::events::Event;

/// Delay between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Retries requests that fail because the server is unavailable, and recreates data deleted from it. Logs
/// warnings, and stops when the session is asked to stop.
#[derive(Debug, Clone)]
pub(super) struct RetryingClient {
    pub(super) sink: EventSink,
    pub(super) drain: CancellationToken,
    pub(super) server: Server,
    pub(super) settings: Arc<CoordinatorSettings>,
}

impl RetryingClient {
    pub(super) async fn call<T, E, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, CoordinatorError>
    where
        F: Future<Output = Result<T, E>>,
        CoordinatorError: From<E>,
    {
        let mut away: Option<Instant> = None;
        let mut reminder = Reminder::new(self.settings.stall_warning);
        loop {
            let asked = tokio::select! {
                asked = ask() => asked.map_err(CoordinatorError::from),
                () = self.drain.cancelled() => return Err(CoordinatorError::Interrupted),
            };
            match asked {
                Err(error) if error.passes() => {
                    let why = error.to_string();
                    if error.is_missing() {
                        tracing::warn!("{why}; recreating it");
                        if let Err(error) = self.server.ensure().await {
                            tracing::debug!(%error, "failed to recreate what is missing");
                        }
                    }
                    match away {
                        None => {
                            away = Some(Instant::now());
                            self.sink.emit(Event::QueueAway { detail: why }).await;
                        }
                        Some(since) => {
                            let wait = || Wait::Beginning { why };
                            remind(&mut reminder, since.elapsed(), wait, &self.settings.address);
                        }
                    }
                }
                asked => {
                    if let Some(since) = away {
                        let seconds = since.elapsed().as_secs_f64();
                        self.sink.emit(Event::QueueBack { seconds }).await;
                    }
                    return asked;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.drain.cancelled() => return Err(CoordinatorError::Interrupted),
            }
        }
    }
}
