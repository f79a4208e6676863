//! Model backend that replays recorded replies: `script:<cases file>`.
//!
//! A reply is selected by benchmark, formulation, role and exact prompt, so the order of requests does not
//! matter. If several cases share a prompt, the reply of the first one is returned. Replies of a chat model
//! are selected from the recorded tool calls by their messages.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lumos_environments::lines;
use lumos_tasks::recorded::{CallKey, Case, RecordedCall, answer};
use lumos_tasks::{Completion, Formulation, Input, Request, Role, ToolCall, ToolReply};

use super::{ModelBackend, ModelError};

/// All replies of a cases file.
#[derive(Debug)]
pub(super) struct Script {
    replies: HashMap<(String, Formulation, Role), HashMap<String, String>>,
    chats: HashMap<CallKey, RecordedCall>,
}

impl Script {
    /// Reads `.jsonl` or `.jsonl.gz`.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let mut script = Self { replies: HashMap::new(), chats: HashMap::new() };
        for line in lines::open(path)? {
            let (number, line) = line?;
            let case: Case = serde_json::from_str(&line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
            })?;
            script.add(&case);
        }
        Ok(script)
    }

    fn add(&mut self, case: &Case) {
        for role in [Role::Planner, Role::Grounder, Role::Answerer] {
            let replies = self.replies.entry((case.benchmark.clone(), case.formulation, role)).or_default();
            for (prompt, reply) in case.prompts.of(role).iter().zip(case.script.of(role)) {
                replies.entry(prompt.clone()).or_insert_with(|| reply.clone());
            }
        }
        for call in case.tools.iter().filter(|call| call.tool == "chat") {
            if let Some(key) = call.key() {
                self.chats.entry(key).or_insert_with(|| call.clone());
            }
        }
    }
}

/// The replies of one benchmark under one formulation.
pub(super) struct ScriptBackend {
    pub(super) script: Arc<Script>,
    pub(super) benchmark: String,
    pub(super) formulation: Formulation,
    /// Simulated duration of every reply.
    pub(super) latency: Option<Duration>,
}

#[async_trait]
impl ModelBackend for ScriptBackend {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        if let Some(latency) = self.latency {
            tokio::time::sleep(latency).await;
        }
        if let Input::Chat(messages) = request.input {
            let max_new_tokens = request.max_new_tokens;
            let call = ToolCall::Chat { role: request.role, messages, max_new_tokens };
            return match answer(&call, |key| self.script.chats.get(key)) {
                Ok(ToolReply::Chat(reply)) => Ok(Completion {
                    prompt_tokens: reply.prompt_tokens,
                    completion_tokens: reply.completion_tokens,
                    ..Completion::recorded(reply.text)
                }),
                Ok(ToolReply::Raised { message }) => {
                    Err(ModelError::Failed(format!("recorded exception: {message}")))
                }
                Ok(_) => {
                    Err(ModelError::Failed("the script's reply is not a reply of a chat model".to_owned()))
                }
                Err(error) => Err(ModelError::Failed(error.to_string())),
            };
        }
        let key = (self.benchmark.clone(), self.formulation, request.role);
        self.script
            .replies
            .get(&key)
            .and_then(|replies| replies.get(request.prompt()))
            .map(Completion::recorded)
            .ok_or_else(|| {
                let tail: String = request.prompt().chars().rev().take(80).collect();
                let tail: String = tail.chars().rev().collect();
                ModelError::Failed(format!("the script has no reply to the prompt that ends in {tail:?}"))
            })
    }
}
