//! Small values under keys, with compare-and-swap.
//!
//! The buckets are what NATS' own tools call key-value buckets: streams named `KV_<bucket>` that keep the last
//! message of every key. They are made and written by hand, since the client's own way of making them fails with
//! nats-server 2.9, and read from the stream's leader, since whoever owns a run must not be read from a copy that
//! lags behind.

use async_nats::HeaderMap;
use async_nats::jetstream::{self, kv};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use tokio::sync::watch;
use tokio::time::{Duration, sleep, timeout};

use super::KeyValueError;
use super::layout::Bucket;
use super::link::{EXPECTED, Failure, PATIENCE, SharedLink};
use super::server::ConnectionState;

const OPERATION: &str = "KV-Operation";

/// Values read at once by [`KeyValue::entries`].
const READ_AT_ONCE: usize = 64;

/// A bucket of small values. Cloning gives another handle to the same bucket.
#[derive(Debug, Clone)]
pub struct KeyValue {
    link: SharedLink,
    bucket: String,
}

/// A key that was written or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: String,
    /// Its value; `None` if it was deleted.
    pub value: Option<Bytes>,
    /// The revision of this change.
    pub revision: u64,
}

/// The last thing written under a key.
struct Last {
    revision: u64,
    /// `None` if it was deleted.
    value: Option<Bytes>,
}

impl From<Failure> for KeyValueError {
    fn from(failure: Failure) -> Self {
        Self::Server(failure.into())
    }
}

impl KeyValue {
    pub(super) fn new(link: SharedLink, bucket: Bucket) -> Self {
        let bucket = link.layout.bucket(bucket);
        Self { link, bucket }
    }

    fn stream(&self) -> String {
        format!("KV_{}", self.bucket)
    }

    fn root(&self) -> String {
        format!("$KV.{}.", self.bucket)
    }

