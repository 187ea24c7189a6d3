//! The codec of file calls and their answers: operations and contents from 0x20 on in the bodies of
//! `calls`.

use std::sync::Arc;

use super::{
    DATA_BYTES_MAX, EXTENTS_MAX, Extent, FileAnswer, FileCall, FileFlags, FileIdentity, FileOwner,
    HeldLock, LEASE_SECONDS_MAX, LockRange, WAIT_MS_MAX,
};
use crate::limits::Limits;
use crate::wire::{DecodeError, Reader, Writer, check_mode, check_most, check_path, flag, present};

/// Numbers of the operations.
mod operation {
    pub(super) const OPEN: u8 = 0x20;
    pub(super) const READ: u8 = 0x21;
    pub(super) const WRITE: u8 = 0x22;
    pub(super) const APPEND: u8 = 0x23;
    pub(super) const FLUSH: u8 = 0x24;
    pub(super) const SET_LENGTH: u8 = 0x25;
    pub(super) const LOCK: u8 = 0x26;
    pub(super) const UNLOCK: u8 = 0x27;
    pub(super) const TEST_LOCK: u8 = 0x28;
    pub(super) const RENEW: u8 = 0x29;
    pub(super) const STAT: u8 = 0x2a;
    pub(super) const CLOSE: u8 = 0x2b;
}

/// Numbers of the contents of an answer.
mod content {
    pub(super) const OPENED: u8 = 0x20;
    pub(super) const DATA: u8 = 0x21;
    pub(super) const APPENDED: u8 = 0x22;
    pub(super) const HELD: u8 = 0x23;
    pub(super) const IN_THE_WAY: u8 = 0x24;
}

/// Open.
const READ: u8 = 1 << 0;
const WRITE: u8 = 1 << 1;
const APPEND: u8 = 1 << 2;
const CREATE: u8 = 1 << 3;
const EXCLUSIVE: u8 = 1 << 4;
const TRUNCATE: u8 = 1 << 5;
const MODE: u8 = 1 << 6;
const IDENTITY: u8 = 1 << 7;
/// Read, Write, Append, SetLength: only under a lock.
const LOCKED: u8 = 1 << 0;
/// Flush: data only.
const DATA_ONLY: u8 = 1 << 0;
/// Lock, TestLock: the lock is exclusive.
const SOLE: u8 = 1 << 0;
/// Lock, Unlock, TestLock: the length is given.
const LENGTH: u8 = 1 << 1;

/// Size of an extent in a call, and of its length in an answer.
const EXTENT_BYTES: usize = 8 + 4;
const LENGTH_BYTES: usize = 4;

fn check_extents(extents: &[Extent]) -> Result<usize, DecodeError> {
    if extents.is_empty() {
        return Err(DecodeError::Invalid("number of extents"));
    }
    check_most("number of extents", extents.len(), EXTENTS_MAX)?;
    let mut total = 0usize;
    for extent in extents {
        let end = extent.offset.checked_add(u64::from(extent.length));
        if extent.length == 0 || end.is_none() {
            return Err(DecodeError::Invalid("extent"));
        }
        total = total.saturating_add(extent.length as usize);
    }
    check_most("length of data", total, DATA_BYTES_MAX)?;
    Ok(total)
}

fn check_range(range: &LockRange) -> Result<(), DecodeError> {
    let fits = range
        .length
        .is_none_or(|length| length > 0 && range.offset.checked_add(length).is_some());
    if fits {
        Ok(())
    } else {
        Err(DecodeError::Invalid("range of a lock"))
    }
}

fn check_flags(flags: &FileFlags, reopens: bool) -> Result<(), DecodeError> {
    let has_purpose = flags.read || flags.write;
    let needs_write = flags.append || flags.create || flags.truncate;
    let makes_or_removes = flags.create || flags.truncate;
    let wrong = !has_purpose
        || (needs_write && !flags.write)
        || (flags.exclusive && !flags.create)
        || (reopens && makes_or_removes);
    if wrong {
        return Err(DecodeError::Invalid("flags of a file"));
    }
    Ok(())
}

