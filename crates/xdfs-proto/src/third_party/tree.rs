//! Trees that two acceptors copy or synchronise between themselves.
//!
//! An [order](TreeOrder) is carried out by the acceptor that gets it as any initiator would between
//! two acceptors, of which it is one itself. The initiator that wants the tree asks for the
//! [state](TreeStatus), and gets the [news](TreeNews) since it has asked before.

use super::common::{CopyId, CopyState, check_life, check_way, decode_addresses, encode_addresses};
use super::operation;
use crate::digest::DigestValue;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::wire::{DecodeError, FAULT_BYTES_MAX, Reader, Writer, check_most, check_path, flag};

/// Longest options of an order in bytes.
pub const TREE_OPTIONS_BYTES_MAX: usize = 32 << 10;
/// Most bytes of news in one answer: any single one is smaller.
pub const NEWS_BYTES: usize = 24 << 10;
/// Most names given as examples of those about to be removed.
pub const EXAMPLES_MAX: usize = 5;

/// Size of a status without its fault and its news.
const STATUS_BYTES: usize = 1 + 1 + 24 * 8 + 2 + 8 + 8 + 2;

/// Delegate: the holder changes the tree.
const WRITE: u8 = 1 << 0;
/// Start: the trees are made equal.
const SYNC: u8 = 1 << 0;
/// Start: the tree is sent instead of fetched.
const SEND: u8 = 1 << 1;
/// Start: it outlives the session.
const DETACHED: u8 = 1 << 2;
/// Start: the directory that the tree goes to was there before, and keeps its metadata.
const KEEPS_ROOT: u8 = 1 << 3;
/// Start: an earlier attempt may have left entries of the tree.
const AGAIN: u8 = 1 << 4;
/// Status call: there is consent to the removal that was asked about.
const CONSENT: u8 = 1 << 0;
/// Status call: there is none.
const REFUSAL: u8 = 1 << 1;
/// Status: the source was counted to its end.
const COUNTED: u8 = 1 << 0;
/// Status: more news follow at once.
const MORE: u8 = 1 << 1;
/// Status, news: the fault is one of the other acceptor.
const THERE: u8 = 1 << 2;

/// The limits of a capability for a tree: with it, the holder of one key reads or changes what is
/// beneath one path, in one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeDelegation {
    /// The copy that it is for.
    pub copy: CopyId,
    /// The holder changes the tree; otherwise it reads it.
    pub writes: bool,
    /// SHA-256 of the SubjectPublicKeyInfo of the holder: the other acceptor's key.
    pub holder: [u8; 32],
    /// Its life in seconds, at least 1 and at most [`LIFE_S_MAX`](super::LIFE_S_MAX).
    pub life_s: u32,
    /// The root of the tree at the acceptor that issues it.
    pub path: Vec<u8>,
}

/// A tree to be copied or synchronised by an acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeOrder {
    /// Its identifier.
    pub copy: CopyId,
    /// The trees are made equal; otherwise one is copied.
    pub synchronises: bool,
    /// The tree is sent from here; otherwise it is fetched from there.
    pub sends: bool,
    /// It outlives the session that has started it.
    pub detached: bool,
    /// The directory that the tree goes to was there before, and keeps its metadata.
    pub keeps_root: bool,
    /// An earlier attempt may have left entries of the tree.
    pub again: bool,
    /// Number of channels; 0 lets the acceptor choose.
    pub channels: u16,
    /// Fingerprint of the other acceptor's key, as in [`TreeDelegation::holder`].
    pub key: [u8; 32],
    /// The capability of the other acceptor.
    pub capability: String,
    /// Addresses of the other acceptor as `HOST:PORT`, as in
    /// [`CopyOrder`](super::CopyOrder::addresses).
    pub addresses: Vec<String>,
    /// The root of the tree at this acceptor.
    pub here: Vec<u8>,
    /// The root of the tree at the other acceptor.
    pub there: Vec<u8>,
    /// The options of the copy, as JSON, at most [`TREE_OPTIONS_BYTES_MAX`] bytes.
    pub options: String,
}

