//! Activity of a worker's episodes: the time of the latest progress, the episodes in progress, and what each one is
//! waiting for.
//!
//! [`crate::drive()`] registers every wait for a model, a tool or a session. [`crate::stall`] reports the
//! waits when there has been no progress for a long time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_tasks::fleet::OldestUnit;
use lumos_tasks::{Assignment, Configuration, Role, RunToken, UnitId};
use tokio::time::Instant;

/// Latest progress and current waits of a set of episodes. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    last: Instant,
    next: u64,
    waits: BTreeMap<u64, (Awaited, Arc<Configuration>)>,
    episodes: BTreeMap<u64, RunningEpisode>,
}

/// An episode in progress.
#[derive(Debug)]
struct RunningEpisode {
    run: Option<RunToken>,
    unit: UnitId,
    since_ms: i64,
}

impl Default for Activity {
    fn default() -> Self {
        let (waits, episodes) = (BTreeMap::new(), BTreeMap::new());
        Self(Arc::new(Mutex::new(State { last: Instant::now(), next: 0, waits, episodes })))
    }
}

impl Activity {
    /// Records progress.
    fn mark(&self) {
        self.lock().last = Instant::now();
    }

    /// Time of the latest progress.
    pub(crate) fn last(&self) -> Instant {
        self.lock().last
    }

    /// Registers a wait until the returned value is dropped.
    fn wait(&self, what: Awaited, configuration: &Arc<Configuration>) -> Waiting {
        let mut state = self.lock();
        let number = state.number();
        state.waits.insert(number, (what, Arc::clone(configuration)));
        drop(state);
        Waiting { activity: self.clone(), number }
    }

    /// Registers an episode until the returned value is dropped.
    fn begin(&self, assignment: &Assignment) -> InProgress {
        let (run, unit) = (assignment.run.clone(), assignment.unit.id.clone());
        let mut state = self.lock();
        let number = state.number();
        let since_ms = jiff::Timestamp::now().as_millisecond();
        state.episodes.insert(number, RunningEpisode { run, unit, since_ms });
        drop(state);
        InProgress { activity: self.clone(), number }
    }

    /// Returns the number of episodes in progress.
    pub fn in_progress(&self) -> usize {
        self.lock().episodes.len()
    }

    /// Returns the oldest episode in progress of each run. `here` is the run of assignments that name none, because
    /// they do not come from a shared queue.
    pub fn oldest(&self, here: Option<&RunToken>) -> Vec<OldestUnit> {
        let mut oldest: BTreeMap<RunToken, OldestUnit> = BTreeMap::new();
        // Numbers ascend, so the first episode of a run is its oldest one.
        for RunningEpisode { run, unit, since_ms } in self.lock().episodes.values() {
            let Some(run) = run.as_ref().or(here) else { continue };
            oldest.entry(run.clone()).or_insert_with(|| OldestUnit {
                run: run.clone(),
                unit: unit.clone(),
                since_ms: *since_ms,
            });
        }
        oldest.into_values().collect()
    }

    /// Returns what episodes are waiting for, with the number of episodes each; the most frequent first.
    pub(crate) fn sources(&self) -> Vec<(Source, usize)> {
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        for (what, configuration) in self.lock().waits.values() {
            *counts.entry(Source::of(what, configuration)).or_default() += 1;
        }
        let mut sources: Vec<_> = counts.into_iter().collect();
        sources.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sources
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// An episode in progress. Dropping it ends the episode.
#[derive(Debug)]
struct InProgress {
    activity: Activity,
    number: u64,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.activity.lock().episodes.remove(&self.number);
    }
}

/// A wait in progress. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    activity: Activity,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.activity.lock().waits.remove(&self.number);
    }
}

/// Progress of one episode. It also counts as progress of its worker, if there is one.
#[derive(Debug, Default)]
pub struct EpisodeProgress {
    own: Activity,
    worker: Option<Activity>,
    _in_progress: Option<InProgress>,
}

impl EpisodeProgress {
    /// Creates the progress of an episode that is executed by this worker.
    pub(crate) fn of(worker: &Activity, assignment: &Assignment) -> Self {
        let in_progress = Some(worker.begin(assignment));
        Self { own: Activity::default(), worker: Some(worker.clone()), _in_progress: in_progress }
    }

