//! Open files of two sessions of one server, without any network.

use std::path::Path;

use xdfs_proto::file::HeldLock;
use xdfs_store::LocalStore;

use super::*;

const OWNER: FileOwner = FileOwner([9; 16]);

struct Scene {
    root: tempfile::TempDir,
    store: LocalStore,
    shared: Arc<Files>,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("f"), b"content").unwrap();
        Self {
            store: LocalStore::rooted(root.path(), false).unwrap(),
            root,
            shared: Arc::new(Files::new(crate::environment::System::shared()).unwrap()),
        }
    }

    fn session(&self, user: &str) -> SessionFiles {
        SessionFiles::new(Arc::clone(&self.shared), user)
    }

    fn root(&self) -> &Path {
        self.root.path()
    }
}

fn opening(owner: FileOwner) -> FileCall {
    FileCall::Open {
        path: b"f".to_vec(),
        flags: FileFlags {
            read: true,
            write: true,
            ..FileFlags::default()
        },
        mode: None,
        owner,
        identity: None,
    }
}

fn done(step: CallStep) -> Result<Answer, Fault> {
    match step {
        CallStep::Done(result) => result,
        CallStep::Later => panic!("it waits"),
    }
}

fn handle(answer: Answer) -> u32 {
    match answer {
        Answer::File(FileAnswer::Opened { handle, .. }) => handle,
        other => panic!("{other:?}"),
    }
}

fn lock(handle: u32) -> FileCall {
    FileCall::Lock {
        handle,
        range: LockRange::ALL,
        exclusive: true,
        lease_s: 60,
        wait_ms: 1000,
    }
}

#[test]
fn a_handle_is_given_once_and_ends_with_its_session() {
    let scene = Scene::new();
    let session = scene.session("u");
    let open = |owner| handle(done(session.step(&scene.store, &opening(owner), false)).unwrap());
    let first = open(OWNER);
    let second = open(FileOwner([1; 16]));
    assert_eq!((first, second), (1, 2));
    let close = FileCall::Close { handle: first };
    done(session.step(&scene.store, &close, false)).unwrap();
    let fault = done(session.step(&scene.store, &close, false)).unwrap_err();
    assert_eq!(fault.code, Code::Stale);
    assert_eq!(open(OWNER), 3);
    assert_eq!(scene.shared.open.load(Ordering::Relaxed), 2);
    session.end();
    assert_eq!(scene.shared.open.load(Ordering::Relaxed), 0);
    let late = done(session.step(&scene.store, &opening(OWNER), false)).unwrap_err();
    assert_eq!(late.code, Code::Cancelled);
    assert_eq!(scene.shared.open.load(Ordering::Relaxed), 0);
}

#[test]
fn what_an_owner_had_open_is_closed_before_it_opens_again() {
    let scene = Scene::new();
    let (old, new) = (scene.session("u"), scene.session("u"));
    let was = handle(done(old.step(&scene.store, &opening(OWNER), false)).unwrap());
    let read = |session: &SessionFiles, handle| {
        let extents = vec![Extent {
            offset: 0,
            length: 3,
        }];
        let call = FileCall::Read {
            handle,
            locked: false,
            extents,
        };
        done(session.step(&scene.store, &call, false))
    };
    read(&old, was).unwrap();
    // A call on it is running: the open waits, and no other call begins.
    let open = old.table().open[&was].clone();
    let busy = open.file.read().unwrap();
    let again = opening(OWNER);
    assert!(matches!(
        new.step(&scene.store, &again, true),
        CallStep::Later
    ));
    let fault = done(new.step(&scene.store, &again, false)).unwrap_err();
    assert_eq!((fault.code, fault.retry), (Code::Busy, Retry::Now));
    drop(busy);
    assert_eq!(read(&old, was).unwrap_err().code, Code::Stale);
    let is = handle(done(new.step(&scene.store, &again, true)).unwrap());
    read(&new, is).unwrap();
    assert_eq!(read(&old, was).unwrap_err().code, Code::Stale);
    // Another user is another owner.
    let other = scene.session("v");
    let theirs = handle(done(other.step(&scene.store, &again, true)).unwrap());
    read(&new, is).unwrap();
    read(&other, theirs).unwrap();
}

