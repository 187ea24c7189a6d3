//! Unfinished transfers: listed, counted, removed, expired.

use std::fs::{self, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use xdfs_testkit::wait;

use crate::support::{Place, Running, Server, assert_content, content, names, program, xdfs};

const SIZE: usize = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// An upload that is slow enough to be looked at, of which this much has arrived.
#[track_caller]
fn begin(source: &str, target: &str) -> Running {
    let args = [
        "cp",
        "--json",
        "-n",
        "2",
        "--limit-rate",
        "8M",
        source,
        target,
    ];
    let mut client = Running::start(program().args(args));
    client.wait_for_bytes(6 << 20);
    client
}

/// An upload that was interrupted, and that the server has put aside in this directory.
#[track_caller]
fn interrupt(source: &str, target: &str, directory: impl AsRef<Path>) {
    let mut client = begin(source, target);
    client.signal("INT");
    assert_eq!(client.wait().code, Some(130));
    let is_aside = |name: &String| {
        let file = fs::File::open(directory.as_ref().join(name)).unwrap();
        file.try_lock().is_ok()
    };
    let ended = wait::until(PATIENCE, || {
        let found = hidden(&directory);
        found.iter().any(|name| name.ends_with(".xdfs-journal")) && found.iter().all(is_aside)
    });
    assert!(ended, "{:?}", hidden(&directory));
}

#[track_caller]
fn partials(url: &str, more: &[&str]) -> Vec<Value> {
    let words = ["partial", "ls", "--json", url];
    let mut lines = xdfs(words.iter().chain(more)).ok().json();
    lines.retain(|line| line["type"] == "partial");
    lines
}

fn hidden(directory: impl AsRef<Path>) -> Vec<String> {
    let mut all = names(directory);
    all.retain(|name| name.ends_with(".xdfs-part") || name.ends_with(".xdfs-journal"));
    all
}

/// Makes everything that is hidden in a directory as old as this.
fn age(directory: impl AsRef<Path>, days: u64) {
    let time = SystemTime::now() - Duration::from_secs(days * 86_400);
    for name in hidden(&directory) {
        let file = fs::File::options();
        let file = file
            .clone()
            .write(true)
            .open(directory.as_ref().join(name))
            .unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
}

#[test]
fn they_are_listed_counted_and_removed() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(41, SIZE);
    let source = place.make_here("big", &expected);
    fs::create_dir_all(place.remote("runs/deep")).unwrap();
    let (all, target) = (server.url("/"), server.url("/runs/deep/big"));
    let run = xdfs(["partial", "ls", &all]).ok();
    assert_eq!(run.text(), "");
    let du = |words: &[&str]| {
        let run = xdfs([&["du", "-s", "--json"], words, &[&all]].concat()).ok();
        run.json()[0]["bytes"].as_u64().unwrap()
    };
    let empty = du(&[]);
    interrupt(&source, &target, place.remote("runs/deep"));
    let found = partials(&all, &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["path"], "/runs/deep/big");
    let arrived = found[0]["arrived"].as_u64().unwrap();
    assert!(arrived > 0 && arrived < SIZE as u64, "{arrived}");
    assert_eq!(found[0]["length"], SIZE);
    let allocated = found[0]["allocated"].as_u64().unwrap();
    assert!(allocated >= arrived, "{allocated} {arrived}");
    let line = xdfs(["partial", "ls", &all]).ok().text();
    assert!(
        line.ends_with(" /runs/deep/big\n") && line.contains(" 24M "),
        "{line}"
    );
    // Below a directory, by the target, and not elsewhere.
    assert_eq!(partials(&server.url("/runs"), &[]).len(), 1);
    assert_eq!(partials(&target, &[]).len(), 1);
    xdfs(["partial", "ls", &server.url("/runs/other")]).fails(4, &["no unfinished transfer"]);
    xdfs(["partial", "rm", &server.url("/gone/other")]).fails(4, &["/gone"]);
    xdfs(["partial", "rm", "--older-than", "7", &all]).fails(2, &["7d"]);
    // What it takes is counted.
    assert_eq!(du(&[]), empty + allocated);
    assert_eq!(du(&["--apparent-size"]), arrived);
    // One that is young stays.
    assert!(partials(&all, &["--older-than", "1h"]).is_empty());
    let run = xdfs(["partial", "rm", "--older-than", "1h", &all]).ok();
    assert_eq!(run.text(), "0 unfinished transfers removed, 0B\n");
    age(place.remote("runs/deep"), 8);
    assert_eq!(partials(&all, &["--older-than", "7d"]).len(), 1);
    assert!(xdfs(["partial", "ls", &all]).ok().text().contains(" 8d "));
    assert!(partials(&all, &["--older-than", "9d"]).is_empty());
    let run = xdfs(["partial", "rm", "--older-than", "7d", "--json", &all]).ok();
    assert_eq!(run.json()[0]["path"], "/runs/deep/big");
    assert!(names(place.remote("runs/deep")).is_empty());
    assert_eq!(du(&[]), empty);
    xdfs(["partial", "rm", &target]).fails(4, &["no unfinished transfer"]);
    // The same copy starts over, and may be discarded by its name.
    interrupt(&source, &target, place.remote("runs/deep"));
    xdfs(["partial", "rm", &target]).ok();
    assert!(names(place.remote("runs/deep")).is_empty());
    xdfs(["cp", &source, &target]).ok();
    assert_content(place.remote("runs/deep/big"), &expected);
}

/// Wildcards match directories, and the targets of unfinished transfers, which aren't there yet.
#[test]
fn wildcards_match_targets() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("big", &content(48, SIZE));
    for (directory, names) in [("a", &["x.img", "y.dat"][..]), ("b", &["z.img"])] {
        fs::create_dir(place.remote(directory)).unwrap();
        fs::write(place.remote(directory).join("whole.img"), b"x").unwrap();
        for name in names {
            let target = server.url(&format!("/{directory}/{name}"));
            interrupt(&source, &target, place.remote(directory));
        }
    }
    let found = |pattern: &str| {
        let found = partials(&server.url(pattern), &[]);
        let paths = found.iter().map(|line| line["path"].as_str().unwrap());
        paths.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("/*"), ["/a/x.img", "/a/y.dat", "/b/z.img"]);
    assert_eq!(found("/*/*.img"), ["/a/x.img", "/b/z.img"]);
    assert_eq!(found("/a/[xy].*"), ["/a/x.img", "/a/y.dat"]);
    let none = server.url("/a/whole*");
    xdfs(["partial", "ls", &none]).fails(4, &["no name matches"]);
    xdfs(["partial", "rm", &server.url("/*/*.img")]).ok();
    assert_eq!(found("/*"), ["/a/y.dat"]);
    // A target is taken as it is written, if there is an unfinished transfer to it.
    let starred = server.url("/a/*.dat");
    interrupt(&source, &server.url("/a/%2A.dat"), place.remote("a"));
    xdfs(["partial", "rm", &starred]).ok();
    assert_eq!(found("/*"), ["/a/y.dat"]);
}