    fn subject(&self, key: &str) -> Result<String, KeyValueError> {
        let letters =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'=' | b'/' | b'.');
        let dots = key.starts_with('.') || key.ends_with('.') || key.contains("..");
        if key.is_empty() || key.len() > 400 || dots || !key.bytes().all(letters) {
            return Err(KeyValueError::Key(key.to_owned()));
        }
        Ok(format!("{}{key}", self.root()))
    }

    /// Writes a key that is not there; its revision.
    ///
    /// # Errors
    /// [`KeyValueError::Conflict`] if it is there.
    /// [`NatsError::Unreachable`](super::NatsError::Unreachable) leaves open whether it was written.
    pub async fn create(&self, key: &str, value: &[u8]) -> Result<u64, KeyValueError> {
        match self.swap(key, value, 0).await {
            Err(KeyValueError::Conflict(key)) => match self.last(&key).await? {
                // Deleted, which leaves a mark; or gone by its age in the meantime.
                Some(Last { value: None, revision }) => self.swap(&key, value, revision).await,
                None => self.swap(&key, value, 0).await,
                Some(_) => Err(KeyValueError::Conflict(key)),
            },
            outcome => outcome,
        }
    }

    /// Writes a key whose revision is still the one given; its new revision.
    ///
    /// # Errors
    /// [`KeyValueError::Conflict`] if it was written or deleted since, or its age ran out.
    /// [`NatsError::Unreachable`](super::NatsError::Unreachable) leaves open whether it was written.
    pub async fn update(&self, key: &str, value: &[u8], revision: u64) -> Result<u64, KeyValueError> {
        self.swap(key, value, revision).await
    }

    /// Not repeated after a reconnection: what landed the first time would conflict with itself.
    async fn swap(&self, key: &str, value: &[u8], revision: u64) -> Result<u64, KeyValueError> {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, revision.to_string());
        match self.link.store(&self.subject(key)?, headers, Bytes::copy_from_slice(value), false).await {
            Ok(revision) => Ok(revision),
            Err(Failure::Api(error)) if error.is_conflict() => Err(KeyValueError::Conflict(key.to_owned())),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Writes a key, whatever it holds; its revision.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn put(&self, key: &str, value: &[u8]) -> Result<u64, KeyValueError> {
        let value = Bytes::copy_from_slice(value);
        Ok(self.link.store(&self.subject(key)?, HeaderMap::new(), value, true).await?)
    }

    /// A key's value and revision.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn get(&self, key: &str) -> Result<Option<(Bytes, u64)>, KeyValueError> {
        let last = self.last(key).await?;
        Ok(last.and_then(|Last { revision, value }| value.map(|value| (value, revision))))
    }

    async fn last(&self, key: &str) -> Result<Option<Last>, KeyValueError> {
        let question = serde_json::json!({ "last_by_subj": self.subject(key)? });
        let Some(message) = self.link.message(&self.stream(), &question).await? else { return Ok(None) };
        let deleted = String::from_utf8_lossy(&message.headers)
            .lines()
            .filter_map(|line| line.split_once(':'))
            .any(|(name, value)| name == OPERATION && matches!(value.trim(), "DEL" | "PURGE"));
        let value = (!deleted).then(|| message.data.into());
        Ok(Some(Last { revision: message.sequence, value }))
    }

    /// Deletes a key; nothing happens if it is not there.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn delete(&self, key: &str) -> Result<(), KeyValueError> {
        // A mark stays, so that those who watch are told.
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, "DEL");
        self.link.store(&self.subject(key)?, headers, Bytes::new(), true).await?;
        Ok(())
    }

    /// Every key and its value, in the order of keys.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn entries(&self) -> Result<Vec<(String, Bytes)>, KeyValueError> {
        let root = self.root();
        let mut keys: Vec<String> = self
            .link
            .subjects(&self.stream(), &format!("{root}>"))
            .await?
            .iter()
            .filter_map(|subject| subject.strip_prefix(&root).map(str::to_owned))
            .collect();
        keys.sort_unstable();
        let found: Vec<Option<(String, Bytes)>> = futures::stream::iter(keys)
            .map(|key| async move {
                let last = self.last(&key).await?;
                Ok::<_, KeyValueError>(last.and_then(|last| last.value).map(|value| (key, value)))
            })
            .buffered(READ_AT_ONCE)
            .try_collect()
            .await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// What is there, then what changes. Begins again after a reconnection, so entries may repeat. Values that run
    /// out of age are not told: [`KeyValue::entries`] does not have them.
    pub fn watch(&self) -> impl Stream<Item = Change> + Send + 'static {
        let watching = Watching {
            link: self.link.clone(),
            bucket: self.bucket.clone(),
            connection: self.link.connection.clone(),
            changes: None,
        };
        futures::stream::unfold(watching, |mut watching| async move {
            watching.next().await.map(|change| (change, watching))
        })
    }
}

/// A watch that begins again when it breaks.
struct Watching {
    link: SharedLink,
    bucket: String,
    connection: watch::Receiver<ConnectionState>,
    changes: Option<kv::Watch>,
}

impl Watching {
    /// The next change; `None` once the connection was closed.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let ended = self.link.ended.clone();
            let Some(changes) = &mut self.changes else {
                tokio::select! {
                    () = ended.cancelled() => return None,
                    () = self.begin() => continue,
                }
            };
            tokio::select! {
                () = ended.cancelled() => return None,
                changed = self.connection.changed() => {
                    changed.ok()?;
                    self.changes = None;
                }
                change = changes.next() => match change {
                    Some(Ok(entry)) => {
                        let value = (entry.operation == kv::Operation::Put).then_some(entry.value);
                        return Some(Change { key: entry.key, value, revision: entry.revision });
                    }
                    Some(Err(error)) => {
                        tracing::debug!(%error, bucket = self.bucket, "a watch broke");
                        self.changes = None;
                        sleep(Duration::from_millis(250)).await;
                    }
                    None => self.changes = None,
                },
            }
        }
    }

    async fn begin(&mut self) {
        self.connection.mark_unchanged();
        let context = jetstream::new(self.link.client.clone());
        let began = async {
            let store = context.get_key_value(&self.bucket).await.map_err(|error| error.to_string())?;
            store.watch_with_history(">").await.map_err(|error| error.to_string())
        };
        match timeout(PATIENCE, began).await {
            Ok(Ok(changes)) => self.changes = Some(changes),
            Ok(Err(error)) => {
                tracing::debug!(error, bucket = self.bucket, "a watch cannot begin");
                sleep(Duration::from_millis(500)).await;
            }
            Err(_) => {}
        }
    }
}
