//! Fields common to frames of several families.

use super::{DecodeError, FAULT_TEXT_BYTES_MAX, Reader, Writer, check_most};
use crate::attributes::{Attributes, FileKind};
use crate::digest::{ChecksumKind, ChecksumValue, DigestKind, DigestValue, FragmentState};
use crate::fault::{Code, Fault, Retry, Side};
use crate::id::{CALL_SLOTS, CallId, FileId};
use crate::limits::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, MODE_MAX};
use crate::range::ByteRange;

/// `flag` if `set`, else 0.
pub(crate) fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

/// The value of a field that `flags` may declare absent, in which case it must be zero.
pub(crate) fn present<T: Default + PartialEq>(
    flags: u8,
    flag: u8,
    value: T,
    field: &'static str,
) -> Result<Option<T>, DecodeError> {
    if flags & flag != 0 {
        Ok(Some(value))
    } else if value == T::default() {
        Ok(None)
    } else {
        Err(DecodeError::Invalid(field))
    }
}

/// Whether a path has at most `max` bytes, and no zero byte.
pub(crate) fn check_path(path: &[u8], max: usize, field: &'static str) -> Result<(), DecodeError> {
    check_most(field, path.len(), max)?;
    if path.contains(&0) {
        return Err(DecodeError::Invalid(field));
    }
    Ok(())
}

pub(crate) fn check_mode(mode: u32) -> Result<(), DecodeError> {
    if mode > MODE_MAX {
        return Err(DecodeError::Invalid("mode"));
    }
    Ok(())
}

impl DigestKind {
    /// The number on the wire.
    fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Crc64Nvme => 1,
            Self::Blake3 => 2,
        }
    }
}

impl ChecksumKind {
    /// The number on the wire.
    fn number(self) -> u8 {
        match self {
            Self::Crc64Nvme => 1,
            Self::Blake3 => 2,
            Self::Sha256 => 3,
            Self::Md5 => 4,
        }
    }
}

impl Writer<'_> {
    pub(crate) fn file(&mut self, file: FileId) {
        self.u32(file.0);
    }

    pub(crate) fn call_id(&mut self, id: CallId) {
        self.u16(id.slot);
        self.u32(id.sequence);
    }

    pub(crate) fn range(&mut self, range: &ByteRange) {
        self.u64(range.start);
        self.u64(range.end);
    }

    pub(crate) fn digest_kind(&mut self, kind: DigestKind) {
        self.u8(kind.number());
    }

    pub(crate) fn digest(&mut self, digest: &DigestValue) {
        match digest {
            DigestValue::None => self.digest_kind(DigestKind::None),
            DigestValue::Crc64Nvme(crc) => {
                self.digest_kind(DigestKind::Crc64Nvme);
                self.u64(*crc);
            }
            DigestValue::Blake3(hash) => {
                self.digest_kind(DigestKind::Blake3);
                self.raw(hash);
            }
        }
    }

    pub(crate) fn checksum_kind(&mut self, kind: ChecksumKind) {
        self.u8(kind.number());
    }

    pub(crate) fn checksum(&mut self, checksum: &ChecksumValue) {
        self.checksum_kind(checksum.kind());
        match checksum {
            ChecksumValue::Crc64Nvme(crc) => self.u64(*crc),
            ChecksumValue::Blake3(hash) | ChecksumValue::Sha256(hash) => self.raw(hash),
            ChecksumValue::Md5(hash) => self.raw(hash),
        }
    }

    /// The state of a digest, for a range that starts at `start`; the kind isn't included.
    pub(crate) fn digest_state(&mut self, start: u64, state: &FragmentState) {
        match state {
            FragmentState::None => {}
            FragmentState::Crc64Nvme(crc) => self.u64(*crc),
            FragmentState::Blake3 { node, root } => {
                self.raw(node);
                if start == 0 {
                    self.raw(root);
                }
            }
        }
    }

    /// Permission bits in two bytes; a value out of range becomes one that every decoder refuses.
    pub(crate) fn mode(&mut self, mode: u32) {
        self.u16(u16::try_from(mode).unwrap_or(u16::MAX));
    }

    pub(crate) fn attributes(&mut self, a: &Attributes) {
        self.u8(match a.kind {
            FileKind::File => 0,
            FileKind::Directory => 1,
            FileKind::Symlink => 2,
            FileKind::Fifo => 3,
            FileKind::Socket => 4,
            FileKind::BlockDevice => 5,
            FileKind::CharacterDevice => 6,
            FileKind::Other => 7,
        });
        self.mode(a.mode);
        self.u32(a.uid);
        self.u32(a.gid);
        for number in [a.size, a.allocated, a.links, a.device, a.inode] {
            self.u64(number);
        }
        for time in [a.atime_ns, a.mtime_ns, a.ctime_ns] {
            self.i64(time);
        }
    }

    /// The body of a fault. Texts and the path are cut at [`FAULT_TEXT_BYTES_MAX`].
    pub(crate) fn fault(&mut self, fault: &Fault) {
        self.u16(fault.code.number());
        let (retry, milliseconds) = match fault.retry {
            Retry::Never => (0, 0),
            Retry::Now => (1, 0),
            Retry::AfterMs(milliseconds) => (2, milliseconds),
        };
        self.u8(retry);
        self.u32(milliseconds);
        self.text(&fault.operation, FAULT_TEXT_BYTES_MAX);
        self.bytes(&fault.path, FAULT_TEXT_BYTES_MAX);
        self.text(&fault.cause, FAULT_TEXT_BYTES_MAX);
        self.text(&fault.hint, FAULT_TEXT_BYTES_MAX);
    }
}

