//! Servers that break the rules: nothing of theirs becomes a file, and nothing waits for long.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::{Fake, SIZE, Talk, block, content, header};
use crate::places::xdfs;
use crate::stage::{PATIENCE, Stage, assert_bytes, outcome, run};

const MLST: &str = " MLST Type*;Size*;Modify*;\r\n";
const EXTENDED: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";

/// Copies a file from a server whose answer to RETR is `act`. Returns what the program printed, and
/// whether the file is there.
#[track_caller]
fn fetched(
    stage: &Stage,
    features: &str,
    act: impl Fn(&mut Talk) + Send + Sync + 'static,
) -> (String, bool) {
    let fake = Fake::start(features, move |verb, _, talk| {
        let is_wanted = verb == "RETR";
        if is_wanted {
            act(talk);
        }
        is_wanted
    });
    let target = stage.here("file");
    let (url, path) = (fake.url("/f"), target.display().to_string());
    let words = ["cp", "--retries=0", "--insecure", &url, &path];
    let (succeeded, text) = outcome(&mut xdfs(stage, &words));
    assert_eq!(succeeded, target.exists(), "{text}");
    if succeeded {
        assert_bytes(&target, &content());
        fs::remove_file(&target).unwrap();
    }
    (text, succeeded)
}

#[test]
fn a_file_in_stream_mode_is_whole_or_none() {
    let stage = Stage::open(90, &[]);
    let (text, succeeded) = fetched(&stage, MLST, |talk| talk.send(&content()));
    assert!(succeeded, "{text}");
    // The confirmation may come before the data.
    let (text, succeeded) = fetched(&stage, MLST, |talk| {
        talk.say("150 now\r\n226 done\r\n");
        talk.data().write_all(&content()).unwrap();
    });
    assert!(succeeded, "{text}");
    let (text, succeeded) = fetched(&stage, MLST, |talk| talk.send(&content()[..SIZE / 2]));
    assert!(!succeeded && text.contains("before its size"), "{text}");
    let (text, succeeded) = fetched(&stage, MLST, |talk| {
        talk.say("150 now\r\n");
        talk.data().write_all(&content()).unwrap();
        talk.close();
    });
    assert!(!succeeded && text.contains("control connection"), "{text}");
    let (text, succeeded) = fetched(&stage, MLST, |talk| {
        let more = [content(), vec![7]].concat();
        talk.send(&more);
    });
    assert!(!succeeded && text.contains("more of it"), "{text}");
    let (text, succeeded) = fetched(&stage, MLST, |talk| {
        talk.say("150 now\r\n");
        talk.data().write_all(&content()).unwrap();
        talk.say("426 aborted\r\n");
    });
    assert!(!succeeded && text.contains("426 aborted"), "{text}");
}

#[test]
fn endless_replies_end() {
    let stage = Stage::open(91, &[]);
    for reply in ["150-x\r\n", "112 x\r\n"] {
        let (text, succeeded) = fetched(
            &stage,
            MLST,
            move |talk| while talk.say(&reply.repeat(1000)) {},
        );
        assert!(!succeeded && text.contains("repl"), "{text}");
    }
    let (text, succeeded) = fetched(&stage, MLST, |talk| {
        talk.say("what is this\r\n");
    });
    assert!(!succeeded && text.contains("number"), "{text}");
}

/// Sends pieces over one data connection in MODE E, and confirms them.
fn blocks(pieces: Vec<Vec<u8>>) -> impl Fn(&mut Talk) + Send + Sync + 'static {
    move |talk| {
        talk.say("150 now\r\n");
        let mut data = talk.data();
        for piece in &pieces {
            // The client may have had enough.
            let _ = data.write_all(piece);
        }
        talk.say("226 done\r\n");
    }
}

#[test]
fn a_file_in_mode_e_is_whole_or_none() {
    let stage = Stage::open(92, &[]);
    let all = content();
    let (first, second) = all.split_at(600);
    let end = |count| header(0x48, 0, count);
    // In any order.
    let good = vec![block(0, 600, second), block(0, 0, first), end(1)];
    let (text, succeeded) = fetched(&stage, EXTENDED, blocks(good));
    assert!(succeeded, "{text}");
    for (pieces, cause) in [
        (
            vec![block(0, 0, first), block(0, 500, &all[500..]), end(1)],
            "came twice",
        ),
        (
            vec![block(0, 600, second), block(0, 700, &all[..10]), end(1)],
            "came twice",
        ),
        (vec![block(0, 900, &all[..200]), end(1)], "more of it"),
        (
            vec![block(0, u64::MAX - 5, &all[..10]), end(1)],
            "past the largest",
        ),
        (vec![block(0, 0, &all), end(0)], "announces 0"),
        (vec![block(0, 0, &all), end(100_000)], "announces 100000"),
        (vec![block(0x40, 0, &all)], "payload"),
        (vec![block(0x10, 0, &all)], "unknown descriptor"),
        (vec![block(0, 600, second), end(1)], "before its size"),
        (vec![block(0, 0, first)], "closed"),
        (vec![header(0, SIZE as u64, 0), first.to_vec()], "closed"),
        (vec![vec![0; 5]], "closed"),
    ] {
        let (text, succeeded) = fetched(&stage, EXTENDED, blocks(pieces));
        assert!(!succeeded && text.contains(cause), "{cause}: {text}");
    }
}

