//! Copies between two acceptors that move the data by themselves, while the initiator that wants
//! them only looks on.
//!
//! The initiator has a session with each. One acceptor issues a [capability](Delegation), the other
//! gets it in an [order](CopyOrder), opens a session of its own with it, and fetches or sends the
//! file. These types are the fields of the [calls](ThirdPartyCall) for that, and of their answers.

mod common;
mod tree;

pub use self::common::{
    ADDRESS_BYTES_MAX, ADDRESSES_MAX, CAPABILITY_BYTES_MAX, CopyId, CopyState, LIFE_S_MAX,
};
use self::common::{check_life, check_way, decode_addresses, encode_addresses};
pub use self::tree::{
    EXAMPLES_MAX, NEWS_BYTES, RemovalQuestion, TREE_OPTIONS_BYTES_MAX, TreeDelegation, TreeFigures,
    TreeNews, TreeOrder, TreeQuery, TreeStatus, TreeStep, TreeTotals,
};
use crate::digest::{DigestKind, DigestValue};
use crate::fault::Fault;
use crate::frame::Resume;
use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer, check_path, flag};

/// Numbers of the operations.
pub(crate) mod operation {
    pub(crate) const DELEGATE: u8 = 0x19;
    pub(crate) const START_COPY: u8 = 0x1a;
    pub(crate) const COPY_STATUS: u8 = 0x1b;
    pub(crate) const CANCEL_COPY: u8 = 0x1c;
    pub(crate) const DELEGATE_TREE: u8 = 0x1d;
    pub(crate) const START_TREE: u8 = 0x1e;
    pub(crate) const TREE_STATUS: u8 = 0x1f;
}

/// Delegate: the holder writes to the path.
const WRITE: u8 = 1 << 0;
/// Start copy: replace an existing entry.
const OVERWRITE: u8 = 1 << 0;
/// Start copy: send the file instead of fetching it.
const SEND: u8 = 1 << 1;
/// Start copy: it outlives the session.
const DETACHED: u8 = 1 << 2;

/// Copy status: the total is known.
const TOTAL: u8 = 1 << 0;
/// Copy status: the time of the source is known.
const TIME: u8 = 1 << 1;
/// Copy status: the fault is one of the other acceptor.
const THERE: u8 = 1 << 2;

/// A call about copies between two acceptors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThirdPartyCall {
    /// Issues a capability. Answered by [`Capability`](crate::path::Answer::Capability).
    Delegate(Box<Delegation>),
    /// Starts a copy. Answered by [`Done`](crate::path::Answer::Done) before anything is moved.
    Start(Box<CopyOrder>),
    /// Queries the state of a copy. Answered by [`CopyStatus`](crate::path::Answer::CopyStatus).
    Status(CopyId),
    /// Ends a copy early. Answered by [`Done`](crate::path::Answer::Done) if it has ended too.
    Cancel(CopyId),
    /// Issues a capability for a tree. Answered by
    /// [`Capability`](crate::path::Answer::Capability).
    DelegateTree(Box<TreeDelegation>),
    /// Starts to copy or synchronise a tree. Answered by [`Done`](crate::path::Answer::Done) before
    /// anything is moved.
    StartTree(Box<TreeOrder>),
    /// Queries the state of a tree. Answered by [`TreeStatus`](crate::path::Answer::TreeStatus).
    TreeStatus(TreeQuery),
}

/// The limits of a capability: with it, the holder of one key reads or writes one file, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delegation {
    /// The copy that it is for.
    pub copy: CopyId,
    /// The holder writes to the path; otherwise it reads.
    pub writes: bool,
    /// SHA-256 of the SubjectPublicKeyInfo of the holder: the other acceptor's key.
    pub holder: [u8; 32],
    /// The largest file in bytes that may be moved.
    pub bytes_max: u64,
    /// Its life in seconds, at least 1 and at most [`LIFE_S_MAX`].
    pub life_s: u32,
    /// The path at the acceptor that issues it.
    pub path: Vec<u8>,
}

