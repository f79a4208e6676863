//! Executes an action of a tool that is not built in.

use super::arguments;
use super::definition::ActionDefinition;
use super::result;
use crate::call::{ExternalReply, ToolCall, ToolReply};
use crate::families::Failure;
use crate::families::execution::{Interrupt, Replies, unfit};

/// Executes an action. `substituted` replaces variables in one argument. Fails with the call if its reply is missing.
pub(crate) fn execute(
    action: &ActionDefinition,
    arguments: &str,
    substituted: impl Fn(&str) -> Result<String, Failure>,
    replies: &[ToolReply],
) -> Result<String, Interrupt> {
    let arguments = arguments::parse(arguments, &action.arguments, substituted)?;
    let call = || ToolCall::External {
        name: action.tool.clone().unwrap_or_default(),
        operation: action.call.clone().unwrap_or_else(|| action.name.clone()),
        arguments,
    };
    let most = action.most_characters.unwrap_or(ActionDefinition::USUAL_CHARACTERS);
    match Replies::new(replies).take(call)? {
        ToolReply::External(ExternalReply::Text(text)) => {
            Ok(result::format(action.result.as_deref(), text, most)?)
        }
        ToolReply::External(ExternalReply::Refused(message)) => {
            let message = result::format(None, message, most)?;
            Err(Failure::tool(message).into())
        }
        _ => Err(unfit()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_action_calls_its_tool_once() {
        let action = ActionDefinition {
            name: "Forecast".to_owned(),
            arguments: vec![super::super::ArgumentDefinition::Name("city".to_owned())],
            tool: Some("weather".to_owned()),
            result: Some("{high} °C".to_owned()),
            ..ActionDefinition::default()
        };
        let run = |replies: &[ToolReply]| execute(&action, "Kyoto", |text| Ok(text.to_owned()), replies);
        let Err(Interrupt::Ask(call)) = run(&[]) else { panic!() };
        let arguments = json!({ "city": "Kyoto" });
        let (name, operation) = ("weather".to_owned(), "Forecast".to_owned());
        assert_eq!(call, ToolCall::External { name, operation, arguments });
        let reply = |reply| [ToolReply::External(reply)];
        let text = run(&reply(ExternalReply::Text(r#"{"high": 31}"#.to_owned())));
        assert_eq!(text.ok().as_deref(), Some("31 °C"));
        let refused = run(&reply(ExternalReply::Refused("unknown\ncity".to_owned())));
        assert!(matches!(refused, Err(Interrupt::Failed(failure)) if failure.detail == "unknown city"));
    }
}
