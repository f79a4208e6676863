//! HTTP interface of the hub: its addresses, and the interpretation of its responses.

use std::future::ready;
use std::time::Duration;

use http::{Method, StatusCode};
use lumos_http::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpSettings, host_and_port, is_private};
use url::Url;

use super::error::HubError;
use super::name::HubName;
use super::settings::HubSettings;

/// Maximum size of a description in bytes.
const LARGEST_DESCRIPTION: usize = 32 << 20;
/// Timeout of a request for a description or for metadata. Downloads have a minimum rate instead.
const DESCRIBING: Duration = Duration::from_secs(120);
/// Retries of the first connection to the hub. If the network is down, it does not come back within seconds.
const RECONNECTIONS: usize = 2;
/// Maximum redirects of one request within the hub.
const REDIRECTIONS: usize = 5;

/// HTTP client of the hub.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) settings: HubSettings,
    /// Follows redirects. The token is sent to the hub only.
    pub(super) client: HttpClient,
}

/// Metadata of a file, from a HEAD request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Hash of the content: SHA-256 for large files, git's for small ones, which is shorter.
    pub(super) etag: String,
    /// Size in bytes.
    pub(super) bytes: Option<u64>,
}

impl Site {
    pub(super) fn new(mut settings: HubSettings) -> Result<Self, HubError> {
        if settings.token.is_some() && !is_private(&settings.endpoint) {
            let host = settings.endpoint.host_str().unwrap_or_default();
            tracing::warn!("HF_TOKEN is not sent to {host}: HF_ENDPOINT is not an https:// address");
            settings.token = None;
        }
        let client = HttpClient::new(HttpSettings {
            timeout: None,
            retries: settings.retries,
            first_retries: RECONNECTIONS,
            first_pause: settings.first_pause,
            longest_pause: settings.longest_pause,
            most_bytes: LARGEST_DESCRIPTION,
            redirects: Some(Box::new(|_| true)),
            key: settings.token.clone(),
            bearer_for: Some(settings.endpoint.clone()),
            ..HttpSettings::default()
        });
        let client = client.map_err(|error| HubError::Settings {
            message: format!("failed to create a client for the hub: {error}; hint: check HF_TOKEN"),
        })?;
        Ok(Self { settings, client })
    }

