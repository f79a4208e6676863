//! In-memory databases of episodes, each a copy of a SQLite file or of the shipped samples.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard, TryLockError};
use std::time::Duration;

use async_trait::async_trait;
use lumos_environments::sql::dump::{self, Build};
use lumos_environments::sql::{Cell, Fetched, LIBRARY, Row};
use lumos_models::hash_file;
use lumos_tasks::ContentHash;
use rusqlite::backup::Backup;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::emulated::{Asked, asked};
use super::limits::{Budget, CELL_BYTES, LONGEST, Meter, OUT_OF_MEMORY, StatementNumber, TOO_LONG};
use super::{Database, Databases, check_known, fault, functions, is_plain};
use crate::tool::ToolFault;

/// Number of instructions between two checks of the budget.
const EVERY: i32 = 100;
/// Maximum number of function calls in the text of a statement, weighted by [`weight`]. The budget is not
/// checked between the calls in a result row.
const CALLS: u32 = 200;
/// Maximum length of a pattern of `LIKE` and `GLOB`, in bytes.
pub(super) const PATTERN_BYTES: usize = 200;
/// Maximum size of a database, and of its temporary tables, in bytes. A database that is larger cannot grow.
const DATABASE: u32 = 64 << 20;
/// Maximum memory of all databases together, in bytes.
const HEAP: u64 = 1 << 30;
/// Maximum size of a file in bytes: its content and one copy must fit in the memory.
const FILE: u64 = HEAP / 2;

/// Polling interval of a statement that waits for exclusive access.
const LOOK: Duration = Duration::from_millis(5);

/// Held shared by every statement, and exclusively by a statement that is repeated because it ran out of the
/// shared memory.
static MEMORY: RwLock<()> = RwLock::new(());

/// The unmodified databases by name.
type Bases = HashMap<String, Arc<Mutex<Connection>>>;

/// A folder of SQLite files, or the shipped samples. Clones share the databases that are read.
#[derive(Clone)]
pub(crate) struct SqliteFolder {
    folder: Option<PathBuf>,
    bases: Arc<Mutex<Bases>>,
    longest: Duration,
}

impl SqliteFolder {
    /// Uses the files `<name>.sqlite` of a folder, or the shipped samples if there is none.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub(crate) fn open(folder: Option<PathBuf>, longest: Option<Duration>) -> io::Result<Self> {
        if let Some(folder) = &folder {
            std::fs::read_dir(folder)?;
        }
        Ok(Self { folder, bases: Arc::default(), longest: longest.unwrap_or(LONGEST) })
    }

    /// Returns a hash of the names and contents of the databases in a folder. Blocks.
    ///
    /// # Errors
    /// If the folder or a file cannot be read, or the folder contains no database.
    pub(crate) fn content(folder: &Path) -> io::Result<ContentHash> {
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            if name.ends_with(".sqlite") && !name.starts_with('.') {
                files.insert(name, hash_file(&path)?);
            }
        }
        if files.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no .sqlite file in the folder"));
        }
        Ok(ContentHash::of_json(&files))
    }

    /// Returns the unmodified database that copies for episodes are made from. Blocks.
    fn base(&self, name: &str) -> Result<Arc<Mutex<Connection>>, ToolFault> {
        let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(base) = bases.get(name) {
            return Ok(Arc::clone(base));
        }
        let missing =
            |error: &dyn std::fmt::Display| fault(format!("failed to open database `{name}`: {error}"));
        if !is_plain(name) {
            return Err(missing(&"invalid name: expected letters, digits and `_`"));
        }
        let base = match &self.folder {
            None if name == "library" => samples(),
            None => {
                return Err(missing(
                    &"only the samples are available; hint: pass a folder with --tool \
                    sql=sqlite:FOLDER",
                ));
            }
            Some(folder) => {
                let file = folder.join(format!("{name}.sqlite"));
                let bytes = std::fs::metadata(&file).map_or(0, |file| file.len());
                if bytes > FILE {
                    let most = FILE >> 20;
                    return Err(missing(&format!(
                        "{name}.sqlite has {bytes} bytes; the limit is {most} MiB"
                    )));
                }
                let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
                let load = || Connection::open_with_flags(&file, flags).and_then(|file| copy(&file));
                with_memory(load, || evict(&mut bases))
            }
        };
        let base = Arc::new(Mutex::new(base.map_err(|error| missing(&error))?));
        bases.insert(name.to_owned(), Arc::clone(&base));
        Ok(base)
    }
}

/// Removes the databases that no session is copying.
fn evict(bases: &mut Bases) {
    bases.retain(|_, base| Arc::strong_count(base) > 1);
}

