//! One thread with other ids than the rest. Requires root; others can't change ids.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use super::{Ids, check_may_change, effective_user, settable_owners};

fn account(name: &str) -> Ids {
    let ids = Ids::of_account(name).expect("the databases can be asked");
    ids.expect("every Debian has this account")
}

/// Ids of an account that every Linux system has; `None`, with a message, without the right to
/// assume them.
fn ids(name: &str) -> Option<Ids> {
    if let Err(error) = check_may_change() {
        xdfs_testkit::skip::test(format_args!("ids can't be changed: {error}"));
        return None;
    }
    Some(account(name))
}

#[test]
fn accounts_are_found_by_their_names() {
    let root = Ids::of_account("root").unwrap().unwrap();
    assert!(root.is_root() && root.uid() == 0 && root.groups.contains(&root.gid()));
    for name in ["", "no such account", "0", "a\0b", "root\n"] {
        assert_eq!(Ids::of_account(name).unwrap(), None, "{name:?}");
    }
}

#[test]
fn one_thread_changes_and_never_back() {
    let Some(daemon) = ids("daemon") else { return };
    let games = ids("games").unwrap();
    let root = ids("root").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let (mine, closed) = (folder.path().join("mine"), folder.path().join("closed"));
    fs::write(&closed, b"root's").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    let write = |name: &str, owner: &Ids| {
        let path = folder.path().join(name);
        fs::write(&path, b"x").unwrap();
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (owner.uid(), owner.gid()));
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            daemon.take_on().unwrap();
            // A second time has no effect.
            daemon.take_on().unwrap();
            write("a", &daemon);
            fs::read(&closed).unwrap_err();
            assert_eq!(effective_user(), Some(daemon.uid()));
            let (user, groups) = settable_owners().unwrap().expect("not any");
            assert_eq!(user, daemon.uid());
            assert!(groups.contains(&daemon.gid()) && !groups.contains(&games.gid()));
            for other in [&root, &games] {
                let error = other.take_on().unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
            }
            check_may_change().unwrap_err();
            // Threads that it starts have no more rights.
            scope.spawn(|| {
                daemon.take_on().unwrap();
                write("b", &daemon);
                root.take_on().unwrap_err();
            });
        });
        scope.spawn(|| {
            games.take_on().unwrap();
            write("c", &games);
        });
    });
    assert_eq!(effective_user(), Some(0));
    check_may_change().unwrap();
    fs::write(&mine, b"x").unwrap();
    assert_eq!(fs::metadata(&mine).unwrap().uid(), 0);
    fs::read(&closed).unwrap();
}

/// Capabilities that stay permitted would allow going back.
#[test]
fn half_a_change_is_none() {
    let Some(daemon) = ids("daemon") else { return };
    let half = thread::spawn(move || {
        let uid = rustix::thread::Uid::from_raw(daemon.uid());
        let root = rustix::thread::Uid::ROOT;
        rustix::thread::set_thread_res_uid(root, uid, root).unwrap();
        super::imp::has(&daemon).unwrap()
    });
    assert!(!half.join().unwrap());
}

/// The account of a thread can't end, stop or limit the process that the thread is of.
#[test]
fn the_account_has_no_power_over_the_thread() {
    let Some(daemon) = ids("daemon") else { return };
    let (told, thread) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let (uid, gid) = (daemon.uid(), daemon.gid());
    let worker = thread::spawn(move || {
        daemon.take_on().unwrap();
        told.send(rustix::thread::gettid().as_raw_nonzero())
            .unwrap();
        // Until the test is done.
        let _ = ended.recv();
    });
    let thread = thread.recv().unwrap();
    // `kill` takes the id of a thread for that of its process; so does `prlimit`.
    for words in [
        &["kill", "-0"][..],
        &["kill", "-TERM"],
        &["kill", "-STOP"],
        &["prlimit", "--nofile=3", "--pid"],
    ] {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(thread.to_string());
        let run = command.uid(uid).gid(gid).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{words:?}");
        assert!(said.contains("not permitted"), "{words:?}: {said}");
    }
    drop(end);
    worker.join().unwrap();
}
