//! Large files of which only a part changed, both ways: what is sent, and that it is right whatever
//! happens.

use std::fs::{self, File, FileTimes};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use xdfs::{Code, DigestKind, SyncOptions, SyncResult, TransferParameters, TreeEvent, TreeOptions};
use xdfs_testkit::tree::make_pipe;

use crate::picture::assert_same;
use crate::scene::Way;
use crate::support::hidden_names;
use crate::sync::{Stage, WAYS, write};

const MIB: usize = 1 << 20;

fn delta() -> SyncOptions {
    SyncOptions {
        delta: true,
        ..SyncOptions::default()
    }
}

/// Bytes that no compression would make shorter, the same for the same seed.
pub(crate) fn noise(seed: u64, count: usize) -> Vec<u8> {
    let mut state = seed ^ 0x5851_f42d_4c95_7f2d;
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_be_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Puts the versions in their places, with times that differ.
pub(crate) fn place(stage: &Stage, name: &str, old: &[u8], new: &[u8]) {
    write(stage.target().join(name), old);
    write(stage.source().join(name), new);
    set_times(stage, name);
}

/// Gives both files times of their own: those of writes are equal within a tick of the clock.
fn set_times(stage: &Stage, name: &str) {
    for (path, seconds) in [(stage.target(), 1_000_000), (stage.source(), 2_000_000)] {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let file = File::options().write(true).open(path.join(name)).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
}

/// Bytes that were sent.
fn sent(result: &SyncResult) -> usize {
    usize::try_from(result.tree.bytes - result.tree.matched_bytes).unwrap()
}

/// Makes them equal, and says how many bytes were sent.
#[track_caller]
fn run(stage: &Stage, options: &SyncOptions) -> usize {
    let result = stage.make_equal(options);
    assert_eq!(result.tree.files, 1);
    assert_eq!(hidden_names(&stage.target()), [""; 0]);
    sent(&result)
}

#[track_caller]
fn sent_of(way: Way, old: &[u8], new: &[u8], options: &SyncOptions) -> usize {
    let stage = Stage::new(way);
    place(&stage, "file", old, new);
    let sent = run(&stage, options);
    stage.assert_settled(options);
    sent
}

/// A change of a file.
type Change = fn(&mut Vec<u8>);

#[test]
fn only_what_changed_is_sent() {
    let old = noise(1, 8 * MIB + 4321);
    let edits: [(&str, Change); 6] = [
        ("overwrite", |new| new[3 * MIB..3 * MIB + 100].fill(7)),
        ("insert", |new| {
            new.splice(MIB..MIB, [1, 2, 3]);
        }),
        ("delete", |new| {
            new.drain(5 * MIB..5 * MIB + 777);
        }),
        ("append", |new| new.extend(noise(2, 1000))),
        ("truncate", |new| new.truncate(7 * MIB + 1)),
        ("exchange", |new| {
            let tail = new.split_off(4 * MIB + 55);
            new.splice(0..0, tail);
        }),
    ];
    for way in WAYS {
        for (name, edit) in edits {
            let mut new = old.clone();
            edit(&mut new);
            let sent = sent_of(way, &old, &new, &delta());
            assert!(sent < 64 << 10, "{way:?} {name}: {sent} bytes");
        }
    }
}

#[test]
fn of_many_scattered_edits_little_more_is_sent_than_the_blocks_they_are_in() {
    const EDITS: usize = 3000;
    const BLOCK: usize = 8 << 10;
    // Two or three blocks for each.
    let apart = BLOCK * 5 / 2;
    let old = noise(1, EDITS * apart);
    assert!(old.len().isqrt() <= BLOCK);
    for digest in [DigestKind::Crc64Nvme, DigestKind::Blake3] {
        let mut new = old.clone();
        for edit in new.chunks_mut(apart) {
            edit[BLOCK / 2 - 1] ^= 1;
        }
        let options = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    digest: Some(digest),
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..delta()
        };
        for way in WAYS {
            let sent = sent_of(way, &old, &new, &options);
            let least = EDITS * BLOCK;
            assert!(
                sent < least + least / 10,
                "{way:?} {digest:?}: {sent} bytes"
            );
        }
    }
}

#[test]
fn without_the_option_all_is_sent() {
    let old = noise(1, 2 * MIB);
    let mut new = old.clone();
    new[5] ^= 1;
    for way in WAYS {
        let sent = sent_of(way, &old, &new, &SyncOptions::default());
        assert_eq!(sent, new.len());
    }
}

#[test]
fn each_digest_serves() {
    let old = noise(1, 5 * MIB + 17);
    let mut new = old.clone();
    new.splice(2 * MIB..2 * MIB, [9; 33]);
    for way in WAYS {
        for digest in [DigestKind::None, DigestKind::Crc64Nvme, DigestKind::Blake3] {
            let options = SyncOptions {
                tree: TreeOptions {
                    parameters: TransferParameters {
                        digest: Some(digest),
                        ..TransferParameters::default()
                    },
                    ..TreeOptions::default()
                },
                ..delta()
            };
            let sent = sent_of(way, &old, &new, &options);
            assert!(sent < 64 << 10, "{way:?} {digest:?}: {sent} bytes");
        }
    }
}

#[test]
fn files_that_are_small_or_have_little_in_common_are_sent_whole() {
    let common = noise(1, MIB);
    let longer = [noise(2, 6 * MIB), common.clone()].concat();
    let cases = [
        (Vec::new(), noise(3, 2 * MIB)),
        (noise(3, 2 * MIB), Vec::new()),
        (vec![1], vec![2]),
        (noise(3, MIB - 1), noise(3, MIB - 1)[1..].to_vec()),
        (noise(4, 2 * MIB), noise(5, 2 * MIB)),
        (common, longer),
    ];
    for way in WAYS {
        for (old, new) in &cases {
            let sent = sent_of(way, old, new, &delta());
            assert_eq!(sent, new.len(), "{way:?} {}", old.len());
        }
    }
}

#[test]
fn holes_on_one_side_or_the_other() {
    let sparse = |path: &Path| {
        let file = File::create(path).unwrap();
        file.set_len(12 * MIB as u64).unwrap();
        file.write_all_at(&noise(1, 2 * MIB), 3 * MIB as u64)
            .unwrap();
        file.write_all_at(b"end", 11 * MIB as u64).unwrap();
    };
    for way in WAYS {
        for is_source_sparse in [true, false] {
            let stage = Stage::new(way);
            let (a, b) = (stage.source().join("file"), stage.target().join("file"));
            write(a.clone(), "");
            write(b.clone(), "");
            let (hollow, full) = if is_source_sparse { (a, b) } else { (b, a) };
            sparse(&hollow);
            let mut bytes = fs::read(&hollow).unwrap();
            bytes[4 * MIB] ^= 1;
            fs::write(&full, bytes).unwrap();
            set_times(&stage, "file");
            let sent = run(&stage, &delta());
            let most = if is_source_sparse { 12 * MIB } else { 64 << 10 };
            assert!(sent <= most, "{way:?} {is_source_sparse}: {sent} bytes");
        }
    }
}

#[test]
fn many_files_at_once_beside_others() {
    for way in WAYS {
        let stage = Stage::new(way);
        for n in 0..12u64 {
            let old = noise(n, MIB + n as usize * 1000);
            let mut new = old.clone();
            new[MIB / 2] ^= 1;
            write(stage.target().join(format!("d{}/large{n}", n % 3)), old);
            write(stage.source().join(format!("d{}/large{n}", n % 3)), new);
            write(stage.source().join(format!("d{}/small{n}", n % 3)), [1; 99]);
            write(stage.source().join(format!("new{n}")), noise(n, 600 << 10));
        }
        let options = SyncOptions {
            compare: xdfs::Compare::Digest,
            ..delta()
        };
        let result = stage.make_equal(&options);
        assert_eq!(result.tree.files, 36);
        assert!(result.tree.matched_bytes > 11 * MIB as u64, "{result:?}");
        stage.assert_settled(&options);
    }
}

#[test]
fn what_was_begun_for_another_version_is_not_used() {
    for way in WAYS {
        let stage = Stage::new(way);
        let old = noise(1, 3 * MIB);
        let mut new = old.clone();
        new.rotate_left(5000);
        place(&stage, "file", &old, &new);
        run(&stage, &delta());
        // The same length, and other content from the beginning on.
        let other = noise(9, 3 * MIB);
        fs::write(stage.source().join("file"), &other).unwrap();
        assert_eq!(run(&stage, &delta()), other.len());
    }
}

#[test]
fn an_old_file_that_changes_meanwhile_makes_nothing_wrong() {
    for way in WAYS {
        let stage = Stage::new(way);
        let old = noise(1, 4 * MIB);
        let mut new = old.clone();
        new.rotate_left(300);
        place(&stage, "file", &old, &new);
        let path = stage.target().join("file");
        let is_over = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(&path).unwrap();
                let mut at = 0;
                while !is_over.load(Ordering::Relaxed) {
                    at = (at + 77_777) % (4 * MIB as u64);
                    file.write_all_at(b"others write here", at).unwrap();
                }
            });
            let result = stage.sync(&delta());
            is_over.store(true, Ordering::Relaxed);
            result
        });
        let (result, told) = result.unwrap();
        assert_eq!((result.tree.files, told.failed), (1, vec![]));
        // The new file isn't the one that the others have open.
        assert_eq!(fs::read(&path).unwrap(), new, "{way:?}");
        assert_eq!(hidden_names(&stage.target()), [""; 0]);
    }
}

