//! Panicking stores, and the memory of arriving packs.

use std::thread;
use std::time::Instant;

use xdfs_store::LocalStore;
use xdfs_sys::poll::Poller;

use super::*;
use crate::environment::{System, join};
use crate::memory::MemoryBudget;

/// Panics beneath the root `bad`, and in threads of another group.
#[derive(Debug)]
struct Broken(Arc<SyncGroup>);

impl Store for Broken {
    fn read_pack(&self, _: &[u8], _: &PackRequest, _: &mut PackWriter) -> Result<(), Fault> {
        panic!("on purpose")
    }

    fn write_pack(&self, root: &[u8], _: PackOptions, _: &[u8]) -> Result<Failures, Fault> {
        assert_ne!(root, b"bad", "on purpose");
        assert!(self.0.is_joined());
        Ok(Failures::default())
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, packs_wait, call,
        open_file);
}

fn next(threads: &mut StoreWorkers) -> StoreCompletion {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(done) = threads.completion() {
            return done;
        }
        assert!(Instant::now() < deadline, "nothing came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A pack queued behind one whose store panics is written, even if no other pack follows.
#[test]
fn a_panic_is_a_fault_of_its_pack_and_delays_no_other() {
    let poller = Poller::new().unwrap();
    let sync_group = Arc::new(SyncGroup::new());
    let mut threads = StoreWorkers::new(
        System::shared(),
        None,
        Some(Arc::clone(&sync_group)),
        poller.notifier(),
        Account::unbounded,
    );
    let store: Arc<dyn Store> = Arc::new(Broken(sync_group));
    let count = 8 * THREADS_MAX as u32;
    for number in 0..count {
        let root = if number % 2 == 0 { "bad" } else { "good" };
        let pack = threads.arriving(
            Arc::clone(&store),
            root.into(),
            PackOptions::default(),
            0,
            None,
        );
        threads.submit_write_pack(FileId(number), pack).unwrap();
    }
    for _ in 0..count {
        match next(&mut threads) {
            StoreCompletion::PackWritten { file, failures, .. } if file.0 % 2 == 0 => {
                assert_eq!(failures.unwrap_err().code, Code::Internal);
            }
            StoreCompletion::PackWritten { failures, .. } => assert!(failures.unwrap().is_empty()),
            other => panic!("{other:?}"),
        }
    }
    let pack_request = PackRequest {
        keep: xdfs_proto::pack::Preserve::default(),
        follow: false,
        file_bytes_max: 1,
        names: vec![b"f".to_vec()],
    };
    let memory = threads.memory_to_read().unwrap();
    threads
        .submit_read_pack(FileId(1), store, Vec::new(), pack_request, memory)
        .unwrap();
    match next(&mut threads) {
        StoreCompletion::PackRead { pack, .. } => {
            assert_eq!(pack.unwrap_err().code, Code::Internal)
        }
        other => panic!("{other:?}"),
    }
    // The same threads as at the start.
    assert!(threads.workers.iter().all(|worker| !worker.has_ended()));
    join(&threads.finish());
}

/// Takes its time.
#[derive(Debug)]
struct Far(Duration);

impl Store for Far {
    fn write_pack(&self, _: &[u8], _: PackOptions, _: &[u8]) -> Result<Failures, Fault> {
        thread::sleep(self.0);
        Ok(Failures::default())
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack, packs_wait,
        call, open_file);
}

#[cfg(target_os = "linux")]
#[test]
fn more_packs_are_written_at_once_where_the_store_is_slow() {
    let poller = Poller::new().unwrap();
    let workers = |time| {
        let store: Arc<dyn Store> = Arc::new(Far(time));
        let mut threads = StoreWorkers::new(
            System::shared(),
            None,
            None,
            poller.notifier(),
            Account::unbounded,
        );
        let submit = |threads: &mut StoreWorkers, number| {
            let (store, options) = (Arc::clone(&store), PackOptions::default());
            let pack = threads.arriving(store, b"root".into(), options, 0, None);
            threads.submit_write_pack(FileId(number), pack).unwrap();
        };
        for number in 0..8 * THREADS_MAX as u32 {
            submit(&mut threads, number);
            if number == 0 {
                next(&mut threads);
            }
        }
        let workers = threads.workers.len();
        join(&threads.finish());
        workers
    };
    assert_eq!(workers(Duration::from_millis(50)), WAITING_THREADS_MAX);
    assert_eq!(workers(Duration::ZERO), THREADS_MAX);
}

/// Writes whatever it is told to, and can't make it durable.
#[derive(Debug, Default)]
struct Unsynced {
    steps: Mutex<Vec<&'static str>>,
}

impl Store for Unsynced {
    fn write_pack(&self, _: &[u8], _: PackOptions, _: &[u8]) -> Result<Failures, Fault> {
        self.steps.lock().unwrap().push("write");
        Ok(Failures::default())
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(xdfs_proto::path::Answer) -> Result<(), Fault>,
    ) -> Result<xdfs_proto::path::Answer, Fault> {
        assert!(matches!(call, Call::Sync { path } if path == b"root"));
        self.steps.lock().unwrap().push("sync");
        Err(Fault::new(Code::Io, "synchronise", "the disk is gone"))
    }

    xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack, packs_wait,
        open_file);
}

/// [K-25]
#[test]
fn k25_a_last_pack_is_synchronised_after_it_is_written_or_fails() {
    let poller = Poller::new().unwrap();
    let mut threads = StoreWorkers::new(
        System::shared(),
        None,
        None,
        poller.notifier(),
        Account::unbounded,
    );
    for (last, relaxed, is_synced) in [
        (Some(vec![FileId(1)]), false, true),
        (Some(Vec::new()), false, true),
        (Some(Vec::new()), true, false),
        (None, false, false),
    ] {
        let store = Arc::new(Unsynced::default());
        let options = PackOptions {
            relaxed,
            ..PackOptions::default()
        };
        let arriving = threads.arriving(
            Arc::clone(&store) as Arc<dyn Store>,
            b"root".to_vec(),
            options,
            0,
            last,
        );
        threads.submit_write_pack(FileId(2), arriving).unwrap();
        let StoreCompletion::PackWritten { failures, .. } = next(&mut threads) else {
            panic!("another job ended");
        };
        let steps = store.steps.lock().unwrap().clone();
        match is_synced {
            true => {
                assert_eq!(steps, ["write", "sync"]);
                assert_eq!(failures.unwrap_err().code, Code::Io);
            }
            false => {
                assert_eq!(steps, ["write"]);
                assert!(failures.unwrap().is_empty());
            }
        }
    }
    join(&threads.finish());
}

fn pack_of(spares: Spares, length: usize) -> ArrivingPack {
    let store = Arc::new(LocalStore::unrooted());
    ArrivingPack {
        store,
        root: Vec::new(),
        options: PackOptions::default(),
        last: None,
        memory: None,
        is_lent: false,
        is_begun: false,
        length,
        spares,
    }
}

fn arriving(length: usize) -> ArrivingPack {
    let spares = Spares::default();
    spares.give(vec![0xff; length + 1]);
    let mut pack = pack_of(spares, length);
    assert!(pack.lacks_memory() && pack.get_memory().is_some());
    pack
}

fn filled(pack: &mut ArrivingPack, with: u8) -> Buffer {
    let mut memory = pack.lend(0, pack.length).unwrap();
    memory.fill(with);
    memory
}

#[test]
fn memory_is_lent_to_one_channel_and_for_all_of_the_pack() {
    let mut pack = arriving(8);
    assert!(pack.lend(0, 7).is_none());
    assert!(pack.lend(1, 8).is_none());
    let memory = pack.lend(0, 8).unwrap();
    assert_eq!(memory.len(), 8);
    assert!(pack.lend(0, 8).is_none());
    pack.take_back(memory, true);
    assert!(pack.lend(0, 8).is_some());
}

#[test]
fn a_block_that_another_channel_brings_too_is_kept_whole() {
    // The other channel has brought a part when the first one finishes.
    let mut pack = arriving(8);
    let first = filled(&mut pack, 1);
    pack.write(0, &[1; 4]);
    pack.take_back(first, true);
    assert_eq!(*pack.memory.unwrap(), [1; 8]);
    // The first channel breaks, and the other one finishes.
    let mut pack = arriving(8);
    let mut first = pack.lend(0, 8).unwrap();
    first[..2].fill(1);
    pack.write(0, &[1; 8]);
    pack.take_back(first, false);
    assert_eq!(*pack.memory.unwrap(), [1; 8]);
    // The first channel breaks while the other one has brought a part: a third reads concurrently.
    let mut pack = arriving(8);
    let first = pack.lend(0, 8).unwrap();
    pack.write(0, &[1; 4]);
    pack.take_back(first, false);
    assert!(pack.lend(0, 8).is_none());
    pack.write(4, &[1; 4]);
    assert_eq!(*pack.memory.unwrap(), [1; 8]);
    // The first channel breaks, and the other one starts afterwards.
    let mut pack = arriving(8);
    let first = pack.lend(0, 8).unwrap();
    pack.take_back(first, false);
    let again = filled(&mut pack, 2);
    pack.take_back(again, true);
    assert_eq!(*pack.memory.unwrap(), [2; 8]);
}

#[test]
fn what_lies_past_the_end_is_left_out() {
    let mut pack = arriving(4);
    pack.write(0, &[1; 4]);
    pack.write(2, &[2; 3]);
    pack.write(u64::MAX, &[2]);
    pack.zero(1, 2);
    pack.zero(3, u64::MAX);
    assert_eq!(*pack.memory.unwrap(), [1, 0, 0, 1]);
}

#[test]
fn memory_that_is_too_short_is_not_given_again() {
    let spares = Spares::default();
    spares.give(vec![1; 3]);
    assert!(spares.take(SPARE_BYTES + 1).len() > SPARE_BYTES);
    spares.give(vec![1; 3]);
    assert_eq!(spares.take(3), [1; 3]);
}

#[test]
fn packs_wait_for_memory_but_one_is_there_in_any_case() {
    let budget = MemoryBudget::new(SPARE_BYTES);
    let spares = Spares::new(Account::new(&budget));
    let mut first = pack_of(spares.clone(), 8);
    let mut second = pack_of(spares.clone(), 2 * SPARE_BYTES);
    assert!(first.get_memory().is_some() && !first.lacks_memory());
    assert!(second.get_memory().is_none() && second.lacks_memory());
    // While a channel has the memory, none is lacking.
    let lent = first.lend(0, 8).unwrap();
    assert!(!first.lacks_memory());
    first.take_back(lent, true);
    assert!(second.get_memory().is_none());
    // A spare is too short, and makes room.
    spares.give_memory(first.memory.take().unwrap().into_memory());
    assert!(second.get_memory().is_some());
    let lent = second.lend(0, 2 * SPARE_BYTES).unwrap();
    assert_eq!(lent.len(), 2 * SPARE_BYTES);
    assert!(first.get_memory().is_none());
}
