//! HTTP interface of the hub: interprets responses and decides when a request is retried.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use backon::{ExponentialBuilder, Retryable};
use lumos_http::{bypasses_proxy, is_private, retry_after};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};

use super::error::HubError;
use super::name::HubName;
use super::settings::HubSettings;

/// Timeout for establishing a connection.
const CONNECTING: Duration = Duration::from_secs(20);
/// Timeout for reading more of a response.
const STANDING_STILL: Duration = Duration::from_secs(60);
/// Maximum size of a model description in bytes.
const LARGEST_DESCRIPTION: usize = 32 << 20;
/// Retries of the first connection to the hub. If the network is down, it does not come back within seconds.
const RECONNECTIONS: usize = 2;
/// Maximum redirects of one request.
const REDIRECTIONS: usize = 5;

/// A failed request.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) error: HubError,
    again: bool,
    /// Whether the hub has never been reached.
    unconnected: bool,
    after: Option<Duration>,
}

impl Attempt {
    pub(super) fn again(error: HubError) -> Self {
        Self { error, again: true, unconnected: false, after: None }
    }

    pub(super) fn last(error: HubError) -> Self {
        Self { error, again: false, unconnected: false, after: None }
    }
}

/// HTTP client of the hub.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) settings: HubSettings,
    /// Follows redirects. The token is sent to the hub only.
    following: Client,
    /// Does not follow redirects.
    staying: Client,
    /// Whether the hub has responded before. A broken connection may recover; a connection that was never
    /// established rarely does.
    reached: AtomicBool,
}

/// Metadata of a file, from a HEAD request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Hash of the content: SHA-256 for large files, git's hash for small ones.
    pub(super) etag: String,
    /// Size in bytes.
    pub(super) bytes: Option<u64>,
}

