//! Executes one episode, from its start to its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lumos_models::{ModelBackend, ModelError, ModelRegistry};
use lumos_tasks::{
    ChatReply, Completion, Configuration, Episode, Fault, FaultKind, Finish, Input, Next, Outcome, Reply,
    Request, Role, Sampling, Stop, Telemetry, ToolCall, ToolReply, WorkUnit,
};
use lumos_tools::{ToolSets, Tools};
use tokio::time::timeout_at;

use crate::activity::{Awaited, EpisodeProgress};

/// Models and tools that answer the requests of an episode.
#[derive(Clone)]
pub struct Backends {
    /// The models by role.
    pub models: BTreeMap<Role, Arc<dyn ModelBackend>>,
    /// The tools.
    pub tools: Arc<dyn Tools>,
}

impl Backends {
    /// Returns the backends of a configuration, loading models that are not loaded yet.
    ///
    /// # Errors
    /// If a model cannot be loaded or a tool's backend is unknown.
    pub async fn of(
        models: &ModelRegistry,
        tools: &ToolSets,
        configuration: &Configuration,
    ) -> Result<Self, Fault> {
        let mut backends: BTreeMap<Role, Arc<dyn ModelBackend>> = BTreeMap::new();
        for (role, identity) in &configuration.models {
            let model = models.get(identity, *role, configuration).await;
            backends.insert(*role, model.map_err(|error| failed(FaultKind::Model, error))?);
        }
        let tools = tools.of(configuration).await.map_err(|error| failed(FaultKind::Tool, error))?;
        Ok(Self { models: backends, tools })
    }
}

/// Resource limits of an episode.
#[derive(Debug, Clone, Copy, Default)]
pub struct EpisodeLimits {
    /// Wall-clock time of one episode. Exceeding it is a fault, because progress depends on the machine's
    /// speed.
    pub time: Option<Duration>,
}

/// Executes a unit's episode until it ends or fails. Every reply is recorded as progress.
pub async fn drive(
    unit: &WorkUnit,
    backends: &Backends,
    limits: EpisodeLimits,
    progress: &EpisodeProgress,
) -> (Outcome, Telemetry) {
    let started = Instant::now();
    let started_ms = jiff::Timestamp::now().as_millisecond();
    let mut episode = Episode::start(unit);
    // A limit that cannot be represented as an instant means no limit.
    let deadline = limits.time.and_then(|time| tokio::time::Instant::now().checked_add(time));
    let telemetry = Telemetry { started_ms, ..Telemetry::default() };
    let mut driver = Driver { unit, deadline, progress, telemetry };
    let outcome = match driver.in_session(&mut episode, backends).await {
        Ok(()) => episode.finish(),
        Err(fault) => episode.abandon(fault),
    };
    driver.telemetry.seconds = started.elapsed().as_secs_f64();
    (outcome, driver.telemetry)
}

/// The execution of one episode, with the time, tokens and cost used so far.
struct Driver<'a> {
    unit: &'a WorkUnit,
    deadline: Option<tokio::time::Instant>,
    progress: &'a EpisodeProgress,
    telemetry: Telemetry,
}

impl Driver<'_> {
    /// Opens the sessions that the episode's tools need, executes the episode and closes the sessions.
    async fn in_session(&mut self, episode: &mut Episode, backends: &Backends) -> Result<(), Fault> {
        let asked = Instant::now();
        let waiting = self.progress.wait(Awaited::Sessions, &self.unit.configuration);
        let opened = within(self.deadline, backends.tools.open(self.unit)).await?;
        let session = opened.map_err(|fault| failed(FaultKind::Tool, fault))?;
        drop(waiting);
        let Some(session) = session else { return self.advance(episode, backends).await };
        self.telemetry.tool_seconds += asked.elapsed().as_secs_f64();
        let backends = Backends { models: backends.models.clone(), tools: Arc::clone(&session) };
        let ended = self.advance(episode, &backends).await;
        session.close().await;
        ended
    }

    async fn advance(&mut self, episode: &mut Episode, backends: &Backends) -> Result<(), Fault> {
        let Self { unit, deadline, progress, .. } = *self;
        loop {
            let asked = Instant::now();
            let waits = |what| progress.wait(what, &unit.configuration);
            let reply = match episode.next() {
                Next::Done => return Ok(()),
                Next::Generate(request) => {
                    let _waiting = waits(Awaited::Model(request.role));
                    let completion = within(deadline, generate(request.clone(), backends)).await??;
                    self.count(asked, &completion);
                    Reply::Completion(completion)
                }
                Next::Call(ToolCall::Chat { role, messages, max_new_tokens }) => {
                    let _waiting = waits(Awaited::Model(*role));
                    let request = Request {
                        role: *role,
                        input: Input::Chat(messages.clone()),
                        stop: Stop::Never,
                        max_new_tokens: *max_new_tokens,
                        sampling: Sampling::Greedy,
                        seed: 0,
                    };
                    let completion = within(deadline, generate(request, backends)).await??;
                    self.count(asked, &completion);
                    Reply::Tool(ToolReply::Chat(ChatReply {
                        text: completion.text,
                        prompt_tokens: completion.prompt_tokens,
                        completion_tokens: completion.completion_tokens,
                    }))
                }
                Next::Call(call) => {
                    let _waiting = waits(Awaited::Tool(call.tool().to_owned()));
                    let reply = within(deadline, backends.tools.call(call)).await?;
                    self.telemetry.tool_seconds += asked.elapsed().as_secs_f64();
                    Reply::Tool(reply.map_err(|fault| failed(FaultKind::Tool, fault))?)
                }
            };
            episode.feed(reply).map_err(|misfit| failed(FaultKind::Worker, misfit))?;
            progress.mark();
        }
    }

    /// Adds a completion that was requested at `asked`.
    fn count(&mut self, asked: Instant, completion: &Completion) {
        self.telemetry.model_seconds += asked.elapsed().as_secs_f64();
        self.telemetry.cached_tokens += u64::from(completion.cached_tokens.unwrap_or(0));
        if let Some(drafts) = completion.drafts {
            *self.telemetry.drafts.get_or_insert_default() += drafts;
        }
        if let Some(cost) = completion.cost {
            *self.telemetry.cost.get_or_insert_default() += cost;
        }
    }
}

async fn generate(request: Request, backends: &Backends) -> Result<Completion, Fault> {
    let role = request.role;
    let Some(model) = backends.models.get(&role) else {
        return Err(failed(FaultKind::Worker, format!("no model is configured for the {role}")));
    };
    match model.complete(request).await {
        Ok(completion) => Ok(completion),
        // The model can never accept this prompt. The agent caused it, and the original treats it as an empty
        // reply.
        Err(ModelError::Refused(reason)) => {
            tracing::debug!(%role, reason, "the model refused the prompt");
            Ok(Completion { finish: Finish::Length, ..Completion::recorded("") })
        }
        Err(error) => Err(failed(FaultKind::Model, format!("{role}: {error}"))),
    }
}

async fn within<T>(
    deadline: Option<tokio::time::Instant>,
    future: impl Future<Output = T>,
) -> Result<T, Fault> {
    let Some(deadline) = deadline else { return Ok(future.await) };
    let message = "time limit of the item reached; hint: raise it with --time-limit <SECONDS>";
    timeout_at(deadline, future).await.map_err(|_| failed(FaultKind::Timeout, message))
}

#[expect(clippy::needless_pass_by_value, reason = "errors and messages are passed")]
fn failed(kind: FaultKind, error: impl ToString) -> Fault {
    Fault { kind, message: error.to_string() }
}
