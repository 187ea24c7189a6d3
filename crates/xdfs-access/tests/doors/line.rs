//! A door for lines: `USER name`, `PASS password`, `PUT path length` with the bytes behind it,
//! `GET path`, `JOIN` for a further connection, `QUIT`. Each is answered by `ok LENGTH` with so
//! many bytes behind it, or by the code of a fault.

use std::io::{self, BufRead as _, BufReader, PipeReader, PipeWriter, Read as _, Write as _};
use std::thread;

use xdfs_access::{Access, Admission, Evidence, Peer};
use xdfs_proto::{Code, Fault};

use crate::house::{House, PASSWORD, QUOTA_BYTES};
use crate::moving;

/// Serves one connection until it ends.
fn serve(access: &Access, peer: &str, input: PipeReader, mut output: PipeWriter) -> io::Result<()> {
    let peer = Peer::new("line", peer);
    let mut input = BufReader::new(input);
    let (mut user, mut session, mut joined) = (String::new(), None, Vec::new());
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let done = match (&*words, &session) {
            (["USER", name], None) => {
                (*name).clone_into(&mut user);
                Ok(Vec::new())
            }
            (["PASS", rest @ ..], None) => {
                log_in(access, &peer, &user, &rest.join(" ")).map(|admission| {
                    session = Some(admission);
                    Vec::new()
                })
            }
            (["PUT", path, length], Some(admission)) => {
                let mut bytes = vec![0; length.parse().unwrap()];
                input.read_exact(&mut bytes)?;
                moving::write(&*admission.store, path, &bytes).map(|()| Vec::new())
            }
            (["GET", path], Some(admission)) => moving::read(&*admission.store, path),
            (["JOIN"], Some(admission)) => access.join(&peer, &admission.user).map(|permit| {
                joined.push(permit);
                Vec::new()
            }),
            (["QUIT"], _) => return Ok(()),
            _ => {
                let fault = Fault::new(Code::AuthenticationFailed, "log in", "no such order");
                Err(access.refuse(&peer, &user, fault))
            }
        };
        answer(&mut output, done)?;
    }
}

fn log_in(access: &Access, peer: &Peer, user: &str, password: &str) -> Result<Admission, Fault> {
    let principal = access.authenticate(peer, user, Evidence::Password(password))?;
    access.admit(peer, &principal)
}

fn answer(output: &mut PipeWriter, done: Result<Vec<u8>, Fault>) -> io::Result<()> {
    match done {
        Ok(bytes) => {
            writeln!(output, "ok {}", bytes.len())?;
            output.write_all(&bytes)
        }
        Err(fault) => writeln!(output, "{}", fault.code.as_str()),
    }
}

/// The other end of a connection.
pub(crate) struct Client {
    input: BufReader<PipeReader>,
    output: PipeWriter,
}

impl Client {
    /// Says something; what was answered, or the word for what was wrong.
    fn say(&mut self, line: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
        writeln!(self.output, "{line}").unwrap();
        self.output.write_all(bytes).unwrap();
        let mut line = String::new();
        self.input.read_line(&mut line).unwrap();
        let Some(length) = line.strip_prefix("ok ") else {
            return Err(line.trim().to_owned());
        };
        let mut bytes = vec![0; length.trim().parse().unwrap()];
        self.input.read_exact(&mut bytes).unwrap();
        Ok(bytes)
    }

    pub(crate) fn log_in(&mut self, user: &str, password: &str) -> Result<(), String> {
        self.say(&format!("USER {user}"), b"").unwrap();
        self.say(&format!("PASS {password}"), b"").map(drop)
    }

    pub(crate) fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let order = format!("PUT {path} {}", bytes.len());
        self.say(&order, bytes).map(drop)
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Vec<u8>, String> {
        self.say(&format!("GET {path}"), b"")
    }

    pub(crate) fn join(&mut self) -> Result<(), String> {
        self.say("JOIN", b"").map(drop)
    }
}