#[test]
fn those_that_run_stay() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let expected = content(42, SIZE);
    let source = place.make_here("big", &expected);
    fs::create_dir(place.remote("d")).unwrap();
    let (all, target) = (server.url("/"), server.url("/d/big"));
    let mut client = begin(&source, &target);
    // It must not end before it was looked at.
    client.signal("STOP");
    assert_eq!(partials(&all, &[]).len(), 1);
    let run = xdfs(["partial", "rm", &all]).ok();
    assert_eq!(
        run.text(),
        "0 unfinished transfers removed, 0B; 1 is running\n"
    );
    let before = hidden(place.remote("d"));
    xdfs(["rm", "-r", &server.url("/d")]).fails(12, &["a transfer is writing"]);
    // Its journal may have been added meanwhile.
    let after = hidden(place.remote("d"));
    assert!(before.iter().all(|name| after.contains(name)), "{after:?}");
    client.signal("CONT");
    client.wait().ok();
    assert_content(place.remote("d/big"), &expected);
    // One that doesn't is removed with its directory.
    interrupt(&source, &server.url("/d/other"), place.remote("d"));
    assert_eq!(hidden(place.remote("d")).len(), 2);
    xdfs(["rm", "-r", &server.url("/d")]).ok();
    assert!(names(place.root()).is_empty());
}

#[test]
fn those_of_downloads_are_here() {
    let place = Place::new();
    let server = Server::start(&place.root());
    fs::write(place.remote("big"), content(47, SIZE)).unwrap();
    fs::create_dir(place.here("deep")).unwrap();
    let (here, deep) = (place.here(""), place.here("deep"));
    interrupt(&server.url("/big"), &place.here("deep/big"), &deep);
    for directory in [&here, &deep] {
        let found = partials(directory, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0]["path"], place.here("deep/big"));
        assert_eq!(found[0]["length"], SIZE);
    }
    xdfs(["partial", "ls", &place.here("gone")]).fails(4, &["gone"]);
    let file = place.make_here("file", b"x");
    xdfs(["partial", "rm", &file]).fails(6, &["not a directory"]);
    xdfs(["partial", "ls", "-"]).fails(2, &["xdfs://"]);
    let run = xdfs(["partial", "rm", "--older-than", "1d", &here]).ok();
    assert!(run.text().starts_with("0 unfinished"), "{}", run.text());
    let run = xdfs(["partial", "rm", &here]).ok();
    assert!(
        run.text().starts_with("1 unfinished transfer removed"),
        "{}",
        run.text()
    );
    assert!(names(&deep).is_empty());
}

