//! Contact strings: the addresses of endpoints as text.
//!
//! ```text
//! contact   = [transport ":"] location
//! location  = host ":" port          for tcp and udp; host is a name, an IPv4 address, or an IPv6
//!                                    address in brackets
//!           | path                   for unix and file
//!           | name                   for memory
//!           | command line           for process
//!           | ""                     for stdio
//!
//! contact   = ("http" | "https") "://" host [":" port] ["/" path]
//! ```
//!
//! The transport at the bottom of a stack decides the form. A contact that names another transport
//! is refused, with the stack that fits. The second form is for stacks with the transform http, and
//! needs tls below it for https; what stands behind `#` is not sent.

use std::net::{IpAddr, SocketAddr};

use crate::endpoint::{Endpoint, Form, Location, Resource};
use crate::spec::StackSpec;

/// The transports of this crate: text before the first `:` that a contact of another one begins
/// with.
const TRANSPORTS: &[&str] = &["file", "memory", "process", "stdio", "tcp", "udp", "unix"];

/// What a contact string leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// One endpoint.
    Endpoint(Endpoint),
    /// A host whose addresses have to be asked for, and a port.
    Host(String, u16),
}

/// Why a contact string can't be used with a stack.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContactError {
    /// It is one for another transport.
    #[error(
        "the contact '{contact}' is not one for the stack {stack}; \
         a stack that begins with {transport} can reach it"
    )]
    OtherTransport {
        /// The contact string.
        contact: String,
        /// The text of the stack.
        stack: String,
        /// The transport that it belongs to.
        transport: &'static str,
    },
    /// It is a URL, and the stack has other transforms than its scheme.
    #[error(
        "the contact '{contact}' is not one for the stack {stack}; one such as {fits} can reach it"
    )]
    OtherStack {
        /// The contact string.
        contact: String,
        /// The text of the stack.
        stack: String,
        /// A stack for the scheme.
        fits: &'static str,
    },
    /// It doesn't have the form that the stack's transport takes.
    #[error("the contact '{contact}' is not one for the stack {stack}, which takes {expected}")]
    WrongForm {
        /// The contact string.
        contact: String,
        /// The text of the stack.
        stack: String,
        /// The form, with an example.
        expected: &'static str,
    },
}

/// Parses a contact for a stack with the given transport.
pub(crate) fn parse(
    contact: &str,
    (transport, form): (&str, Form),
    stack: &dyn std::fmt::Display,
) -> Result<Contact, ContactError> {
    let (location, is_named) = match contact.split_once(':') {
        Some((name, rest)) if name == transport => (rest, true),
        _ => (contact, false),
    };
    let parsed = location_of(location, transport, form).or_else(|| {
        // A host may be called as its transport.
        let whole = is_named.then(|| location_of(contact, transport, form));
        whole.flatten()
    });
    let other = match contact.split_once(':') {
        Some((name, _)) if !is_named => TRANSPORTS.iter().find(|other| **other == name),
        _ => None,
    };
    match (parsed, other) {
        // Only a port may follow the name of a host.
        (Some(parsed @ Contact::Host(..)), _) => Ok(parsed),
        (_, Some(&transport)) => Err(ContactError::OtherTransport {
            contact: contact.to_owned(),
            stack: stack.to_string(),
            transport,
        }),
        (Some(parsed), None) => Ok(parsed),
        (None, None) => Err(ContactError::WrongForm {
            contact: contact.to_owned(),
            stack: stack.to_string(),
            expected: expected(form),
        }),
    }
}

