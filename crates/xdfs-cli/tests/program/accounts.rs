//! Sessions with the ids of local accounts, by the settings of the program.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use xdfs_testkit::nobody::is_root;
use xdfs_testkit::skip;

use crate::support::{Place, Server, assert_content, content, xdfs};

/// A file of settings with these lines and an owner called alice.
fn config(place: &Place, lines: &str) -> String {
    let text = format!("listen = [\"127.0.0.1:0\"]\nowner = \"alice\"\n{lines}\n");
    place.make_here("xdfs.toml", text.as_bytes())
}

/// User and group of an account that every Debian system has.
fn owner(account: &str) -> (u32, u32) {
    let text = fs::read_to_string("/etc/passwd").unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with(&format!("{account}:")));
    let mut fields = line.unwrap().split(':').skip(2).map(|n| n.parse().unwrap());
    (fields.next().unwrap(), fields.next().unwrap())
}

#[test]
fn files_belong_to_the_account_of_the_user() {
    let place = Place::new();
    let file = config(&place, "[accounts]\nalice = \"games\"");
    if !is_root() {
        // It doesn't serve without.
        xdfs(["serve", "--config", &file]).fails(5, &["root"]);
        return skip::part("only root can give a session other ids");
    }
    for (path, mode) in [(place.path().to_owned(), 0o755), (place.root(), 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let server = Server::start_with(&place.root(), &["--config", &file]);
    let expected = content(71, 3_000_000);
    let source = place.make_here("a", &expected);
    xdfs(["cp", "-n", "3", &source, &server.url("/a")]).ok();
    assert_content(place.remote("a"), &expected);
    let meta = fs::metadata(place.remote("a")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), owner("games"));
    let closed = place.remote("closed");
    fs::write(&closed, b"root's").unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o600)).unwrap();
    let run = xdfs(["cp", &server.url("/closed"), &place.here("b")]);
    run.fails(5, &["error: server "]);
}

/// A file keeps no set-user-id bit where its owner can't be given: that is one warning, with owners
/// and without. The session isn't root's: it has the ids of an account, or the server isn't root's.
#[test]
fn programs_that_are_to_run_as_their_owners_become_ordinary_ones_with_a_warning() {
    let place = Place::new();
    let file = match is_root() {
        true => config(&place, "[accounts]\nalice = \"games\""),
        false => config(&place, ""),
    };
    for (path, mode) in [(place.path().to_owned(), 0o755), (place.root(), 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let server = Server::start_with(&place.root(), &["--config", &file]);
    let tree = place.here("tree");
    let tool = Path::new(&tree).join("tool");
    fs::create_dir(&tree).unwrap();
    fs::write(&tool, "tool").unwrap();
    for path in [Path::new(&tree), &tool] {
        if is_root() {
            let (uid, gid) = owner("games");
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }
    fs::set_permissions(&tool, Permissions::from_mode(0o4755)).unwrap();
    let mode = |name: &str| fs::metadata(place.remote(name)).unwrap().mode() & 0o7777;
    for (flags, name) in [(&["--owner"][..], "a"), (&[], "b")] {
        let target = server.url(&format!("/{name}"));
        let run = xdfs([&["cp", "-r"], flags, &[&tree, &target]].concat()).ok();
        assert!(
            run.stderr.contains("of 1 file were not kept"),
            "{}",
            run.stderr
        );
        assert_eq!(mode(&format!("{name}/tool")), 0o755);
    }
}

#[test]
fn settings_without_meaning_are_refused() {
    let place = Place::new();
    let file = config(&place, "[accounts]\nalice = \"games\"");
    xdfs(["serve", "--insecure", "--config", &file]).fails(2, &["[accounts]"]);
    if !is_root() {
        return skip::part("only root can give a session other ids");
    }
    for (lines, word) in [
        ("[accounts]", "empty"),
        ("[accounts]\nalice = \"no such account\"", "'alice'"),
        ("[accounts]\n\"*\" = \"root\"", "root"),
        ("[accounts]\nalice = 5", "line 4"),
    ] {
        let file = config(&place, lines);
        xdfs(["serve", "--config", &file]).fails(2, &[word]);
    }
}
