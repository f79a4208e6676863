//! Programs: `--tool NAME=exec:<program and arguments>`.
//!
//! A program reads one request per line on its standard input and writes one reply per line on its standard output
//! ([`message`]). A process answers one call at a time; further processes start while all are busy. After
//! a timeout or a bad reply, its process is killed, and the next call starts another one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use lumos_tasks::{ToolCall, ToolReply};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::command::{HashedCommand, NamedCommand};
use super::limits::{LARGEST_REPLY, ToolLimits, turn};
use super::message::{self, Request};
use super::process::ToolProcess;
use crate::backend::{BackendDescription, BackendError, BackendResources, NamedBackend};
use crate::replies::Remembering;
use crate::tool::{ToolFault, Tools};

/// `NAME=exec:<command>`.
pub(crate) const BACKEND: BackendDescription = BackendDescription {
    tool: None,
    forms: &["exec:<command>"],
    parse: |tool, backend| {
        let Some(command) = backend.strip_prefix("exec:") else { return Ok(None) };
        let command = NamedCommand::parse(command)?;
        Ok(Some(Box::new(NamedProgram { tool: tool.to_owned(), command })))
    },
};

/// A program as named on the command line.
struct NamedProgram {
    tool: String,
    command: NamedCommand,
}

impl NamedBackend for NamedProgram {
    fn version(&self) -> u32 {
        1
    }

    fn needs_permission(&self) -> bool {
        true
    }

    fn content(&self) -> Result<String, BackendError> {
        Ok(self.command.content()?)
    }

    fn check_host(&self) -> Result<(), String> {
        self.command.check_host()
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        self.check_host().map_err(BackendError::Unusable)?;
        let limits = ToolLimits::from_environment()?;
        let command = self.command.hashed()?.clone();
        Ok(Arc::new(Remembering::new(Arc::new(ExecTool::new(&self.tool, command, limits)))))
    }
}

/// A program and its processes.
struct ExecTool {
    tool: String,
    command: HashedCommand,
    limits: ToolLimits,
    calls: Semaphore,
    /// Processes without a call.
    idle: Mutex<Vec<ToolProcess>>,
    requests: AtomicU64,
}

impl ExecTool {
    fn new(tool: &str, command: HashedCommand, limits: ToolLimits) -> Self {
        Self {
            tool: tool.to_owned(),
            command,
            limits,
            calls: Semaphore::new(limits.concurrency),
            idle: Mutex::default(),
            requests: AtomicU64::new(0),
        }
    }

    /// Returns a process without a call, or starts one.
    async fn process(&self) -> Result<ToolProcess, String> {
        loop {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match idle {
                Some(process) if process.watched.is_running() => return Ok(process),
                Some(_) => tracing::warn!(tool = self.tool, "a process ended between two calls"),
                None => break,
            }
        }
        ToolProcess::start(&self.command, self.limits.memory).await
    }

    /// Makes a call. The process is dropped, and so killed, unless it replied.
    async fn answer(&self, operation: &str, arguments: &serde_json::Value) -> Result<ToolReply, String> {
        let _turn = turn(&self.tool, &self.calls).await;
        let id = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let request = Request { id, operation, arguments };
        let mut request = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        request.push(b'\n');
        let mut process = self.process().await?;
        let line = match timeout(self.limits.call, process.exchange(&request, LARGEST_REPLY)).await {
            Ok(line) => line?,
            Err(_) => {
                let seconds = self.limits.call.as_secs_f64();
                return Err(process.watched.with_tail(format!("no reply within {seconds} s")));
            }
        };
        let reply = message::read(&line, id).map_err(|error| process.watched.with_tail(error))?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(reply)
    }
}

#[async_trait]
impl Tools for ExecTool {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let (operation, arguments) = message::of_call(call, "exec")?;
        let answered = self.answer(operation, arguments).await;
        answered.map_err(|message| ToolFault { tool: self.tool.clone().into(), message })
    }

    async fn shut_down(&self) {
        let idle = std::mem::take(&mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner));
        futures::future::join_all(idle.into_iter().map(|process| process.watched.stop())).await;
    }
}

#[cfg(test)]
#[path = "tests/exec.rs"]
mod tests;
