//! Whole trees.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::{Place, Server, assert_content, content, names, time_shares, xdfs};

/// A tree with files of several sizes, an empty directory and a link.
pub(crate) fn make_tree(root: &Path) {
    for directory in 0..5_usize {
        let path = root.join(format!("d{directory}/below"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..20_usize {
            let size = file * 997;
            fs::write(path.join(format!("f{file}")), content(file as u64, size)).unwrap();
        }
    }
    fs::write(root.join("large"), content(7, 3 << 20)).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("large", root.join("link")).unwrap();
}

pub(crate) fn assert_same(a: &Path, b: &Path) {
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(a), names(b), "{}", a.display());
    for name in names(a) {
        let (a, b) = (a.join(&name), b.join(&name));
        let meta = fs::symlink_metadata(&a).unwrap();
        assert_eq!(
            meta.file_type(),
            fs::symlink_metadata(&b).unwrap().file_type()
        );
        if meta.is_dir() {
            assert_same(&a, &b);
        } else if meta.is_file() {
            assert!(
                fs::read(&a).unwrap() == fs::read(&b).unwrap(),
                "{}",
                a.display()
            );
        } else {
            assert_eq!(fs::read_link(&a).unwrap(), fs::read_link(&b).unwrap());
        }
    }
}

#[test]
fn a_tree_goes_there_and_back() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    make_tree(Path::new(&here));
    let run = xdfs(["cp", "-r", "--json", &here, &server.url("/")]).ok();
    let tree = run
        .json()
        .into_iter()
        .find(|v| v["type"] == "tree")
        .unwrap();
    assert_eq!((&tree["files"], &tree["failed"]), (&101.into(), &0.into()));
    assert_eq!(run.result()["files"], 101);
    assert_same(Path::new(&here), Path::new(&place.remote("tree")));
    let back = place.here("back");
    let run = xdfs(["cp", "-r", &server.url("/tree"), &back]).ok();
    assert_same(Path::new(&here), Path::new(&back));
    assert!(run.stderr.starts_with("/tree: 101 files"), "{}", run.stderr);
    let run = xdfs(["cp", &server.url("/tree/large"), &place.here("")]).ok();
    assert!(run.stderr.starts_with("/tree/large: "), "{}", run.stderr);
    // Without the flag a directory is refused, and the text says what to do.
    xdfs(["cp", &here, &server.url("/")]).fails(6, &["--recursive"]);
}

#[test]
fn files_and_trees_in_one_command() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    make_tree(Path::new(&here));
    let file = place.make_here("file", b"abc");
    fs::create_dir(place.remote("in")).unwrap();
    xdfs(["cp", "-a", &here, &file, &server.url("/in/")]).ok();
    assert_same(Path::new(&here), Path::new(&place.remote("in/tree")));
    assert_eq!(fs::read(place.remote("in/file")).unwrap(), b"abc");
}

#[test]
fn what_differs_is_reported_file_by_file() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    make_tree(Path::new(&here));
    xdfs(["cp", "-r", &here, &server.url("/")]).ok();
    // With other times it is another version.
    fs::remove_dir_all(&here).unwrap();
    make_tree(Path::new(&here));
    let again = ["cp", "-r", "--json", "--no-resume", &here, &server.url("/")];
    let run = xdfs(again).fails(6, &["taken", "--force"]);
    assert!(run.result()["failed"].as_u64().unwrap() >= 101);
    xdfs(["cp", "-r", "-f", &here, &server.url("/")]).ok();
}

/// Every entry that can't be there fails once, by its own name.
#[test]
fn a_directory_in_whose_place_is_a_file_fails_once() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let other = Place::new();
    let second = Server::start(&other.root());
    for tree in [
        place.here("tree"),
        format!("{}/tree", place.root().display()),
    ] {
        fs::create_dir_all(format!("{tree}/d")).unwrap();
        fs::write(format!("{tree}/d/small"), "small").unwrap();
        fs::write(format!("{tree}/d/big"), content(3, 3 << 20)).unwrap();
    }
    let down = place.here("down");
    for target in [
        place.remote("up"),
        other.remote("up"),
        Path::new(&down).to_owned(),
    ] {
        fs::create_dir(&target).unwrap();
        fs::write(target.join("d"), "in the way").unwrap();
    }
    let (here, there) = (place.here("tree/"), server.url("/tree/"));
    for (source, target, root) in [
        (&here, server.url("/up"), "/up"),
        (&there, down.clone(), &*down),
        (&there, second.url("/up"), "/up"),
    ] {
        let run = xdfs(["cp", "-r", "-v", "--no-resume", source, &target]);
        let run = run.fails(6, &["3 failed"]);
        assert_eq!(run.stderr.matches("error: ").count(), 3, "{}", run.stderr);
        for name in ["d", "d/small", "d/big"] {
            let named = format!(" '{root}/{name}': ");
            assert_eq!(
                run.stderr.matches(&named).count(),
                1,
                "{named}: {}",
                run.stderr
            );
        }
    }
}