/// A copy to be carried out by an acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyOrder {
    /// Its identifier.
    pub copy: CopyId,
    /// The file is sent from here; otherwise it is fetched from there.
    pub sends: bool,
    /// The copy outlives the session that has started it.
    pub detached: bool,
    /// Replace what exists at the target.
    pub overwrite: bool,
    /// Whether to resume from what an earlier attempt left at the target.
    pub resume: Resume,
    /// The digest of the whole file.
    pub digest: DigestKind,
    /// Number of channels; 0 lets the acceptor choose.
    pub channels: u16,
    /// Largest number of bytes per second; 0 for no limit.
    pub rate_bytes_per_s_max: u64,
    /// Fingerprint of the other acceptor's key, as in [`Delegation::holder`].
    pub key: [u8; 32],
    /// The capability of the other acceptor.
    pub capability: String,
    /// Addresses of the other acceptor as `HOST:PORT`, at least 1 and at most [`ADDRESSES_MAX`], to
    /// be tried in this order.
    pub addresses: Vec<String>,
    /// The path at this acceptor.
    pub here: Vec<u8>,
    /// The path at the other acceptor.
    pub there: Vec<u8>,
    /// The name of the file if its target is a directory; empty if that is a failure.
    pub name: Vec<u8>,
}

/// The state of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyStatus {
    /// The progress of the copy.
    pub state: CopyState,
    /// Bytes that are at the target, those of an earlier attempt included.
    pub bytes: u64,
    /// Length of the file; `None` if it isn't known yet.
    pub bytes_total: Option<u64>,
    /// Bytes that an earlier attempt had left.
    pub resumed_bytes: u64,
    /// Channels between the acceptors.
    pub channels: u16,
    /// Milliseconds since its start, up to its end.
    pub elapsed_ms: u64,
    /// Modification time of the source in nanoseconds since 1970, if known.
    pub mtime_ns: Option<i64>,
    /// The verified digest; none before the end.
    pub digest: DigestValue,
    /// Path of the target; empty before the end.
    pub target: Vec<u8>,
    /// The cause of the failure: only, and always, if it failed.
    pub fault: Option<Fault>,
    /// The fault is one of the other acceptor; `false` without a fault.
    pub is_fault_there: bool,
}

