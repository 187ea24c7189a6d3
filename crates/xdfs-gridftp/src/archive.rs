//! The content of a segment of MODE T: entries of a tree as a tar archive (POSIX.1-2017, pax),
//! which may be compressed. `docs/gridftp/mode-t.md` is the specification.
//!
//! A segment is small enough to be held in memory, and nothing of it is used before all of it is
//! read: [`unpack`] bounds what decompression makes of it, and [`members`] refuses every path that
//! isn't one beneath the directory of the segment, and every kind of member beside files and
//! directories. So there are no links that could lead out, and no holes that could become large.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read as _, Write as _};

use tar::{EntryType, Header};
use xdfs_proto::Limits;
use xdfs_proto::pack::is_path;

/// Most bytes of a segment, compressed or not.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// Bytes from which on a sender ends a segment: another entry fits still.
pub const SEGMENT_BYTES_FULL: usize = 8 << 20;
/// Most members of a segment.
pub const MEMBERS_MAX: usize = 8192;
/// Largest file of a segment, in bytes. Larger ones fill several data connections by themselves,
/// and are moved by RETR and STOR, which can go on within a file.
pub const FILE_BYTES_MAX: u32 = 2 << 20;
/// Unit of a tar archive, in bytes.
const RECORD: usize = 512;
/// Zeros at the end of an archive.
const END: usize = 2 * RECORD;
/// Largest window of zstd that is taken (2 to this power), which bounds memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 24;
/// Level of zstd: the fastest of the usual ones.
const ZSTD_LEVEL: i32 = 1;
/// The record of a pax header that says that a member sets attributes only.
const ATTRIBUTES: &str = "XDFS.attributes";

/// How a segment is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As of bzip2.
    Bzip2,
    /// As of gzip (RFC 1952).
    Gzip,
    /// Not at all.
    #[default]
    None,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// All, with their names in commands.
    pub const ALL: [(Self, &str); 4] = [
        (Self::None, "none"),
        (Self::Gzip, "gzip"),
        (Self::Bzip2, "bzip2"),
        (Self::Zstd, "zstd"),
    ];

    /// The one with this name, in either case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.iter();
        all.find(|(_, known)| name.eq_ignore_ascii_case(known.as_bytes()))
            .map(|(compression, _)| *compression)
    }

    /// The name in commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(other, _)| *other == self)
            .map_or("none", |(_, name)| name)
    }
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing new: mode and time of what is there.
    Attributes,
    /// A directory, which is made unless it is there.
    Directory,
    /// A file with its content.
    File,
}

/// An entry of a tree in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The path beneath the directory of the segment, as in a
    /// [pack](xdfs_proto::pack::Entry::path). Empty for that directory itself, which isn't a file.
    pub path: Cow<'a, [u8]>,
    /// What it is.
    pub kind: Kind,
    /// Permission bits, at most 0o7777.
    pub mode: u16,
    /// Modification time in seconds since 1970; `None` if it is unknown.
    pub mtime_s: Option<i64>,
    /// The content of a file.
    pub data: &'a [u8],
}

/// What is wrong with a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A path leads elsewhere, or is none.
    BadPath(Vec<u8>),
    /// A member is neither a file nor a directory.
    BadKind(Vec<u8>),
    /// It can't be read as what it is said to be.
    Damaged(String),
    /// Two members have this path.
    Doubled(Vec<u8>),
    /// It has no end, or something follows its end.
    BadEnd,
    /// It has more bytes than [`SEGMENT_BYTES_MAX`], or more members than [`MEMBERS_MAX`].
    TooLarge,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadPath(path) => {
                let path = path.escape_ascii();
                write!(
                    f,
                    "the segment has '{path}', which isn't a path in the tree"
                )
            }
            Self::BadKind(path) => {
                let path = path.escape_ascii();
                write!(
                    f,
                    "'{path}' in the segment is neither a file nor a directory"
                )
            }
            Self::Damaged(why) => write!(f, "the segment is damaged: {why}"),
            Self::Doubled(path) => write!(f, "the segment has '{}' twice", path.escape_ascii()),
            Self::BadEnd => f.write_str("the segment doesn't end as an archive does"),
            Self::TooLarge => write!(
                f,
                "the segment has more than {} MiB or {MEMBERS_MAX} members",
                SEGMENT_BYTES_MAX >> 20
            ),
        }
    }
}

impl std::error::Error for ArchiveError {}