/// Blocks without payload say nothing, however many there are.
#[test]
fn a_copy_from_a_server_of_empty_blocks_can_be_interrupted() {
    let stage = Stage::open(92, &[]);
    let fake = Fake::start(EXTENDED, |verb, _, talk| {
        if verb == "RETR" {
            talk.say("150 now\r\n");
            let mut data = talk.data();
            while data.write_all(&header(0, 0, 0).repeat(100)).is_ok() {}
        }
        verb == "RETR"
    });
    let (url, target) = (fake.url("/f"), stage.here("file"));
    let path = target.display().to_string();
    let words = ["cp", "--retries=0", "--insecure", &url, &path];
    let mut client = Guard::spawn(&mut xdfs(&stage, &words)).unwrap();
    assert!(wait::until(PATIENCE, || fake.was_read()));
    thread::sleep(Duration::from_millis(200));
    client.interrupt().unwrap();
    // Long before the server counts as silent.
    let status = client.wait(PATIENCE / 2).unwrap().unwrap();
    assert!(!status.success() && !target.exists());
}

#[test]
fn a_client_that_cannot_be_reached_opens_the_connection_itself() {
    let stage = Stage::open(93, &[]);
    let fake = Fake::start(EXTENDED, |verb, _, talk| {
        let refuses = verb == "RETR" && talk.is_extended;
        if refuses {
            talk.say("425 can't connect\r\n");
        }
        refuses
    });
    let target = stage.here("file");
    let (url, path) = (fake.url("/f"), target.display().to_string());
    let words = ["cp", "-v", "--retries=0", "--insecure", &url, &path];
    let text = run(&mut xdfs(&stage, &words));
    assert!(text.contains("can't connect to this machine"), "{text}");
    assert_bytes(&target, &content());
    let commands = fake.commands();
    let at = |wanted: &str| commands.iter().position(|command| command == wanted);
    assert!(at("MODE E") < at("EPSV"), "{commands:?}");
}

#[test]
fn data_connections_are_prepared_in_one_round_trip() {
    let stage = Stage::open(97, &[]);
    let fake = Fake::start(EXTENDED, |verb, _, talk| {
        // No command is answered before the last one has come.
        match verb {
            "MODE" | "OPTS" => true,
            "PORT" => talk.say("200 fine\r\n200 fine\r\n200 fine\r\n"),
            _ => false,
        }
    });
    let target = stage.here("file");
    let (url, path) = (fake.url("/f"), target.display().to_string());
    run(&mut xdfs(
        &stage,
        &["cp", "--retries=0", "--insecure", &url, &path],
    ));
    assert_bytes(&target, &content());
}

#[test]
fn a_server_that_connects_nowhere_is_connected_to() {
    let stage = Stage::open(98, &[]);
    let fake = Fake::start(EXTENDED, |verb, _, talk| {
        verb == "PORT" && talk.say("500 never\r\n")
    });
    let target = stage.here("file");
    let (url, path) = (fake.url("/f"), target.display().to_string());
    run(&mut xdfs(
        &stage,
        &["cp", "--retries=0", "--insecure", &url, &path],
    ));
    assert_bytes(&target, &content());
    let commands = fake.commands();
    let at = |wanted: &str| commands.iter().position(|command| command == wanted);
    assert!(
        at("MODE E").is_some() && at("MODE E") < at("EPSV"),
        "{commands:?}"
    );
}

