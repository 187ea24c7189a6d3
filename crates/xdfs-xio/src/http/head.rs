//! The head of a request and of a response.

use std::io::{self, ErrorKind};

use super::body::{Body, HEAD_BYTES_MAX, invalid};
use super::options::{HttpOptions, Method};
use crate::endpoint::Resource;

/// The most fields of a head.
const FIELDS_MAX: usize = 128;

/// The head of the request for `resource`.
pub(super) fn request(options: &HttpOptions, resource: &Resource) -> String {
    let method = match options.method {
        Method::Get => "GET",
        Method::Put => "PUT",
    };
    let (path, authority) = (&resource.path, &resource.authority);
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {authority}\r\n");
    match (options.method, options.size) {
        (Method::Put, Some(size)) => head.push_str(&format!("Content-Length: {size}\r\n")),
        (Method::Put, None) => head.push_str("Transfer-Encoding: chunked\r\n"),
        (Method::Get, _) => {
            head.push_str("Accept-Encoding: identity\r\n");
            if let Some(range) = range(options) {
                head.push_str(&format!("Range: bytes={range}\r\n"));
            }
        }
    }
    head.push_str("Connection: close\r\n\r\n");
    head
}

/// The range that is asked for, if not everything is.
fn range(options: &HttpOptions) -> Option<String> {
    let offset = options.offset;
    match options.length {
        // `length` is at least 1, and both are below 2^63.
        Some(length) => Some(format!("{offset}-{}", offset + length - 1)),
        None if offset > 0 => Some(format!("{offset}-")),
        None => None,
    }
}

/// Parses the head at the front of `bytes`: its length and the body after it. `None` if it isn't
/// complete.
pub(super) fn response(bytes: &[u8], options: &HttpOptions) -> io::Result<Option<(usize, Body)>> {
    let mut used = 0;
    loop {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response
            .parse(&bytes[used..])
            .map_err(|e| invalid(&format!("the response's head: {e}")))?;
        let httparse::Status::Complete(length) = parsed else {
            if bytes.len() - used > HEAD_BYTES_MAX {
                return Err(invalid("the response's head is too long"));
            }
            return Ok(None);
        };
        used += length;
        let status = response.code.unwrap_or(0);
        if status == 101 {
            return Err(invalid(
                "the server changes the protocol, which nobody asked for",
            ));
        }
        // Interim responses precede the final one (RFC 9110, section 15.2).
        if !(100..200).contains(&status) {
            check_status(status, response.reason.unwrap_or(""), options)?;
            check_range(status, response.headers, options)?;
            return Ok(Some((used, body(status, response.headers)?)));
        }
    }
}

fn check_status(status: u16, reason: &str, options: &HttpOptions) -> io::Result<()> {
    let is_wanted = match options.method {
        Method::Get if range(options).is_some() => status == 206,
        Method::Get => status == 200,
        Method::Put => matches!(status, 200 | 201 | 204),
    };
    if is_wanted {
        return Ok(());
    }
    // The reason is the server's text, and may go to a terminal.
    let visible = |c: &char| c.is_ascii_graphic() || *c == ' ';
    let reason: String = reason.chars().filter(visible).take(100).collect();
    let (kind, text) = match status {
        200 => (
            ErrorKind::Unsupported,
            "the server sends no part of the content, only all of it".to_owned(),
        ),
        401 | 403 => (ErrorKind::PermissionDenied, format!("{status} {reason}")),
        404 | 410 => (ErrorKind::NotFound, format!("{status} {reason}")),
        _ => (ErrorKind::Other, format!("{status} {reason}")),
    };
    Err(io::Error::new(kind, format!("the server answered: {text}")))
}

/// A part has to begin where it was asked for (RFC 9110, section 14.4).
fn check_range(
    status: u16,
    fields: &[httparse::Header<'_>],
    options: &HttpOptions,
) -> io::Result<()> {
    if status != 206 {
        return Ok(());
    }
    let value = only(fields, "content-range")?.unwrap_or("");
    let start = value.strip_prefix("bytes ").and_then(|v| v.split_once('-'));
    match start {
        Some((start, _)) if start.parse() == Ok(options.offset) => Ok(()),
        _ => Err(invalid("the server sends another part than was asked for")),
    }
}

/// How the body is delimited (RFC 9112, section 6.3).
fn body(status: u16, fields: &[httparse::Header<'_>]) -> io::Result<Body> {
    let coding = only(fields, "transfer-encoding")?;
    let length = only(fields, "content-length")?;
    match (coding, length) {
        _ if status == 204 => Ok(Body::Left(0)),
        (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => Ok(Body::chunked()),
        (Some(_), None) => Err(invalid("the transfer coding is not chunked")),
        // One of both may be for a proxy to misread.
        (Some(_), Some(_)) => Err(invalid("the head has a length and a transfer coding")),
        (None, Some(length)) => {
            let is_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
            let length = length.parse().ok().filter(|_| is_number);
            Ok(Body::Left(
                length.ok_or_else(|| invalid("the length is no number"))?,
            ))
        }
        (None, None) => Ok(Body::UntilEnd),
    }
}

/// The value of a field that may be there once.
fn only<'a>(fields: &[httparse::Header<'a>], name: &str) -> io::Result<Option<&'a str>> {
    let mut found = fields.iter().filter(|f| f.name.eq_ignore_ascii_case(name));
    let Some(first) = found.next() else {
        return Ok(None);
    };
    if found.next().is_some() {
        return Err(invalid(&format!("the head has several fields {name}")));
    }
    let value = std::str::from_utf8(first.value);
    let value = value.map_err(|_| invalid(&format!("the field {name} is not text")))?;
    Ok(Some(value.trim()))
}
