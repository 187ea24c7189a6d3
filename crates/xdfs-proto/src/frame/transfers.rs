//! Frames of files: offers, requests, progress, and the end.

use super::body::Body;
use crate::digest::{DigestKind, DigestValue, Fragment, SUBTREE_BYTES_MIN};
use crate::fault::Fault;
use crate::id::{FileId, SourceTag};
use crate::limits::Limits;
use crate::pack::{Failures, PACK_BYTES_MAX, PackRequest};
use crate::range::ByteRange;
use crate::wire::{DecodeError, FAULT_TEXT_BYTES_MAX, Reader, Writer, check_most, flag, present};

/// Maximum length of the path in an ACCEPT, which is only displayed, in bytes.
const ACCEPT_PATH_BYTES_MAX: usize = 1024;
/// Maximum share, in thousandths.
const PERMILLE_MAX: u16 = 1000;

/// Whether a transfer resumes from what an earlier attempt left at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resume {
    /// Start over.
    Never,
    /// Resume from the journal. Its claims are verified where the receiver can't rely on its
    /// storage having kept them, for instance after a restart of its system.
    #[default]
    Trust,
    /// Resume from the journal, after rereading and verifying all its claims.
    Verify,
}

impl Resume {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Never => 0,
            Self::Trust => 1,
            Self::Verify => 2,
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8("resume")? {
            0 => Ok(Self::Never),
            1 => Ok(Self::Trust),
            2 => Ok(Self::Verify),
            _ => Err(DecodeError::Invalid("resume")),
        }
    }
}

/// A file offered by the sender: the body of XFTSMU in an upload, and of OFFER in a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The number of the file from here on.
    pub file: FileId,
    /// In an upload the target path, in a download empty.
    pub path: Vec<u8>,
    /// The last component of the source's name, used if the target is a directory; may be empty.
    pub name: Vec<u8>,
    /// Number of bytes to be sent; `None` if unknown before the end.
    pub length: Option<u64>,
    /// The version of the source.
    pub tag: SourceTag,
    /// Permission bits of the source; `None` if it has none.
    pub mode: Option<u32>,
    /// Modification time in nanoseconds since 1970; `None` if it has none.
    pub mtime_ns: Option<i64>,
    /// The whole-file digest.
    pub digest: DigestKind,
    /// Replace an existing target. Only meaningful in an upload.
    pub overwrite: bool,
    /// Whether to resume from what an earlier attempt left at the receiver.
    pub resume: Resume,
    /// Check the request and answer, but write nothing.
    pub dry_run: bool,
    /// The content is a [pack](crate::pack) of entries to be written beneath `path`: of 1 to
    /// [`PACK_BYTES_MAX`](crate::pack::PACK_BYTES_MAX) bytes, and without name, tag, mode, time,
    /// journal or dry run. `overwrite` applies to each of its entries.
    pub pack: bool,
    /// The source occupies less storage than its length: its zeros need none at the target either.
    /// Not for packs, whose entries have their own flags.
    pub sparse: bool,
    /// For a pack in an upload: its files may get their names before they are durable.
    pub relaxed: bool,
    /// For a pack in an upload, the last one of a tree: it is carried out once these files, at most
    /// [`Offer::AWAITED_MAX`], have been published without failures, and unless it is relaxed
    /// everything beneath `path` is durable when it is published. Only if the acceptor takes it
    /// ([`Initiator::takes_last_packs`](crate::handshake::Initiator::takes_last_packs)).
    pub last: Option<Vec<FileId>>,
}

impl Offer {
    /// Most files that the last pack of a tree can wait for.
    pub const AWAITED_MAX: usize = 256;
    /// Replace an existing target.
    const OVERWRITE: u8 = 1 << 0;
    /// Write nothing.
    const DRY_RUN: u8 = 1 << 2;
    /// The length is known.
    const LENGTH: u8 = 1 << 3;
    /// The source has permission bits.
    const MODE: u8 = 1 << 4;
    /// The source has a modification time.
    const MTIME: u8 = 1 << 5;
    /// The content is a pack.
    const PACK: u8 = 1 << 6;
    /// The source is sparse.
    const SPARSE: u8 = 1 << 7;
    /// For a pack: its files may get their names before they are durable.
    const RELAXED: u8 = 1 << 7;
    /// For a pack: it is the last one.
    const LAST: u8 = 1 << 2;
}

