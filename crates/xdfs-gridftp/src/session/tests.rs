//! Tests of the control connection: what is said, in which order, and what is refused.

use xdfs_proto::path::{Attributes, FileKind};
use xdfs_proto::{Code, RangeSet};

use super::*;

const PEER: &str = "10.0.0.1";

fn session(third_party: bool) -> Session {
    let peer = PEER.parse().unwrap();
    let mut session = Session::new(Config {
        peer,
        third_party,
        is_striped: false,
        tls: Tls::Offered,
        takes_clear: false,
        is_admitted: false,
        home: b"/".to_vec(),
        gsi: true,
    });
    said(&mut session);
    session
}

fn logged_in() -> Session {
    let mut session = session(false);
    session.receive(b"USER anonymous\r\nPASS x\r\n");
    assert!(matches!(
        session.poll(),
        Some(Action::LogIn { user: None, .. })
    ));
    session.complete(Ok(Outcome::Done));
    assert_eq!(session.poll(), None);
    assert!(session.is_logged_in());
    said(&mut session);
    session
}

fn said(session: &mut Session) -> String {
    String::from_utf8(session.take_output()).unwrap()
}

/// The codes of what is said to a line that needs no action.
fn answer(session: &mut Session, line: &str) -> String {
    session.receive(format!("{line}\r\n").as_bytes());
    assert_eq!(session.poll(), None, "{line}");
    said(session)
}

fn action(session: &mut Session, line: &str) -> Action {
    session.receive(format!("{line}\r\n").as_bytes());
    session.poll().expect(line)
}

fn attributes(kind: FileKind) -> Outcome {
    Outcome::Answer(Answer::Attributes(Attributes {
        kind,
        size: 7,
        allocated: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }))
}

