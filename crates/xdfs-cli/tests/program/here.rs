//! Copies and synchronisations with both sides on this machine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::support::{Place, Run, Running, assert_content, content, names, program, xdfs};
use crate::trees::{assert_same, make_tree};

/// Runs the program in a directory.
fn xdfs_in(directory: &str, words: &[&str]) -> Run {
    Running::start(program().current_dir(directory).args(words)).wait()
}

/// The counts of the only tree.
fn tree(run: &Run) -> serde_json::Value {
    let mut found = run.json().into_iter().filter(|v| v["type"] == "tree");
    found.next().unwrap()
}

#[test]
fn a_tree_goes_to_another_directory() {
    let place = Place::new();
    let here = place.here("tree");
    make_tree(Path::new(&here));
    let copy = place.here("copy");
    let words = ["cp", "-r", "--json", &here, &copy];
    let run = xdfs(words).ok();
    assert_eq!(tree(&run)["files"], 101);
    assert_same(Path::new(&here), Path::new(&copy));
    // In a directory that exists it keeps its name, and its contents don't.
    fs::create_dir(place.here("in")).unwrap();
    xdfs(["cp", "-r", &here, &place.here("in")]).ok();
    xdfs(["cp", "-r", &place.here("tree/"), &place.here("in")]).ok();
    assert_same(Path::new(&here), Path::new(&place.here("in/tree")));
    let mut expected = names(&here);
    expected.push("tree".into());
    assert_eq!(names(place.here("in")), expected);
    // Relative paths begin in the working directory, and those of links where these lead.
    fs::create_dir(place.here("work")).unwrap();
    symlink("tree/d1", place.here("d")).unwrap();
    let work = place.here("work");
    for (source, target, wanted) in [
        ("../tree", "by-name", "tree"),
        ("../d/../d2", "by-link", "tree/d2"),
        ("by-name/d3/.", "contents", "tree/d3"),
    ] {
        xdfs_in(&work, &["cp", "-r", source, target]).ok();
        assert_same(
            Path::new(&place.here(wanted)),
            &Path::new(&work).join(target),
        );
    }
    xdfs_in(&work, &["cp", "-r", ".", "../all"]).ok();
    assert_eq!(names(place.here("all")), ["by-link", "by-name", "contents"]);
}

#[test]
fn files_go_with_trees_and_alone() {
    let place = Place::new();
    make_tree(Path::new(&place.here("tree")));
    let file = place.make_here("file", b"abc");
    fs::create_dir(place.here("in")).unwrap();
    let into = place.here("in");
    xdfs(["cp", "-r", &place.here("tree"), &file, &into]).ok();
    assert_eq!(names(&into), ["file", "tree"]);
    assert_content(place.here("in/file"), b"abc");
    fs::write(&file, "another").unwrap();
    xdfs(["cp", &file, &into]).fails(6, &["--force"]);
    assert_content(place.here("in/file"), b"abc");
    let (other, expected) = (place.here("other"), content(3, 3 << 20));
    fs::write(place.here("tree/large"), &expected).unwrap();
    xdfs(["cp", &place.here("tree/large"), &other]).ok();
    assert_content(&other, &expected);
    let part = ["--offset", "7", "--length", "100", &other, &place.here("p")];
    xdfs(["cp"].iter().chain(&part)).ok();
    assert_content(place.here("p"), &expected[7..107]);
    xdfs(["cp", &place.here("tree"), &place.here("x")]).fails(6, &["--recursive"]);
    xdfs(["cp", &place.here("none"), &place.here("x")]).fails(4, &["none': no such file"]);
    let run = xdfs(["cp", "--json", "-v", &other, &place.here("shown")]).ok();
    assert!(!run.text().contains("file:"), "{}", run.text());
    // A file isn't its own copy, under another name neither.
    fs::hard_link(&other, place.here("again")).unwrap();
    for target in ["other", "again"] {
        let target = place.here(target);
        let words = ["cp", "--skip-existing", "--remove-source", &other, &target];
        let run = xdfs(words);
        assert_ne!(run.code, Some(0), "{target}: {}", run.stderr);
        assert_content(&other, &expected);
    }
    xdfs(["cp", "--remove-source", &other, &place.here("moved")]).ok();
    assert_content(place.here("moved"), &expected);
    assert!(!Path::new(&other).exists());
}

