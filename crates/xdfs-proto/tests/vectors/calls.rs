//! Path calls and their answers: samples, what a decoder finds in them, and damaged ones.

use serde_json::{Value, json};
use xdfs_proto::delta::{Seed, SeedPiece, Signature, Signatures, strong, weak};
use xdfs_proto::digest::{BlockHasher, ChecksumKind, ChecksumValue, DigestKind, FragmentState};
use xdfs_proto::frame::{
    AnswerPart, CallRequest, FRAME_HEADER_BYTES, Frame, Taken, UnknownOperation,
};
use xdfs_proto::group::{Group, MEMBERS_MAX, Member, Storage};
use xdfs_proto::path::{
    ACCOUNT_NAME_BYTES_MAX, ACCOUNTS_MAX, Account, Answer, Attributes, Call, Entry, FileKind,
    PartialFile,
};
use xdfs_proto::{CallId, Code, Fault, FileId, SourceTag};

use crate::describe::{checksum, checksum_kind, fault, kind, wide};
use crate::hex;
use crate::negative::{damaged, resized, sample};

const ID: CallId = CallId {
    slot: 5,
    sequence: 0x0102_0304,
};

pub(crate) fn call(id: CallId, call: &Call) -> Value {
    let time = |t: &Option<i64>| t.map(|t| t.to_string());
    let mut value = match call {
        Call::Stat { follow, .. } => json!({ "call": "stat", "follow": follow }),
        Call::List {
            cursor,
            entries_max,
            ..
        } => json!({ "call": "list", "cursor": hex(cursor), "entries_max": entries_max }),
        Call::MakeDirectory { mode, parents, .. } => {
            json!({ "call": "make-directory", "mode": mode, "parents": parents })
        }
        Call::RemoveFile { .. } => json!({ "call": "remove-file" }),
        Call::RemoveDirectory { .. } => json!({ "call": "remove-directory" }),
        Call::RemoveTree { .. } => json!({ "call": "remove-tree" }),
        Call::Rename { to, overwrite, .. } => {
            json!({ "call": "rename", "to": hex(to), "overwrite": overwrite })
        }
        Call::Copy { to, overwrite, .. } => {
            json!({ "call": "copy", "to": hex(to), "overwrite": overwrite })
        }
        Call::Link { existing, .. } => json!({ "call": "link", "existing": hex(existing) }),
        Call::Symlink { target, .. } => json!({ "call": "symlink", "target": hex(target) }),
        Call::ReadLink { .. } => json!({ "call": "read-link" }),
        Call::SetMode { mode, .. } => json!({ "call": "set-mode", "mode": mode }),
        Call::SetTimes {
            atime_ns,
            mtime_ns,
            follow,
            ..
        } => json!({
            "call": "set-times",
            "atime_ns": time(atime_ns),
            "mtime_ns": time(mtime_ns),
            "follow": follow,
        }),
        Call::SetOwner {
            uid, gid, follow, ..
        } => json!({ "call": "set-owner", "uid": uid, "gid": gid, "follow": follow }),
        Call::Truncate { length, .. } => json!({ "call": "truncate", "length": wide(*length) }),
        Call::Space { .. } => json!({ "call": "space" }),
        Call::Checksum {
            offset,
            length,
            kind,
            ..
        } => json!({
            "call": "checksum",
            "offset": wide(*offset),
            "length": length.map(wide),
            "digest": checksum_kind(*kind),
        }),
        Call::Signatures {
            digest,
            block_bytes,
            first,
            count,
            ..
        } => json!({
            "call": "signatures",
            "digest": kind(*digest),
            "block_size": block_bytes,
            "first": wide(*first),
            "count": count,
        }),
        Call::ListPartial { after, .. } => json!({
            "call": "list-partial",
            "after": hex(after),
        }),
        Call::RemovePartial {
            unchanged_since_ns, ..
        } => json!({
            "call": "remove-partial",
            "unchanged_since_ns": time(unchanged_since_ns),
        }),
        Call::LookUp { accounts, .. } => json!({
            "call": "look-up",
            "accounts": accounts.iter().map(account).collect::<Value>(),
        }),
        Call::SettableOwners { .. } => json!({ "call": "settable-owners" }),
        Call::Group { .. } => json!({ "call": "group" }),
        Call::Seed(seed) => json!({
            "call": "seed",
            "to": hex(&seed.to),
            "overwrite": seed.overwrite,
            "sparse": seed.sparse,
            "tag": hex(&seed.tag.0),
            "length": wide(seed.length),
            "digest": kind(seed.digest),
            "block_size": seed.block_bytes,
            "pieces": seed
                .pieces
                .iter()
                .map(|piece| json!({
                    "offset": wide(piece.offset),
                    "from_offset": wide(piece.from_offset),
                    "length": piece.length,
                    "state": state(piece.offset, &piece.state),
                }))
                .collect::<Value>(),
        }),
        Call::File(call) => crate::files::call(call),
        Call::ThirdParty(call) => crate::third_party::call(call),
        Call::Relay(call) => crate::relay::call(call),
        Call::Stripes(call) => crate::stripes::call(call),
        other => panic!("{other:?} has no description"),
    };
    let has_path = match call {
        Call::File(call) => call.handle().is_none(),
        // They have described their own, or have none.
        Call::ThirdParty(_) | Call::Relay(_) | Call::Stripes(_) => false,
        _ => true,
    };
    if has_path {
        value["path"] = json!(hex(call.path()));
    }
    value["slot"] = json!(id.slot);
    value["sequence"] = json!(id.sequence);
    value
}

