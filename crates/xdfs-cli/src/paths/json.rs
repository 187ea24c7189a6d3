//! The JSON lines of the commands about paths. docs/json.md is their contract.

use serde::Serialize;
use xdfs::{Attributes, Fault, FileKind, OwnerNames};

use crate::json::{self, Digest, Record};

/// A line about paths, except failures.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum PathRecord<'a> {
    Entry(EntryBody<'a>),
    Sum(SumBody<'a>),
    Difference(DifferenceBody),
    Check(CheckBody<'a>),
    Space(SpaceBody<'a>),
    Partial(PartialBody<'a>),
    Usage(UsageBody<'a>),
    Done(DoneBody<'a>),
    Summary(SummaryBody),
}

#[derive(Debug, Serialize)]
pub(crate) struct PathBody {
    path: String,
    path_hex: Option<String>,
}

impl PathBody {
    /// A path as text, and as bytes if it isn't UTF-8.
    pub(crate) fn new(path: &[u8]) -> Self {
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
pub(crate) struct EntryBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathBody,
    kind: &'static str,
    size: u64,
    allocated: u64,
    mode: u32,
    uid: u32,
    gid: u32,
    user: Option<String>,
    group: Option<String>,
    links: u64,
    device: u64,
    inode: u64,
    atime_ns: i64,
    mtime_ns: Option<i64>,
    ctime_ns: i64,
    target: Option<String>,
    target_hex: Option<String>,
}

/// The stable word for a kind.
pub(crate) fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::BlockDevice => "block-device",
        FileKind::CharacterDevice => "character-device",
        FileKind::Other => "other",
    }
}

impl<'a> PathRecord<'a> {
    /// A found entry. `owner` are the names that are known; `target` is that of a symbolic link, if
    /// requested.
    pub(crate) fn entry(
        operand: &'a str,
        path: &[u8],
        attributes: &Attributes,
        owner: &OwnerNames,
        target: Option<&[u8]>,
    ) -> Self {
        Self::Entry(EntryBody {
            operand,
            path: PathBody::new(path),
            kind: kind_word(attributes.kind),
            size: attributes.size,
            allocated: attributes.allocated,
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            user: owner.user.as_deref().map(str::to_owned),
            group: owner.group.as_deref().map(str::to_owned),
            links: attributes.links,
            device: attributes.device,
            inode: attributes.inode,
            atime_ns: attributes.atime_ns,
            mtime_ns: attributes.mtime(),
            ctime_ns: attributes.ctime_ns,
            target: target.map(|target| String::from_utf8_lossy(target).into_owned()),
            target_hex: target.and_then(hex_unless_text),
        })
    }

    /// Success for an operand.
    pub(crate) fn done(operand: &'a str, path: &[u8]) -> Self {
        Self::Done(DoneBody {
            operand,
            path: PathBody::new(path),
        })
    }

    /// The record as a line, with its line end.
    pub(crate) fn line(self) -> String {
        json::line(&self)
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct SumBody<'a> {
    pub(crate) operand: &'a str,
    #[serde(flatten)]
    pub(crate) path: PathBody,
    pub(crate) bytes: u64,
    pub(crate) digest: Digest,
    /// Whether it is the expected one, if one was.
    pub(crate) matches: Option<bool>,
}

#[derive(Debug, Serialize)]
pub(crate) struct DifferenceBody {
    #[serde(flatten)]
    pub(crate) path: PathBody,
    pub(crate) difference: &'static str,
    pub(crate) source_kind: Option<&'static str>,
    pub(crate) target_kind: Option<&'static str>,
    pub(crate) source_size: Option<u64>,
    pub(crate) target_size: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(crate) struct CheckBody<'a> {
    pub(crate) source: &'a str,
    pub(crate) target: &'a str,
    pub(crate) equal: u64,
    pub(crate) equal_bytes: u64,
    pub(crate) differs: u64,
    pub(crate) missing: u64,
    pub(crate) extra: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct SpaceBody<'a> {
    pub(crate) operand: &'a str,
    #[serde(flatten)]
    pub(crate) path: PathBody,
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) available: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct PartialBody<'a> {
    pub(crate) operand: &'a str,
    #[serde(flatten)]
    pub(crate) path: PathBody,
    pub(crate) arrived: u64,
    pub(crate) length: Option<u64>,
    pub(crate) allocated: u64,
    pub(crate) mtime_ns: i64,
}

#[derive(Debug, Serialize)]
pub(crate) struct UsageBody<'a> {
    pub(crate) operand: &'a str,
    #[serde(flatten)]
    pub(crate) path: PathBody,
    pub(crate) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct DoneBody<'a> {
    operand: &'a str,
    #[serde(flatten)]
    path: PathBody,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SummaryBody {
    pub(crate) command: &'static str,
    pub(crate) operands: u64,
    pub(crate) failed: u64,
    pub(crate) exit_code: u8,
}

/// The line of a failure of an operand, or of the command.
pub(crate) fn error_line(operand: Option<&str>, fault: &Fault) -> String {
    Record::operand_error(operand, fault).line()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use xdfs::ChecksumValue;

    use super::*;

    const ATTRIBUTES: Attributes = Attributes {
        kind: FileKind::Symlink,
        size: 1,
        allocated: 2,
        mode: 0o777,
        uid: 3,
        gid: 4,
        links: 5,
        device: 6,
        inode: 7,
        atime_ns: 8,
        mtime_ns: -9,
        ctime_ns: 10,
    };

    fn parse(record: PathRecord<'_>) -> Value {
        let line = record.line();
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1);
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn entry_object() {
        let owner = OwnerNames {
            user: Some("alice".into()),
            group: None,
        };
        assert_eq!(
            parse(PathRecord::entry(
                "u",
                b"/a\xff",
                &ATTRIBUTES,
                &owner,
                Some(b"t\n")
            )),
            json!({
                "schema": 1, "type": "entry", "operand": "u", "path": "/a\u{fffd}",
                "path_hex": "2f61ff", "kind": "symlink", "size": 1, "allocated": 2, "mode": 511,
                "uid": 3, "gid": 4, "user": "alice", "group": null, "links": 5, "device": 6,
                "inode": 7, "atime_ns": 8, "mtime_ns": -9, "ctime_ns": 10, "target": "t\n",
                "target_hex": null
            })
        );
        let text = parse(PathRecord::entry("u", b"/a\n", &ATTRIBUTES, &owner, None));
        assert_eq!(
            (&text["path"], &text["path_hex"]),
            (&json!("/a\n"), &Value::Null)
        );
    }

    /// The document names every field of every object, so that neither drifts from the other.
    #[test]
    fn the_document_names_every_field() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
        let document = std::fs::read_to_string(path).unwrap();
        let body = || PathBody::new(b"/");
        let summary = SummaryBody {
            command: "ls",
            operands: 1,
            failed: 0,
            exit_code: 0,
        };
        let all = [
            PathRecord::entry("", b"/", &ATTRIBUTES, &OwnerNames::default(), None),
            PathRecord::Sum(SumBody {
                operand: "",
                path: body(),
                bytes: 0,
                digest: Digest::of_checksum(&ChecksumValue::Crc64Nvme(1)),
                matches: None,
            }),
            PathRecord::Difference(DifferenceBody {
                path: body(),
                difference: "differs",
                source_kind: None,
                target_kind: None,
                source_size: None,
                target_size: None,
            }),
            PathRecord::Check(CheckBody {
                source: "",
                target: "",
                equal: 0,
                equal_bytes: 0,
                differs: 0,
                missing: 0,
                extra: 0,
            }),
            PathRecord::Space(SpaceBody {
                operand: "",
                path: body(),
                total: 0,
                free: 0,
                available: 0,
                files: 0,
                files_free: 0,
            }),
            PathRecord::Partial(PartialBody {
                operand: "",
                path: body(),
                arrived: 0,
                length: None,
                allocated: 0,
                mtime_ns: 0,
            }),
            PathRecord::Usage(UsageBody {
                operand: "",
                path: body(),
                bytes: 0,
            }),
            PathRecord::done("", b"/"),
            PathRecord::Summary(summary),
        ];
        for record in all {
            let object = parse(record);
            let kind = object["type"].as_str().unwrap();
            let section = document
                .split("\n## ")
                .find(|section| section.starts_with(&format!("`{kind}`")))
                .unwrap_or_else(|| panic!("docs/json.md has no section `{kind}`"));
            for field in object.as_object().unwrap().keys() {
                let common = ["schema", "type"].contains(&field.as_str());
                let row = format!("| `{field}` |");
                assert!(common || section.contains(&row), "{kind}.{field}");
            }
        }
    }
}
