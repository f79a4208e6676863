//! Giving units out and taking their outcomes in: record, flush, acknowledge, always in that order.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use futures::future::join_all;
use lumos_queue::{Lease, Queue, QueueError};
use lumos_tasks::{Assignment, Ending, Finished, Outcome, UnitId, WorkUnit};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::checkpoint::{Checkpoint, CheckpointError, Record, Recorded, UnitStatus};
use crate::events::Event;
use crate::plan::PlannedUnit;
use crate::spec::FailOnError;

/// Results taken in together, so that they share a flush.
const TOGETHER: usize = 256;

/// What a session goes by.
pub struct Terms<'a> {
    /// The run's name.
    pub run: String,
    /// Labels of the configurations, by index.
    pub labels: Vec<String>,
    /// Attempts a faulted unit gets beyond its first of this session.
    pub retry_on_error: u32,
    /// When so many units have faulted that the session stops.
    pub fail_on_error: FailOnError,
    /// Whether an outcome is correct under the first scoring, for the running figure: configuration, item, outcome.
    pub correct: &'a (dyn Fn(u32, u64, &Outcome) -> Option<bool> + Send + Sync),
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Units planned in all.
    pub planned: u64,
    /// Units settled in all.
    pub settled: u64,
    /// Units whose attempts of this session are used up.
    pub faulted: u64,
    /// Whether too many units faulted.
    pub too_many_faults: bool,
}

impl Summary {
    /// Units that are neither settled nor faulted.
    pub fn outstanding(&self) -> u64 {
        self.planned.saturating_sub(self.settled + self.faulted)
    }
}

/// Why a session could not go on. What was recorded before is safe.
#[derive(Debug, Error)]
pub enum DispatchError {
    /// The checkpoint failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A queue failed.
    #[error("the queue: {0}")]
    Queue(#[from] QueueError),
}

/// A unit that has been given out, or is about to be.
struct Open {
    planned: PlannedUnit,
    attempt: u32,
    retries_left: u32,
}

struct Session<'a> {
    terms: &'a Terms<'a>,
    checkpoint: &'a Checkpoint,
    events: &'a mpsc::Sender<Event>,
    /// Units this session is to settle.
    open: HashMap<UnitId, Open>,
    /// Those of them that wait to be published.
    ready: VecDeque<UnitId>,
    summary: Summary,
}

/// Runs every planned unit that is not settled. Ends when all are settled or faulted for good, or, after `drain` was
/// cancelled or too many units faulted, when the results queue is closed and empty: whoever runs the workers
/// closes it once they have ended.
///
/// Closes the work queue when nothing more will be published.
///
/// # Errors
/// If the checkpoint or a queue fails.
pub async fn dispatch(
    units: impl IntoIterator<Item = PlannedUnit>,
    terms: &Terms<'_>,
    checkpoint: &Checkpoint,
    work: &dyn Queue<Assignment>,
    results: &dyn Queue<Finished>,
    events: &mpsc::Sender<Event>,
    drain: &CancellationToken,
) -> Result<Summary, DispatchError> {
    let began = Instant::now();
    let mut session = Session::new(units, terms, checkpoint, events);
    session.say(session.started()).await;
    let ended = session.run(work, results, drain).await;
    // Workers must not wait for more, whatever happened here.
    work.close();
    ended?;
    let summary = session.summary;
    session
        .say(Event::Finished {
            settled: summary.settled,
            faulted: summary.faulted,
            outstanding: summary.outstanding(),
            seconds: began.elapsed().as_secs_f64(),
        })
        .await;
    Ok(summary)
}

impl<'a> Session<'a> {
    fn new(
        units: impl IntoIterator<Item = PlannedUnit>,
        terms: &'a Terms<'a>,
        checkpoint: &'a Checkpoint,
        events: &'a mpsc::Sender<Event>,
    ) -> Self {
        let mut session = Self {
            terms,
            checkpoint,
            events,
            open: HashMap::new(),
            ready: VecDeque::new(),
            summary: Summary { planned: 0, settled: 0, faulted: 0, too_many_faults: false },
        };
        for planned in units {
            session.summary.planned += 1;
            let attempt = match checkpoint.status(&planned.unit.id) {
                UnitStatus::Settled => {
                    session.summary.settled += 1;
                    continue;
                }
                UnitStatus::Outstanding => 1,
                UnitStatus::Faulted { last, .. } => last + 1,
            };
            let id = planned.unit.id.clone();
            session.ready.push_back(id.clone());
            session.open.insert(id, Open { planned, attempt, retries_left: terms.retry_on_error });
        }
        session
    }

    fn started(&self) -> Event {
        Event::Started {
            run: self.terms.run.clone(),
            planned: self.summary.planned,
            settled: self.summary.settled,
            configurations: self.terms.labels.clone(),
        }
    }

    /// Tells whoever listens. Nobody listening is no reason to stop.
    async fn say(&self, event: Event) {
        let _ = self.events.send(event).await;
    }