/// A question for the state of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeQuery {
    /// The copy.
    pub copy: CopyId,
    /// The number of the first of the [news](TreeNews) that are wanted: all before it were taken.
    pub from: u64,
    /// The answer to a [question](TreeNews::Question); `None` if there was none.
    pub consent: Option<bool>,
}

/// Counts of entries of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeTotals {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and named pipes.
    pub others: u64,
    /// Bytes of content of the files.
    pub bytes: u64,
}

/// All counts of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeFigures {
    /// Moved entries.
    pub moved: TreeTotals,
    /// Entries that were at the target already.
    pub resumed: TreeTotals,
    /// Entries of the source that were counted so far.
    pub counted: TreeTotals,
    /// Moved bytes that the target had.
    pub matched_bytes: u64,
    /// Failed entries.
    pub failed: u64,
    /// Files without their set-user-id and set-group-id bits.
    pub unkept: u64,
    /// Entries without their owner.
    pub owners_unkept: u64,
    /// Entries whose time couldn't be carried.
    pub times_cut: u64,
    /// Entries in flight.
    pub in_flight: u64,
    /// Bytes of large files in flight that have arrived.
    pub in_flight_bytes: u64,
    /// Replaced entries of a synchronisation.
    pub replaced: u64,
    /// Entries whose metadata was set.
    pub set: u64,
    /// Renamed files.
    pub renamed: u64,
    /// Removed names.
    pub deleted: u64,
    /// Names that stayed.
    pub kept: u64,
}

/// The action on an entry of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeStep {
    /// It is created.
    Copy,
    /// It is removed.
    Delete,
    /// It is renamed.
    Rename,
    /// Its content or kind is replaced.
    Replace,
    /// Its metadata is set.
    Set,
}

/// A removal that needs the consent of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalQuestion {
    /// The target has a directory with the name of the source.
    NamedLikeSource(Vec<u8>),
    /// None of so many entries directly in the target is in the source.
    NothingInCommon(u64),
    /// So many names would be removed from the root of what is served.
    Root(u64),
    /// So many names would be removed, of so many at the target.
    Share(u64, u64),
}

/// Something that has happened to a tree. Paths are relative to its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeNews {
    /// A file was moved.
    File {
        /// The file.
        path: Vec<u8>,
        /// Bytes of its content.
        bytes: u64,
        /// The digest of its content, if there is one.
        digest: DigestValue,
    },
    /// An entry could not be moved.
    Failed {
        /// The entry.
        path: Vec<u8>,
        /// Why.
        fault: Fault,
        /// The fault is one of the other acceptor.
        is_there: bool,
    },
    /// A problem that doesn't stop the tree.
    Warning {
        /// The problem.
        fault: Fault,
        /// The fault is one of the other acceptor.
        is_there: bool,
    },
    /// A step of a synchronisation.
    Step {
        /// The kind of step.
        step: TreeStep,
        /// The entry.
        path: Vec<u8>,
        /// Its old path, if it is renamed; otherwise empty.
        from: Vec<u8>,
    },
    /// Names are about to be removed.
    Removal {
        /// Number of the names.
        names: u64,
        /// Number of names at the target, with these.
        names_at_target: u64,
        /// Some of them, at most [`EXAMPLES_MAX`].
        examples: Vec<Vec<u8>>,
    },
    /// The acceptor waits for an answer before it removes anything.
    Question(RemovalQuestion),
}

/// The state of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeStatus {
    /// The progress of the copy.
    pub state: CopyState,
    /// All counts.
    pub figures: TreeFigures,
    /// The source was counted to its end.
    pub is_counted: bool,
    /// Channels between the acceptors.
    pub channels: u16,
    /// Milliseconds since its start, up to its end.
    pub elapsed_ms: u64,
    /// The cause of the failure: only, and always, if it failed.
    pub fault: Option<Fault>,
    /// The fault is one of the other acceptor; `false` without a fault.
    pub is_fault_there: bool,
    /// The number of the first of the news.
    pub first: u64,
    /// The news from that number on.
    pub news: Vec<TreeNews>,
    /// More follow at once.
    pub more: bool,
}

