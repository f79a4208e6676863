//! A MySQL or MariaDB server and the resources of this process on it: for each session an account with read
//! access to one database, and for sessions that write a copy of it, the only database on which the account
//! has write access.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::future::BoxFuture;
use lumos_environments::sql::dump::quoted;
use lumos_environments::sql::guard::is_system;
use rand::Rng;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use tokio::sync::OnceCell;

use super::connect::{SHORT, ServerConnection, bounded, connect, execute, texts};
use super::database::MySqlDatabase;
use super::names::{Names, PREFIX};
use super::ownership::{GRACE, Leftover, Leftovers, Ownership};
use crate::sessions::sql::limits::STATEMENT_TIME;
use crate::sessions::sql::settings::MySqlSettings;
use crate::sessions::sql::{Database, Databases, fault, is_plain};
use crate::tool::ToolFault;

/// Time to wait for an unreachable server, as long as a restart takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit for copying a database.
const COPY_TIME: Duration = Duration::from_secs(300);
/// Maximum number of idle administrative connections.
const IDLE: usize = 4;

/// Server errors that are not caused by a statement: too many connections, no disk space, no memory,
/// shutdown, connection killed or lost, statement killed. Not 1038: a sort that exceeds the session's buffer
/// does so again.
pub(super) const SERVER_ERRORS: [u16; 15] =
    [1021, 1037, 1040, 1041, 1053, 1077, 1078, 1152, 1158, 1159, 1160, 1161, 1184, 1317, 1927];

/// An account created by this process.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) user: String,
    password: String,
}

/// A MySQL or MariaDB server.
pub(crate) struct MySqlServer {
    inner: Arc<Inner>,
}

/// State shared by sessions.
pub(super) struct Inner {
    settings: MySqlSettings,
    /// Distinguishes the databases and accounts of this process from those of others.
    token: String,
    grace: Duration,
    patience: Duration,
    next: AtomicU64,
    started: OnceCell<Started>,
    /// Time and cause of the last failure to reach the server before it replied for the first time.
    given_up: Mutex<Option<(Instant, ToolFault)>>,
    /// Whether the server is unreachable, so that it is logged only once.
    is_gone: AtomicBool,
    /// Idle connections of the account in the settings.
    idle: Mutex<Vec<ServerConnection>>,
    leftovers: Leftovers,
}

/// Drops what is being created if its creation fails or is cancelled.
struct Unfinished<'a> {
    server: &'a Inner,
    leftover: Option<Leftover>,
}

impl<'a> Unfinished<'a> {
    fn new(server: &'a Inner, leftover: Leftover) -> Self {
        Self { server, leftover: Some(leftover) }
    }

    /// Keeps what was created.
    fn finish(mut self) {
        self.leftover = None;
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.server.leave(self.leftover.take().into_iter().collect());
    }
}

/// Data available after the first contact with the server.
struct Started {
    is_mariadb: bool,
    ownership: Ownership,
}

/// An operation on an administrative connection. Repeated if the connection is lost.
type Work<'w, T> =
    &'w (dyn for<'c> Fn(&'c mut MySqlConnection) -> BoxFuture<'c, Result<T, sqlx::Error>> + Sync);

impl MySqlServer {
    /// Creates a server, which is contacted when the first episode starts.
    pub(super) fn new(settings: MySqlSettings) -> Self {
        Self::with_limits(settings, GRACE, PATIENCE)
    }

