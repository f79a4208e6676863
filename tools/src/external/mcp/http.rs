//! MCP messages over streamable HTTP (`https://modelcontextprotocol.io/specification`, Transports), with the client
//! of `lumos-http` and its limits.
//!
//! A message is sent with POST. The response is empty, a message, or a stream of server-sent events that ends with the
//! reply. The client opens no stream of its own (GET), so messages that a server sends unasked are not received.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumos_http::{HttpClient, HttpError, HttpRequest, HttpResponse};
use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::mpsc;
use url::Url;

use super::super::message::quoted;

const SESSION: &str = "mcp-session-id";
const VERSION: &str = "mcp-protocol-version";
/// Maximum number of a response's messages other than the reply, such as notifications of progress. The client replies to each
/// request among them.
const OTHERS: usize = 16;
/// Time limit for ending a session.
const CLOSING: Duration = Duration::from_secs(2);

/// A session on a server.
pub(super) struct HttpTransport {
    session: Arc<Session>,
    sender: mpsc::Sender<ServerJsonRpcMessage>,
    received: mpsc::Receiver<ServerJsonRpcMessage>,
}

struct Session {
    client: Arc<HttpClient>,
    url: Url,
    state: Mutex<State>,
}

/// What the server chose in the handshake.
#[derive(Default)]
struct State {
    id: Option<String>,
    version: Option<String>,
}

impl HttpTransport {
    pub(super) fn new(client: Arc<HttpClient>, url: Url) -> Self {
        let (sender, received) = mpsc::channel(2 * OTHERS);
        Self { session: Arc::new(Session { client, url, state: Mutex::default() }), sender, received }
    }
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_headers(&self, mut request: HttpRequest) -> HttpRequest {
        let state = self.state();
        request.headers.push(("accept", "application/json, text/event-stream".to_owned()));
        request.headers.extend(state.id.clone().map(|id| (SESSION, id)));
        request.headers.extend(state.version.clone().map(|version| (VERSION, version)));
        request
    }

    /// Sends a message. If it is a request, returns the messages of its response, among them the reply. Other messages
    /// get no reply.
    async fn post(&self, message: &ClientJsonRpcMessage) -> Result<Vec<ServerJsonRpcMessage>, HttpError> {
        let body = serde_json::to_vec(message).map_err(|error| HttpError::last(error.to_string()))?;
        let request = self.with_headers(HttpRequest::post(self.url.as_str(), body));
        let response = self.client.send(&request, |response| std::future::ready(response.accepted())).await?;
        if let Some(id) = response.header(SESSION) {
            self.state().id = Some(id.to_owned());
        }
        let ClientJsonRpcMessage::Request(request) = message else { return Ok(Vec::new()) };
        let id = serde_json::to_value(&request.id).map_err(|error| HttpError::last(error.to_string()))?;
        let messages = of_request(&id, messages(&response).map_err(HttpError::last)?);
        // Without a reply, the request would wait without a time limit.
        if messages.iter().all(|message| message.get("method").is_some()) {
            let (status, body) = (response.status, quoted(&response.body));
            return Err(HttpError::last(format!(
                "invalid response `{body}` (status {status}): missing reply to the request"
            )));
        }
        let version =
            messages.iter().find_map(|message| message.pointer("/result/protocolVersion")?.as_str());
        if let Some(version) = version {
            self.state().version = Some(version.to_owned());
        }
        let read = messages.into_iter().map(|message| {
            let text = message.to_string();
            serde_json::from_value(message).map_err(|error| {
                HttpError::last(format!("invalid message `{}`: {error}", quoted(text.as_bytes())))
            })
        });
        read.collect()
    }
}

/// Returns the reply to a request, if there is one, and the first [`OTHERS`] messages of the server's own, in order.
fn of_request(id: &Value, mut messages: Vec<Value>) -> Vec<Value> {
    let (mut has_reply, mut others) = (false, 0);
    messages.retain_mut(|message| {
        if message.get("method").is_some() {
            others += 1;
            return others <= OTHERS;
        }
        // Servers that could not read the request reply without an id.
        if message.get("error").is_some() && message.get("id").is_none_or(Value::is_null) {
            message["id"] = id.clone();
        }
        let is_reply = !has_reply && message.get("id") == Some(id);
        has_reply |= is_reply;
        is_reply
    });
    messages
}

