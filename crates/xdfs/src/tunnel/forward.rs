//! A local address and the target to which its connections go, as text.

use std::str::FromStr;

use xdfs_proto::tunnel::Target;
use xdfs_proto::{Code, Fault};

/// The default address to listen on: this machine only.
const BIND_DEFAULT: &str = "127.0.0.1";

/// Connections to an address of this machine, and where they go beyond the server.
///
/// ```text
/// forward = listen ":" target
/// listen  = [ host ":" ] port / "unix:" path
/// target  = host ":" port / "unix:" path
/// ```
///
/// Without a host it listens on 127.0.0.1; `*` is every IPv4 address of this machine. An IPv6
/// address is written in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where this side listens.
    pub listen: Target,
    /// Where the server connects to.
    pub target: Target,
}

impl FromStr for Forward {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let invalid = |cause: &str| {
            Fault::new(Code::InvalidArgument, "read the tunnel", cause)
                .path(text)
                .hint("write [BIND:]PORT:HOST:PORT, with unix:PATH in the place of either side")
        };
        let (listen, target) = split(text).ok_or_else(|| invalid("it has no target"))?;
        let is_port = !listen.is_empty() && listen.bytes().all(|b| b.is_ascii_digit());
        let listen = match listen.strip_prefix("*:") {
            Some(port) => format!("0.0.0.0:{port}"),
            None if is_port => format!("{BIND_DEFAULT}:{listen}"),
            None => listen.to_owned(),
        };
        let read = |text: &str| {
            text.parse::<Target>()
                .map_err(|fault| invalid(&fault.cause))
        };
        let (listen, target) = (read(&listen)?, read(target)?);
        if matches!(target, Target::Host { port: 0, .. }) {
            return Err(invalid("nothing listens on port 0"));
        }
        Ok(Self { listen, target })
    }
}

/// Both sides of a forward. The path of a local socket may contain colons, so it is split from the
/// right.
fn split(text: &str) -> Option<(&str, &str)> {
    if let Some(at) = text.rfind(":unix:") {
        return Some((&text[..at], &text[at + 1..]));
    }
    let host_end = text.rfind(':')?;
    let host_start = match text[..host_end].strip_suffix(']') {
        Some(inside) => inside.rfind('[')?,
        None => text[..host_end].rfind(':')? + 1,
    };
    let listen = text[..host_start].strip_suffix(':')?;
    Some((listen, &text[host_start..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read_from_the_right() {
        for (text, listen, target) in [
            ("8080:db:5432", "127.0.0.1:8080", "db:5432"),
            ("0:[::1]:80", "127.0.0.1:0", "[::1]:80"),
            ("[::1]:8080:10.0.0.1:80", "[::1]:8080", "10.0.0.1:80"),
            ("*:8080:db:80", "0.0.0.0:8080", "db:80"),
            ("localhost:1:a:2", "localhost:1", "a:2"),
            ("unix:/run/a:b:db:5", "unix:/run/a:b", "db:5"),
            ("8080:unix:/run/x", "127.0.0.1:8080", "unix:/run/x"),
            ("unix:/a:unix:/b", "unix:/a", "unix:/b"),
        ] {
            let forward: Forward = text.parse().unwrap();
            assert_eq!(forward.listen.to_string(), listen, "{text}");
            assert_eq!(forward.target.to_string(), target, "{text}");
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in [
            "",
            ":",
            "8080",
            "8080:db",
            "db:5432",
            ":db:5432",
            "8080:db:0",
            "8080::5432",
            "a:b:c:d:e",
            "::1:80:a:80",
            "8080:[::1:80",
            "x:db:5432",
            "8080:unix:x",
            "+1:a:2",
        ] {
            assert!(text.parse::<Forward>().is_err(), "{text:?} was accepted");
        }
    }
}
