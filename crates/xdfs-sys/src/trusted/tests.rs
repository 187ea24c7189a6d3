//! Files and directories of others, links, and modes: what is believed, and what isn't.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use xdfs_testkit::{nobody, skip};

use super::*;

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn give_away(path: &Path) {
    chown(path, Some(nobody::ID), None).unwrap();
}

fn made(path: PathBuf) -> PathBuf {
    fs::write(&path, "x").unwrap();
    set_mode(&path, 0o644);
    path
}

fn why(path: &Path, secrecy: Secrecy) -> String {
    open(path, secrecy).map_or_else(|e| e.to_string(), |_| String::new())
}

#[test]
fn modes_of_the_file_and_of_its_directories_count() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a");
    fs::create_dir(&inner).unwrap();
    let file = made(inner.join("f"));
    for (mode, public, secret) in [
        (0o600, "", ""),
        (0o644, "", "may read"),
        (0o640, "", "may read"),
        (0o620, "may write", "may read"),
        (0o602, "may write", "may read"),
        (0o4755, "", "may read"),
    ] {
        set_mode(&file, mode);
        for (secrecy, part) in [(Secrecy::Public, public), (Secrecy::Secret, secret)] {
            let why = why(&file, secrecy);
            assert_eq!(why.is_empty(), part.is_empty(), "{mode:o} {why}");
            assert!(why.contains(part), "{mode:o} {why}");
        }
    }
    set_mode(&file, 0o600);
    for (mode, for_file, for_folder) in [
        (0o755, true, true),
        (0o775, false, false),
        (0o757, false, false),
        (0o1777, true, false),
        (0o1775, true, false),
    ] {
        set_mode(&inner, mode);
        assert_eq!(why(&file, Secrecy::Secret).is_empty(), for_file, "{mode:o}");
        assert_eq!(check_folder(&inner).is_ok(), for_folder, "{mode:o}");
        let at_top = folder.path().join("g");
        assert_eq!(why(&made(at_top), Secrecy::Public), "", "{mode:o}");
    }
    // The directory above.
    set_mode(&inner, 0o755);
    set_mode(folder.path(), 0o777);
    let refused = open(&file, Secrecy::Public).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    let above = fs::canonicalize(folder.path()).unwrap();
    assert!(refused.to_string().contains(&above.display().to_string()));
    assert!(refused.hint().contains("chmod go-w"));
    assert!(check_folder(&inner).is_err());
}

#[test]
fn files_directories_and_links_of_others_are_refused() {
    if !nobody::is_root() {
        return skip::test("only root can give files away");
    }
    let folder = tempfile::tempdir().unwrap();
    let [shared, own] = ["shared", "own"].map(|name| folder.path().join(name));
    fs::create_dir(&shared).unwrap();
    fs::create_dir(&own).unwrap();
    set_mode(&shared, 0o1777);
    let file = made(own.join("f"));
    let theirs = made(shared.join("theirs"));
    give_away(&theirs);
    set_mode(&theirs, 0o600);
    let owner = format!("belongs to another user ({})", nobody::ID);
    assert!(why(&theirs, Secrecy::Secret).contains(&owner));
    // By a link of root's it is no other file.
    let link = own.join("link");
    symlink(&theirs, &link).unwrap();
    assert!(why(&link, Secrecy::Public).contains(&owner));
    // A link of theirs to a file of root's, where they may make links, and where not.
    for (directory, is_refused) in [(&shared, true), (&own, false)] {
        let link = directory.join("chosen");
        symlink(&file, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(nobody::ID), None).unwrap();
        assert_eq!(why(&link, Secrecy::Public).contains(&owner), is_refused);
    }
    // Through a directory of theirs, by `..` and by a link as well.
    let between = folder.path().join("between");
    fs::create_dir(&between).unwrap();
    give_away(&between);
    symlink(&own, between.join("way")).unwrap();
    assert!(why(&between.join("../own/f"), Secrecy::Public).contains(&owner));
    assert!(why(&between.join("way/f"), Secrecy::Public).contains(&owner));
    assert_eq!(why(&own.join("../own/./f"), Secrecy::Public), "");
    assert!(check_folder(&between).is_err());
    assert!(check_folder(&own).is_ok());
    // For nobody, their own files are as good as root's.
    if let Err(reason) = nobody::let_in(&shared) {
        return skip::part(reason);
    }
    set_mode(&shared, 0o1777);
    nobody::act(|| assert_eq!(why(&theirs, Secrecy::Secret), ""));
    nobody::act(|| assert_eq!(why(&file, Secrecy::Public), ""));
}

#[test]
fn what_is_no_file_is_refused_and_descriptors_are_not() {
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(
        open(folder.path(), Secrecy::Public),
        Err(Distrust::NotRegular)
    ));
    let missing = open(&folder.path().join("x"), Secrecy::Public);
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    let file = made(folder.path().join("f"));
    let through = open(&file.join("x"), Secrecy::Public).unwrap_err();
    assert_eq!(through.kind(), ErrorKind::NotADirectory);
    assert!(check_folder(&file).is_err());
    let turning = folder.path().join("loop");
    symlink("loop", &turning).unwrap();
    assert!(open(&turning, Secrecy::Public).is_err());
    // Nothing waits for the other end of a pipe.
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        let pipe = folder.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
        assert!(matches!(
            open(&pipe, Secrecy::Public),
            Err(Distrust::NotRegular)
        ));
        // The file of a descriptor may have lost its name.
        set_mode(&file, 0o666);
        let opened = File::open(&file).unwrap();
        let by_number = format!("/dev/fd/{}", opened.as_raw_fd());
        fs::remove_file(&file).unwrap();
        check(&opened, Path::new(&by_number)).unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        let by_number = PathBuf::from(format!("/proc/self/fd/{}", reader.as_raw_fd()));
        check(&File::open(&by_number).unwrap(), &by_number).unwrap();
    }
}
