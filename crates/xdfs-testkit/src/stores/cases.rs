//! The cases, for the macro.

use std::io::IoSlice;

use xdfs_proto::Code;

use super::{BLOCK, Subject, assert_fault, pattern, put, range, read_all, request, save, write};

pub fn what_is_published_is_read_back(s: &Subject) {
    for length in [0, 1, 2, 4095, 4096, 4097, 100_000] {
        let path = s.path(&format!("file-{length}"));
        let bytes = pattern(length);
        put(&*s.store, &request(&path), &bytes).unwrap();
        let mut source = s.store.open_source(&path).unwrap();
        assert_eq!(source.info().length, Some(length as u64));
        assert!(source.info().random_reads);
        assert_eq!(read_all(&mut *source), bytes);
        source.verify_unchanged().unwrap();
    }
}

pub fn blocks_come_in_any_order_and_in_pieces(s: &Subject) {
    let path = s.path("file");
    let bytes = pattern(30_000);
    let mut opened = s.store.open_sink(&request(&path)).unwrap();
    assert!(opened.sink.capabilities().random_writes);
    for (i, block) in bytes.chunks(7000).enumerate().rev() {
        let (a, b) = block.split_at(block.len() / 3);
        let bufs = [IoSlice::new(a), IoSlice::new(&[]), IoSlice::new(b)];
        opened.sink.write_at(i as u64 * 7000, &bufs).unwrap();
    }
    opened.sink.publish(30_000, &[]).unwrap();
    assert_eq!(read_all(&mut *s.store.open_source(&path).unwrap()), bytes);
}

pub fn what_was_never_written_is_zeros(s: &Subject) {
    let path = s.path("file");
    let mut opened = s.store.open_sink(&request(&path)).unwrap();
    write(&mut opened, 10_000, b"data");
    opened.sink.publish(20_000, &[]).unwrap();
    let mut expected = vec![0; 20_000];
    expected[10_000..10_004].copy_from_slice(b"data");
    assert_eq!(
        read_all(&mut *s.store.open_source(&path).unwrap()),
        expected
    );
}

pub fn a_shorter_end_than_what_was_written_cuts(s: &Subject) {
    let path = s.path("file");
    let mut opened = s.store.open_sink(&request(&path)).unwrap();
    write(&mut opened, 0, b"abcdef");
    opened.sink.publish(3, &[]).unwrap();
    assert_eq!(read_all(&mut *s.store.open_source(&path).unwrap()), b"abc");
}

pub fn nothing_is_visible_before_it_is_published(s: &Subject) {
    let path = s.path("file");
    let mut opened = s.store.open_sink(&request(&path)).unwrap();
    write(&mut opened, 0, b"half");
    assert_fault(s.store.open_source(&path), Code::NotFound, &path);
    opened.sink.discard().unwrap();
    drop(opened);
    assert_fault(s.store.open_source(&path), Code::NotFound, &path);
}

pub fn a_target_that_exists_is_replaced_only_on_demand(s: &Subject) {
    let path = s.path("file");
    put(&*s.store, &request(&path), b"old").unwrap();
    assert_fault(
        s.store.open_sink(&request(&path)),
        Code::AlreadyExists,
        &path,
    );
    assert_fault(
        s.store.check_sink(&request(&path)),
        Code::AlreadyExists,
        &path,
    );
    let hint = s.store.open_sink(&request(&path)).unwrap_err().hint;
    assert!(hint.contains("--force"), "{hint}");
    let mut force = request(&path);
    force.overwrite = true;
    assert_eq!(s.store.check_sink(&force).unwrap(), path);
    let mut before = s.store.open_source(&path).unwrap();
    put(&*s.store, &force, b"newer").unwrap();
    // A source that was open still reads its version.
    assert_eq!(read_all(&mut *before), b"old");
    before.verify_unchanged().unwrap();
    assert_eq!(
        read_all(&mut *s.store.open_source(&path).unwrap()),
        b"newer"
    );
}

