//! The configurable options of QUIC connections.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::congestion::{ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

use super::bbr::BbrFactory;
use crate::attribute::{self, Attribute};
use crate::spec::DriverSpec;

/// The options of QUIC connections; the attributes of the driver `quic` are its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuicOptions {
    /// Congestion control for what this end sends; BBR by default, as all channels share one, and
    /// the others take every loss for a full path.
    pub congestion: Congestion,
    /// Bytes that the peer may send on one stream before they are read, from 64 KiB to 1 GiB; 2 MiB
    /// by default. It bounds the rate of one stream to this many bytes in each round trip. With a
    /// larger one, a connection fails if one flight has more than about a thousand gaps:
    /// quinn-proto keeps no more, and fewer packets than that fit into the default.
    pub window: u32,
    /// Silence of the peer after which the connection is lost, from 1 second to an hour; 30 seconds
    /// by default, and the smaller of both ends' values. A connection with streams is kept alive.
    pub idle: Duration,
    /// Time in which an open has to succeed, from 1 second to an hour; 10 seconds by default.
    pub connect: Duration,
    /// Largest UDP payload in bytes that is tried and accepted, from 1200 to 65527; 1452 by
    /// default, which fits Ethernet. Path MTU discovery (RFC 8899) finds what the path takes.
    pub mtu: u16,
    /// Streams that the peer may have open in one connection, from 1 to 65536; 4096 by default. Of
    /// more than 32, the peer of a listener gets 16 until one of its streams is admitted
    /// ([`crate::Stream::admit`]).
    pub streams: u32,
}

/// A congestion control of QUIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Congestion {
    /// BBR, version 1.
    #[default]
    Bbr,
    /// CUBIC (RFC 9438).
    Cubic,
    /// NewReno (RFC 9002, section 7).
    NewReno,
}

/// The largest default payload: Ethernet's 1500 bytes less the headers of IPv6 and UDP.
const MTU: u16 = 1452;
const MTU_MIN: u16 = 1200;
const MTU_MAX: u16 = 65_527;
/// Streams of a peer that isn't admitted yet: enough for the first channels of a few sessions. A
/// connection has tables for all that its peer may open.
const STREAMS_FEW: u32 = 16;
/// So few are granted at once. (A small increase isn't told to the peer before it has ended some.)
const STREAMS_AT_ONCE: u32 = 32;
/// Bytes of all streams of such a peer together, enough for logins.
const FEW_BYTES: u64 = 256 << 10;
/// Bytes for all streams of a connection together, and at least this many windows of one stream.
const CONNECTION_BYTES: u64 = 64 << 20;
const CONNECTION_WINDOWS: u64 = 4;

impl Default for QuicOptions {
    fn default() -> Self {
        Self {
            congestion: Congestion::default(),
            window: 2 << 20,
            idle: Duration::from_secs(30),
            connect: Duration::from_secs(10),
            mtu: MTU,
            streams: 4096,
        }
    }
}

impl Congestion {
    const ALL: [Self; 3] = [Self::Bbr, Self::Cubic, Self::NewReno];

    /// Its name in the text of a stack.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bbr => "bbr",
            Self::Cubic => "cubic",
            Self::NewReno => "newreno",
        }
    }

    fn factory(self) -> Arc<dyn ControllerFactory + Send + Sync> {
        match self {
            Self::Bbr => Arc::new(BbrFactory),
            Self::Cubic => Arc::new(CubicConfig::default()),
            Self::NewReno => Arc::new(NewRenoConfig::default()),
        }
    }
}

/// Seconds from 1 to an hour.
fn seconds(text: &str) -> Option<Duration> {
    let seconds = text.parse().ok()?;
    (1..=3600)
        .contains(&seconds)
        .then(|| Duration::from_secs(seconds))
}

/// The text of a value that isn't the default.
fn changed<T: PartialEq>(value: T, default: T, text: impl Fn(T) -> String) -> Option<String> {
    (value != default).then(|| text(value))
}

