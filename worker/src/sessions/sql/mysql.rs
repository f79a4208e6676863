//! One episode's database on a server: the base itself with an account that may only read, until the episode writes; then
//! a copy with an account that may write there alone.

use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt;
use lumos_environments::sql::Fetched;
use sqlx::{AssertSqlSafe, Connection, Either, Executor, SqlSafeStr, Statement};

use super::limits::{GRACE, Meter, STATEMENT_TIME, WRITTEN_ROWS};
use super::server::{Account, Connected, Inner, server_fault};
use super::text_row::cells;
use super::{Database, fault};
use crate::tools::ToolFault;

/// A copy of the base, made when the episode first writes.
struct Copy {
    name: String,
    account: Account,
}

/// One episode's database.
pub(super) struct MySqlDatabase {
    server: Arc<Inner>,
    base: String,
    session: Option<Connected>,
    copy: Option<Copy>,
    written: u64,
}

/// Why a statement came to nothing.
enum Stopped {
    /// The server or we refuse it: told to the model.
    Refused(String),
    /// The session is of no use any more, by the statement's doing: told to the model.
    Broken(String),
    /// The server failed.
    Fault(ToolFault),
}

impl From<sqlx::Error> for Stopped {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => Self::Refused(error.message().to_owned()),
            error => Self::Fault(server_fault("the server did not answer", &error)),
        }
    }
}

impl MySqlDatabase {
    pub(super) fn new(server: Arc<Inner>, base: &str, session: Connected) -> Self {
        Self { server, base: base.to_owned(), session: Some(session), copy: None, written: 0 }
    }

    /// Goes over to a copy of the base.
    async fn branch(&mut self) -> Result<(), ToolFault> {
        if self.copy.is_some() {
            return Ok(());
        }
        let (name, account) = self.server.copy(&self.base).await?;
        let session = self.server.connect(&account, &name, true).await;
        self.copy = Some(Copy { name, account });
        if let Some(old) = self.session.replace(session?) {
            let _ = old.connection.close().await;
        }
        Ok(())
    }

    async fn carry_out(&mut self, statement: &str) -> Result<Fetched, Stopped> {
        let Some(Connected { connection, .. }) = self.session.as_mut() else {
            return Err(Stopped::Fault(fault("the session is closed")));
        };
        // The server itself sees that there is one statement, and says whether it has a result.
        let prepared = (&mut *connection).prepare(AssertSqlSafe(statement.to_owned()).into_sql_str()).await?;
        let has_result = !prepared.columns().is_empty();
        let mut results = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_many(&mut *connection);
        let mut meter = Meter::default();
        let mut rows = Vec::new();
        while let Some(result) = results.try_next().await? {
            match result {
                Either::Left(done) => self.written += if has_result { 0 } else { done.rows_affected() },
                Either::Right(row) => {
                    let row = cells(&row)?;
                    // The rest of the result is on its way: the session is given up with it.
                    meter.take(&row).map_err(Stopped::Broken)?;
                    rows.push(row);
                }
            }
        }
        Ok(if has_result { Fetched::Rows(rows) } else { Fetched::Nothing })
    }

    /// Opens a new session on the same database in the place of a broken one.
    async fn renew(&mut self) -> Result<(), ToolFault> {
        // Dropped without a farewell, which would wait for the rest of the result.
        if let Some(Connected { id, .. }) = self.session.take() {
            self.server.kill(id).await;
        }
        let session = match &self.copy {
            Some(copy) => self.server.connect(&copy.account, &copy.name, true).await?,
            None => {
                let account = self.server.reader(&self.base).await?;
                self.server.connect(&account, &self.base, false).await?
            }
        };
        self.session = Some(session);
        Ok(())
    }
}

#[async_trait]
impl Database for MySqlDatabase {
    async fn run(&mut self, statement: &str, writes: bool) -> Result<Fetched, ToolFault> {
        if writes {
            self.branch().await?;
            if self.written > WRITTEN_ROWS {
                let message = format!("The episode has written more than {WRITTEN_ROWS} rows");
                return Ok(Fetched::Failed { message });
            }
        }
        let limit = STATEMENT_TIME + GRACE;
        let stopped = match tokio::time::timeout(limit, self.carry_out(statement)).await {
            Ok(Ok(fetched)) => return Ok(fetched),
            Ok(Err(stopped)) => stopped,
            Err(_) => Stopped::Broken("Query execution was interrupted (it takes too long)".to_owned()),
        };
        match stopped {
            Stopped::Refused(message) => Ok(Fetched::Failed { message }),
            Stopped::Broken(message) => {
                self.renew().await?;
                Ok(Fetched::Failed { message })
            }
            Stopped::Fault(fault) => Err(fault),
        }
    }

    async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = session.connection.close().await;
        }
        if let Some(copy) = self.copy.take() {
            self.server.drop_copy(&copy.name, &copy.account).await;
        }
    }
}

impl Drop for MySqlDatabase {
    /// An episode that was broken off leaves no copy behind, as long as somebody can still drop it.
    fn drop(&mut self) {
        drop(self.session.take());
        if let (Some(copy), Ok(runtime)) = (self.copy.take(), tokio::runtime::Handle::try_current()) {
            let server = Arc::clone(&self.server);
            runtime.spawn(async move { server.drop_copy(&copy.name, &copy.account).await });
        }
    }
}