enum Sink {
    Bzip2(bzip2::write::BzEncoder<Vec<u8>>),
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    None(Vec<u8>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

/// Writes a segment.
pub struct ArchiveWriter {
    compression: Compression,
    sink: Sink,
    bytes: usize,
    members: usize,
}

impl fmt::Debug for ArchiveWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArchiveWriter")
            .field("bytes", &self.bytes)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl ArchiveWriter {
    /// A segment without members.
    ///
    /// # Errors
    /// There is no memory for the compression.
    pub fn new(compression: Compression) -> io::Result<Self> {
        let out = Vec::new();
        let sink = match compression {
            Compression::Bzip2 => {
                let level = bzip2::Compression::fast();
                Sink::Bzip2(bzip2::write::BzEncoder::new(out, level))
            }
            Compression::Gzip => {
                let level = flate2::Compression::fast();
                Sink::Gzip(flate2::write::GzEncoder::new(out, level))
            }
            Compression::None => Sink::None(out),
            Compression::Zstd => Sink::Zstd(zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?),
        };
        Ok(Self {
            compression,
            sink,
            bytes: 0,
            members: 0,
        })
    }

    /// Whether the sender should end the segment.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes >= SEGMENT_BYTES_FULL || self.members >= MEMBERS_MAX
    }

    /// How it is compressed.
    #[must_use]
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// Number of bytes before compression.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a member.
    ///
    /// # Errors
    /// Those of the compression.
    pub fn add(&mut self, member: &Member<'_>) -> io::Result<()> {
        let path: &[u8] = if member.path.is_empty() {
            b"."
        } else {
            &member.path
        };
        let mut header = Header::new_ustar();
        header.set_mode(member.mode.into());
        header.set_uid(0);
        header.set_gid(0);
        header.set_entry_type(match member.kind {
            Kind::File => EntryType::Regular,
            Kind::Directory | Kind::Attributes => EntryType::Directory,
        });
        header.set_size(member.data.len() as u64);
        let mut extension = Vec::new();
        match member.mtime_s.map(|time| (time, u64::try_from(time))) {
            None => header.set_mtime(0),
            Some((_, Ok(time @ 1..))) => header.set_mtime(time),
            // In a header it would be none.
            Some((time, _)) => record(&mut extension, "mtime", time.to_string().as_bytes()),
        }
        let name = &mut header.as_old_mut().name;
        match name.get_mut(..path.len()) {
            Some(room) => room.copy_from_slice(path),
            None => {
                let room = name.len();
                name.copy_from_slice(&path[..room]);
                record(&mut extension, "path", path);
            }
        }
        if member.kind == Kind::Attributes {
            record(&mut extension, ATTRIBUTES, b"1");
        }
        header.set_cksum();
        if !extension.is_empty() {
            let mut before = Header::new_ustar();
            before.as_old_mut().name[..3].copy_from_slice(b"pax");
            before.set_mode(0o644);
            before.set_uid(0);
            before.set_gid(0);
            before.set_mtime(0);
            before.set_entry_type(EntryType::XHeader);
            before.set_size(extension.len() as u64);
            before.set_cksum();
            self.write(before.as_bytes())?;
            self.write(&extension)?;
            self.pad(extension.len())?;
        }
        self.write(header.as_bytes())?;
        self.write(member.data)?;
        self.pad(member.data.len())?;
        self.members += 1;
        Ok(())
    }

    /// What is ready to be sent.
    pub fn take(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        self.swap(&mut out);
        out
    }

    /// Swaps what is ready to be sent for `out`, at whose end the next bytes are written.
    pub fn swap(&mut self, out: &mut Vec<u8>) {
        std::mem::swap(
            out,
            match &mut self.sink {
                Sink::Bzip2(encoder) => encoder.get_mut(),
                Sink::Gzip(encoder) => encoder.get_mut(),
                Sink::None(out) => out,
                Sink::Zstd(encoder) => encoder.get_mut(),
            },
        );
    }

    /// The rest of the segment.
    ///
    /// # Errors
    /// Those of the compression.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        self.write(&[0; END])?;
        match self.sink {
            Sink::Bzip2(encoder) => encoder.finish(),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::None(out) => Ok(out),
            Sink::Zstd(encoder) => encoder.finish(),
        }
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.write(&[0; RECORD][..written.next_multiple_of(RECORD) - written])
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len();
        match &mut self.sink {
            Sink::Bzip2(encoder) => encoder.write_all(bytes),
            Sink::Gzip(encoder) => encoder.write_all(bytes),
            Sink::None(out) => out.write_all(bytes),
            Sink::Zstd(encoder) => encoder.write_all(bytes),
        }
    }
}

