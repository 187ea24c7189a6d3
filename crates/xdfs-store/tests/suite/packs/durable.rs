//! When what a pack makes is durable, as `strace` sees it: before it has its name, and before a
//! sync is answered.
//!
//! A test runs itself once more under `strace`, in the part of [`act_alone`], and reads what that
//! wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use xdfs_proto::path::Call;
use xdfs_sys::fs::{Dir, SyncKind};
use xdfs_testkit::powercut::confined;
use xdfs_testkit::skip;

use super::*;

/// Which part the process under `strace` plays, and the directory that it works in.
const PART: &str = "XDFS_TEST_PART";
const DIR: &str = "XDFS_TEST_DIR";

const CALLS: &str = "trace=openat,openat2,write,writev,pwrite64,pwritev,pwritev2,ftruncate,\
                     fallocate,fchmod,fchmodat,fchown,fchownat,utimensat,fsetxattr,fsync,\
                     fdatasync,syncfs,sync,linkat,renameat,renameat2";

/// What of a system call matters here. Files are known by the numbers of their descriptors.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Opened(String, PathBuf),
    /// Bytes were written, or something else that is kept was set.
    Written(String),
    Synced(String),
    SyncedAll(String, PathBuf),
    /// What has a descriptor, or a hidden name, got a name.
    Named(String, String),
    /// A note of the process itself.
    Noted(String),
}

/// Does a part. Only run by [`steps_of`].
#[test]
#[ignore = "a part of the other tests"]
fn act_alone() {
    let Some(dir) = std::env::var_os(DIR).map(PathBuf::from) else {
        return;
    };
    let store = rooted(&dir);
    let note = |what: &str| {
        // Reading what isn't there leaves a line in the trace.
        let _ = fs::File::open(dir.join(format!("noted-{what}")));
    };
    let kept = || Metadata {
        mode: Some(0o751),
        mtime_ns: Some(1_234_567_890_123_456_789),
        ..Metadata::default()
    };
    let part = std::env::var(PART).unwrap();
    let entries = match &*part {
        "mounted" => {
            mount_overlay(&dir);
            vec![file("a", "here"), file("mnt/d/b", "there")]
        }
        _ => vec![
            with(file("a", "first"), kept()),
            entry("link", Content::Symlink(b"a")),
            with(file("d/e/b", "second"), kept()),
            with(file("old", "new"), kept()),
        ],
    };
    let how = PackOptions {
        overwrite: true,
        relaxed: part == "relaxed",
    };
    assert_done(&store.write_pack(b"", how, &pack(&entries)).unwrap());
    note("written");
    if part != "relaxed" {
        let call = Call::Sync { path: b"/".into() };
        store.call(&call, &mut |_| Ok(())).unwrap();
        note("synced");
    }
}

/// Mounts another file system at `mnt` in a directory, which keeps its files beside that.
fn mount_overlay(dir: &Path) {
    let at = |name: &str| dir.join(name).into_os_string().into_string().unwrap();
    for name in ["mnt", "lower", "upper", "work"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    let (lower, upper, work) = (at("lower"), at("upper"), at("work"));
    let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let mut mount = Command::new("mount");
    mount.args(["-t", "overlay", "overlay", "-o", &options, &at("mnt")]);
    assert!(mount.status().unwrap().success(), "{NO_MOUNT}");
}

const NO_MOUNT: &str = "nothing can be mounted";

/// Has a part done in `dir`, and returns its steps there. `None` if that isn't possible here.
fn steps_of(part: &str, dir: &Path) -> Option<Vec<Step>> {
    if Dir::open(dir).unwrap().sync_kind() != SyncKind::Whole {
        skip::test("temporary files stand on no file system that is synchronised as a whole");
        return None;
    }
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-y",
        "-s",
        "0",
        "-a",
        "1",
        "-e",
        "signal=none",
        "-e",
        CALLS,
        "-o",
    ]);
    command
        .arg(log.path())
        .arg(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "packs::durable::act_alone",
        "--ignored",
        "--nocapture",
    ]);
    command.env(PART, part).env(DIR, dir);
    if part == "mounted" {
        if !rustix::process::geteuid().is_root() {
            skip::test("only root can mount");
            return None;
        }
        command = confined(command).unwrap();
    }
    let Ok(output) = command.output() else {
        skip::test("there is no strace here, or no unshare");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(log.path()).unwrap();
    let is_refused = text.contains("Operation not permitted") && log.is_empty();
    if is_refused || text.contains(NO_MOUNT) {
        skip::test(format!("it can't be played here: {text}"));
        return None;
    }
    assert!(output.status.success(), "{text}");
    let steps: Vec<Step> = log.lines().filter_map(|line| step(line, dir)).collect();
    assert!(steps.contains(&Step::Noted("written".into())), "{log}");
    Some(steps)
}

