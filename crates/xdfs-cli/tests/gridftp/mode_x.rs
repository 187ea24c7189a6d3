//! MODE X: between the program and its server over a way that breaks, and with peers that lie.

use std::fs;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_testkit::wait;

use crate::client::{Client, data};
use crate::fake::Fake;
use crate::places::xdfs;
use crate::proxy::{Fate, Proxy};
use crate::stage::{PATIENCE, Stage, assert_bytes, names, outcome, run};

const LARGE: usize = 20_000_003;

/// Copies with the program.
fn copy(stage: &Stage, from: &str, to: &str) -> (bool, String) {
    outcome(&mut xdfs(
        stage,
        &["cp", "-n4", "--retries=0", "--insecure", "-vv", from, to],
    ))
}

/// Copies a file down and up through a proxy, and fails unless both arrive in one attempt.
#[track_caller]
fn there_and_back(seed: u64, most: usize, fate: fn(usize) -> Fate) -> [Proxy; 2] {
    let stage = Stage::open(seed, &[]);
    let wanted = Stage::make(&stage.root("large"), LARGE);
    let file = stage.here("file").display().to_string();
    let [down, up] = [(); 2].map(|()| Proxy::start(&stage.address, most, fate));
    let (succeeded, text) = copy(&stage, &down.url("/large"), &file);
    assert!(succeeded, "{text}");
    assert_bytes(&stage.here("file"), &wanted);
    let (succeeded, text) = copy(&stage, &file, &up.url("/up"));
    assert!(succeeded, "{text}");
    assert_bytes(&stage.root("up"), &wanted);
    assert_eq!(names(&stage), ["large", "up"]);
    assert_eq!((down.count("RETR"), up.count("STOR")), (1, 1));
    [down, up]
}

#[test]
fn large_files_go_over_connections_that_only_the_client_opens() {
    for proxy in there_and_back(220, 0, |_| Fate::Whole) {
        assert_eq!(proxy.count("MODE X xdfs-1 CRC32C"), 1);
        assert_eq!(proxy.count("PORT") + proxy.count("EPRT"), 0);
        assert_eq!(proxy.opened(), 4);
    }
}

/// What a client asks of a server that takes so long to answer USER, about a large file.
fn asked_of(stage: &Stage, pause: Duration) -> Vec<String> {
    let features = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";
    let fake = Fake::start(features, move |verb, argument, talk| {
        if verb == "USER" {
            thread::sleep(pause);
        }
        match verb {
            "MLST" => talk.say(&format!(
                "250-it\r\n Type=file;Size=9000000;Modify=20260102030405; {argument}\r\n250 End\r\n"
            )),
            "RETR" => talk.say("550 not this one\r\n"),
            _ => false,
        }
    });
    let target = stage.here("new").display().to_string();
    let words = ["cp", "--retries=0", "--insecure", &fake.url("/f"), &target];
    assert!(!outcome(&mut xdfs(stage, &words)).0);
    fake.commands()
}

/// On a busy machine a short path may look long for once.
#[test]
fn the_number_of_connections_follows_the_path() {
    let stage = Stage::open(819, &[]);
    let has = |pause, number: u32| {
        let wanted = format!("OPTS RETR Parallelism={number}");
        let asked = asked_of(&stage, pause);
        asked.iter().any(|line| line.starts_with(&wanted))
    };
    assert!(has(Duration::from_millis(20), 4));
    assert!((0..20).any(|_| has(Duration::ZERO, 1)));
}

#[test]
fn broken_connections_are_replaced() {
    let fate = |number| Fate::Cut(300_000 * number);
    for proxy in there_and_back(221, 4, fate) {
        assert!(proxy.harmed() >= 3, "{}", proxy.harmed());
    }
}

#[test]
fn damaged_blocks_are_sent_again() {
    // In the handshake, and in blocks.
    let fate = |number| Fate::Flip([20, 300_001, 1_000_001, 20_001][number % 4]);
    for proxy in there_and_back(222, 5, fate) {
        assert!(proxy.harmed() >= 3, "{}", proxy.harmed());
    }
}

