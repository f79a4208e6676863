//! Episodes as conversations, for formats that show messages and tool calls.

use std::collections::BTreeMap;

use lumos_tasks::{Finish, Outcome, Role, Step, ToolReply};
use serde_json::{Map, Value, json};

use crate::display::{observation_text, reply_text};

/// A tool call or an action, and its result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolUse {
    /// Unique in the episode: `call-3`, counted over the steps.
    pub(super) id: String,
    /// Name of the tool or of the action.
    pub(super) function: String,
    /// Its arguments, an object.
    pub(super) arguments: Value,
    /// The result as text.
    pub(super) result: String,
}

impl ToolUse {
    /// Returns a step's tool call or action; `None` for a model's reply.
    pub(super) fn of(index: usize, step: &Step) -> Option<Self> {
        let id = format!("call-{index}");
        match step {
            Step::Generate { .. } => None,
            Step::Call { call, reply, .. } => {
                let mut arguments = json!(call);
                if let Value::Object(fields) = &mut arguments {
                    fields.remove("tool");
                }
                let function = call.tool().to_owned();
                Some(Self { id, function, arguments, result: reply_text(reply) })
            }
            Step::Action { action, observation, .. } => {
                let arguments = json!({"action": action});
                let function = function_of(action).to_owned();
                Some(Self { id, function, arguments, result: observation_text(observation) })
            }
        }
    }
}

/// Returns the function in an action's text: `Calculator` of `R1 = Calculator(1 + 2)`.
fn function_of(action: &str) -> &str {
    let called = action.split('(').next().unwrap_or_default();
    let name = called.rsplit('=').next().unwrap_or_default().trim();
    let is_name = |name: &str| {
        !name.is_empty() && name.chars().all(|character| character.is_alphanumeric() || character == '_')
    };
    if is_name(name) { name } else { "action" }
}

/// A message of a conversation, with the tools that it uses.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Exchange {
    /// `user` or `assistant`.
    pub(super) role: &'static str,
    /// The text, without surrounding white space.
    pub(super) text: String,
    /// The uses of tools that follow.
    pub(super) uses: Vec<ToolUse>,
}

/// Returns an episode's conversation: the task, the models' replies and the uses of tools. Prompts are omitted; they
/// repeat what precedes. An action's own tool calls are omitted where the episode has actions.
pub(super) fn exchanges(task: &str, outcome: &Outcome) -> Vec<Exchange> {
    let has_actions = outcome.steps.iter().any(|step| matches!(step, Step::Action { .. }));
    let mut exchanges = vec![Exchange { role: "user", text: task.trim().to_owned(), uses: Vec::new() }];
    for (index, step) in outcome.steps.iter().enumerate() {
        if let Step::Generate { reply, .. } = step {
            let text = reply.trim().to_owned();
            exchanges.push(Exchange { role: "assistant", text, uses: Vec::new() });
        } else if let Some(used) = ToolUse::of(index, step) {
            if has_actions && matches!(step, Step::Call { .. }) {
                continue;
            }
            match exchanges.last_mut() {
                Some(last) if last.role == "assistant" => last.uses.push(used),
                _ => exchanges.push(Exchange { role: "assistant", text: String::new(), uses: vec![used] }),
            }
        }
    }
    exchanges
}

/// Prompt and generated tokens by role, as far as they were counted.
pub(crate) fn tokens_by_role(outcome: &Outcome) -> BTreeMap<Role, (u64, u64)> {
    let mut tokens: BTreeMap<Role, (u64, u64)> = BTreeMap::new();
    let mut add = |role: Role, read: Option<u32>, written: Option<u32>| {
        let sum = tokens.entry(role).or_default();
        sum.0 += u64::from(read.unwrap_or(0));
        sum.1 += u64::from(written.unwrap_or(0));
    };
    for step in &outcome.steps {
        match step {
            Step::Generate { role, prompt_tokens, completion_tokens, .. } => {
                add(*role, *prompt_tokens, *completion_tokens);
            }
            Step::Call {
                call: lumos_tasks::ToolCall::Chat { role, .. },
                reply: ToolReply::Chat(reply),
                ..
            } => {
                add(*role, reply.prompt_tokens, reply.completion_tokens);
            }
            Step::Call { .. } | Step::Action { .. } => {}
        }
    }
    tokens
}

/// Returns token counts in the form that inspect and every-eval-ever share.
pub(super) fn usage((read, written): (u64, u64)) -> Value {
    json!({"input_tokens": read, "output_tokens": written, "total_tokens": read + written})
}

/// Returns why a reply ended, in the terms of inspect.
pub(super) fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::EndOfSequence => "stop",
        Finish::Length => "max_tokens",
    }
}

/// Collects values by name.
pub(super) fn object(entries: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(entries.into_iter().collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use lumos_coordinator::samples::{configuration, item, manifest_of, state};
    use lumos_coordinator::unit_of;

    use super::*;

    #[test]
    fn functions_are_named_by_the_action() {
        for (action, function) in [
            ("R1 = Calculator(1 + 2)", "Calculator"),
            ("R1, R2 = KnowledgeQuery(Kyoto)", "KnowledgeQuery"),
            ("Click(x)", "Click"),
            ("no call at all", "action"),
            ("", "action"),
            ("a b (c)", "action"),
        ] {
            assert_eq!(function_of(action), function, "{action}");
        }
    }

    #[test]
    fn an_episode_is_a_conversation() {
        let items = [item(3)];
        let manifest = manifest_of(&[configuration(0)], &items);
        let record = state(3, &unit_of(&manifest.configurations[0], &items[0])).unwrap();
        let exchanges = exchanges(" The task. ", &record.outcome);
        let shown: Vec<_> =
            exchanges.iter().map(|one| (one.role, one.text.as_str(), one.uses.len())).collect();
        assert_eq!(
            shown,
            [
                ("user", "The task.", 0),
                ("assistant", "Subgoal 1: <b>Add</b> & 'count'", 0),
                ("assistant", "R1 = Calculator(1 + 2)", 1),
            ]
        );
        let used = &exchanges[2].uses[0];
        assert_eq!((used.function.as_str(), used.id.as_str()), ("Calculator", "call-3"));
        let tokens = tokens_by_role(&record.outcome);
        assert_eq!(tokens.values().map(|(read, written)| read + written).sum::<u64>(), 220);
        let (read, written) = record.outcome.tokens();
        assert_eq!(read + written, 220);
    }
}
