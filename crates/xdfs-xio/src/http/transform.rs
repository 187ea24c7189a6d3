//! One request and its response.

use std::io::{self, ErrorKind, IoSlice};

use super::body::Body;
use super::head;
use super::options::{HttpOptions, Method};
use crate::endpoint::Resource;
use crate::transform::{Output, Room, Transform};

/// The most bytes of the size line of a chunk that is sent, and of the ends of its lines.
const FRAME_BYTES: usize = 24;

/// The client's end of one exchange.
#[derive(Debug)]
pub struct Http {
    options: HttpOptions,
    resource: Resource,
    is_asked: bool,
    /// The response, once its head has arrived.
    body: Option<Body>,
    /// Bytes of a request's body of known size that are left.
    left: Option<u64>,
}

impl Http {
    pub(super) fn new(options: HttpOptions, resource: Resource) -> Self {
        Self {
            left: options.size,
            options,
            resource,
            is_asked: false,
            body: None,
        }
    }
}

impl Transform for Http {
    fn is_open(&self) -> bool {
        match self.options.method {
            Method::Get => self.body.is_some(),
            Method::Put => self.is_asked,
        }
    }

    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        if !self.is_asked {
            self.is_asked = true;
            out.extend(head::request(&self.options, &self.resource).as_bytes());
            return Ok(0);
        }
        let offered: usize = content.iter().map(|slice| slice.len()).sum();
        if offered == 0 {
            return Ok(0);
        }
        if self.options.method == Method::Get {
            let why = "nothing can be written with method=get";
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        let room = out.room().len().saturating_sub(FRAME_BYTES);
        let mut size = offered.min(room);
        if let Some(left) = &mut self.left {
            size = size.min(usize::try_from(*left).unwrap_or(usize::MAX));
            if size == 0 {
                let why = "the size that was set is written";
                return Err(io::Error::new(ErrorKind::FileTooLarge, why));
            }
            *left -= size as u64;
        } else {
            out.extend(format!("{size:x}\r\n").as_bytes());
        }
        let mut missing = size;
        for slice in content {
            let part = &slice[..slice.len().min(missing)];
            out.room()[..part.len()].copy_from_slice(part);
            out.advance(part.len());
            missing -= part.len();
        }
        if self.left.is_none() {
            out.extend(b"\r\n");
        }
        Ok(size)
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        if let Some(body) = &mut self.body {
            let used = body.decode(encoded, content)?;
            // What a server adds to a body that was stored is of no interest.
            return Ok(used);
        }
        match head::response(encoded, &self.options)? {
            None => Ok(0),
            Some((used, body)) => {
                let is_put = self.options.method == Method::Put;
                // The content of an answer to PUT only describes what the status says.
                self.body = Some(if is_put { Body::Left(0) } else { body });
                Ok(used)
            }
        }
    }

    /// Small, so that a body isn't read ahead of its reader, and with room for a long head.
    fn wants(&self, held: &[u8], room: usize) -> usize {
        let _ = held;
        room.max(16 << 10)
    }

    fn is_ended(&self) -> bool {
        self.body.as_ref().is_some_and(Body::is_over)
    }

    fn end(&mut self, _: &[u8]) -> io::Result<()> {
        match &self.body {
            Some(body) => body.end(),
            None => {
                let why = "the connection ended before the response";
                Err(io::Error::new(ErrorKind::UnexpectedEof, why))
            }
        }
    }

    fn close(&mut self, out: &mut Output) {
        // A body of known size that is cut ends with the connection, which the server notices.
        if self.options.method == Method::Put && self.left.is_none() && self.is_asked {
            out.extend(b"0\r\n\r\n");
        }
    }
}
