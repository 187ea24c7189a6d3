//! The configurable options of TCP sockets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::attribute::{self, Attribute};
use crate::socket::set_buffers;
use crate::spec::DriverSpec;

/// The options of a TCP socket; the attributes of the driver `tcp` are its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TcpOptions {
    /// `TCP_NODELAY`: writes are sent at once. True by default.
    pub nodelay: bool,
    /// `TCP_QUICKACK`, on Linux: every read acknowledges at once what it took, instead of with the
    /// next answer or 40 ms later. For peers that wait for it; one more system call for each read.
    pub quickack: bool,
    /// TCP Fast Open (RFC 7413), on Linux: from the second connection to a peer on, the first bytes
    /// travel in the packet that opens it, which saves a round trip. Only for protocols whose
    /// opening side writes first: nothing is sent before its first write, and a peer that refuses
    /// shows then. The network may deliver these bytes twice, as two connections. A listener takes
    /// such bytes if the system lets it (`net.ipv4.tcp_fastopen` with 2).
    pub fastopen: bool,
    /// Size of the send buffer and of the receive buffer in bytes, from 4 KiB to 1 GiB; by default
    /// the kernel sizes them. [`crate::Stream::set_window`] overrides it for one stream.
    pub buffer: Option<u32>,
    /// Congestion control on Linux, by its name there; by default cubic on paths within one
    /// machine, bbr on long ones, and the system's default elsewhere.
    pub congestion: Option<String>,
    /// Silence after which the kernel probes the peer, from 1 second to a day; by default it never
    /// does.
    pub keepalive: Option<Duration>,
    /// Age in milliseconds at which unacknowledged bytes end the connection (`TCP_USER_TIMEOUT`),
    /// on Linux; by default the system decides, often a quarter of an hour.
    pub user_timeout: Option<Duration>,
    /// Bytes that may wait in the socket before they are sent (`TCP_NOTSENT_LOWAT`), on Linux; by
    /// default as much as the send buffer holds, and 128 KiB on long paths.
    pub notsent_lowat: Option<u32>,
    /// How long the close of the socket may send what is left (`SO_LINGER`); zero resets the
    /// connection instead. By default the system sends it later.
    pub linger: Option<Duration>,
    /// The code point of differentiated services (RFC 2474) in sent packets, 0 to 63.
    pub dscp: Option<u8>,
    /// Routers that a packet may pass (`IP_TTL`), 1 to 255.
    pub ttl: Option<u8>,
    /// The local address of connections that are opened; by default the route decides.
    pub bind: Option<IpAddr>,
    /// The network interface that packets have to take (`SO_BINDTODEVICE`), on Linux.
    pub interface: Option<String>,
    /// Multipath TCP (RFC 8684), on Linux. The connection is one of plain TCP if the peer has none.
    pub mptcp: Mptcp,
}