impl ThirdPartyCall {
    /// The path named in faults; empty for calls about a copy that has started.
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Delegate(delegation) => &delegation.path,
            Self::Start(order) => &order.here,
            Self::DelegateTree(delegation) => &delegation.path,
            Self::StartTree(order) => &order.here,
            Self::Status(_) | Self::Cancel(_) | Self::TreeStatus(_) => &[],
        }
    }

    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Delegate(_) | Self::DelegateTree(_) => "delegate the use of",
            Self::Start(_) | Self::StartTree(_) => "start to copy",
            Self::Status(_) | Self::TreeStatus(_) => "look at the copy",
            Self::Cancel(_) => "cancel the copy",
        }
    }

    /// The defined option bits of an operation; `None` for one that isn't of this module.
    pub(crate) fn options_defined(number: u8) -> Option<u8> {
        match number {
            operation::DELEGATE => Some(WRITE),
            operation::START_COPY => Some(OVERWRITE | SEND | DETACHED),
            operation::COPY_STATUS | operation::CANCEL_COPY => Some(0),
            number => tree::options_defined(number),
        }
    }

    /// The rules beyond the layout.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        match self {
            Self::Delegate(own) => check_life(own.life_s),
            Self::Start(order) => {
                check_path(&order.there, limits.path_bytes_max, "path")?;
                check_path(&order.name, limits.path_bytes_max, "name")?;
                check_way(&order.capability, &order.addresses)
            }
            Self::DelegateTree(own) => own.check(),
            Self::StartTree(order) => order.check(limits),
            Self::Status(_) | Self::Cancel(_) | Self::TreeStatus(_) => Ok(()),
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Delegate(own) => {
                w.u8(operation::DELEGATE);
                w.u8(flag(own.writes, WRITE));
                w.raw(&own.copy.0);
                w.raw(&own.holder);
                w.u64(own.bytes_max);
                w.u32(own.life_s);
                w.path(&own.path);
            }
            Self::Start(order) => {
                w.u8(operation::START_COPY);
                w.u8(flag(order.overwrite, OVERWRITE)
                    | flag(order.sends, SEND)
                    | flag(order.detached, DETACHED));
                w.raw(&order.copy.0);
                w.u8(order.resume.number());
                w.digest_kind(order.digest);
                w.u16(order.channels);
                w.u64(order.rate_bytes_per_s_max);
                w.raw(&order.key);
                w.text(&order.capability, CAPABILITY_BYTES_MAX);
                encode_addresses(&order.addresses, w);
                w.path(&order.here);
                w.path(&order.there);
                w.path(&order.name);
            }
            Self::DelegateTree(own) => own.encode(w),
            Self::StartTree(order) => order.encode(w),
            Self::TreeStatus(query) => query.encode(w),
            Self::Status(copy) | Self::Cancel(copy) => {
                w.u8(match self {
                    Self::Status(_) => operation::COPY_STATUS,
                    _ => operation::CANCEL_COPY,
                });
                w.u8(0);
                w.raw(&copy.0);
            }
        }
    }

    pub(crate) fn decode(
        number: u8,
        options: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        match number {
            operation::DELEGATE_TREE => {
                let own = TreeDelegation::decode(options, r, limits)?;
                return Ok(Self::DelegateTree(Box::new(own)));
            }
            operation::START_TREE => {
                let order = TreeOrder::decode(options, r, limits)?;
                return Ok(Self::StartTree(Box::new(order)));
            }
            operation::TREE_STATUS => {
                return TreeQuery::decode(options, r).map(Self::TreeStatus);
            }
            _ => {}
        }
        let copy = CopyId(r.array("id of a copy")?);
        let path = |r: &mut Reader<'_>, field| r.path(limits.path_bytes_max, field);
        Ok(match number {
            operation::DELEGATE => Self::Delegate(Box::new(Delegation {
                copy,
                writes: options & WRITE != 0,
                holder: r.array("key")?,
                bytes_max: r.u64("bytes")?,
                life_s: r.u32("life of a capability")?,
                path: path(r, "path")?,
            })),
            operation::START_COPY => Self::Start(Box::new(CopyOrder {
                copy,
                overwrite: options & OVERWRITE != 0,
                sends: options & SEND != 0,
                detached: options & DETACHED != 0,
                resume: Resume::decode(r)?,
                digest: r.digest_kind()?,
                channels: r.u16("number of channels")?,
                rate_bytes_per_s_max: r.u64("rate")?,
                key: r.array("key")?,
                capability: r.text(CAPABILITY_BYTES_MAX, "capability")?,
                addresses: decode_addresses(r)?,
                here: path(r, "path")?,
                there: path(r, "path")?,
                name: path(r, "name")?,
            })),
            operation::COPY_STATUS => Self::Status(copy),
            _ => Self::Cancel(copy),
        })
    }
}

impl CopyStatus {
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        check_path(&self.target, limits.path_bytes_max, "path")?;
        let fails = self.state.is_failure();
        match self.fault.is_some() == fails && (fails || !self.is_fault_there) {
            true => Ok(()),
            false => Err(DecodeError::Invalid("state of a copy")),
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.state.number());
        w.u8(flag(self.bytes_total.is_some(), TOTAL)
            | flag(self.mtime_ns.is_some(), TIME)
            | flag(self.is_fault_there, THERE));
        w.u64(self.bytes);
        w.u64(self.bytes_total.unwrap_or(0));
        w.u64(self.resumed_bytes);
        w.u16(self.channels);
        w.u64(self.elapsed_ms);
        w.i64(self.mtime_ns.unwrap_or(0));
        w.digest(&self.digest);
        w.path(&self.target);
        if let Some(fault) = &self.fault {
            w.fault(fault);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        use crate::wire::present;
        let state = CopyState::decode(r)?;
        let options = r.u8("options of an answer")?;
        if options & !(TOTAL | TIME | THERE) != 0 {
            return Err(DecodeError::Invalid("options of an answer"));
        }
        Ok(Self {
            state,
            bytes: r.u64("bytes")?,
            bytes_total: present(options, TOTAL, r.u64("length")?, "length")?,
            resumed_bytes: r.u64("bytes")?,
            channels: r.u16("number of channels")?,
            elapsed_ms: r.u64("time")?,
            mtime_ns: present(options, TIME, r.i64("time")?, "time")?,
            digest: r.digest()?,
            target: r.path(limits.path_bytes_max, "path")?,
            fault: match state.is_failure() {
                true => Some(r.fault()?),
                false => None,
            },
            is_fault_there: options & THERE != 0,
        })
    }
}