impl FileCall {
    /// The defined option bits of an operation; `None` for an unknown operation.
    pub(crate) fn options_defined(number: u8) -> Option<u8> {
        match number {
            operation::OPEN => Some(u8::MAX),
            operation::READ | operation::WRITE | operation::APPEND | operation::SET_LENGTH => {
                Some(LOCKED)
            }
            operation::FLUSH => Some(DATA_ONLY),
            operation::LOCK | operation::TEST_LOCK => Some(SOLE | LENGTH),
            operation::UNLOCK => Some(LENGTH),
            operation::RENEW | operation::STAT | operation::CLOSE => Some(0),
            _ => None,
        }
    }

    /// Checks the rules of a call; see [`crate::path::Call::check`].
    pub(crate) fn check(&self, limits: &Limits) -> Result<(), DecodeError> {
        if self.handle() == Some(0) {
            return Err(DecodeError::Invalid("handle"));
        }
        match self {
            Self::Open {
                path,
                flags,
                mode,
                identity,
                ..
            } => {
                check_path(path, limits.path_bytes_max, "path")?;
                check_mode(mode.unwrap_or(0))?;
                if mode.is_some() && !flags.create {
                    return Err(DecodeError::Invalid("mode"));
                }
                check_flags(flags, identity.is_some())
            }
            Self::Read { extents, .. } => check_extents(extents).map(|_| ()),
            Self::Write { extents, bytes, .. } => {
                if check_extents(extents)? == bytes.len() {
                    Ok(())
                } else {
                    Err(DecodeError::Invalid("length of data"))
                }
            }
            Self::Append { bytes, .. } => {
                if bytes.is_empty() {
                    return Err(DecodeError::Invalid("length of data"));
                }
                check_most("length of data", bytes.len(), DATA_BYTES_MAX)
            }
            Self::Lock {
                range,
                lease_s,
                wait_ms,
                ..
            } => {
                check_range(range)?;
                if !(1..=LEASE_SECONDS_MAX).contains(lease_s) {
                    return Err(DecodeError::Invalid("lease of a lock"));
                }
                if *wait_ms > WAIT_MS_MAX {
                    return Err(DecodeError::Invalid("wait for a lock"));
                }
                Ok(())
            }
            Self::Unlock { range, .. } | Self::TestLock { range, .. } => check_range(range),
            Self::Flush { .. }
            | Self::SetLength { .. }
            | Self::Renew { .. }
            | Self::Stat { .. }
            | Self::Close { .. } => Ok(()),
        }
    }

