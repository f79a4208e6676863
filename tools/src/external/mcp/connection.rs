//! A connection to an MCP server: the handshake, the server's tools, calls.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use lumos_http::{HttpClient, HttpError};
use lumos_tasks::{ExternalReply, ToolReply};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock, ErrorCode,
    Implementation, PaginatedRequestParams, ProtocolVersion, ResourceContents, Tool,
};
use rmcp::service::{ClientInitializeError, RunningService, ServiceError};
use rmcp::transport::Transport;
use rmcp::{RoleClient, serve_client};
use serde_json::Value;
use tokio::sync::Mutex;
use url::Url;

use super::super::command::HashedCommand;
use super::super::limits::{LARGEST_REPLY, ToolLimits};
use super::super::process::{ToolProcess, Watched};
use super::http::HttpTransport;
use super::stream::{LineTransport, Problem};
use super::within;
use crate::tool::ToolOperation;

/// Maximum number of pages of a server's list of tools.
const MOST_PAGES: usize = 20;
/// Time limit for ending a connection.
const CLOSING: Duration = Duration::from_secs(3);

/// A connection after its handshake.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    /// The server's program, if this process started it. Dropping it kills the program.
    program: Option<Mutex<ServerProcess>>,
    problem: Problem,
    tools: Vec<Tool>,
}

/// A server's program.
struct ServerProcess {
    watched: Watched,
    /// How the program ended: `None` until a call waits for its end, `Some(None)` if it did not end soon.
    ended: Option<Option<String>>,
}

/// Why a call failed.
#[derive(Debug)]
pub(super) enum CallFailure {
    /// Only the call failed. The connection can still be used.
    Call(String),
    /// The connection must not be used for other calls.
    Connection(String),
}

impl Connection {
    /// Starts a program and connects to it.
    pub(super) async fn to_program(
        tool: &str,
        command: &HashedCommand,
        limits: ToolLimits,
    ) -> Result<Self, String> {
        let ToolProcess { input, output, watched } = ToolProcess::start(command, limits.memory).await?;
        let problem = Problem::default();
        let transport = LineTransport::new(input, output, problem.clone());
        let mut program = ServerProcess { watched, ended: None };
        match Self::open(tool, transport, Some(limits.call)).await {
            Ok((service, tools)) => Ok(Self { service, program: Some(Mutex::new(program)), problem, tools }),
            Err((message, is_closed)) => {
                Err(program.explained(with_problem(message, &problem), is_closed).await)
            }
        }
    }

    /// Connects to a server over HTTP. The client limits the time.
    pub(super) async fn to_server(tool: &str, url: &Url, client: Arc<HttpClient>) -> Result<Self, String> {
        let opened = Self::open(tool, HttpTransport::new(client, url.clone()), None).await;
        let (service, tools) = opened.map_err(|(message, _)| message)?;
        Ok(Self { service, program: None, problem: Problem::default(), tools })
    }

    /// Fails with a message, and whether the server ended the connection.
    async fn open<T: Transport<RoleClient> + 'static>(
        tool: &str,
        transport: T,
        limit: Option<Duration>,
    ) -> Result<(RunningService<RoleClient, ClientConfig>, Vec<Tool>), (String, bool)> {
        let name = Implementation::new("lumos", env!("CARGO_PKG_VERSION"));
        // The default is a later revision, which has no handshake.
        let configuration = ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let failed =
            |error: &dyn std::fmt::Display| (format!("failed to connect to the MCP server: {error}"), true);
        let handshake = async {
            let service = serve_client(configuration, transport).await;
            let service = service.map_err(|error| failed(&handshake_error(&error)))?;
            let tools = list(&service).await.map_err(|error| failed(&error))?;
            Ok((service, tools))
        };
        let silent = |limit: Duration| {
            (format!("the MCP server did not respond within {} s", limit.as_secs_f64()), false)
        };
        let (service, tools) = within(limit, handshake).await.map_err(silent)??;
        if let Some(server) = service.peer_info().and_then(|peer| peer.server_info.clone()) {
            tracing::info!(
                tool,
                server = server.name,
                version = server.version,
                "connected to an MCP server"
            );
        }
        Ok((service, tools))
    }

    /// Whether messages can be sent.
    pub(super) fn is_open(&self) -> bool {
        !self.service.is_closed() && !self.service.is_transport_closed()
    }

    /// Calls one of the server's tools.
    ///
    /// # Errors
    /// A message, and whether the connection can still be used.
    pub(super) async fn call(&self, operation: &str, arguments: &Value) -> Result<ToolReply, CallFailure> {
        if !self.tools.iter().any(|tool| tool.name == operation) {
            let known: Vec<&str> = self.tools.iter().map(|tool| &*tool.name).collect();
            let message = format!("the MCP server has no tool `{operation}`; it has {}", known.join(", "));
            return Err(CallFailure::Call(message));
        }
        let arguments = match arguments {
            Value::Object(arguments) => arguments.clone().into_iter().collect(),
            _ => return Err(CallFailure::Call("the arguments are not an object".to_owned())),
        };
        let call = CallToolRequestParams::new(operation.to_owned()).with_arguments(arguments);
        match self.service.call_tool(call).await {
            Ok(result) => Ok(ToolReply::External(reply(result))),
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::INVALID_PARAMS => {
                Ok(ToolReply::External(ExternalReply::Refused(error.message.into_owned())))
            }
            Err(error @ ServiceError::McpError(_)) => Err(CallFailure::Call(error.to_string())),
            Err(error) => Err(CallFailure::Connection(error.to_string())),
        }
    }

    /// Returns the server's tools.
    pub(super) fn operations(&self) -> Vec<ToolOperation> {
        let operation = |tool: &Tool| ToolOperation {
            name: tool.name.to_string(),
            description: tool.description.as_deref().unwrap_or_default().to_owned(),
            arguments: Value::Object(tool.input_schema.as_ref().clone()),
        };
        self.tools.iter().map(operation).collect()
    }

    /// Adds to the message of a call what the server's program wrote to standard error.
    pub(super) async fn with_tail(&self, message: String) -> String {
        match &self.program {
            Some(program) => program.lock().await.watched.with_tail(message),
            None => message,
        }
    }

    /// Adds to a message what is known of a connection that failed. Other calls may still use it.
    pub(super) async fn explained(&self, message: String) -> String {
        let message = with_problem(message, &self.problem);
        match &self.program {
            Some(program) => program.lock().await.explained(message, !self.is_open()).await,
            None => message,
        }
    }

    /// Ends the connection and the server's program.
    pub(super) async fn close(mut self) {
        let _ = self.service.close_with_timeout(CLOSING).await;
        if let Some(program) = self.program {
            program.into_inner().watched.stop().await;
        }
    }
}

