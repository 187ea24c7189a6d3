//! `xdfs cp --remove-source`: what is removed, and what stays.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::support::{
    Place, Running, Server, assert_content, content, names, program, xdfs, xdfs_with_input,
};

/// Makes files in a tree.
fn make(root: impl AsRef<Path>) {
    for (name, length) in [
        ("large", 3_000_000),
        ("d/small", 10),
        ("d/e/none", 0),
        ("keep.o", 5),
    ] {
        let path = root.as_ref().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(1, length)).unwrap();
    }
    symlink("d/small", root.as_ref().join("link")).unwrap();
}

/// The entries below a directory that aren't directories.
fn files(root: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root.as_ref().to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() && !path.is_symlink() {
                true => left.push(path),
                false => found.push(path.strip_prefix(&root).unwrap().to_owned()),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn files_are_moved_both_ways() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let [one, two] = ["one", "two"].map(|name| place.make_here(name, &content(1, 700_000)));
    fs::create_dir(place.remote("d")).unwrap();
    let run = xdfs(["cp", "--remove-source", &one, &server.url("/d")]).ok();
    assert!(
        run.stderr.contains("removed 1 source file\n"),
        "{}",
        run.stderr
    );
    assert_content(place.remote("d/one"), &content(1, 700_000));
    assert!(!Path::new(&one).exists());
    xdfs(["cp", "--remove-source", &two, &server.url("/new")]).ok();
    assert!(!Path::new(&two).exists());
    let back = place.here("back");
    let run = xdfs([
        "cp",
        "--json",
        "--remove-source",
        &server.url("/new"),
        &back,
    ])
    .ok();
    assert_eq!(run.result()["removed"], 1);
    assert_content(&back, &content(1, 700_000));
    assert_eq!(names(place.root()), ["d"]);
    // Several, one of which can't be copied.
    let three = place.make_here("three", b"3");
    fs::write(place.remote("d/back"), "taken").unwrap();
    let words = [
        "cp",
        "--json",
        "--remove-source",
        &back,
        &three,
        &server.url("/d/"),
    ];
    let run = xdfs(words).fails(6, &["back"]);
    assert_eq!(run.result()["removed"], 1);
    assert!(Path::new(&back).exists() && !Path::new(&three).exists());
    // Nothing is written in a dry run, and nothing removed.
    xdfs([
        "cp",
        "-f",
        "--dry-run",
        "--remove-source",
        &back,
        &server.url("/d/"),
    ])
    .ok();
    assert!(Path::new(&back).exists());
    // What can't be compared.
    xdfs_with_input(["cp", "--remove-source", "-", &server.url("/x")], b"1").fails(2, &["stream"]);
    xdfs(["cp", "--remove-source", &server.url("/d/one"), "-"]).fails(2, &["stream"]);
    let words = [
        "cp",
        "--remove-source",
        "--length",
        "1",
        &back,
        &server.url("/x"),
    ];
    xdfs(words).fails(2, &["--length"]);
}

/// What the user wants to leave out is neither copied nor removed.
#[test]
fn a_filter_is_not_ignored_for_files() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let file = place.make_here("fresh", b"still being written");
    fs::create_dir(place.here("tree")).unwrap();
    fs::write(place.remote("there"), b"xy").unwrap();
    let (tree, url) = (place.here("tree"), server.url("/"));
    let (there, back) = (server.url("/there"), place.here("."));
    for filter in ["--min-age=1d", "--max-size=1", "--exclude=*"] {
        for places in [
            &[&*file, &*url][..],
            &["-r", &tree, &file, &url],
            &[&there, &back],
            &["-r", &there, &back],
        ] {
            let words = ["cp", "--remove-source", filter];
            xdfs(words.iter().chain(places)).ok();
        }
    }
    assert_content(&file, b"still being written");
    assert_eq!(names(place.root()), ["there", "tree"]);
    assert!(!Path::new(&place.here("there")).exists());
    xdfs(["cp", "--max-size", "1", &tree, &url]).fails(6, &["use --recursive"]);
    xdfs(["cp", "-r", "--max-size", "1", &place.here("none"), &url]).fails(4, &["no such file"]);
}

#[test]
fn trees_are_moved_both_ways() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    make(&here);
    let filter = ["--exclude", "*.o"];
    let words = ["cp", "-r", "--json", "--remove-source"];
    let copy = |places: [&str; 2]| xdfs(words.iter().chain(&filter).chain(&places));
    let run = copy([&here, &server.url("/tree")]).ok();
    assert_eq!(run.result()["removed"], 4);
    let moved = ["d/e/none", "d/small", "large", "link"].map(PathBuf::from);
    assert_eq!(files(place.remote("tree")), moved);
    // What was left out stays, and so do directories.
    assert_eq!(files(&here), [Path::new("keep.o")]);
    assert!(Path::new(&here).join("d/e").is_dir());
    assert_content(place.remote("tree/large"), &content(1, 3_000_000));
    let back = place.here("back");
    fs::create_dir(&back).unwrap();
    let run = copy([&server.url("/tree"), &back]).ok();
    assert_eq!(run.result()["removed"], 4);
    assert_eq!(files(format!("{back}/tree")), moved);
    assert!(files(place.remote("tree")).is_empty());
}

