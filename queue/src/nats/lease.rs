//! Leases: acknowledgements, extensions and returns, sent to the reply subject of a delivery.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::complaints::Kind;
use super::link::SharedLink;
use super::objects::Objects;
use crate::{LeaseControl, QueueError};

const ACKNOWLEDGE: Bytes = Bytes::from_static(b"+ACK");
const EXTEND: Bytes = Bytes::from_static(b"+WPI");
const TERMINATE: Bytes = Bytes::from_static(b"+TERM");
pub(super) const GIVE_BACK: Bytes = Bytes::from_static(b"-NAK");

/// Answers to deliveries that may wait to be sent. Beyond it, an acknowledgement is sent by whoever gives it, and anything
/// else is left to the lease's term.
pub(super) const ANSWERS: usize = 16_384;
/// Answers sent in a row.
const TOGETHER: usize = 256;

/// An answer that nobody waits for.
#[derive(Debug)]
pub(super) struct Release {
    subject: String,
    payload: Bytes,
    /// When it no longer matters, and might hit the message's next holder.
    until: Instant,
}

/// What goes to the task that sends them.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// An answer.
    Release(Release),
    /// The acknowledgement of a delivery, by its token. It matters however late it comes.
    Acknowledge(String),
    /// Rung when everything before it was sent.
    Sent(oneshot::Sender<()>),
}

/// Sends the answers that nobody waits for, since a lease may be dropped where nothing can be awaited. Ends when
/// the connection's last handle is gone.
pub(super) async fn send_answers(client: Client, mut outgoing: mpsc::Receiver<Outgoing>) {
    let mut waiting = Vec::with_capacity(TOGETHER);
    while outgoing.recv_many(&mut waiting, TOGETHER).await > 0 {
        // Whoever has acknowledged asks for more. Let it come to that: both then leave in one write.
        tokio::task::yield_now().await;
        for next in waiting.drain(..) {
            match next {
                Outgoing::Release(release) if Instant::now() < release.until => {
                    let _ = client.publish(release.subject, release.payload).await;
                }
                Outgoing::Release(_) => {}
                Outgoing::Acknowledge(token) => {
                    let _ = client.publish(token, ACKNOWLEDGE).await;
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

/// The right to one delivery, and the duty to answer it.
pub(super) struct NatsLease {
    link: SharedLink,
    id: String,
    token: String,
    term: Duration,
    until: Mutex<Instant>,
    /// Where the body is, if it is not in the message.
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
        // The message may have another holder by now, and the server takes an answer for his.
        if Instant::now() >= until {
            return;
        }
        let release = Release { subject: self.token.clone(), payload, until };
        if self.link.answers.try_send(Outgoing::Release(release)).is_err() {
            self.link.complaints.warn(
                Kind::Release,
                &self.id,
                "failed to return a message; it is redelivered when its lease expires",
            );
        }
    }

    /// Takes the message out; nobody waits for it.
    pub(super) fn terminate_later(&self) {
        self.answer_later(TERMINATE);
    }

    /// Gives the message back for a delivery that is not at once.
    pub(super) fn give_back_after(&self, delay: Duration) {
        self.answer_later(Bytes::from(format!("-NAK {{\"delay\": {}}}", delay.as_nanos())));
    }

    /// Removes the body of a message that is gone. One that stays behind costs room and nothing else.
    async fn remove_object(&self) {
        if let Some(object) = &self.object {
            let objects = Objects::new(self.link.clone(), self.link.layout.payloads());
            if let Err(failure) = objects.remove(object).await {
                tracing::debug!(?failure, object, "failed to remove the body of a message from the store");
            }
        }
    }
}

#[async_trait]
impl LeaseControl for NatsLease {
    /// Sent even when the lease ran out: what the message asked for was done, and the server takes it from anyone
    /// who held the message.
    async fn acknowledge(&self) -> Result<(), QueueError> {
        if self.link.answers.try_send(Outgoing::Acknowledge(self.token.clone())).is_err() {
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

    async fn bury(&self) -> Result<(), QueueError> {
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
}

/// How often a message was delivered, this time included, by its lease's token.
pub(super) fn deliveries(token: &str) -> u32 {
    let parts: Vec<&str> = token.split('.').collect();
    let place = if parts.len() == 9 { 4 } else { 6 };
    parts.get(place).and_then(|number| number.parse().ok()).unwrap_or(1)
}
