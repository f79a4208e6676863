//! Content-addressed store: bytes are stored under their SHA-256.

use sha2::{Digest, Sha256};

use super::NatsError;
use super::link::SharedLink;
use super::objects::Objects;

/// Prefix of the subjects of all chunks in this store.
const SPACE: &str = "shared";

/// Bytes of any length, stored once under their SHA-256. Cloning gives another handle to the same store.
#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Objects,
    limit: usize,
}

impl Blobs {
    pub(super) fn new(link: &SharedLink) -> Self {
        Self { objects: Objects::shared(link), limit: link.layout.body_limit }
    }

    /// Stores bytes, unless they are already stored. Returns their SHA-256 in hexadecimal.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request, or the bytes exceed the size limit of message
    /// bodies.
    pub async fn put(&self, bytes: &[u8]) -> Result<String, NatsError> {
        if bytes.len() > self.limit {
            return Err(NatsError::Refused(format!(
                "too large: {} bytes, limit {} bytes",
                bytes.len(),
                self.limit
            )));
        }
        let hash = hex::encode(Sha256::digest(bytes));
        match self.get(&hash).await {
            Ok(_) => {}
            Err(NatsError::Missing(_) | NatsError::Damaged(_)) => {
                self.objects.put(SPACE, &hash, bytes).await?;
            }
            Err(error) => return Err(error),
        }
        Ok(hash)
    }

    /// Returns whether the store has an entry for this hash. The content is verified by [`Blobs::get`] only.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn holds(&self, hash: &str) -> Result<bool, NatsError> {
        Ok(self.objects.describe(hash).await?.is_some())
    }

    /// Returns the bytes with this hash, verified.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if they are not stored, [`NatsError::Damaged`] if they do not match the hash.
    pub async fn get(&self, hash: &str) -> Result<Vec<u8>, NatsError> {
        let bytes = self.objects.get(hash, self.limit).await?;
        if hex::encode(Sha256::digest(&bytes)) != hash {
            return Err(NatsError::Damaged(format!("content stored under {hash} does not match its hash")));
        }
        Ok(bytes)
    }
}