impl Body for Offer {
    const FLAGS_DEFINED: u8 = Self::OVERWRITE
        | Self::DRY_RUN
        | Self::LENGTH
        | Self::MODE
        | Self::MTIME
        | Self::PACK
        | Self::SPARSE;

    fn flags(&self) -> u8 {
        flag(self.overwrite, Self::OVERWRITE)
            | flag(self.dry_run && !self.pack, Self::DRY_RUN)
            | flag(self.last.is_some() && self.pack, Self::LAST)
            | flag(self.length.is_some(), Self::LENGTH)
            | flag(self.mode.is_some(), Self::MODE)
            | flag(self.mtime_ns.is_some(), Self::MTIME)
            | flag(self.pack, Self::PACK)
            | flag(self.sparse && !self.pack, Self::SPARSE)
            | flag(self.relaxed && self.pack, Self::RELAXED)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
        w.u64(self.length.unwrap_or(0));
        w.raw(&self.tag.0);
        w.u32(self.mode.unwrap_or(0));
        w.i64(self.mtime_ns.unwrap_or(0));
        w.digest_kind(self.digest);
        w.u8(self.resume.number());
        w.path(&self.path);
        w.path(&self.name);
        if let Some(awaited) = self.last.as_ref().filter(|_| self.pack) {
            let awaited = &awaited[..awaited.len().min(Self::AWAITED_MAX)];
            w.u16(u16::try_from(awaited.len()).unwrap_or(u16::MAX));
            awaited.iter().for_each(|file| w.file(*file));
        }
    }

    fn decode(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let is_last = flags & (Self::LAST | Self::PACK) == Self::LAST | Self::PACK;
        let offer = Self {
            file: r.file()?,
            length: present(flags, Self::LENGTH, r.u64("length")?, "length")?,
            tag: SourceTag(r.array("tag of the source")?),
            mode: present(flags, Self::MODE, r.u32("mode")?, "mode")?,
            mtime_ns: present(flags, Self::MTIME, r.i64("time")?, "time")?,
            digest: r.digest_kind()?,
            resume: Resume::decode(r)?,
            path: r.path(limits.path_bytes_max, "path")?,
            name: r.path(limits.path_bytes_max, "name")?,
            overwrite: flags & Self::OVERWRITE != 0,
            dry_run: flags & (Self::DRY_RUN | Self::PACK) == Self::DRY_RUN,
            pack: flags & Self::PACK != 0,
            sparse: flags & (Self::SPARSE | Self::PACK) == Self::SPARSE,
            relaxed: flags & (Self::RELAXED | Self::PACK) == Self::RELAXED | Self::PACK,
            last: is_last.then(|| awaited(r)).transpose()?,
        };
        let sizes = 1..=PACK_BYTES_MAX as u64;
        let fits = offer.length.is_some_and(|length| sizes.contains(&length));
        let plain = offer.tag == SourceTag::default()
            && offer.resume == Resume::Never
            && offer.mode.is_none()
            && offer.mtime_ns.is_none()
            && offer.name.is_empty();
        if offer.pack && !(fits && plain) {
            return Err(DecodeError::Invalid("offer of a pack"));
        }
        Ok(offer)
    }
}

/// The files that a last pack waits for.
fn awaited(r: &mut Reader<'_>) -> Result<Vec<FileId>, DecodeError> {
    let count = usize::from(r.u16("count of awaited files")?);
    if count > Offer::AWAITED_MAX {
        return Err(DecodeError::Invalid("count of awaited files"));
    }
    (0..count).map(|_| r.file()).collect()
}

/// XFTSM: requests a file (download).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the file from here on.
    pub file: FileId,
    /// Path of the source.
    pub path: Vec<u8>,
    /// First byte requested.
    pub offset: u64,
    /// Number of bytes requested; `None` for all up to the end.
    pub length: Option<u64>,
    /// The whole-file digest.
    pub digest: DigestKind,
    /// Requests a [pack](crate::pack) of names beneath `path` instead of the file there; without
    /// offset and length.
    pub pack: Option<PackRequest>,
}

