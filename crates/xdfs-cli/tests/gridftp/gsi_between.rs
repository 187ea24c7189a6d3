//! Files that go straight between two servers with GSI, which prove to each other for whom they
//! act.

use std::fs;

use xdfs_testkit::skip;

use crate::grid::has_tools;
use crate::gsi::globus_server;
use crate::places::xdfs;
use crate::stage::{Stage, assert_bytes, assert_same_tree, run};

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
    for flags in [&[][..], &["--protect=clear"]] {
        let copy = |from: &str, to: &str, more: &[&str]| {
            let words = [&["cp", "--between=direct"], flags, more, &[from, to]].concat();
            run(&mut xdfs(&stage, &words));
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
