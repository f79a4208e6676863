//! Responses in OpenAI's format, in full and as streamed chunks.

use lumos_engine::{FinishReason, Generation, TokenUsage};
use serde_json::{Value, json};

/// Interface of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interface {
    /// `/v1/completions`.
    Completions,
    /// `/v1/chat/completions`.
    Chat,
}

impl Interface {
    /// Prefix of response ids.
    pub(super) fn id_prefix(self) -> &'static str {
        match self {
            Self::Completions => "cmpl",
            Self::Chat => "chatcmpl",
        }
    }
}

/// Fields that all objects of one response share.
#[derive(Debug, Clone)]
pub(super) struct Heading {
    pub(super) interface: Interface,
    pub(super) id: String,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) model: String,
    /// Whether chunks have a `usage` field, which is null except in the last chunk.
    pub(super) include_usage: bool,
}

impl Heading {
    /// Returns the full response, with one choice per prompt.
    pub(super) fn whole(&self, generations: &[Generation]) -> Value {
        let choices = generations.iter().enumerate().map(|(index, generation)| {
            let reason = finish_reason(generation.finish);
            match self.interface {
                Interface::Completions => {
                    json!({"index": index, "text": generation.text, "logprobs": null, "finish_reason": reason})
                }
                Interface::Chat => json!({
                    "index": index,
                    "message": {"role": "assistant", "content": generation.text, "refusal": null},
                    "logprobs": null,
                    "finish_reason": reason,
                }),
            }
        });
        let object = match self.interface {
            Interface::Completions => "text_completion",
            Interface::Chat => "chat.completion",
        };
        let choices: Vec<Value> = choices.collect();
        let total = generations.iter().fold(TokenUsage::default(), |total, one| sum(total, one.usage));
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            "usage": usage(total),
        })
    }

    /// Returns the chunk before the first text of a choice, if the interface has one.
    pub(super) fn opening(&self, index: usize) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        (self.interface == Interface::Chat).then(|| self.piece(index, delta, None))
    }

    /// Returns a chunk with more text of a choice.
    pub(super) fn delta(&self, index: usize, text: &str) -> Value {
        let delta = match self.interface {
            Interface::Completions => json!(text),
            Interface::Chat => json!({"content": text}),
        };
        self.piece(index, delta, None)
    }

    /// Returns the last chunk of a choice.
    pub(super) fn end(&self, index: usize, finish: FinishReason) -> Value {
        let delta = match self.interface {
            Interface::Completions => json!(""),
            Interface::Chat => json!({}),
        };
        self.piece(index, delta, Some(finish))
    }

    /// Returns the final chunk with the usage of all choices, sent if requested.
    pub(super) fn used(&self, total: TokenUsage) -> Value {
        self.chunk(&[], usage(total))
    }

    fn piece(&self, index: usize, delta: Value, finish: Option<FinishReason>) -> Value {
        let mut choice = json!({"index": index});
        let name = match self.interface {
            Interface::Completions => "text",
            Interface::Chat => "delta",
        };
        choice[name] = delta;
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = json!(finish.map(finish_reason));
        self.chunk(&[choice], Value::Null)
    }

    fn chunk(&self, choices: &[Value], used: Value) -> Value {
        let object = match self.interface {
            Interface::Completions => "text_completion",
            Interface::Chat => "chat.completion.chunk",
        };
        let mut chunk = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = used;
        }
        chunk
    }
}

/// Adds the usage of two sequences. Replies do not contain counts of drafts, so that they do not depend on the setting.
pub(super) fn sum(one: TokenUsage, other: TokenUsage) -> TokenUsage {
    TokenUsage {
        prompt_tokens: one.prompt_tokens + other.prompt_tokens,
        completion_tokens: one.completion_tokens + other.completion_tokens,
        cached_tokens: one.cached_tokens + other.cached_tokens,
        ..TokenUsage::default()
    }
}

fn usage(usage: TokenUsage) -> Value {
    json!({
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    })
}

fn finish_reason(finish: FinishReason) -> &'static str {
    match finish {
        FinishReason::Stop | FinishReason::EndOfSequence => "stop",
        FinishReason::Length => "length",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heading(interface: Interface, include_usage: bool) -> Heading {
        let (id, model) = ("x-1".to_owned(), "m".to_owned());
        Heading { interface, id, created: 5, model, include_usage }
    }

    fn generation(text: &str) -> Generation {
        Generation {
            prompt_tokens: vec![1, 2, 3],
            tokens: vec![4],
            text: text.to_owned(),
            finish: FinishReason::EndOfSequence,
            usage: TokenUsage {
                prompt_tokens: 3,
                completion_tokens: 2,
                cached_tokens: 1,
                ..Default::default()
            },
            first_logits: Vec::new(),
        }
    }

    #[test]
    fn whole_answers_have_a_choice_per_prompt_and_add_up_what_was_used() {
        let whole = heading(Interface::Completions, false).whole(&[generation("a"), generation("b")]);
        assert_eq!(
            whole.to_string(),
            r#"{"id":"x-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":"stop"},{"index":1,"text":"b","logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":6,"completion_tokens":4,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":2}}}"#
        );
        let chat = heading(Interface::Chat, false).whole(&[generation("a")]);
        assert_eq!(chat["object"], "chat.completion");
        assert_eq!(chat["choices"][0]["message"]["content"], "a");
    }

    #[test]
    fn pieces_have_openai_s_form() {
        let chat = heading(Interface::Chat, true);
        assert_eq!(
            chat.delta(2, "é").to_string(),
            r#"{"id":"x-1","object":"chat.completion.chunk","created":5,"model":"m","choices":[{"index":2,"delta":{"content":"é"},"logprobs":null,"finish_reason":null}],"usage":null}"#
        );
        assert_eq!(chat.opening(0).unwrap()["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(chat.end(0, FinishReason::Length)["choices"][0]["finish_reason"], "length");
        let last = chat.used(generation("").usage);
        assert_eq!((&last["choices"], &last["usage"]["total_tokens"]), (&json!([]), &json!(5)));
        let raw = heading(Interface::Completions, false);
        assert_eq!(
            raw.delta(0, "a").to_string(),
            r#"{"id":"x-1","object":"text_completion","created":5,"model":"m","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}]}"#
        );
        assert!(raw.opening(0).is_none());
    }
}