impl Request {
    /// The length is given.
    const LENGTH: u8 = 1 << 0;
    /// A pack is requested.
    const PACK: u8 = 1 << 1;
}

impl Body for Request {
    const FLAGS_DEFINED: u8 = Self::LENGTH | Self::PACK;

    fn flags(&self) -> u8 {
        flag(self.length.is_some(), Self::LENGTH) | flag(self.pack.is_some(), Self::PACK)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
        w.u64(self.offset);
        w.u64(self.length.unwrap_or(0));
        w.digest_kind(self.digest);
        w.path(&self.path);
        if let Some(request) = &self.pack {
            request.encode(w);
        }
    }

    fn decode(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let mut request = Self {
            file: r.file()?,
            offset: r.u64("offset")?,
            length: present(flags, Self::LENGTH, r.u64("length")?, "length")?,
            digest: r.digest_kind()?,
            path: r.path(limits.path_bytes_max, "path")?,
            pack: None,
        };
        if flags & Self::PACK != 0 {
            if request.offset != 0 || request.length.is_some() {
                return Err(DecodeError::Invalid("range of a pack"));
            }
            request.pack = Some(PackRequest::decode(r, limits)?);
        }
        Ok(request)
    }
}

/// ACCEPT: the receiver is ready for the blocks of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The file.
    pub file: FileId,
    /// The path of the target, for messages; may be empty.
    pub path: Vec<u8>,
    /// The grid on which blocks are cut, in bytes: a power of two, at most the session's block
    /// size.
    pub block_size: u32,
    /// Ranges already durable, which must not be sent, with their digest states.
    pub durable: Vec<Fragment>,
}

impl Accept {
    /// Maximum size of the body without the durable ranges: file, block size, path, digest kind and
    /// count.
    const FIXED_BYTES_MAX: usize = 4 + 4 + 2 + ACCEPT_PATH_BYTES_MAX + 1 + 4;

    /// Maximum number of durable ranges with this digest in an ACCEPT: bounded by
    /// [`Limits::resume_ranges_max`], and by the size limit [`Limits::accept_bytes_max`].
    #[must_use]
    pub fn durable_max(kind: DigestKind, limits: &Limits) -> usize {
        // A BLAKE3 fragment at offset 0 has 32 bytes more; there is at most one.
        let (each, once) = match kind {
            DigestKind::None => (16, 0),
            DigestKind::Crc64Nvme => (24, 0),
            DigestKind::Blake3 => (48, 32),
        };
        let room = (limits.accept_bytes_max as usize)
            .saturating_sub(Self::FIXED_BYTES_MAX)
            .saturating_sub(once);
        limits.resume_ranges_max.min(room / each)
    }
}

impl Body for Accept {
    fn encode(&self, w: &mut Writer<'_>) {
        let kind = self
            .durable
            .first()
            .map_or(DigestKind::None, |f| f.state.kind());
        let durable = || self.durable.iter().filter(|f| f.state.kind() == kind);
        w.file(self.file);
        w.u32(self.block_size);
        w.bytes(&self.path, ACCEPT_PATH_BYTES_MAX);
        w.digest_kind(kind);
        w.u32(u32::try_from(durable().count()).unwrap_or(u32::MAX));
        for fragment in durable() {
            w.range(&fragment.range);
            w.digest_state(fragment.range.start, &fragment.state);
        }
    }

