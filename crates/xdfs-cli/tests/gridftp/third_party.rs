//! Copies from one server to another: straight where both can do that, and otherwise through this
//! machine.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::{Fake, SIZE, Talk, content};
use crate::places::{vsftpd, xdfs};
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, names, outcome, run};
use crate::tools::Globus;

const MLST: &str = " MLST Type*;Size*;Modify*;\r\n";
const EXTENDED: &str = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";
const SUMS: &str = " MLST Type*;Size*;Modify*;\r\n CKSM MD5:10;\r\n";
/// Bytes that need several data connections.
const LARGE: usize = 9_000_001;

/// A server, and a directory of it.
struct Place {
    url: String,
    root: PathBuf,
}

/// Copies a file or tree, and returns what the program printed.
#[track_caller]
fn copy(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    let words = [&["cp", "--insecure"], flags, &[from, to]].concat();
    run(&mut xdfs(stage, &words))
}

/// Copies, and returns what the program printed; fails if it succeeds.
#[track_caller]
fn fails(stage: &Stage, flags: &[&str], from: &str, to: &str) -> String {
    let words = [&["cp", "--insecure", "--retries=0"], flags, &[from, to]].concat();
    let (succeeded, text) = outcome(&mut xdfs(stage, &words));
    assert!(!succeeded, "{text}");
    text
}

fn seconds(path: &Path) -> i64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).unwrap().mtime()
}

#[test]
fn files_go_straight_between_all_servers() {
    let stage = Stage::open(110, &[]);
    fs::create_dir(stage.root("ours")).unwrap();
    let mut places = vec![Place {
        url: stage.url("/ours"),
        root: stage.root("ours"),
    }];
    let globus = Globus::start();
    if let Some(globus) = &globus {
        let root = stage.beside("globus");
        fs::create_dir(&root).unwrap();
        places.push(Place {
            url: format!("ftp://{}/{}", globus.address, root.display()),
            root,
        });
    }
    let simple = vsftpd(&stage, "");
    if let Some((_, address)) = &simple {
        places.push(Place {
            url: format!("ftp://{address}/pub"),
            root: stage.beside("anonymous/pub"),
        });
    }
    for (number, source) in places.iter().enumerate() {
        for bytes in [0, 1, LARGE] {
            let name = format!("file{bytes}");
            let content = Stage::make(&source.root.join(&name), bytes);
            let served = fs::File::options()
                .write(true)
                .open(source.root.join(&name));
            // Of a file that is fresh nobody knows whether it is complete.
            let time = std::time::SystemTime::now() - Duration::from_secs(100_000);
            served.unwrap().set_modified(time).unwrap();
            for target in &places {
                let to = format!("{name}-of-{number}");
                let from = format!("{}/{name}", source.url);
                let said = copy(
                    &stage,
                    &["--json", "--between=direct"],
                    &from,
                    &format!("{}/{to}", target.url),
                );
                assert!(said.contains("\"direct\":true"), "{said}");
                let stored = target.root.join(to);
                assert_bytes(&stored, &content);
                assert_eq!(seconds(&stored), seconds(&source.root.join(&name)));
            }
        }
    }
    for place in &places {
        let mut all = fs::read_dir(&place.root).unwrap();
        let is_hidden = |name: &str| name.ends_with(".ftp-part");
        assert!(!all.any(|entry| is_hidden(&entry.unwrap().file_name().to_string_lossy())));
    }
}

