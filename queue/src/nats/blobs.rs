//! A content-addressed store: bytes under their SHA-256.

use sha2::{Digest, Sha256};

use super::NatsError;
use super::link::SharedLink;
use super::objects::Objects;

/// Begins the subjects of all chunks here.
const SPACE: &str = "shared";

/// Bytes of any length, stored once under their SHA-256. Cloning gives another handle to the same store.
#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Objects,
    limit: usize,
}

impl Blobs {
    pub(super) fn new(link: SharedLink) -> Self {
        let limit = link.layout.body_limit;
        let bucket = link.layout.shared();
        Self { objects: Objects::new(link, bucket), limit }
    }

    /// Stores bytes that may be there already; their SHA-256, hexadecimal.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses, or there are more bytes than a message may have.
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

    /// Whether bytes of this hash are described in the store; [`Blobs::get`] verifies them.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses.
    pub async fn holds(&self, hash: &str) -> Result<bool, NatsError> {
        Ok(self.objects.describe(hash).await?.is_some())
    }

    /// The bytes of a hash, verified.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if they were not stored, [`NatsError::Damaged`] if they do not match the hash.
    pub async fn get(&self, hash: &str) -> Result<Vec<u8>, NatsError> {
        let bytes = self.objects.get(hash, self.limit).await?;
        if hex::encode(Sha256::digest(&bytes)) != hash {
            return Err(NatsError::Damaged(format!("content stored under {hash} does not match its hash")));
        }
        Ok(bytes)
    }
}
