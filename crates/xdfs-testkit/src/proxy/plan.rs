//! What happens to a connection, as data.

use std::time::Duration;

/// What happens to one direction of a connection. Positions count the bytes of this direction
/// from 0; the default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Forward so many bytes, then reset the connection both ways. The last of them may get lost.
    pub cut_after: Option<u64>,
    /// Forward so many bytes, then end the connection in an orderly way both ways, so that the
    /// reader sees a stream that is too short and no error.
    pub close_after: Option<u64>,
    /// Forward so many bytes, then nothing more: the connection stays open, and the sender gets
    /// stuck when the buffers are full.
    pub hang_after: Option<u64>,
    /// Flip one bit.
    pub flip: Option<Flip>,
    /// Forward at most so many bytes a second.
    pub rate: Option<u64>,
    /// Forward each byte so much later; does not lower the rate.
    pub delay: Duration,
}

/// One bit of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    /// Which byte, counted from 0.
    pub byte: u64,
    /// Which bit of it, 0 to 7, the lowest first.
    pub bit: u8,
}

/// What happens to a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// From the client to the server.
    pub up: Faults,
    /// From the server to the client.
    pub down: Faults,
}

impl Plan {
    /// A plan with faults on the way from the client to the server, set by `change`.
    #[must_use]
    pub fn up(change: impl FnOnce(&mut Faults)) -> Self {
        Self::default().and_up(change)
    }

    /// A plan with faults on the way from the server to the client, set by `change`.
    #[must_use]
    pub fn down(change: impl FnOnce(&mut Faults)) -> Self {
        Self::default().and_down(change)
    }

    /// The same plan with further faults on the way up.
    #[must_use]
    pub fn and_up(mut self, change: impl FnOnce(&mut Faults)) -> Self {
        change(&mut self.up);
        self
    }

    /// The same plan with further faults on the way down.
    #[must_use]
    pub fn and_down(mut self, change: impl FnOnce(&mut Faults)) -> Self {
        change(&mut self.down);
        self
    }
}
