//! The configurable options of UDP sockets.

use std::io;

use socket2::{SockRef, Socket};

use crate::attribute::Attribute;
use crate::socket::set_buffers;

/// The largest payload of a datagram over IPv4 (RFC 768, RFC 791).
pub(super) const SIZE_MAX: usize = 65_507;

/// The options of the driver `udp`; its attributes are the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpOptions {
    /// Size of the send buffer and of the receive buffer in bytes, from 4 KiB to 1 GiB; by default
    /// the kernel's.
    pub buffer: Option<u32>,
    /// The largest datagram that is sent and accepted, in bytes, 1 to 65507. By default 65507.
    pub size: usize,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            buffer: None,
            size: SIZE_MAX,
        }
    }
}

pub(super) const ATTRIBUTES: &[Attribute<UdpOptions>] = &[
    Attribute {
        name: "buffer",
        takes: "bytes from 4096 to 1073741824",
        set: |options, text| {
            let bytes = text.parse().ok()?;
            options.buffer = (4096..=1 << 30).contains(&bytes).then_some(bytes);
            options.buffer.map(|_| ())
        },
        text: |options| options.buffer.map(|bytes| bytes.to_string()),
    },
    Attribute {
        name: "size",
        takes: "bytes from 1 to 65507",
        set: |options, text| {
            let size = text.parse().ok()?;
            options.size = size;
            (1..=SIZE_MAX).contains(&size).then_some(())
        },
        text: |options| (options.size != SIZE_MAX).then(|| options.size.to_string()),
    },
];

impl UdpOptions {
    pub(super) fn set(self, socket: &Socket) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        match self.buffer {
            Some(bytes) => set_buffers(&SockRef::from(socket), bytes),
            None => Ok(()),
        }
    }
}