#[test]
fn trees_and_lists_go_either_way() {
    let (one, two) = (Stage::open(111, &[]), Stage::open(112, &[]));
    let tree = one.root("tree");
    for number in 0..30 {
        let name = format!("d{}/f {number}", number % 3);
        Stage::make(&tree.join(name), number * 41);
    }
    Stage::make(&tree.join("deep/er/large"), LARGE);
    fs::create_dir(tree.join("empty")).unwrap();
    let url = one.url("/tree");
    for (way, target) in [("direct", "direct"), ("client", "client"), ("any", "any")] {
        let way = format!("--between={way}");
        copy(&one, &["-r", &way], &url, &two.url(&format!("/{target}")));
        assert_same_tree(&tree, &two.root(target));
        assert_eq!(
            seconds(&two.root(target).join("d1")),
            seconds(&tree.join("d1"))
        );
    }
    // Once more, there is nothing left to do.
    let said = copy(&one, &["-r"], &format!("{url}/"), &two.url("/any/"));
    assert!(said.contains("were there already"), "{said}");
    let said = copy(&one, &["-r", "--dry-run"], &url, &two.url("/none"));
    assert!(said.contains("would copy 31 files"), "{said}");
    assert!(!two.root("none").exists());
    let list = one.here("list");
    let lines = format!(
        "\"{url}/d1/f 1\" {}\n{url}/empty {}\n{url}/deep/er/large {}\n",
        two.url("/one"),
        two.url("/made"),
        two.url("/large"),
    );
    fs::write(&list, lines).unwrap();
    let list = format!("--from-file={}", list.display());
    run(&mut xdfs(&one, &["cp", "-r", "--insecure", &list]));
    assert_same_tree(&tree.join("deep/er/large"), &two.root("large"));
    assert_same_tree(&tree.join("d1/f 1"), &two.root("one"));
    assert!(two.root("made").is_dir());
    let (succeeded, said) = outcome(&mut xdfs(
        &one,
        &["cp", "-a", "--insecure", &url, &two.url("/all")],
    ));
    assert!(!succeeded && said.contains("--archive"), "{said}");
}

#[test]
fn existing_targets_are_treated_as_in_other_copies() {
    let (one, two) = (Stage::open(113, &[]), Stage::open(114, &[]));
    let content = Stage::make(&one.root("file"), 1000);
    Stage::make(&two.root("file"), 999);
    let (from, to) = (one.url("/file"), two.url("/file"));
    let said = fails(&one, &[], &from, &to);
    assert!(
        said.contains("exists") && said.contains("--force"),
        "{said}"
    );
    copy(&one, &["--skip-existing"], &from, &to);
    assert_eq!(fs::metadata(two.root("file")).unwrap().len(), 999);
    copy(&one, &["--force"], &from, &to);
    assert_bytes(&two.root("file"), &content);
    let said = copy(&one, &[], &from, &to);
    assert!(said.contains("were there already"), "{said}");
    // The same file, by another URL.
    let said = fails(
        &one,
        &["--remove-source"],
        &from,
        &from.replace("/file", "//file"),
    );
    assert!(said.contains("one file"), "{said}");
    assert_bytes(&one.root("file"), &content);
    assert_eq!(names(&two), ["file"]);
    let said = fails(&one, &[], &one.url("/none"), &two.url("/missing"));
    assert!(said.contains("No such file"), "{said}");
}

#[test]
fn a_server_that_sends_to_nobody_else_has_the_file_relayed() {
    let one = Stage::open(115, &[]);
    // Another host, as the first server sees it.
    let two = Stage::open(116, &["--gridftp=127.0.0.2:0"]);
    let content = Stage::make(&one.root("file"), LARGE);
    let (from, to) = (one.url("/file"), two.url("/file"));
    let said = fails(&one, &["--between=direct"], &from, &to);
    assert!(said.contains("straight"), "{said}");
    assert!(names(&two).is_empty());
    let said = copy(&one, &["-v", "--json"], &from, &to);
    assert!(said.contains("\"direct\":false"), "{said}");
    assert!(said.contains("no file can go straight"), "{said}");
    assert_bytes(&two.root("file"), &content);
    assert_eq!(names(&two), ["file"]);
    let allowed = Stage::configured(
        117,
        "[gridftp]\nthird_party = true\n[[export]]\nname = \"d\"\npath = \"ROOT\"\npublic = true\n\
         anonymous = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n",
    );
    Stage::make(&allowed.root("file"), LARGE);
    let from = allowed.url("/d/file");
    let to = two.url("/other");
    // Two hosts may use the port of the receiver only if both servers allow it.
    let said = copy(&one, &["--json"], &from, &to);
    assert!(said.contains("\"direct\":"), "{said}");
    assert_bytes(&two.root("other"), &content);
}

