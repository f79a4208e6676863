//! Leases: acknowledgements, extensions and returns, sent to the reply subject of a delivery.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::codec::Kind;
use super::link::SharedLink;
use super::objects::Objects;
use crate::{LeaseControl, QueueError};

const ACKNOWLEDGE: Bytes = Bytes::from_static(b"+ACK");
const EXTEND: Bytes = Bytes::from_static(b"+WPI");
const TERMINATE: Bytes = Bytes::from_static(b"+TERM");
pub(super) const GIVE_BACK: Bytes = Bytes::from_static(b"-NAK");

/// Maximum number of replies to deliveries that are queued for sending. When the queue is full,
/// acknowledgements are sent by the caller, and other replies are dropped: their messages are redelivered
/// when the lease expires.
pub(super) const ANSWERS: usize = 16_384;
/// Maximum number of replies sent in a row.
const TOGETHER: usize = 256;

/// Input of the task that sends replies.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// A reply to a delivery.
    Reply {
        /// Token of the delivery.
        token: String,
        payload: Bytes,
        /// Expiry of the lease: later, the reply could affect the message's next holder. `None` for an
        /// acknowledgement, which is sent even then.
        until: Option<Instant>,
    },
    /// Notified when everything before it was sent.
    Sent(oneshot::Sender<()>),
}

/// Sends replies in the background, since a lease may be dropped where nothing can be awaited. Ends when the
/// last handle of the connection is dropped.
pub(super) async fn send_answers(client: Client, mut outgoing: mpsc::Receiver<Outgoing>) {
    let mut waiting = Vec::with_capacity(TOGETHER);
    while outgoing.recv_many(&mut waiting, TOGETHER).await > 0 {
        // A holder usually requests more messages right after an acknowledgement. Yielding sends both in one
        // write.
        tokio::task::yield_now().await;
        for next in waiting.drain(..) {
            match next {
                Outgoing::Reply { until: Some(until), .. } if Instant::now() >= until => {}
                Outgoing::Reply { token, payload, .. } => {
                    let _ = client.publish(token, payload).await;
                }
                Outgoing::Sent(told) => {
                    let _ = client.flush().await;
                    let _ = told.send(());
                }
            }
        }
    }
    let _ = client.flush().await;
}

/// The lease of one delivery.
pub(super) struct NatsLease {
    link: SharedLink,
    id: String,
    token: String,
    term: Duration,
    until: Mutex<Instant>,
    /// Name of the object with the body, if the body is not in the message.
    object: Option<String>,
}

impl NatsLease {
    pub(super) fn new(
        link: SharedLink,
        id: String,
        token: String,
        term: Duration,
        object: Option<String>,
    ) -> Self {
        let until = Mutex::new(Instant::now() + term);
        Self { link, id, token, term, until, object }
    }

    fn until(&self) -> Instant {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer_later(&self, payload: Bytes) {
        let until = self.until();
        // The message may have another holder by now, and the server would apply the reply to its delivery.
        if Instant::now() >= until {
            return;
        }
        if !self.queued(payload, Some(until)) {
            self.link.complaints.warn(
                Kind::Release,
                &self.id,
                "failed to return a message; it is redelivered when its lease expires",
            );
        }
    }

    /// Queues a reply for sending. Returns false if the queue is full.
    fn queued(&self, payload: Bytes, until: Option<Instant>) -> bool {
        let reply = Outgoing::Reply { token: self.token.clone(), payload, until };
        self.link.answers.try_send(reply).is_ok()
    }

    /// Terminates the message in the background.
    pub(super) fn terminate_later(&self) {
        self.answer_later(TERMINATE);
    }

    /// Extends the lease in the background, from now.
    pub(super) fn extend_later(&self) {
        let now = Instant::now();
        let until = self.until();
        if now < until && self.queued(EXTEND, Some(until)) {
            *self.until.lock().unwrap_or_else(PoisonError::into_inner) = now + self.term;
        }
    }

    /// Removes the stored body of a settled message. A body that remains only takes up space.
    async fn remove_object(&self) {
        if let Some(object) = &self.object
            && let Err(failure) = Objects::payloads(&self.link).remove(object).await
        {
            tracing::debug!(?failure, object, "failed to remove the body of a message from the store");
        }
    }
}

#[async_trait]
impl LeaseControl for NatsLease {
    /// Sent even if the lease expired: the work was done, and the server accepts an acknowledgement from any
    /// holder of the message.
    async fn acknowledge(&self) -> Result<(), QueueError> {
        if !self.queued(ACKNOWLEDGE, None) {
            self.link.tell(&self.token, ACKNOWLEDGE).await?;
        }
        self.remove_object().await;
        Ok(())
    }

    async fn extend(&self) -> Result<(), QueueError> {
        let now = Instant::now();
        if now >= self.until() {
            return Err(QueueError::LeaseLost(self.id.clone()));
        }
        if !self.link.is_connected() {
            return Err(QueueError::Unreachable("not connected to the NATS server".to_owned()));
        }
        self.link.tell(&self.token, EXTEND).await?;
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = now + self.term;
        Ok(())
    }

    fn release(&self) {
        self.answer_later(GIVE_BACK);
    }

    fn release_after(&self, delay: Duration) {
        self.answer_later(Bytes::from(format!("-NAK {{\"delay\": {}}}", delay.as_nanos())));
    }

    async fn terminate(&self) -> Result<(), QueueError> {
        if Instant::now() >= self.until() {
            return Err(QueueError::LeaseLost(self.id.clone()));
        }
        self.link.tell(&self.token, TERMINATE).await?;
        self.remove_object().await;
        Ok(())
    }

    fn token(&self) -> Option<&str> {
        Some(&self.token)
    }

    fn duration(&self) -> Option<Duration> {
        Some(self.term)
    }
}
