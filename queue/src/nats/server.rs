//! A connection to NATS, and what is asked of the server as a whole.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::{Access, Blobs, KeyValue, Layout, NatsError, NatsQueue};

/// How to connect.
#[derive(Debug, Clone)]
pub struct Connecting {
    /// What the connection calls itself, for those who look at the server.
    pub name: String,
    /// For how long to try; `None` for ever.
    pub patience: Option<Duration>,
    /// Names and limits.
    pub layout: Layout,
}

/// How the connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionState {
    /// Whether there is a connection.
    pub connected: bool,
    /// How often it was made again.
    pub reconnections: u64,
}

/// A connection to a NATS server or cluster. Cloning gives another handle to the same connection.
#[derive(Debug, Clone)]
pub struct Server {
    layout: Layout,
    connection: watch::Receiver<ConnectionState>,
}

fn unfinished() -> NatsError {
    NatsError::Unreachable("not finished".to_owned())
}

impl Server {
    /// Connects, and checks that the server is 2.9 or later and has JetStream.
    ///
    /// # Errors
    /// If no server can be reached within the patience, it does not let this client in, or cannot do what is needed.
    pub async fn connect(_access: &Access, _connecting: Connecting) -> Result<Self, NatsError> {
        Err(unfinished())
    }

    /// The server's version.
    pub fn version(&self) -> &str {
        ""
    }

    /// Bytes of a message, headers included, that the server takes.
    pub fn max_payload(&self) -> usize {
        1 << 20
    }

    /// Names and limits.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.connection.borrow().connected
    }

    /// Changes with every disconnection and reconnection.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.connection.clone()
    }

    /// Makes streams and buckets that are missing. Those that are there keep their limits.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses, or something of that name is of another kind.
    pub async fn ensure(&self) -> Result<(), NatsError> {
        Err(unfinished())
    }

    /// Whether everything [`Server::ensure`] makes is there.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if it is not.
    pub async fn check(&self) -> Result<(), NatsError> {
        Err(unfinished())
    }

    /// Gives a message back for a holder that is gone, by its lease's token.
    ///
    /// # Errors
    /// If the token is none, or the server cannot be reached.
    pub async fn recall(&self, _token: &str) -> Result<(), NatsError> {
        Err(unfinished())
    }

    /// The publishing end of a lane (`<needs>.<priority>`) for one run. Makes the lane's consumer if it is missing.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn lane_publisher<T>(&self, _lane: &str, _run: &str) -> Result<NatsQueue<T>, NatsError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Err(unfinished())
    }

    /// The claiming end of a lane, for all runs. Does not make the lane's consumer.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if nobody has made the lane.
    pub async fn lane_consumer<T>(&self, _lane: &str) -> Result<NatsQueue<T>, NatsError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Err(unfinished())
    }

    /// The publishing end of a run's results.
    ///
    /// # Errors
    /// If the run's token is none.
    pub async fn results_publisher<T>(&self, _run: &str) -> Result<NatsQueue<T>, NatsError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Err(unfinished())
    }

    /// The claiming end of a run's results. Its consumer is made anew, so that whatever a holder that died had
    /// claimed can be claimed at once.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn results_consumer<T>(&self, _run: &str) -> Result<NatsQueue<T>, NatsError>
    where
        T: Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        Err(unfinished())
    }

    /// Ids of a run's messages in the work stream, queued or leased, over all lanes.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn work_present(&self, _run: &str) -> Result<HashSet<String>, NatsError> {
        Err(unfinished())
    }

    /// Ids of a run's messages in the results stream.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn results_present(&self, _run: &str) -> Result<HashSet<String>, NatsError> {
        Err(unfinished())
    }

    /// Removes a run's work messages; how many.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn purge_work(&self, _run: &str) -> Result<u64, NatsError> {
        Err(unfinished())
    }

    /// Removes everything of a run but its notice and its status: work, results, their consumer, payloads.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn remove_run(&self, _run: &str) -> Result<(), NatsError> {
        Err(unfinished())
    }

    /// Run token → notice of the run.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if nobody has set the server up.
    pub async fn runs(&self) -> Result<KeyValue, NatsError> {
        Err(unfinished())
    }

    /// Worker name → notice of the worker; vanishes when it is not written again.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if nobody has set the server up.
    pub async fn workers(&self) -> Result<KeyValue, NatsError> {
        Err(unfinished())
    }

    /// Run token → claim of the coordinator that owns it; vanishes when it is not written again.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if nobody has set the server up.
    pub async fn owners(&self) -> Result<KeyValue, NatsError> {
        Err(unfinished())
    }

    /// Run token → how the run stands.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if nobody has set the server up.
    pub async fn status(&self) -> Result<KeyValue, NatsError> {
        Err(unfinished())
    }

    /// What runs share, by hash.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if nobody has set the server up.
    pub async fn shared(&self) -> Result<Blobs, NatsError> {
        Err(unfinished())
    }

    /// Sends what waits to be sent, gives held-back messages back and ends the connection.
    pub async fn close(&self) {}
}
