//! Settings of OpenAI-compatible servers, from environment variables so that API keys are not stored anywhere
//! else.

use std::collections::BTreeMap;
use std::time::Duration;

use lumos_http::{ConcurrencyBounds, ServerKey, pace_of_rate};
use lumos_tasks::NanoDollars;
use url::Url;

use super::name::USUAL;

/// Variable of the API key for OpenAI's own service, or for the server of `OPENAI_BASE_URL`.
const GENERAL_KEY: &str = "OPENAI_API_KEY";

/// Settings of a server's client.
#[derive(Debug, Clone)]
pub struct OpenAiSettings {
    /// API key, if the server requires one.
    pub key: Option<ServerKey>,
    /// Timeout of one request, including its response.
    pub timeout: Duration,
    /// Maximum retries after the first attempt.
    pub retries: usize,
    /// Pause before the first retry. Each further pause is twice as long, with jitter.
    pub first_pause: Duration,
    /// Longest pause. A request is not retried if the server asks for a longer one.
    pub longest_pause: Duration,
    /// Concurrent requests. Between different bounds, the number follows what the server can take.
    pub concurrency: ConcurrencyBounds,
    /// Minimum time between two requests.
    pub pace: Duration,
    /// Maximum size of a response in bytes.
    pub largest_answer: usize,
    /// Prices, by the model's name on the server.
    pub prices: BTreeMap<String, Price>,
}

impl Default for OpenAiSettings {
    /// No API key, a timeout of 120 s, 6 retries with pauses of 0.5 to 60 s, 1 to 64 concurrent requests, no rate
    /// limit, no prices.
    fn default() -> Self {
        Self {
            key: None,
            timeout: Duration::from_secs(120),
            retries: 6,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            concurrency: ConcurrencyBounds::new(1, 64),
            pace: Duration::ZERO,
            largest_answer: 16 << 20,
            prices: BTreeMap::new(),
        }
    }
}

/// Price in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// Price of prompt tokens.
    pub read: f64,
    /// Price of completion tokens.
    pub written: f64,
}

impl Price {
    /// Returns the cost of a completion.
    pub fn of(self, prompt_tokens: u32, completion_tokens: u32) -> NanoDollars {
        let dollars = f64::from(prompt_tokens) * self.read + f64::from(completion_tokens) * self.written;
        // One dollar per million tokens is 1000 nanodollars per token.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "prices are not negative"
        )]
        NanoDollars((dollars * 1000.0).round() as u64)
    }
}

impl OpenAiSettings {
    /// Reads the settings for the server at a URL from the environment:
    /// - `OPENAI_API_KEY_<HOST>`: key of one server. `<HOST>` is the host name, and the port if the URL has
    ///   one, in upper case and with `_` for every character other than letters and digits. An empty value
    ///   means no key.
    /// - `OPENAI_API_KEY`: key of `api.openai.com` and of the server of `OPENAI_BASE_URL`. It is not sent to
    ///   other servers, whose addresses may come from someone else.
    /// - `LUMOS_OPENAI_RATE`: requests per second. `LUMOS_OPENAI_CONCURRENCY`: concurrent requests, `16` or
    ///   between bounds `2..64`.
    ///   `LUMOS_OPENAI_TIMEOUT`: timeout of one request in seconds. `LUMOS_OPENAI_RETRIES`: retries.
    /// - `LUMOS_OPENAI_PRICES`: US dollars per million tokens read and written, as
    ///   `gpt-4=30/60,other=0.5/1.5`.
    ///
    /// # Errors
    /// If a value is invalid. Messages never contain the key.
    pub fn from_environment(url: &Url) -> Result<Self, String> {
        Self::from_values(url, |name| std::env::var(name).ok())
    }

    fn from_values(url: &Url, value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| value(name).filter(|value| !value.is_empty());
        let mut settings = Self::default();
        let own = key_variable(url);
        // An empty server-specific key keeps the general key from being sent.
        settings.key = value(&own)
            .or_else(|| value(GENERAL_KEY).filter(|_| takes_general_key(url, &value)))
            .map(|key| key.trim().to_owned())
            .filter(|key| !key.is_empty())
            .map(ServerKey::new);
        if let Some(rate) = set("LUMOS_OPENAI_RATE") {
            settings.pace = pace_of_rate("LUMOS_OPENAI_RATE", &rate)?;
        }
        if let Some(timeout) = set("LUMOS_OPENAI_TIMEOUT") {
            let seconds = timeout.parse().ok().filter(|seconds| *seconds > 0.0);
            settings.timeout =
                seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
                    format!(
                        "invalid value `{timeout}` for LUMOS_OPENAI_TIMEOUT: expected a positive number of \
                         seconds"
                    )
                })?;
        }
        if let Some(concurrency) = set("LUMOS_OPENAI_CONCURRENCY") {
            settings.concurrency = concurrency.parse().map_err(|expected: String| {
                format!("invalid value `{concurrency}` for LUMOS_OPENAI_CONCURRENCY: {expected}")
            })?;
        }
        if let Some(retries) = set("LUMOS_OPENAI_RETRIES") {
            settings.retries = retries.parse().map_err(|_| {
                format!("invalid value `{retries}` for LUMOS_OPENAI_RETRIES: expected a number of attempts")
            })?;
        }
        if let Some(prices) = set("LUMOS_OPENAI_PRICES") {
            settings.prices = prices.split(',').map(price).collect::<Option<_>>().ok_or_else(|| {
                format!(
                    "invalid value `{prices}` for LUMOS_OPENAI_PRICES: expected model=READ/WRITTEN, in US \
                     dollars per million tokens"
                )
            })?;
        }
        Ok(settings)
    }
}

