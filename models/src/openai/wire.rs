//! Requests and responses of the chat-completions and completions interfaces, with vLLM's extensions.

use std::fmt;

use lumos_tasks::{Completion, Finish, Input, Request, Sampling, Stop, python};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::chat_reply;

/// Bytes of a reply's text that are kept for each token of the request's limit. Tokens have about four bytes, so only a
/// server that ignores the limit sends more. Later requests of an episode repeat the text.
const BYTES_PER_TOKEN: usize = 64;
/// Bytes of a reply's text that are kept for any limit.
const SHORT_REPLY: usize = 16 << 10;
/// Longest message about an invalid response in bytes. The message quotes a string in an unexpected place.
const LONGEST_MESSAGE: usize = 1 << 10;

/// A field beyond OpenAI's interface that makes a server handle a prompt as the engine does. Most servers
/// ignore unknown fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extension {
    /// Keeps vLLM from prepending a BOS token to raw text.
    SpecialTokens,
    /// Disables the default repeat penalty of 1.1 in llama-cpp-python's server.
    RepeatPenalty,
    /// Disables the penalty that vLLM may take from a model's generation_config.json.
    RepetitionPenalty,
}

impl Extension {
    pub(super) const ALL: [Self; 3] = [Self::SpecialTokens, Self::RepeatPenalty, Self::RepetitionPenalty];

    /// Name of the field.
    pub(super) fn field(self) -> &'static str {
        match self {
            Self::SpecialTokens => "add_special_tokens",
            Self::RepeatPenalty => "repeat_penalty",
            Self::RepetitionPenalty => "repetition_penalty",
        }
    }

    /// Value that disables the feature.
    fn value(self) -> Value {
        match self {
            Self::SpecialTokens => json!(false),
            Self::RepeatPenalty | Self::RepetitionPenalty => json!(1.0),
        }
    }

    /// Possible effect if the server does not support the field, for a warning.
    pub(super) fn risk(self) -> &'static str {
        match self {
            Self::SpecialTokens => {
                "it may add a BOS token to prompts of models that were trained without one"
            }
            Self::RepeatPenalty | Self::RepetitionPenalty => "it may penalise tokens that occurred earlier",
        }
    }
}

/// Fields that a server supports, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dialect {
    /// Which of [`Extension::ALL`] are sent with raw prompts.
    pub(super) extensions: [bool; 3],
    /// Whether the token limit of a chat request is named `max_tokens`. Newer OpenAI models require
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

    /// Returns the dialect without an extension.
    pub(super) fn without(mut self, extension: Extension) -> Self {
        self.extensions[extension as usize] = false;
        self
    }
}

/// Whether a request goes to the chat interface. Conversations in a text layout are rendered before.
pub(super) fn is_chat(request: &Request) -> bool {
    matches!(request.input, Input::Chat(_) | Input::Templated(_))
}

/// Path of a request below the base URL.
pub(super) fn path(request: &Request) -> &'static str {
    if is_chat(request) { "chat/completions" } else { "completions" }
}

/// Creates the body of a request.
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
        Input::Templated(prompt) => put("messages", json!(prompt.messages)),
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
            // The low 53 bits, which every JSON parser represents exactly.
            put("seed", json!(request.seed & ((1 << 53) - 1)));
        }
    }
    for penalty in [Extension::RepeatPenalty, Extension::RepetitionPenalty] {
        if !is_chat(request) && dialect.has(penalty) {
            put(penalty.field(), penalty.value());
        }
    }
    match &request.stop {
        // Chat models may begin a reply with an empty line: `chat_reply::line` selects the line.
        Stop::Newline if is_chat(request) => {}
        Stop::Newline => put("stop", json!(["\n"])),
        Stop::Text(text) => put("stop", json!([text])),
        Stop::Tokens(tokens) => put("stop_token_ids", json!(tokens)),
        Stop::Never => {}
    }
    Value::Object(body)
}

/// The parts of a response that are used. The others take no memory beyond that of the body.
#[derive(Debug, Deserialize)]
struct Answer<'a> {
    #[serde(rename = "choices", deserialize_with = "first_choice")]
    choice: Option<Choice>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
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