#[test]
fn a_connection_that_sticks_is_given_up() {
    for proxy in there_and_back(231, 1, |_| Fate::Stick(300_000)) {
        assert_eq!(proxy.harmed(), 1);
    }
}

#[test]
fn a_way_that_damages_everything_is_an_error() {
    let stage = Stage::open(223, &[]);
    Stage::make(&stage.root("large"), LARGE);
    Stage::make(&stage.here("file"), LARGE);
    let proxy = Proxy::start(&stage.address, usize::MAX, |_| Fate::Flip(100_000));
    let (url, target) = (proxy.url("/large"), stage.here("new"));
    let (succeeded, text) = copy(&stage, &url, &target.display().to_string());
    assert!(!succeeded && text.contains("times in a row"), "{text}");
    let file = stage.here("file").display().to_string();
    let (succeeded, text) = copy(&stage, &file, &proxy.url("/up"));
    assert!(!succeeded && text.contains("times in a row"), "{text}");
    assert_eq!(names(&stage), ["large"]);
    assert_eq!(fs::read_dir(stage.here("")).unwrap().count(), 1);
}

/// CRC-32C of RFC 3720, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    let take = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, take)
}

const DATA: u8 = 0;
const OPEN: u8 = 1;
const READY: u8 = 2;
const ACKNOWLEDGE: u8 = 3;
const BYE: u8 = 8;
const END: u8 = 0x40;

/// A message as `docs/gridftp/mode-x.md` says.
fn message(kind: u8, count: u64, offset: u64, transaction: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    for number in [count, offset, transaction] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(payload);
    let check = crc32c(&bytes);
    bytes.extend_from_slice(&check.to_be_bytes());
    bytes
}

/// A data connection with what is said on it.
struct Line {
    stream: TcpStream,
    transaction: u64,
}

impl Line {
    fn to(address: SocketAddr, transaction: u64) -> Self {
        let stream = data(address);
        Self {
            stream,
            transaction,
        }
    }

    /// One that is up.
    #[track_caller]
    fn up(address: SocketAddr, transaction: u64) -> Self {
        let mut line = Self::to(address, transaction);
        line.say(OPEN, 0, 0, b"");
        assert_eq!(line.hear(), Some((READY, 0, 0, Vec::new())));
        line
    }

    fn say(&mut self, kind: u8, count: u64, offset: u64, payload: &[u8]) {
        let bytes = message(kind, count, offset, self.transaction, payload);
        // The server may have closed it, which the test sees where it reads.
        let _ = self.stream.write_all(&bytes);
    }

    fn block(&mut self, offset: u64, payload: &[u8]) {
        self.say(DATA, payload.len() as u64, offset, payload);
    }

    /// The next message: kind, count, offset, payload; `None` if the server has closed.
    #[track_caller]
    fn hear(&mut self) -> Option<(u8, u64, u64, Vec<u8>)> {
        let mut header = [0; 25];
        self.stream.read_exact(&mut header).ok()?;
        let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        assert_eq!(number(17), self.transaction);
        let length = if header[0] == DATA { number(1) } else { 0 };
        let mut rest = vec![0; usize::try_from(length).unwrap() + 4];
        self.stream.read_exact(&mut rest).ok()?;
        let payload = rest[..rest.len() - 4].to_vec();
        let check = crc32c(&[&header[..], &payload].concat());
        assert_eq!(rest[payload.len()..], check.to_be_bytes());
        Some((header[0], number(1), number(9), payload))
    }
}

/// A session in MODE X.
fn session(stage: &Stage) -> Client {
    let mut client = Client::log_in(stage);
    assert!(client.ask("FEAT", 211).contains(" MODE X xdfs-1 CRC32C;"));
    client.ask("MODE X xdfs-1 CRC32C", 200);
    client
}

