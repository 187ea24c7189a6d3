//! Trees that an ordinary user copies and synchronises: owners that it can't give, directories that
//! are closed to it, and attributes of directories. Root becomes nobody for that.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{
    FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, lchown, symlink,
};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use xdfs_testkit::nobody::{ID, is_root, let_in};
use xdfs_testkit::process::umask;
use xdfs_testkit::skip;

use crate::support::{Place, Run, Running, Server, program};

/// A place of nobody's, with a server that nobody runs.
struct Scene {
    place: Place,
    server: Server,
}

impl Scene {
    /// `None`, with the reason printed, where root can't become nobody.
    fn new() -> Option<Self> {
        if !is_root() {
            skip::test("only root becomes nobody");
            return None;
        }
        let place = Place::new();
        fs::create_dir(place.path().join("own")).unwrap();
        if let Err(reason) = let_in(place.path()) {
            skip::test(reason);
            return None;
        }
        for name in ["own", "root", "here"] {
            let path = place.path().join(name);
            chown(&path, Some(ID), Some(ID)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let tried = as_nobody(program(), &place).arg("--version").output();
        if let Err(error) = tried {
            skip::test(format_args!("nobody can't run the program: {error}"));
            return None;
        }
        let flags = ["--listen", "127.0.0.1:0", "--insecure"];
        let server = Server::start_as(&place.root(), &flags, |serve| as_nobody(serve, &place));
        Some(Self { place, server })
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = as_nobody(program(), &self.place);
        Running::start(command.args(args).arg("--insecure").stdin(Stdio::null())).wait()
    }

    /// The ways of a tree `from` on each side: what is given to the program as the source, as its
    /// contents, and as the target, and where that is.
    fn ways(&self, name: &str) -> [[String; 3]; 2] {
        let here = self.place.here("tree");
        let (there, down) = (self.place.remote(name), self.place.here(name));
        [
            [
                here,
                self.server.url(&format!("/{name}")),
                there.to_str().unwrap().to_owned(),
            ],
            [self.server.url("/tree"), down.clone(), down],
        ]
    }
}

fn as_nobody(mut command: Command, place: &Place) -> Command {
    let own = place.path().join("own");
    command.env("XDFS_CONFIG_DIR", own.join("config"));
    command.env("XDFS_STATE_DIR", own.join("state"));
    command.env("TMPDIR", &own).current_dir(&own);
    command.uid(ID).gid(ID);
    command
}

/// An ordinary command by nobody, which has to succeed.
fn by_nobody(args: &[&str]) {
    let mut command = Command::new(args[0]);
    let output = command.args(&args[1..]).uid(ID).gid(ID).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
}

/// Whether a program is installed; otherwise the test is skipped.
fn has(name: &str) -> bool {
    let is_there = Command::new(name).arg("--version").output().is_ok();
    if !is_there {
        skip::test(format_args!("there is no {name}"));
    }
    is_there
}

/// The attributes that `rsync -a` keeps of each entry beneath a directory, and of the directory.
fn picture(root: impl AsRef<Path>) -> BTreeMap<PathBuf, String> {
    fn walk(root: &Path, path: &Path, all: &mut BTreeMap<PathBuf, String>) {
        let meta = fs::symlink_metadata(path).unwrap();
        let kind = meta.file_type();
        let content = match kind {
            kind if kind.is_symlink() => fs::read_link(path).unwrap().into_os_string(),
            kind if kind.is_file() => {
                let bytes = fs::read(path).unwrap();
                format!("{} {:?}", bytes.len(), &bytes[..bytes.len().min(64)]).into()
            }
            kind if kind.is_fifo() => "a pipe".into(),
            _ => "a directory".into(),
        };
        let line = format!(
            "{content:?} {:o} {}.{} {}:{}",
            meta.mode(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.uid(),
            meta.gid()
        );
        all.insert(path.strip_prefix(root).unwrap().to_owned(), line);
        if kind.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                walk(root, &entry.unwrap().path(), all);
            }
        }
    }
    let mut all = BTreeMap::new();
    walk(root.as_ref(), root.as_ref(), &mut all);
    all
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree of 205 entries that belong to root, daemon and nobody.
fn make_owned(root: &Path) {
    fs::create_dir(root).unwrap();
    let owners = [(0, 0), (1, 1), (ID, ID), (ID, 1), (1, ID)];
    for (number, (uid, gid)) in owners.into_iter().enumerate() {
        let directory = root.join(format!("d{number}"));
        fs::create_dir(&directory).unwrap();
        for entry in 0..40 {
            let path = directory.join(format!("e{entry}"));
            match entry % 4 {
                0 => symlink("e1", &path).unwrap(),
                1 => fs::write(&path, vec![7; 700_000 * usize::from(entry == 1)]).unwrap(),
                _ => fs::write(&path, format!("{number} {entry}")).unwrap(),
            }
            lchown(&path, Some(uid), Some(gid)).unwrap();
        }
        set_mode(directory.join("e2"), 0o640 | 0o004);
        chown(&directory, Some(uid), Some(gid)).unwrap();
    }
    set_mode(root.join("d0"), 0o555);
    // Not of the second in which they are copied: rsync takes that for the same time.
    let mut command = Command::new("find");
    command.arg(root).args([
        "-depth",
        "-exec",
        "touch",
        "-h",
        "-d",
        "@1500000000.123456789",
    ]);
    assert!(command.args(["{}", "+"]).status().unwrap().success());
}

#[test]
fn owners_that_cannot_be_given_are_left_out_once_and_for_all() {
    let Some(scene) = Scene::new() else { return };
    if !has("rsync") {
        return;
    }
    let tree = scene.place.here("tree");
    make_owned(Path::new(&tree));
    make_owned(&scene.place.remote("tree"));
    let reference = scene.place.here("reference");
    for (command, again) in [("cp", "cp"), ("sync", "sync")] {
        for [source, target, at] in scene.ways(command) {
            let is_up = source == tree;
            let origin = if is_up {
                tree.clone()
            } else {
                scene.place.remote("tree").to_str().unwrap().to_owned()
            };
            by_nobody(&["rsync", "-a", "--delete", &format!("{origin}/"), &reference]);
            let run = scene.run(&[command, "-a", &source, &target]).ok();
            // All but those of nobody, and of its own group.
            let warning = "the owner of 165 files was not kept";
            assert_eq!(run.stderr.matches("warning").count(), 1, "{}", run.stderr);
            assert!(run.stderr.contains(warning), "{}", run.stderr);
            assert!(run.stderr.contains("150 files"), "{}", run.stderr);
            assert_eq!(picture(&at), picture(&reference), "{source} {target}");
            // The contents again.
            let run = scene
                .run(&[again, "-a", &format!("{source}/"), &target])
                .ok();
            assert!(run.stderr.contains("0 files"), "{}", run.stderr);
            assert_eq!(picture(&at), picture(&reference), "{source} {target}");
            let dry = scene
                .run(&["sync", "-a", "--dry-run", &source, &target])
                .ok();
            assert_eq!(dry.text(), "", "{source} {target}");
        }
    }
}

#[test]
fn programs_of_others_lose_their_set_id_bits_without_a_failure() {
    let Some(scene) = Scene::new() else { return };
    let tree = PathBuf::from(scene.place.here("tree"));
    for root in [&tree, &scene.place.remote("tree")] {
        fs::create_dir(root).unwrap();
        for (name, owner) in [("theirs", 0), ("mine", ID)] {
            fs::write(root.join(name), name).unwrap();
            chown(root.join(name), Some(owner), Some(owner)).unwrap();
            set_mode(root.join(name), 0o6755);
        }
    }
    let mode =
        |at: &str, name: &str| fs::metadata(Path::new(at).join(name)).unwrap().mode() & 0o7777;
    for (number, [source, target, at]) in scene.ways("copy").into_iter().enumerate() {
        let run = scene.run(&["sync", "-a", &source, &target]).ok();
        assert!(
            run.stderr.contains("set-user-id and set-group-id of"),
            "{}",
            run.stderr
        );
        assert_eq!(mode(&at, "theirs"), 0o755);
        // A server that doesn't run as root gives them to nothing.
        assert_eq!(mode(&at, "mine"), [0o755, 0o6755][number]);
        let run = scene.run(&["sync", "-a", &source, &target]).ok();
        assert!(!run.stderr.contains("set,"), "{}", run.stderr);
        let dry = scene
            .run(&["sync", "-a", "--dry-run", &source, &target])
            .ok();
        assert_eq!(dry.text(), "");
    }
}

/// A tree with the modes of set-id programs and of directories open to all.
fn make_open(root: &Path) -> Vec<(&'static str, u32)> {
    let entries = [
        ("theirs", 0o6777, None),
        ("theirs/sticky", 0o3777, None),
        ("theirs/tool", 0o6777, Some(7)),
        ("theirs/large", 0o4766, Some(2 << 20)),
        ("mine", 0o6775, None),
        ("mine/sticky", 0o1777, None),
        ("mine/tool", 0o4777, Some(7)),
    ];
    for (name, mode, length) in entries {
        let path = root.join(name);
        match length {
            None => fs::create_dir_all(&path).unwrap(),
            Some(length) => fs::write(&path, vec![7; length]).unwrap(),
        }
        let owner = if name.starts_with("mine") { ID } else { 0 };
        chown(&path, Some(owner), Some(owner)).unwrap();
        set_mode(&path, mode);
    }
    entries
        .iter()
        .map(|(name, mode, _)| (*name, *mode))
        .collect()
}

#[test]
fn modes_of_others_are_the_same_after_one_run() {
    let Some(scene) = Scene::new() else { return };
    let here = scene.place.here("tree");
    let entries = make_open(Path::new(&here));
    make_open(&scene.place.remote("tree"));
    let left = 0o777 & !umask().unwrap();
    for (name, flags) in [("plain", &[][..]), ("a", &["-a"]), ("lists", &["--xattrs"])] {
        for (way, [source, target, at]) in scene.ways(name).into_iter().enumerate() {
            let steps = || {
                let run = scene.run(&[&["sync", "--dry-run"], flags, &[&source, &target]].concat());
                run.ok().text()
            };
            for _ in 0..2 {
                scene
                    .run(&[&["sync"], flags, &[&*source, &*target]].concat())
                    .ok();
                assert_eq!(steps(), "", "{name} {source} {target}");
            }
            let is_masked = way == 1 && flags.is_empty();
            for (entry, mode) in &entries {
                let found = fs::metadata(Path::new(&at).join(entry)).unwrap().mode() & 0o7777;
                match is_masked {
                    true => assert_eq!(found, mode & left, "{entry}"),
                    false => assert_eq!(found & 0o777, mode & 0o777, "{name} {source} {entry}"),
                }
                // A program of root there belongs to the user of the copy here.
                let is_special = found & 0o6000 != 0;
                assert!(
                    !is_special || flags == ["-a"] && entry.starts_with("mine"),
                    "{entry}"
                );
            }
        }
    }
}

/// Makes a tree of nobody's with closed directories, or changes it.
fn make_closed(root: &Path, version: u32) {
    let script = "
        set -e; umask 022; mkdir -p \"$0\"; cd \"$0\"; find . -type d -exec chmod u+rwx {} +
        mkdir -p ro/in/deep ro/kind
        if [ $1 = 1 ]; then
            mkdir -p ro/gone/away; echo 1 > ro/gone/away/h; mkfifo ro/kind/p
        else
            rm -r ro/gone ro/kind/p; echo p > ro/kind/p; echo new > ro/in/new
        fi
        echo 1$1$1 > ro/f; echo $1 > ro/in/deep/g; head -c 3000000 /dev/zero > ro/big
        echo $1 >> ro/big
        mkdir -p dark; echo 2$1 > dark/s
        chmod 555 ro/in/deep ro/in ro/kind ro; chmod 111 dark; chmod 555 .
        [ $1 = 2 ] || chmod 555 ro/gone/away ro/gone";
    let root = root.to_str().unwrap();
    by_nobody(&["sh", "-c", script, root, &version.to_string()]);
}

#[test]
fn closed_directories_are_changed_by_their_owner_and_closed_again() {
    let Some(scene) = Scene::new() else { return };
    let sources = [
        PathBuf::from(scene.place.here("tree")),
        scene.place.remote("tree"),
    ];
    // The source has to be readable.
    let make = |version| {
        for source in &sources {
            make_closed(source, version);
            set_mode(source.join("dark"), 0o555);
        }
    };
    make(1);
    let ways = scene.ways("copy");
    for [source, target, _] in &ways {
        scene.run(&["sync", source, target]).ok();
    }
    make(2);
    for (number, [source, target, at]) in ways.iter().enumerate() {
        let at = Path::new(at);
        set_mode(at.join("dark"), 0o111);
        let run = scene.run(&["sync", "--delete", source, target]).ok();
        assert_eq!(picture(at), picture(&sources[number]), "{}", run.stderr);
        let run = scene.run(&["sync", "--delete", source, target]).ok();
        assert!(run.stderr.contains("0 files, 0 B"), "{}", run.stderr);
        // After a failure too: the file can't be read.
        by_nobody(&["chmod", "-R", "u+w", sources[number].to_str().unwrap()]);
        fs::write(sources[number].join("ro/f"), "another").unwrap();
        fs::write(sources[number].join("ro/in/new"), "another").unwrap();
        set_mode(sources[number].join("ro/f"), 0);
        for name in ["ro/in", "ro", ""] {
            set_mode(sources[number].join(name), 0o555);
        }
        scene.run(&["sync", source, target]).fails(5, &["ro/f"]);
        assert_eq!(fs::read(at.join("ro/in/new")).unwrap(), b"another");
        for name in ["ro/in", "ro"] {
            assert_eq!(
                fs::metadata(at.join(name)).unwrap().mode() & 0o777,
                0o555,
                "{name}"
            );
        }
    }
}

/// An access control list as an extended attribute: user 5 may do what `bits` say.
fn list(bits: u8) -> String {
    let entry = |tag: u8, bits: u8, id: &str| format!("{tag:02x}00{bits:02x}00{id}");
    let none = "ffffffff";
    [
        "0x02000000".to_owned(),
        entry(0x01, 7, none),
        entry(0x02, bits, "05000000"),
        entry(0x04, 5, none),
        entry(0x10, 7, none),
        entry(0x20, 5, none),
    ]
    .concat()
}

/// The extended attributes of an entry, as `getfattr` prints them.
fn attributes(path: &Path) -> Vec<String> {
    let mut command = Command::new("getfattr");
    command.args(["-d", "-m", "-", "-e", "hex", "--absolute-names"]);
    let output = command.arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.contains('='));
    lines.map(str::to_owned).collect()
}

#[test]
fn each_attribute_that_is_carried_arrives_on_each_way() {
    let Some(scene) = Scene::new() else { return };
    if !has("setfattr") || !has("getfattr") {
        return;
    }
    let names = ["", "sub", "sub/deep", "sub/deep/file", "file", "plain"];
    let tree = PathBuf::from(scene.place.here("tree"));
    for root in [&tree, &scene.place.remote("tree")] {
        fs::create_dir_all(root.join("sub/deep")).unwrap();
        fs::create_dir(root.join("plain")).unwrap();
        for name in ["sub/deep/file", "file", "plain/file"] {
            fs::write(root.join(name), name).unwrap();
        }
        let set = |name: &str, attribute: &str, value: &str| {
            let path = root.join(name);
            let mut command = Command::new("setfattr");
            let output = command
                .args(["-n", attribute, "-v", value])
                .arg(path)
                .output();
            output.is_ok_and(|output| output.status.success())
        };
        if !set("", "user.tag", "root") || !set("", "system.posix_acl_default", &list(7)) {
            return skip::test("the file system takes no attributes");
        }
        for name in ["sub", "sub/deep", "sub/deep/file", "file"] {
            assert!(set(name, "user.tag", name));
            assert!(set(name, "system.posix_acl_access", &list(5)));
        }
        assert!(set("", "system.posix_acl_access", &list(5)));
        for name in ["sub", "sub/deep"] {
            assert!(set(name, "system.posix_acl_default", &list(6)));
        }
        // With a list that entries inherit alone.
        assert!(set("plain", "system.posix_acl_default", &list(4)));
    }
    let commands: [&[&str]; 3] = [&["cp", "-a"], &["cp", "-r", "--xattrs"], &["sync", "-a"]];
    for (number, command) in commands.into_iter().enumerate() {
        for [source, target, at] in scene.ways(&format!("copy{number}")) {
            scene.run(&[command, &[&source, &target]].concat()).ok();
            for name in names {
                let wanted = attributes(&tree.join(name));
                assert!(!wanted.is_empty());
                let found = attributes(&Path::new(&at).join(name));
                assert_eq!(found, wanted, "{command:?} {target} '{name}'");
            }
            let inherited = attributes(&Path::new(&at).join("plain/file"));
            assert_eq!(inherited, [""; 0], "{command:?} {target}");
        }
    }
}
