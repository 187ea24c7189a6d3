//! What is built in beside the files of a server.

use xdfs_proto::Code;
use xdfs_store::{LocalStore, MemStore, ServerStore, Source, Store, ZeroSource};
use xdfs_testkit::recorder::{Recorder, all_methods, recorded};

use crate::common::*;

#[test]
fn zeros_end_where_they_are_told_to() {
    let mut zeros = ZeroSource::new(Some(5));
    let mut buf = [1; 8];
    assert_eq!(zeros.read_at(2, &mut buf).unwrap(), 3);
    assert_eq!(buf, [0, 0, 0, 1, 1, 1, 1, 1]);
    assert!(zeros.is_uniform());
    let mut endless = ZeroSource::new(None);
    assert_eq!(endless.info().length, None);
    assert_eq!(endless.read_at(u64::MAX, &mut buf).unwrap(), 8);
    assert_eq!(buf, [0; 8]);
}

#[test]
fn a_server_serves_both() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "content").unwrap();
    std::fs::write(dir.path().join("mem:file"), "reachable").unwrap();
    // A server without write access still takes what keeps nothing.
    let store = ServerStore::new(LocalStore::rooted(dir.path(), true).unwrap());
    assert!(store.open_source(b"/mem:zero").unwrap().is_uniform());
    assert!(!store.open_source(b"file").unwrap().is_uniform());
    let mut opened = store.open_sink(&request("mem:null")).unwrap();
    assert!(!opened.sink.capabilities().durable && opened.durable.is_empty());
    write(&mut opened, 1 << 60, b"gone");
    opened.sink.publish(1 << 61, &[]).unwrap();
    assert_eq!(
        store.check_sink(&request("/mem:null")).unwrap(),
        b"mem:null"
    );
    assert_fault(
        store.open_source(b"mem:null"),
        Code::Unsupported,
        "mem:null",
    );
    assert_fault(
        store.open_sink(&request("mem:zero")),
        Code::Unsupported,
        "mem:zero",
    );
    assert_fault(store.open_source(b"mem:other"), Code::NotFound, "mem:other");
    assert_fault(store.open_sink(&request("mem:")), Code::NotFound, "mem:");
    assert_fault(store.open_sink(&request("new")), Code::ReadOnly, "new");
    assert_eq!(
        read_all(&mut *store.open_source(b"./mem:file").unwrap()),
        b"reachable"
    );
}

#[test]
fn memory_is_bounded_whatever_a_peer_announces() {
    let store = MemStore::with_limit(1000);
    let mut wanted = request("object");
    wanted.length = Some(u64::MAX);
    assert_fault(store.open_sink(&wanted), Code::NoSpace, "object");
    let mut opened = store.open_sink(&request("object")).unwrap();
    let bufs = [std::io::IoSlice::new(b"x")];
    assert_fault(opened.sink.write_at(1000, &bufs), Code::NoSpace, "object");
    assert_fault(
        opened.sink.write_at(u64::MAX, &bufs),
        Code::NoSpace,
        "object",
    );
    opened.sink.write_at(999, &bufs).unwrap();
    assert_fault(opened.sink.publish(1001, &[]), Code::NoSpace, "object");
    assert!(store.get("object").is_none());
}

#[test]
fn everything_but_built_in_paths_is_passed_on() {
    let recorder = Recorder::default();
    let store = ServerStore::new(recorder.clone());
    assert_eq!(recorded(&store, &recorder, b"file"), all_methods());
}
