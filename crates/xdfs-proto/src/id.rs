//! Identifiers of sessions, channels, files, calls and source versions on the wire.

use std::fmt;

/// The identifier of a session (a GUID in the papers): 16 random bytes chosen by the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

/// The secret that a further channel must present to join a session: 16 random bytes chosen by the
/// acceptor. It never appears in logs: its `Debug` form hides the bytes.
#[derive(Clone, Copy)]
pub struct SessionSecret(pub [u8; 16]);

impl SessionSecret {
    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(other.0.iter())
            .fold(0u8, |acc, (a, b)| acc | (a ^ b))
            == 0
    }

    /// The value presented in JOIN on a protected channel instead of the secret itself: valid only
    /// for the channel with this `binding` and index, so it is useless to eavesdroppers.
    #[must_use]
    pub fn bound_to(&self, binding: &[u8; 32], channel: ChannelIndex) -> Self {
        let key = blake3::derive_key("xdfs 1 proof that a channel belongs to a session", &self.0);
        let mut covered = [0; 36];
        covered[..32].copy_from_slice(binding);
        covered[32..].copy_from_slice(&channel.0.to_be_bytes());
        let mut proof = [0; 16];
        proof.copy_from_slice(&blake3::keyed_hash(&key, &covered).as_bytes()[..16]);
        Self(proof)
    }
}

impl PartialEq for SessionSecret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(other)
    }
}

impl Eq for SessionSecret {}

impl fmt::Debug for SessionSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSecret(..)")
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

/// The index of a channel within its session, from 0. Channel 0 registers the session. Indices are
/// not reused: a channel that replaces a broken one gets a new index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelIndex(pub u32);

/// The number of a file within its session, chosen by the initiator, counting up from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Number of call slots in a session: the maximum number of unanswered calls.
pub const CALL_SLOTS: u16 = 128;

/// The id of a call within its session.
///
/// A session has [`CALL_SLOTS`] slots, each with at most one call at a time. Calls in a slot are
/// numbered from 1, and the next one starts only after the previous one is completely answered: so
/// it also acknowledges that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// The slot, below [`CALL_SLOTS`].
    pub slot: u16,
    /// Number of the call in the slot, from 1.
    pub sequence: u32,
}

/// Identifies a version of a source: changes whenever the content may have changed. All zero if the
/// source can't be read twice, so that nothing can be resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceTag(pub [u8; 16]);

impl SourceTag {
    /// The tag of `length` bytes from `offset` on (up to the end if `None`), for a source with this
    /// tag. Each part counts as a source of its own: the data that a receiver keeps of different
    /// parts must not be mixed.
    #[must_use]
    pub fn of_part(self, offset: u64, length: Option<u64>) -> Self {
        if self == Self::default() {
            return self;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0);
        hasher.update(&offset.to_be_bytes());
        hasher.update(&length.unwrap_or(u64::MAX).to_be_bytes());
        let mut tag = [0; 16];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(tag)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in slot {}", self.sequence, self.slot)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ChannelIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