impl TreeTotals {
    fn numbers(&mut self) -> [&mut u64; 4] {
        [
            &mut self.files,
            &mut self.directories,
            &mut self.others,
            &mut self.bytes,
        ]
    }
}

impl TreeFigures {
    /// All of them, in the order on the wire.
    fn numbers(&mut self) -> impl Iterator<Item = &mut u64> {
        let totals = [&mut self.moved, &mut self.resumed, &mut self.counted];
        let rest = [
            &mut self.matched_bytes,
            &mut self.failed,
            &mut self.unkept,
            &mut self.owners_unkept,
            &mut self.times_cut,
            &mut self.in_flight,
            &mut self.in_flight_bytes,
            &mut self.replaced,
            &mut self.set,
            &mut self.renamed,
            &mut self.deleted,
            &mut self.kept,
        ];
        totals.into_iter().flat_map(TreeTotals::numbers).chain(rest)
    }
}

impl TreeDelegation {
    pub(super) fn check(&self) -> Result<(), DecodeError> {
        check_life(self.life_s)
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(operation::DELEGATE_TREE);
        w.u8(flag(self.writes, WRITE));
        w.raw(&self.copy.0);
        w.raw(&self.holder);
        w.u32(self.life_s);
        w.path(&self.path);
    }

    pub(super) fn decode(
        options: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        Ok(Self {
            copy: CopyId(r.array("id of a copy")?),
            writes: options & WRITE != 0,
            holder: r.array("key")?,
            life_s: r.u32("life of a capability")?,
            path: r.path(limits.path_bytes_max, "path")?,
        })
    }
}

impl TreeOrder {
    pub(super) fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        check_path(&self.there, limits.path_bytes_max, "path")?;
        check_most(
            "options of a tree",
            self.options.len(),
            TREE_OPTIONS_BYTES_MAX,
        )?;
        check_way(&self.capability, &self.addresses)
    }

    pub(super) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(operation::START_TREE);
        w.u8(flag(self.synchronises, SYNC)
            | flag(self.sends, SEND)
            | flag(self.detached, DETACHED)
            | flag(self.keeps_root, KEEPS_ROOT)
            | flag(self.again, AGAIN));
        w.raw(&self.copy.0);
        w.u16(self.channels);
        w.raw(&self.key);
        w.text(&self.capability, super::CAPABILITY_BYTES_MAX);
        encode_addresses(&self.addresses, w);
        w.path(&self.here);
        w.path(&self.there);
        w.bytes(self.options.as_bytes(), TREE_OPTIONS_BYTES_MAX);
    }

    pub(super) fn decode(
        options: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        const OPTIONS: &str = "options of a tree";
        Ok(Self {
            copy: CopyId(r.array("id of a copy")?),
            synchronises: options & SYNC != 0,
            sends: options & SEND != 0,
            detached: options & DETACHED != 0,
            keeps_root: options & KEEPS_ROOT != 0,
            again: options & AGAIN != 0,
            channels: r.u16("number of channels")?,
            key: r.array("key")?,
            capability: r.text(super::CAPABILITY_BYTES_MAX, "capability")?,
            addresses: decode_addresses(r)?,
            here: r.path(limits.path_bytes_max, "path")?,
            there: r.path(limits.path_bytes_max, "path")?,
            options: String::from_utf8(r.bytes(TREE_OPTIONS_BYTES_MAX, OPTIONS)?.to_vec())
                .map_err(|_| DecodeError::Invalid(OPTIONS))?,
        })
    }
}

impl TreeQuery {
    pub(super) fn encode(self, w: &mut Writer<'_>) {
        w.u8(operation::TREE_STATUS);
        w.u8(match self.consent {
            None => 0,
            Some(true) => CONSENT,
            Some(false) => REFUSAL,
        });
        w.raw(&self.copy.0);
        w.u64(self.from);
    }

    pub(super) fn decode(options: u8, r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            copy: CopyId(r.array("id of a copy")?),
            from: r.u64("number of news")?,
            consent: match options {
                0 => None,
                CONSENT => Some(true),
                REFUSAL => Some(false),
                _ => return Err(DecodeError::Invalid("options of a call")),
            },
        })
    }
}