/// What is wrong with an entry names the server that has it.
#[test]
fn faults_between_servers_name_the_server() {
    use std::os::unix::net::UnixListener;

    let (place, other) = (Place::new(), Place::new());
    let (from, to) = (Server::start(&place.root()), Server::start(&other.root()));
    fs::create_dir_all(place.remote("src/d")).unwrap();
    let _socket = UnixListener::bind(place.remote("src/s")).unwrap();
    fs::create_dir(other.remote("k")).unwrap();
    fs::write(other.remote("k/d"), "in the way").unwrap();
    let server = |server: &Server| server.url("").replace("xdfs://", "server ");
    let (source, target) = (from.url("/src"), to.url("/k"));
    let clash = format!(
        "{}: cannot synchronise '/src/d': it is a directory, ",
        server(&from)
    );
    let odd = format!(
        "{}: cannot synchronise '/src/s': it is neither ",
        server(&from)
    );
    xdfs(["sync", &source, &target]).fails(6, &[&clash, &odd]);
    let odd = format!("{}: cannot read '/src/s': it is a socket", server(&from));
    xdfs(["cp", "-r", &source, &to.url("/new")]).fails(14, &[&odd]);
    let odd = format!("{}: cannot copy '/src/s': it is neither ", server(&from));
    xdfs(["cp", "-r", &source, &from.url("/within")]).fails(14, &[&odd]);
}

/// The word of the first run may have been lost, with the machine that it was said on.
#[test]
fn a_tree_that_is_whole_is_recognised() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    make_tree(Path::new(&here));
    let (there, back) = (server.url("/copy"), place.here("back"));
    for ends in [[&here, &there], [&there, &back]] {
        let again = || xdfs(["cp", "-r", "--json", ends[0], ends[1]]).ok();
        assert_eq!(again().result()["files"], 101);
        let run = again();
        assert_eq!(run.result()["files"], 0);
        // Not into the directory that exists by now.
        assert!(
            run.stderr.contains("has copied all of it before"),
            "{run:?}"
        );
    }
    // Not one in the other.
    for copy in [place.remote("copy"), back.into()] {
        assert!(!copy.join("tree").exists() && !copy.join("copy").exists());
    }
}

#[test]
fn a_dry_run_of_a_tree_says_what_would_go() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    make_tree(Path::new(&here));
    let run = xdfs(["cp", "-r", "--dry-run", "--json", &here, &server.url("/")]).ok();
    assert_eq!(run.result()["files"], 101);
    assert!(!Path::new(&place.remote("tree")).exists());
    // Every name but those of directories, either way, and nothing but numbers if quiet.
    let names = |words: &[&str]| {
        let run = xdfs([&["cp", "-r", "--dry-run"], words].concat()).ok();
        let text = run.text();
        let copies = text.lines().filter_map(|line| line.strip_prefix("copy "));
        let mut names: Vec<String> = copies.map(str::to_owned).collect();
        names.sort();
        names
    };
    let up = names(&[&here, &server.url("/")]);
    assert!(up.len() >= 101, "{up:?}");
    xdfs(["cp", "-r", &here, &server.url("/")]).ok();
    assert_eq!(names(&[&server.url("/tree"), &place.here("back")]), up);
    assert!(!Path::new(&place.here("back")).exists());
    // What is there already isn't copied.
    assert_eq!(names(&["--no-resume", &here, &server.url("/")]), [""; 0]);
    assert_eq!(names(&["-q", "-f", "-I", &here, &server.url("/")]), [""; 0]);
}

