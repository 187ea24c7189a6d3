//! Panicking sinks, and the order of writes.

use std::sync::Mutex;
use std::thread;

use xdfs_proto::digest::BlockHasher;
use xdfs_store::Capabilities;
use xdfs_sys::poll::Poller;

use super::*;
use crate::environment::{System, join};
use crate::memory::Account;
use crate::pool::BufferPool;

pub(super) fn finish(storage: &mut Storage) {
    storage.finish();
    join(storage.worker.as_slice());
    assert!(storage.has_ended());
}

/// Where a sink panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Write,
    Sync,
    Publish,
    Discard,
    Verify,
    Nowhere,
}

#[derive(Debug)]
struct BrokenSink {
    broken: Broken,
    slow_writes: bool,
    /// Remaining steps of the verification.
    steps: usize,
}

impl BrokenSink {
    fn pass(&self, at: Broken) -> Result<(), Fault> {
        assert_ne!(self.broken, at, "on purpose");
        Ok(())
    }
}

impl Sink for BrokenSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: self.slow_writes,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, _: u64, _: &[IoSlice<'_>]) -> Result<(), Fault> {
        self.pass(Broken::Write)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.pass(Broken::Sync)
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        self.pass(Broken::Verify)?;
        self.steps -= 1;
        let mut hasher = BlockHasher::new(DigestKind::None, false, 0);
        hasher.update(b"x");
        Ok((self.steps == 0).then(|| vec![hasher.finish(FileId(1)).1]))
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, _: u64, _: &[Fragment]) -> Result<(), Fault> {
        self.pass(Broken::Publish)
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.pass(Broken::Discard)
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, read_back,
        shared);
}

fn next(storage: &mut Storage) -> SinkCompletion {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match storage.completion() {
            Some(
                SinkCompletion::Buffer(_)
                | SinkCompletion::Closed(_)
                | SinkCompletion::Recorded { .. },
            ) => {}
            Some(completion) => return completion,
            None => thread::sleep(Duration::from_millis(1)),
        }
        assert!(Instant::now() < deadline, "nothing came");
    }
}

/// In the pipeline's thread and in its own: the file fails, and another one continues.
#[test]
fn a_panic_is_a_fault_of_its_file() {
    let poller = Poller::new().unwrap();
    let mut pool = BufferPool::new(1, 0, 10, 0, Account::unbounded());
    for slow_writes in [false, true] {
        let mut storage = Storage::new(System::shared(), poller.notifier(), None);
        let broken = [
            Broken::Write,
            Broken::Sync,
            Broken::Publish,
            Broken::Discard,
        ];
        for (number, broken) in (1..).zip(broken) {
            let (bad, good) = (FileId(number), FileId(100 + number));
            for (file, broken) in [(bad, broken), (good, Broken::Nowhere)] {
                let sink = Box::new(BrokenSink {
                    broken,
                    slow_writes,
                    steps: 0,
                });
                let kind = DigestKind::None;
                storage.attach(file, sink, kind, 0, false).unwrap();
            }
            let job = match broken {
                Broken::Sync => SinkJob::Detach(bad),
                Broken::Discard => SinkJob::Discard(bad),
                _ => SinkJob::Publish {
                    file: bad,
                    length: 1,
                },
            };
            if broken == Broken::Sync {
                let mut hasher = BlockHasher::new(DigestKind::None, false, 0);
                hasher.update(b"x");
                let fragment = hasher.finish(bad).1;
                let held = SinkJob::Held {
                    file: bad,
                    fragment,
                    late: false,
                };
                storage.submit(bad, held);
            }
            if broken == Broken::Write {
                let write = SinkJob::Write {
                    file: bad,
                    offset: 0,
                    buffer: pool.make().unwrap(),
                    len: 1,
                };
                storage.submit(bad, write);
            }
            storage.submit(bad, job);
            if broken != Broken::Discard {
                match next(&mut storage) {
                    SinkCompletion::Failed { file, fault } => {
                        assert_eq!((file, fault.code), (bad, Code::Internal), "{broken:?}");
                    }
                    other => panic!("{broken:?}: {other:?}"),
                }
            }
            let publish = SinkJob::Publish {
                file: good,
                length: 1,
            };
            storage.submit(good, publish);
            match next(&mut storage) {
                SinkCompletion::Published { file, .. } => assert_eq!(file, good, "{broken:?}"),
                other => panic!("{broken:?}: {other:?}"),
            }
        }
        finish(&mut storage);
    }
}

/// A sink of bytes in memory; a hole fills its range with zeros.
#[derive(Debug)]
struct MemorySink(Arc<Mutex<Vec<u8>>>);

impl MemorySink {
    fn put(&self, offset: u64, bytes: &[u8]) {
        let at = usize::try_from(offset).unwrap();
        self.0.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Sink for MemorySink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: false,
            durable: false,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
        self.put(offset, &bytes);
        Ok(())
    }