    /// Appends the operation, its options and its fields.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        let (number, options) = self.operation_and_options();
        w.u8(number);
        w.u8(options);
        match self {
            Self::Open {
                path,
                mode,
                owner,
                identity,
                ..
            } => {
                w.mode(mode.unwrap_or(0));
                w.raw(&owner.0);
                encode_identity(w, &identity.unwrap_or_default());
                w.path(path);
            }
            Self::Read {
                handle, extents, ..
            } => {
                w.u32(*handle);
                encode_extents(w, extents);
            }
            Self::Write {
                handle,
                extents,
                bytes,
                ..
            } => {
                w.u32(*handle);
                encode_extents(w, extents);
                w.raw(bytes);
            }
            Self::Append { handle, bytes, .. } => {
                w.u32(*handle);
                w.u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                w.raw(bytes);
            }
            Self::SetLength { handle, length, .. } => {
                w.u32(*handle);
                w.u64(*length);
            }
            Self::Lock {
                handle,
                range,
                lease_s,
                wait_ms,
                ..
            } => {
                w.u32(*handle);
                encode_range(w, range);
                w.u32(*lease_s);
                w.u32(*wait_ms);
            }
            Self::Unlock { handle, range } | Self::TestLock { handle, range, .. } => {
                w.u32(*handle);
                encode_range(w, range);
            }
            Self::Renew { handle, holding } => {
                w.u32(*handle);
                w.u64(*holding);
            }
            Self::Flush { handle, .. } | Self::Stat { handle } | Self::Close { handle } => {
                w.u32(*handle);
            }
        }
    }

    fn operation_and_options(&self) -> (u8, u8) {
        let given = |range: &LockRange| flag(range.length.is_some(), LENGTH);
        match self {
            Self::Open {
                flags,
                mode,
                identity,
                ..
            } => (
                operation::OPEN,
                flag(flags.read, READ)
                    | flag(flags.write, WRITE)
                    | flag(flags.append, APPEND)
                    | flag(flags.create, CREATE)
                    | flag(flags.exclusive, EXCLUSIVE)
                    | flag(flags.truncate, TRUNCATE)
                    | flag(mode.is_some(), MODE)
                    | flag(identity.is_some(), IDENTITY),
            ),
            Self::Read { locked, .. } => (operation::READ, flag(*locked, LOCKED)),
            Self::Write { locked, .. } => (operation::WRITE, flag(*locked, LOCKED)),
            Self::Append { locked, .. } => (operation::APPEND, flag(*locked, LOCKED)),
            Self::Flush { data_only, .. } => (operation::FLUSH, flag(*data_only, DATA_ONLY)),
            Self::SetLength { locked, .. } => (operation::SET_LENGTH, flag(*locked, LOCKED)),
            Self::Lock {
                range, exclusive, ..
            } => (operation::LOCK, flag(*exclusive, SOLE) | given(range)),
            Self::Unlock { range, .. } => (operation::UNLOCK, given(range)),
            Self::TestLock {
                range, exclusive, ..
            } => (operation::TEST_LOCK, flag(*exclusive, SOLE) | given(range)),
            Self::Renew { .. } => (operation::RENEW, 0),
            Self::Stat { .. } => (operation::STAT, 0),
            Self::Close { .. } => (operation::CLOSE, 0),
        }
    }

    /// Decodes the fields of an operation with defined options. The caller checks it.
    pub(crate) fn decode(
        number: u8,
        options: u8,
        r: &mut Reader<'_>,
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let is = |bit: u8| options & bit != 0;
        if number == operation::OPEN {
            let mode = present(options, MODE, r.mode()?, "mode")?;
            let owner = FileOwner(r.array("owner")?);
            let identity = present(options, IDENTITY, decode_identity(r)?, "identity")?;
            let path = r.path(limits.path_bytes_max, "path")?;
            let flags = FileFlags {
                read: is(READ),
                write: is(WRITE),
                append: is(APPEND),
                create: is(CREATE),
                exclusive: is(EXCLUSIVE),
                truncate: is(TRUNCATE),
            };
            return Ok(Self::Open {
                path,
                flags,
                mode,
                owner,
                identity,
            });
        }
        let handle = r.u32("handle")?;
        let locked = is(LOCKED);
        Ok(match number {
            operation::READ => Self::Read {
                handle,
                locked,
                extents: decode_extents(r)?,
            },
            operation::WRITE => {
                let extents = decode_extents(r)?;
                let total = check_extents(&extents)?;
                let bytes = Arc::new(r.take(total, "data")?.to_vec());
                Self::Write {
                    handle,
                    locked,
                    extents,
                    bytes,
                }
            }
            operation::APPEND => {
                let length = r.u32("length of data")? as usize;
                check_most("length of data", length, DATA_BYTES_MAX)?;
                let bytes = Arc::new(r.take(length, "data")?.to_vec());
                Self::Append {
                    handle,
                    locked,
                    bytes,
                }
            }
            operation::FLUSH => Self::Flush {
                handle,
                data_only: is(DATA_ONLY),
            },
            operation::SET_LENGTH => Self::SetLength {
                handle,
                locked,
                length: r.u64("length")?,
            },
            operation::LOCK => Self::Lock {
                handle,
                range: decode_range(options, r)?,
                exclusive: is(SOLE),
                lease_s: r.u32("lease of a lock")?,
                wait_ms: r.u32("wait for a lock")?,
            },
            operation::UNLOCK => Self::Unlock {
                handle,
                range: decode_range(options, r)?,
            },
            operation::TEST_LOCK => Self::TestLock {
                handle,
                range: decode_range(options, r)?,
                exclusive: is(SOLE),
            },
            operation::RENEW => Self::Renew {
                handle,
                holding: r.u64("holding")?,
            },
            operation::STAT => Self::Stat { handle },
            operation::CLOSE => Self::Close { handle },
            _ => return Err(DecodeError::Invalid("operation")),
        })
    }
}