fn account(account: &Account) -> Value {
    match account {
        Account::User(number) => json!({ "user": number }),
        Account::Group(number) => json!({ "group": number }),
        Account::UserNamed(name) => json!({ "user_name": name }),
        Account::GroupNamed(name) => json!({ "group_name": name }),
    }
}

pub(crate) fn attributes(a: &Attributes) -> Value {
    json!({
        "kind": match a.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Fifo => "fifo",
            FileKind::Socket => "socket",
            FileKind::BlockDevice => "block-device",
            FileKind::CharacterDevice => "character-device",
            FileKind::Other => "other",
        },
        "size": wide(a.size),
        "allocated": wide(a.allocated),
        "mode": a.mode,
        "uid": a.uid,
        "gid": a.gid,
        "links": wide(a.links),
        "device": wide(a.device),
        "inode": wide(a.inode),
        "atime_ns": a.atime_ns.to_string(),
        "mtime_ns": a.mtime_ns.to_string(),
        "ctime_ns": a.ctime_ns.to_string(),
    })
}

pub(crate) fn answer(id: CallId, part: u32, last: bool, answer: &Result<Answer, Fault>) -> Value {
    let mut value = match answer {
        Err(f) => json!({ "answer": "fault", "fault": fault(f) }),
        Ok(Answer::Done) => json!({ "answer": "done" }),
        Ok(Answer::Attributes(a)) => json!({ "answer": "attributes", "attributes": attributes(a) }),
        Ok(Answer::Entries { entries, cursor }) => json!({
            "answer": "entries",
            "entries": entries
                .iter()
                .map(|e| json!({ "name": hex(&e.name), "attributes": attributes(&e.attributes) }))
                .collect::<Value>(),
            "cursor": cursor.as_deref().map(hex),
        }),
        Ok(Answer::Target(target)) => json!({ "answer": "target", "target": hex(target) }),
        Ok(Answer::Space {
            total,
            free,
            available,
            files,
            files_free,
        }) => json!({
            "answer": "space",
            "total": wide(*total),
            "free": wide(*free),
            "available": wide(*available),
            "files": wide(*files),
            "files_free": wide(*files_free),
        }),
        Ok(Answer::Digest { value, length }) => {
            json!({ "answer": "digest", "digest": checksum(value), "length": wide(*length) })
        }
        Ok(Answer::Removed { entries }) => {
            json!({ "answer": "removed", "entries": wide(*entries) })
        }
        Ok(Answer::Signatures(signatures)) => json!({
            "answer": "signatures",
            "tag": hex(&signatures.tag.0),
            "length": wide(signatures.length),
            "first": wide(signatures.first),
            "digest": kind(signatures.digest),
            "blocks": signatures
                .blocks
                .iter()
                .zip(signatures.first..)
                .map(|(block, number)| json!({
                    "weak": block.weak,
                    "strong": hex(&block.strong),
                    "state": state(number, &block.state),
                }))
                .collect::<Value>(),
        }),
        Ok(Answer::Partial { files, more }) => json!({
            "answer": "partial",
            "more": more,
            "files": files
                .iter()
                .map(|file| json!({
                    "arrived": wide(file.arrived),
                    "length": file.length.map(wide),
                    "allocated": wide(file.allocated),
                    "mtime_ns": file.mtime_ns.to_string(),
                    "name": hex(&file.name),
                }))
                .collect::<Value>(),
        }),
        Ok(Answer::Accounts(accounts)) => {
            let account = |found: &Option<Account>| found.as_ref().map_or(Value::Null, account);
            json!({
                "answer": "accounts",
                "accounts": accounts.iter().map(account).collect::<Value>(),
            })
        }
        Ok(Answer::File(answer)) => crate::files::answer(answer),
        Ok(Answer::Capability(text)) => json!({ "answer": "capability", "capability": text }),
        Ok(Answer::CopyStatus(status)) => crate::third_party::status(status),
        Ok(Answer::TreeStatus(status)) => crate::third_party::tree_status(status),
        Ok(Answer::ParcelStatus(status)) => crate::relay::status(status),
        Ok(Answer::Parcels(list)) => crate::relay::list(list),
        Ok(Answer::Stripes(stripes)) => crate::stripes::answer(stripes),
        Ok(Answer::Group(group)) => json!({
            "answer": "group",
            "storage": match group.storage {
                Storage::Shared => "shared",
            },
            "members": group
                .members
                .iter()
                .map(|member| json!({ "key": hex(&member.key), "address": member.address }))
                .collect::<Value>(),
        }),
        Ok(Answer::Copied { bytes }) => json!({ "answer": "copied", "bytes": wide(*bytes) }),
        Ok(other) => panic!("{other:?} has no description"),
    };
    value["slot"] = json!(id.slot);
    value["sequence"] = json!(id.sequence);
    value["part"] = json!(part);
    value["last"] = json!(last);
    value
}

