//! Fetches a document over HTTP: rate-limited, with retries, from allowed hosts only, and limited in size.
//!
//! Response bodies are decoded like those of the original's HTTP library (`Response.text` of Python's requests): with
//! the encoding in the response, text without one as Latin-1, and with replacement of invalid bytes.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode, Url};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::WikiSettings;
use super::documents::Documents;
use super::site::Site;
use crate::pace::Pace;

/// Wikimedia requires a name and contact information
/// (`https://foundation.wikimedia.org/wiki/Policy:User-Agent_policy`).
const USER_AGENT: &str =
    concat!("lumos-eval/", env!("CARGO_PKG_VERSION"), " (", env!("CARGO_PKG_REPOSITORY"), ")");

const MOST_REDIRECTS: usize = 5;

/// Reasons why an attempt failed.
#[derive(Debug, Clone)]
pub(super) enum Attempt {
    /// A retry may succeed, after the time in `Retry-After` if the site sends it.
    Again { message: String, after: Option<Duration> },
    /// A retry would fail again.
    Final(String),
}

impl Attempt {
    pub(super) fn again(message: impl Into<String>) -> Self {
        Self::Again { message: message.into(), after: None }
    }
}

/// Handling of a missing page (status 404 or 410).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// The error page is read like any other page, as in the original.
    IsPage,
    /// A fault: the address always exists, so another server must have replied.
    IsFault,
}

/// A client of one site.
#[derive(Debug)]
pub(super) struct Client {
    client: reqwest::Client,
    site: Site,
    settings: WikiSettings,
    pace: Pace,
    documents: Option<Documents>,
}

impl Client {
    pub(super) fn new(site: Site, settings: WikiSettings) -> Result<Self, String> {
        let client = reqwest::Client::builder()
            .timeout(settings.timeout)
            .user_agent(USER_AGENT)
            // Followed manually: each redirect is checked and counts against the rate limit.
            .redirect(Policy::none())
            .build()
            .map_err(|error| error.to_string())?;
        let documents = settings.cache.as_deref().map(|cache| Documents::new(cache, settings.most_bytes));
        Ok(Self { client, site, pace: Pace::new(settings.pace), documents, settings })
    }