    fn decode(_: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let file = r.file()?;
        let block_size = r.block_size()?;
        let path = r.path(ACCEPT_PATH_BYTES_MAX, "path")?;
        let kind = r.digest_kind()?;
        let count = r.u32("count of durable ranges")? as usize;
        check_most("count of durable ranges", count, limits.resume_ranges_max)?;
        if count == 0 && kind != DigestKind::None {
            return Err(DecodeError::Invalid("digest kind"));
        }
        // The peer chooses the count: reserve no more than the available bytes can hold.
        let mut durable = Vec::with_capacity(count.min(r.remaining() / 16));
        let mut end = 0;
        for _ in 0..count {
            let range = r.range()?;
            if range.start < end {
                return Err(DecodeError::Invalid("order of durable ranges"));
            }
            end = range.end;
            if kind == DigestKind::Blake3 && !range.start.is_multiple_of(SUBTREE_BYTES_MIN) {
                return Err(DecodeError::Invalid("range of a subtree"));
            }
            let state = r.digest_state(kind, range.start)?;
            durable.push(Fragment { range, state });
        }
        Ok(Self {
            file,
            path,
            block_size,
            durable,
        })
    }
}

/// HOLE: a region of zeros that isn't sent as payload. Counts as a data frame for ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The file.
    pub file: FileId,
    /// The region.
    pub range: ByteRange,
}

impl Body for Hole {
    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
        w.range(&self.range);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            file: r.file()?,
            range: r.range()?,
        })
    }
}

/// ACK: total number of data frames that the receiver has read on this channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// BLOCK and HOLE frames since the channel opened.
    pub data_frames: u64,
}

impl Body for Ack {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.data_frames);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            data_frames: r.u64("count of data frames")?,
        })
    }
}

/// REPEAT: the receiver requests bytes again: their check failed, or they could not be made
/// durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The file.
    pub file: FileId,
    /// The range.
    pub range: ByteRange,
}

impl Body for Repeat {
    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
        w.range(&self.range);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            file: r.file()?,
            range: r.range()?,
        })
    }
}

/// DURABLE: the number of bytes of a file that are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durable {
    /// The file.
    pub file: FileId,
    /// Number of bytes, including those of earlier sessions.
    pub bytes: u64,
}

impl Body for Durable {
    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
        w.u64(self.bytes);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            file: r.file()?,
            bytes: r.u64("durable bytes")?,
        })
    }
}

/// How a side spent its time on a file, in thousandths of that time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeAccount {
    /// It waited for its store; at most 1000.
    pub store_permille: u16,
    /// What else it did; `None` unless both sides report it
    /// ([`Initiator::reports_time`](crate::handshake::Initiator::reports_time)).
    pub details: Option<TimeDetails>,
}

impl TimeAccount {
    /// The flag of the frames that carry the details.
    const DETAILS: u8 = 1 << 1;

    /// The account of a side that reports the waiting for its store alone.
    #[must_use]
    pub const fn of_store(permille: u16) -> Self {
        Self {
            store_permille: permille,
            details: None,
        }
    }

    fn flags(self) -> u8 {
        flag(self.details.is_some(), Self::DETAILS)
    }
}

/// The details of a [`TimeAccount`], as the side claims them: a figure may be above 1000, or
/// contradict another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeDetails {
    /// The time of which all the figures are shares, in microseconds.
    pub time_us: u64,
    /// The part of the waiting for the store in which data was made durable and published.
    pub sync_permille: u16,
    /// The processor worked for the session.
    pub cpu_permille: u16,
    /// A rate limit held payload back.
    pub rate_permille: u16,
    /// It waited while payload was on its way.
    pub payload_permille: u16,
}

impl TimeDetails {
    fn encode(self, w: &mut Writer<'_>) {
        w.u64(self.time_us);
        w.u16(self.sync_permille);
        w.u16(self.cpu_permille);
        w.u16(self.rate_permille);
        w.u16(self.payload_permille);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            time_us: r.u64("time of the account")?,
            sync_permille: r.u16("share of synchronising")?,
            cpu_permille: r.u16("share of the processor")?,
            rate_permille: r.u16("share of the rate limit")?,
            payload_permille: r.u16("share of payload on its way")?,
        })
    }
}

/// EOFR: all blocks of a file have been handed to channels; the channels stay for the next file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eofr {
    /// The file.
    pub file: FileId,
    /// Its final length in bytes.
    pub length: u64,
    /// The sender's digest of the whole.
    pub digest: DigestValue,
    /// How the sender spent its time.
    pub time: TimeAccount,
}

