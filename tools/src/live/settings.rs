//! Settings of live Wikipedia.

use std::path::PathBuf;
use std::time::Duration;

use lumos_http::pace_of_rate;

use crate::corpus::SITE;

/// Another site of the same kind, for tests and mirrors. It is then the only host that is contacted.
const ENDPOINT: &str = "LUMOS_WIKI_ENDPOINT";
/// Requests per second.
const RATE: &str = "LUMOS_WIKI_RATE";
/// Folder of the document cache.
const CACHE: &str = "LUMOS_TOOL_CACHE";

/// Settings of live Wikipedia.
#[derive(Debug, Clone)]
pub struct WikiSettings {
    /// Address of the site, such as `https://en.wikipedia.org`.
    pub endpoint: String,
    /// Time limit of a request, including the body.
    pub timeout: Duration,
    /// Number of retries.
    pub retries: usize,
    /// Minimum time between two requests of this process.
    pub pace: Duration,
    /// Maximum `Retry-After` that is respected. Longer ones are an error.
    pub longest_rest: Duration,
    /// Maximum size of a document, in bytes.
    pub most_bytes: usize,
    /// Folder where documents are cached. `None` disables the cache.
    pub cache: Option<PathBuf>,
    /// Maximum size of the cache, in bytes. The oldest documents are removed.
    pub cache_bytes: u64,
}

impl Default for WikiSettings {
    /// English Wikipedia: 30 s per request, 4 retries, at most 2 requests/s, documents of up to 8 MiB, no
    /// cache (2 GiB if there is a folder).
    fn default() -> Self {
        Self {
            endpoint: SITE.to_owned(),
            timeout: Duration::from_secs(30),
            retries: 4,
            pace: Duration::from_millis(500),
            longest_rest: Duration::from_secs(120),
            most_bytes: 8 << 20,
            cache: None,
            cache_bytes: 2 << 30,
        }
    }
}

impl WikiSettings {
    /// Reads the site from `LUMOS_WIKI_ENDPOINT`, the rate from `LUMOS_WIKI_RATE` (requests/s) and the cache
    /// folder from `LUMOS_TOOL_CACHE`. The default cache is in the user's cache folder.
    ///
    /// # Errors
    /// If the rate is not a positive number.
    pub fn from_environment() -> Result<Self, String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut settings = Self::default();
        if let Some(endpoint) = set(ENDPOINT) {
            settings.endpoint = endpoint.to_string_lossy().into_owned();
        }
        if let Some(rate) = set(RATE) {
            settings.pace = pace_of_rate(RATE, &rate.to_string_lossy())?;
        }
        let users = || {
            let caches = set("XDG_CACHE_HOME").map(PathBuf::from);
            let caches = caches.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".cache")));
            caches.map(|caches| caches.join("lumos").join("tools"))
        };
        settings.cache = set(CACHE).map(PathBuf::from).or_else(users);
        Ok(settings)
    }

    /// Returns the site if it is not the default one. It is part of the identity, because its pages differ.
    pub(crate) fn other_site(&self) -> Option<&str> {
        let endpoint = self.endpoint.trim_end_matches('/');
        (endpoint != SITE).then_some(endpoint)
    }
}
