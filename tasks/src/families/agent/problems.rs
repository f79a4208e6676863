//! Checks the values of a definition.

use std::collections::BTreeSet;

use super::definition::{ActionDefinition, AgentDefinition, FinalAnswer, Operation};
use super::result;
use crate::configuration::ToolBackend;

/// Limits of lists.
const MOST_ACTIONS: usize = 64;
const MOST_ARGUMENTS: usize = 16;
const MOST_EXAMPLES: usize = 16;
const MOST_CHARACTERS: usize = 100_000;

pub(super) fn problems(agent: &AgentDefinition) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut add = |key: &str, message: String| found.push((key.to_owned(), message));
    if agent.actions.is_empty() || agent.actions.len() > MOST_ACTIONS {
        add("agent.actions", format!("expected 1 to {MOST_ACTIONS} actions"));
    }
    if agent.examples.len() > MOST_EXAMPLES {
        add("agent.examples", format!("expected at most {MOST_EXAMPLES} examples"));
    }
    let size = serde_json::to_vec(agent).map_or(usize::MAX, |json| json.len());
    if size > AgentDefinition::MOST_BYTES {
        add("agent", format!("{size} bytes; expected at most {}", AgentDefinition::MOST_BYTES));
    }
    let mut names = BTreeSet::new();
    for (index, action) in agent.actions.iter().enumerate() {
        let mut add = |key: &str, message: String| add(&format!("agent.actions[{index}].{key}"), message);
        check(action, &mut add);
        if !names.insert(&action.name) {
            add("name", format!("two actions are named `{}`", action.name));
        }
    }
    let executed = |action: &ActionDefinition| action.operation().is_some();
    if !agent.actions.is_empty() && !agent.actions.iter().any(executed) {
        add("agent.actions.tool", "no action has a tool".to_owned());
    }
    if agent.answer == FinalAnswer::Ask && agent.actions.iter().any(is_external) && agent.paper_quirks {
        add("agent.paper_quirks", "only agents with built-in tools have a published script".to_owned());
    }
    found
}

fn is_external(action: &ActionDefinition) -> bool {
    action.operation() == Some(Operation::External)
}

fn is_word(text: &str) -> bool {
    let plain = |character: char| character.is_ascii_alphanumeric() || character == '_';
    text.chars().next().is_some_and(|first| first.is_ascii_alphabetic()) && text.chars().all(plain)
}

fn check(action: &ActionDefinition, add: &mut impl FnMut(&str, String)) {
    let name = &action.name;
    if !is_word(name) {
        add("name", format!("invalid name `{name}`: use letters, digits and `_`, starting with a letter"));
    }
    let known = || Operation::BUILT_IN.iter().filter(|(tool, ..)| Some(*tool) == action.tool.as_deref());
    match (&action.tool, action.operation()) {
        (Some(tool), None) if Operation::WITH_SESSIONS.contains(&tool.as_str()) => {
            add("tool", format!("action `{name}`: only the family `{tool}` can call the tool `{tool}`"));
        }
        (Some(tool), None) => {
            let calls: Vec<_> = known().map(|(_, call, _)| *call).collect();
            let call = action.call.as_deref().unwrap_or_default();
            add(
                "call",
                format!(
                    "action `{name}`: tool `{tool}` has no operation `{call}`; expected {}",
                    calls.join(" or ")
                ),
            );
        }
        (Some(tool), Some(Operation::External)) if !ToolBackend::is_tool_name(tool) => add(
            "tool",
            format!(
                "action `{name}`: invalid tool name `{tool}`: use lower-case letters, digits, `-` and `_`"
            ),
        ),
        _ => {}
    }
    if !is_external(action) && (action.result.is_some() || action.most_characters.is_some()) {
        add(
            "result",
            format!("action `{name}`: result and most_characters are for tools that are not built in"),
        );
    }
    if let Some(problem) = action.result.as_deref().and_then(result::problem) {
        add("result", format!("action `{name}`: {problem}"));
    }
    if action.most_characters.is_some_and(|most| !(1..=MOST_CHARACTERS).contains(&most)) {
        add("most_characters", format!("action `{name}`: expected 1 to {MOST_CHARACTERS}"));
    }
    if action.arguments.len() > MOST_ARGUMENTS {
        add("arguments", format!("action `{name}`: expected at most {MOST_ARGUMENTS} arguments"));
    }
    let mut names = BTreeSet::new();
    let mut optional = false;
    for argument in &action.arguments {
        let argument_name = argument.name();
        if argument_name.is_empty() {
            add("arguments", format!("action `{name}`: an argument has no name"));
        }
        if !names.insert(argument_name) {
            add("arguments", format!("action `{name}`: two arguments are named `{argument_name}`"));
        }
        if optional && !argument.is_optional() {
            add(
                "arguments",
                format!("action `{name}`: the required argument `{argument_name}` follows an optional one"),
            );
        }
        optional |= argument.is_optional();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str) -> Vec<(String, String)> {
        serde_json::from_str::<AgentDefinition>(json).unwrap().problems()
    }

    #[test]
    fn problems_name_the_key_and_the_action() {
        for (json, key, message) in [
            ("{}", "agent.actions", "expected 1 to 64"),
            (r#"{"actions": [{"name": "A b", "tool": "x"}]}"#, "agent.actions[0].name", "`A b`"),
            (r#"{"actions": [{"name": "A"}]}"#, "agent.actions.tool", "no action has a tool"),
            (
                r#"{"actions": [{"name": "A", "tool": "x"}, {"name": "A", "tool": "x"}]}"#,
                "agent.actions[1].name",
                "two actions",
            ),
            (
                r#"{"actions": [{"name": "A", "tool": "shop"}, {"name": "B", "tool": "x"}]}"#,
                "agent.actions[0].tool",
                "only the family",
            ),
            (r#"{"actions": [{"name": "A", "tool": "X y"}]}"#, "agent.actions[0].tool", "invalid tool name"),
            (
                r#"{"actions": [{"name": "A", "tool": "qa", "call": "sing"}, {"name": "B", "tool": "x"}]}"#,
                "agent.actions[0].call",
                "expected answer or calculate",
            ),
            (
                r#"{"actions": [{"name": "A", "tool": "maths", "result": "{}"}]}"#,
                "agent.actions[0].result",
                "not built in",
            ),
            (
                r#"{"actions": [{"name": "A", "tool": "x", "result": "{a"}]}"#,
                "agent.actions[0].result",
                "unmatched brace",
            ),
            (
                r#"{"actions": [{"name": "A", "tool": "x", "most_characters": 0}]}"#,
                "agent.actions[0].most_characters",
                "1 to",
            ),
            (
                r#"{"actions": [{"name": "A", "tool": "x", "arguments": ["a", "a"]}]}"#,
                "agent.actions[0].arguments",
                "two arguments",
            ),
            (
                r#"{"actions": [{"name": "A", "tool": "x", "arguments": [{"name": "a", "optional": true}, "b"]}]}"#,
                "agent.actions[0].arguments",
                "follows an optional",
            ),
        ] {
            let found = found(json);
            assert!(found.iter().any(|(at, why)| at == key && why.contains(message)), "{json}: {found:?}");
        }
        assert_eq!(found(r#"{"actions": [{"name": "A", "tool": "x"}]}"#), []);
    }
}
