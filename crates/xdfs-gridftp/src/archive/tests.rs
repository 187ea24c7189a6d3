//! Tests of segments: what is written is read, and nothing else is.

use super::*;

fn file<'a>(path: &'a [u8], data: &'a [u8]) -> Member<'a> {
    Member {
        path: Cow::Borrowed(path),
        kind: Kind::File,
        mode: 0o640,
        mtime_s: Some(1_795_289_011),
        data,
    }
}

fn written(compression: Compression, all: &[Member<'_>]) -> Vec<u8> {
    let mut writer = ArchiveWriter::new(compression).unwrap();
    let mut bytes = Vec::new();
    for member in all {
        writer.add(member).unwrap();
        bytes.append(&mut writer.take());
    }
    bytes.append(&mut writer.finish().unwrap());
    bytes
}

/// An archive with one member, whose header `change` has changed.
fn changed(change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.set_path("a").unwrap();
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(0);
    header.set_entry_type(EntryType::Regular);
    change(&mut header);
    header.set_cksum();
    [&header.as_bytes()[..], &[0; END]].concat()
}

#[test]
fn what_is_written_is_read() {
    let long = [
        &b"d/"[..],
        &[b'x'; 200],
        b"/",
        "\u{fc}\u{ff}".as_bytes(),
        &[0xff; 3],
    ]
    .concat();
    let directory = |path: &'static [u8], kind| Member {
        kind,
        mode: 0o755,
        ..file(path, b"")
    };
    let all = [
        directory(b"d", Kind::Directory),
        file(b"empty", b""),
        file(b"d/a b", &[7; 513]),
        Member {
            mtime_s: Some(-5),
            ..file(&long, b"1")
        },
        Member {
            mtime_s: Some(0),
            ..file(b"z", b"1")
        },
        Member {
            mtime_s: None,
            ..file(&[b'y'; 100], &[0; 100_000])
        },
        directory(b"d", Kind::Attributes),
        directory(b"", Kind::Attributes),
    ];
    for (compression, name) in Compression::ALL {
        let bytes = written(compression, &all);
        let archive = unpack(compression, &bytes).unwrap();
        assert_eq!(members(&archive).unwrap(), all, "{name}");
        assert_eq!(Compression::from_name(name.as_bytes()), Some(compression));
        // Nothing of a part of it is taken, nor of more than it.
        for end in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            let read = unpack(compression, &bytes[..end]);
            let read = read
                .as_deref()
                .map(|archive| members(archive).map(|all| all.len()));
            assert!(!matches!(read, Ok(Ok(_))), "{name}: {end} bytes");
        }
        let more = [&bytes[..], b"x"].concat();
        let read = unpack(compression, &more);
        let read = read
            .as_deref()
            .map(|archive| members(archive).map(|all| all.len()));
        assert!(!matches!(read, Ok(Ok(_))), "{name}: one byte more");
    }
}

#[test]
fn paths_out_of_the_tree_are_refused() {
    let paths = [
        "..",
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a//b",
        "./a",
        "a/.",
        "",
        "a/",
    ];
    for path in paths {
        let archive = changed(|header| {
            let name = &mut header.as_old_mut().name;
            name.fill(0);
            name[..path.len()].copy_from_slice(path.as_bytes());
        });
        let error = members(&archive).unwrap_err();
        assert!(matches!(error, ArchiveError::BadPath(_)), "{path}: {error}");
    }
    // By an extension too, which stands for what the header says.
    let mut extension = Vec::new();
    record(&mut extension, "path", b"../../x");
    let before = changed(|header| {
        header.set_entry_type(EntryType::XHeader);
        header.set_size(extension.len() as u64);
    });
    extension.resize(RECORD, 0);
    let archive = [&before[..RECORD], &extension, &changed(|_| {})].concat();
    let error = members(&archive).unwrap_err();
    assert_eq!(error, ArchiveError::BadPath(b"../../x".to_vec()));
}

#[test]
fn links_and_holes_are_refused() {
    let kinds = [b'1', b'2', b'3', b'4', b'6', b'7', b'S', b'V', b'M'];
    for kind in kinds {
        let archive = changed(|header| {
            header.set_entry_type(EntryType::new(kind));
            header.set_link_name("../../etc/passwd").unwrap();
        });
        // A sparse one is refused as damaged, or for its kind.
        assert!(members(&archive).is_err(), "{}", char::from(kind));
    }
}

/// An archive with one empty member, about which a pax header says something.
fn with_record(key: &str, value: &str) -> Vec<u8> {
    let mut records = Vec::new();
    record(&mut records, key, value.as_bytes());
    let before = changed(|header| {
        header.set_entry_type(EntryType::XHeader);
        header.set_size(records.len() as u64);
    });
    records.resize(records.len().next_multiple_of(RECORD), 0);
    [&before[..RECORD], &records, &changed(|_| {})].concat()
}

#[test]
fn records_that_are_not_understood_change_nothing_or_refuse_the_segment() {
    assert_eq!(members(&with_record("comment", "x")).unwrap().len(), 1);
    assert_eq!(members(&with_record("size", "0")).unwrap().len(), 1);
    for (key, value) in [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.realsize", "1"),
        ("GNU.sparse.map", "0,1"),
        ("size", "99999999999999999999"),
        ("size", "-1"),
        ("size", "1"),
    ] {
        assert!(members(&with_record(key, value)).is_err(), "{key}={value}");
    }
}

#[test]
fn wrong_sizes_and_sums_are_refused() {
    for size in [1, 1 << 20, u64::MAX, u64::MAX / 2] {
        let archive = changed(|header| header.set_size(size));
        assert!(members(&archive).is_err(), "{size}");
    }
    let mut archive = changed(|_| {});
    archive[0] ^= 1;
    assert!(
        members(&archive).is_err(),
        "another name than that of the sum"
    );
    let twice = written(Compression::None, &[file(b"a", b"1"), file(b"a", b"2")]);
    assert_eq!(members(&twice), Err(ArchiveError::Doubled(b"a".to_vec())));
    let garbage = [&changed(|_| {})[..], &[0; RECORD - 1], b"x"].concat();
    assert_eq!(members(&garbage), Err(ArchiveError::BadEnd));
}

#[test]
fn bombs_are_refused() {
    let zeros = vec![0; SEGMENT_BYTES_MAX + 1];
    let gzip = || {
        let out = Vec::new();
        let mut encoder = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
        encoder.write_all(&zeros).unwrap();
        encoder.finish().unwrap()
    };
    let bzip2 = || {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(&zeros).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = zstd::stream::encode_all(&zeros[..], 1).unwrap();
    for (compression, bomb) in [
        (Compression::Gzip, gzip()),
        (Compression::Bzip2, bzip2()),
        (Compression::Zstd, zstd),
    ] {
        assert!(bomb.len() < SEGMENT_BYTES_MAX / 100);
        assert_eq!(unpack(compression, &bomb), Err(ArchiveError::TooLarge));
    }
    assert_eq!(
        unpack(Compression::None, &zeros),
        Err(ArchiveError::TooLarge)
    );
}
