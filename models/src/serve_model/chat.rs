//! Requests of `/v1/chat/completions` (<https://platform.openai.com/docs/api-reference/chat/create>).

use lumos_tasks::Message;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::fields::Fields;
use super::options::Options;

/// A request for the next message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChatRequest {
    pub(super) model: String,
    /// At least one.
    pub(super) messages: Vec<Message>,
    pub(super) options: Options,
}

/// Content of a message: a string, or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part {
    Text { text: String },
}

impl ChatRequest {
    /// Parses a body. `random` is the seed if the request has none.
    pub(super) fn read(body: &[u8], random: u64) -> Result<Self, ApiError> {
        let mut fields = Fields::read(body)?;
        let model = fields.require("model", "a string")?;
        let given: Vec<Map<String, Value>> = fields.require("messages", "a list of messages")?;
        let is_off = |value: &Value| *value == Value::Bool(false);
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        fields.only("logprobs", is_off)?;
        fields.only("top_logprobs", |value| value.as_u64() == Some(0))?;
        fields.only("tools", is_empty)?;
        fields.only("functions", is_empty)?;
        fields.only("tool_choice", |value| value.as_str() == Some("none"))?;
        fields.only("response_format", |value| value["type"] == "text")?;
        fields.only("modalities", |value| *value == serde_json::json!(["text"]))?;
        fields.ignore(&["parallel_tool_calls"]);
        let options = Options::take(&mut fields, random)?;
        fields.finish()?;
        if given.is_empty() {
            return Err(ApiError::invalid("messages", "`messages` is an empty list"));
        }
        let messages = given
            .into_iter()
            .enumerate()
            .map(|(index, fields)| {
                message(Fields::of(fields)).map_err(|error| ApiError {
                    param: Some(format!("messages[{index}].{}", error.param.unwrap_or_default())),
                    ..error
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { model, messages, options })
    }
}

fn message(mut fields: Fields) -> Result<Message, ApiError> {
    let role: String = fields.require("role", "a string")?;
    let role = match role.as_str() {
        "system" | "user" | "assistant" => role,
        // OpenAI's newer name for `system`, which templates may not support.
        "developer" => "system".to_owned(),
        _ => {
            let message = format!("Unsupported role `{role}`: expected system, user or assistant");
            return Err(ApiError::invalid("role", message));
        }
    };
    let content = match fields.require("content", "a string or a list of parts of type text")? {
        Content::Text(text) => text,
        Content::Parts(parts) => parts.into_iter().map(|Part::Text { text }| text).collect(),
    };
    // Clients may send an earlier reply back with all of its fields.
    fields.only("tool_calls", |value| value.as_array().is_some_and(Vec::is_empty))?;
    fields.only("annotations", |value| value.as_array().is_some_and(Vec::is_empty))?;
    fields.ignore(&["name"]);
    fields.finish()?;
    Ok(Message { role, content })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ChatRequest, ApiError> {
        ChatRequest::read(text.as_bytes(), 0)
    }

    #[test]
    fn conversations_are_read() {
        let request = read(
            r#"{"model": "m", "temperature": 0, "messages": [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Who"}, {"type": "text", "text": "?"}]},
                {"role": "assistant", "content": "Ada", "refusal": null, "tool_calls": null},
                {"role": "user", "content": "And?", "name": "me"}],
                "tools": [], "response_format": {"type": "text"}, "logprobs": false}"#,
        )
        .unwrap();
        let messages: Vec<_> =
            request.messages.iter().map(|one| (one.role.as_str(), one.content.as_str())).collect();
        assert_eq!(
            messages,
            [("system", "Be brief."), ("user", "Who?"), ("assistant", "Ada"), ("user", "And?")]
        );
        assert_eq!(request.options.max_tokens, None);
    }

    #[test]
    fn refusals_name_the_field() {
        let with = |message: &str| format!(r#"{{"model": "m", "messages": [{message}]}}"#);
        let extra = |field: &str| {
            format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "a"}}], {field}}}"#)
        };
        for (text, param) in [
            (with(""), "messages"),
            (with(r#"{"role": "user"}"#), "messages[0].content"),
            (with(r#"{"role": "tool", "content": "a"}"#), "messages[0].role"),
            (with(r#"{"role": "user", "content": [{"type": "image_url"}]}"#), "messages[0].content"),
            (with(r#"{"role": "user", "content": "a", "tool_calls": [1]}"#), "messages[0].tool_calls"),
            (extra(r#""tools": [{}]"#), "tools"),
            (extra(r#""response_format": {"type": "json_object"}"#), "response_format"),
            (extra(r#""logprobs": true"#), "logprobs"),
            (extra(r#""top_logprobs": 3"#), "top_logprobs"),
            (extra(r#""prompt": "a""#), "prompt"),
        ] {
            assert_eq!(read(&text).unwrap_err().param.as_deref(), Some(param), "{text}");
        }
    }
}
