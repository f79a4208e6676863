//! The connection that all parts of this module share: requests that survive a reconnection, the JetStream API, and
//! their errors.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, HeaderName, Message, Request, RequestErrorKind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Layout;
use super::codec::Complaints;
use super::lease::Outgoing;
use super::server::ConnectionState;
use crate::QueueError;

/// Total length in bytes of the subjects that [`Link::subjects`] lists, at least; a page more may be listed.
const MOST_LISTED: usize = 256 << 20;
/// Time limit for a response, including reconnections.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Header that makes JetStream store a message only if the last message of its subject has this sequence
/// number (0 if the subject is empty).
pub(super) const EXPECTED: HeaderName = async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE;

/// Errors of a NATS server.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The URL or the credentials are invalid.
    #[error("{0}")]
    Address(String),
    /// No server responded within the time limit.
    #[error("{0}")]
    Unreachable(String),
    /// The server rejected the credentials of this client.
    #[error("{0}")]
    Denied(String),
    /// The TLS connection failed: a certificate is missing, unknown or does not match.
    #[error("{0}")]
    Tls(String),
    /// TLS is required by the settings, and the server does not support it.
    #[error("{0}")]
    PlainText(String),
    /// The server is unsuitable: too old, without JetStream, or without enough space.
    #[error("{0}")]
    Unsuitable(String),
    /// Not found on the server: not created yet, or deleted.
    #[error("{0}")]
    Missing(String),
    /// The server rejected the request: permissions, limits, or different settings.
    #[error("the NATS server rejected the request: {0}")]
    Refused(String),
    /// Stored data is corrupt.
    #[error("{0}")]
    Damaged(String),
}

/// Failure of a request to the server.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    /// No response.
    Unreachable(String),
    /// Not permitted, or not understood by the server.
    Refused(String),
    /// An error reported by JetStream.
    Api(ApiError),
}

/// Error in a response of JetStream.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    pub(super) err_code: u32,
    #[serde(default)]
    pub(super) description: String,
}

impl ApiError {
    /// Whether the stream, consumer or message was not found.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self.err_code, 10_059 | 10_014 | 10_037)
    }

    /// Whether the last message of the subject is not the expected one. Newer servers have two codes for this
    /// error.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.err_code, 10_071 | 10_164)
    }

    /// Whether the stream or the server's store is full.
    pub(super) fn is_full(&self) -> bool {
        matches!(self.err_code, 10_077 | 10_047 | 10_023)
    }

    /// Whether the error is temporary: a cluster is electing a leader, or a server is starting.
    fn is_passing(&self) -> bool {
        matches!(self.err_code, 10_008 | 10_009)
    }

    /// Returns the description with the code.
    fn text(&self) -> String {
        format!("{} (code {})", self.description, self.err_code)
    }
}

impl Failure {
    /// Whether the same request may succeed later.
    fn passes(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(_) => false,
            Self::Api(error) => error.is_passing(),
        }
    }
}

impl From<Failure> for NatsError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(why) => Self::Unreachable(why),
            Failure::Refused(why) => Self::Refused(why),
            Failure::Api(error) if error.is_missing() => Self::Missing(error.description),
            Failure::Api(error) if error.is_passing() => Self::Unreachable(error.text()),
            Failure::Api(error) => Self::Refused(error.text()),
        }
    }
}

impl From<Failure> for QueueError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(why) => Self::Unreachable(why),
            Failure::Refused(why) => Self::Refused(why),
            Failure::Api(error) if error.is_full() => Self::Full,
            Failure::Api(error) if error.is_missing() => Self::Gone(error.description),
            Failure::Api(error) if error.is_passing() => Self::Unreachable(error.text()),
            Failure::Api(error) => Self::Refused(error.text()),
        }
    }
}

/// Response to a stored message. Parsed in a single pass, since there is one for every item.
#[derive(Debug, Deserialize)]
struct Stored {
    seq: Option<u64>,
    error: Option<ApiError>,
}

/// A message read from a stream.
#[derive(Debug)]
pub(super) struct StoredMessage {
    pub(super) sequence: u64,
    pub(super) data: Vec<u8>,
    /// Raw headers: lines of `name: value`.
    pub(super) headers: Vec<u8>,
}