/// Nothing is sent of a tree that is there already, and nothing fails.
#[test]
fn a_copy_of_what_is_there_is_free() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir_all(place.here("tree/sub")).unwrap();
    for n in 0..30 {
        let directory = if n % 2 == 0 { "tree" } else { "tree/sub" };
        place.make_here(&format!("{directory}/f{n}"), &content(n, 5000));
    }
    place.make_here("tree/large", &content(99, 3 << 20));
    std::os::unix::fs::symlink("f0", place.here("tree/link")).unwrap();
    let (here, there) = (place.here("tree"), server.url("/"));
    let back = place.here("back");
    fs::create_dir(&back).unwrap();
    for words in [
        ["cp", "-r", "--no-resume", "--json", &here, &there],
        [
            "cp",
            "-r",
            "--no-resume",
            "--json",
            &server.url("/tree"),
            &back,
        ],
    ] {
        xdfs(words).ok();
        let again = xdfs(words).ok();
        let objects = again.json();
        let tree = objects
            .iter()
            .find(|object| object["type"] == "tree")
            .unwrap();
        assert_eq!(
            (&tree["files"], &tree["bytes"]),
            (&0.into(), &0.into()),
            "{tree}"
        );
        assert_eq!(tree["resumed_files"], 31, "{tree}");
        let directories = (&tree["directories"], &tree["resumed_directories"]);
        assert_eq!(directories, (&0.into(), &2.into()), "{tree}");
    }
    for words in [
        &["cp", "-r", "--no-resume"][..],
        &["cp", "-r"],
        // Of what --force replaces, the same is left.
        &["cp", "-rf", "--no-resume"],
        &["cp", "-r", "--no-resume", "--checksum"],
    ] {
        let again = xdfs(words.iter().chain(&[&here[..], &there])).ok();
        assert_eq!(again.stderr.lines().count(), 1, "{}", again.stderr);
        let words = "31 files, 2 directories, 1 other entry (3.30 MB) were there already";
        assert!(
            again.stderr.contains("tree: 0 files, 0 B in "),
            "{}",
            again.stderr
        );
        assert!(again.stderr.contains(words), "{}", again.stderr);
    }

    fs::create_dir(place.here("one")).unwrap();
    place.make_here("one/f", b"12");
    let one = || xdfs(["cp", "-r", "--no-resume", &place.here("one"), &there]).ok();
    one();
    let again = one();
    let words = ": 0 files, 0 B in ";
    assert!(again.stderr.contains(words), "{}", again.stderr);
    let words = "; 1 file, 1 directory (2 B) were there already";
    assert!(again.stderr.contains(words), "{}", again.stderr);

    // One that differs isn't replaced, and the others don't suffer.
    place.make_here("tree/sub/f3", &content(1000, 5000));
    place.make_here("tree/new", b"new");
    let run = xdfs(["cp", "-r", "--no-resume", &here, &there]).fails(6, &["f3", "--force"]);
    assert!(!run.stderr.contains("f4"), "{}", run.stderr);
    assert_content(place.remote("tree/new"), b"new");
    xdfs(["cp", "-r", "--no-resume", "--force", &here, &there]).ok();
    assert_same(here.as_ref(), &place.remote("tree"));
}

