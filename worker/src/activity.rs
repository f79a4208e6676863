//! What the episodes of a worker do: when one last made progress, and what each waits for at present.
//!
//! [`mod@crate::drive`] registers every wait for a model, a tool or a session; [`crate::stall`] names them when nothing has
//! happened for long.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumos_tasks::{Configuration, Role};
use tokio::time::Instant;

/// The latest progress of a set of episodes, and their waits. Cloning gives another handle to the same state.
#[derive(Debug, Clone)]
pub struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    last: Instant,
    next: u64,
    waits: BTreeMap<u64, (Awaited, Arc<Configuration>)>,
}

impl Default for Activity {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { last: Instant::now(), next: 0, waits: BTreeMap::new() })))
    }
}

impl Activity {
    /// Records progress.
    pub fn mark(&self) {
        self.lock().last = Instant::now();
    }

    /// Time of the latest progress.
    pub fn last(&self) -> Instant {
        self.lock().last
    }

    /// Registers a wait until the returned value is dropped.
    pub(crate) fn wait(&self, what: Awaited, configuration: &Arc<Configuration>) -> Waiting {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.waits.insert(number, (what, Arc::clone(configuration)));
        drop(state);
        Waiting { activity: self.clone(), number }
    }

    /// What episodes currently wait for, with the number of episodes; the most frequent first.
    pub fn sources(&self) -> Vec<(Source, usize)> {
        let mut counts: BTreeMap<Source, usize> = BTreeMap::new();
        for (what, configuration) in self.lock().waits.values() {
            *counts.entry(Source::of(*what, configuration)).or_default() += 1;
        }
        let mut sources: Vec<_> = counts.into_iter().collect();
        sources.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        sources
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait that is going on.
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

/// The progress of one episode, which is also its worker's.
#[derive(Debug, Default)]
pub struct Progress {
    own: Activity,
    worker: Option<Activity>,
}

impl Progress {
    /// The progress of an episode that is also its worker's.
    pub fn of(worker: &Activity) -> Self {
        Self { own: Activity::default(), worker: Some(worker.clone()) }
    }

    /// The episode makes progress now.
    pub fn mark(&self) {
        self.own.mark();
        if let Some(worker) = &self.worker {
            worker.mark();
        }
    }

    /// When the episode made progress last.
    pub fn last(&self) -> Instant {
        self.own.last()
    }

    /// Registers a wait with the worker until the returned value is dropped.
    pub(crate) fn wait(&self, what: Awaited, configuration: &Arc<Configuration>) -> Option<Waiting> {
        self.worker.as_ref().map(|worker| worker.wait(what, configuration))
    }
}

/// What an episode waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Its models and tools.
    SetUp,
    /// Sessions of its tools.
    Sessions,
    /// A model's reply.
    Model(Role),
    /// A tool's reply.
    Tool(&'static str),
}

/// What a reply is awaited from, for messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Models and tools that are being set up.
    SetUp,
    /// A server of models.
    ModelServer {
        /// The model's name.
        name: String,
    },
    /// A model of this process.
    Model {
        /// Its name.
        name: String,
    },
    /// A browser.
    Browser {
        /// Tool and backend.
        tool: String,
    },
    /// A database server.
    Database {
        /// Tool and backend.
        tool: String,
    },
    /// Another tool.
    Tool {
        /// Tool and backend.
        tool: String,
    },
}

impl Source {
    fn of(what: Awaited, configuration: &Configuration) -> Self {
        match what {
            Awaited::SetUp => Self::SetUp,
            Awaited::Model(role) => {
                let name = configuration.models.get(&role).map(|model| model.name.clone());
                let name = name.unwrap_or_else(|| role.to_string());
                if name.starts_with("openai:") { Self::ModelServer { name } } else { Self::Model { name } }
            }
            Awaited::Tool(tool) => Self::of_tool(tool, configuration),
            // Shops and databases have sessions, and a configuration has one of them.
            Awaited::Sessions => {
                let with_sessions = |tool: &&str| configuration.tools.iter().any(|one| one.tool == **tool);
                let tool = ["sql", "web", "shop"].into_iter().find(with_sessions);
                tool.map_or(Self::SetUp, |tool| Self::of_tool(tool, configuration))
            }
        }
    }

    fn of_tool(tool: &str, configuration: &Configuration) -> Self {
        let backend = configuration.tools.iter().find(|one| one.tool == tool);
        // What follows is a hash.
        let backend = backend.and_then(|one| one.backend.split('#').next()).unwrap_or("native");
        let named = format!("{tool}={backend}");
        let in_browser = backend.starts_with("chromedriver") || backend.starts_with("http:");
        match tool {
            "web" | "shop" if in_browser => Self::Browser { tool: named },
            "sql" if backend.starts_with("mysql") => Self::Database { tool: named },
            _ => Self::Tool { tool: named },
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::SetUp => "no action needed: large models and corpora take minutes to load".to_owned(),
            Self::ModelServer { name } => {
                let url = name.split_once('@').map_or("URL", |(_, url)| url.trim_end_matches('/'));
                format!("check that the model server answers: curl {url}/models")
            }
            Self::Model { .. } => {
                "no action needed if the processor or the GPU is busy (top, nvidia-smi): long prompts take \
                 minutes"
                    .to_owned()
            }
            Self::Browser { .. } => "check the browser: chromedriver --version, lumos doctor".to_owned(),
            Self::Database { .. } => {
                "check that the database server of LUMOS_SQL_URL runs and accepts connections".to_owned()
            }
            Self::Tool { .. } => "check that the tool's service can be reached from this machine".to_owned(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetUp => formatter.write_str("models and tools that are being set up"),
            Self::ModelServer { name } => write!(formatter, "the model server of {name}"),
            Self::Model { name } => write!(formatter, "model {name}"),
            Self::Browser { tool } => write!(formatter, "the browser of {tool}"),
            Self::Database { tool } => write!(formatter, "the database server of {tool}"),
            Self::Tool { tool } => write!(formatter, "tool {tool}"),
        }
    }
}
