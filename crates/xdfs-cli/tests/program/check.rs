//! `xdfs check`: trees that are compared, on any sides.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use xdfs_testkit::tree::make_pipe;

use crate::support::{Place, Server, content, xdfs};

/// Makes a tree of every kind of entry.
fn make(root: &Path) {
    for dir in ["d", "d/e", "empty", "a"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (name, length) in [
        ("big", 3_000_000),
        ("d/one", 10),
        ("d/e/two", 2_000),
        ("d/none", 0),
        // Between a directory and what is in it, by the bytes of the whole paths.
        ("a/x", 5),
        ("a.b", 6),
        ("a0", 7),
    ] {
        fs::write(root.join(name), content(1, length)).unwrap();
    }
    symlink("d/one", root.join("link")).unwrap();
    make_pipe(root.join("pipe")).unwrap();
}

/// The same tree here and on two servers, which serve it as `tree`.
fn scene() -> (Place, Server, Server) {
    let place = Place::new();
    let second = place.path().join("second");
    for parent in [place.root(), second.clone(), place.here("").into()] {
        make(&parent.join("tree"));
    }
    let servers = [place.root(), second].map(|root| Server::start(&root));
    let [first, second] = servers;
    (place, first, second)
}

#[test]
fn trees_with_the_same_content_are_equal_on_any_sides() {
    let (place, first, second) = scene();
    // Times and modes don't count.
    let touched = fs::File::open(place.remote("tree/big")).unwrap();
    touched.set_modified(std::time::UNIX_EPOCH).unwrap();
    let here = place.here("tree");
    let [one, other] = [first.url("/tree"), second.url("/tree/")];
    for (source, target) in [(&here, &one), (&one, &here), (&one, &other), (&here, &here)] {
        let run = xdfs(["check", source, target]).ok();
        assert_eq!(run.text(), "");
        let said = "13 equal (3.00 MB), 0 differ, 0 missing, 0 extra\n";
        assert!(
            run.stderr.contains(said),
            "{source} {target}: {}",
            run.stderr
        );
    }
    for kind in ["sha256", "md5", "crc64nvme"] {
        xdfs(["check", "--digest", kind, &here, &one]).ok();
    }
    let lines = xdfs(["check", "--json", &here, &one]).ok().json();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(
        (&lines[0]["type"], &lines[0]["equal"]),
        (&"check".into(), &13.into())
    );
    assert_eq!(lines[0]["equal_bytes"], 3_002_028);
    assert_eq!(
        (&lines[1]["command"], &lines[1]["exit_code"]),
        (&"check".into(), &0.into())
    );
}

#[test]
fn each_difference_is_told() {
    let (place, first, _second) = scene();
    let (here, there) = (place.here("tree"), first.url("/tree"));
    let root = place.remote("tree");
    // One byte, at the end; a size; a link; kinds; what is on one side only.
    let mut big = content(1, 3_000_000);
    *big.last_mut().unwrap() ^= 1;
    fs::write(root.join("big"), big).unwrap();
    fs::write(root.join("d/one"), content(1, 11)).unwrap();
    fs::remove_file(root.join("link")).unwrap();
    symlink("d/two", root.join("link")).unwrap();
    fs::remove_file(root.join("d/none")).unwrap();
    fs::create_dir(root.join("d/none")).unwrap();
    fs::write(root.join("d/none/inner"), "").unwrap();
    fs::remove_dir_all(root.join("d/e")).unwrap();
    fs::write(root.join("z"), "z").unwrap();
    fs::write(root.join("a/x.new"), "new").unwrap();
    let differences = [
        "extra a/x.new",
        "differs big",
        "missing d/e",
        "missing d/e/two",
        "differs d/none",
        "extra d/none/inner",
        "differs d/one",
        "differs link",
        "extra z",
    ];
    let run = xdfs(["check", &here, &there]).fails(18, &["4 differ, 2 missing, 3 extra"]);
    assert_eq!(run.text().lines().collect::<Vec<_>>(), differences);
    // The other way round.
    let run = xdfs(["check", &there, &here]).fails(18, &["4 differ, 3 missing, 2 extra"]);
    let turned = run.text().replace("missing", "-");
    let turned = turned.replace("extra", "missing").replace('-', "extra");
    assert_eq!(turned.lines().collect::<Vec<_>>(), differences);
    let lines = xdfs(["check", "--json", &here, &there])
        .fails(18, &[])
        .json();
    assert_eq!(lines.len(), differences.len() + 2);
    let kinds = |line: &serde_json::Value| {
        let fields = ["difference", "path", "source_kind", "target_kind"];
        fields.map(|field| line[field].as_str().unwrap_or("-").to_owned())
    };
    assert_eq!(kinds(&lines[0]), ["extra", "a/x.new", "-", "file"]);
    assert_eq!(kinds(&lines[4]), ["differs", "d/none", "file", "directory"]);
    assert_eq!(
        (&lines[6]["source_size"], &lines[6]["target_size"]),
        (&10.into(), &11.into())
    );
    assert_eq!(lines[9]["missing"], 2);
    assert_eq!(lines[10]["exit_code"], 18);
    // Nothing was changed, and what a filter leaves out doesn't count.
    let filter = [
        "--exclude",
        "/d/",
        "--exclude",
        "/*",
        "--include",
        "/a*",
        "--exclude",
        "*.new",
    ];
    let words = [&["check"], &filter[..], &[&here, &there]].concat();
    let run = xdfs(&words).ok();
    assert!(run.stderr.contains("4 equal"), "{}", run.stderr);
    // Once they are equal.
    xdfs([
        "sync",
        "--compare",
        "digest",
        "--delete",
        "--force",
        &here,
        &there,
    ])
    .ok();
    xdfs(["check", &here, &there]).ok();
}

#[test]
fn files_can_be_compared_too() {
    let (place, first, second) = scene();
    let (here, there) = (place.here("tree/big"), first.url("/tree/big"));
    xdfs(["check", &here, &there]).ok();
    let run = xdfs(["check", &here, &second.url("/tree/a0")]).fails(18, &["1 differ"]);
    assert_eq!(run.text(), "differs .\n");
    xdfs(["check", &here, &first.url("/tree")]).fails(6, &["big", "directory", "hint: "]);
    xdfs(["check", &first.url("/tree"), &here]).fails(6, &["big", "directory"]);
    xdfs(["check", &place.here("none"), &there]).fails(4, &["error: cannot ", "none"]);
    xdfs(["check", &here, &first.url("/none")]).fails(4, &["error: server ", "/none"]);
    xdfs(["check", &here, "xdfs://127.0.0.1:1/"]).fails(3, &["error: "]);
    xdfs(["check", &here]).fails(2, &["TARGET"]);
    xdfs(["check", &here, "-"]).fails(2, &["standard input"]);
}

#[test]
fn a_list_without_digests_proves_nothing() {
    let place = Place::new();
    let list = place.make_here("list", b"");
    xdfs(["sum", "-c", &list]).fails(2, &["there are none"]);
}