/// Writes a file with a modification time in seconds since 1970.
fn write_at(path: impl AsRef<Path>, content: &[u8], seconds: u64) {
    fs::write(&path, content).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Which of the flags replaces which files: a file alone and in a tree, both ways.
#[test]
fn existing_files_are_skipped_replaced_or_refused() {
    // At the target: the same, the same content at another time, other content of the same size
    // and time, older and newer.
    let names = ["same", "touched", "other", "older", "newer"];
    let rows: [(&[&str], [char; 5]); 7] = [
        (&[], ['s', 'x', 's', 'x', 'x']),
        (&["--force"], ['s', 'c', 's', 'c', 'c']),
        (&["--skip-existing"], ['s', 's', 's', 's', 's']),
        (&["--update"], ['s', 's', 's', 'c', 's']),
        (&["--checksum"], ['s', 's', 'x', 'x', 'x']),
        (&["--checksum", "--force"], ['s', 's', 'c', 'c', 'c']),
        (&["--ignore-times", "--force"], ['c', 'c', 'c', 'c', 'c']),
    ];
    let place = Place::new();
    let server = Server::start(&place.root());
    for (n, (flags, outcomes)) in rows.into_iter().enumerate() {
        for up in [true, false] {
            for (tree, linked) in [(false, false), (true, false), (true, true)] {
                let base = format!("{n}{up}{tree}{linked}");
                let (here, there) = (place.here(&base), place.remote(&base));
                fs::create_dir_all(&here).unwrap();
                fs::create_dir_all(&there).unwrap();
                let (source, target) = match up {
                    true => (Path::new(&here), there.as_path()),
                    false => (there.as_path(), Path::new(&here)),
                };
                let old = [&b"new1"[..], b"new2", b"old3", b"old4!", b"old5!"];
                for (number, name) in names.iter().enumerate() {
                    let new = format!("new{}", number + 1);
                    let time = [1000, 3000, 1000, 500, 2000][number];
                    write_at(source.join(name), new.as_bytes(), 1000);
                    write_at(target.join(name), old[number], time);
                    if linked {
                        let elsewhere = place.path().join(format!("{base}{name}"));
                        fs::hard_link(source.join(name), elsewhere).unwrap();
                    }
                }
                let url = server.url(&format!("/{base}"));
                let ends = |name: &str| match (up, tree) {
                    (true, false) => [format!("{here}/{name}"), format!("{url}/{name}")],
                    (false, false) => [format!("{url}/{name}"), format!("{here}/{name}")],
                    (true, true) => [format!("{here}/"), format!("{url}/")],
                    (false, true) => [format!("{url}/"), format!("{here}/")],
                };
                let run = |name: &str| {
                    let first: &[&str] = if tree { &["cp", "-r"] } else { &["cp"] };
                    let ends = ends(name);
                    let links: &[&str] = if linked { &["--hard-links"] } else { &[] };
                    let words = first.iter().chain(flags).chain(links);
                    let words = words.map(|w| w.to_string());
                    xdfs(words.chain(["--json".to_owned()]).chain(ends))
                };
                let runs: Vec<_> = match tree {
                    true => vec![run("")],
                    false => names.map(run).into(),
                };
                for (number, name) in names.iter().enumerate() {
                    let what = format!("{flags:?} {name} up {up} tree {tree} {linked}");
                    let run = &runs[number.min(runs.len() - 1)];
                    let wanted = outcomes[number];
                    let content = fs::read(target.join(name)).unwrap();
                    let is_copied = content != old[number] || wanted == 'c' && number < 2;
                    assert_eq!(is_copied, wanted == 'c', "{what}: {}", run.stderr);
                    let codes = if tree {
                        &outcomes[..]
                    } else {
                        &outcomes[number..=number]
                    };
                    let code = if codes.contains(&'x') { 6 } else { 0 };
                    assert_eq!(run.code, Some(code), "{what}: {}", run.stderr);
                    if !tree && wanted != 'x' {
                        let result = run.json();
                        let file = result.iter().find(|o| o["type"] == "file").unwrap();
                        assert_eq!(file["skipped"], wanted == 's', "{what}: {file}");
                    }
                }
                if tree {
                    let count = |of| outcomes.iter().filter(|o| **o == of).count();
                    let result = runs[0].json();
                    let tree = result.iter().find(|o| o["type"] == "tree").unwrap();
                    assert_eq!(tree["resumed_files"], count('s'), "{flags:?} {tree}");
                    assert_eq!(tree["files"], count('c'), "{flags:?} {tree}");
                }
            }
        }
    }
}

/// Parts of a file have its time, and may have the same size.
#[test]
fn parts_of_a_file_are_told_apart() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("file", &content(1, 3000));
    let part = |offset: &str, more: &[&str]| {
        let words = ["cp", "--offset", offset, "--length", "1000", &source];
        xdfs(words.iter().chain(more).chain(&[&server.url("/part")[..]]))
    };
    part("0", &[]).ok();
    part("0", &[]).ok();
    part("1000", &[]).fails(6, &["--force"]);
    part("1000", &["--force"]).ok();
    assert_content(place.remote("part"), &content(1, 3000)[1000..2000]);
}