#[test]
fn a_sync_that_is_stopped_goes_on() {
    for way in WAYS {
        let stage = Stage::new(way);
        let old = noise(1, 6 * MIB);
        let new = [&old[..3 * MIB], &noise(2, 5 * MIB)].concat();
        place(&stage, "file", &old, &new);
        let options = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    rate_bytes_per_s_max: Some(MIB as u64),
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..delta()
        };
        let mut events = 0;
        let ended = stage.sync_by(&options, &mut |event: TreeEvent<'_>| {
            events += usize::from(matches!(event, TreeEvent::Progress(_)));
            if events > 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(ended.unwrap_err().code, Code::Cancelled);
        assert_eq!(fs::read(stage.target().join("file")).unwrap(), old);
        until_free(&stage, &delta());
        assert_same(&stage.source(), &stage.target());
        assert_eq!(hidden_names(&stage.target()), [""; 0]);
    }
}

#[test]
fn what_stands_in_the_place_of_a_large_file_stays_until_that_is_there() {
    for way in WAYS {
        let stage = Stage::new(way);
        for name in ["d/pipe", "d/link", "d/away"] {
            write(stage.source().join(name), noise(1, 3 * MIB));
        }
        fs::create_dir_all(stage.target().join("d")).unwrap();
        fs::create_dir_all(stage.folders.here("elsewhere")).unwrap();
        let there = |name: &str| stage.target().join("d").join(name);
        make_pipe(there("pipe")).unwrap();
        symlink("nowhere", there("link")).unwrap();
        symlink(stage.folders.here("elsewhere"), there("away")).unwrap();
        let options = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    rate_bytes_per_s_max: Some(MIB as u64),
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..SyncOptions::default()
        };
        let mut events = 0;
        let ended = stage.sync_by(&options, &mut |event: TreeEvent<'_>| {
            events += usize::from(matches!(event, TreeEvent::Progress(_)));
            if events > 3 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert_eq!(ended.unwrap_err().code, Code::Cancelled);
        let kind = |name| fs::symlink_metadata(there(name)).unwrap().file_type();
        let is_whole = kind("pipe").is_fifo() && kind("link").is_symlink();
        assert!(is_whole && kind("away").is_symlink(), "{way:?}");
        until_free(&stage, &SyncOptions::default());
        assert_same(&stage.source(), &stage.target());
        assert_eq!(hidden_names(&stage.target().join("d")), [""; 0]);
        let elsewhere = fs::read_dir(stage.folders.here("elsewhere")).unwrap();
        assert_eq!(elsewhere.count(), 0);
    }
}