#[test]
fn names_of_any_length_and_many_of_them() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("big", &content(43, SIZE));
    let long = "x".repeat(250);
    interrupt(&source, &server.url(&format!("/{long}")), place.root());
    let found = partials(&server.url("/"), &[]);
    let name = found[0]["path"].as_str().unwrap();
    assert!(name.starts_with("/xxx") && name.contains('~'), "{name}");
    xdfs(["partial", "rm", &server.url(&name.replace('~', "%7E"))]).ok();
    assert!(names(place.root()).is_empty());
    // More than one answer takes, and a name that only looks like one of a transfer.
    for number in 0..3000 {
        fs::write(
            place.remote(&format!(".file-{number:04}-{long:.100}.xdfs-part")),
            "x",
        )
        .unwrap();
    }
    fs::create_dir(place.remote(".directory.xdfs-part")).unwrap();
    let found = partials(&server.url("/"), &[]);
    assert_eq!(found.len(), 3000);
    assert_eq!(found[2999]["length"], Value::Null);
    let run = xdfs(["partial", "rm", &server.url("/")]).ok();
    assert!(
        run.text().starts_with("3000 unfinished transfers removed"),
        "{}",
        run.text()
    );
    assert_eq!(fs::read_dir(place.root()).unwrap().count(), 1);
}

#[test]
fn rights_and_quotas_hold() {
    let place = Place::new();
    let export = |name: &str, rights: &str, more: &str| {
        let path = place.path().join(name);
        fs::create_dir_all(&path).unwrap();
        format!(
            "[[export]]\nname = \"{name}\"\npath = \"{}\"\n{more}\n[[export.grant]]\nuser = \"*\"\n\
             rights = [{rights}]\n",
            path.display()
        )
    };
    let config = [
        export(
            "all",
            "\"read\", \"list\", \"create\", \"delete\"",
            "quota_bytes = \"40M\"",
        ),
        export("look", "\"list\", \"create\"", ""),
        export("blind", "\"create\"", ""),
    ]
    .concat();
    let config = place.make_here("xdfs.toml", config.as_bytes());
    let server = Server::start_with(
        &place.root(),
        &["--listen", "127.0.0.1:0", "--config", &config],
    );
    let source = place.make_here("big", &content(44, SIZE));
    for name in ["all", "look", "blind"] {
        interrupt(
            &source,
            &server.url(&format!("/{name}/big")),
            place.path().join(name),
        );
    }
    assert_eq!(partials(&server.url("/all"), &[]).len(), 1);
    assert_eq!(partials(&server.url("/look"), &[]).len(), 1);
    xdfs(["partial", "ls", &server.url("/blind")]).fails(5, &["/blind"]);
    xdfs(["partial", "rm", &server.url("/look")]).fails(5, &["/look/big"]);
    assert_eq!(hidden(place.path().join("look")).len(), 2);
    // The quota has no room for another one.
    let other = server.url("/all/other");
    xdfs(["cp", &source, &other]).fails(7, &["quota"]);
    xdfs(["partial", "rm", &server.url("/all")]).ok();
    xdfs(["cp", &source, &other]).ok();
    assert_eq!(names(place.path().join("all")), ["other"]);
}

#[test]
fn a_synchronisation_discards_those_in_what_it_deletes() {
    let place = Place::new();
    let server = Server::start(&place.root());
    let source = place.make_here("big", &content(45, SIZE));
    let (tree, copy) = (place.here("tree"), server.url("/copy"));
    fs::create_dir_all(place.here("tree/d")).unwrap();
    fs::write(place.here("tree/d/file"), "x").unwrap();
    xdfs(["sync", &tree, &copy]).ok();
    for name in ["gone", "d"] {
        fs::create_dir_all(place.remote(&format!("copy/{name}"))).unwrap();
        let target = server.url(&format!("/copy/{name}/big"));
        interrupt(&source, &target, place.remote(&format!("copy/{name}")));
    }
    fs::create_dir(place.remote("copy/busy")).unwrap();
    let mut client = begin(&source, &server.url("/copy/busy/big"));
    client.signal("STOP");
    let words = ["/copy/busy/big", "the transfer is running"];
    xdfs(["sync", "--delete", &tree, &copy]).fails(12, &words);
    assert_eq!(names(place.remote("copy")), ["busy", "d"]);
    // In a directory that stays they stay too.
    assert_eq!(hidden(place.remote("copy/d")).len(), 2);
    client.kill();
    let gone = wait::until(PATIENCE, || {
        xdfs(["sync", "--delete", &tree, &copy]).code == Some(0)
    });
    assert!(gone && names(place.remote("copy")) == ["d"]);
    // Here as well, after a download.
    let back = place.here("back");
    xdfs(["sync", &copy, &back]).ok();
    fs::create_dir(place.here("back/gone")).unwrap();
    fs::write(place.here("back/gone/.big.xdfs-part"), "x").unwrap();
    xdfs(["sync", "--delete", &copy, &back]).ok();
    assert_eq!(names(&back), ["d"]);
}

