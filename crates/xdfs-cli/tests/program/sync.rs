//! `xdfs sync`, both ways.

use std::fs;
use std::path::Path;

use crate::support::{Place, Server, names, xdfs};

fn serve(place: &Place) -> Server {
    Server::start(&place.root())
}

fn write(path: impl AsRef<Path>, content: &str) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn there_and_back_and_nothing_the_second_time() {
    let place = Place::new();
    let server = serve(&place);
    let (tree, url) = (place.here("tree"), server.url("/deep/copy"));
    write(place.here("tree/a"), "1");
    write(place.here("tree/d/b"), "22");
    let run = xdfs(["sync", &tree, &url]).ok();
    assert!(run.stderr.contains("2 files"), "{}", run.stderr);
    assert!(run.stdout.is_empty());
    assert_eq!(fs::read(place.remote("deep/copy/d/b")).unwrap(), b"22");
    let run = xdfs(["sync", "--json", &tree, &url]).ok();
    let lines = run.json();
    let done = lines.iter().find(|line| line["type"] == "sync").unwrap();
    assert_eq!((&done["files"], &done["set"]), (&0.into(), &0.into()));
    assert_eq!(done["bytes"], 0);
    assert_eq!(run.result()["files"], 0);
    let back = place.here("back");
    xdfs(["sync", "-a", "--delete", &url, &back]).ok();
    assert_eq!(names(&back), ["a", "d"]);
    write(place.here("back/extra"), "3");
    xdfs(["sync", &url, &back]).ok();
    assert_eq!(names(&back), ["a", "d", "extra"]);
    let run = xdfs(["sync", "--delete", "-v", &url, &back]).ok();
    assert!(run.stderr.contains("delete extra"), "{}", run.stderr);
    assert_eq!(names(&back), ["a", "d"]);
}

#[test]
fn a_dry_run_prints_one_line_for_each_thing() {
    let place = Place::new();
    let server = serve(&place);
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    write(place.here("tree/a"), "1");
    write(place.here("tree/b"), "renamed");
    xdfs(["sync", &tree, &url]).ok();
    write(place.here("tree/a"), "other");
    write(place.here("tree/d/new"), "2");
    fs::rename(place.here("tree/b"), place.here("tree/c")).unwrap();
    write(place.remote("copy/extra"), "3");
    let words = [
        "sync",
        "--delete",
        "--dry-run",
        "--compare",
        "digest",
        &tree,
        &url,
    ];
    let run = xdfs(words).ok();
    let stdout = String::from_utf8_lossy(&run.stdout);
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    let expected = [
        "copy d",
        "copy d/new",
        "delete extra",
        "rename b to c",
        "replace a",
        "set attributes of the target directory itself",
    ];
    let lines: Vec<&str> = lines
        .into_iter()
        .filter(|line| *line != "set attributes of the target directory itself")
        .collect();
    assert_eq!(lines, expected[..5]);
    assert_eq!(names(place.remote("copy")), ["a", "b", "extra"]);
    let run = xdfs(words.iter().chain(&["--json"])).ok();
    let steps: Vec<_> = run.json();
    let renames: Vec<_> = steps.iter().filter(|s| s["step"] == "rename").collect();
    assert_eq!(renames.len(), 1);
    assert_eq!(
        (&renames[0]["from"], &renames[0]["path"]),
        (&"b".into(), &"c".into())
    );
    assert_eq!(renames[0]["dry_run"], true);
}

#[test]
fn of_large_files_what_changed_is_sent() {
    let place = Place::new();
    let server = serve(&place);
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    let line = |n: u32| format!("{n:08}\n");
    let old: String = (0..300_000).map(line).collect();
    write(place.remote("copy/large"), &old);
    let new = old.replace("00150000", "something new");
    write(place.here("tree/large"), &new);
    let run = xdfs(["sync", "--delta", "--json", &tree, &url]).ok();
    assert_eq!(fs::read_to_string(place.remote("copy/large")).unwrap(), new);
    let lines = run.json();
    let done = lines.iter().find(|line| line["type"] == "sync").unwrap();
    assert_eq!(done["bytes"], new.len());
    let matched = done["matched_bytes"].as_u64().unwrap();
    assert!(matched + (64 << 10) > new.len() as u64, "{matched}");
    fs::remove_file(place.here("tree/large")).unwrap();
    write(place.here("tree/large"), &old);
    let run = xdfs(["sync", "--delta", &tree, &url]).ok();
    assert!(run.stderr.contains("there already"), "{}", run.stderr);
    fs::remove_file(place.here("tree/large")).unwrap();
    write(place.here("tree/other"), "1");
    let run = xdfs(["sync", "--delete", "--dry-run", &tree, &url]).ok();
    assert!(run.stderr.contains("1 to be deleted"), "{}", run.stderr);
}

