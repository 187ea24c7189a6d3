//! What one direction of a link does to packets, as data, and what it has done to them.

use std::time::Duration;

/// Bytes of the queue where none are asked for and the delay asks for fewer.
const QUEUE_LEAST: u64 = 64 << 10;

/// One direction of a link. The default passes everything on at once.
///
/// A packet meets the parts in this order: it may be lost, it waits in the queue or is dropped
/// because the queue is full, it is sent at the bandwidth, and it travels for the delay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Link {
    /// How long a packet travels, one way: half of what is added to the round trip by two equal
    /// directions. The forwarder itself adds some tens of microseconds.
    pub delay: Duration,
    /// At most so much is added to the delay of a packet, evenly distributed. Packets keep their
    /// order, so one that is late holds up those behind it.
    pub jitter: Duration,
    /// Bytes of IP packets a second, headers included; `None` sets no bound. 0 counts as 1.
    pub bandwidth: Option<u64>,
    /// Bytes of IP packets that may wait for the link; one that doesn't fit is dropped. `None` is
    /// what the link moves in two delays (a round trip), and at least 64 KiB. Without a bandwidth
    /// nothing waits. One packet may always be on its way into the link.
    pub queue: Option<u64>,
    /// The probability that a packet is lost, 0 to 1, each on its own; 1 cuts the link. Nothing
    /// else than the seed and the number of the packet decides it.
    pub loss: f64,
}

impl Link {
    /// A link with this one-way delay that is otherwise perfect.
    #[must_use]
    pub fn delay(delay: Duration) -> Self {
        Self {
            delay,
            ..Self::default()
        }
    }

    /// The same link with up to so much more delay for each packet.
    #[must_use]
    pub fn with_jitter(self, jitter: Duration) -> Self {
        Self { jitter, ..self }
    }

    /// The same link with so many bytes a second.
    #[must_use]
    pub fn with_bandwidth(self, bytes_per_s: u64) -> Self {
        Self {
            bandwidth: Some(bytes_per_s),
            ..self
        }
    }

    /// The same link with a queue of so many bytes.
    #[must_use]
    pub fn with_queue(self, bytes: u64) -> Self {
        Self {
            queue: Some(bytes),
            ..self
        }
    }

    /// The same link that loses packets with this probability.
    #[must_use]
    pub fn with_loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// The bound of the queue in bytes.
    pub(super) fn queue_bytes(&self) -> u64 {
        let in_flight = || {
            let bandwidth = u128::from(self.bandwidth.unwrap_or(u64::MAX));
            let bytes = bandwidth.saturating_mul(self.delay.as_nanos() * 2) / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX).max(QUEUE_LEAST)
        };
        self.queue.unwrap_or_else(in_flight)
    }
}

/// What one direction has done so far.
///
/// Packets are IP packets as they would be on a wire; what the system hands over as one large
/// segment is counted as the packets it stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets delivered.
    pub packets: u64,
    /// Bytes of the packets delivered, headers included.
    pub bytes: u64,
    /// Packets that [`Link::loss`] took.
    pub lost: u64,
    /// Packets that found the queue full.
    pub dropped: u64,
    /// Packets that came faster than the forwarder could take them, or that the far side refused.
    /// They are losses that nobody asked for: unless it is 0, results are those of the emulator.
    pub overrun: u64,
    /// Packets delivered more than a millisecond after their time.
    pub late: u64,
    /// How far after its time the latest packet was delivered.
    pub late_max: Duration,
}
