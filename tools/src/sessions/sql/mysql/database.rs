//! The database of an episode on a server: the base database with a read-only account until the episode
//! writes, then a copy on which the account has write access.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::TryStreamExt;
use lumos_environments::sql::Fetched;
use lumos_environments::sql::dump::quoted;
use lumos_environments::sql::lexer::{Token, located};
use sqlx::{AssertSqlSafe, Either, Executor, SqlSafeStr, Statement};

use super::connect::{SHORT, ServerConnection, bounded, execute};
use super::names::Names;
use super::server::{Account, Inner, is_servers};
use super::text_row::cells;
use crate::sessions::sql::limits::{Meter, STATEMENT_TIME, TOO_LONG};
use crate::sessions::sql::{Database, check_known, fault};
use crate::tool::ToolFault;

/// Additional time before the connection is closed, for the server to stop the statement itself.
const GRACE: Duration = Duration::from_secs(3);
/// Maximum number of rows written by the statements of an episode.
const WRITTEN_ROWS: u64 = 200_000;
/// Maximum growth of an episode's database on a server, in bytes.
const WRITTEN_BYTES: u64 = 64 << 20;
/// Interval at which the size of a copy is checked during a write.
const LOOK: Duration = Duration::from_millis(100);
/// End of the message for a statement after which a new session was opened.
const LOST: &str = "; uncommitted changes and variables of the session were lost";

/// The database of an episode.
pub(super) struct MySqlDatabase {
    server: Arc<Inner>,
    account: Account,
    names: Names,
    session: Option<ServerConnection>,
    /// The ownership epoch in which the session's account and copy were last known to exist.
    epoch: u64,
    /// Whether the session has state that a new session would lack: a variable, a transaction.
    has_state: bool,
    written: u64,
    /// Maximum size of the copy, in bytes.
    most_bytes: u64,
    is_closed: bool,
}

/// Reasons why a statement failed.
enum Stopped {
    /// Rejected by the server or by a limit. The model receives the message.
    Refused(String),
    /// The statement made the session unusable. The model receives the message.
    Broken(String),
    /// The session was lost for a reason other than the statement.
    Lost(ToolFault),
}

impl MySqlDatabase {
    /// Creates an account and opens a session with it.
    pub(super) async fn open(server: Arc<Inner>, base: &str) -> Result<Self, ToolFault> {
        let account = server.reader(base).await?;
        let names = Names { base: base.to_owned(), account: account.user.clone(), copy: None };
        // From here on the account is dropped in any case.
        let mut database = Self {
            server,
            account,
            names,
            session: None,
            epoch: 0,
            has_state: false,
            written: 0,
            most_bytes: u64::MAX,
            is_closed: false,
        };
        database.epoch = database.server.epoch().await?;
        database.session = Some(database.server.connect(&database.account, base).await?);
        Ok(database)
    }

    /// Switches to a copy of the base database, in the same session.
    async fn branch(&mut self) -> Result<(), ToolFault> {
        if self.names.copy.is_some() {
            return Ok(());
        }
        let copy = self.server.copy(&self.names.base, &self.account).await?;
        self.names.copy = Some(copy.clone());
        self.most_bytes = self.server.size(&copy).await?.saturating_add(WRITTEN_BYTES);
        let Some(session) = &mut self.session else { return Err(fault("the session is closed")) };
        let moved = bounded(SHORT, async {
            // Nothing was written yet. A transaction that started earlier would not see the copy's tables.
            execute(&mut session.sql, "ROLLBACK".to_owned()).await?;
            execute(&mut session.sql, format!("USE {}", quoted(&copy))).await
        });
        moved.await.map_err(|error| {
            self.server.fault("failed to switch a session to its copy of the database", &error)
        })
    }