/// Repeats an operation that ran out of the shared memory once, after memory was released.
fn with_memory<T>(
    operation: impl Fn() -> rusqlite::Result<T>,
    release: impl FnOnce(),
) -> rusqlite::Result<T> {
    match operation() {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OutOfMemory) => {
            release();
            operation()
        }
        done => done,
    }
}

/// Creates the database of the shipped samples.
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

/// Creates a copy in memory.
fn copy(from: &Connection) -> rusqlite::Result<Connection> {
    let mut to = Connection::open_in_memory()?;
    Backup::new(from, &mut to)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    Ok(to)
}

#[async_trait]
impl Databases for SqliteFolder {
    async fn open(&self, name: &str) -> Result<Box<dyn Database>, ToolFault> {
        let (this, of_copy) = (self.clone(), name.to_owned());
        let copied = tokio::task::spawn_blocking(move || {
            let base = this.base(&of_copy)?;
            let base = base.lock().unwrap_or_else(PoisonError::into_inner);
            let guarded_copy = || copy(&base).and_then(|copy| guarded(copy, Budget::new(this.longest)));
            let release = || evict(&mut this.bases.lock().unwrap_or_else(PoisonError::into_inner));
            with_memory(guarded_copy, release)
                .map_err(|error| fault(format!("failed to copy database `{of_copy}`: {error}")))
        });
        let (connection, counts) = copied.await.map_err(|error| fault(error.to_string()))??;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Box::new(SqliteDatabase { name: name.to_owned(), connection: Some(connection), counts }))
    }
}

/// Counters for the statements of a connection.
struct Counts {
    budget: Arc<Budget>,
    /// Number of function calls in the text of the statement.
    calls: Arc<AtomicU32>,
}

/// Limits the size of values.
pub(super) fn limit_values(connection: &Connection) -> rusqlite::Result<()> {
    let most = i32::try_from(CELL_BYTES).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, most)?;
    let pattern = i32::try_from(PATTERN_BYTES).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, pattern).map(|_| ())
}

/// Limits the size of a database and of its temporary tables, which are a separate database with its own
/// page size.
fn limit_pages(connection: &Connection) -> rusqlite::Result<()> {
    for schema in ["main", "temp"] {
        let page: u32 = connection.query_row(&format!("PRAGMA {schema}.page_size"), [], |row| row.get(0))?;
        connection.execute_batch(&format!("PRAGMA {schema}.max_page_count={}", DATABASE / page.max(1)))?;
    }
    Ok(())
}

/// Sets the limits of a database that a model writes to.
fn guarded(connection: Connection, budget: Budget) -> rusqlite::Result<(Connection, Counts)> {
    connection.execute_batch(&format!(
        "PRAGMA hard_heap_limit={HEAP}; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF; \
         PRAGMA cell_size_check=ON;"
    ))?;
    limit_pages(&connection)?;
    limit_values(&connection)?;
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_SQL_LENGTH, 200_000),
        (Limit::SQLITE_LIMIT_COLUMN, 200),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 100),
        (Limit::SQLITE_LIMIT_FUNCTION_ARG, 100),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 0),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    let counts = Counts { budget: Arc::new(budget), calls: Arc::default() };
    functions::replace(&connection, &counts.budget)?;
    let mut connection = connection;
    let calls = Arc::clone(&counts.calls);
    connection.authorizer(Some(move |context: AuthContext<'_>| match context.action {
        AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        | AuthAction::CreateVtable { .. }
        | AuthAction::DropVtable { .. }
        | AuthAction::CreateTrigger { .. }
        | AuthAction::CreateTempTrigger { .. } => Authorization::Deny,
        AuthAction::Pragma { pragma_name, .. } if pragma_name != "table_info" => Authorization::Deny,
        AuthAction::Function { function_name } if is_refused(function_name) => Authorization::Deny,
        AuthAction::Function { function_name } => {
            let weight = weight(function_name);
            let calls = calls.fetch_add(weight, Ordering::Relaxed) + weight;
            if calls > CALLS { Authorization::Deny } else { Authorization::Allow }
        }
        _ => Authorization::Allow,
    }))?;
    let watching = Arc::clone(&counts.budget);
    let every = u64::from(EVERY.unsigned_abs());
    connection.progress_handler(EVERY, Some(move || watching.charge(every)))?;
    Ok((connection, counts))
}

/// Functions that load code or create large values, and functions for which a single call takes seconds on
/// the longest values: the time of merging objects is proportional to the product of their numbers of keys,
/// that of indenting to the depth.
fn is_refused(function: &str) -> bool {
    let refused = ["load_extension", "fts3_tokenizer", "zeroblob", "randomblob"];
    let slow = ["json_patch", "jsonb_patch", "json_pretty"];
    refused.iter().chain(&slow).any(|refused| function.eq_ignore_ascii_case(refused))
}

