//! A MySQL or MariaDB server and what this process makes there: accounts that may only read one database, and copies of
//! a database for episodes that write, each with an account that may write there and nowhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lumos_environments::sql::dump::quoted;
use rand::Rng;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::sync::{Mutex, OnceCell};

use super::limits::STATEMENT_TIME;
use super::mysql::MySqlDatabase;
use super::settings::MySqlSettings;
use super::{Database, Databases, fault};
use crate::tools::ToolFault;

/// What the names of our databases and accounts start with.
const PREFIX: &str = "lumos_e_";

/// An account of this process's making.
#[derive(Clone)]
pub(super) struct Account {
    pub(super) user: String,
    password: String,
}

/// A session, and the number the server knows it by.
pub(super) struct Connected {
    pub(super) connection: MySqlConnection,
    pub(super) id: u64,
}

/// The server.
pub struct MySqlServer {
    inner: Arc<Inner>,
}

/// What sessions share.
pub(super) struct Inner {
    settings: MySqlSettings,
    /// Tells this process's databases and accounts from others'.
    token: String,
    next: AtomicU64,
    started: OnceCell<Started>,
    /// Accounts that read, by database.
    readers: Mutex<HashMap<String, Account>>,
}

/// What is known once the server was asked.
struct Started {
    is_mariadb: bool,
    /// Holds the lock that says that this process lives.
    _holder: Mutex<MySqlConnection>,
}

impl MySqlServer {
    /// A server that is asked when the first episode comes.
    pub fn new(settings: MySqlSettings) -> Self {
        let token = format!("{:012x}", rand::rng().random_range(0..1u64 << 48));
        let inner = Inner {
            settings,
            token,
            next: AtomicU64::new(0),
            started: OnceCell::new(),
            readers: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }
}

#[async_trait]
impl Databases for MySqlServer {
    async fn open(&self, name: &str) -> Result<Box<dyn Database>, ToolFault> {
        if name.is_empty() || !name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_') {
            return Err(fault(format!("`{name}` is no name of a database")));
        }
        let account = self.inner.reader(name).await?;
        let connection = self.inner.connect(&account, name, false).await?;
        Ok(Box::new(MySqlDatabase::new(Arc::clone(&self.inner), name, connection)))
    }
}

/// A failure of the server, for people: without accounts' passwords, which messages never hold.
pub(super) fn server_fault(doing: &str, error: &sqlx::Error) -> ToolFault {
    fault(format!("{doing}: {error}"))
}

/// How a name is written in the rights of an account, where `_` and `%` stand for anything.
fn in_rights(name: &str) -> String {
    quoted(&name.replace('\\', "\\\\").replace('_', "\\_").replace('%', "\\%"))
}

pub(super) async fn execute(connection: &mut MySqlConnection, statement: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await.map(|_| ())
}

async fn texts(connection: &mut MySqlConnection, query: String) -> Result<Vec<String>, sqlx::Error> {
    let rows = sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(connection).await?;
    rows.iter().map(|row| row.try_get_unchecked::<String, _>(0)).collect()
}

impl Inner {
    /// A connection of the account that the settings name.
    pub(super) async fn administrator(&self) -> Result<MySqlConnection, ToolFault> {
        let address = self.settings.address();
        connected(&self.settings.options())
            .await
            .map_err(|error| server_fault(&format!("{address} cannot be reached"), &error))
    }

    /// Asks the server who it is, says that this process lives, and clears away what dead ones left.
    async fn started(&self) -> Result<&Started, ToolFault> {
        self.started
            .get_or_try_init(|| async {
                let mut holder = self.administrator().await?;
                let begun = self.begin(&mut holder).await;
                let is_mariadb =
                    begun.map_err(|error| server_fault("the server cannot be set up", &error))?;
                Ok(Started { is_mariadb, _holder: Mutex::new(holder) })
            })
            .await
    }

