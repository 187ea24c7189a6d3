//! Every call, against the same on a local store.

use std::path::Path;

use xdfs::{Account, Answer, Call, ChecksumKind, Client, Code, Fault};
use xdfs_store::{LocalStore, Store};

use crate::place::{Place, comparable, list, make, rename, stat};

/// What a session with one answers, and what a local store of the same content does.
pub(crate) struct Twins {
    pub(crate) place: Place,
    client: Client,
    local: LocalStore,
    /// The folder of the local store.
    pub(crate) twin: std::path::PathBuf,
}

impl Twins {
    pub(crate) fn new(seed: u64, is_protected: bool, channels: Option<u32>) -> Self {
        let place = Place::new(seed, is_protected);
        let twin = place.folders.here("twin");
        for dir in [&place.folders.root(), &twin] {
            std::fs::create_dir_all(dir.join("a/b")).unwrap();
            std::fs::write(dir.join("f"), "content").unwrap();
            std::fs::write(dir.join("a/g"), vec![7; 100_000]).unwrap();
        }
        let client = place.client(channels);
        let local = LocalStore::rooted(&twin, false).unwrap();
        Self {
            place,
            client,
            local,
            twin,
        }
    }

    /// Makes the call on both sides and compares what is answered.
    #[track_caller]
    pub(crate) fn ask(&self, call: &Call) -> Result<Answer, Fault> {
        let ours = self.client.call(call.clone());
        let mut parts = Vec::new();
        let theirs = self.local.call(call, &mut |part| {
            parts.push(part);
            Ok(())
        });
        match (&ours, theirs) {
            // Their atimes differ, their kinds don't.
            (Ok(Answer::Space { .. }), Ok(Answer::Space { .. })) => {}
            (Ok(ours), Ok(theirs)) => {
                assert!(parts.is_empty(), "the folder is too large for this test");
                assert_eq!(comparable(ours.clone()), comparable(theirs), "{call:?}");
            }
            (Err(ours), Err(theirs)) => {
                assert_eq!(ours.side, xdfs::Side::Remote, "{ours:?}");
                let said = |f: &Fault| (f.code, f.operation.clone(), f.path.clone());
                assert_eq!(said(ours), said(&theirs), "{call:?}");
                assert_eq!((&ours.cause, &ours.hint), (&theirs.cause, &theirs.hint));
            }
            (ours, theirs) => panic!("{call:?}: {ours:?}, and locally {theirs:?}"),
        }
        ours
    }
}

