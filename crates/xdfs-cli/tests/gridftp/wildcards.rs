//! Wildcards in LIST and NLST, as old clients send them.

use std::io::Read as _;
use std::net::TcpStream;
use std::process::Command;

use crate::client::Client;
use crate::stage::{Stage, has, run};

/// The lines of a listing.
#[track_caller]
fn listed(client: &mut Client, command: &str) -> Vec<String> {
    let mut data = TcpStream::connect(client.passive()).unwrap();
    client.ask(command, 150);
    let mut rows = String::new();
    data.read_to_string(&mut rows).unwrap();
    client.expect(226);
    let mut rows: Vec<_> = rows.lines().map(str::to_owned).collect();
    rows.sort();
    rows
}

#[test]
fn the_last_part_of_a_path_may_have_wildcards() {
    let stage = Stage::open(430, &[]);
    for name in [
        "a.txt",
        "b.txt",
        "c",
        ".h.txt",
        "[x]",
        "sub/d.txt",
        "sub/deep/e.txt",
    ] {
        Stage::make(&stage.root(name), 10);
    }
    let mut client = Client::log_in(&stage);
    for (command, wanted) in [
        ("NLST *.txt", &["a.txt", "b.txt"][..]),
        ("NLST [!a].txt", &["b.txt"]),
        ("NLST ?", &["c"]),
        ("NLST .*", &[".h.txt"]),
        ("NLST -a sub/*", &["sub/d.txt", "sub/deep"]),
        ("NLST /sub/*.txt", &["/sub/d.txt"]),
        ("NLST nothing*", &[]),
        // A name that is there is that name.
        ("NLST [x]", &["[x]"]),
    ] {
        assert_eq!(listed(&mut client, command), wanted, "{command}");
    }
    let long = listed(&mut client, "LIST -l sub/d*");
    let names: Vec<_> = long
        .iter()
        .filter_map(|row| row.rsplit(' ').next())
        .collect();
    // A directory is listed as itself.
    assert!(
        names.len() == 2 && names.contains(&"d.txt") && names.contains(&"deep"),
        "{long:?}"
    );
    client.passive();
    for command in [
        "LIST */d.txt",
        "LIST missing/*",
        "MLSD *.txt",
        "NLST ../*/x*",
    ] {
        client.ask(command, 550);
        client.passive();
    }
    client.ask("RETR *.txt", 550);
    if has("lftp") {
        let script = format!("open ftp://{}; nlist *.txt", stage.address);
        let said = run(Command::new("lftp").args(["--norc", "-c", &script]));
        let mut names: Vec<_> = said.lines().collect();
        names.sort_unstable();
        assert_eq!(names, ["a.txt", "b.txt"]);
    }
}

#[test]
fn few_names_of_many_are_found_over_several_pages() {
    let stage = Stage::open(431, &[]);
    for number in 0..4500 {
        std::fs::write(stage.root(&format!("f{number:04}")), "").unwrap();
    }
    let mut client = Client::log_in(&stage);
    for (command, wanted) in [
        ("NLST *4321", &["f4321"][..]),
        ("NLST f[03]007", &["f0007", "f3007"]),
        ("NLST *nothing", &[]),
    ] {
        assert_eq!(listed(&mut client, command), wanted, "{command}");
    }
    let names = listed(&mut client, "NLST *");
    assert_eq!(names.len(), 4500);
}
