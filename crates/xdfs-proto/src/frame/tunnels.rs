//! Frames of tunnels: 0x0b to 0x0d.

use super::body::Body;
use crate::limits::{Limits, TARGET_BYTES_MAX};
use crate::wire::{DecodeError, Reader, Writer};

/// What an initiator wants of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelPurpose {
    /// Know whether the acceptor would connect to it. Nothing is connected.
    Check,
    /// Have the acceptor connect to it; the channel becomes that connection.
    Connect,
    /// Have the acceptor listen there, and announce each connection on this channel.
    Listen,
    /// Have an announced connection; the channel becomes that connection.
    Take,
    /// Add the channel to a bundle that another one has begun.
    Join,
}

/// TUNNEL: asks for a byte stream instead of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelRequest {
    /// What is wanted of the target.
    pub purpose: TunnelPurpose,
    /// The target, as [`Target`](crate::tunnel::Target) reads it; that of the listener for
    /// [`TunnelPurpose::Take`].
    pub target: String,
    /// The announced connection for [`TunnelPurpose::Take`], else 0.
    pub number: u64,
    /// The bundle of channels that carries the connection by `ptcp`: chosen by the initiator at
    /// random with the first channel ([`TunnelPurpose::Connect`] or [`TunnelPurpose::Take`]) and
    /// named with the others. 0 if this channel alone carries it.
    pub bundle: u64,
}

impl Body for TunnelRequest {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(match self.purpose {
            TunnelPurpose::Check => 0,
            TunnelPurpose::Connect => 1,
            TunnelPurpose::Listen => 2,
            TunnelPurpose::Take => 3,
            TunnelPurpose::Join => 4,
        });
        w.text(&self.target, TARGET_BYTES_MAX);
        w.u64(self.number);
        w.u64(self.bundle);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        let purpose = match r.u8("purpose")? {
            0 => TunnelPurpose::Check,
            1 => TunnelPurpose::Connect,
            2 => TunnelPurpose::Listen,
            3 => TunnelPurpose::Take,
            4 => TunnelPurpose::Join,
            _ => return Err(DecodeError::Invalid("purpose")),
        };
        let target = r.text(TARGET_BYTES_MAX, "target")?;
        let number = r.u64("number of a connection")?;
        if (purpose == TunnelPurpose::Take) != (number != 0) {
            return Err(DecodeError::Invalid("number of a connection"));
        }
        let bundle = r.u64("number of a bundle")?;
        let fits = match purpose {
            TunnelPurpose::Check | TunnelPurpose::Listen => bundle == 0,
            TunnelPurpose::Connect | TunnelPurpose::Take => true,
            TunnelPurpose::Join => bundle != 0,
        };
        if !fits {
            return Err(DecodeError::Invalid("number of a bundle"));
        }
        Ok(Self {
            purpose,
            target,
            number,
            bundle,
        })
    }
}

/// TUNNEL-OK: the request is granted, and where it connects or connected nothing but the bytes of
/// the connection follow in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunnelAccept {
    /// The address that the acceptor has connected to, or listens on; empty if there is none to
    /// tell.
    pub address: String,
}

impl Body for TunnelAccept {
    fn encode(&self, w: &mut Writer<'_>) {
        w.text(&self.address, TARGET_BYTES_MAX);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            address: r.text(TARGET_BYTES_MAX, "address")?,
        })
    }
}

/// INCOMING: a connection waits for the initiator, who takes it by
/// [`TunnelPurpose::Take`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Its number, which nobody can guess.
    pub number: u64,
    /// The address of its peer, for messages.
    pub peer: String,
}

impl Body for Incoming {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.number);
        w.text(&self.peer, TARGET_BYTES_MAX);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            number: r.u64("number of a connection")?,
            peer: r.text(TARGET_BYTES_MAX, "address")?,
        })
    }
}
