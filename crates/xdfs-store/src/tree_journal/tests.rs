//! Claims are read back, and nothing else is.

use std::os::unix::fs::PermissionsExt as _;
use std::slice;

use super::*;

const KEY: [u8; 32] = [7; 32];

fn mark(size: u64) -> Mark {
    Mark {
        kind: 0,
        size,
        mtime_ns: 5,
    }
}

fn totals(files: u64) -> Finished {
    Finished {
        totals: Totals {
            files,
            directories: 1,
            others: 0,
            bytes: 10 * files,
        },
        mtime_ns: files.is_multiple_of(2).then_some(-5),
    }
}

fn open(path: &Path) -> (TreeJournal, Earlier) {
    TreeJournal::open(path, KEY, [1; 16], false).unwrap()
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    (folder, path)
}

#[test]
fn what_was_written_is_read() {
    let (_folder, path) = place();
    let (mut journal, earlier) = open(&path);
    assert!(earlier.is_empty() && !earlier.has_run);
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let header = *journal.header();
    let claims: Vec<_> = (0..3)
        .map(|n| header.claim(b"a", format!("f{n}").as_bytes(), mark(n)))
        .collect();
    let root = Root {
        path: b"/t".to_vec(),
        inode: 9,
        source_inode: 10,
        was_there: true,
    };
    let records = [
        Record::Run(false),
        Record::Root(root.clone()),
        Record::Entries(b"a".to_vec(), claims.clone()),
        Record::Directory(b"a/b".to_vec(), totals(4)),
        Record::Directory(b"ab".to_vec(), totals(5)),
    ];
    journal.append(&records, true).unwrap();
    drop(journal);
    let (journal, earlier) = open(&path);
    assert_eq!(*journal.header(), header);
    assert_eq!(earlier.root, Some(root));
    assert!(earlier.has_run && !earlier.is_complete && !earlier.is_empty());
    let mut sorted = claims;
    sorted.sort();
    assert_eq!(earlier.claims(b"a"), sorted);
    assert_eq!(earlier.finished(b"a/b"), Some(totals(4)));
    assert_eq!(earlier.finished(b"a"), None);
    let below: Vec<_> = earlier.finished_in(b"a").collect();
    assert_eq!(below, [(&b"b"[..], totals(4))]);
    let below: Vec<_> = earlier.finished_in(b"").collect();
    assert_eq!(below, [(&b"ab"[..], totals(5))]);
    assert!(earlier.knows_of(b"a") && earlier.knows_of(b"") && !earlier.knows_of(b"ab"));
}

#[test]
fn a_finished_directory_makes_those_below_needless() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let claim = journal.header().claim(b"a/b", b"f", mark(1));
    let records = [
        Record::Entries(b"a/b".to_vec(), vec![claim]),
        Record::Directory(b"a/c".to_vec(), totals(1)),
        Record::Directory(b"a!".to_vec(), totals(1)),
        Record::Directory(b"a0".to_vec(), totals(1)),
        Record::Directory(b"a".to_vec(), totals(3)),
    ];
    journal.append(&records, false).unwrap();
    drop(journal);
    let (mut journal, earlier) = open(&path);
    assert!(earlier.claims(b"a/b").is_empty() && earlier.finished(b"a/c").is_none());
    for finished in [&b"a"[..], b"a!", b"a0"] {
        assert!(earlier.finished(finished).is_some());
    }
    journal
        .append(&[Record::Forget(b"a".to_vec())], false)
        .unwrap();
    drop(journal);
    let (_, earlier) = open(&path);
    assert!(earlier.finished(b"a").is_none() && earlier.finished(b"a0").is_some());
}

