//! Symbolic links that are followed: `--copy-links` of `xdfs cp` and `xdfs sync`, both ways.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::support::{Place, Run, Running, Server, content, names, program, xdfs};

/// A size that no pack takes.
const LARGE: usize = (1 << 20) + 7;

/// A source and a target, one of them on a server.
struct Scene {
    place: Place,
    server: Server,
    up: bool,
}

impl Scene {
    fn new(up: bool) -> Self {
        let place = Place::new();
        let server = Server::start(&place.root());
        fs::create_dir(place.here("tree")).unwrap();
        fs::create_dir(place.remote("tree")).unwrap();
        Self { place, server, up }
    }

    fn source(&self, name: &str) -> PathBuf {
        match self.up {
            true => self.place.here("tree").into(),
            false => self.place.remote("tree"),
        }
        .join(name)
    }

    /// Beside the source, on its machine.
    fn beside(&self, name: &str) -> PathBuf {
        match self.up {
            true => self.place.here(name).into(),
            false => self.place.remote(name),
        }
    }

    fn target(&self, name: &str) -> PathBuf {
        match self.up {
            true => self.place.remote("copy"),
            false => self.place.here("copy").into(),
        }
        .join(name)
    }

    fn file(&self, name: &str, text: &str) {
        write(&self.source(name), text.as_bytes());
    }

    fn link(&self, to: impl AsRef<Path>, name: &str) {
        symlink(to, self.source(name)).unwrap();
    }