/// Every call once, and each of them once where it fails.
fn every_call() -> Vec<(Call, Option<Code>)> {
    let set_times = |path: &str| Call::SetTimes {
        path: path.into(),
        atime_ns: Some(1_000_000_000),
        mtime_ns: Some(-5_000_000_000),
        follow: true,
    };
    let checksum = |path: &str, length, kind| Call::Checksum {
        path: path.into(),
        offset: 3,
        length,
        kind,
    };
    let copy = |from: &str, to: &str| Call::Copy {
        from: from.into(),
        to: to.into(),
        overwrite: false,
    };
    let owner = |path: &str| Call::SetOwner {
        path: path.into(),
        uid: Some(rustix::process::getuid().as_raw()),
        gid: None,
        follow: false,
    };
    let [b, c, d] = [b"/b", b"/c", b"/d"].map(|path| path.to_vec());
    let truncate = |path: &str| Call::Truncate {
        path: path.into(),
        length: 5,
    };
    let mode = |path: &str| Call::SetMode {
        path: path.into(),
        mode: 0o640,
    };
    let space = |path: &str| Call::Space { path: path.into() };
    let not_found = Some(Code::NotFound);
    let look_up = |path: &str| Call::LookUp {
        path: path.into(),
        accounts: vec![
            Account::User(0),
            Account::GroupNamed("no such group".into()),
            Account::UserNamed("root".into()),
            Account::Group(u32::MAX),
        ],
    };
    vec![
        (stat("/f"), None),
        (stat("/none"), not_found),
        (list("/", 100), None),
        (look_up("/"), None),
        (look_up("/none"), None),
        (list("/", 1), None),
        (list("/f", 1), Some(Code::NotDirectory)),
        (make("/new"), None),
        (make("/new"), Some(Code::AlreadyExists)),
        (copy("/f", "/b"), None),
        (copy("/f", "/b"), Some(Code::AlreadyExists)),
        (rename("/b", "/c"), None),
        (rename("/b", "/c"), not_found),
        (
            Call::Link {
                existing: c.clone(),
                path: d.clone(),
            },
            None,
        ),
        (
            Call::Link {
                existing: b.clone(),
                path: d.clone(),
            },
            not_found,
        ),
        (
            Call::Symlink {
                target: b"a/g".to_vec(),
                path: b.clone(),
            },
            None,
        ),
        (
            Call::Symlink {
                target: b"a/g".to_vec(),
                path: b.clone(),
            },
            Some(Code::AlreadyExists),
        ),
        (Call::ReadLink { path: b }, None),
        (Call::ReadLink { path: c }, Some(Code::InvalidArgument)),
        (mode("/b"), None),
        (mode("/none"), not_found),
        (set_times("/b"), None),
        (set_times("/none"), not_found),
        (owner("/b"), None),
        (owner("/none"), not_found),
        (truncate("/d"), None),
        (truncate("/none"), not_found),
        (space("/a"), None),
        (space("/none"), not_found),
        (checksum("/a/g", None, ChecksumKind::Blake3), None),
        (checksum("/a/g", Some(9), ChecksumKind::Crc64Nvme), None),
        (
            checksum("/a/g", Some(1 << 40), ChecksumKind::Blake3),
            Some(Code::OffsetPastEnd),
        ),
        (stat("/d"), None),
        (Call::RemoveFile { path: d.clone() }, None),
        (Call::RemoveFile { path: d }, not_found),
        (
            Call::RemoveDirectory {
                path: b"/new".to_vec(),
            },
            None,
        ),
        (
            Call::RemoveDirectory {
                path: b"/a".to_vec(),
            },
            Some(Code::NotEmpty),
        ),
        (
            Call::RemoveTree {
                path: b"/a".to_vec(),
            },
            None,
        ),
        (
            Call::RemoveTree {
                path: b"/a".to_vec(),
            },
            not_found,
        ),
        (list("/", 100), None),
    ]
}

#[test]
fn every_call_does_there_what_it_does_here() {
    for (is_protected, channels) in [(false, None), (true, None), (false, Some(4))] {
        let twins = Twins::new(1, is_protected, channels);
        for (call, code) in every_call() {
            let answer = twins.ask(&call);
            let came = answer.err().map(|fault| fault.code);
            assert_eq!(came, code, "{call:?}");
        }
        let escape = twins.client.call(stat("/../x")).unwrap_err();
        assert_eq!(escape.code, Code::PathEscape);
        assert_same_names(&twins.place.folders.root(), &twins.twin);
    }
}

#[track_caller]
fn assert_same_names(a: &Path, b: &Path) {
    let names = |dir: &Path| {
        let mut names: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b));
}

#[test]
fn what_no_frame_may_carry_is_refused_here() {
    let place = Place::new(2, false);
    let client = place.client(None);
    for (call, code) in [
        (stat("/zero\0byte"), Code::InvalidArgument),
        (stat(&"x".repeat(5000)), Code::NameTooLong),
        (list("/", 0), Code::InvalidArgument),
        (
            Call::SetMode {
                path: b"/".to_vec(),
                mode: 0o10000,
            },
            Code::InvalidArgument,
        ),
    ] {
        let fault = client.call(call).unwrap_err();
        assert_eq!((fault.code, fault.side), (code, xdfs::Side::Local));
    }
    client.call(stat("/")).unwrap();
}