#[test]
fn the_later_claim_of_an_entry_counts_and_entries_are_forgotten() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let header = *journal.header();
    let old = header.claim(b"", b"f", mark(1));
    let new = header.claim(
        b"",
        b"f",
        Mark {
            mtime_ns: 6,
            ..mark(1)
        },
    );
    assert!(old.entry == new.entry && old.version != new.version);
    assert_eq!(old.entry, header.claim_entry(b"", b"f", mark(1)));
    for other in [
        header.claim(b"", b"f", mark(2)),
        header.claim(b"", b"g", mark(1)),
        header.claim(b"f", b"", mark(1)),
        header.claim(b"", b"f", Mark { kind: 1, ..mark(1) }),
    ] {
        assert!(other.entry != old.entry);
    }
    let records = [old, new].map(|claim| Record::Entries(Vec::new(), vec![claim]));
    journal.append(&records, false).unwrap();
    drop(journal);
    let (mut journal, earlier) = open(&path);
    assert_eq!(earlier.claims(b""), [new]);
    journal
        .append(&[Record::ForgetEntries(Vec::new())], false)
        .unwrap();
    drop(journal);
    assert!(open(&path).1.is_empty());
}

#[test]
fn what_a_run_claimed_that_came_to_its_end_lets_nothing_be_left_out() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let header = *journal.header();
    let claims = [&b"f"[..], b"g"].map(|name| header.claim(b"a", name, mark(1)));
    let records = [
        Record::Run(false),
        Record::Directory(b"d".to_vec(), totals(2)),
        Record::Directory(b"e".to_vec(), totals(3)),
        Record::Entries(b"a".to_vec(), claims[..1].to_vec()),
        Record::Run(true),
    ];
    journal.append(&records, false).unwrap();
    drop(journal);
    let (mut journal, mut earlier) = open(&path);
    assert!(earlier.is_complete);
    earlier.begin_run();
    let check = |earlier: &Earlier| {
        assert!(!earlier.is_empty() && earlier.finished(b"d").is_none());
        assert!(earlier.was_finished(b"d") && earlier.was_finished(b"d/x/y"));
        assert!(!earlier.was_finished(b"d!") && !earlier.was_finished(b""));
        assert_eq!(earlier.past_claims(b"a"), &claims[..1]);
    };
    check(&earlier);
    assert!(earlier.claims(b"a").is_empty() && !earlier.knows_of(b""));
    // The next one is interrupted: its claims count, even after compaction.
    let records = [
        Record::Run(false),
        Record::Directory(b"e".to_vec(), totals(4)),
        Record::Entries(b"a".to_vec(), claims[1..].to_vec()),
    ];
    journal.append(&records, false).unwrap();
    for _ in 0..2 {
        let mut reader = File::open(&path).unwrap();
        let mut records = Records::new(&mut reader).unwrap().unwrap();
        let earlier = Earlier::read(&mut records).unwrap();
        check(&earlier);
        assert!(earlier.has_run && !earlier.is_complete && !earlier.was_finished(b"e"));
        assert_eq!(earlier.finished(b"e"), Some(totals(4)));
        assert_eq!(earlier.claims(b"a"), &claims[1..]);
        journal.compact().unwrap();
    }
}

/// Entries that a run moved before its interruption may exist after any number of further runs.
#[test]
fn an_interrupted_run_is_not_forgotten() {
    for (runs, is_known) in [
        (&[][..], false),
        (&[false, true], false),
        (&[false, true, false, true], false),
        (&[false], false),
        (&[false, false], true),
        (&[false, false, true], true),
        (&[false, false, true, false, true], true),
    ] {
        let (_folder, path) = place();
        let (mut journal, _) = open(&path);
        let records: Vec<_> = runs.iter().map(|ended| Record::Run(*ended)).collect();
        let claim = Record::Entries(
            b"a".to_vec(),
            vec![Claim {
                entry: 3,
                version: 4,
            }],
        );
        journal
            .append(&[&records[..], &[claim]].concat(), false)
            .unwrap();
        for _ in 0..3 {
            let mut reader = File::open(&path).unwrap();
            let mut records = Records::new(&mut reader).unwrap().unwrap();
            let earlier = Earlier::read(&mut records).unwrap();
            assert_eq!(earlier.was_broken_off, is_known, "{runs:?}");
            assert_eq!(earlier.has_run, !runs.is_empty(), "{runs:?}");
            assert_eq!(earlier.is_complete, runs.ends_with(&[true]), "{runs:?}");
            journal.compact().unwrap();
        }
    }
}

