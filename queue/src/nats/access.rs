//! Addresses of the servers, and the credentials to connect with.

use std::fmt;
use std::path::{Path, PathBuf};

use async_nats::ConnectOptions;

use super::NatsError;

/// A string that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(String);

impl Credential {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret.
    fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("(secret)")
    }
}

/// Addresses of NATS servers and the credentials for them. The `Debug` output contains no secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The servers, separated by commas: `nats://host:4222`; `tls://…` requires TLS. Contains no secret.
    pub url: String,
    /// The user name.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<Credential>,
    /// A token, instead of user and password.
    pub token: Option<Credential>,
    /// A file with an nkey seed (`SU…`).
    pub nkey_seed: Option<PathBuf>,
    /// A credentials file (`.creds`: a JWT and its seed).
    pub credentials: Option<PathBuf>,
    /// Certificates (PEM) of the trusted authorities, instead of the system's.
    pub tls_ca: Option<PathBuf>,
    /// This client's certificate (PEM).
    pub tls_certificate: Option<PathBuf>,
    /// The key (PEM) of this client's certificate.
    pub tls_key: Option<PathBuf>,
    /// Whether to refuse servers without TLS.
    pub tls: bool,
}

impl Access {
    /// Parses a URL and removes `user:password@` or `token@` from it. Several servers are separated by
    /// commas; the credentials of one apply to all.
    ///
    /// # Errors
    /// If the URL is invalid, or its servers have different credentials.
    pub fn new(url: &str) -> Result<Self, NatsError> {
        let mut access = Self::default();
        let mut servers = Vec::new();
        for server in url.split(',').map(str::trim) {
            let (scheme, rest) = server.split_once("://").unwrap_or(("nats", server));
            if !matches!(scheme, "nats" | "tls") {
                return Err(NatsError::Address(format!(
                    "invalid scheme `{scheme}` of a NATS server: expected nats://host:port or tls://host:port"
                )));
            }
            let address = match rest.rsplit_once('@') {
                Some((who, address)) => {
                    access.identify(who)?;
                    address
                }
                None => rest,
            };
            let address = address.trim_end_matches('/');
            check_address(address)?;
            servers.push(format!("{scheme}://{address}"));
        }
        access.url = servers.join(",");
        Ok(access)
    }

    /// Sets the credentials from the part of the URL before the `@`.
    fn identify(&mut self, who: &str) -> Result<(), NatsError> {
        let (user, password, token) = match who.split_once(':') {
            Some((user, password)) => (Some(decoded(user)?), Some(Credential(decoded(password)?)), None),
            None => (None, None, Some(Credential(decoded(who)?))),
        };
        let known = self.user.is_some() || self.token.is_some();
        if known && (user != self.user || password != self.password || token != self.token) {
            return Err(NatsError::Address(
                "all servers of a NATS URL must use the same credentials".to_owned(),
            ));
        }
        (self.user, self.password, self.token) = (user, password, token);
        Ok(())
    }

    /// Describes the presented credentials, for error messages.
    pub(super) fn presented(&self) -> String {
        if let Some(file) = &self.credentials {
            format!("the credentials in {}", file.display())
        } else if let Some(file) = &self.nkey_seed {
            format!("the nkey in {}", file.display())
        } else if self.token.is_some() {
            "the given token".to_owned()
        } else if let Some(user) = &self.user {
            format!("user `{user}` with the given password")
        } else if self.tls_certificate.is_some() {
            "the given client certificate".to_owned()
        } else {
            "a client without credentials".to_owned()
        }
    }