#[test]
fn servers_of_other_kinds_are_relayed() {
    let stage = Stage::open(118, &[]);
    let other = Stage::open(119, &[]);
    let content = Stage::make(&stage.root("file"), LARGE);
    let [here, there] = [("here", &stage), ("there", &other)];
    let [here, there] = [here, there].map(|(name, server)| stage.knows_open(name, server));
    let kinds = "of different kinds";
    for (from, to, why) in [
        (stage.url("/file"), format!("{there}/a"), kinds),
        (format!("{here}/file"), other.url("/b"), kinds),
        (format!("{here}/file"), format!("{there}/c"), "has no keys"),
    ] {
        let said = copy(&stage, &["--json"], &from, &to);
        assert!(said.contains("\"direct\":false"), "{said}");
        let said = fails(&stage, &["--between=direct", "--force", "-I"], &from, &to);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(names(&other), ["a", "b", "c"]);
    for name in names(&other) {
        assert_bytes(&other.root(&name), &content);
    }
}

/// Kills a server, or the program, in the middle of a copy, and fails unless the bytes are right
/// then, or an error was told and nothing has the name.
#[track_caller]
fn survives(seed: u64, kills: &str) {
    let mut one = Stage::open(seed, &[]);
    let mut two = Stage::open(seed + 1, &[]);
    // With holes it is made at once.
    let size = 1 << 28;
    let file = fs::File::create(one.root("file")).unwrap();
    file.set_len(size).unwrap();
    let (from, to) = (one.url("/file"), two.url("/file"));
    let words = ["cp", "-v", "--insecure", "--between=direct", &from, &to];
    let mut client = Guard::spawn(&mut xdfs(&one, &words)).unwrap();
    let has_part = || {
        let mut entries = fs::read_dir(two.root("")).unwrap();
        entries.any(|entry| {
            entry
                .unwrap()
                .metadata()
                .is_ok_and(|found| found.len() > 1 << 20)
        })
    };
    assert!(wait::until(PATIENCE, has_part), "{:?}", client.output());
    match kills {
        "sender" => one.kill_and_restart(),
        "receiver" => two.kill_and_restart(),
        _ => drop(client.kill().unwrap()),
    }
    let status = client.wait(PATIENCE).unwrap();
    let succeeded = status.is_some_and(|status| status.success());
    let target = two.root("file");
    let said = client.output().join("\n");
    assert_eq!(target.exists(), succeeded, "{said}");
    if kills == "program" {
        return;
    }
    assert!(succeeded, "{said}");
    assert_eq!(fs::metadata(&target).unwrap().len(), size);
    let left = names(&two);
    assert!(
        left.iter().all(|name| !name.ends_with(".ftp-part")),
        "{left:?}"
    );
}

#[test]
fn a_killed_sender_is_waited_for() {
    survives(120, "sender");
}

#[test]
fn a_killed_receiver_is_waited_for() {
    survives(122, "receiver");
}

#[test]
fn a_killed_program_leaves_no_half_file() {
    survives(124, "program");
}

/// A receiver that answers STOR with `store`.
fn receiver(features: &str, store: impl Fn(&mut Talk) + Send + Sync + 'static) -> Fake {
    Fake::start(features, move |verb, _, talk| {
        let answer = match verb {
            "STOR" => {
                store(talk);
                return true;
            }
            "CKSM" => "213 00000000000000000000000000000001\r\n",
            "RNFR" | "REST" => "350 go on\r\n",
            "RNTO" | "DELE" => "250 done\r\n",
            "ABOR" => "226 nothing under way\r\n",
            _ => return false,
        };
        talk.say(answer)
    })
}

/// A sender of [`content`] that answers RETR with `send`.
fn sender(features: &str, send: impl Fn(&mut Talk) + Send + Sync + 'static) -> Fake {
    Fake::start(features, move |verb, _, talk| {
        let answer = match verb {
            "RETR" => {
                send(talk);
                return true;
            }
            "CKSM" => "213 00000000000000000000000000000002\r\n",
            "REST" => "350 go on\r\n",
            "ABOR" => "226 nothing under way\r\n",
            _ => return false,
        };
        talk.say(answer)
    })
}

fn takes_all(talk: &mut Talk) {
    talk.say("150 now\r\n");
    let mut bytes = Vec::new();
    talk.data().read_to_end(&mut bytes).unwrap();
    let is_whole = bytes == content();
    talk.say(match is_whole {
        true => "226 done\r\n",
        false => "451 it is something else\r\n",
    });
}

fn commands(fake: &Fake, verb: &str) -> Vec<String> {
    let mut all = fake.commands();
    all.retain(|command| command.starts_with(verb));
    all
}

/// Copies from one fake server to another, straight. Returns what the program printed if it failed.
#[track_caller]
fn between(stage: &Stage, from: &Fake, to: &Fake) -> Result<String, String> {
    let (from, to) = (from.url("/f"), to.url("/g"));
    let words = [
        "cp",
        "-f",
        "-I",
        "--retries=0",
        "--insecure",
        "--between=direct",
        &from,
        &to,
    ];
    let (succeeded, text) = outcome(&mut xdfs(stage, &words));
    match succeeded {
        true => Ok(text),
        false => Err(text),
    }
}

#[test]
fn a_file_of_servers_that_keep_the_rules_is_copied() {
    let stage = Stage::open(130, &[]);
    let (from, to) = (
        sender(MLST, |talk| talk.send(&content())),
        receiver(MLST, takes_all),
    );
    between(&stage, &from, &to).unwrap();
    let hidden = commands(&to, "RNFR").pop().unwrap();
    assert!(
        hidden.starts_with("RNFR /.g.") && hidden.ends_with(".ftp-part"),
        "{hidden}"
    );
    assert_eq!(commands(&to, "RNTO"), ["RNTO /g"]);
    assert!(commands(&from, "PORT")[0].starts_with("PORT 127,0,0,1,"));
}

#[test]
fn what_differs_at_the_target_gets_no_name() {
    let stage = Stage::open(131, &[]);
    let (from, to) = (
        sender(SUMS, |talk| talk.send(&content())),
        receiver(SUMS, takes_all),
    );
    let text = between(&stage, &from, &to).unwrap_err();
    assert!(text.contains("MD5 is"), "{text}");
    assert!(commands(&to, "RNFR").is_empty());
    assert_eq!(commands(&to, "DELE").len(), 1);
}

#[test]
fn what_one_server_does_not_confirm_gets_no_name() {
    let stage = Stage::open(132, &[]);
    for (number, (sent, stored)) in [
        ("226 done", "451 the disk is broken"),
        ("451 the disk is broken", "226 done"),
        ("426 broken", "426 broken"),
        ("550 no", "226 done"),
    ]
    .into_iter()
    .enumerate()
    {
        let from = sender(MLST, move |talk| {
            talk.say("150 now\r\n");
            talk.data().write_all(&content()).unwrap();
            talk.say(&format!("{sent}\r\n"));
        });
        let to = receiver(MLST, move |talk| {
            talk.say("150 now\r\n");
            talk.data().read_to_end(&mut Vec::new()).unwrap();
            talk.say(&format!("{stored}\r\n"));
        });
        let text = between(&stage, &from, &to).unwrap_err();
        assert!(text.contains("server 127.0.0.1:"), "{number}: {text}");
        assert!(commands(&to, "RNFR").is_empty(), "{number}");
        assert_eq!(commands(&to, "DELE").len(), 1, "{number}");
    }
}

#[test]
fn a_confirmation_before_the_file_is_none() {
    let stage = Stage::open(133, &[]);
    let from = sender(MLST, |talk| {
        talk.say("150 now\r\n");
        talk.say("226 done\r\n");
    });
    let to = receiver(MLST, |talk| {
        talk.say("226 done\r\n");
    });
    let text = between(&stage, &from, &to).unwrap_err();
    assert!(text.contains("what it hasn't got"), "{text}");
    assert!(commands(&to, "RNFR").is_empty());
}

#[test]
fn no_server_is_sent_to_a_third_host() {
    let stage = Stage::open(134, &[]);
    let from = sender(MLST, |talk| talk.send(&content()));
    let to = Fake::start(MLST, |verb, _, talk| match verb {
        "EPSV" => talk.say("502 unknown\r\n"),
        "PASV" => talk.say("227 Entering Passive Mode (192,0,2,1,31,64)\r\n"),
        _ => false,
    });
    let text = between(&stage, &from, &to).unwrap_err();
    assert!(text.contains("192.0.2.1"), "{text}");
    assert!(commands(&from, "PORT").is_empty() && commands(&from, "EPRT").is_empty());
    // Nor by a detour.
    let text = fails(&stage, &["-f", "-I"], &from.url("/f"), &to.url("/g"));
    assert!(text.contains("192.0.2.1"), "{text}");
}

#[test]
fn names_are_no_commands() {
    let stage = Stage::open(135, &[]);
    let (from, to) = (
        sender(MLST, |talk| talk.send(&content())),
        receiver(MLST, takes_all),
    );
    for (source, target) in [("/a%0d%0aDELE%20b", "/g"), ("/f", "/a%0aDELE%20b")] {
        let flags = ["-f", "-I", "--between=direct"];
        let text = fails(&stage, &flags, &from.url(source), &to.url(target));
        assert!(text.contains("end of a line"), "{text}");
    }
    for fake in [&from, &to] {
        assert!(commands(fake, "DELE").is_empty() && commands(fake, "STOR").is_empty());
    }
}

#[test]
fn a_flood_of_markers_ends() {
    let stage = Stage::open(136, &[]);
    let from = sender(EXTENDED, |talk| talk.send(&content()));
    let to = receiver(EXTENDED, |talk| {
        talk.say("150 now\r\n");
        let marker = "111 Range Marker 0-10\r\n".repeat(1000);
        while talk.say(&marker) {}
    });
    let text = between(&stage, &from, &to).unwrap_err();
    assert!(text.contains("replies to a command"), "{text}");
    assert!(commands(&to, "RNFR").is_empty());
}

#[test]
fn silence_ends() {
    let stage = Stage::open(137, &[]);
    let from = sender(EXTENDED, |talk| {
        talk.say("150 now\r\n");
    });
    let to = receiver(EXTENDED, |talk| {
        talk.say("150 now\r\n");
    });
    let text = between(&stage, &from, &to).unwrap_err();
    assert!(text.contains("nothing has come for 30 s"), "{text}");
    assert_eq!(commands(&from, "ABOR").len(), 1);
    assert_eq!(commands(&to, "ABOR").len(), 1);
}

/// A sender whose files have the checksum of [`receiver`], and one that breaks once after markers.
fn breaking_pair(features: &str) -> (Fake, Fake) {
    let from = Fake::start(features, |verb, _, talk| {
        talk.say(match verb {
            "RETR" => "150 now\r\n226 done\r\n",
            "CKSM" => "213 00000000000000000000000000000001\r\n",
            "REST" => "350 go on\r\n",
            "ABOR" => "226 nothing under way\r\n",
            _ => return false,
        })
    });
    let breaks = std::sync::atomic::AtomicBool::new(true);
    let to = receiver(features, move |talk| {
        talk.say("150 now\r\n");
        if breaks.swap(false, std::sync::atomic::Ordering::Relaxed) {
            talk.say("111 Range Marker 0-100,200-300\r\n111 Range Marker 100-150\r\n");
            talk.close();
        } else {
            talk.say("226 done\r\n");
        }
    });
    (from, to)
}

#[test]
fn a_broken_transfer_goes_on_after_the_last_marker() {
    let stage = Stage::open(138, &[]);
    let (from, to) = breaking_pair(&format!("{EXTENDED} CKSM MD5:10;\r\n"));
    between(&stage, &from, &to).unwrap();
    for fake in [&from, &to] {
        assert_eq!(commands(fake, "REST"), ["REST 0-150,200-300"]);
        assert_eq!(commands(fake, "CKSM").len(), 1);
    }
    let stored = commands(&to, "STOR");
    assert!(stored.len() == 2 && stored[0] == stored[1], "{stored:?}");
    assert_eq!(SIZE, 1000);
    assert!(commands(&to, "DELE").is_empty());
}

/// A receiver that comes back may have lost what its markers told of, which nothing would show.
#[test]
fn what_is_not_compared_begins_anew() {
    let stage = Stage::open(139, &[]);
    let (from, to) = breaking_pair(EXTENDED);
    let text = between(&stage, &from, &to).unwrap_err();
    assert!(text.contains("closed the control connection"), "{text}");
    assert!(commands(&from, "REST").is_empty() && commands(&to, "RNFR").is_empty());
}

/// Equal texts that are no checksums prove nothing.
#[test]
fn only_checksums_are_compared() {
    let stage = Stage::open(141, &[]);
    for text in ["213 \r\n", "213 ok\r\n", "213 0\r\n"] {
        let from = Fake::start(SUMS, move |verb, _, talk| match verb {
            "RETR" => {
                talk.send(&content());
                true
            }
            "CKSM" => talk.say(text),
            _ => false,
        });
        let to = Fake::start(SUMS, move |verb, _, talk| match verb {
            "STOR" => {
                takes_all(talk);
                true
            }
            "CKSM" => talk.say(text),
            "RNFR" => talk.say("350 go on\r\n"),
            "RNTO" => talk.say("250 done\r\n"),
            _ => false,
        });
        let said = between(&stage, &from, &to).unwrap_err();
        assert!(said.contains("is no checksum"), "{text}: {said}");
        assert!(commands(&to, "RNFR").is_empty(), "{text}");
    }
}
