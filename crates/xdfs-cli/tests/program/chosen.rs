//! Files that are chosen on the command line of `xdfs cp`: by patterns, lists, size and age.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Place, Server, names, program, run_with_input, xdfs, xdfs_with_input};

#[test]
fn patterns_match_names_on_the_server() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for dir in ["runs/one", "runs/two", "runs/three"] {
        fs::create_dir_all(place.remote(dir)).unwrap();
    }
    for name in [
        "a.dat",
        "b.dat",
        ".h.dat",
        "c.txt",
        "one/x.dat",
        "two/y.dat",
        "three/z",
        "[a]",
    ] {
        fs::write(place.remote("runs").join(name), name).unwrap();
    }
    fs::write(place.remote("runs/two words.dat"), "2").unwrap();
    let target = |name: &str| {
        fs::create_dir(place.here(name)).unwrap();
        place.here(name)
    };
    for (at, (pattern, expected)) in [
        ("/runs/*.dat", &["a.dat", "b.dat", "two words.dat"][..]),
        ("/runs/[!a]*.???", &["b.dat", "c.txt", "two words.dat"]),
        ("/run?/t*/*", &["y.dat", "z"]),
        ("/runs/.*", &[".h.dat"]),
        // A name that exists is meant, and characters can be meant themselves.
        ("/runs/[a]", &["[a]"]),
        ("/runs/%5Ba%5D", &["[a]"]),
        ("/runs/%5B*", &["[a]"]),
    ]
    .into_iter()
    .enumerate()
    {
        let here = target(&at.to_string());
        xdfs(["cp", &server.url(pattern), &here]).ok();
        assert_eq!(names(&here), expected, "{pattern}");
    }
    // Several, and directories with them.
    let here = target("all");
    xdfs([
        "get",
        "-r",
        &server.url("/runs/t*"),
        &server.url("/runs/c.*"),
        &here,
    ])
    .ok();
    assert_eq!(names(&here), ["c.txt", "three", "two", "two words.dat"]);
    assert_eq!(names(format!("{here}/two")), ["y.dat"]);
    // One match, to a name of its own.
    let file = place.here("file");
    xdfs(["cp", &server.url("/runs/c*"), &file]).ok();
    assert_eq!(fs::read(&file).unwrap(), b"c.txt");
    // Matches that the target can't hold, and none.
    let here = target("none");
    xdfs(["cp", &server.url("/runs/*.dat"), &place.here("new")]).fails(4, &["no such directory"]);
    xdfs(["cp", &server.url("/runs/*/*"), &server.url("/x*"), &here])
        .fails(4, &["'/x*'", "no name matches", "xdfs ls"]);
    let run = xdfs(["cp", "--json", &server.url("/none/*.dat"), &here]).fails(4, &["/none"]);
    assert_eq!(run.result()["exit_code"], 4);
    assert_eq!(names(&here).len(), 0);
    let run = xdfs(["cp", &server.url("/runs/*"), &here]).fails(6, &["/runs/one", "--recursive"]);
    // The others of the same kind in one line.
    let others = "cannot open the source '/runs/three' and '/runs/two': it is a directory";
    assert_eq!(
        run.stderr.matches("is a directory").count(),
        2,
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains(others), "{}", run.stderr);
    for name in names(&here) {
        fs::remove_file(format!("{here}/{name}")).unwrap();
    }
    // Without a pattern the server says what is missing.
    xdfs(["cp", &server.url("/x"), &here]).fails(4, &["error: server ", "/x"]);
    let run = xdfs(["cp", "--dry-run", &server.url("/runs/*.dat"), &here]).ok();
    assert_eq!(run.text().lines().count(), 3);
    assert_eq!(names(&here).len(), 0);
}

