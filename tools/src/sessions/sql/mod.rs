//! Databases of episodes: `sql=sqlite`, `sql=sqlite:<folder>`, `sql=mysql`, `sql=mysql://<host>[:<port>]`.
//!
//! Each episode has its own database, so that episodes do not see each other's changes. A statement is
//! checked by `guard::check` first; the engine's own limits also apply. A rejected statement is an
//! observation for the model; only failures that the statements did not cause are faults. The gold query of an item
//! comes from a data file and passes the same check when the file is read and when the session is opened, where a rejected
//! one is a fault.

mod emulated;
mod functions;
mod import;
mod limits;
#[cfg(feature = "mysql")]
mod mysql;
mod settings;
mod sqlite;

/// The module `mysql` of a build without the feature: every use is an error.
#[cfg(not(feature = "mysql"))]
mod mysql {
    use super::{Databases, MySqlSettings};
    use crate::tool::not_built_with;

    /// Reports that this build has no client for MySQL.
    pub(super) fn databases(_: MySqlSettings) -> Result<Box<dyn Databases>, String> {
        Err(not_built_with("mysql"))
    }
}

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lumos_environments::sql::guard::{Kind, check, check_gold};
use lumos_environments::sql::{Fetched, World};
use lumos_tasks::{Behaviour, Setup, SqlGrade, SqlReply, ToolCall, ToolReply, WorkUnit};
use tokio::sync::Mutex;

use crate::tool::{ToolFault, Tools};

pub use import::{ImportError, Imported, into_mysql, into_sqlite};
pub use settings::MySqlSettings;
pub(crate) use sqlite::SqliteFolder;

pub use lumos_environments::sql::LIBRARY as SAMPLES;

/// Incremented when results or their formatting change.
pub(crate) const VERSION: u32 = 1;

/// The database of an episode.
#[async_trait]
pub(crate) trait Database: Send {
    /// Executes a statement. `writes` is true if it may change the database. A statement of an unknown kind
    /// is only parsed: see [`check_known`].
    ///
    /// # Errors
    /// If the database failed for a reason other than the statement.
    async fn run(&mut self, statement: &str, writes: bool) -> Result<Fetched, ToolFault>;

    /// Releases the resources of the episode.
    async fn close(&mut self);
}

/// A source of databases for episodes.
#[async_trait]
pub(crate) trait Databases: Send + Sync {
    /// Opens a fresh copy of the database with this name.
    ///
    /// # Errors
    /// If the database does not exist or cannot be opened.
    async fn open(&self, name: &str) -> Result<Box<dyn Database>, ToolFault>;

    /// Removes what was created on a server, after the last episode.
    async fn shut_down(&self) {}
}

/// The SQL tool. Only its sessions answer calls.
pub struct SqlTool {
    databases: Box<dyn Databases>,
}

impl SqlTool {
    /// Creates the tool with in-memory databases, copied from the SQLite files of a folder or from the shipped
    /// samples. A statement takes at most `longest`, by default 20 s.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn sqlite(folder: Option<PathBuf>, longest: Option<Duration>) -> io::Result<Self> {
        Ok(Self { databases: Box::new(SqliteFolder::open(folder, longest)?) })
    }

    /// Creates the tool with databases on a MySQL or MariaDB server, to which it connects when they are used.
    pub(crate) fn mysql(settings: MySqlSettings) -> Result<Self, String> {
        Ok(Self { databases: mysql::databases(settings)? })
    }
}

#[async_trait]
impl Tools for SqlTool {
    async fn call(&self, _call: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("SQL statements are only available in an episode's session"))
    }

    async fn open(&self, unit: &WorkUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let Setup::Sql { database, gold } = &unit.setup else { return Ok(None) };
        let gold_writes = check_gold(gold)
            .map_err(|message| fault(format!("invalid gold query for database `{database}`: {message}")))?;
        let state = State {
            database: self.databases.open(database).await?,
            world: World::default(),
            had_result: false,
            gold: None,
        };
        Ok(Some(Arc::new(Session {
            name: database.clone(),
            gold_query: gold.clone(),
            gold_writes,
            behaviour: unit.configuration.behaviour,
            state: Mutex::new(state),
        })))
    }

    async fn shut_down(&self) {
        self.databases.shut_down().await;
    }
}

