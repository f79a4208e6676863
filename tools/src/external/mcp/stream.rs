//! MCP messages as lines on the standard streams of a program, of limited length.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::super::limits::LARGEST_REPLY;
use super::super::message::quoted;
use super::super::process::LineReader;

/// The last problem of a connection, for messages.
pub(super) type Problem = Arc<Mutex<Option<String>>>;

/// Records a problem.
pub(super) fn note(problem: &Problem, message: String) {
    *problem.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
}

/// The streams of a program.
pub(super) struct LineTransport {
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    output: LineReader<BufReader<ChildStdout>>,
    problem: Problem,
}

impl LineTransport {
    pub(super) fn new(input: ChildStdin, output: BufReader<ChildStdout>, problem: Problem) -> Self {
        let output = LineReader::new(output, LARGEST_REPLY);
        Self { input: Arc::new(tokio::sync::Mutex::new(Some(input))), output, problem }
    }
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            input.write_all(&line).await?;
            input.flush().await
        }
    }

    /// Returns the next message. Lines that are not messages are skipped, as by other clients, since some servers print
    /// to standard output.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = match self.output.next().await {
                Ok(line) => line?,
                Err(error) => {
                    note(&self.problem, error.to_string());
                    return None;
                }
            };
            match serde_json::from_slice(&line) {
                Ok(message) => return Some(message),
                Err(error) => {
                    let message =
                        format!("the server wrote `{}`, which is not a message: {error}", quoted(&line));
                    tracing::debug!("{message}");
                    note(&self.problem, message);
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.input.lock().await.take();
        Ok(())
    }
}
