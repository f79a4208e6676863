//! Hosts that browsers may visit.

use lumos_http::AllowedHosts;
use url::Url;

use super::error::BrowserRefusal;

/// The empty page, which every session starts with.
pub(super) const BLANK: &str = "about:blank";

/// Parses an address and checks that its host is allowed.
pub(super) fn checked(hosts: &AllowedHosts, address: &str) -> Result<Url, BrowserRefusal> {
    let refused = || BrowserRefusal::NotAllowed(shortened(address));
    let url = Url::parse(address).map_err(|_| refused())?;
    let is_web = matches!(url.scheme(), "http" | "https");
    let port = url.port_or_known_default();
    let is_allowed = url.host().is_some_and(|host| hosts.contains(&host.to_owned(), port));
    if is_web && is_allowed { Ok(url) } else { Err(refused()) }
}

/// Returns the value of `--host-resolver-rules`, with which Chromium resolves no other hosts.
pub(super) fn resolver_rules(hosts: &AllowedHosts) -> String {
    let mut rules = "MAP * ~NOTFOUND".to_owned();
    for host in hosts.names() {
        rules += &format!(" , EXCLUDE {host}");
    }
    rules
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
            assert!(checked(&hosts, address).is_ok(), "{address}");
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
            assert!(checked(&hosts, address).is_err(), "{address}");
        }
        for host in ["", "a b", "http://x", "a/b", "user@host", "host:99999"] {
            assert!(AllowedHosts::default().allow(host).is_err(), "{host}");
        }
        assert_eq!(
            resolver_rules(&hosts),
            "MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE shop.example , EXCLUDE wiki.example"
        );
    }
}
