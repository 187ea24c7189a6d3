//! Tests of `audit`.

use std::time::UNIX_EPOCH;

use serde_json::Value;

use super::*;

fn at(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

fn lines(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn connect(milliseconds: u64) -> Event<'static> {
    Event::new(at(milliseconds), Kind::Connect)
}

#[test]
fn an_event_is_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let audit = Audit::open(&path).unwrap();
    audit.record(&Event {
        user: "alice",
        method: Some(Method::Key),
        from: "192.0.2.1:1234",
        path: b"data/file",
        bytes: Some(u64::MAX),
        result: Some(Code::QuotaExceeded),
        session: Some(SessionId([0xab; 16])),
        ..Event::new(at(951_782_400_250), Kind::Upload)
    });
    audit.record(&connect(0));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"time":"2000-02-29T00:00:00.250Z","event":"upload","user":"alice","#,
            r#""method":"key","from":"192.0.2.1:1234","path":"data/file","#,
            r#""bytes":18446744073709551615,"result":"quota-exceeded","#,
            r#""session":"abababababababababababababababab"}"#,
            "\n",
            r#"{"time":"1970-01-01T00:00:00.000Z","event":"connect","result":"ok"}"#,
            "\n"
        )
    );
    assert_eq!(audit.failures(), 0);
}

/// A session with the ids of an account may write to the log's folder, but must not own the log.
#[cfg(target_os = "linux")]
#[test]
fn a_thread_of_another_account_makes_no_file() {
    use std::os::unix::fs::PermissionsExt as _;
    if let Err(error) = xdfs_sys::ids::check_may_change() {
        return xdfs_testkit::skip::test(format_args!("ids can't be changed: {error}"));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let (path, moved) = (dir.path().join("audit"), dir.path().join("audit.1"));
    let audit = Audit::open(&path).unwrap();
    audit.record(&connect(0));
    std::fs::rename(&path, &moved).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let ids = xdfs_sys::ids::Ids::of_account("daemon").unwrap().unwrap();
            ids.take_on().unwrap();
            audit.record(&connect(5_000));
        });
    });
    assert!(!path.exists());
    audit.record(&connect(5_001));
    assert_eq!((lines(&moved).len(), lines(&path).len()), (2, 1));
    assert_eq!(audit.failures(), 0);
}

#[test]
fn what_a_peer_sends_stays_in_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let audit = Audit::open(&path).unwrap();
    let cases: [(&[u8], &str); 6] = [
        (b"a\nb\"}\r\n", "a\\u{a}b\"}\\u{d}\\u{a}"),
        (b"\xff\xfe\xc3", "\\xff\\xfe\\xc3"),
        (b"\\xff", "\\\\xff"),
        (b"\x1b[31m\x7f\0", "\\u{1b}[31m\\u{7f}\\u{0}"),
        (
            "\u{e9}\u{202e}\u{2028}".as_bytes(),
            "\u{e9}\\u{202e}\\u{2028}",
        ),
        (b"plain name", "plain name"),
    ];
    for (bytes, _) in cases {
        audit.record(&Event {
            path: bytes,
            ..connect(0)
        });
    }
    let lines = lines(&path);
    assert_eq!(lines.len(), cases.len());
    for (line, (_, expected)) in lines.iter().zip(cases) {
        assert_eq!(line["path"], expected);
    }
}

#[test]
fn lines_are_bounded() {
    let worst = "\\\"".repeat(100_000);
    for bytes in [
        worst.as_bytes(),
        &[0xff; 1 << 20],
        &[0; 1 << 20],
        &[b'x'; 1 << 20],
        "\u{e9}".repeat(1 << 18).as_bytes(),
        "\u{10ffff}".repeat(1 << 18).as_bytes(),
    ] {
        let text = String::from_utf8_lossy(bytes);
        let line = line::encode(&Event {
            user: &text,
            subject: &text,
            method: Some(Method::Certificate),
            from: &text,
            path: bytes,
            bytes: Some(u64::MAX),
            result: Some(Code::AuthenticationFailed),
            session: Some(SessionId([0; 16])),
            ..Event::new(at(u64::MAX / 2), Kind::Authenticate)
        });
        assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["cut"], true);
        assert!(line["path"].as_str().unwrap().len() > 3000);
        assert!(line["subject"].as_str().unwrap().len() <= 512);
    }
    // The maximum length isn't truncated.
    let line = line::encode(&Event {
        path: &[b'x'; 3200],
        ..connect(0)
    });
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line.get("cut"), None);
    for length in 3201..3210 {
        let line = line::encode(&Event {
            path: &vec![b'x'; length],
            ..connect(0)
        });
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["cut"], true, "{length}");
    }
}

#[test]
fn an_audit_goes_on_where_it_ended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    for _ in 0..3 {
        Audit::open(&path).unwrap().record(&connect(0));
    }
    assert_eq!(lines(&path).len(), 3);
}