/// Begins with a transfer, and returns its number.
#[track_caller]
fn begin(client: &mut Client, line: &str) -> u64 {
    let text = client.ask(line, 150);
    let digits = text.strip_prefix("150 TRANSACTION: ").unwrap();
    u64::from_str_radix(digits.trim(), 16).unwrap()
}

/// Reads replies until the last one.
#[track_caller]
fn last(client: &mut Client) -> (u16, String) {
    loop {
        let (code, text) = client.reply().unwrap();
        if code >= 200 {
            return (code, text);
        }
    }
}

/// The same, and fails unless it has this number.
#[track_caller]
fn ends(client: &mut Client, wanted: u16) {
    let (code, text) = last(client);
    assert_eq!(code, wanted, "{text}");
}

#[test]
fn the_specification_is_enough_to_store_and_get_a_file() {
    let stage = Stage::open(224, &[]);
    let mut client = session(&stage);
    // Either side opens connections, whichever sends.
    for active in [false, true] {
        let open = |client: &mut Client, line: &str| {
            if !active {
                let address = client.passive();
                let transaction = begin(client, line);
                return Line::up(address, transaction);
            }
            let listener = client.active();
            let transaction = begin(client, line);
            let mut line = Line {
                stream: listener.accept().unwrap().0,
                transaction,
            };
            line.stream.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(line.hear(), Some((OPEN, 0, 0, Vec::new())));
            line.say(READY, 0, 0, b"");
            line
        };
        let mut line = open(&mut client, "STOR /up");
        line.block(3, b"def");
        assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 3, Vec::new())));
        line.block(0, b"abc");
        // The same again, as if its acknowledgement had been lost.
        line.block(3, b"def");
        assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
        assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 3, Vec::new())));
        line.say(END, 6, 6, b"");
        assert_eq!(line.hear(), Some((BYE, 0, 0, Vec::new())));
        ends(&mut client, 226);
        assert_bytes(&stage.root("up"), b"abcdef");
        let mut line = open(&mut client, "RETR /up");
        let whole = Some((DATA, 6, 0, b"abcdef".to_vec()));
        assert_eq!(line.hear(), whole);
        line.say(ACKNOWLEDGE, 6, 0, b"");
        assert_eq!(line.hear(), Some((END, 6, 6, Vec::new())));
        line.say(BYE, 0, 0, b"");
        ends(&mut client, 226);
        fs::remove_file(stage.root("up")).unwrap();
    }
    // Parts, and an empty file.
    let address = client.passive();
    let transaction = begin(&mut client, "STOR /empty");
    Line::up(address, transaction).say(END, 0, 0, b"");
    ends(&mut client, 226);
    assert_bytes(&stage.root("empty"), b"");
    fs::write(stage.root("file"), "0123456789").unwrap();
    client.ask("REST 0-2,4-5", 350);
    let address = client.passive();
    let transaction = begin(&mut client, "RETR /file");
    let mut line = Line::up(address, transaction);
    for (offset, bytes) in [(2, &b"23"[..]), (5, b"56789")] {
        let length = bytes.len() as u64;
        assert_eq!(line.hear(), Some((DATA, length, offset, bytes.to_vec())));
        line.say(ACKNOWLEDGE, length, offset, b"");
    }
    assert_eq!(line.hear(), Some((END, 7, 10, Vec::new())));
    line.say(BYE, 0, 0, b"");
    ends(&mut client, 226);
    // Listings and trees have other modes.
    client.passive();
    for line in ["MLSD /", "LIST", "NLST", "STOU"] {
        client.ask(line, 504);
    }
    client.ask("MODE X", 504);
    client.ask("MODE X xdfs-2 CRC32C", 504);
}