#[test]
fn a_damaged_journal_claims_a_beginning() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let records: Vec<_> = (0..20)
        .map(|n| Record::Directory(format!("d{n:02}").into_bytes(), totals(n)))
        .collect();
    journal.append(&records, false).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let record_bytes = (whole.len() - HEADER_BYTES) / 20;
    for at in (0..whole.len()).step_by(7) {
        for cut in [true, false] {
            let mut damaged = whole.clone();
            match cut {
                true => damaged.truncate(at),
                false => damaged[at] ^= 0x10,
            }
            std::fs::write(&path, &damaged).unwrap();
            let (mut journal, earlier) = open(&path);
            let whole_ones = at.saturating_sub(HEADER_BYTES) / record_bytes;
            for n in 0..20 {
                let found = earlier.finished(format!("d{n:02}").as_bytes());
                assert_eq!(found.is_some(), n < whole_ones, "byte {at}, record {n}");
            }
            // Appends continue after the valid part.
            let more = Record::Directory(b"more".to_vec(), totals(1));
            journal.append(&[more], false).unwrap();
            drop(journal);
            assert!(open(&path).1.finished(b"more").is_some());
        }
    }
}

#[test]
fn a_record_in_another_place_or_of_an_older_journal_is_not_believed() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let record = Record::Directory(b"d".to_vec(), totals(1));
    journal.append(&[record.clone(), record], false).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let half = (whole.len() - HEADER_BYTES) / 2;
    // The second record at the position of the first.
    let moved = [&whole[..HEADER_BYTES], &whole[HEADER_BYTES + half..]].concat();
    std::fs::write(&path, moved).unwrap();
    assert!(open(&path).1.is_empty());
    // The records after a header with another nonce.
    let header = Header {
        key: KEY,
        nonce: [2; 16],
    };
    let other = [&header.encode()[..], &whole[HEADER_BYTES..]].concat();
    std::fs::write(&path, other).unwrap();
    assert!(open(&path).1.is_empty());
}

#[test]
fn another_tree_another_version_and_a_new_start() {
    let (_folder, path) = place();
    let write = || {
        let (mut journal, _) = TreeJournal::open(&path, KEY, [3; 16], true).unwrap();
        journal
            .append(&[Record::Directory(b"d".to_vec(), totals(1))], false)
            .unwrap();
    };
    write();
    assert!(!open(&path).1.is_empty());
    let (journal, earlier) = TreeJournal::open(&path, [8; 32], [1; 16], false).unwrap();
    assert!(earlier.is_empty() && journal.header().key == [8; 32]);
    drop(journal);
    write();
    assert!(
        TreeJournal::open(&path, KEY, [1; 16], true)
            .unwrap()
            .1
            .is_empty()
    );
    write();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[9] = 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(open(&path).1.is_empty());
}

#[test]
fn one_owner_at_a_time() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let fault = TreeJournal::open(&path, KEY, [1; 16], false).unwrap_err();
    assert_eq!(fault.code, Code::Busy);
    assert!(!fault.hint.is_empty());
    journal.remove().unwrap();
    assert!(!path.exists());
    assert!(journal.append(&[Record::Run(true)], false).is_err());
    drop(journal);
    drop(open(&path));
}

/// A program being started has copies of all descriptors until it executes.
#[test]
fn a_copy_of_the_descriptor_keeps_no_journal_locked() {
    let (_folder, path) = place();
    let (journal, _) = open(&path);
    let inherited = journal.file.try_clone().unwrap();
    drop(journal);
    drop(TreeJournal::open(&path, KEY, [1; 16], false).unwrap());
    drop(inherited);
}

#[test]
fn a_journal_that_fails_is_emptied() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let record = Record::Directory(b"d".to_vec(), totals(1));
    journal.append(slice::from_ref(&record), true).unwrap();
    // Its successor can't be created.
    let successor = path.with_extension("new");
    std::fs::create_dir(&successor).unwrap();
    let needless = Record::Directory(vec![b'x'; 40_000], totals(1));
    let failed = (0..4).any(|_| journal.append(slice::from_ref(&needless), true).is_err());
    assert!(failed && path.metadata().unwrap().len() == 0);
    assert!(journal.append(slice::from_ref(&record), true).is_err());
    drop(journal);
    // The same if it can't be removed.
    std::fs::remove_dir(&successor).unwrap();
    let (mut journal, earlier) = open(&path);
    assert!(earlier.is_empty());
    journal.append(&[record], true).unwrap();
    let other = path.with_extension("other");
    std::fs::rename(&path, &other).unwrap();
    assert!(journal.remove().is_err());
    assert_eq!(other.metadata().unwrap().len(), 0);
}