#[cfg(unix)]
#[test]
fn the_file_is_its_owners() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    Audit::open(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[cfg(unix)]
#[test]
fn a_file_that_was_renamed_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("audit"), dir.path().join("audit.1"));
    let audit = Audit::open(&path).unwrap();
    audit.record(&connect(0));
    std::fs::rename(&path, &old).unwrap();
    // Not checked for each line.
    audit.record(&connect(999));
    assert_eq!((lines(&old).len(), path.exists()), (2, false));
    audit.record(&connect(1000));
    assert_eq!((lines(&old).len(), lines(&path).len()), (2, 1));
    // Another file of that name counts too, and so does setting the clock back.
    std::fs::rename(&path, dir.path().join("audit.2")).unwrap();
    std::fs::write(&path, "").unwrap();
    audit.record(&connect(500));
    assert_eq!(lines(&path).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_file_that_can_not_be_written_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, away) = (dir.path().join("folder"), dir.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("audit");
    let audit = Audit::open(&path).unwrap();
    audit.record(&connect(0));
    // The file is gone and can't be recreated.
    std::fs::rename(&folder, &away).unwrap();
    audit.record(&connect(1000));
    audit.record(&connect(2000));
    assert_eq!(audit.failures(), 2);
    std::fs::rename(&away, &folder).unwrap();
    audit.record(&connect(3000));
    assert_eq!((audit.failures(), lines(&path).len()), (2, 2));
}

#[test]
fn only_a_regular_file_will_do() {
    let dir = tempfile::tempdir().unwrap();
    Audit::open(dir.path()).unwrap_err();
    let fault = Audit::open(&dir.path().join("no/audit")).unwrap_err();
    assert_eq!(fault.code, Code::NotFound);
    assert!(!fault.path.is_empty());
}

#[test]
fn a_line_after_a_torn_one_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let audit = Audit::open(&path).unwrap();
    std::fs::write(&path, r#"{"time":"19"#).unwrap();
    audit.file.as_ref().unwrap().lock().unwrap().is_torn = true;
    audit.record(&connect(0));
    audit.record(&connect(0));
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 3);
    assert!(
        text.lines()
            .skip(1)
            .all(|line| line.starts_with('{') && line.ends_with('}'))
    );
}

#[test]
fn nothing_is_kept_by_none() {
    let audit = Audit::none();
    audit.record(&connect(0));
    assert_eq!(audit.failures(), 0);
}

fn refusal(milliseconds: u64, from: &'static str) -> Event<'static> {
    Event {
        from,
        user: "alice",
        method: Some(Method::Password),
        result: Some(Code::AuthenticationFailed),
        ..Event::new(at(milliseconds), Kind::Authenticate)
    }
}

#[test]
fn refusals_that_repeat_are_counted_and_what_is_allowed_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit");
    let audit = Audit::open(&path).unwrap();
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    for i in 0..1000 {
        audit.record_refusal(&refusal(i * 10, "192.0.2.1:1000"), address);
    }
    // Another reason, method or network is written at once.
    let busy = Event {
        result: Some(Code::LimitExceeded),
        ..refusal(10_000, "192.0.2.1:2000")
    };
    audit.record_refusal(&busy, address);
    let by_key = Event {
        method: Some(Method::Key),
        ..refusal(10_000, "192.0.2.1:2000")
    };
    audit.record_refusal(&by_key, address);
    let other = "192.0.2.2".parse().unwrap();
    audit.record_refusal(&refusal(10_000, "192.0.2.2:1"), other);
    for i in 0..3 {
        let allowed = Event {
            result: None,
            ..refusal(10_000 + i, "192.0.2.1:3000")
        };
        audit.record(&allowed);
    }
    assert_eq!(lines(&path).len(), 1 + 3 + 3);
    audit.tick(at(59_999));
    assert_eq!(lines(&path).len(), 7);
    audit.tick(at(60_000));
    let told = lines(&path);
    assert_eq!(told.len(), 8, "{told:?}");
    let last = told.last().unwrap();
    assert_eq!(last["repeats"], 999);
    assert_eq!(last["time"], "1970-01-01T00:00:09.990Z");
    assert_eq!(
        (&last["user"], &last["result"]),
        (&"alice".into(), &told[0]["result"])
    );
    assert_eq!(last["from"], "192.0.2.1:1000");
    // Another minute begins with a line.
    audit.record_refusal(&refusal(60_500, "192.0.2.1:1000"), address);
    audit.record_refusal(&refusal(60_600, "192.0.2.1:1000"), address);
    assert_eq!(lines(&path).len(), 9);
    // Counted refusals aren't lost at the end.
    drop(audit);
    assert_eq!(lines(&path).last().unwrap()["repeats"], 1);
}

#[test]
fn runs_of_refusals_are_bounded() {
    let mut repeats = Repeats::default();
    let network = |i: u32| Network::of(std::net::Ipv4Addr::from(i).into());
    let written = (0..10_000)
        .filter(|&i| repeats.note(&refusal(0, "192.0.2.1:1"), network(i)))
        .count();
    assert_eq!((written, repeats.len()), (4096, 4096));
    let counted: u64 = repeats.take(None).iter().map(|run| run.count).sum();
    assert_eq!(counted, 10_000 - 4096);
    assert_eq!(repeats.len(), 0);
    // Setting the clock back doesn't suppress lines.
    assert!(repeats.note(&refusal(5000, "192.0.2.1:1"), network(1)));
    assert!(!repeats.note(&refusal(5000, "192.0.2.1:1"), network(1)));
    assert_eq!(repeats.take(Some(at(4000))).len(), 1);
}

#[test]
fn what_differs_among_refusals_is_left_out() {
    let mut repeats = Repeats::default();
    let network = Network::of("2001:db8::1".parse().unwrap());
    for (from, user) in [("[2001:db8::1]:1", "alice"), ("[2001:db8::2]:1", "bob")] {
        let event = Event {
            user,
            ..refusal(0, from)
        };
        repeats.note(&event, network);
    }
    let run = repeats.take(None).pop().unwrap();
    assert_eq!(
        (run.user.as_str(), run.from.as_str(), run.count),
        ("", "", 1)
    );
}