#[test]
fn what_has_no_place_ends_only_its_connection() {
    let stage = Stage::open(225, &[]);
    let mut client = session(&stage);
    let address = client.passive();
    let transaction = begin(&mut client, "STOR /up");
    let closes = |line: &mut Line| assert_eq!(line.hear(), None);
    let mut stranger = Line::to(address, transaction ^ 1);
    stranger.say(OPEN, 0, 0, b"");
    closes(&mut stranger);
    for (kind, count, offset, payload) in [
        (DATA, 3, 0, &b"abc"[..]),
        (READY, 0, 0, b""),
        (END, 0, 0, b""),
        (OPEN, 1, 0, b""),
        (0x77, 0, 0, b""),
    ] {
        let mut early = Line::to(address, transaction);
        early.say(kind, count, offset, payload);
        closes(&mut early);
    }
    let mut line = Line::up(address, transaction);
    line.block(0, b"abc");
    assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
    for bad in [
        message(OPEN, 0, 0, transaction, b""),
        message(ACKNOWLEDGE, 3, 0, transaction, b""),
        message(BYE, 0, 0, transaction, b""),
        message(DATA, 0, 0, transaction, b""),
        message(DATA, 1 << 40, 0, transaction, b"x"),
        message(DATA, 1, u64::MAX, transaction, b"x"),
        message(DATA, 1, 3, transaction ^ 1, b"x"),
        message(DATA, 1, 3, transaction, b"x")[1..].to_vec(),
    ] {
        let mut other = Line::up(address, transaction);
        other.stream.write_all(&bad).unwrap();
        closes(&mut other);
    }
    // A wrong checksum changes nothing.
    let mut other = Line::up(address, transaction);
    let mut bad = message(DATA, 3, 3, transaction, b"BAD");
    *bad.last_mut().unwrap() ^= 1;
    other.stream.write_all(&bad).unwrap();
    closes(&mut other);
    line.block(3, b"def");
    assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 3, Vec::new())));
    line.say(END, 6, 6, b"");
    ends(&mut client, 226);
    assert_bytes(&stage.root("up"), b"abcdef");
}

#[test]
fn a_sender_that_lies_publishes_nothing() {
    let stage = Stage::open(226, &[]);
    for lie in 0..4 {
        let mut client = session(&stage);
        let address = client.passive();
        let transaction = begin(&mut client, "STOR /up");
        let mut line = Line::up(address, transaction);
        line.block(0, b"abc");
        assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
        match lie {
            0 => line.block(2, b"cdef"),
            1 => line.say(END, 4, 4, b""),
            2 => line.say(END, 0, 0, b""),
            _ => {
                // A gap.
                line.block(5, b"f");
                line.hear();
                line.say(END, 4, 6, b"");
            }
        }
        let (code, text) = last(&mut client);
        assert!(code >= 400, "{lie}: {text}");
        client.ask("NOOP", 200);
        drop(client);
        assert!(wait::until(PATIENCE, || names(&stage).is_empty()), "{lie}");
    }
    // Checksums that are wrong for ever.
    let mut client = session(&stage);
    let address = client.passive();
    let transaction = begin(&mut client, "STOR /up");
    let mut bad = message(DATA, 3, 0, transaction, b"BAD");
    *bad.last_mut().unwrap() ^= 1;
    for _ in 0..16 {
        let mut line = Line::up(address, transaction);
        line.stream.write_all(&bad).unwrap();
        assert_eq!(line.hear(), None);
    }
    let (code, text) = last(&mut client);
    assert!(code >= 400 && text.contains("times in a row"), "{text}");
    assert!(names(&stage).is_empty());
}

#[test]
fn silent_connections_keep_nobody_out() {
    let stage = Stage::open(227, &[]);
    let mut client = session(&stage);
    let address = client.passive();
    let transaction = begin(&mut client, "STOR /up");
    let silent: Vec<_> = (0..300)
        .filter_map(|_| TcpStream::connect(address).ok())
        .collect();
    let begun = Instant::now();
    let mut line = Line::up(address, transaction);
    line.block(0, b"abc");
    assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
    line.say(END, 3, 3, b"");
    ends(&mut client, 226);
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(silent);
    assert_bytes(&stage.root("up"), b"abc");
    // A receiver that confirms what it wasn't sent gets no end.
    fs::write(stage.root("file"), "0123456789").unwrap();
    let address = client.passive();
    let transaction = begin(&mut client, "RETR /file");
    for (count, offset) in [(9, 0), (10, 1)] {
        let mut line = Line::up(address, transaction);
        assert_eq!(line.hear().unwrap().0, DATA);
        line.say(ACKNOWLEDGE, count, offset, b"");
        assert_eq!(line.hear(), None);
    }
    let mut line = Line::up(address, transaction);
    assert_eq!(line.hear().unwrap().0, DATA);
    line.say(BYE, 0, 0, b"");
    assert_eq!(line.hear(), None);
    client.send(b"ABOR\r\n");
    ends(&mut client, 426);
}