/// The digest state of a range that starts at `start`, beside its kind.
fn state(start: u64, state: &FragmentState) -> Value {
    match state {
        FragmentState::None => Value::Null,
        FragmentState::Crc64Nvme(crc) => json!(hex(&crc.to_be_bytes())),
        FragmentState::Blake3 { node, root } if start == 0 => {
            json!({ "node": hex(node), "root": hex(root) })
        }
        FragmentState::Blake3 { node, .. } => json!({ "node": hex(node) }),
    }
}

pub(crate) fn samples() -> Vec<(&'static str, Frame)> {
    let mut samples = calls();
    samples.extend(changes());
    samples.extend(answers());
    samples.extend(deltas());
    samples.extend(crate::third_party::samples());
    samples.extend(crate::relay::samples());
    samples.extend(crate::stripes::samples());
    let taken = |parts, stop| {
        Frame::Taken(Taken {
            id: ID,
            parts,
            stop,
        })
    };
    samples.push(("taken", taken(3, false)));
    samples.push(("taken-stop", taken(u32::MAX, true)));
    samples
}

fn unfinished(name: &[u8], length: Option<u64>) -> PartialFile {
    PartialFile {
        name: name.to_vec(),
        arrived: 5 << 30,
        length,
        allocated: (9 << 30) + 4096,
        mtime_ns: -1,
    }
}

fn asks(call: Call) -> Frame {
    Frame::Xpathm(CallRequest {
        id: ID,
        call: Ok(call),
    })
}

fn calls() -> Vec<(&'static str, Frame)> {
    let path = b"data/x.bin".to_vec();
    let stat = |path: &[u8], follow| {
        asks(Call::Stat {
            path: path.to_vec(),
            follow,
        })
    };
    let list = |cursor: &[u8], entries_max| {
        asks(Call::List {
            path: b"data".to_vec(),
            cursor: cursor.to_vec(),
            entries_max,
        })
    };
    let checksum = |offset, length, kind| {
        asks(Call::Checksum {
            path: path.clone(),
            offset,
            length,
            kind,
        })
    };
    let unknown = |number, rest: &[u8]| {
        Frame::Xpathm(CallRequest {
            id: ID,
            call: Err(UnknownOperation {
                number,
                rest: rest.to_vec(),
            }),
        })
    };
    let first = Frame::Xpathm(CallRequest {
        id: CallId {
            slot: 127,
            sequence: 1,
        },
        call: Ok(Call::Space { path: vec![] }),
    });
    let remove_partial = |unchanged_since_ns| {
        asks(Call::RemovePartial {
            path: path.clone(),
            unchanged_since_ns,
        })
    };
    let list_partial = |after: &[u8]| {
        asks(Call::ListPartial {
            path: b"data".to_vec(),
            after: after.to_vec(),
        })
    };
    let look_up = |accounts: &[Account]| {
        asks(Call::LookUp {
            path: b"data".to_vec(),
            accounts: accounts.to_vec(),
        })
    };
    let accounts = [
        Account::User(1000),
        Account::Group(u32::MAX),
        Account::UserNamed("alice".into()),
        Account::GroupNamed("dom\u{e4}ne users".into()),
    ];
    let longest = Account::UserNamed("x".repeat(ACCOUNT_NAME_BYTES_MAX));
    vec![
        ("xpathm-look-up", look_up(&accounts)),
        (
            "xpathm-look-up-most",
            look_up(&vec![Account::User(0); ACCOUNTS_MAX]),
        ),
        ("xpathm-look-up-longest", look_up(&[longest])),
        (
            "xpathm-settable-owners",
            asks(Call::SettableOwners {
                path: b"data".to_vec(),
            }),
        ),
        (
            "xpathm-group",
            asks(Call::Group {
                path: b"data/big.img".to_vec(),
            }),
        ),
        ("xpathm-list-partial", list_partial(b"big.img")),
        ("xpathm-list-partial-start", list_partial(b"")),
        ("xpathm-remove-partial", remove_partial(None)),
        ("xpathm-remove-partial-old", remove_partial(Some(-1))),
        ("xpathm-stat", stat(&path, false)),
        ("xpathm-stat-follow", stat(&[b'/', 0xff], true)),
        ("xpathm-list", list(&[], u32::MAX)),
        ("xpathm-list-from-cursor", list(&[0, 0xff, b'c'], 1)),
        (
            "xpathm-read-link",
            asks(Call::ReadLink { path: path.clone() }),
        ),
        ("xpathm-space-last-slot", first),
        ("xpathm-operation-unknown", unknown(0x7f, &[0, 5, b'p'])),
        ("xpathm-operation-unknown-alone", unknown(0xff, &[])),
        (
            "xpathm-checksum",
            checksum(0, None, ChecksumKind::Crc64Nvme),
        ),
        (
            "xpathm-checksum-of-a-part",
            checksum(4096, Some(u64::MAX - 4096), ChecksumKind::Blake3),
        ),
        (
            "xpathm-checksum-of-nothing",
            checksum(u64::MAX, Some(0), ChecksumKind::Blake3),
        ),
        (
            "xpathm-checksum-sha256",
            checksum(0, None, ChecksumKind::Sha256),
        ),
        ("xpathm-checksum-md5", checksum(0, None, ChecksumKind::Md5)),
    ]
}

