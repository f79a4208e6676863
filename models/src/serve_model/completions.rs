//! Requests of `/v1/completions` (<https://platform.openai.com/docs/api-reference/completions/create>).

use lumos_engine::Prompt;
use serde::Deserialize;
use serde_json::Value;

use super::error::ApiError;
use super::fields::Fields;
use super::options::Options;

/// Default of `max_tokens`, as in OpenAI's interface.
const USUAL_LIMIT: usize = 16;

/// A request to complete prompts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CompletionRequest {
    pub(super) model: String,
    /// At least one. Texts are used unchanged, without special tokens.
    pub(super) prompts: Vec<Prompt>,
    pub(super) options: Options,
}

/// Forms of a prompt.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PromptInput {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    Lists(Vec<Vec<u32>>),
}

impl CompletionRequest {
    /// Parses a body. `random` is the seed if the request has none.
    pub(super) fn read(body: &[u8], random: u64) -> Result<Self, ApiError> {
        let mut fields = Fields::read(body)?;
        let model = fields.require("model", "a string")?;
        let prompt = fields.require(
            "prompt",
            "a string, a list of strings, a list of token ids, or a list of lists of token ids",
        )?;
        fields.only("echo", |value| *value == Value::Bool(false))?;
        fields.only("suffix", |value| value.as_str() == Some(""))?;
        if fields.take::<Value>("logprobs", "an integer")?.is_some() {
            let message =
                "This server does not support `logprobs`: the engine returns the chosen tokens only";
            return Err(ApiError::unsupported("logprobs", message));
        }
        let mut options = Options::take(&mut fields, random)?;
        options.max_tokens.get_or_insert(USUAL_LIMIT);
        fields.finish()?;
        let prompts: Vec<Prompt> = match prompt {
            PromptInput::Text(text) => vec![Prompt::Text(text)],
            PromptInput::Texts(texts) => texts.into_iter().map(Prompt::Text).collect(),
            PromptInput::Tokens(tokens) => vec![Prompt::Tokens(tokens)],
            PromptInput::Lists(lists) => lists.into_iter().map(Prompt::Tokens).collect(),
        };
        if prompts.is_empty() {
            return Err(ApiError::invalid("prompt", "`prompt` is an empty list"));
        }
        Ok(Self { model, prompts, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CompletionRequest, ApiError> {
        CompletionRequest::read(text.as_bytes(), 0)
    }

    #[test]
    fn prompts_come_in_four_forms() {
        let prompts = |prompt: &str| {
            let request =
                read(&format!(r#"{{"model": "m", "prompt": {prompt}, "logprobs": null}}"#)).unwrap();
            assert_eq!((request.model.as_str(), request.options.max_tokens), ("m", Some(16)));
            request.prompts
        };
        let text = |text: &str| Prompt::Text(text.to_owned());
        assert_eq!(prompts(r#""a""#), [text("a")]);
        assert_eq!(prompts(r#"["a", "b"]"#), [text("a"), text("b")]);
        assert_eq!(prompts("[1, 2]"), [Prompt::Tokens(vec![1, 2])]);
        assert_eq!(prompts("[[1, 2], [3]]"), [Prompt::Tokens(vec![1, 2]), Prompt::Tokens(vec![3])]);
    }

    #[test]
    fn refusals_name_the_field() {
        for (text, param) in [
            (r#"{"prompt": "a"}"#, "model"),
            (r#"{"model": "m"}"#, "prompt"),
            (r#"{"model": "m", "prompt": []}"#, "prompt"),
            (r#"{"model": "m", "prompt": [1, "a"]}"#, "prompt"),
            (r#"{"model": "m", "prompt": "a", "echo": true}"#, "echo"),
            (r#"{"model": "m", "prompt": "a", "logprobs": 0}"#, "logprobs"),
            (r#"{"model": "m", "prompt": "a", "suffix": "b"}"#, "suffix"),
            (r#"{"model": "m", "prompt": "a", "messages": []}"#, "messages"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{text}");
        }
    }
}
