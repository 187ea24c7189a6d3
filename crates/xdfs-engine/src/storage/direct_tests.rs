//! Writes of other threads: at the same time, and all of them before what relies on them.

use std::sync::{Condvar, Mutex};

use xdfs_store::{Capabilities, DirectWriter};
use xdfs_sys::poll::Poller;

use super::tests::finish;
use super::*;
use crate::environment::System;
use crate::memory::Account;
use crate::pool::BufferPool;

const PIECE: usize = 2 << 20;
const FILE: FileId = FileId(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Begun(u64),
    Ended(u64),
    Synced,
    Recorded,
    Published,
    Closed,
}

/// What happened, and a gate for the writes.
#[derive(Debug, Default)]
struct Scene {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    /// Writes end when so many have begun.
    together: usize,
    /// The write at this offset fails.
    failing: Option<u64>,
    /// An event that has to wait for the end of the other writes.
    early: Option<Event>,
}

impl Scene {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    fn begun(events: &[Event]) -> usize {
        let is_begun = |event: &&Event| matches!(event, Event::Begun(_));
        events.iter().filter(is_begun).count()
    }

    /// The place of an event in the order of all.
    fn at(&self, event: Event) -> usize {
        let events = self.events.lock().unwrap();
        let found = events.iter().position(|other| *other == event);
        found.unwrap_or_else(|| panic!("{event:?} isn't in {events:?}"))
    }
}