/// No server is named where there is none.
#[test]
fn faults_of_either_side_are_local() {
    let place = Place::new();
    fs::create_dir_all(place.here("tree/d")).unwrap();
    fs::write(place.here("tree/d/f"), "1").unwrap();
    let _socket = UnixListener::bind(place.here("tree/socket")).unwrap();
    fs::create_dir(place.here("copy")).unwrap();
    fs::write(place.here("copy/d"), "in the way").unwrap();
    let (source, target) = (place.here("tree/"), place.here("copy"));
    let words = ["cp", "-r", "-v", "--json", &source, &target];
    let run = xdfs(words);
    assert_ne!(run.code, Some(0), "{}", run.stderr);
    let socket = format!(" '{}': ", place.here("tree/socket"));
    let way = format!(" '{}': ", place.here("copy/d"));
    for named in [&socket, &way] {
        assert!(run.stderr.contains(named.as_str()), "{}", run.stderr);
    }
    for word in ["server", "other side", "file:"] {
        assert!(!run.stderr.contains(word), "{word}: {}", run.stderr);
    }
    let errors = run.json().into_iter().filter(|v| v["type"] == "error");
    let errors: Vec<_> = errors.collect();
    assert!(errors.len() >= 2, "{errors:?}");
    for error in errors {
        assert_eq!(error["side"], "local", "{error}");
        assert!(error["machine"].is_null(), "{error}");
    }
    let missing = place.here("none");
    for command in [&["cp"][..], &["sync"]] {
        let run = xdfs(command.iter().copied().chain([&*missing, &*target]));
        let run = run.fails(4, &[&format!("'{missing}': no such")]);
        assert!(!run.stderr.contains("server"), "{}", run.stderr);
    }
}

#[test]
fn neither_directory_is_in_the_other() {
    let place = Place::new();
    fs::create_dir_all(place.here("t/a")).unwrap();
    fs::create_dir_all(place.here("t/u")).unwrap();
    fs::write(place.here("t/u/f"), "1").unwrap();
    symlink("t/u", place.here("us")).unwrap();
    let was = [names(place.here("")), names(place.here("t"))];
    for (source, target) in [
        ("t", "t/new"),
        ("t", "us/new"),
        ("t", "."),
        ("./us/..", "t/a/new/er"),
    ] {
        for words in [
            &["cp", "-rf"][..],
            &["sync"],
            &["sync", "--delete", "--force"],
        ] {
            if target == "." && words[0] == "sync" {
                continue;
            }
            let words = [words, &[source, target]].concat();
            xdfs_in(&place.here(""), &words).fails(2, &["in it"]);
        }
    }
    for (source, target) in [("us", "t"), ("t/a/../u", "t"), ("t", "us"), ("t", "t/")] {
        let words = ["sync", "--delete", "--force", source, target];
        xdfs_in(&place.here(""), &words).fails(2, &["in it"]);
    }
    assert_eq!([names(place.here("")), names(place.here("t"))], was);
    assert_content(place.here("t/u/f"), b"1");
}

#[test]
fn an_archive_keeps_modes_times_links_and_attributes() {
    let place = Place::new();
    let at = |name: &str| place.here(name);
    fs::create_dir_all(at("tree/d")).unwrap();
    fs::write(at("tree/d/a"), "small").unwrap();
    fs::hard_link(at("tree/d/a"), at("tree/b")).unwrap();
    symlink("no/such", at("tree/dangling")).unwrap();
    let set = |path: &str, mode| {
        fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    set("tree/d/a", 0o4751);
    set("tree/d", 0o2751);
    set("tree", 0o1750);
    let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890);
    let file = fs::File::open(at("tree/d")).unwrap();
    file.set_modified(time).unwrap();
    let has_attribute = std::process::Command::new("setfattr")
        .args(["-n", "user.of", "-v", "here", &at("tree/b")])
        .status()
        .is_ok_and(|status| status.success());
    xdfs(["cp", "-a", &at("tree"), &at("copy")]).ok();
    xdfs(["sync", "-a", &at("tree"), &at("same")]).ok();
    for copy in ["copy", "same"] {
        let of = |path: &str| fs::symlink_metadata(at(path)).unwrap();
        for path in ["", "/d", "/d/a", "/b", "/dangling"] {
            let [one, other] = ["tree", copy].map(|root| of(&format!("{root}{path}")));
            let kept = |of: &fs::Metadata| (of.mode(), of.uid(), of.gid(), of.nlink(), of.mtime());
            assert_eq!(kept(&one), kept(&other), "{copy}{path}");
        }
        assert_eq!(of(&format!("{copy}/d")).mtime_nsec(), 234_567_890);
        assert_eq!(
            of(&format!("{copy}/b")).ino(),
            of(&format!("{copy}/d/a")).ino()
        );
        if has_attribute {
            let read = std::process::Command::new("getfattr")
                .args(["--only-values", "-n", "user.of", &at(&format!("{copy}/b"))])
                .output()
                .unwrap();
            assert_eq!(read.stdout, b"here", "{copy}");
        }
    }
}

