//! Packs: many small files and other entries of a tree as the bytes of one transfer, so that none
//! of them costs a round trip or an offer of its own.
//!
//! ```text
//!  entry: kind u8, flags u8, path (u16, bytes), fields that the flags name, content of the kind
//! ```
//!
//! A pack is a sequence of entries without a header; paths are relative to the directory of the
//! transfer. It is small enough to be held in memory, arrives as a whole, is verified as a whole,
//! and only then are its entries written, in order. For its offer and answer see
//! [`Offer::pack`](crate::frame::Offer::pack), [`PackRequest`] and [`Failures`].

use std::borrow::Cow;

use crate::fault::{Code, Fault};
use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer, flag};

/// Maximum size of a pack in bytes.
pub const PACK_BYTES_MAX: usize = 4 << 20;
/// Maximum size of the list of names in a [`PackRequest`] in bytes, including two bytes per name.
pub const PACK_REQUEST_BYTES_MAX: usize = 48 << 10;
/// Maximum number of failure runs in an answer; further failures become part of the last.
pub const FAILURES_MAX: usize = 12;
/// Maximum length of a user's or group's name in bytes.
pub const OWNER_NAME_BYTES_MAX: usize = 255;
/// Maximum number of extended attributes of an entry, and maximum length of a name and of a value
/// in bytes: the limits of Linux, except for the number.
pub const XATTRS_MAX: usize = 256;
const XATTR_NAME_BYTES_MAX: usize = 255;
const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum permission bits.
const MODE_MAX: u16 = 0o7777;

/// Content kinds.
mod kind {
    pub(super) const FILE: u8 = 0;
    pub(super) const DIRECTORY: u8 = 1;
    pub(super) const SYMLINK: u8 = 2;
    pub(super) const HARD_LINK: u8 = 3;
    pub(super) const FIFO: u8 = 4;
    pub(super) const ATTRIBUTES: u8 = 5;
    pub(super) const LARGE: u8 = 6;
    pub(super) const FAILED: u8 = 7;
}

const MODE: u8 = 1 << 0;
const MTIME: u8 = 1 << 1;
const ATIME: u8 = 1 << 2;
const OWNER: u8 = 1 << 3;
const OWNER_NAMES: u8 = 1 << 4;
const XATTRS: u8 = 1 << 5;
const SPARSE: u8 = 1 << 6;
const FLAGS: u8 = MODE | MTIME | ATIME | OWNER | OWNER_NAMES | XATTRS | SPARSE;

/// The owner and group of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Id of the owner.
    pub uid: u32,
    /// Id of the group.
    pub gid: u32,
    /// The names of both, empty where unknown. A receiver prefers its own ids for these names;
    /// `None` if the ids are meant.
    pub names: Option<(&'a [u8], &'a [u8])>,
}

/// An extended attribute: its name and its value.
pub type Xattr<'a> = (&'a [u8], &'a [u8]);

/// Metadata of an entry. What is absent is left to the receiver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Permission bits, at most 0o7777.
    pub mode: Option<u16>,
    /// Modification time of the content, in nanoseconds since 1970-01-01 UTC.
    pub mtime_ns: Option<i64>,
    /// Time of the last access, likewise.
    pub atime_ns: Option<i64>,
    /// Owner and group.
    pub owner: Option<Owner<'a>>,
    /// Extended attributes, including access control lists; at most [`XATTRS_MAX`].
    pub xattrs: Vec<Xattr<'a>>,
    /// The file occupies less storage than its length: its zeros need none in a copy either. For
    /// files only; not encoded for other entries.
    pub sparse: bool,
}

/// The kind and content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content<'a> {
    /// A regular file with its content.
    File(&'a [u8]),
    /// A directory, created if it doesn't exist.
    Directory,
    /// A symbolic link with its target.
    Symlink(&'a [u8]),
    /// A hard link to a file of the tree at this path.
    HardLink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// No content: only the metadata of an existing entry is set.
    Attributes,
    /// In answer to a request: a file of this size, too large for a pack.
    Large(u64),
    /// In answer to a request: the name can't be read.
    Failed(Fault),
}

/// One entry of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its path beneath the directory of the transfer: components that are neither empty nor `.` or
    /// `..`, separated by `/`. Empty for that directory itself, which isn't created.
    pub path: &'a [u8],
    /// Its metadata.
    pub metadata: Metadata<'a>,
    /// Its kind and content.
    pub content: Content<'a>,
}

