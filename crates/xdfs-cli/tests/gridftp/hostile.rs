//! Peers that break the rules, or use them to the full. Each gets a clear reply, the session goes
//! on or ends cleanly, and nothing is lost.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use xdfs_testkit::{skip, wait};

use crate::client::{Client, EOD, EOF, block, blocks, data};
use crate::stage::{PATIENCE, Stage, assert_bytes, has, names};

#[test]
fn lines_of_any_bytes_get_one_reply_each() {
    let stage = Stage::open(10, &[]);
    let mut client = Client::log_in(&stage);
    client.send(b"NOOP\nNOOP\r\n");
    client.expect(501);
    client.send(b"RETR a\0b\r\n");
    client.expect(501);
    client.send(b"\xff\xfe\x80 \x01\r\n\r\n");
    client.expect(500);
    client.expect(500);
    let long = [b"RETR ".to_vec(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
    client.send(&long);
    client.expect(500);
    // Nothing of the long line is read as a command.
    client.ask("PWD", 257);
    for line in [
        "REST -5", "REST 5-3", "REST x", "ALLO x", "PORT 1,2", "MODE Q", "TYPE E", "CKSM",
    ] {
        let (code, text) = {
            client.send(format!("{line}\r\n").as_bytes());
            client.reply().unwrap()
        };
        assert!((500..=504).contains(&code), "{line}: {text}");
    }
    client.ask("QUIT", 221);
    assert!(client.reply().is_none());
}

#[test]
fn a_flood_of_commands_is_answered_in_order_and_in_bounded_memory() {
    let stage = Stage::open(11, &[]);
    Stage::make(&stage.root("small"), 7);
    let mut client = Client::log_in(&stage);
    let many = 20_000;
    // Replies aren't read meanwhile, so the server has to stop reading at some time.
    let flood = b"SIZE small\r\nNOOP\r\nSIZE none\r\n".repeat(many);
    std::thread::scope(|scope| {
        let mut writer = client.writer();
        let sending = scope.spawn(move || writer.write_all(&flood).unwrap());
        for _ in 0..many {
            client.expect(213);
            client.expect(200);
            client.expect(550);
        }
        sending.join().unwrap();
    });
    // One that never reads holds nobody up.
    let mut deaf = Client::log_in(&stage);
    deaf.stop_waiting();
    while deaf.try_send(&b"FEAT\r\n".repeat(1000)) {}
    client.ask("NOOP", 200);
    let status = fs::read_to_string(format!("/proc/{}/status", stage.server.id())).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 200 << 10, "{kib} KiB");
}

#[test]
fn paths_stay_within_what_is_served() {
    let stage = Stage::open(12, &[]);
    fs::write(stage.here("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(stage.here(""), stage.root("out")).unwrap();
    std::os::unix::fs::symlink(stage.here("secret"), stage.root("file")).unwrap();
    let mut client = Client::log_in(&stage);
    for path in [
        "../here/secret",
        "/../../here/secret",
        "out/secret",
        "file",
        "/etc/passwd",
    ] {
        client.passive();
        client.ask(&format!("RETR {path}"), 550);
        client.ask(&format!("SIZE {path}"), 550);
        client.ask(&format!("CKSM MD5 0 -1 {path}"), 550);
    }
    client.ask("CWD out", 550);
    client.ask("CWD ../..", 250);
    client.ask("PWD", 257);
    client.passive();
    client.ask("STOR out/new", 550);
    assert_eq!(fs::read_dir(stage.here("")).unwrap().count(), 1);
}

#[test]
fn names_cannot_forge_rows_or_replies() {
    let stage = Stage::open(13, &[]);
    for name in ["a\r\nType=dir; b", "c\nd", "\r\n226 done", "fine"] {
        fs::write(
            stage
                .root("")
                .join(std::ffi::OsStr::from_bytes(name.as_bytes())),
            "x",
        )
        .unwrap();
    }
    let mut client = Client::log_in(&stage);
    for command in ["MLSD", "LIST", "NLST", "MLSR"] {
        let mut stream = data(client.passive());
        client.ask(command, 150);
        let mut rows = String::new();
        stream.read_to_string(&mut rows).unwrap();
        client.expect(226);
        let rows: Vec<_> = rows.split_terminator("\r\n").collect();
        let about_itself = usize::from(command == "MLSD");
        assert_eq!(rows.len(), 1 + about_itself, "{rows:?}");
        assert!(rows.last().unwrap().ends_with("fine"), "{rows:?}");
    }
    let text = client.ask("MLSC", 250);
    assert!(!text.contains("226") && text.contains("fine"), "{text}");
    client.ask("NOOP", 200);
}

#[test]
fn data_connections_do_not_go_to_or_come_from_other_hosts() {
    if !has("python3") {
        return skip::test("python3 is not installed");
    }
    let stage = Stage::open(14, &[]);
    let wanted = Stage::make(&stage.root("file"), 1000);
    let mut client = Client::log_in(&stage);
    let victim = TcpListener::bind("127.0.0.2:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let [high, low] = victim.local_addr().unwrap().port().to_be_bytes();
    client.ask(&format!("PORT 127,0,0,2,{high},{low}"), 500);
    client.ask(
        &format!("EPRT |1|127.0.0.2|{}|", u16::from_be_bytes([high, low])),
        500,
    );
    client.ask("PORT 127,0,0,1,0,22", 500);
    client.ask("RETR file", 425);
    assert!(victim.accept().is_err());
    // Another host is quicker than the client.
    let address = client.passive();
    let script = format!(
        "import socket; own = ('127.0.0.2', 0); s = socket.create_connection(('127.0.0.1', {}), \
         source_address=own); s.settimeout(60); print('opened', flush=True); \
         print('stolen', len(s.recv(10)))",
        address.port()
    );
    let mut thief = Command::new("python3");
    let mut thief = xdfs_testkit::process::Guard::spawn(thief.args(["-c", &script])).unwrap();
    let opened = thief.line(PATIENCE, |line| (line == "opened").then_some(()));
    assert!(opened.is_some());
    client.ask("RETR file", 150);
    let mut bytes = Vec::new();
    data(address).read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, wanted);
    client.expect(226);
    thief.wait(PATIENCE).unwrap();
    assert!(
        !thief
            .output()
            .iter()
            .any(|line| line.starts_with("stolen 1")),
        "{:?}",
        thief.output()
    );
}

#[test]
fn the_operator_can_allow_other_hosts() {
    let config = "root = \"ROOT\"\ninsecure = true\n[gridftp]\nthird_party = true\n";
    let stage = Stage::configured(15, config);
    let wanted = Stage::make(&stage.root("file"), 1000);
    let mut client = Client::log_in(&stage);
    let other = TcpListener::bind("127.0.0.2:0").unwrap();
    let [high, low] = other.local_addr().unwrap().port().to_be_bytes();
    client.ask(&format!("PORT 127,0,0,2,{high},{low}"), 200);
    client.ask("RETR file", 150);
    let mut bytes = Vec::new();
    other.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, wanted);
    client.expect(226);
    client.ask("PORT 127,0,0,2,0,22", 500);
    client.ask("PORT 0,0,0,0,200,0", 500);
    client.ask("PORT 224,0,0,1,200,0", 500);
}

/// Stores a file in MODE E by these bytes on one connection, and returns the last reply.
fn store(client: &mut Client, bytes: &[u8], closes: bool) -> (u16, String) {
    let mut stream = data(client.passive());
    client.ask("STOR new", 150);
    stream.write_all(bytes).unwrap();
    if closes {
        drop(stream);
    }
    loop {
        let (code, text) = client.reply().unwrap();
        if code >= 200 {
            return (code, text);
        }
    }
}

#[test]
fn blocks_that_make_no_sense_fail_the_transfer_and_nothing_else() {
    let stage = Stage::open(16, &[]);
    let old = Stage::make(&stage.root("new"), 100);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    let whole = block(0, 3, 0, b"abc");
    for (bytes, closes, word) in [
        (block(EOF | EOD, 0, 0, b""), false, "announces 0"),
        (block(EOF | EOD, 0, u64::MAX, b""), false, "announces"),
        (block(EOF | EOD, 3, 1, b"abc"), false, "has payload"),
        (block(0, u64::MAX, 0, b"abc"), false, "past the largest"),
        (block(0, 3, u64::MAX - 1, b"abc"), false, "past the largest"),
        (block(0x10, 3, 0, b"abc"), false, "unknown descriptor"),
        (
            [block(EOF, 0, 2, b""), block(EOF, 0, 3, b"")].concat(),
            false,
            "different",
        ),
        // It ends within a header, within payload, and before its EOD.
        (vec![0, 0, 0], true, "before its EOD"),
        (block(0, 100, 0, b"abc"), true, "before its EOD"),
        (whole.clone(), true, "before its EOD"),
        (Vec::new(), true, "before its EOD"),
        (
            [whole, block(EOF, 0, 1, b"")].concat(),
            true,
            "before its EOD",
        ),
    ] {
        let (code, text) = store(&mut client, &bytes, closes);
        assert!(matches!(code, 426 | 500), "{text}");
        assert!(text.contains(word), "{word}: {text}");
        assert_bytes(&stage.root("new"), &old);
        client.ask("NOOP", 200);
    }
    // An EOD too many: two have come, whichever way round, when the EOF says that there is one.
    let address = client.passive();
    let mut first = data(address);
    client.ask("STOR new", 150);
    let mut second = data(address);
    second.write_all(&block(EOD, 0, 0, b"")).unwrap();
    let mut third = data(address);
    third.write_all(&block(EOD, 0, 0, b"")).unwrap();
    client.expect(112);
    // The next markers come after all that.
    client.expect(112);
    first.write_all(&block(EOF, 0, 1, b"")).unwrap();
    let (code, text) = client.reply().unwrap();
    assert_eq!(code, 500, "{text}");
    assert!(text.contains("more EODs"), "{text}");
    assert_bytes(&stage.root("new"), &old);
    // What was told by a marker is kept for a restart, and this time something was.
    let (code, _) = store(&mut client, &block(EOF | EOD, 0, 1, b""), false);
    assert_eq!(code, 226);
    assert_bytes(&stage.root("new"), b"");
    let (code, _) = store(&mut client, &block(0, 100, 0, b"abc"), true);
    assert_eq!(code, 426);
    assert_eq!(names(&stage), ["new"]);
}

/// Its sender says that they may be wrong (RFC 959, section 3.4.2).
#[test]
fn suspect_data_is_not_stored() {
    const SUSPECT: u8 = 0x20;
    let stage = Stage::open(1022, &[]);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    for bytes in [
        [block(SUSPECT, 3, 0, b"abc"), block(EOF | EOD, 0, 1, b"")].concat(),
        [
            block(0, 3, 0, b"abc"),
            block(SUSPECT | EOF | EOD, 0, 1, b""),
        ]
        .concat(),
    ] {
        let (code, text) = store(&mut client, &bytes, false);
        assert_eq!(code, 451, "{text}");
        assert!(text.contains("suspect data"), "{text}");
        assert!(!stage.root("new").exists());
    }
    let bytes = [block(0, 3, 0, b"abc"), block(EOF | EOD, 0, 1, b"")].concat();
    let (code, text) = store(&mut client, &bytes, false);
    assert_eq!(code, 226, "{text}");
    assert_bytes(&stage.root("new"), b"abc");
}

#[test]
fn every_order_of_blocks_is_understood() {
    let stage = Stage::open(17, &[]);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    // Backwards, twice, over each other, empty, and an EOD in a block with payload.
    let mut bytes = vec![
        block(0, 2, 6, b"gh"),
        block(EOF, 0, 1, b""),
        block(0, 2, 8, b"xy"),
        block(0, 0, u64::MAX, b""),
        block(0x80, 4, 2, b"cdef"),
        block(0, 4, 0, b"abcd"),
        block(EOD, 1, 9, b"z"),
    ];
    let (code, text) = store(&mut client, &bytes.concat(), false);
    assert_eq!(code, 226, "{text}");
    assert_bytes(&stage.root("new"), b"abcdefghxz");
    // With a gap it is not the file that was sent.
    bytes.remove(0);
    let (code, text) = store(&mut client, &bytes.concat(), false);
    assert_eq!(code, 554, "{text}");
    assert_bytes(&stage.root("new"), b"abcdefghxz");
    // The EOF comes first, the other connection later, on ports that were told once; and the next
    // file comes on the same connections.
    let address = client.passive();
    let mut first = data(address);
    client.ask("STOR one", 150);
    first.write_all(&block(EOF | EOD, 0, 2, b"")).unwrap();
    let mut second = data(address);
    second.write_all(&block(EOD, 3, 0, b"abc")).unwrap();
    client.expect(112);
    client.expect(112);
    let markers = client.expect(111);
    assert_eq!(markers, "111 Range Marker 0-3");
    client.expect(226);
    assert_bytes(&stage.root("one"), b"abc");
    client.send(b"STOR two\r\nSTOR three\r\n");
    client.expect(125);
    // Both files at once, before the second command was begun.
    let next = |bytes: &[u8]| block(EOD, bytes.len() as u64, 0, bytes);
    second
        .write_all(&[next(b"2222"), next(b"33333")].concat())
        .unwrap();
    first
        .write_all(&block(EOF | EOD, 0, 2, b"").repeat(2))
        .unwrap();
    for code in [112, 112, 111, 226, 125, 112, 112, 111, 226] {
        client.expect(code);
    }
    assert_bytes(&stage.root("two"), b"2222");
    assert_bytes(&stage.root("three"), b"33333");
    // New ports close what is cached, and so does the other direction.
    client.passive();
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    client.ask("RETR one", 425);
}

#[test]
fn downloads_reuse_connections_and_leave_out_what_is_there() {
    let stage = Stage::open(18, &[]);
    let wanted = Stage::make(&stage.root("file"), 1000);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    client.ask("OPTS RETR Parallelism=2,2,2;", 200);
    let listener = client.active();
    client.ask("REST 0-20,50-1000", 350);
    client.ask("RETR file", 150);
    let mut streams = [listener.accept().unwrap().0, listener.accept().unwrap().0];
    let mut collect = |wanted: &[u8], from: usize| {
        let all: Vec<_> = streams.iter_mut().flat_map(blocks).collect();
        let eofs: Vec<_> = all.iter().filter(|(bits, ..)| bits & EOF != 0).collect();
        assert_eq!(eofs.len(), 1);
        assert_eq!(eofs[0].1, 2, "connections");
        assert_eq!(all.iter().filter(|(bits, ..)| bits & EOD != 0).count(), 2);
        let mut bytes = vec![0; wanted.len()];
        for (bits, offset, payload) in all {
            if bits & EOF == 0 && !payload.is_empty() {
                let at = usize::try_from(offset).unwrap() - from;
                bytes[at..at + payload.len()].copy_from_slice(&payload);
            }
        }
        assert_eq!(bytes, wanted);
    };
    collect(&wanted[20..50], 20);
    client.expect(226);
    client.ask("RETR file", 125);
    collect(&wanted, 0);
    client.expect(226);
    // Offsets of a part begin with it, and it ends where the file does.
    client.ask("ERET P 900 5000 file", 125);
    collect(&wanted[900..], 0);
    client.expect(226);
    client.ask("ERET P 1001 1 file", 554);
    client.ask("MLSD", 125);
    let rows: Vec<u8> = streams
        .iter_mut()
        .flat_map(blocks)
        .flat_map(|(_, _, row)| row)
        .collect();
    assert!(String::from_utf8_lossy(&rows).ends_with("; file\r\n"));
    client.expect(226);
    // A client that has closed them hears of it, before anything begins.
    drop(streams);
    client.ask("RETR file", 425);
}

/// Begins to store once the transfers of other clients have ended, and sends a part.
#[track_caller]
fn until_free(client: &mut Client, stream: &mut TcpStream) {
    let begins = || {
        client.send(b"STOR new\r\n");
        let (code, _) = client.reply().unwrap();
        if code != 150 {
            *stream = data(client.passive());
        }
        code == 150
    };
    assert!(wait::until(PATIENCE, begins));
    stream.write_all(&[1; 50_000]).unwrap();
}

#[test]
fn an_interrupted_upload_leaves_what_was_there() {
    let stage = Stage::open(19, &[]);
    let old = Stage::make(&stage.root("new"), 100);
    // The client dies: both connections end at once.
    let mut client = Client::log_in(&stage);
    let mut stream = data(client.passive());
    client.ask("STOR new", 150);
    stream.write_all(&[1; 50_000]).unwrap();
    drop(client);
    drop(stream);
    // A system that ends a process may end the connection for data first; and the other one is
    // reset if there was a reply to read.
    for reads in [true, false] {
        let mut client = Client::log_in(&stage);
        let mut stream = data(client.passive());
        until_free(&mut client, &mut stream);
        if !reads {
            client.send(b"NOOP\r\n");
        }
        drop(stream);
        drop(client);
    }
    let mut client = Client::log_in(&stage);
    let mut stream = data(client.passive());
    until_free(&mut client, &mut stream);
    assert_bytes(&stage.root("new"), &old);
    // And one that cancels it.
    stream.write_all(&[2; 50_000]).unwrap();
    client.send(b"\xff\xf4\xff\xf2ABOR\r\n");
    client.expect(426);
    client.expect(226);
    assert_bytes(&stage.root("new"), &old);
    assert_eq!(names(&stage), ["new"]);
    let mut stream = data(client.passive());
    client.ask("STOR new", 150);
    stream.write_all(b"fine").unwrap();
    drop(stream);
    client.expect(226);
    assert_bytes(&stage.root("new"), b"fine");
}

#[test]
fn a_restart_goes_on_with_what_is_durable_and_with_nothing_else() {
    let stage = Stage::open(20, &[]);
    let old = Stage::make(&stage.root("new"), 5);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    let mut stream = data(client.passive());
    client.ask("STOR new", 150);
    stream.write_all(&block(0, 4, 0, b"abcd")).unwrap();
    stream.write_all(&block(0, 4, 8, b"ijkl")).unwrap();
    client.expect(112);
    // The next markers tell what has become durable.
    client.expect(112);
    assert_eq!(client.expect(111), "111 Range Marker 0-4,8-12");
    drop(stream);
    client.expect(426);
    assert_bytes(&stage.root("new"), &old);
    // More than that isn't here.
    client.passive();
    client.ask("REST 0-6,8-12", 350);
    client.ask("STOR new", 554);
    assert_bytes(&stage.root("new"), &old);
    // Nor while another session writes it, in which case it may be later.
    let mut other = Client::log_in(&stage);
    other.ask("MODE E", 200);
    let held = data(other.passive());
    other.ask("REST 0-4,8-12", 350);
    other.ask("STOR new", 150);
    client.passive();
    client.ask("REST 0-4,8-12", 350);
    client.ask("STOR new", 450);
    assert_bytes(&stage.root("new"), &old);
    drop(held);
    while other.reply().unwrap().0 < 200 {}
    let mut stream = data(client.passive());
    client.ask("REST 0-4,8-12", 350);
    client.ask("STOR new", 150);
    stream.write_all(&block(0, 4, 4, b"efgh")).unwrap();
    stream.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    client.expect(112);
    client.expect(112);
    assert_eq!(client.expect(111), "111 Range Marker 4-8");
    client.expect(226);
    assert_bytes(&stage.root("new"), b"abcdefghijkl");
    assert_eq!(names(&stage), ["new"]);
    // Nothing is left of it: what is there now is another version, which must not be mixed with
    // what comes.
    client.passive();
    client.ask("REST 0-4", 350);
    client.ask("STOR new", 554);
    assert_bytes(&stage.root("new"), b"abcdefghijkl");
}

#[test]
fn a_restart_of_a_file_that_is_not_there_is_refused() {
    let stage = Stage::open(21, &[]);
    Stage::make(&stage.root("short"), 10);
    let mut client = Client::log_in(&stage);
    for name in ["missing", "short"] {
        client.passive();
        client.ask("REST 11", 350);
        client.ask(&format!("STOR {name}"), 554);
        client.ask("REST 11", 350);
        client.ask("RETR short", 554);
    }
    // Nor is one that is there: clients take its size for that of what they have sent.
    client.ask("REST 5", 350);
    client.ask("STOR short", 554);
    assert_eq!(names(&stage), ["short"]);
    client.ask("REST 1-2", 350);
    client.ask("RETR short", 550);
}

#[test]
fn half_closed_connections_get_their_answers() {
    let stage = Stage::open(22, &[]);
    let mut client = Client::log_in(&stage);
    client.send(b"PWD\r\nNOOP\r\n");
    client.close_input();
    client.expect(257);
    client.expect(200);
    assert!(client.reply().is_none());
}

#[test]
fn mode_e_the_other_way_round_is_refused() {
    let stage = Stage::open(23, &[]);
    Stage::make(&stage.root("file"), 10);
    let mut client = Client::log_in(&stage);
    client.ask("MODE E", 200);
    client.passive();
    client.ask("RETR file", 425);
    let _listener = client.active();
    client.ask("STOR new", 425);
    assert_eq!(names(&stage), ["file"]);
    // Nobody listens there.
    client.ask("MODE S", 200);
    drop(client.active());
    client.ask("RETR file", 150);
    client.expect(425);
    client.ask("NOOP", 200);
}

#[test]
fn a_command_that_nobody_reads_ends_with_its_client() {
    let stage = Stage::open(24, &[]);
    Stage::make(&stage.root("file"), 30_000_000);
    let mut client = Client::log_in(&stage);
    let mut stream = data(client.passive());
    client.ask("RETR file", 150);
    stream.read_exact(&mut [0; 1000]).unwrap();
    drop(client);
    // The rest is not sent.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 30_000_000 - 1000);
}
