//! Tests of `pack.rs`.

use super::*;

fn limits() -> Limits {
    Limits::default()
}

fn full_metadata() -> Metadata<'static> {
    Metadata {
        mode: Some(0o4755),
        mtime_ns: Some(-1),
        atime_ns: Some(i64::MAX),
        owner: Some(Owner {
            uid: 7,
            gid: u32::MAX,
            names: Some((b"alice", b"")),
        }),
        xattrs: vec![(b"user.a", b""), (b"user.b", b"\0\xff")],
        sparse: true,
    }
}

fn remote(code: Code, cause: &str) -> Fault {
    Fault::new(code, "open", cause).path(b"p").remote()
}

fn every_entry() -> Vec<Entry<'static>> {
    let entry = |path: &'static [u8], content| Entry {
        path,
        metadata: Metadata::default(),
        content,
    };
    vec![
        entry(b"", Content::Directory),
        entry(b"d/e", Content::Directory),
        Entry {
            metadata: full_metadata(),
            ..entry(b"d/\n\xff", Content::File(b"content"))
        },
        entry(b"empty", Content::File(b"")),
        entry(b"s", Content::Symlink(b"../../x")),
        entry(b"h", Content::HardLink(b"d/e")),
        entry(b"p", Content::Fifo),
        Entry {
            metadata: Metadata {
                owner: Some(Owner {
                    uid: 0,
                    gid: 0,
                    names: None,
                }),
                ..Metadata::default()
            },
            ..entry(b"", Content::Attributes)
        },
        entry(b"l", Content::Large(u64::MAX)),
        entry(b"f", Content::Failed(remote(Code::NotFound, "gone"))),
    ]
}

fn pack_of(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), 1 << 20);
    assert!(writer.is_empty());
    for entry in entries {
        assert!(writer.entry(entry));
    }
    assert_eq!(writer.entries() as usize, entries.len());
    let (buffer, len) = writer.finish();
    buffer[..len].to_vec()
}

fn decode(pack: &[u8]) -> Result<Vec<Entry<'_>>, DecodeError> {
    // Only in tests do the limits outlive the entries.
    let limits: &'static Limits = Box::leak(Box::new(limits()));
    PackReader::new(pack, limits).collect()
}

#[test]
fn every_entry_comes_back() {
    let entries = every_entry();
    let pack = pack_of(&entries);
    let decoded = decode(&pack).unwrap();
    assert_eq!(decoded, entries);
    assert_eq!(pack_of(&decoded), pack);
    assert_eq!(decode(b"").unwrap(), []);
}

#[test]
fn a_pack_that_is_cut_anywhere_is_refused_or_shorter() {
    let entries = every_entry();
    let mut ends = vec![0];
    for count in 1..=entries.len() {
        ends.push(pack_of(&entries[..count]).len());
    }
    let pack = pack_of(&entries);
    for cut in 0..pack.len() {
        match (
            decode(&pack[..cut]),
            ends.iter().position(|end| *end == cut),
        ) {
            (Ok(decoded), Some(count)) => assert_eq!(decoded, entries[..count]),
            (Err(_), None) => {}
            (result, _) => panic!("cut at {cut}: {result:?}"),
        }
    }
}

