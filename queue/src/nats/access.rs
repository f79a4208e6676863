//! Where the servers are and who asks.

use std::fmt;
use std::path::PathBuf;

use super::NatsError;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// How to reach NATS servers and how to authenticate. Printing it shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The servers, separated by commas: `nats://host:4222`; `tls://…` demands TLS. Holds no secret.
    pub url: String,
    /// The user.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Secret>,
    /// A token, instead of user and password.
    pub token: Option<Secret>,
    /// A file that holds an nkey seed (`SU…`).
    pub nkey_seed: Option<PathBuf>,
    /// A credentials file (`.creds`: a JWT and its seed).
    pub credentials: Option<PathBuf>,
    /// Certificates (PEM) of the authorities that may vouch for the server, instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// This client's certificate (PEM).
    pub tls_certificate: Option<PathBuf>,
    /// The key (PEM) of this client's certificate.
    pub tls_key: Option<PathBuf>,
    /// Whether to refuse servers without TLS.
    pub tls: bool,
}

impl Access {
    /// Takes `user:password@` or `token@` out of the URL. Several servers are separated by commas.
    ///
    /// # Errors
    /// If it is no URL of NATS servers.
    pub fn new(url: &str) -> Result<Self, NatsError> {
        Ok(Self {
            url: url.to_owned(),
            user: None,
            password: None,
            token: None,
            nkey_seed: None,
            credentials: None,
            tls_ca: None,
            tls_certificate: None,
            tls_key: None,
            tls: false,
        })
    }

    /// The servers, for people; holds no secret.
    pub fn url(&self) -> &str {
        &self.url
    }
}
