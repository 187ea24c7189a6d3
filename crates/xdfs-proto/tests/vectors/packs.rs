//! Samples of whole packs, and packs that have to be refused.

use serde_json::{Value, json};
use xdfs_proto::pack::{Content, Entry, Metadata, Owner, PackReader, PackWriter};
use xdfs_proto::wire::DecodeError;
use xdfs_proto::{Code, Fault, Limits, Retry};

use crate::{describe, hex, unhex, vector};

pub(crate) const ABOUT: &str = "Whole packs, the bytes of one file each; see \
                                docs/protocol/packs.md. Numbers of 64 bits are decimal strings, \
                                byte strings are hex.";

fn entry<'a>(path: &'a [u8], content: Content<'a>) -> Entry<'a> {
    Entry {
        path,
        metadata: Metadata::default(),
        content,
    }
}

fn with<'a>(metadata: Metadata<'a>, path: &'a [u8], content: Content<'a>) -> Entry<'a> {
    Entry {
        metadata,
        ..entry(path, content)
    }
}

fn owner<'a>(names: Option<(&'a [u8], &'a [u8])>) -> Metadata<'a> {
    let (uid, gid) = (1000, u32::MAX);
    Metadata {
        owner: Some(Owner { uid, gid, names }),
        ..Metadata::default()
    }
}

fn failure(code: Code, retry: Retry, cause: &str) -> Fault {
    let fault = Fault::new(code, "open the file", cause).path(b"tree/f");
    fault.hint("look at it").retry(retry).remote()
}

/// The packs, each with a name.
fn samples() -> Vec<(&'static str, Vec<Entry<'static>>)> {
    let times = Metadata {
        mode: Some(0o4755),
        mtime_ns: Some(1_700_000_000_123_456_789),
        atime_ns: Some(-1),
        ..Metadata::default()
    };
    let xattrs = Metadata {
        xattrs: vec![(b"user.empty", b""), (b"user.bytes", b"\0\xff\n")],
        ..Metadata::default()
    };
    let all = Metadata {
        owner: owner(Some((b"alice", b""))).owner,
        xattrs: xattrs.xattrs.clone(),
        ..times.clone()
    };
    let sparse = Metadata {
        sparse: true,
        ..Metadata::default()
    };
    let extremes = Metadata {
        mode: Some(0),
        mtime_ns: Some(i64::MIN),
        atime_ns: Some(i64::MAX),
        ..Metadata::default()
    };
    let directory_mode = Metadata {
        mode: Some(0o755),
        ..Metadata::default()
    };
    vec![
        ("file", vec![entry(b"f", Content::File(b"content"))]),
        ("file-empty", vec![entry(b"f", Content::File(b""))]),
        (
            "file-path-of-any-bytes",
            vec![entry(b"d \n/\xff..", Content::File(b"\0"))],
        ),
        ("directory", vec![entry(b"d/e", Content::Directory)]),
        (
            "directory-of-the-transfer",
            vec![entry(b"", Content::Directory)],
        ),
        (
            "symbolic-link",
            vec![entry(b"d/s", Content::Symlink(b"../../\xff"))],
        ),
        ("named-pipe", vec![entry(b"p", Content::Fifo)]),
        (
            "attributes",
            vec![with(directory_mode.clone(), b"d", Content::Attributes)],
        ),
        (
            "attributes-of-the-directory-of-the-transfer",
            vec![with(extremes, b"", Content::Attributes)],
        ),
        (
            "mode-and-times",
            vec![with(times, b"f", Content::File(b"x"))],
        ),
        ("owner", vec![with(owner(None), b"p", Content::Fifo)]),
        (
            "owner-names",
            vec![with(owner(Some((b"alice", b"staff"))), b"p", Content::Fifo)],
        ),
        (
            "extended-attributes",
            vec![with(xattrs, b"d", Content::Directory)],
        ),
        (
            "all-metadata",
            vec![with(all.clone(), b"f", Content::File(b"content"))],
        ),
        (
            "sparse-file",
            vec![with(sparse.clone(), b"f", Content::File(&[0; 40]))],
        ),
        (
            "sparse-file-empty",
            vec![with(sparse, b"f", Content::File(b""))],
        ),
        (
            "hard-link",
            vec![
                entry(b"d/f", Content::File(b"shared")),
                entry(b"d/again", Content::HardLink(b"d/f")),
            ],
        ),
        ("large", vec![entry(b"f", Content::Large(u64::MAX))]),
        (
            "failed",
            vec![
                entry(
                    b"f",
                    Content::Failed(failure(Code::PermissionDenied, Retry::Never, "no right")),
                ),
                entry(
                    b"g",
                    Content::Failed(failure(Code::Io, Retry::AfterMs(200), "it is being read")),
                ),
            ],
        ),
        (
            "tree",
            vec![
                entry(b"d", Content::Directory),
                with(all, b"d/f", Content::File(b"content")),
                entry(b"d/again", Content::HardLink(b"d/f")),
                entry(b"d/s", Content::Symlink(b"f")),
                entry(b"d/p", Content::Fifo),
                with(directory_mode, b"d", Content::Attributes),
            ],
        ),
    ]
}

