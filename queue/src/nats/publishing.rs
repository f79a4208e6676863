//! The publishing end of a queue.

use async_nats::HeaderMap;
use futures::StreamExt;
use serde::Serialize;
use tokio_util::task::TaskTracker;

use super::codec::{self, Encoded, Unsendable};
use super::layout::{LONGEST_ID, is_message_id};
use super::link::{EXPECTED, Failure, SharedLink};
use super::objects::Objects;
use crate::QueueError;

/// Messages on their way at once.
const IN_FLIGHT: usize = 256;

/// What a message has beside its body: subject, headers, the protocol's own words. Generous.
const HEADROOM: usize = 4096 + LONGEST_ID;

/// Publishes messages under a subject that ends in their id.
#[derive(Debug)]
pub(super) struct Publisher {
    link: SharedLink,
    root: String,
    /// What the names of its objects begin with.
    run: String,
    objects: Objects,
}

impl Publisher {
    pub(super) fn new(link: SharedLink, root: String, run: String) -> Self {
        let objects = Objects::new(link.clone(), link.layout.payloads());
        Self { link, root, run, objects }
    }

    /// Where its tasks belong.
    pub(super) fn tasks(&self) -> &TaskTracker {
        &self.link.tasks
    }

    /// Publishes a message; nothing happens if it is there already.
    ///
    /// A window in which the server remembers ids would forget them. Instead, a subject of its own that must be
    /// empty says for ever whether the message is there.
    pub(super) async fn publish<T: Serialize + Send>(&self, id: &str, body: T) -> Result<(), QueueError> {
        if !is_message_id(id) {
            return Err(QueueError::Refused(format!(
                "invalid message id `{id}`: expected up to {LONGEST_ID} letters, digits, `_` and `-`"
            )));
        }
        let limit = self.link.layout.body_limit;
        let Encoded { bytes, compressed } =
            codec::encoded(&body, limit).map_err(|unsendable| match unsendable {
                Unsendable::TooLarge(bytes) => QueueError::TooLarge { id: id.to_owned(), bytes, limit },
                Unsendable::Failed(why) => {
                    QueueError::Refused(format!("failed to encode message `{id}`: {why}"))
                }
            })?;
        drop(body);
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, "0");
        headers.insert(codec::PROTOCOL, self.link.layout.protocol.to_string());
        let encoding = compressed.then_some("zstd");
        if let Some(encoding) = encoding {
            headers.insert(codec::ENCODING, encoding);
        }
        headers.insert(codec::CHECKSUM, codec::checksum(id, encoding, &bytes));
        let subject = format!("{}.{id}", self.root);
        if bytes.len() + HEADROOM <= self.link.client.max_payload() {
            self.store(&subject, headers, bytes).await?;
            return Ok(());
        }
        // A name of its own for every attempt: who acknowledges a message removes its body, and must not remove that
        // of the same message published anew.
        let object = format!("{}/{id}/{}", self.run, self.link.unique());
        self.objects.put(&self.run, &object, &bytes).await?;
        headers.insert(codec::OBJECT, object.as_str());
        if !self.store(&subject, headers, Vec::new()).await? {
            self.objects.remove(&object).await?;
        }
        Ok(())
    }

    /// Whether the message is new.
    async fn store(&self, subject: &str, headers: HeaderMap, bytes: Vec<u8>) -> Result<bool, QueueError> {
        match self.link.store(subject, headers, bytes.into(), true).await {
            Ok(_) => Ok(true),
            Err(Failure::Api(error)) if error.is_conflict() => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Publishes many, some hundred on their way at once; the first failure in their order.
    pub(super) async fn publish_all<T: Serialize + Send>(
        &self,
        messages: Vec<(String, T)>,
    ) -> Result<(), QueueError> {
        let mut published = futures::stream::iter(messages)
            .map(|(id, body)| async move { self.publish(&id, body).await })
            .buffered(IN_FLIGHT);
        while let Some(outcome) = published.next().await {
            outcome?;
        }
        Ok(())
    }
}
