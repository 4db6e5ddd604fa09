//! Access control: the token in the address, the session cookie that it is exchanged for, and the accepted host names.
//!
//! Every user of a machine reaches its loopback interface, and so does every page in a browser.
//! Therefore a request needs the cookie and must name this machine as its host.
//! A foreign page whose name resolves to this machine (DNS rebinding) names itself as the host.

use crate::record::Digest;
use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, ORIGIN};
use std::io::Read;

/// The secrets shared by the server and the browser.
#[derive(Clone, Debug)]
pub struct Key {
    token: String,
    session: String,
}

impl Key {
    /// Creates a new key.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn new() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self::of(&bytes))
    }

    fn of(secret: &[u8]) -> Self {
        let derived = |what: &str| Digest::of_pieces(what, &[secret]).to_hex();
        Self { token: derived("ledger ui token"), session: derived("ledger ui session") }
    }

    /// Returns the token in the address.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the cookie's name. It depends on the session, because cookies are shared by all ports of a host.
    fn cookie(&self) -> String {
        format!("ledger_{}", Digest::of(self.session.as_bytes()).prefix(8))
    }

    /// Returns the header that sets the cookie. Other sites, links from other pages and scripts cannot use the cookie.
    pub(super) fn set_cookie(&self) -> String {
        format!("{}={}; HttpOnly; SameSite=Strict; Path=/", self.cookie(), self.session)
    }

    /// Whether a query contains the token.
    pub(super) fn opens(&self, query: &str) -> bool {
        let mut given = query.split('&').filter_map(|pair| pair.strip_prefix("token="));
        given.any(|token| is_same(token, &self.token))
    }

    /// Whether a request contains the cookie.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie();
        let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut cookies = lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        cookies.any(|(given, value)| given == name && is_same(value, &self.session))
    }
}

/// Compares two texts in constant time.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Whether a request names the loopback interface as its host, and comes from this server's pages if from any.
/// Any port is accepted, because a forwarded port differs from the server's.
pub(super) fn is_addressed_here(headers: &HeaderMap) -> bool {
    let Some(host) = text(headers, &HOST) else { return false };
    let is_here = is_loopback(host);
    let from = text(headers, &ORIGIN).is_none_or(|origin| origin.strip_prefix("http://") == Some(host));
    let site = headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
    is_here && from && site.is_none_or(|site| ["same-origin", "none"].contains(&site))
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok();
    // A repeated header is an attack and not accepted.
    if all.next().is_some() { Some("") } else { first }
}

fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    is_port && ["127.0.0.1", "localhost", "[::1]"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_the_token_and_the_cookie_give_access() {
        let (key, other) = (Key::of(b"a"), Key::of(b"b"));
        assert!(key.opens(&format!("token={}", key.token())) && key.opens(&format!("x=1&token={}", key.token())));
        for query in ["", "token=", &format!("token={}", other.token()), &format!("token={}0", key.token())] {
            assert!(!key.opens(query), "{query}");
        }
        let pair = |key: &Key| key.set_cookie().split(';').next().unwrap().to_owned();
        assert!(key.is_in(&headers(&[("cookie", &format!("a=b; {}", pair(&key)))])));
        let forged = pair(&key).replace('=', "=0");
        for cookie in [pair(&other), forged, format!("{}=", key.cookie()), key.token().to_owned()] {
            assert!(!key.is_in(&headers(&[("cookie", &cookie)])), "{cookie}");
        }
        // The token is not part of the cookie.
        assert!(!key.set_cookie().contains(key.token()));
    }

    #[test]
    fn requests_with_a_foreign_host_or_origin_are_refused() {
        for host in ["127.0.0.1:8080", "localhost:1", "localhost", "[::1]:80", "[::1]", "LOCALHOST:80"] {
            assert!(is_addressed_here(&headers(&[("host", host)])), "{host}");
        }
        let strangers =
            ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "127.0.0.2:1", "", "localhost:x"];
        for host in strangers {
            assert!(!is_addressed_here(&headers(&[("host", host)])), "{host}");
        }
        assert!(!is_addressed_here(&headers(&[])));
        let from = |origin: &str| is_addressed_here(&headers(&[("host", "localhost:80"), ("origin", origin)]));
        assert!(from("http://localhost:80"));
        assert!(!from("http://evil.example") && !from("http://localhost:81") && !from("null"));
        let site = |site: &str| is_addressed_here(&headers(&[("host", "localhost:80"), ("sec-fetch-site", site)]));
        assert!(site("same-origin") && site("none") && !site("cross-site") && !site("same-site"));
    }
}