    /// Creates a server with other limits. Resources of other processes are dropped after they had no owner
    /// for `grace` (default: 20 s). An unreachable server is waited for during `patience` (default: 60 s).
    /// The process checks its own lock every `grace / 10`.
    pub(crate) fn with_limits(settings: MySqlSettings, grace: Duration, patience: Duration) -> Self {
        let token = format!("{:012x}", rand::rng().random_range(0..1u64 << 48));
        let inner = Inner {
            settings,
            token,
            grace,
            patience,
            next: AtomicU64::new(0),
            started: OnceCell::new(),
            given_up: Mutex::default(),
            is_gone: AtomicBool::new(false),
            idle: Mutex::default(),
            leftovers: Leftovers::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

#[async_trait]
impl Databases for MySqlServer {
    async fn open(&self, name: &str) -> Result<Box<dyn Database>, ToolFault> {
        if !is_plain(name) {
            return Err(fault(format!("invalid database name `{name}`: expected letters, digits and `_`")));
        }
        // The run chooses the name, and the episode's account gets read access to that database.
        if is_system(name) || name.to_ascii_lowercase().starts_with(PREFIX) {
            return Err(fault(format!(
                "invalid database name `{name}`: reserved for the server and for copies of databases"
            )));
        }
        Ok(Box::new(MySqlDatabase::open(Arc::clone(&self.inner), name).await?))
    }

    async fn shut_down(&self) {
        let idle = std::mem::take(&mut *self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner));
        for connection in idle {
            connection.close().await;
        }
        if let Some(started) = self.inner.started.get() {
            started.ownership.give_back().await;
        }
    }
}

/// Quotes a database name for `GRANT`, where `_` and `%` are wildcards.
fn in_rights(name: &str) -> String {
    quoted(&name.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%"))
}

/// Whether an error means that the connection is unusable or the server has a problem.
pub(super) fn is_servers(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error
            .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
            .is_some_and(|error| SERVER_ERRORS.contains(&error.number())),
        _ => true,
    }
}

/// Whether a retry may succeed after this error.
fn may_pass(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Io(_)) || matches!(error, sqlx::Error::Database(_)) && is_servers(error)
}

/// Whether an error means that a server that has not replied yet is unreachable. Replies that
/// [`super::connect`] rejects are final: the address may not be that of a database server.
fn is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => !matches!(error.kind(), ErrorKind::Other | ErrorKind::InvalidData),
        error => may_pass(error),
    }
}

impl Inner {
    /// Creates a fault with the address of the server. It never contains the password of an account.
    pub(super) fn fault(&self, doing: &str, error: &sqlx::Error) -> ToolFault {
        let why = match error {
            sqlx::Error::Database(error) => error.message().to_owned(),
            sqlx::Error::Io(error) => error.to_string(),
            sqlx::Error::Protocol(why) => why.clone(),
            other => other.to_string(),
        };
        fault(format!("{}: {doing}: {why}", self.settings.address()))
    }

    /// Queries the server's version and takes this process's lock, once. Also waits for an unreachable
    /// server. Sessions that wait at the same time fail together; later sessions wait again.
    async fn started(&self) -> Result<&Started, ToolFault> {
        let asked = Instant::now();
        self.started
            .get_or_try_init(async || {
                let given_up = || self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((at, fault)) = &*given_up()
                    && *at >= asked
                {
                    return Err(fault.clone());
                }
                let since = Instant::now();
                loop {
                    match self.start().await {
                        Err(error) if is_away(&error) && since.elapsed() < self.patience => {
                            self.wait_for(&error).await;
                        }
                        Err(error) => {
                            let fault = self.fault("failed to set up the server", &error);
                            *given_up() = Some((Instant::now(), fault.clone()));
                            return Err(fault);
                        }
                        Ok(started) => {
                            self.is_gone.store(false, Ordering::Relaxed);
                            return Ok(started);
                        }
                    }
                }
            })
            .await
    }

    async fn start(&self) -> Result<Started, sqlx::Error> {
        let mut connection = connect(&self.settings, self.settings.options()).await?;
        let version = bounded(SHORT, texts(&mut connection.sql, "SELECT VERSION()".to_owned())).await?;
        self.keep(connection);
        let leftovers = Arc::clone(&self.leftovers);
        let ownership = Ownership::take(&self.settings, &self.token, self.grace, leftovers).await?;
        let is_mariadb = version.iter().any(|version| version.to_ascii_lowercase().contains("mariadb"));
        Ok(Started { is_mariadb, ownership })
    }

    /// Returns the current epoch of ownership: see [`Ownership::epoch`].
    pub(super) async fn epoch(&self) -> Result<u64, ToolFault> {
        self.started().await?.ownership.epoch().await
    }

    fn keep(&self, connection: ServerConnection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }

    /// Runs an operation as the account in the settings. Replaces a lost connection, and waits for an
    /// unreachable server.
    async fn administer<T>(&self, time: Duration, work: Work<'_, T>) -> Result<T, sqlx::Error> {
        let since = Instant::now();
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let was_kept = kept.is_some();
            let done = async {
                let mut connection = match kept {
                    Some(connection) => connection,
                    None => connect(&self.settings, self.settings.options()).await?,
                };
                let done = bounded(time, work(&mut connection.sql)).await;
                if done.as_ref().err().is_none_or(|error| !is_servers(error)) {
                    self.keep(connection);
                }
                done
            };
            match done.await {
                Err(error) if may_pass(&error) && was_kept => {}
                Err(error) if may_pass(&error) && since.elapsed() < self.patience => {
                    self.wait_for(&error).await;
                }
                done => {
                    self.is_gone.store(false, Ordering::Relaxed);
                    return done;
                }
            }
        }
    }

    /// Waits before a server is contacted again.
    async fn wait_for(&self, error: &sqlx::Error) {
        if !self.is_gone.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                server = self.settings.address(),
                %error,
                "cannot reach the database server; retrying for up to {} s",
                self.patience.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }

    /// Creates an account with read access to a single database.
    pub(super) async fn reader(&self, database: &str) -> Result<Account, ToolFault> {
        self.started().await?;
        let known =
            format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name = '{database}'");
        let account =
            Account { user: self.fresh('u'), password: format!("{:032x}Aa1!", rand::rng().random::<u128>()) };
        let unfinished = Unfinished::new(self, Leftover::Account(account.user.clone()));
        let statements = [
            format!("CREATE USER IF NOT EXISTS '{}'@'%' IDENTIFIED BY '{}'", account.user, account.password),
            format!("GRANT SELECT, SHOW VIEW ON {}.* TO '{}'@'%'", in_rights(database), account.user),
        ];
        let made = self
            .administer(SHORT, &|connection| {
                let (known, statements) = (known.clone(), statements.clone());
                Box::pin(async move {
                    if texts(connection, known).await?.is_empty() {
                        return Ok(false);
                    }
                    execute_all(connection, &statements).await?;
                    Ok(true)
                })
            })
            .await;
        match made {
            Ok(true) => {
                unfinished.finish();
                Ok(account)
            }
            Ok(false) => Err(fault(format!("{}: database `{database}` not found", self.settings.address()))),
            // The statement contains the password, so only the error number is reported.
            Err(sqlx::Error::Database(error)) => {
                let code = error.code().map(std::borrow::Cow::into_owned).unwrap_or_default();
                Err(fault(format!(
                    "{}: failed to create an account (error {code}); hint: CREATE USER and GRANT OPTION are \
                     required",
                    self.settings.address()
                )))
            }
            Err(error) => Err(self.fault("failed to create an account", &error)),
        }
    }

    /// Returns a new name that is unique to this process.
    fn fresh(&self, kind: char) -> String {
        format!("{PREFIX}{}_{kind}{:08}", self.token, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Opens a session of an account on a database.
    pub(super) async fn connect(
        &self,
        account: &Account,
        database: &str,
    ) -> Result<ServerConnection, ToolFault> {
        let options = self.settings.options_of(&account.user, &account.password).database(database);
        let since = Instant::now();
        loop {
            match connect(&self.settings, options.clone()).await {
                Ok(connection) => return Ok(connection),
                Err(error) if may_pass(&error) && since.elapsed() < self.patience => {
                    self.wait_for(&error).await;
                }
                Err(error) => return Err(self.fault("failed to open a session", &error)),
            }
        }
    }

    /// Returns the statement that sets a session's modes and limits. It is sent before each statement, so
    /// that changes do not last longer than one statement.
    pub(super) fn variables(&self, writes: bool) -> String {
        let seconds = STATEMENT_TIME.as_secs();
        let of_maker = match self.started.get() {
            Some(Started { is_mariadb: false, .. }) => {
                format!("max_execution_time={}, cte_max_recursion_depth=100000", seconds * 1000)
            }
            _ => format!(
                "max_statement_time={seconds}, max_recursive_iterations=100000, tmp_disk_table_size=67108864"
            ),
        };
        let most_rows = if writes { "5000000" } else { "DEFAULT" };
        format!(
            "SET SESSION sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', group_concat_max_len=65536, \
             max_heap_table_size=16777216, tmp_table_size=16777216, lock_wait_timeout=2, \
             innodb_lock_wait_timeout=2, max_join_size={most_rows}, autocommit=0, \
             sql_select_limit=DEFAULT, default_storage_engine=InnoDB, div_precision_increment=DEFAULT, \
             max_sort_length=DEFAULT, default_week_format=DEFAULT, lc_time_names=DEFAULT, {of_maker}"
        )
    }

    /// Creates a copy of a database with write access for an account.
    pub(super) async fn copy(&self, of: &str, account: &Account) -> Result<String, ToolFault> {
        let name = self.fresh('d');
        let unfinished = Unfinished::new(self, Leftover::Database(name.clone()));
        // Temporary tables are not allowed: they would grow in a file shared by all sessions.
        let writes = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES";
        let right = format!("GRANT {writes} ON {}.* TO '{}'@'%'", in_rights(&name), account.user);
        let made = self
            .administer(COPY_TIME, &|connection| {
                let (of, name, right) = (of.to_owned(), name.clone(), right.clone());
                Box::pin(async move {
                    copy_tables(connection, &of, &name).await?;
                    execute(connection, right).await
                })
            })
            .await;
        made.map_err(|error| self.fault("failed to create an episode's copy of its database", &error))?;
        unfinished.finish();
        Ok(name)
    }

    /// Returns the size of a database's files, in bytes.
    pub(super) async fn size(&self, database: &str) -> Result<u64, ToolFault> {
        let files = |table: &str| {
            format!(
                "SELECT CAST(COALESCE(SUM(file_size), 0) AS CHAR) FROM information_schema.{table} \
                 WHERE name LIKE '{}/%'",
                database.replace('_', "\\_")
            )
        };
        let is_mariadb = self.started.get().is_none_or(|started| started.is_mariadb);
        let files = files(if is_mariadb { "innodb_sys_tablespaces" } else { "innodb_tablespaces" });
        // Without the PROCESS privilege, only estimates are available.
        let estimated = format!(
            "SELECT CAST(COALESCE(SUM(data_length + index_length), 0) AS CHAR) FROM information_schema.tables \
             WHERE table_schema = '{database}'"
        );
        let size = self
            .administer(SHORT, &|connection| {
                let (files, estimated) = (files.clone(), estimated.clone());
                Box::pin(async move {
                    let size = match texts(connection, files).await {
                        Err(sqlx::Error::Database(_)) => texts(connection, estimated).await?,
                        size => size?,
                    };
                    Ok(size.first().and_then(|size| size.parse().ok()).unwrap_or_default())
                })
            })
            .await;
        size.map_err(|error| self.fault("failed to read the size of a database", &error))
    }

    /// Whether a session's account and copy still exist.
    pub(super) async fn still_has(&self, names: &Names) -> Result<bool, ToolFault> {
        let mut parts = vec![format!("EXISTS (SELECT 1 FROM mysql.user WHERE user = '{}')", names.account)];
        parts.extend(names.copy.iter().map(|copy| {
            format!("EXISTS (SELECT 1 FROM information_schema.schemata WHERE schema_name = '{copy}')")
        }));
        let query = format!("SELECT CAST({} AS CHAR)", parts.join(" AND "));
        let there = self.administer(SHORT, &|connection| Box::pin(texts(connection, query.clone()))).await;
        let there = there.map_err(|error| self.fault("failed to query the accounts", &error))?;
        Ok(there.iter().all(|there| there == "1"))
    }

    /// Drops a session's account and copy. If this fails, they are dropped later.
    pub(super) async fn drop_all(&self, names: &Names) {
        let leftovers = of(names);
        let statements: Vec<String> = leftovers.iter().map(Leftover::drop_statement).collect();
        let dropped = self.administer(SHORT * 3, &|connection| execute_all(connection, &statements)).await;
        if let Err(error) = dropped {
            tracing::warn!(
                account = names.account, %error,
                "failed to drop the account and databases of an episode; retrying later"
            );
            self.leave(leftovers);
        }
    }

    /// Schedules a session's account and copy to be dropped later.
    pub(super) fn abandon(&self, names: &Names) {
        self.leave(of(names));
    }

    fn leave(&self, leftovers: Vec<Leftover>) {
        self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).extend(leftovers);
    }

    /// Kills the connection of a session.
    pub(super) async fn kill(&self, connection: u64) {
        self.kill_by(format!("KILL {connection}")).await;
    }

    /// Stops the current statement of a session.
    pub(super) async fn kill_query(&self, connection: u64) {
        self.kill_by(format!("KILL QUERY {connection}")).await;
    }

    async fn kill_by(&self, statement: String) {
        let _ = self.administer(SHORT, &|connection| Box::pin(execute(connection, statement.clone()))).await;
    }
}

