//! Parcels as the index keeps them.

use serde::{Deserialize, Serialize};
use xdfs_proto::digest::DigestValue;
use xdfs_proto::relay::{ParcelState, RelayId};
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
    /// The file is a tree, and is delivered as one.
    pub tree: bool,
    /// Length of the file.
    pub bytes: u64,
    /// Seconds until it is given up.
    pub life_s: u32,
    /// The digest that the file must have; none if the user's side doesn't know it.
    pub digest: DigestValue,
    /// The relays by which it is to go, as URLs; none if it is to be delivered from here.
    pub next: Vec<String>,
    /// The relays that it has passed.
    pub passed: Vec<RelayId>,
    /// Another parcel of the user, whose file is that of this one too.
    pub of: Option<CopyId>,
    /// The name of an order: those of the user with the same one go one after the other.
    pub in_order: Option<String>,
    /// The digest comes by the same request without this: until then the file isn't taken.
    pub ahead: bool,
}

impl NewParcel {
    /// Whether it is the same request. A relay that repeats one has less time left for it, and may
    /// have to send the file by itself.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let alike = Self {
            life_s: self.life_s,
            of: self.of,
            ..other.clone()
        };
        *self == alike
    }

    /// Whether the other one is the same request but for the digest, which it brings.
    pub(crate) fn is_completed_by(&self, other: &Self) -> bool {
        let alike = Self {
            ahead: true,
            digest: self.digest,
            ..other.clone()
        };
        self.ahead && !other.ahead && self.is_same(&alike)
    }
}

/// A parcel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// Its number in the order of submission.
    pub number: u64,
    /// The number of the parcel with which its file came: its own, unless several share it.
    pub content: u64,
    /// What is wanted.
    pub order: NewParcel,
    /// Counts up with each parcel that has arrived; 0 before.
    pub taken: u64,
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
    /// The relay that has it, as a URL, and answers for it: its content isn't here any more.
    pub handed_to: Option<String>,
    /// The next relay may know it.
    pub offered: bool,
    /// How often the next relay has given it up before it had all of it: it is sent there anew
    /// under another identifier.
    pub sent_anew: u32,
    /// The hidden name at the target to which it is sent while it arrives.
    pub begun: Option<Vec<u8>>,
    /// The user doesn't want it any more: the next attempt cancels it, and removes what is at the
    /// target under the hidden name.
    pub cancel_wanted: bool,
    /// The user wants the relay that has it to try it at once.
    pub retry_wanted: bool,
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

/// The counted facts of a parcel that takes room.
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
        parcel.has_content().then_some(Self {
            state: parcel.state,
            bytes: parcel.order.bytes,
            opened_s: parcel.opened_s,
        })
    }
}

impl Parcel {
    /// A parcel that arrives, before it has a number.
    pub(crate) fn new(order: NewParcel, opened_s: u64) -> Self {
        Self {
            number: 0,
            content: 0,
            taken: 0,
            order,
            state: ParcelState::Arriving,
            opened_s,
            ended_s: 0,
            mode: None,
            mtime_ns: None,
            digest: DigestValue::None,
            placed: None,
            handed_to: None,
            offered: false,
            sent_anew: 0,
            begun: None,
            cancel_wanted: false,
            retry_wanted: false,
            fault: None,
            attempts: 0,
        }
    }

    /// When it is given up, in seconds since 1970.
    #[must_use]
    pub fn expires_s(&self) -> u64 {
        self.opened_s.saturating_add(self.order.life_s.into())
    }

    /// Whether an attempt is to be made, now or later.
    #[must_use]
    pub fn is_due(&self) -> bool {
        match self.state {
            ParcelState::Held => true,
            // What went ahead is to be withdrawn.
            ParcelState::Arriving => self.cancel_wanted,
            _ => false,
        }
    }

    /// Whether what has arrived may go on before the rest is there.
    #[must_use]
    pub fn may_go_ahead(&self) -> bool {
        let order = &self.order;
        // The relay that delivers a tree needs its index first, and which one has its turn in an
        // order is known when it has arrived.
        let is_file = !order.tree || !order.next.is_empty();
        let is_first = self.content == self.number;
        self.state == ParcelState::Arriving
            && !self.cancel_wanted
            && is_file
            && is_first
            && order.in_order.is_none()
    }

    /// Whether something of it may be at the next relay or at the target.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        self.offered || self.begun.is_some()
    }

    /// Whether its content is kept here.
    #[must_use]
    pub fn has_content(&self) -> bool {
        // One that was given up may be put back.
        let is_over = matches!(self.state, ParcelState::Delivered | ParcelState::Cancelled);
        !is_over && self.handed_to.is_none()
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
    content: u64,
    order: StoredOrder,
    taken: u64,
    state: u8,
    opened_s: u64,
    ended_s: u64,
    mode: Option<u32>,
    mtime_ns: Option<i64>,
    digest: StoredDigest,
    placed: Option<Placed>,
    handed_to: Option<String>,
    offered: bool,
    sent_anew: u32,
    begun: Option<Vec<u8>>,
    cancel_wanted: bool,
    retry_wanted: bool,
    fault: Option<StoredFault>,
    attempts: u32,
}

