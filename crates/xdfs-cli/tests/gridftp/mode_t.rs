//! MODE T: trees in segments, between our ends, with GNU tar as the other end, and with peers that
//! break the rules or are killed.

use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use xdfs_testkit::process::Guard;
use xdfs_testkit::{tree::random_bytes, wait};

use crate::client::{Client, EOD, EOF, block, blocks, data};
use crate::fake::Fake;
use crate::places::xdfs;
use crate::stage::{PATIENCE, Stage, assert_same_tree, names, outcome, run};

/// Facts and features of a server with segments.
const SEGMENTS: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n MODE T none;gzip;\r\n";

/// The commands that read trees.
const COMMANDS: [&[&str]; 2] = [&["cp", "-r"], &["sync"]];

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Makes a tree of small files, of which some have unusual names.
fn make_tree(root: &Path, files: usize) {
    for number in 0..files {
        let path = root.join(format!("d{}/e{}/f{number}", number % 7, number % 3));
        Stage::make(&path, 1 + number * 7919 % 90_000);
    }
    fs::create_dir_all(root.join("empty/x")).unwrap();
    fs::write(root.join("nothing"), "").unwrap();
    let long = "l".repeat(120);
    fs::create_dir_all(root.join(&long)).unwrap();
    fs::write(root.join(&long).join(format!("{long} \u{e4}")), "long").unwrap();
    fs::write(
        root.join(std::ffi::OsStr::from_bytes(b"not \xfe UTF-8")),
        "raw",
    )
    .unwrap();
    fs::write(root.join("secret"), "secret").unwrap();
    fs::set_permissions(root.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o750)).unwrap();
}

