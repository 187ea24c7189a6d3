//! The opening exchange: magic, service, versions and features, before any frame.

use crate::fault::Fault;
use crate::wire::DecodeError;

/// The protocol version of this crate.
pub const VERSION: u8 = 1;
/// The service byte of the file system service.
pub const SERVICE_FILE: u8 = 0;
/// The service byte of remote processes, which is not offered.
pub const SERVICE_PROCESS: u8 = 1;
/// The service byte of threads, which is not offered.
pub const SERVICE_THREAD: u8 = 2;
/// Bytes of the fixed part of HELLO and of WELCOME.
pub const OPENING_HEADER_BYTES: usize = 12;
/// Largest feature list, in bytes.
pub const FEATURES_BYTES_MAX: u32 = 4096;

/// A feature that one side has. Identifiers below 0x8000 may be ignored by who doesn't know them;
/// those from 0x8000 are mandatory: who doesn't know one refuses by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The number of the feature.
    pub id: u16,
    /// Its name, for messages (ASCII, at most 64 bytes).
    pub name: String,
    /// Its parameters, defined by the feature.
    pub value: Vec<u8>,
}

impl Feature {
    /// Whether a peer that doesn't know the feature must refuse.
    #[must_use]
    pub fn is_mandatory(&self) -> bool {
        self.id >= 0x8000
    }
}

/// HELLO: the first bytes of the initiator on every channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The service wanted.
    pub service: u8,
    /// Lowest protocol version spoken.
    pub version_min: u8,
    /// Highest protocol version spoken.
    pub version_max: u8,
    /// What the initiator can do.
    pub features: Vec<Feature>,
}

/// WELCOME: the answer of the acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version chosen.
    pub version: u8,
    /// The features common to both sides.
    pub features: Vec<Feature>,
}

/// The answer to HELLO: a welcome, or the reason why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Welcome(Welcome),
    /// The connection is closed after this.
    Refused(Fault),
}

impl Default for Hello {
    fn default() -> Self {
        Self {
            service: SERVICE_FILE,
            version_min: VERSION,
            version_max: VERSION,
            features: Vec::new(),
        }
    }
}

impl Hello {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }

    /// Decodes a message from the front of `bytes`; `Ok(None)` while it isn't complete, else the
    /// message and the number of bytes it took. A wrong magic is found at the first wrong byte.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let _ = bytes;
        todo!()
    }

    /// What this side answers: picks the highest common version and the common features.
    #[must_use]
    pub fn answer(&self, known: &[Feature]) -> Answer {
        let _ = known;
        todo!()
    }
}

impl Answer {
    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _ = out;
        todo!()
    }

    /// Decodes a message from the front of `bytes`, like [`Hello::decode`].
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let _ = bytes;
        todo!()
    }
}
