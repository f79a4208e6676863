//! Which requests the live page accepts.
//!
//! A page of another site cannot read this server: its host name is rejected even if it resolves to this machine
//! (DNS rebinding), and cookies are sent to requests of the same site only.

use std::net::IpAddr;

use axum::http::{HeaderMap, header};
use lumos_http::{ApiKey, is_loopback_host, requested_host};

use crate::exit::Failure;

/// Name of the cookie.
const COOKIE: &str = "lumos_serve";

/// The rules for requests.
#[derive(Debug)]
pub(super) struct AccessRules {
    token: Option<ApiKey>,
    /// Names in lower case.
    hosts: Vec<String>,
    bound: IpAddr,
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    /// The host name is not one of this server's.
    Host,
    /// The token is missing or wrong.
    Token,
}

impl AccessRules {
    /// Creates the rules of a server that listens on an address.
    ///
    /// # Errors
    /// If an address other than loopback has no token, or a value is invalid.
    pub(super) fn new(bound: IpAddr, token: Option<&str>, hosts: &[String]) -> Result<Self, Failure> {
        let token = token.map(str::trim);
        if token.is_some_and(str::is_empty) {
            return Err(Failure::input("invalid value for --token: expected at least one character"));
        }
        if !bound.to_canonical().is_loopback() && token.is_none() {
            return Err(Failure::input(format!("listening on {bound} needs a token")).hint(
                "set LUMOS_SERVE_TOKEN, or listen on loopback and use a proxy or ssh -L 3001:localhost:3001",
            ));
        }
        let hosts = hosts.iter().map(|host| host.trim().to_ascii_lowercase()).collect();
        Ok(Self { token: token.map(ApiKey::new), hosts, bound })
    }

    /// Whether clients need a token.
    pub(super) fn needs_token(&self) -> bool {
        self.token.is_some()
    }

    /// Checks the headers of a request.
    pub(super) fn check(&self, headers: &HeaderMap) -> Result<(), Denied> {
        if !self.is_own_host(headers) {
            return Err(Denied::Host);
        }
        let Some(token) = &self.token else { return Ok(()) };
        let bearer = ApiKey::sent(headers).is_some_and(|sent| token.is(sent));
        let expected = ApiKey::new(&token.derived());
        let cookie = cookies(headers).any(|value| expected.is(value));
        if bearer || cookie { Ok(()) } else { Err(Denied::Token) }
    }

    /// Returns the cookie for a client that sent this query, if it contains the token.
    pub(super) fn cookie(&self, headers: &HeaderMap, query: Option<&str>) -> Option<String> {
        let token = self.token.as_ref().filter(|_| self.is_own_host(headers))?;
        let sent = query?.split('&').find_map(|pair| pair.strip_prefix("token="))?;
        let sent = percent_encoding::percent_decode_str(sent).decode_utf8().ok()?;
        token.is(&sent).then(|| format!("{COOKIE}={}; Path=/; HttpOnly; SameSite=Strict", token.derived()))
    }

    /// Whether the request names this server: an IP address that it may have, or a known name. The port is not
    /// compared, because connections may be forwarded.
    fn is_own_host(&self, headers: &HeaderMap) -> bool {
        let Some(host) = requested_host(headers) else { return false };
        if is_loopback_host(&host) {
            return true;
        }
        let bound = self.bound.to_canonical();
        match host.parse::<IpAddr>() {
            Ok(address) => bound.is_unspecified() || address.to_canonical() == bound,
            Err(_) => self.hosts.contains(&host),
        }
    }
}

/// The values of this server's cookie in a request.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn rules(bound: &str, token: Option<&str>) -> AccessRules {
        AccessRules::new(bound.parse().unwrap(), token, &["Eval.Example".to_owned()]).unwrap()
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_names_of_this_server_are_accepted() {
        let check =
            |bound: &str, host: &str| rules(bound, Some("t")).is_own_host(&headers(&[(header::HOST, host)]));
        for host in
            ["127.0.0.1:3001", "localhost", "LOCALHOST:80", "[::1]:3001", "127.9.9.9", "eval.example:443"]
        {
            assert!(check("127.0.0.1", host), "{host}");
        }
        for host in [
            "attacker.example",
            "127.0.0.1.attacker.example",
            "10.0.0.7",
            "",
            "localhost.",
            "a@b:c:d",
            "[::1",
        ] {
            assert!(!check("127.0.0.1", host), "{host}");
        }
        assert!(check("10.0.0.7", "10.0.0.7:3001") && !check("10.0.0.7", "10.0.0.8"));
        assert!(check("0.0.0.0", "10.0.0.8") && !check("0.0.0.0", "attacker.example"));
        let rules = rules("127.0.0.1", None);
        assert_eq!(rules.check(&HeaderMap::new()), Err(Denied::Host));
        let mut twice = headers(&[(header::HOST, "localhost")]);
        twice.append(header::HOST, "attacker.example".parse().unwrap());
        assert_eq!(rules.check(&twice), Err(Denied::Host));
    }

    #[test]
    fn a_token_is_sent_as_a_header_or_once_in_the_address() {
        let rules = rules("0.0.0.0", Some("s e+cret"));
        let host = (header::HOST, "10.0.0.7");
        let with = |name: HeaderName, value: &str| rules.check(&headers(&[host.clone(), (name, value)]));
        assert_eq!(rules.check(&headers(std::slice::from_ref(&host))), Err(Denied::Token));
        assert_eq!(with(header::AUTHORIZATION, "Bearer s e+cret"), Ok(()));
        assert_eq!(with(header::AUTHORIZATION, "Bearer other"), Err(Denied::Token));
        let own = headers(std::slice::from_ref(&host));
        let cookie = rules.cookie(&own, Some("run=a&token=s%20e%2Bcret")).unwrap();
        assert!(!cookie.contains("cret") && cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let pair = cookie.split(';').next().unwrap();
        assert_eq!(with(header::COOKIE, &format!("a=b; {pair}")), Ok(()));
        for wrong in ["lumos_serve=s e+cret", "lumos_serve=", "lumos_serve"] {
            assert_eq!(with(header::COOKIE, wrong), Err(Denied::Token), "{wrong}");
        }
        assert_eq!(rules.cookie(&own, Some("token=wrong")), None);
        assert_eq!(rules.cookie(&own, None), None);
        let foreign = headers(&[(header::HOST, "attacker.example")]);
        assert_eq!(rules.cookie(&foreign, Some("token=s%20e%2Bcret")), None);
    }

    #[test]
    fn other_addresses_need_a_token() {
        let of = |bound: &str, token| AccessRules::new(bound.parse().unwrap(), token, &[]).map(|_| ());
        assert!(of("127.0.0.1", None).is_ok() && of("::1", None).is_ok() && of("0.0.0.0", Some("t")).is_ok());
        for bound in ["0.0.0.0", "::", "10.0.0.7"] {
            let failure = of(bound, None).unwrap_err();
            assert!(failure.error.to_string().contains("needs a token") && failure.hint.is_some());
        }
        assert!(of("127.0.0.1", Some(" ")).is_err());
    }
}
