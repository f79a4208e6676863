//! Databases of episodes: `sql=sqlite`, `sql=sqlite:<folder>`, `sql=mysql`, `sql=mysql://<host>[:<port>]`.
//!
//! Each episode has its own database: no other episode sees what a model writes. A statement is checked by
//! `guard::check` first; the engine's own limits apply after it. A refusal is returned to the model as an observation;
//! only failures that the statements did not cause are faults.

mod budget;
mod connect;
mod emulated;
mod functions;
mod import;
mod limits;
mod mysql;
mod names;
mod ownership;
mod server;
mod settings;
mod sqlite;
mod text_row;

use std::sync::Arc;

use async_trait::async_trait;
use lumos_environments::sql::guard::{Kind, check};
use lumos_environments::sql::{Fetched, World};
use lumos_tasks::{Behaviour, EpisodeUnit, Setup, SqlGrade, SqlReply, ToolCall, ToolReply};
use tokio::sync::Mutex;

use crate::tools::{ToolFault, Tools};

pub use import::{ImportError, Imported, into_mysql, into_sqlite};
pub use server::MySqlServer;
pub use settings::{MySqlSettings, URL_VARIABLE, USER_VARIABLE};
pub use sqlite::SqliteFolder;

/// The dump of the shipped samples' database.
pub use lumos_environments::sql::LIBRARY as SAMPLES;

/// Raised when results or their printing change.
pub const VERSION: u32 = 1;

/// One episode's database.
#[async_trait]
pub(crate) trait Database: Send {
    /// Carries one statement out. `writes` says that it may change the database.
    ///
    /// # Errors
    /// If the database could not be asked: no doing of the statement.
    async fn run(&mut self, statement: &str, writes: bool) -> Result<Fetched, ToolFault>;

    /// Gives up what the episode held.
    async fn close(&mut self);
}

/// Whoever makes databases for episodes.
#[async_trait]
pub(crate) trait Databases: Send + Sync {
    /// A fresh database of this name.
    ///
    /// # Errors
    /// If no database has that name, or it cannot be opened.
    async fn open(&self, name: &str) -> Result<Box<dyn Database>, ToolFault>;

    /// Removes what was made elsewhere, when no episode will come any more.
    async fn shut_down(&self) {}
}

/// The tool: it answers nothing itself, its sessions do.
pub struct SqlTool {
    databases: Box<dyn Databases>,
}

impl SqlTool {
    /// Databases in memory, copied from SQLite files or from the shipped samples.
    pub fn sqlite(folder: SqliteFolder) -> Self {
        Self { databases: Box::new(folder) }
    }

    /// Databases on a MySQL or MariaDB server.
    pub fn mysql(server: MySqlServer) -> Self {
        Self { databases: Box::new(server) }
    }
}

#[async_trait]
impl Tools for SqlTool {
    async fn call(&self, _call: &ToolCall) -> Result<ToolReply, ToolFault> {
        Err(fault("statement outside of an episode's session"))
    }

    async fn open(&self, unit: &EpisodeUnit) -> Result<Option<Arc<dyn Tools>>, ToolFault> {
        let Setup::Sql { database, gold } = &unit.setup else { return Ok(None) };
        let state = State {
            database: self.databases.open(database).await?,
            world: World::default(),
            had_result: false,
            gold: None,
        };
        Ok(Some(Arc::new(Session {
            name: database.clone(),
            gold_query: gold.clone(),
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
    behaviour: Behaviour,
    state: Mutex<State>,
}

struct State {
    database: Box<dyn Database>,
    world: World,
    /// Whether the latest statement that was sent had a result: what an empty statement shows depends on it.
    had_result: bool,
    /// What the gold query gave, as long as it holds.
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
            Ok(Kind::Read) => state.database.run(statement, false).await?,
            Ok(Kind::Write) => {
                match self.behaviour {
                    // The original runs the gold query on what the episode left.
                    Behaviour::Paper => state.gold = None,
                    Behaviour::Corrected => {
                        self.gold(&mut state).await?;
                    }
                }
                state.database.run(statement, true).await?
            }
        };
        if !statement.is_empty() {
            state.had_result = matches!(fetched, Fetched::Rows(_));
        }
        state.world.executed(fetched);
        Ok(state.world.observation().reply())
    }

    /// What the gold query gives.
    async fn gold(&self, state: &mut State) -> Result<Fetched, ToolFault> {
        if let Some(gold) = &state.gold {
            return Ok(gold.clone());
        }
        let gold = state.database.run(&self.gold_query, false).await?;
        state.gold = Some(gold.clone());
        Ok(gold)
    }

    async fn submit(&self) -> Result<SqlGrade, ToolFault> {
        let mut state = self.state.lock().await;
        let gold = self.gold(&mut state).await?;
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

/// A failure of the tool.
pub(crate) fn fault(message: impl Into<String>) -> ToolFault {
    ToolFault { tool: "sql", message: message.into() }
}