    /// Takes the lock that says that this process lives, and sweeps; whether the server is MariaDB.
    async fn begin(&self, holder: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
        let version = texts(holder, "SELECT VERSION()".to_owned()).await?;
        execute(holder, "SET SESSION wait_timeout=31536000".to_owned()).await?;
        texts(holder, format!("SELECT CAST(GET_LOCK('{PREFIX}{}', 0) AS CHAR)", self.token)).await?;
        sweep(holder, &self.token).await?;
        Ok(version.iter().any(|version| version.to_ascii_lowercase().contains("mariadb")))
    }

    /// The account that reads a database and nothing else.
    pub(super) async fn reader(&self, database: &str) -> Result<Account, ToolFault> {
        self.started().await?;
        let mut readers = self.readers.lock().await;
        if let Some(account) = readers.get(database) {
            return Ok(account.clone());
        }
        let mut administrator = self.administrator().await?;
        let known =
            format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name = '{database}'");
        let known = texts(&mut administrator, known).await;
        if known.map_err(|error| server_fault("the server's databases cannot be listed", &error))?.is_empty()
        {
            return Err(fault(format!("{} has no database `{database}`", self.settings.address())));
        }
        let rights = [format!("GRANT SELECT, SHOW VIEW ON {}.* TO", in_rights(database))];
        let account = self.make_account(&mut administrator, 'r', &rights).await?;
        readers.insert(database.to_owned(), account.clone());
        let _ = administrator.close().await;
        Ok(account)
    }

    async fn make_account(
        &self,
        administrator: &mut MySqlConnection,
        kind: char,
        rights: &[String],
    ) -> Result<Account, ToolFault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let account = Account {
            user: format!("{PREFIX}{}_{kind}{number}", self.token),
            password: format!("{:032x}Aa1!", rand::rng().random::<u128>()),
        };
        let made = async {
            execute(
                administrator,
                format!("CREATE USER '{}'@'%' IDENTIFIED BY '{}'", account.user, account.password),
            )
            .await?;
            for right in rights {
                execute(administrator, format!("{right} '{}'@'%'", account.user)).await?;
            }
            Ok::<(), sqlx::Error>(())
        };
        // The statement holds the password: of an error only its kind is told.
        made.await.map_err(|error| {
            let code =
                error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            fault(format!(
                "an account cannot be made (error {}): it takes CREATE USER and GRANT",
                code.unwrap_or_default()
            ))
        })?;
        Ok(account)
    }

    /// A session of an account on a database, with the session's limits set.
    pub(super) async fn connect(
        &self,
        account: &Account,
        database: &str,
        writes: bool,
    ) -> Result<Connected, ToolFault> {
        let started = self.started().await?;
        let options = self.settings.options_of(&account.user, &account.password).database(database);
        let unreachable = |error: sqlx::Error| server_fault("a session cannot be opened", &error);
        let mut connection = connected(&options).await.map_err(unreachable)?;
        let mut variables = vec![
            "sql_mode='STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'".to_owned(),
            "group_concat_max_len=65536".to_owned(),
            "max_heap_table_size=16777216".to_owned(),
            "tmp_table_size=16777216".to_owned(),
            "lock_wait_timeout=2".to_owned(),
            "innodb_lock_wait_timeout=2".to_owned(),
        ];
        let seconds = STATEMENT_TIME.as_secs();
        if started.is_mariadb {
            variables.push(format!("max_statement_time={seconds}"));
            variables.push("max_recursive_iterations=100000".to_owned());
            variables.push("tmp_disk_table_size=67108864".to_owned());
        } else {
            variables.push(format!("max_execution_time={}", seconds * 1000));
            variables.push("cte_max_recursion_depth=100000".to_owned());
        }
        if writes {
            variables.push("max_join_size=5000000".to_owned());
        }
        variables.push("autocommit=0".to_owned());
        execute(&mut connection, format!("SET SESSION {}", variables.join(", ")))
            .await
            .map_err(unreachable)?;
        let id = texts(&mut connection, "SELECT CAST(CONNECTION_ID() AS CHAR)".to_owned()).await;
        let id = id.map_err(unreachable)?.first().and_then(|id| id.parse().ok()).unwrap_or_default();
        Ok(Connected { connection, id })
    }

    /// Makes a copy of a database and an account that may write there.
    pub(super) async fn copy(&self, of: &str) -> Result<(String, Account), ToolFault> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}_{number}", self.token);
        let mut administrator = self.administrator().await?;
        let copied = copy_tables(&mut administrator, of, &name).await;
        let result = match copied {
            Ok(()) => {
                let writes = "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, \
                              CREATE TEMPORARY TABLES";
                let rights = [
                    format!("GRANT {writes} ON {}.* TO", in_rights(&name)),
                    format!("GRANT SELECT, SHOW VIEW ON {}.* TO", in_rights(of)),
                ];
                self.make_account(&mut administrator, 'w', &rights).await
            }
            Err(error) => Err(server_fault("an episode's copy of its database cannot be made", &error)),
        };
        if result.is_err() {
            let _ = execute(&mut administrator, format!("DROP DATABASE IF EXISTS {}", quoted(&name))).await;
        }
        let _ = administrator.close().await;
        Ok((name, result?))
    }

    /// Drops a copy and its account.
    pub(super) async fn drop_copy(&self, name: &str, account: &Account) {
        let Ok(mut administrator) = self.administrator().await else { return };
        let dropped = async {
            execute(&mut administrator, format!("DROP USER IF EXISTS '{}'@'%'", account.user)).await?;
            execute(&mut administrator, format!("DROP DATABASE IF EXISTS {}", quoted(name))).await
        };
        if let Err(error) = dropped.await {
            tracing::warn!(database = name, %error, "an episode's copy could not be dropped");
        }
        let _ = administrator.close().await;
    }

    /// Stops what a session is doing.
    pub(super) async fn kill(&self, connection: u64) {
        if let Ok(mut administrator) = self.administrator().await {
            let _ = execute(&mut administrator, format!("KILL {connection}")).await;
            let _ = administrator.close().await;
        }
    }
}

