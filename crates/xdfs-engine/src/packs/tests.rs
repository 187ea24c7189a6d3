//! A store that panics.

use xdfs_store::{OpenedSink, SinkRequest};
use xdfs_sys::poll::Poller;

use super::*;

/// Panics beneath the root `bad`.
#[derive(Debug)]
struct Broken;

impl Store for Broken {
    fn open_source(&self, _: &[u8]) -> Result<Box<dyn Source>, Fault> {
        Err(Fault::new(Code::Unsupported, "", ""))
    }

    fn open_sink(&self, _: &SinkRequest) -> Result<OpenedSink, Fault> {
        Err(Fault::new(Code::Unsupported, "", ""))
    }

    fn check_sink(&self, _: &SinkRequest) -> Result<Vec<u8>, Fault> {
        Err(Fault::new(Code::Unsupported, "", ""))
    }

    fn read_pack(&self, _: &[u8], _: &Wish, _: &mut PackWriter) -> Result<(), Fault> {
        panic!("on purpose")
    }

    fn write_pack(&self, root: &[u8], _: bool, _: &[u8]) -> Result<Failures, Fault> {
        assert_ne!(root, b"bad", "on purpose");
        Ok(Failures::default())
    }
}

fn next(threads: &mut PackThreads) -> Done {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(done) = threads.completion() {
            return done;
        }
        assert!(Instant::now() < deadline, "nothing came");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A pack that waits behind one of which the store panics is carried out, though no other comes.
#[test]
fn a_panic_is_a_fault_of_its_pack_and_delays_no_other() {
    let poller = Poller::new().unwrap();
    let mut threads = PackThreads::new(None, poller.notifier());
    let store: Arc<dyn Store> = Arc::new(Broken);
    let count = 8 * THREADS_MAX as u32;
    for number in 0..count {
        let root = if number % 2 == 0 { "bad" } else { "good" };
        let pack = threads.arriving(Arc::clone(&store), root.into(), false, 0);
        threads.carry_out(FileId(number), pack).unwrap();
    }
    for _ in 0..count {
        match next(&mut threads) {
            Done::CarriedOut { file, failures, .. } if file.0 % 2 == 0 => {
                assert_eq!(failures.unwrap_err().code, Code::Internal);
            }
            Done::CarriedOut { failures, .. } => assert!(failures.unwrap().is_empty()),
            other => panic!("{other:?}"),
        }
    }
    let wish = Wish {
        keep: xdfs_proto::pack::Keep::default(),
        file_bytes_max: 1,
        names: vec![b"f".to_vec()],
    };
    threads.make(FileId(1), store, Vec::new(), wish).unwrap();
    match next(&mut threads) {
        Done::Made { pack, .. } => assert_eq!(pack.unwrap_err().code, Code::Internal),
        other => panic!("{other:?}"),
    }
    // The threads are those of the beginning.
    assert!(threads.handles.iter().all(|handle| !handle.is_finished()));
    threads.finish();
}