/// Fails unless modes and times in whole seconds are the same.
#[track_caller]
fn assert_same_attributes(a: &Path, b: &Path) {
    let list = |root: &Path| {
        let mut find = Command::new("find");
        let find = find
            .current_dir(root)
            .args([".", "-mindepth", "1", "-printf"]);
        let mut lines: Vec<_> = run(find.arg("%P %m %TY%Tm%Td%TH%TM%.2TS\n"))
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    assert_eq!(list(a), list(b));
}

/// How many segments the server has sent or stored, as it says in its log.
fn segments(stage: &Stage) -> usize {
    let lines = stage.server.output();
    lines
        .iter()
        .filter(|line| line.contains("a segment is s"))
        .count()
}

#[test]
fn trees_travel_in_segments_both_ways() {
    let stage = Stage::open(120, &[]);
    let (tree, target) = (stage.root("tree"), stage.here("tree"));
    make_tree(&tree, 300);
    // One that no segment takes.
    Stage::make(&tree.join("large"), 3_000_000);
    let down = [
        "cp",
        "-r",
        "--insecure",
        &stage.url("/tree"),
        &text(&target),
    ];
    run(&mut xdfs(&stage, &down));
    assert_same_tree(&tree, &target);
    assert_same_attributes(&tree, &target);
    let sent = segments(&stage);
    assert!(sent > 5, "{sent} segments");
    run(&mut xdfs(
        &stage,
        &["cp", "-r", "--insecure", &text(&target), &stage.url("/up")],
    ));
    assert_same_tree(&tree, &stage.root("up"));
    assert_same_attributes(&tree, &stage.root("up"));
    assert!(segments(&stage) > sent + 5);
    // Files that are there are neither sent again nor replaced.
    fs::write(target.join("nothing"), "other").unwrap();
    let (succeeded, said) = outcome(&mut xdfs(
        &stage,
        &down[..4]
            .iter()
            .copied()
            .chain([text(&stage.here("")).as_str()])
            .collect::<Vec<_>>(),
    ));
    assert!(!succeeded && said.contains("nothing"), "{said}");
    assert_eq!(fs::read(target.join("nothing")).unwrap(), b"other");
    let up = ["cp", "-r", "--insecure", &text(&target), &stage.url("/")];
    fs::rename(stage.root("up"), stage.root("tree2")).unwrap();
    let (succeeded, said) = outcome(&mut xdfs(&stage, &up));
    assert!(!succeeded && said.contains("nothing"), "{said}");
    assert_eq!(fs::read(tree.join("nothing")).unwrap(), b"");
}

/// Sends a segment. Returns the last reply.
#[track_caller]
fn store(client: &mut Client, how: &str, wire: &[u8], sum: &str) -> (u16, String) {
    client.ask(&format!("SCKS {sum}"), 200);
    let address = client.passive();
    client.send(format!("ESTO T {how}\r\n").as_bytes());
    let mut stream = data(address);
    client.expect(150);
    // The second half first, since blocks come in any order.
    let half = wire.len() / 2;
    for (start, end) in [(half, wire.len()), (0, half)] {
        let part = &wire[start..end];
        let sent = stream.write_all(&block(0, part.len() as u64, start as u64, part));
        if sent.is_err() {
            break;
        }
    }
    // The server may have refused it already.
    let _ = stream.write_all(&block(EOF | EOD, 0, 1, b""));
    loop {
        let (code, said) = client.reply().expect("the connection was closed");
        if code >= 200 {
            return (code, said);
        }
    }
}

/// The MD5 of bytes, for SCKS.
fn md5(stage: &Stage, bytes: &[u8]) -> String {
    fs::write(stage.beside("sum"), bytes).unwrap();
    let said = run(Command::new("md5sum").arg(stage.beside("sum")));
    format!("MD5 {}", &said[..32])
}

/// What GNU tar makes with these words.
#[track_caller]
fn tar(stage: &Stage, words: &[&str]) -> Vec<u8> {
    let out = stage.beside("out.tar");
    let mut command = Command::new("tar");
    let command = command.current_dir(stage.here("in")).arg("-cf").arg(&out);
    run(command.args(words));
    fs::read(out).unwrap()
}

#[test]
fn segments_of_gnu_tar_are_stored() {
    let stage = Stage::open(121, &[]);
    make_tree(&stage.here("in"), 20);
    let all: Vec<_> = fs::read_dir(stage.here("in"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    let mut client = Client::log_in(&stage);
    client.ask("MODE T", 200);
    let flags = ["-z", "-j", "--zstd", ""];
    for (compression, flag) in ["gzip", "bzip2", "zstd", "none"].iter().zip(flags) {
        for format in ["gnu", "pax"] {
            let out = stage.beside("out.tar");
            let mut command = Command::new("tar");
            command.current_dir(stage.here("in")).arg("-cf").arg(&out);
            command.args([flag].iter().filter(|flag| !flag.is_empty()));
            run(command.arg(format!("--format={format}")).args(&all));
            let wire = fs::read(&out).unwrap();
            let path = format!("/{compression}-{format}");
            let sum = md5(&stage, &wire);
            let how = format!("{compression} new {path}");
            let (code, said) = store(&mut client, &how, &wire, &sum);
            assert_eq!(code, 226, "{said}");
            assert_same_tree(&stage.here("in"), &stage.root(&path[1..]));
            // The same once more: nothing is replaced unless that is wanted, and nothing lost.
            let (code, said) = store(&mut client, &how, &wire, &sum);
            assert!(code == 550 && said.contains("Failed="), "{said}");
            let how = format!("{compression} any {path}");
            assert_eq!(store(&mut client, &how, &wire, &sum).0, 226);
            assert_same_tree(&stage.here("in"), &stage.root(&path[1..]));
        }
    }
}

#[test]
fn evil_segments_are_refused_and_store_nothing() {
    let stage = Stage::open(122, &[]);
    let inside = stage.here("in");
    fs::create_dir_all(&inside).unwrap();
    fs::write(inside.join("good"), "good").unwrap();
    fs::write(stage.here("outside"), "evil").unwrap();
    std::os::unix::fs::symlink("../../etc", inside.join("link")).unwrap();
    fs::hard_link(inside.join("good"), inside.join("hard")).unwrap();
    run(Command::new("truncate")
        .args(["-s", "1G"])
        .arg(inside.join("sparse")));
    run(Command::new("truncate")
        .args(["-s", "200M"])
        .arg(inside.join("bomb")));
    run(Command::new("mkfifo").arg(inside.join("pipe")));
    let good = tar(&stage, &["good"]);
    let twice = {
        let out = text(&stage.beside("out.tar"));
        tar(&stage, &["good"]);
        run(Command::new("tar")
            .current_dir(&inside)
            .args(["-rf", &out, "good"]));
        fs::read(&out).unwrap()
    };
    let mut other_size = good.clone();
    other_size[124..135].copy_from_slice(b"00000077777");
    let absolute = text(&stage.here("outside"));
    let cases: Vec<(&str, &str, Vec<u8>)> = vec![
        ("above", "none", tar(&stage, &["good", "-P", "../outside"])),
        ("absolute", "none", tar(&stage, &["good", "-P", &absolute])),
        ("link", "none", tar(&stage, &["good", "link"])),
        ("hard link", "none", tar(&stage, &["good", "hard"])),
        ("pipe", "none", tar(&stage, &["good", "pipe"])),
        (
            "sparse",
            "none",
            tar(&stage, &["good", "--format=gnu", "--sparse", "sparse"]),
        ),
        ("bomb", "gzip", tar(&stage, &["good", "-z", "bomb"])),
        ("bomb", "bzip2", tar(&stage, &["good", "-j", "bomb"])),
        ("bomb", "zstd", tar(&stage, &["good", "--zstd", "bomb"])),
        ("truncated", "none", good[..good.len() - 9000].to_vec()),
        ("header only", "none", good[..512].to_vec()),
        ("truncated", "gzip", {
            let wire = tar(&stage, &["-z", "good"]);
            wire[..wire.len() - 5].to_vec()
        }),
        ("wrong size", "none", other_size),
        ("doubled", "none", twice),
        ("no archive", "none", b"nothing".to_vec()),
        ("no archive", "zstd", b"nothing".to_vec()),
        ("empty", "none", Vec::new()),
    ];
    let mut client = Client::log_in(&stage);
    client.ask("ESTO T none new /t", 503);
    client.ask("MODE T", 200);
    client.ask("ESTO T none new /t", 503);
    for (name, compression, wire) in cases {
        let how = format!("{compression} any /t");
        let sum = md5(&stage, &wire);
        let (code, said) = store(&mut client, &how, &wire, &sum);
        assert!(code >= 500, "{name} {compression}: {said}");
        assert!(!said.contains("Failed="), "{name} {compression}: {said}");
        assert_eq!(names(&stage), [""; 0], "{name} {compression}");
    }
    // Damaged on the way, and more bytes than any segment has.
    let wrong = md5(&stage, b"another");
    let (code, said) = store(&mut client, "none any /t", &good, &wrong);
    assert!(code == 550 && said.contains("checksum"), "{said}");
    let large = vec![0; (16 << 20) + 512];
    let sum = md5(&stage, &large);
    let (code, said) = store(&mut client, "none any /t", &large, &sum);
    assert!(code >= 450 && said.contains("16 MiB"), "{code} {said}");
    assert_eq!(names(&stage), [""; 0]);
    for words in ["T lzma new /t", "T none old /t", "T none new", "T"] {
        client.send(format!("ESTO {words}\r\n").as_bytes());
        assert!(client.reply().unwrap().0 >= 500, "{words}");
    }
    let sum = md5(&stage, &good);
    assert_eq!(store(&mut client, "none new /t", &good, &sum).0, 226);
    assert_eq!(fs::read(stage.root("t/good")).unwrap(), b"good");
}

/// Asks for what comes over a data connection. Returns it with the confirmation.
#[track_caller]
fn fetch(client: &mut Client, command: &str) -> Result<(Vec<u8>, String), String> {
    let listener = client.active();
    client.send(format!("{command}\r\n").as_bytes());
    let (code, said) = client.reply().unwrap();
    if code != 150 {
        return Err(said);
    }
    let mut stream = listener.accept().unwrap().0;
    let mut bytes = Vec::new();
    for (_, offset, payload) in blocks(&mut stream) {
        bytes.resize(bytes.len().max(usize::try_from(offset).unwrap()), 0);
        if !payload.is_empty() {
            bytes.truncate(usize::try_from(offset).unwrap());
            bytes.extend_from_slice(&payload);
        }
    }
    Ok((bytes, client.expect(226)))
}

/// The value in `Name=value;`.
fn value<'a>(said: &'a str, name: &str) -> &'a str {
    let rest = said.split_once(&format!("{name}=")).unwrap().1;
    rest.split(';').next().unwrap()
}

#[test]
fn a_transaction_goes_on_after_the_server_was_killed() {
    let mut stage = Stage::open(123, &[]);
    let tree = stage.root("tree");
    fs::create_dir_all(tree.join("d")).unwrap();
    for (name, bytes) in [("d/c", 3000), ("b", 200), ("a", 1000)] {
        fs::write(tree.join(name), random_bytes(bytes as u64, bytes)).unwrap();
    }
    let mut client = Client::log_in(&stage);
    client.ask("MODE T", 200);
    let (rows, said) = fetch(&mut client, "MLSR /tree").unwrap();
    let rows = String::from_utf8(rows).unwrap();
    let paths: Vec<_> = rows
        .lines()
        .map(|row| row.split_once(' ').unwrap().1)
        .collect();
    assert_eq!(
        paths,
        ["d", "b", "a", "d/c"],
        "directories, and then by size"
    );
    let transaction = value(&said, "Transaction").to_owned();
    assert_eq!(value(&said, "Entries"), "4");
    // Any segments in any order, and twice.
    let unpacked = stage.here("unpacked");
    fs::create_dir(&unpacked).unwrap();
    let archive = stage.beside("in.tar");
    let unpack = |wire: &[u8]| {
        fs::write(&archive, wire).unwrap();
        let mut tar = Command::new("tar");
        let tar = tar.arg("-xf").arg(&archive).arg("-C");
        run(tar.arg(&unpacked));
    };
    for (numbers, compression, count) in
        [("3", "zstd", "1"), ("0-1", "gzip", "1"), ("3", "none", "1")]
    {
        let command = format!("ERET T {transaction} {compression} {numbers} /tree");
        let (wire, said) = fetch(&mut client, &command).unwrap();
        assert_eq!(value(&said, "Entries"), count, "{said}");
        unpack(&wire);
    }
    for words in [
        format!("{transaction} none 4 /tree"),
        format!("{transaction} none 1 /other"),
        format!("{} none 1 /tree", "0".repeat(32)),
        format!("{transaction} lzma 1 /tree"),
        format!("{transaction} none 2-1 /tree"),
        format!("{transaction} none 1,1 /tree"),
        "1 none 1 /tree".to_owned(),
    ] {
        let refused = fetch(&mut client, &format!("ERET T {words}"));
        assert!(refused.is_err(), "{words}: {refused:?}");
    }
    stage.kill_and_restart();
    let mut client = Client::log_in(&stage);
    client.ask("MODE T", 200);
    let command = format!("ERET T {transaction} bzip2 2 /tree");
    let (wire, _) = fetch(&mut client, &command).unwrap();
    unpack(&wire);
    assert_same_tree(&tree, &unpacked);
    // A file that has changed isn't in a segment of the transaction any more, and after another
    // start it is another tree.
    fs::write(tree.join("a"), "changed").unwrap();
    let (_, said) = fetch(&mut client, &command).unwrap();
    assert_eq!(value(&said, "Entries"), "0");
    stage.kill_and_restart();
    let mut client = Client::log_in(&stage);
    client.ask("MODE T", 200);
    let said = fetch(&mut client, &command).unwrap_err();
    assert!(said.contains("has changed"), "{said}");
}

#[test]
fn servers_that_send_evil_segments_make_no_files() {
    let stage = Stage::open(124, &[]);
    let inside = stage.here("in");
    fs::create_dir_all(&inside).unwrap();
    for (name, content) in [("f", "1234"), ("g", "5678"), ("longer", "123456789")] {
        fs::write(inside.join(name), content).unwrap();
    }
    fs::write(stage.here("outside"), "evil").unwrap();
    std::os::unix::fs::symlink("../../outside", inside.join("link")).unwrap();
    let crc = |wire: &[u8]| {
        let path = stage.beside("crc");
        fs::write(&path, wire).unwrap();
        let said = run(&mut xdfs(
            &stage,
            &["sum", "--digest", "crc64nvme", &text(&path)],
        ));
        said.split_whitespace().next().unwrap().to_owned()
    };
    let good = tar(&stage, &["f"]);
    let sum = crc(&good);
    let cases = [
        ("above", tar(&stage, &["-P", "../outside"]), None),
        ("link", tar(&stage, &["link"]), None),
        ("another file", tar(&stage, &["g"]), None),
        (
            "another size",
            tar(&stage, &["--transform=s/longer/f/", "longer"]),
            None,
        ),
        ("truncated", good[..600].to_vec(), None),
        (
            "another checksum",
            good.clone(),
            Some("0123456789abcdef".to_owned()),
        ),
        ("damaged", [&good[..], &[1; 512]].concat(), Some(sum)),
    ];
    for (name, wire, told) in cases {
        let told = told.unwrap_or_else(|| crc(&wire));
        let fake = Fake::start(SEGMENTS, move |verb, argument, talk| {
            let mut send = |bytes: &[u8], said: &str| {
                talk.say("150 now\r\n");
                let mut data = talk.data();
                data.write_all(&block(0, bytes.len() as u64, 0, bytes))
                    .unwrap();
                data.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
                talk.say(&format!("226 {said}\r\n"));
            };
            match verb {
                "MLSR" => {
                    let transaction = "0".repeat(32);
                    let said = format!("Transaction={transaction};Entries=1;");
                    send(b"Type=file;Size=4;Modify=20260102030405; f\r\n", &said);
                }
                "ERET" => send(&wire, &format!("CRC64NVME={told};Entries=1;")),
                "MLST" if argument != "/d" => {
                    talk.say("550 No such file\r\n");
                }
                _ => return false,
            }
            true
        });
        let target = stage.here("target");
        let asked = || {
            let commands = fake.commands();
            let segments = commands.iter().filter(|line| line.starts_with("ERET T"));
            segments.count()
        };
        for command in COMMANDS {
            let before = asked();
            let more = ["--retries=0", "--insecure", &fake.url("/d"), &text(&target)];
            let (succeeded, said) = outcome(&mut xdfs(&stage, &[command, &more[..]].concat()));
            assert!(asked() > before, "{name}: {said}");
            assert!(!succeeded, "{name}: {said}");
            let made = fs::read_dir(&target).map_or(0, Iterator::count);
            assert_eq!(made, 0, "{name}: {said}");
            assert_eq!(fs::read(stage.here("outside")).unwrap(), b"evil", "{name}");
            let _ = fs::remove_dir_all(&target);
        }
    }
}

#[test]
fn servers_without_segments_get_files() {
    let stage = Stage::open(125, &[]);
    // It says that it has segments, and refuses them.
    let fake = Fake::start(SEGMENTS, |verb, _, talk| {
        match verb {
            "MLSD" => talk.send(b"Type=file;Size=1000;Modify=20260102030405; f\r\n"),
            "MLSR" | "ERET" => {
                talk.say("550 not that\r\n");
            }
            _ => return false,
        }
        true
    });
    for (command, target) in COMMANDS.into_iter().zip(["copied", "synced"]) {
        let target = stage.here(target);
        let more = ["--retries=0", "--insecure", &fake.url("/d"), &text(&target)];
        run(&mut xdfs(&stage, &[command, &more[..]].concat()));
        assert_eq!(fs::read(target.join("f")).unwrap(), crate::fake::content());
    }
    let read = |line: &&String| line.starts_with("RETR");
    assert_eq!(fake.commands().iter().filter(read).count(), 2);
}

/// Moves a tree slowly by a command, which is returned after this time, once some of it is there.
#[track_caller]
fn begun(
    stage: &Stage,
    command: &[&str],
    [from, to]: [&str; 2],
    target: &Path,
    time: Duration,
) -> Guard {
    let began = Instant::now();
    let more = ["-v", "--insecure", "--limit-rate=3M", from, to];
    let client = Guard::spawn(&mut xdfs(stage, &[command, &more[..]].concat())).unwrap();
    let has_some = || {
        let mut find = Command::new("find");
        let found = find
            .arg(target)
            .args(["-type", "f", "-name", "f*"])
            .output()
            .unwrap();
        let count = found.stdout.iter().filter(|byte| **byte == b'\n').count();
        count > 40 && began.elapsed() >= time
    };
    assert!(wait::until(PATIENCE, has_some), "{:?}", client.output());
    client
}

#[test]
fn a_killed_client_goes_on_with_its_tree() {
    let stage = Stage::open(126, &[]);
    for is_upload in [false, true] {
        let (here, there) = match is_upload {
            false => (stage.here("down"), stage.root("tree")),
            true => (stage.here("source"), stage.root("up")),
        };
        let url = stage.url(if is_upload { "/up" } else { "/tree" });
        let here_text = text(&here);
        let (from, to, source, target) = match is_upload {
            false => (url.as_str(), here_text.as_str(), &there, &here),
            true => (here_text.as_str(), url.as_str(), &here, &there),
        };
        make_tree(source, 400);
        // The journal claims what is durable after two seconds.
        let mut client = begun(
            &stage,
            &["cp", "-r"],
            [from, to],
            target,
            Duration::from_secs(4),
        );
        client.kill().unwrap();
        let said = run(&mut xdfs(&stage, &["cp", "-r", "--insecure", from, to]));
        assert_same_tree(source, target);
        assert!(said.contains("were there already"), "{said}");
    }
}

#[test]
fn a_killed_server_is_waited_for_with_a_tree() {
    let mut stage = Stage::open(127, &[]);
    for (is_upload, command) in [
        (false, &["cp", "-r"][..]),
        (true, &["cp", "-r"]),
        (false, &["sync"]),
        (true, &["sync"]),
    ] {
        let name = command[0];
        let (here, there) = match is_upload {
            false => (stage.here(name), stage.root("tree")),
            true => (stage.here("source"), stage.root(&format!("up-{name}"))),
        };
        let url = match is_upload {
            false => stage.url("/tree"),
            true => stage.url(&format!("/up-{name}")),
        };
        let here_text = text(&here);
        let (from, to, source, target) = match is_upload {
            false => (url.as_str(), here_text.as_str(), &there, &here),
            true => (here_text.as_str(), url.as_str(), &here, &there),
        };
        make_tree(source, 400);
        let mut client = begun(&stage, command, [from, to], target, Duration::ZERO);
        stage.server.kill().unwrap();
        // Longer than entries of trees are retried for by themselves.
        std::thread::sleep(Duration::from_secs(6));
        stage.kill_and_restart();
        let status = client.wait(PATIENCE).unwrap();
        let said = client.output();
        assert!(status.is_some_and(|status| status.success()), "{said:?}");
        assert_same_tree(source, target);
    }
}