/// Parses a URL for `stack`: where it leads, and the resource there. `None` if it is no URL.
pub(crate) fn parse_url(
    contact: &str,
    stack: &StackSpec,
) -> Result<Option<(Contact, Resource)>, ContactError> {
    let (rest, port, fits) = if let Some(rest) = contact.strip_prefix("http://") {
        (rest, 80, "tcp,http")
    } else if let Some(rest) = contact.strip_prefix("https://") {
        (rest, 443, "tcp,tls,http")
    } else {
        return Ok(None);
    };
    let has = |name: &str| {
        stack
            .transforms()
            .iter()
            .any(|driver| driver.name() == name)
    };
    if !has("http") || has("tls") != (port == 443) {
        return Err(ContactError::OtherStack {
            contact: contact.to_owned(),
            stack: stack.to_string(),
            fits,
        });
    }
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    let transport = stack.transport().name();
    let found = if has_port {
        host_and_port(authority, transport)
    } else {
        host_and_port(&format!("{authority}:{port}"), transport)
    };
    let slash = if path.starts_with('/') { "" } else { "/" };
    // Blanks and ends of lines would begin another field of the request.
    let is_visible = path.bytes().all(|b| b.is_ascii_graphic());
    match found.filter(|_| is_visible && authority.is_ascii()) {
        Some(found) => {
            let resource = Resource {
                authority: authority.to_owned(),
                path: format!("{slash}{path}"),
            };
            Ok(Some((found, resource)))
        }
        None => Err(ContactError::WrongForm {
            contact: contact.to_owned(),
            stack: stack.to_string(),
            expected: "a URL in ASCII, such as http://example.org:8080/path%20of%20file",
        }),
    }
}

fn expected(form: Form) -> &'static str {
    match form {
        Form::Command => "a command line, such as process:sort -n",
        Form::Nothing => "no location, as in stdio:",
        Form::Name => "a name, such as memory:name",
        Form::Path => "a path, such as unix:/run/socket",
        Form::Socket => "a host and port, such as example.org:2811 or [::1]:2811",
    }
}

fn location_of(text: &str, transport: &str, form: Form) -> Option<Contact> {
    // A zero byte ends names and paths of the system early.
    if text.contains('\0') {
        return None;
    }
    let location = match form {
        Form::Nothing if text.is_empty() => Location::Nothing,
        Form::Nothing => return None,
        Form::Command if text.trim().is_empty() => return None,
        Form::Command => Location::Command(text.to_owned()),
        Form::Name | Form::Path if text.is_empty() => return None,
        Form::Name => Location::Name(text.to_owned()),
        Form::Path => Location::Path(text.into()),
        Form::Socket => return host_and_port(text, transport),
    };
    let endpoint = Endpoint::new(transport.to_owned(), location);
    Some(Contact::Endpoint(endpoint))
}

