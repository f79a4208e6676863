//! Ownership of databases and accounts on a server, and removal of those without an owner.
//!
//! Names contain a token of the process that created them, and the process holds a named lock on the server
//! with the same token. The lock is released with its connection, so a task checks it regularly and takes it
//! again:
//!
//! ```text
//! every `renew`          lock held?  ── yes ─→ confirmed
//!                             └─ no: connect, take it again, epoch + 1 ─→ confirmed
//! every `sweep`          drops the databases and accounts of tokens whose lock was free for `grace`
//! every `renew`          drops what cancelled episodes left
//! ```
//!
//! A process that loses its lock takes it again long before `grace` has passed. If it was disconnected for
//! longer, its databases and accounts may have been dropped: a new epoch requires a session to check this
//! before it attributes an error to a statement.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lumos_environments::sql::dump::quoted;
use sqlx::mysql::MySqlConnection;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::connect::{SHORT, ServerConnection, bounded, connect, execute, texts};
use super::names::PREFIX;
use super::server::PATIENCE;
use crate::sessions::sql::fault;
use crate::sessions::sql::settings::MySqlSettings;
use crate::tool::ToolFault;

/// Time for which a lock must be free before the databases and accounts of its owner are dropped.
pub(super) const GRACE: Duration = Duration::from_secs(20);

/// A database or account that an episode created and did not drop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Leftover {
    Database(String),
    Account(String),
}

impl Leftover {
    /// Returns the statement that drops it.
    pub(super) fn drop_statement(&self) -> String {
        match self {
            Self::Database(name) => format!("DROP DATABASE IF EXISTS {}", quoted(name)),
            Self::Account(name) => format!("DROP USER IF EXISTS '{}'@'%'", name.replace(['\'', '\\'], "")),
        }
    }

    fn name(&self) -> &str {
        let (Self::Database(name) | Self::Account(name)) = self;
        name
    }
}

/// Databases and accounts to drop. Bounded by the number of cancelled and failed sessions.
pub(super) type Leftovers = Arc<Mutex<Vec<Leftover>>>;

/// Confirmation that the lock was held.
#[derive(Debug, Clone, Copy)]
struct Confirmed {
    /// Incremented each time the lock was lost.
    epoch: u64,
    at: Instant,
}

/// The lock of this process.
pub(super) struct Ownership {
    confirmed: watch::Receiver<Confirmed>,
    fresh: Duration,
    stop: CancellationToken,
    task: tokio::sync::Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Ownership {
    /// Takes the lock of a token and keeps it.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(super) async fn take(
        settings: &MySqlSettings,
        token: &str,
        grace: Duration,
        leftovers: Leftovers,
    ) -> Result<Self, sqlx::Error> {
        let holder = take_lock(settings, token).await?;
        let (sender, confirmed) = watch::channel(Confirmed { epoch: 0, at: Instant::now() });
        let stop = CancellationToken::new();
        let keeper = Keeper {
            settings: settings.clone(),
            token: token.to_owned(),
            grace,
            leftovers,
            free_since: HashMap::new(),
            swept: None,
        };
        let stopped = stop.clone();
        let task = tokio::spawn(keeper.keep(holder, sender, stopped));
        let task = tokio::sync::Mutex::new(Some(AbortOnDropHandle::new(task)));
        Ok(Self { confirmed, fresh: grace / 2, stop, task })
    }

    /// Returns the current epoch, after the lock is confirmed.
    ///
    /// # Errors
    /// If the lock is not confirmed within [`PATIENCE`].
    pub(super) async fn epoch(&self) -> Result<u64, ToolFault> {
        let mut confirmed = self.confirmed.clone();
        let held = async {
            loop {
                let latest = *confirmed.borrow_and_update();
                if latest.at.elapsed() < self.fresh {
                    return Some(latest.epoch);
                }
                confirmed.changed().await.ok()?;
            }
        };
        match tokio::time::timeout(PATIENCE, held).await {
            Ok(Some(epoch)) => Ok(epoch),
            _ => Err(fault("timed out waiting for the database server")),
        }
    }

    /// Drops the leftovers and releases the lock.
    pub(super) async fn give_back(&self) {
        self.stop.cancel();
        if let Some(task) = self.task.lock().await.take() {
            let _ = tokio::time::timeout(SHORT * 2, task).await;
        }
    }
}

/// Connects and takes the lock. Kills an earlier connection of this process that still holds it.
async fn take_lock(settings: &MySqlSettings, token: &str) -> Result<ServerConnection, sqlx::Error> {
    let mut holder = connect(settings, settings.options()).await?;
    let connection = &mut holder.sql;
    bounded(SHORT, async {
        execute(connection, "SET SESSION wait_timeout=31536000, lock_wait_timeout=5".to_owned()).await?;
        for _ in 0..10 {
            let lock = format!("SELECT CAST(GET_LOCK('{PREFIX}{token}', 1) AS CHAR)");
            if texts(connection, lock).await?.iter().any(|taken| taken == "1") {
                return Ok(());
            }
            let other = format!("SELECT CAST(IS_USED_LOCK('{PREFIX}{token}') AS CHAR)");
            for id in texts(connection, other).await?.iter().filter_map(|id| id.parse::<u64>().ok()) {
                let _ = execute(connection, format!("KILL {id}")).await;
            }
        }
        Err(sqlx::Error::Protocol("the lock of this process is held by another connection".to_owned()))
    })
    .await?;
    Ok(holder)
}