/// Tries again as long as the other side isn't done yet with what was stopped.
fn until_free(stage: &Stage, options: &SyncOptions) {
    for _ in 0..100 {
        let (_, told) = stage.sync(options).unwrap();
        if told.failed.is_empty() {
            return;
        }
        let codes: Vec<Code> = told.failed.iter().map(|failed| failed.1).collect();
        assert!(codes.iter().all(|code| *code == Code::Busy), "{told:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it stays busy");
}

/// A change of a file.
#[derive(Clone, Debug)]
enum Edit {
    Insert(usize, Vec<u8>),
    Delete(usize, usize),
    Overwrite(usize, Vec<u8>),
    Append(Vec<u8>),
    Truncate(usize),
    Shuffle(usize, usize),
    Zero(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0..4 * MIB;
    let some = || (any::<u64>(), 0..200_000usize).prop_map(|(seed, count)| noise(seed, count));
    prop_oneof![
        (place(), some()).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (place(), 0..MIB).prop_map(|(at, count)| Edit::Delete(at, count)),
        (place(), some()).prop_map(|(at, bytes)| Edit::Overwrite(at, bytes)),
        some().prop_map(Edit::Append),
        place().prop_map(Edit::Truncate),
        (place(), 1..MIB).prop_map(|(at, by)| Edit::Shuffle(at, by)),
        (place(), 0..MIB).prop_map(|(at, count)| Edit::Zero(at, count)),
    ]
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let cut = |at: usize| at.min(bytes.len());
        match self {
            Self::Insert(at, new) => {
                let at = cut(*at);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Delete(at, count) => {
                let range = cut(*at)..cut(at + count);
                bytes.drain(range);
            }
            Self::Overwrite(at, new) => {
                let range = cut(*at)..cut(at + new.len());
                let count = range.len();
                bytes[range].copy_from_slice(&new[..count]);
            }
            Self::Append(new) => bytes.extend(new),
            Self::Truncate(at) => bytes.truncate(*at),
            Self::Shuffle(at, by) => {
                let at = cut(*at);
                bytes.rotate_left(at);
                let mut blocks: Vec<Vec<u8>> = bytes.chunks(*by).map(<[u8]>::to_vec).collect();
                blocks.reverse();
                *bytes = blocks.concat();
            }
            Self::Zero(at, count) => {
                let range = cut(*at)..cut(at + count);
                bytes[range].fill(0);
            }
        }
    }
}

#[test]
fn any_edits_come_over() {
    let config = ProptestConfig {
        cases: 40,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    };
    let edits = proptest::collection::vec(edit(), 1..5);
    let case = (
        any::<u64>(),
        0..4 * MIB,
        edits,
        any::<bool>(),
        any::<bool>(),
    );
    proptest!(config, |((seed, length, edits, is_up, by_blake3) in case)| {
        let old = noise(seed, length);
        let mut new = old.clone();
        for edit in &edits {
            edit.apply(&mut new);
        }
        prop_assume!(old != new);
        let stage = Stage::new(if is_up { Way::Up } else { Way::Down });
        place(&stage, "file", &old, &new);
        let options = SyncOptions {
            tree: TreeOptions {
                parameters: TransferParameters {
                    digest: Some(match by_blake3 {
                        true => DigestKind::Blake3,
                        false => DigestKind::Crc64Nvme,
                    }),
                    ..TransferParameters::default()
                },
                ..TreeOptions::default()
            },
            ..delta()
        };
        let result = stage.make_equal(&options);
        prop_assert_eq!(result.tree.files, 1);
        prop_assert_eq!(hidden_names(&stage.target()).len(), 0);
    });
}

/// Of a file with several names only one is looked at for its differences: what is prepared for
/// another would stay.
#[test]
fn names_of_one_file_that_changed_are_sent_once() {
    for way in WAYS {
        let stage = Stage::new(way);
        let old = noise(2, MIB + MIB / 4);
        let mut new = old.clone();
        new[500_000..500_010].fill(7);
        place(&stage, "one", &old, &new);
        for root in [stage.source(), stage.target()] {
            fs::hard_link(root.join("one"), root.join("other")).unwrap();
        }
        let options = SyncOptions {
            tree: TreeOptions {
                hard_links: true,
                ..TreeOptions::default()
            },
            ..delta()
        };
        let result = stage.make_equal(&options);
        assert!(result.tree.matched_bytes > MIB as u64, "{way:?} {result:?}");
        let inode = |name| fs::metadata(stage.target().join(name)).unwrap().ino();
        assert_eq!(inode("one"), inode("other"));
    }
}