    /// Builds the client's options.
    pub(super) async fn options(&self) -> Result<ConnectOptions, NatsError> {
        let address = |why: &str| Err(NatsError::Address(why.to_owned()));
        let ways = usize::from(self.user.is_some() || self.password.is_some())
            + usize::from(self.token.is_some())
            + usize::from(self.nkey_seed.is_some())
            + usize::from(self.credentials.is_some());
        if ways > 1 {
            return address(
                "conflicting NATS credentials: expected one of user and password, token, nkey seed and \
                 credentials file",
            );
        }
        let mut options = ConnectOptions::new();
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => {
                options = options.user_and_password(user.clone(), password.reveal().to_owned());
            }
            (None, None) => {}
            (Some(_), None) => return address("missing password for the NATS user"),
            (None, Some(_)) => return address("missing user for the NATS password"),
        }
        if let Some(token) = &self.token {
            options = options.token(token.reveal().to_owned());
        }
        if let Some(file) = &self.nkey_seed {
            let text = read(file, "nkey seed").await?;
            let seed = text.lines().map(str::trim).find(|line| line.starts_with('S')).ok_or_else(|| {
                NatsError::Address(format!(
                    "{} has no nkey seed: expected a line that begins with SU",
                    file.display()
                ))
            })?;
            options = options.nkey(seed.to_owned());
        }
        if let Some(file) = &self.credentials {
            let text = read(file, "NATS credentials").await?;
            options = options.credentials(&text).map_err(|_| {
                NatsError::Address(format!(
                    "{} is not a NATS credentials file: expected a JWT and an nkey seed",
                    file.display()
                ))
            })?;
        }
        self.secured(options).await
    }

    async fn secured(&self, mut options: ConnectOptions) -> Result<ConnectOptions, NatsError> {
        // The TLS provider is global to the process. If one is already installed, that one is used.
        let _ = async_nats::rustls::crypto::ring::default_provider().install_default();
        if let Some(file) = &self.tls_ca {
            let text = read(file, "TLS authority").await?;
            if !text.contains("BEGIN CERTIFICATE") {
                return Err(NatsError::Tls(format!("{} has no certificate in PEM format", file.display())));
            }
            options = options.add_root_certificates(file.clone());
        }
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                read(certificate, "TLS certificate").await?;
                read(key, "TLS key").await?;
                options = options.add_client_certificate(certificate.clone(), key.clone());
            }
            (None, None) => {}
            _ => {
                return Err(NatsError::Tls(
                    "a client certificate and its key must be given together".to_owned(),
                ));
            }
        }
        // A configured authority or client certificate implies that TLS is required.
        Ok(options.require_tls(self.tls || self.tls_ca.is_some() || self.tls_certificate.is_some()))
    }
}

async fn read(file: &Path, what: &str) -> Result<String, NatsError> {
    tokio::fs::read_to_string(file)
        .await
        .map_err(|error| NatsError::Address(format!("failed to read the {what} {}: {error}", file.display())))
}

fn check_address(address: &str) -> Result<(), NatsError> {
    let wrong =
        |why: &str| Err(NatsError::Address(format!("invalid address of a NATS server `{address}`: {why}")));
    if address.is_empty() {
        return wrong("missing host");
    }
    if address.contains(|letter: char| letter.is_whitespace() || matches!(letter, '/' | '?' | '#')) {
        return wrong("unexpected text after host and port");
    }
    let parsed = format!("nats://{address}").parse::<async_nats::ServerAddr>();
    match parsed {
        Ok(server) if !server.host().is_empty() => Ok(()),
        Ok(_) => wrong("missing host"),
        Err(_) => wrong("expected host:port"),
    }
}

/// Decodes percent-encoding (`%41`).
fn decoded(text: &str) -> Result<String, NatsError> {
    let wrong =
        || NatsError::Address("invalid percent-encoding in the credentials of the NATS URL".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        if first == b'%' {
            let digits = behind.get(..2).ok_or_else(wrong)?;
            bytes.extend(hex::decode(digits).map_err(|_| wrong())?);
            rest = &behind[2..];
        } else {
            bytes.push(first);
            rest = behind;
        }
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_leave_the_url() {
        let access = Access::new("nats://anna:p%40ss@one:4222,tls://anna:p%40ss@two").unwrap();
        assert_eq!(access.url, "nats://one:4222,tls://two");
        assert_eq!(access.user.as_deref(), Some("anna"));
        assert_eq!(access.password.as_ref().unwrap().reveal(), "p@ss");
        assert!(!format!("{access:?}").contains("p@ss"));
        let access = Access::new("s3cret@[::1]:4222").unwrap();
        assert_eq!(
            (access.url.as_str(), access.token.as_ref().unwrap().reveal()),
            ("nats://[::1]:4222", "s3cret")
        );
    }

    #[test]
    fn what_is_no_url_is_refused_without_showing_secrets() {
        for url in [
            "",
            "http://host",
            "nats://a:b@",
            "nats://a:hidden%@h",
            "nats://host:x",
            "nats://h/path",
            "nats://h,",
        ] {
            let error = Access::new(url).unwrap_err();
            assert!(matches!(error, NatsError::Address(_)), "{url}");
            assert!(!error.to_string().contains("hidden"), "{error}");
        }
        assert!(Access::new("nats://a:b@one,nats://a:c@two").is_err());
    }
}
