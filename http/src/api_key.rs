//! The key that clients of a server must send.

use std::fmt;

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

/// A key that clients must send. Only its hash is stored, so that it cannot be displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// Stores the hash of a key.
    pub fn new(key: &str) -> Self {
        Self(Sha256::digest(key.trim()).into())
    }

    /// Whether a client has sent this key. Hashes are compared, so that timing reveals nothing about the key.
    pub fn is(&self, sent: &str) -> bool {
        Self::new(sent) == *self
    }

    /// Returns the key in the header `Authorization: Bearer KEY` of a request.
    pub fn sent(headers: &HeaderMap) -> Option<&str> {
        let (scheme, key) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key)
    }

    /// Returns a value derived from the key that a browser can keep in its place: it does not reveal the key.
    pub fn derived(&self) -> String {
        hex::encode(Sha256::digest([b"lumos cookie ".as_slice(), &self.0].concat()))
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
    fn only_the_key_is_the_key() {
        let key = ApiKey::new("secret\n");
        let with = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        let is = |value: &str| ApiKey::sent(&with(value)).is_some_and(|sent| key.is(sent));
        for good in ["Bearer secret", "bearer  secret"] {
            assert!(is(good), "{good}");
        }
        for bad in ["Bearer secre", "Basic secret", "secret", "Bearer "] {
            assert!(!is(bad), "{bad}");
        }
        assert_eq!(ApiKey::sent(&HeaderMap::new()), None);
        assert!(!format!("{key:?}{}", key.derived()).contains("secret"));
        assert!(!key.is(&key.derived()));
        assert_ne!(key.derived(), ApiKey::new("other").derived());
    }
}
