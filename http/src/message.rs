//! Requests, responses and errors of [`HttpClient`](crate::HttpClient).

use std::fmt;
use std::iter::successors;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Method, StatusCode};
use thiserror::Error;

/// A request. Redirects of GET and HEAD are followed as the client's settings allow.
#[derive(Clone)]
pub struct HttpRequest {
    /// Method.
    pub method: Method,
    /// URL. It may contain a key: neither messages nor logs contain it.
    pub url: String,
    /// JSON to send.
    pub body: Option<Vec<u8>>,
    /// Further headers.
    pub headers: Vec<(&'static str, String)>,
    /// First byte to request, of a file whose beginning is known.
    pub from: u64,
    /// Statuses whose whole body is wanted; success by default. Redirects with such a status are not followed.
    pub accepts: fn(StatusCode) -> bool,
    /// Whether the request is sent once, without retries.
    pub once: bool,
    /// Whether it does not count as one of the client's concurrent requests.
    pub is_extra: bool,
    /// Timeout of an attempt, from when it is its turn, if shorter than the client's.
    pub timeout: Option<Duration>,
}

impl HttpRequest {
    /// Creates a GET request.
    pub fn get(url: impl Into<String>) -> Self {
        let accepts = |status: StatusCode| status.is_success();
        Self {
            method: Method::GET,
            url: url.into(),
            body: None,
            headers: Vec::new(),
            from: 0,
            accepts,
            once: false,
            is_extra: false,
            timeout: None,
        }
    }

    /// Creates a POST request with JSON. It is retried like others, so it may arrive more than once.
    pub fn post(url: impl Into<String>, body: Vec<u8>) -> Self {
        Self { method: Method::POST, body: Some(body), ..Self::get(url) }
    }

    /// Creates a DELETE request.
    pub fn delete(url: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(url) }
    }
}

/// A response. If its status is not accepted, the body is its beginning, as far as it could be read.
pub struct HttpResponse {
    /// Status.
    pub status: StatusCode,
    /// Body.
    pub body: Vec<u8>,
    pub(crate) headers: HeaderMap,
    pub(crate) is_accepted: bool,
}

impl HttpResponse {
    /// Returns the value of a header, if it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Returns the response if its status is accepted.
    ///
    /// # Errors
    /// Otherwise. Statuses that may change are retried: 408, 409, 425, 429 and 5xx.
    pub fn accepted(self) -> Result<Self, HttpError> {
        if self.is_accepted { Ok(self) } else { Err(self.rejected()) }
    }

    pub(crate) fn rejected(self) -> HttpError {
        let again = matches!(self.status.as_u16(), 408 | 409 | 425 | 429) || self.status.is_server_error();
        let message = format!("status {}", self.status);
        HttpError { response: Some(Box::new(self)), again, ..HttpError::last(message) }
    }
}

impl fmt::Debug for HttpResponse {
    /// Shows the status only: headers may contain signed URLs, and a body may repeat a key.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.status, formatter)
    }
}

/// Error of a request after its last attempt, or of one attempt.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct HttpError {
    /// Cause, without the URL. Errors that a client returns do not contain its key.
    pub message: String,
    /// The response, if its status is not accepted.
    pub response: Option<Box<HttpResponse>>,
    /// Whether no response of the service arrived: only an incomplete one, or a redirect that may not be followed.
    pub is_network: bool,
    /// Whether the service did not respond in time.
    pub is_timeout: bool,
    /// Whether the URL leads to a response that is not read: it is too long, or redirects where redirects may not lead.
    /// Not for redirects that keep path and query, because the whole service has moved then.
    pub is_refused: bool,
    /// Whether another attempt may succeed.
    pub again: bool,
}

impl HttpError {
    /// Creates an error that another attempt may not have.
    pub fn again(message: impl Into<String>) -> Self {
        Self { again: true, ..Self::last(message) }
    }

    /// Creates an error that another attempt would repeat.
    pub fn last(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            response: None,
            is_network: false,
            is_timeout: false,
            is_refused: false,
            again: false,
        }
    }

    /// Creates an error of a redirect that may not be followed.
    pub(crate) fn redirect(message: impl Into<String>) -> Self {
        Self { is_network: true, ..Self::last(message) }
    }

    /// Converts a network error, a timeout or an incomplete response. URLs are left out, because they may contain
    /// keys and signatures.
    pub(crate) fn network(error: reqwest::Error) -> Self {
        // Only an invalid request is not sent.
        let is_network = !error.is_builder();
        // A connection that cannot be established says nothing about the load.
        let is_timeout = error.is_timeout() && !error.is_connect();
        let error = error.without_url();
        let causes = successors(Some(&error as &(dyn std::error::Error + 'static)), |cause| cause.source());
        let message = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        Self { is_network, is_timeout, again: is_network, ..Self::last(message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_may_change_are_retried() {
        let error = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            let (headers, body) = (HeaderMap::new(), b"the key".to_vec());
            HttpResponse { status, headers, body, is_accepted: false }.accepted().unwrap_err()
        };
        for status in [408, 409, 425, 429, 500, 502, 503, 504] {
            assert!(error(status).again, "{status}");
        }
        for status in [300, 304, 400, 401, 403, 404, 410, 414, 416, 422] {
            assert!(!error(status).again, "{status}");
        }
        assert_eq!(error(404).to_string(), "status 404 Not Found");
        assert!(!format!("{:?}", error(404)).contains("key"));
    }
}