/// A connection, shared by all objects created from it.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) layout: Layout,
    pub(super) version: String,
    pub(super) connection: watch::Receiver<ConnectionState>,
    /// The last permission violation that the server reported.
    pub(super) violations: watch::Receiver<String>,
    pub(super) answers: mpsc::Sender<Outgoing>,
    pub(super) complaints: Complaints,
    /// Incremented when this connection recreates streams, so that watches restart.
    pub(super) remade: watch::Sender<u64>,
    /// Cancelled to end all tasks.
    pub(super) ended: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Link").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Link {
    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Waits until the client is connected or the deadline is reached.
    pub(super) async fn connected(&self, deadline: Instant) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        while !self.is_connected() {
            if self.ended.is_cancelled() {
                return Err(Failure::Unreachable("the connection was closed".to_owned()));
            }
            if Instant::now() >= deadline {
                return Err(Failure::Unreachable("not connected to the NATS server".to_owned()));
            }
            // The client may drop events when there are many, so the state is also polled.
            let look = Instant::now() + Duration::from_millis(200);
            let _ = timeout_at(look.min(deadline), connection.changed()).await;
        }
        Ok(())
    }

    /// Sends a request and returns its response. With `repeat`, the request is sent again after a
    /// reconnection; only for idempotent requests.
    pub(super) async fn request(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Bytes,
        repeat: bool,
    ) -> Result<Message, Failure> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.connected(deadline).await?;
            let mut connection = self.connection.clone();
            connection.mark_unchanged();
            let mut violations = self.violations.clone();
            violations.mark_unchanged();
            let request = Request {
                payload: Some(payload.clone()),
                headers: headers.clone(),
                timeout: Some(None),
                inbox: None,
            };
            let sent = self.client.send_request(subject.to_owned(), request);
            tokio::pin!(sent);
            let lost = loop {
                tokio::select! {
                    biased;
                    answer = &mut sent => match answer {
                        Ok(message) => return Ok(message),
                        // Without responders, no server received it, so it is safe to send any request again.
                        Err(error) if error.kind() == RequestErrorKind::NoResponders => break format!(
                            "no responders for `{subject}`: JetStream is starting or disabled, or the stream \
                             does not exist"
                        ),
                        Err(error) if error.kind() == RequestErrorKind::MaxPayloadExceeded => {
                            return Err(Failure::Refused(error.to_string()));
                        }
                        Err(error) => return Err(Failure::Unreachable(error.to_string())),
                    },
                    Ok(()) = connection.changed() => {
                        if !repeat {
                            return Err(Failure::Unreachable("lost connection before the response".to_owned()));
                        }
                        break "lost connection before the response".to_owned();
                    }
                    Ok(()) = violations.changed() => {
                        let text = violations.borrow_and_update().clone();
                        if text.contains(&format!("\"{subject}\"")) {
                            return Err(Failure::Refused(text));
                        }
                    }
                    () = sleep_until(deadline) => {
                        return Err(Failure::Unreachable(format!("no response within {} s", PATIENCE.as_secs())));
                    }
                }
            };
            if Instant::now() + Duration::from_millis(100) >= deadline {
                return Err(Failure::Unreachable(lost));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends a request to the JetStream API: `$JS.API.<what>`. Repeats it after temporary errors and corrupt responses.
    pub(super) async fn api<R: DeserializeOwned>(
        &self,
        what: &str,
        question: &serde_json::Value,
    ) -> Result<R, Failure> {
        let body = if question.is_null() { Bytes::new() } else { Bytes::from(question.to_string()) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.request(&format!("$JS.API.{what}"), None, body.clone(), true).await?;
            match parsed(&answer.payload) {
                Err(failure) if failure.passes() && Instant::now() < deadline => {
                    tracing::debug!(?failure, what, "a request to JetStream failed; repeating it");
                    sleep(Duration::from_millis(250)).await;
                }
                Err(Failure::Api(mut error)) if error.is_missing() => {
                    error.description = missing(what).unwrap_or(error.description);
                    return Err(Failure::Api(error));
                }
                answer => return answer,
            }
        }
    }

    /// Stores a message. Returns its sequence number.
    pub(super) async fn store(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
        repeat: bool,
    ) -> Result<u64, Failure> {
        let headers = if headers.is_empty() { None } else { Some(headers) };
        let answer = self.request(subject, headers, payload, repeat).await?;
        // If the response is corrupt, it is unknown whether the message was stored.
        let stored: Stored = serde_json::from_slice(&answer.payload).map_err(strange)?;
        match (stored.error, stored.seq) {
            (Some(error), _) => Err(Failure::Api(error)),
            (None, Some(sequence)) => Ok(sequence),
            (None, None) => {
                Err(Failure::Unreachable("invalid response of JetStream: missing sequence".to_owned()))
            }
        }
    }

    /// Reads one message of a stream: the last one of a subject, or the next one. Returns `None` if not
    /// found.
    pub(super) async fn message(
        &self,
        stream: &str,
        question: &serde_json::Value,
    ) -> Result<Option<StoredMessage>, Failure> {
        #[derive(Deserialize)]
        struct Got {
            message: Raw,
        }
        #[derive(Deserialize)]
        struct Raw {
            seq: u64,
            #[serde(default)]
            data: String,
            #[serde(default)]
            hdrs: String,
        }
        let plain = |text: &str| {
            STANDARD
                .decode(text)
                .map_err(|error| Failure::Unreachable(format!("invalid stored message: {error}")))
        };
        match self.api::<Got>(&format!("STREAM.MSG.GET.{stream}"), question).await {
            Ok(Got { message: Raw { seq, data, hdrs } }) => {
                Ok(Some(StoredMessage { sequence: seq, data: plain(&data)?, headers: plain(&hdrs)? }))
            }
            Err(Failure::Api(error)) if error.err_code == 10_037 => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Removes the messages of a stream whose subjects match `filter`. Returns their number.
    pub(super) async fn purge(&self, stream: &str, filter: &str) -> Result<u64, Failure> {
        #[derive(Deserialize)]
        struct Purged {
            purged: u64,
        }
        let answer: Purged =
            self.api(&format!("STREAM.PURGE.{stream}"), &serde_json::json!({ "filter": filter })).await?;
        Ok(answer.purged)
    }

    /// Lists the subjects of a stream that match `filter`, over all pages. Concurrent removals may hide
    /// existing subjects. The content is untrusted: beyond [`MOST_LISTED`], subjects are left out with a warning.
    pub(super) async fn subjects(&self, stream: &str, filter: &str) -> Result<Vec<String>, Failure> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            total: usize,
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            subjects: Option<std::collections::HashMap<String, u64>>,
        }
        let (mut all, mut bytes) = (Vec::new(), 0);
        loop {
            let question = serde_json::json!({ "subjects_filter": filter, "offset": all.len() });
            let page: Page = self.api(&format!("STREAM.INFO.{stream}"), &question).await?;
            let subjects = page.state.subjects.unwrap_or_default();
            let last = subjects.is_empty();
            bytes += subjects.keys().map(String::len).sum::<usize>();
            all.extend(subjects.into_keys());
            if bytes > MOST_LISTED && all.len() < page.total {
                let (listed, total) = (all.len(), page.total);
                tracing::warn!(
                    stream,
                    listed,
                    total,
                    "the subjects are too many or too long; listing only a part"
                );
                return Ok(all);
            }
            if last || all.len() >= page.total {
                return Ok(all);
            }
        }
    }

    /// Sends a message without waiting for a response. It is buffered and flushed together with others, at
    /// the latest when the connection is closed.
    pub(super) async fn tell(&self, subject: &str, payload: Bytes) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        self.connected(deadline).await?;
        match timeout_at(deadline, self.client.publish(subject.to_owned(), payload)).await {
            Ok(sent) => sent.map_err(|error| Failure::Refused(error.to_string())),
            Err(_) => Err(Failure::Unreachable("failed to send the message".to_owned())),
        }
    }

    /// Returns a unique name.
    pub(super) fn unique(&self) -> String {
        let inbox = self.client.new_inbox();
        inbox.rsplit('.').next().unwrap_or_default().to_owned()
    }
}