/// Whether sockets are those of multipath TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mptcp {
    /// Never.
    #[default]
    No,
    /// If the system has it, and plain TCP otherwise.
    Preferred,
    /// Always; opening and listening fail if the system has none.
    Required,
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            nodelay: true,
            quickack: false,
            fastopen: false,
            buffer: None,
            congestion: None,
            keepalive: None,
            user_timeout: None,
            notsent_lowat: None,
            linger: None,
            dscp: None,
            ttl: None,
            bind: None,
            interface: None,
            mptcp: Mptcp::No,
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
    #[cfg(target_os = "linux")]
    Attribute {
        name: "quickack",
        takes: "true or false",
        set: |options, text| {
            options.quickack = text.parse().ok()?;
            Some(())
        },
        text: |options| options.quickack.then(|| true.to_string()),
    },
    #[cfg(target_os = "linux")]
    Attribute {
        name: "fastopen",
        takes: "true or false",
        set: |options, text| {
            options.fastopen = text.parse().ok()?;
            Some(())
        },
        text: |options| options.fastopen.then(|| true.to_string()),
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
    #[cfg(target_os = "linux")]
    Attribute {
        name: "user_timeout",
        takes: "milliseconds from 1 to 86400000",
        set: |options, text| {
            options.user_timeout = Some(Duration::from_millis(number(text, 1..=86_400_000)?));
            Some(())
        },
        text: |options| {
            options
                .user_timeout
                .map(|time| time.as_millis().to_string())
        },
    },
    #[cfg(target_os = "linux")]
    Attribute {
        name: "notsent_lowat",
        takes: "bytes from 1 to 1073741824",
        set: |options, text| {
            options.notsent_lowat = Some(number(text, 1..=1 << 30)?);
            Some(())
        },
        text: |options| options.notsent_lowat.map(|bytes| bytes.to_string()),
    },
    Attribute {
        name: "linger",
        takes: "seconds from 0 to 3600",
        set: |options, text| {
            options.linger = Some(Duration::from_secs(number(text, 0..=3600)?));
            Some(())
        },
        text: |options| options.linger.map(|time| time.as_secs().to_string()),
    },
    #[cfg(unix)]
    Attribute {
        name: "dscp",
        takes: "a code point from 0 to 63",
        set: |options, text| {
            options.dscp = Some(number(text, 0..=63)?);
            Some(())
        },
        text: |options| options.dscp.map(|code| code.to_string()),
    },
    Attribute {
        name: "ttl",
        takes: "a number of routers from 1 to 255",
        set: |options, text| {
            options.ttl = Some(number(text, 1..=255)?);
            Some(())
        },
        text: |options| options.ttl.map(|routers| routers.to_string()),
    },
    Attribute {
        name: "bind",
        takes: "a local address, such as 192.0.2.1",
        set: |options, text| {
            options.bind = Some(text.parse().ok()?);
            Some(())
        },
        text: |options| options.bind.map(|address| address.to_string()),
    },
    #[cfg(target_os = "linux")]
    Attribute {
        name: "interface",
        takes: "the name of a network interface",
        set: |options, text| {
            // The kernel's limit (IFNAMSIZ).
            let is_name = (1..16).contains(&text.len()) && !text.contains(['/', '\0', ' ']);
            options.interface = is_name.then(|| text.to_owned());
            is_name.then_some(())
        },
        text: |options| options.interface.clone(),
    },
    #[cfg(target_os = "linux")]
    Attribute {
        name: "mptcp",
        takes: "true, false or prefer",
        set: |options, text| {
            options.mptcp = match text {
                "true" => Mptcp::Required,
                "false" => Mptcp::No,
                "prefer" => Mptcp::Preferred,
                _ => return None,
            };
            Some(())
        },
        text: |options| match options.mptcp {
            Mptcp::No => None,
            Mptcp::Preferred => Some("prefer".to_owned()),
            Mptcp::Required => Some("true".to_owned()),
        },
    },
];

/// A number within `range`.
fn number<T: FromStr + PartialOrd>(text: &str, range: RangeInclusive<T>) -> Option<T> {
    text.parse().ok().filter(|number| range.contains(number))
}

impl TcpOptions {
    /// The driver with these options, for a [`crate::StackSpec`].
    #[must_use]
    pub fn spec(&self) -> DriverSpec {
        DriverSpec::named("tcp", attribute::print(ATTRIBUTES, self))
    }