/// The defined option bits of the operations of this module.
pub(super) fn options_defined(number: u8) -> Option<u8> {
    match number {
        operation::DELEGATE_TREE => Some(WRITE),
        operation::START_TREE => Some(SYNC | SEND | DETACHED | KEEPS_ROOT | AGAIN),
        operation::TREE_STATUS => Some(CONSENT | REFUSAL),
        _ => None,
    }
}

impl TreeStep {
    fn number(self) -> u8 {
        match self {
            Self::Copy => 0,
            Self::Delete => 1,
            Self::Rename => 2,
            Self::Replace => 3,
            Self::Set => 4,
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8("step")? {
            0 => Self::Copy,
            1 => Self::Delete,
            2 => Self::Rename,
            3 => Self::Replace,
            4 => Self::Set,
            _ => return Err(DecodeError::Invalid("step")),
        })
    }
}

impl RemovalQuestion {
    fn encode(&self, w: &mut Writer<'_>) {
        let (kind, names, at_target, name): (u8, u64, u64, &[u8]) = match self {
            Self::NamedLikeSource(name) => (0, 0, 0, name),
            Self::NothingInCommon(entries) => (1, *entries, 0, b""),
            Self::Root(names) => (2, *names, 0, b""),
            Self::Share(names, at_target) => (3, *names, *at_target, b""),
        };
        w.u8(kind);
        w.u64(names);
        w.u64(at_target);
        w.path(name);
    }

    fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        const FIELD: &str = "question";
        let kind = r.u8(FIELD)?;
        let (names, at_target) = (r.u64(FIELD)?, r.u64(FIELD)?);
        let name = r.path(limits.path_bytes_max, FIELD)?;
        Ok(match (kind, names, at_target, name.is_empty()) {
            (0, 0, 0, false) => Self::NamedLikeSource(name),
            (1, _, 0, true) => Self::NothingInCommon(names),
            (2, _, 0, true) => Self::Root(names),
            (3, _, _, true) => Self::Share(names, at_target),
            _ => return Err(DecodeError::Invalid(FIELD)),
        })
    }
}

impl TreeNews {
    /// Size in an answer, at most.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let fault = FAULT_BYTES_MAX as usize;
        1 + match self {
            Self::File { path, .. } => 2 + path.len() + 8 + 33,
            Self::Failed { path, .. } => 2 + path.len() + 1 + fault,
            Self::Warning { .. } => 1 + fault,
            Self::Step { path, from, .. } => 1 + 4 + path.len() + from.len(),
            Self::Removal { examples, .. } => {
                17 + examples.iter().map(|name| 2 + name.len()).sum::<usize>()
            }
            Self::Question(RemovalQuestion::NamedLikeSource(name)) => 19 + name.len(),
            Self::Question(_) => 19,
        }
    }

    fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        let check = |path: &[u8]| check_path(path, limits.path_bytes_max, "path");
        match self {
            Self::File { path, .. } | Self::Failed { path, .. } => check(path),
            Self::Step { path, from, .. } => check(path).and_then(|()| check(from)),
            Self::Removal { examples, .. } => {
                check_most("count of examples", examples.len(), EXAMPLES_MAX)?;
                examples.iter().try_for_each(|name| check(name))
            }
            Self::Question(RemovalQuestion::NamedLikeSource(name)) => match name.is_empty() {
                true => Err(DecodeError::Invalid("question")),
                false => check(name),
            },
            Self::Warning { .. } | Self::Question(_) => Ok(()),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::File {
                path,
                bytes,
                digest,
            } => {
                w.u8(0);
                w.path(path);
                w.u64(*bytes);
                w.digest(digest);
            }
            Self::Failed {
                path,
                fault,
                is_there,
            } => {
                w.u8(1);
                w.path(path);
                w.u8(flag(*is_there, THERE));
                w.fault(fault);
            }
            Self::Warning { fault, is_there } => {
                w.u8(2);
                w.u8(flag(*is_there, THERE));
                w.fault(fault);
            }
            Self::Step { step, path, from } => {
                w.u8(3);
                w.u8(step.number());
                w.path(path);
                w.path(from);
            }
            Self::Removal {
                names,
                names_at_target,
                examples,
            } => {
                w.u8(4);
                w.u64(*names);
                w.u64(*names_at_target);
                w.u8(u8::try_from(examples.len()).unwrap_or(u8::MAX));
                examples.iter().for_each(|name| w.path(name));
            }
            Self::Question(question) => {
                w.u8(5);
                question.encode(w);
            }
        }
    }

    fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let path = |r: &mut Reader<'_>| r.path(limits.path_bytes_max, "path");
        let is_there = |r: &mut Reader<'_>| match r.u8("options of news")? {
            0 => Ok(false),
            THERE => Ok(true),
            _ => Err(DecodeError::Invalid("options of news")),
        };
        Ok(match r.u8("news")? {
            0 => Self::File {
                path: path(r)?,
                bytes: r.u64("bytes")?,
                digest: r.digest()?,
            },
            1 => Self::Failed {
                path: path(r)?,
                is_there: is_there(r)?,
                fault: r.fault()?,
            },
            2 => Self::Warning {
                is_there: is_there(r)?,
                fault: r.fault()?,
            },
            3 => Self::Step {
                step: TreeStep::decode(r)?,
                path: path(r)?,
                from: path(r)?,
            },
            4 => Self::Removal {
                names: r.u64("count of names")?,
                names_at_target: r.u64("count of names")?,
                examples: {
                    let count = usize::from(r.u8("count of examples")?);
                    check_most("count of examples", count, EXAMPLES_MAX)?;
                    (0..count).map(|_| path(r)).collect::<Result<_, _>>()?
                },
            },
            5 => Self::Question(RemovalQuestion::decode(r, limits)?),
            _ => return Err(DecodeError::Invalid("news")),
        })
    }
}