    async fn execute(&mut self, statement: &str, writes: bool) -> Result<Fetched, Stopped> {
        let Some(session) = self.session.as_mut() else {
            return Err(Stopped::Lost(fault("the session is closed")));
        };
        let server = Arc::clone(&self.server);
        let failed = |error: sqlx::Error| match error {
            sqlx::Error::Database(ref refused) if !is_servers(&error) => {
                Stopped::Refused(refused.message().to_owned())
            }
            error => Stopped::Lost(server.fault("failed to execute a statement", &error)),
        };
        let (connection, id) = (&mut session.sql, session.id);
        execute(connection, server.variables(writes || self.names.copy.is_some())).await.map_err(failed)?;
        // The server checks that there is one statement and returns whether it has a result.
        let prepared = (&mut *connection).prepare(AssertSqlSafe(statement.to_owned()).into_sql_str()).await;
        let has_result = !prepared.map_err(failed)?.columns().is_empty();
        check_known(statement).map_err(Stopped::Refused)?;
        let mut results = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_many(&mut *connection);
        let mut meter = Meter::default();
        let (mut rows, mut exceeded) = (Vec::new(), None);
        while let Some(result) = results.try_next().await.map_err(failed)? {
            match result {
                Either::Left(done) => self.written += if has_result { 0 } else { done.rows_affected() },
                Either::Right(row) => {
                    let row = cells(&row).map_err(failed)?;
                    if let Err(message) = meter.take(&row) {
                        exceeded = Some(message);
                        break;
                    }
                    rows.push(row);
                }
            }
        }
        let Some(message) = exceeded else {
            return Ok(if has_result { Fetched::Rows(rows) } else { Fetched::Nothing });
        };
        if writes {
            // It may have been completed. Its changes are rolled back with the session.
            return Err(Stopped::Broken(message));
        }
        // The session keeps its uncommitted changes, so the rest of the result must be received.
        server.kill_query(id).await;
        let rest = results.try_for_each(|_| std::future::ready(Ok(()))).await;
        // If the result had already ended, the server may stop the next statement instead.
        let next = execute(connection, "DO 0".to_owned()).await;
        for done in [rest, next] {
            match done {
                Ok(()) | Err(sqlx::Error::Database(_)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Stopped::Refused(message))
    }

    /// Executes a statement within its time limit and size limit.
    async fn carry_out(&mut self, statement: &str, writes: bool) -> Result<Fetched, Stopped> {
        let server = Arc::clone(&self.server);
        let grown = grown(server, self.names.copy.clone().filter(|_| writes), self.most_bytes);
        let done = bounded(STATEMENT_TIME + GRACE, async { Ok(self.execute(statement, writes).await) });
        tokio::select! {
            biased;
            done = done => match done {
                Ok(done) => done,
                Err(sqlx::Error::Io(_)) => Err(Stopped::Broken(TOO_LONG.to_owned())),
                Err(error) => Err(Stopped::Lost(self.server.fault("failed to execute a statement", &error))),
            },
            () = grown => Err(Stopped::Broken(too_large())),
        }
    }

    /// Replaces a broken session with a new one on the same database.
    async fn renew(&mut self) -> Result<(), ToolFault> {
        // Dropped without closing it, which would wait for the rest of the result.
        if let Some(ServerConnection { id, .. }) = self.session.take() {
            self.server.kill(id).await;
        }
        let database = self.names.copy.as_ref().unwrap_or(&self.names.base);
        self.session = Some(self.server.connect(&self.account, database).await?);
        Ok(())
    }

    /// Repeats a read in a new session after the old one was lost. Must only be used if the session had no
    /// state and no copy, because a copy may have lost changes.
    async fn read_again(&mut self, statement: &str) -> Result<Fetched, Stopped> {
        self.session = None;
        let renewed = async {
            if !self.server.still_has(&self.names).await? {
                self.account = self.server.reader(&self.names.base).await?;
                self.names.account.clone_from(&self.account.user);
            }
            self.renew().await
        };
        renewed.await.map_err(Stopped::Lost)?;
        self.carry_out(statement, false).await
    }

    /// Checks that the account and the copy still exist, so that an error is caused by the statement. They
    /// are dropped if the process was disconnected for too long.
    async fn check_owned(&mut self) -> Result<(), ToolFault> {
        let epoch = self.server.epoch().await?;
        if epoch != self.epoch {
            if !self.server.still_has(&self.names).await? {
                return Err(fault(
                    "the episode's account and database were removed while the server was out of reach",
                ));
            }
            self.epoch = epoch;
        }
        Ok(())
    }

    async fn fetched(&mut self, statement: &str, writes: bool) -> Result<Fetched, ToolFault> {
        let mut done = self.carry_out(statement, writes).await;
        let is_fresh = self.names.copy.is_none() && !self.has_state;
        if is_fresh && matches!(done, Err(Stopped::Lost(_))) {
            done = self.read_again(statement).await;
        }
        let had_state = self.has_state;
        self.has_state |= writes || !is_stateless(statement);
        match done {
            Ok(fetched) => Ok(fetched),
            Err(Stopped::Refused(message)) => {
                self.check_owned().await?;
                Ok(Fetched::Failed { message })
            }
            Err(Stopped::Broken(message)) => {
                self.renew().await?;
                let lost = if had_state { LOST } else { "" };
                Ok(Fetched::Failed { message: message + lost })
            }
            Err(Stopped::Lost(fault)) => Err(fault),
        }
    }
}

/// Whether a read statement leaves no state in its session.
fn is_stateless(statement: &str) -> bool {
    match lumos_environments::sql::lexer::tokens(statement).find(|token| *token != Token::Symbol('(')) {
        Some(Token::Word(word)) => {
            ["SELECT", "SHOW", "DESC", "DESCRIBE", "EXPLAIN", "WITH", "VALUES", "TABLE"]
                .iter()
                .any(|known| word.eq_ignore_ascii_case(known))
                && !statement.contains('@')
        }
        _ => false,
    }
}

/// Returns when a copy exceeds its maximum size.
async fn grown(server: Arc<Inner>, copy: Option<String>, most_bytes: u64) {
    let Some(copy) = copy else { return std::future::pending().await };
    loop {
        tokio::time::sleep(LOOK).await;
        if server.size(&copy).await.is_ok_and(|size| size > most_bytes) {
            return;
        }
    }
}

fn too_large() -> String {
    format!("The episode has written more than {WRITTEN_BYTES} bytes")
}

/// Removes `TEMPORARY` from `CREATE`, `DROP` and `ALTER`. A copy is dropped with its episode, like a
/// temporary table, and its tables have their own files, whose size is known.
fn lasting(statement: &str) -> String {
    let mut pieces = located(statement);
    let is_definition = matches!(
        pieces.next(),
        Some((_, Token::Word(word))) if ["CREATE", "DROP", "ALTER"].iter().any(|known| word.eq_ignore_ascii_case(known))
    );
    match pieces.next() {
        Some((at, Token::Word(word))) if is_definition && word.eq_ignore_ascii_case("TEMPORARY") => {
            let (before, rest) = statement.split_at(at);
            format!("{before}{}", rest.get(word.len()..).unwrap_or_default())
        }
        _ => statement.to_owned(),
    }
}

#[async_trait]
impl Database for MySqlDatabase {
    async fn run(&mut self, statement: &str, writes: bool) -> Result<Fetched, ToolFault> {
        if !writes {
            let fetched = self.fetched(statement, false).await?;
            return Ok(self.names.restored(fetched));
        }
        self.branch().await?;
        if self.written > WRITTEN_ROWS {
            let message = format!("The episode has written more than {WRITTEN_ROWS} rows");
            return Ok(Fetched::Failed { message });
        }
        if let Some(copy) = &self.names.copy
            && self.server.size(copy).await? > self.most_bytes
        {
            return Ok(Fetched::Failed { message: too_large() });
        }
        let fetched = self.fetched(&lasting(statement), true).await?;
        Ok(self.names.restored(fetched))
    }

    async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            session.close().await;
        }
        if !self.is_closed {
            self.server.drop_all(&self.names).await;
            self.is_closed = true;
        }
    }
}

impl Drop for MySqlDatabase {
    /// The resources of a cancelled episode are dropped later.
    fn drop(&mut self) {
        if !self.is_closed {
            self.server.abandon(&self.names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_tables_become_tables_of_the_copy() {
        assert_eq!(lasting("create /* a */ temporary table t (a int)"), "create /* a */  table t (a int)");
        assert_eq!(lasting("DROP TEMPORARY TABLE t"), "DROP  TABLE t");
        assert_eq!(lasting("CREATE TABLE temporary (a int)"), "CREATE TABLE temporary (a int)");
    }

    #[test]
    fn statements_that_leave_nothing_in_a_session() {
        assert!(is_stateless("(SELECT 1) UNION (SELECT 2)") && is_stateless("show tables"));
        assert!(!is_stateless("SET @x = 1") && !is_stateless("SELECT @x := 1") && !is_stateless("BEGIN"));
    }
}
