//! Requests and answers of the chat-completions and completions interfaces, with vLLM's extensions.

use lumos_tasks::{Completion, Finish, Input, Request, Sampling, Stop, python};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A field beyond OpenAI's that a prompt is sent with, so that it is read and answered as the engine does. Servers that
/// know no such field mostly pass it over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extension {
    /// Keeps vLLM from putting a BOS before raw text.
    SpecialTokens,
    /// Keeps llama-cpp-python's server from its penalty of 1.1 for tokens that were there before.
    RepeatPenalty,
    /// Keeps vLLM from the penalty that a model's generation_config.json may hold.
    RepetitionPenalty,
}

impl Extension {
    pub(super) const ALL: [Self; 3] = [Self::SpecialTokens, Self::RepeatPenalty, Self::RepetitionPenalty];

    /// What the field is called.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::SpecialTokens => "add_special_tokens",
            Self::RepeatPenalty => "repeat_penalty",
            Self::RepetitionPenalty => "repetition_penalty",
        }
    }

    /// The value that asks for nothing.
    fn value(self) -> Value {
        match self {
            Self::SpecialTokens => json!(false),
            Self::RepeatPenalty | Self::RepetitionPenalty => json!(1.0),
        }
    }

    /// What may be otherwise without it, for people.
    pub(super) fn risk(self) -> &'static str {
        match self {
            Self::SpecialTokens => {
                "it may add a BOS token to prompts of models that were trained without one"
            }
            Self::RepeatPenalty | Self::RepetitionPenalty => "it may penalise tokens that occurred earlier",
        }
    }
}

/// What a server understands, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// Which of [`Extension::ALL`] raw prompts are sent with.
    pub(super) extensions: [bool; 3],
    /// The limit of a chat's reply is called `max_tokens`; OpenAI's later models insist on
    /// `max_completion_tokens`.
    pub(super) max_tokens: bool,
}

impl Default for Dialect {
    fn default() -> Self {
        Self { extensions: [true; 3], max_tokens: true }
    }
}

impl Dialect {
    /// Whether raw prompts are sent with an extension.
    pub(super) fn has(self, extension: Extension) -> bool {
        self.extensions[extension as usize]
    }

    /// The same without an extension.
    pub(super) fn without(mut self, extension: Extension) -> Self {
        self.extensions[extension as usize] = false;
        self
    }
}

/// Whether a request is a chat, and so goes to the chat interface.
pub(super) fn is_chat(request: &Request) -> bool {
    matches!(request.input, Input::Chat(_))
}

/// Where a request goes below the base address.
pub(super) fn path(request: &Request) -> &'static str {
    if is_chat(request) { "chat/completions" } else { "completions" }
}

/// A request's body.
pub(super) fn body(model: &str, request: &Request, dialect: Dialect) -> Value {
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    put("model", json!(model));
    match &request.input {
        Input::Raw(text) => {
            put("prompt", json!(text));
            if dialect.has(Extension::SpecialTokens) {
                put(Extension::SpecialTokens.field(), Extension::SpecialTokens.value());
            }
        }
        Input::Tokens(tokens) => put("prompt", json!(tokens)),
        Input::Chat(messages) => put("messages", json!(messages)),
    }
    let limit = if is_chat(request) && !dialect.max_tokens { "max_completion_tokens" } else { "max_tokens" };
    put(limit, json!(request.max_new_tokens));
    match request.sampling {
        Sampling::Greedy => put("temperature", json!(0)),
        Sampling::Random { temperature, top_p, top_k } => {
            put("temperature", json!(temperature));
            if let Some(top_p) = top_p {
                put("top_p", json!(top_p));
            }
            if let Some(top_k) = top_k {
                put("top_k", json!(top_k));
            }
            // As much of the seed as every reader of JSON keeps.
            put("seed", json!(request.seed & ((1 << 53) - 1)));
        }
    }
    for penalty in [Extension::RepeatPenalty, Extension::RepetitionPenalty] {
        if !is_chat(request) && dialect.has(penalty) {
            put(penalty.field(), penalty.value());
        }
    }
    match &request.stop {
        Stop::Newline => put("stop", json!(["\n"])),
        Stop::Text(text) => put("stop", json!([text])),
        Stop::Tokens(tokens) => put("stop_token_ids", json!(tokens)),
        Stop::Never => {}
    }
    Value::Object(body)
}

/// An answer, as far as it is read.
#[derive(Debug, Deserialize)]
struct Answer {
    choices: Vec<Choice>,
    /// Read leniently: an answer is no worse for a strange count.
    #[serde(default)]
    usage: Value,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    message: Option<Message>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Option<String>,
}

