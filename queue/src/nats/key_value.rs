//! Key-value buckets of small values, with compare-and-swap.
//!
//! The buckets are NATS key-value buckets: streams named `KV_<bucket>` that keep the last message of every key. This
//! module creates and writes them with plain requests, because creating them with the client fails with nats-server
//! 2.9. It reads from the stream's leader, because the owner of a run must not be read from a replica that lags behind.

use async_nats::HeaderMap;
use async_nats::jetstream::{self, kv};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use serde::Deserialize;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::NatsError;
use super::layout::Bucket;
use super::link::{EXPECTED, Failure, PATIENCE, SharedLink};
use super::server::ConnectionState;

const OPERATION: &str = "KV-Operation";

/// Interval at which a watched bucket is checked: whether it was recreated, and whether all its values were
/// delivered.
const LOOK: Duration = Duration::from_secs(2);

/// Number of concurrent reads of [`KeyValue::entries`].
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

/// Errors of a key-value bucket.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyValueError {
    /// Another process wrote the key in the meantime, or the key exists already.
    #[error("`{0}` was changed by another process")]
    Conflict(String),
    /// The value exceeds the server's limit for messages.
    #[error("the value of `{key}` is too large: {bytes} bytes, limit of the server {limit} bytes")]
    TooLarge {
        /// The key.
        key: String,
        /// Size of the value in bytes.
        bytes: usize,
        /// The server's `max_payload` in bytes.
        limit: usize,
    },
    /// The key has characters other than letters, digits, `-`, `_`, `=`, `/` and inner dots.
    #[error("invalid key `{0}`")]
    Key(String),
    /// Any other error of the server.
    #[error(transparent)]
    Server(#[from] NatsError),
}