#[test]
fn a_server_removes_old_ones_by_itself() {
    let place = Place::new();
    let mine = place.path().join("homes/u-me/data");
    fs::create_dir_all(&mine).unwrap();
    fs::create_dir_all(place.path().join("homes/other")).unwrap();
    fs::create_dir_all(place.path().join("all/deep/er")).unwrap();
    let config = format!(
        "owner = \"me\"\npartial_expiry = \"EXPIRY\"\n[[export]]\nname = \"mine\"\n\
         path = \"{0}/homes/u-{{user}}/data\"\nquota_bytes = \"40M\"\n[[export.grant]]\n\
         user = \"*\"\nrights = [\"read\", \"list\", \"create\", \"delete\"]\n[[export]]\n\
         name = \"all\"\npath = \"{0}/all\"\n[[export.grant]]\nuser = \"*\"\n\
         rights = [\"list\", \"create\"]\n",
        place.path().display()
    );
    let start = |expiry: &str| {
        let text = config.replace("EXPIRY", expiry);
        let file = place.make_here("xdfs.toml", text.as_bytes());
        Server::start_with(
            &place.root(),
            &[
                "--listen",
                "127.0.0.1:0",
                "--config",
                &file,
                "--log",
                "debug",
            ],
        )
    };
    let source = place.make_here("big", &content(46, SIZE));
    let deep = place.path().join("all/deep/er");
    let server = start("7d");
    interrupt(&source, &server.url("/mine/big"), &mine);
    interrupt(&source, &server.url("/all/deep/er/big"), &deep);
    interrupt(&source, &server.url("/all/young"), place.path().join("all"));
    age(&mine, 8);
    age(&deep, 8);
    drop(server);
    // A link out of what is served isn't followed.
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join(".x.xdfs-part"), "x").unwrap();
    age(&outside, 8);
    std::os::unix::fs::symlink(&outside, place.path().join("all/out")).unwrap();
    let server = start("7d");
    let gone = wait::until(PATIENCE, || {
        hidden(&mine).is_empty() && hidden(&deep).is_empty()
    });
    assert!(gone, "{:?} {:?}", hidden(&mine), hidden(&deep));
    server
        .running
        .wait_for_message("looked for unfinished transfers");
    assert_eq!(hidden(place.path().join("all")).len(), 2);
    assert_eq!(hidden(&outside).len(), 1);
    drop(server);
    // One that has become old is removed while the server runs, and no longer counts against the
    // quota. One that runs stays, however long ago something came.
    let server = start("4s");
    interrupt(&source, &server.url("/mine/big"), &mine);
    xdfs(["cp", &source, &server.url("/mine/other")]).fails(7, &["quota"]);
    let mut client = begin(&source, &server.url("/all/deep/er/big"));
    client.signal("STOP");
    age(&deep, 8);
    let gone = wait::until(PATIENCE, || hidden(&mine).is_empty());
    assert!(gone, "{:?}", hidden(&mine));
    server
        .running
        .wait_for_message("an unfinished transfer stays");
    assert_eq!(hidden(&deep).len(), 2);
    client.signal("CONT");
    client.wait().ok();
    assert_eq!(names(&deep), ["big"]);
    xdfs(["cp", &source, &server.url("/mine/other")]).ok();
    assert_eq!(names(&mine), ["other"]);
    drop(server);
    // Never by itself, unless it is told to, and not in a wrong way.
    for wrong in ["7", "0s", "-1d", "soon"] {
        let text = config.replace("EXPIRY", wrong);
        let file = place.make_here("wrong.toml", text.as_bytes());
        xdfs(["serve", "--config", &file]).fails(2, &["line 2", "xdfs serve --help"]);
    }
}