/// A ticket is valid for one session.
#[test]
fn a_pattern_takes_no_session_more() {
    let place = Place::new();
    fs::create_dir(place.remote("d")).unwrap();
    for name in ["a.dat", "b.dat", "d/c"] {
        fs::write(place.remote(name), name).unwrap();
    }
    for flags in [&[][..], &["-r"]] {
        let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--ticket"]);
        let ticket = server.line_with("ticket=").trim().to_owned();
        let here = place.here(if flags.is_empty() { "files" } else { "trees" });
        fs::create_dir(&here).unwrap();
        let url = |pattern: &str| server.url(&format!("/{pattern}?{ticket}"));
        let mut command = program();
        command
            .arg("cp")
            .args(flags)
            .args([url("*.dat"), url("a.???")]);
        command
            .arg(&here)
            .env("XDFS_CONFIG_DIR", place.here("stranger"));
        // The same name twice.
        run_with_input(&mut command, b"").fails(2, &["a.dat"]);
        let server = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--ticket"]);
        let ticket = server.line_with("ticket=").trim().to_owned();
        let url = |pattern: &str| server.url(&format!("/{pattern}?{ticket}"));
        let mut command = program();
        command
            .arg("cp")
            .args(flags)
            .args([url("*.dat"), url("d/?")]);
        command
            .arg(&here)
            .env("XDFS_CONFIG_DIR", place.here("stranger"));
        run_with_input(&mut command, b"").ok();
        assert_eq!(names(&here), ["a.dat", "b.dat", "c"]);
    }
}

/// Files among the sources are chosen like the entries of directories.
#[test]
fn rules_concern_files_that_are_named() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir_all(place.here("tree")).unwrap();
    for name in ["a.o", "b.c", "tree/c.o", "tree/d.c"] {
        place.make_here(name, name.as_bytes());
    }
    place.make_here("big.c", &[0; 5000]);
    let here = |name: &str| place.here(name);
    let target = server.url("/up");
    fs::create_dir(place.remote("up")).unwrap();
    let flags = ["cp", "-r", "--exclude", "*.o", "--max-size", "4K"];
    let sources = [here("tree"), here("a.o"), here("b.c"), here("big.c")];
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    xdfs([&flags[..], &sources, &[&target]].concat()).ok();
    assert_eq!(names(place.remote("up")), ["b.c", "tree"]);
    assert_eq!(names(place.remote("up/tree")), ["d.c"]);
    // One of two files is left, and the target is still a directory.
    let words = ["cp", "--exclude", "/a.o", &here("a.o"), &here("b.c")];
    xdfs([&words[..], &[&server.url("/other")]].concat()).fails(4, &["/other"]);
    // From a server, also by size, and nothing at all.
    fs::copy(here("big.c"), place.remote("up/big.c")).unwrap();
    fs::create_dir(here("down")).unwrap();
    let urls = [server.url("/up/*.c"), server.url("/up/tree")];
    let down = here("down");
    let words = [&flags[..], &[&urls[0], &urls[1], &down]].concat();
    xdfs(words).ok();
    assert_eq!(names(here("down")), ["b.c", "tree"]);
    let big = server.url("/up/big.c");
    xdfs(["cp", "--min-size", "1M", &big, &here("none")]).ok();
    assert!(!place.path().join("none").exists());
    xdfs_with_input(["cp", "--exclude", "*", "-", &server.url("/x")], b"").fails(2, &["--exclude"]);
}

/// All paths below a directory, sorted.
fn all(dir: impl AsRef<std::path::Path>) -> Vec<String> {
    let run = std::process::Command::new("find")
        .args([".", "-mindepth", "1"])
        .current_dir(dir)
        .output()
        .unwrap();
    let text = String::from_utf8(run.stdout).unwrap();
    let mut paths: Vec<String> = text.lines().map(|line| line[2..].to_owned()).collect();
    paths.sort();
    paths
}

