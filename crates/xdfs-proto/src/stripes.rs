//! Uploads whose ranges several acceptors of a [group](crate::group) write into one unfinished
//! file.
//!
//! One member is *home*: it [opens](StripesOrder) the file as that of any upload, keeps it in the
//! session, and alone publishes it. The others, and home too, are sent *parts*: ordinary uploads to
//! a [path](part_path) that names the unfinished file and a place in it. Home reads each part back
//! before it takes it in, so that it believes neither the initiator nor a member. These types are
//! the fields of the [calls](StripesCall) for that, and of their answer.

use crate::digest::{DigestKind, DigestValue, Fragment};
use crate::frame::Resume;
use crate::id::SourceTag;
use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer, check_mode, check_most, check_path, flag, present};

/// Most fragments that home takes in by one call.
pub const TAKEN_MAX: usize = 64;
/// Most bytes of these in total.
pub const TAKEN_BYTES_MAX: u64 = 256 << 20;
/// Most fragments of an earlier attempt that home names; others are sent again.
pub const HELD_MAX: usize = 512;
/// Largest size of the answer of home.
pub(crate) const STRIPES_BYTES_MAX: usize = 8 + 8 + 4 + 2 + 4096 + 1 + 2 + HELD_MAX * 48 + 32;

/// Numbers of the operations.
pub(crate) mod operation {
    pub(crate) const OPEN: u8 = 0x38;
    pub(crate) const TAKE_IN: u8 = 0x39;
    pub(crate) const PUBLISH: u8 = 0x3a;
    pub(crate) const CLOSE: u8 = 0x3b;
}

/// Open: replace an existing entry.
const OVERWRITE: u8 = 1 << 0;
/// Open: permission bits are given.
const MODE: u8 = 1 << 1;
/// Open: the modification time is given.
const MTIME: u8 = 1 << 2;
/// Close: nothing is kept.
const DISCARD: u8 = 1 << 0;

/// The directory of the paths of parts.
const DIRECTORY: &[u8] = b".xdfs-stripe/";
/// Digits of a number in a path.
const DIGITS: usize = 16;

/// A place in an unfinished file, to which a part of it is uploaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartPlace {
    /// The number of the unfinished file in its file system.
    pub number: u64,
    /// The first byte of the part.
    pub offset: u64,
    /// The path of the target.
    pub path: Vec<u8>,
}

/// The path at any member to which a part is uploaded.
#[must_use]
pub fn part_path(part: &PartPlace) -> Vec<u8> {
    let numbers = format!("{:016x}/{:016x}/", part.number, part.offset);
    [DIRECTORY, numbers.as_bytes(), &part.path].concat()
}

/// The place of the part that is uploaded to a path; `None` if it is none of a part.
#[must_use]
pub fn part_of(path: &[u8]) -> Option<PartPlace> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let rest = path.strip_prefix(DIRECTORY)?;
    let (number, rest) = number(rest)?;
    let (offset, path) = self::number(rest)?;
    (!path.is_empty()).then(|| PartPlace {
        number,
        offset,
        path: path.to_vec(),
    })
}

/// A number at the beginning of a path, in its only form, and what follows.
fn number(path: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, rest) = path.split_at_checked(DIGITS)?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(digits).ok()?;
    let number = u64::from_str_radix(text, 16).ok()?;
    (digits.iter().all(is_digit)).then_some((number, rest.strip_prefix(b"/")?))
}

/// A call about an upload of which several acceptors write parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StripesCall {
    /// Opens the target. Answered by [`Stripes`](crate::path::Answer::Stripes).
    Open(Box<StripesOrder>),
    /// Takes in fragments that members have written and made durable. Each is read back, and
    /// recorded if it has its digest. Answered by [`Copied`](crate::path::Answer::Copied) with the
    /// bytes of those that have it.
    TakeIn {
        /// The number of the open target.
        id: u64,
        /// The fragments, by offset: at least 1, at most [`TAKEN_MAX`], of at most
        /// [`TAKEN_BYTES_MAX`] in total.
        fragments: Vec<Fragment>,
    },
    /// Publishes the target, whose fragments were all taken in. Answered by
    /// [`Done`](crate::path::Answer::Done).
    Publish {
        /// The number of the open target.
        id: u64,
        /// The digest of the whole, of the kind that was ordered.
        digest: DigestValue,
    },
    /// Closes the target without publishing it. Answered by [`Done`](crate::path::Answer::Done),
    /// also if there is none of this number.
    Close {
        /// The number of the open target.
        id: u64,
        /// Nothing is kept of it; otherwise its journal and what that claims.
        discard: bool,
    },
}

