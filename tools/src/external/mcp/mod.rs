//! Servers of the Model Context Protocol: `--tool NAME=mcp:<command>` starts one as a program, and
//! `NAME=mcp:http://…` uses one over streamable HTTP.
//!
//! The operation of a call is the name of one of the server's tools. A result with `isError`, and arguments that the
//! server rejects, are messages for the agent. Other errors of the server are faults of one call. After a timeout or a
//! failure of the connection, the next call makes a new connection; the former one is closed, and its program killed, when
//! the calls that use it have ended.
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

use async_trait::async_trait;
use connection::{CallFailure, Connection};
use lumos_tasks::{ToolCall, ToolReply};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use url::Url;

use super::command::CommandLine;
use super::limits::{ToolLimits, turn};
use super::message;
use super::service::{address, is_address};
use crate::backend::{BackendDescription, BackendError, BackendResources, NamedBackend, hash_suffix};
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
            false => Server::Program(CommandLine::parse(server)?),
        };
        Ok(Some(Box::new(NamedServer { tool: tool.to_owned(), server })))
    },
};

/// Where a server is.
#[derive(Clone)]
enum Server {
    Program(CommandLine),
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
            Server::Program(command) => Ok(command.hash().map(hash_suffix)?),
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
        let tool = McpTool::new(&self.tool, self.server.clone(), ToolLimits::from_environment()?);
        Ok(Arc::new(Remembering::new(Arc::new(tool))))
    }
}

/// A server and the connection to it.
struct McpTool {
    tool: String,
    server: Server,
    limits: ToolLimits,
    calls: Semaphore,
    /// Locked while a connection is made.
    connection: Mutex<Option<Arc<Connection>>>,
}

impl McpTool {
    fn new(tool: &str, server: Server, limits: ToolLimits) -> Self {
        let calls = Semaphore::new(limits.concurrency);
        Self { tool: tool.to_owned(), server, limits, calls, connection: Mutex::default() }
    }

    /// Returns the connection, or makes one.
    async fn connection(&self) -> Result<Arc<Connection>, String> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        // Kills the program of the old connection before another one starts, unless a call still uses it.
        *current = None;
        let opened = match &self.server {
            Server::Program(command) => Connection::to_program(&self.tool, command, self.limits).await,
            Server::Http(url) => Connection::to_server(&self.tool, url, self.limits).await,
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
        let message = match timeout(self.limits.call, connection.call(operation, arguments)).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(CallFailure::Call(message))) => return Err(connection.with_tail(message).await),
            Ok(Err(CallFailure::Connection(message))) => message,
            Err(_) => format!("no reply within {} s", self.limits.call.as_secs_f64()),
        };
        self.close_failed(&connection).await;
        Err(connection.explained(message).await)
    }

    fn fault(&self, message: String) -> ToolFault {
        ToolFault { tool: self.tool.clone().into(), message }
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