#[test]
fn a_journal_that_fails_says_where_the_tree_goes() {
    let root = Root {
        path: b"/target".to_vec(),
        inode: 0,
        source_inode: 7,
        was_there: true,
    };
    for compacted in [false, true] {
        let (_folder, path) = place();
        let (mut journal, _) = open(&path);
        journal.begin_run().unwrap();
        let first = [Record::Root(root.clone())];
        journal.append(&first, false).unwrap();
        // Later records are dropped.
        let claim = Record::Directory(b"d".to_vec(), totals(1));
        let known = Root {
            inode: 5,
            ..root.clone()
        };
        let claims = [claim.clone(), Record::Root(known.clone())];
        journal.append(&claims, true).unwrap();
        let needless = Record::Directory(vec![b'x'; 40_000], totals(1));
        let fails = |journal: &mut TreeJournal| {
            (0..4).any(|_| journal.append(slice::from_ref(&needless), true).is_err())
        };
        if compacted {
            assert!(!fails(&mut journal));
        }
        std::fs::create_dir(path.with_extension("new")).unwrap();
        assert!(fails(&mut journal));
        assert!(journal.append(slice::from_ref(&claim), true).is_err());
        drop(journal);
        let (_, earlier) = open(&path);
        assert!(earlier.is_empty() && earlier.has_run && !earlier.is_complete);
        let expected = if compacted { &known } else { &root };
        assert_eq!(earlier.root.as_ref(), Some(expected));
    }
}

/// After a disk error the system considers data written that it could not write.
#[test]
fn the_lead_is_rewritten_after_an_error() {
    let root = Root {
        path: b"/target".to_vec(),
        inode: 5,
        source_inode: 7,
        was_there: false,
    };
    for is_read in [false, true] {
        let (_folder, path) = place();
        let (mut journal, _) = open(&path);
        journal.append(&[Record::Root(root.clone())], true).unwrap();
        if is_read {
            drop(journal);
            journal = open(&path).0;
        }
        journal.begin_run().unwrap();
        let claim = Record::Directory(b"d".to_vec(), totals(1));
        journal.append(&[claim], true).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, vec![0; whole.len()]).unwrap();
        let _ = journal.fail_writes(&io::Error::other("an error of the disk"));
        assert!(whole.starts_with(&std::fs::read(&path).unwrap()));
        drop(journal);
        let (_, earlier) = open(&path);
        assert_eq!(earlier.root, Some(root.clone()));
        assert!(earlier.is_empty() && earlier.has_run && !earlier.is_complete);
    }
}

#[test]
fn a_folder_that_is_missing_is_a_fault() {
    let (folder, _) = place();
    let path = folder.path().join("missing/journal");
    let fault = TreeJournal::open(&path, KEY, [1; 16], false).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
}

/// Ten million entries in 100,000 directories of 100, in the order of a walk, with frequent claims
/// in the middle of a directory.
#[test]
fn the_journal_of_a_large_tree_is_bounded() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let header = *journal.header();
    let (mut largest, mut begun) = (0, std::time::Instant::now());
    for top in 0..100 {
        for below in 0..1000 {
            let directory = format!("top{top}/directory-{below}").into_bytes();
            let mut records = Vec::new();
            if below % 50 == 0 {
                let claims =
                    (0..50_u64).map(|n| header.claim(&directory, &n.to_be_bytes(), mark(n)));
                records.push(Record::Entries(directory.clone(), claims.collect()));
            }
            records.push(Record::Directory(directory, totals(100)));
            journal.append(&records, false).unwrap();
            largest = largest.max(journal.bytes());
        }
        let top = format!("top{top}").into_bytes();
        if top != b"top99" {
            let all = totals(100_000);
            journal
                .append(&[Record::Directory(top, all)], false)
                .unwrap();
        }
    }
    println!("written in {:?}, at most {largest} bytes", begun.elapsed());
    assert!(largest < 1 << 20, "{largest}");
    drop(journal);
    begun = std::time::Instant::now();
    let (journal, earlier) = open(&path);
    println!("{} bytes read in {:?}", journal.bytes(), begun.elapsed());
    assert_eq!(earlier.finished(b"top98").unwrap().totals.files, 100_000);
    assert!(earlier.finished(b"top98/directory-1").is_none());
    assert!(earlier.finished(b"top99/directory-999").is_some());
}