/// The target of an upload of which several acceptors write parts. The fields mean the same as in
/// OFFER.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripesOrder {
    /// The target.
    pub path: Vec<u8>,
    /// The name if the target is a directory; empty to refuse directories.
    pub name: Vec<u8>,
    /// Length of the file in bytes, at least 1.
    pub length: u64,
    /// The version of the source; all zero if it can't be recognised later.
    pub tag: SourceTag,
    /// The digest, which isn't none.
    pub digest: DigestKind,
    /// The grid of the fragments in bytes, as that of blocks.
    pub block_bytes: u32,
    /// Replace an existing target.
    pub overwrite: bool,
    /// Whether to resume from a journal.
    pub resume: Resume,
    /// Permission bits; `None` for the default there.
    pub mode: Option<u32>,
    /// Modification time; `None` for that of the publication.
    pub mtime_ns: Option<i64>,
}

/// An open target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// Its number in this session.
    pub id: u64,
    /// The number of the unfinished file in its file system; 0 if nothing is to be sent.
    pub number: u64,
    /// The grid to use.
    pub block_bytes: u32,
    /// The path that will be published.
    pub path: Vec<u8>,
    /// Durable fragments of an earlier attempt, at most [`HELD_MAX`], by offset.
    pub held: Vec<Fragment>,
}

/// Checks that fragments of one kind are in order and don't overlap. Returns their total size.
fn check_fragments(fragments: &[Fragment], most: usize) -> Result<u64, DecodeError> {
    check_most("number of fragments", fragments.len(), most)?;
    let kind = fragments.first().map(|first| first.state.kind());
    let (mut end, mut bytes) = (0, 0);
    for Fragment { range, state } in fragments {
        if range.start < end || range.is_empty() {
            return Err(DecodeError::Invalid("order of fragments"));
        }
        if Some(state.kind()) != kind || state.kind() == DigestKind::None {
            return Err(DecodeError::Invalid("digest kind"));
        }
        end = range.end;
        bytes += range.len();
    }
    Ok(bytes)
}

fn encode_fragments(fragments: &[Fragment], w: &mut Writer<'_>) {
    let kind = fragments.first().map(|first| first.state.kind());
    w.digest_kind(kind.unwrap_or(DigestKind::None));
    w.u16(u16::try_from(fragments.len()).unwrap_or(u16::MAX));
    for fragment in fragments {
        w.range(&fragment.range);
        w.digest_state(fragment.range.start, &fragment.state);
    }
}

fn decode_fragments(r: &mut Reader<'_>, most: usize) -> Result<Vec<Fragment>, DecodeError> {
    let kind = r.digest_kind()?;
    let count = usize::from(r.u16("number of fragments")?);
    check_most("number of fragments", count, most)?;
    if count == 0 && kind != DigestKind::None {
        return Err(DecodeError::Invalid("digest kind"));
    }
    let fragment = |_| {
        let range = r.range()?;
        let state = r.digest_state(kind, range.start)?;
        Ok(Fragment { range, state })
    };
    (0..count).map(fragment).collect()
}

impl StripesCall {
    pub(crate) fn path(&self) -> &[u8] {
        match self {
            Self::Open(order) => &order.path,
            _ => &[],
        }
    }

    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Open(_) => "open the target in stripes",
            Self::TakeIn { .. } => "take in parts",
            Self::Publish { .. } => "publish",
            Self::Close { .. } => "close the target",
        }
    }

    /// The defined option bits of an operation; `None` for one that isn't of this module.
    pub(crate) fn options_defined(number: u8) -> Option<u8> {
        match number {
            operation::OPEN => Some(OVERWRITE | MODE | MTIME),
            operation::CLOSE => Some(DISCARD),
            operation::TAKE_IN | operation::PUBLISH => Some(0),
            _ => None,
        }
    }

    /// The rules beyond the layout.
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        match self {
            Self::Open(order) => order.check(limits),
            Self::TakeIn { fragments, .. } => {
                if fragments.is_empty() {
                    return Err(DecodeError::Invalid("number of fragments"));
                }
                let bytes = check_fragments(fragments, TAKEN_MAX)?;
                match bytes > TAKEN_BYTES_MAX {
                    true => Err(DecodeError::Invalid("bytes of the fragments")),
                    false => Ok(()),
                }
            }
            Self::Publish { digest, .. } if digest.kind() == DigestKind::None => {
                Err(DecodeError::Invalid("digest kind"))
            }
            Self::Publish { .. } | Self::Close { .. } => Ok(()),
        }
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Open(order) => order.encode(w),
            Self::TakeIn { id, fragments } => {
                w.u8(operation::TAKE_IN);
                w.u8(0);
                w.u64(*id);
                encode_fragments(fragments, w);
            }
            Self::Publish { id, digest } => {
                w.u8(operation::PUBLISH);
                w.u8(0);
                w.u64(*id);
                w.digest(digest);
            }
            Self::Close { id, discard } => {
                w.u8(operation::CLOSE);
                w.u8(flag(*discard, DISCARD));
                w.u64(*id);
            }
        }
    }

    pub(crate) fn decode(
        number: u8,
        options: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        const ID: &str = "number of an open target";
        Ok(match number {
            operation::OPEN => Self::Open(Box::new(StripesOrder::decode(options, r, limits)?)),
            operation::TAKE_IN => Self::TakeIn {
                id: r.u64(ID)?,
                fragments: decode_fragments(r, TAKEN_MAX)?,
            },
            operation::PUBLISH => Self::Publish {
                id: r.u64(ID)?,
                digest: r.digest()?,
            },
            _ => Self::Close {
                id: r.u64(ID)?,
                discard: options & DISCARD != 0,
            },
        })
    }
}