impl Body for Eofr {
    const FLAGS_DEFINED: u8 = TimeAccount::DETAILS;

    fn flags(&self) -> u8 {
        self.time.flags()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
        w.u64(self.length);
        w.u16(self.time.store_permille.min(PERMILLE_MAX));
        w.digest(&self.digest);
        if let Some(details) = self.time.details {
            details.encode(w);
        }
    }

    fn decode(flags: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        let (file, length) = (r.file()?, r.u64("length")?);
        let store_permille @ 0..=PERMILLE_MAX = r.u16("share of waiting")? else {
            return Err(DecodeError::Invalid("share of waiting"));
        };
        let digest = r.digest()?;
        let details = match flags & TimeAccount::DETAILS {
            0 => None,
            _ => Some(TimeDetails::decode(r)?),
        };
        Ok(Self {
            file,
            length,
            digest,
            time: TimeAccount {
                store_permille,
                details,
            },
        })
    }
}

/// PUBLISHED: the file is complete, verified, durable and has its final name. Entries of a pack
/// that aren't among the failures have their names, and are durable after a later Sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The file.
    pub file: FileId,
    /// Its length.
    pub length: u64,
    /// The receiver's digest of the whole.
    pub digest: DigestValue,
    /// How the receiver spent its time.
    pub time: TimeAccount,
    /// For a pack: the entries that failed.
    pub failures: Failures,
}

impl Published {
    /// Some entries of the pack failed.
    const FAILURES: u8 = 1 << 0;
}

impl Body for Published {
    const FLAGS_DEFINED: u8 = Self::FAILURES | TimeAccount::DETAILS;

    fn flags(&self) -> u8 {
        flag(!self.failures.is_empty(), Self::FAILURES) | self.time.flags()
    }

    fn encode(&self, w: &mut Writer<'_>) {
        let end = Eofr {
            file: self.file,
            length: self.length,
            digest: self.digest,
            time: self.time,
        };
        end.encode(w);
        if !self.failures.is_empty() {
            self.failures.encode(w);
        }
    }

    fn decode(flags: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        // It begins like EOFR.
        let end = Eofr::decode(flags, r, limits)?;
        let failures = if flags & Self::FAILURES != 0 {
            Failures::decode(r)?
        } else {
            Failures::default()
        };
        Ok(Self {
            file: end.file,
            length: end.length,
            digest: end.digest,
            time: end.time,
            failures,
        })
    }
}

/// CANCEL: ends one file; durable ranges stay for a later resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The file.
    pub file: FileId,
}

impl Body for Cancel {
    fn encode(&self, w: &mut Writer<'_>) {
        w.file(self.file);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        Ok(Self { file: r.file()? })
    }
}

/// The scope of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The channel that carries it.
    Channel,
    /// One file; the session goes on.
    File(FileId),
    /// The session.
    Session,
}

/// The exception header: something failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Its scope.
    pub scope: Scope,
    /// The fault. The side is not on the wire: the decoder sets [`crate::Side::Remote`].
    pub fault: Fault,
}

impl Body for Exception {
    fn encode(&self, w: &mut Writer<'_>) {
        let (number, file) = match self.scope {
            Scope::Channel => (0, FileId(0)),
            Scope::File(file) => (1, file),
            Scope::Session => (2, FileId(0)),
        };
        w.u8(number);
        w.file(file);
        w.fault(&self.fault);
    }

    fn decode(_: u8, r: &mut Reader<'_>, _: &Limits) -> Result<Self, DecodeError> {
        let scope = match (r.u8("scope")?, r.file()?) {
            (0, FileId(0)) => Scope::Channel,
            (1, file) => Scope::File(file),
            (2, FileId(0)) => Scope::Session,
            _ => return Err(DecodeError::Invalid("scope")),
        };
        Ok(Self {
            scope,
            fault: r.fault()?,
        })
    }
}

// The texts of an exception fit into the smallest control frame limit allowed.
const _: () = assert!(5 + crate::wire::FAULT_BYTES_MAX <= 8 << 10);
const _: () = assert!(ACCEPT_PATH_BYTES_MAX <= FAULT_TEXT_BYTES_MAX);