    /// A new socket for `address`, with the options set and without waiting calls.
    pub(super) fn socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let domain = Domain::for_address(address);
        let plain = || Socket::new(domain, Type::STREAM, Some(Protocol::TCP));
        let socket = match self.mptcp {
            Mptcp::No => plain()?,
            Mptcp::Preferred => multipath(domain).or_else(|_| plain())?,
            Mptcp::Required => multipath(domain).map_err(|e| named("mptcp", "true", &e))?,
        };
        socket.set_nonblocking(true)?;
        self.set(&SockRef::from(&socket), address)?;
        Ok(socket)
    }

    /// Sets the options of an unconnected socket of the family of `address`. Accepted connections
    /// inherit them from the listener, except for those set by [`TcpOptions::set_connected`].
    pub(super) fn set(&self, socket: &SockRef<'_>, address: SocketAddr) -> io::Result<()> {
        if let Some(bytes) = self.buffer {
            set_buffers(socket, bytes)?;
        }
        if let Some(time) = self.keepalive {
            socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(time))?;
        }
        if let Some(time) = self.linger {
            socket.set_linger(Some(time))?;
        }
        if let Some(routers) = self.ttl.map(u32::from) {
            match address {
                SocketAddr::V4(_) => socket.set_ttl_v4(routers)?,
                SocketAddr::V6(_) => socket.set_unicast_hops_v6(routers)?,
            }
        }
        #[cfg(unix)]
        if let Some(code) = self.dscp {
            // The lower two bits are those of congestion notification (RFC 3168).
            let class = u32::from(code) << 2;
            match address {
                SocketAddr::V4(_) => socket.set_tos_v4(class)?,
                SocketAddr::V6(_) => socket.set_tclass_v6(class)?,
            }
        }
        self.set_of_linux(socket)
    }

    #[cfg(target_os = "linux")]
    fn set_of_linux(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if let Some(name) = &self.congestion {
            socket
                .set_tcp_congestion(name.as_bytes())
                .map_err(|e| named("congestion control", name, &e))?;
        }
        if let Some(time) = self.user_timeout {
            socket.set_tcp_user_timeout(Some(time))?;
        }
        if let Some(bytes) = self.notsent_lowat {
            socket.set_tcp_notsent_lowat(bytes)?;
        }
        if let Some(name) = &self.interface {
            socket
                .bind_device(Some(name.as_bytes()))
                .map_err(|e| named("interface", name, &e))?;
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    fn set_of_linux(&self, _: &SockRef<'_>) -> io::Result<()> {
        Ok(())
    }

    /// Sets the options that only connecting sockets have.
    #[cfg(target_os = "linux")]
    pub(super) fn set_connecting(&self, socket: &Socket) -> io::Result<()> {
        if self.fastopen {
            let option = nix::sys::socket::sockopt::TcpFastOpenConnect;
            nix::sys::socket::setsockopt(socket, option, &true)
                .map_err(|e| named("fastopen", "true", &e.into()))?;
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn set_connecting(&self, _: &Socket) -> io::Result<()> {
        Ok(())
    }

    /// Sets the options that only listening sockets have.
    pub(super) fn set_listening(&self, socket: &SockRef<'_>) -> io::Result<()> {
        if self.fastopen {
            xdfs_sys::tcp::accept_fast_open(&**socket, FAST_OPEN_PENDING)
                .map_err(|e| named("fastopen", "true", &e))?;
        }
        Ok(())
    }

    /// Has what was received acknowledged at once if asked. The kernel forgets it after each
    /// exchange.
    #[cfg(target_os = "linux")]
    pub(super) fn acknowledge(&self, socket: impl std::os::fd::AsFd) {
        if self.quickack {
            // A connection that is lost shows at the next call.
            let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn acknowledge<S>(&self, _: S) {}

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
        if self.notsent_lowat.is_none() {
            limit_unsent(socket);
        }
        if self.congestion.is_some() || congestion(socket) == PACED {
            return Ok(());
        }
        xdfs_sys::tcp::prefer_paced(&**socket)
    }
}

#[cfg(target_os = "linux")]
fn multipath(domain: Domain) -> io::Result<Socket> {
    Socket::new(domain, Type::STREAM, Some(Protocol::MPTCP))
}

#[cfg(not(target_os = "linux"))]
fn multipath(_: Domain) -> io::Result<Socket> {
    Err(io::ErrorKind::Unsupported.into())
}

/// An error with the option that caused it.
fn named(option: &str, value: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{option} '{value}': {error}"))
}

/// The congestion control that measures the path and paces, instead of taking each loss for a
/// queue that is full.
const PACED: &str = "bbr";
/// Connections of a listener whose first bytes came before their address was confirmed.
const FAST_OPEN_PENDING: u32 = 256;
/// Bytes that may wait in a socket before they are sent, on a long path.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 << 10;

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
    use crate::{Endpoint, Registry, Stack, StackSpec};

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
            ("linger", "3601"),
            ("ttl", "0"),
            ("ttl", "256"),
            ("bind", "localhost"),
            ("bind", "127.0.0.1:1"),
            #[cfg(unix)]
            ("dscp", "64"),
            #[cfg(target_os = "linux")]
            ("user_timeout", "0"),
            #[cfg(target_os = "linux")]
            ("notsent_lowat", "0"),
            #[cfg(target_os = "linux")]
            ("interface", "a/b"),
            #[cfg(target_os = "linux")]
            ("interface", "sixteen_letters_"),
            #[cfg(target_os = "linux")]
            ("mptcp", "yes"),
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

    /// Each option as the kernel has it, on both ends.
    #[cfg(target_os = "linux")]
    #[test]
    fn every_attribute_reaches_the_sockets() {
        let both = |text: &str, ask: fn(&SockRef<'_>) -> u128, wanted: u128| {
            assert_eq!(sockets(text, ask), [wanted; 2], "{text}");
        };
        let millis = |time: Option<Duration>| time.map_or(0, |time| time.as_millis());
        both(
            "tcp:user_timeout=4321",
            |s| s.tcp_user_timeout().unwrap().unwrap().as_millis(),
            4321,
        );
        both(
            "tcp:notsent_lowat=54321",
            |s| s.tcp_notsent_lowat().unwrap().into(),
            54_321,
        );
        both("tcp:dscp=10", |s| s.tos_v4().unwrap().into(), 40);
        both("tcp:ttl=7", |s| s.ttl_v4().unwrap().into(), 7);
        let linger = sockets("tcp:linger=3", |s| millis(s.linger().unwrap()));
        assert_eq!(linger, [3000; 2]);
        let device = |s: &SockRef<'_>| s.device().unwrap().unwrap();
        let [client, server] = sockets("tcp:interface=lo", device);
        assert!(client.starts_with(b"lo") && server.starts_with(b"lo"));
        let [client, _] = sockets("tcp:bind=127.0.0.3", |s| s.local_addr().unwrap());
        let client = client.as_socket().unwrap().ip();
        assert_eq!(client, "127.0.0.3".parse::<IpAddr>().unwrap());
        let protocol = |s: &SockRef<'_>| s.protocol().unwrap();
        assert_eq!(sockets("tcp", protocol), [Some(Protocol::TCP); 2]);
        match multipath(Domain::IPV4) {
            Ok(_) => {
                let found = sockets("tcp:mptcp=true", protocol);
                assert_eq!(found, [Some(Protocol::MPTCP); 2]);
            }
            Err(_) => {
                let endpoint = Endpoint::tcp("127.0.0.1:0".parse().unwrap());
                let stack = Stack::parse("tcp:mptcp=true").unwrap();
                let refused = stack.listen(&endpoint).unwrap_err().to_string();
                assert!(refused.contains("mptcp 'true'"), "{refused}");
                assert_eq!(
                    sockets("tcp:mptcp=prefer", protocol),
                    [Some(Protocol::TCP); 2]
                );
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_system_lacks_is_named() {
        let endpoint = Endpoint::tcp("127.0.0.1:0".parse().unwrap());
        let stack = Stack::parse("tcp:interface=none_such").unwrap();
        let refused = stack.listen(&endpoint).unwrap_err().to_string();
        assert!(refused.contains("'none_such'"), "{refused}");
        let nobody = Endpoint::tcp("127.0.0.1:1".parse().unwrap());
        let stack = Stack::parse("tcp:bind=192.0.2.1").unwrap();
        let refused = stack.open(&nobody).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrNotAvailable);
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
