//! The power fails while a tree is copied or synchronised: an image of a disk is copied at that
//! moment, with what had reached it, and the same command goes on with the copy.
//!
//! Only root can mount an image, and not on every machine: without that the tests are skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use xdfs_testkit::skip;
use xdfs_testkit::tree::Random;

use crate::support::{Running, Server, content, program};

const FILES: u64 = 500;
const FILE_BYTES: usize = 12_000;
const LARGE_BYTES: usize = 3 << 20;
/// How often the power fails before the end.
const CUTS: u32 = 4;
/// The bound on the rate until then: the whole takes about eight seconds.
const RATE: &str = "2M";
/// Copies of an image that are made until two of them are the same.
const COPIES_MAX: u32 = 100;
/// Bytes of the image.
const DISK_BYTES: u64 = 192 << 20;

fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Result<(), String> {
    let output = Command::new(program).args(args).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A file system in a file, whose journal is written each second; unmounted when dropped.
struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    /// `None`, with the test counted as skipped, where it can't be mounted.
    fn make(place: &Path) -> Option<Self> {
        let disk = Self {
            image: place.join("image"),
            at: place.join("disk"),
        };
        fs::create_dir(&disk.at).unwrap();
        let file = fs::File::create(&disk.image).unwrap();
        file.set_len(DISK_BYTES).unwrap();
        let made = run("mkfs.ext4", &[&"-q", &"-F", &disk.image]);
        match made.and_then(|()| disk.mount()) {
            Ok(()) => Some(disk),
            Err(error) => {
                skip::test(format_args!("no image of a disk can be mounted: {error}"));
                None
            }
        }
    }

    fn mount(&self) -> Result<(), String> {
        let how = "loop,commit=1";
        run(
            "mount",
            &[&"--make-private", &"-o", &how, &self.image, &self.at],
        )
    }

    fn unmount(&self) {
        run("umount", &[&self.at]).unwrap();
    }

    /// What the disk has at this moment is all there is from now on.
    fn cut(&self) {
        // Of one moment: nothing changed while it was copied.
        let copy = || fs::read(&self.image).unwrap();
        let mut image = copy();
        let is_stable = (0..COPIES_MAX).any(|_| {
            let again = copy();
            let is_same = again == image;
            image = again;
            is_same
        });
        assert!(is_stable, "the image changes all the time");
        self.unmount();
        fs::write(&self.image, image).unwrap();
        self.mount().unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, in case that a failed test still holds a file there.
        let _ = run("umount", &[&"-l", &self.at]);
    }
}

fn path_of(n: u64) -> String {
    format!("{}/{}/f{n}", n % 3, n % 15)
}

fn bytes_of(n: u64, version: u64) -> Vec<u8> {
    let size = if n.is_multiple_of(160) {
        LARGE_BYTES
    } else {
        FILE_BYTES
    };
    let mut bytes = content(n + FILES * version, size);
    // Half of them end in zeros, for which no storage is used.
    if n.is_multiple_of(2) {
        bytes[size / 2..].fill(0);
    }
    bytes
}

/// Files of a version, of which each `step`th is made.
fn make_tree(root: &Path, version: u64, step: usize) {
    for n in (0..FILES).step_by(step) {
        let path = root.join(path_of(n));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes_of(n, version)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 * (version + 1));
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
    }
}

struct Scene {
    place: tempfile::TempDir,
    disk: Disk,
    server: Server,
    args: &'static [&'static str],
    up: bool,
}

impl Scene {
    /// The target has some of the files in an older version if it is synchronised.
    fn new(args: &'static [&'static str], up: bool) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let disk = Disk::make(place.path())?;
        let tree = place.path().join("served/tree");
        make_tree(&tree, 1, 1);
        std::os::unix::fs::symlink("f1", tree.join("1/link")).unwrap();
        let root = match up {
            true => disk.at.clone(),
            false => place.path().join("served"),
        };
        if args.contains(&"sync") {
            make_tree(&disk.at.join("copy"), 0, 2);
            fs::write(disk.at.join("copy/extra"), "extra").unwrap();
            run("sync", &[&"-f", &disk.at]).unwrap();
        }
        let server = Server::start(&root);
        Some(Self {
            place,
            disk,
            server,
            args,
            up,
        })
    }

    /// What the client remembers is on its own disk.
    fn state(&self) -> PathBuf {
        match self.up {
            true => self.place.path().join("state"),
            false => self.disk.at.join("state"),
        }
    }

    fn start(&self, rate: Option<&str>) -> Running {
        let here = self.place.path();
        let (source, target) = match self.up {
            true => (here.join("served/tree"), self.server.url("/copy").into()),
            false => (self.server.url("/tree").into(), self.disk.at.join("copy")),
        };
        let mut command = program();
        command.env("XDFS_STATE_DIR", self.state());
        command.args(self.args).arg("--json");
        if let Some(rate) = rate {
            command.args(["--limit-rate", rate]);
        }
        Running::start(command.arg(source).arg(target).stdin(Stdio::null()))
    }

    /// Both programs end, and what isn't on the disk is gone.
    fn cut(&mut self, mut running: Running) {
        running.kill();
        self.server.running.kill();
        self.disk.cut();
        let root = match self.up {
            true => self.disk.at.clone(),
            false => self.place.path().join("served"),
        };
        let address = self.server.addresses[0].clone();
        self.server = Server::start_with(&root, &["--listen", &address]);
    }

    /// Every file is of one version or the other, as a whole. Returns how many are of the new one.
    fn check(&self) -> usize {
        let copy = self.disk.at.join("copy");
        let mut new = 0;
        for n in 0..FILES {
            let path = copy.join(path_of(n));
            let Ok(found) = fs::read(&path) else { continue };
            let is_new = found == bytes_of(n, 1);
            let is_old = self.args.contains(&"sync") && found == bytes_of(n, 0);
            assert!(is_new || is_old, "{} is neither", path.display());
            new += usize::from(is_new);
        }
        new
    }

    fn rounds(mut self, seed: u64) {
        let mut random = Random::new(seed);
        for _ in 0..CUTS {
            let running = self.start(Some(RATE));
            std::thread::sleep(Duration::from_millis(1200 + random.below(1500)));
            self.cut(running);
            println!("{} files are there", self.check());
        }
        let run = self.start(None).wait().ok();
        assert_eq!(self.check() as u64, FILES, "{}", run.stderr);
        let copy = self.disk.at.join("copy");
        let link = fs::read_link(copy.join("1/link")).unwrap();
        assert_eq!(link, Path::new("f1"));
        let has_extra = copy.join("extra").exists();
        assert!(!has_extra);
    }
}

#[test]
fn a_copy_survives_power_cuts_of_the_server() {
    if let Some(scene) = Scene::new(&["cp", "-r"], true) {
        scene.rounds(1);
    }
}

#[test]
fn a_copy_survives_power_cuts_of_the_client() {
    if let Some(scene) = Scene::new(&["cp", "-r"], false) {
        scene.rounds(2);
    }
}

#[test]
fn a_synchronisation_survives_power_cuts_of_the_server() {
    if let Some(scene) = Scene::new(&["sync", "--delete"], true) {
        scene.rounds(3);
    }
}

#[test]
fn a_synchronisation_survives_power_cuts_of_the_client() {
    if let Some(scene) = Scene::new(&["sync", "--delete", "--delta"], false) {
        scene.rounds(4);
    }
}