/// Returns the error message for a missing stream or consumer, named in the request: `STREAM.INFO.<stream>`,
/// `CONSUMER.INFO.<stream>.<consumer>`.
fn missing(what: &str) -> Option<String> {
    let mut parts = what.split('.');
    match (parts.next()?, parts.next()?, parts.next()?, parts.next()) {
        ("STREAM", "MSG", "GET", Some(stream)) | ("STREAM", _, stream, None) => Some(format!(
            "stream `{stream}` not found on the NATS server: it was deleted, or no coordinator has created \
             it yet"
        )),
        ("CONSUMER", _, stream, Some(consumer)) => Some(format!(
            "consumer `{consumer}` of stream `{stream}` not found on the NATS server: it was deleted"
        )),
        _ => None,
    }
}

/// Parses a response of JetStream, or returns the error in it.
pub(super) fn parsed<R: DeserializeOwned>(payload: &[u8]) -> Result<R, Failure> {
    #[derive(Deserialize)]
    struct Envelope {
        error: Option<ApiError>,
    }
    let envelope: Envelope = serde_json::from_slice(payload).map_err(strange)?;
    match envelope.error {
        Some(error) => Err(Failure::Api(error)),
        None => serde_json::from_slice(payload).map_err(strange),
    }
}

/// The failure for a response that was corrupted in transit: it is unknown whether the request was carried out.
#[allow(clippy::needless_pass_by_value)] // signature required by map_err
fn strange(error: serde_json::Error) -> Failure {
    Failure::Unreachable(format!("invalid response of JetStream: {error}"))
}

/// Shared handle of a connection.
pub(super) type SharedLink = Arc<Link>;

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(err_code: u32) -> Failure {
        Failure::Api(ApiError { err_code, description: "why".to_owned() })
    }

    #[test]
    fn errors_that_pass_are_not_refusals() {
        for code in [10_008, 10_009] {
            let why = format!("why (code {code})");
            assert!(failure(code).passes());
            assert_eq!(QueueError::from(failure(code)), QueueError::Unreachable(why.clone()));
            assert_eq!(NatsError::from(failure(code)), NatsError::Unreachable(why));
        }
        assert_eq!(QueueError::from(failure(10_077)), QueueError::Full);
        assert_eq!(QueueError::from(failure(10_059)), QueueError::Gone("why".to_owned()));
        assert_eq!(NatsError::from(failure(10_059)), NatsError::Missing("why".to_owned()));
        assert_eq!(QueueError::from(failure(10_058)), QueueError::Refused("why (code 10058)".to_owned()));
        assert!(!failure(10_058).passes());
        let corrupt = parsed::<serde_json::Value>(b"{\"error\":").unwrap_err();
        assert!(matches!(corrupt, Failure::Unreachable(_)) && corrupt.passes(), "{corrupt:?}");
    }
}
