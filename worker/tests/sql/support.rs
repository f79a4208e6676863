//! Sessions by hand.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use lumos_tasks::{
    Behaviour, Configuration, ContentHash, EpisodeUnit, Formulation, GenerationSettings, ItemId, Setup,
    SqlGrade, SqlReply, Task, ToolCall, ToolReply,
};
use lumos_worker::Tools;
use lumos_worker::sessions::sql::MySqlSettings;
use sqlx::{Connection, Row};

use super::mariadb::Server;

/// A folder of the recorded data, or `None` (with a note) where `LUMOS_SHARED` is not set.
pub(crate) fn shared(folder: &str) -> Option<PathBuf> {
    let path = std::env::var_os("LUMOS_SHARED").map(|shared| PathBuf::from(shared).join(folder));
    if path.is_none() {
        println!("skipped: LUMOS_SHARED names no folder with `{folder}`");
    }
    path
}

fn unit(database: &str, gold: &str, behaviour: Behaviour) -> EpisodeUnit {
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
    };
    let task = Task::Sql { question: "?".to_owned(), database: database.to_owned() };
    let setup = Setup::Sql { database: database.to_owned(), gold: gold.to_owned() };
    let item = ItemId { content: ContentHash::of_json(&(database, gold)), occurrence: 0 };
    EpisodeUnit::new(item, task, setup, Arc::new(configuration))
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

    pub(crate) async fn sql(&self, statement: &str) -> SqlReply {
        match self.0.call(&ToolCall::Sql { statement: statement.to_owned() }).await.unwrap() {
            ToolReply::Sql(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// The rows of a result as one text.
    pub(crate) async fn rows(&self, statement: &str) -> String {
        match self.sql(statement).await {
            SqlReply::Rows { rows, .. } => format!("[{}]", rows.join(", ")),
            other => format!("{other:?}"),
        }
    }

    pub(crate) async fn submit(&self) -> SqlGrade {
        match self.0.call(&ToolCall::SqlSubmit).await.unwrap() {
            ToolReply::SqlGrade(grade) => grade,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn close(self) {
        self.0.close().await;
    }
}

/// How a test's server is asked.
pub(crate) fn settings(server: &Server) -> MySqlSettings {
    MySqlSettings::of_url(&server.url()).unwrap()
}

/// The first column of a query's rows.
pub(crate) async fn query(server: &Server, query: &'static str) -> Vec<String> {
    let options: sqlx::mysql::MySqlConnectOptions = server.url().parse().unwrap();
    let mut connection = sqlx::mysql::MySqlConnection::connect_with(&options).await.unwrap();
    let rows = sqlx::raw_sql(query).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.try_get_unchecked(0).unwrap()).collect()
}