impl DirectWriter for Scene {
    fn write_at(&self, offset: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.note(Event::Begun(offset));
        let events = self.events.lock().unwrap();
        let too_few = |events: &mut Vec<Event>| Self::begun(events) < self.together;
        let limit = Duration::from_secs(30);
        let (events, waited) = self
            .changed
            .wait_timeout_while(events, limit, too_few)
            .unwrap();
        assert!(!waited.timed_out(), "the writes are not under way together");
        // What must not happen before its end gets time to happen.
        if let Some(early) = self.early.filter(|_| self.failing != Some(offset)) {
            let is_missing = |events: &mut Vec<Event>| !events.contains(&early);
            let limit = Duration::from_millis(300);
            let waited = self.changed.wait_timeout_while(events, limit, is_missing);
            drop(waited.unwrap());
        } else {
            drop(events);
        }
        self.note(Event::Ended(offset));
        match self.failing == Some(offset) {
            true => Err(Fault::new(Code::NoSpace, "write", "on purpose")),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct DirectSink(Arc<Scene>);

impl Sink for DirectSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, _: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        panic!("all writes are those of other threads");
    }

    fn begin_direct(&mut self, _: ByteRange) -> Result<Option<Arc<dyn DirectWriter>>, Fault> {
        Ok(Some(Arc::clone(&self.0) as Arc<_>))
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.0.note(Event::Synced);
        Ok(())
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        self.0.note(Event::Recorded);
        Ok(())
    }

    fn publish(&mut self, _: u64, _: &[Fragment]) -> Result<(), Fault> {
        self.0.note(Event::Published);
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Sink: end_direct, hole, begin_write_back, verify, read_back, shared);
}

impl Drop for DirectSink {
    fn drop(&mut self) {
        self.0.note(Event::Closed);
    }
}

/// Has pieces written at these offsets, the first of which is a fragment, and the file published or
/// closed. Returns the result, after all buffers have come back.
fn write(scene: Scene, offsets: &[u64], is_published: bool) -> (Arc<Scene>, SinkCompletion) {
    let poller = Poller::new().unwrap();
    let scene = Arc::new(scene);
    let mut storage = Storage::new(System::shared(), poller.notifier(), None);
    let mut pool = BufferPool::new(PIECE, 0, offsets.len(), 0, Account::unbounded());
    let sink = Box::new(DirectSink(Arc::clone(&scene)));
    storage
        .attach(FILE, sink, DigestKind::None, 0, false)
        .unwrap();
    for &offset in offsets {
        let buffer = pool.make().unwrap();
        let len = PIECE;
        let job = SinkJob::Write {
            file: FILE,
            offset,
            buffer,
            len,
        };
        storage.submit(FILE, job);
    }
    let mut hasher = xdfs_proto::digest::BlockHasher::new(DigestKind::None, false, 0);
    hasher.update(&vec![0; PIECE]);
    let held = SinkJob::Held {
        file: FILE,
        fragment: hasher.finish(FILE).1,
        late: false,
    };
    storage.submit(FILE, held);
    if is_published {
        let length = 100 << 20;
        storage.submit(FILE, SinkJob::Publish { file: FILE, length });
    }
    storage.submit(FILE, SinkJob::Detach(FILE));
    let (mut back, mut result) = (0, None);
    let is_done = xdfs_testkit::wait::until(Duration::from_secs(60), || {
        while let Some(completion) = storage.completion() {
            match completion {
                SinkCompletion::Buffer(_) => back += 1,
                SinkCompletion::Closed(_) if !is_published => {
                    result = Some(completion);
                }
                SinkCompletion::Published { .. } | SinkCompletion::Failed { .. } => {
                    assert!(result.replace(completion).is_none(), "only one result");
                }
                _ => {}
            }
        }
        back == offsets.len() && result.is_some()
    });
    assert!(is_done, "{back} buffers are back, {result:?}");
    finish(&mut storage);
    (scene, result.unwrap())
}

#[test]
fn several_writes_are_under_way_and_all_end_before_the_publication() {
    let offsets = [0, 10 << 20, 20 << 20, 30 << 20];
    let together = offsets.len();
    let (scene, result) = write(
        Scene {
            together,
            ..Scene::default()
        },
        &offsets,
        true,
    );
    assert!(
        matches!(result, SinkCompletion::Published { .. }),
        "{result:?}"
    );
    for offset in offsets {
        assert!(scene.at(Event::Ended(offset)) < scene.at(Event::Published));
    }
}

#[test]
fn a_failed_write_fails_the_file_which_is_closed_after_all_others() {
    let offsets = [0, 10 << 20, 20 << 20, 30 << 20];
    let (scene, result) = write(
        Scene {
            together: 4,
            failing: Some(10 << 20),
            early: Some(Event::Closed),
            ..Scene::default()
        },
        &offsets,
        true,
    );
    match result {
        SinkCompletion::Failed { file, fault } => {
            assert_eq!((file, fault.code), (FILE, Code::NoSpace));
        }
        other => panic!("{other:?}"),
    }
    for offset in offsets {
        assert!(scene.at(Event::Ended(offset)) < scene.at(Event::Closed));
    }
    let events = scene.events.lock().unwrap();
    let relies = [Event::Synced, Event::Recorded, Event::Published];
    assert!(
        !events.iter().any(|event| relies.contains(event)),
        "{events:?}"
    );
}

#[test]
fn what_is_claimed_is_synchronised_after_all_writes() {
    let offsets = [0, 10 << 20, 20 << 20, 30 << 20];
    let scene = Scene {
        together: 4,
        ..Scene::default()
    };
    let (scene, result) = write(scene, &offsets, false);
    assert!(matches!(result, SinkCompletion::Closed(FILE)), "{result:?}");
    for offset in offsets {
        assert!(scene.at(Event::Ended(offset)) < scene.at(Event::Synced));
    }
    assert!(scene.at(Event::Synced) < scene.at(Event::Recorded));
}

/// Data of a damaged block is replaced by that of the block that is sent again.
#[test]
fn a_range_is_written_again_after_the_write_before() {
    let scene = Scene {
        early: Some(Event::Begun(1 << 20)),
        ..Scene::default()
    };
    let (scene, result) = write(scene, &[0, 1 << 20], true);
    assert!(
        matches!(result, SinkCompletion::Published { .. }),
        "{result:?}"
    );
    assert!(scene.at(Event::Ended(0)) < scene.at(Event::Begun(1 << 20)));
}
