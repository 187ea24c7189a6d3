//! Path calls and their answers read back as they were written, and what no frame may carry is
//! found by [`Call::check`] and [`Answer::check`] as well as by the decoder.

use proptest::prelude::*;
use xdfs_proto::digest::{ChecksumKind, ChecksumValue, DigestKind};
use xdfs_proto::frame::{AnswerPart, CallRequest, FRAME_HEADER_BYTES, FrameHeader, Resume, Taken};
use xdfs_proto::group::{Group, Member, Storage};
use xdfs_proto::path::{ACCOUNTS_MAX, Account, Answer, Attributes, Call, Entry, FileKind};
use xdfs_proto::third_party::{
    CopyId, CopyOrder, Delegation, ThirdPartyCall, TreeDelegation, TreeOrder, TreeQuery,
};
use xdfs_proto::wire::DecodeError;
use xdfs_proto::{CallId, Code, Fault, Frame, Limits, Retry};

fn encode(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn decode(bytes: &[u8], limits: &Limits) -> Result<Frame, DecodeError> {
    let (header, body) = bytes.split_first_chunk().expect("a frame header");
    Frame::decode(FrameHeader::decode(*header, limits)?, body, limits)
}

fn id() -> impl Strategy<Value = CallId> {
    (0u16..128, 1u32..).prop_map(|(slot, sequence)| CallId { slot, sequence })
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8..=255, 0..40)
}

