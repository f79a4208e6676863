//! Asking a server that may be away, for as long as it takes.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::{FleetError, Passing};
use crate::dispatch::Voice;
use crate::events::Event;

/// How long to wait between attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Repeats what fails because the server is away; says so once, and stops when the session is to stop.
#[derive(Debug, Clone)]
pub(super) struct Steadfast {
    pub(super) voice: Voice,
    pub(super) drain: CancellationToken,
}

impl Steadfast {
    pub(super) async fn call<T, E, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, FleetError>
    where
        E: Passing + std::fmt::Display,
        F: Future<Output = Result<T, E>>,
        FleetError: From<E>,
    {
        let mut away: Option<Instant> = None;
        loop {
            let asked = tokio::select! {
                asked = ask() => asked,
                () = self.drain.cancelled() => return Err(FleetError::Interrupted),
            };
            match asked {
                Err(error) if error.passes() => {
                    if away.is_none() {
                        away = Some(Instant::now());
                        self.voice.say(Event::QueueAway { detail: error.to_string() }).await;
                    }
                }
                asked => {
                    if let Some(since) = away {
                        let seconds = since.elapsed().as_secs_f64();
                        self.voice.say(Event::QueueBack { seconds }).await;
                    }
                    return Ok(asked?);
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.drain.cancelled() => return Err(FleetError::Interrupted),
            }
        }
    }
}
