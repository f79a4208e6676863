//! Servers of the Model Context Protocol: `--tool NAME=mcp:<command>` starts one as a program, and
//! `NAME=mcp:http://…` uses one over streamable HTTP.
//!
//! The operation of a call is the name of one of the server's tools. A result with `isError`, and arguments that the
//! server rejects, are messages for the agent. Other errors of the server are faults of one call. After a timeout or a
//! failure of the connection, the next call makes a new connection; the former one is closed, and its program killed, when
//! the calls that use it have ended. All connections over HTTP share a client, and so its pauses and its rate.
//!
//! | module | purpose |
//! |---|---|
//! | [`stream`] | messages as lines of a program |
//! | [`http`] | messages as HTTP requests |
//! | [`connection`] | the handshake, the list of tools, one call |

mod connection;
mod http;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use connection::{CallFailure, Connection};
use lumos_http::{HttpClient, ServerKey};
use lumos_tasks::{ExternalReply, ToolCall, ToolReply};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use url::Url;

use super::command::{HashedCommand, NamedCommand};
use super::limits::{ToolLimits, turn};
use super::message;
use super::service::{address, client, is_address, key};
use crate::backend::{BackendDescription, BackendError, BackendResources, NamedBackend};
use crate::replies::Remembering;
use crate::tool::{ToolFault, ToolOperation, Tools};

/// `NAME=mcp:<command>`, `NAME=mcp:http://…`.
pub(crate) const BACKEND: BackendDescription = BackendDescription {
    tool: None,
    forms: &["mcp:<command>", "mcp:http://<host>"],
    parse: |tool, backend| {
        let Some(server) = backend.strip_prefix("mcp:") else { return Ok(None) };
        let server = match is_address(server) {
            true => Server::Http(address(server)?),
            false => Server::Program(NamedCommand::parse(server)?),
        };
        Ok(Some(Box::new(NamedServer { tool: tool.to_owned(), server })))
    },
};

/// Where a server is.
enum Server {
    Program(NamedCommand),
    Http(Url),
}

/// A server as named on the command line.
struct NamedServer {
    tool: String,
    server: Server,
}

impl NamedBackend for NamedServer {
    fn version(&self) -> u32 {
        1
    }

    fn needs_permission(&self) -> bool {
        true
    }

    fn content(&self) -> Result<String, BackendError> {
        match &self.server {
            Server::Program(command) => Ok(command.content()?),
            Server::Http(_) => Ok(String::new()),
        }
    }

    fn check_host(&self) -> Result<(), String> {
        match &self.server {
            Server::Program(command) => command.check_host(),
            Server::Http(_) => Ok(()),
        }
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        self.check_host().map_err(BackendError::Unusable)?;
        let limits = ToolLimits::from_environment()?;
        let endpoint = Endpoint::new(&self.tool, &self.server, limits)?;
        Ok(Arc::new(Remembering::new(Arc::new(McpTool::new(&self.tool, endpoint, limits)))))
    }
}

/// What connections to a server need.
enum Endpoint {
    Program(HashedCommand),
    Http { url: Url, client: Arc<HttpClient>, key: Option<ServerKey> },
}

impl Endpoint {
    fn new(tool: &str, server: &Server, limits: ToolLimits) -> Result<Self, BackendError> {
        match server {
            Server::Program(command) => Ok(Self::Program(command.hashed()?.clone())),
            Server::Http(url) => {
                let key = key(tool, url)?;
                let client = Arc::new(client(tool, url, key.clone(), limits)?);
                Ok(Self::Http { url: url.clone(), client, key })
            }
        }
    }
}

/// A server and the connection to it.
struct McpTool {
    tool: String,
    endpoint: Endpoint,
    limits: ToolLimits,
    calls: Semaphore,
    /// Locked while a connection is made.
    connection: Mutex<Option<Arc<Connection>>>,
}

impl McpTool {
    fn new(tool: &str, endpoint: Endpoint, limits: ToolLimits) -> Self {
        let calls = Semaphore::new(limits.concurrency);
        Self { tool: tool.to_owned(), endpoint, limits, calls, connection: Mutex::default() }
    }

    /// Returns the connection, or makes one.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        // Kills the program of the old connection before another one starts, unless a call still uses it.
        *current = None;
        let opened = match &self.endpoint {
            Endpoint::Program(command) => Connection::to_program(&self.tool, command, self.limits).await,
            Endpoint::Http { url, client, .. } => {
                Connection::to_server(&self.tool, url, Arc::clone(client)).await
            }
        };
        let connection = Arc::new(opened?);
        *current = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// Drops a connection that failed, so that the next call makes a new one. It is closed when no call uses it.
    async fn close_failed(&self, failed: &Arc<Connection>) {
        let mut current = self.connection.lock().await;
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, failed)) {
            *current = None;
        }
    }

    async fn answer(&self, operation: &str, arguments: &serde_json::Value) -> Result<ToolReply, String> {
        let _turn = turn(&self.tool, &self.calls).await;
        let connection = self.connection().await?;
        let message = match within(self.limit(), connection.call(operation, arguments)).await {
            Ok(Ok(ToolReply::External(ExternalReply::Refused(message)))) => {
                let message = match self.key() {
                    Some(key) => key.redact_reply(message),
                    None => message,
                };
                return Ok(ToolReply::External(ExternalReply::Refused(message)));
            }
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(CallFailure::Call(message))) => return Err(connection.with_tail(message).await),
            Ok(Err(CallFailure::Connection(message))) => message,
            Err(limit) => format!("no reply within {} s", limit.as_secs_f64()),
        };
        self.close_failed(&connection).await;
        Err(connection.explained(message).await)
    }

    /// Time limit of a call. Over HTTP, each attempt of a request is limited instead, because the server may ask for
    /// pauses between them.
    fn limit(&self) -> Option<Duration> {
        matches!(self.endpoint, Endpoint::Program(_)).then_some(self.limits.call)
    }

    /// Key of the server, which may echo it in errors.
    fn key(&self) -> Option<&ServerKey> {
        match &self.endpoint {
            Endpoint::Program(_) => None,
            Endpoint::Http { key, .. } => key.as_ref(),
        }
    }

    fn fault(&self, mut message: String) -> ToolFault {
        if let Some(key) = self.key() {
            message = key.redact(&message);
        }
        ToolFault { tool: self.tool.clone().into(), message }
    }
}

/// Waits for a future, within a limit if there is one.
///
/// # Errors
/// The limit, if it has passed.
async fn within<T>(limit: Option<Duration>, future: impl Future<Output = T>) -> Result<T, Duration> {
    match limit {
        Some(limit) => timeout(limit, future).await.map_err(|_| limit),
        None => Ok(future.await),
    }
}

#[async_trait]
impl Tools for McpTool {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let (operation, arguments) = message::of_call(call, "mcp")?;
        self.answer(operation, arguments).await.map_err(|message| self.fault(message))
    }

    async fn operations(&self) -> Result<Vec<ToolOperation>, ToolFault> {
        let connection = self.connection().await.map_err(|message| self.fault(message))?;
        Ok(connection.operations())
    }

    async fn shut_down(&self) {
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection.and_then(Arc::into_inner) {
            connection.close().await;
        }
    }
}

#[cfg(test)]
#[path = "../tests/mcp.rs"]
mod tests;

#[cfg(test)]
#[path = "../tests/mcp_http.rs"]
mod http_tests;