/// Returns the weight of a function call. Calls that may take over 5 ms on the longest values count more than
/// once.
fn weight(function: &str) -> u32 {
    let is_json = function.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("json"));
    if is_json {
        10
    } else if function.eq_ignore_ascii_case("strftime") {
        5
    } else {
        1
    }
}

/// The database of an episode.
struct SqliteDatabase {
    name: String,
    connection: Option<Arc<Mutex<Connection>>>,
    counts: Counts,
}

/// Cancels the current statement when its caller is dropped.
struct StopOnDrop(Arc<Budget>, StatementNumber);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel(self.1);
    }
}

#[async_trait]
impl Database for SqliteDatabase {
    async fn run(&mut self, statement: &str, _writes: bool) -> Result<Fetched, ToolFault> {
        let Some(connection) = self.connection.clone() else { return Err(fault("the session is closed")) };
        let (name, statement) = (self.name.clone(), statement.to_owned());
        let (budget, calls) = (Arc::clone(&self.counts.budget), Arc::clone(&self.counts.calls));
        let number = budget.announce();
        let _stop = StopOnDrop(Arc::clone(&budget), number);
        let fetched = tokio::task::spawn_blocking(move || {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let run = || {
                calls.store(0, Ordering::Relaxed);
                let fetched = match asked(&statement) {
                    Some(asked) => about_schema(&connection, &name, &asked),
                    None => run(&connection, &statement),
                };
                // A result or an error after a stop is invalid.
                if budget.is_stopped() {
                    Err(Stopped::Refused(TOO_LONG.to_owned()))
                } else if fetched.is_err() && calls.load(Ordering::Relaxed) > CALLS {
                    Err(Stopped::Refused(format!(
                        "Statements with more than {CALLS} calls of functions are refused (a call of json… counts as 10)"
                    )))
                } else {
                    fetched
                }
            };
            let first = {
                let _shared = MEMORY.read().unwrap_or_else(PoisonError::into_inner);
                budget.start(number);
                run()
            };
            match first {
                Err(Stopped::Memory) => match alone(&budget) {
                    Some(_alone) => {
                        budget.start_again();
                        run()
                    }
                    None => Err(Stopped::Refused(TOO_LONG.to_owned())),
                },
                other => other,
            }
        });
        Ok(match fetched.await.map_err(|error| fault(error.to_string()))? {
            Ok(fetched) => fetched,
            Err(Stopped::Memory) => Fetched::Failed { message: OUT_OF_MEMORY.to_owned() },
            Err(Stopped::Refused(message)) => Fetched::Failed { message },
        })
    }

    async fn close(&mut self) {
        self.connection = None;
    }
}

/// Waits until no other statement runs. Returns `None` if the statement must stop before.
fn alone(budget: &Budget) -> Option<RwLockWriteGuard<'static, ()>> {
    loop {
        match MEMORY.try_write() {
            Ok(alone) => return Some(alone),
            Err(TryLockError::Poisoned(alone)) => return Some(alone.into_inner()),
            Err(TryLockError::WouldBlock) if budget.charge(0) => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
        }
    }
}

/// Reasons why a statement failed.
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
                Self::Refused(TOO_LONG.to_owned())
            }
            rusqlite::Error::SqliteFailure(_, Some(message)) => Self::Refused(message.clone()),
            rusqlite::Error::SqlInputError { msg, .. } => Self::Refused(msg.clone()),
            other => Self::Refused(other.to_string()),
        }
    }
}

