//! The order in which system calls make things durable, as `strace` sees it: whatever is claimed
//! has been made durable by then, and so has what says so.
//!
//! A test runs itself once more under `strace`, in the part of `act_alone`, and reads what that
//! wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use xdfs_proto::delta::{Seed, SeedPiece};
use xdfs_proto::digest::DigestKind;
use xdfs_store::tree_journal::{Finished, Record, Totals, TreeJournal};
use xdfs_store::{Store, seed};

use crate::common::*;

/// Which part the process under `strace` plays, and the directory that it works in.
const PART: &str = "XDFS_TEST_PART";
const DIR: &str = "XDFS_TEST_DIR";

const PARTIAL: &str = ".file.xdfs-part";
const JOURNAL: &str = ".file.xdfs-journal";
const NEW_JOURNAL: &str = ".file.xdfs-journal-new";
const TREE_JOURNAL: &str = "tree";
const NEW_TREE_JOURNAL: &str = "tree.new";

/// What of a system call matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Bytes were written to the file of this name, or its length was set.
    Write(String),
    Sync(String),
    Rename(String, String),
    Unlink(String),
    /// A note of the process itself: it was told that something is durable.
    Claimed(String),
}

/// Does a part, and makes a note of what was claimed. Only run by [`steps_of`].
#[test]
#[ignore = "a part of the other tests"]
fn act_alone() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let store = rooted(&dir);
    let note = |what: &str| {
        // Reading a directory that isn't there leaves a line in the trace.
        let _ = std::fs::File::open(dir.join(format!("claimed-{what}")));
    };
    let mut wanted = request("file");
    match std::env::var(PART).unwrap().as_str() {
        "claim" => {
            let mut opened = store.open_sink(&wanted).unwrap();
            for i in 0..2 {
                save(&mut opened, i * 8192, &[i as u8 + 1; 4096]);
                note(&i.to_string());
            }
        }
        "hole" => {
            let mut opened = store.open_sink(&wanted).unwrap();
            write(&mut opened, 0, &[1; 4096]);
            opened.sink.hole(range(0, 4096));
            opened.sink.sync().unwrap();
            let zeros = fragment(DigestKind::Crc64Nvme, 0, &[0; 4096]);
            opened.sink.record(&[zeros]).unwrap();
            note("0");
        }
        "resume" => {
            let mut opened = store.open_sink(&wanted).unwrap();
            assert_eq!(opened.durable.len(), 1);
            note("earlier");
            save(&mut opened, 8192, &[2; 4096]);
            note("0");
        }
        part @ ("publish" | "replace") => {
            wanted.overwrite = part == "replace";
            let mut opened = store.open_sink(&wanted).unwrap();
            write(&mut opened, 0, &[1; 4096]);
            let whole = fragment(DigestKind::Crc64Nvme, 0, &[1; 4096]);
            opened.sink.publish(4096, &[whole]).unwrap();
            note("published");
        }
        "publish-recorded" => {
            let mut opened = store.open_sink(&wanted).unwrap();
            save(&mut opened, 0, &[1; 4096]);
            write(&mut opened, 4096, &[1; 4096]);
            let rest = fragment(DigestKind::Crc64Nvme, 4096, &[1; 4096]);
            opened.sink.publish(8192, &[rest]).unwrap();
            note("published");
        }
        "seed" => {
            let piece = fragment(DigestKind::Crc64Nvme, 0, &[7; 4096]);
            let wanted = Seed {
                from: b"old".to_vec(),
                to: b"file".to_vec(),
                length: 8192,
                tag: TAG,
                digest: DigestKind::Crc64Nvme,
                block_bytes: BLOCK,
                overwrite: false,
                sparse: false,
                pieces: vec![SeedPiece {
                    offset: 0,
                    from_offset: 0,
                    length: 4096,
                    state: piece.state,
                }],
            };
            assert_eq!(seed(&store, &wanted).unwrap(), 4096);
            note("0");
        }
        "tree" => {
            let path = dir.join(TREE_JOURNAL);
            let (mut journal, _) = TreeJournal::open(&path, [7; 32], [1; 16], false).unwrap();
            // Each makes the one before needless, so that the journal is written anew in the end.
            for i in 0..6 {
                let finished = Finished {
                    totals: Totals::default(),
                    mtime_ns: Some(i),
                };
                let record = Record::Directory(vec![b'd'; 20_000], finished);
                journal.append(&[record], true).unwrap();
                note(&i.to_string());
            }
        }
        part => panic!("{part}"),
    }
}

