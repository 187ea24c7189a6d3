//! Tests of packs whose directories can't be made durable.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::*;

struct All;

impl PackRules for All {
    fn entry(&mut self, _: &Entry<'_>) -> Result<bool, Fault> {
        Ok(true)
    }
}

/// The failures of a pack with this many entries, of which one had failed before, when directories
/// of these names vanish before they are synchronised.
fn failures_of(entries: u32, directories: &[Vec<u8>]) -> Failures {
    let temp = tempfile::tempdir().unwrap();
    let base = Dir::open(temp.path()).unwrap();
    let (store, mut rules) = (LocalStore::unrooted(), All);
    let mut writing = Writing::new(&store, b"top", base, &mut rules, PackChange::default());
    let earlier = Fault::new(Code::AlreadyExists, "write", "it is there");
    writing.failures.push(1, earlier);
    writing.unsynced = directories.iter().map(Vec::as_slice).collect();
    writing.sync_directories(entries);
    writing.failures
}

#[test]
fn what_stands_in_a_directory_that_is_not_durable_has_failed() {
    let failures = failures_of(4, &[b"gone".to_vec(), b"lost".to_vec()]);
    let runs = failures.runs();
    let numbers: Vec<_> = runs.iter().map(|run| (run.first, run.count)).collect();
    assert_eq!(numbers, [(0, 1), (1, 1), (2, 2)]);
    assert_eq!(runs[1].fault.code, Code::AlreadyExists);
    for run in [&runs[0], &runs[2]] {
        assert_eq!(run.fault.code, Code::NotFound);
        assert_eq!(run.fault.path, b"top/gone");
    }
    // An existing one is no failure.
    assert_eq!(failures_of(4, &[Vec::new()]).runs().len(), 1);
}

/// The maximum for a pack: the work per entry isn't repeated per directory.
#[test]
fn many_directories_that_are_not_durable_cost_no_more_than_themselves() {
    let (done, ends) = mpsc::channel();
    thread::spawn(move || {
        let directories: Vec<_> = (0..50_000).map(|i| format!("{i}").into_bytes()).collect();
        let _ = done.send(failures_of(300_000, &directories));
    });
    // Takes a fraction of a second, or an hour.
    let failures = ends.recv_timeout(Duration::from_secs(120)).unwrap();
    assert!(failures.of(0).is_some() && failures.of(299_999).is_some());
}
