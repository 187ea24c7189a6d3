//! Frames that open, protect and leave a session: 0x01 to 0x0f.

use super::body::Body;
use crate::id::{ChannelIndex, SessionId, SessionSecret};
use crate::limits::{BLOCK_SIZE_MIN, Limits, PROOF_BYTES_MAX, USER_BYTES_MAX};
use crate::wire::{DecodeError, Reader, Writer, flag};

/// The start mode of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Immediately; channels join and leave.
    Elastic,
    /// When all announced channels have joined, or not at all.
    Strict,
}

/// SESSION: registers a session on its first channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRequest {
    /// Chosen by the initiator at random.
    pub id: SessionId,
    /// Number of channels that the initiator intends to open, this one included; at least 1.
    pub channels: u32,
    /// Largest payload of a block, in bytes; 0 leaves the choice to the acceptor.
    pub block_size: u32,
    /// Socket buffer of a channel in bytes, in each direction; 0 for the system's default.
    pub window: u32,
    /// Elastic or strict.
    pub start: Start,
    /// The user's name, as in the URL; may be empty.
    pub user: String,
}

impl SessionRequest {
    const STRICT: u8 = 1 << 0;
}

impl Body for SessionRequest {
    const FLAGS_DEFINED: u8 = Self::STRICT;

    fn flags(&self) -> u8 {
        flag(self.start == Start::Strict, Self::STRICT)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.raw(&self.id.0);
        w.u32(self.channels);
        w.u32(self.block_size);
        w.u32(self.window);
        w.text(&self.user, USER_BYTES_MAX);
    }

    fn decode(flags: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            id: SessionId(r.array("session")?),
            channels: channels(r)?,
            block_size: match r.u32("block size")? {
                size @ (0 | BLOCK_SIZE_MIN..) => size,
                _ => return Err(DecodeError::Invalid("block size")),
            },
            window: r.u32("window")?,
            start: if flags & Self::STRICT != 0 {
                Start::Strict
            } else {
                Start::Elastic
            },
            user: r.text(USER_BYTES_MAX, "user")?,
        })
    }
}

/// SESSION-OK: the parameters accepted by the acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAccept {
    /// Every further channel must present this to join; on a protected channel, the value of
    /// [`SessionSecret::bound_to`].
    pub secret: SessionSecret,
    /// Number of channels allowed; at most the requested number.
    pub channels: u32,
    /// Largest payload of a block, in bytes; at most the requested size.
    pub block_size: u32,
    /// Socket buffer in bytes used by the acceptor; 0 for the system's default.
    pub window: u32,
}

impl Body for SessionAccept {
    fn encode(&self, w: &mut Writer<'_>) {
        w.raw(&self.secret.0);
        w.u32(self.channels);
        w.u32(self.block_size);
        w.u32(self.window);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            secret: SessionSecret(r.array("secret")?),
            channels: channels(r)?,
            block_size: r.block_size()?,
            window: r.u32("window")?,
        })
    }
}

/// A number of channels: at least 1.
fn channels(r: &mut Reader<'_>) -> Result<u32, DecodeError> {
    match r.u32("number of channels")? {
        0 => Err(DecodeError::Invalid("number of channels")),
        channels => Ok(channels),
    }
}

/// JOIN: adds a channel to a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinRequest {
    /// The session.
    pub id: SessionId,
    /// Its secret; on a protected channel, the value of [`SessionSecret::bound_to`].
    pub secret: SessionSecret,
    /// The index of this channel; not used before in this session.
    pub channel: ChannelIndex,
}

impl Body for JoinRequest {
    fn encode(&self, w: &mut Writer<'_>) {
        w.raw(&self.id.0);
        w.raw(&self.secret.0);
        w.u32(self.channel.0);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            id: SessionId(r.array("session")?),
            secret: SessionSecret(r.array("secret")?),
            channel: ChannelIndex(r.u32("channel")?),
        })
    }
}

/// AUTH: names the initiator, before SESSION, and begins the proof of its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthRequest {
    /// The number of the method; those of this version are in the specification.
    pub method: u8,
    /// The user's name; may be empty where the method determines the user.
    pub user: String,
    /// The first step of the proof, defined by the method.
    pub body: Vec<u8>,
}

impl Body for AuthRequest {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.method);
        w.text(&self.user, USER_BYTES_MAX);
        w.bytes(&self.body, PROOF_BYTES_MAX);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            method: r.u8("method")?,
            user: r.text(USER_BYTES_MAX, "user")?,
            body: r.bytes(PROOF_BYTES_MAX, "proof")?.to_vec(),
        })
    }
}

/// CHALLENGE: requests the next step of the proof, with bytes defined by the method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge(pub Vec<u8>);

impl Body for Challenge {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.0, PROOF_BYTES_MAX);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self(r.bytes(PROOF_BYTES_MAX, "challenge")?.to_vec()))
    }
}

/// PROOF: the next step of the proof, defined by the method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof(pub Vec<u8>);

impl Body for Proof {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.0, PROOF_BYTES_MAX);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self(r.bytes(PROOF_BYTES_MAX, "proof")?.to_vec()))
    }
}

/// AUTH-OK: the identity of the initiator is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthOk {
    /// The user's name at the acceptor.
    pub user: String,
}

impl Body for AuthOk {
    fn encode(&self, w: &mut Writer<'_>) {
        w.text(&self.user, USER_BYTES_MAX);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            user: r.text(USER_BYTES_MAX, "user")?,
        })
    }
}

/// PROTECT: how the payload of a protected channel is sent from here on; everything else is always
/// protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// Protected, like everything else.
    #[default]
    Private,
    /// Unprotected, with check values: eavesdroppers can read it, and a man in the middle can
    /// change it together with the check value.
    Clear,
}

impl Body for Level {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(match self {
            Self::Private => 0,
            Self::Clear => 1,
        });
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        match r.u8("level")? {
            0 => Ok(Self::Private),
            1 => Ok(Self::Clear),
            _ => Err(DecodeError::Invalid("level")),
        }
    }
}
