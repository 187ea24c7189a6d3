//! Workers blocked by a store.

use std::thread;

use xdfs_proto::path::Call;
use xdfs_sys::poll::Poller;

use super::*;
use crate::environment::{System, join};

/// Reports the start of a call, and answers once it is released.
#[derive(Debug)]
struct Slow {
    began: Mutex<mpsc::Sender<()>>,
    go: Mutex<mpsc::Receiver<()>>,
    sync_group: Arc<SyncGroup>,
}

impl Store for Slow {
    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match call {
            Call::RemoveTree { .. } => {
                self.began.lock().unwrap().send(()).unwrap();
                let _ = self.go.lock().unwrap().recv();
            }
            Call::RemoveFile { .. } => panic!("on purpose"),
            Call::Sync { .. } => assert!(self.sync_group.is_joined()),
            Call::List { .. } => loop {
                part(Answer::Done)?;
            },
            _ => {}
        }
        Ok(Answer::Done)
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack, write_pack,
        packs_wait, open_file);
}

fn files() -> SessionFiles {
    SessionFiles::new(
        Arc::new(crate::files::Files::new(System::shared()).unwrap()),
        "",
    )
}

struct Scene {
    threads: CallWorkers,
    began: mpsc::Receiver<()>,
    go: mpsc::Sender<()>,
    guard: Arc<Mutex<PeerGuard>>,
    _poller: Poller,
}

fn scene() -> Scene {
    let poller = Poller::new().unwrap();
    let (began_sender, began) = mpsc::channel();
    let (go, go_receiver) = mpsc::channel();
    let guard = Arc::new(Mutex::new(PeerGuard(Box::new(()))));
    let sync_group = Arc::new(SyncGroup::new());
    let store = Arc::new(Slow {
        began: Mutex::new(began_sender),
        go: Mutex::new(go_receiver),
        sync_group: Arc::clone(&sync_group),
    });
    let notifier = poller.notifier();
    Scene {
        threads: CallWorkers::new(
            System::shared(),
            store,
            files(),
            None,
            sync_group,
            None,
            Arc::clone(&guard),
            notifier,
        ),
        began,
        go,
        guard,
        _poller: poller,
    }
}

fn work(sequence: u32, call: Call) -> Work {
    let id = CallId { slot: 0, sequence };
    let parts_max = 3;
    Work {
        id,
        call,
        parts_max,
    }
}

fn space() -> Call {
    Call::Space { path: Vec::new() }
}

fn slow() -> Call {
    Call::RemoveTree { path: Vec::new() }
}

/// The next event, within a bounded time.
fn next(threads: &mut CallWorkers) -> CallProgress {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(done) = threads.completion() {
            return done;
        }
        assert!(Instant::now() < deadline, "nothing came");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_call_that_hangs_holds_up_neither_others_nor_the_end() {
    let mut scene = scene();
    scene.threads.submit(work(1, slow())).unwrap();
    scene.began.recv().unwrap();
    for i in 2..100 {
        scene.threads.submit(work(i, space())).unwrap();
        let CallProgress::Finished { id, answer, .. } = next(&mut scene.threads) else {
            panic!("no end")
        };
        assert_eq!((id.sequence, answer), (i, Ok(Answer::Done)));
    }
    join(&scene.threads.finish());
    drop(scene.threads);
    // The abandoned worker keeps the permit until it is released.
    assert_eq!(Arc::strong_count(&scene.guard), 2);
    scene.go.send(()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while Arc::strong_count(&scene.guard) > 1 {
        assert!(Instant::now() < deadline, "the thread never ended");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_queue_is_bounded_and_a_panic_is_an_answer() {
    let mut scene = scene();
    let mut count = 0;
    while scene.threads.have_room() {
        count += 1;
        scene.threads.submit(work(count, slow())).unwrap();
    }
    assert_eq!(count as usize, JOBS_MAX);
    assert_eq!(scene.threads.workers.len(), THREADS_MAX);
    (0..count).for_each(|_| scene.go.send(()).unwrap());
    for _ in 0..count {
        assert!(matches!(
            next(&mut scene.threads),
            CallProgress::Finished { .. }
        ));
    }
    let panics = Call::RemoveFile { path: Vec::new() };
    scene.threads.submit(work(1000, panics)).unwrap();
    match next(&mut scene.threads) {
        CallProgress::Finished { answer, .. } => {
            assert_eq!(answer.unwrap_err().code, Code::Internal)
        }
        other => panic!("{other:?}"),
    }
    scene.threads.submit(work(1001, space())).unwrap();
    assert!(matches!(
        next(&mut scene.threads),
        CallProgress::Finished { .. }
    ));
}

/// Losses of a session's writes are reported to the session, whichever of its threads asks.
#[test]
fn calls_are_made_by_the_party_of_the_session() {
    let mut scene = scene();
    let sync = Call::Sync { path: Vec::new() };
    scene.threads.submit(work(1, sync)).unwrap();
    match next(&mut scene.threads) {
        CallProgress::Finished { answer, .. } => assert_eq!(answer, Ok(Answer::Done)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_listing_pauses_after_the_parts_it_may_make() {
    let mut scene = scene();
    let list = Call::List {
        path: Vec::new(),
        cursor: Vec::new(),
        entries_max: 9,
    };
    scene.threads.submit(work(1, list)).unwrap();
    for _ in 0..3 {
        assert!(matches!(
            next(&mut scene.threads),
            CallProgress::Part { .. }
        ));
    }
    assert!(matches!(
        next(&mut scene.threads),
        CallProgress::Paused { .. }
    ));
    assert!(scene.threads.completion().is_none());
}

/// A store with a file too large to be read to its end.
#[cfg(unix)]
fn endless() -> (tempfile::TempDir, Arc<dyn Store>) {
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("file")).unwrap();
    file.set_len(8 << 40).unwrap();
    let store = xdfs_store::LocalStore::rooted(folder.path(), false).unwrap();
    (folder, Arc::new(store))
}

#[test]
#[cfg(unix)]
fn a_digest_ends_with_its_session_and_is_paid_for() {
    let (_folder, store) = endless();
    let poller = Poller::new().unwrap();
    let guard = Arc::new(Mutex::new(PeerGuard(Box::new(()))));
    // A byte takes a second.
    let rate = Arc::new(SharedRate::new(1, Instant::now()));
    let mut threads = CallWorkers::new(
        System::shared(),
        store,
        files(),
        None,
        Arc::new(SyncGroup::new()),
        Some(Arc::clone(&rate)),
        Arc::clone(&guard),
        poller.notifier(),
    );
    let sum = Call::Checksum {
        path: b"file".to_vec(),
        offset: 0,
        length: None,
        kind: xdfs_proto::ChecksumKind::Crc64Nvme,
    };
    threads.submit(work(1, sum)).unwrap();
    // It has begun when the queue is empty, and does not end by itself.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !threads.shared.queue().ready.is_empty() {
        assert!(Instant::now() < deadline, "it never began");
        thread::sleep(Duration::from_millis(1));
    }
    join(&threads.finish());
    drop(threads);
    while Arc::strong_count(&guard) > 1 {
        assert!(Instant::now() < deadline, "it went on");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!rate.is_settled(Instant::now()), "it cost nothing");
}
