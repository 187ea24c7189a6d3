//! Groups of acceptors that serve the same files, so that one file is moved by several of them.
//!
//! An acceptor answers the call [`Group`](crate::path::Call::Group) by the [list](Group) of its
//! group, and vouches for it by the session that it comes in. Everything else between an initiator
//! and a member is a session like any other.

use std::collections::BTreeSet;

use crate::third_party::ADDRESS_BYTES_MAX;
use crate::wire::{DecodeError, Reader, Writer, check_most};

/// Most members of a group.
pub const MEMBERS_MAX: usize = 64;
/// Fewest members: one alone has nothing to share.
pub const MEMBERS_MIN: usize = 2;
/// Largest size of a member on the wire.
const MEMBER_BYTES_MAX: usize = 32 + 2 + ADDRESS_BYTES_MAX;
/// Largest size of a list.
pub(crate) const GROUP_BYTES_MAX: usize = 2 + MEMBERS_MAX * MEMBER_BYTES_MAX;

/// Where the files of a group are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Storage {
    /// On one file system, which all members reach.
    #[default]
    Shared,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// SHA-256 of the SubjectPublicKeyInfo of its key in TLS.
    pub key: [u8; 32],
    /// Its address as `HOST:PORT`.
    pub address: String,
}

/// The list of a group, which its answering member is in too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Where its files are.
    pub storage: Storage,
    /// The members in the order of preference, each with a key of its own: at least
    /// [`MEMBERS_MIN`], at most [`MEMBERS_MAX`].
    pub members: Vec<Member>,
}

impl Group {
    /// The rules beyond the layout.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        const COUNT: &str = "count of members";
        check_most(COUNT, self.members.len(), MEMBERS_MAX)?;
        if self.members.len() < MEMBERS_MIN {
            return Err(DecodeError::Invalid(COUNT));
        }
        for member in &self.members {
            check_most("address", member.address.len(), ADDRESS_BYTES_MAX)?;
        }
        let keys: BTreeSet<_> = self.members.iter().map(|member| member.key).collect();
        match keys.len() == self.members.len() {
            true => Ok(()),
            false => Err(DecodeError::Invalid("key")),
        }
    }

    pub(crate) fn data_bytes(&self) -> usize {
        let member = |member: &Member| 32 + 2 + member.address.len();
        2 + self.members.iter().map(member).sum::<usize>()
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(match self.storage {
            Storage::Shared => 0,
        });
        w.u8(u8::try_from(self.members.len()).unwrap_or(u8::MAX));
        for member in &self.members {
            w.raw(&member.key);
            w.text(&member.address, ADDRESS_BYTES_MAX);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let storage = match r.u8("storage of a group")? {
            0 => Storage::Shared,
            _ => return Err(DecodeError::Invalid("storage of a group")),
        };
        let count = usize::from(r.u8("count of members")?);
        check_most("count of members", count, MEMBERS_MAX)?;
        let mut member = || {
            Ok(Member {
                key: r.array("key")?,
                address: r.text(ADDRESS_BYTES_MAX, "address")?,
            })
        };
        Ok(Self {
            storage,
            members: (0..count).map(|_| member()).collect::<Result<_, _>>()?,
        })
    }
}
