//! A server that is far away, over an emulated network.

use std::fs;
use std::process::Command;
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::skip;
use xdfs_testkit::tree::TempTree;
use xdfs_testkit::wan::{Link, Plan, Side, Wan};

use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, run};

const SUITED: &str = "a data connection suits a long path";
/// Bytes of a tree for which connections are opened ahead.
const FILES: usize = 160;
const FILE_BYTES: usize = 100_000;

/// The program on a host of the network.
fn xdfs(place: &TempTree, side: &Side, words: &[&str]) -> Command {
    let mut command = side.command(env!("CARGO_BIN_EXE_xdfs"));
    command
        .env("XDFS_CONFIG_DIR", place.join("keys"))
        .env_remove("HOME")
        .args(words);
    command
}

#[test]
fn a_long_path_gets_what_suits_it() {
    let plan = Plan::new(Link::delay(Duration::from_millis(15))).with_offload();
    let wan = match Wan::new(plan) {
        Ok(wan) => wan,
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            skip::test(format_args!("no emulated network: {error}"));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let names = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let has_it = fs::read_to_string(names).unwrap_or_default();
    let has_it = has_it.split_whitespace().any(|name| name == "bbr");
    let place = TempTree::new(1).unwrap();
    for name in ["root", "root/tree", "here", "keys"] {
        fs::create_dir(place.join(name)).unwrap();
    }
    let wanted = Stage::make(&place.join("root/file"), 3_000_001);
    for number in 0..FILES {
        Stage::make(&place.join(format!("root/tree/f{number}")), FILE_BYTES);
    }
    let root = format!("--root={}", place.join("root").display());
    let listen = format!("--gridftp={}:0", wan.right().address());
    let words = ["serve", "--log=debug", "--insecure", "--listen=127.0.0.1:0"];
    let words = [&words[..], &[&root, &listen]].concat();
    let server = Guard::spawn(&mut xdfs(&place, wan.right(), &words)).unwrap();
    let address = |line: &str| Some(line.strip_prefix("GridFTP on ")?.to_owned());
    let Some(address) = server.line(PATIENCE, address) else {
        panic!("the server did not start: {:?}", server.output());
    };
    let act = |words: &[&str]| run(&mut xdfs(&place, wan.left(), words));
    let text = |name: &str| place.join(name).display().to_string();
    // The side that sends.
    let told = act(&[
        "cp",
        "-vv",
        "--insecure",
        &text("root/file"),
        &format!("ftp://{address}/up"),
    ]);
    assert_bytes(&place.join("root/up"), &wanted);
    assert_eq!(told.contains(SUITED), has_it, "{told}");
    act(&[
        "cp",
        "--insecure",
        &format!("ftp://{address}/up"),
        &text("here/down"),
    ]);
    assert_bytes(&place.join("here/down"), &wanted);
    let said = server.output().join("\n");
    assert_eq!(said.contains(SUITED), has_it, "{said}");
    // A tree with more than one connection can carry soon.
    let told = act(&[
        "cp",
        "-r",
        "-vv",
        "--insecure",
        &format!("ftp://{address}/tree"),
        &text("here/tree"),
    ]);
    assert_same_tree(&place.join("root/tree"), &place.join("here/tree"));
    assert!(told.contains("opened ahead"), "{told}");
    if !has_it {
        skip::part("the system has no bbr");
    }
}