impl FileAnswer {
    /// Checks the rules of an answer; see [`Answer::check`].
    pub(crate) fn check(&self) -> Result<(), DecodeError> {
        match self {
            Self::Opened {
                handle, attributes, ..
            } => {
                if *handle == 0 {
                    return Err(DecodeError::Invalid("handle"));
                }
                check_mode(attributes.mode)
            }
            Self::Data { lengths, bytes } => {
                if lengths.is_empty() {
                    return Err(DecodeError::Invalid("number of extents"));
                }
                check_most("number of extents", lengths.len(), EXTENTS_MAX)?;
                check_most("length of data", bytes.len(), DATA_BYTES_MAX)?;
                if total(lengths) != bytes.len() as u64 {
                    return Err(DecodeError::Invalid("length of data"));
                }
                Ok(())
            }
            Self::InTheWay(Some(held)) => check_range(&held.range),
            Self::Appended { .. } | Self::Held { .. } | Self::InTheWay(None) => Ok(()),
        }
    }

    /// Approximate size of the body of its ANSWER.
    pub(crate) fn body_bytes(&self) -> usize {
        match self {
            Self::Data { lengths, bytes } => 256 + lengths.len() * LENGTH_BYTES + bytes.len(),
            _ => 256,
        }
    }

    /// Appends the content and its fields.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Opened {
                handle,
                identity,
                created,
                run,
                attributes,
            } => {
                w.u8(content::OPENED);
                w.u32(*handle);
                w.u8(u8::from(*created));
                w.u64(*run);
                encode_identity(w, identity);
                w.attributes(attributes);
            }
            Self::Data { lengths, bytes } => {
                w.u8(content::DATA);
                w.u16(u16::try_from(lengths.len()).unwrap_or(u16::MAX));
                for length in lengths {
                    w.u32(*length);
                }
                w.raw(bytes);
            }
            Self::Appended { offset, length } => {
                w.u8(content::APPENDED);
                w.u64(*offset);
                w.u32(*length);
            }
            Self::Held { holding } => {
                w.u8(content::HELD);
                w.u64(*holding);
            }
            Self::InTheWay(held) => {
                w.u8(content::IN_THE_WAY);
                let none = HeldLock {
                    range: LockRange {
                        offset: 0,
                        length: None,
                    },
                    exclusive: false,
                };
                let lock = held.unwrap_or(none);
                w.u8(u8::from(held.is_some())
                    | flag(lock.exclusive, HELD_SOLE)
                    | flag(lock.range.length.is_some(), HELD_LENGTH));
                encode_range(w, &lock.range);
            }
        }
    }

    /// Decodes the fields of a content; `None` for an unknown content.
    pub(crate) fn decode(number: u8, r: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        Ok(Some(match number {
            content::OPENED => Self::Opened {
                handle: r.u32("handle")?,
                created: match r.u8("created")? {
                    created @ (0 | 1) => created == 1,
                    _ => return Err(DecodeError::Invalid("created")),
                },
                run: r.u64("run")?,
                identity: decode_identity(r)?,
                attributes: r.attributes()?,
            },
            content::DATA => {
                let count = usize::from(r.u16("number of extents")?);
                check_most("number of extents", count, EXTENTS_MAX)?;
                let mut lengths = Vec::with_capacity(count.min(r.remaining() / LENGTH_BYTES));
                for _ in 0..count {
                    lengths.push(r.u32("length of an extent")?);
                }
                let total = total(&lengths);
                let total = usize::try_from(total).unwrap_or(usize::MAX);
                check_most("length of data", total, DATA_BYTES_MAX)?;
                let bytes = Arc::new(r.take(total, "data")?.to_vec());
                Self::Data { lengths, bytes }
            }
            content::APPENDED => Self::Appended {
                offset: r.u64("offset")?,
                length: r.u32("length of data")?,
            },
            content::HELD => Self::Held {
                holding: r.u64("holding")?,
            },
            content::IN_THE_WAY => {
                let bits = r.u8("lock")?;
                let length_given = bits & HELD_LENGTH != 0;
                let offset = r.u64("range of a lock")?;
                let length = r.u64("range of a lock")?;
                let is_zero = [offset, length] == [0, 0];
                if bits & !(HELD | HELD_SOLE | HELD_LENGTH) != 0
                    || bits & HELD == 0 && (bits != 0 || !is_zero)
                    || !length_given && length != 0
                {
                    return Err(DecodeError::Invalid("lock"));
                }
                Self::InTheWay((bits & HELD != 0).then_some(HeldLock {
                    range: LockRange {
                        offset,
                        length: length_given.then_some(length),
                    },
                    exclusive: bits & HELD_SOLE != 0,
                }))
            }
            _ => return Ok(None),
        }))
    }
}

