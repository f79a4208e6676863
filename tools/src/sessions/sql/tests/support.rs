//! Sessions that a test controls directly.

use std::collections::BTreeMap;
use std::sync::Arc;

use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId, Setup, SqlGrade,
    SqlReply, Task, ToolCall, ToolReply, WorkUnit,
};
use sqlx::{Connection, Row};

use super::mariadb::Server;
use crate::sessions::sql::MySqlSettings;
use crate::{ToolFault, Tools};

fn unit(database: &str, gold: &str, behaviour: Behaviour) -> WorkUnit {
    let configuration = Configuration {
        benchmark: "intercode_sql".to_owned(),
        formulation: Formulation::TryAgain,
        behaviour,
        max_rounds: 10,
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b"prompts"),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    };
    let task = Task::Sql { question: "?".to_owned(), database: database.to_owned() };
    let setup = Setup::Sql { database: database.to_owned(), gold: gold.to_owned() };
    let item = ItemId { content: ContentHash::of_json(&(database, gold)), occurrence: 0 };
    WorkUnit::new(item, task, setup, Arc::new(configuration))
}

/// An episode's session.
pub(crate) struct Episode(Arc<dyn Tools>);

impl Episode {
    pub(crate) async fn open(tool: &dyn Tools, database: &str, gold: &str) -> Self {
        Self(tool.open(&unit(database, gold, Behaviour::Paper)).await.unwrap().unwrap())
    }

    pub(crate) async fn corrected(tool: &dyn Tools, database: &str, gold: &str) -> Self {
        Self(tool.open(&unit(database, gold, Behaviour::Corrected)).await.unwrap().unwrap())
    }

    /// Opens a session, or returns the fault.
    pub(crate) async fn attempt(tool: &dyn Tools, database: &str) -> Result<Self, ToolFault> {
        Self::with_gold(tool, database, "SELECT 1").await
    }

    /// Opens a session with a gold query that may be rejected, or returns the fault.
    pub(crate) async fn with_gold(tool: &dyn Tools, database: &str, gold: &str) -> Result<Self, ToolFault> {
        Ok(Self(tool.open(&unit(database, gold, Behaviour::Paper)).await?.unwrap()))
    }

    /// Executes a statement that may fail because of the infrastructure.
    pub(crate) async fn try_sql(&self, statement: &str) -> Result<SqlReply, ToolFault> {
        match self.0.call(&ToolCall::Sql { statement: statement.to_owned() }).await? {
            ToolReply::Sql(reply) => Ok(reply),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn sql(&self, statement: &str) -> SqlReply {
        self.try_sql(statement).await.unwrap()
    }

    /// Returns the message of a statement that is rejected.
    pub(crate) async fn refused(&self, statement: &str) -> String {
        match self.sql(statement).await {
            SqlReply::Error(message) => message,
            other => panic!("{statement}: {other:?}"),
        }
    }

    /// Returns the rows of a result as one text.
    pub(crate) async fn rows(&self, statement: &str) -> String {
        match self.sql(statement).await {
            SqlReply::Rows { rows, .. } => format!("[{}]", rows.join(", ")),
            other => format!("{other:?}"),
        }
    }

    pub(crate) async fn try_submit(&self) -> Result<SqlGrade, ToolFault> {
        match self.0.call(&ToolCall::SqlSubmit).await? {
            ToolReply::SqlGrade(grade) => Ok(grade),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn submit(&self) -> SqlGrade {
        self.try_submit().await.unwrap()
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}

/// Returns the settings for a connection to a test's server.
pub(crate) fn settings(server: &Server) -> MySqlSettings {
    MySqlSettings::of_url(&server.url()).unwrap()
}

/// Returns the first column of a query's rows.
pub(crate) async fn query(server: &Server, query: &str) -> Vec<String> {
    let query = sqlx::AssertSqlSafe(query.to_owned());
    let options: sqlx::mysql::MySqlConnectOptions = server.url().parse().unwrap();
    let mut connection = sqlx::mysql::MySqlConnection::connect_with(&options).await.unwrap();
    let rows = sqlx::raw_sql(query).fetch_all(&mut connection).await.unwrap();
    rows.iter()
        .map(|row| row.try_get_unchecked::<Option<String>, _>(0).unwrap().unwrap_or_default())
        .collect()
}

/// Returns the databases and accounts that sessions created and that still exist.
pub(crate) async fn made(server: &Server) -> Vec<String> {
    query(
        server,
        "SELECT user FROM mysql.user WHERE user LIKE 'lumos\\_e\\_%' \
         UNION ALL SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'lumos\\_e\\_%'",
    )
    .await
}

/// Waits until a condition holds. Panics after two minutes.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds().await {
        assert!(started.elapsed() < std::time::Duration::from_secs(120), "timed out waiting: {what}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}