/// Connects, and gives up after a while.
async fn connected(options: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    match tokio::time::timeout(Duration::from_secs(20), MySqlConnection::connect_with(options)).await {
        Ok(connection) => connection,
        Err(_) => Err(sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::TimedOut))),
    }
}

/// Copies all tables of a database, with their keys and references.
async fn copy_tables(connection: &mut MySqlConnection, from: &str, to: &str) -> Result<(), sqlx::Error> {
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

/// Drops databases and accounts of processes that are gone: nobody holds the lock of their token.
async fn sweep(connection: &mut MySqlConnection, own: &str) -> Result<(), sqlx::Error> {
    let pattern = PREFIX.replace('_', "\\_");
    let databases = texts(
        connection,
        format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE '{pattern}%'"),
    )
    .await?;
    let users = texts(connection, format!("SELECT user FROM mysql.user WHERE user LIKE '{pattern}%'")).await;
    let users = users.unwrap_or_default();
    for (name, is_user) in
        databases.iter().map(|name| (name, false)).chain(users.iter().map(|name| (name, true)))
    {
        let token = name.get(PREFIX.len()..PREFIX.len() + own.len()).unwrap_or_default();
        if token == own || !token.chars().all(|one| one.is_ascii_hexdigit()) {
            continue;
        }
        let free = texts(connection, format!("SELECT CAST(IS_FREE_LOCK('{PREFIX}{token}') AS CHAR)")).await?;
        if free.iter().all(|free| free == "1") {
            let statement = if is_user {
                format!("DROP USER IF EXISTS '{}'@'%'", name.replace('\'', ""))
            } else {
                format!("DROP DATABASE IF EXISTS {}", quoted(name))
            };
            execute(connection, statement).await?;
        }
    }
    Ok(())
}
