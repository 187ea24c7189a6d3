//! Publications beside the storage thread: several at once, in order with what belongs to their
//! files, and none of them left behind.

use std::fmt;
use std::io;
use std::sync::{Condvar, Mutex};
use std::thread;

use xdfs_store::Capabilities;
use xdfs_sys::poll::Poller;
use xdfs_testkit::wait::until;

use super::*;
use crate::environment::{MakeTask, System};
use crate::memory::Account;
use crate::pool::BufferPool;

/// For hangs alone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for something to happen that must not.
const TEMPTATION: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Begun(u64),
    Published(u64),
    Closed(u64),
}

/// Events of the files, and a gate in their publication.
#[derive(Debug, Default)]
struct Scene {
    events: Mutex<Vec<Event>>,
    changed: Condvar,
    /// Publications wait until so many have begun.
    together: usize,
    /// Publications wait until it is opened.
    is_shut: Mutex<bool>,
    /// The publication of this file fails.
    failing: Option<u64>,
}

impl Scene {
    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    fn has(&self, event: Event) -> bool {
        self.events.lock().unwrap().contains(&event)
    }

    fn begun(&self) -> usize {
        let events = self.events.lock().unwrap();
        let is_begun = |event: &&Event| matches!(event, Event::Begun(_));
        events.iter().filter(is_begun).count()
    }

    fn shut(self) -> Self {
        *self.is_shut.lock().unwrap() = true;
        self
    }

    fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let passes = || self.begun() >= self.together && !*self.is_shut.lock().unwrap();
        assert!(until(PATIENCE, passes), "{:?}", self.events);
    }
}

#[derive(Debug)]
struct GatedSink {
    scene: Arc<Scene>,
    number: u64,
}

impl Sink for GatedSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, _: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, _: u64, _: &[Fragment]) -> Result<(), Fault> {
        self.scene.note(Event::Begun(self.number));
        self.scene.pass();
        if self.scene.failing == Some(self.number) {
            return Err(Fault::new(Code::NoSpace, "publish", "on purpose"));
        }
        self.scene.note(Event::Published(self.number));
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, read_back,
        shared);
}

impl Drop for GatedSink {
    fn drop(&mut self) {
        self.scene.note(Event::Closed(self.number));
    }
}

/// The storage of a session with files from 1 on, of which nothing is written yet.
struct Stage {
    scene: Arc<Scene>,
    storage: Storage,
    pool: BufferPool,
    _poller: Poller,
}

impl Stage {
    fn new(scene: Scene, files: u64) -> Self {
        Self::within(System::shared(), Arc::new(scene), files)
    }

    fn within(environment: Arc<dyn Environment>, scene: Arc<Scene>, files: u64) -> Self {
        let poller = Poller::new().unwrap();
        let mut stage = Self {
            scene,
            storage: Storage::new(environment, poller.notifier(), None),
            pool: BufferPool::new(1, 0, 64, 0, Account::unbounded()),
            _poller: poller,
        };
        (1..=files).for_each(|number| stage.attach(number));
        stage
    }

    fn attach(&mut self, number: u64) {
        let scene = Arc::clone(&self.scene);
        let sink = Box::new(GatedSink { scene, number });
        let attached = self
            .storage
            .attach(file(number), sink, DigestKind::None, 0, false);
        attached.unwrap();
    }

    fn write(&mut self, number: u64) {
        let job = SinkJob::Write {
            file: file(number),
            offset: 0,
            buffer: self.pool.make().unwrap(),
            len: 1,
        };
        self.storage.submit(file(number), job);
    }

    fn publish(&mut self, number: u64) {
        let file = file(number);
        self.storage
            .submit(file, SinkJob::Publish { file, length: 1 });
    }

    fn detach(&mut self, number: u64) {
        self.storage
            .submit(file(number), SinkJob::Detach(file(number)));
    }

    /// The next result.
    fn next(&mut self) -> SinkCompletion {
        let mut next = None;
        let has_come = until(PATIENCE, || {
            next = self.storage.completion();
            next.is_some()
        });
        assert!(has_come, "nothing came: {:?}", self.scene);
        next.unwrap()
    }

    fn wait_for(&self, event: Event) {
        let scene = &self.scene;
        assert!(until(PATIENCE, || scene.has(event)), "{scene:?}");
    }

    fn finish(&mut self) {
        self.storage.finish();
        assert!(until(PATIENCE, || self.storage.has_ended()));
    }
}

fn file(number: u64) -> FileId {
    FileId(u32::try_from(number).unwrap())
}

#[test]
fn several_files_are_published_at_once_while_another_is_written() {
    let scene = Scene {
        together: 4,
        ..Scene::default()
    };
    let mut stage = Stage::new(scene.shut(), 5);
    (1..=4).for_each(|number| stage.publish(number));
    let scene = Arc::clone(&stage.scene);
    assert!(until(PATIENCE, || scene.begun() == 4), "{scene:?}");
    stage.write(5);
    let next = stage.next();
    assert!(matches!(next, SinkCompletion::Buffer(_)), "{next:?}");
    scene.open();
    let mut published: Vec<FileId> = (0..4)
        .map(|_| match stage.next() {
            SinkCompletion::Published { file, .. } => file,
            other => panic!("{other:?}"),
        })
        .collect();
    published.sort_unstable();
    assert_eq!(published, [1, 2, 3, 4].map(file));
    stage.finish();
}