    fn command(&self, words: &[&str]) -> std::process::Command {
        let (from, to) = match self.up {
            true => (self.place.here("tree/"), self.server.url("/copy")),
            false => (self.server.url("/tree/"), self.place.here("copy")),
        };
        let mut command = program();
        command.env("XDFS_STATE_DIR", self.place.path().join("state"));
        command.args(words).args([from, to]).stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Run {
        Running::start(&mut self.command(words)).wait()
    }
}

/// All scenes: both ways, by both commands.
fn scenes() -> impl Iterator<Item = (Scene, [&'static str; 3])> {
    let words = [["cp", "-rL", "--json"], ["sync", "-L", "--json"]];
    let ways = [true, false].into_iter();
    ways.flat_map(move |up| words.map(|words| (Scene::new(up), words)))
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Gives a file a mode and a time of its own.
fn mark(path: &Path, mode: u32, seconds: u64) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    fs::File::open(path).unwrap().set_modified(time).unwrap();
}

/// The copy has what the links of the source lead to, and no link.
#[track_caller]
fn assert_followed(source: &Path, copy: &Path) {
    let (own, there) = (fs::metadata(source).unwrap(), fs::symlink_metadata(copy));
    let there = there.unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
    assert_eq!(own.file_type(), there.file_type(), "{}", copy.display());
    assert_eq!(own.mode(), there.mode(), "{}", copy.display());
    let time = |meta: &fs::Metadata| (meta.mtime(), meta.mtime_nsec());
    assert_eq!(time(&own), time(&there), "{}", copy.display());
    if own.is_dir() {
        assert_eq!(names(source), names(copy), "{}", copy.display());
        for name in names(source) {
            assert_followed(&source.join(&name), &copy.join(&name));
        }
    } else {
        let is_same = fs::read(source).unwrap() == fs::read(copy).unwrap();
        assert!(is_same, "{}", copy.display());
    }
}

fn object(run: &Run, kind: &str) -> Value {
    let mut objects = run.json().into_iter();
    objects.find(|value| value["type"] == kind).unwrap()
}

/// The failed entries by their paths in the source, with their causes.
fn failures(run: &Run) -> Vec<(String, String)> {
    let failed = run.json().into_iter().filter(|v| v["type"] == "error");
    let mut failed: Vec<_> = failed
        .map(|error| {
            let text = |name: &str| error[name].as_str().unwrap();
            let path = text("source").split_once("tree/").unwrap().1;
            (path.to_owned(), text("cause").to_owned())
        })
        .collect();
    failed.sort();
    failed
}

#[test]
fn links_become_what_they_lead_to_and_the_second_run_moves_nothing() {
    for (scene, words) in scenes() {
        scene.file("a/file", "small");
        scene.file("a/deep/file", "deeper");
        write(&scene.source("a/large"), &content(1, LARGE));
        mark(&scene.source("a/file"), 0o640, 1_000_000_000);
        mark(&scene.source("a/large"), 0o755, 1_100_000_000);
        write(&scene.beside("outside/far"), b"out of the tree");
        scene.link("a/file", "to_file");
        scene.link("a/large", "to_large");
        scene.link("a", "to_directory");
        scene.link("to_directory/deep", "through_another");
        scene.link("to_file", "to_a_link");
        scene.link("../outside", "to_outside");
        scene.link("../outside/far", "to_outside_file");
        scene.link("../../outside/far", "a/from_below");
        mark(&scene.source("a"), 0o750, 1_200_000_000);
        let run = scene.run(&words).ok();
        assert_followed(&scene.source(""), &scene.target(""));
        let files = run.result()["files"].as_u64().unwrap();
        assert_eq!(files, 14, "{words:?}");
        // The first of these goes by the journal, the second by what is there.
        for state in ["state", "other"] {
            let mut command = scene.command(&words);
            command.env("XDFS_STATE_DIR", scene.place.path().join(state));
            let again = Running::start(&mut command).wait().ok();
            assert_eq!(again.result()["files"], 0, "{words:?}");
            assert_eq!(again.result()["bytes"], 0, "{words:?}");
        }
        assert_followed(&scene.source(""), &scene.target(""));
    }
}

#[test]
fn links_that_lead_nowhere_or_in_circles_fail_alone() {
    for (scene, words) in scenes() {
        scene.file("dir/file", "moved");
        scene.link("missing", "dangling");
        scene.link(".", "dir/itself");
        scene.link("..", "dir/up");
        scene.link("../..", "dir/above");
        scene.link("me", "me");
        scene.link("dir", "fine");
        write(&scene.beside("out/file"), b"1");
        symlink("../tree/dir", scene.beside("out/back")).unwrap();
        scene.link("../../out", "dir/around");
        scene.link("dangling", "excluded");
        scene.link("dir/up", "excluded_loop");
        let filtered = [&words[..], &["--exclude", "excluded*"]].concat();
        for _ in 0..2 {
            let run = scene.run(&filtered);
            let failed = failures(&run);
            let paths: Vec<_> = failed.iter().map(|(path, _)| path.as_str()).collect();
            let ends = ["above", "around/back", "itself", "up"];
            let mut expected = vec!["dangling".to_owned(), "me".to_owned()];
            for above in ["dir", "fine"] {
                expected.extend(ends.map(|end| format!("{above}/{end}")));
            }
            expected.sort();
            assert_eq!(paths, expected, "{words:?}");
            for (path, cause) in &failed {
                match path.as_str() {
                    "dangling" => assert_eq!(cause, "the link's target doesn't exist"),
                    "me" => assert!(cause.contains("symbolic links"), "{cause}"),
                    _ => assert_eq!(cause, "the link leads to a directory that it is in"),
                }
            }
            assert_eq!(run.result()["failed"], 10);
            assert_ne!(run.code, Some(0));
            assert_eq!(names(scene.target("")), ["dir", "fine"]);
            for above in ["dir", "fine"] {
                assert_eq!(names(scene.target(above)), ["around", "file"]);
                assert_eq!(names(scene.target(above).join("around")), ["file"]);
            }
        }
    }
}

#[test]
fn a_server_keeps_links_within_what_it_serves() {
    for words in [["cp", "-rL", "--json"], ["sync", "-L", "--json"]] {
        let scene = Scene::new(false);
        write(&scene.place.path().join("secret/file"), b"secret");
        scene.link(scene.place.path().join("secret/file"), "file");
        scene.link("../../secret", "directory");
        scene.file("other", "served");
        let run = scene.run(&words);
        let paths: Vec<_> = failures(&run).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["directory", "file"], "{}", run.stderr);
        assert_eq!(run.code, Some(5), "{}", run.stderr);
        assert_eq!(names(scene.target("")), ["other"]);
    }
}

#[test]
fn a_synchronisation_compares_what_links_lead_to() {
    for up in [true, false] {
        let scene = Scene::new(up);
        let words = ["sync", "-L", "--delete", "--backup-dir", "../old", "--json"];
        let done = |run: Run| object(&run.ok(), "sync");
        write(&scene.beside("data/file"), b"old");
        write(&scene.beside("data/gone"), b"removed later");
        mark(&scene.beside("data/file"), 0o644, 1_000_000_000);
        scene.link("../data", "data");
        scene.link("../data/file", "file");
        scene.file("plain", "stays");
        done(scene.run(&words));
        assert_followed(&scene.source(""), &scene.target(""));
        // Through the link, one file changes and another goes.
        fs::write(scene.beside("data/file"), b"new one").unwrap();
        fs::remove_file(scene.beside("data/gone")).unwrap();
        let changed = done(scene.run(&words));
        let counts = ["files", "replaced", "deleted"].map(|name| changed[name].clone());
        assert_eq!(counts, [2, 2, 1].map(Value::from), "{changed}");
        assert_followed(&scene.source(""), &scene.target(""));
        let old = scene.target("../old");
        assert_eq!(fs::read(old.join("data/file")).unwrap(), b"old");
        assert_eq!(fs::read(old.join("data/gone")).unwrap(), b"removed later");
        // By content, a link with another name is a renamed file.
        fs::rename(scene.source("file"), scene.source("renamed")).unwrap();
        let by_content = [&words[..3], &["--compare", "digest", "--json"]].concat();
        let renamed = done(scene.run(&by_content));
        assert_eq!(
            (&renamed["renamed"], &renamed["files"]),
            (&1.into(), &0.into())
        );
        assert_followed(&scene.source(""), &scene.target(""));
        // A link that leads nowhere keeps everything from being deleted.
        fs::remove_file(scene.source("plain")).unwrap();
        scene.link("missing", "dangling");
        let run = scene.run(&words);
        assert_ne!(run.code, Some(0));
        assert_eq!(object(&run, "sync")["deleted"], 0);
        assert!(scene.target("plain").exists());
        fs::remove_file(scene.source("dangling")).unwrap();
        assert_eq!(done(scene.run(&words))["deleted"], 1);
        assert_followed(&scene.source(""), &scene.target(""));
    }
}

/// What was copied as links is replaced by what they lead to, and the other way round.
#[test]
fn links_at_the_target_give_way() {
    for up in [true, false] {
        let scene = Scene::new(up);
        scene.file("a/file", "1");
        scene.link("a/file", "file");
        scene.link("a", "directory");
        scene.run(&["sync"]).ok();
        let target = |name: &str| fs::symlink_metadata(scene.target(name)).unwrap();
        assert!(target("directory").is_symlink() && target("file").is_symlink());
        scene
            .run(&["sync", "-L"])
            .fails(6, &["directory", "--delete"]);
        assert!(target("directory").is_symlink() && target("file").is_file());
        scene.run(&["sync", "-L", "--delete"]).ok();
        assert_followed(&scene.source(""), &scene.target(""));
        scene.run(&["sync", "--delete"]).ok();
        assert!(target("directory").is_symlink() && target("file").is_symlink());
        // What the target's links led to was never written through.
        assert_eq!(names(scene.target("a")), ["file"]);
        assert_eq!(fs::read(scene.target("a/file")).unwrap(), b"1");
    }
}

#[test]
fn an_interrupted_copy_goes_on() {
    // At the rate they take 18 seconds, of which a busy machine may miss some.
    const FILES: u64 = 900;
    for up in [true, false] {
        let scene = Scene::new(up);
        for n in 0..FILES {
            write(
                &scene.beside(&format!("data/{}/f{n}", n % 10)),
                &content(n, 12_000),
            );
        }
        for n in 0..10 {
            scene.link(format!("../data/{n}"), &format!("d{n}"));
        }
        scene.link("../data/0/f0", "file");
        let slow = [
            "cp",
            "-rL",
            "--json",
            "--retries",
            "0",
            "--limit-rate",
            "600k",
        ];
        let mut running = Running::start(&mut scene.command(&slow));
        running.wait_for_bytes(2_500_000);
        running.signal("INT");
        running.wait().fails(130, &["stopped"]);
        let run = scene.run(&["cp", "-rL", "--json"]).ok();
        let tree = object(&run, "tree");
        let count = |name: &str| tree[name].as_u64().unwrap();
        assert!(count("resumed_files") > 50, "{tree}");
        assert_eq!(count("files") + count("resumed_files"), FILES + 1, "{tree}");
        assert_followed(&scene.source(""), &scene.target(""));
    }
}

#[test]
fn a_copy_of_the_links_does_not_go_on_with_one_that_follows_them() {
    for up in [true, false] {
        let scene = Scene::new(up);
        let journals = || names(scene.place.path().join("state/trees")).len();
        scene.file("a/file", "1");
        scene.link("a", "link");
        scene.link("missing", "dangling");
        // Each leaves a failure, and with it a journal of its own.
        scene.run(&["cp", "-rL"]).fails(4, &["dangling"]);
        assert_eq!(journals(), 1);
        scene.run(&["cp", "-r"]).fails(6, &["link"]);
        assert_eq!(journals(), 2);
        let there = fs::symlink_metadata(scene.target("dangling")).unwrap();
        assert!(there.is_symlink());
    }
}

#[test]
fn hard_links_and_followed_links_have_the_content_of_their_file() {
    for up in [true, false] {
        for words in [["cp", "-aL"], ["sync", "-aL"]] {
            let scene = Scene::new(up);
            scene.file("one", "of two names");
            fs::hard_link(scene.source("one"), scene.source("two")).unwrap();
            scene.link("two", "three");
            write(&scene.source("alone"), &content(3, LARGE));
            scene.link("alone", "beside");
            scene.run(&words).ok();
            assert_followed(&scene.source(""), &scene.target(""));
            let inode = |name: &str| fs::metadata(scene.target(name)).unwrap().ino();
            assert_eq!(inode("one"), inode("two"));
            assert_ne!(inode("alone"), inode("beside"));
        }
    }
}

#[test]
fn listed_paths_may_lead_through_links() {
    for up in [true, false] {
        let scene = Scene::new(up);
        scene.file("a/file", "1");
        scene.file("a/other", "2");
        scene.link("a", "link");
        scene.link("missing", "dangling");
        let list = scene.place.make_here("list", b"link/file\n");
        let listed = ["cp", "-r", "--files-from", &list];
        scene.run(&listed).fails(14, &["'link' is a symbolic link"]);
        scene.run(&[&listed[..], &["-L"]].concat()).ok();
        assert_eq!(names(scene.target("")), ["link"]);
        assert_eq!(names(scene.target("link")), ["file"]);
        fs::write(&list, b"a/other\ndangling\nlink/none\n").unwrap();
        let run = scene.run(&[&listed[..], &["-L", "--json"]].concat());
        let paths: Vec<_> = failures(&run).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["dangling", "link/none"], "{}", run.stderr);
        assert_eq!(names(scene.target("a")), ["other"]);
    }
}

#[test]
fn other_kinds_behind_links_are_what_they_are_without() {
    for (scene, words) in scenes() {
        let pipe = scene.source("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        scene.link("pipe", "to_pipe");
        if scene.up {
            scene.link("/dev/null", "device");
        }
        let run = scene.run(&words);
        let paths: Vec<_> = failures(&run).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, if scene.up { vec!["device"] } else { vec![] });
        use std::os::unix::fs::FileTypeExt as _;
        for name in ["pipe", "to_pipe"] {
            let meta = fs::symlink_metadata(scene.target(name)).unwrap();
            assert!(meta.file_type().is_fifo(), "{name}");
        }
    }
}

#[test]
fn a_move_of_what_links_lead_to_is_refused() {
    xdfs(["cp", "-rL", "--remove-source", "tree", "xdfs://localhost/"])
        .fails(2, &["--remove-source", "--copy-links"]);
}
