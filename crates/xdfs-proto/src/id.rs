//! Names of sessions, channels, files, calls and versions of a source on the wire.

use std::fmt;

/// The identifier of a session (a GUID in the papers): 16 random bytes chosen by the initiator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub [u8; 16]);

/// The secret that a further channel has to present to join a session: 16 random bytes chosen by
/// the acceptor. It never appears in logs: its `Debug` form hides the bytes.
#[derive(Clone, Copy)]
pub struct SessionSecret(pub [u8; 16]);

impl SessionSecret {
    /// Compares in a time that doesn't depend on where the values differ.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(other.0.iter())
            .fold(0u8, |acc, (a, b)| acc | (a ^ b))
            == 0
    }

    /// What JOIN carries on a protected channel instead of the secret itself: it holds for the
    /// channel of that `binding` and index alone, so that it is worth nothing to who sees it.
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

/// The number of a channel within its session, from 0. Channel 0 registers the session. A number
/// is used once: a channel that replaces a broken one gets a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelIndex(pub u32);

/// The number of a file within its session, chosen by the initiator, counting up from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u32);

/// Places for calls that a session has: as many calls may be unanswered at once.
pub const CALL_SLOTS: u16 = 128;

/// The name of a path call within its session.
///
/// A session has [`CALL_SLOTS`] slots with one call in each at a time. Calls in a slot count up
/// from 1, and the next one goes there only when the last is answered in full: so it also tells
/// that the answer arrived and need not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId {
    /// The slot, below [`CALL_SLOTS`].
    pub slot: u16,
    /// Which call in the slot, from 1.
    pub sequence: u32,
}

/// What identifies one version of a source: a value that changes when the content may have. All
/// zero if the source can't be read twice, so that nothing can be resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceTag(pub [u8; 16]);

impl SourceTag {
    /// The tag of `length` bytes from `offset` on, up to the end if `None`, of a source whose own
    /// tag this is. A part is another source than the whole and than every other part: what a
    /// receiver keeps of them must not mix.
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