impl TreeStatus {
    /// Size of the body of its answer, at most.
    pub(crate) fn bytes_max(&self) -> usize {
        let fault = self.fault.as_ref().map_or(0, |_| FAULT_BYTES_MAX as usize);
        STATUS_BYTES + fault + self.news.iter().map(TreeNews::bytes_max).sum::<usize>()
    }

    pub(crate) fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        let fails = self.state.is_failure();
        if self.fault.is_some() != fails || (!fails && self.is_fault_there) {
            return Err(DecodeError::Invalid("state of a copy"));
        }
        self.news.iter().try_for_each(|news| news.check(limits))
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.state.number());
        w.u8(flag(self.is_counted, COUNTED)
            | flag(self.more, MORE)
            | flag(self.is_fault_there, THERE));
        let mut figures = self.figures;
        figures.numbers().for_each(|number| w.u64(*number));
        w.u16(self.channels);
        w.u64(self.elapsed_ms);
        if let Some(fault) = &self.fault {
            w.fault(fault);
        }
        w.u64(self.first);
        w.u16(u16::try_from(self.news.len()).unwrap_or(u16::MAX));
        self.news.iter().for_each(|news| news.encode(w));
    }

    pub(crate) fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let state = CopyState::decode(r)?;
        let options = r.u8("options of an answer")?;
        if options & !(COUNTED | MORE | THERE) != 0 {
            return Err(DecodeError::Invalid("options of an answer"));
        }
        let mut figures = TreeFigures::default();
        for number in figures.numbers() {
            *number = r.u64("count")?;
        }
        let (channels, elapsed_ms) = (r.u16("number of channels")?, r.u64("time")?);
        let fault = match state.is_failure() {
            true => Some(r.fault()?),
            false => None,
        };
        let first = r.u64("number of news")?;
        let count = r.u16("count of news")?;
        let mut news = Vec::with_capacity(usize::from(count).min(r.remaining() / 10));
        for _ in 0..count {
            news.push(TreeNews::decode(r, limits)?);
        }
        Ok(Self {
            state,
            figures,
            is_counted: options & COUNTED != 0,
            channels,
            elapsed_ms,
            fault,
            is_fault_there: options & THERE != 0,
            first,
            news,
            more: options & MORE != 0,
        })
    }
}
