//! Address and credentials of a MySQL server. The password is read from the environment and sent only to the
//! server that it belongs to.
//!
//! A run names a server and may have been planned by anyone, but credentials belong to the worker. A password
//! is therefore sent only to loopback and to the servers that the worker lists itself, to the latter over TLS
//! with a valid certificate unless `LUMOS_SQL_TLS` sets another mode.

use std::fmt;
use std::path::PathBuf;

/// Environment variable with the whole address, `mysql://user:password@host:port`, for `sql=mysql`.
const URL_VARIABLE: &str = "LUMOS_SQL_URL";
/// User for `sql=mysql://host:port`. Default: `root`. With the suffix `_<HOST>`: for a single server.
const USER_VARIABLE: &str = "LUMOS_SQL_USER";
/// Password for `sql=mysql://host:port`. With the suffix `_<HOST>`: for a single server.
const PASSWORD_VARIABLE: &str = "LUMOS_SQL_PASSWORD";
/// Servers other than loopback that a run may use: `host` or `host:port`, comma-separated.
const HOSTS_VARIABLE: &str = "LUMOS_SQL_HOSTS";
/// Encryption of connections: `disabled`, `verify-ca` or `verify-identity`.
const TLS_VARIABLE: &str = "LUMOS_SQL_TLS";
/// File with additional CA certificates.
const CA_VARIABLE: &str = "LUMOS_SQL_CA";
/// Default port of MySQL.
const PORT: u16 = 3306;

/// A server and an account that can create databases and accounts there.
#[derive(Clone)]
#[cfg_attr(not(feature = "mysql"), allow(dead_code, reason = "without a client, only the address is used"))]
pub struct MySqlSettings {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) tls: Encryption,
    pub(super) ca: Option<PathBuf>,
}

/// Whether connections are encrypted, and what of the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encryption {
    Disabled,
    VerifyCa,
    VerifyIdentity,
}

impl fmt::Debug for MySqlSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MySqlSettings({})", self.address())
    }
}

impl MySqlSettings {
    /// Returns the server of a backend name, `mysql` or `mysql://host[:port]`, with this process's
    /// credentials for it.
    ///
    /// # Errors
    /// If the name contains a user or a password, or is not a valid address, or if this process has no
    /// credentials for the server. Quotes nothing of the input except the host.
    pub fn named(backend: &str) -> Result<Self, String> {
        Self::from_values(backend, |name| std::env::var(name).ok())
    }

    /// Validates a backend name and returns the address of its server, without user and password.
    ///
    /// # Errors
    /// If the name contains a user or a password, or is not a valid address. Never quotes the input.
    pub(crate) fn address_of(backend: &str) -> Result<String, String> {
        Self::parsed(backend, |name| std::env::var(name).ok()).map(|settings| settings.address())
    }

    /// Parses a backend name. Contains credentials only if they are in `LUMOS_SQL_URL`.
    fn parsed(backend: &str, value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        if backend == "mysql" {
            let url = value(URL_VARIABLE).filter(|url| !url.is_empty());
            let url = url.ok_or_else(|| format!("{URL_VARIABLE} is not set"))?;
            return Self::of_url(&url).ok_or_else(|| {
                format!(
                    "invalid value for {URL_VARIABLE}: expected an address like \
                     mysql://user:password@host:port"
                )
            });
        }
        if backend.contains('@') {
            return Err(format!(
                "user and password are not allowed in a backend name, because logs and reports record it; \
                 hint: set {USER_VARIABLE} and {PASSWORD_VARIABLE}, or {URL_VARIABLE} with --tool sql=mysql"
            ));
        }
        Ok(Self::of_url(backend).ok_or("expected an address like mysql://host:port")?)
    }

    fn from_values(backend: &str, value: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut settings = Self::parsed(backend, &value)?;
        let place = settings.place();
        if backend != "mysql" {
            // A run may have been planned by anyone, so the worker lists the servers it trusts. The whole
            // address is compared, because variable names do not distinguish `db.example` from `db-example`.
            let listed = value(HOSTS_VARIABLE).unwrap_or_default();
            let mut listed = listed
                .split(',')
                .map(str::trim)
                .filter_map(|entry| Self::of_url(&format!("mysql://{entry}")));
            if !settings.is_loopback() && !listed.any(|listed| listed.place() == place) {
                return Err(format!(
                    "this process has no credentials for `{place}`; hint: export {HOSTS_VARIABLE}={place} and {}",
                    settings.variable(PASSWORD_VARIABLE, backend)
                ));
            }
            // An empty server-specific variable prevents the use of the general one.
            let own = |name: &str| value(&settings.variable(name, backend)).or_else(|| value(name));
            let user =
                own(USER_VARIABLE).filter(|user| !user.is_empty()).unwrap_or_else(|| settings.user.clone());
            let password = own(PASSWORD_VARIABLE).unwrap_or_default();
            (settings.user, settings.password) = (user, password);
        }
        settings.tls = match value(TLS_VARIABLE).filter(|mode| !mode.is_empty()).as_deref() {
            None if settings.is_loopback() => Encryption::Disabled,
            None | Some("verify-identity") => Encryption::VerifyIdentity,
            Some("disabled") => Encryption::Disabled,
            Some("verify-ca") => Encryption::VerifyCa,
            Some(other) => {
                return Err(format!(
                    "invalid value `{other}` for {TLS_VARIABLE}: expected disabled, verify-ca or verify-identity"
                ));
            }
        };
        settings.ca = value(CA_VARIABLE).filter(|file| !file.is_empty()).map(PathBuf::from);
        Ok(settings)
    }