#[test]
fn only_the_paths_of_a_list_are_copied() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for root in [
        place.here("tree"),
        place.remote("tree").to_str().unwrap().to_owned(),
    ] {
        for name in [
            "a",
            "b",
            "d/c",
            "d/e/f",
            "d/e/g",
            "x/deep/y",
            "x/other",
            "two words",
            "#1",
        ] {
            let path = std::path::Path::new(&root).join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        fs::write(format!("{root}/d/o.o"), "o").unwrap();
        symlink("d", format!("{root}/link")).unwrap();
    }
    let list = place.make_here(
        "list",
        b"b\n./d/e/\n\nx//deep/y\ntwo words\n#1\nlink\nd/o.o\n",
    );
    let expected = [
        "#1",
        "b",
        "d",
        "d/e",
        "d/e/f",
        "d/e/g",
        "link",
        "two words",
        "x",
        "x/deep",
        "x/deep/y",
    ];
    let words = ["cp", "--exclude", "*.o", "--files-from", &list];
    let copy = |places: [&str; 2]| xdfs(words.iter().chain(&places));
    copy([&place.here("tree"), &server.url("/up")]).ok();
    assert_eq!(all(place.remote("up")), expected);
    // With its name, as -r does, and its contents only with a slash.
    fs::create_dir(place.remote("in")).unwrap();
    copy([&place.here("tree"), &server.url("/in")]).ok();
    assert_eq!(all(place.remote("in/tree")), expected);
    fs::create_dir(place.here("down")).unwrap();
    copy([&server.url("/tree/"), &place.here("down")]).ok();
    assert_eq!(all(place.here("down")), expected);
    // What can't be copied is a failure, and the rest goes.
    let bad = b"b\nnone\nlink/c\nd/none/x\na/x\nd/c\n";
    for (source, target) in [
        (place.here("tree/"), server.url("/up2")),
        (server.url("/tree/"), place.here("down2")),
    ] {
        let run = xdfs_with_input(["cp", "--files-from", "-", "--json", &source, &target], bad);
        let run = run.fails(4, &["none", "'link' is a symbolic link", "a/x"]);
        let result = run.result();
        assert_eq!(
            (&result["files"], &result["failed"]),
            (&2.into(), &4.into()),
            "{result}"
        );
        let records = run.json();
        let tree = records.iter().find(|record| record["type"] == "tree");
        assert_eq!(tree.unwrap()["failed"], 4);
        let run = xdfs_with_input(["cp", "--files-from", "-", &source, &target], b"b\nnone\n");
        let run = run.fails(4, &["; 1 failed\n"]);
        assert_eq!(run.stderr.matches("error: ").count(), 1, "{}", run.stderr);
    }
    assert_eq!(all(place.remote("up2")), ["b", "d", "d/c"]);
    assert_eq!(all(place.here("down2")), ["b", "d", "d/c"]);
    // Ended by NUL, with line breaks in names.
    fs::write(place.here("tree/line\nbreak"), "1").unwrap();
    let words = [
        "cp",
        "-0",
        "--files-from",
        "-",
        &place.here("tree/"),
        &server.url("/up3"),
    ];
    xdfs_with_input(words, b"line\nbreak\0a").ok();
    assert_eq!(names(place.remote("up3")), ["a", "line\nbreak"]);
    // Another list is another copy, not the rest of the first.
    let words = [
        "cp",
        "--files-from",
        "-",
        &place.here("tree/"),
        &server.url("/up3"),
    ];
    xdfs_with_input(words, b"a\nb\n").ok();
    assert_eq!(names(place.remote("up3")), ["a", "b", "line\nbreak"]);
    // As find and others write paths; a line that leads out fails alone.
    let to = |number: usize| server.url(&format!("/written{number}"));
    let few = ["b", "d", "d/c"].map(String::from).to_vec();
    let whole = all(place.here("tree/"));
    let lists = [
        (&b"./b\0./d/c"[..], &few),
        (b"/b\0/d/c\0", &few),
        (b".\0./b\0", &whole),
    ];
    for (number, (list, expected)) in lists.into_iter().enumerate() {
        let source = place.here("tree/");
        let words = ["cp", "-0", "--files-from", "-", &source, &to(number)];
        xdfs_with_input(words, list).ok();
        assert_eq!(&all(place.remote(&format!("written{number}"))), expected);
    }
    let source = place.here("tree/");
    let words = ["cp", "--files-from", "-", &source, &to(9)];
    let run = xdfs_with_input(words, b"../b\nb\nd/../a\n");
    run.fails(2, &["path 1, '../b', has '..' in it", "; 2 failed"]);
    assert_eq!(all(place.remote("written9")), ["b"]);
    let (tree, file) = (place.here("tree"), place.here("tree/a"));
    let url = server.url("/no");
    for sources in [&[tree.as_str(), &tree][..], &[&file], &[&tree, &file]] {
        let words = [&["cp", "--files-from", &list], sources, &[&url]].concat();
        xdfs(words).fails(2, &["single directory"]);
    }
    xdfs(["cp", "--files-from", &place.here("no"), &tree, &url])
        .fails(4, &["error: cannot ", "no"]);
    xdfs(["cp", "-0", &tree, &url]).fails(2, &["--files-from"]);
    assert!(!place.remote("no").exists());
}

