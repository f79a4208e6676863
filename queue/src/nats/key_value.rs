//! Small values under keys, with compare-and-swap.

use bytes::Bytes;
use futures::Stream;

use super::{KeyValueError, NatsError};

/// A bucket of small values. Cloning gives another handle to the same bucket.
#[derive(Debug, Clone)]
pub struct KeyValue {
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

fn unfinished() -> KeyValueError {
    NatsError::Unreachable("not finished".to_owned()).into()
}

impl KeyValue {
    /// Writes a key that is not there; its revision.
    ///
    /// # Errors
    /// [`KeyValueError::Conflict`] if it is there.
    pub async fn create(&self, _key: &str, _value: &[u8]) -> Result<u64, KeyValueError> {
        Err(unfinished())
    }

    /// Writes a key whose revision is still the one given; its new revision.
    ///
    /// # Errors
    /// [`KeyValueError::Conflict`] if it was written or deleted since.
    pub async fn update(&self, _key: &str, _value: &[u8], _revision: u64) -> Result<u64, KeyValueError> {
        Err(unfinished())
    }

    /// Writes a key, whatever it holds; its revision.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn put(&self, _key: &str, _value: &[u8]) -> Result<u64, KeyValueError> {
        Err(unfinished())
    }

    /// A key's value and revision.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn get(&self, _key: &str) -> Result<Option<(Bytes, u64)>, KeyValueError> {
        Err(unfinished())
    }

    /// Deletes a key; nothing happens if it is not there.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn delete(&self, _key: &str) -> Result<(), KeyValueError> {
        Err(unfinished())
    }

    /// Every key and its value.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn entries(&self) -> Result<Vec<(String, Bytes)>, KeyValueError> {
        tracing::trace!(bucket = self.bucket);
        Err(unfinished())
    }

    /// What is there, then what changes. Begins again after a reconnection, so entries may repeat. Values that ran
    /// out of age are not told.
    pub fn watch(&self) -> impl Stream<Item = Change> + Send + 'static {
        futures::stream::pending()
    }
}