    /// Records progress of the episode.
    pub(crate) fn mark(&self) {
        self.own.mark();
        if let Some(worker) = &self.worker {
            worker.mark();
        }
    }

    /// Time of the episode's latest progress.
    pub(crate) fn last(&self) -> Instant {
        self.own.last()
    }

    /// Registers a wait with the worker until the returned value is dropped.
    pub(crate) fn wait(&self, what: Awaited, configuration: &Arc<Configuration>) -> Option<Waiting> {
        self.worker.as_ref().map(|worker| worker.wait(what, configuration))
    }
}

/// What an episode is waiting for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Loading of its models and tools.
    SetUp,
    /// Opening of its tools' sessions.
    Sessions,
    /// A reply of the model for this role.
    Model(Role),
    /// A reply of the tool with this name.
    Tool(String),
}

/// What an episode is waiting for, as shown in messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Loading of models and tools.
    SetUp,
    /// A model server, by the name of the model.
    ModelServer(String),
    /// A model in this process, by its name.
    Model(String),
    /// A browser, by tool and backend: `tool=backend`.
    Browser(String),
    /// A database server, by tool and backend: `tool=backend`.
    Database(String),
    /// Any other tool, with its backend: `tool=backend`.
    Tool(String),
}

impl Source {
    fn of(what: &Awaited, configuration: &Configuration) -> Self {
        match what {
            Awaited::SetUp => Self::SetUp,
            Awaited::Model(role) => {
                let name = configuration.models.get(role).map(|model| model.name.clone());
                let name = name.unwrap_or_else(|| role.to_string());
                if ["openai:", Configuration::CHAT].iter().any(|backend| name.starts_with(backend)) {
                    Self::ModelServer(name)
                } else {
                    Self::Model(name)
                }
            }
            Awaited::Tool(tool) => Self::of_tool(tool, configuration),
            // Only shops and databases have sessions, and a configuration has at most one of them.
            Awaited::Sessions => {
                let with_sessions = |tool: &&str| configuration.tools.iter().any(|one| one.tool == **tool);
                let tool = ["sql", "web", "shop"].into_iter().find(with_sessions);
                tool.map_or(Self::SetUp, |tool| Self::of_tool(tool, configuration))
            }
        }
    }

    fn of_tool(tool: &str, configuration: &Configuration) -> Self {
        let backend = configuration.tools.iter().find(|one| one.tool == tool);
        // The part after `#` is a hash.
        let backend = backend.and_then(|one| one.backend.split('#').next()).unwrap_or("native");
        let named = format!("{tool}={backend}");
        let in_browser = backend.starts_with("chromedriver") || backend.starts_with("http:");
        match tool {
            "web" | "shop" if in_browser => Self::Browser(named),
            "sql" if backend.starts_with("mysql") => Self::Database(named),
            _ => Self::Tool(named),
        }
    }

    /// What the user can do about the wait.
    pub(crate) fn hint(&self) -> String {
        let hint = match self {
            Self::SetUp => "no action needed: large models and corpora take minutes to load",
            Self::ModelServer(name) => {
                let url = name.split_once('@').map_or("URL", |(_, url)| url.trim_end_matches('/'));
                return format!("check that the model server answers: curl {url}/models");
            }
            Self::Model(_) => {
                "no action needed if the processor or the GPU is busy (top, nvidia-smi): long prompts take \
                 minutes"
            }
            Self::Browser(_) => "check the browser: chromedriver --version, lumos doctor",
            Self::Database(_) => {
                "check that the database server of LUMOS_SQL_URL runs and accepts connections"
            }
            Self::Tool(_) => "check that the tool's service can be reached from this machine",
        };
        hint.to_owned()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetUp => formatter.write_str("models and tools that are being set up"),
            Self::ModelServer(name) => write!(formatter, "the model server of {name}"),
            Self::Model(name) => write!(formatter, "model {name}"),
            Self::Browser(tool) => write!(formatter, "the browser of {tool}"),
            Self::Database(tool) => write!(formatter, "the database server of {tool}"),
            Self::Tool(tool) => write!(formatter, "tool {tool}"),
        }
    }
}
