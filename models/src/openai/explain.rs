//! Extracts the reason from a server's error response. Servers use different formats.

use std::fmt;

use serde_json::Value;

/// Maximum characters of an explanation.
const LONGEST: usize = 300;

/// A server's explanation. Displayed after the status, with a leading colon unless it is empty. Without `Debug`, because
/// the server's strings may repeat the API key: they are compared, never displayed.
pub(super) struct Explanation {
    /// Error code, if there is one.
    code: String,
    /// The server's message, in one line.
    text: String,
    /// The message without the API key.
    shown: String,
}

/// Parses the body of an error: OpenAI's `{"error": {"message", "code"}}`, vLLM's `{"message"}`, FastAPI's
/// `{"detail"}`, or any other text. `clean` removes the API key from the message that is displayed.
pub(super) fn explain(body: &[u8], clean: impl Fn(&str) -> String) -> Explanation {
    let explanation = |code: &str, text: &str| {
        let text = one_line(text);
        Explanation { code: one_line(code), shown: clean(&text), text }
    };
    let text = String::from_utf8_lossy(body);
    let Ok(value) = serde_json::from_str::<Value>(&text) else { return explanation("", &text) };
    let error = value.get("error").unwrap_or(&value);
    let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = ["message", "detail"].iter().find_map(|name| error.get(name)).unwrap_or(error);
    let message = message.as_str().map_or_else(|| message.to_string(), str::to_owned);
    let code = Some(word("code")).filter(|code| !code.is_empty()).unwrap_or_else(|| word("type"));
    explanation(&code, &message)
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
        match self.shown.as_str() {
            "" => Ok(()),
            text => write!(formatter, ": {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use lumos_http::ServerKey;
    use proptest::prelude::*;

    use super::*;

    /// Parses a body without a key.
    fn explained(body: &[u8]) -> Explanation {
        explain(body, str::to_owned)
    }

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
            assert_eq!(explained(body.as_bytes()).text, text);
        }
        assert_eq!(explained(&[0xff; 2000]).text.chars().count(), LONGEST + 1);
    }

    #[test]
    fn prompts_that_are_too_long_are_told_apart() {
        for text in [
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens",
            "the request exceeds the available context size",
            "Please reduce the length: the prompt is too long",
        ] {
            let body = serde_json::json!({"error": {"message": text}}).to_string();
            assert!(explained(body.as_bytes()).is_about_the_prompt(), "{text}");
        }
        assert!(!explained(br#"{"error":{"message":"unknown model"}}"#).is_about_the_prompt());
        assert!(explained(br#"{"error":{"message":"x","code":"insufficient_quota"}}"#).is_quota());
    }

    #[test]
    fn a_short_key_changes_only_what_is_displayed() {
        let key = ServerKey::new("i");
        let explain = |body: &[u8]| explain(body, |text| key.redact(text));
        let explanation = explain(br#"{"message":"Maximum context length: 16"}"#);
        assert!(explanation.is_about_the_prompt());
        assert_eq!(explanation.to_string(), ": Max[key]mum context length: 16");
        assert!(explain(br#"{"code":"insufficient_quota"}"#).is_quota());
        assert!(explain(br#"{"code":"content_filter"}"#).is_about_the_prompt());
        assert!(explain(b"use 'repetition_penalty'").names("repetition_penalty"));
    }

    proptest! {
        #[test]
        fn arbitrary_bodies_are_read(body in any::<Vec<u8>>()) {
            let shown = explained(&body).to_string();
            prop_assert!(!shown.contains('\n') && shown.chars().count() <= LONGEST + 3);
        }
    }
}