/// A receiver's request for a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRequest {
    /// The metadata to preserve beside mode and modification time.
    pub keep: Preserve,
    /// Symbolic links are followed, under the names and on the way to them: the entries are those
    /// that they lead to. Needs an acceptor that declares it
    /// ([`Initiator::follows_links`](crate::handshake::Initiator::follows_links)).
    pub follow: bool,
    /// Maximum size of a file included in the pack, in bytes; larger ones are only named
    /// ([`Content::Large`]).
    pub file_bytes_max: u32,
    /// Paths beneath the directory of the request, as in [`Entry::path`]: at least one, and at most
    /// [`PACK_REQUEST_BYTES_MAX`] in total.
    pub names: Vec<Vec<u8>>,
}

/// The metadata to preserve beside content, kind, mode and modification time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Owner and group, by name and id.
    pub owner: bool,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
    /// The time of the last access.
    pub read_times: bool,
}

/// Consecutive entries that failed for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureRun {
    /// Index of the first in its pack, from 0.
    pub first: u32,
    /// Number of entries, at least 1.
    pub count: u32,
    /// The reason, with the path of the first entry.
    pub fault: Fault,
}

/// The operation of a run of entries that failed for the same reason in different operations:
/// separate runs would leave no room for others.
const ANY_OPERATION: &str = "copy";

/// The failed entries of a pack, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures(Vec<FailureRun>);

/// Whether a path is allowed in a pack: relative, and without `.` or `..`.
#[must_use]
pub fn is_path(path: &[u8], limits: &Limits) -> bool {
    path.is_empty()
        || (path.len() <= limits.path_bytes_max
            && !path.contains(&0)
            && path
                .split(|&b| b == b'/')
                .all(|name| !matches!(name, b"" | b"." | b"..")))
}

impl Preserve {
    const OWNER: u8 = 1 << 0;
    const XATTRS: u8 = 1 << 1;
    const READ_TIMES: u8 = 1 << 2;

    pub(crate) fn number(self) -> u8 {
        flag(self.owner, Self::OWNER)
            | flag(self.xattrs, Self::XATTRS)
            | flag(self.read_times, Self::READ_TIMES)
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        (number & !(Self::OWNER | Self::XATTRS | Self::READ_TIMES) == 0).then_some(Self {
            owner: number & Self::OWNER != 0,
            xattrs: number & Self::XATTRS != 0,
            read_times: number & Self::READ_TIMES != 0,
        })
    }
}

impl PackRequest {
    /// Size of a name within [`PACK_REQUEST_BYTES_MAX`].
    #[must_use]
    pub fn name_bytes(name: &[u8]) -> usize {
        2 + name.len()
    }

    /// Beside the numbers of [`Preserve`].
    const FOLLOW: u8 = 1 << 3;

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u8(self.keep.number() | flag(self.follow, Self::FOLLOW));
        w.u32(self.file_bytes_max);
        w.u16(u16::try_from(self.names.len()).unwrap_or(u16::MAX));
        for name in &self.names {
            w.path(name);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        let options = r.u8("what to keep")?;
        let keep = Preserve::from_number(options & !Self::FOLLOW)
            .ok_or(DecodeError::Invalid("what to keep"))?;
        let file_bytes_max = r.u32("largest file of a pack")?;
        let count = usize::from(r.u16("count of names")?);
        if count == 0 {
            return Err(DecodeError::Invalid("count of names"));
        }
        // The peer chooses the count: reserve no more than the available bytes can hold.
        let mut names = Vec::with_capacity(count.min(r.remaining() / 2));
        for _ in 0..count {
            let name = r.path(limits.path_bytes_max, "path in a pack")?;
            if name.is_empty() || !is_path(&name, limits) {
                return Err(DecodeError::Invalid("path in a pack"));
            }
            names.push(name);
        }
        Ok(Self {
            keep,
            follow: options & Self::FOLLOW != 0,
            file_bytes_max,
            names,
        })
    }
}

impl Failures {
    /// Adds a failed entry, whose index must be above the previous ones.
    pub fn push(&mut self, number: u32, fault: Fault) {
        let full = self.0.len() >= FAILURES_MAX;
        if let Some(run) = self.0.last_mut() {
            let same = run.first + run.count == number
                && run.fault.code == fault.code
                && run.fault.cause == fault.cause;
            if same {
                run.count += 1;
                if run.fault.operation != fault.operation {
                    run.fault.operation = ANY_OPERATION.into();
                }
                return;
            }
            if full {
                // Successful entries in between count as failed, and are repeated. An entry that
                // isn't there must not count as one that is.
                run.count = number - run.first + 1;
                if run.fault.code == Code::AlreadyExists {
                    run.fault = fault;
                }
                return;
            }
        }
        self.0.push(FailureRun {
            first: number,
            count: 1,
            fault,
        });
    }

