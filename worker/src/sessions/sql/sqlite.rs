//! Episodes' databases in memory, each a copy of a SQLite file or of the shipped samples.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lumos_environments::sql::dump::{self, Build};
use lumos_environments::sql::{Cell, Fetched, LIBRARY, Row};
use lumos_tasks::ContentHash;
use rusqlite::backup::Backup;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::emulated::{Asked, asked};
use super::limits::{CELL_BYTES, Meter, STATEMENT_TIME};
use super::{Database, Databases, fault};
use crate::model::hash_file;
use crate::tools::ToolFault;

/// Instructions of SQLite's machine that one statement may take: reached in one to two seconds. Time itself is looked at
/// only beside it, so that what is refused does not depend on the machine.
const INSTRUCTIONS: u64 = 60_000_000;
/// How often the count is looked at, in instructions.
const EVERY: i32 = 10_000;
/// The most pages of a database: 64 MiB.
const PAGES: u32 = 16_384;
/// The most memory of all databases together, in bytes.
const HEAP: u64 = 1 << 30;

/// Held for reading by every statement; alone by one that runs out of the memory that all share, when it tries again.
static MEMORY: RwLock<()> = RwLock::new(());

/// A folder of SQLite files, or the samples.
pub struct SqliteFolder {
    folder: Option<PathBuf>,
    bases: Mutex<HashMap<String, Arc<Mutex<Connection>>>>,
}

impl SqliteFolder {
    /// Databases of the files `<name>.sqlite` in a folder; without one, the database of the shipped samples.
    ///
    /// # Errors
    /// If there is no such folder.
    pub fn open(folder: Option<PathBuf>) -> io::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::read_dir(folder)?;
        }
        Ok(Self { folder, bases: Mutex::default() })
    }

    /// Hash of the databases in a folder, by name and content. Blocks.
    ///
    /// # Errors
    /// If the folder or a file cannot be read, or holds no database.
    pub fn content(folder: &Path) -> io::Result<ContentHash> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if name.ends_with(".sqlite") && !name.starts_with('.') {
                files.insert(name, hash_file(&path)?);
            }
        }
        if files.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the folder holds no .sqlite file"));
        }
        Ok(ContentHash::of_json(&files))
    }

    /// The unchanging copy that episodes' databases are made of. Blocks.
    fn base(&self, name: &str) -> Result<Arc<Mutex<Connection>>, ToolFault> {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(base) = bases.get(name) {
            return Ok(Arc::clone(base));
        }
        let missing =
            |error: &dyn std::fmt::Display| fault(format!("the database `{name}` cannot be opened: {error}"));
        let plain = !name.is_empty() && name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
        if !plain {
            return Err(missing(&"its name is none"));
        }
        let base = match &self.folder {
            None if name == "library" => samples(),
            None => {
                return Err(missing(&"only the samples are here; name a folder: --tool sql=sqlite:FOLDER"));
            }
            Some(folder) => {
                let file = folder.join(format!("{name}.sqlite"));
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                Connection::open_with_flags(file, flags).and_then(|file| copy(&file))
            }
        };
        let base = Arc::new(Mutex::new(base.map_err(|error| missing(&error))?));
        bases.insert(name.to_owned(), Arc::clone(&base));
        Ok(base)
    }
}

/// The shipped samples' database.
fn samples() -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    for build in dump::read(LIBRARY) {
        match build {
            Build::Database(_) => {}
            Build::Table(table) => connection.execute_batch(&table.to_sqlite())?,
            Build::Rows(rows) => connection.execute_batch(&dump::rows_to_sqlite(rows))?,
        }
    }
    Ok(connection)
}

/// A copy in memory.
fn copy(from: &Connection) -> rusqlite::Result<Connection> {
    let mut to = Connection::open_in_memory()?;
    Backup::new(from, &mut to)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    Ok(to)
}