/// Connects to the door from the address `peer`, for as long as `act` takes. The session is over
/// when this returns.
pub(crate) fn visit<T>(house: &House, peer: &str, act: impl FnOnce(&mut Client) -> T) -> T {
    let (input, their_output) = io::pipe().unwrap();
    let (their_input, output) = io::pipe().unwrap();
    let access = &house.access;
    thread::scope(|scope| {
        let served = scope.spawn(move || serve(access, peer, their_input, their_output));
        let mut client = Client {
            input: BufReader::new(input),
            output,
        };
        let result = act(&mut client);
        drop(client);
        served.join().unwrap().unwrap();
        result
    })
}

const PEER: &str = "192.0.2.7:4000";

#[test]
fn a_user_with_a_password_has_rights_and_a_quota() {
    let house = House::new(Default::default());
    let bytes = vec![7; 60_000];
    visit(&house, PEER, |alice| {
        alice.log_in("alice", PASSWORD).unwrap();
        alice.put("box/one", &bytes).unwrap();
        assert_eq!(alice.get("box/one").unwrap(), bytes);
        std::fs::create_dir_all(house.path("shelf")).unwrap();
        std::fs::write(house.path("shelf/book"), b"read me").unwrap();
        assert_eq!(alice.get("shelf/book").unwrap(), b"read me");
        let denied = |code: &str| Err(code.to_owned());
        assert_eq!(alice.put("shelf/new", b"x"), denied("permission-denied"));
        // She may make files, and replace none.
        assert_eq!(alice.put("box/one", b"x"), denied("permission-denied"));
        assert_eq!(alice.put("box/two", &bytes), denied("quota-exceeded"));
        assert_eq!(alice.get("cellar/one"), Err("not-found".to_owned()));
        assert!(alice.get("box/../users").is_err());
        let rest = usize::try_from(QUOTA_BYTES).unwrap() - bytes.len();
        alice.put("box/rest", &vec![1; rest / 2]).unwrap();
    });
    assert_eq!(std::fs::read(house.path("box/one")).unwrap(), bytes);
    let lines = house.audit(["door", "event", "method", "user", "from", "path", "result"]);
    let line = |event: &str, path: &str, result: &str| {
        let line = ["line", event, "password", "alice", PEER, path, result];
        line.map(str::to_owned)
    };
    for expected in [
        line("authenticate", "", "ok"),
        line("upload", "box/one", "ok"),
        line("download", "box/one", "ok"),
        line("refuse", "shelf/new", "permission-denied"),
        line("refuse", "box/two", "quota-exceeded"),
    ] {
        assert!(lines.contains(&expected), "{expected:?} in {lines:#?}");
    }
}

/// A password in the place of a name, as URLs can have it, gets into no log.
#[test]
fn what_follows_a_colon_in_a_name_is_not_logged() {
    let house = House::new(Default::default());
    visit(&house, PEER, |stranger| {
        stranger.log_in("alice:secret:word", PASSWORD).unwrap_err();
    });
    let lines = house.audit(["event", "user", "result"]);
    let refused = ["authenticate", "alice:***", "authentication-failed"];
    assert_eq!(lines[0], refused.map(str::to_owned));
}

#[test]
fn who_has_another_password_or_none_stays_outside() {
    let house = House::new(Default::default());
    visit(&house, PEER, |stranger| {
        for (user, password) in [("alice", "wrong"), ("nobody", PASSWORD)] {
            let refused = stranger.log_in(user, password).unwrap_err();
            assert_eq!(refused, "authentication-failed");
        }
        // That is no guess: no password is empty.
        stranger.log_in("alice", "").unwrap_err();
        assert_eq!(
            stranger.get("box/one").unwrap_err(),
            "authentication-failed"
        );
    });
    let lines = house.audit(["door", "event", "user", "method", "result"]);
    let first = [
        "line",
        "authenticate",
        "alice",
        "password",
        "authentication-failed",
    ];
    assert_eq!(lines[0], first.map(str::to_owned));
    assert!(lines.iter().all(|line| line[4] != "ok"), "{lines:#?}");
}