#[test]
fn a_server_that_has_lost_a_data_connection_is_asked_again() {
    let stage = Stage::open(99, &[]);
    let is_again = AtomicBool::new(false);
    let fake = Fake::start(EXTENDED, move |verb, _, talk| {
        let breaks = verb == "RETR" && !is_again.swap(true, Ordering::Relaxed);
        if breaks {
            talk.say("150 now\r\n");
            let half = block(0, 0, &content()[..SIZE / 2]);
            talk.data().write_all(&half).unwrap();
            talk.say(
                "500-Command failed. : callback failed.\r\n500-globus_xio: System error in \
                 recv: Connection reset by peer\r\n500 End.\r\n",
            );
        }
        breaks
    });
    let target = stage.here("file");
    let (url, path) = (fake.url("/f"), target.display().to_string());
    run(&mut xdfs(&stage, &["cp", "--insecure", &url, &path]));
    assert_bytes(&target, &content());
    let commands = fake.commands();
    assert!(
        !commands.iter().any(|command| command == "EPSV"),
        "{commands:?}"
    );
}

#[test]
fn data_connections_go_to_the_server_only() {
    let stage = Stage::open(94, &[]);
    let fake = Fake::start(MLST, |verb, _, talk| {
        match verb {
            "EPSV" => talk.say("500 what\r\n"),
            "PASV" => talk.say("227 there (127,0,0,2,200,1)\r\n"),
            _ => return false,
        };
        true
    });
    let target = stage.here("file");
    let (url, path) = (fake.url("/f"), target.display().to_string());
    let words = ["cp", "--retries=0", "--insecure", &url, &path];
    let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && text.contains("names 127.0.0.2"), "{text}");
    assert!(!fake.was_read());
}

#[test]
fn no_listing_leads_out_of_the_target() {
    let stage = Stage::open(95, &[]);
    for (name, size) in [
        ("../evil", "1"),
        ("/evil", "1"),
        ("..", "1"),
        ("a/b", "1"),
        ("a\0b", "1"),
        ("absurd", "99999999999999999999"),
        ("negative", "-1"),
    ] {
        let row = format!("Type=file;Size={size}; {name}\r\n");
        let fake = Fake::start(MLST, move |verb, _, talk| {
            let is_listing = verb == "MLSD";
            if is_listing {
                talk.send(row.as_bytes());
            }
            is_listing
        });
        let (url, path) = (fake.url("/d"), stage.here("in/d").display().to_string());
        fs::create_dir_all(stage.here("in")).unwrap();
        let words = ["cp", "-r", "--retries=0", "--insecure", &url, &path];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        assert!(
            !succeeded && text.contains("the listing has"),
            "{name:?}: {text}"
        );
        let (succeeded, text) = outcome(&mut xdfs(&stage, &["ls", "--insecure", &url]));
        assert!(
            !succeeded && text.contains("the listing has"),
            "{name:?}: {text}"
        );
        assert!(!stage.here("evil").exists() && !stage.here("in/evil").exists());
        assert!(!fake.was_read());
    }
}