    /// The runs of failures, in order.
    #[must_use]
    pub fn runs(&self) -> &[FailureRun] {
        &self.0
    }

    /// Whether nothing failed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same failures with their faults changed by `change`.
    #[must_use]
    pub fn map(mut self, mut change: impl FnMut(Fault) -> Fault) -> Self {
        for run in &mut self.0 {
            let fault = std::mem::replace(&mut run.fault, Fault::new(Code::Internal, "", ""));
            run.fault = change(fault);
        }
        self
    }

    /// The fault of the entry with this index, if it failed.
    #[must_use]
    pub fn of(&self, number: u32) -> Option<&Fault> {
        let at = self.0.partition_point(|run| run.first <= number);
        let run = self.0.get(at.checked_sub(1)?)?;
        (number - run.first < run.count).then_some(&run.fault)
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u16(u16::try_from(self.0.len()).unwrap_or(u16::MAX));
        for run in &self.0 {
            w.u32(run.first);
            w.u32(run.count);
            w.fault(&run.fault);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = usize::from(r.u16("count of failures")?);
        if count == 0 || count > FAILURES_MAX {
            return Err(DecodeError::Invalid("count of failures"));
        }
        let mut runs: Vec<FailureRun> = Vec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let (first, count) = (r.u32("failed entry")?, r.u32("failed entries")?);
            let next = first.checked_add(count);
            if count == 0 || first < end || next.is_none() {
                return Err(DecodeError::Invalid("failed entries"));
            }
            end = next.unwrap_or(u32::MAX);
            let fault = r.fault()?;
            runs.push(FailureRun {
                first,
                count,
                fault,
            });
        }
        Ok(Self(runs))
    }
}

/// Writes entries into a reusable buffer.
#[derive(Debug)]
pub struct PackWriter {
    /// Fully initialised, so that files can be read into it. Grows on demand.
    buffer: Vec<u8>,
    bytes_max: usize,
    len: usize,
    entries: u32,
    /// The directory of all further paths; empty for none.
    directory: Vec<u8>,
    scratch: Vec<u8>,
}

