//! The API key that clients must send.

use std::fmt;

use axum::http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use super::error::ApiError;

/// A bearer key. Only its hash is stored, so that it cannot be displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// Stores the hash of a key.
    pub fn new(key: &str) -> Self {
        Self(Sha256::digest(key.trim()).into())
    }

    /// Checks the key in the headers of a request. Hashes are compared, so that timing reveals nothing about
    /// the key.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let refused =
            |message: &str| Err(ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message));
        let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some((scheme, key)) = shown.and_then(|shown| shown.split_once(' ')) else {
            return refused("Missing API key; send it as `Authorization: Bearer KEY`");
        };
        if scheme.eq_ignore_ascii_case("bearer") && Self::new(key) == *self {
            return Ok(());
        }
        refused("Invalid API key: it differs from the key that this server was started with")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("[key]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_is_let_in() {
        let key = ApiKey::new("secret\n");
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        for good in ["Bearer secret", "bearer  secret"] {
            assert_eq!(key.check(&with(good)), Ok(()), "{good}");
        }
        for bad in ["Bearer secre", "Basic secret", "secret", "Bearer "] {
            assert_eq!(key.check(&with(bad)).unwrap_err().status, StatusCode::UNAUTHORIZED, "{bad}");
        }
        assert!(key.check(&HeaderMap::new()).is_err());
        assert!(!format!("{key:?}").contains("secret"));
    }
}
