//! Files that go straight between two servers with GSI, which prove to each other for whom they
//! act.

use std::fs;

use xdfs_testkit::skip;

use crate::grid::has_tools;
use crate::gsi::{globus_server, globus_server_with};
use crate::gsiftp::LEVELS;
use crate::places::xdfs;
use crate::stage::{Stage, assert_bytes, assert_same_tree, outcome, run};

#[test]
fn protected_files_go_straight() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(159, "protect = \"clear\"", "");
    let (_one, one) = globus_server(&grid);
    let (_other, other) = globus_server(&grid);
    let root = stage.here("served");
    let theirs = |address: &str| format!("gsiftp://{address}/{}", root.display());
    let (one, other) = (theirs(&one), theirs(&other));
    let ours = stage.gsi_url("/alice");
    let content = Stage::make(&root.join("file"), 20_000_000);
    fs::create_dir_all(root.join("tree/in")).unwrap();
    for name in ["tree/a", "tree/b", "tree/in/c"] {
        Stage::make(&root.join(name), 100_000);
    }
    for (level, commands) in LEVELS {
        let copy = |from: &str, to: &str, more: &[&str]| {
            let flags = ["cp", "--between=direct", "-vv", level];
            let words = [&flags[..], more, &[from, to]].concat();
            let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
            assert!(succeeded, "{words:?}: {said}");
            // Each server is told.
            for command in commands {
                let told = format!("the server takes {command}");
                assert!(said.matches(&told).count() >= 2, "{words:?}: {said}");
            }
        };
        for (from, to, at) in [
            (&one, &ours, stage.root("alice/new")),
            (&ours, &one, root.join("new")),
            (&one, &other, root.join("third")),
        ] {
            let name = at.file_name().unwrap().to_str().unwrap();
            let from = match from == &ours {
                true => format!("{from}/new"),
                false => format!("{from}/file"),
            };
            copy(&from, &format!("{to}/{name}"), &[]);
            assert_bytes(&at, &content);
        }
        copy(
            &format!("{one}/tree/"),
            &format!("{ours}/tree/"),
            &["-r", "-n", "4"],
        );
        assert_same_tree(&root.join("tree"), &stage.root("alice/tree"));
        for gone in [root.join("new"), root.join("third")] {
            fs::remove_file(gone).unwrap();
        }
        fs::remove_file(stage.root("alice/new")).unwrap();
        fs::remove_dir_all(stage.root("alice/tree")).unwrap();
    }
}

/// Servers with different levels protect nothing for each other, and one that refuses a level isn't
/// used at another one.
#[test]
fn levels_differ_on_the_way_through_here_only() {
    if !has_tools() {
        return skip::test("the tools of Globus are not installed");
    }
    let (stage, grid) = Stage::with_gsi(160, "protect = \"clear\"", "");
    let (_one, one) = globus_server(&grid);
    let root = stage.here("served");
    let theirs = |address: &str| format!("gsiftp://{address}/{}", root.display());
    let one = theirs(&one);
    let content = Stage::make(&root.join("file"), 1_000_000);
    let settings = format!(
        "[remote.one]\nurl = \"{one}\"\nprotect = \"unauthenticated\"\n\
         [remote.safe]\nurl = \"{one}\"\nprotect = \"safe\"\n\
         [remote.ours]\nurl = \"{}\"\nprotect = \"unauthenticated\"\n",
        stage.gsi_url("/alice")
    );
    fs::create_dir_all(stage.beside("client")).unwrap();
    fs::write(stage.beside("client/config.toml"), settings).unwrap();
    let at = stage.root("alice/new");
    let copy = |from: &str, way: &str| xdfs(&stage, &["cp", way, from, "ours:new"]);
    run(&mut copy("one:file", "--between=direct"));
    assert_bytes(&at, &content);
    fs::remove_file(&at).unwrap();
    let (succeeded, said) = outcome(&mut copy("safe:file", "--between=direct"));
    assert!(!succeeded && said.contains("at another level"), "{said}");
    assert!(!at.exists());
    run(&mut copy("safe:file", "--between=any"));
    assert_bytes(&at, &content);
    let (_encrypting, encrypting) = globus_server_with(&grid, &["-encrypt-data"]);
    let from = format!("{}/file", theirs(&encrypting));
    for way in ["--between=direct", "--between=any", "--between=client"] {
        fs::remove_file(&at).ok();
        let words = ["cp", way, "--protect=unauthenticated", &from, "ours:new"];
        let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
        assert!(
            !succeeded && said.contains("Encryption is required"),
            "{way}: {said}"
        );
        assert!(!at.exists(), "{way}");
    }
}