#[test]
fn rules_count_in_the_order_of_the_command_line() {
    let place = Place::new();
    let server = serve(&place);
    let tree = place.here("tree");
    for name in ["a.o", "keep.o", "c.c", "cache/x", "d/b.o"] {
        write(place.here(&format!("tree/{name}")), name);
    }
    let rules = place.make_here("rules", b"# words\n*.o\ncache/\n");
    let filter = ["--filter-file", &rules, "--include", "keep.o"];
    let copy = |command: &[&str], to: &str| {
        let url = server.url(to);
        let ends = [tree.as_str(), url.as_str()];
        xdfs(command.iter().chain(&filter).chain(&ends)).ok();
    };
    copy(&["sync"], "/copy");
    assert_eq!(names(place.remote("copy")), ["c.c", "d", "keep.o"]);
    copy(&["cp", "-r"], "/second");
    assert_eq!(names(place.remote("second")), ["c.c", "d", "keep.o"]);
    let late = [
        "sync",
        "--include",
        "*.o",
        "--exclude",
        "*.o",
        &tree,
        &server.url("/late"),
    ];
    xdfs(late).ok();
    assert_eq!(names(place.remote("late")), ["c.c", "cache", "d"]);
    // As of git: in a file, what is malformed matches nothing.
    let odd = place.make_here("odd", b"*.o\n[z-a]\n{c,d}.c\n[\n");
    let words = ["sync", "--filter-file", &odd, &tree, &server.url("/odd")];
    xdfs(words).ok();
    assert_eq!(names(place.remote("odd")), ["c.c", "cache", "d"]);
    let words = ["sync", "--exclude", "[", &tree, &server.url("/bad")];
    xdfs(words).fails(2, &["not a valid pattern"]);
    assert!(!place.remote("bad").exists());
}

#[test]
fn what_could_delete_too_much_is_refused() {
    let place = Place::new();
    let server = serve(&place);
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b", "c"] {
        write(place.remote(&format!("copy/{name}")), name);
    }
    xdfs(["sync", "--delete", &tree, &url]).fails(2, &["empty", "--force"]);
    let missing = place.here("missing");
    for force in [&["--delete"][..], &["--delete", "--force"], &[]] {
        let missing = [&["sync"], force, &[&missing, &url]].concat();
        let run = xdfs(missing).fails(4, &["missing': no such directory"]);
        assert!(!run.stderr.contains("hint:"), "{}", run.stderr);
    }
    write(place.here("tree/a"), "a");
    let words = [
        "nothing deleted: 2 names exceed the limit of 1",
        "--max-delete",
    ];
    for force in [&["--delete"][..], &["--delete", "--force"]] {
        let few = [&["sync"], force, &["--max-delete", "1", &tree, &url]].concat();
        xdfs(few).fails(6, &words);
    }
    assert_eq!(names(place.remote("copy")), ["a", "b", "c"]);
    xdfs(["sync", "--delete", "--max-delete", "2", &tree, &url]).ok();
    assert_eq!(names(place.remote("copy")), ["a"]);
    fs::remove_file(place.here("tree/a")).unwrap();
    xdfs(["sync", "--delete", "--force", &tree, &url]).ok();
    assert_eq!(names(place.remote("copy")).len(), 0);
}

#[test]
fn both_sides_are_directories_and_neither_in_the_other() {
    xdfs(["sync", "xdfs://127.0.0.1:1/a", "xdfs://127.0.0.1:1/a/b"]).fails(2, &["or in it"]);
    xdfs(["sync", "-", "xdfs://127.0.0.1:1/b"]).fails(2, &["no streams"]);
}

/// A directory gives way to a link behind which there are the same names.
#[test]
fn a_link_to_a_directory_takes_the_place_of_a_directory() {
    let place = Place::new();
    let server = serve(&place);
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    write(place.here("tree/a/deep/file"), "1");
    std::os::unix::fs::symlink("a", place.here("tree/link")).unwrap();
    write(place.remote("copy/link/deep/file"), "2");
    xdfs(["sync", "--delete", &tree, &url]).ok();
    let link = fs::read_link(place.remote("copy/link")).unwrap();
    assert_eq!(link, Path::new("a"));
    assert_eq!(fs::read(place.remote("copy/a/deep/file")).unwrap(), b"1");
    fs::remove_file(place.remote("copy/link")).unwrap();
    write(place.here("back/link/deep/file"), "2");
    std::os::unix::fs::symlink("a", place.remote("copy/link")).unwrap();
    xdfs(["sync", "--delete", &url, &place.here("back")]).ok();
    assert_eq!(fs::read_link(place.here("back/link")).unwrap(), link);
}
