//! Endpoint, token and cache folder of the hub, from the environment variables that Hugging Face's own tools
//! read (<https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables>).

use std::path::PathBuf;
use std::time::Duration;

use lumos_http::ServerKey;
use url::Url;

use super::error::HubError;

/// Default endpoint.
const USUAL: &str = "https://huggingface.co";

/// Settings of the hub's client.
#[derive(Debug, Clone)]
pub struct HubSettings {
    /// URL of the hub or of a mirror.
    pub endpoint: Url,
    /// Token for gated and private models. Sent to the endpoint only.
    pub token: Option<ServerKey>,
    /// Folder of the cache that Hugging Face's tools share.
    pub cache: PathBuf,
    /// Whether only cached models are used.
    pub offline: bool,
    /// Maximum retries after the first attempt.
    pub retries: usize,
    /// Pause before the first retry. Each further pause is twice as long, with jitter.
    pub first_pause: Duration,
    /// Longest pause. A request is not retried if the hub asks for a longer one.
    pub longest_pause: Duration,
}

impl HubSettings {
    /// Creates settings for a hub and a cache: public models only, five retries.
    pub fn new(endpoint: Url, cache: PathBuf) -> Self {
        Self {
            endpoint,
            token: None,
            cache,
            offline: false,
            retries: 5,
            first_pause: Duration::from_millis(300),
            longest_pause: Duration::from_secs(300),
        }
    }

    /// Reads the settings from the environment: `HF_ENDPOINT`; `HF_TOKEN`, or the file that `hf auth login`
    /// writes; the cache in `HF_HUB_CACHE`, `HF_HOME/hub` or `~/.cache/huggingface/hub`; and
    /// `HF_HUB_OFFLINE`.
    ///
    /// # Errors
    /// If `HF_ENDPOINT` is not a valid URL, or the cache folder cannot be determined.
    pub fn from_environment() -> Result<Self, HubError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, HubError> {
        let set = |name: &str| {
            variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let endpoint = set("HF_ENDPOINT").unwrap_or_else(|| USUAL.to_owned());
        // The error message does not contain the value, which may contain a password.
        let endpoint = Url::parse(endpoint.trim_end_matches('/'))
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.host_str().is_some())
            .filter(|url| url.username().is_empty() && url.password().is_none() && url.query().is_none())
            .ok_or_else(|| {
                let message = "invalid value for HF_ENDPOINT: expected an address like https://host, without \
                    user, password and query";
                HubError::Settings { message: message.to_owned() }
            })?;
        let home = set("HF_HOME").map(PathBuf::from).or_else(|| {
            let caches = set("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
            caches.map(|caches| caches.join("huggingface"))
        });
        let cache = set("HF_HUB_CACHE").map(PathBuf::from);
        let cache = cache.or_else(|| home.as_ref().map(|home| home.join("hub"))).ok_or_else(|| {
            let message = "failed to determine the model cache folder; hint: set HF_HOME to a folder";
            HubError::Settings { message: message.to_owned() }
        })?;
        let file = set("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| home.map(|home| home.join("token")));
        let kept = || std::fs::read_to_string(file?).ok();
        let token = set("HF_TOKEN").or_else(kept).map(|token| token.trim().to_owned());
        let token = token.filter(|token| !token.is_empty()).map(ServerKey::new);
        let is_on =
            |value: String| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on");
        let offline = set("HF_HUB_OFFLINE").is_some_and(is_on);
        Ok(Self { token, offline, ..Self::new(endpoint, cache) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(set: &[(&str, &str)]) -> Result<HubSettings, HubError> {
        HubSettings::from_variables(|name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_is_read_as_hugging_face_s_tools_do() {
        let usual = from(&[("HOME", "/nowhere")]).unwrap();
        assert_eq!(usual.endpoint.as_str(), "https://huggingface.co/");
        assert_eq!(usual.cache, PathBuf::from("/nowhere/.cache/huggingface/hub"));
        assert!(usual.token.is_none() && !usual.offline);
        let set = from(&[
            ("HF_HOME", "/data/hf"),
            ("HF_TOKEN", " hf_secret\n"),
            ("HF_ENDPOINT", "http://localhost:8080/"),
            ("HF_HUB_OFFLINE", "1"),
        ])
        .unwrap();
        assert_eq!(set.cache, PathBuf::from("/data/hf/hub"));
        assert_eq!(set.token, Some(ServerKey::new("hf_secret")));
        assert!(set.offline && !format!("{set:?}").contains("hf_secret"));
        assert_eq!(from(&[("HF_HUB_CACHE", "/hub")]).unwrap().cache, PathBuf::from("/hub"));
        for wrong in ["https://me:hidden@host", "hidden", "ftp://hidden"] {
            let error = from(&[("HOME", "/"), ("HF_ENDPOINT", wrong)]).unwrap_err().to_string();
            assert!(error.contains("HF_ENDPOINT") && !error.contains("hidden"), "{error}");
        }
        assert!(from(&[]).is_err());
    }

    #[test]
    fn a_token_that_was_left_is_found() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_left\n").unwrap();
        let set = from(&[("HF_HOME", folder.path().to_str().unwrap())]).unwrap();
        assert_eq!(set.token, Some(ServerKey::new("hf_left")));
    }
}