#[test]
fn files_are_left_out_by_size_and_age() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_secs(86_400);
    let make = |path: String, length: usize, days: u32| {
        fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        fs::write(&path, vec![1; length]).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(now - day * days).unwrap();
    };
    for (name, length, days) in [
        ("small", 10, 3),
        ("d/middle", 1024, 3),
        ("large", 1_000_000, 3),
        ("old", 1024, 30),
        ("new", 1024, 0),
    ] {
        make(place.here(&format!("tree/{name}")), length, days);
    }
    symlink("small", place.here("tree/link")).unwrap();
    let tree = place.here("tree");
    for (at, (flags, expected)) in [
        (
            &["--min-size", "1K"][..],
            &["d", "d/middle", "large", "link", "new", "old"][..],
        ),
        (
            &["--max-size", "1K"],
            &["d", "d/middle", "link", "new", "old", "small"],
        ),
        (&["--max-size", "1023"], &["d", "link", "small"]),
        (
            &["--min-age", "1d"],
            &["d", "d/middle", "large", "link", "old", "small"],
        ),
        (
            &["--max-age", "1w"],
            &["d", "d/middle", "large", "link", "new", "small"],
        ),
        (
            &[
                "--min-age",
                "1d",
                "--max-age",
                "10d",
                "--min-size",
                "100",
                "--max-size",
                "1M",
            ],
            &["d", "d/middle", "large", "link"],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let [up, synced] = ["up", "synced"].map(|name| format!("/{name}{at}"));
        xdfs([&["cp", "-r"], flags, &[&tree, &server.url(&up)]].concat()).ok();
        assert_eq!(all(place.root().join(&up[1..])), expected, "{flags:?}");
        xdfs([&["sync"], flags, &[&tree, &server.url(&synced)]].concat()).ok();
        assert_eq!(all(place.root().join(&synced[1..])), expected, "{flags:?}");
        let down = place.here(&format!("down{at}"));
        xdfs([&["cp", "-r"], flags, &[&server.url(&up), &down]].concat()).ok();
        assert_eq!(all(&down), expected, "{flags:?}");
        // The comparison of what is copied.
        xdfs([&["check"], flags, &[&tree, &server.url(&up)]].concat()).ok();
        if expected.len() < 7 {
            xdfs(["check", &tree, &server.url(&up)]).fails(18, &["missing"]);
        }
    }
    for bad in ["--min-age", "--max-size"] {
        xdfs(["cp", "-r", bad, "soon", &tree, &server.url("/no")]).fails(2, &[bad]);
    }
}

#[test]
fn what_is_left_out_by_size_stays_at_the_target() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let make = |path: std::path::PathBuf, length: usize| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![1; length]).unwrap();
    };
    for (name, length) in [("both", 5000), ("too-large", 50_000), ("shrunk", 100)] {
        make(place.here(&format!("tree/{name}")).into(), length);
    }
    for (name, length) in [
        ("both", 20_000),
        ("too-large", 100),
        ("shrunk", 5000),
        ("extra", 5000),
        ("extra-large", 50_000),
        ("d/extra-large", 50_000),
    ] {
        make(place.remote("copy").join(name), length);
    }
    let (tree, url) = (place.here("tree"), server.url("/copy"));
    let words = [
        "sync",
        "--delete",
        "--force",
        "--max-size",
        "10K",
        &tree,
        &url,
    ];
    xdfs(words).ok();
    let size = |name: &str| fs::metadata(place.remote("copy").join(name)).unwrap().len();
    // Of a file on both sides the source counts.
    assert_eq!(
        (size("both"), size("too-large"), size("shrunk")),
        (5000, 100, 100)
    );
    let left = [
        "both",
        "d",
        "d/extra-large",
        "extra-large",
        "shrunk",
        "too-large",
    ];
    assert_eq!(all(place.remote("copy")), left);
    // A source of which nothing is left counts as empty.
    let words = ["sync", "--delete", "--min-size", "1G", &tree, &url];
    xdfs(words).fails(2, &["empty"]);
}
