//! Where a MySQL server is, and who asks it. The password comes by the environment and goes to the server only.

use std::fmt;

use sqlx::mysql::MySqlConnectOptions;

/// The environment's variable with the whole address, `mysql://user:password@host:port`: for `sql=mysql`.
pub const URL_VARIABLE: &str = "LUMOS_SQL_URL";
/// The user's name, for `sql=mysql://host:port`; `root` where it is not set.
pub const USER_VARIABLE: &str = "LUMOS_SQL_USER";
/// The password, for `sql=mysql://host:port`.
const PASSWORD_VARIABLE: &str = "LUMOS_SQL_PASSWORD";

/// A server and an account that may make databases and accounts there.
#[derive(Clone)]
pub struct MySqlSettings {
    host: String,
    port: u16,
    user: String,
    password: String,
}

impl fmt::Debug for MySqlSettings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "MySqlSettings({})", self.address())
    }
}

impl MySqlSettings {
    /// The server that a backend's name means: `mysql`, or `mysql://host[:port]`.
    ///
    /// # Errors
    /// If the name holds a user or a password, or is no address. Never quotes what it was given.
    pub fn named(backend: &str) -> Result<Self, String> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if backend == "mysql" {
            let url = variable(URL_VARIABLE).ok_or_else(|| format!("{URL_VARIABLE} is not set"))?;
            return Self::of_url(&url)
                .ok_or_else(|| format!("{URL_VARIABLE} is no address like mysql://user:password@host:port"));
        }
        if backend.contains('@') {
            return Err(format!(
                "user and password are not written there, where logs and reports would keep them; set \
                 {USER_VARIABLE} and {PASSWORD_VARIABLE}, or {URL_VARIABLE} with --tool sql=mysql"
            ));
        }
        let settings = Self::of_url(backend).ok_or("it is no address like mysql://host:port")?;
        let user = variable(USER_VARIABLE).unwrap_or(settings.user);
        Ok(Self { user, password: variable(PASSWORD_VARIABLE).unwrap_or_default(), ..settings })
    }

    /// Reads `mysql://[user[:password]@]host[:port][/…]`.
    pub fn of_url(url: &str) -> Option<Self> {
        let rest = url.strip_prefix("mysql://")?;
        let (account, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let place = rest.split(['/', '?']).next().unwrap_or_default();
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (place, 3306),
        };
        if host.is_empty() || !host.chars().all(|one| one.is_ascii_alphanumeric() || "-._".contains(one)) {
            return None;
        }
        let (user, password) = account.split_once(':').unwrap_or((account, ""));
        let decoded =
            |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = if user.is_empty() { "root".to_owned() } else { decoded(user) };
        Some(Self { host: host.to_owned(), port, user, password: decoded(password) })
    }

    /// The server's address without user and password.
    pub fn address(&self) -> String {
        format!("mysql://{}:{}", self.host, self.port)
    }

    /// How this account is connected.
    pub(super) fn options(&self) -> MySqlConnectOptions {
        self.options_of(&self.user, &self.password)
    }

    /// How another account of the server is connected.
    pub(super) fn options_of(&self, user: &str, password: &str) -> MySqlConnectOptions {
        MySqlConnectOptions::new()
            .host(&self.host)
            .port(self.port)
            .username(user)
            .password(password)
            .statement_cache_capacity(1)
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
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
}