#[test]
fn connections_that_are_slow_at_first_are_waited_for() {
    let stage = Stage::open(232, &[]);
    let mut client = session(&stage);
    let address = client.passive();
    let transaction = begin(&mut client, "STOR /up");
    let mut lines: Vec<_> = (0..40).map(|_| Line::to(address, transaction)).collect();
    // The server has accepted them then.
    lines.push(Line::up(address, transaction));
    for line in &mut lines[..40] {
        line.say(OPEN, 0, 0, b"");
        assert_eq!(line.hear(), Some((READY, 0, 0, Vec::new())));
    }
    // All break at once, and that is one event.
    drop(lines);
    let mut line = Line::up(address, transaction);
    line.block(0, b"abc");
    assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
    line.say(END, 3, 3, b"");
    ends(&mut client, 226);
    assert_bytes(&stage.root("up"), b"abc");
}

#[test]
fn what_is_acknowledged_while_a_block_is_on_its_way_is_not_sent_again() {
    let stage = Stage::open(233, &[]);
    let wanted = Stage::make(&stage.root("large"), LARGE);
    let mut client = session(&stage);
    let address = client.passive();
    let transaction = begin(&mut client, "RETR /large");
    let mut first = Line::up(address, transaction);
    let (kind, count, offset, _) = first.hear().unwrap();
    assert_eq!((kind, offset), (DATA, 0));
    // The rest isn't read, and so is stuck in the middle of a block.
    first.say(ACKNOWLEDGE, count, offset, b"");
    first.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut line = Line::up(address, transaction);
    let mut total = count;
    loop {
        let (kind, count, offset, payload) = line.hear().unwrap();
        if kind == END {
            assert_eq!((count, offset), (LARGE as u64, LARGE as u64));
            break;
        }
        assert!(kind == DATA && offset > 0);
        let place = usize::try_from(offset).unwrap();
        assert_eq!(payload, wanted[place..place + payload.len()]);
        line.say(ACKNOWLEDGE, count, offset, b"");
        total += count;
    }
    assert_eq!(total, LARGE as u64);
    line.say(BYE, 0, 0, b"");
    ends(&mut client, 226);
}

#[test]
fn a_server_that_repeats_itself_is_not_listened_to_for_ever() {
    const FEATURES: &str = " MLST Type*;Size*;\r\n PARALLEL\r\n MODE X xdfs-1 CRC32C;\r\n";
    let stage = Stage::open(234, &[]);
    let fake = Fake::start(FEATURES, move |verb, argument, talk| match verb {
        "MLST" => {
            let facts = format!("Type=file;Size={LARGE};Modify=20260102030405;");
            talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"))
        }
        "RETR" => {
            talk.say("150 TRANSACTION: 0000000000000007\r\n");
            let mut line = Line {
                stream: talk.data(),
                transaction: 7,
            };
            assert_eq!(line.hear().map(|heard| heard.0), Some(OPEN));
            line.say(READY, 0, 0, b"");
            for turn in 0.. {
                line.block(0, b"abc");
                if line.hear().is_none() {
                    break;
                }
                if turn == 100 {
                    talk.say("500 enough\r\n");
                }
            }
            true
        }
        _ => false,
    });
    let target = stage.here("new").display().to_string();
    let (succeeded, text) = copy(&stage, &fake.url("/f"), &target);
    assert!(!succeeded && text.contains("500 enough"), "{text}");
    // A transfer that has come about is no reason for another mode.
    assert!(!text.contains("can't connect to the server"), "{text}");
    assert_eq!(fs::read_dir(stage.here("")).unwrap().count(), 0);
}