/// The session of one episode.
struct Session {
    name: String,
    gold_query: String,
    /// Whether the gold query may change the database.
    gold_writes: bool,
    behaviour: Behaviour,
    state: Mutex<State>,
}

struct State {
    database: Box<dyn Database>,
    world: World,
    /// Whether the last non-empty statement returned rows. The result of an empty statement depends on it.
    had_result: bool,
    /// The result of the gold query, while it is valid.
    gold: Option<Fetched>,
}

impl Session {
    async fn statement(&self, statement: &str) -> Result<SqlReply, ToolFault> {
        let mut state = self.state.lock().await;
        let fetched = match check(statement) {
            Err(message) => Fetched::Failed { message },
            Ok(Kind::Nothing) if state.had_result => Fetched::Rows(Vec::new()),
            Ok(Kind::Nothing | Kind::Comment) => Fetched::Nothing,
            Ok(Kind::Blank) => Fetched::Failed { message: "Query was empty".to_owned() },
            Ok(Kind::Use(name)) if name.eq_ignore_ascii_case(&self.name) => Fetched::Nothing,
            Ok(Kind::Use(name)) => Fetched::Failed { message: format!("Access denied to database '{name}'") },
            Ok(kind @ (Kind::Read | Kind::Write | Kind::Unknown)) => {
                let writes = matches!(kind, Kind::Write);
                match self.behaviour {
                    // The original runs the gold query on the database as changed by the episode.
                    Behaviour::Paper if writes => state.gold = None,
                    Behaviour::Paper => {}
                    // Before any statement: some that count as reading can write, such as `WITH … DELETE`.
                    Behaviour::Corrected => {
                        self.gold(&mut state).await?;
                    }
                }
                state.database.run(statement, writes).await?
            }
        };
        if !statement.is_empty() {
            state.had_result = matches!(fetched, Fetched::Rows(_));
        }
        state.world.executed(fetched);
        Ok(state.world.observation().reply())
    }

    /// Returns the result of the gold query.
    async fn gold(&self, state: &mut State) -> Result<Fetched, ToolFault> {
        if let Some(gold) = &state.gold {
            return Ok(gold.clone());
        }
        let gold = state.database.run(&self.gold_query, self.gold_writes).await?;
        // On a busy server, or if other databases use the memory, this says nothing about the agent's answer.
        if let Fetched::Failed { message } = &gold {
            if message.contains(limits::INTERRUPTED) || message == limits::OUT_OF_MEMORY {
                return Err(fault(format!("the gold query was stopped: {message}")));
            }
            if limits::is_limit(message) {
                return Err(fault(format!("the gold query exceeds the limits: {message}")));
            }
        }
        state.gold = Some(gold.clone());
        Ok(gold)
    }

    async fn submit(&self) -> Result<SqlGrade, ToolFault> {
        let mut state = self.state.lock().await;
        let gold = self.gold(&mut state).await?;
        if self.behaviour == Behaviour::Paper {
            // The original runs the gold query on the cursor of the agent's statements.
            state.had_result = matches!(gold, Fetched::Rows(_));
        }
        Ok(state.world.grade(&self.gold_query, &gold).reply())
    }
}

#[async_trait]
impl Tools for Session {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        match call {
            ToolCall::Sql { statement } => self.statement(statement).await.map(ToolReply::Sql),
            ToolCall::SqlSubmit => self.submit().await.map(ToolReply::SqlGrade),
            _ => Err(fault("unexpected call of another tool")),
        }
    }

    async fn close(&self) {
        self.state.lock().await.database.close().await;
    }
}

/// Rejects a statement of a kind that the check does not know. Databases call it after they have parsed the
/// statement and before they execute it, so that the model receives the database's own syntax errors.
///
/// # Errors
/// The reason for the rejection.
fn check_known(statement: &str) -> Result<(), String> {
    match check(statement) {
        Ok(Kind::Unknown) => Err("Statements of an unknown kind are refused".to_owned()),
        _ => Ok(()),
    }
}

/// Whether a name of a database has only letters, digits and `_`, so that it can be part of a path or statement.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_')
}

/// Creates a fault of this tool.
pub(crate) fn fault(message: impl Into<String>) -> ToolFault {
    ToolFault { tool: "sql".into(), message: message.into() }
}

#[cfg(test)]
mod tests;