pub(super) const ATTRIBUTES: &[Attribute<QuicOptions>] = &[
    Attribute {
        name: "congestion",
        takes: "bbr, cubic or newreno",
        set: |options, text| {
            options.congestion = Congestion::ALL.into_iter().find(|c| c.as_str() == text)?;
            Some(())
        },
        text: |options| {
            changed(options.congestion, Congestion::default(), |c| {
                c.as_str().to_owned()
            })
        },
    },
    Attribute {
        name: "window",
        takes: "bytes from 65536 to 1073741824",
        set: |options, text| {
            options.window = text.parse().ok()?;
            (65_536..=1 << 30).contains(&options.window).then_some(())
        },
        text: |options| {
            changed(options.window, QuicOptions::default().window, |bytes| {
                bytes.to_string()
            })
        },
    },
    Attribute {
        name: "idle",
        takes: "seconds from 1 to 3600",
        set: |options, text| {
            options.idle = seconds(text)?;
            Some(())
        },
        text: |options| {
            changed(options.idle, QuicOptions::default().idle, |time| {
                time.as_secs().to_string()
            })
        },
    },
    Attribute {
        name: "connect",
        takes: "seconds from 1 to 3600",
        set: |options, text| {
            options.connect = seconds(text)?;
            Some(())
        },
        text: |options| {
            changed(options.connect, QuicOptions::default().connect, |time| {
                time.as_secs().to_string()
            })
        },
    },
    Attribute {
        name: "mtu",
        takes: "bytes from 1200 to 65527",
        set: |options, text| {
            options.mtu = text.parse().ok()?;
            (MTU_MIN..=MTU_MAX).contains(&options.mtu).then_some(())
        },
        text: |options| changed(options.mtu, MTU, |bytes| bytes.to_string()),
    },
    Attribute {
        name: "streams",
        takes: "a number from 1 to 65536",
        set: |options, text| {
            options.streams = text.parse().ok()?;
            (1..=65_536).contains(&options.streams).then_some(())
        },
        text: |options| {
            changed(options.streams, QuicOptions::default().streams, |count| {
                count.to_string()
            })
        },
    },
];

impl QuicOptions {
    /// The driver with these options, for a [`crate::StackSpec`].
    #[must_use]
    pub fn spec(&self) -> DriverSpec {
        DriverSpec::named("quic", attribute::print(ATTRIBUTES, self))
    }

    /// Bytes that are received or sent at most on one connection and not yet read or acknowledged.
    pub(super) fn connection_window(&self) -> u64 {
        CONNECTION_BYTES.max(CONNECTION_WINDOWS * u64::from(self.window))
    }

    /// The configuration of opened connections, whose peers open no streams.
    pub(super) fn opening(&self) -> TransportConfig {
        self.transport(0, self.connection_window())
    }

    /// The configuration of accepted connections, until the peer is admitted.
    pub(super) fn accepting(&self) -> TransportConfig {
        let few = match self.streams {
            0..=STREAMS_AT_ONCE => self.streams,
            _ => STREAMS_FEW,
        };
        self.transport(few, FEW_BYTES)
    }

    /// The configuration of connections whose peers may open so many streams, and send so many
    /// bytes on all of them that aren't read.
    fn transport(&self, streams: u32, window: u64) -> TransportConfig {
        let mut config = TransportConfig::default();
        let idle = u32::try_from(self.idle.as_millis()).unwrap_or(u32::MAX);
        let mut discovery = MtuDiscoveryConfig::default();
        discovery.upper_bound(self.mtu);
        let window = VarInt::from_u64(window).unwrap_or(VarInt::MAX);
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(streams))
            .max_concurrent_uni_streams(VarInt::from_u32(0))
            .stream_receive_window(VarInt::from_u32(self.window))
            .receive_window(window)
            .send_window(self.connection_window())
            .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(idle))))
            .mtu_discovery_config(Some(discovery))
            // Nothing here uses datagrams (RFC 9221), so a peer can't fill their buffer.
            .datagram_receive_buffer_size(None)
            .congestion_controller_factory(self.congestion.factory());
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_their_text_are_the_same() {
        let options = QuicOptions {
            congestion: Congestion::NewReno,
            window: 1 << 20,
            idle: Duration::from_secs(5),
            connect: Duration::from_secs(3),
            mtu: 8952,
            streams: 7,
        };
        let spec = options.spec();
        assert_eq!(
            spec.to_string(),
            "quic:congestion=newreno:window=1048576:idle=5:connect=3:mtu=8952:streams=7"
        );
        assert_eq!(attribute::parse(ATTRIBUTES, spec.attributes()), Ok(options));
        assert_eq!(QuicOptions::default().spec().to_string(), "quic");
    }

    #[test]
    fn values_out_of_their_range_are_refused() {
        for (name, value) in [
            ("congestion", "reno"),
            ("congestion", ""),
            ("window", "65535"),
            ("window", "1073741825"),
            ("idle", "0"),
            ("idle", "3601"),
            ("connect", "0"),
            ("connect", "-1"),
            ("mtu", "1199"),
            ("mtu", "65528"),
            ("streams", "0"),
            ("streams", "65537"),
        ] {
            let given = [(name.to_owned(), value.to_owned())];
            let parsed = attribute::parse(ATTRIBUTES, &given);
            assert!(parsed.is_err(), "{name}={value}");
        }
    }
}
