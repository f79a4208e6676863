//! Extracts the reason from a server's error response. Servers use different formats.

use std::fmt;

use serde_json::Value;

/// Maximum characters of an explanation.
const LONGEST: usize = 300;

/// A server's explanation. Displayed after the status, with a leading colon unless it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Explanation {
    /// Error code, if there is one.
    code: String,
    /// The server's message, in one line.
    text: String,
}

/// Parses the body of an error: OpenAI's `{"error": {"message", "code"}}`, vLLM's `{"message"}`, FastAPI's
/// `{"detail"}`, or any other text.
pub(super) fn explain(body: &[u8]) -> Explanation {
    let text = String::from_utf8_lossy(body);
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        return Explanation { code: String::new(), text: one_line(&text) };
    };
    let error = value.get("error").unwrap_or(&value);
    let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = ["message", "detail"].iter().find_map(|name| error.get(name)).unwrap_or(error);
    let message = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
    let code = Some(word("code")).filter(|code| !code.is_empty()).unwrap_or_else(|| word("type"));
    Explanation { code: one_line(&code), text: one_line(&message) }
}

/// Replaces line breaks and other control characters with spaces, and shortens the text.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|character: char| character.is_whitespace() || character.is_control()) {
        if !word.is_empty() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

impl Explanation {
    /// Returns the explanation with its strings changed.
    pub(super) fn map(self, change: impl Fn(&str) -> String) -> Self {
        Self { code: change(&self.code), text: change(&self.text) }
    }

    /// Whether the message mentions a field of the request.
    pub(super) fn names(&self, field: &str) -> bool {
        self.text.contains(field)
    }

    /// Whether the quota is exhausted, so that waiting does not help.
    pub(super) fn is_quota(&self) -> bool {
        matches!(self.code.as_str(), "insufficient_quota" | "billing_hard_limit_reached")
    }

    /// Whether the request can never succeed because of its prompt: it is too long for the model, or a
    /// content filter rejects it.
    pub(super) fn is_about_the_prompt(&self) -> bool {
        if matches!(self.code.as_str(), "context_length_exceeded" | "content_filter") {
            return true;
        }
        let text = self.text.to_lowercase();
        [
            "context length",
            "context window",
            "context size",
            "prompt is too long",
            "prompt too long",
            "input is too long",
            "maximum model length",
            "max_model_len",
            "must have less than",
        ]
        .iter()
        .any(|words| text.contains(words))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text.as_str() {
            "" => Ok(()),
            text => write!(formatter, ": {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_is_read() {
        for (body, text) in [
            (r#"{"error":{"message":"Too\nmany","code":"rate_limit"}}"#, "Too many"),
            (r#"{"object":"error","message":"no model"}"#, "no model"),
            (r#"{"detail":[{"loc":["body","top_k"]}]}"#, r#"[{"loc":["body","top_k"]}]"#),
            (r#"{"error":"short"}"#, "short"),
            ("<html> down </html>", "<html> down </html>"),
            ("", ""),
        ] {
            assert_eq!(explain(body.as_bytes()).text, text);
        }
        assert_eq!(explain(&[0xff; 2000]).text.chars().count(), LONGEST + 1);
    }

    #[test]
    fn prompts_that_are_too_long_are_told_apart() {
        for text in [
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
            "the request exceeds the available context size",
            "Please reduce the length: the prompt is too long",
        ] {
            let body = serde_json::json!({"error": {"message": text}}).to_string();
            assert!(explain(body.as_bytes()).is_about_the_prompt(), "{text}");
        }
        assert!(!explain(br#"{"error":{"message":"unknown model"}}"#).is_about_the_prompt());
        assert!(explain(br#"{"error":{"message":"x","code":"insufficient_quota"}}"#).is_quota());
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_are_read(body in any::<Vec<u8>>()) {
            let shown = explain(&body).to_string();
            prop_assert!(!shown.contains('\n') && shown.chars().count() <= LONGEST + 3);
        }
    }
}
