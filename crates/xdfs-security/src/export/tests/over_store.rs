//! Exports of stores other than local files.

use xdfs_proto::Limits;
use xdfs_proto::pack::{Content, Entry, Metadata, PACK_BYTES_MAX, PackReader, PackRequest};
use xdfs_proto::pack::{PackWriter, Preserve};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_store::MemStore;
use xdfs_testkit::recorder::{Recorder, all_methods, recorded};

use super::*;

/// Objects in memory, whose sizes can be asked.
#[derive(Debug)]
struct Named {
    objects: MemStore,
}

impl Store for Named {
    xdfs_store::forward!(Store to objects: is_slow, open_source, open_sink, check_sink, read_pack,
        write_pack, packs_wait, open_file);

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let Call::Stat { path, .. } = call else {
            return self.objects.call(call, part);
        };
        let Some(object) = self.objects.get(path) else {
            return Err(Fault::new(Code::NotFound, "look at", "no such object").path(path));
        };
        Ok(Answer::Attributes(Attributes {
            size: object.len() as u64,
            ..xdfs_store::builtin::attributes()
        }))
    }
}

fn objects(names: &[&str]) -> (MemStore, Arc<dyn Store>) {
    let objects = MemStore::new();
    for name in names {
        objects.insert(name, name.as_bytes().to_vec());
    }
    let store = Named {
        objects: objects.clone(),
    };
    (objects, Arc::new(store))
}

#[test]
fn a_layer_passes_every_method_on() {
    let recorder = Recorder::default();
    let exports = Exports::of_store(Arc::new(recorder.clone()), Rights::ALL);
    let store = store(&exports, &user("alice"));
    assert_eq!(recorded(&*store, &recorder, b"file"), all_methods());
}

#[test]
fn files_of_any_store_are_read_and_written_with_rights() {
    let (objects, base) = objects(&["a/one", "b/two"]);
    let all = Exports::of_store(Arc::clone(&base), Rights::ALL);
    let alice = store(&all, &user("alice"));
    assert_eq!(read(&*alice, "/a/one").unwrap(), b"a/one");
    assert_eq!(put(&*alice, &request("a/new"), 3).unwrap(), b"a/new");
    assert_eq!(&**objects.get("a/new").unwrap(), [1; 3]);
    let copy = Call::Copy {
        from: b"b/two".to_vec(),
        to: b"b/copy".to_vec(),
        overwrite: false,
    };
    let copied = alice.call(&copy, &mut |_| Ok(())).unwrap();
    assert_eq!(copied, Answer::Copied { bytes: 5 });
    assert_eq!(&**objects.get("b/copy").unwrap(), b"b/two");
    assert_fault(read(&*alice, "a/../b/two"), Code::PathEscape, "a/../b/two");

    let reading = Exports::of_store(Arc::clone(&base), Rights::READ);
    let bob = store(&reading, &user("bob"));
    assert_eq!(read(&*bob, "b/two").unwrap(), b"b/two");
    assert_fault(
        put(&*bob, &forced("b/two"), 1),
        Code::PermissionDenied,
        "b/two",
    );
    let refused = bob.call(&copy, &mut |_| Ok(()));
    assert_eq!(refused.unwrap_err().code, Code::PermissionDenied);
    assert!(reading.store_for(&anonymous()).is_err());

    let adding = Exports::of_store(base, Rights::READ | Rights::CREATE);
    let carol = store(&adding, &user("carol"));
    assert_fault(
        put(&*carol, &forced("b/two"), 1),
        Code::PermissionDenied,
        "b/two",
    );
    put(&*carol, &request("b/three"), 1).unwrap();
    let partial = adding.store_for(&user("carol")).unwrap();
    let shared = partial.open_partial(b"b/three", 1);
    assert_fault(shared, Code::Unsupported, "b/three");
}

#[test]
fn scopes_hold_in_any_store() {
    let (_, base) = objects(&["a/one", "ab/one", "b/two"]);
    let exports = Exports::of_store(base, Rights::ALL);
    let store = store(&exports, &scoped("alice", &[("a", Rights::READ)]));
    assert_eq!(read(&*store, "a/one").unwrap(), b"a/one");
    for path in ["ab/one", "b/two", "a/../b/two"] {
        assert!(read(&*store, path).is_err(), "{path}");
    }
    assert_fault(
        put(&*store, &request("a/new"), 1),
        Code::PermissionDenied,
        "a/new",
    );
}

/// They would lead around the rights, which belong to names.
#[test]
fn no_links_and_no_special_bits_are_made_in_any_store() {
    let recorder = Recorder::default();
    let exports = Exports::of_store(Arc::new(recorder.clone()), Rights::ALL);
    let store = store(&exports, &user("alice"));
    let ask = |call: &Call| store.call(call, &mut |_| Ok(()));
    recorder.take();
    let link = Call::Symlink {
        target: b"/etc".to_vec(),
        path: b"link".to_vec(),
    };
    assert_fault(ask(&link), Code::Unsupported, "link");
    let set_id = Call::SetMode {
        path: b"file".to_vec(),
        mode: 0o4755,
    };
    assert_fault(ask(&set_id), Code::PermissionDenied, "file");
    assert!(recorder.take().is_empty());
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    for content in [Content::Symlink(b"/etc"), Content::File(b"x")] {
        assert!(pack.entry(&Entry {
            path: b"name",
            metadata: Metadata::default(),
            content,
        }));
    }
    let (bytes, length) = pack.finish();
    let failures = store.write_pack(b"d", PackOptions::default(), &bytes[..length]);
    let failures = failures.unwrap();
    assert_eq!(failures.of(0).unwrap().code, Code::Unsupported);
    assert_eq!(failures.of(1), None);
}

#[test]
fn names_that_may_not_be_read_are_failures_of_a_pack() {
    let exports = Exports::of_store(Arc::new(Recorder::default()), Rights::ALL);
    let store = store(&exports, &scoped("alice", &[("d/a", Rights::ALL)]));
    let request = PackRequest {
        keep: Preserve::default(),
        follow: false,
        file_bytes_max: 100,
        names: vec![b"a".to_vec(), b"b".to_vec()],
    };
    let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
    store.read_pack(b"d", &request, &mut pack).unwrap();
    let (bytes, length) = pack.finish();
    let limits = Limits::default();
    let entries: Vec<_> = PackReader::new(&bytes[..length], &limits)
        .map(|entry| entry.unwrap().content)
        .collect();
    let [Content::File(data), Content::Failed(fault)] = &*entries else {
        panic!("{entries:?}");
    };
    assert_eq!(data.len(), 4);
    assert_eq!(fault.code, Code::PermissionDenied);
    assert_eq!(fault.path, b"d/b");
    let stat = Call::Stat {
        path: b"d/a".to_vec(),
        follow: true,
    };
    let Answer::Attributes(found) = store.call(&stat, &mut |_| Ok(())).unwrap() else {
        panic!();
    };
    assert_eq!(found.kind, FileKind::File);
}
