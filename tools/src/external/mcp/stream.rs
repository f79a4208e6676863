//! MCP messages as lines on the standard streams of a program, of limited length.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage, ServerNotification};
use rmcp::transport::Transport;
use tokio::io::{AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};

use super::super::limits::LARGEST_REPLY;
use super::super::message::quoted;
use super::super::process::LineReader;

/// Maximum number of a server's requests whose replies are not written yet, because the server does not read them.
const UNANSWERED: usize = 64;
/// Maximum number of lines since the last request to the server, except requests with replies. Most are notifications,
/// such as progress, and lines that are not messages.
const LINES: usize = 10_000;

/// The last problem of a connection since the last message of the server, for messages.
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
    /// Number of the server's requests whose replies are not written yet.
    unanswered: Arc<AtomicUsize>,
    /// Number of lines since the last request to the server, without those of requests with replies.
    lines: usize,
}

impl LineTransport {
    pub(super) fn new(input: ChildStdin, output: BufReader<ChildStdout>, problem: Problem) -> Self {
        let output = LineReader::new(output, LARGEST_REPLY);
        let input = Arc::new(tokio::sync::Mutex::new(Some(input)));
        Self { input, output, problem, unanswered: Arc::default(), lines: 0 }
    }

    /// Counts a line, with its message if it is one.
    ///
    /// # Errors
    /// If the server sends too much.
    fn count(&mut self, message: Option<&ServerJsonRpcMessage>) -> Result<(), String> {
        self.lines += 1;
        if self.lines > LINES {
            return Err(format!("the server wrote more than {LINES} lines since the last request"));
        }
        // A request that the server cancels gets no reply.
        if let Some(ServerJsonRpcMessage::Notification(notification)) = message
            && matches!(notification.notification, ServerNotification::CancelledNotification(_))
        {
            less(&self.unanswered);
        }
        let is_request = matches!(message, Some(ServerJsonRpcMessage::Request(_)));
        if is_request && self.unanswered.fetch_add(1, Ordering::Relaxed) >= UNANSWERED {
            return Err(format!(
                "the server sent more than {UNANSWERED} requests without reading the replies"
            ));
        }
        Ok(())
    }
}

/// Counts one fewer, if there is one.
fn less(count: &AtomicUsize) {
    let _ = count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
}

impl Transport<RoleClient> for LineTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let input = Arc::clone(&self.input);
        if matches!(message, ClientJsonRpcMessage::Request(_)) {
            self.lines = 0;
        }
        let is_reply = matches!(message, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_));
        self.lines -= usize::from(is_reply).min(self.lines);
        let unanswered = is_reply.then(|| Arc::clone(&self.unanswered));
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut input = input.lock().await;
            let input = input.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            input.write_all(&line).await?;
            input.flush().await?;
            if let Some(unanswered) = unanswered {
                less(&unanswered);
            }
            Ok(())
        }
    }

    /// Returns the next message. Lines that are not messages are skipped, as by other clients, since some servers print
    /// to standard output. If a server sends too much, the connection ends with an error.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = match self.output.next().await {
                Ok(line) => line?,
                Err(error) => {
                    note(&self.problem, error.to_string());
                    return None;
                }
            };
            let message: Option<ServerJsonRpcMessage> = match serde_json::from_slice(&line) {
                Ok(message) => Some(message),
                Err(error) => {
                    let message =
                        format!("the server wrote `{}`, which is not a message: {error}", quoted(&line));
                    tracing::debug!("{message}");
                    note(&self.problem, message);
                    None
                }
            };
            if let Err(excess) = self.count(message.as_ref()) {
                note(&self.problem, excess);
                return None;
            }
            if message.is_some() {
                // Earlier invalid lines, such as a greeting, are not the cause of a later failure.
                self.problem.lock().unwrap_or_else(PoisonError::into_inner).take();
                return message;
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.input.lock().await.take();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use serde_json::json;
    use tokio::process::{Child, Command};

    use super::*;

    const PING: &str = r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}"#;

    /// Starts a script of the shell. The process is killed when it is dropped.
    fn start(script: &str) -> (Child, LineTransport) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        (child, LineTransport::new(input, output, Problem::default()))
    }

    #[tokio::test]
    async fn a_server_that_sends_too_much_is_disconnected() {
        let notification = r#"{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}"#;
        for (line, most, why) in [
            (PING, UNANSWERED, "more than 64 requests without reading the replies"),
            (notification, LINES, "more than 10000 lines"),
            ("not a message", 0, "more than 10000 lines"),
        ] {
            let (_server, mut transport) = start(&format!("exec yes '{line}'"));
            let mut count = 0;
            while transport.receive().await.is_some() {
                count += 1;
            }
            let problem = transport.problem.lock().unwrap().take().unwrap();
            assert_eq!(count, most, "{problem}");
            assert!(problem.contains(why), "{problem}");
        }
    }

    #[tokio::test]
    async fn a_message_clears_the_problem_before_it() {
        let (_server, mut transport) = start(&format!("echo listening; echo '{PING}'; echo broken"));
        assert!(transport.receive().await.is_some());
        assert_eq!(*transport.problem.lock().unwrap(), None);
        assert!(transport.receive().await.is_none());
        let problem = transport.problem.lock().unwrap().take().unwrap();
        assert!(problem.contains("`broken`"), "{problem}");
    }

    #[tokio::test]
    async fn requests_that_are_cancelled_do_not_count() {
        let cancelled =
            r#"{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}"#;
        let (_server, mut transport) = start(&format!("while :; do echo '{PING}'; echo '{cancelled}'; done"));
        for _ in 0..6 * UNANSWERED {
            assert!(transport.receive().await.is_some());
        }
    }

    #[tokio::test]
    async fn requests_whose_replies_are_written_are_not_limited() {
        let (_server, mut transport) = start(&format!("yes '{PING}' & cat > /dev/null"));
        for _ in 0..3 * UNANSWERED {
            assert!(matches!(transport.receive().await, Some(ServerJsonRpcMessage::Request(_))));
            let reply = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
            let reply: ClientJsonRpcMessage = serde_json::from_value(reply).unwrap();
            transport.send(reply).await.unwrap();
        }
    }
}
