//! A control connection under any commands and any ends of actions: no panic, bounded memory, at
//! least one reply a command and in order, nothing done before the login, and no data connection to
//! another host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use xdfs_gridftp::reply::ReplyReader;
use xdfs_gridftp::session::{
    Action, Config, INPUT_BYTES_MAX, OUTPUT_BYTES_MAX, Outcome, Protection, Session, Tls,
};
use xdfs_proto::path::Answer;
use xdfs_proto::{ByteRange, Code, Fault, RangeSet};

const WORDS: [&str; 42] = [
    "USER anonymous",
    "PASS x",
    "RETR a",
    "STOR a",
    "PASV",
    "PORT 10,0,0,1,9,9",
    "PORT 10,0,0,2,9,9",
    "MODE E",
    "REST 0-5",
    "ABOR",
    "QUIT",
    "MLSD",
    "CKSM MD5 0 -1 a",
    "PWD",
    "FEAT",
    "RNFR a",
    "RNTO b",
    "EPSV",
    "SPAS",
    "OPTS PASV AllowDelayed=1;",
    "CWD ..",
    "SIZE a",
    "STAT",
    "MLST a",
    "AUTH TLS",
    "USER alice",
    "PBSZ 0",
    "PROT P",
    "PROT C",
    "CCC",
    "SCKS ADLER32 00000001",
    "STOU",
    "APPE a",
    "ABUF",
    "AUTH GSSAPI",
    "ADAT AAAA",
    "USER :globus-mapping:",
    "DCAU N",
    "DCAU S /CN=a",
    "PROT S",
    "ENC AAAA",
    "ALLO 9",
];

/// The largest reply, and the last command before the output is full.
const ROOM: usize = 16 << 10;

fuzz_target!(|data: &[u8]| {
    let peer = "10.0.0.1".parse().expect("an address");
    let mut session = Session::new(Config {
        peer,
        third_party: false,
        is_striped: false,
        tls: Tls::Offered,
        takes_clear: false,
        is_admitted: false,
        home: b"/".to_vec(),
        gsi: true,
    });
    let mut replies = ReplyReader::new();
    let mut running = false;
    let mut ended = false;
    let (mut is_secure, mut has_name) = (false, false);
    let (mut authenticates, mut starts_tls) = (false, false);
    for step in data.chunks(3) {
        let (how, word) = (step[0] % 8, step.get(1).copied().unwrap_or(0));
        match how {
            0..4 => {
                let mut line = WORDS[usize::from(word) % WORDS.len()].as_bytes().to_vec();
                if how == 3 {
                    line.extend_from_slice(step);
                }
                line.extend_from_slice(b"\r\n");
                line.truncate(session.room());
                session.receive(&line);
            }
            4 if running => {
                let outcome = match word % 11 {
                    0 => {
                        is_secure |= starts_tls;
                        Ok(Outcome::Done)
                    }
                    6 => Ok(Outcome::Token(step.to_vec())),
                    7 => {
                        is_secure |= authenticates;
                        Ok(Outcome::Secured(Vec::new()))
                    }
                    8 => Ok(Outcome::User("alice".into())),
                    1 => Ok(Outcome::Answer(Answer::Done)),
                    2 => Ok(Outcome::Digest("00".into())),
                    3 => Ok(Outcome::Listening(
                        "10.0.0.9:258".parse().expect("an address"),
                    )),
                    4 => Ok(Outcome::Rows(vec![step.to_vec()], 1)),
                    5 => Ok(Outcome::Listening("[::1]:258".parse().expect("an address"))),
                    _ => Err(
                        Fault::new(Code::ALL[usize::from(word) % Code::ALL.len()], "do", "x")
                            .path(step),
                    ),
                };
                session.complete(outcome);
                running = false;
            }
            5 if running => session.begun(
                word % 2 == 0,
                (word % 3 == 0).then_some(step),
                (word % 5 == 0).then_some(u64::from(word)),
            ),
            6 if running => {
                let mut durable = RangeSet::new();
                let start = u64::from(word);
                durable.insert(ByteRange {
                    start,
                    end: start + 7,
                });
                session.progress((0, 1), start, start, &durable);
            }
            7 if word == 0 => session.end("It ends."),
            _ => {
                is_secure |= running && starts_tls;
                session.complete(Ok(Outcome::Done));
            }
        }
        running &= session.is_busy();
        while let Some(action) = session.poll() {
            match action {
                Action::Close => {
                    ended = true;
                    break;
                }
                Action::Cancel => assert!(running),
                action => {
                    assert!(!running && session.is_busy());
                    authenticates = matches!(action, Action::Authenticate(_));
                    starts_tls = matches!(action, Action::StartTls);
                    match &action {
                        Action::Authenticate(_) => {
                            assert!(!is_secure && !session.is_logged_in());
                        }
                        Action::LogInMapped { .. } => {
                            assert!(is_secure && !session.is_logged_in());
                            has_name = true;
                        }
                        Action::StartTls => assert!(!session.is_logged_in()),
                        Action::LogIn { user, .. } => {
                            assert!(is_secure || user.is_none());
                            has_name = user.is_some();
                        }
                        _ => assert!(session.is_logged_in()),
                    }
                    if let Action::Transfer(transfer) = &action {
                        let is_sealed = match &transfer.protection {
                            Protection::Clear => false,
                            Protection::Context { seals, .. } => *seals,
                            Protection::Tls => true,
                        };
                        assert!(is_sealed || !has_name);
                        assert!(is_secure || transfer.protection == Protection::Clear);
                    }
                    if let Action::Connect(addresses) = &action {
                        assert!(addresses.iter().all(|address| address.ip() == peer));
                    }
                    running = true;
                }
            }
        }
        assert!(session.room() <= INPUT_BYTES_MAX);
        let output = session.take_output();
        assert!(output.len() <= OUTPUT_BYTES_MAX + ROOM);
        replies.push(&output);
        // All of it is replies, each whole.
        while replies
            .next_reply()
            .expect("own replies can be read")
            .is_some()
        {}
        if ended {
            return;
        }
    }
});
