//! GET and PUT: the tool of Globus uses them where it may, and moves the same without them.

use std::fs;
use std::io::{Read as _, Write as _};

use xdfs_testkit::{skip, wait};

use crate::client::{Client, EOD, EOF, block, blocks, data};
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, names, outcome, run};
use crate::tools::{Globus, copy, file_url, has_globus, make_tree};

const BIG: usize = 3_000_000;

/// The commands that the tool has sent.
fn sent<'a>(said: &'a str, verb: &str) -> Vec<&'a str> {
    let is_it = |line: &&str| {
        line.strip_prefix(verb)
            .is_some_and(|rest| rest.starts_with(' '))
    };
    said.lines().filter(is_it).collect()
}

#[test]
fn globus_url_copy_uses_get_and_put_unless_it_is_told_not_to() {
    if !has_globus() {
        return;
    }
    let stage = Stage::open(200, &[]);
    for (number, flags) in [
        &[][..],
        &["-fast"],
        &["-p", "4"],
        &["-no-g2"],
        &["-no-g2", "-p", "4"],
    ]
    .into_iter()
    .enumerate()
    {
        let uses = !flags.contains(&"-no-g2");
        for bytes in [0, 1, BIG] {
            let name = format!("{number} {bytes};1");
            let wanted = Stage::make(&stage.here(&name), bytes);
            let flags = [flags, &["-dbg"]].concat();
            let up = [file_url(&stage.here(&name)), stage.url(&format!("/{name}"))];
            let said = run(copy(&flags).args(&up));
            assert_bytes(&stage.root(&name), &wanted);
            let told = format!("PUT path=/{name};pasv;");
            assert_eq!(sent(&said, "PUT") == [told], uses, "{said}");
            assert_eq!(sent(&said, "STOR").is_empty(), uses, "{said}");
            let back = stage.here("back");
            let down = [stage.url(&format!("/{name}")), file_url(&back)];
            let said = run(copy(&flags).args(&down));
            assert_bytes(&back, &wanted);
            assert_eq!(sent(&said, "GET").len() == 1, uses, "{said}");
            assert_eq!(sent(&said, "RETR").is_empty(), uses, "{said}");
        }
    }
}

#[test]
fn third_parties_and_trees_go_with_and_without_get_and_put() {
    let Some(globus) = Globus::start() else {
        return;
    };
    let (stage, other) = (Stage::open(201, &[]), Stage::open(202, &[]));
    let wanted = Stage::make(&stage.root("one"), BIG);
    make_tree(&stage.root("tree"));
    let theirs = stage.here("theirs");
    for (number, flags) in [
        &[][..],
        &["-no-g2"],
        &["-p", "3"],
        &["-no-g2", "-p", "3"],
        &["-dp", "-p", "2"],
    ]
    .into_iter()
    .enumerate()
    {
        let between = [stage.url("/one"), other.url(&format!("/{number}"))];
        run(copy(flags).args(&between));
        assert_bytes(&other.root(&number.to_string()), &wanted);
        run(copy(flags).args([stage.url("/one"), globus.url(&theirs)]));
        assert_bytes(&theirs, &wanted);
        run(copy(flags).args([globus.url(&theirs), stage.url("/back")]));
        assert_bytes(&stage.root("back"), &wanted);
        fs::remove_file(&theirs).unwrap();
        let tree = format!("tree{number}");
        let all = [flags, &["-r", "-cd"]].concat();
        let to = other.url(&format!("/{tree}/"));
        run(copy(&all).args([stage.url("/tree/"), to]));
        assert_same_tree(&stage.root("tree"), &other.root(&tree));
    }
    // Over the same connections, one file after the other.
    let folder = |path: &str| file_url(&stage.here(path)) + "/";
    let flags = ["-dbg", "-fast", "-r", "-cd"];
    let said = run(copy(&flags).args([&stage.url("/tree/"), &folder("down")]));
    assert_same_tree(&stage.here("down"), &stage.root("tree"));
    assert!(said.contains("\n125 "), "{said}");
}

/// `globus-url-copy` 10.12 crashes in transfers with `-pp` between two servers if one of them has
/// GETPUT in FEAT.
#[test]
fn where_transfers_between_servers_are_let_in_the_tool_is_not_led_to_crash() {
    let config = "folder = \"server\"\n[gridftp]\nthird_party = true\n\
        [[export]]\nname = \"all\"\npath = \"ROOT\"\npublic = true\n\
        anonymous = [\"read\", \"list\", \"create\", \"write\"]\n";
    let [stage, other] = [208, 209].map(|seed| Stage::configured(seed, config));
    let mut client = Client::log_in(&stage);
    assert!(!client.ask("FEAT", 211).contains("GETPUT"));
    make_tree(&stage.root("tree"));
    if has_globus() {
        let flags = ["-pp", "-p", "2", "-r", "-cd"];
        run(copy(&flags).args([stage.url("/all/tree/"), other.url("/all/tree/")]));
        assert_same_tree(&stage.root("tree"), &other.root("tree"));
    }
}

#[test]
fn a_host_with_ipv6_only_is_not_offered_what_it_cannot_read() {
    if !has_globus() {
        return;
    }
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skip::test("this machine has no IPv6");
    }
    let stage = Stage::open(203, &["--gridftp=[::1]:0"]);
    let wanted = Stage::make(&stage.root("big"), BIG);
    for flags in [&["-ipv6"][..], &["-ipv6", "-no-g2"], &["-ipv6", "-p", "2"]] {
        let back = stage.here("back");
        run(copy(flags).args([stage.url("/big"), file_url(&back)]));
        assert_bytes(&back, &wanted);
        run(copy(flags).args([file_url(&back), stage.url("/up")]));
        assert_bytes(&stage.root("up"), &wanted);
        fs::remove_file(back).unwrap();
    }
}