fn run(connection: &Connection, statement: &str) -> Result<Fetched, Stopped> {
    let mut prepared = connection.prepare(statement)?;
    check_known(statement).map_err(Stopped::Refused)?;
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

/// Answers a query of the schema in MySQL's format.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::sql::limits::is_limit;

    #[test]
    fn statements_of_an_unknown_kind_are_only_parsed() {
        let connection = samples().unwrap();
        connection.execute_batch("BEGIN").unwrap();
        let refused = |statement: &str| match run(&connection, statement) {
            Err(Stopped::Refused(message)) => message,
            other => panic!("{statement}: {other:?}"),
        };
        assert_eq!(refused("END"), "Statements of an unknown kind are refused");
        assert!(!connection.is_autocommit(), "the transaction was ended");
        assert!(refused("SELEC 1").contains("near \"SELEC\": syntax error"));
    }

    /// Executes a statement that fails. Returns the message.
    async fn failure(database: &mut dyn Database, statement: &str) -> String {
        match database.run(statement, true).await.unwrap() {
            Fetched::Failed { message } => message,
            other => panic!("{statement}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn temporary_tables_are_limited() {
        let databases = SqliteFolder::open(None, None).unwrap();
        let mut episode = Databases::open(&databases, "library").await.unwrap();
        let mut other = Databases::open(&databases, "library").await.unwrap();
        // 75 MiB.
        let large = "CREATE TEMPORARY TABLE large AS WITH RECURSIVE \
                     s(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM s WHERE length(x) < 100000), \
                     n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600) \
                     SELECT x, i FROM s, n WHERE length(x) > 100000";
        assert_eq!(failure(episode.as_mut(), large).await, "database or disk is full");
        for database in [&mut episode, &mut other] {
            let counted = database.run("SELECT COUNT(*) FROM book", false).await.unwrap();
            assert!(matches!(&counted, Fetched::Rows(rows) if rows.len() == 1), "{counted:?}");
        }
    }

    #[test]
    fn the_limit_of_pages_depends_on_their_size() {
        let base = Connection::open_in_memory().unwrap();
        base.execute_batch("PRAGMA page_size=65536; CREATE TABLE t (a)").unwrap();
        let database = copy(&base).unwrap();
        limit_pages(&database).unwrap();
        for (schema, pages) in [("main", 1024), ("temp", 16_384)] {
            let query = format!("PRAGMA {schema}.max_page_count");
            let limit: u32 = database.query_row(&query, [], |row| row.get(0)).unwrap();
            assert_eq!(limit, pages, "{schema}");
        }
    }

    #[tokio::test]
    async fn errors_of_limits_differ_from_others() {
        let databases = SqliteFolder::open(None, None).unwrap();
        let mut episode = Databases::open(&databases, "library").await.unwrap();
        let doubled = "WITH RECURSIVE s(x) AS (SELECT 'a' UNION ALL SELECT x || x FROM s WHERE length(x) < 300000) \
                       SELECT length(x) FROM s";
        for statement in [
            "SELECT a.book_id FROM book a, book b, book c, book d, book e".to_owned(),
            doubled.to_owned(),
            format!("SELECT {}", vec!["abs(1)"; 201].join(" + ")),
            format!("SELECT {}", vec!["abs(1)"; 201].join(", ")),
            format!("SELECT {}", vec!["1"; 201].join(", ")),
            format!("SELECT {}", vec!["1"; 201].join(" + ")),
            vec!["SELECT 1"; 101].join(" UNION ALL "),
            format!("SELECT book_id LIKE '{}' FROM book", "a".repeat(PATTERN_BYTES + 1)),
            "SELECT json_patch('{}', '{}')".to_owned(),
        ] {
            let message = failure(episode.as_mut(), &statement).await;
            assert!(is_limit(&message), "{statement}: {message}");
        }
        for statement in ["SELECT nothing FROM book", "SELECT 1 FROM nowhere", "SELECT abs(1, 2)"] {
            let message = failure(episode.as_mut(), statement).await;
            assert!(!is_limit(&message), "{statement}: {message}");
        }
    }

    #[test]
    fn unused_databases_are_evicted_when_memory_runs_out() {
        let base = || Arc::new(Mutex::new(Connection::open_in_memory().unwrap()));
        let used = base();
        let mut bases = Bases::from([("unused".to_owned(), base()), ("used".to_owned(), Arc::clone(&used))]);
        let room = std::cell::Cell::new(false);
        let full = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        let load = || if room.get() { Ok(1) } else { Err(full(rusqlite::ffi::SQLITE_NOMEM)) };
        let release = || {
            evict(&mut bases);
            room.set(true);
        };
        assert_eq!(with_memory(load, release), Ok(1));
        assert_eq!(bases.keys().collect::<Vec<_>>(), ["used"]);
        let other = with_memory(|| Err::<(), _>(full(rusqlite::ffi::SQLITE_CORRUPT)), || panic!("released"));
        assert!(other.is_err());
    }

    #[tokio::test]
    async fn files_that_do_not_fit_in_memory_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("large.sqlite")).unwrap();
        file.set_len(FILE + 1).unwrap();
        let databases = SqliteFolder::open(Some(folder.path().to_owned()), None).unwrap();
        let fault = Databases::open(&databases, "large").await.err().unwrap().to_string();
        assert!(fault.contains("large.sqlite has 536870913 bytes; the limit is 512 MiB"), "{fault}");
        // SQLite reports a file that does not exist.
        let fault = Databases::open(&databases, "none").await.err().unwrap().to_string();
        assert!(fault.contains("failed to open database `none`"), "{fault}");
    }
}