/// The totals are known while the copy goes on, and the table at the end adds up.
#[test]
fn progress_has_totals_and_the_end_a_table() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for n in 0..200 {
        let name = format!("tree/{}/f{n}", n % 5);
        fs::create_dir_all(place.here(&format!("tree/{}", n % 5))).unwrap();
        place.make_here(&name, &content(n, 20_000));
    }
    place.make_here("tree/large", &content(1, 4 << 20));
    let (here, there) = (place.here("tree"), server.url("/"));
    let total = 200 * 20_000 + (4 << 20);
    let url = server.url("/tree");
    let back = place.here("back");
    for ends in [[&here, &there], [&url, &back]] {
        let words = ["cp", "-r", "--json", "--limit-rate", "4M"];
        let run = xdfs(words.iter().copied().chain(ends.map(|end| &end[..]))).ok();
        let lines = run.json();
        let is = |kind: &'static str| lines.iter().filter(move |line| line["type"] == kind);
        let with_total = is("tree-progress").find(|line| !line["bytes_total"].is_null());
        let with_total = with_total.unwrap_or_else(|| panic!("no total: {}", run.text()));
        assert_eq!(with_total["bytes_total"], total);
        assert_eq!(with_total["files_total"], 201);
        assert!(is("tree-progress").any(|line| line["in_flight"].as_u64() > Some(0)));
        let tree = is("tree").next().unwrap();
        assert_eq!(
            (&tree["in_flight"], &tree["reconnects"]),
            (&0.into(), &0.into())
        );
        assert!(time_shares(tree)["rate-limit"] > 0.0, "{tree}");
    }
    fs::remove_file(place.remote("tree/large")).unwrap();
    let run = xdfs(["cp", "-r", "--no-resume", "--stats", &here, &there]).ok();
    for line in [
        "files copied   1",
        "files skipped  200",
        "failed         0",
        "bytes sent     4.19 MB",
        "there already  4.00 MB",
        "retries        0",
        "limited by     ",
    ] {
        assert!(run.stderr.contains(line), "{line}: {}", run.stderr);
    }
    // A file alone.
    let source = place.make_here("file", b"content");
    let run = xdfs(["cp", "--stats", &source, &server.url("/file")]).ok();
    assert!(run.stderr.contains("files copied   1\n"), "{}", run.stderr);
    let run = xdfs(["cp", "--stats", &source, &server.url("/file")]).ok();
    assert!(run.stderr.contains("files copied   0\n"), "{}", run.stderr);
    assert!(run.stderr.contains("nothing was sent"), "{}", run.stderr);
}

/// What an earlier run has copied counts only for those who trust size and time.
#[test]
fn who_compares_content_doubts_earlier_runs() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::create_dir_all(place.here("tree")).unwrap();
    write_at(place.here("tree/f"), b"AAAA", 1000);
    let (here, there) = (place.here("tree/"), server.url("/tree"));
    let target = place.remote("tree/f");
    xdfs(["cp", "-r", &here, &there]).ok();
    for flags in [&["--ignore-times"][..], &["--checksum"]] {
        write_at(&target, b"BBBB", 1000);
        let run = |more: &[&str]| {
            let words = ["cp", "-r"].iter().chain(flags).chain(more);
            xdfs(words.chain(&[&here[..], &there]))
        };
        run(&[]).fails(6, &["--force"]);
        assert_content(&target, b"BBBB");
        run(&["--force"]).ok();
        assert_content(&target, b"AAAA");
    }
}