/// The numbers of tokens, each unparsed until it is used.
#[derive(Debug, Default, Deserialize)]
struct Usage<'a> {
    #[serde(borrow, default)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow, default)]
    prompt_tokens_details: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct PromptTokens<'a> {
    #[serde(borrow, default)]
    cached_tokens: Option<&'a RawValue>,
}

/// Parses the first choice and skips the others: requests ask for one.
fn first_choice<'de, D: Deserializer<'de>>(choices: D) -> Result<Option<Choice>, D::Error> {
    struct First;
    impl<'de> Visitor<'de> for First {
        type Value = Option<Choice>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list of choices")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut choices: A) -> Result<Option<Choice>, A::Error> {
            let first = choices.next_element()?;
            while choices.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }
    choices.deserialize_seq(First)
}

/// Parses a part of a response; the default if it is missing or unexpected, which does not invalidate the response.
fn lenient<'a, T: Default + Deserialize<'a>>(part: Option<&'a RawValue>) -> T {
    part.and_then(|part| serde_json::from_str(part.get()).ok()).unwrap_or_default()
}

/// Parses a response. The error is a message.
pub(super) fn read(answer: &[u8], request: &Request) -> Result<Completion, String> {
    let Answer { choice, usage } = serde_json::from_slice(answer).map_err(|error| {
        let mut message = format!("invalid response: {error}");
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        message
    })?;
    let choice = choice.ok_or("invalid response: no choices")?;
    let text = if is_chat(request) {
        let message = choice.message.as_ref().ok_or("invalid response: no message")?;
        // A model that refuses to reply returns no content.
        python::strip(chat_reply::without_thoughts(message.content.as_deref().unwrap_or_default()))
    } else {
        choice.text.as_deref().ok_or("invalid response: no text")?
    };
    let longest = (request.max_new_tokens as usize).saturating_mul(BYTES_PER_TOKEN).max(SHORT_REPLY);
    if let Input::Templated(prompt) = &request.input {
        let (text, is_whole) = chat_reply::line(text, &prompt.reply_start);
        let is_cut = is_whole && choice.finish_reason.as_deref() == Some("length");
        let finish = if is_cut { Finish::Length } else { Finish::Stop };
        return Ok(completion(text, longest, finish, usage));
    }
    // A server may include the stop text, or not support stop texts.
    let stop = match &request.stop {
        Stop::Newline => Some("\n"),
        Stop::Text(text) => Some(text.as_str()),
        Stop::Tokens(_) | Stop::Never => None,
    };
    let cut = stop.filter(|stop| !stop.is_empty()).and_then(|stop| text.find(stop));
    let finish = match (cut, choice.finish_reason.as_deref()) {
        (Some(_), _) => Finish::Stop,
        (None, Some("length")) => Finish::Length,
        // The response does not distinguish the stop text from the end of the sequence.
        (None, _) if request.stop != Stop::Never => Finish::Stop,
        (None, _) => Finish::EndOfSequence,
    };
    let text = cut.map_or(text, |end| &text[..end]);
    Ok(completion(text, longest, finish, usage))
}