/// Appends a record of a pax header: its own length, a space, `key=value` and a newline.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Undoes the compression of a segment.
///
/// # Errors
/// It is damaged, too large, or something follows it.
pub fn unpack(compression: Compression, wire: &[u8]) -> Result<Cow<'_, [u8]>, ArchiveError> {
    let damaged = |error: io::Error| ArchiveError::Damaged(error.to_string());
    if wire.len() > SEGMENT_BYTES_MAX {
        return Err(ArchiveError::TooLarge);
    }
    let (mut out, most) = (Vec::new(), SEGMENT_BYTES_MAX as u64 + 1);
    let rest = match compression {
        Compression::None => return Ok(Cow::Borrowed(wire)),
        Compression::Bzip2 => {
            let mut decoder = bzip2::bufread::BzDecoder::new(wire);
            decoder
                .by_ref()
                .take(most)
                .read_to_end(&mut out)
                .map_err(damaged)?;
            decoder.into_inner()
        }
        Compression::Gzip => {
            let mut decoder = flate2::bufread::GzDecoder::new(wire);
            decoder
                .by_ref()
                .take(most)
                .read_to_end(&mut out)
                .map_err(damaged)?;
            decoder.into_inner()
        }
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(wire).map_err(damaged)?;
            let mut decoder = decoder.single_frame();
            decoder
                .window_log_max(ZSTD_WINDOW_LOG_MAX)
                .map_err(damaged)?;
            decoder
                .by_ref()
                .take(most)
                .read_to_end(&mut out)
                .map_err(damaged)?;
            decoder.finish()
        }
    };
    match (out.len() > SEGMENT_BYTES_MAX, rest.is_empty()) {
        (true, _) => Err(ArchiveError::TooLarge),
        (false, false) => Err(ArchiveError::BadEnd),
        (false, true) => Ok(Cow::Owned(out)),
    }
}

/// Reads the members of a segment.
///
/// # Errors
/// It isn't whole, has a path that isn't one beneath its directory or stands there twice, or a
/// member that is neither a file nor a directory.
pub fn members(archive: &[u8]) -> Result<Vec<Member<'_>>, ArchiveError> {
    let damaged = |error: io::Error| ArchiveError::Damaged(error.to_string());
    let (mut found, mut paths, mut end) = (Vec::new(), HashSet::new(), 0);
    let limits = Limits::default();
    let mut reader = tar::Archive::new(archive);
    for entry in reader.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path_bytes().into_owned();
        let kind = match entry.header().entry_type() {
            EntryType::Regular => Kind::File,
            EntryType::Directory => Kind::Directory,
            _ => return Err(ArchiveError::BadKind(path)),
        };
        if found.len() >= MEMBERS_MAX {
            return Err(ArchiveError::TooLarge);
        }
        let mode = entry.header().mode().map_err(damaged)? & 0o7777;
        let time = entry.header().mtime().map_err(damaged)?;
        let mut member = Member {
            path: Cow::Owned(Vec::new()),
            kind,
            mode: u16::try_from(mode).unwrap_or_default(),
            mtime_s: i64::try_from(time).ok().filter(|time| *time != 0),
            data: &[],
        };
        if let Some(records) = entry.pax_extensions().map_err(damaged)? {
            for record in records {
                let record = record.map_err(damaged)?;
                match record.key_bytes() {
                    b"mtime" => member.mtime_s = seconds(record.value_bytes()),
                    // Holes would be taken for content.
                    key if key.starts_with(b"GNU.sparse.") => {
                        return Err(ArchiveError::BadKind(path));
                    }
                    b"size" if number(record.value_bytes()).is_none() => {
                        let cause = "a pax record has a size that is no number";
                        return Err(ArchiveError::Damaged(cause.to_owned()));
                    }
                    key if key == ATTRIBUTES.as_bytes() && kind == Kind::Directory => {
                        member.kind = Kind::Attributes;
                    }
                    _ => {}
                }
            }
        }
        let name = match kind {
            Kind::File => &path[..],
            _ => path.strip_suffix(b"/").unwrap_or(&path),
        };
        let name: &[u8] = match (kind, name) {
            (Kind::Directory, b".") => b"",
            (_, b"") => return Err(ArchiveError::BadPath(path)),
            _ => name,
        };
        if !is_path(name, &limits) {
            return Err(ArchiveError::BadPath(path));
        }
        let is_new = paths.insert((member.kind == Kind::Attributes, name.to_vec()));
        if !is_new {
            return Err(ArchiveError::Doubled(path));
        }
        let start = usize::try_from(entry.raw_file_position()).unwrap_or(usize::MAX);
        let size = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        let data = start
            .checked_add(size)
            .and_then(|end| archive.get(start..end));
        let data = data.ok_or(ArchiveError::BadEnd)?;
        if kind != Kind::File && size > 0 {
            return Err(ArchiveError::Damaged("a directory has content".to_owned()));
        }
        end = (start + size).next_multiple_of(RECORD);
        member.path = Cow::Owned(name.to_vec());
        member.data = data;
        found.push(member);
    }
    let rest = archive.get(end..).unwrap_or_default();
    let is_whole = rest.len() >= END && archive.len().is_multiple_of(RECORD);
    match is_whole && rest.iter().all(|byte| *byte == 0) {
        true => Ok(found),
        false => Err(ArchiveError::BadEnd),
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

/// Whole seconds of a time in decimal digits, with or without a fraction.
fn seconds(text: &[u8]) -> Option<i64> {
    let whole = text.split(|byte| *byte == b'.').next()?;
    std::str::from_utf8(whole).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