/// Names of one file are skipped like others, whatever the file is, and further ones are made.
#[cfg(unix)]
#[test]
fn hard_links_that_exist_are_skipped() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let place = Place::new();
    let server = Server::start(&place.root());
    let inode = |path: &Path| fs::symlink_metadata(path).unwrap().ino();
    let pairs = [["a", "b"], ["link", "other"], ["pipe", "second"]];
    for up in [true, false] {
        let (here, there) = (place.here("tree"), place.remote("tree"));
        let (source, target) = match up {
            true => (Path::new(&here), there.as_path()),
            false => (there.as_path(), Path::new(&here)),
        };
        for path in [source, target] {
            let _ = fs::remove_dir_all(path);
        }
        fs::create_dir(source).unwrap();
        write_at(source.join("a"), b"linked", 1000);
        symlink("a", source.join("link")).unwrap();
        xdfs_testkit::tree::make_pipe(source.join("pipe")).unwrap();
        for [one, other] in pairs {
            fs::hard_link(source.join(one), source.join(other)).unwrap();
        }
        let ends = match up {
            true => [here.clone() + "/", server.url("/tree")],
            false => [server.url("/tree/"), here.clone()],
        };
        let run = |flags: &[&str]| {
            let words = ["cp", "-a", "--no-resume", "--json"];
            xdfs(
                words
                    .iter()
                    .chain(flags)
                    .map(|w| w.to_string())
                    .chain(ends.clone()),
            )
        };
        let copied = |flags: &[&str]| {
            let objects = run(flags).ok().json();
            let tree = objects.iter().find(|o| o["type"] == "tree").unwrap();
            for [one, other] in pairs {
                assert_eq!(
                    inode(&target.join(one)),
                    inode(&target.join(other)),
                    "{flags:?}"
                );
            }
            tree["files"].as_u64().unwrap() + tree["others"].as_u64().unwrap()
        };
        assert_eq!(copied(&[]), 6);
        for flags in [
            &[][..],
            &["-u"],
            &["-f"],
            &["--skip-existing"],
            &["--checksum"],
            &["-I"],
        ] {
            assert_eq!(copied(flags), 0, "{flags:?} up {up}");
            // A name that is missing becomes a link to what is there.
            fs::remove_file(target.join("b")).unwrap();
            let before = inode(&target.join("a"));
            assert_eq!(copied(flags), 1, "{flags:?} up {up}");
            assert_eq!(inode(&target.join("a")), before, "{flags:?} up {up}");
        }
        // Files of their own are joined by what may replace them, and stay otherwise.
        fs::remove_file(target.join("b")).unwrap();
        write_at(target.join("b"), b"linked", 1000);
        run(&[]).ok();
        assert_ne!(inode(&target.join("a")), inode(&target.join("b")));
        assert_eq!(copied(&["-u"]), 1);
        // Newer ones stay, and give no other name their content.
        for name in ["a", "b"] {
            fs::remove_file(target.join(name)).unwrap();
            write_at(target.join(name), name.as_bytes(), 3000);
        }
        run(&["-u"]).ok();
        assert_eq!(fs::read(target.join("a")).unwrap(), b"a");
        assert_eq!(fs::read(target.join("b")).unwrap(), b"b");
        fs::remove_file(target.join("b")).unwrap();
        run(&["-u"]).ok();
        assert_eq!(fs::read(target.join("a")).unwrap(), b"a");
        assert_eq!(fs::read(target.join("b")).unwrap(), b"linked");
    }
}

/// Each of several sources keeps its name in a directory, which has to exist, as for files.
#[test]
fn several_sources_keep_their_names() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for root in [&place.here(""), place.root().to_str().unwrap()] {
        for name in ["d1", "d2"] {
            fs::create_dir(Path::new(root).join(name)).unwrap();
            fs::write(Path::new(root).join(name).join("f"), name).unwrap();
        }
        fs::write(Path::new(root).join("file"), "file").unwrap();
    }
    let here = |name: &str| place.here(name);
    let there = |name: &str| server.url(&format!("/{name}"));
    let cases = [
        (
            vec![here("d1"), here("d2"), there("new")],
            place.remote("new"),
        ),
        (
            vec![here("file"), here("d2"), there("new")],
            place.remote("new"),
        ),
        (
            vec![there("d1"), there("d2"), here("new")],
            here("new").into(),
        ),
        (vec![there("d*"), here("new")], here("new").into()),
        (
            vec![there("d1"), there("d2"), there("new")],
            place.remote("new"),
        ),
        (vec![there("d?"), there("new")], place.remote("new")),
    ];
    for (words, target) in cases {
        for flag in ["--remove-source", "--dry-run", "--json"] {
            let first = ["cp", "-r", flag].map(str::to_owned);
            let run = xdfs(first.iter().chain(&words));
            run.fails(4, &["no such directory"]);
            assert!(!target.exists(), "{words:?}");
        }
        fs::write(&target, "").unwrap();
        let first = ["cp", "-r"].map(str::to_owned);
        xdfs(first.iter().chain(&words)).fails(6, &["directory"]);
        fs::remove_file(&target).unwrap();
        fs::create_dir(&target).unwrap();
        xdfs(first.iter().chain(&words)).ok();
        assert_eq!(fs::read(target.join("d2/f")).unwrap(), b"d2");
        assert!(target.join("d1/f").is_file() || target.join("file").is_file());
        fs::remove_dir_all(&target).unwrap();
    }
    // Two of one name would become one.
    fs::create_dir_all(here("x/d1")).unwrap();
    fs::create_dir(place.remote("new")).unwrap();
    let words = [here("d1"), here("x/d1"), there("new")];
    let first = ["cp", "-r", "--remove-source"].map(str::to_owned);
    xdfs(first.iter().chain(&words)).fails(2, &["two sources have the name 'd1'"]);
    assert!(Path::new(&here("d1/f")).is_file());
}