/// Has a part done in `dir`, and returns its steps. `None` if there is no `strace` here.
fn steps_of(part: &str, dir: &Path) -> Option<Vec<Step>> {
    let log = dir.join("strace");
    let status = Command::new("strace")
        .args(["-f", "-y", "-s", "0", "-a", "1", "-o"])
        .arg(&log)
        .args(["-e", "signal=none", "-e"])
        .arg(
            "trace=write,writev,pwrite64,pwritev,pwritev2,copy_file_range,ftruncate,fallocate,\
             fsync,fdatasync,sync_file_range,rename,renameat,renameat2,unlink,unlinkat,openat",
        )
        .arg(std::env::current_exe().expect("a program that runs"))
        .args(["--exact", "order::act_alone", "--ignored", "--nocapture"])
        .env(PART, part)
        .env(DIR, dir)
        .output();
    let Ok(output) = status else {
        xdfs_testkit::skip::test("there is no strace here");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("Operation not permitted") && !log.exists() {
        xdfs_testkit::skip::test("strace may not trace here");
        return None;
    }
    assert!(output.status.success(), "{text}");
    let log = std::fs::read_to_string(&log).expect("strace wrote it");
    let steps: Vec<Step> = log.lines().filter_map(|line| step(line, dir)).collect();
    assert!(
        steps.iter().any(|step| matches!(step, Step::Claimed(_))),
        "{log}"
    );
    Some(steps)
}

/// Reads a line as `123 fsync(5</dir/name>) = 0`.
fn step(line: &str, dir: &Path) -> Option<Step> {
    let (_, line) = line.split_once(' ')?;
    let (call, arguments) = line.trim_start().split_once('(')?;
    let quoted = || {
        let parts = arguments.split('"').skip(1).step_by(2);
        parts.map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    if call == "openat" {
        let path = quoted().pop()?;
        let (_, what) = path.rsplit_once("/claimed-")?;
        return Some(Step::Claimed(what.to_owned()));
    }
    // A call that failed has done nothing, or has to be looked at by whoever made it.
    if line.contains(") = -1 ") {
        return None;
    }
    let on = || {
        let (_, path) = arguments.split_once('<')?;
        let (path, _) = path.split_once('>')?;
        let name = Path::new(path).strip_prefix(dir).ok()?;
        Some(name.to_string_lossy().replace(" (deleted)", ""))
    };
    match call {
        "fsync" | "fdatasync" => on().map(Step::Sync),
        // It promises nothing.
        "sync_file_range" => None,
        "unlink" | "unlinkat" => quoted().pop().map(Step::Unlink),
        call if call.starts_with("rename") => {
            let [from, to] = quoted().try_into().ok()?;
            let name = |path: String| match Path::new(&path).strip_prefix(dir) {
                Ok(name) => name.to_string_lossy().into_owned(),
                Err(_) => path,
            };
            Some(Step::Rename(name(from), name(to)))
        }
        "copy_file_range" => {
            let (_, to) = arguments.rsplit_once('<')?;
            let (path, _) = to.split_once('>')?;
            let name = Path::new(path).strip_prefix(dir).ok()?;
            Some(Step::Write(name.to_string_lossy().into_owned()))
        }
        _ => on().map(Step::Write),
    }
}

/// What a power cut may take away after each step, and what must not depend on that.
#[derive(Debug, Default)]
struct Disk {
    /// Files that were written to since they were synchronised.
    dirty: Vec<String>,
    /// The directory holds names, or the want of names, that may be lost.
    dirty_names: bool,
}

impl Disk {
    /// Follows a step, and fails where it tells something that a power cut could take back.
    #[track_caller]
    fn follow(&mut self, step: &Step, all: &[Step]) {
        match step {
            Step::Write(name) => {
                if name == JOURNAL || name == NEW_JOURNAL {
                    assert!(
                        !self.is_dirty(PARTIAL),
                        "recorded before it is durable: {all:#?}"
                    );
                }
                self.dirty.push(name.clone());
            }
            Step::Sync(name) if name.is_empty() => self.dirty_names = false,
            Step::Sync(name) => self.dirty.retain(|dirty| dirty != name),
            Step::Rename(from, to) => {
                assert!(
                    !self.is_dirty(from),
                    "{from} has a new name too soon: {all:#?}"
                );
                if to == "file" {
                    assert!(!self.is_dirty(JOURNAL), "published too soon: {all:#?}");
                }
                self.dirty_names = true;
            }
            // What was published is recognised by its journal until its name is durable.
            Step::Unlink(name) if name == JOURNAL => {
                assert!(!self.dirty_names, "removed too soon: {all:#?}");
            }
            Step::Unlink(_) => {}
            Step::Claimed(what) => {
                assert!(
                    self.dirty.is_empty(),
                    "{what}: {:?} of {all:#?}",
                    self.dirty
                );
                assert!(!self.dirty_names, "{what}: {all:#?}");
            }
        }
    }

    fn is_dirty(&self, name: &str) -> bool {
        self.dirty.iter().any(|dirty| dirty == name)
    }
}

#[track_caller]
fn assert_order(steps: &[Step]) {
    let mut disk = Disk::default();
    for step in steps {
        disk.follow(step, steps);
    }
}

fn count(steps: &[Step], step: &Step) -> usize {
    steps.iter().filter(|s| *s == step).count()
}

#[test]
fn what_is_claimed_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let Some(steps) = steps_of("claim", dir.path()) else {
        return;
    };
    assert_order(&steps);
    // It saw what it had to see: data twice, a journal that is made and one that grows.
    assert!(
        count(&steps, &Step::Sync(PARTIAL.into())) >= 2,
        "{steps:#?}"
    );
    assert!(
        count(&steps, &Step::Sync(NEW_JOURNAL.into())) >= 1,
        "{steps:#?}"
    );
    assert!(
        count(&steps, &Step::Sync(JOURNAL.into())) >= 1,
        "{steps:#?}"
    );
    assert_eq!(steps.last(), Some(&Step::Claimed("1".into())));
}

#[test]
fn a_hole_that_is_claimed_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(steps) = steps_of("hole", dir.path()) else {
        return;
    };
    assert_order(&steps);
    let writes = count(&steps, &Step::Write(PARTIAL.into()));
    assert!(writes >= 2, "the bytes and the hole: {steps:#?}");
}

