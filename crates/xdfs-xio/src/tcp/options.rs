//! The configurable options of TCP sockets.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use crate::attribute::{self, Attribute};
use crate::socket::set_buffers;
use crate::spec::DriverSpec;

/// The options of a TCP socket; the attributes of the driver `tcp` are its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpOptions {
    /// `TCP_NODELAY`: writes are sent at once. True by default.
    pub nodelay: bool,
    /// Size of the send buffer and of the receive buffer in bytes, from 4 KiB to 1 GiB; by default
    /// the kernel sizes them. [`crate::Stream::set_window`] overrides it for one stream.
    pub buffer: Option<u32>,
    /// Congestion control on Linux, by its name there; by default cubic on paths within one
    /// machine, bbr on long ones, and the system's default elsewhere.
    pub congestion: Option<String>,
    /// Silence after which the kernel probes the peer, from 1 second to a day; by default it never
    /// does.
    pub keepalive: Option<Duration>,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            nodelay: true,
            buffer: None,
            congestion: None,
            keepalive: None,
        }
    }
}

pub(super) const ATTRIBUTES: &[Attribute<TcpOptions>] = &[
    Attribute {
        name: "nodelay",
        takes: "true or false",
        set: |options, text| {
            options.nodelay = text.parse().ok()?;
            Some(())
        },
        text: |options| (!options.nodelay).then(|| options.nodelay.to_string()),
    },
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
    #[cfg(target_os = "linux")]
    Attribute {
        name: "congestion",
        takes: "the name of a congestion control, such as bbr",
        set: |options, text| {
            // The kernel's limit (TCP_CA_NAME_MAX).
            let is_name = (1..16).contains(&text.len())
                && text
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
            options.congestion = is_name.then(|| text.to_owned());
            is_name.then_some(())
        },
        text: |options| options.congestion.clone(),
    },
    Attribute {
        name: "keepalive",
        takes: "seconds from 1 to 86400",
        set: |options, text| {
            let seconds = text.parse().ok()?;
            let is_in = (1..=86_400).contains(&seconds);
            options.keepalive = is_in.then(|| Duration::from_secs(seconds));
            is_in.then_some(())
        },
        text: |options| options.keepalive.map(|time| time.as_secs().to_string()),
    },
];

impl TcpOptions {
    /// The driver with these options, for a [`crate::StackSpec`].
    #[must_use]
    pub fn spec(&self) -> DriverSpec {
        DriverSpec::named("tcp", attribute::print(ATTRIBUTES, self))
    }

    /// Sets the options of an unconnected socket. Accepted connections inherit them from the
    /// listener, except for those set by [`TcpOptions::set_connected`].
    pub(super) fn set(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(bytes) = self.buffer {
            set_buffers(socket, bytes)?;
        }
        #[cfg(target_os = "linux")]
        if let Some(name) = &self.congestion {
            socket.set_tcp_congestion(name.as_bytes()).map_err(|e| {
                io::Error::new(e.kind(), format!("congestion control '{name}': {e}"))
            })?;
        }
        if let Some(time) = self.keepalive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time))?;
        }
        Ok(())
    }

    /// Sets the options of an established connection.
    pub(super) fn set_connected(&self, socket: &SockRef<'_>, is_local: bool) -> io::Result<()> {
        socket.set_tcp_nodelay(self.nodelay)?;
        if is_local && self.congestion.is_none() {
            prefer_unpaced(socket);
        }
        Ok(())
    }

    /// Sets the options of a connection over a long path (see the module documentation).
    pub(super) fn suit_long_path(&self, socket: &SockRef<'_>) -> io::Result<()> {
        limit_unsent(socket);
        if self.congestion.is_some() || congestion(socket) == PACED {
            return Ok(());
        }
        prefer_paced(socket)
    }
}

/// The congestion control that measures the path and paces, instead of taking each loss for a
/// queue that is full.
const PACED: &str = "bbr";
/// Bytes that may wait in a socket before they are sent, on a long path.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

#[cfg(target_os = "linux")]
fn prefer_paced(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_tcp_congestion(PACED.as_bytes())
}

