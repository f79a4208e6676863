//! Units that are nowhere: published, and neither queued, nor with a worker, nor among the results.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lumos_queue::nats::{NatsError, Server};
use lumos_tasks::RunToken;

use super::error::FleetError;
use super::steadfast::Steadfast;
use super::{Around, token};
use crate::dispatch::{Command, Present};

/// How often it is looked whether it is time.
const LOOK: Duration = Duration::from_millis(500);

/// What of a run is on the server. Work is asked for first: a unit leaves it only once its result is there.
async fn ask(server: &Server, run: &RunToken) -> Result<Present, NatsError> {
    let work = server.work_present(run.as_str()).await?;
    let results = server.results_present(run.as_str()).await?;
    Ok(work.iter().chain(&results).flat_map(|id| token::tickets(id)).collect())
}

/// What of a run is on the server before anything is published.
pub(super) async fn present(
    server: &Server,
    run: &RunToken,
    steadfast: &Steadfast,
) -> Result<Present, FleetError> {
    steadfast.call(|| ask(server, run)).await
}

/// Asks from time to time, after a reconnection, and when nothing comes, until the session is over.
pub(super) async fn reconcile(around: Around) {
    let connection = around.server.connection();
    let mut reconnections = connection.borrow().reconnections;
    let mut last = Instant::now();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = around.over.cancelled() => return,
        }
        let state = *connection.borrow();
        if !state.connected || around.gauge.in_flight.load(Ordering::Relaxed) == 0 {
            continue;
        }
        let settings = &around.settings;
        let quiet = around.gauge.silence() > settings.quiet && last.elapsed() > settings.quiet;
        if !quiet && state.reconnections == reconnections && last.elapsed() < settings.reconcile_every {
            continue;
        }
        // Only what was published before the question counts as missing in the answer.
        let round = around.gauge.round.fetch_add(1, Ordering::AcqRel) + 1;
        let asked = tokio::select! {
            asked = ask(&around.server, &around.run) => asked,
            () = around.over.cancelled() => return,
        };
        match asked {
            Ok(mut present) => {
                {
                    let crew = around.crew.lock().unwrap_or_else(PoisonError::into_inner);
                    present.extend(crew.held(&around.run).flat_map(|lease| token::tickets(&lease.message)));
                }
                last = Instant::now();
                reconnections = state.reconnections;
                if around.commands.send(Command::Present { present, round }).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "what is on the server could not be found out"),
        }
    }
}