/// Returns the messages in a response.
fn messages(response: &HttpResponse) -> Result<Vec<Value>, String> {
    let kind = response.header("content-type").unwrap_or_default();
    let bodies = if response.body.is_empty() {
        Vec::new()
    } else if kind.starts_with("text/event-stream") {
        events(&String::from_utf8_lossy(&response.body))
    } else {
        vec![String::from_utf8_lossy(&response.body).into_owned()]
    };
    let mut messages = Vec::new();
    for body in bodies.iter().filter(|body| !body.trim().is_empty()) {
        let message = serde_json::from_str(body)
            .map_err(|error| format!("invalid response `{}`: {error}", quoted(body.as_bytes())))?;
        match message {
            Value::Array(batch) => messages.extend(batch),
            message => messages.push(message),
        }
    }
    Ok(messages)
}

/// Returns the data of server-sent events (`https://html.spec.whatwg.org/multipage/server-sent-events.html`).
fn events(stream: &str) -> Vec<String> {
    let mut events = Vec::new();
    let mut data: Option<String> = None;
    for line in stream.lines() {
        if line.is_empty() {
            events.extend(data.take());
        } else if let Some(value) = line.strip_prefix("data:") {
            let value = value.strip_prefix(' ').unwrap_or(value);
            match &mut data {
                Some(data) => data.extend(["\n", value]),
                None => data = Some(value.to_owned()),
            }
        }
    }
    // A stream that ends without an empty line is cut off.
    events
}

impl Transport<RoleClient> for HttpTransport {
    type Error = HttpError;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), HttpError>> + Send + 'static {
        let (session, sender) = (Arc::clone(&self.session), self.sender.clone());
        async move {
            for message in session.post(&message).await? {
                // The receiver is dropped when the connection is closed.
                let _ = sender.send(message).await;
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.received.recv().await
    }

    async fn close(&mut self) -> Result<(), HttpError> {
        if self.session.state().id.is_none() {
            return Ok(());
        }
        let request = HttpRequest {
            once: true,
            timeout: Some(CLOSING),
            ..HttpRequest::delete(self.session.url.as_str())
        };
        let request = self.session.with_headers(request);
        // Servers may refuse to end sessions.
        let _ = self.session.client.send(&request, |response| std::future::ready(Ok(response))).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_one_reply_and_few_other_messages() {
        let ping = serde_json::json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        let reply = |id: u8| serde_json::json!({"jsonrpc": "2.0", "id": id, "result": {}});
        let mut messages = vec![ping; 1_000];
        messages.extend([reply(6), reply(7), reply(8)]);
        let read = of_request(&Value::from(7), messages);
        assert_eq!(read.len(), OTHERS + 1);
        assert_eq!(read.last(), Some(&reply(7)));
        assert_eq!(of_request(&Value::from(7), vec![reply(7); 1_000]), [reply(7)]);
        assert!(of_request(&Value::from(7), vec![reply(6), Value::Null]).is_empty());
    }

    #[test]
    fn an_error_without_an_id_is_the_reply() {
        let error = |id: Value| serde_json::json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32700}});
        let mut missing = error(Value::Null);
        missing.as_object_mut().unwrap().remove("id");
        for message in [error(Value::Null), missing] {
            let read = of_request(&Value::from(7), vec![message]);
            assert_eq!(read, [error(Value::from(7))]);
        }
    }

    #[test]
    fn events_are_separated_by_empty_lines() {
        let stream = ": comment\nevent: message\nid: 1\ndata: {\"a\":\ndata: 1}\n\ndata:\n\ndata: 2\n\ndata: cut off\n";
        assert_eq!(events(stream), ["{\"a\":\n1}", "", "2"]);
        assert_eq!(events("data: 1\r\n\r\n"), ["1"]);
    }
}