#[test]
fn hard_links_are_moved_together() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = PathBuf::from(place.here("tree"));
    fs::create_dir(&here).unwrap();
    fs::write(here.join("0"), "1").unwrap();
    // More than are removed at once.
    for n in 1..40 {
        fs::hard_link(here.join("0"), here.join(n.to_string())).unwrap();
    }
    let words = ["cp", "-r", "--hard-links", "--json", "--remove-source"];
    let places = [place.here("tree"), server.url("/tree")];
    let run = xdfs(words.into_iter().chain(places.iter().map(String::as_str))).ok();
    assert_eq!(run.result()["removed"], 40);
    assert!(files(&here).is_empty());
    assert_eq!(files(place.remote("tree")).len(), 40);
}

#[test]
fn what_was_there_already_is_removed_only_if_it_is_the_same() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let here = place.here("tree");
    for root in [PathBuf::from(&here), place.remote("tree")] {
        make(&root);
        for name in ["large", "d/small", "d/e/none", "keep.o"] {
            let file = fs::File::options()
                .write(true)
                .open(root.join(name))
                .unwrap();
            file.set_modified(UNIX_EPOCH).unwrap();
        }
    }
    // The time of a link isn't set here.
    fs::remove_file(place.remote("tree/link")).unwrap();
    // The same size and time, but other content: a copy skips it.
    let mut large = content(1, 3_000_000);
    large[1_500_000] ^= 1;
    fs::write(place.remote("tree/large"), &large).unwrap();
    let file = fs::File::options()
        .write(true)
        .open(place.remote("tree/large"))
        .unwrap();
    file.set_modified(UNIX_EPOCH).unwrap();
    let url = server.url("/tree");
    let source = format!("{here}/");
    let run = xdfs(["cp", "-r", "--json", "--remove-source", &source, &url]);
    let run = run.fails(8, &["large", "other content", "xdfs check"]);
    let result = run.result();
    assert_eq!(
        (&result["files"], &result["removed"]),
        (&0.into(), &4.into()),
        "{result}"
    );
    assert_eq!(files(&here), [Path::new("large")]);
    assert_content(place.remote("tree/large"), &large);
    // What the copy refused to replace stays too, with one failure.
    fs::write(format!("{here}/large"), "new").unwrap();
    let run = xdfs(["cp", "-r", "--json", "--remove-source", &source, &url]);
    let run = run.fails(6, &["large"]);
    assert_eq!(
        (&run.result()["failed"], &run.result()["removed"]),
        (&1.into(), &0.into())
    );
    assert_eq!(fs::read(format!("{here}/large")).unwrap(), b"new");
}

#[test]
fn a_file_is_never_moved_onto_itself() {
    let place = Place::new();
    let server = Server::start(&place.root());
    make(place.remote("tree"));
    let before = files(place.remote("tree"));
    let [tree, large] = ["tree/", "tree/large"].map(|name| place.remote(name));
    let words = ["cp", "-r", "--remove-source"];
    let source = [tree.to_str().unwrap(), &server.url("/tree")];
    xdfs(words.iter().chain(&source)).fails(2, &["in it"]);
    let source = [&server.url("/tree/"), tree.to_str().unwrap()];
    xdfs(words.iter().chain(&source)).fails(2, &["in it"]);
    let url = server.url("/tree/large");
    let words = ["cp", "-f", "--remove-source", large.to_str().unwrap(), &url];
    xdfs(words).fails(2, &["one file"]);
    assert_eq!(files(place.remote("tree")), before);
    assert_content(large, &content(1, 3_000_000));
}

#[test]
fn ctrl_c_leaves_what_is_not_compared_yet() {
    let place = Place::new();
    let server = Server::start(&place.root());
    // It is copied soon, and takes minutes to be read.
    let source = place.here("hole");
    fs::File::create(&source)
        .unwrap()
        .set_len(32 << 30)
        .unwrap();
    let url = server.url("/hole");
    let mut command = program();
    command.args(["cp", "-v", "--remove-source", &source, &url]);
    let mut running = Running::start(&mut command);
    running.wait_for_message("comparing source and target");
    running.signal("INT");
    running
        .wait()
        .fails(130, &["stopped by the user", "the same command again"]);
    assert!(Path::new(&source).exists() && place.remote("hole").exists());
}