/// Whether the general key may be sent to this server: OpenAI's own, or that of `OPENAI_BASE_URL`.
fn takes_general_key(url: &Url, value: &impl Fn(&str) -> Option<String>) -> bool {
    let base = value("OPENAI_BASE_URL");
    let known = [Some(USUAL), base.as_deref()].into_iter().flatten();
    known.filter_map(|known| Url::parse(known).ok()).any(|known| known.origin() == url.origin())
}

/// Names the variables that can hold the key of a server, for messages.
pub(super) fn key_variables(url: &Url) -> String {
    let own = key_variable(url);
    if takes_general_key(url, &|name| std::env::var(name).ok()) {
        return format!("{GENERAL_KEY} or {own}");
    }
    format!("{own} ({GENERAL_KEY} is sent to api.openai.com and to the server of OPENAI_BASE_URL only)")
}

/// Returns the variable that holds the key of one server only.
pub(super) fn key_variable(url: &Url) -> String {
    let port = url.port().map(|port| format!("_{port}")).unwrap_or_default();
    let host = format!("{}{port}", url.host_str().unwrap_or_default());
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    format!("OPENAI_API_KEY_{}", host.to_ascii_uppercase().chars().map(plain).collect::<String>())
}

fn price(text: &str) -> Option<(String, Price)> {
    let (model, price) = text.trim().rsplit_once('=')?;
    let (read, written) = price.split_once('/')?;
    let dollars = |text: &str| text.parse::<f64>().ok().filter(|price| (0.0..1e9).contains(price));
    Some((model.to_owned(), Price { read: dollars(read)?, written: dollars(written)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(values: &[(&str, &str)]) -> Result<OpenAiSettings, String> {
        let url: Url = "http://local-host:8000/v1".parse().unwrap();
        OpenAiSettings::from_values(&url, |name| {
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn settings_come_from_the_environment() {
        let settings = read(&[
            ("OPENAI_API_KEY", "general"),
            ("OPENAI_BASE_URL", "http://local-host:8000/"),
            ("LUMOS_OPENAI_RATE", "4"),
            ("LUMOS_OPENAI_CONCURRENCY", "3"),
            ("LUMOS_OPENAI_PRICES", "gpt-4=30/60, a=b=0.5/1.5"),
        ])
        .unwrap();
        assert_eq!(settings.key, Some(ServerKey::new("general")));
        assert_eq!(
            (settings.pace, settings.concurrency),
            (Duration::from_millis(250), ConcurrencyBounds::fixed(3))
        );
        assert_eq!(settings.prices["a=b"].of(1000, 10), NanoDollars(515_000));
        assert!(!format!("{settings:?}").contains("general"));
    }

    #[test]
    fn the_general_key_is_for_openai_and_the_base_url_only() {
        let key = |address: &str, base: &str| {
            let url: Url = address.parse().unwrap();
            let values = [("OPENAI_API_KEY", "general"), ("OPENAI_BASE_URL", base)];
            let value = |name: &str| {
                values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            OpenAiSettings::from_values(&url, value).unwrap().key.is_some()
        };
        let base = "https://proxy.example:8443/openai/v1";
        for address in
            ["https://api.openai.com/v1", "https://api.openai.com:443/", "https://proxy.example:8443/v2"]
        {
            assert!(key(address, base), "{address}");
        }
        for address in [
            "http://api.openai.com/v1",
            "https://api.openai.com:8443/v1",
            "https://api.openai.com.evil.example/v1",
            "https://proxy.example/openai/v1",
            "http://proxy.example:8443/openai/v1",
            "http://localhost:8000/v1",
            "http://attacker.example/v1",
        ] {
            assert!(!key(address, base), "{address}");
            assert!(!key(address, "nothing"), "{address}");
        }
    }

    #[test]
    fn a_server_may_have_a_key_of_its_own_or_none() {
        let own = "OPENAI_API_KEY_LOCAL_HOST_8000";
        let key = |value| read(&[("OPENAI_API_KEY", "general"), (own, value)]).unwrap().key;
        assert_eq!(key("special"), Some(ServerKey::new("special")));
        assert_eq!(key(""), None);
        let url: Url = "https://local-host:8000/v1".parse().unwrap();
        assert!(key_variables(&url).starts_with(own), "{}", key_variables(&url));
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for (name, value) in [
            ("LUMOS_OPENAI_RATE", "0"),
            ("LUMOS_OPENAI_RATE", "fast"),
            ("LUMOS_OPENAI_TIMEOUT", "-1"),
            ("LUMOS_OPENAI_CONCURRENCY", "0"),
            ("LUMOS_OPENAI_CONCURRENCY", "9..4"),
            ("LUMOS_OPENAI_RETRIES", "many"),
            ("LUMOS_OPENAI_PRICES", "gpt-4=30"),
            ("LUMOS_OPENAI_PRICES", "gpt-4=-1/2"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }
}