impl Reader<'_> {
    pub(crate) fn file(&mut self) -> Result<FileId, DecodeError> {
        Ok(FileId(self.u32("file")?))
    }

    pub(crate) fn call_id(&mut self) -> Result<CallId, DecodeError> {
        let slot = self.u16("slot of a call")?;
        if slot >= CALL_SLOTS {
            return Err(DecodeError::Invalid("slot of a call"));
        }
        match self.u32("sequence of a call")? {
            0 => Err(DecodeError::Invalid("sequence of a call")),
            sequence => Ok(CallId { slot, sequence }),
        }
    }

    /// A non-empty range.
    pub(crate) fn range(&mut self) -> Result<ByteRange, DecodeError> {
        let range = ByteRange {
            start: self.u64("start of a range")?,
            end: self.u64("end of a range")?,
        };
        if range.is_empty() {
            Err(DecodeError::Invalid("end of a range"))
        } else {
            Ok(range)
        }
    }

    /// A valid block size of a grid.
    pub(crate) fn block_size(&mut self) -> Result<u32, DecodeError> {
        match self.u32("block size")? {
            size @ BLOCK_SIZE_MIN..=BLOCK_SIZE_MAX if size.is_power_of_two() => Ok(size),
            _ => Err(DecodeError::Invalid("block size")),
        }
    }

    pub(crate) fn digest_kind(&mut self) -> Result<DigestKind, DecodeError> {
        match self.u8("digest kind")? {
            0 => Ok(DigestKind::None),
            1 => Ok(DigestKind::Crc64Nvme),
            2 => Ok(DigestKind::Blake3),
            _ => Err(DecodeError::Invalid("digest kind")),
        }
    }

    pub(crate) fn digest(&mut self) -> Result<DigestValue, DecodeError> {
        Ok(match self.digest_kind()? {
            DigestKind::None => DigestValue::None,
            DigestKind::Crc64Nvme => DigestValue::Crc64Nvme(self.u64("digest")?),
            DigestKind::Blake3 => DigestValue::Blake3(self.array("digest")?),
        })
    }

    pub(crate) fn checksum_kind(&mut self) -> Result<ChecksumKind, DecodeError> {
        match self.u8("digest kind")? {
            1 => Ok(ChecksumKind::Crc64Nvme),
            2 => Ok(ChecksumKind::Blake3),
            3 => Ok(ChecksumKind::Sha256),
            4 => Ok(ChecksumKind::Md5),
            _ => Err(DecodeError::Invalid("digest kind")),
        }
    }

    pub(crate) fn checksum(&mut self) -> Result<ChecksumValue, DecodeError> {
        Ok(match self.checksum_kind()? {
            ChecksumKind::Crc64Nvme => ChecksumValue::Crc64Nvme(self.u64("digest")?),
            ChecksumKind::Blake3 => ChecksumValue::Blake3(self.array("digest")?),
            ChecksumKind::Sha256 => ChecksumValue::Sha256(self.array("digest")?),
            ChecksumKind::Md5 => ChecksumValue::Md5(self.array("digest")?),
        })
    }

    /// The state of a digest of this kind, for a range that starts at `start`.
    pub(crate) fn digest_state(
        &mut self,
        kind: DigestKind,
        start: u64,
    ) -> Result<FragmentState, DecodeError> {
        const FIELD: &str = "digest of a range";
        Ok(match kind {
            DigestKind::None => FragmentState::None,
            DigestKind::Crc64Nvme => FragmentState::Crc64Nvme(self.u64(FIELD)?),
            DigestKind::Blake3 => FragmentState::Blake3 {
                node: self.array(FIELD)?,
                root: if start == 0 {
                    self.array(FIELD)?
                } else {
                    [0; 32]
                },
            },
        })
    }

    /// Permission bits, not validated.
    pub(crate) fn mode(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from(self.u16("mode")?))
    }

    pub(crate) fn attributes(&mut self) -> Result<Attributes, DecodeError> {
        Ok(Attributes {
            kind: match self.u8("kind of a file")? {
                0 => FileKind::File,
                1 => FileKind::Directory,
                2 => FileKind::Symlink,
                3 => FileKind::Fifo,
                4 => FileKind::Socket,
                5 => FileKind::BlockDevice,
                6 => FileKind::CharacterDevice,
                7 => FileKind::Other,
                _ => return Err(DecodeError::Invalid("kind of a file")),
            },
            mode: self.mode()?,
            uid: self.u32("owner")?,
            gid: self.u32("group")?,
            size: self.u64("size")?,
            allocated: self.u64("allocated bytes")?,
            links: self.u64("number of names")?,
            device: self.u64("device")?,
            inode: self.u64("number of a file")?,
            atime_ns: self.i64("time")?,
            mtime_ns: self.i64("time")?,
            ctime_ns: self.i64("time")?,
        })
    }

    /// The body of a fault of the peer.
    pub(crate) fn fault(&mut self) -> Result<Fault, DecodeError> {
        let code = Code::from_number(self.u16("code of a fault")?);
        let retry = match (self.u8("retry of a fault")?, self.u32("retry of a fault")?) {
            (0, 0) => Retry::Never,
            (1, 0) => Retry::Now,
            (2, milliseconds) => Retry::AfterMs(milliseconds),
            _ => return Err(DecodeError::Invalid("retry of a fault")),
        };
        Ok(Fault {
            code,
            side: Side::Remote,
            machine: None,
            retry,
            ends_session: false,
            fails_login: false,
            operation: self.text(FAULT_TEXT_BYTES_MAX, "operation of a fault")?,
            path: self
                .bytes(FAULT_TEXT_BYTES_MAX, "path of a fault")?
                .to_vec(),
            cause: self.text(FAULT_TEXT_BYTES_MAX, "cause of a fault")?,
            hint: self.text(FAULT_TEXT_BYTES_MAX, "hint of a fault")?,
        })
    }
}