#[test]
fn a_client_that_leaves_in_between_leaves_nothing() {
    let stage = Stage::open(228, &[]);
    for step in 0..4 {
        let mut client = session(&stage);
        let address = client.passive();
        let transaction = begin(&mut client, "STOR /up");
        let mut lines = Vec::new();
        if step > 0 {
            lines.push(Line::to(address, transaction));
        }
        if step > 1 {
            lines.push(Line::up(address, transaction));
        }
        if step > 2 {
            lines[1].block(0, b"abc");
            assert_eq!(lines[1].hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
        }
        drop(client);
        assert!(wait::until(PATIENCE, || names(&stage).is_empty()), "{step}");
    }
}

#[test]
fn servers_that_lie_get_nothing_published() {
    const FEATURES: &str = " MLST Type*;Size*;\r\n PARALLEL\r\n MODE X xdfs-1 CRC32C;\r\n";
    let stage = Stage::open(229, &[]);
    for (lie, why) in [
        ("150 now", "announces no transaction"),
        ("150 TRANSACTION: zz", "announces no transaction"),
        (
            "150 TRANSACTION: 000000000000000g",
            "announces no transaction",
        ),
        ("past", "more of it than its size"),
        ("twice", "came before"),
        ("end", "the end isn't that"),
        ("other", "times in a row"),
    ] {
        let fake = Fake::start(FEATURES, move |verb, argument, talk| match verb {
            "MLST" => {
                let facts = format!("Type=file;Size={LARGE};Modify=20260102030405;");
                talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"))
            }
            "RETR" if lie.starts_with("150") => talk.say(&format!("{lie}\r\n")),
            "RETR" => {
                talk.say("150 TRANSACTION: 0000000000000007\r\n");
                loop {
                    let mut line = Line {
                        stream: talk.data(),
                        transaction: 7,
                    };
                    assert_eq!(line.hear().map(|heard| heard.0), Some(OPEN));
                    match lie {
                        "other" => {
                            line.transaction = 8;
                            line.say(READY, 0, 0, b"");
                            // Further ones come.
                            continue;
                        }
                        _ => line.say(READY, 0, 0, b""),
                    }
                    line.block(0, b"abc");
                    assert_eq!(line.hear(), Some((ACKNOWLEDGE, 3, 0, Vec::new())));
                    match lie {
                        "past" => line.block(LARGE as u64, b"x"),
                        "twice" => line.block(2, b"cd"),
                        _ => line.say(END, 4, 4, b""),
                    }
                    // Until the client has had enough.
                    while line.hear().is_some() {}
                    return true;
                }
            }
            _ => false,
        });
        let target = stage.here("new");
        let (succeeded, text) = copy(&stage, &fake.url("/f"), &target.display().to_string());
        assert!(!succeeded && text.contains(why), "{lie}: {text}");
        assert_eq!(fs::read_dir(stage.here("")).unwrap().count(), 0, "{lie}");
    }
}

#[test]
fn protected_connections_have_it_too() {
    let stage = Stage::with_users(230, "[gridftp]\ntls = \"required\"");
    let wanted = Stage::make(&stage.root("alice/large"), LARGE);
    let url = |path: &str| format!("ftps://alice@{}/alice/{path}", stage.named_address());
    let authority = stage.certificate().display().to_string();
    let password = stage.beside("password").display().to_string();
    let file = stage.here("file").display().to_string();
    for (from, to) in [(&url("large"), &file), (&file, &url("up"))] {
        let flags = ["cp", "--ca", &authority, "--password-file", &password];
        run(&mut xdfs(&stage, &[&flags[..], &[from, to]].concat()));
    }
    assert_bytes(&stage.here("file"), &wanted);
    assert_bytes(&stage.root("alice/up"), &wanted);
    let log = stage.server.output().join("\n");
    assert!(!log.contains("cut off"), "{log}");
}
