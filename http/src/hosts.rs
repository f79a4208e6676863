//! Hosts: which may be used, which are this machine, how they are displayed.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use url::{Host, Url};

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

    /// The allowed hosts, without their ports.
    pub fn names(&self) -> impl Iterator<Item = &Host> {
        self.0.iter().map(|(host, _)| host)
    }

    /// Whether a host is allowed at a port.
    pub fn contains(&self, host: &Host, port: Option<u16>) -> bool {
        self.0.iter().any(|(allowed, only)| allowed == host && only.is_none_or(|only| Some(only) == port))
    }
}

/// Whether data sent to a URL cannot be read in transit: it uses TLS or stays on this machine.
pub fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || url.host().is_some_and(|host| is_loopback(&host.to_owned()))
}

/// Whether requests to a URL must not go through a proxy: they are not encrypted and stay on this machine, so a proxy
/// would receive keys and texts that are meant for this machine.
pub(crate) fn bypasses_proxy(url: &Url) -> bool {
    url.scheme() == "http" && is_private(url)
}

/// Host and port of a URL, for messages.
pub fn host_and_port(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or("another scheme"))
}

/// Whether a host is this machine: a loopback address or `localhost`.
pub fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost",
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).to_canonical().is_loopback(),
    }
}

/// Returns the host that a request to a server names, in lower case, without port and brackets. `None` unless the
/// request has one valid `Host` header.
pub fn requested_host(headers: &HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return None };
    let authority: Authority = host.to_str().ok()?.parse().ok()?;
    Some(authority.host().trim_matches(['[', ']']).to_ascii_lowercase())
}

/// Whether a [requested host](requested_host) is this machine: a loopback address or `localhost`. Other names are not
/// resolved, because a page of another site may choose what its name resolves to (DNS rebinding).
pub fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_this_machine_bypass_proxies_unless_encrypted() {
        let bypasses = |url: &str| bypasses_proxy(&Url::parse(url).unwrap());
        for url in ["http://127.0.0.1:8000/v1", "http://localhost/", "http://[::1]:80/"] {
            assert!(bypasses(url), "{url}");
        }
        for url in ["https://127.0.0.1/", "http://models.example/", "https://models.example/"] {
            assert!(!bypasses(url), "{url}");
        }
    }

    #[test]
    fn requests_for_this_machine_name_a_loopback_host() {
        let with = |host: &str| HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        let is_own = |host: &str| requested_host(&with(host)).is_some_and(|host| is_loopback_host(&host));
        for host in ["localhost", "LocalHost:80", "127.9.9.9", "[::1]:8000", "[::ffff:127.0.0.1]"] {
            assert!(is_own(host), "{host}");
        }
        for host in ["evil.example:8000", "127.0.0.1.evil.example", "localhost.", "10.0.0.7", "", "[::1"] {
            assert!(!is_own(host), "{host}");
        }
        assert_eq!(requested_host(&with("Evil.Example:8000")).as_deref(), Some("evil.example"));
        let mut twice = with("localhost");
        twice.append(header::HOST, "evil.example".parse().unwrap());
        assert_eq!((requested_host(&twice), requested_host(&HeaderMap::new())), (None, None));
    }
}