impl StripesOrder {
    fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        check_path(&self.name, limits.path_bytes_max, "name")?;
        check_mode(self.mode.unwrap_or(0))?;
        if self.name.contains(&b'/') || matches!(&*self.name, b"." | b"..") {
            return Err(DecodeError::Invalid("name"));
        }
        if self.length == 0 {
            return Err(DecodeError::Invalid("length"));
        }
        if self.digest == DigestKind::None {
            return Err(DecodeError::Invalid("digest kind"));
        }
        match crate::delta::is_block(self.block_bytes) {
            true => Ok(()),
            false => Err(DecodeError::Invalid("block size")),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u8(operation::OPEN);
        let given = flag(self.mode.is_some(), MODE) | flag(self.mtime_ns.is_some(), MTIME);
        w.u8(flag(self.overwrite, OVERWRITE) | given);
        w.raw(&self.tag.0);
        w.u64(self.length);
        w.digest_kind(self.digest);
        w.u32(self.block_bytes);
        w.u8(self.resume.number());
        w.mode(self.mode.unwrap_or(0));
        w.i64(self.mtime_ns.unwrap_or(0));
        w.path(&self.path);
        w.path(&self.name);
    }

    fn decode(options: u8, r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            tag: SourceTag(r.array("tag of the source")?),
            length: r.u64("length")?,
            digest: r.digest_kind()?,
            block_bytes: r.u32("block size")?,
            resume: Resume::decode(r)?,
            mode: present(options, MODE, r.mode()?, "permissions")?,
            mtime_ns: present(options, MTIME, r.i64("time")?, "time")?,
            path: r.path(limits.path_bytes_max, "path")?,
            name: r.path(limits.path_bytes_max, "name")?,
            overwrite: options & OVERWRITE != 0,
        })
    }
}

impl Stripes {
    /// The rules beyond the layout.
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        if !crate::delta::is_block(self.block_bytes) {
            return Err(DecodeError::Invalid("block size"));
        }
        check_fragments(&self.held, HELD_MAX).map(|_| ())
    }

    pub(crate) fn data_bytes(&self) -> usize {
        8 + 8 + 4 + 2 + self.path.len() + 1 + 2 + self.held.len() * 48 + 32
    }

    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.id);
        w.u64(self.number);
        w.u32(self.block_bytes);
        w.path(&self.path);
        encode_fragments(&self.held, w);
    }

    pub(crate) fn decode(r: &mut Reader<'_>, limits: &Limits) -> Result<Self, DecodeError> {
        Ok(Self {
            id: r.u64("number of an open target")?,
            number: r.u64("number of a file")?,
            block_bytes: r.u32("block size")?,
            path: r.path(limits.path_bytes_max, "path")?,
            held: decode_fragments(r, HELD_MAX)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_parts_have_one_form() {
        let place = |path: &str| part_of(path.as_bytes());
        let part = PartPlace {
            number: 0x12,
            offset: 0xff_0000,
            path: b"data/f".to_vec(),
        };
        let text = String::from_utf8(part_path(&part)).unwrap();
        assert_eq!(
            text,
            ".xdfs-stripe/0000000000000012/0000000000ff0000/data/f"
        );
        assert_eq!(place(&text), Some(part.clone()));
        assert_eq!(place(&format!("/{text}")), Some(part));
        for other in [
            "data/f",
            ".xdfs-stripe/12/0000000000ff0000/data/f",
            ".xdfs-stripe/0000000000000012/0000000000FF0000/data/f",
            ".xdfs-stripe/+000000000000012/0000000000ff0000/data/f",
            ".xdfs-stripe/0000000000000012/0000000000ff0000/",
            ".xdfs-stripe/0000000000000012/0000000000ff0000",
            "x/.xdfs-stripe/0000000000000012/0000000000ff0000/data/f",
            ".xdfs-stripe/000000000000001\u{e4}/0000000000ff0000/f",
        ] {
            assert_eq!(place(other), None, "{other}");
        }
    }
}