impl Site {
    pub(super) fn new(mut settings: HubSettings) -> Result<Self, HubError> {
        let mut headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        if settings.token.is_some() && !is_private(&settings.endpoint) {
            let host = settings.endpoint.host_str().unwrap_or_default();
            tracing::warn!("HF_TOKEN is not sent to {host}: HF_ENDPOINT is not an https:// address");
            settings.token = None;
        }
        if let Some(token) = &settings.token {
            let wrong = |_| HubError::Settings {
                message: "invalid value for HF_TOKEN: it has characters that \
                are not allowed in a header"
                    .to_owned(),
            };
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(wrong)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = |policy| {
            let client = Client::builder();
            let client = if bypasses_proxy(&settings.endpoint) { client.no_proxy() } else { client };
            client
                .user_agent(concat!("lumos-eval/", env!("CARGO_PKG_VERSION")))
                .default_headers(headers.clone())
                .connect_timeout(CONNECTING)
                .read_timeout(STANDING_STILL)
                .redirect(policy)
                // Keeps the token from leaving TLS in a redirect within the host.
                .https_only(settings.endpoint.scheme() == "https")
                .build()
                .map_err(|error| HubError::Settings {
                    message: format!("failed to create a client for the hub: {error}"),
                })
        };
        let (following, staying) = (client(Policy::limited(REDIRECTIONS))?, client(Policy::none())?);
        Ok(Self { settings, following, staying, reached: AtomicBool::new(false) })
    }

    /// Host and port of the hub.
    pub(super) fn host(&self) -> String {
        let endpoint = &self.settings.endpoint;
        let port = endpoint.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}{port}", endpoint.host_str().unwrap_or_default())
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.settings.endpoint.as_str().trim_end_matches('/'))
    }

    /// Requests the description of a model's revision.
    pub(super) async fn describe(&self, name: &HubName) -> Result<Vec<u8>, HubError> {
        let revision = name.revision().replace('/', "%2F");
        let url = self.url(&format!("api/models/{}/revision/{revision}", name.id()));
        let attempt = || async {
            let mut response = self.send(self.following.get(&url), name, name.revision()).await?;
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|error| self.broken(error, name))? {
                if body.len() + piece.len() > LARGEST_DESCRIPTION {
                    return Err(Attempt::last(self.answer("model description too large")));
                }
                body.extend_from_slice(&piece);
            }
            Ok(body)
        };
        self.patiently(attempt).await
    }

    /// Requests the metadata of a file at a commit.
    pub(super) async fn head(&self, name: &HubName, file: &str) -> Result<Head, HubError> {
        let attempt = || async {
            let mut url = Url::parse(&self.file_url(name, file))
                .map_err(|_| Attempt::last(self.answer("invalid file name in the model description")))?;
            for _ in 0..REDIRECTIONS {
                let response = self.send(self.staying.request(Method::HEAD, url.clone()), name, file).await?;
                // A renamed model redirects within the hub. Large files redirect to storage, but this
                // response already has their metadata.
                let headers = response.headers();
                let elsewhere = headers.get(LOCATION).and_then(|to| url.join(to.to_str().ok()?).ok());
                match elsewhere
                    .filter(|to| to.origin() == url.origin() && !headers.contains_key("x-linked-etag"))
                {
                    Some(to) => url = to,
                    None => return self.known(&response, name),
                }
            }
            Err(Attempt::last(self.answer("too many redirects")))
        };
        self.patiently(attempt).await
    }

    /// Requests a file at a commit, starting at byte `from`.
    pub(super) async fn file(&self, name: &HubName, file: &str, from: u64) -> Result<Response, Attempt> {
        let mut request = self.following.get(self.file_url(name, file));
        if from > 0 {
            request = request.header(reqwest::header::RANGE, format!("bytes={from}-"));
        }
        self.send(request, name, file).await
    }

    fn file_url(&self, name: &HubName, file: &str) -> String {
        self.url(&format!("{}/resolve/{}/{file}", name.id(), name.revision()))
    }

    fn known(&self, response: &Response, name: &HubName) -> Result<Head, Attempt> {
        let text = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        if text("x-repo-commit").is_some_and(|commit| commit != name.revision()) {
            return Err(Attempt::last(self.answer("response for a different commit")));
        }
        let etag = text("x-linked-etag").or_else(|| text("etag")).unwrap_or_default();
        let etag = etag.trim_start_matches("W/").trim_matches('"');
        if !matches!(etag.len(), 40 | 64) || !super::name::is_hex(etag) {
            return Err(Attempt::last(self.answer("response without a hash of the file (ETag)")));
        }
        // The Content-Length of a redirect is that of its own body.
        let length = || text("content-length").filter(|_| response.status().is_success());
        let bytes = text("x-linked-size").or_else(length);
        Ok(Head { etag: etag.to_owned(), bytes: bytes.and_then(|bytes| bytes.parse().ok()) })
    }

    /// Sends a request with retries. Pauses grow, with jitter, and last at least as long as the hub asks for.
    pub(super) async fn patiently<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, HubError>
    where
        F: Future<Output = Result<T, Attempt>>,
    {
        let settings = &self.settings;
        let schedule = ExponentialBuilder::default()
            .with_min_delay(settings.first_pause.max(Duration::from_millis(1)))
            .with_max_delay(settings.longest_pause)
            .with_max_times(settings.retries)
            .with_jitter();
        let mut unconnected = 0;
        let ended = attempt
            .retry(schedule)
            .when(|attempt| {
                unconnected += usize::from(attempt.unconnected);
                attempt.again && unconnected <= RECONNECTIONS
            })
            .adjust(|attempt, pause| {
                // The jittered pause is added to Retry-After, so that clients do not all retry at the same
                // moment.
                pause.map(|pause| attempt.after.unwrap_or_default() + pause)
            })
            .notify(|Attempt { error, unconnected, .. }, pause| match unconnected {
                // The error of the last attempt is reported anyway.
                true => tracing::debug!(%error, ?pause, "retrying the connection to the hub"),
                false => tracing::info!(%error, ?pause, "retrying a request to the hub"),
            })
            .await;
        ended.map_err(|attempt| attempt.error)
    }

    async fn send(&self, request: RequestBuilder, name: &HubName, what: &str) -> Result<Response, Attempt> {
        let response = request.send().await.map_err(|error| self.broken(error, name))?;
        self.reached.store(true, Ordering::Relaxed);
        let status = response.status();
        if status.is_success() || status.is_redirection() || status == StatusCode::RANGE_NOT_SATISFIABLE {
            return Ok(response);
        }
        Err(self.judge(&response, name, what))
    }

    /// Maps an unsuccessful response to an error.
    fn judge(&self, response: &Response, name: &HubName, what: &str) -> Attempt {
        let (status, host, id) = (response.status(), self.host(), name.id().to_owned());
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        match (status, header("x-error-code").unwrap_or_default()) {
            (_, "GatedRepo") => {
                Attempt::last(HubError::Gated { status: status.to_string(), address: self.url(&id), id })
            }
            (_, "RevisionNotFound" | "EntryNotFound") => {
                Attempt::last(HubError::Missing { id, host, what: what.to_owned() })
            }
            // The hub does not reveal which private models exist.
            (_, "RepoNotFound") => Attempt::last(HubError::NoSuchModel { id, host }),
            (StatusCode::UNAUTHORIZED, _) if self.settings.token.is_none() => {
                Attempt::last(HubError::NoSuchModel { id, host })
            }
            (StatusCode::FORBIDDEN, _) if self.settings.token.is_none() => {
                Attempt::last(HubError::Gated { status: status.to_string(), address: self.url(&id), id })
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => {
                Attempt::last(HubError::Refused { id, host, status: status.to_string() })
            }
            (StatusCode::NOT_FOUND, _) => Attempt::last(HubError::NoSuchModel { id, host }),
            (status, _) => {
                let later = status == StatusCode::TOO_MANY_REQUESTS
                    || status == StatusCode::REQUEST_TIMEOUT
                    || status.is_server_error();
                let after = header(RETRY_AFTER.as_str()).and_then(retry_after);
                let too_long = after.is_some_and(|after| after > self.settings.longest_pause);
                let asks =
                    after.filter(|_| too_long).map(|after| format!(" (Retry-After: {} s)", after.as_secs()));
                let message = format!("status {status}{}", asks.unwrap_or_default());
                Attempt { after, again: later && !too_long, ..Attempt::last(self.answer(&message)) }
            }
        }
    }

    /// Maps a connection error. URLs are left out, because a URL of a large file authorises its download.
    pub(super) fn broken(&self, error: reqwest::Error, name: &HubName) -> Attempt {
        let error = error.without_url();
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(deeper) = cause {
            message = format!("{message}: {deeper}");
            cause = deeper.source();
        }
        let unconnected = error.is_connect() && !self.reached.load(Ordering::Relaxed);
        let error = HubError::Unreachable { id: name.id().to_owned(), host: self.host(), message };
        Attempt { unconnected, ..Attempt::again(error) }
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