impl PackWriter {
    /// A writer of at most `bytes_max` bytes into `buffer`, whose content is ignored.
    #[must_use]
    pub fn new(buffer: Vec<u8>, bytes_max: usize) -> Self {
        Self {
            buffer,
            bytes_max: bytes_max.min(PACK_BYTES_MAX),
            len: 0,
            entries: 0,
            directory: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Puts the paths of further entries beneath a directory of the pack; empty for none. An entry
    /// with an empty path is the directory itself.
    pub fn set_directory(&mut self, directory: &[u8]) {
        self.directory = directory.to_vec();
    }

    /// Number of bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Number of entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Appends an entry; `false` if it doesn't fit.
    #[must_use]
    pub fn entry(&mut self, entry: &Entry<'_>) -> bool {
        let mut head = std::mem::take(&mut self.scratch);
        head.clear();
        entry.encode_head(&self.whole(entry.path), &mut head);
        let data: &[u8] = match entry.content {
            Content::File(data) => {
                let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
                head.extend_from_slice(&len.to_be_bytes());
                data
            }
            _ => &[],
        };
        let fits = self.reserve(head.len() + data.len());
        if fits {
            self.append(&head);
            self.append(data);
            self.entries += 1;
        }
        self.scratch = head;
        fits
    }

    /// Appends a file whose content `read` puts into the given buffer of `bytes_max` bytes; `read`
    /// returns its length. `Ok(false)` if `bytes_max` doesn't fit.
    ///
    /// # Errors
    /// The error of `read`; nothing is appended then.
    pub fn file<E>(
        &mut self,
        path: &[u8],
        metadata: &Metadata<'_>,
        bytes_max: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<bool, E> {
        let mut head = std::mem::take(&mut self.scratch);
        head.clear();
        encode_head(&mut head, kind::FILE, &self.whole(path), metadata);
        let start = self.len + head.len() + 4;
        let room = if self.reserve((head.len() + 4).saturating_add(bytes_max)) {
            self.buffer.get_mut(start..start + bytes_max)
        } else {
            None
        };
        let Some(room) = room else {
            self.scratch = head;
            return Ok(false);
        };
        let result = read(room);
        if let Ok(len) = result {
            let len = u32::try_from(len.min(bytes_max)).unwrap_or(u32::MAX);
            self.append(&head);
            self.append(&len.to_be_bytes());
            self.len += len as usize;
            self.entries += 1;
        }
        self.scratch = head;
        result.map(|_| true)
    }

    /// A path beneath the directory.
    fn whole<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        match (self.directory.as_slice(), path) {
            (b"", path) => path.into(),
            (directory, b"") => directory.to_vec().into(),
            (directory, path) => [directory, b"/", path].concat().into(),
        }
    }

    /// The buffer, and the size of the pack in it.
    #[must_use]
    pub fn finish(self) -> (Vec<u8>, usize) {
        (self.buffer, self.len)
    }

    /// Makes room for `bytes` more; `false` if the pack would exceed its limit.
    fn reserve(&mut self, bytes: usize) -> bool {
        let Some(end) = self
            .len
            .checked_add(bytes)
            .filter(|end| *end <= self.bytes_max)
        else {
            return false;
        };
        if self.buffer.len() < end {
            let doubled = self.buffer.len().saturating_mul(2).min(self.bytes_max);
            self.buffer.resize(end.max(doubled), 0);
        }
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

fn encode_head(out: &mut Vec<u8>, kind: u8, path: &[u8], metadata: &Metadata<'_>) {
    let flag = |set, flag| if set { flag } else { 0 };
    let owner = metadata.owner;
    let mut w = Writer::new(out);
    w.u8(kind);
    w.u8(flag(metadata.mode.is_some(), MODE)
        | flag(metadata.mtime_ns.is_some(), MTIME)
        | flag(metadata.atime_ns.is_some(), ATIME)
        | flag(owner.is_some(), OWNER)
        | flag(owner.is_some_and(|o| o.names.is_some()), OWNER_NAMES)
        | flag(!metadata.xattrs.is_empty(), XATTRS)
        | flag(metadata.sparse && kind == kind::FILE, SPARSE));
    w.path(path);
    if let Some(mode) = metadata.mode {
        w.u16(mode & MODE_MAX);
    }
    if let Some(time) = metadata.mtime_ns {
        w.i64(time);
    }
    if let Some(time) = metadata.atime_ns {
        w.i64(time);
    }
    if let Some(owner) = owner {
        w.u32(owner.uid);
        w.u32(owner.gid);
        if let Some((user, group)) = owner.names {
            w.bytes(user, OWNER_NAME_BYTES_MAX);
            w.bytes(group, OWNER_NAME_BYTES_MAX);
        }
    }
    if !metadata.xattrs.is_empty() {
        let xattrs = metadata.xattrs.iter().take(XATTRS_MAX);
        w.u16(u16::try_from(xattrs.len()).unwrap_or(0));
        for (name, value) in xattrs {
            let value = &value[..value.len().min(XATTR_VALUE_BYTES_MAX)];
            w.bytes(name, XATTR_NAME_BYTES_MAX);
            w.u32(u32::try_from(value.len()).unwrap_or(0));
            w.raw(value);
        }
    }
}

impl<'a> Entry<'a> {
    fn kind(&self) -> u8 {
        match &self.content {
            Content::File(_) => kind::FILE,
            Content::Directory => kind::DIRECTORY,
            Content::Symlink(_) => kind::SYMLINK,
            Content::HardLink(_) => kind::HARD_LINK,
            Content::Fifo => kind::FIFO,
            Content::Attributes => kind::ATTRIBUTES,
            Content::Large(_) => kind::LARGE,
            Content::Failed(_) => kind::FAILED,
        }
    }

    /// Encodes everything except a file's content and its length, with this path.
    fn encode_head(&self, path: &[u8], out: &mut Vec<u8>) {
        encode_head(out, self.kind(), path, &self.metadata);
        let mut w = Writer::new(out);
        match &self.content {
            Content::Symlink(path) | Content::HardLink(path) => w.path(path),
            Content::Large(size) => w.u64(*size),
            Content::Failed(fault) => w.fault(fault),
            Content::File(_) | Content::Directory | Content::Fifo | Content::Attributes => {}
        }
    }

    fn decode(r: &mut Reader<'a>, limits: &Limits) -> Result<Self, DecodeError> {
        let number = r.u8("kind of an entry")?;
        let flags = r.u8("flags of an entry")?;
        let nameless = flags & OWNER_NAMES != 0 && flags & OWNER == 0;
        let is_misplaced = flags & SPARSE != 0 && number != kind::FILE;
        if flags & !FLAGS != 0 || nameless || is_misplaced {
            return Err(DecodeError::Invalid("flags of an entry"));
        }
        let path = r.bytes(limits.path_bytes_max, "path in a pack")?;
        let of_root = matches!(number, kind::DIRECTORY | kind::ATTRIBUTES);
        if !is_path(path, limits) || (path.is_empty() && !of_root) {
            return Err(DecodeError::Invalid("path in a pack"));
        }
        let metadata = Metadata::decode(flags, r)?;
        let mut link = |field| {
            let path = r.bytes(limits.path_bytes_max, field)?;
            if path.is_empty() || path.contains(&0) {
                return Err(DecodeError::Invalid(field));
            }
            Ok(path)
        };
        let content = match number {
            kind::FILE => {
                let len = r.u32("length of a file")? as usize;
                Content::File(r.take(len, "content of a file")?)
            }
            kind::DIRECTORY => Content::Directory,
            kind::SYMLINK => Content::Symlink(link("target of a symbolic link")?),
            kind::HARD_LINK => {
                let existing = link("target of a link")?;
                if !is_path(existing, limits) {
                    return Err(DecodeError::Invalid("target of a link"));
                }
                Content::HardLink(existing)
            }
            kind::FIFO => Content::Fifo,
            kind::ATTRIBUTES => Content::Attributes,
            kind::LARGE => Content::Large(r.u64("size of a file")?),
            kind::FAILED => Content::Failed(r.fault()?),
            _ => return Err(DecodeError::Invalid("kind of an entry")),
        };
        Ok(Self {
            path,
            metadata,
            content,
        })
    }
}

impl<'a> Metadata<'a> {
    fn decode(flags: u8, r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let mut metadata = Self {
            sparse: flags & SPARSE != 0,
            ..Self::default()
        };
        if flags & MODE != 0 {
            let mode = r.u16("mode")?;
            if mode > MODE_MAX {
                return Err(DecodeError::Invalid("mode"));
            }
            metadata.mode = Some(mode);
        }
        if flags & MTIME != 0 {
            metadata.mtime_ns = Some(r.i64("time")?);
        }
        if flags & ATIME != 0 {
            metadata.atime_ns = Some(r.i64("time")?);
        }
        if flags & OWNER != 0 {
            let (uid, gid) = (r.u32("owner")?, r.u32("group")?);
            let names = if flags & OWNER_NAMES != 0 {
                let user = r.bytes(OWNER_NAME_BYTES_MAX, "name of an owner")?;
                Some((user, r.bytes(OWNER_NAME_BYTES_MAX, "name of a group")?))
            } else {
                None
            };
            metadata.owner = Some(Owner { uid, gid, names });
        }
        if flags & XATTRS != 0 {
            const FIELD: &str = "extended attributes";
            let count = usize::from(r.u16(FIELD)?);
            if count == 0 || count > XATTRS_MAX {
                return Err(DecodeError::Invalid(FIELD));
            }
            for _ in 0..count {
                let name = r.bytes(XATTR_NAME_BYTES_MAX, FIELD)?;
                let len = r.u32(FIELD)? as usize;
                if name.is_empty() || name.contains(&0) || len > XATTR_VALUE_BYTES_MAX {
                    return Err(DecodeError::Invalid(FIELD));
                }
                metadata.xattrs.push((name, r.take(len, FIELD)?));
            }
        }
        Ok(metadata)
    }
}

/// Decodes the entries of a pack. After an error there are none left.
#[derive(Debug)]
pub struct PackReader<'a> {
    rest: Reader<'a>,
    limits: &'a Limits,
}

impl<'a> PackReader<'a> {
    /// A reader of all of `pack`.
    #[must_use]
    pub fn new(pack: &'a [u8], limits: &'a Limits) -> Self {
        Self {
            rest: Reader::new(pack),
            limits,
        }
    }

    /// Bytes that weren't read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.remaining()
    }
}

impl<'a> Iterator for PackReader<'a> {
    type Item = Result<Entry<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.remaining() == 0 {
            return None;
        }
        let entry = Entry::decode(&mut self.rest, self.limits);
        if entry.is_err() {
            self.rest = Reader::new(&[]);
        }
        Some(entry)
    }
}

#[cfg(test)]
#[path = "pack_tests.rs"]
mod tests;