/// The end of a file that a server sends.
#[derive(Clone, Copy)]
enum Fate {
    /// It is sent as a whole.
    Whole,
    /// It ends too early, and is confirmed.
    Short,
    /// The half of it is sent, and this is said, behind which the session ends if it is a 421 or
    /// nothing.
    Half(&'static str),
}

/// Copies a tree of files, of which number 7 has the fate that `fate` says of its attempt. Returns
/// whether that succeeds, what is said, and the names of the files that are there.
fn fetched_tree(
    stage: &Stage,
    features: &str,
    fate: impl Fn(usize) -> Fate + Send + Sync + 'static,
) -> (bool, String, Vec<String>) {
    let asked = AtomicUsize::new(0);
    // In MODE E all files of a session come over one connection.
    let kept = Mutex::new(HashMap::new());
    let fake = Fake::start(features, move |verb, argument, talk| {
        let session = thread::current().id();
        match (verb, argument) {
            ("MLSD", "/d") => {
                let row = |n| format!("Type=file;Size={SIZE};Modify=20260102030405; f{n}\r\n");
                talk.send((0..40).map(row).collect::<String>().as_bytes());
            }
            ("PORT", _) => {
                kept.lock().unwrap().remove(&session);
                return false;
            }
            ("RETR", path) => {
                let fate = match path {
                    "/d/f7" => fate(asked.fetch_add(1, Ordering::Relaxed)),
                    _ => Fate::Whole,
                };
                let bytes = match fate {
                    Fate::Whole => content(),
                    Fate::Short | Fate::Half(_) => content()[..SIZE / 2].to_vec(),
                };
                let is_whole = !matches!(fate, Fate::Half(_));
                let last = match is_whole {
                    true => header(0x48, 0, 1),
                    false => Vec::new(),
                };
                talk.say("150 now\r\n");
                let mut kept = kept.lock().unwrap();
                // The client may be gone.
                let _ = match talk.is_extended {
                    true => kept
                        .entry(session)
                        .or_insert_with(|| talk.data())
                        .write_all(&[block(0, 0, &bytes), last].concat()),
                    false => talk.data().write_all(&bytes),
                };
                match fate {
                    Fate::Whole | Fate::Short => talk.say("226 done\r\n"),
                    Fate::Half(reply) => talk.say(reply),
                };
                if matches!(fate, Fate::Half(reply) if reply.is_empty() || reply.starts_with("421"))
                {
                    kept.remove(&session);
                    talk.close();
                }
            }
            _ => return false,
        }
        true
    });
    let target = stage.here("tree");
    let (url, path) = (fake.url("/d"), target.display().to_string());
    let words = ["cp", "-r", "--retries=0", "--insecure", &url, &path];
    let (succeeded, text) = outcome(&mut xdfs(stage, &words));
    let entries = fs::read_dir(&target).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
    for name in &names {
        assert_bytes(&target.join(name), &content());
    }
    let _ = fs::remove_dir_all(&target);
    (succeeded, text, names)
}

#[test]
fn a_file_that_fails_on_its_way_fails_by_itself() {
    let stage = Stage::open(97, &[]);
    for features in [MLST, EXTENDED] {
        for (fate, words) in [
            (Fate::Half("451 read error\r\n"), "451 read error"),
            (Fate::Half("550 read error\r\n"), "550 read error"),
            (Fate::Half("426 aborted\r\n"), "426 aborted"),
            (Fate::Short, "before its size"),
        ] {
            let (succeeded, text, names) = fetched_tree(&stage, features, move |_| fate);
            assert!(!succeeded && text.contains(words), "{text}");
            assert_eq!(names.len(), 39, "{features} {words}: {text}");
            assert!(!names.contains(&"f7".to_owned()));
        }
    }
}

#[test]
fn a_server_that_ends_within_a_pack_is_asked_for_the_rest() {
    let stage = Stage::open(98, &[]);
    for features in [MLST, EXTENDED] {
        for reply in ["421 going down\r\n", ""] {
            let fate = move |attempt| match attempt {
                0 => Fate::Half(reply),
                _ => Fate::Whole,
            };
            let (succeeded, text, names) = fetched_tree(&stage, features, fate);
            assert!(
                succeeded && names.len() == 40,
                "{features}: {names:?} {text}"
            );
        }
    }
}

/// A server that refuses the login says so, whatever it is that it refuses, and is named.
#[test]
fn what_refuses_a_session_is_of_the_server() {
    let stage = Stage::open(99, &[]);
    for (command, reply) in [
        ("USER", "530 'USER me' not here"),
        ("PASS", "500 'PASS secretpw': command not understood"),
        ("PASS", "421 'secretpw' is tired"),
        ("TYPE", "504 no type"),
    ] {
        let fake = Fake::start(MLST, move |verb, _, talk| {
            let refuses = verb == command;
            if refuses {
                talk.say(&format!("{reply}\r\n"));
            }
            refuses
        });
        let url = format!("ftp://me:secretpw@{}/f", fake.address);
        let words = ["ls", "--insecure", &url];
        let (succeeded, text) = outcome(&mut xdfs(&stage, &words));
        let server = format!("server {}: cannot ", fake.address);
        assert!(!succeeded && text.contains(&server), "{text}");
        let mut words = reply.split_whitespace();
        assert!(text.contains(words.next_back().unwrap()), "{text}");
        let words = ["ls", "--json", "--insecure", &url];
        let (_, json) = outcome(&mut xdfs(&stage, &words));
        assert!(json.contains("\"side\":\"remote\""), "{json}");
        let machine = format!("\"machine\":\"{}\"", fake.address);
        assert!(json.contains(&machine), "{json}");
        assert!(
            !text.contains("secretpw") && !json.contains("secretpw"),
            "{text} {json}"
        );
    }
}

#[test]
fn a_name_and_a_password_are_sent_and_not_shown() {
    let stage = Stage::open(96, &[]);
    let fake = Fake::start(MLST, |verb, _, talk| {
        let refuses = verb == "PASS";
        if refuses {
            talk.say("530 no\r\n");
        }
        refuses
    });
    let url = format!("ftp://me:se%2Fcret@{}/f", fake.address);
    let (succeeded, text) = outcome(&mut xdfs(&stage, &["cat", "--insecure", &url]));
    assert!(!succeeded && text.contains("log in as me"), "{text}");
    assert!(!text.contains("cret"), "{text}");
    let commands = fake.commands();
    assert_eq!(commands[..2], ["USER me", "PASS se/cret"]);
}
