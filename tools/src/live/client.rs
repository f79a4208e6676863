//! Fetches a document over HTTP, or from the cache.
//!
//! Response bodies are decoded like those of the original's HTTP library (`Response.text` of Python's requests): with
//! the encoding in the response, text without one as Latin-1, and with replacement of invalid bytes.

use std::time::Duration;

use axum::http::StatusCode;
use lumos_http::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpSettings};
use tokio::task::spawn_blocking;
use url::Url;

use super::WikiSettings;
use super::documents::Documents;
use super::site::Site;

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
    client: HttpClient,
    documents: Option<Documents>,
}

impl Client {
    pub(super) fn new(site: Site, settings: WikiSettings) -> Result<Self, String> {
        let (most_bytes, limit) = (settings.most_bytes, settings.cache_bytes);
        let documents = settings.cache.map(|cache| Documents::new(&cache, most_bytes, limit));
        let client = HttpClient::new(HttpSettings {
            timeout: Some(settings.timeout),
            retries: settings.retries,
            first_pause: settings.pace.max(Duration::from_millis(10)),
            longest_pause: settings.longest_rest,
            pace: settings.pace,
            most_bytes,
            redirects: Some(Box::new(move |address| site.allows(address))),
            ..HttpSettings::default()
        })?;
        Ok(Self { client, documents })
    }

    /// Returns a parsed document from the cache, or fetches and caches it. Documents that cannot be parsed,
    /// and bodies that are not text, are not cached.
    pub(super) async fn document<T: Send + 'static>(
        &self,
        address: Url,
        missing: Missing,
        read: impl Fn(&str) -> Result<T, HttpError> + Clone + Send + Sync + 'static,
    ) -> Result<T, HttpError> {
        if let Some(documents) = self.documents.clone() {
            let (address, read) = (address.clone(), read.clone());
            let kept = move || documents.get(address.as_str()).and_then(|text| read(&text).ok());
            let kept = spawn_blocking(kept).await.map_err(|error| HttpError::last(error.to_string()))?;
            if let Some(kept) = kept {
                return Ok(kept);
            }
        }
        let request = HttpRequest { accepts: missing.accepts(), ..HttpRequest::get(address.as_str()) };
        let read = |response| self.read(&address, response, read.clone());
        let document = self.client.send(&request, read).await;
        document.map_err(|error| HttpError { message: format!("{address}: {error}"), ..error })
    }

    /// Parses and caches a response.
    async fn read<T: Send + 'static>(
        &self,
        address: &Url,
        response: HttpResponse,
        read: impl Fn(&str) -> Result<T, HttpError> + Send + 'static,
    ) -> Result<T, HttpError> {
        let response = response.accepted()?;
        if response.body.is_empty() {
            return Err(HttpError::again("empty response"));
        }
        let (address, documents) = (address.clone(), self.documents.clone());
        // Parsing a page takes milliseconds, and longer for a malicious page.
        let reading = spawn_blocking(move || {
            let content_type = response.header("content-type");
            let text = text_of(&response.body, content_type);
            let document = read(&text)?;
            if let Some(documents) = documents
                && is_text(content_type)
                && let Err(error) = documents.put(address.as_str(), &text)
            {
                tracing::warn!(%address, %error, "failed to cache a document");
            }
            Ok(document)
        });
        reading.await.map_err(|error| HttpError::last(format!("failed to read the response: {error}")))?
    }
}

impl Missing {
    /// Statuses of pages. The original ignores the status. An invalid request (400, 414) is an error of the agent, not
    /// of the infrastructure.
    fn accepts(self) -> fn(StatusCode) -> bool {
        match self {
            Self::IsPage => |status| status.is_success() || matches!(status.as_u16(), 400 | 404 | 410 | 414),
            Self::IsFault => |status| status.is_success() || matches!(status.as_u16(), 400 | 414),
        }
    }
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

/// Whether a body is text, such as a page. A body without a type may be.
fn is_text(content_type: Option<&str>) -> bool {
    let kind = content_type.unwrap_or("text/plain").to_ascii_lowercase();
    ["text/", "json", "xml"].iter().any(|text| kind.contains(text))
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn texts_are_cached() {
        for header in ["text/html; charset=UTF-8", "application/json", "Application/XHTML+XML"] {
            assert!(is_text(Some(header)), "{header}");
        }
        assert!(is_text(None) && !is_text(Some("image/png")) && !is_text(Some("application/octet-stream")));
    }

    #[test]
    fn what_cannot_be_read_is_replaced() {
        assert_eq!(text_of(b"caf\xe9 \xf0\x9f", Some("text/html; charset=utf-8")), "caf\u{fffd} \u{fffd}");
        assert_eq!(text_of(b"caf\xe9", Some("text/html; charset=no-such")), "caf\u{fffd}");
    }
}