/// The last entry of a key.
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
    /// Maximum number of keys read by [`KeyValue::entries`]. Readers of [`KeyValue::watch`] apply their own limits.
    pub const MOST_ENTRIES: usize = 20_000;
    /// Maximum total size of the values read by [`KeyValue::entries`], in bytes.
    pub const MOST_BYTES: usize = 64 << 20;

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

    /// Copies a value, which must fit into a message.
    fn value(&self, key: &str, value: &[u8]) -> Result<Bytes, KeyValueError> {
        let (bytes, limit) = (value.len(), self.link.client.max_payload());
        if bytes > limit {
            return Err(KeyValueError::TooLarge { key: key.to_owned(), bytes, limit });
        }
        Ok(Bytes::copy_from_slice(value))
    }

    /// Creates a key. Returns its revision.
    ///
    /// # Errors
    /// [`KeyValueError::Conflict`] if it exists, [`KeyValueError::TooLarge`] if the value is too large. After
    /// [`NatsError::Unreachable`] it is unknown whether it was written.
    pub async fn create(&self, key: &str, value: &[u8]) -> Result<u64, KeyValueError> {
        match self.update(key, value, 0).await {
            Err(KeyValueError::Conflict(key)) => match self.last(&key).await? {
                // It was deleted, which leaves a marker, or it expired in the meantime.
                Some(Last { value: None, revision }) => self.update(&key, value, revision).await,
                None => self.update(&key, value, 0).await,
                Some(_) => Err(KeyValueError::Conflict(key)),
            },
            outcome => outcome,
        }
    }

    /// Writes a key if its revision is still `revision`. Returns its new revision.
    ///
    /// # Errors
    /// [`KeyValueError::Conflict`] if it was written or deleted since, or expired; [`KeyValueError::TooLarge`] if
    /// the value is too large. After [`NatsError::Unreachable`] it is unknown whether it was written.
    pub async fn update(&self, key: &str, value: &[u8], revision: u64) -> Result<u64, KeyValueError> {
        // Not repeated after a reconnection: if the first attempt was stored, the second would conflict with it.
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, revision.to_string());
        match self.link.store(&self.subject(key)?, headers, self.value(key, value)?, false).await {
            Ok(revision) => Ok(revision),
            Err(Failure::Api(error)) if error.is_conflict() => Err(KeyValueError::Conflict(key.to_owned())),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Writes a key unconditionally. Returns its revision.
    ///
    /// # Errors
    /// [`KeyValueError::TooLarge`] if the value is too large. Also if the server cannot be reached or rejects the
    /// request.
    pub async fn put(&self, key: &str, value: &[u8]) -> Result<u64, KeyValueError> {
        let (subject, value) = (self.subject(key)?, self.value(key, value)?);
        Ok(self.link.store(&subject, HeaderMap::new(), value, true).await?)
    }

    /// Returns the value and revision of a key.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
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

    /// Deletes a key. Has no effect if the key does not exist.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn delete(&self, key: &str) -> Result<(), KeyValueError> {
        // Writes a delete marker, so that watchers are notified.
        let mut headers = HeaderMap::new();
        headers.insert(OPERATION, "DEL");
        self.link.store(&self.subject(key)?, headers, Bytes::new(), true).await?;
        Ok(())
    }

    /// Returns all keys and values, sorted by key. The content is untrusted: malformed keys, and entries
    /// beyond [`KeyValue::MOST_ENTRIES`] and [`KeyValue::MOST_BYTES`], are skipped with a warning.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn entries(&self) -> Result<Vec<(String, Bytes)>, KeyValueError> {
        let root = self.root();
        let subjects = self.link.subjects(&self.stream(), &format!("{root}>")).await?;
        let keys = subjects.iter().filter_map(|subject| subject.strip_prefix(&root));
        let (mut keys, malformed): (Vec<String>, Vec<String>) =
            keys.map(str::to_owned).partition(|key| self.subject(key).is_ok());
        if let Some(first) = malformed.first() {
            let first: String = first.chars().take(80).collect();
            // Logged with escapes, since it may contain terminal control sequences.
            tracing::warn!(bucket = self.bucket, keys = malformed.len(), ?first, "ignoring malformed keys");
        }
        keys.sort_unstable();
        let most = Self::MOST_ENTRIES;
        if keys.len() > most {
            tracing::warn!(bucket = self.bucket, keys = keys.len(), read = most, "too many keys");
            keys.truncate(most);
        }
        let mut values = std::pin::pin!(
            futures::stream::iter(keys)
                .map(|key| async move {
                    let last = self.last(&key).await?;
                    Ok::<_, KeyValueError>(last.and_then(|last| last.value).map(|value| (key, value)))
                })
                .buffered(READ_AT_ONCE)
        );
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = values.try_next().await? {
            let Some((key, value)) = entry else { continue };
            bytes += value.len();
            if bytes > Self::MOST_BYTES {
                let (bucket, read) = (&self.bucket, Self::MOST_BYTES);
                tracing::warn!(bucket, read, "the values are too large; reading only a part");
                break;
            }
            found.push((key, value));
        }
        Ok(found)
    }

    /// Streams the current entries, then all changes. Restarts after a reconnection, after the bucket was
    /// recreated, and when a value was not delivered, so entries may repeat. Values that expire or are
    /// deleted with their bucket are not reported; they are missing from [`KeyValue::entries`].
    pub fn watch(&self) -> impl Stream<Item = Change> + Send + 'static {
        let watching = Watching {
            link: self.link.clone(),
            bucket: self.bucket.clone(),
            connection: self.link.connection.clone(),
            remade: self.link.remade.subscribe(),
            changes: None,
            seen: 0,
            standing: None,
            look: Instant::now() + LOOK,
        };
        futures::stream::unfold(watching, |mut watching| async move {
            watching.next().await.map(|change| (change, watching))
        })
    }
}

/// A watch that restarts when it fails.
struct Watching {
    link: SharedLink,
    bucket: String,
    connection: watch::Receiver<ConnectionState>,
    remade: watch::Receiver<u64>,
    changes: Option<kv::Watch>,
    /// Last revision received since the watch started.
    seen: u64,
    /// State of the bucket at the last check.
    standing: Option<Standing>,
    /// Time of the next check.
    look: Instant,
}

/// State of a bucket's stream.
#[derive(Debug, Clone, Deserialize)]
struct Standing {
    created: String,
    state: Extent,
}

