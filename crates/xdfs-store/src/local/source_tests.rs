//! Tests of how versions of a file are distinguished.

use super::*;

const SECOND: i64 = 1_000_000_000;

fn meta() -> Meta {
    Meta {
        kind: FileKind::Regular,
        length: 10,
        allocated: Some(4096),
        atime_ns: 0,
        mtime_ns: 5 * SECOND,
        ctime_ns: 100 * SECOND + 1,
        mode: Some(0o644),
        identity: Some((1, 2)),
        links: 1,
        owner: Some(0),
        group: Some(0),
    }
}

fn at(nanoseconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds as u64)
}

#[test]
fn a_file_is_settled_when_the_clock_has_moved_on() {
    let fine = meta();
    let changed = fine.ctime_ns;
    assert_eq!(unsettled_for(&fine, at(changed)), GRAIN);
    let almost = at(changed) + GRAIN - Duration::from_millis(1);
    assert_eq!(unsettled_for(&fine, almost), Duration::from_millis(1));
    assert_eq!(unsettled_for(&fine, at(changed) + GRAIN), Duration::ZERO);
    // From another clock, or set back.
    assert_eq!(unsettled_for(&fine, at(changed - 1)), Duration::ZERO);
    // Whole seconds.
    let coarse = Meta {
        ctime_ns: 100 * SECOND,
        ..meta()
    };
    let second = Duration::from_secs(1);
    assert_eq!(unsettled_for(&coarse, at(101 * SECOND)), second);
    assert_eq!(unsettled_for(&coarse, at(102 * SECOND)), Duration::ZERO);
    // Without a change time, the modification time must do.
    let without = Meta {
        ctime_ns: 0,
        mtime_ns: 100 * SECOND + 1,
        ..meta()
    };
    assert_eq!(unsettled_for(&without, at(100 * SECOND + 1)), GRAIN);
}

#[test]
fn every_trace_of_a_change_counts() {
    let before = meta();
    assert_eq!(difference(&before, &before), None);
    let changed: [fn(&mut Meta); 5] = [
        |meta| meta.length += 1,
        |meta| meta.length -= 1,
        |meta| meta.identity = Some((1, 3)),
        |meta| meta.mtime_ns += 1,
        |meta| meta.ctime_ns += 1,
    ];
    for change in changed {
        let mut now = before;
        change(&mut now);
        assert!(difference(&before, &now).is_some(), "{now:?}");
    }
    // Reading sets the access time, and a removal the change time.
    let mut now = before;
    now.atime_ns += 1;
    assert_eq!(difference(&before, &now), None);
    now.links = 0;
    now.ctime_ns += 1;
    assert_eq!(difference(&before, &now), None);
    now.mtime_ns += 1;
    assert!(difference(&before, &now).is_some());
}

/// Memory that begins at a page, and what begins `off` bytes later.
#[cfg(unix)]
fn aligned(memory: &mut [u8], off: usize, length: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(fs::DIRECT_ALIGNMENT) + off;
    &mut memory[start..start + length]
}

#[cfg(unix)]
#[test]
fn direct_reads_bring_the_bytes_of_any_range() {
    use std::os::unix::fs::FileExt as _;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let bytes: Vec<u8> = (0..1_000_003_u32)
        .map(|at| (at * 7 + at / 256) as u8)
        .collect();
    std::fs::write(&path, &bytes).unwrap();
    let source = LocalSource::new(File::open(&path).unwrap(), b"file").unwrap();
    let Some(direct) = fs::open_direct_to_read(source.file()) else {
        return xdfs_testkit::skip::test("the file system has no direct I/O");
    };
    let mut direct = DirectSource::new(source, Arc::new(direct));
    // What is in memory is not read from the disk.
    let on_disk = File::open(&path).unwrap();
    let cool = || {
        on_disk.sync_all().unwrap();
        rustix::fs::fadvise(&on_disk, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };
    let mut memory = vec![0; (1 << 20) + 2 * fs::DIRECT_ALIGNMENT];
    for (offset, length, off) in [
        (0, 8192, 0),
        (4096, 100_000, 0),
        (0, 1_000_003, 0),
        (999_424, 579, 0),
        (1_000_002, 1, 0),
        (5, 70_000, 0),
        (8192, 70_000, 16),
    ] {
        let room = aligned(&mut memory, off, length);
        room.fill(0);
        cool();
        assert_eq!(direct.read_at(offset as u64, room).unwrap(), length);
        assert!(
            *room == bytes[offset..offset + length],
            "{offset} {length} {off}"
        );
    }
    // What was written by the page cache and isn't on the disk yet.
    let file = File::options().write(true).open(&path).unwrap();
    cool();
    file.write_all_at(&[9; 4096], 4096).unwrap();
    let room = aligned(&mut memory, 0, 32_768);
    assert_eq!(direct.read_at(0, room).unwrap(), 32_768);
    assert!(room[4096..8192].iter().all(|byte| *byte == 9));
    assert!(room[8192..] == bytes[8192..32_768]);
    // A file that becomes shorter is none that ends there.
    file.set_len(4096).unwrap();
    let room = aligned(&mut memory, 0, 8192);
    let fault = direct.read_at(0, room).unwrap_err();
    assert_eq!(fault.code, Code::SourceChanged);
}