#[cfg(not(target_os = "linux"))]
fn prefer_paced(_: &SockRef<'_>) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Blocks stay with the engine, which can still give them to another channel, until they can be
/// sent. A system without this option keeps more in the socket.
#[cfg(target_os = "linux")]
fn limit_unsent(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
}

#[cfg(not(target_os = "linux"))]
fn limit_unsent(_: &SockRef<'_>) {}

/// The name of a socket's congestion control; empty if the system doesn't tell.
#[cfg(target_os = "linux")]
pub(super) fn congestion(socket: &SockRef<'_>) -> String {
    let name = socket.tcp_congestion().unwrap_or_default();
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn congestion(_: &SockRef<'_>) -> String {
    String::new()
}

/// Avoids pacing congestion control on a path without a queue (see the module documentation). A
/// system without cubic, or that forbids the choice, keeps its default: slower, but correct.
#[cfg(target_os = "linux")]
fn prefer_unpaced(socket: &SockRef<'_>) {
    let _ = socket.set_tcp_congestion(b"cubic");
}

#[cfg(not(target_os = "linux"))]
fn prefer_unpaced(_: &SockRef<'_>) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, Registry, StackSpec};

    #[test]
    fn options_and_their_text_are_the_same() {
        let options = TcpOptions {
            nodelay: false,
            buffer: Some(65_536),
            keepalive: Some(Duration::from_secs(60)),
            ..TcpOptions::default()
        };
        let spec = options.spec();
        assert_eq!(
            spec.to_string(),
            "tcp:nodelay=false:buffer=65536:keepalive=60"
        );
        let parsed = attribute::parse(ATTRIBUTES, spec.attributes());
        assert_eq!(parsed, Ok(options));
        assert_eq!(TcpOptions::default().spec().to_string(), "tcp");
    }

    #[test]
    fn values_out_of_their_range_are_refused() {
        for (name, value) in [
            ("nodelay", "1"),
            ("buffer", "4095"),
            ("buffer", "1073741825"),
            ("buffer", "-1"),
            ("keepalive", "0"),
            ("keepalive", "86401"),
            ("keepalive", ""),
        ] {
            let given = [(name.to_owned(), value.to_owned())];
            assert!(
                attribute::parse(ATTRIBUTES, &given).is_err(),
                "{name}={value}"
            );
        }
    }

    /// Queries the sockets of both ends of a connection with the options in `text`.
    fn sockets<T>(text: &str, ask: impl Fn(&SockRef<'_>) -> T) -> [T; 2] {
        let spec: StackSpec = text.parse().unwrap();
        let stack = Registry::standard().build(&spec).unwrap();
        let endpoint = Endpoint::tcp("127.0.0.1:0".parse().unwrap());
        let mut listener = stack.listen(&endpoint).unwrap();
        let mut client = stack.open(&listener.local_endpoint()).unwrap();
        let mut server = loop {
            match listener.accept() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                accepted => break accepted.unwrap(),
            }
        };
        while !client.finish_open().unwrap() {
            std::thread::yield_now();
        }
        [&mut client, &mut server].map(|end| ask(&end.tcp_socket().unwrap()))
    }

    #[test]
    fn attributes_reach_the_sockets_of_both_ends() {
        let nodelay = |s: &SockRef<'_>| s.tcp_nodelay().unwrap();
        assert_eq!(sockets("tcp", nodelay), [true; 2]);
        assert_eq!(sockets("tcp:nodelay=false", nodelay), [false; 2]);
        let keepalive = |s: &SockRef<'_>| s.keepalive().unwrap();
        assert_eq!(sockets("tcp", keepalive), [false; 2]);
        assert_eq!(sockets("tcp:keepalive=60", keepalive), [true; 2]);
        let buffer = |s: &SockRef<'_>| s.send_buffer_size().unwrap();
        let small = sockets("tcp:buffer=8192", buffer);
        let large = sockets("tcp:buffer=131072", buffer);
        assert!(
            small[0] < large[0] && small[1] < large[1],
            "{small:?} {large:?}"
        );
        assert!(large.iter().all(|bytes| *bytes >= 131_072), "{large:?}");
    }

    /// Every kernel has Reno.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_congestion_control_is_the_named_one_or_there_is_no_channel() {
        let congestion = |s: &SockRef<'_>| congestion(s);
        assert_eq!(sockets("tcp:congestion=reno", congestion), ["reno", "reno"]);
        let spec: StackSpec = "tcp:congestion=none_such".parse().unwrap();
        let stack = Registry::standard().build(&spec).unwrap();
        let endpoint = Endpoint::tcp("127.0.0.1:0".parse().unwrap());
        let refused = stack.listen(&endpoint).unwrap_err().to_string();
        assert!(refused.contains("'none_such'"), "{refused}");
        for text in ["", "a b", "sixteen_letters_"] {
            let spec = "tcp".parse::<DriverSpec>().unwrap().set("congestion", text);
            let spec = StackSpec::new(spec.unwrap());
            assert!(Registry::standard().build(&spec).is_err(), "{text}");
        }
    }
}
