//! Small values under keys, with compare-and-swap.
//!
//! The buckets are NATS key-value buckets: streams named `KV_<bucket>` that keep the last message of every key. This
//! module creates and writes them with plain requests, because creating them with the client fails with nats-server
//! 2.9. It reads from the stream's leader, because the owner of a run must not be read from a replica that lags behind.

use async_nats::HeaderMap;
use async_nats::jetstream::{self, kv};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt, TryStreamExt};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, sleep_until, timeout};

use super::KeyValueError;
use super::layout::Bucket;
use super::link::{EXPECTED, Failure, PATIENCE, SharedLink};
use super::server::ConnectionState;

const OPERATION: &str = "KV-Operation";

/// How often a watched bucket is looked at: whether it is still the same one, and whether all that is in it came.
const LOOK: Duration = Duration::from_secs(2);

/// Values read at once by [`KeyValue::entries`].
const READ_AT_ONCE: usize = 64;
/// Keys that [`KeyValue::entries`] reads at most.
const MOST_ENTRIES: usize = 20_000;
/// Bytes of values that [`KeyValue::entries`] reads at most.
const MOST_BYTES: usize = 64 << 20;

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

    /// Every key and its value, in the order of keys. Any party of the queue may have written them: what cannot be a key,
    /// and what lies beyond `MOST_ENTRIES` and `MOST_BYTES`, is left out with a warning.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn entries(&self) -> Result<Vec<(String, Bytes)>, KeyValueError> {
        let root = self.root();
        let subjects = self.link.subjects(&self.stream(), &format!("{root}>")).await?;
        let keys = subjects.iter().filter_map(|subject| subject.strip_prefix(&root));
        let (mut keys, malformed): (Vec<String>, Vec<String>) =
            keys.map(str::to_owned).partition(|key| self.subject(key).is_ok());
        if let Some(first) = malformed.first() {
            let first: String = first.chars().take(80).collect();
            // As a literal: it may hold what a terminal obeys.
            tracing::warn!(bucket = self.bucket, keys = malformed.len(), ?first, "ignoring malformed keys");
        }
        keys.sort_unstable();
        if keys.len() > MOST_ENTRIES {
            tracing::warn!(bucket = self.bucket, keys = keys.len(), read = MOST_ENTRIES, "too many keys");
            keys.truncate(MOST_ENTRIES);
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
            if bytes > MOST_BYTES {
                tracing::warn!(
                    bucket = self.bucket,
                    read = MOST_BYTES,
                    "the values are too large; reading only a part"
                );
                break;
            }
            found.push((key, value));
        }
        Ok(found)
    }

    /// What is there, then what changes. Begins again after a reconnection, after the bucket was deleted and made anew,
    /// and when something that is in it does not come; so entries may repeat. Values that run out of age or went with
    /// their bucket are not reported: [`KeyValue::entries`] does not have them.
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

/// A watch that begins again when it breaks.
struct Watching {
    link: SharedLink,
    bucket: String,
    connection: watch::Receiver<ConnectionState>,
    remade: watch::Receiver<u64>,
    changes: Option<kv::Watch>,
    /// The last revision that came since the watch began.
    seen: u64,
    /// How the bucket stood when it was looked at last.
    standing: Option<Standing>,
    /// When it is looked at next.
    look: Instant,
}

/// A bucket's stream, and what it holds.
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
    /// Why a watch that has seen so much has to begin again, if it has to; judged by how the bucket stood a moment ago
    /// and how it stands now.
    fn broken(before: Option<&Self>, now: &Self, seen: u64) -> Option<&'static str> {
        let before = before?;
        if before.created != now.created {
            return Some("the bucket was created again");
        }
        // What was the last one a moment ago is still there and did not come.
        let there = now.state.messages > 0 && now.state.first_seq <= before.state.last_seq;
        (there && seen < before.state.last_seq).then_some("a value was not delivered")
    }
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
            // The client panics at a subject that was damaged on its way.
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
                        tracing::warn!(
                            bucket = self.bucket,
                            "received a corrupt change of a bucket; restarting the watch"
                        );
                        self.changes = None;
                    }
                },
                () = sleep_until(self.look) => self.look_over().await,
            }
        }
    }

    /// Looks whether the watch still shows what the bucket holds. One that was deleted and made anew, or a server that
    /// ran out of room, may leave it silent for ever.
    async fn look_over(&mut self) {
        let question = serde_json::Value::Null;
        let stream = format!("KV_{}", self.bucket);
        match self.link.api::<Standing>(&format!("STREAM.INFO.{stream}"), &question).await {
            Ok(now) => {
                if let Some(why) = Standing::broken(self.standing.as_ref(), &now, self.seen) {
                    tracing::warn!(bucket = self.bucket, "{why}; restarting the watch");
                    self.changes = None;
                }
                self.standing = Some(now);
            }
            Err(failure) => {
                tracing::debug!(
                    ?failure,
                    bucket = self.bucket,
                    "failed to read the state of a watched bucket"
                );
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
                // Whoever may create the bucket does; this one goes on by itself then.
                tracing::debug!(error, bucket = self.bucket, "failed to start a watch");
                sleep(Duration::from_millis(500)).await;
            }
            Err(_) => {}
        }
    }
}