#[test]
fn a_synchronisation_makes_directories_equal() {
    let place = Place::new();
    let (tree, copy) = (place.here("tree"), place.here("copy"));
    make_tree(Path::new(&tree));
    xdfs(["sync", &tree, &copy]).ok();
    assert_same(Path::new(&tree), Path::new(&copy));
    fs::remove_dir_all(place.here("tree/d0")).unwrap();
    fs::write(place.here("tree/d1/below/f1"), "changed").unwrap();
    fs::write(place.here("copy/kept.o"), "left out").unwrap();
    let words = ["sync", "--delete", "--max-delete", "100", "--exclude=*.o"];
    let both = [&*tree, &*copy];
    let dry = xdfs(words.iter().chain(&["--dry-run"]).chain(&both)).ok();
    assert!(dry.text().contains("d0"), "{}", dry.text());
    assert!(Path::new(&place.here("copy/d0")).exists());
    let keep = ["--backup-dir", "../old"];
    xdfs(words.iter().chain(&keep).chain(&both)).ok();
    assert_content(place.here("copy/kept.o"), b"left out");
    assert_eq!(names(place.here("old")), ["d0", "d1"]);
    fs::remove_file(place.here("copy/kept.o")).unwrap();
    assert_same(Path::new(&tree), Path::new(&copy));
    let run = xdfs(["sync", "--json", "--delete", &tree, &copy]).ok();
    let done = run.json().into_iter().find(|v| v["type"] == "sync");
    let done = done.unwrap();
    assert_eq!((&done["files"], &done["deleted"]), (&0.into(), &0.into()));
}

#[test]
fn a_killed_tree_copy_resumes() {
    let place = Place::new();
    let (tree, copy, state) = (place.here("tree"), place.here("copy"), place.here("state"));
    make_tree(Path::new(&tree));
    for file in 0..6 {
        let name = place.here(&format!("tree/d{}/large", file % 5));
        fs::write(format!("{name}{file}"), content(file, 8 << 20)).unwrap();
    }
    let command = |more: &[&str]| {
        let mut command = program();
        command.env("XDFS_STATE_DIR", &state);
        command.args(["cp", "-r", "--json", "-v"]).args(more);
        command.args([&tree, &copy]);
        command
    };
    let mut client = Running::start(&mut command(&["--limit-rate", "8M"]));
    client.wait_for_bytes(32 << 20);
    client.kill();
    let run = Running::start(&mut command(&[])).wait().ok();
    assert!(
        tree_bytes(&run, "resumed_bytes") >= 8 << 20,
        "{}",
        run.text()
    );
    // Hidden files of the interrupted run are gone too.
    assert_same(Path::new(&tree), Path::new(&copy));
    // A complete copy is recognised.
    let run = Running::start(&mut command(&[])).wait().ok();
    assert_eq!(tree_bytes(&run, "bytes"), 0, "{}", run.text());
}

#[test]
fn a_killed_copy_of_a_file_resumes() {
    let place = Place::new();
    let expected = content(6, 48 << 20);
    let (source, copy) = (place.make_here("file", &expected), place.here("in/copy"));
    fs::create_dir(place.here("in")).unwrap();
    let slow = ["cp", "--json", "-v", "--limit-rate", "20M", &source, &copy];
    let mut client = Running::start(program().args(slow));
    client.wait_for_bytes(32 << 20);
    client.kill();
    assert!(!Path::new(&copy).exists());
    let run = xdfs(["cp", "--json", &source, &copy]).ok();
    let resumed = run.result()["resumed_bytes"].as_u64().unwrap();
    assert!(resumed >= 8 << 20, "{}", run.text());
    assert_content(&copy, &expected);
    assert_eq!(names(place.here("in")), ["copy"]);
}

fn tree_bytes(run: &Run, field: &str) -> u64 {
    tree(run)[field].as_u64().unwrap()
}

#[test]
fn streams_need_a_server() {
    for words in [["-", "x"], ["x", "-"], ["-", "-"]] {
        xdfs(["cp", words[0], words[1]]).fails(2, &["hint: use `cat`"]);
    }
}
