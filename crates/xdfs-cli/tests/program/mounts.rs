//! Exports whose file systems come and go.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::{skip, wait};

use crate::support::{Place, Run, Running, Server, names, program};

/// A small file system, which only root may mount; unmounted when dropped.
struct Disk<'a>(&'a Path);

impl<'a> Disk<'a> {
    /// The reason where it can't be mounted.
    fn mount(at: &'a Path) -> Result<Self, String> {
        let mut mount = Command::new("mount");
        mount.args([
            "-t",
            "tmpfs",
            "--make-private",
            "-o",
            "size=2M,mode=777",
            "xdfs-test",
        ]);
        match mount.arg(at).output() {
            Ok(output) if output.status.success() => Ok(Self(at)),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Unmounts it, once no session holds it any more.
    fn unmount(self) {
        let unmounted = || {
            Command::new("umount")
                .arg(self.0)
                .status()
                .unwrap()
                .success()
        };
        assert!(wait::until(Duration::from_secs(60), unmounted));
        std::mem::forget(self);
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

fn own<const N: usize>(place: &Place, args: [&str; N]) -> Run {
    let mut command = program();
    command.env("XDFS_CONFIG_DIR", place.here("config"));
    Running::start(command.args(args).stdin(Stdio::null())).wait()
}

/// Files beneath a mount point are never read or written in place of what was mounted there, and
/// what is mounted again is served again.
#[test]
fn an_export_without_its_file_system_is_refused() {
    let place = Place::new();
    let [disk, late] = ["disk", "late"].map(|name| place.path().join(name));
    for path in [&disk, &late] {
        fs::create_dir(path).unwrap();
    }
    let mounted = match Disk::mount(&disk) {
        Ok(mounted) => mounted,
        Err(why) => return skip::test(format_args!("no file system can be mounted: {why}")),
    };
    fs::write(disk.join("file"), b"abc").unwrap();
    let exports = [
        ("whole", disk.clone(), ""),
        ("part", disk.join("part"), "make = true\n"),
        ("home", disk.join("{user}"), "make = true\n"),
        ("late", late.clone(), "mount = true\n"),
    ];
    let mut text =
        "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\nowner = \"owner\"\n".to_owned();
    for (name, path, more) in &exports {
        text += &format!(
            "[[export]]\nname = \"{name}\"\npath = \"{}\"\n{more}[[export.grant]]\nuser = \"*\"\n\
             rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n",
            path.display()
        );
    }
    let config = place.make_here("xdfs.toml", text.as_bytes());
    let checked = own(&place, ["serve", "--check-config", "--config", &config]);
    checked.fails(2, &["'late'", "nothing is mounted there"]);
    let server = Server::start_as(&place.root(), &["--config", &config], |mut serve| {
        serve.env("XDFS_CONFIG_DIR", place.here("config"));
        serve
    });
    let log = |words: &str, count| server.running.wait_for_messages(words, count);
    let source = place.make_here("source", b"new");
    let url = |path: &str| server.url(path);
    let refused = "its file system isn't mounted at the server";

    assert_eq!(own(&place, ["ls", &url("/whole")]).ok().text(), "file\n");
    own(&place, ["cp", &source, &url("/part/new")]).ok();
    own(&place, ["cp", &source, &url("/home/new")]).ok();
    own(&place, ["cp", &source, &url("/late/new")]).fails(15, &["/late", refused]);
    assert_eq!(names(&late), [""; 0]);
    let copy = place.here("copy");
    own(&place, ["sync", &url("/whole"), &copy]).ok();

    mounted.unmount();
    own(&place, ["ls", &url("/whole")]).fails(15, &["/whole", refused]);
    for path in ["/whole/new", "/part/new", "/home/new"] {
        own(&place, ["cp", &source, &url(path)]).fails(15, &[refused]);
    }
    own(&place, ["sync", "--delete", &url("/whole"), &copy]).fails(15, &[refused]);
    assert!(Path::new(&copy).join("file").exists());
    assert_eq!(names(&disk), [""; 0]);
    // Once for each directory: two exports share one.
    log("an export is refused", 3);

    let mounted = Disk::mount(&disk).unwrap();
    fs::write(disk.join("again"), b"abc").unwrap();
    assert_eq!(own(&place, ["ls", &url("/whole")]).ok().text(), "again\n");
    own(&place, ["cp", &source, &url("/part/new")]).ok();
    log("an export is served again", 2);
    let other = Disk::mount(&late).unwrap();
    own(&place, ["cp", &source, &url("/late/new")]).ok();
    assert_eq!(names(&late), ["new"]);
    log("an export is served again", 3);
    drop((mounted, other));
}

/// A session that has the directory open goes over to the file system that is mounted there now.
#[test]
fn a_session_follows_the_mount() {
    let place = Place::new();
    let disk: PathBuf = place.root();
    let mounted = match Disk::mount(&disk) {
        Ok(mounted) => mounted,
        Err(why) => return skip::test(format_args!("no file system can be mounted: {why}")),
    };
    let server = Server::start(&disk);
    let mut shell = program();
    shell
        .args(["shell", &server.url("/")])
        .stdin(Stdio::piped());
    let mut shell = Running::start(&mut shell);
    fs::write(disk.join("first"), b"abc").unwrap();
    shell.write_input(b"ls\n");
    shell.wait_for_output("first\n");
    // As an administrator would who can't wait for the session.
    drop(mounted);
    let again = Disk::mount(&disk).unwrap();
    fs::write(disk.join("second"), b"abc").unwrap();
    shell.write_input(b"ls\n");
    shell.wait_for_output("second\n");
    drop(again);
}