fn changes() -> Vec<(&'static str, Frame)> {
    let path = b"data/x.bin".to_vec();
    let to = b"data/y.bin".to_vec();
    let make = |mode, parents| {
        asks(Call::MakeDirectory {
            path: b"a/b".to_vec(),
            mode,
            parents,
        })
    };
    let times = |atime_ns, mtime_ns, follow| {
        asks(Call::SetTimes {
            path: path.clone(),
            atime_ns,
            mtime_ns,
            follow,
        })
    };
    let owner = |uid, gid, follow| {
        asks(Call::SetOwner {
            path: path.clone(),
            uid,
            gid,
            follow,
        })
    };
    let rename = |overwrite| {
        asks(Call::Rename {
            from: path.clone(),
            to: to.clone(),
            overwrite,
        })
    };
    let copy = |overwrite| {
        asks(Call::Copy {
            from: path.clone(),
            to: to.clone(),
            overwrite,
        })
    };
    let link = Call::Link {
        existing: path.clone(),
        path: to.clone(),
    };
    let symlink = Call::Symlink {
        target: b"../elsewhere".to_vec(),
        path: to.clone(),
    };
    let mode = Call::SetMode {
        path: path.clone(),
        mode: 0o7777,
    };
    let truncate = Call::Truncate {
        path: path.clone(),
        length: 5 << 30,
    };
    let remove_file = Call::RemoveFile { path: path.clone() };
    let remove_directory = Call::RemoveDirectory { path: path.clone() };
    let remove_tree = Call::RemoveTree { path: path.clone() };
    vec![
        ("xpathm-make-directory", make(None, false)),
        ("xpathm-make-directories", make(Some(0o2755), true)),
        ("xpathm-make-directory-mode-zero", make(Some(0), false)),
        ("xpathm-remove-file", asks(remove_file)),
        ("xpathm-remove-directory", asks(remove_directory)),
        ("xpathm-remove-tree", asks(remove_tree)),
        ("xpathm-rename", rename(false)),
        ("xpathm-rename-overwrite", rename(true)),
        ("xpathm-copy", copy(false)),
        ("xpathm-copy-overwrite", copy(true)),
        ("xpathm-link", asks(link)),
        ("xpathm-symlink", asks(symlink)),
        ("xpathm-set-mode", asks(mode)),
        ("xpathm-set-times", times(Some(0), Some(-1), true)),
        ("xpathm-set-modification-time", times(None, Some(7), false)),
        ("xpathm-set-owner", owner(Some(1000), Some(0), false)),
        ("xpathm-set-group", owner(None, Some(100), true)),
        ("xpathm-truncate", asks(truncate)),
    ]
}

fn file() -> Attributes {
    Attributes {
        kind: FileKind::File,
        size: 5 << 30,
        allocated: 4096,
        mode: 0o644,
        uid: 1000,
        gid: 100,
        links: 2,
        device: 0x0801,
        inode: 0x0102_0304_0506_0708,
        atime_ns: 1_700_000_000_123_456_789,
        mtime_ns: -1,
        ctime_ns: 0,
    }
}

/// A group of so many members.
fn group(count: usize) -> Group {
    let member = |number: u8| Member {
        key: [number; 32],
        address: match number {
            0 => "one.example:2799".into(),
            1 => "[2001:db8::1]:2799".into(),
            number => format!("192.0.2.{number}:2799"),
        },
    };
    Group {
        storage: Storage::Shared,
        members: (0..).map(member).take(count).collect(),
    }
}