fn host_and_port(text: &str, transport: &str) -> Option<Contact> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        let endpoint = Endpoint::new(transport.to_owned(), Location::Socket(address));
        return Some(Contact::Endpoint(endpoint));
    }
    let (host, port) = text.rsplit_once(':')?;
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_port)?;
    // The longest name of a host (RFC 1035, section 2.3.4).
    let is_host = (1..=253).contains(&host.len())
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b) || !b.is_ascii())
        && host.parse::<IpAddr>().is_err();
    is_host.then(|| Contact::Host(host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(contact: &str, transport: &str, form: Form) -> Result<Contact, ContactError> {
        parse(contact, (transport, form), &transport)
    }

    fn host(name: &str, port: u16) -> Result<Contact, ContactError> {
        Ok(Contact::Host(name.to_owned(), port))
    }

    #[test]
    fn hosts_and_ports() {
        for text in ["127.0.0.1:2811", "[::1]:2811", "[fe80::1%3]:2811"] {
            let wanted = Ok(Contact::Endpoint(Endpoint::tcp(text.parse().unwrap())));
            assert_eq!(parsed(text, "tcp", Form::Socket), wanted);
            let named = format!("tcp:{text}");
            assert_eq!(parsed(&named, "tcp", Form::Socket), wanted);
        }
        for (text, name) in [
            ("example.org:80", "example.org"),
            ("tcp:example.org:80", "example.org"),
            ("tcp:80", "tcp"),
            ("unix:80", "unix"),
            ("tcp:tcp:80", "tcp"),
        ] {
            assert_eq!(parsed(text, "tcp", Form::Socket), host(name, 80), "{text}");
        }
        for text in [
            "",
            ":80",
            "host",
            "host:",
            "host:65536",
            "host:-1",
            "host:+1",
            "host:80 ",
            "ho st:80",
            "::1:80",
            "[::1]",
            "[::1:80",
            "[host]:80",
            "1.2.3:4:5",
            "a/b:80",
            "host\0:80",
        ] {
            let refused = parsed(text, "tcp", Form::Socket).unwrap_err();
            let text = refused.to_string();
            assert!(text.ends_with("example.org:2811 or [::1]:2811"), "{text}");
        }
    }

    #[test]
    fn paths_and_names() {
        let unix = |path: &str| Ok(Contact::Endpoint(Endpoint::unix(path)));
        for (text, path) in [
            ("unix:/run/s", "/run/s"),
            ("/run/s", "/run/s"),
            ("unix:s", "s"),
            ("unix:tcp:s", "tcp:s"),
            ("C:\\s", "C:\\s"),
        ] {
            assert_eq!(parsed(text, "unix", Form::Path), unix(path), "{text}");
        }
        for text in ["", "unix:", "unix:a\0b"] {
            // All of the text is a name, if what follows the transport is none.
            if let Ok(odd) = parsed(text, "unix", Form::Path) {
                assert_eq!(Ok(odd), unix(text));
            }
        }
        let memory = Ok(Contact::Endpoint(Endpoint::memory("a:b")));
        assert_eq!(parsed("memory:a:b", "memory", Form::Name), memory);
        assert_eq!(parsed("a:b", "memory", Form::Name), memory);
    }

    #[test]
    fn urls_are_for_stacks_of_their_scheme() {
        let url = |contact: &str, stack: &str| parse_url(contact, &stack.parse().unwrap());
        for (contact, stack, name, port, authority, path) in [
            ("http://a.org", "tcp,http", "a.org", 80, "a.org", "/"),
            (
                "http://a.org:8080/b?c#d",
                "tcp,http",
                "a.org",
                8080,
                "a.org:8080",
                "/b?c",
            ),
            (
                "https://a.org?b",
                "tcp,tls,http",
                "a.org",
                443,
                "a.org",
                "/?b",
            ),
        ] {
            let (found, resource) = url(contact, stack).unwrap().unwrap();
            assert_eq!(Ok(found), host(name, port));
            assert_eq!((&*resource.authority, &*resource.path), (authority, path));
        }
        let (found, _) = url("http://[::1]/", "tcp,http").unwrap().unwrap();
        let wanted = Endpoint::tcp("[::1]:80".parse().unwrap());
        assert_eq!(found, Contact::Endpoint(wanted));
        for contact in [
            "http://",
            "http:///a",
            "http://a b/",
            "http://a/b c",
            "http://a/b\r\nHost: c",
            "http://user@a/",
            "http://a:b/",
            "http://\u{e4}/",
        ] {
            let refused = url(contact, "tcp,http").unwrap_err().to_string();
            assert!(refused.contains("a URL in ASCII"), "{refused}");
        }
        for (contact, stack) in [
            ("http://a/", "tcp"),
            ("http://a/", "tcp,tls,http"),
            ("https://a/", "tcp,http"),
        ] {
            let refused = url(contact, stack).unwrap_err().to_string();
            assert!(refused.contains("one such as tcp,"), "{refused}");
        }
        assert_eq!(url("a:80", "tcp,http"), Ok(None));
    }

    #[test]
    fn another_transport_is_named() {
        for (text, transport, form) in [
            ("unix:/run/s", "tcp", Form::Socket),
            ("memory:x", "tcp", Form::Socket),
            ("tcp:example.org:80", "unix", Form::Path),
            ("file:/x", "memory", Form::Name),
        ] {
            let refused = parsed(text, transport, form).unwrap_err().to_string();
            let fits = text.split(':').next().unwrap();
            let end = format!("a stack that begins with {fits} can reach it");
            assert!(refused.ends_with(&end), "{refused}");
        }
    }
}