#[test]
fn nothing_is_done_before_the_login() {
    let mut session = session(true);
    for line in [
        "PWD",
        "RETR /a",
        "PASV",
        "PORT 10,0,0,1,9,9",
        "MLST",
        "DELE /a",
        "CKSM MD5 0 -1 a",
    ] {
        assert!(answer(&mut session, line).starts_with("530 "), "{line}");
    }
    assert!(answer(&mut session, "PASS x").starts_with("503 "));
    assert!(answer(&mut session, "FEAT").starts_with("211-"));
    // A name other than anonymous is refused before the password is sent.
    assert!(answer(&mut session, "USER alice").starts_with("530 "));
    assert!(answer(&mut session, "PASS secret").starts_with("503 "));
    assert!(answer(&mut session, "USER FTP").starts_with("331 "));
    let login = action(&mut session, "PASS");
    assert!(matches!(login, Action::LogIn { user: None, .. }));
    let fault = Fault::new(Code::PermissionDenied, "log in", "nothing is public");
    session.complete(Err(fault));
    assert!(said(&mut session).starts_with("530 "));
    assert!(answer(&mut session, "PWD").starts_with("530 "));
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let mut session = logged_in();
    session.receive(b"SIZE /a\r\nNOOP\r\nSIZE /b\r\nTYPE I\r\n");
    let stat = |path: &[u8]| {
        Action::Call(Call::Stat {
            path: path.to_vec(),
            follow: true,
        })
    };
    assert_eq!(session.poll(), Some(stat(b"/a")));
    assert_eq!(session.poll(), None);
    session.complete(Ok(attributes(FileKind::File)));
    assert_eq!(session.poll(), Some(stat(b"/b")));
    session.complete(Err(Fault::new(Code::NotFound, "look", "").path(b"/b")));
    assert_eq!(session.poll(), None);
    let text = said(&mut session);
    let codes: Vec<_> = text.lines().map(|line| &line[..3]).collect();
    assert_eq!(codes, ["213", "200", "550", "200"]);
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn a_flood_of_commands_is_held_within_bounds() {
    let mut session = logged_in();
    let flood = b"NOOP\r\n".repeat(INPUT_BYTES_MAX);
    let mut sent = 0;
    for _ in 0..10 {
        let room = session.room().min(flood.len() - sent);
        session.receive(&flood[sent..sent + room]);
        sent += room;
        assert_eq!(session.poll(), None);
        assert!(session.output.len() < OUTPUT_BYTES_MAX + 1000);
    }
    assert_eq!(session.room(), 0);
    // Answered as the client reads.
    for _ in 0..2 {
        session.output.clear();
        assert_eq!(session.poll(), None);
    }
    assert!(session.room() > 0);
}

#[test]
fn an_abort_cancels_what_runs_and_is_answered_after_it() {
    let mut session = logged_in();
    let Action::Transfer(transfer) = action(&mut session, "RETR /a") else {
        panic!("no transfer");
    };
    assert_eq!(transfer.mode, Mode::Stream);
    session.begun(false, None, None);
    session.receive(b"\xff\xf4\xff\xf2ABOR\r\n");
    assert_eq!(session.poll(), Some(Action::Cancel));
    assert_eq!(session.poll(), None);
    session.complete(Err(Fault::new(Code::Cancelled, "send", "it was cancelled")));
    assert_eq!(session.poll(), None);
    let text = said(&mut session);
    let codes: Vec<_> = text.lines().map(|line| &line[..3]).collect();
    assert_eq!(codes, ["150", "426", "226"]);
    assert!(answer(&mut session, "ABOR").starts_with("226 "));
}

#[test]
fn data_connections_do_not_bounce() {
    let mut session = logged_in();
    for line in [
        "PORT 10,0,0,2,9,9",
        "EPRT |1|10.0.0.2|5000|",
        "EPRT |2|::1|5000|",
        "SPOR 10,0,0,1,9,9 10,0,0,2,9,9",
        "PORT 10,0,0,1,0,25",
    ] {
        assert!(answer(&mut session, line).starts_with("500 "), "{line}");
    }
    let own = action(&mut session, "EPRT |2|::ffff:10.0.0.1|5000|");
    assert!(matches!(own, Action::Connect(_)));
    session.complete(Ok(Outcome::Done));
    session.config.third_party = true;
    said(&mut session);
    let other = action(&mut session, "PORT 10,0,0,2,9,9");
    assert!(matches!(other, Action::Connect(_)));
    session.complete(Ok(Outcome::Done));
    said(&mut session);
    assert!(answer(&mut session, "PORT 10,0,0,2,0,25").starts_with("500 "));
    // Not to services of the server's own machine or network, which may trust those.
    session.config.peer = "192.0.2.1".parse().unwrap();
    for to in [
        "127,0,0,1",
        "0,0,0,0",
        "169,254,1,1",
        "224,0,0,1",
        "255,255,255,255",
    ] {
        let reply = answer(&mut session, &format!("PORT {to},200,0"));
        assert!(reply.starts_with("500"), "{to}: {reply}");
    }
    for to in ["::1", "::", "fe80::1", "ff02::1", "::ffff:127.0.0.1"] {
        let reply = answer(&mut session, &format!("EPRT |2|{to}|51200|"));
        assert!(reply.starts_with("50"), "{to}: {reply}");
    }
}

#[test]
fn get_and_put_are_transfers_that_tell_their_connections() {
    let mut session = logged_in();
    assert!(answer(&mut session, "FEAT").contains(" GETPUT\r\n"));
    let transfer = |action| match action {
        Action::Transfer(transfer) => transfer,
        other => panic!("{other:?}"),
    };
    let (mut like, mut plain) = (logged_in(), logged_in());
    for (line, other, route) in [
        ("GET path=a;pasv;", "RETR a", Route::Passive),
        ("PUT path=a;pasv;", "STOR a", Route::Passive),
        (
            "PUT path=a;port=10,0,0,1,9,9;",
            "STOR a",
            Route::Connect("10.0.0.1:2313".parse().unwrap()),
        ),
        ("GET path=a;", "RETR a", Route::Told),
    ] {
        let found = transfer(action(&mut like, line));
        assert_eq!(found.route, route, "{line}");
        let wanted = Transfer {
            route,
            ..transfer(action(&mut plain, other))
        };
        assert_eq!(found, wanted, "{line}");
        like.complete(Ok(Outcome::Done));
        plain.complete(Ok(Outcome::Done));
    }
    // The mode is that of one transfer.
    let extended = transfer(action(&mut session, "GET mode=e;path=/a;pasv;"));
    assert_eq!(extended.mode, Mode::Extended);
    session.complete(Ok(Outcome::Done));
    let stream = transfer(action(&mut session, "GET path=/a;pasv;"));
    assert_eq!(stream.mode, Mode::Stream);
    session.delayed("127.0.0.1:258".parse().unwrap());
    session.complete(Ok(Outcome::Done));
    assert!(said(&mut session).contains("127 PORT (127,0,0,1,1,2)\r\n"));
    for line in [
        "GET path=/a;port=10,0,0,2,9,9;",
        "PUT path=/a;port=10,0,0,1,0,25;",
    ] {
        assert!(answer(&mut session, line).starts_with("500 "), "{line}");
    }
    // What is refused so takes nothing from the next transfer.
    assert!(answer(&mut session, "REST 5").starts_with("350 "));
    assert!(answer(&mut session, "GET path=/a;port=10,0,0,2,9,9;").starts_with("500 "));
    let What::Send { restart, .. } = transfer(action(&mut session, "GET path=/a;pasv;")).what
    else {
        panic!("it sends nothing");
    };
    assert!(restart.is_some());
    // The tool that uses them crashes in some transfers between two servers.
    session.complete(Ok(Outcome::Done));
    session.config.third_party = true;
    said(&mut session);
    assert!(!answer(&mut session, "FEAT").contains("GETPUT"));
    transfer(action(&mut session, "GET path=/a;port=10,0,0,2,9,9;"));
    session.complete(Ok(Outcome::Done));
    session.config.third_party = false;
    // Reply 127 has no form for other addresses.
    session.config.peer = "2001:db8::1".parse().unwrap();
    said(&mut session);
    assert!(!answer(&mut session, "FEAT").contains("GETPUT"));
    assert!(answer(&mut session, "GET path=/a;pasv;").starts_with("522 "));
    let told = transfer(action(&mut session, "GET path=/a;"));
    assert_eq!(told.route, Route::Told);
}

#[test]
fn a_restart_is_for_the_next_transfer_only() {
    let mut session = logged_in();
    assert!(answer(&mut session, "REST 5-7").starts_with("350 "));
    let restart_of = |action| match action {
        Action::Transfer(Transfer {
            what: What::Send { restart, .. } | What::Store { restart, .. },
            ..
        }) => restart,
        other => panic!("{other:?}"),
    };
    // As clients do between REST and the transfer.
    assert_eq!(action(&mut session, "PASV"), Action::Listen);
    session.complete(Ok(Outcome::Listening("127.0.0.1:258".parse().unwrap())));
    assert!(said(&mut session).contains("(127,0,0,1,1,2)"));
    assert!(restart_of(action(&mut session, "STOR /a")).is_some());
    session.complete(Ok(Outcome::Done));
    assert!(restart_of(action(&mut session, "RETR /a")).is_none());
    session.complete(Ok(Outcome::Done));
}

#[test]
fn replies_of_passive_modes_can_be_read() {
    let mut session = logged_in();
    let address: SocketAddr = "127.0.0.1:258".parse().unwrap();
    for (line, wanted) in [
        ("EPSV", "229 Entering Extended Passive Mode (|||258|)\r\n"),
        (
            "SPAS",
            "229-Entering Striped Passive Mode.\r\n 127,0,0,1,1,2\r\n229 End\r\n",
        ),
    ] {
        assert_eq!(action(&mut session, line), Action::Listen);
        session.complete(Ok(Outcome::Listening(address)));
        assert_eq!(said(&mut session), wanted);
    }
    // Data nodes have files in MODE E.
    answer(&mut session, "MODE E");
    assert_eq!(action(&mut session, "SPAS"), Action::ListenStriped);
    let nodes = [address, "10.0.0.9:515".parse().unwrap()];
    session.complete(Ok(Outcome::ListeningStriped(nodes.to_vec())));
    let wanted = "229-Entering Striped Passive Mode.\r\n 127,0,0,1,1,2\r\n \
                  10,0,0,9,2,3\r\n229 End\r\n";
    assert_eq!(said(&mut session), wanted);
    answer(&mut session, "MODE T");
    assert_eq!(action(&mut session, "SPAS"), Action::Listen);
    session.complete(Ok(Outcome::Done));
    said(&mut session);
    answer(&mut session, "OPTS PASV AllowDelayed=1;");
    assert_eq!(action(&mut session, "PASV"), Action::DelayPassive);
    session.complete(Ok(Outcome::Done));
    assert_eq!(said(&mut session), "200 Passive delayed.\r\n");
    session.delayed(address);
    assert!(said(&mut session).starts_with("127 Entering Passive Mode (127,0,0,1,1,2)"));
}

#[test]
fn markers_have_the_form_that_clients_read() {
    let mut session = logged_in();
    let mut durable = RangeSet::new();
    for (start, end) in [(0, 2), (10, 13)] {
        durable.insert(xdfs_proto::ByteRange { start, end });
    }
    session.progress((0, 1), 17_952_901_947, 5, &durable);
    let wanted = "112-Perf Marker\r\n Timestamp:  1795290194.7\r\n Stripe Index: 0\r\n Stripe \
                  Bytes Transferred: 5\r\n Total Stripe Count: 1\r\n112 End.\r\n111 Range Marker \
                  0-2,10-13\r\n";
    assert_eq!(said(&mut session), wanted);
}

#[test]
fn directories_are_followed_and_renames_need_two_steps() {
    let mut session = logged_in();
    action(&mut session, "CWD a");
    session.complete(Ok(attributes(FileKind::Directory)));
    assert!(said(&mut session).starts_with("250 "));
    action(&mut session, "CWD file");
    session.complete(Ok(attributes(FileKind::File)));
    assert!(said(&mut session).starts_with("550 "));
    assert!(answer(&mut session, "PWD").starts_with("257 \"/a\" "));
    assert!(answer(&mut session, "RNTO b").starts_with("503 "));
    action(&mut session, "RNFR x");
    session.complete(Ok(attributes(FileKind::File)));
    assert!(said(&mut session).starts_with("350 "));
    let rename = Call::Rename {
        from: b"/a/x".to_vec(),
        to: b"/b".to_vec(),
        overwrite: true,
    };
    assert_eq!(action(&mut session, "RNTO /b"), Action::Call(rename));
    session.complete(Ok(Outcome::Answer(Answer::Done)));
    assert!(said(&mut session).starts_with("250 "));
}

/// The path of a file to be stored, and whether it has an announced checksum.
fn stored(session: &mut Session, line: &str) -> (Vec<u8>, bool) {
    match action(session, line) {
        Action::Transfer(Transfer {
            what: What::Store {
                path, announced, ..
            },
            ..
        }) => (path, announced.is_some()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_announced_checksum_waits_for_a_transfer_that_begins() {
    let mut session = logged_in();
    let sum = "0".repeat(32);
    assert!(answer(&mut session, &format!("SCKS MD5 {sum}")).starts_with("200 "));
    for _ in 0..2 {
        assert_eq!(stored(&mut session, "STOR a"), (b"/a".to_vec(), true));
        session.complete(Err(Fault::new(Code::NotFound, "a test", "refused")));
    }
    action(&mut session, "RETR b");
    session.begun(false, None, None);
    session.complete(Ok(Outcome::Done));
    assert_eq!(stored(&mut session, "STOR a"), (b"/a".to_vec(), true));
    session.begun(false, None, None);
    session.complete(Ok(Outcome::Done));
    assert_eq!(stored(&mut session, "STOR a"), (b"/a".to_vec(), false));
}

#[test]
fn a_unique_name_lies_in_the_directory_that_is_given() {
    for (line, path) in [
        ("STOU", "/stou"),
        ("STOU a/", "/a/stou"),
        ("STOU a/b", "/a/b"),
    ] {
        let mut session = logged_in();
        let stored = stored(&mut session, line).0;
        assert_eq!(String::from_utf8(stored).unwrap(), path, "{line}");
    }
}

#[test]
fn the_end_is_the_last_word() {
    let mut session = logged_in();
    session.receive(b"QUIT\r\nNOOP\r\n");
    assert_eq!(session.poll(), Some(Action::Close));
    assert_eq!(said(&mut session), "221 Goodbye.\r\n");
    let mut session = logged_in();
    action(&mut session, "SIZE /a");
    session.end("Idle.");
    session.end("Idle.");
    session.complete(Ok(attributes(FileKind::File)));
    assert_eq!(session.poll(), Some(Action::Close));
    assert!(said(&mut session).contains("421 Idle.\r\n"));
}

/// A session of alice with a security context.
fn mapped() -> Session {
    let mut session = session(true);
    assert!(answer(&mut session, "ADAT AAAA").starts_with("503 "));
    assert!(answer(&mut session, "AUTH GSSAPI").starts_with("334 "));
    let token = action(&mut session, "ADAT AAEC");
    assert_eq!(token, Action::Authenticate(vec![0, 1, 2]));
    session.complete(Ok(Outcome::Token(vec![1])));
    assert_eq!(said(&mut session), "335 ADAT=AQ==\r\n");
    assert!(matches!(
        action(&mut session, "ADAT AAAA"),
        Action::Authenticate(_)
    ));
    session.complete(Ok(Outcome::Secured(Vec::new())));
    assert!(said(&mut session).starts_with("235 "));
    for line in ["ADAT AAAA", "AUTH GSSAPI", "AUTH TLS"] {
        assert!(answer(&mut session, line).starts_with("503 "), "{line}");
    }
    assert!(answer(&mut session, "USER :globus-mapping:").starts_with("331 "));
    let login = action(&mut session, "PASS ");
    assert_eq!(login, Action::LogInMapped { user: None });
    session.complete(Ok(Outcome::User("alice".into())));
    assert_eq!(said(&mut session), "230 User alice logged in.\r\n");
    session
}

/// What somebody in between says before a context or TLS protects anything changes nothing.
#[test]
fn nothing_that_was_said_in_clear_counts() {
    let mut session = session(false);
    assert!(answer(&mut session, "AUTH GSSAPI").starts_with("334 "));
    for line in [
        "USER anonymous",
        "PASS x",
        "REST 300",
        "ALLO 5",
        "MODE E",
        "PASV",
        "CWD /pub",
        "PBSZ 0",
        "PROT C",
        "DCAU N",
        "FEAT",
    ] {
        let said = answer(&mut session, line);
        assert_eq!(said, "503 ADAT has to follow.\r\n", "{line}");
    }
    assert!(answer(&mut session, "NOOP").starts_with("200 "));
    // An attempt that fails ends the session.
    action(&mut session, "ADAT AAEC");
    session.complete(Err(Fault::new(Code::AuthenticationFailed, "", "no")));
    assert_eq!(session.poll(), Some(Action::Close));
    let mut session = self::session(false);
    assert!(answer(&mut session, "USER anonymous").starts_with("331 "));
    // A name that was given before isn't that of whoever comes with TLS.
    assert_eq!(action(&mut session, "AUTH TLS"), Action::StartTls);
    session.complete(Ok(Outcome::Done));
    assert!(said(&mut session).starts_with("234 "));
    assert!(answer(&mut session, "PASS x").starts_with("503 USER"));
}

#[test]
fn users_of_contexts_protect_their_data() {
    let mut session = mapped();
    for (line, code) in [
        ("RETR /a", "521 "),
        ("PROT P", "503 "),
        ("PBSZ 1048576", "200 "),
        ("PROT C", "534 "),
        ("PROT E", "536 "),
        ("DCAU N", "534 "),
        ("DCAU X", "501 "),
        ("DCAU S", "501 "),
        ("CCC", "534 "),
        ("PROT S", "200 "),
        ("DCAU S /CN=a b", "200 "),
    ] {
        assert!(answer(&mut session, line).starts_with(code), "{line}");
    }
    let protection = |session: &mut Session| {
        let Action::Transfer(transfer) = action(session, "RETR /a") else {
            panic!("nothing is transferred");
        };
        session.complete(Ok(Outcome::Done));
        said(session);
        transfer.protection
    };
    let subject = Some("/CN=a b".to_owned());
    let seals = true;
    let wanted = Protection::Context { subject, seals };
    assert_eq!(protection(&mut session), wanted);
    answer(&mut session, "DCAU A");
    let subject = None;
    assert_eq!(
        protection(&mut session),
        Protection::Context { subject, seals }
    );
    // Without an end of TLS, what ALLO has told has to come, of the next transfer alone.
    answer(&mut session, "ALLO 5");
    assert!(matches!(
        action(&mut session, "STOR /a"),
        Action::Transfer(_)
    ));
    session.moved(4);
    assert!(session.is_unproved(false) && !session.is_unproved(true));
    session.moved(1);
    assert!(!session.is_unproved(false));
    session.moved(1);
    assert!(session.is_unproved(false));
    session.complete(Ok(Outcome::Done));
    action(&mut session, "STOR /a");
    assert!(session.is_unproved(false) && !session.is_unproved(true));
}

#[test]
fn nothing_in_clear_counts_after_the_last_token() {
    for line in ["USER alice\r\n", "U"] {
        let mut session = session(false);
        answer(&mut session, "AUTH GSSAPI");
        session.receive(format!("ADAT AAAA\r\n{line}").as_bytes());
        assert!(matches!(session.poll(), Some(Action::Authenticate(_))));
        session.complete(Ok(Outcome::Secured(Vec::new())));
        assert!(said(&mut session).starts_with("421 "));
        assert_eq!(session.poll(), Some(Action::Close));
    }
    // One that fails ends the session, and what was said before it doesn't count.
    let mut session = session(false);
    answer(&mut session, "USER anonymous");
    answer(&mut session, "AUTH GSSAPI");
    assert!(answer(&mut session, "PASS x").starts_with("503 "));
    action(&mut session, "ADAT AAAA");
    session.complete(Err(Fault::new(Code::AuthenticationFailed, "", "no")));
    assert!(said(&mut session).starts_with("535 "));
    assert_eq!(session.poll(), Some(Action::Close));
}