    /// Returns the name of a variable for this server only, with the host and, if the address has one, the
    /// port in upper case. Characters other than letters and digits become `_`.
    fn variable(&self, name: &str, backend: &str) -> String {
        let has_port = backend.ends_with(&format!(":{}", self.port));
        let server = if has_port { self.place() } else { self.host.clone() };
        let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        format!("{name}_{}", server.to_ascii_uppercase().chars().map(plain).collect::<String>())
    }

    /// Returns host and port.
    fn place(&self) -> String {
        format!("{}:{}", self.host.to_ascii_lowercase(), self.port)
    }

    /// Whether the server is on this machine.
    fn is_loopback(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback())
    }

    /// Parses `mysql://[user[:password]@]host[:port][/…]`. Connections are encrypted unless the server is on
    /// loopback.
    pub(crate) fn of_url(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("mysql://")?;
        let (account, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let place = rest.split(['/', '?']).next().unwrap_or_default();
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (place, PORT),
        };
        if host.is_empty() || !host.chars().all(|one| one.is_ascii_alphanumeric() || "-._".contains(one)) {
            return None;
        }
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let decoded =
            |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = if user.is_empty() { "root".to_owned() } else { decoded(user) };
        let (tls, ca) = (Encryption::VerifyIdentity, None);
        let mut settings = Self { host: host.to_owned(), port, user, password: decoded(password), tls, ca };
        if settings.is_loopback() {
            settings.tls = Encryption::Disabled;
        }
        Some(settings)
    }

    /// Returns the server's address without user and password.
    pub fn address(&self) -> String {
        format!("mysql://{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_passwords_are_not_shown() {
        let settings = MySqlSettings::of_url("mysql://ada:p%40ss@db.local:3307/x?y").unwrap();
        assert_eq!((settings.user.as_str(), settings.password.as_str()), ("ada", "p@ss"));
        assert_eq!(settings.address(), "mysql://db.local:3307");
        assert!(!format!("{settings:?}").contains("p@ss"));
        assert_eq!(MySqlSettings::of_url("mysql://localhost").unwrap().address(), "mysql://localhost:3306");
        for bad in ["postgres://a", "mysql://", "mysql://a:b", "mysql://a b"] {
            assert!(MySqlSettings::of_url(bad).is_none(), "{bad}");
        }
        let refused = MySqlSettings::named("mysql://ada:secret@db").unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
    }

    fn read(backend: &str, values: &[(&str, &str)]) -> Result<MySqlSettings, String> {
        MySqlSettings::from_values(backend, |name| {
            values.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn a_password_goes_to_loopback_and_to_listed_servers_only() {
        let general = ("LUMOS_SQL_PASSWORD", "general");
        let password =
            |backend: &str, values: &[(&str, &str)]| read(backend, values).map(|read| read.password);
        for loopback in ["mysql://127.0.0.1:4444", "mysql://127.8.8.8", "mysql://localhost"] {
            assert_eq!(password(loopback, &[general]).as_deref(), Ok("general"), "{loopback}");
        }
        let listed = ("LUMOS_SQL_HOSTS", "other:1, db.example, db.example:3307");
        for foreign in [
            "mysql://attacker",
            "mysql://db-example",
            "mysql://db.example:4444",
            "mysql://127.0.0.1.attacker",
            "mysql://localhost.attacker",
        ] {
            let refused = password(foreign, &[general, listed, ("LUMOS_SQL_PASSWORD_DB_EXAMPLE", "own")]);
            assert!(refused.is_err_and(|why| why.contains("hint: export LUMOS_SQL_HOSTS=")), "{foreign}");
        }
        assert_eq!(password("mysql://DB.example", &[general, listed]).as_deref(), Ok("general"));
        let own = [
            general,
            listed,
            ("LUMOS_SQL_PASSWORD_DB_EXAMPLE", ""),
            ("LUMOS_SQL_PASSWORD_DB_EXAMPLE_3307", "own"),
        ];
        assert_eq!(password("mysql://db.example", &own).as_deref(), Ok(""));
        assert_eq!(password("mysql://db.example:3307", &own).as_deref(), Ok("own"));
    }

    #[test]
    fn connections_off_loopback_are_encrypted_unless_that_is_switched_off() {
        let hosts = ("LUMOS_SQL_HOSTS", "db");
        let mode = |backend: &str, values: &[(&str, &str)]| {
            read(backend, &[&[hosts], values].concat()).map(|read| format!("{:?}", read.tls))
        };
        assert_eq!(mode("mysql://db", &[]).as_deref(), Ok("VerifyIdentity"));
        assert_eq!(mode("mysql://db", &[("LUMOS_SQL_TLS", "disabled")]).as_deref(), Ok("Disabled"));
        assert_eq!(mode("mysql://db", &[("LUMOS_SQL_TLS", "verify-ca")]).as_deref(), Ok("VerifyCa"));
        assert_eq!(mode("mysql://127.0.0.1", &[]).as_deref(), Ok("Disabled"));
        let url = ("LUMOS_SQL_URL", "mysql://ada:secret@db.example");
        assert_eq!(mode("mysql", &[url]).as_deref(), Ok("VerifyIdentity"));
        assert!(mode("mysql://db", &[("LUMOS_SQL_TLS", "preferred")]).unwrap_err().contains("verify-ca"));
    }
}