/// The worst case: ten million entries in one directory, none of them superseded.
#[test]
fn the_journal_of_one_large_directory_is_read_in_one_pass() {
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let count = 10_000_000_u64;
    for batch in 0..100 {
        // Arbitrary values: their input doesn't matter here.
        let claims = (0..count / 100).map(|n| {
            let entry = (batch * count / 100 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            Claim { entry, version: n }
        });
        journal
            .append(&[Record::Entries(Vec::new(), claims.collect())], false)
            .unwrap();
    }
    let bytes = journal.bytes();
    assert!(bytes < 16 * count + (1 << 20), "{bytes}");
    drop(journal);
    let begun = std::time::Instant::now();
    let (_, earlier) = open(&path);
    println!("{bytes} bytes read in {:?}", begun.elapsed());
    assert_eq!(earlier.claims(b"").len() as u64, count);
}

#[test]
fn what_is_live_says_the_same_when_it_is_written_anew() {
    let runs = [Record::Run(true), Record::Run(false)];
    let claims = vec![Claim {
        entry: 3,
        version: 4,
    }];
    for claims in [Vec::new(), claims] {
        let written = [&[Record::Entries(b"d".to_vec(), claims)], &runs[..]].concat();
        let mut live = written;
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (_folder, path) = place();
            let (mut journal, _) = open(&path);
            journal.append(&live, false).unwrap();
            drop(journal);
            live = open(&path).1.records().collect();
            seen.push(live.clone());
        }
        assert_eq!(seen[0], seen[1]);
    }
}

/// A power cut may write some sectors of an append and not others, and may keep the length: nothing
/// after the first missing sector counts, then or after further appends.
#[test]
fn missing_sectors_end_the_journal() {
    const SECTOR: usize = 512;
    const COUNT: u64 = 200;
    let name = |n: u64| format!("d{n:03}").into_bytes();
    let (_folder, path) = place();
    let (mut journal, _) = open(&path);
    let records: Vec<_> = (0..COUNT)
        .map(|n| Record::Directory(name(n), totals(n)))
        .collect();
    journal.append(&records, true).unwrap();
    drop(journal);
    let whole = std::fs::read(&path).unwrap();
    let record_bytes = (whole.len() - HEADER_BYTES) / records.len();
    let borders = (SECTOR..whole.len()).step_by(SECTOR);
    for at in borders {
        for is_rest_missing in [true, false] {
            let mut torn = whole.clone();
            let end = match is_rest_missing {
                true => torn.len(),
                false => torn.len().min(at + SECTOR),
            };
            torn[at..end].fill(0);
            std::fs::write(&path, &torn).unwrap();
            let (mut journal, earlier) = open(&path);
            let whole_ones = (at - HEADER_BYTES) / record_bytes;
            for n in 0..COUNT {
                let is_found = earlier.finished(&name(n)).is_some();
                assert_eq!(is_found, n < whole_ones as u64, "byte {at}, record {n}");
            }
            // Nothing of the tail follows appended records.
            let left = path.metadata().unwrap().len();
            assert_eq!(left, (HEADER_BYTES + whole_ones * record_bytes) as u64);
            let more = Record::Directory(b"more".to_vec(), totals(1));
            journal.append(&[more], true).unwrap();
            drop(journal);
            let (_, again) = open(&path);
            assert!(again.finished(b"more").is_some());
            assert!(again.finished(&name(whole_ones as u64)).is_none());
        }
    }
}
