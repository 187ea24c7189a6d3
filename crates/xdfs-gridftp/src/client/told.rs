//! What replies of a server tell in their texts: a directory, and addresses.

use std::net::SocketAddr;

use crate::address::parse_host_port;
use crate::reply::Reply;

/// The path in a reply such as `257 "/a ""b""" is the directory`.
pub(super) fn quoted(reply: &Reply) -> Option<Vec<u8>> {
    let line = reply.lines.first().filter(|_| reply.code == 257)?;
    let mut bytes = line.strip_prefix(b"\"")?.iter().peekable();
    let mut path = Vec::new();
    while let Some(byte) = bytes.next() {
        if *byte == b'"' && bytes.next_if(|next| **next == b'"').is_none() {
            return Some(path).filter(|path| path.starts_with(b"/"));
        }
        path.push(*byte);
    }
    None
}

/// The text in the last parentheses of a reply.
fn in_parentheses(line: &[u8]) -> Option<&[u8]> {
    let start = line.iter().rposition(|byte| *byte == b'(')? + 1;
    let rest = &line[start..];
    let end = rest.iter().position(|byte| *byte == b')')?;
    Some(&rest[..end])
}

/// The port in `229 text (|||port|)` (RFC 2428, section 3), with or without parentheses.
#[must_use]
pub fn extended_port(reply: &Reply) -> Option<u16> {
    let line = reply.lines.first()?;
    let bare = || {
        let start = line.windows(3).position(|three| three == b"|||")?;
        let end = line.iter().rposition(|byte| *byte == b'|')?;
        line.get(start..=end)
    };
    let text = std::str::from_utf8(in_parentheses(line).or_else(bare)?).ok()?;
    let text = text.trim_matches(' ');
    let delimiter = text.chars().next().filter(char::is_ascii_graphic)?;
    let mut parts = text.split(delimiter);
    let port = parts.nth(3)?;
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = is_number.then(|| port.parse().ok()).flatten()?;
    (parts.next() == Some("") && parts.next().is_none() && port > 0).then_some(port)
}

/// The address in `227 text (h1,h2,h3,h4,p1,p2)` (RFC 959, section 4.1.2), with or without
/// parentheses, and with blanks behind the commas or without: the last such text, since other text
/// may stand before it.
#[must_use]
pub fn passive_address(reply: &Reply) -> Option<SocketAddr> {
    let line = reply.lines.first()?;
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b',' | b' ');
    let mut runs = line.rsplit(|byte| !is_part(byte));
    runs.find_map(|run| {
        let text: Vec<u8> =
            run.trim_ascii()
                .split(|byte| *byte == b' ')
                .fold(Vec::new(), |mut text, word| {
                    // Numbers that no comma joins are none of one address.
                    if !text.is_empty() && !text.ends_with(b",") && !word.starts_with(b",") {
                        text.clear();
                    }
                    text.extend_from_slice(word);
                    text
                });
        parse_host_port(&text).filter(|address| address.port() > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_replies_are_read() {
        let port = |text: &str| extended_port(&Reply::new(229, text));
        assert_eq!(port("Entering (|||6446|)"), Some(6446));
        assert_eq!(port("(!!!1!)"), Some(1));
        assert_eq!(port("Mode (extended) (|1|10.0.0.1|7|)."), Some(7));
        assert_eq!(port("Entering |||7|"), Some(7));
        for text in [
            "",
            "(|||)",
            "(|||0|)",
            "(|||65536|)",
            "(|||1||)",
            "(|1|)",
            "|||7",
        ] {
            assert_eq!(port(text), None, "{text}");
        }
        let address = |text: &str| passive_address(&Reply::new(227, text));
        let wanted = Some("127.0.0.1:258".parse().unwrap());
        assert_eq!(address("Entering Passive Mode (127,0,0,1,1,2)"), wanted);
        assert_eq!(address("Entering Passive Mode 127,0,0,1,1,2."), wanted);
        assert_eq!(address("=127,0,0,1,1,2"), wanted);
        assert_eq!(address("Passive (IPv4) 2 of 5: 127, 0, 0, 1, 1, 2"), wanted);
        assert_eq!(address("5 127,0,0,1,1,2 now"), wanted);
        for text in [
            "",
            "()",
            "(127,0,0,1,1)",
            "(127,0,0,1,0,0)",
            "127.0.0.1",
            "127,0,0,1 1,2",
        ] {
            assert_eq!(address(text), None, "{text}");
        }
    }

    #[test]
    fn the_directory_is_read() {
        let path = |text: &str| quoted(&Reply::new(257, text));
        assert_eq!(path("\"/a \"\"b\" x").as_deref(), Some(&b"/a \"b"[..]));
        for text in ["/a", "\"/a", "\"a\"", ""] {
            assert_eq!(path(text), None, "{text}");
        }
    }
}