    /// Host and port of the hub.
    pub(super) fn host(&self) -> String {
        host_and_port(&self.settings.endpoint)
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.settings.endpoint.as_str().trim_end_matches('/'))
    }

    /// Requests the description of a revision.
    pub(super) async fn describe(&self, name: &HubName) -> Result<Vec<u8>, HubError> {
        let revision = name.revision().replace('/', "%2F");
        let kind = name.kind().plural();
        let url = self.url(&format!("api/{kind}/{}/revision/{revision}", name.id()));
        let request = HttpRequest { timeout: Some(DESCRIBING), ..HttpRequest::get(url) };
        let asked = self.client.send(&request, |response| ready(response.accepted())).await;
        asked.map(|response| response.body).map_err(|error| self.error(error, name, name.revision()))
    }

    /// Requests the metadata of a file at a commit.
    pub(super) async fn head(&self, name: &HubName, file: &str) -> Result<Head, HubError> {
        let mut url = Url::parse(&self.file_url(name, file))
            .map_err(|_| self.answer("invalid file name in the description"))?;
        for _ in 0..REDIRECTIONS {
            let request = HttpRequest {
                method: Method::HEAD,
                accepts: |status| status.is_success() || status.is_redirection(),
                timeout: Some(DESCRIBING),
                ..HttpRequest::get(url.as_str())
            };
            let asked = self.client.send(&request, |response| ready(response.accepted())).await;
            let response = asked.map_err(|error| self.error(error, name, file))?;
            // A renamed repository redirects within the hub. Large files redirect to storage, but this response already
            // has their metadata.
            let elsewhere = response.header("location").and_then(|to| url.join(to).ok());
            let is_here =
                |to: &Url| to.origin() == url.origin() && response.header("x-linked-etag").is_none();
            match elsewhere.filter(is_here) {
                Some(to) => url = to,
                None => return self.known(&response, name),
            }
        }
        Err(self.answer("too many redirects"))
    }

    /// URL of a file at a commit.
    pub(super) fn file_url(&self, name: &HubName, file: &str) -> String {
        self.url(&format!("{}{}/resolve/{}/{file}", name.kind().path(), name.id(), name.revision()))
    }

    fn known(&self, response: &HttpResponse, name: &HubName) -> Result<Head, HubError> {
        if response.header("x-repo-commit").is_some_and(|commit| commit != name.revision()) {
            return Err(self.answer("response for a different commit"));
        }
        let etag = response.header("x-linked-etag").or_else(|| response.header("etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        if !matches!(etag.len(), 40 | 64) || !super::name::is_hex(etag) {
            return Err(self.answer("response without a hash of the file (ETag)"));
        }
        // The Content-Length of a redirect is that of its own body.
        let length = || response.header("content-length").filter(|_| response.status.is_success());
        let bytes = response.header("x-linked-size").or_else(length);
        Ok(Head { etag: etag.to_owned(), bytes: bytes.and_then(|bytes| bytes.parse().ok()) })
    }

    /// Converts the error of a request about a model or data set. `what` is the revision or file.
    pub(super) fn error(&self, error: HttpError, name: &HubName, what: &str) -> HubError {
        let (host, id, message) = (self.host(), name.id().to_owned(), error.message);
        let kind = name.kind();
        let Some(response) = error.response else {
            return match error.is_network {
                true => HubError::Unreachable { kind, id, host, message },
                false => HubError::Answer { host, message },
            };
        };
        let status = response.status;
        let address = self.url(&format!("{}{id}", kind.path()));
        let gated = |id: String| HubError::Gated { kind, status: status.to_string(), address, id };
        let has_token = self.settings.token.is_some();
        match (response.header("x-error-code").unwrap_or_default(), status) {
            ("GatedRepo", _) => gated(id),
            ("RevisionNotFound" | "EntryNotFound", _) => {
                HubError::Missing { id, host, what: what.to_owned(), known: Vec::new() }
            }
            // The hub does not reveal which private models exist.
            ("RepoNotFound", _) | (_, StatusCode::NOT_FOUND) => HubError::NotFound { kind, id, host },
            (_, StatusCode::UNAUTHORIZED) if !has_token => HubError::NotFound { kind, id, host },
            (_, StatusCode::FORBIDDEN) if !has_token => gated(id),
            (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                HubError::Refused { id, host, status: status.to_string() }
            }
            _ => HubError::Answer { host, message },
        }
    }

    /// Returns the error for what the cache lacks while requests are not allowed.
    pub(super) fn offline(&self, name: &HubName) -> HubError {
        let cache = self.settings.cache.clone();
        HubError::Offline { kind: name.kind(), id: name.id().to_owned(), cache }
    }

    pub(super) fn answer(&self, message: &str) -> HubError {
        HubError::Answer { host: self.host(), message: message.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lumos_http::ServerKey;

    #[test]
    fn the_token_is_not_sent_unencrypted_to_another_machine() {
        let has_token = |endpoint: &str| {
            let settings = HubSettings::new(Url::parse(endpoint).unwrap(), "/nowhere".into());
            let settings = HubSettings { token: Some(ServerKey::new("hf_secret")), ..settings };
            Site::new(settings).unwrap().settings.token.is_some()
        };
        for private in ["https://huggingface.co", "http://localhost:8080", "http://127.0.0.1:1"] {
            assert!(has_token(private), "{private}");
        }
        for public in ["http://mirror.example", "http://192.0.2.1:8080"] {
            assert!(!has_token(public), "{public}");
        }
    }
}
