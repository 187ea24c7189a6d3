//! Parcels as the index keeps them.

use serde::{Deserialize, Serialize};
use xdfs_proto::digest::DigestValue;
use xdfs_proto::relay::ParcelState;
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault, Retry, Side};

/// What a user wants delivered: the fields by which the same request is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewParcel {
    /// The user.
    pub user: String,
    /// The identifier, chosen by the user's side: one user has one parcel with it.
    pub id: CopyId,
    /// The target as a URL.
    pub target: String,
    /// The name of the file if the target is a directory.
    pub name: Vec<u8>,
    /// Replace an existing entry at the target.
    pub overwrite: bool,
    /// Length of the file.
    pub bytes: u64,
    /// Seconds until it is given up.
    pub life_s: u32,
}

/// A parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its number in the order of submission.
    pub number: u64,
    /// What is wanted.
    pub order: NewParcel,
    /// How far it is; never [`ParcelState::Delivering`], which ends with the process.
    pub state: ParcelState,
    /// When it was opened, in seconds since 1970.
    pub opened_s: u64,
    /// When it came to an end; 0 before.
    pub ended_s: u64,
    /// Permission bits of the source.
    pub mode: Option<u32>,
    /// Modification time of the source.
    pub mtime_ns: Option<i64>,
    /// The digest of the file, once it has arrived.
    pub digest: DigestValue,
    /// The names at the target under which it is complete, and which it is to get: from then on
    /// only the rename is left.
    pub placed: Option<Placed>,
    /// The user doesn't want it any more: the next attempt cancels it, and removes what is at the
    /// target under the hidden name.
    pub cancel_wanted: bool,
    /// Why the last attempt failed.
    pub fault: Option<Fault>,
    /// Attempts to deliver it.
    pub attempts: u32,
}

/// A file that is complete at the target under a hidden name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The hidden name.
    pub hidden: Vec<u8>,
    /// The name that it gets.
    pub target: Vec<u8>,
    /// The device and the inode number of their directory, if the target has said them.
    pub directory: Option<(u64, u64)>,
}

/// What counts of a parcel that takes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// How far it is.
    pub state: ParcelState,
    /// Length of the file.
    pub bytes: u64,
    /// When it was opened, in seconds since 1970.
    pub opened_s: u64,
}

impl Counted {
    pub(crate) fn of(parcel: &Parcel) -> Option<Self> {
        has_content(parcel.state).then_some(Self {
            state: parcel.state,
            bytes: parcel.order.bytes,
            opened_s: parcel.opened_s,
        })
    }
}

/// Whether the content of a parcel in this state is kept: one that was given up may be put back.
pub(crate) fn has_content(state: ParcelState) -> bool {
    !matches!(state, ParcelState::Delivered | ParcelState::Cancelled)
}

impl Parcel {
    /// When it is given up, in seconds since 1970.
    #[must_use]
    pub fn expires_s(&self) -> u64 {
        self.opened_s.saturating_add(self.order.life_s.into())
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let stored = Stored::of(self);
        // Numbers, texts and lists of them can always be written.
        serde_json::to_vec(&stored).unwrap_or_default()
    }

    pub(crate) fn decode(number: u64, bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Stored>(bytes).ok()?.parcel(number)
    }
}

