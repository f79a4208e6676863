//! Requests to programs and servers, and their replies, as JSON.
//!
//! ```text
//! {"id": 7, "operation": "forecast", "arguments": {"city": "Kyoto"}}
//! {"id": 7, "text": "31 °C"}                 or {"id": 7, "text": {"high": 31}}
//! {"id": 7, "refused": "unknown city"}
//! ```

use lumos_tasks::{ExternalReply, ToolCall, ToolReply};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::{ToolFault, not_mine};

/// Maximum characters of a tool's output in a message.
const LONGEST_QUOTE: usize = 200;

/// A call to a tool.
#[derive(Debug, Serialize)]
pub(super) struct Request<'a> {
    /// Counted from 1 for each backend.
    pub(super) id: u64,
    /// The operation that the action names.
    pub(super) operation: &'a str,
    /// A JSON object.
    pub(super) arguments: &'a Value,
}

/// The reply to a call: exactly one of `text` and `refused`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    /// The `id` of the request. It can be left out.
    #[serde(default)]
    id: Option<Value>,
    /// The result. A value that is not a text is passed on as JSON.
    #[serde(default)]
    text: Option<Value>,
    /// Why the call is rejected, for the agent.
    #[serde(default)]
    refused: Option<String>,
}

/// Returns the operation and the arguments of a call.
pub(super) fn of_call<'a>(call: &'a ToolCall, backend: &str) -> Result<(&'a str, &'a Value), ToolFault> {
    match call {
        ToolCall::External { operation, arguments, .. } => Ok((operation, arguments)),
        other => Err(not_mine(other, backend)),
    }
}

/// Reads the reply to the request with this identifier.
///
/// # Errors
/// A message that quotes the beginning of the reply.
pub(super) fn read(reply: &[u8], id: u64) -> Result<ToolReply, String> {
    let invalid = |why: &str| format!("invalid reply `{}`: {why}", quoted(reply));
    let reply: Reply = serde_json::from_slice(reply).map_err(|error| invalid(&error.to_string()))?;
    if let Some(other) = reply.id.filter(|other| other.as_u64() != Some(id)) {
        return Err(format!("the reply has the id {}; expected {id}", quoted(other.to_string().as_bytes())));
    }
    let reply = match (reply.text, reply.refused) {
        (Some(Value::String(text)), None) => ExternalReply::Text(text),
        (Some(value), None) => ExternalReply::Text(value.to_string()),
        (None, Some(message)) => ExternalReply::Refused(message),
        _ => return Err(invalid("expected either `text` or `refused`")),
    };
    Ok(ToolReply::External(reply))
}

/// Escapes and shortens the output of a tool for a message.
pub(super) fn quoted(output: &[u8]) -> String {
    let most = output.len().min(LONGEST_QUOTE * 4);
    let text = String::from_utf8_lossy(&output[..most]);
    let text = text.trim();
    let mut quoted: String =
        text.chars().take(LONGEST_QUOTE).map(|one| if one.is_control() { ' ' } else { one }).collect();
    if text.chars().nth(LONGEST_QUOTE).is_some() || most < output.len() {
        quoted.push('…');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_a_text_or_a_refusal() {
        let text = |text: &str| Ok(ToolReply::External(ExternalReply::Text(text.to_owned())));
        assert_eq!(read(br#"{"text": "31 \u00b0C"}"#, 7), text("31 °C"));
        assert_eq!(read(br#"{"id": 7, "text": {"high": 31}}"#, 7), text(r#"{"high":31}"#));
        let refused = ToolReply::External(ExternalReply::Refused("unknown city".to_owned()));
        assert_eq!(read(br#"{"refused": "unknown city"}"#, 7), Ok(refused));
        for (reply, why) in [
            ("{}", "expected either"),
            (r#"{"text": null}"#, "expected either"),
            (r#"{"text": "a", "refused": "b"}"#, "expected either"),
            (r#"{"id": 6, "text": "a"}"#, "the id 6; expected 7"),
            (r#"{"texts": "a"}"#, "unknown field `texts`"),
            ("Traceback (most recent", "invalid reply `Traceback (most recent`"),
            ("", "invalid reply ``"),
        ] {
            let error = read(reply.as_bytes(), 7).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn quotes_are_short_and_harmless() {
        let quote = quoted(&b"\x1b[2J\xff".repeat(1 << 20));
        assert!(quote.chars().count() <= LONGEST_QUOTE + 1 && !quote.contains('\u{1b}'), "{quote}");
        assert!(quote.ends_with('…'));
        assert_eq!(quoted("Kyoto\n".as_bytes()), "Kyoto");
    }
}
