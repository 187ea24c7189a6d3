//! Addresses of data connections in commands and replies.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Reads `h1,h2,h3,h4,p1,p2` (RFC 959, section 4.1.2).
#[must_use]
pub fn parse_host_port(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let mut numbers = [0_u8; 6];
    let mut parts = text.trim_matches(' ').split(',');
    for number in &mut numbers {
        *number = decimal(parts.next()?)?;
    }
    if parts.next().is_some() {
        return None;
    }
    let [a, b, c, d, high, low] = numbers;
    let port = u16::from_be_bytes([high, low]);
    Some(SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port))
}

fn decimal<T: std::str::FromStr>(text: &str) -> Option<T> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Writes `h1,h2,h3,h4,p1,p2`; `None` for an IPv6 address, which has no such form.
#[must_use]
pub fn format_host_port(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip().to_canonical() else {
        return None;
    };
    let mut text = String::new();
    for byte in ip.octets() {
        let _ = write!(text, "{byte},");
    }
    let [high, low] = address.port().to_be_bytes();
    let _ = write!(text, "{high},{low}");
    Some(text)
}

/// Reads `|1|10.0.0.1|5000|` or `|2|::1|5000|`, with any printable delimiter (RFC 2428, section 2).
#[must_use]
pub fn parse_extended(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let delimiter = text.chars().next().filter(char::is_ascii_graphic)?;
    let mut parts = text.strip_prefix(delimiter)?.split(delimiter);
    let (family, host, port) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next() != Some("") || parts.next().is_some() {
        return None;
    }
    let ip = match family {
        "1" => IpAddr::V4(host.parse::<Ipv4Addr>().ok()?),
        "2" => IpAddr::V6(host.parse::<Ipv6Addr>().ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, decimal(port)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_back() {
        let address: SocketAddr = "127.0.0.1:34785".parse().unwrap();
        let text = format_host_port(address).unwrap();
        assert_eq!(text, "127,0,0,1,135,225");
        assert_eq!(parse_host_port(text.as_bytes()), Some(address));
        let mapped = "[::ffff:127.0.0.1]:34785".parse().unwrap();
        assert_eq!(format_host_port(mapped), Some(text));
        assert_eq!(format_host_port("[::1]:1".parse().unwrap()), None);
        let six = parse_extended(b"|2|2001:db8::1|6446|").unwrap();
        assert_eq!(six, "[2001:db8::1]:6446".parse().unwrap());
        let four = parse_extended(b"!1!10.0.0.1!21!").unwrap();
        assert_eq!(four, "10.0.0.1:21".parse().unwrap());
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "1,2,3,4,5",
            "1,2,3,4,5,6,7",
            "256,0,0,1,1,1",
            "1,2,3,4,5,-6",
            "+1,2,3,4,5,6",
            "1,,3,4,5,6",
            "127.0.0.1,1,1",
            "1,2,3,4,5,6x",
        ] {
            assert_eq!(parse_host_port(text.as_bytes()), None, "{text}");
        }
        for text in [
            "",
            "|",
            "||||",
            "|1|::1|21|",
            "|2|10.0.0.1|21|",
            "|3|x|21|",
            "|1|10.0.0.1|65536|",
            "|1|10.0.0.1|21",
            "|1|10.0.0.1|21||",
            "|1|localhost|21|",
            "\u{e9}1\u{e9}1\u{e9}1\u{e9}",
        ] {
            assert_eq!(parse_extended(text.as_bytes()), None, "{text}");
        }
    }
}
