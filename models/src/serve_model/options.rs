//! Options shared by completions and chats: sampling, limits and streaming.

use lumos_engine::{GenerateRequest, Prompt, SamplingParams, StopCondition};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::ApiError;
use super::fields::Fields;

/// Maximum stop texts of a request, as in OpenAI's interface.
const MOST_STOPS: usize = 4;
/// Maximum bytes of a stop text. For each generated token, the engine decodes as many tokens as the longest has bytes.
const LONGEST_STOP: usize = 256;
/// Maximum stop tokens of a request.
const MOST_STOP_TOKENS: usize = 1024;
/// Maximum temperature, as in OpenAI's interface.
const MOST_TEMPERATURE: f64 = 2.0;

/// Fields that limit the tokens of a reply, in order of precedence.
const LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Options for generation and response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Options {
    /// Maximum tokens of each reply; limited only by the context and the KV cache if `None`.
    pub(super) max_tokens: Option<usize>,
    pub(super) sampling: SamplingParams,
    pub(super) stop: StopCondition,
    pub(super) ignore_eos: bool,
    /// Whether the reply is streamed.
    pub(super) stream: bool,
    /// Whether a streamed reply ends with its token usage.
    pub(super) include_usage: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stops {
    One(String),
    Many(Vec<String>),
}

impl Options {
    /// Takes the fields that both interfaces have. `random` is the seed if the request has none.
    pub(super) fn take(fields: &mut Fields, random: u64) -> Result<Self, ApiError> {
        refuse(fields)?;
        let (stream, include_usage) = streaming(fields)?;
        Ok(Self {
            max_tokens: limit(fields)?,
            sampling: sampling(fields, random)?,
            stop: stop(fields)?,
            ignore_eos: fields.take("ignore_eos", "true or false")?.unwrap_or(false),
            stream,
            include_usage,
        })
    }

    /// Creates the engine's request for one prompt.
    pub(super) fn request(&self, input: Prompt) -> GenerateRequest {
        GenerateRequest {
            input,
            stop: self.stop.clone(),
            max_new_tokens: self.max_tokens.unwrap_or(GenerateRequest::UNLIMITED),
            sampling: self.sampling.clone(),
            ignore_eos: self.ignore_eos,
            first_logits: 0,
            forced: Vec::new(),
            deadline: None,
        }
    }
}

/// Accepts unsupported fields only with values that have no effect.
fn refuse(fields: &mut Fields) -> Result<(), ApiError> {
    let is = |expected: Value| move |value: &Value| *value == expected;
    let is_number = |expected: f64| move |value: &Value| value.as_f64() == Some(expected);
    let is_empty = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    if let Some(count) = fields.take::<u64>("n", "a positive integer")?.filter(|count| *count != 1) {
        let message =
            format!("`n` is {count}, but this server returns one completion per prompt. Repeat the prompt");
        return Err(ApiError::unsupported("n", message));
    }
    fields.only("best_of", is_number(1.0))?;
    fields.only("frequency_penalty", is_number(0.0))?;
    fields.only("presence_penalty", is_number(0.0))?;
    fields.only("logit_bias", is_empty)?;
    fields.only("repeat_penalty", is_number(1.0))?;
    fields.only("repetition_penalty", is_number(1.0))?;
    fields.only("add_special_tokens", is(json!(false)))?;
    fields.ignore(&["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"]);
    Ok(())
}

fn limit(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    let mut limit = None;
    for name in LIMITS {
        if let Some(tokens) = fields.take::<usize>(name, "a positive integer")? {
            if tokens == 0 {
                return Err(ApiError::invalid(name, format!("`{name}` must be at least 1")));
            }
            limit = limit.or(Some(tokens));
        }
    }
    Ok(limit)
}

/// Uses OpenAI's defaults: temperature 1, no restriction of candidate tokens.
fn sampling(fields: &mut Fields, random: u64) -> Result<SamplingParams, ApiError> {
    let temperature = fields.take::<f64>("temperature", "a number")?.unwrap_or(1.0);
    if !(0.0..=MOST_TEMPERATURE).contains(&temperature) {
        return Err(ApiError::invalid("temperature", "`temperature` must be between 0 and 2"));
    }
    let top_p = fields.take::<f64>("top_p", "a number")?;
    if top_p.is_some_and(|top_p| !(top_p > 0.0 && top_p <= 1.0)) {
        return Err(ApiError::invalid("top_p", "`top_p` must be above 0 and at most 1"));
    }
    let top_k =
        match fields.take::<i64>("top_k", "an integer")? {
            // In other servers, these values disable top-k sampling.
            None | Some(-1 | 0) => None,
            Some(top_k) => Some(usize::try_from(top_k).map_err(|_| {
                ApiError::invalid("top_k", "`top_k` must be at least 1, or -1 for every token")
            })?),
        };
    let seed = fields.take::<i64>("seed", "an integer")?.map_or(random, i64::cast_unsigned);
    let top_p = top_p.filter(|top_p| *top_p < 1.0);
    Ok(SamplingParams { temperature, top_p, top_k, seed })
}

fn stop(fields: &mut Fields) -> Result<StopCondition, ApiError> {
    let texts = match fields.take::<Stops>("stop", "a string or a list of strings")? {
        None => Vec::new(),
        Some(Stops::One(text)) => vec![text],
        Some(Stops::Many(texts)) => texts,
    };
    let tokens = fields.take::<Vec<u32>>("stop_token_ids", "a list of token ids")?.unwrap_or_default();
    if texts.len() > MOST_STOPS {
        return Err(ApiError::invalid("stop", format!("`stop` may have at most {MOST_STOPS} strings")));
    }
    if texts.iter().any(String::is_empty) {
        return Err(ApiError::invalid("stop", "`stop` has an empty string"));
    }
    if texts.iter().any(|text| text.len() > LONGEST_STOP) {
        let message = format!("a string in `stop` may have at most {LONGEST_STOP} bytes");
        return Err(ApiError::invalid("stop", message));
    }
    if tokens.len() > MOST_STOP_TOKENS {
        let message = format!("`stop_token_ids` may have at most {MOST_STOP_TOKENS} ids");
        return Err(ApiError::invalid("stop_token_ids", message));
    }
    match (texts.is_empty(), tokens.is_empty()) {
        (true, true) => Ok(StopCondition::Never),
        (false, true) => Ok(StopCondition::Texts(texts)),
        (true, false) => Ok(StopCondition::Tokens(tokens)),
        (false, false) => Err(ApiError::unsupported(
            "stop_token_ids",
            "This server accepts `stop` or `stop_token_ids`, not both",
        )),
    }
}

fn streaming(fields: &mut Fields) -> Result<(bool, bool), ApiError> {
    #[derive(Deserialize)]
    struct StreamOptions {
        #[serde(default)]
        include_usage: bool,
    }
    let stream = fields.take("stream", "true or false")?.unwrap_or(false);
    let options: Option<StreamOptions> = fields.take("stream_options", "an object")?;
    match options {
        Some(_) if !stream => Err(ApiError::invalid(
            "stream_options",
            "`stream_options` is only allowed when `stream` is `true`",
        )),
        options => Ok((stream, options.is_some_and(|options| options.include_usage))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Options, ApiError> {
        let mut fields = Fields::read(text.as_bytes())?;
        let options = Options::take(&mut fields, 7)?;
        fields.finish()?;
        Ok(options)
    }

    #[test]
    fn defaults_are_openai_s() {
        let options = read("{}").unwrap();
        let request = options.request(Prompt::Tokens(vec![1]));
        assert_eq!(request.max_new_tokens, GenerateRequest::UNLIMITED);
        let sampling = SamplingParams { temperature: 1.0, top_p: None, top_k: None, seed: 7 };
        assert_eq!(
            (options.sampling, options.stop, options.max_tokens),
            (sampling, StopCondition::Never, None)
        );
        assert!(!options.stream && !options.include_usage && !options.ignore_eos);
    }

    #[test]
    fn what_is_asked_is_read() {
        let options = read(
            r#"{"temperature": 0.5, "top_p": 0.9, "top_k": 40, "seed": -1, "stop": ["a", "b"], "max_tokens": 5,
                "n": 1, "user": "me", "logit_bias": {}, "frequency_penalty": 0, "stream": true,
                "stream_options": {"include_usage": true}, "add_special_tokens": false, "best_of": null}"#,
        )
        .unwrap();
        let sampling = SamplingParams { temperature: 0.5, top_p: Some(0.9), top_k: Some(40), seed: u64::MAX };
        assert_eq!(options.sampling, sampling);
        assert_eq!(options.stop, StopCondition::Texts(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!((options.max_tokens, options.stream, options.include_usage), (Some(5), true, true));
        assert_eq!(read(r#"{"stop_token_ids": [3]}"#).unwrap().stop, StopCondition::Tokens(vec![3]));
        assert_eq!(read(r#"{"max_tokens": 5, "max_completion_tokens": 6}"#).unwrap().max_tokens, Some(6));
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_name() {
        for (text, param, code) in [
            (r#"{"n": 2}"#, "n", "unsupported_parameter"),
            (r#"{"best_of": 3}"#, "best_of", "unsupported_parameter"),
            (r#"{"presence_penalty": 0.1}"#, "presence_penalty", "unsupported_parameter"),
            (r#"{"logit_bias": {"1": 2}}"#, "logit_bias", "unsupported_parameter"),
            (r#"{"add_special_tokens": true}"#, "add_special_tokens", "unsupported_parameter"),
            (r#"{"repeat_penalty": 1.1}"#, "repeat_penalty", "unsupported_parameter"),
            (r#"{"stop": ["a"], "stop_token_ids": [1]}"#, "stop_token_ids", "unsupported_parameter"),
            (r#"{"min_p": 0.1}"#, "min_p", "unknown_parameter"),
            (r#"{"temperature": "hot"}"#, "temperature", "invalid_type"),
            (r#"{"temperature": 3}"#, "temperature", "invalid_value"),
            (r#"{"top_p": 0}"#, "top_p", "invalid_value"),
            (r#"{"max_tokens": 0}"#, "max_tokens", "invalid_value"),
            (r#"{"max_tokens": -1}"#, "max_tokens", "invalid_type"),
            (r#"{"stop": ["", "a"]}"#, "stop", "invalid_value"),
            (r#"{"stop": ["1", "2", "3", "4", "5"]}"#, "stop", "invalid_value"),
            (r#"{"seed": 1.5}"#, "seed", "invalid_type"),
            (r#"{"stream_options": {}}"#, "stream_options", "invalid_value"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!((error.param.as_deref(), error.code), (Some(param), Some(code)), "{text}");
        }
        assert_eq!(read("[]").unwrap_err().code, Some("invalid_json"));
    }

    #[test]
    fn stops_are_limited() {
        let texts = |bytes: usize| json!({"stop": ["a", "b".repeat(bytes)]}).to_string();
        assert!(read(&texts(256)).is_ok());
        let tokens = |count: usize| json!({"stop_token_ids": vec![1; count]}).to_string();
        assert!(read(&tokens(1024)).is_ok());
        for (text, param) in [(texts(257), "stop"), (tokens(1025), "stop_token_ids")] {
            let error = read(&text).unwrap_err();
            assert_eq!((error.param.as_deref(), error.code), (Some(param), Some("invalid_value")));
        }
    }
}
