//! Names of the forms `openai:<model>@<base url>` and `openai-chat:<model>@<base url>`.

use std::fmt;
use std::str::FromStr;

use lumos_tasks::families::chat_layout_hash;
use lumos_tasks::{Configuration, ContentHash};
use url::Url;

/// Default base URL, unless `OPENAI_BASE_URL` is set.
pub(super) const USUAL: &str = "https://api.openai.com/v1";

/// Name of a model on a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenAiName {
    /// Name of the model on the server.
    pub model: String,
    /// Base URL, without `/chat/completions`; `None` for the default.
    pub url: Option<Url>,
    /// Whether conversations of planner, grounder and answerer go to the chat interface (`openai-chat:`).
    pub is_chat: bool,
}

impl OpenAiName {
    /// Resolves the base URL. Without an explicit one it is that of `OPENAI_BASE_URL` or of OpenAI's service.
    ///
    /// # Errors
    /// If `OPENAI_BASE_URL` is not a valid URL.
    pub(crate) fn resolved(self) -> Result<(Self, Url), String> {
        let url = match self.url {
            Some(url) => url,
            None => match std::env::var("OPENAI_BASE_URL") {
                Ok(set) if !set.is_empty() => {
                    address(&set).map_err(|why| format!("invalid value for OPENAI_BASE_URL: {why}"))?
                }
                _ => address(USUAL)?,
            },
        };
        Ok((Self { url: Some(url.clone()), ..self }, url))
    }

    /// Returns a hash of what results depend on, as far as known, because there are no weights to hash. The
    /// number in it is incremented when requests change.
    pub(crate) fn content(&self) -> ContentHash {
        let url = self.url.as_ref().map(Url::as_str);
        if self.is_chat {
            return ContentHash::of_json(&("openai-chat/1", &self.model, url, chat_layout_hash()));
        }
        ContentHash::of_json(&("openai/1", &self.model, url))
    }
}

/// Parses a base URL. URLs that may contain a key are rejected, because names are recorded. Error messages do
/// not contain the URL.
fn address(text: &str) -> Result<Url, String> {
    let text = text.trim_end_matches('/');
    let url = Url::parse(text).map_err(|error| format!("invalid address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("invalid address: expected http:// or https:// and a host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "invalid address: user and password are not allowed, because model names are recorded; hint: \
             pass keys in the environment (OPENAI_API_KEY_<HOST>)"
                .to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("invalid address: ? and # are not allowed; hint: pass keys in the environment \
            (OPENAI_API_KEY_<HOST>)"
            .to_owned());
    }
    Ok(url)
}

impl FromStr for OpenAiName {
    type Err = String;

    /// Parses the part after `openai:`, for the completions interface. Model names may contain `@`.
    fn from_str(text: &str) -> Result<Self, String> {
        // The scheme of the URL marks its start. The URL may also contain `@`.
        let at = ["@http://", "@https://"].iter().filter_map(|mark| text.find(mark)).min();
        let (model, url) = match at {
            Some(at) => (&text[..at], Some(address(&text[at + 1..])?)),
            None if text.contains("://") => {
                return Err("invalid address: expected http:// or https://".to_owned());
            }
            None => (text, None),
        };
        if model.is_empty() {
            return Err("missing model name".to_owned());
        }
        Ok(Self { model: model.to_owned(), url, is_chat: false })
    }
}

impl fmt::Display for OpenAiName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = if self.is_chat { Configuration::CHAT } else { "openai:" };
        write!(formatter, "{backend}{}", self.model)?;
        match &self.url {
            Some(url) => write!(formatter, "@{}", url.as_str().trim_end_matches('/')),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_model_and_perhaps_an_address() {
        for (text, model, url) in [
            ("gpt-4", "gpt-4", None),
            ("org/model@main@http://host:8000/v1/", "org/model@main", Some("http://host:8000/v1")),
            ("m@https://host", "m", Some("https://host/")),
        ] {
            let name: OpenAiName = text.parse().unwrap();
            assert_eq!((name.model.as_str(), name.url.as_ref().map(Url::as_str)), (model, url));
        }
        let name: OpenAiName = "m@https://host/".parse().unwrap();
        assert_eq!(name.to_string(), "openai:m@https://host");
    }

    #[test]
    fn addresses_hold_no_secrets() {
        for text in [
            "m@https://user:hidden@host/v1",
            "m@https://host/v1?api-key=hidden",
            "m@https://host/v1#hidden",
            "m@https://",
            "m@ftp://hidden",
            "@https://host/v1",
        ] {
            let why = text.parse::<OpenAiName>().unwrap_err();
            assert!(!why.contains("hidden"), "{why}");
        }
    }

    #[test]
    fn another_server_is_another_model() {
        let content = |text: &str| text.parse::<OpenAiName>().unwrap().content();
        assert_eq!(content("m@http://host/v1"), content("m@http://host/v1/"));
        assert_ne!(content("m@http://host/v1"), content("m@http://other/v1"));
        assert_ne!(content("m@http://host/v1"), content("n@http://host/v1"));
        let name: OpenAiName = "m@http://host/v1".parse().unwrap();
        let chat = OpenAiName { is_chat: true, ..name.clone() };
        assert_ne!(chat.content(), name.content());
        assert_eq!(chat.to_string(), "openai-chat:m@http://host/v1");
    }
}
