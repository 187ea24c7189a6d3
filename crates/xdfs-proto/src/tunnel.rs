//! The targets of tunnels, as text.
//!
//! ```text
//! target = host ":" port / "unix:" path
//! host   = a name, an IPv4 address, or an IPv6 address in brackets
//! ```
//!
//! Names have one form: in lower case and without the dot of the root at their end, so that a name
//! that is allowed or forbidden can't be written in another way. Looking a name up is not done
//! here.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::fault::{Code, Fault};

/// Maximum length of a host name in bytes (RFC 1035, section 2.3.4).
const NAME_BYTES_MAX: usize = 253;
/// Maximum length of the path of a Unix socket in bytes, on the systems with the shortest ones.
const SOCKET_PATH_BYTES_MAX: usize = 103;

/// Where a tunnel leads, or listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A TCP port of a host.
    Host {
        /// The host.
        host: Host,
        /// The port; 0, for a free one, only to listen.
        port: u16,
    },
    /// The absolute path of a Unix socket.
    Unix(String),
}

/// What is wanted of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connections to it.
    Connect,
    /// To listen there.
    Listen,
}

/// A host of a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(String),
}

impl Host {
    /// Reads a name or an address, an IPv6 address without brackets.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
            (1..=63).contains(&label.len()) && label.bytes().all(allowed)
        };
        let is_name = name.len() <= NAME_BYTES_MAX && name.split('.').all(is_label);
        is_name.then(|| Self::Name(name.to_ascii_lowercase()))
    }
}

impl fmt::Display for Host {
    /// An IPv6 address is printed in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl FromStr for Target {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let invalid = |cause: &str| {
            Fault::new(
                Code::InvalidArgument,
                "read the target of the tunnel",
                cause,
            )
            .path(text)
            .hint("write HOST:PORT, [IPV6]:PORT or unix:PATH")
        };
        if let Some(path) = text.strip_prefix("unix:") {
            let fits = path.len() <= SOCKET_PATH_BYTES_MAX && !path.contains(char::is_control);
            return match path.starts_with('/') && fits {
                true => Ok(Self::Unix(path.to_owned())),
                false => Err(invalid(
                    "the path of a socket is absolute and has at most 103 bytes",
                )),
            };
        }
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| invalid("it has no port"))?;
        // The standard library would accept a sign.
        let is_number = (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| is_number);
        let port = port.ok_or_else(|| invalid("a port is a number up to 65535"))?;
        let bare = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(bare) if bare.contains(':') => bare,
            None if !host.contains(':') => host,
            _ => {
                return Err(invalid(
                    "an IPv6 address, and only that, is written in brackets",
                ));
            }
        };
        let host = Host::parse(bare).ok_or_else(|| invalid("this is no name of a host"))?;
        Ok(Self::Host { host, port })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_has_one_form() {
        for (text, form) in [
            ("db.Example:5432", "db.example:5432"),
            ("DB.example.:05432", "db.example:5432"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("[0:0::1]:80", "[::1]:80"),
            // Another way to write an IPv4 address.
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
            ("_x.a-b:1", "_x.a-b:1"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), form, "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        let long = format!("{}a:1", "a.".repeat(127));
        for text in [
            "",
            ":",
            "a",
            ":1",
            "a:",
            "a:+1",
            "a:65536",
            "a:000001",
            "a b:1",
            "a..b:1",
            ".a:1",
            "::1:80",
            "[::1]",
            "[::1]80",
            "[a]:1",
            "[127.0.0.1]:1",
            "a:b:1",
            "fe80::1%eth0:1",
            "[fe80::1%1]:1",
            "a/b:1",
            "a\0:1",
            "\u{e9}:1",
            "unix:",
            "unix:x",
            "unix:/a\n",
            &long,
            &format!("unix:/{}", "a".repeat(103)),
        ] {
            assert!(text.parse::<Target>().is_err(), "{text:?} was accepted");
        }
    }
}