fn completion(text: &str, longest: usize, finish: Finish, usage: Option<&RawValue>) -> Completion {
    let kept = &text[..text.floor_char_boundary(longest)];
    let usage: Usage<'_> = lenient(usage);
    let details: PromptTokens<'_> = lenient(usage.prompt_tokens_details);
    Completion {
        text: kept.to_owned(),
        finish: if kept.len() < text.len() { Finish::Length } else { finish },
        prompt_tokens: lenient(usage.prompt_tokens),
        completion_tokens: lenient(usage.completion_tokens),
        cached_tokens: lenient(details.cached_tokens),
        drafts: None,
        cost: None,
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{Message, PromptTemplate, Role, TemplatedPrompt};
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
            ("{\"choices\":{}}", &raw),
            ("{\"choices\":null}", &raw),
            ("{\"usage\":{}}", &raw),
            ("{\"choices\":[{\"text\":\"a\"}]}", &chat),
            ("[]", &raw),
        ] {
            assert!(read(answer.as_bytes(), wanted).is_err(), "{answer}");
        }
        let misplaced = json!({"choices": "é".repeat(100_000)}).to_string();
        let message = read(misplaced.as_bytes(), &raw).unwrap_err();
        assert!(message.starts_with("invalid response: ") && message.len() <= LONGEST_MESSAGE, "{message}");
    }

    #[test]
    fn thoughts_are_dropped_from_chats_only() {
        let prompt = TemplatedPrompt {
            text: String::new(),
            messages: Vec::new(),
            reply_start: String::new(),
            template: PromptTemplate::Chat,
        };
        let planner = request(Input::Templated(Box::new(prompt)), Stop::Newline);
        let raw = request(Input::Raw(String::new()), Stop::Never);
        let reply = |text: &str, finish_reason: &str, asked: &Request| {
            let choice = json!({"text": text, "message": {"content": text}, "finish_reason": finish_reason});
            let completion = read(json!({"choices": [choice]}).to_string().as_bytes(), asked).unwrap();
            (completion.text, completion.finish)
        };
        for thoughts in ["<think>\nno answer?\n</think>\n\n", "Okay, first I add.\n</think>\n\n"] {
            let text = format!("{thoughts}CORRECT\n");
            let wanted = "CORRECT".to_owned();
            assert_eq!(reply(&text, "stop", &chat()), (wanted.clone(), Finish::EndOfSequence), "{text}");
            assert_eq!(reply(&text, "stop", &planner), (wanted, Finish::Stop), "{text}");
            assert_eq!(reply(&text, "stop", &raw), (text.clone(), Finish::EndOfSequence), "{text}");
        }
        for asked in [chat(), planner] {
            assert_eq!(reply("<think>\nAdd", "length", &asked), (String::new(), Finish::Length));
        }
    }

    #[test]
    fn further_choices_and_unexpected_numbers_are_skipped() {
        let raw = request(Input::Raw(String::new()), Stop::Newline);
        let counts = |usage: &str| {
            let answer = format!(r#"{{"choices":[{{"text":"a"}},{{}},0,[{{}}]],"usage":{usage}}}"#);
            let completion = read(answer.as_bytes(), &raw).unwrap();
            assert_eq!(completion.text, "a");
            (completion.prompt_tokens, completion.completion_tokens, completion.cached_tokens)
        };
        let unexpected = r#"{"prompt_tokens":{},"completion_tokens":4294967296}"#;
        for usage in ["7", "\"many\"", "[[],{}]", "{}", unexpected] {
            assert_eq!(counts(usage), (None, None, None), "{usage}");
        }
        let usage = r#"{"prompt_tokens":[0,0],"completion_tokens":5,"prompt_tokens_details":7}"#;
        assert_eq!(counts(usage), (None, Some(5), None));
        let usage = r#"{"prompt_tokens": 3 ,"prompt_tokens_details":{"audio_tokens":0,"cached_tokens":2}}"#;
        assert_eq!(counts(usage), (Some(3), None, Some(2)));
    }

    #[test]
    fn texts_are_cut_far_above_the_limit_of_tokens() {
        let reply = |text: &str, asked: &Request| {
            let choice = json!({"text": text, "message": {"content": text}, "finish_reason": "stop"});
            let answer = json!({"choices": [choice]}).to_string();
            let completion = read(answer.as_bytes(), asked).unwrap();
            (completion.text, completion.finish)
        };
        let raw = request(Input::Raw(String::new()), Stop::Newline);
        let longest = 512 * BYTES_PER_TOKEN;
        let fitting = "a".repeat(longest);
        assert_eq!(reply(&fitting, &raw), (fitting.clone(), Finish::Stop));
        assert_eq!(reply(&format!("a\n{fitting}{fitting}"), &raw), ("a".to_owned(), Finish::Stop));
        // The end of a character is at an odd number of bytes.
        let (text, finish) = reply(&format!("a{}", "é".repeat(longest)), &raw);
        assert_eq!((text.len(), finish), (longest - 1, Finish::Length));
        let (text, finish) = reply(&format!("{fitting}a"), &chat());
        assert_eq!((text, finish), (fitting.clone(), Finish::Length));
        let short = Request { max_new_tokens: 1, ..chat() };
        let (text, finish) = reply(&fitting, &short);
        assert_eq!((text.len(), finish), (SHORT_REPLY, Finish::Length));
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
