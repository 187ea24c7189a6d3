//! URLs of keys.

use std::fmt;
use std::net::IpAddr;

use xdfs_proto::Fault;

use super::setting;

/// Maximum length of a URL.
const BYTES_MAX: usize = 2048;

/// A URL from which keys may be fetched: `https`, or `http` on this machine only.
///
/// Whoever can modify keys in transit can forge any token, so nothing else is accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUrl {
    text: String,
    is_secure: bool,
    is_local: bool,
}

impl KeyUrl {
    /// Parses `https://HOST[:PORT]/...`, or `http://` where HOST is a loopback address (127.0.0.0/8
    /// or `[::1]`; a name doesn't suffice, as it may resolve to another machine).
    ///
    /// # Errors
    /// `InvalidArgument` for anything else, including URLs with a user, a fragment, or more than
    /// 2048 bytes.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        let wrong = |cause: &str| setting(format!("the address of keys {cause}"));
        if text.len() > BYTES_MAX {
            return Err(wrong("is longer than 2048 bytes"));
        }
        if let Some(bad) = text
            .chars()
            .find(|c| !c.is_ascii_graphic() || "\"<>\\^`{|}#".contains(*c))
        {
            return Err(wrong(&format!("has '{}' in it", bad.escape_default())));
        }
        let shown = |cause: &str| wrong(&format!("'{text}' {cause}"));
        let (is_secure, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(shown("doesn't begin with https://")),
        };
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        // The URL isn't shown, since a user name is often accompanied by a password.
        if authority.contains('@') {
            return Err(wrong("has a user in it"));
        }
        let host = host(authority).ok_or_else(|| shown("has no host"))?;
        let is_local = host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback());
        if !is_secure && !is_local {
            let fault = shown("isn't protected: http is for addresses of this machine alone");
            return Err(fault.hint("write https://, or 127.0.0.1 or [::1] for the host"));
        }
        Ok(Self {
            text: text.to_owned(),
            is_secure,
            is_local,
        })
    }

    /// The URL as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether its scheme is `https`.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Whether its host is a loopback address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.is_local
    }
}

impl fmt::Display for KeyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The host of `HOST[:PORT]`, without brackets. `None` if either is invalid.
fn host(authority: &str) -> Option<&str> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            None => return None,
            port => port,
        };
        (host, port)
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if host.is_empty() || !host.bytes().all(plain) {
            return None;
        }
        (host, port)
    };
    let is_port = |p: &str| {
        p.bytes().all(|b| b.is_ascii_digit()) && p.parse::<u16>().is_ok_and(|port| port > 0)
    };
    port.is_none_or(is_port).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_or_on_this_machine() {
        for (good, is_secure, is_local) in [
            ("https://issuer.example.org/jwks", true, false),
            ("https://issuer.example.org", true, false),
            ("https://issuer.example.org:8443/a?b=c&d=%20", true, false),
            ("https://[2001:db8::1]:1/", true, false),
            ("https://127.0.0.1/jwks", true, true),
            ("http://127.0.0.1/jwks", false, true),
            ("http://127.3.2.1:80", false, true),
            ("http://[::1]:8080/jwks", false, true),
        ] {
            let url = KeyUrl::parse(good).unwrap();
            assert_eq!(
                (url.as_str(), url.is_secure(), url.is_local()),
                (good, is_secure, is_local)
            );
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for (bad, word) in [
            ("http://issuer.example.org/jwks", "isn't protected"),
            ("http://localhost/jwks", "isn't protected"),
            ("http://127.1/", "isn't protected"),
            ("http://127.0.0.1.example.org/", "isn't protected"),
            ("http://[::2]/", "isn't protected"),
            ("http://0.0.0.0/", "isn't protected"),
            ("https://", "no host"),
            ("https:///jwks", "no host"),
            ("https://:443/jwks", "no host"),
            ("https://host:/jwks", "no host"),
            ("https://host:0/jwks", "no host"),
            ("https://host:65536/jwks", "no host"),
            ("https://host:+1/jwks", "no host"),
            ("https://[::1/jwks", "no host"),
            ("https://[::1]x/jwks", "no host"),
            ("https://[host]/jwks", "no host"),
            ("https://a%2fb/jwks", "no host"),
            ("http://127.0.0.1@example.org/", "a user"),
            ("https://me:secret@host/", "a user"),
            ("https://host/a#b", "'#'"),
            ("https://host\\@other/", "'\\\\'"),
            ("https://host/a b", "' '"),
            ("https://host/\n", "'\\n'"),
            ("https://h\u{f6}st/", "'\\u{f6}'"),
            ("HTTPS://host/", "https://"),
            ("file:///etc/passwd", "https://"),
            ("ftp://host/jwks", "https://"),
            ("host/jwks", "https://"),
            ("", "https://"),
        ] {
            let fault = KeyUrl::parse(bad).unwrap_err();
            assert!(fault.cause.contains(word), "{bad}: {}", fault.cause);
            assert!(!fault.cause.contains("secret"), "{}", fault.cause);
        }
        let long = format!("https://host/{}", "a".repeat(BYTES_MAX));
        assert!(KeyUrl::parse(&long).is_err());
    }
}