#[derive(Serialize, Deserialize)]
struct StoredOrder {
    user: String,
    id: String,
    target: String,
    name: Vec<u8>,
    overwrite: bool,
    tree: bool,
    bytes: u64,
    life_s: u32,
    digest: StoredDigest,
    next: Vec<String>,
    passed: Vec<[u8; 16]>,
    of: Option<String>,
    in_order: Option<String>,
    ahead: bool,
}

impl StoredOrder {
    fn of(order: &NewParcel) -> Self {
        Self {
            user: order.user.clone(),
            id: order.id.to_string(),
            target: order.target.clone(),
            name: order.name.clone(),
            overwrite: order.overwrite,
            tree: order.tree,
            bytes: order.bytes,
            life_s: order.life_s,
            digest: StoredDigest::of(&order.digest),
            next: order.next.clone(),
            passed: order.passed.iter().map(|relay| relay.0).collect(),
            of: order.of.map(|id| id.to_string()),
            in_order: order.in_order.clone(),
            ahead: order.ahead,
        }
    }

    fn order(self) -> Option<NewParcel> {
        Some(NewParcel {
            user: self.user,
            id: self.id.parse().ok()?,
            target: self.target,
            name: self.name,
            overwrite: self.overwrite,
            tree: self.tree,
            bytes: self.bytes,
            life_s: self.life_s,
            digest: self.digest.digest(),
            next: self.next,
            passed: self.passed.into_iter().map(RelayId).collect(),
            of: self.of.map(|id| id.parse()).transpose().ok()?,
            in_order: self.in_order,
            ahead: self.ahead,
        })
    }
}

/// At most one of them is there.
#[derive(Serialize, Deserialize)]
struct StoredDigest {
    crc64: Option<u64>,
    blake3: Option<[u8; 32]>,
}

impl StoredDigest {
    fn of(digest: &DigestValue) -> Self {
        Self {
            crc64: match digest {
                DigestValue::Crc64Nvme(crc) => Some(*crc),
                _ => None,
            },
            blake3: match digest {
                DigestValue::Blake3(hash) => Some(*hash),
                _ => None,
            },
        }
    }

    fn digest(self) -> DigestValue {
        match (self.crc64, self.blake3) {
            (Some(crc), _) => DigestValue::Crc64Nvme(crc),
            (None, Some(hash)) => DigestValue::Blake3(hash),
            (None, None) => DigestValue::None,
        }
    }
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
        Self {
            content: parcel.content,
            order: StoredOrder::of(&parcel.order),
            taken: parcel.taken,
            state: parcel.state.number(),
            opened_s: parcel.opened_s,
            ended_s: parcel.ended_s,
            mode: parcel.mode,
            mtime_ns: parcel.mtime_ns,
            digest: StoredDigest::of(&parcel.digest),
            placed: parcel.placed.clone(),
            handed_to: parcel.handed_to.clone(),
            offered: parcel.offered,
            sent_anew: parcel.sent_anew,
            begun: parcel.begun.clone(),
            cancel_wanted: parcel.cancel_wanted,
            retry_wanted: parcel.retry_wanted,
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
            content: self.content,
            taken: self.taken,
            order: self.order.order()?,
            state: ParcelState::from_number(self.state)?,
            opened_s: self.opened_s,
            ended_s: self.ended_s,
            mode: self.mode,
            mtime_ns: self.mtime_ns,
            digest: self.digest.digest(),
            placed: self.placed,
            handed_to: self.handed_to,
            offered: self.offered,
            sent_anew: self.sent_anew,
            begun: self.begun,
            cancel_wanted: self.cancel_wanted,
            retry_wanted: self.retry_wanted,
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
                content: 3,
                taken: 4,
                order: NewParcel {
                    user: "al\"ice".into(),
                    id: CopyId([7; 16]),
                    target: "xdfs://host/x".into(),
                    name: b"\xfe".to_vec(),
                    overwrite: true,
                    tree: true,
                    bytes: u64::MAX,
                    life_s: 9,
                    digest,
                    next: vec!["xdfs://next".into()],
                    passed: vec![RelayId([3; 16])],
                    of: Some(CopyId([8; 16])),
                    in_order: Some("nightly".into()),
                    ahead: true,
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
                handed_to: Some("xdfs://next".into()),
                offered: true,
                sent_anew: 4,
                begun: Some(b"/.y".to_vec()),
                cancel_wanted: true,
                retry_wanted: true,
                fault: Some(fault.clone()),
                attempts: 3,
            };
            assert_eq!(Parcel::decode(5, &parcel.encode()), Some(parcel));
        }
        assert_eq!(Parcel::decode(5, b"{}"), None);
        assert_eq!(Parcel::decode(5, b"\xff"), None);
    }
}
