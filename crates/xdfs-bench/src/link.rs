//! The emulated links of the groups `wan-...`: what each is like, what it can carry and how much of
//! that xdfs has to reach.
//!
//! A table and sums over it; `wan` makes the networks. Called by `options`, `plan`, `wan`,
//! `requirements` and `markdown`.

use std::time::Duration;

/// Bytes of the largest IP packet.
const MTU: u16 = 1500;
/// Bytes of payload in such a packet: without the headers of IPv4 (20) and TCP (20) and the
/// timestamps of TCP (12).
const PAYLOAD: u16 = MTU - 20 - 20 - 12;
/// From this bandwidth on packets pass the emulator in segments, which saves most of its work.
/// Below, a segment would be a large part of the queue.
const SEGMENTS_FROM_MBIT: u32 = 1000;
/// How many times longer than the link needs for the payload a rival is waited for.
const PATIENCE: f64 = 4.0;
/// The shortest such wait.
const PATIENCE_LEAST: Duration = Duration::from_secs(3);

/// A link between two hosts.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum WanLink {
    /// Long, and it loses one packet in a thousand.
    Lossy,
    /// The same for programs that may not use bbr.
    LossyCubic,
    /// As long, without losses.
    Clean,
    /// Twice as long, with ten times the losses.
    Far,
    /// A long path to a home.
    Slow,
    /// A shorter one whose queue holds a quarter of a round trip.
    Shallow,
}

/// What a link is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Properties {
    /// The word on the command line.
    pub(crate) name: &'static str,
    /// Bandwidth each way in 10^6 bit of IP packets a second.
    pub(crate) mbit: u32,
    /// What the link adds to a round trip.
    pub(crate) round_trip_ms: u32,
    /// Packets lost of a thousand, each way.
    pub(crate) lost_per_mille: u32,
    /// Bytes that may wait for the link; a round trip's where not given.
    pub(crate) queue_bytes: Option<u64>,
    /// Whether programs may use bbr; cubic is the default of both hosts either way.
    pub(crate) allows_bbr: bool,
    /// Whether rivals are measured both ways and not only upwards.
    pub(crate) both_ways: bool,
    /// Size of the file that is moved.
    pub(crate) bytes: u64,
    /// The share of the payload limit that xdfs has to reach.
    pub(crate) required: Option<f64>,
}

impl WanLink {
    /// Every link.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 6] = [
        Self::Lossy,
        Self::LossyCubic,
        Self::Clean,
        Self::Far,
        Self::Slow,
        Self::Shallow,
    ];

    /// What it is like.
    pub(crate) const fn properties(self) -> Properties {
        let clean = Properties {
            name: "wan-clean",
            mbit: 1000,
            round_trip_ms: 100,
            lost_per_mille: 0,
            queue_bytes: None,
            allows_bbr: true,
            both_ways: false,
            bytes: 1_000_000_000,
            required: Some(0.9),
        };
        match self {
            Self::Clean => clean,
            Self::Lossy => Properties {
                name: "wan-lossy",
                lost_per_mille: 1,
                both_ways: true,
                required: Some(0.85),
                ..clean
            },
            Self::LossyCubic => Properties {
                name: "wan-lossy-cubic",
                lost_per_mille: 1,
                allows_bbr: false,
                both_ways: true,
                required: None,
                ..clean
            },
            Self::Far => Properties {
                name: "wan-far",
                round_trip_ms: 200,
                lost_per_mille: 10,
                required: Some(0.7),
                ..clean
            },
            Self::Slow => Properties {
                name: "wan-slow",
                mbit: 20,
                round_trip_ms: 76,
                bytes: 60_000_000,
                required: Some(0.97),
                ..clean
            },
            Self::Shallow => Properties {
                name: "wan-shallow",
                mbit: 100,
                round_trip_ms: 20,
                queue_bytes: Some(64 << 10),
                bytes: 250_000_000,
                ..clean
            },
        }
    }

    /// Bytes of IP packets that it passes each second, headers included.
    pub(crate) fn bandwidth(self) -> u64 {
        u64::from(self.properties().mbit) * 1_000_000 / 8
    }

    /// Payload that TCP can pass over it at most, in GB (10^9 bytes) a second.
    pub(crate) fn payload_limit(self) -> f64 {
        payload_of(self.bandwidth()) / 1e9
    }

    /// How long a rival may take for so many bytes.
    pub(crate) fn patience(self, bytes: u64) -> Duration {
        let needed = bytes as f64 / 1e9 / self.payload_limit();
        Duration::from_secs_f64(needed * PATIENCE).max(PATIENCE_LEAST)
    }

    /// One way.
    pub(crate) fn delay(self) -> Duration {
        Duration::from_millis(u64::from(self.properties().round_trip_ms)) / 2
    }

    /// Whether packets pass the emulator in segments.
    pub(crate) fn in_segments(self) -> bool {
        self.properties().mbit >= SEGMENTS_FROM_MBIT
    }

    /// What it is like, in words.
    pub(crate) fn description(self) -> String {
        let Properties {
            mbit,
            round_trip_ms,
            lost_per_mille,
            queue_bytes,
            ..
        } = self.properties();
        let rate = if mbit >= 1000 {
            format!("{} Gbit/s", mbit / 1000)
        } else {
            format!("{mbit} Mbit/s")
        };
        let loss = match lost_per_mille {
            0 => "no random loss".to_owned(),
            some => format!("{} % loss", f64::from(some) / 10.0),
        };
        let queue = queue_bytes.map_or_else(
            || "a queue of one round trip".to_owned(),
            |bytes| format!("a queue of {} KiB", bytes >> 10),
        );
        format!("{rate}, {round_trip_ms} ms round trip, {loss}, {queue}")
    }
}

/// The payload of so many bytes of full packets.
pub(crate) fn payload_of(bytes: u64) -> f64 {
    bytes as f64 * f64::from(PAYLOAD) / f64::from(MTU)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_leave_out_headers() {
        assert!((WanLink::Clean.payload_limit() - 0.120_667).abs() < 1e-6);
        assert!((WanLink::Slow.payload_limit() - 0.002_413).abs() < 1e-6);
    }

    #[test]
    fn rivals_are_waited_for_as_the_link_needs() {
        let seconds = |link: WanLink, bytes| link.patience(bytes).as_secs();
        assert_eq!(seconds(WanLink::Clean, 1_000_000_000), 33);
        assert_eq!(seconds(WanLink::Slow, 60_000_000), 99);
        assert_eq!(seconds(WanLink::Clean, 1), 3);
    }

    #[test]
    fn links_are_described_by_what_sets_them_apart() {
        let described = WanLink::ALL.map(|link| (link.description(), link.properties().allows_bbr));
        for (index, words) in described.iter().enumerate() {
            assert!(!described[..index].contains(words), "{words:?}");
        }
        assert_eq!(
            WanLink::Far.description(),
            "1 Gbit/s, 200 ms round trip, 1 % loss, a queue of one round trip"
        );
        assert_eq!(
            WanLink::Shallow.description(),
            "100 Mbit/s, 20 ms round trip, no random loss, a queue of 64 KiB"
        );
    }
}
