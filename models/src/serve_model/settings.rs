//! Access control and limits of a server: the API key that clients must send, and the sizes and times of requests.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use lumos_http::{ApiKey, HttpLimits, is_loopback_host, requested_host};

use super::error::ApiError;

/// Access control and limits of a server.
#[derive(Debug, Clone)]
pub struct ServeSettings {
    /// The API key that clients must send; without one, all clients are accepted.
    pub key: Option<ApiKey>,
    /// Whether requests are rejected whose `Host` is neither `localhost` nor a loopback address. Set this for a
    /// server that listens on loopback without a key: otherwise a web page can use it through a host name that
    /// resolves to this machine (DNS rebinding).
    pub loopback_hosts_only: bool,
    /// Limits on connections and headers.
    pub http: HttpLimits,
    /// Maximum size of a request body in bytes.
    pub max_body: usize,
    /// Maximum bytes of bodies that are being received or wait for their prompts to be encoded, over all
    /// requests. Further requests are rejected.
    pub bodies: usize,
    /// Maximum size of a prompt's text in bytes, regardless of the model's context length.
    pub max_prompt: usize,
    /// Maximum bytes of long bodies and prompts that are parsed and encoded at the same time; further ones
    /// wait. Either takes about a hundred times as much memory temporarily.
    pub preparing: usize,
    /// Timeout for receiving a body.
    pub body_time: Duration,
    /// Maximum waiting and running sequences. Further requests are rejected.
    pub max_sequences: usize,
    /// How long a server that was stopped may take to send errors to its clients.
    pub farewell: Duration,
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            key: None,
            loopback_hosts_only: false,
            http: HttpLimits::default(),
            max_body: 2 << 20,
            bodies: 32 << 20,
            max_prompt: 1 << 20,
            preparing: 2 << 20,
            body_time: Duration::from_secs(60),
            max_sequences: 1024,
            farewell: Duration::from_secs(2),
        }
    }
}

/// Checks the key in the headers of a request.
pub(super) fn check(key: &ApiKey, headers: &HeaderMap) -> Result<(), ApiError> {
    let refused = |message: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message));
    match ApiKey::sent(headers) {
        Some(sent) if key.is(sent) => Ok(()),
        Some(_) => refused("Invalid API key: it differs from the key that this server was started with"),
        None => refused("Missing API key; send it as `Authorization: Bearer KEY`"),
    }
}

/// Checks that a request is for this machine. One without `Host` is accepted, because browsers always send it.
pub(super) fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_own = requested_host(headers).is_some_and(|host| is_loopback_host(&host));
    if is_own || !headers.contains_key(header::HOST) {
        return Ok(());
    }
    let message = "Unknown host: without an API key, the server accepts only `localhost` and loopback \
                   addresses as `Host`. Set LUMOS_API_KEY on the server to accept other hosts";
    Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_is_let_in() {
        let key = ApiKey::new("secret\n");
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        for good in ["Bearer secret", "bearer  secret"] {
            assert_eq!(check(&key, &with(good)), Ok(()), "{good}");
        }
        for bad in ["Bearer secre", "Basic secret", "secret", "Bearer "] {
            assert_eq!(check(&key, &with(bad)).unwrap_err().status, StatusCode::UNAUTHORIZED, "{bad}");
        }
        assert!(check(&key, &HeaderMap::new()).is_err());
    }
}
