//! Settings of the live encyclopaedia.

use std::path::PathBuf;
use std::time::Duration;

use crate::tools::address::SITE;
use crate::tools::pace;

/// Another site of the same kind, for tests and mirrors. It is then the only host that is asked.
const ENDPOINT: &str = "LUMOS_WIKI_ENDPOINT";
/// Requests per second.
const RATE: &str = "LUMOS_WIKI_RATE";
/// Where documents are kept.
const CACHE: &str = "LUMOS_TOOL_CACHE";

/// How the site is asked.
#[derive(Debug, Clone)]
pub struct WikiSettings {
    /// The site: `https://en.wikipedia.org`.
    pub endpoint: String,
    /// Limit of one request, body included.
    pub timeout: Duration,
    /// Attempts after the first.
    pub retries: usize,
    /// The least time between two requests of this process.
    pub pace: Duration,
    /// The longest rest that is granted a site that asks for one.
    pub longest_rest: Duration,
    /// The most bytes a document may have.
    pub most_bytes: usize,
    /// The folder where documents are stored; without one, they are not stored.
    pub cache: Option<PathBuf>,
}

impl Default for WikiSettings {
    /// English Wikipedia: 30 s a request, 4 retries, at most 2 requests/s, documents of 8 MiB, nothing kept.
    fn default() -> Self {
        Self {
            endpoint: SITE.to_owned(),
            timeout: Duration::from_secs(30),
            retries: 4,
            pace: Duration::from_millis(500),
            longest_rest: Duration::from_secs(120),
            most_bytes: 8 << 20,
            cache: None,
        }
    }
}

impl WikiSettings {
    /// Another site from `LUMOS_WIKI_ENDPOINT`, another rate from `LUMOS_WIKI_RATE` (requests/s); documents are kept
    /// in `LUMOS_TOOL_CACHE`, or else in the user's folder for caches.
    ///
    /// # Errors
    /// If the rate is not a positive number.
    pub fn from_environment() -> Result<Self, String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut settings = Self::default();
        if let Some(endpoint) = set(ENDPOINT) {
            settings.endpoint = endpoint.to_string_lossy().into_owned();
        }
        if let Some(pace) = pace::from_environment(RATE)? {
            settings.pace = pace;
        }
        let users = || {
            let caches = set("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
            caches.map(|caches| caches.join("lumos").join("tools"))
        };
        settings.cache = set(CACHE).map(PathBuf::from).or_else(users);
        Ok(settings)
    }

    /// The site, where it is not the usual one: other pages are other answers.
    pub(in crate::tools) fn other_site(&self) -> Option<&str> {
        let endpoint = self.endpoint.trim_end_matches('/');
        (endpoint != SITE).then_some(endpoint)
    }
}