#[derive(Debug, Clone, Deserialize)]
struct Extent {
    messages: u64,
    first_seq: u64,
    last_seq: u64,
}

impl Standing {
    /// Returns why a watch that received revisions up to `seen` must restart, or `None`. Compares the state
    /// of the bucket at the last check with the current state.
    fn broken(before: Option<&Self>, now: &Self, seen: u64) -> Option<&'static str> {
        let before = before?;
        if before.created != now.created {
            return Some("the bucket was created again");
        }
        // Values up to the last check are still stored, and the newest of them was not delivered.
        let there = now.state.messages > 0 && now.state.first_seq <= before.state.last_seq;
        (there && seen < before.state.last_seq).then_some("a value was not delivered")
    }
}

impl Watching {
    /// Returns the next change, or `None` once the connection is closed.
    async fn next(&mut self) -> Option<Change> {
        loop {
            let ended = self.link.ended.clone();
            let Some(changes) = &mut self.changes else {
                tokio::select! {
                    () = ended.cancelled() => return None,
                    () = self.begin() => continue,
                }
            };
            // The client panics on a subject that was corrupted in transit.
            let next = std::panic::AssertUnwindSafe(changes.next()).catch_unwind();
            tokio::select! {
                () = ended.cancelled() => return None,
                changed = self.connection.changed() => {
                    changed.ok()?;
                    self.changes = None;
                }
                Ok(()) = self.remade.changed() => self.changes = None,
                change = next => match change {
                    Ok(Some(Ok(entry))) => {
                        self.seen = self.seen.max(entry.revision);
                        let value = (entry.operation == kv::Operation::Put).then_some(entry.value);
                        return Some(Change { key: entry.key, value, revision: entry.revision });
                    }
                    Ok(Some(Err(error))) => {
                        tracing::debug!(%error, bucket = self.bucket, "a watch failed");
                        self.changes = None;
                        sleep(Duration::from_millis(250)).await;
                    }
                    Ok(None) => self.changes = None,
                    Err(_) => {
                        let bucket = &self.bucket;
                        tracing::warn!(bucket, "received a corrupt change of a bucket; restarting the watch");
                        self.changes = None;
                    }
                },
                () = sleep_until(self.look) => self.look_over().await,
            }
        }
    }

    /// Checks whether the watch still delivers the content of the bucket. After the bucket was recreated or
    /// the server ran out of space, a watch may never deliver anything again.
    async fn look_over(&mut self) {
        let question = format!("STREAM.INFO.KV_{}", self.bucket);
        match self.link.api::<Standing>(&question, &serde_json::Value::Null).await {
            Ok(now) => {
                if let Some(why) = Standing::broken(self.standing.as_ref(), &now, self.seen) {
                    tracing::warn!(bucket = self.bucket, "{why}; restarting the watch");
                    self.changes = None;
                }
                self.standing = Some(now);
            }
            Err(failure) => {
                let bucket = &self.bucket;
                tracing::debug!(?failure, bucket, "failed to read the state of a watched bucket");
                if matches!(&failure, Failure::Api(error) if error.is_missing()) {
                    self.changes = None;
                    self.standing = None;
                }
            }
        }
        self.look = Instant::now() + LOOK;
    }

    async fn begin(&mut self) {
        self.connection.mark_unchanged();
        self.remade.mark_unchanged();
        (self.seen, self.standing, self.look) = (0, None, Instant::now() + LOOK);
        let context = jetstream::new(self.link.client.clone());
        let began = async {
            let store = context.get_key_value(&self.bucket).await.map_err(|error| error.to_string())?;
            store.watch_with_history(">").await.map_err(|error| error.to_string())
        };
        match timeout(PATIENCE, began).await {
            Ok(Ok(changes)) => self.changes = Some(changes),
            Ok(Err(error)) => {
                // The bucket is created by a process with that permission; this watch retries until then.
                tracing::debug!(error, bucket = self.bucket, "failed to start a watch");
                sleep(Duration::from_millis(500)).await;
            }
            Err(_) => {}
        }
    }
}