#[test]
fn nothing_comes_after_an_error() {
    let limits = limits();
    let mut pack = pack_of(&every_entry()[..1]);
    let good = pack.clone();
    pack.extend([9, 0, 0, 0]);
    pack.extend(good);
    let mut reader = PackReader::new(&pack, &limits);
    assert!(reader.next().unwrap().is_ok());
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

/// An entry from its bytes: kind, flags, path, and the rest.
fn raw(kind: u8, flags: u8, path: &[u8], rest: &[&[u8]]) -> Vec<u8> {
    let length = u16::try_from(path.len()).unwrap().to_be_bytes();
    [&[kind, flags], &length[..], path, &rest.concat()].concat()
}

#[track_caller]
fn assert_refused(bytes: &[u8], field: &str) {
    let error = decode(bytes).unwrap_err();
    assert!(error.to_string().contains(field), "{error}");
}

#[test]
fn every_bad_value_is_refused() {
    let fifo = kind::FIFO;
    assert_eq!(decode(&raw(fifo, 0, b"a/b", &[])).unwrap().len(), 1);
    for kind in [8, 9, 255] {
        assert_refused(&raw(kind, 0, b"a", &[]), "kind of an entry");
    }
    for flags in [64, 128, OWNER_NAMES] {
        assert_refused(&raw(fifo, flags, b"a", &[&[0; 64]]), "flags of an entry");
    }
    let bad_paths: [&[u8]; 11] = [
        b"", b"/", b"/a", b"a/", b"a//b", b".", b"..", b"a/../b", b"a/.", b"./a", b"a\0b",
    ];
    for path in bad_paths {
        assert_refused(&raw(fifo, 0, path, &[]), "path in a pack");
        if !path.is_empty() {
            assert_refused(&raw(kind::DIRECTORY, 0, path, &[]), "path in a pack");
            let length = [0, u8::try_from(path.len()).unwrap()];
            let link = raw(kind::HARD_LINK, 0, b"a", &[&length, path]);
            assert_refused(&link, "target of a link");
        }
    }
    let long = vec![b'a'; limits().path_bytes_max + 1];
    assert_refused(&raw(fifo, 0, &long, &[]), "path in a pack");
    assert_refused(&raw(kind::SYMLINK, 0, b"a", &[&[0, 0]]), "symbolic link");
    assert_refused(&raw(kind::SYMLINK, 0, b"a", &[&[0, 1, 0]]), "symbolic link");
    assert_refused(
        &raw(kind::HARD_LINK, 0, b"a", &[&[0, 0]]),
        "target of a link",
    );
    assert_refused(&raw(fifo, MODE, b"a", &[&[0x10, 0]]), "mode");
    assert_refused(
        &raw(kind::FILE, 0, b"a", &[&[0xff; 4], b"x"]),
        "content of a file",
    );
    let long_name = [&[1, 0][..], &[b'a'; 256]].concat();
    let numbers = [0; 8];
    assert_refused(
        &raw(fifo, OWNER | OWNER_NAMES, b"a", &[&numbers, &long_name]),
        "name of an owner",
    );
    let value = [&[0, 1, b'a'][..], &[0, 0, 0, 0]].concat();
    assert!(decode(&raw(fifo, XATTRS, b"a", &[&[0, 1], &value])).is_ok());
    let many = value.repeat(257);
    let bad_xattrs: [&[&[u8]]; 6] = [
        &[&[0, 0]],
        &[&[1, 1], &many],
        &[&[0, 1], &[0, 0], &[0; 4]],
        &[&[0, 1], &[0, 1, 0], &[0; 4]],
        &[&[0, 1], &long_name, &[0; 4]],
        &[&[0, 1], &[0, 1, b'a'], &[0, 1, 0, 1], &[0; 65_537]],
    ];
    for rest in bad_xattrs {
        assert_refused(&raw(fifo, XATTRS, b"a", rest), "extended attributes");
    }
}

#[test]
fn a_writer_takes_what_fits_and_no_more() {
    let entry = |data| Entry {
        path: b"a",
        metadata: Metadata::default(),
        content: Content::File(data),
    };
    let one = pack_of(&[entry(b"12345")]).len();
    let mut writer = PackWriter::new(vec![1; 3], one);
    assert!(!writer.entry(&entry(b"123456")));
    assert!(writer.is_empty());
    assert!(writer.entry(&entry(b"12345")));
    assert!(!writer.entry(&entry(b"")));
    assert_eq!((writer.len(), writer.entries()), (one, 1));
    let mut largest = PackWriter::new(Vec::new(), usize::MAX);
    let data = vec![0; PACK_BYTES_MAX];
    assert!(!largest.entry(&entry(&data)));
    assert!(largest.entry(&entry(&data[..PACK_BYTES_MAX - 9])));
}

#[test]
fn a_file_is_read_into_its_place() {
    let mut writer = PackWriter::new(Vec::new(), 64);
    let metadata = Metadata {
        mode: Some(0o600),
        ..Metadata::default()
    };
    // One byte more than fits.
    let added = writer.file(b"a", &metadata, 5, |room| {
        assert_eq!(room.len(), 5);
        room[..4].copy_from_slice(b"data");
        Ok::<_, ()>(4)
    });
    assert_eq!(added, Ok(true));
    assert_eq!(writer.file(b"b", &metadata, 5, |_| Err(7)), Err(7));
    let full = writer.file(b"c", &metadata, 64, |_| -> Result<usize, ()> { panic!() });
    assert_eq!(full, Ok(false));
    let huge = writer.file(b"c", &metadata, usize::MAX, |_| -> Result<usize, ()> {
        panic!()
    });
    assert_eq!(huge, Ok(false));
    let (buffer, len) = writer.finish();
    let decoded = decode(&buffer[..len]).unwrap();
    let expected = Entry {
        path: b"a",
        metadata,
        content: Content::File(b"data"),
    };
    assert_eq!(decoded, [expected]);
}

/// Other entries than files have no holes, whatever they declare, so no pack is refused for it.
#[test]
fn files_alone_are_sparse() {
    for entry in every_entry() {
        let marked = Entry {
            metadata: Metadata {
                sparse: true,
                ..entry.metadata.clone()
            },
            ..entry.clone()
        };
        let is_file = matches!(entry.content, Content::File(_));
        let pack = pack_of(&[marked]);
        assert_eq!(decode(&pack).unwrap()[0].metadata.sparse, is_file);
        let refused = [&[pack[0], pack[1] | SPARSE], &pack[2..]].concat();
        assert_eq!(decode(&refused).is_ok(), is_file, "{entry:?}");
    }
}

#[test]
fn failures_in_a_row_are_one_run() {
    let mut failures = Failures::default();
    assert!(failures.is_empty());
    for number in [2, 3, 4, 8] {
        failures.push(
            number,
            remote(Code::NotFound, "gone").path(vec![number as u8]),
        );
    }
    failures.push(9, remote(Code::NotFound, "another cause"));
    let runs: Vec<_> = failures.runs().iter().map(|r| (r.first, r.count)).collect();
    assert_eq!(runs, [(2, 3), (8, 1), (9, 1)]);
    assert_eq!(failures.runs()[0].fault.path, [2]);
    for number in [0, 1, 5, 7, 10, u32::MAX] {
        assert_eq!(failures.of(number), None, "{number}");
    }
    for number in [2, 4, 8] {
        assert_eq!(failures.of(number).unwrap().cause, "gone");
    }
    let mapped = failures.map(|fault| fault.path(b"new"));
    assert!(mapped.runs().iter().all(|run| run.fault.path == b"new"));
}

#[test]
fn a_run_says_of_no_entry_what_was_done_with_another() {
    let mut failures = Failures::default();
    for (number, operation) in [(0, "a"), (1, "b"), (2, "a"), (4, "a"), (5, "a")] {
        failures.push(number, Fault::new(Code::Io, operation, "the same"));
    }
    let runs: Vec<_> = (failures.runs().iter())
        .map(|run| (run.count, &*run.fault.operation))
        .collect();
    assert_eq!(runs, [(3, ANY_OPERATION), (2, "a")]);
}

/// More runs than fit: all failures are reported, together with some successes.
#[test]
fn failures_are_bounded_and_none_is_lost() {
    let mut failures = Failures::default();
    for number in (0..200).step_by(2) {
        failures.push(number, remote(Code::Io, "x"));
    }
    assert_eq!(failures.runs().len(), FAILURES_MAX);
    for number in (0..200).step_by(2) {
        assert!(failures.of(number).is_some(), "{number}");
    }
    assert_eq!(failures.of(1), None);
    assert_eq!(failures.of(199), None);
}

/// Who is told that a file exists doesn't send it again.
#[test]
fn no_entry_beyond_the_bound_is_told_to_exist_that_failed() {
    let codes = [Code::AlreadyExists, Code::NoSpace];
    let mut failures = Failures::default();
    for number in 0..40 {
        failures.push(number, remote(codes[number as usize % 2], "x"));
    }
    for number in 0..40 {
        let told = failures.of(number).expect("a failure").code;
        let is = codes[number as usize % 2];
        assert!(told == is || told != Code::AlreadyExists, "{number}");
    }
}

fn encoded(failures: &Failures) -> Vec<u8> {
    let mut bytes = Vec::new();
    failures.encode(&mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn failures_come_back_and_bad_ones_are_refused() {
    let mut failures = Failures::default();
    failures.push(0, remote(Code::NotFound, "gone"));
    failures.push(u32::MAX - 1, remote(Code::NoSpace, "full"));
    let bytes = encoded(&failures);
    let decode = |bytes: &[u8]| Failures::decode(&mut Reader::new(bytes));
    assert_eq!(decode(&bytes), Ok(failures));
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let run = |first: u32, count: u32| FailureRun {
        first,
        count,
        fault: remote(Code::Io, "x"),
    };
    let bad = [
        vec![],
        vec![run(0, 0)],
        vec![run(1, 1), run(1, 1)],
        vec![run(0, 5), run(4, 1)],
        vec![run(5, 1), run(0, 1)],
        vec![run(u32::MAX, 1)],
        (0..=FAILURES_MAX as u32).map(|n| run(n, 1)).collect(),
    ];
    for runs in bad {
        let shown = format!("{runs:?}");
        assert!(decode(&encoded(&Failures(runs))).is_err(), "{shown}");
    }
}

fn request(names: &[&[u8]]) -> PackRequest {
    PackRequest {
        keep: Preserve {
            owner: true,
            xattrs: false,
            read_times: true,
        },
        follow: false,
        file_bytes_max: 1 << 20,
        names: names.iter().map(|name| name.to_vec()).collect(),
    }
}

#[test]
fn wishes_come_back_and_bad_ones_are_refused() {
    let encoded = |request: &PackRequest| {
        let mut bytes = Vec::new();
        request.encode(&mut Writer::new(&mut bytes));
        bytes
    };
    let decode = |bytes: &[u8]| PackRequest::decode(&mut Reader::new(bytes), &limits());
    let good = request(&[b"a", b"b/\xff\n"]);
    let bytes = encoded(&good);
    assert_eq!(decode(&bytes), Ok(good));
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let bad: [&[&[u8]]; 6] = [&[], &[b""], &[b"a", b".."], &[b"/a"], &[b"a/"], &[b"a\0"]];
    for names in bad {
        assert!(decode(&encoded(&request(names))).is_err(), "{names:?}");
    }
    for keep in 0..=255 {
        let mut bytes = bytes.clone();
        bytes[0] = keep;
        let decoded = decode(&bytes);
        assert_eq!(decoded.is_ok(), keep < 16, "{keep}");
        assert!(decoded.is_err() || decoded.is_ok_and(|request| encoded(&request) == bytes));
    }
    // A count that exceeds the available bytes costs nothing.
    assert!(decode(&[0, 0, 0, 0, 0, 0xff, 0xff]).is_err());
    assert_eq!(PackRequest::name_bytes(b"abc"), 5);
}