/// Returns the account and the copy of a session.
fn of(names: &Names) -> Vec<Leftover> {
    let account = Leftover::Account(names.account.clone());
    std::iter::once(account).chain(names.copy.clone().map(Leftover::Database)).collect()
}

/// Executes statements one after another.
fn execute_all<'c>(
    connection: &'c mut MySqlConnection,
    statements: &[String],
) -> BoxFuture<'c, Result<(), sqlx::Error>> {
    let statements = statements.to_vec();
    Box::pin(async move {
        for statement in statements {
            execute(connection, statement).await?;
        }
        Ok(())
    })
}

/// Copies all tables of a database, with their keys and foreign keys.
async fn copy_tables(connection: &mut MySqlConnection, from: &str, to: &str) -> Result<(), sqlx::Error> {
    // An earlier attempt may have left an incomplete copy.
    execute(connection, format!("DROP DATABASE IF EXISTS {}", quoted(to))).await?;
    execute(connection, format!("CREATE DATABASE {}", quoted(to))).await?;
    execute(connection, format!("USE {}", quoted(to))).await?;
    execute(connection, "SET SESSION foreign_key_checks=0, unique_checks=0".to_owned()).await?;
    execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned()).await?;
    let tables = format!(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = '{from}' AND table_type = 'BASE TABLE'"
    );
    for table in texts(connection, tables).await? {
        let (from, table) = (quoted(from), quoted(&table));
        let definition = sqlx::raw_sql(AssertSqlSafe(format!("SHOW CREATE TABLE {from}.{table}")))
            .fetch_one(&mut *connection)
            .await?;
        execute(connection, definition.try_get_unchecked(1)?).await?;
        execute(connection, format!("INSERT INTO {table} SELECT * FROM {from}.{table}")).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_change_results_are_set_for_each_statement() {
        let settings = MySqlSettings::of_url("mysql://keeper:secret@127.0.0.1").unwrap();
        let variables = MySqlServer::new(settings).inner.variables(false);
        for set in ["sql_select_limit=DEFAULT", "default_storage_engine=InnoDB", "max_statement_time=5"] {
            assert!(variables.contains(set), "{variables}");
        }
    }

    #[tokio::test]
    async fn databases_of_the_server_and_copies_of_episodes_are_refused() {
        // Refused before a connection is made.
        let settings = MySqlSettings::of_url("mysql://keeper:secret@127.0.0.1:1").unwrap();
        let server = MySqlServer::with_limits(settings, GRACE, Duration::ZERO);
        for name in ["mysql", "MySQL", "information_schema", "sys", "lumos_e_0a1b_d1", "LUMOS_E_0a1b_d1"] {
            let refused = server.open(name).await.err().unwrap().to_string();
            assert!(refused.contains(&format!("invalid database name `{name}`: reserved")), "{refused}");
        }
    }

    #[test]
    fn what_is_not_finished_is_left_to_be_dropped() {
        let settings = MySqlSettings::of_url("mysql://keeper:secret@127.0.0.1").unwrap();
        let server = MySqlServer::new(settings).inner;
        Unfinished::new(&server, Leftover::Account("lumos_e_0a1b_u1".to_owned())).finish();
        drop(Unfinished::new(&server, Leftover::Database("lumos_e_0a1b_d1".to_owned())));
        let left = server.leftovers.lock().unwrap().clone();
        assert_eq!(left, [Leftover::Database("lumos_e_0a1b_d1".to_owned())]);
    }

    #[test]
    fn a_sort_that_does_not_fit_its_buffer_is_not_an_error_of_the_server() {
        assert!(SERVER_ERRORS.is_sorted() && !SERVER_ERRORS.contains(&1038));
    }
}