#[async_trait]
impl Databases for SqliteFolder {
    async fn open(&self, name: &str) -> Result<Box<dyn Database>, ToolFault> {
        let base = self.base(name)?;
        let copied = tokio::task::spawn_blocking(move || {
            let base = base.lock().unwrap_or_else(PoisonError::into_inner);
            copy(&base).and_then(guarded)
        });
        let (connection, instructions) = copied
            .await
            .map_err(|error| fault(error.to_string()))?
            .map_err(|error| fault(format!("the database `{name}` cannot be copied: {error}")))?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Box::new(SqliteDatabase { name: name.to_owned(), connection: Some(connection), instructions }))
    }
}

/// Counts what a statement takes.
#[derive(Debug)]
struct Budget {
    spent: AtomicU64,
    started: Mutex<Instant>,
}

impl Budget {
    fn start(&self) {
        self.spent.store(0, Ordering::Relaxed);
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether the statement must stop.
    fn is_spent(&self) -> bool {
        let spent = self.spent.fetch_add(EVERY.unsigned_abs().into(), Ordering::Relaxed);
        spent >= INSTRUCTIONS
            || self.started.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > STATEMENT_TIME * 4
    }
}

/// Sets the limits of a database that a model writes to.
fn guarded(connection: Connection) -> rusqlite::Result<(Connection, Arc<Budget>)> {
    connection.execute_batch(&format!(
        "PRAGMA hard_heap_limit={HEAP}; PRAGMA temp_store=MEMORY; PRAGMA max_page_count={PAGES}; \
         PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;"
    ))?;
    let most = i32::try_from(CELL_BYTES).unwrap_or(i32::MAX);
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, most),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, 200_000),
        (Limit::SQLITE_LIMIT_COLUMN, 200),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
        (Limit::SQLITE_LIMIT_FUNCTION_ARG, 100),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    let mut connection = connection;
    connection.authorizer(Some(|context: AuthContext<'_>| match context.action {
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::CreateVtable { .. }
        | AuthAction::DropVtable { .. }
        | AuthAction::CreateTrigger { .. }
        | AuthAction::CreateTempTrigger { .. } => Authorization::Deny,
        AuthAction::Pragma { pragma_name, .. } if pragma_name != "table_info" => Authorization::Deny,
        AuthAction::Function { function_name } if is_refused(function_name) => Authorization::Deny,
        _ => Authorization::Allow,
    }))?;
    let budget = Arc::new(Budget { spent: AtomicU64::new(0), started: Mutex::new(Instant::now()) });
    let watching = Arc::clone(&budget);
    connection.progress_handler(EVERY, Some(move || watching.is_spent()))?;
    Ok((connection, budget))
}

/// Functions that load code, or make large values of nothing.
fn is_refused(function: &str) -> bool {
    ["load_extension", "fts3_tokenizer", "zeroblob", "randomblob"]
        .iter()
        .any(|refused| function.eq_ignore_ascii_case(refused))
}

/// One episode's database.
struct SqliteDatabase {
    name: String,
    connection: Option<Arc<Mutex<Connection>>>,
    instructions: Arc<Budget>,
}

#[async_trait]
impl Database for SqliteDatabase {
    async fn run(&mut self, statement: &str, _writes: bool) -> Result<Fetched, ToolFault> {
        let Some(connection) = self.connection.clone() else { return Err(fault("the session is closed")) };
        let (name, statement, budget) =
            (self.name.clone(), statement.to_owned(), Arc::clone(&self.instructions));
        let fetched = tokio::task::spawn_blocking(move || {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let run = || {
                budget.start();
                match asked(&statement) {
                    Some(asked) => about_schema(&connection, &name, &asked),
                    None => run(&connection, &statement),
                }
            };
            let first = {
                let _shared = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
                run()
            };
            match first {
                Err(Stopped::Memory) => {
                    let _alone = MEMORY.write().unwrap_or_else(PoisonError::into_inner);
                    run()
                }
                other => other,
            }
        });
        Ok(match fetched.await.map_err(|error| fault(error.to_string()))? {
            Ok(fetched) => fetched,
            Err(Stopped::Memory) => Fetched::Failed { message: "out of memory".to_owned() },
            Err(Stopped::Refused(message)) => Fetched::Failed { message },
        })
    }

