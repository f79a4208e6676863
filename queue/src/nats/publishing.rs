//! The publishing end of a queue.

use async_nats::HeaderMap;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use tokio_util::task::TaskTracker;

use super::codec;
use super::layout::{LONGEST_ID, is_message_id};
use super::link::{EXPECTED, Failure, SharedLink};
use super::objects::Objects;
use crate::QueueError;

/// Maximum number of messages in flight.
const IN_FLIGHT: usize = 256;

/// Upper bound of the size of a message without its body: subject, headers and protocol overhead, in bytes.
const HEADROOM: usize = 4096 + LONGEST_ID;

/// Publishes messages under a subject that ends in their id.
#[derive(Debug)]
pub(super) struct Publisher {
    link: SharedLink,
    root: String,
    /// Prefix of the names of its objects.
    run: String,
    objects: Objects,
}

impl Publisher {
    pub(super) fn new(link: SharedLink, root: String, run: String) -> Self {
        let objects = Objects::payloads(&link);
        Self { link, root, run, objects }
    }

    /// Returns the tracker of its tasks.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.link.tasks
    }

    /// Publishes a message. Has no effect if the message is already stored.
    ///
    /// The server's duplicate window would forget ids. Therefore every message has its own subject, which
    /// must be empty when the message is stored.
    pub(super) async fn publish<T: Serialize + Send>(&self, id: &str, body: T) -> Result<(), QueueError> {
        if !is_message_id(id) {
            return Err(QueueError::Refused(format!(
                "invalid message id `{id}`: expected up to {LONGEST_ID} letters, digits, `_` and `-`"
            )));
        }
        let (bytes, encoding) = codec::encoded(id, &body, self.link.layout.body_limit)?;
        drop(body);
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, "0");
        headers.insert(codec::PROTOCOL, self.link.layout.protocol.to_string());
        if let Some(encoding) = encoding {
            headers.insert(codec::ENCODING, encoding);
        }
        headers.insert(codec::CHECKSUM, codec::checksum(id, encoding, &bytes));
        let subject = format!("{}.{id}", self.root);
        if bytes.len() + HEADROOM <= self.link.client.max_payload() {
            self.store(&subject, headers, bytes).await?;
            return Ok(());
        }
        // Each attempt uses its own name: acknowledging a message removes its body, and must not remove the
        // body of the same message published again.
        let object = format!("{}/{id}/{}", self.run, self.link.unique());
        self.objects.put(&self.run, &object, &bytes).await?;
        headers.insert(codec::OBJECT, object.as_str());
        if !self.store(&subject, headers, Vec::new()).await? {
            self.objects.remove(&object).await?;
        }
        Ok(())
    }

    /// Stores a message. Returns whether it is new.
    async fn store(&self, subject: &str, headers: HeaderMap, bytes: Vec<u8>) -> Result<bool, QueueError> {
        match self.link.store(subject, headers, bytes.into(), true).await {
            Ok(_) => Ok(true),
            Err(Failure::Api(error)) if error.is_conflict() => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Publishes messages with up to `IN_FLIGHT` of them in flight. Returns the first failure in their order.
    pub(super) async fn publish_all<T: Serialize + Send>(
        &self,
        messages: Vec<(String, T)>,
    ) -> Result<(), QueueError> {
        futures::stream::iter(messages)
            .map(|(id, body)| async move { self.publish(&id, body).await })
            .buffered(IN_FLIGHT)
            .try_collect()
            .await
    }
}