/// Reads a line as `123 fsync(5</dir/name>) = 0`.
fn step(line: &str, dir: &Path) -> Option<Step> {
    let (_, line) = line.split_once(' ')?;
    let (call, rest) = line.trim_start().split_once('(')?;
    let quoted: Vec<&str> = rest.split('"').skip(1).step_by(2).collect();
    if call == "openat"
        && let Some((_, what)) = quoted.first()?.split_once("/noted-")
    {
        return Some(Step::Noted(what.into()));
    }
    // A call that failed has done nothing, or has to be looked at by whoever made it.
    if rest.contains(") = -1 ") {
        return None;
    }
    // The number of a descriptor and its path beneath the directory: `5</dir/name>`.
    let described = |text: &str| {
        let (number, text) = text.split_once('<')?;
        let (path, _) = text.split_once('>')?;
        let path = Path::new(path).strip_prefix(dir).ok()?.to_owned();
        Some((number.to_owned(), path))
    };
    let (arguments, result) = rest.rsplit_once(") = ")?;
    match call {
        "openat" | "openat2" => described(result).map(|(fd, path)| Step::Opened(fd, path)),
        "fsync" | "fdatasync" => described(arguments).map(|(fd, _)| Step::Synced(fd)),
        "syncfs" => described(arguments).map(|(fd, path)| Step::SyncedAll(fd, path)),
        "sync" => Some(Step::SyncedAll(String::new(), PathBuf::new())),
        "linkat" | "renameat" | "renameat2" => {
            let (from, to) = (*quoted.first()?, *quoted.last()?);
            let from = match from {
                "" => described(arguments)?.0,
                from => from.rsplit('/').next()?.to_owned(),
            };
            Some(Step::Named(from, to.to_owned()))
        }
        _ => described(arguments).map(|(fd, _)| Step::Written(fd)),
    }
}

/// Follows the steps, and fails where a file has a name though a power cut could take something of
/// it. Returns the names, and how many files were written.
#[track_caller]
fn follow(steps: &[Step]) -> (BTreeSet<String>, usize) {
    let (mut dirty, mut written) = (BTreeSet::new(), BTreeSet::new());
    let (mut names, mut hidden) = (BTreeSet::new(), BTreeMap::new());
    for (number, step) in steps.iter().enumerate() {
        match step {
            // Another file has the number now.
            Step::Opened(fd, _) => {
                dirty.remove(fd);
            }
            Step::Written(fd) => {
                dirty.insert(fd.clone());
                written.insert(fd.clone());
            }
            Step::Synced(fd) => {
                dirty.remove(fd);
            }
            Step::SyncedAll(..) => dirty.clear(),
            Step::Named(from, to) => {
                let fd = hidden.get(from).unwrap_or(from);
                assert!(!dirty.contains(fd), "{to}, step {number}: {steps:#?}");
                if to.ends_with(".xdfs-part") {
                    hidden.insert(to.clone(), fd.clone());
                } else {
                    names.insert(to.clone());
                }
            }
            Step::Noted(_) => {}
        }
    }
    (names, written.len())
}

fn position(steps: &[Step], is_meant: impl Fn(&Step) -> bool) -> usize {
    let found = steps.iter().position(is_meant);
    found.unwrap_or_else(|| panic!("{steps:#?}"))
}

/// Fails unless a file system is synchronised between the last name and the end, through a
/// descriptor of it that was opened before the first file was written there.
#[track_caller]
fn assert_covered(steps: &[Step], is_there: impl Fn(&Path) -> bool) {
    let path_of = |fd: &str, until: usize| {
        let before = steps[..until].iter().rev();
        let mut opened = before.filter_map(|step| match step {
            Step::Opened(opened, path) if opened == fd => Some(path.clone()),
            _ => None,
        });
        opened.next().unwrap_or_default()
    };
    let mut numbered = steps.iter().enumerate();
    let first = numbered.find_map(|(at, step)| match step {
        Step::Written(fd) if is_there(&path_of(fd, at)) => Some(at),
        _ => None,
    });
    let first = first.unwrap_or_else(|| panic!("nothing was written: {steps:#?}"));
    let told = position(steps, |step| *step == Step::Noted("written".into()));
    let end = position(steps, |step| *step == Step::Noted("synced".into()));
    let covered = steps[told..end].iter().any(|step| match step {
        Step::SyncedAll(fd, path) if is_there(path) => {
            let opens = |step: &Step| matches!(step, Step::Opened(opened, _) if opened == fd);
            let opened = steps[..end].iter().rposition(opens);
            opened.is_some_and(|opened| opened < first)
        }
        _ => false,
    });
    assert!(covered, "{steps:#?}");
}

#[test]
fn what_has_its_name_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "old").unwrap();
    let Some(steps) = steps_of("waiting", dir.path()) else {
        return;
    };
    let (names, written) = follow(&steps);
    for name in ["a", "b", "old"] {
        assert!(names.contains(name), "{name}: {steps:#?}");
    }
    assert!(written >= 3, "{steps:#?}");
    assert_covered(&steps, |_| true);
}

/// That is what `--durability none` asks for.
#[test]
fn nothing_is_synchronised_that_nobody_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "old").unwrap();
    let Some(steps) = steps_of("relaxed", dir.path()) else {
        return;
    };
    let is_sync = |step: &&Step| matches!(step, Step::Synced(_) | Step::SyncedAll(..));
    assert_eq!(steps.iter().find(is_sync), None, "{steps:#?}");
    let named = |name: &str| matches!(name, "a" | "b" | "old");
    let names = steps.iter().filter(|step| match step {
        Step::Named(_, name) => named(name),
        _ => false,
    });
    assert_eq!(names.count(), 3, "{steps:#?}");
}

/// A sync of a directory covers the file systems that are mounted beneath it and were written to.
#[test]
fn what_is_written_on_a_mounted_file_system_is_covered_too() {
    let dir = tempfile::tempdir().unwrap();
    let Some(steps) = steps_of("mounted", dir.path()) else {
        return;
    };
    let (names, _) = follow(&steps);
    for name in ["a", "b"] {
        assert!(names.contains(name), "{name}: {steps:#?}");
    }
    assert_covered(&steps, |path| !path.starts_with("mnt"));
    assert_covered(&steps, |path| path.starts_with("mnt"));
}
