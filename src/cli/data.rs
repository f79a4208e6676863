//! Options of the commands that work on files of data or recorded cases: `init`, `fetch`, `data` and `replay`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Describes the argument of `fetch`, with the names of the benchmarks that can be downloaded.
fn fetched() -> String {
    let all = lumos_benchmarks::all().iter().filter(|benchmark| !benchmark.downloads().is_empty());
    let names: Vec<_> = all.map(|benchmark| benchmark.name()).collect();
    format!("Select benchmarks: {}", names.join(", "))
}

#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    #[arg(required = true, help = fetched())]
    pub(crate) tasks: Vec<String>,
    /// Set the data folder; each benchmark gets a folder in it
    #[arg(long, value_name = "PATH", default_value = "data", env = "LUMOS_DATA")]
    pub(crate) data: PathBuf,
    /// Download again even if the file exists and its checksum is right
    #[arg(long)]
    pub(crate) force: bool,
    /// Download from this mirror: <mirror>/<benchmark>/<file>
    #[arg(long, value_name = "URL", env = "LUMOS_MIRROR")]
    pub(crate) mirror: Option<String>,
}

/// Options of `data`.
#[derive(Debug, Args)]
pub(crate) struct DataArgs {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    /// Import a MySQL dump into SQLite files or a MySQL or MariaDB server
    ImportSql(ImportSqlArgs),
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  lumos fetch intercode_sql && lumos data import-sql data/intercode_sql/ic_spider_dbs.sql
  LUMOS_SQL_URL=mysql://root:…@127.0.0.1:3306 lumos data import-sql data/intercode_sql/ic_spider_dbs.sql --to mysql

Only databases, tables and rows are imported; accounts and privileges in the dump are ignored.";

/// Options of `data import-sql`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct ImportSqlArgs {
    /// Read this dump, or `samples` for the database of the built-in samples
    #[arg(value_name = "DUMP")]
    pub(crate) dump: PathBuf,
    /// Write to sqlite, sqlite:<folder>, mysql or mysql://<host>:<port>
    ///
    /// sqlite writes files next to the dump. mysql uses the server at LUMOS_SQL_URL; both MySQL forms use
    /// LUMOS_SQL_USER and LUMOS_SQL_PASSWORD.
    #[arg(long, value_name = "BACKEND", default_value = "sqlite")]
    pub(crate) to: String,
    /// First drop databases of the same name on the server
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Options of `init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    #[command(subcommand)]
    pub(crate) command: InitCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InitCommand {
    /// Write a task file with comments, and three items
    ///
    /// Existing files are never changed.
    #[command(
        after_help = "Example:\n  lumos init task mine && lumos run --tasks mine/task.toml --model builtin:tiny"
    )]
    Task {
        /// Write to this folder
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
        /// Also describe an agent: prompts, actions and a solved example
        ///
        /// The file's family is `custom`. Without this flag, the agent is that of GSM8K.
        #[arg(long)]
        agent: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Read recorded cases from these files, .jsonl or .jsonl.gz
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Replay the cases on the benchmark of this task file instead of the one they name
    ///
    /// Shows whether the file describes the same prompts, calls and outcomes. Example: --task-file
    /// examples/task_files/strategyqa.toml
    #[arg(long, value_name = "PATH")]
    pub(crate) task_file: Option<PathBuf>,
    /// Print one JSON object per case: {"id", "passed", "difference"}
    #[arg(long)]
    pub(crate) json: bool,
}