    fn hole(&mut self, range: ByteRange) {
        self.put(range.start, &vec![0; usize::try_from(range.len()).unwrap()]);
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, _: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, _: u64, _: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn discard(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, begin_write_back, verify, read_back,
        shared);
}

/// Data of a damaged block is replaced by the resent block, wherever the damaged one began. Both
/// are gathered, as with a disk slower than the network.
#[test]
fn later_data_wins() {
    for is_hole in [false, true] {
        let mut pool = BufferPool::new(8, 0, 10, 0, Account::unbounded());
        let mut worker = Writer::new(System::shared());
        let bytes = Arc::new(Mutex::new(vec![b'-'; 12]));
        let file = FileId(1);
        worker.handle(SinkJob::Attach {
            file,
            sink: Box::new(MemorySink(Arc::clone(&bytes))),
            kind: DigestKind::None,
            resumed: 0,
            unverified: false,
        });
        let mut write = |offset, text: &[u8]| {
            let mut buffer = pool.make().unwrap();
            buffer[..text.len()].copy_from_slice(text);
            SinkJob::Write {
                file,
                offset,
                buffer,
                len: text.len(),
            }
        };
        worker.handle(write(4, b"damaged."));
        assert_eq!(**bytes.lock().unwrap(), [b'-'; 12], "it was to wait");
        let again = if is_hole {
            SinkJob::Hole {
                file,
                range: ByteRange { start: 2, end: 10 },
                fragments: Vec::new(),
                late: false,
            }
        } else {
            write(2, b"correct.")
        };
        worker.handle(again);
        worker.handle(SinkJob::Publish { file, length: 12 });
        let last = worker.done.pop_back();
        assert!(matches!(last, Some(SinkCompletion::Published { .. })));
        let expected: &[u8; 12] = match is_hole {
            true => b"--\0\0\0\0\0\0\0\0d.",
            false => b"--correct.d.",
        };
        assert_eq!(**bytes.lock().unwrap(), *expected);
    }
}

fn unverified(broken: Broken, steps: usize) -> Box<dyn Sink> {
    Box::new(BrokenSink {
        broken,
        // Regardless of the speed of its writes.
        slow_writes: false,
        steps,
    })
}

/// A failure may be seen when the file is to be published already: all of it has arrived.
#[test]
fn a_file_that_failed_is_closed_though_it_was_to_be_published() {
    let poller = Poller::new().unwrap();
    let mut storage = Storage::new(System::shared(), poller.notifier(), None);
    let mut pool = BufferPool::new(1, 0, 10, 0, Account::unbounded());
    let file = FileId(1);
    let sink = Box::new(BrokenSink {
        broken: Broken::Write,
        slow_writes: true,
        steps: 0,
    });
    storage
        .attach(file, sink, DigestKind::None, 0, false)
        .unwrap();
    let write = SinkJob::Write {
        file,
        offset: 0,
        buffer: pool.make().unwrap(),
        len: 1,
    };
    storage.submit(file, write);
    let failed = next(&mut storage);
    assert!(
        matches!(failed, SinkCompletion::Failed { .. }),
        "{failed:?}"
    );
    storage.submit(file, SinkJob::Publish { file, length: 1 });
    storage.submit(file, SinkJob::Detach(file));
    let deadline = Instant::now() + Duration::from_secs(30);
    while !matches!(storage.completion(), Some(SinkCompletion::Closed(_))) {
        assert!(Instant::now() < deadline, "it is not closed");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Verification is reported when it is complete, and a failure affects only its file.
#[test]
fn verification_proceeds_in_steps() {
    let poller = Poller::new().unwrap();
    let mut storage = Storage::new(System::shared(), poller.notifier(), None);
    for (file, broken) in [(1, Broken::Nowhere), (2, Broken::Verify)] {
        let (file, kind) = (FileId(file), DigestKind::None);
        let sink = unverified(broken, 100);
        storage.attach(file, sink, kind, 1, true).unwrap();
        match (broken, next(&mut storage)) {
            (
                Broken::Nowhere,
                SinkCompletion::Verified {
                    file: done,
                    durable,
                },
            ) => {
                assert_eq!((done, durable.len()), (file, 1));
            }
            (
                _,
                SinkCompletion::Failed {
                    file: failed,
                    fault,
                },
            ) => {
                assert_eq!((failed, fault.code), (file, Code::Internal));
            }
            other => panic!("{other:?}"),
        }
    }
    finish(&mut storage);
}

/// Other files of the session make progress meanwhile, their buffers are returned, and verification
/// ends with the session or its file.
#[test]
fn verification_delays_no_other_file() {
    let poller = Poller::new().unwrap();
    let mut storage = Storage::new(System::shared(), poller.notifier(), None);
    let mut pool = BufferPool::new(1, 0, 10, 0, Account::unbounded());
    let kind = DigestKind::None;
    for file in [1, 2] {
        let endless = unverified(Broken::Nowhere, usize::MAX);
        storage
            .attach(FileId(file), endless, kind, 1, true)
            .unwrap();
    }
    storage.submit(FileId(1), SinkJob::Detach(FileId(1)));
    let file = FileId(3);
    let sink = Box::new(BrokenSink {
        broken: Broken::Nowhere,
        slow_writes: true,
        steps: 0,
    });
    storage.attach(file, sink, kind, 0, false).unwrap();
    let mut events = Vec::new();
    let mut poller = poller;
    for offset in 0..3 {
        let write = SinkJob::Write {
            file,
            offset,
            buffer: pool.make().unwrap(),
            len: 1,
        };
        storage.submit(file, write);
        // Without a wake-up the pipeline would wait for the buffer forever.
        let mut is_back = false;
        while !is_back {
            let deadline = Some(Duration::from_secs(30));
            events.clear();
            poller.wait(&mut events, deadline).unwrap();
            assert!(!events.is_empty(), "no wake-up came");
            // One may stand for several completions.
            while let Some(completion) = storage.completion() {
                if let SinkCompletion::Buffer(buffer) = completion {
                    pool.give(buffer);
                    is_back = true;
                }
            }
        }
    }
    storage.submit(file, SinkJob::Publish { file, length: 3 });
    match next(&mut storage) {
        SinkCompletion::Published { file: done, .. } => assert_eq!(done, file),
        other => panic!("{other:?}"),
    }
    finish(&mut storage);
}