/// The form of a parcel in the index.
#[derive(Serialize, Deserialize)]
struct Stored {
    user: String,
    id: String,
    target: String,
    name: Vec<u8>,
    overwrite: bool,
    bytes: u64,
    life_s: u32,
    state: u8,
    opened_s: u64,
    ended_s: u64,
    mode: Option<u32>,
    mtime_ns: Option<i64>,
    crc64: Option<u64>,
    blake3: Option<[u8; 32]>,
    placed: Option<Placed>,
    cancel_wanted: bool,
    fault: Option<StoredFault>,
    attempts: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredFault {
    code: u16,
    is_there: bool,
    operation: String,
    path: Vec<u8>,
    cause: String,
    hint: String,
    retry_ms: Option<u32>,
}

impl Stored {
    fn of(parcel: &Parcel) -> Self {
        let order = &parcel.order;
        Self {
            user: order.user.clone(),
            id: order.id.to_string(),
            target: order.target.clone(),
            name: order.name.clone(),
            overwrite: order.overwrite,
            bytes: order.bytes,
            life_s: order.life_s,
            state: parcel.state.number(),
            opened_s: parcel.opened_s,
            ended_s: parcel.ended_s,
            mode: parcel.mode,
            mtime_ns: parcel.mtime_ns,
            crc64: match parcel.digest {
                DigestValue::Crc64Nvme(crc) => Some(crc),
                _ => None,
            },
            blake3: match parcel.digest {
                DigestValue::Blake3(hash) => Some(hash),
                _ => None,
            },
            placed: parcel.placed.clone(),
            cancel_wanted: parcel.cancel_wanted,
            fault: parcel.fault.as_ref().map(|fault| StoredFault {
                code: fault.code.number(),
                is_there: fault.side == Side::Remote,
                operation: fault.operation.clone(),
                path: fault.path.clone(),
                cause: fault.cause.clone(),
                hint: fault.hint.clone(),
                retry_ms: match fault.retry {
                    Retry::Never => None,
                    Retry::Now => Some(0),
                    Retry::AfterMs(pause) => Some(pause),
                },
            }),
            attempts: parcel.attempts,
        }
    }

    fn parcel(self, number: u64) -> Option<Parcel> {
        Some(Parcel {
            number,
            order: NewParcel {
                user: self.user,
                id: self.id.parse().ok()?,
                target: self.target,
                name: self.name,
                overwrite: self.overwrite,
                bytes: self.bytes,
                life_s: self.life_s,
            },
            state: ParcelState::from_number(self.state)?,
            opened_s: self.opened_s,
            ended_s: self.ended_s,
            mode: self.mode,
            mtime_ns: self.mtime_ns,
            digest: match (self.crc64, self.blake3) {
                (Some(crc), _) => DigestValue::Crc64Nvme(crc),
                (None, Some(hash)) => DigestValue::Blake3(hash),
                (None, None) => DigestValue::None,
            },
            placed: self.placed,
            cancel_wanted: self.cancel_wanted,
            fault: self.fault.map(StoredFault::fault),
            attempts: self.attempts,
        })
    }
}

impl StoredFault {
    fn fault(self) -> Fault {
        let fault = Fault::new(Code::from_number(self.code), self.operation, self.cause)
            .path(self.path)
            .hint(self.hint)
            .retry(match self.retry_ms {
                None => Retry::Never,
                Some(0) => Retry::Now,
                Some(pause) => Retry::AfterMs(pause),
            });
        match self.is_there {
            true => fault.remote(),
            false => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parcel_is_read_as_it_was_written() {
        let fault = Fault::new(Code::NoSpace, "write", "no space left")
            .path(b"/x\xff")
            .hint("free some")
            .retry(Retry::AfterMs(7))
            .remote();
        let digests = [
            DigestValue::None,
            DigestValue::Crc64Nvme(u64::MAX),
            DigestValue::Blake3([9; 32]),
        ];
        for digest in digests {
            let parcel = Parcel {
                number: 5,
                order: NewParcel {
                    user: "al\"ice".into(),
                    id: CopyId([7; 16]),
                    target: "xdfs://host/x".into(),
                    name: b"\xfe".to_vec(),
                    overwrite: true,
                    bytes: u64::MAX,
                    life_s: 9,
                },
                state: ParcelState::Dead,
                opened_s: 1,
                ended_s: 2,
                mode: Some(0o640),
                mtime_ns: Some(-5),
                digest,
                placed: Some(Placed {
                    hidden: b"/.x".to_vec(),
                    target: b"/x".to_vec(),
                    directory: Some((1, 2)),
                }),
                cancel_wanted: true,
                fault: Some(fault.clone()),
                attempts: 3,
            };
            assert_eq!(Parcel::decode(5, &parcel.encode()), Some(parcel));
        }
        assert_eq!(Parcel::decode(5, b"{}"), None);
        assert_eq!(Parcel::decode(5, b"\xff"), None);
    }
}