#[test]
fn a_lock_waits_only_if_it_may() {
    let scene = Scene::new();
    let (a, b) = (scene.session("u"), scene.session("v"));
    let mine = handle(done(a.step(&scene.store, &opening(OWNER), false)).unwrap());
    let theirs = handle(done(b.step(&scene.store, &opening(OWNER), false)).unwrap());
    done(a.step(&scene.store, &lock(mine), true)).unwrap();
    assert!(matches!(
        b.step(&scene.store, &lock(theirs), true),
        CallStep::Later
    ));
    let fault = done(b.step(&scene.store, &lock(theirs), false)).unwrap_err();
    assert_eq!((fault.code, &*fault.path), (Code::Busy, &b"f"[..]));
    assert_eq!(fault.operation, "lock");
    let test = FileCall::TestLock {
        handle: theirs,
        range: LockRange::ALL,
        exclusive: false,
    };
    let held = HeldLock {
        range: LockRange::ALL,
        exclusive: true,
    };
    assert_eq!(
        done(b.step(&scene.store, &test, false)).unwrap(),
        Answer::File(FileAnswer::InTheWay(Some(held)))
    );
    // The end of the session keeps it, and closing doesn't.
    a.end();
    assert!(done(b.step(&scene.store, &lock(theirs), false)).is_err());
    let c = scene.session("u");
    let again = handle(done(c.step(&scene.store, &opening(OWNER), false)).unwrap());
    let close = FileCall::Close { handle: again };
    done(c.step(&scene.store, &close, false)).unwrap();
    done(b.step(&scene.store, &lock(theirs), false)).unwrap();
}

#[test]
fn under_a_lock_means_all_of_it() {
    let scene = Scene::new();
    let session = scene.session("u");
    let handle = handle(done(session.step(&scene.store, &opening(OWNER), false)).unwrap());
    let write = |offset, length: u32| FileCall::Write {
        handle,
        locked: true,
        extents: vec![Extent { offset, length }],
        bytes: Arc::new(vec![b'x'; length as usize]),
    };
    let step = |call: &FileCall| done(session.step(&scene.store, call, false));
    assert_eq!(step(&write(0, 1)).unwrap_err().code, Code::LockLost);
    let part = FileCall::Lock {
        handle,
        range: LockRange {
            offset: 2,
            length: Some(2),
        },
        exclusive: true,
        lease_s: 60,
        wait_ms: 0,
    };
    step(&part).unwrap();
    step(&write(2, 2)).unwrap();
    assert_eq!(step(&write(1, 2)).unwrap_err().code, Code::LockLost);
    let shorten = FileCall::SetLength {
        handle,
        locked: true,
        length: 3,
    };
    assert_eq!(step(&shorten).unwrap_err().code, Code::LockLost);
    let found = std::fs::read(scene.root().join("f")).unwrap();
    assert_eq!(found, b"coxxent");
    step(&lock(handle)).unwrap();
    step(&shorten).unwrap();
}

/// The bytes between the old and the new end become zeros, so they change too.
#[test]
fn growing_needs_a_lock_from_the_old_end_on() {
    let scene = Scene::new();
    let session = scene.session("u");
    let handle = handle(done(session.step(&scene.store, &opening(OWNER), false)).unwrap());
    let step = |call: &FileCall| done(session.step(&scene.store, call, false));
    let from = |offset| FileCall::Lock {
        handle,
        range: LockRange {
            offset,
            length: None,
        },
        exclusive: true,
        lease_s: 60,
        wait_ms: 0,
    };
    let grow = FileCall::SetLength {
        handle,
        locked: true,
        length: 100,
    };
    step(&from(100)).unwrap();
    assert_eq!(step(&grow).unwrap_err().code, Code::LockLost);
    let length = || std::fs::metadata(scene.root().join("f")).unwrap().len();
    assert_eq!(length(), 7);
    step(&from(7)).unwrap();
    step(&grow).unwrap();
    assert_eq!(length(), 100);
}

#[test]
fn a_write_of_several_pieces_needs_a_lock_on_each() {
    let scene = Scene::new();
    let session = scene.session("u");
    let handle = handle(done(session.step(&scene.store, &opening(OWNER), false)).unwrap());
    let step = |call: &FileCall| done(session.step(&scene.store, call, false));
    let lock = |offset| FileCall::Lock {
        handle,
        range: LockRange {
            offset,
            length: Some(2),
        },
        exclusive: true,
        lease_s: 60,
        wait_ms: 0,
    };
    let at = |offset| Extent { offset, length: 2 };
    let write = FileCall::Write {
        handle,
        locked: true,
        extents: vec![at(0), at(4)],
        bytes: Arc::new(b"xxyy".to_vec()),
    };
    step(&lock(0)).unwrap();
    assert_eq!(step(&write).unwrap_err().code, Code::LockLost);
    let found = || std::fs::read(scene.root().join("f")).unwrap();
    assert_eq!(found(), b"content");
    step(&lock(4)).unwrap();
    step(&write).unwrap();
    assert_eq!(found(), b"xxntyyt");
}