#[test]
fn what_is_resumed_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = rooted(dir.path());
    save(
        &mut store.open_sink(&request("file")).unwrap(),
        0,
        &[1; 4096],
    );
    // Whoever wrote it may have been stopped in the middle of a record.
    let journal = dir.path().join(JOURNAL);
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.extend([9; 20]);
    std::fs::write(&journal, bytes).unwrap();
    let Some(steps) = steps_of("resume", dir.path()) else {
        return;
    };
    assert_order(&steps);
    // Before the first claim the journal, which was cut, and its name.
    let claimed = Step::Claimed("earlier".into());
    let first: Vec<&Step> = steps.iter().take_while(|step| **step != claimed).collect();
    let cut = Step::Write(JOURNAL.into());
    let at = |wanted: &Step| first.iter().position(|step| *step == wanted);
    let synced = first
        .iter()
        .rposition(|step| **step == Step::Sync(JOURNAL.into()));
    assert!(at(&cut).is_some() && at(&cut) < synced, "{steps:#?}");
    assert!(at(&Step::Sync(String::new())).is_some(), "{steps:#?}");
}

#[test]
fn what_is_published_is_durable() {
    for part in ["publish", "replace", "publish-recorded"] {
        let dir = tempfile::tempdir().unwrap();
        if part == "replace" {
            std::fs::write(dir.path().join("file"), "old").unwrap();
        }
        let Some(steps) = steps_of(part, dir.path()) else {
            return;
        };
        assert_order(&steps);
        let renamed = Step::Rename(PARTIAL.into(), "file".into());
        assert_eq!(count(&steps, &renamed), 1, "{part}: {steps:#?}");
        assert_eq!(
            count(&steps, &Step::Unlink(JOURNAL.into())),
            1,
            "{part}: {steps:#?}"
        );
    }
}

#[test]
fn what_is_begun_with_an_old_file_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("old"), [7; 8192]).unwrap();
    let Some(steps) = steps_of("seed", dir.path()) else {
        return;
    };
    assert_order(&steps);
    assert!(
        count(&steps, &Step::Write(PARTIAL.into())) >= 1,
        "{steps:#?}"
    );
}

/// The journal of a tree, as it grows and when it is written anew.
#[test]
fn what_is_claimed_of_a_tree_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let Some(steps) = steps_of("tree", dir.path()) else {
        return;
    };
    assert_order(&steps);
    let renamed = Step::Rename(NEW_TREE_JOURNAL.into(), TREE_JOURNAL.into());
    assert_eq!(count(&steps, &renamed), 1, "{steps:#?}");
    let claims = steps.iter().filter(|s| matches!(s, Step::Claimed(_)));
    assert_eq!(claims.count(), 6, "{steps:#?}");
    assert_eq!(steps.last(), Some(&Step::Claimed("5".into())));
}
