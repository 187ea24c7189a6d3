//! Trees, synchronisations and lists whose large files all servers of a group move: real servers
//! over one directory, of which some die meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use xdfs_testkit::terminal::Terminal;

use crate::stripes::{Scene, bytes_of, dropped, own_program, sources};
use crate::support::{Run, Running, assert_content, content, names, program, run_with_input};

/// Bytes of the large files of a tree.
const LARGE: [usize; 3] = [20 << 20, (9 << 20) + 4321, 4 << 20];
const LARGE_BYTES: u64 = (LARGE[0] + LARGE[1] + LARGE[2]) as u64;

/// Bytes of a journal with three records, of which one a second is written: whole ranges of the
/// file are recorded by then.
const JOURNAL_BYTES: u64 = 76 + 3 * 28;

/// The entries of a tree with their kinds and contents.
fn entries(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            let content = if kind.is_dir() {
                waiting.push(path);
                b"directory".to_vec()
            } else if kind.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string().into()
            } else {
                fs::read(&path).unwrap()
            };
            found.insert(name, content);
        }
    }
    found
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let [one, other] = [one, other].map(entries);
    assert!(one.keys().eq(other.keys()), "{:?}", other.keys());
    for (name, content) in &one {
        assert!(other[name] == *content, "{name} differs");
    }
}

/// A tree with large and small files.
fn make_tree(root: &Path, seed: u64) {
    fs::create_dir_all(root.join("deep/er")).unwrap();
    for (number, length) in LARGE.into_iter().enumerate() {
        let directory = root.join(["", "deep", "deep/er"][number]);
        let bytes = content(seed + number as u64, length);
        fs::write(directory.join(format!("large{number}")), bytes).unwrap();
    }
    fs::write(root.join("deep/middle"), content(seed + 10, 3 << 20)).unwrap();
    for number in 0..150_u64 {
        let bytes = content(seed + 100 + number, 40 * number as usize);
        fs::write(root.join(format!("deep/er/small{number}")), bytes).unwrap();
    }
    fs::create_dir(root.join("empty")).unwrap();
    symlink("deep/middle", root.join("link")).unwrap();
}

/// The output without small files.
fn text(run: &Run) -> String {
    let text = run.text();
    let lines = text.lines().filter(|line| !line.contains("er/small"));
    lines.collect::<Vec<_>>().join("\n")
}

impl Scene {
    /// The URL of the directory that all members serve.
    fn directory(&self, member: usize, path: &str) -> String {
        let url = self.url(member);
        format!("{}{path}", url.trim_end_matches("file"))
    }

    /// Starts a command with stripes.
    fn striped(&self, args: &[&str]) -> Running {
        let mut command = own_program(&self.here);
        command.args([args[0], "--json", "--stripe", "-n", "1"]);
        Running::start(command.args(&args[1..]))
    }