/// There are more files than threads.
#[test]
fn each_of_many_files_has_one_result() {
    let mut stage = Stage::new(Scene::default(), 100);
    (1..=100).for_each(|number| stage.publish(number));
    let mut published: Vec<FileId> = (0..100)
        .map(|_| match stage.next() {
            SinkCompletion::Published { file, .. } => file,
            other => panic!("{other:?}"),
        })
        .collect();
    published.sort_unstable();
    let expected: Vec<FileId> = (1..=100).map(file).collect();
    assert_eq!(published, expected);
    stage.finish();
    assert!(stage.storage.completion().is_none());
}

#[test]
fn a_file_that_is_being_published_is_closed_after_its_publication() {
    let mut stage = Stage::new(Scene::default().shut(), 2);
    stage.publish(1);
    stage.wait_for(Event::Begun(1));
    stage.detach(1);
    let mut early = None;
    let _ = until(TEMPTATION, || {
        early = stage.storage.completion();
        early.is_some()
    });
    assert!(early.is_none(), "{early:?}");
    stage.scene.open();
    let next = stage.next();
    assert!(matches!(next, SinkCompletion::Published { .. }), "{next:?}");
    assert!(stage.scene.has(Event::Closed(1)), "{:?}", stage.scene);
    let next = stage.next();
    assert!(
        matches!(next, SinkCompletion::Closed(FileId(1))),
        "{next:?}"
    );
    stage.finish();
}

#[test]
fn a_failed_publication_is_closed_and_leaves_others_alone() {
    let scene = Scene {
        failing: Some(1),
        ..Scene::default()
    };
    let mut stage = Stage::new(scene, 3);
    stage.publish(1);
    match stage.next() {
        SinkCompletion::Failed { file, fault } => {
            assert_eq!((file, fault.code), (FileId(1), Code::NoSpace));
        }
        other => panic!("{other:?}"),
    }
    // The next attempt may begin now.
    assert!(stage.scene.has(Event::Closed(1)), "{:?}", stage.scene);
    stage.detach(1);
    let next = stage.next();
    assert!(
        matches!(next, SinkCompletion::Closed(FileId(1))),
        "{next:?}"
    );
    stage.publish(2);
    let next = stage.next();
    assert!(matches!(next, SinkCompletion::Published { .. }), "{next:?}");
    stage.finish();
}

#[test]
fn the_end_of_a_session_waits_for_its_publications() {
    let mut stage = Stage::new(Scene::default().shut(), 3);
    stage.publish(1);
    stage.publish(2);
    stage.wait_for(Event::Begun(1));
    stage.wait_for(Event::Begun(2));
    stage.storage.finish();
    let thread = stage.storage.worker.clone().unwrap();
    assert!(until(PATIENCE, || thread.has_ended()));
    let is_early = until(TEMPTATION, || stage.storage.has_ended());
    assert!(!is_early, "{:?}", stage.scene);
    stage.scene.open();
    assert!(until(PATIENCE, || stage.storage.has_ended()));
    for number in [1, 2] {
        assert!(stage.scene.has(Event::Published(number)));
        assert!(stage.scene.has(Event::Closed(number)));
    }
}

/// The system, in which something else happens around the storage thread.
struct Outside {
    scene: Arc<Scene>,
    /// No thread can be started that publishes.
    refuses: bool,
    /// The storage thread is so slow that a file may be published before its next step.
    is_slow: bool,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

impl Environment for Outside {
    fn now(&self) -> Instant {
        let is_storage = thread::current().name() == Some("xdfs-storage");
        if self.is_slow && is_storage && self.scene.has(Event::Begun(0)) {
            let _ = until(TEMPTATION, || self.scene.has(Event::Closed(1)));
        }
        Instant::now()
    }

    fn start(&self, name: &str, make: MakeTask) -> io::Result<()> {
        if self.refuses && name == "xdfs-publisher" {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        System.start(name, make)
    }

    fn fill_random(&self, bytes: &mut [u8]) -> io::Result<()> {
        System.fill_random(bytes)
    }
}

#[test]
fn what_came_before_a_publication_is_reported_before_it() {
    let scene = Arc::<Scene>::default();
    let outside = Outside {
        scene: Arc::clone(&scene),
        refuses: false,
        is_slow: true,
    };
    let mut stage = Stage::within(Arc::new(outside), scene, 2);
    // From here on the storage thread is slow, so that it finds both jobs in its queue.
    stage.scene.note(Event::Begun(0));
    stage.write(1);
    stage.publish(1);
    let next = stage.next();
    assert!(matches!(next, SinkCompletion::Buffer(_)), "{next:?}");
    let next = stage.next();
    assert!(matches!(next, SinkCompletion::Published { .. }), "{next:?}");
    stage.finish();
}

#[test]
fn without_further_threads_the_storage_thread_publishes() {
    let scene = Arc::<Scene>::default();
    let outside = Outside {
        scene: Arc::clone(&scene),
        refuses: true,
        is_slow: false,
    };
    let mut stage = Stage::within(Arc::new(outside), scene, 3);
    for number in [1, 2, 3] {
        stage.publish(number);
        let next = stage.next();
        assert!(matches!(next, SinkCompletion::Published { .. }), "{next:?}");
        assert!(stage.scene.has(Event::Closed(number)));
    }
    stage.finish();
}
