//! Hosts that browsers may visit.

use url::{Host, Url};

use super::error::BrowserRefusal;

/// The empty page, which every session starts with.
pub(super) const BLANK: &str = "about:blank";

/// Hosts that may be visited over HTTP or HTTPS: `host` for all its ports, or `host:port` for one.
///
/// Pages are checked by host and port. Subresources are restricted by the browser, which does not resolve
/// other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedHosts(Vec<(Host, Option<u16>)>);

impl Default for AllowedHosts {
    /// Only this machine, as 127.0.0.1.
    fn default() -> Self {
        Self(vec![(Host::Ipv4(std::net::Ipv4Addr::LOCALHOST), None)])
    }
}

impl AllowedHosts {
    /// Allows another host.
    ///
    /// # Errors
    /// If `host` does not have the form `host` or `host:port`.
    pub fn allow(&mut self, host: &str) -> Result<(), String> {
        let bad = || format!("invalid value `{host}`: expected `host` or `host:port`");
        let url = Url::parse(&format!("http://{host}/")).map_err(|_| bad())?;
        let plain = url.username().is_empty() && url.password().is_none() && url.path() == "/";
        let plain = plain && url.query().is_none() && url.fragment().is_none();
        let Some(name) = url.host().map(|host| host.to_owned()).filter(|_| plain) else { return Err(bad()) };
        // The parser drops the default port.
        let port = if host.ends_with(":80") { Some(80) } else { url.port() };
        self.0.push((name, port));
        Ok(())
    }

    /// Parses an address and checks that it is allowed.
    pub(super) fn check(&self, address: &str) -> Result<Url, BrowserRefusal> {
        let refused = || BrowserRefusal::NotAllowed { address: shortened(address) };
        let url = Url::parse(address).map_err(|_| refused())?;
        let is_web = matches!(url.scheme(), "http" | "https");
        let port = url.port_or_known_default();
        let is_allowed = url.host().is_some_and(|host| self.contains(&host.to_owned(), port));
        if is_web && is_allowed { Ok(url) } else { Err(refused()) }
    }

    /// Whether a host is allowed at a port.
    pub(crate) fn contains(&self, host: &Host, port: Option<u16>) -> bool {
        self.0.iter().any(|(allowed, only)| allowed == host && only.is_none_or(|only| Some(only) == port))
    }

    /// Returns the value of `--host-resolver-rules`, with which Chromium resolves no other hosts.
    pub(super) fn resolver_rules(&self) -> String {
        let mut rules = "MAP * ~NOTFOUND".to_owned();
        for (host, _) in &self.0 {
            rules += &format!(" , EXCLUDE {host}");
        }
        rules
    }
}

/// Truncates a long address: `data:` URLs may contain whole files.
fn shortened(address: &str) -> String {
    const MOST: usize = 200;
    if address.len() <= MOST {
        return address.to_owned();
    }
    address.chars().take(MOST).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_hosts_schemes_and_ports_are_refused() {
        let mut hosts = AllowedHosts::default();
        hosts.allow("shop.example:8080").unwrap();
        hosts.allow("Wiki.Example").unwrap();
        for address in [
            "http://127.0.0.1:4000/a?b#c",
            "http://shop.example:8080/",
            "https://wiki.example/",
            "http://127.1/",
        ] {
            assert!(hosts.check(address).is_ok(), "{address}");
        }
        for address in [
            "file:///etc/passwd",
            "http://shop.example/",
            "http://127.0.0.1@evil.example/",
            "http://127.0.0.1.evil.example/",
            "http://localhost/",
            "http://127.0.0.2/",
            "ftp://127.0.0.1/",
            "javascript:alert(1)",
            "data:text/html,hello",
            "/path",
            "",
        ] {
            assert!(hosts.check(address).is_err(), "{address}");
        }
        for host in ["", "a b", "http://x", "a/b", "user@host", "host:99999"] {
            assert!(AllowedHosts::default().allow(host).is_err(), "{host}");
        }
        assert_eq!(
            hosts.resolver_rules(),
            "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE shop.example , EXCLUDE wiki.example"
        );
    }
}
