//! Recorded replies as a backend: `--tool maths=recorded:<cases file>`, also for `wiki` and `rank`.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use async_trait::async_trait;
use lumos_environments::lines;
use lumos_tasks::recorded::{self, CallKey, Case, RecordedCall};
use lumos_tasks::{ToolCall, ToolReply};

use super::{ToolFault, Tools};

/// Recorded replies by call, from a cases file. The first reply recorded for a call is used.
#[derive(Debug, Default)]
pub struct RecordedTools {
    calls: HashMap<CallKey, RecordedCall>,
}

impl RecordedTools {
    /// Reads a `.jsonl` or `.jsonl.gz` file.
    ///
    /// # Errors
    /// If the file cannot be read or a line is not a recorded case.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut tools = Self::default();
        for line in lines::open(path)? {
            let (number, line) = line?;
            let case: Case = serde_json::from_str(&line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
            })?;
            for call in case.tools {
                if let Some(key) = call.key() {
                    tools.calls.entry(key).or_insert(call);
                }
            }
        }
        Ok(tools)
    }
}

#[async_trait]
impl Tools for RecordedTools {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        recorded::answer(call, |key| self.calls.get(key))
            .map_err(|error| ToolFault { tool: call.tool(), message: error.to_string() })
    }
}
