//! Executes one episode, from its start to its outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lumos_models::{ModelBackend, ModelError, ModelRegistry};
use lumos_tasks::{
    ChatReply, Completion, Configuration, Episode, EpisodeUnit, Fault, FaultKind, Finish, Input, NanoDollars,
    Next, Outcome, Reply, Request, Role, Sampling, Stop, Telemetry, ToolCall, ToolReply,
};
use lumos_tools::ToolSets;
use lumos_tools::{ToolFault, Tools};
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
            let model = models
                .get(identity, *role, configuration)
                .await
                .map_err(|error| Fault { kind: FaultKind::Model, message: error.to_string() })?;
            backends.insert(*role, model);
        }
        let tools = tools
            .of(configuration)
            .await
            .map_err(|error| Fault { kind: FaultKind::Tool, message: error.to_string() })?;
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

/// Time, tokens and cost used by an episode so far.
#[derive(Debug, Default)]
struct Clock {
    model: Duration,
    tool: Duration,
    cached_tokens: u64,
    cost: Option<NanoDollars>,
}

impl Clock {
    /// Adds a completion that was requested at `asked`.
    fn count(&mut self, asked: Instant, completion: &Completion) {
        self.model += asked.elapsed();
        self.cached_tokens += u64::from(completion.cached_tokens.unwrap_or(0));
        if let Some(cost) = completion.cost {
            *self.cost.get_or_insert_default() += cost;
        }
    }
}

/// Executes a unit's episode until it ends or fails. Every reply is recorded as progress.
pub async fn drive(
    unit: &EpisodeUnit,
    backends: &Backends,
    limits: EpisodeLimits,
    progress: &EpisodeProgress,
) -> (Outcome, Telemetry) {
    let started = Instant::now();
    let started_ms = jiff::Timestamp::now().as_millisecond();
    let mut clock = Clock::default();
    let mut episode = Episode::start(unit);
    let outcome = match in_session(unit, &mut episode, backends, limits, &mut clock, progress).await {
        Ok(()) => episode.finish(),
        Err(fault) => episode.abandon(fault),
    };
    let telemetry = Telemetry {
        started_ms,
        seconds: started.elapsed().as_secs_f64(),
        model_seconds: clock.model.as_secs_f64(),
        tool_seconds: clock.tool.as_secs_f64(),
        cached_tokens: clock.cached_tokens,
        cost: clock.cost,
        ..Telemetry::default()
    };
    (outcome, telemetry)
}

/// Opens the sessions that the episode's tools need, executes the episode and closes the sessions.
async fn in_session(
    unit: &EpisodeUnit,
    episode: &mut Episode,
    backends: &Backends,
    limits: EpisodeLimits,
    clock: &mut Clock,
    progress: &EpisodeProgress,
) -> Result<(), Fault> {
    // A limit that cannot be represented as an instant means no limit.
    let deadline = limits.time.and_then(|time| tokio::time::Instant::now().checked_add(time));
    let asked = Instant::now();
    let waiting = progress.wait(Awaited::Sessions, &unit.configuration);
    let session = within(deadline, backends.tools.open(unit)).await?.map_err(|fault| tool_fault(&fault))?;
    drop(waiting);
    let Some(session) = session else {
        return advance(unit, episode, backends, deadline, clock, progress).await;
    };
    clock.tool += asked.elapsed();
    let backends = Backends { models: backends.models.clone(), tools: Arc::clone(&session) };
    let ended = advance(unit, episode, &backends, deadline, clock, progress).await;
    session.close().await;
    ended
}

fn tool_fault(fault: &ToolFault) -> Fault {
    Fault { kind: FaultKind::Tool, message: fault.to_string() }
}

async fn advance(
    unit: &EpisodeUnit,
    episode: &mut Episode,
    backends: &Backends,
    deadline: Option<tokio::time::Instant>,
    clock: &mut Clock,
    progress: &EpisodeProgress,
) -> Result<(), Fault> {
    loop {
        let asked = Instant::now();
        let waits = |what| progress.wait(what, &unit.configuration);
        let reply = match episode.next() {
            Next::Done => return Ok(()),
            Next::Generate(request) => {
                let _waiting = waits(Awaited::Model(request.role));
                let completion = within(deadline, generate(request.clone(), backends)).await??;
                clock.count(asked, &completion);
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
                clock.count(asked, &completion);
                Reply::Tool(ToolReply::Chat(ChatReply {
                    text: completion.text,
                    prompt_tokens: completion.prompt_tokens,
                    completion_tokens: completion.completion_tokens,
                }))
            }
            Next::Call(call) => {
                let _waiting = waits(Awaited::Tool(call.tool()));
                let reply = within(deadline, backends.tools.call(call)).await?;
                clock.tool += asked.elapsed();
                Reply::Tool(reply.map_err(|fault| tool_fault(&fault))?)
            }
        };
        episode
            .feed(reply)
            .map_err(|misfit| Fault { kind: FaultKind::Worker, message: misfit.to_string() })?;
        progress.mark();
    }
}

async fn generate(request: Request, backends: &Backends) -> Result<Completion, Fault> {
    let role = request.role;
    let Some(model) = backends.models.get(&role) else {
        return Err(Fault {
            kind: FaultKind::Worker,
            message: format!("no model is configured for the {role}"),
        });
    };
    match model.complete(request).await {
        Ok(completion) => Ok(completion),
        // The model can never accept this prompt. The agent caused it, and the original treats it as an empty
        // reply.
        Err(ModelError::Refused(reason)) => {
            tracing::debug!(%role, reason, "the model refused the prompt");
            Ok(Completion { finish: Finish::Length, ..Completion::recorded("") })
        }
        Err(error) => Err(Fault { kind: FaultKind::Model, message: format!("{role}: {error}") }),
    }
}

async fn within<T>(
    deadline: Option<tokio::time::Instant>,
    future: impl Future<Output = T>,
) -> Result<T, Fault> {
    match deadline {
        None => Ok(future.await),
        Some(deadline) => timeout_at(deadline, future).await.map_err(|_| Fault {
            kind: FaultKind::Timeout,
            message: "time limit of the item reached; hint: raise it with --time-limit <SECONDS>".to_owned(),
        }),
    }
}