fn account() -> impl Strategy<Value = Account> {
    let name = || "[a-z .$\u{e9}-]{1,20}";
    prop_oneof![
        any::<u32>().prop_map(Account::User),
        any::<u32>().prop_map(Account::Group),
        name().prop_map(Account::UserNamed),
        name().prop_map(Account::GroupNamed),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let two = || (path(), path(), any::<bool>());
    let bytes = prop::collection::vec(any::<u8>(), 0..40);
    let kind = prop::sample::select(vec![
        ChecksumKind::Crc64Nvme,
        ChecksumKind::Blake3,
        ChecksumKind::Sha256,
        ChecksumKind::Md5,
    ]);
    let times = (any::<Option<i64>>(), any::<Option<i64>>());
    let owner = (any::<Option<u32>>(), any::<Option<u32>>());
    let length = prop::option::of(0..u64::MAX / 2);
    let read = prop_oneof![
        (path(), any::<bool>()).prop_map(|(path, follow)| Call::Stat { path, follow }),
        (path(), bytes, 1u32..).prop_map(|(path, cursor, entries_max)| Call::List {
            path,
            cursor,
            entries_max
        }),
        path().prop_map(|path| Call::ReadLink { path }),
        path().prop_map(|path| Call::Space { path }),
        (path(), 0..u64::MAX / 2, length, kind).prop_map(|(path, offset, length, kind)| {
            Call::Checksum {
                path,
                offset,
                length,
                kind,
            }
        }),
        (path(), prop::collection::vec(account(), 1..9))
            .prop_map(|(path, accounts)| Call::LookUp { path, accounts }),
        path().prop_map(|path| Call::Group { path }),
    ];
    let names = prop_oneof![
        (path(), prop::option::of(0u32..=0o7777), any::<bool>()).prop_map(
            |(path, mode, parents)| Call::MakeDirectory {
                path,
                mode,
                parents
            }
        ),
        path().prop_map(|path| Call::RemoveFile { path }),
        path().prop_map(|path| Call::RemoveDirectory { path }),
        path().prop_map(|path| Call::RemoveTree { path }),
        two().prop_map(|(from, to, overwrite)| Call::Rename {
            from,
            to,
            overwrite
        }),
        two().prop_map(|(from, to, overwrite)| Call::Copy {
            from,
            to,
            overwrite
        }),
        two().prop_map(|(existing, path, _)| Call::Link { existing, path }),
        two().prop_map(|(target, path, _)| Call::Symlink { target, path }),
    ];
    let values = prop_oneof![
        (path(), 0u32..=0o7777).prop_map(|(path, mode)| Call::SetMode { path, mode }),
        (path(), times, any::<bool>()).prop_map(|(path, (atime_ns, mtime_ns), follow)| {
            Call::SetTimes {
                path,
                atime_ns,
                mtime_ns,
                follow,
            }
        }),
        (path(), owner, any::<bool>()).prop_map(|(path, (uid, gid), follow)| Call::SetOwner {
            path,
            uid,
            gid,
            follow
        }),
        (path(), any::<u64>()).prop_map(|(path, length)| Call::Truncate { path, length }),
    ];
    let third_party = (
        any::<[u8; 16]>(),
        any::<bool>(),
        any::<[u8; 32]>(),
        path(),
        path(),
    );
    let third_party = third_party.prop_map(|(copy, flag, key, here, there)| {
        let copy = CopyId(copy);
        Call::ThirdParty(match here.len() % 6 {
            0 => ThirdPartyCall::Delegate(Box::new(Delegation {
                copy,
                writes: flag,
                holder: key,
                bytes_max: u64::from_be_bytes([key[0]; 8]),
                life_s: 1 + u32::from(key[1]),
                path: here,
            })),
            1 => ThirdPartyCall::Start(Box::new(CopyOrder {
                copy,
                sends: flag,
                detached: !flag,
                overwrite: flag,
                resume: Resume::Trust,
                digest: DigestKind::Blake3,
                channels: key[2].into(),
                rate_bytes_per_s_max: key[3].into(),
                key,
                capability: "x".repeat(usize::from(key[4])),
                addresses: vec!["host:2799".into(); 1 + usize::from(key[5] % 16)],
                name: there.clone(),
                here,
                there,
            })),
            2 => ThirdPartyCall::DelegateTree(Box::new(TreeDelegation {
                copy,
                writes: flag,
                holder: key,
                life_s: 1 + u32::from(key[1]),
                path: here,
            })),
            3 => ThirdPartyCall::StartTree(Box::new(TreeOrder {
                copy,
                synchronises: flag,
                sends: key[6] & 1 == 0,
                detached: !flag,
                keeps_root: key[6] & 2 == 0,
                again: key[6] & 4 == 0,
                channels: key[2].into(),
                key,
                capability: "x".repeat(usize::from(key[4])),
                addresses: vec!["host:2799".into(); 1 + usize::from(key[5] % 16)],
                options: "\u{85}{".repeat(usize::from(key[7])),
                here,
                there,
            })),
            4 => ThirdPartyCall::TreeStatus(TreeQuery {
                copy,
                from: u64::from_be_bytes([key[0]; 8]),
                consent: [None, Some(flag)][usize::from(key[1] & 1)],
            }),
            _ if flag => ThirdPartyCall::Status(copy),
            _ => ThirdPartyCall::Cancel(copy),
        })
    });
    prop_oneof![read, names, values, third_party]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let kind = prop::sample::select(vec![
        FileKind::File,
        FileKind::Directory,
        FileKind::Symlink,
        FileKind::Fifo,
        FileKind::Socket,
        FileKind::BlockDevice,
        FileKind::CharacterDevice,
        FileKind::Other,
    ]);
    let numbers = any::<[u64; 5]>();
    (
        kind,
        0u32..=0o7777,
        any::<[u32; 2]>(),
        numbers,
        any::<[i64; 3]>(),
    )
        .prop_map(|(kind, mode, [uid, gid], numbers, times)| {
            let [size, allocated, links, device, inode] = numbers;
            let [atime_ns, mtime_ns, ctime_ns] = times;
            Attributes {
                kind,
                size,
                allocated,
                mode,
                uid,
                gid,
                links,
                device,
                inode,
                atime_ns,
                mtime_ns,
                ctime_ns,
            }
        })
}

fn entry() -> impl Strategy<Value = Entry> {
    let name = prop::collection::vec(1u8..=255, 1..40).prop_filter("one component", |name| {
        !name.contains(&b'/') && name != b"." && name != b".."
    });
    (name, attributes()).prop_map(|(name, attributes)| Entry { name, attributes })
}

fn fault() -> impl Strategy<Value = Fault> {
    let code = prop::sample::select(Code::ALL.to_vec());
    let path = prop::collection::vec(any::<u8>(), 0..40);
    (code, path, any::<Option<u32>>(), "[a-z ]{0,20}").prop_map(|(code, path, retry, cause)| {
        Fault::new(code, "rename", cause)
            .path(path)
            .retry(retry.map_or(Retry::Never, Retry::AfterMs))
            .remote()
    })
}

fn answer() -> impl Strategy<Value = Frame> {
    let digest = prop_oneof![
        any::<u64>().prop_map(ChecksumValue::Crc64Nvme),
        any::<[u8; 32]>().prop_map(ChecksumValue::Blake3),
        any::<[u8; 32]>().prop_map(ChecksumValue::Sha256),
        any::<[u8; 16]>().prop_map(ChecksumValue::Md5),
    ];
    let whole = prop_oneof![
        Just(Answer::Done),
        attributes().prop_map(Answer::Attributes),
        path().prop_map(Answer::Target),
        any::<[u64; 5]>().prop_map(
            |[total, free, available, files, files_free]| Answer::Space {
                total,
                free,
                available,
                files,
                files_free,
            }
        ),
        (digest, any::<u64>()).prop_map(|(value, length)| Answer::Digest { value, length }),
        any::<u64>().prop_map(|entries| Answer::Removed { entries }),
        any::<u64>().prop_map(|bytes| Answer::Copied { bytes }),
        (2usize..9, "[a-z0-9.:]{0,40}").prop_map(|(count, address)| {
            let member = |number| Member {
                key: [number; 32],
                address: address.clone(),
            };
            Answer::Group(Group {
                storage: Storage::Shared,
                members: (0..).map(member).take(count).collect(),
            })
        }),
        prop::collection::vec(prop::option::of(account()), 1..9).prop_map(Answer::Accounts),
    ];
    let cursor = || prop::collection::vec(any::<u8>(), 1..20);
    let part = (prop::collection::vec(entry(), 1..20), cursor());
    let last = (
        prop::collection::vec(entry(), 0..20),
        prop::option::of(cursor()),
    );
    let placed = prop_oneof![
        whole.prop_map(|answer| (true, true, Ok(answer))),
        part.prop_map(|(entries, cursor)| {
            let cursor = Some(cursor);
            (false, false, Ok(Answer::Entries { entries, cursor }))
        }),
        last.prop_map(|(entries, cursor)| (false, true, Ok(Answer::Entries { entries, cursor }))),
        fault().prop_map(|fault| (false, true, Err(fault))),
    ];
    (id(), any::<u32>(), placed).prop_map(|(id, part, (alone, last, answer))| {
        Frame::Answer(AnswerPart {
            id,
            part: if alone { 0 } else { part },
            last,
            answer,
        })
    })
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (id(), call()).prop_map(|(id, call)| Frame::Xpathm(CallRequest { id, call: Ok(call) })),
        answer(),
        (id(), 1u32.., any::<bool>()).prop_map(|(id, parts, stop)| Frame::Taken(Taken {
            id,
            parts,
            stop
        })),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        cases: 512,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_frame_reads_back_as_written(frame in frame()) {
        let bytes = encode(&frame);
        prop_assert_eq!(decode(&bytes, &Limits::default()), Ok(frame));
    }

    #[test]
    fn a_frame_cut_anywhere_is_refused(frame in frame()) {
        let bytes = encode(&frame);
        let limits = Limits::default();
        let header = FrameHeader::decode(*bytes.first_chunk().unwrap(), &limits).unwrap();
        let body = &bytes[FRAME_HEADER_BYTES..];
        for len in 0..body.len() {
            let result = Frame::decode(header, &body[..len], &limits);
            prop_assert!(matches!(result, Err(DecodeError::Truncated(_))), "{len}: {result:?}");
        }
        let longer = [body, &[0]].concat();
        prop_assert_eq!(Frame::decode(header, &longer, &limits), Err(DecodeError::Trailing(1)));
    }

    #[test]
    fn what_decodes_has_one_encoding(frame in frame(), at in any::<prop::sample::Index>(), to: u8) {
        let mut bytes = encode(&frame);
        // The length alone says nothing of the body here.
        let at = FRAME_HEADER_BYTES + at.index(bytes.len() - FRAME_HEADER_BYTES);
        bytes[at] = to;
        if let Ok(decoded) = decode(&bytes, &Limits::default()) {
            let known = !matches!(&decoded, Frame::Answer(AnswerPart { answer: Err(f), .. })
                if f.code == Code::Internal);
            let again = encode(&decoded);
            prop_assert!(!known || again == bytes);
            prop_assert_eq!(decode(&again, &Limits::default()), Ok(decoded));
        }
    }

    #[test]
    fn what_is_checked_before_is_what_is_refused(call in call(), entry in entry()) {
        // Small limits, so that about half of the values break them.
        let limits = Limits {
            path_bytes_max: 20,
            control_frame_bytes_max: 110,
            ..Limits::default()
        };
        let id = CallId { slot: 0, sequence: 1 };
        let checked = call.check(&limits);
        let header = |bytes: &[u8]| FrameHeader::decode(
            *bytes.first_chunk().unwrap(),
            &Limits::default(),
        ).unwrap();
        let bytes = encode(&Frame::Xpathm(CallRequest { id, call: Ok(call) }));
        let read = Frame::decode(header(&bytes), &bytes[FRAME_HEADER_BYTES..], &limits);
        prop_assert_eq!(read.err().is_some(), checked.is_err());
        let answer = Answer::Entries { entries: vec![entry], cursor: None };
        let checked = answer.check(&limits);
        let size = answer.body_bytes();
        let part = AnswerPart { id, part: 0, last: true, answer: Ok(answer) };
        let bytes = encode(&Frame::Answer(part));
        prop_assert_eq!(size, bytes.len() - FRAME_HEADER_BYTES);
        prop_assert_eq!(decode(&bytes, &limits).is_err(), checked.is_err());
    }
}

#[test]
fn values_that_no_frame_carries_are_refused_when_they_are_encoded_all_the_same() {
    let limits = Limits::default();
    let refused = |call: Call| {
        let id = CallId {
            slot: 0,
            sequence: 1,
        };
        assert!(call.check(&limits).is_err(), "{call:?}");
        let bytes = encode(&Frame::Xpathm(CallRequest { id, call: Ok(call) }));
        assert!(decode(&bytes, &limits).is_err());
    };
    let path = || b"p".to_vec();
    refused(Call::RemoveFile {
        path: vec![b'x'; 70_000],
    });
    refused(Call::RemoveTree {
        path: b"a\0b".to_vec(),
    });
    refused(Call::SetMode {
        path: path(),
        mode: 0o10000,
    });
    refused(Call::SetMode {
        path: path(),
        mode: u32::MAX,
    });
    refused(Call::List {
        path: path(),
        cursor: vec![],
        entries_max: 0,
    });
    refused(Call::Symlink {
        target: vec![0],
        path: path(),
    });
    refused(Call::Checksum {
        path: path(),
        offset: 2,
        length: Some(u64::MAX - 1),
        kind: ChecksumKind::Blake3,
    });
    let look_up = |accounts| Call::LookUp {
        path: path(),
        accounts,
    };
    refused(look_up(vec![]));
    refused(look_up(vec![Account::Group(7); ACCOUNTS_MAX + 1]));
    for name in ["", "a\0", "\u{9b}2J", &"x".repeat(256), &"x".repeat(70_000)] {
        refused(look_up(vec![Account::UserNamed(name.into())]));
        refused(look_up(vec![
            Account::User(0),
            Account::GroupNamed(name.into()),
        ]));
    }
}

#[test]
fn accounts_are_answered_in_their_order_and_kind() {
    use Account::{Group, GroupNamed, User, UserNamed};
    let alice = || UserNamed("alice".into());
    let staff = || GroupNamed("staff".into());
    let call = Call::LookUp {
        path: b"p".to_vec(),
        accounts: vec![User(1), staff(), alice(), Group(2)],
    };
    let answers = |found: &[Option<Account>]| {
        let answer = Answer::Accounts(found.to_vec());
        assert!(
            answer.data_bytes() <= call.answer_data_bytes(),
            "{answer:?}"
        );
        call.is_answered_by(&answer)
    };
    let right = [Some(alice()), Some(Group(0)), Some(User(0)), Some(staff())];
    assert!(answers(&right));
    assert!(answers(&[None, None, None, None]));
    assert!(!answers(&right[..3]));
    assert!(!answers(&[&right[..], &[None]].concat()));
    for (at, wrong) in [
        (0, User(1)),
        (0, staff()),
        (1, User(0)),
        (2, alice()),
        (3, Group(2)),
    ] {
        let mut found = right.clone();
        found[at] = Some(wrong);
        assert!(!answers(&found), "{found:?}");
    }
    assert!(!call.is_answered_by(&Answer::Done));
    let whole = Answer::Accounts(vec![Some(UserNamed("x".repeat(255))); ACCOUNTS_MAX]);
    assert_eq!(whole.check(&Limits::default()), Ok(()));
}

#[test]
fn a_count_of_entries_that_the_body_does_not_hold_costs_nothing() {
    let frame = Frame::Answer(AnswerPart {
        id: CallId {
            slot: 0,
            sequence: 1,
        },
        part: 0,
        last: true,
        answer: Ok(Answer::Entries {
            entries: vec![],
            cursor: None,
        }),
    });
    let mut bytes = encode(&frame);
    let at = bytes.len() - 4;
    bytes[at..].copy_from_slice(&u32::MAX.to_be_bytes());
    let result = decode(&bytes, &Limits::default());
    assert_eq!(result, Err(DecodeError::Truncated("kind of a file")));
}