fn answers() -> Vec<(&'static str, Frame)> {
    let part = |part, last, answer| {
        Frame::Answer(AnswerPart {
            id: ID,
            part,
            last,
            answer,
        })
    };
    let whole = |answer| part(0, true, Ok(answer));
    let entry = |name: &[u8], kind| Entry {
        name: name.to_vec(),
        attributes: Attributes { kind, ..file() },
    };
    let entries = |entries: &[Entry], cursor: Option<&[u8]>| Answer::Entries {
        entries: entries.to_vec(),
        cursor: cursor.map(<[u8]>::to_vec),
    };
    let kinds = [
        entry(b"a", FileKind::File),
        entry(&[0xff, b' '], FileKind::Directory),
        entry(b"...", FileKind::Symlink),
        entry(b"d", FileKind::Fifo),
        entry(b"e", FileKind::Socket),
        entry(b"f", FileKind::BlockDevice),
        entry(b"g", FileKind::CharacterDevice),
        entry(b"h", FileKind::Other),
    ];
    let missing = Fault::new(
        Code::NotFound,
        "look at a path",
        "no such file or directory",
    )
    .path("data/x.bin")
    .remote();
    let space = Answer::Space {
        total: 1 << 40,
        free: 1 << 39,
        available: 1 << 38,
        files: 1 << 20,
        files_free: 1 << 19,
    };
    let digest = |value| Answer::Digest { value, length: 9 };
    vec![
        ("answer-done", whole(Answer::Done)),
        ("answer-attributes", whole(Answer::Attributes(file()))),
        (
            "answer-entries-first-part",
            part(0, false, Ok(entries(&kinds, Some(b"h")))),
        ),
        (
            "answer-entries-last-part",
            part(7, true, Ok(entries(&kinds[..1], None))),
        ),
        ("answer-entries-none", whole(entries(&[], None))),
        (
            "answer-entries-as-many-as-asked-for",
            whole(entries(&kinds[..1], Some(&[0, 1]))),
        ),
        ("answer-target", whole(Answer::Target(b"../x".to_vec()))),
        ("answer-space", whole(space)),
        (
            "answer-digest-crc64",
            whole(digest(ChecksumValue::Crc64Nvme(0xae8b_1486_0a79_9888))),
        ),
        (
            "answer-digest-blake3",
            whole(digest(ChecksumValue::Blake3([0xc5; 32]))),
        ),
        (
            "answer-digest-sha256",
            whole(digest(ChecksumValue::Sha256([0x5a; 32]))),
        ),
        (
            "answer-digest-md5",
            whole(digest(ChecksumValue::Md5([0x3c; 16]))),
        ),
        ("answer-group", whole(Answer::Group(group(2)))),
        (
            "answer-group-most",
            whole(Answer::Group(group(MEMBERS_MAX))),
        ),
        ("answer-removed", whole(Answer::Removed { entries: 12 })),
        ("answer-copied", whole(Answer::Copied { bytes: 5 << 30 })),
        (
            "answer-partial",
            whole(Answer::Partial {
                files: vec![
                    unfinished(b"big.img", Some(9 << 30)),
                    unfinished(b"\xff", None),
                ],
                more: true,
            }),
        ),
        (
            "answer-partial-none",
            whole(Answer::Partial {
                files: Vec::new(),
                more: false,
            }),
        ),
        (
            "answer-accounts",
            whole(Answer::Accounts(vec![
                Some(Account::UserNamed("alice".into())),
                None,
                Some(Account::User(1000)),
                Some(Account::Group(0)),
                Some(Account::GroupNamed("domain users".into())),
            ])),
        ),
        (
            "answer-accounts-unknown",
            whole(Answer::Accounts(vec![None])),
        ),
        ("answer-fault", part(0, true, Err(missing.clone()))),
        ("answer-fault-after-parts", part(3, true, Err(missing))),
    ]
}

/// About versions of a file. The sums are those of a file of a block of zeros and 9 bytes more.
fn deltas() -> Vec<(&'static str, Frame)> {
    let path = b"data/x.bin".to_vec();
    let tag = SourceTag([0xa5; 16]);
    let signatures = |digest, first, count| {
        asks(Call::Signatures {
            path: path.clone(),
            digest,
            block_bytes: 1024,
            first,
            count,
        })
    };
    let content = [&[0; 1024][..], b"123456789"].concat();
    let block = |digest, at: usize| {
        let bytes = &content[at..content.len().min(at + 1024)];
        let mut hasher = BlockHasher::new(digest, false, at as u64);
        hasher.update(bytes);
        Signature {
            weak: weak(bytes),
            strong: strong(bytes),
            state: hasher.finish(FileId(0)).1.state,
        }
    };
    let signed = |digest, first: u64, blocks: &[usize]| {
        Frame::Answer(AnswerPart {
            id: ID,
            part: 0,
            last: true,
            answer: Ok(Answer::Signatures(Signatures {
                tag,
                length: 1033,
                first,
                digest,
                blocks: blocks.iter().map(|at| block(digest, *at)).collect(),
            })),
        })
    };
    let seed = |digest, overwrite, pieces: &[(usize, u64)]| {
        asks(Call::Seed(Box::new(Seed {
            from: path.clone(),
            to: b"data/y.bin".to_vec(),
            overwrite,
            sparse: !overwrite,
            tag,
            length: 1033,
            digest,
            block_bytes: 1024,
            pieces: pieces
                .iter()
                .map(|(at, from_offset)| SeedPiece {
                    offset: *at as u64,
                    from_offset: *from_offset,
                    length: if *at == 0 { 1024 } else { 9 },
                    state: block(digest, *at).state,
                })
                .collect(),
        })))
    };
    let longer = |at: usize| {
        let bytes: Vec<u8> = (at..(at + 8192).min(8292))
            .map(|i| (i * 7 + i / 251) as u8)
            .collect();
        let mut hasher = BlockHasher::new(DigestKind::Blake3, false, at as u64);
        hasher.update(&bytes);
        Signature {
            weak: weak(&bytes),
            strong: strong(&bytes),
            state: hasher.finish(FileId(0)).1.state,
        }
    };
    let longer = Frame::Answer(AnswerPart {
        id: ID,
        part: 0,
        last: true,
        answer: Ok(Answer::Signatures(Signatures {
            tag,
            length: 8292,
            first: 0,
            digest: DigestKind::Blake3,
            blocks: vec![longer(0), longer(8192)],
        })),
    });
    let (crc, blake3) = (DigestKind::Crc64Nvme, DigestKind::Blake3);
    vec![
        ("answer-signatures-longer-blocks", longer),
        ("xpathm-signatures", signatures(DigestKind::None, 0, 1024)),
        (
            "xpathm-signatures-last-block",
            signatures(blake3, (1 << 54) - 2, 1),
        ),
        ("answer-signatures", signed(DigestKind::None, 0, &[0, 1024])),
        ("answer-signatures-crc64", signed(crc, 1, &[1024])),
        ("answer-signatures-blake3", signed(blake3, 0, &[0, 1024])),
        ("answer-signatures-none", signed(crc, u64::MAX, &[])),
        (
            "xpathm-seed-crc64",
            seed(crc, true, &[(0, 7), (1024, 1 << 40)]),
        ),
        (
            "xpathm-seed-blake3",
            seed(blake3, false, &[(0, 0), (1024, 5)]),
        ),
    ]
}