/// What existed before the first run is skipped in each run, though something always fails.
#[cfg(unix)]
#[test]
fn existing_files_are_skipped_in_each_run() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for up in [true, false] {
        let (here, there) = (place.here("tree"), place.remote("tree"));
        let (source, target) = match up {
            true => (Path::new(&here), there.as_path()),
            false => (there.as_path(), Path::new(&here)),
        };
        for path in [source, target] {
            let _ = fs::remove_dir_all(path);
            fs::create_dir_all(path.join("d")).unwrap();
            write_at(path.join("f"), b"same", 1000);
            write_at(path.join("d/f"), b"same", 1000);
        }
        fs::write(source.join("d/new"), "new").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(source.join("socket")).unwrap();
        for _ in 0..3 {
            let run = match up {
                true => xdfs(["cp", "-r", &format!("{here}/"), &server.url("/tree")]),
                false => xdfs(["cp", "-r", &server.url("/tree/"), &here]),
            };
            assert_ne!(run.code, Some(0));
            assert!(run.stderr.contains("socket"), "{}", run.stderr);
            assert!(!run.stderr.contains("taken"), "{}", run.stderr);
            assert_eq!(fs::read(target.join("d/new")).unwrap(), b"new");
        }
    }
}

/// A dry run ends as the copy would.
#[test]
fn a_dry_run_of_a_tree_foresees_what_is_refused() {
    let place = Place::new();
    let server = Server::start(&place.root());
    for (n, (name, is_directory)) in [("f", true), ("d", false), ("f", false)]
        .into_iter()
        .enumerate()
    {
        for up in [true, false] {
            let base = format!("{n}{up}");
            let (here, there) = (place.here(&base), place.remote(&base));
            let (source, target) = match up {
                true => (Path::new(&here), there.as_path()),
                false => (there.as_path(), Path::new(&here)),
            };
            fs::create_dir_all(source.join("d/e")).unwrap();
            fs::write(source.join("f"), "new").unwrap();
            fs::write(source.join("d/e/f"), "new").unwrap();
            fs::create_dir(target).unwrap();
            match is_directory {
                true => fs::create_dir(target.join(name)).unwrap(),
                false => write_at(target.join(name), b"old", 1000),
            }
            let ends = match up {
                true => [format!("{here}/"), server.url(&format!("/{base}"))],
                false => [server.url(&format!("/{base}/")), here.clone()],
            };
            let run = |flag: &str| xdfs(["cp", "-r", "--no-resume", flag, &ends[0], &ends[1]]);
            let dry = run("--dry-run");
            assert_eq!(names(target), [name], "{}", dry.stderr);
            let real = run("--json");
            assert_ne!(real.code, Some(0));
            assert_eq!(dry.code, real.code, "{name} up {up}: {}", dry.stderr);
            assert!(dry.stderr.contains(name), "{}", dry.stderr);
        }
    }
    let read_only = Server::start_with(&place.root(), &["--listen", "127.0.0.1:0", "--read-only"]);
    fs::create_dir_all(place.remote("full")).unwrap();
    for target in ["/new", "/full", "/not/there"] {
        let here = place.here("0true");
        let run = |flag: &str| {
            xdfs([
                "cp",
                "-r",
                "--no-resume",
                flag,
                &here,
                &read_only.url(target),
            ])
        };
        let (dry, real) = (run("--dry-run"), run("--json"));
        assert_ne!(real.code, Some(0));
        assert_eq!(dry.code, real.code, "{target}: {}", dry.stderr);
    }
}