/// Reads an answer; why it is none, for people.
pub(super) fn read(answer: &[u8], request: &Request) -> Result<Completion, String> {
    let Answer { choices, usage } =
        serde_json::from_slice(answer).map_err(|error| format!("invalid response: {error}"))?;
    let choice = choices.into_iter().next().ok_or("invalid response: no choices")?;
    let text = if is_chat(request) {
        let message = choice.message.ok_or("invalid response: no message")?;
        // A model that refuses to answer gives no content.
        message.content.as_deref().map(python::strip).unwrap_or_default().to_owned()
    } else {
        choice.text.ok_or("invalid response: no text")?
    };
    // A server may leave the stop in, or know nothing of stops.
    let stop = match &request.stop {
        Stop::Newline => Some("\n"),
        Stop::Text(text) => Some(text.as_str()),
        Stop::Tokens(_) | Stop::Never => None,
    };
    let cut = stop.filter(|stop| !stop.is_empty()).and_then(|stop| text.find(stop));
    let finish = match (cut, choice.finish_reason.as_deref()) {
        (Some(_), _) => Finish::Stop,
        (None, Some("length")) => Finish::Length,
        // Whether the stop or the end of the sequence came first is not said.
        (None, _) if request.stop != Stop::Never => Finish::Stop,
        (None, _) => Finish::EndOfSequence,
    };
    let text = match cut {
        Some(end) => text[..end].to_owned(),
        None => text,
    };
    let count = |value: &Value| value.as_u64().and_then(|tokens| u32::try_from(tokens).ok());
    Ok(Completion {
        text,
        finish,
        prompt_tokens: count(&usage["prompt_tokens"]),
        completion_tokens: count(&usage["completion_tokens"]),
        cached_tokens: count(&usage["prompt_tokens_details"]["cached_tokens"]),
        cost: None,
    })
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{Message, Role};
    use proptest::prelude::*;

    use super::*;

    fn request(input: Input, stop: Stop) -> Request {
        Request { role: Role::Planner, input, stop, max_new_tokens: 512, sampling: Sampling::Greedy, seed: 7 }
    }

    fn chat() -> Request {
        let message = Message { role: "user".to_owned(), content: "Who?".to_owned() };
        request(Input::Chat(vec![message]), Stop::Never)
    }

    #[test]
    fn bodies_say_what_is_asked() {
        let raw = request(Input::Raw("<|user|>".to_owned()), Stop::Newline);
        assert_eq!(
            body("m", &raw, Dialect::default()).to_string(),
            r#"{"model":"m","prompt":"<|user|>","add_special_tokens":false,"max_tokens":512,"temperature":0,"repeat_penalty":1.0,"repetition_penalty":1.0,"stop":["\n"]}"#
        );
        let sampled = Request {
            sampling: Sampling::Random { temperature: 0.7, top_p: Some(0.9), top_k: Some(40) },
            seed: u64::MAX,
            ..request(Input::Tokens(vec![1, 2]), Stop::Tokens(vec![13]))
        };
        assert_eq!(
            body("m", &sampled, Extension::ALL.into_iter().fold(Dialect::default(), Dialect::without))
                .to_string(),
            r#"{"model":"m","prompt":[1,2],"max_tokens":512,"temperature":0.7,"top_p":0.9,"top_k":40,"seed":9007199254740991,"stop_token_ids":[13]}"#
        );
        assert_eq!(
            body("m", &chat(), Dialect { max_tokens: false, ..Dialect::default() }).to_string(),
            r#"{"model":"m","messages":[{"role":"user","content":"Who?"}],"max_completion_tokens":512,"temperature":0}"#
        );
    }

    #[test]
    fn answers_are_read() {
        let (raw, chat) = (request(Input::Raw(String::new()), Stop::Newline), chat());
        let answer = br#"{"choices":[{"text":" Subgoal 1\nmore","finish_reason":"length"}],
            "usage":{"prompt_tokens":3,"completion_tokens":-1,"prompt_tokens_details":{"cached_tokens":2}}}"#;
        let completion = read(answer, &raw).unwrap();
        assert_eq!((completion.text.as_str(), completion.finish), (" Subgoal 1", Finish::Stop));
        assert_eq!((completion.prompt_tokens, completion.completion_tokens), (Some(3), None));
        assert_eq!(completion.cached_tokens, Some(2));
        let reply =
            |answer: &str, request| read(answer.as_bytes(), request).map(|read| (read.text, read.finish));
        assert_eq!(
            reply(r#"{"choices":[{"message":{"content":" Answer: Ada\n"},"finish_reason":"stop"}]}"#, &chat),
            Ok(("Answer: Ada".to_owned(), Finish::EndOfSequence))
        );
        assert_eq!(
            reply(r#"{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}"#, &chat),
            Ok((String::new(), Finish::EndOfSequence))
        );
        assert_eq!(
            reply(r#"{"choices":[{"text":"a","finish_reason":"length"}],"usage":null}"#, &raw),
            Ok(("a".to_owned(), Finish::Length))
        );
        for (answer, wanted) in [
            ("{\"choices\":[{\"text\":\"a", &raw),
            ("{\"choices\":[]}", &raw),
            ("{\"choices\":[{}]}", &raw),
            ("{\"choices\":[{\"text\":\"a\"}]}", &chat),
            ("[]", &raw),
        ] {
            assert!(read(answer.as_bytes(), wanted).is_err(), "{answer}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_answers_are_read(answer in any::<Vec<u8>>(), text in any::<String>()) {
            let raw = request(Input::Raw(String::new()), Stop::Newline);
            let _ = read(&answer, &raw);
            let answer = json!({"choices": [{"text": text}]}).to_string();
            let cut = read(answer.as_bytes(), &raw).unwrap();
            prop_assert_eq!(cut.text.as_str(), text.split('\n').next().unwrap());
        }
    }
}