/// Keeps the lock and removes leftovers from the server.
struct Keeper {
    settings: MySqlSettings,
    token: String,
    grace: Duration,
    leftovers: Leftovers,
    /// Times since which the locks of other tokens have been free.
    free_since: HashMap<String, Instant>,
    swept: Option<Instant>,
}

impl Keeper {
    async fn keep(
        mut self,
        holder: ServerConnection,
        confirmed: watch::Sender<Confirmed>,
        stop: CancellationToken,
    ) {
        let mut holder = Some(holder);
        let mut epoch = 0;
        let pause = self.grace / 10;
        loop {
            if let Some(connection) = &mut holder {
                let kept = match self.check(&mut connection.sql).await {
                    Ok(()) => {
                        confirmed.send_replace(Confirmed { epoch, at: Instant::now() });
                        self.clean(&mut connection.sql).await
                    }
                    lost => lost,
                };
                if let Err(error) = kept {
                    tracing::warn!(server = self.settings.address(), %error, "lost the lock on the database server; reconnecting");
                    holder = None;
                }
            }
            if holder.is_none() {
                // The locks of other processes may have been lost with it, so earlier observations are
                // discarded.
                self.free_since.clear();
                match take_lock(&self.settings, &self.token).await {
                    Ok(connection) => {
                        epoch += 1;
                        tracing::info!(
                            server = self.settings.address(),
                            "reacquired the lock on the database server"
                        );
                        holder = Some(connection);
                        confirmed.send_replace(Confirmed { epoch, at: Instant::now() });
                    }
                    Err(error) => {
                        tracing::debug!(
                            server = self.settings.address(), %error,
                            "cannot reach the database server"
                        );
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
            }
        }
        if let Some(mut connection) = holder {
            let _ = self.drop_leftovers(&mut connection.sql).await;
            connection.close().await;
        }
    }

    /// Checks that the lock is held.
    async fn check(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let lock = format!("SELECT CAST(IS_USED_LOCK('{PREFIX}{}') = CONNECTION_ID() AS CHAR)", self.token);
        let held = bounded(self.grace / 4, texts(connection, lock)).await?;
        if held.iter().all(|held| held != "1") {
            return Err(sqlx::Error::Protocol("the lock is no longer held".to_owned()));
        }
        Ok(())
    }

    /// Drops leftovers and, periodically, databases and accounts without an owner.
    async fn clean(&mut self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        self.drop_leftovers(connection).await?;
        if self.swept.is_none_or(|swept| swept.elapsed() >= self.grace / 2) {
            bounded(SHORT * 6, self.sweep(connection)).await?;
            self.swept = Some(Instant::now());
        }
        Ok(())
    }

    async fn drop_leftovers(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let waiting = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for leftover in waiting {
            // Leftovers that a statement still uses are dropped next time.
            if dropped(connection, &leftover).await? {
                let mut leftovers = self.leftovers.lock().unwrap_or_else(PoisonError::into_inner);
                leftovers.retain(|other| *other != leftover);
            }
        }
        Ok(())
    }

    /// Drops databases and accounts of processes that have ended: the lock of their token was free for
    /// `grace`.
    async fn sweep(&mut self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let pattern = PREFIX.replace('_', "\\_");
        let databases = texts(
            connection,
            format!(
                "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE '{pattern}%'"
            ),
        )
        .await?;
        let accounts = format!("SELECT user FROM mysql.user WHERE user LIKE '{pattern}%'");
        // Without access to the server's tables, accounts of other processes are not removed.
        let accounts = match texts(connection, accounts).await {
            Err(sqlx::Error::Database(_)) => Vec::new(),
            accounts => accounts?,
        };
        let all = databases.into_iter().map(Leftover::Database);
        let mut by_token: HashMap<String, Vec<Leftover>> = HashMap::new();
        for leftover in all.chain(accounts.into_iter().map(Leftover::Account)) {
            let token =
                leftover.name().get(PREFIX.len()..PREFIX.len() + self.token.len()).unwrap_or_default();
            let is_token =
                token.len() == self.token.len() && token.chars().all(|one| one.is_ascii_hexdigit());
            if is_token && token != self.token {
                by_token.entry(token.to_owned()).or_default().push(leftover);
            }
        }
        self.free_since.retain(|token, _| by_token.contains_key(token));
        for (token, owned) in by_token {
            let free = format!("SELECT CAST(IS_FREE_LOCK('{PREFIX}{token}') AS CHAR)");
            if texts(connection, free).await?.iter().any(|free| free != "1") {
                self.free_since.remove(&token);
                continue;
            }
            if self.free_since.entry(token).or_insert_with(Instant::now).elapsed() < self.grace {
                continue;
            }
            tracing::info!(
                things = owned.len(),
                "removing accounts and databases that an ended process left on the database server"
            );
            for leftover in owned {
                dropped(connection, &leftover).await?;
            }
        }
        Ok(())
    }
}

/// Drops a leftover. Returns whether the server dropped it.
async fn dropped(connection: &mut MySqlConnection, leftover: &Leftover) -> Result<bool, sqlx::Error> {
    match bounded(SHORT, execute(connection, leftover.drop_statement())).await {
        Err(sqlx::Error::Database(error)) => {
            tracing::debug!(?leftover, %error, "failed to drop an account or database; retrying later");
            Ok(false)
        }
        done => done.map(|()| true),
    }
}