fn encode(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    for entry in entries {
        assert!(writer.entry(entry), "there is room");
    }
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

fn decode<'a>(bytes: &'a [u8], limits: &'a Limits) -> Result<Vec<Entry<'a>>, DecodeError> {
    PackReader::new(bytes, limits).collect()
}

fn described(entry: &Entry<'_>) -> Value {
    let Metadata {
        mode,
        mtime_ns,
        atime_ns,
        owner,
        xattrs,
        sparse,
    } = &entry.metadata;
    let mut value = match &entry.content {
        Content::File(bytes) => json!({ "kind": "file", "bytes": hex(bytes) }),
        Content::Directory => json!({ "kind": "directory" }),
        Content::Symlink(to) => json!({ "kind": "symbolic-link", "to": hex(to) }),
        Content::HardLink(to) => json!({ "kind": "hard-link", "to": hex(to) }),
        Content::Fifo => json!({ "kind": "named-pipe" }),
        Content::Attributes => json!({ "kind": "attributes" }),
        Content::Large(size) => json!({ "kind": "large", "size": describe::wide(*size) }),
        Content::Failed(fault) => json!({ "kind": "failed", "fault": describe::fault(fault) }),
        other => panic!("{other:?} has no description"),
    };
    value["path"] = json!(hex(entry.path));
    value["mode"] = json!(mode);
    value["mtime_ns"] = json!(mtime_ns.map(|t| t.to_string()));
    value["atime_ns"] = json!(atime_ns.map(|t| t.to_string()));
    value["owner"] = json!(owner.map(|o| json!({
        "uid": o.uid,
        "gid": o.gid,
        "names": o.names.map(|(user, group)| [hex(user), hex(group)]),
    })));
    let pairs = xattrs.iter().map(|(name, value)| [hex(name), hex(value)]);
    value["xattrs"] = pairs.collect::<Vec<_>>().into();
    value["sparse"] = json!(sparse);
    value
}

pub(crate) fn vectors() -> Vec<Value> {
    let limits = Limits::default();
    let one = |(name, entries): (&str, Vec<Entry<'_>>)| {
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes, &limits).as_ref(), Ok(&entries), "{name}");
        let entries: Vec<Value> = entries.iter().map(described).collect();
        vector(name, &bytes, json!({ "entries": entries }))
    };
    samples().into_iter().map(one).collect()
}

/// An entry by its bytes: kind, flags, path, and what follows.
fn raw(kind: u8, flags: u8, path: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    let length = (path.len() as u16).to_be_bytes();
    [&[kind, flags], &length[..], path, &rest.concat()].concat()
}

