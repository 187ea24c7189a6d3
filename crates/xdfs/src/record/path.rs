//! The records of commands about paths.

use serde::Serialize;
use xdfs_proto::ChecksumValue;

use super::digest::Digest;
use crate::paths::{Attributes, FileKind, OwnerNames, PartialFile};

/// A path as text, and as bytes if it isn't UTF-8.
#[derive(Debug, Serialize)]
struct PathText {
    path: String,
    path_hex: Option<String>,
}

impl From<&[u8]> for PathText {
    fn from(path: &[u8]) -> Self {
        Self {
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex: hex_unless_text(path),
        }
    }
}

/// The bytes as lower-case hex, unless they are UTF-8.
fn hex_unless_text(bytes: &[u8]) -> Option<String> {
    std::str::from_utf8(bytes)
        .is_err()
        .then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[derive(Debug, Serialize)]
pub(super) struct EntryBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathText,
    kind: &'static str,
    size: u64,
    allocated: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    user: Option<&'a str>,
    group: Option<&'a str>,
    links: u64,
    device: u64,
    inode: u64,
    atime_ns: i64,
    mtime_ns: Option<i64>,
    ctime_ns: i64,
    target: Option<String>,
    target_hex: Option<String>,
}

impl<'a> EntryBody<'a> {
    pub(super) fn new(
        operand: &'a str,
        path: &[u8],
        attributes: &Attributes,
        owner: &'a OwnerNames,
        target: Option<&[u8]>,
    ) -> Self {
        Self {
            operand,
            path: path.into(),
            kind: attributes.kind.as_str(),
            size: attributes.size,
            allocated: attributes.allocated,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            user: owner.user.as_deref(),
            group: owner.group.as_deref(),
            links: attributes.links,
            device: attributes.device,
            inode: attributes.inode,
            atime_ns: attributes.atime_ns,
            mtime_ns: attributes.mtime(),
            ctime_ns: attributes.ctime_ns,
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
            target_hex: target.and_then(hex_unless_text),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SumBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathText,
    bytes: u64,
    digest: Digest,
    matches: Option<bool>,
}

impl<'a> SumBody<'a> {
    pub(super) fn new(
        operand: &'a str,
        path: &[u8],
        bytes: u64,
        value: &ChecksumValue,
        matches: Option<bool>,
    ) -> Self {
        Self {
            operand,
            path: path.into(),
            bytes,
            digest: value.into(),
            matches,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct DifferenceBody {
    #[serde(flatten)]
    path: PathText,
    difference: &'static str,
    source_kind: Option<&'static str>,
    target_kind: Option<&'static str>,
    source_size: Option<u64>,
    target_size: Option<u64>,
}

impl DifferenceBody {
    pub(super) fn new(
        path: &[u8],
        source: Option<&Attributes>,
        target: Option<&Attributes>,
    ) -> Self {
        let kind = |found: &Attributes| FileKind::as_str(found.kind);
        let size = |found: &Attributes| found.size;
        Self {
            path: path.into(),
            difference: match (source, target) {
                (Some(_), Some(_)) => "differs",
                (Some(_), None) => "missing",
                (None, _) => "extra",
            },
            source_kind: source.map(kind),
            target_kind: target.map(kind),
            source_size: source.map(size),
            target_size: target.map(size),
        }
    }

    pub(super) fn of_file(path: &[u8], size: u64, found: Option<Option<u64>>) -> Self {
        let file = FileKind::File.as_str();
        Self {
            path: path.into(),
            difference: match found {
                Some(_) => "differs",
                None => "missing",
            },
            source_kind: Some(file),
            target_kind: found.flatten().map(|_| file),
            source_size: Some(size),
            target_size: found.flatten(),
        }
    }
}

/// The entries of two trees that were compared, by the outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckCounts {
    /// Entries that are equal.
    pub equal: u64,
    /// Bytes of the files among them.
    pub equal_bytes: u64,
    /// Entries of which the other side has another kind or other content.
    pub differs: u64,
    /// Entries of the source that the target lacks.
    pub missing: u64,
    /// Entries of the target that the source lacks.
    pub extra: u64,
}

impl CheckCounts {
    /// Whether there is any difference.
    #[must_use]
    pub fn is_different(&self) -> bool {
        self.differs + self.missing + self.extra > 0
    }
}

#[derive(Debug, Serialize)]
pub(super) struct CheckBody<'a> {
    pub(super) source: &'a str,
    pub(super) target: &'a str,
    #[serde(flatten)]
    pub(super) counts: CheckCounts,
}

/// The space of a file system, as [`Answer::Space`](crate::Answer::Space) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SpaceCounts {
    /// Total bytes.
    pub total: u64,
    /// Free bytes.
    pub free: u64,
    /// Bytes available to this user.
    pub available: u64,
    /// Maximum number of files, or 0 if there is no such limit.
    pub files: u64,
    /// Number of files that can still be created.
    pub files_free: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct SpaceBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathText,
    #[serde(flatten)]
    counts: SpaceCounts,
}

impl<'a> SpaceBody<'a> {
    pub(super) fn new(operand: &'a str, path: &[u8], counts: SpaceCounts) -> Self {
        Self {
            operand,
            path: path.into(),
            counts,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct PartialBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathText,
    arrived: u64,
    length: Option<u64>,
    allocated: u64,
    mtime_ns: i64,
}

impl<'a> PartialBody<'a> {
    pub(super) fn new(operand: &'a str, path: &[u8], file: &PartialFile) -> Self {
        Self {
            operand,
            path: path.into(),
            arrived: file.arrived,
            length: file.length,
            allocated: file.allocated,
            mtime_ns: file.mtime_ns,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct UsageBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathText,
    bytes: u64,
}

impl<'a> UsageBody<'a> {
    pub(super) fn new(operand: &'a str, path: &[u8], bytes: u64) -> Self {
        Self {
            operand,
            path: path.into(),
            bytes,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct DoneBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathText,
}

impl<'a> DoneBody<'a> {
    pub(super) fn new(operand: &'a str, path: &[u8]) -> Self {
        Self {
            operand,
            path: path.into(),
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SummaryBody {
    pub(super) command: &'static str,
    pub(super) operands: u64,
    pub(super) failed: u64,
    pub(super) exit_code: u8,
}