/// In the way: there is a lock, it is exclusive, its length is given.
const HELD: u8 = 1 << 0;
const HELD_SOLE: u8 = 1 << 1;
const HELD_LENGTH: u8 = 1 << 2;

fn total(lengths: &[u32]) -> u64 {
    lengths.iter().map(|length| u64::from(*length)).sum()
}

fn encode_extents(w: &mut Writer<'_>, extents: &[Extent]) {
    w.u16(u16::try_from(extents.len()).unwrap_or(u16::MAX));
    for extent in extents {
        w.u64(extent.offset);
        w.u32(extent.length);
    }
}

fn decode_extents(r: &mut Reader<'_>) -> Result<Vec<Extent>, DecodeError> {
    let count = usize::from(r.u16("number of extents")?);
    check_most("number of extents", count, EXTENTS_MAX)?;
    // The peer chooses the count: reserve no more than the available bytes can hold.
    let mut extents = Vec::with_capacity(count.min(r.remaining() / EXTENT_BYTES));
    for _ in 0..count {
        extents.push(Extent {
            offset: r.u64("extent")?,
            length: r.u32("extent")?,
        });
    }
    Ok(extents)
}

fn encode_range(w: &mut Writer<'_>, range: &LockRange) {
    w.u64(range.offset);
    w.u64(range.length.unwrap_or(0));
}

fn decode_range(options: u8, r: &mut Reader<'_>) -> Result<LockRange, DecodeError> {
    Ok(LockRange {
        offset: r.u64("range of a lock")?,
        length: present(
            options,
            LENGTH,
            r.u64("range of a lock")?,
            "range of a lock",
        )?,
    })
}

fn encode_identity(w: &mut Writer<'_>, identity: &FileIdentity) {
    w.u64(identity.device);
    w.u64(identity.inode);
    w.i64(identity.born_ns);
}

fn decode_identity(r: &mut Reader<'_>) -> Result<FileIdentity, DecodeError> {
    Ok(FileIdentity {
        device: r.u64("identity")?,
        inode: r.u64("identity")?,
        born_ns: r.i64("identity")?,
    })
}