/// Packs that are refused as a whole, whatever good entries they begin with.
fn bad() -> Vec<(&'static str, Vec<u8>)> {
    let fifo = |flags, rest: &[&[u8]]| raw(4, flags, b"a", rest);
    let at = |path: &[u8]| raw(4, 0, path, &[]);
    let good = encode(&[entry(b"f", Content::File(b"x"))]);
    let fault = encode(&[entry(
        b"f",
        Content::Failed(failure(Code::Io, Retry::Now, "x")),
    )]);
    // After kind, flags, path and code.
    let retry = crate::negative::damaged(&fault, 7, &[3]);
    let long = vec![b'a'; Limits::default().path_bytes_max + 1];
    let long_name = [&[1, 0][..], &[b'a'; 256]].concat();
    vec![
        ("kind-unknown", raw(8, 0, b"a", &[])),
        (
            "kind-unknown-after-a-file",
            [good.clone(), raw(9, 0, b"a", &[])].concat(),
        ),
        ("flag-unknown", fifo(0x80, &[])),
        ("flag-unknown-of-a-file", raw(0, 0x80, b"a", &[&[0; 4]])),
        ("sparse-named-pipe", fifo(0x40, &[])),
        ("sparse-directory", raw(1, 0x40, b"a", &[])),
        ("sparse-large", raw(6, 0x40, b"a", &[&[0; 8]])),
        ("names-without-owner", fifo(0x10, &[&[0; 4]])),
        ("path-empty", at(b"")),
        ("path-empty-of-a-file", raw(0, 0, b"", &[&[0; 4]])),
        ("path-absolute", at(b"/a")),
        ("path-ends-with-a-slash", at(b"a/")),
        ("path-name-empty", at(b"a//b")),
        ("path-name-dot", at(b"./a")),
        ("path-name-dot-dot", at(b"a/../b")),
        ("path-zero-byte", at(b"a\0b")),
        ("path-too-long", at(&long)),
        ("path-cut", raw(4, 0, b"ab", &[])[..5].to_vec()),
        ("mode-too-large", fifo(0x01, &[&[0x10, 0]])),
        ("mode-cut", fifo(0x01, &[&[0]])),
        ("time-cut", fifo(0x02, &[&[0; 7]])),
        ("owner-cut", fifo(0x08, &[&[0; 7]])),
        (
            "owner-name-too-long",
            fifo(0x18, &[&[0; 8], &long_name, &[0, 0]]),
        ),
        ("attributes-none", fifo(0x20, &[&[0, 0]])),
        ("attributes-too-many", fifo(0x20, &[&[1, 1]])),
        (
            "attribute-name-empty",
            fifo(0x20, &[&[0, 1, 0, 0], &[0; 4]]),
        ),
        (
            "attribute-name-zero-byte",
            fifo(0x20, &[&[0, 1, 0, 1, 0], &[0; 4]]),
        ),
        (
            "attribute-name-too-long",
            fifo(0x20, &[&[0, 1], &long_name, &[0; 4]]),
        ),
        (
            "attribute-value-too-long",
            fifo(0x20, &[&[0, 1, 0, 1, b'a'], &[0, 1, 0, 1]]),
        ),
        (
            "attribute-value-cut",
            fifo(0x20, &[&[0, 1, 0, 1, b'a'], &[0, 0, 0, 2], b"x"]),
        ),
        (
            "file-longer-than-the-pack",
            raw(0, 0, b"a", &[&[0xff; 4], b"x"]),
        ),
        ("file-cut", good[..good.len() - 1].to_vec()),
        ("symbolic-link-empty", raw(2, 0, b"a", &[&[0, 0]])),
        ("symbolic-link-zero-byte", raw(2, 0, b"a", &[&[0, 1, 0]])),
        ("hard-link-empty", raw(3, 0, b"a", &[&[0, 0]])),
        ("hard-link-leads-out", raw(3, 0, b"a", &[&[0, 4], b"../b"])),
        ("hard-link-absolute", raw(3, 0, b"a", &[&[0, 2], b"/b"])),
        ("large-cut", raw(6, 0, b"a", &[&[0; 7]])),
        ("failed-retry-unknown", retry),
        ("failed-cut", fault[..fault.len() - 1].to_vec()),
    ]
}

pub(crate) fn negative() -> Vec<Value> {
    let limits = Limits::default();
    let one = |(name, bytes): (&str, Vec<u8>)| {
        let error = decode(&bytes, &limits).expect_err(name);
        crate::negative::entry(name, &bytes, &error)
    };
    bad().into_iter().map(one).collect()
}

/// What is stored reads as what the file says, and is written as it stands there.
pub(crate) fn check_stored(document: &Value) {
    let limits = Limits::default();
    let items = |list: &str| document[list].as_array().expect("a list").clone();
    let bytes = |v: &Value| unhex(v["hex"].as_str().expect("hex"));
    for stored in items("vectors") {
        let (name, bytes) = (&stored["name"], bytes(&stored));
        let entries = decode(&bytes, &limits).expect("a valid pack");
        let fields: Vec<Value> = entries.iter().map(described).collect();
        assert_eq!(stored["fields"]["entries"], json!(fields), "{name}");
        assert_eq!(hex(&encode(&entries)), hex(&bytes), "{name}");
    }
    for stored in items("negative") {
        let (name, bytes) = (&stored["name"], bytes(&stored));
        let error = decode(&bytes, &limits).expect_err("a bad pack");
        assert_eq!(stored["code"], error.fault().code.as_str(), "{name}");
    }
}

/// Every kind of entry and every flag stands in some vector.
pub(crate) fn check_complete(document: &Value) {
    let text = document["vectors"].to_string();
    let kinds = [
        "file",
        "directory",
        "symbolic-link",
        "hard-link",
        "named-pipe",
        "attributes",
        "large",
        "failed",
    ];
    for kind in kinds {
        assert!(text.contains(&format!("\"kind\":\"{kind}\"")), "{kind}");
    }
    let vectors = document["vectors"].as_array().expect("a list");
    // Those of one entry have the flags in their second byte.
    let flags = vectors
        .iter()
        .map(|v| unhex(v["hex"].as_str().expect("hex"))[1]);
    assert_eq!(flags.fold(0, |all, one| all | one), 0x7f);
}