/// Frames that have to be refused.
pub(crate) fn negative() -> Vec<(&'static str, Vec<u8>)> {
    let body = FRAME_HEADER_BYTES;
    // The operation, its options and its fields.
    let (number, options, fields) = (body + 6, body + 7, body + 8);
    // The number of the part, the content and its fields.
    let (part, content, rest) = (body + 6, body + 10, body + 11);
    let listing = sample("answer-entries-last-part");
    let entry = rest + 2 + 4;
    // The number of pieces, after tag, length, digest, block size and two paths.
    let seed_count = fields + 16 + 8 + 1 + 4 + 2 * 12;
    let at = |name: &str, at, with: &[u8]| damaged(&sample(name), at, with);
    vec![
        (
            "xpathm-group-option-undefined",
            at("xpathm-group", options, &[1]),
        ),
        (
            "answer-group-storage-undefined",
            at("answer-group", rest, &[1]),
        ),
        ("answer-group-of-one", {
            // Without its second member.
            let cut = resized("answer-group", -(32 + 2 + 18));
            damaged(&cut, rest + 1, &[1])
        }),
        ("answer-group-of-too-many", {
            at("answer-group-most", rest + 1, &[65])
        }),
        (
            "answer-group-key-twice",
            at("answer-group", rest + 2 + 32 + 2 + 16, &[0; 32]),
        ),
        ("xpathm-empty", resized("xpathm-space-last-slot", -10)),
        (
            "xpathm-slot-over-the-last",
            at("xpathm-stat", body, &[0, 128]),
        ),
        ("xpathm-sequence-zero", at("xpathm-stat", body + 2, &[0; 4])),
        ("xpathm-operation-zero", at("xpathm-stat", number, &[0])),
        (
            "xpathm-stat-option-undefined",
            at("xpathm-stat", options, &[2]),
        ),
        (
            "xpathm-remove-option-undefined",
            at("xpathm-remove-file", options, &[1]),
        ),
        ("xpathm-flag-undefined", at("xpathm-stat", 1, &[1])),
        ("xpathm-zero-in-path", at("xpathm-stat", fields + 2, &[0])),
        (
            "xpathm-path-over-the-limit",
            at("xpathm-stat", fields, &[0x10, 0x01]),
        ),
        ("xpathm-path-cut", resized("xpathm-stat", -1)),
        ("xpathm-with-more", resized("xpathm-stat", 1)),
        (
            "xpathm-zero-in-target",
            at("xpathm-symlink", fields + 2, &[0]),
        ),
        (
            "xpathm-zero-in-second-path",
            at("xpathm-rename", fields + 14, &[0]),
        ),
        (
            "xpathm-list-of-no-entries",
            at("xpathm-list", fields, &[0; 4]),
        ),
        (
            "xpathm-list-cursor-over-the-limit",
            at("xpathm-list", fields + 10, &[0x10, 1]),
        ),
        (
            "xpathm-mode-too-large",
            at("xpathm-set-mode", fields, &[0x10, 0]),
        ),
        (
            "xpathm-make-directory-mode-too-large",
            at("xpathm-make-directories", fields, &[0x10]),
        ),
        (
            "xpathm-mode-absent-but-set",
            at("xpathm-make-directory", fields + 1, &[1]),
        ),
        (
            "xpathm-time-absent-but-set",
            at("xpathm-set-modification-time", fields, &[1]),
        ),
        (
            "xpathm-owner-absent-but-set",
            at("xpathm-set-group", fields, &[1]),
        ),
        (
            "xpathm-length-absent-but-set",
            at("xpathm-checksum", fields + 8, &[1]),
        ),
        (
            "xpathm-checksum-past-the-end-of-numbers",
            at("xpathm-checksum-of-a-part", fields, &[1]),
        ),
        (
            "xpathm-checksum-without-digest",
            at("xpathm-checksum", fields + 16, &[0]),
        ),
        (
            "xpathm-checksum-digest-unknown",
            at("xpathm-checksum", fields + 16, &[5]),
        ),
        (
            "answer-slot-over-the-last",
            at("answer-done", body, &[1, 0]),
        ),
        ("answer-sequence-zero", at("answer-done", body + 2, &[0; 4])),
        ("answer-flag-undefined", at("answer-done", 1, &[3])),
        (
            "answer-content-unknown",
            at("answer-done", content, &[0x1f]),
        ),
        ("answer-done-not-last", at("answer-done", 1, &[0])),
        ("answer-done-second-part", at("answer-done", part + 3, &[1])),
        ("answer-fault-not-last", at("answer-fault", 1, &[0])),
        (
            "answer-entries-not-last-without-cursor",
            at("answer-entries-last-part", 1, &[0]),
        ),
        (
            "answer-entries-not-last-and-none",
            at("answer-entries-none", 1, &[0]),
        ),
        (
            "answer-entries-count-more-than-there",
            damaged(&listing, rest + 2, &[0xff; 4]),
        ),
        (
            "answer-entries-count-less-than-there",
            damaged(&listing, rest + 5, &[0]),
        ),
        (
            "answer-entries-cursor-over-the-limit",
            damaged(&listing, rest, &[0x10, 0x01]),
        ),
        (
            "answer-kind-of-file-unknown",
            damaged(&listing, entry, &[8]),
        ),
        (
            "answer-mode-too-large",
            damaged(&listing, entry + 1, &[0x10]),
        ),
        (
            "answer-name-with-a-slash",
            damaged(&listing, listing.len() - 1, b"/"),
        ),
        (
            "answer-name-with-a-zero",
            damaged(&listing, listing.len() - 1, &[0]),
        ),
        (
            "answer-name-dot",
            damaged(&listing, listing.len() - 1, b"."),
        ),
        ("answer-name-two-dots", {
            let long = resized("answer-entries-last-part", 1);
            damaged(&long, long.len() - 4, &[0, 2, b'.', b'.'])
        }),
        ("answer-name-empty", {
            let short = resized("answer-entries-last-part", -1);
            damaged(&short, short.len() - 1, &[0])
        }),
        (
            "answer-attributes-mode-too-large",
            at("answer-attributes", rest + 1, &[0x10]),
        ),
        ("answer-zero-in-target", at("answer-target", rest + 2, &[0])),
        ("answer-digest-none", {
            let short = resized("answer-digest-crc64", -8);
            damaged(&short, short.len() - 1, &[0])
        }),
        ("answer-cut", resized("answer-space", -1)),
        (
            "answer-partial-flag-undefined",
            at("answer-partial", rest, &[2]),
        ),
        (
            "answer-partial-more-of-none",
            at("answer-partial-none", rest, &[1]),
        ),
        (
            "answer-partial-count-more-than-there",
            at("answer-partial", rest + 1, &[0xff; 4]),
        ),
        (
            "answer-partial-length-absent-but-set",
            at("answer-partial", rest + 5, &[0]),
        ),
        (
            "answer-partial-name-with-a-slash",
            at("answer-partial", rest + 5 + 35, b"/"),
        ),
        (
            "xpathm-list-partial-after-a-path",
            at("xpathm-list-partial", fields + 8, b"/"),
        ),
        (
            "xpathm-time-to-remove-absent-but-set",
            at("xpathm-remove-partial", fields, &[1]),
        ),
        (
            "xpathm-look-up-of-none",
            at("xpathm-look-up", fields + 6, &[0, 0]),
        ),
        (
            "xpathm-look-up-too-many",
            at("xpathm-look-up-most", fields + 6, &[0, 129]),
        ),
        (
            "xpathm-look-up-option-undefined",
            at("xpathm-look-up", options, &[1]),
        ),
        (
            "xpathm-settable-owners-option-undefined",
            at("xpathm-settable-owners", options, &[1]),
        ),
        (
            "xpathm-look-up-of-an-unknown",
            damaged(&resized("xpathm-look-up-longest", -257), fields + 8, &[0]),
        ),
        (
            "xpathm-look-up-form-unknown",
            at("xpathm-look-up", fields + 8, &[5]),
        ),
        (
            "xpathm-look-up-name-empty",
            damaged(
                &resized("xpathm-look-up-longest", -255),
                fields + 9,
                &[0, 0],
            ),
        ),
        (
            "xpathm-look-up-name-too-long",
            damaged(&resized("xpathm-look-up-longest", 1), fields + 9, &[1, 0]),
        ),
        (
            "xpathm-look-up-name-control-character",
            at("xpathm-look-up-longest", fields + 11, b"\x1b"),
        ),
        (
            "xpathm-look-up-name-not-utf-8",
            at("xpathm-look-up-longest", fields + 11, &[0xff]),
        ),
        ("xpathm-look-up-cut", resized("xpathm-look-up", -1)),
        ("xpathm-look-up-with-more", resized("xpathm-look-up", 1)),
        (
            "answer-accounts-none",
            damaged(&resized("answer-accounts-unknown", -1), rest, &[0, 0]),
        ),
        ("answer-accounts-too-many", {
            let many = resized("answer-accounts-unknown", 128);
            damaged(&many, rest, &[0, 129])
        }),
        (
            "answer-accounts-form-unknown",
            at("answer-accounts-unknown", rest + 2, &[5]),
        ),
        (
            "answer-accounts-name-control-character",
            at("answer-accounts", rest + 5, b"\n"),
        ),
        (
            "answer-accounts-more-than-there",
            at("answer-accounts", rest, &[0, 6]),
        ),
        ("answer-with-more", resized("answer-space", 1)),
        (
            "answer-fault-control-character",
            at("answer-fault", rest + 9, &[7]),
        ),
        (
            "xpathm-signatures-block-odd",
            at("xpathm-signatures", fields + 4, &[1]),
        ),
        (
            "xpathm-signatures-block-too-small",
            at("xpathm-signatures", fields + 3, &[2]),
        ),
        (
            "xpathm-signatures-block-too-large",
            at("xpathm-signatures", fields + 1, &[2, 0, 0, 0]),
        ),
        (
            "xpathm-signatures-digest-unknown",
            at("xpathm-signatures", fields, &[3]),
        ),
        (
            "xpathm-signatures-of-no-blocks",
            at("xpathm-signatures", fields + 13, &[0; 4]),
        ),
        (
            "xpathm-signatures-too-many",
            at("xpathm-signatures", fields + 13, &[0, 0, 4, 1]),
        ),
        (
            "xpathm-signatures-of-too-many-bytes",
            at("xpathm-signatures", fields + 2, &[2, 0]),
        ),
        (
            "xpathm-signatures-past-the-end-of-numbers",
            at("xpathm-signatures-last-block", fields + 12, &[0xff]),
        ),
        (
            "xpathm-signatures-option-undefined",
            at("xpathm-signatures", options, &[1]),
        ),
        (
            "answer-signatures-too-many",
            at("answer-signatures", rest + 33, &[0, 0, 4, 1]),
        ),
        (
            "answer-signatures-more-than-there",
            at("answer-signatures", rest + 36, &[3]),
        ),
        (
            "answer-signatures-digest-unknown",
            at("answer-signatures", rest + 32, &[3]),
        ),
        (
            "answer-signatures-cut",
            resized("answer-signatures-blake3", -1),
        ),
        (
            "xpathm-seed-without-tag",
            at("xpathm-seed-crc64", fields, &[0; 16]),
        ),
        (
            "xpathm-seed-of-nothing",
            at("xpathm-seed-crc64", fields + 16, &[0; 8]),
        ),
        (
            "xpathm-seed-without-digest",
            at("xpathm-seed-crc64", fields + 24, &[0]),
        ),
        (
            "xpathm-seed-block-odd",
            at("xpathm-seed-crc64", fields + 28, &[1]),
        ),
        (
            "xpathm-seed-zero-in-target",
            at("xpathm-seed-crc64", fields + 43, &[0]),
        ),
        (
            "xpathm-seed-without-pieces",
            damaged(&resized("xpathm-seed-crc64", -56), seed_count, &[0, 0]),
        ),
        (
            "xpathm-seed-too-many-pieces",
            at("xpathm-seed-crc64", seed_count, &[2, 1]),
        ),
        (
            "xpathm-seed-piece-off-the-grid",
            at("xpathm-seed-crc64", seed_count + 2 + 7, &[1]),
        ),
        (
            "xpathm-seed-pieces-out-of-order",
            at("xpathm-seed-crc64", seed_count + 30, &[0; 8]),
        ),
        (
            "xpathm-seed-piece-past-the-end",
            at("xpathm-seed-crc64", seed_count + 30 + 6, &[8]),
        ),
        (
            "xpathm-seed-piece-empty",
            at("xpathm-seed-crc64", seed_count + 2 + 16, &[0; 4]),
        ),
        (
            "xpathm-seed-piece-too-long",
            at("xpathm-seed-crc64", seed_count + 2 + 16, &[1, 0, 4]),
        ),
        (
            "xpathm-seed-piece-past-the-end-of-numbers",
            at("xpathm-seed-crc64", seed_count + 2 + 8, &[0xff; 8]),
        ),
        (
            "xpathm-seed-option-undefined",
            at("xpathm-seed-crc64", options, &[4]),
        ),
        ("taken-nothing", at("taken", body + 6, &[0; 4])),
        ("taken-slot-over-the-last", at("taken", body, &[0, 128])),
        ("taken-flag-undefined", at("taken", 1, &[2])),
        ("taken-cut", resized("taken", -1)),
    ]
}
