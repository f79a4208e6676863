//! Bytes above the message limit, in the format of the NATS object store: chunks under `$O.<bucket>.C.<number>`, and
//! one description under `$O.<bucket>.M.<name>`.
//!
//! Objects are read with plain requests instead of a consumer: no consumer can be left behind, no permission to create
//! consumers is needed, and a reconnection repeats one request only.

use std::time::Duration;

use async_nats::HeaderMap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::NatsError;
use super::link::{Failure, SharedLink};

const CHUNK: usize = 128 * 1024;
/// Minimum size of a chunk in bytes, except the last one of an object.
const SMALLEST_CHUNK: usize = 1024;
/// Time limit for reading an object.
const READ_LIMIT: Duration = Duration::from_secs(300);
const ATTEMPTS: u32 = 3;

/// A bucket of objects.
#[derive(Debug, Clone)]
pub(super) struct Objects {
    link: SharedLink,
    bucket: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Description {
    name: String,
    bucket: String,
    /// The last part of the chunks' subject.
    nuid: String,
    size: usize,
    chunks: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
}

impl Objects {
    /// Bodies of messages.
    pub(super) fn payloads(link: &SharedLink) -> Self {
        Self { link: link.clone(), bucket: link.layout.name("payloads") }
    }

    /// Content of [`Blobs`](super::Blobs).
    pub(super) fn shared(link: &SharedLink) -> Self {
        Self { link: link.clone(), bucket: link.layout.name("shared") }
    }

    fn stream(&self) -> String {
        format!("OBJ_{}", self.bucket)
    }

    fn chunks(&self, nuid: &str) -> String {
        format!("$O.{}.C.{nuid}", self.bucket)
    }

    fn description(&self, name: &str) -> String {
        format!("$O.{}.M.{}", self.bucket, URL_SAFE.encode(name))
    }

    /// Stores an object; replaces an existing one with this name. `space` is the prefix of the chunks'
    /// subjects, so that the chunks of a run can be removed even if their description is lost.
    pub(super) async fn put(&self, space: &str, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let old = self.describe(name).await?;
        let mut attempt = 1;
        let nuid = loop {
            let nuid = format!("{space}.{}", self.link.unique());
            match self.put_chunks(&nuid, bytes).await {
                Ok(()) => break nuid,
                // Without a response, a chunk may or may not be stored. Chunks have no identity, so all are
                // stored again.
                Err(Failure::Unreachable(why)) if attempt < ATTEMPTS => {
                    tracing::debug!(why, attempt, "failed to store an object; retrying");
                    attempt += 1;
                }
                Err(failure) => return Err(failure),
            }
        };
        let description = Description {
            name: name.to_owned(),
            bucket: self.bucket.clone(),
            nuid,
            size: bytes.len(),
            chunks: bytes.len().div_ceil(self.chunk()),
            digest: Some(digest(bytes)),
            deleted: false,
        };
        let text = serde_json::to_vec(&description).map_err(|error| Failure::Refused(error.to_string()))?;
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "sub");
        self.link.store(&self.description(name), headers, text.into(), true).await?;
        if let Some(old) = old {
            self.link.purge(&self.stream(), &self.chunks(&old.nuid)).await?;
        }
        Ok(())
    }

    fn chunk(&self) -> usize {
        CHUNK.min(self.link.client.max_payload().saturating_sub(1024)).max(SMALLEST_CHUNK)
    }

    /// Stores chunks sequentially: their order in the stream is their order in the object.
    async fn put_chunks(&self, nuid: &str, bytes: &[u8]) -> Result<(), Failure> {
        let subject = self.chunks(nuid);
        for chunk in bytes.chunks(self.chunk()) {
            self.link.store(&subject, HeaderMap::new(), Bytes::copy_from_slice(chunk), false).await?;
        }
        Ok(())
    }

    pub(super) async fn describe(&self, name: &str) -> Result<Option<Description>, Failure> {
        let question = json!({ "last_by_subj": self.description(name) });
        let Some(stored) = self.link.message(&self.stream(), &question).await? else { return Ok(None) };
        // A description that cannot be decoded names no chunks, so it is treated as missing.
        let description = serde_json::from_slice::<Description>(&stored.data).ok();
        Ok(description.filter(|description| !description.deleted))
    }

    /// Returns an object's bytes, verified. Fails with [`NatsError::Missing`] if it does not exist, and with
    /// [`NatsError::Damaged`] if it has more than `limit` bytes, tiny chunks, or does not match its description.
    pub(super) async fn get(&self, name: &str, limit: usize) -> Result<Vec<u8>, NatsError> {
        let late = |_| {
            NatsError::Unreachable(format!("failed to read object `{name}` in {} s", READ_LIMIT.as_secs()))
        };
        timeout(READ_LIMIT, self.read(name, limit)).await.map_err(late)?
    }

    async fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>, NatsError> {
        let missing = || NatsError::Missing(format!("object `{name}` not found in the store"));
        let damaged = |why: &str| NatsError::Damaged(format!("object `{name}` {why}"));
        let description = self.describe(name).await?.ok_or_else(missing)?;
        if description.size > limit {
            return Err(damaged("is larger than allowed"));
        }
        // The description is untrusted: it must name chunks of this bucket only.
        if description.nuid.split('.').any(|part| !super::layout::is_token(part)) {
            return Err(damaged("has no valid chunk subject"));
        }
        let subject = self.chunks(&description.nuid);
        let mut bytes = Vec::with_capacity(description.size.min(1 << 20));
        let mut next = 1;
        while bytes.len() < description.size {
            let question = json!({ "seq": next, "next_by_subj": subject });
            let stored = self.link.message(&self.stream(), &question).await?.ok_or_else(missing)?;
            let chunk = stored.data;
            let left = description.size - bytes.len();
            if chunk.len() < left.min(SMALLEST_CHUNK) || chunk.len() > left {
                return Err(damaged("does not have its recorded length, or has tiny chunks"));
            }
            bytes.extend_from_slice(&chunk);
            next = stored.sequence + 1;
        }
        if description.digest.as_ref().is_none_or(|claimed| *claimed != digest(&bytes)) {
            return Err(damaged("does not match its recorded hash"));
        }
        Ok(bytes)
    }

    /// Removes an object, if it exists.
    pub(super) async fn remove(&self, name: &str) -> Result<(), Failure> {
        if let Some(description) = self.describe(name).await? {
            self.link.purge(&self.stream(), &self.chunks(&description.nuid)).await?;
        }
        self.link.purge(&self.stream(), &self.description(name)).await?;
        Ok(())
    }

    /// Removes all objects whose names begin with `<space>/`, and all chunks of that space.
    pub(super) async fn remove_space(&self, space: &str) -> Result<(), Failure> {
        let root = format!("$O.{}.M.", self.bucket);
        for subject in self.link.subjects(&self.stream(), &format!("{root}>")).await? {
            let name = subject.strip_prefix(&root).and_then(|encoded| URL_SAFE.decode(encoded).ok());
            if name.is_some_and(|name| name.starts_with(format!("{space}/").as_bytes())) {
                self.link.purge(&self.stream(), &subject).await?;
            }
        }
        self.link.purge(&self.stream(), &format!("$O.{}.C.{space}.>", self.bucket)).await?;
        Ok(())
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("SHA-256={}", URL_SAFE.encode(Sha256::digest(bytes)))
}