pub fn a_target_that_appears_meanwhile_stays(s: &Subject) {
    let path = s.path("file");
    let mut late = s.store.open_sink(&request(&path)).unwrap();
    write(&mut late, 0, b"late");
    // Another program makes it; another transfer can't, the store may be locked.
    (s.make)("file", b"first");
    assert_fault(late.sink.publish(4, &[]), Code::AlreadyExists, &path);
    drop(late);
    assert_eq!(
        read_all(&mut *s.store.open_source(&path).unwrap()),
        b"first"
    );
}

pub fn a_check_promises_the_path_and_makes_nothing(s: &Subject) {
    let path = s.path("file");
    assert_eq!(s.store.check_sink(&request(&path)).unwrap(), path);
    assert_eq!(s.store.open_sink(&request(&path)).unwrap().path, path);
    assert_fault(s.store.open_source(&path), Code::NotFound, &path);
}

pub fn each_version_has_its_own_tag(s: &Subject) {
    let (a, b) = (s.path("a"), s.path("b"));
    put(&*s.store, &request(&a), b"one").unwrap();
    put(&*s.store, &request(&b), b"two").unwrap();
    let tag = |path: &[u8]| s.store.open_source(path).unwrap().info().tag;
    assert_eq!(tag(&a), tag(&a));
    assert_ne!(tag(&a), tag(&b));
    let before = tag(&a);
    let mut force = request(&a);
    force.overwrite = true;
    put(&*s.store, &force, b"ONE!").unwrap();
    assert_ne!(tag(&a), before);
}

pub fn reads_past_the_end_are_empty(s: &Subject) {
    let path = s.path("file");
    put(&*s.store, &request(&path), b"abc").unwrap();
    let mut source = s.store.open_source(&path).unwrap();
    let mut buf = [0; 8];
    assert_eq!(source.read_at(2, &mut buf).unwrap(), 1);
    assert_eq!(source.read_at(3, &mut buf).unwrap(), 0);
    assert_eq!(source.read_at(u64::MAX, &mut buf).unwrap(), 0);
    assert_eq!(source.next_data(3, 3).unwrap(), None);
    assert_eq!(source.next_data(1, 3).unwrap(), Some(range(1, 3)));
    source.will_read(range(0, 100));
}

pub fn a_directory_takes_the_name_of_the_request(s: &Subject) {
    let mut named = request(s.path(""));
    assert!(matches!(
        s.store.open_sink(&named).unwrap_err().code,
        Code::IsDirectory | Code::InvalidArgument
    ));
    named.name = b"inside".to_vec();
    put(&*s.store, &named, b"x").unwrap();
    assert_eq!(
        read_all(&mut *s.store.open_source(&s.path("inside")).unwrap()),
        b"x"
    );
}

pub fn durable_stores_go_on_where_they_were(s: &Subject) {
    let path = s.path("file");
    let bytes = pattern(3 * BLOCK as usize);
    let block = BLOCK as usize;
    let mut first = s.store.open_sink(&request(&path)).unwrap();
    let durable = first.sink.capabilities().durable;
    save(&mut first, 0, &bytes[..block]);
    save(&mut first, 2 * u64::from(BLOCK), &bytes[2 * block..]);
    drop(first);
    let mut second = s.store.open_sink(&request(&path)).unwrap();
    let ranges: Vec<_> = second.durable.iter().map(|f| f.range).collect();
    if !durable {
        assert_eq!(ranges, []);
        return;
    }
    let b = u64::from(BLOCK);
    assert_eq!(ranges, [range(0, b), range(2 * b, 3 * b)]);
    write(&mut second, b, &bytes[block..2 * block]);
    second.sink.publish(3 * b, &[]).unwrap();
    drop(second);
    assert_eq!(read_all(&mut *s.store.open_source(&path).unwrap()), bytes);
    if let Some(names) = &s.names {
        assert_eq!(names(), ["file"]);
    }
}