    async fn run(
        &mut self,
        work: &dyn Queue<Assignment>,
        results: &dyn Queue<Finished>,
        drain: &CancellationToken,
    ) -> Result<(), DispatchError> {
        let mut publishing = true;
        while !self.open.is_empty() {
            let next = self.ready.front().filter(|_| publishing).and_then(|id| self.assignment(id));
            tokio::select! {
                biased;
                () = drain.cancelled(), if publishing => {
                    publishing = false;
                    self.draining(work, "interrupted").await;
                }
                leases = results.claim(TOGETHER) => {
                    let leases = leases?;
                    if leases.is_empty() {
                        break;
                    }
                    self.take_in(leases).await?;
                    if publishing && self.terms.fail_on_error.stops(self.summary.faulted, self.summary.planned) {
                        publishing = false;
                        self.summary.too_many_faults = true;
                        self.draining(work, "too many items faulted").await;
                        drain.cancel();
                    }
                }
                published = publish(work, next), if publishing && !self.ready.is_empty() => {
                    published?;
                    self.ready.pop_front();
                }
            }
        }
        Ok(())
    }

    async fn draining(&self, work: &dyn Queue<Assignment>, reason: &str) {
        work.close();
        let at_hand = self.open.len().saturating_sub(self.ready.len()) as u64;
        self.say(Event::Draining { reason: reason.to_owned(), at_hand }).await;
    }

    fn assignment(&self, id: &UnitId) -> Option<Assignment> {
        let open = self.open.get(id)?;
        Some(Assignment {
            unit: WorkUnit::Episode(open.planned.unit.clone()),
            attempt: open.attempt,
            run: None,
        })
    }

    /// Records results together, then acknowledges them and says what happened.
    async fn take_in(&mut self, leases: Vec<Lease<Finished>>) -> Result<(), DispatchError> {
        // A result of a unit that is no part of this session (settled meanwhile) still needs its place in the
        // record, so that it is counted as a duplicate.
        let checkpoint = self.checkpoint;
        let recording = leases.iter().map(|lease| {
            let finished = lease.body();
            let place =
                self.open.get(&finished.unit).map(|open| (open.planned.configuration, open.planned.item));
            async move {
                let Some((configuration, item)) = place else { return Ok(Recorded::Duplicate) };
                checkpoint
                    .record(Record {
                        unit: finished.unit.clone(),
                        configuration,
                        item,
                        attempt: finished.attempt,
                        outcome: finished.outcome.clone(),
                        telemetry: finished.telemetry.clone(),
                    })
                    .await
            }
        });
        let recorded = join_all(recording).await;
        for (lease, recorded) in leases.into_iter().zip(recorded) {
            let recorded = recorded?;
            let finished = lease.body().clone();
            if let Err(error) = lease.acknowledge().await {
                tracing::debug!(%error, "a result was acknowledged too late; it comes again and is dropped");
            }
            let event = self.settle(finished, recorded);
            self.say(event).await;
        }
        Ok(())
    }

    /// Draws the consequences of a recorded result.
    fn settle(&mut self, finished: Finished, recorded: Recorded) -> Event {
        let Finished { unit, attempt, outcome, telemetry, .. } = finished;
        let duplicate = |unit| Event::Duplicate { unit };
        match (recorded, &outcome.ending) {
            (Recorded::Duplicate, _) => duplicate(unit),
            (Recorded::First | Recorded::FaultKept, Ending::Faulted(fault)) => {
                let Some(open) = self.open.get_mut(&unit) else { return duplicate(unit) };
                let (configuration, item) = (open.planned.configuration, open.planned.item);
                let will_retry = open.retries_left > 0;
                if will_retry {
                    open.retries_left -= 1;
                    open.attempt = attempt + 1;
                    self.ready.push_back(unit.clone());
                } else {
                    self.open.remove(&unit);
                    self.summary.faulted += 1;
                }
                let configuration = configuration as usize;
                Event::Faulted { unit, configuration, item, attempt, fault: fault.clone(), will_retry }
            }
            (Recorded::First | Recorded::FaultKept, ending) => {
                let Some(open) = self.open.remove(&unit) else { return duplicate(unit) };
                self.summary.settled += 1;
                let (configuration, item) = (open.planned.configuration, open.planned.item);
                let (prompt_tokens, completion_tokens) = outcome.tokens();
                Event::Settled {
                    unit,
                    configuration: configuration as usize,
                    item,
                    attempt,
                    status: if matches!(ending, Ending::Answered) { "answered" } else { "gave_up" },
                    correct: (self.terms.correct)(configuration, item, &outcome),
                    prompt_tokens,
                    completion_tokens,
                    seconds: telemetry.seconds,
                }
            }
        }
    }
}

/// Publishes, if there is something to publish.
async fn publish(work: &dyn Queue<Assignment>, next: Option<Assignment>) -> Result<(), QueueError> {
    match next {
        Some(assignment) => work.publish(&assignment.message_id(), assignment).await,
        None => Ok(()),
    }
}
