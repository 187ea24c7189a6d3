//! Trees whose root is the directory of all exports.

use std::fs;
use std::path::Path;

use crate::support::{Place, Server, content, xdfs};
use crate::trees::assert_same;

/// A server with the exports `one` and `two`, which have files of several sizes.
fn exports(place: &Place) -> Server {
    let mut config = "owner = \"me\"\n".to_owned();
    for name in ["one", "two"] {
        let path = place.remote(name);
        make(&path);
        let path = path.display();
        config += &format!(
            "[[export]]\nname = \"{name}\"\npath = \"{path}\"\n[[export.grant]]\nuser = \"*\"\n\
             rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n"
        );
    }
    let file = place.make_here("xdfs.toml", config.as_bytes());
    let flags = ["--listen", "127.0.0.1:0", "--config", &file];
    Server::start_with(&place.root(), &flags)
}

fn make(root: &Path) {
    fs::create_dir_all(root.join("d/empty")).unwrap();
    for number in 0..50_usize {
        let content = content(number as u64, number * 100);
        fs::write(root.join(format!("d/f{number}")), content).unwrap();
    }
    fs::write(root.join("large"), content(9, 3 << 20)).unwrap();
}

#[test]
fn all_exports_are_copied_and_synchronised_as_one_tree() {
    let place = Place::new();
    let server = exports(&place);
    let url = server.url("/");
    for (number, words) in [&["cp", "-r"][..], &["cp", "-a"], &["sync"]]
        .into_iter()
        .enumerate()
    {
        let to = place.here(&format!("copy{number}"));
        xdfs([words, &[&url, &to]].concat()).ok();
        assert_same(&place.root(), Path::new(&to));
        // What is there stays.
        let again = [words, &["--json", &url, &to]].concat();
        assert_eq!(xdfs(again).ok().result()["files"], 0);
    }
}

#[test]
fn a_tree_goes_into_the_exports_that_there_are() {
    let place = Place::new();
    let server = exports(&place);
    let url = server.url("/");
    let here = place.here("tree");
    for name in ["one", "two"] {
        make(&Path::new(&here).join(name).join("new"));
    }
    let source = format!("{here}/");
    xdfs(["cp", "-r", &source, &url]).ok();
    for name in ["one", "two"] {
        let there = place.remote(&format!("{name}/new"));
        assert_same(&Path::new(&here).join(name).join("new"), &there);
        assert!(place.remote(&format!("{name}/d/f7")).exists());
    }
    xdfs(["cp", "-a", &source, &url]).ok();
    fs::write(format!("{here}/one/new/d/f1"), "changed").unwrap();
    fs::create_dir(format!("{here}/none")).unwrap();
    fs::write(format!("{here}/none/file"), "nowhere").unwrap();
    let run = xdfs(["sync", &source, &url]).fails(4, &["/none", "no such export"]);
    assert!(!run.stderr.contains("/one"), "{}", run.stderr);
    assert_eq!(fs::read(place.remote("one/new/d/f1")).unwrap(), b"changed");
}
