//! `xdfs sync` with stripes: over the data nodes of real servers, and where there are none.

use std::fs;
use std::path::Path;

use crate::fake::Fake;
use crate::nodes::Cluster;
use crate::places::xdfs;
use crate::stage::{Stage, assert_same_tree, outcome, run};
use crate::stripes::{EXTENDED, GlobusCluster, LARGE};

/// The data nodes of the tests are at addresses of their own.
const STRIPED: [&str; 4] = [
    "sync",
    "--insecure",
    "--stripe",
    "--stripe-nodes=127.0.0.0/30",
];

#[track_caller]
fn sync(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    run(&mut xdfs(stage, &[&STRIPED, flags, &[from, to]].concat()))
}

#[track_caller]
fn fails(stage: &Stage, from: &str, to: &str) -> String {
    let words = [&STRIPED[..], &["--retries=0", from, to]].concat();
    let (succeeded, said) = outcome(&mut xdfs(stage, &words));
    assert!(!succeeded, "{said}");
    said
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn trees_follow_over_the_nodes_of_xdfs_both_ways() {
    let cluster = Cluster::open(814, 2, "");
    let stage = &cluster.stage;
    let tree = stage.here("tree");
    for (name, bytes) in [("a", 100), ("empty", 0), ("sub/big", LARGE)] {
        Stage::make(&tree.join(name), bytes);
    }
    let (here, there) = (text(&tree), stage.url("//data/tree"));
    sync(stage, &[], &here, &there);
    assert_same_tree(&tree, &stage.root("tree"));
    let stored = cluster.requests("=store ");
    assert!(stored.iter().all(|count| *count >= 1), "{stored:?}");
    let said = sync(stage, &[], &here, &there);
    assert!(said.contains("0 files"), "{said}");
    cluster.assert_requests("=store ", &stored);
    // Only what has changed.
    Stage::make(&tree.join("sub/big"), LARGE + 1);
    let blocks = ["-n", "2", "--stripe-block-size=64K"];
    let said = sync(stage, &blocks, &here, &there);
    assert!(said.contains("1 file,"), "{said}");
    assert_same_tree(&tree, &stage.root("tree"));
    let more = stored.iter().map(|count| count + 1).collect::<Vec<_>>();
    cluster.assert_requests("=store ", &more);
    let back = text(&stage.here("back"));
    sync(stage, &["-n", "1"], &there, &back);
    assert_same_tree(&tree, &stage.here("back"));
    // Files below 1 MiB are sent by the server.
    cluster.assert_requests("=send ", &[1, 1]);
    let said = sync(stage, &["--delete"], &there, &back);
    assert!(said.contains("0 files"), "{said}");
    cluster.assert_requests("=send ", &[1, 1]);
}

#[test]
fn trees_follow_over_the_nodes_of_globus_and_between() {
    let cluster = Cluster::open(815, 2, "third_party = true");
    let stage = &cluster.stage;
    let Some(globus) = GlobusCluster::start(&stage.here("")) else {
        return;
    };
    let tree = stage.here("tree");
    Stage::make(&tree.join("sub/big"), LARGE);
    let folder = stage.beside("globus");
    fs::create_dir(&folder).unwrap();
    let theirs = globus.url(&folder.join("tree"));
    sync(stage, &[], &text(&tree), &theirs);
    assert_same_tree(&tree, &folder.join("tree"));
    globus.moved(1);
    sync(stage, &["-n1"], &theirs, &text(&stage.here("back")));
    assert_same_tree(&tree, &stage.here("back"));
    globus.moved(2);
    // Straight from nodes to nodes, both ways.
    let ours = stage.url("//data/tree");
    let direct = ["--between=direct", "-n", "2"];
    sync(stage, &direct, &theirs, &ours);
    assert_same_tree(&tree, &stage.root("tree"));
    cluster.assert_requests("=store ", &[1, 1]);
    globus.moved(3);
    let again = globus.url(&folder.join("again"));
    sync(stage, &direct, &ours, &again);
    assert_same_tree(&tree, &folder.join("again"));
    cluster.assert_requests("=send ", &[1, 1]);
    globus.moved(4);
    let said = sync(stage, &direct, &ours, &again);
    assert!(said.contains("0 files"), "{said}");
    // Through this machine.
    let relayed = globus.url(&folder.join("relayed"));
    sync(stage, &["--between=client"], &ours, &relayed);
    assert_same_tree(&tree, &folder.join("relayed"));
    cluster.assert_requests("=send ", &[2, 2]);
    globus.moved(5);
}

#[test]
fn without_stripes_nothing_is_moved() {
    let stage = Stage::open(816, &[]);
    let tree = text(&stage.here("tree"));
    Stage::make(&stage.here("tree/a"), 100);
    // Another protocol.
    for [from, to] in [["ssh://localhost/t", &tree], [&tree, "ssh://localhost/t"]] {
        let said = fails(&stage, from, to);
        let lacks = "only servers of GridFTP have stripes";
        assert!(
            said.contains(lacks) && said.contains("leave out --stripe"),
            "{said}"
        );
    }
    // A server that has none.
    let fake = Fake::start(EXTENDED, |verb, _, talk| {
        match verb {
            "MLSD" => talk.send(b"Type=file;Size=1000;Modify=20260102030405; f\r\n"),
            "SPAS" => drop(talk.say("500 what\r\n")),
            _ => return false,
        }
        true
    });
    let target = stage.here("target");
    let said = fails(&stage, &fake.url("/d"), &text(&target));
    assert!(said.contains("has no stripes"), "{said}");
    assert!(!fake.was_read() && !target.join("f").exists());
    let said = fails(&stage, &tree, &fake.url("/d"));
    assert!(said.contains("has no stripes"), "{said}");
    let stored = |line: &String| line.starts_with("STOR");
    assert!(!fake.commands().iter().any(stored));
}