#[test]
fn a_port_is_opened_only_for_a_transfer_that_can_be_served() {
    let stage = Stage::open(204, &[]);
    let wanted = Stage::make(&stage.root("file"), BIG);
    let mut client = Client::log_in(&stage);
    client.ask("GET path=/none;pasv;", 550);
    client.ask("PUT path=/none/file;pasv;", 550);
    // Nothing is left of them.
    client.ask("RETR /file", 425);
    let get = |client: &mut Client, line: &str| {
        let address = client.told_port(line);
        let mut stream = data(address);
        client.expect(150);
        let mut found = Vec::new();
        stream.read_to_end(&mut found).unwrap();
        client.expect(226);
        found
    };
    assert_eq!(get(&mut client, "GET path=/file;pasv;"), wanted);
    client.ask("REST 1000", 350);
    assert_eq!(get(&mut client, "get PASV;Path=/file"), wanted[1000..]);
    // What PASV has told serves too, and so do the connections of the last transfer.
    client.ask("MODE E", 200);
    let listener = client.active();
    client.ask("GET path=/file;", 150);
    let mut stream = listener.accept().unwrap().0;
    let bytes = |blocks: Vec<(u8, u64, Vec<u8>)>| blocks.iter().map(|b| b.2.len()).sum::<usize>();
    assert_eq!(bytes(blocks(&mut stream)), BIG);
    client.expect(226);
    client.ask("GET path=/file;", 125);
    assert_eq!(bytes(blocks(&mut stream)), BIG);
    client.expect(226);
    // In MODE E the sender connects, and a refused transfer leaves nothing for the next one.
    client.ask("GET path=/file;pasv;", 425);
    client.ask("RETR /file", 425);
    client.ask("PUT path=/up;port=127,0,0,1,200,0;", 425);
    client.ask("STOR /up", 425);
    let mut stream = data(client.told_port("PUT path=/up;pasv;"));
    client.expect(150);
    stream.write_all(&block(0, 3, 0, b"abc")).unwrap();
    stream.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    while client.reply().unwrap().0 != 226 {}
    assert_bytes(&stage.root("up"), b"abc");
}

#[test]
fn parameters_that_make_no_sense_change_nothing() {
    let stage = Stage::open(205, &[]);
    Stage::make(&stage.root("file"), 1000);
    let mut client = Client::connect(&stage);
    client.ask("GET path=/file;pasv;", 530);
    client.ask("USER anonymous", 331);
    client.ask("PASS x", 230);
    for line in [
        "GET",
        "PUT /new",
        "PUT pasv;",
        "PUT path=;pasv;",
        "PUT path=/new;pasv;port=127,0,0,1,200,0;",
        "PUT path=/new;path=/new;pasv;",
        "PUT path=/new;port=127,0,0,1,200;",
        "PUT path=/new;port=999,0,0,1,200,0;",
        "PUT path=/new;size=99999999999999999999999;pasv;",
        "PUT path=/new;mode=Q;pasv;",
        "PUT path=/n\0w;pasv;",
        "PUT path=/n\rw;pasv;",
        "PUT path=/n\nw;pasv;",
        // A bounce, and a port of services.
        "GET path=/file;port=10,0,0,9,200,0;",
        "PUT path=/new;port=10,0,0,9,200,0;",
        "GET path=/file;port=127,0,0,1,0,25;",
    ] {
        client.send(format!("{line}\r\n").as_bytes());
        let (code, text) = client.reply().unwrap();
        assert!((500..=504).contains(&code), "{line}: {text}");
        client.ask("NOOP", 200);
    }
    let most = format!("PUT {};path=/new", "x;".repeat(4000));
    client.ask(&most, 501);
    client.ask(&format!("PUT path={};pasv;", "/d".repeat(4200)), 500);
    let long = format!("PUT path=/{};pasv;", "n".repeat(4000));
    let (code, text) = {
        client.send(format!("{long}\r\n").as_bytes());
        client.reply().unwrap()
    };
    assert!((500..=553).contains(&code), "{text}");
    assert_eq!(names(&stage), ["file"]);
}

#[test]
fn rights_are_those_of_other_transfers() {
    let config =
        "folder = \"server\"\n[[export]]\nname = \"data\"\npath = \"ROOT\"\npublic = true\n";
    let stage = Stage::configured(206, config);
    let wanted = Stage::make(&stage.root("file"), 1000);
    let mut client = Client::log_in(&stage);
    client.ask("PUT path=/data/file;pasv;", 550);
    client.ask("PUT path=/data/new;pasv;", 550);
    client.ask("GET path=/data/../../file;pasv;", 550);
    assert_bytes(&stage.root("file"), &wanted);
    assert_eq!(names(&stage), ["file"]);
    if has_globus() {
        let there = stage.url("/data/new");
        let (succeeded, text) = outcome(copy(&[]).args([file_url(&stage.root("file")), there]));
        assert!(!succeeded && text.contains("550"), "{text}");
    }
}

#[test]
fn a_client_that_leaves_after_reply_127_leaves_nothing() {
    let stage = Stage::open(207, &[]);
    let mut client = Client::log_in(&stage);
    let address = client.told_port("PUT path=/new;pasv;");
    let mut stream = data(address);
    client.expect(150);
    stream.write_all(b"half").unwrap();
    drop(client);
    assert!(wait::until(PATIENCE, || names(&stage).is_empty()));
    // One that never connects is told so, and can go on.
    let mut client = Client::log_in(&stage);
    client.told_port("PUT path=/new;pasv;");
    client.expect(150);
    client.send(b"ABOR\r\n");
    client.expect(426);
    client.expect(226);
    client.ask("NOOP", 200);
    assert!(names(&stage).is_empty());
}