    /// Waits until so many bytes of the largest file of a tree are there, and some are recorded; or
    /// until it is published.
    fn wait_for_large(&self, tree: &Path, bytes: u64) {
        let began = Instant::now();
        let [file, part, journal] =
            ["large0", ".large0.xdfs-part", ".large0.xdfs-journal"].map(|name| tree.join(name));
        loop {
            let written = fs::metadata(&part).map_or(0, |own| own.blocks() * 512);
            let recorded = fs::metadata(&journal).map_or(0, |own| own.len());
            if written >= bytes && recorded >= JOURNAL_BYTES || file.exists() {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{written} bytes");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn the_large_files_of_a_tree_are_moved_by_all_members_both_ways() {
    let scene = Scene::new(3).limited(4_000_000);
    let here = scene.here.path().join("here/tree");
    make_tree(&here, 801);
    let tree = here.to_str().unwrap();
    let url = scene.directory(0, "");
    let run = scene.striped(&["cp", "-r", tree, &url]).wait().ok();
    assert_same(&here, &scene.here.remote("tree"));
    let found = sources(&run);
    let bytes = bytes_of(&found);
    // Small files went to the one that is named, beside that.
    assert_eq!(bytes.iter().sum::<u64>(), LARGE_BYTES, "{}", text(&run));
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{}", text(&run));
    assert_eq!(
        (bytes.len(), dropped(&found)),
        (3, vec![]),
        "{}",
        text(&run)
    );
    // There is nothing to do then.
    let run = scene.striped(&["cp", "-r", tree, &url]).wait().ok();
    assert_eq!(
        sources(&run),
        [] as [serde_json::Value; 0],
        "{}",
        text(&run)
    );
    // And back, with all metadata.
    let back = scene.here.path().join("here/back");
    let url = scene.directory(1, "tree");
    let run = scene.striped(&["cp", "-r", "--xattrs", &url, back.to_str().unwrap()]);
    let run = { run }.wait().ok();
    assert_same(&here, &back);
    let bytes = bytes_of(&sources(&run));
    assert_eq!(bytes.iter().sum::<u64>(), LARGE_BYTES, "{}", text(&run));
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{}", text(&run));
    // A file beside the tree, by its own rules; without moving anything, no groups are asked.
    let source = scene.here.make_here("beside", &content(803, 6 << 20));
    let url = scene.directory(0, "");
    scene
        .striped(&["cp", "-r", &source, tree, &url])
        .wait()
        .ok();
    assert_content(scene.here.remote("beside"), &content(803, 6 << 20));
    let run = scene.striped(&["cp", "-r", "--dry-run", tree, &format!("{url}new")]);
    { run }.wait().ok();
    assert!(!scene.here.remote("new").exists());
}

#[test]
fn synchronisations_have_large_files_moved_by_all_members() {
    let scene = Scene::new(3).limited(6_000_000);
    let here = scene.here.path().join("here/tree");
    make_tree(&here, 811);
    let tree = here.to_str().unwrap();
    let url = scene.directory(0, "tree");
    scene.striped(&["sync", tree, &url]).wait().ok();
    assert_same(&here, &scene.here.remote("tree"));
    // One large file is changed, one is new, and one is gone.
    fs::write(here.join("large0"), content(812, 12 << 20)).unwrap();
    fs::write(here.join("deep/new"), content(813, 8 << 20)).unwrap();
    fs::remove_file(here.join("deep/large1")).unwrap();
    let run = scene.striped(&["sync", "--delete", tree, &url]).wait().ok();
    assert_same(&here, &scene.here.remote("tree"));
    let bytes = bytes_of(&sources(&run));
    assert_eq!(bytes.iter().sum::<u64>(), 20 << 20, "{}", text(&run));
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{}", text(&run));
    // The other way.
    fs::write(scene.here.remote("tree/large0"), content(814, 16 << 20)).unwrap();
    let run = scene.striped(&["sync", &url, tree]).wait().ok();
    assert_same(&here, &scene.here.remote("tree"));
    let bytes = bytes_of(&sources(&run));
    assert_eq!(bytes.iter().sum::<u64>(), 16 << 20, "{}", text(&run));
}

#[test]
fn a_tree_goes_from_all_members_of_a_group_to_all_of_another() {
    let from = Scene::new(2).limited(4_000_000);
    let to = Scene::beside(&from, 3).limited(4_000_000);
    make_tree(&from.here.remote("tree"), 821);
    let [source, target] = [from.directory(0, "tree"), to.directory(1, "")];
    let run = from.striped(&["cp", "-r", &source, &target]).wait().ok();
    assert_same(&from.here.remote("tree"), &to.here.remote("tree"));
    let found = sources(&run);
    let all: Vec<_> = found.iter().map(|own| own["source"].as_str()).collect();
    assert_eq!(all.len(), 5, "{}", text(&run));
    assert_eq!(bytes_of(&found).iter().sum::<u64>(), 2 * LARGE_BYTES);
    assert!(
        bytes_of(&found).iter().all(|own| *own > 0),
        "{}",
        text(&run)
    );
}

/// Each of the members in turn, the named one too: it is there again soon, and the same command
/// goes on.
#[test]
fn a_tree_arrives_whichever_member_dies() {
    for killed in 0..3 {
        let mut scene = Scene::new(3).limited(3_000_000);
        let here = scene.here.path().join("here/tree");
        make_tree(&here, 831 + killed as u64);
        let url = scene.directory(0, "");
        let mut client = scene.striped(&["cp", "-r", here.to_str().unwrap(), &url]);
        scene.wait_for_large(&scene.here.remote("tree"), 10 << 20);
        let member = &mut scene.members[killed];
        member.server.running.kill();
        member.proxy.cut_all();
        scene.restart(killed);
        let run = client.wait().ok();
        assert_same(&here, &scene.here.remote("tree"));
        // On a busy machine it is there again before anything else is asked of it.
        let named = format!("{} is not used any more", scene.directory(killed, ""));
        let is_named = run.stderr.contains(&named) || run.stderr.contains("connection restored");
        assert!(is_named, "{}", run.stderr);
    }
}

/// The client dies, and the same command resumes, up and down.
#[test]
fn a_killed_client_of_a_striped_tree_resumes() {
    let scene = Scene::new(2).limited(3_000_000);
    let here = scene.here.path().join("here/tree");
    make_tree(&here, 841);
    let args = ["cp", "-r", here.to_str().unwrap(), &scene.directory(0, "")];
    let mut client = scene.striped(&args);
    scene.wait_for_large(&scene.here.remote("tree"), 14 << 20);
    client.kill();
    let run = scene.striped(&args).wait().ok();
    assert_same(&here, &scene.here.remote("tree"));
    let bytes = bytes_of(&sources(&run)).iter().sum::<u64>();
    assert!(bytes < LARGE_BYTES, "{bytes} bytes: {}", text(&run));
    // Down, into a directory that isn't there yet.
    let back = scene.here.path().join("here/back");
    let args = [
        "cp",
        "-r",
        &scene.directory(1, "tree"),
        back.to_str().unwrap(),
    ];
    let mut client = scene.striped(&args);
    scene.wait_for_large(&back, 8 << 20);
    client.kill();
    let run = scene.striped(&args).wait().ok();
    assert_same(&here, &back);
    let bytes = bytes_of(&sources(&run)).iter().sum::<u64>();
    assert!(bytes < LARGE_BYTES, "{bytes} bytes: {}", text(&run));
}

#[test]
fn lists_have_large_files_moved_by_all_members() {
    let scene = Scene::new(3).limited(6_000_000);
    let up = scene.here.make_here("up", &content(851, 12 << 20));
    let small = scene.here.make_here("small", &content(852, 1000));
    fs::write(scene.here.remote("down"), content(853, 9 << 20)).unwrap();
    fs::write(scene.here.remote("tiny"), content(854, 10)).unwrap();
    let [down, tiny] = ["got", "got-tiny"].map(|name| scene.here.here(name));
    let lines = [
        format!("{up} {}", scene.directory(0, "up")),
        format!("{small} {}", scene.directory(0, "small")),
        format!("{} {down}", scene.directory(0, "down")),
        format!("{} {tiny}", scene.directory(0, "tiny")),
        format!(
            "{} {}",
            scene.directory(0, "down"),
            scene.directory(1, "again")
        ),
    ];
    let list = scene.here.make_here("list", lines.join("\n").as_bytes());
    let run = scene.striped(&["cp", "--from-file", &list]).wait().ok();
    assert_content(scene.here.remote("up"), &content(851, 12 << 20));
    assert_content(scene.here.remote("small"), &content(852, 1000));
    assert_content(&down, &content(853, 9 << 20));
    assert_content(&tiny, &content(854, 10));
    assert_content(scene.here.remote("again"), &content(853, 9 << 20));
    let found = sources(&run);
    let of = |member: usize| {
        let address = scene.members[member].proxy.addr().to_string();
        let own = found.iter();
        let own = own.filter(|own| own["source"].as_str().unwrap().contains(&address));
        own.map(|own| own["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    assert!((0..3).all(|member| of(member) > 0), "{}", text(&run));
    assert_eq!(names(scene.here.root()).len(), 5);
    // A tree of which only some is listed.
    make_tree(&scene.here.path().join("here/tree"), 855);
    let some = scene
        .here
        .make_here("some", b"deep/large1\ndeep/er/small7\n");
    let tree = scene.here.here("tree");
    let url = scene.directory(2, "");
    let run = scene.striped(&["cp", "--files-from", &some, &tree, &url]);
    let run = { run }.wait().ok();
    let listed = fs::read(scene.here.remote("tree/deep/large1")).unwrap();
    assert_eq!(listed.len(), LARGE[1]);
    let bytes = bytes_of(&sources(&run));
    assert_eq!(bytes.iter().sum::<u64>(), LARGE[1] as u64, "{}", text(&run));
}

/// At a terminal, and from a script.
#[test]
fn a_password_is_asked_for_once_for_all_members() {
    let scene = Scene::new(3).limited(8_000_000);
    for member in &scene.members {
        let mut add = program();
        add.env("XDFS_CONFIG_DIR", member.place.here(""))
            .args(["user", "add", "alice"]);
        run_with_input(&mut add, b"correct horse\n").ok();
    }
    let here = scene.here.path().join("here/tree");
    make_tree(&here, 861);
    let as_alice = |path: &str| scene.directory(0, path).replace("xdfs://", "xdfs://alice@");
    let command = |more: &[&str]| {
        let mut command = own_program(&scene.here);
        command.args(["cp", "-r", "--json", "--stripe", "-n", "1"]);
        command.args(more);
        command
    };
    let tree = here.to_str().unwrap();
    let args = ["--password-file", "-", tree, &as_alice("")];
    // There is one line to read.
    let run = run_with_input(&mut command(&args), b"correct horse\n").ok();
    assert_same(&here, &scene.here.remote("tree"));
    let found = sources(&run);
    assert_eq!(
        (found.len(), dropped(&found)),
        (3, vec![]),
        "{}",
        text(&run)
    );
    let back = scene.here.here("back");
    let patience = Duration::from_secs(60);
    let mut command = command(&[&as_alice("tree"), &back]);
    command.env("TERM", "xterm");
    let mut terminal = Terminal::start(&command).unwrap();
    let asked = terminal.wait_for("Password for alice@", 0, patience);
    assert!(asked.is_some(), "{:?}", terminal.text());
    terminal.send(b"correct horse\r").unwrap();
    let status = terminal.wait(patience);
    let text = terminal.text();
    assert_eq!(status.and_then(|own| own.code()), Some(0), "{text:?}");
    assert_eq!(text.matches("Password for ").count(), 1, "{text:?}");
    assert_eq!(text.matches("\"type\":\"source\"").count(), 3, "{text:?}");
    assert_same(&here, Path::new(&back));
}