impl ServerProcess {
    /// Adds to a message how the program ended if it closed the connection, and what it wrote to standard error.
    async fn explained(&mut self, mut message: String, is_closed: bool) -> String {
        // All calls in progress fail when the program ends, but its end can be received only once.
        if is_closed && self.ended.is_none() {
            self.ended = Some(None);
            self.ended = Some(self.watched.ended().await);
        }
        if let Some(Some(ended)) = &self.ended {
            message = format!("{message}; {ended}");
        }
        self.watched.with_tail(message)
    }
}

/// Adds to a message the last problem of a connection.
fn with_problem(message: String, problem: &Problem) -> String {
    match problem.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(problem) => format!("{message}: {problem}"),
        None => message,
    }
}

/// Returns the message of a handshake that failed. Servers that support only revisions without `initialize` reject it
/// with one of two errors, over HTTP also in a response with another status.
fn handshake_error(error: &ClientInitializeError) -> String {
    let code = match error {
        ClientInitializeError::JsonRpcError(error) => Some(i64::from(error.code.0)),
        ClientInitializeError::TransportError { error, .. } => {
            let response = error.error.downcast_ref::<HttpError>().and_then(|error| error.response.as_ref());
            let body = response.and_then(|response| serde_json::from_slice::<Value>(&response.body).ok());
            body.and_then(|body| body.pointer("/error/code")?.as_i64())
        }
        _ => None,
    };
    let unsupported = [ErrorCode::METHOD_NOT_FOUND, ErrorCode::UNSUPPORTED_PROTOCOL_VERSION];
    if !unsupported.iter().any(|unsupported| code == Some(i64::from(unsupported.0))) {
        return error.to_string();
    }
    let latest = ProtocolVersion::LATEST_WITH_INITIALIZE;
    format!(
        "{error}; the server may require a protocol revision later than {latest}; later revisions are unsupported"
    )
}

/// Lists a server's tools.
async fn list(service: &RunningService<RoleClient, ClientConfig>) -> Result<Vec<Tool>, String> {
    let mut tools = Vec::new();
    let mut cursor = None;
    for _ in 0..MOST_PAGES {
        let page = service.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await;
        let page = page.map_err(|error| error.to_string())?;
        tools.extend(page.tools);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(tools);
        }
    }
    Err(format!("its list of tools has more than {MOST_PAGES} pages"))
}

/// Returns the text of a result: its texts, and names in place of other contents; its structure if it has no contents.
fn reply(result: CallToolResult) -> ExternalReply {
    let mut parts: Vec<String> = Vec::new();
    for content in result.content {
        parts.push(match content {
            ContentBlock::Text(text) => text.text,
            ContentBlock::Image(_) => "[image]".to_owned(),
            ContentBlock::Audio(_) => "[audio]".to_owned(),
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { text, .. } => text,
                ResourceContents::BlobResourceContents { uri, .. } => uri,
                #[allow(unreachable_patterns, reason = "the type may gain variants")]
                _ => "[resource]".to_owned(),
            },
            ContentBlock::ResourceLink(link) => link.uri.clone(),
            _ => "[content]".to_owned(),
        });
    }
    let text = match result.structured_content {
        Some(structure) if parts.is_empty() => structure.to_string(),
        _ => parts.join("\n"),
    };
    debug_assert!(text.len() <= 2 * LARGEST_REPLY, "messages have a limited length");
    if result.is_error == Some(true) { ExternalReply::Refused(text) } else { ExternalReply::Text(text) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(result: Value) -> ExternalReply {
        reply(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn texts_are_joined() {
        let text = |text: &str| ExternalReply::Text(text.to_owned());
        let contents = json!([{"type": "text", "text": "a"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "x:1", "text": "b"}}]);
        assert_eq!(of(json!({"content": contents})), text("a\n[image]\nb"));
        assert_eq!(of(json!({"content": [], "structuredContent": {"high": 31}})), text(r#"{"high":31}"#));
        let refused = of(json!({"content": [{"type": "text", "text": "unknown city"}], "isError": true}));
        assert_eq!(refused, ExternalReply::Refused("unknown city".to_owned()));
    }
}