    async fn close(&mut self) {
        self.connection = None;
    }
}

/// Why a statement came to nothing.
#[derive(Debug)]
enum Stopped {
    Memory,
    Refused(String),
}

impl From<rusqlite::Error> for Stopped {
    fn from(error: rusqlite::Error) -> Self {
        match &error {
            rusqlite::Error::SqliteFailure(failure, _) if failure.code == ErrorCode::OutOfMemory => {
                Self::Memory
            }
            rusqlite::Error::SqliteFailure(failure, _) if failure.code == ErrorCode::OperationInterrupted => {
                Self::Refused("Query execution was interrupted (it takes too long)".to_owned())
            }
            rusqlite::Error::SqliteFailure(_, Some(message)) => Self::Refused(message.clone()),
            rusqlite::Error::SqlInputError { msg, .. } => Self::Refused(msg.clone()),
            other => Self::Refused(other.to_string()),
        }
    }
}

fn run(connection: &Connection, statement: &str) -> Result<Fetched, Stopped> {
    let mut prepared = connection.prepare(statement)?;
    let columns = prepared.column_count();
    let mut rows = prepared.raw_query();
    let mut meter = Meter::default();
    let mut fetched = Vec::new();
    while let Some(row) = rows.next()? {
        let cells: Row =
            (0..columns).map(|column| row.get_ref(column).map(cell)).collect::<Result<_, _>>()?;
        meter.take(&cells).map_err(Stopped::Refused)?;
        fetched.push(cells);
    }
    Ok(if columns == 0 { Fetched::Nothing } else { Fetched::Rows(fetched) })
}

fn cell(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(value) => Cell::Integer(value.into()),
        ValueRef::Real(value) => Cell::Float(value),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Cell::Bytes(bytes.to_vec()),
    }
}

/// Answers a question about the schema as MySQL does.
fn about_schema(connection: &Connection, database: &str, asked: &Asked) -> Result<Fetched, Stopped> {
    let text = |text: String| Cell::Text(text);
    let rows = match asked {
        Asked::Databases => vec![vec![text(database.to_owned())]],
        Asked::Tables => {
            let query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' \
                         ORDER BY name";
            return run(connection, query);
        }
        Asked::Columns(table) => {
            let query = "SELECT name, lower(type), \"notnull\", pk, dflt_value FROM pragma_table_info(?1)";
            let mut prepared = connection.prepare(query)?;
            let rows = prepared.query_map([table], |row| {
                let is_key = row.get::<_, i64>(3)? > 0;
                let is_required = row.get::<_, i64>(2)? != 0 || is_key;
                let default: Option<String> = row.get(4)?;
                let default = default.filter(|default| !default.eq_ignore_ascii_case("null"));
                Ok(vec![
                    text(row.get(0)?),
                    text(row.get(1)?),
                    text(if is_required { "NO" } else { "YES" }.to_owned()),
                    text(if is_key { "PRI" } else { "" }.to_owned()),
                    default.map_or(Cell::Null, |default| text(default.trim_matches('\'').to_owned())),
                    text(String::new()),
                ])
            })?;
            rows.collect::<Result<Vec<_>, _>>()?
        }
        Asked::Definition(table) => {
            let query = "SELECT name, sql FROM sqlite_master WHERE name = ?1 COLLATE NOCASE";
            let mut prepared = connection.prepare(query)?;
            let rows = prepared.query_map([table], |row| Ok(vec![text(row.get(0)?), text(row.get(1)?)]))?;
            rows.collect::<Result<Vec<_>, _>>()?
        }
    };
    match asked {
        Asked::Columns(table) | Asked::Definition(table) if rows.is_empty() => {
            Err(Stopped::Refused(format!("Table '{database}.{table}' doesn't exist")))
        }
        _ => Ok(Fetched::Rows(rows)),
    }
}
