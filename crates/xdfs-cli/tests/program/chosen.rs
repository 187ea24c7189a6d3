//! Files that are chosen on the command line of `xdfs cp`: by patterns, lists, size and age.

use std::fs;

use crate::support::{Place, Server, names, xdfs};

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
    // Without a pattern the server says what is missing.
    xdfs(["cp", &server.url("/x"), &here]).fails(4, &["error: remote", "/x"]);
    let run = xdfs(["cp", "--dry-run", &server.url("/runs/*.dat"), &here]).ok();
    assert_eq!(run.text().lines().count(), 3);
    assert_eq!(names(&here).len(), 0);
}