    /// Returns a parsed document from the cache, or fetches and caches it. Documents that cannot be parsed
    /// are not cached.
    pub(super) async fn document<T: Send + 'static>(
        &self,
        address: Url,
        missing: Missing,
        read: impl Fn(&str) -> Result<T, Attempt> + Clone + Send + 'static,
    ) -> Result<T, String> {
        if let Some(documents) = self.documents.clone() {
            let (address, read) = (address.clone(), read.clone());
            let kept = move || documents.get(address.as_str()).and_then(|text| read(&text).ok());
            if let Some(kept) = spawn_blocking(kept).await.map_err(|error| error.to_string())? {
                return Ok(kept);
            }
        }
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(self.settings.pace.max(Duration::from_millis(10)))
            .with_max_times(self.settings.retries)
            .with_jitter()
            .build();
        loop {
            match self.attempt(&address, missing, read.clone()).await {
                Ok(document) => return Ok(document),
                Err(Attempt::Final(message)) => return Err(format!("{address}: {message}")),
                Err(Attempt::Again { message, after }) => {
                    let Some(delay) = delays.next() else { return Err(format!("{address}: {message}")) };
                    tracing::debug!(%address, message, "retrying a request");
                    sleep(delay.max(after.unwrap_or_default())).await;
                }
            }
        }
    }

    async fn attempt<T: Send + 'static>(
        &self,
        address: &Url,
        missing: Missing,
        read: impl Fn(&str) -> Result<T, Attempt> + Send + 'static,
    ) -> Result<T, Attempt> {
        let response = self.response(address.clone()).await?;
        self.judge(&response, missing)?;
        let header = response.headers().get(CONTENT_TYPE);
        let content_type = header.map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned());
        let body = self.body(response).await?;
        if body.is_empty() {
            return Err(Attempt::again("empty response"));
        }
        let (address, documents) = (address.clone(), self.documents.clone());
        // Parsing a page takes milliseconds, and longer for a malicious page.
        let reading = spawn_blocking(move || {
            let text = text_of(&body, content_type.as_deref());
            let document = read(&text)?;
            if let Some(documents) = documents
                && let Err(error) = documents.put(address.as_str(), &text)
            {
                tracing::warn!(%address, %error, "failed to cache a document");
            }
            Ok(document)
        });
        reading.await.map_err(|error| Attempt::Final(format!("failed to read the response: {error}")))?
    }

    /// Sends a request, follows redirects and returns the final response.
    async fn response(&self, mut address: Url) -> Result<Response, Attempt> {
        for _ in 0..=MOST_REDIRECTS {
            self.pace.turn().await;
            let response = self.client.get(address.clone()).send().await.map_err(broken)?;
            if !response.status().is_redirection() {
                return Ok(response);
            }
            let place = response.headers().get(LOCATION).and_then(|place| place.to_str().ok());
            let next = place.and_then(|place| address.join(place).ok()).ok_or_else(|| {
                Attempt::Final(format!("the site returned {} without a location", response.status()))
            })?;
            if !self.site.allows(&next) {
                let host = next.host_str().unwrap_or("another scheme");
                return Err(Attempt::Final(format!("redirect to {host}, which is not an allowed host")));
            }
            address = next;
        }
        Err(Attempt::Final("too many redirects".to_owned()))
    }

    /// Checks the status of a response.
    fn judge(&self, response: &Response, missing: Missing) -> Result<(), Attempt> {
        let status = response.status();
        let is_missing = matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
        // The original ignores the status. An invalid request is an error of the agent, not of the
        // infrastructure.
        let is_refusal = matches!(status, StatusCode::BAD_REQUEST | StatusCode::URI_TOO_LONG);
        if status.is_success() || is_refusal || is_missing && missing == Missing::IsPage {
            return Ok(());
        }
        let message = format!("the site returned {status}");
        let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        if !is_busy && !status.is_server_error() {
            return Err(Attempt::Final(message));
        }
        let after = rest_asked_for(response.headers());
        if let Some(after) = after {
            if after > self.settings.longest_rest {
                let message = format!("{message} (Retry-After: {} s)", after.as_secs());
                return Err(Attempt::Final(message));
            }
            // Delays all requests of this client.
            self.pace.rest(after);
        }
        Err(Attempt::Again { message, after })
    }

    /// Reads the whole body, up to the size limit.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Attempt> {
        let most = self.settings.most_bytes;
        let too_long = || Attempt::Final(format!("the response is longer than {most} bytes"));
        if response.content_length().is_some_and(|length| length > most as u64) {
            return Err(too_long());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > most {
                return Err(too_long());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// Converts a network error, a timeout or an incomplete response.
fn broken(error: reqwest::Error) -> Attempt {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Attempt::again(format!("{error}{cause}"))
}

/// Decodes a body. `content_type` is the value of the `Content-Type` header.
///
/// Encodings other than UTF-8 and Latin-1 are decoded as UTF-8, like unknown encodings in the original.
/// Without a header, the original guesses the encoding; here it is UTF-8.
fn text_of(body: &[u8], content_type: Option<&str>) -> String {
    if is_latin(content_type.unwrap_or_default()) {
        body.iter().copied().map(char::from).collect()
    } else {
        String::from_utf8_lossy(body).into_owned()
    }
}

fn is_latin(content_type: &str) -> bool {
    let content_type = content_type.to_ascii_lowercase();
    let mut parts = content_type.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix("charset")?.trim_start().strip_prefix('='));
    match charset.map(|name| name.trim().trim_matches(['"', '\''])) {
        Some(name) => matches!(name, "iso-8859-1" | "iso8859-1" | "iso_8859-1" | "latin-1" | "latin1" | "l1"),
        None => kind.contains("text"),
    }
}

/// Returns the value of `Retry-After`: seconds, or a date.
fn rest_asked_for(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Duration::try_from(date.duration_since(jiff::Timestamp::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_are_given_in_seconds_or_as_a_date() {
        let rest = |text: &str| rest_asked_for(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]));
        assert_eq!(rest(" 7 "), Some(Duration::from_secs(7)));
        let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(100);
        let date = jiff::fmt::rfc2822::to_string(&date.to_zoned(jiff::tz::TimeZone::UTC)).unwrap();
        let rested = rest(&date.replace("+0000", "GMT")).unwrap();
        assert!((98..=100).contains(&rested.as_secs()), "{rested:?}");
        assert_eq!(rest("Wed, 21 Oct 2015 07:28:00 GMT"), None);
        assert_eq!(rest("soon"), None);
    }

    #[test]
    fn bodies_are_read_in_the_encoding_that_is_named() {
        let utf8 = "é山".as_bytes();
        for header in ["text/html; charset=UTF-8", "text/html;charset=\"utf-8\"", "application/json"] {
            assert_eq!(text_of(utf8, Some(header)), "é山", "{header}");
        }
        assert_eq!(text_of(utf8, None), "é山");
        assert_eq!(text_of(b"caf\xe9", Some("text/html; charset=ISO-8859-1")), "café");
        // Text without a charset is Latin-1, as formerly specified by HTTP/1.1.
        assert_eq!(text_of("é".as_bytes(), Some("text/html")), "Ã©");
    }

    #[test]
    fn what_cannot_be_read_is_replaced() {
        assert_eq!(text_of(b"caf\xe9 \xf0\x9f", Some("text/html; charset=utf-8")), "caf\u{fffd} \u{fffd}");
        assert_eq!(text_of(b"caf\xe9", Some("text/html; charset=no-such")), "caf\u{fffd}");
    }
}
