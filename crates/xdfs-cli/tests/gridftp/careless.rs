//! Servers that follow the rules in their own way, and are understood.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::{Fake, Talk, content};
use crate::places::{vsftpd, xdfs};
use crate::stage::{PASSWORD, PATIENCE, Stage, assert_bytes, outcome, run};

const FACTS: &str = " MLST Type*;Size*;Modify*;\r\n";
const MODIFIED: &str = "Modify=20200102030405;";

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A listing that is sent.
fn sends(talk: &mut Talk, rows: &str) {
    talk.send(rows.as_bytes());
}

#[test]
fn a_server_may_answer_a_command_before_a_file_has_ended() {
    let stage = Stage::open(430, &[]);
    let fake = Fake::start(FACTS, |verb, argument, talk| {
        match (verb, argument) {
            ("MLSD", "/d") => {
                let file = format!("Type=file;Size=1000;{MODIFIED}");
                sends(talk, &format!("{file} a\r\n{file} b\r\nType=dir; sub\r\n"));
            }
            ("MLSD", "/d/sub") => sends(talk, &format!("Type=file;Size=1000;{MODIFIED} c\r\n")),
            ("MLST", "/d/sub") => {
                talk.say("250-it\r\n Type=dir; x\r\n250 End\r\n");
            }
            ("MLST", path) if path != "/d" => {
                let facts = format!("Type=file;Size=1000;{MODIFIED}");
                talk.say(&format!("250-it\r\n {facts} {path}\r\n250 End\r\n"));
            }
            ("RETR", _) => {
                talk.say("150 now\r\n");
                talk.data().write_all(&content()).unwrap();
                // Commands that arrived meanwhile are answered at once, as pyftpdlib does.
                if talk.has_more() {
                    let line = talk.line().unwrap();
                    talk.say(&format!("250-{line}\r\n Type=file; x\r\n250 End\r\n"));
                }
                talk.say("226 done\r\n");
            }
            _ => return false,
        }
        true
    });
    let (url, target) = (fake.url("/d"), stage.here("got"));
    run(&mut xdfs(
        &stage,
        &["cp", "-r", "--insecure", &url, &text(&target)],
    ));
    for name in ["a", "b", "sub/c"] {
        assert_bytes(&target.join(name), &content());
    }
}

#[test]
fn lines_of_replies_may_end_with_lf() {
    let stage = Stage::open(431, &[]);
    for features in ["", FACTS] {
        let fake = Fake::start_bare(features, |verb, argument, talk| {
            match (verb, argument) {
                ("CWD", "/d" | "/") => {
                    talk.say("250 there\r\n");
                }
                ("LIST", _) => sends(talk, "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 f\n"),
                ("MLSD", _) => sends(talk, &format!("Type=file;Size=1000;{MODIFIED} f\n")),
                ("SIZE", "/d/f") => {
                    talk.say("213 1000\r\n");
                }
                ("MDTM", "/d/f") => {
                    talk.say("213 20200102030405\r\n");
                }
                ("SIZE", _) => {
                    talk.say("550 no such file\r\n");
                }
                ("MLST", "/d/f") => {
                    let facts = format!("Type=file;Size=1000;{MODIFIED}");
                    talk.say(&format!("250-it\r\n {facts} f\r\n250 End\r\n"));
                }
                _ => return false,
            }
            true
        });
        let (url, target) = (fake.url("/d"), stage.here("got"));
        run(&mut xdfs(
            &stage,
            &["cp", "-r", "--insecure", &url, &text(&target)],
        ));
        assert_bytes(&target.join("f"), &content());
        fs::remove_dir_all(&target).unwrap();
    }
}

/// Copies `/d`, which has an empty directory `sub`, and lists that. `list` answers the command that
/// lists it. Returns whether both succeed, and what is said.
fn with_empty(
    stage: &Stage,
    features: &str,
    list: impl Fn(&mut Talk) + Send + Sync + 'static,
) -> (bool, String) {
    let fake = Fake::start(features, move |verb, argument, talk| {
        match (verb, argument) {
            ("CWD", "/d/f") => {
                talk.say("550 no directory\r\n");
            }
            ("CWD", "/d" | "/d/sub" | "/") => {
                argument.clone_into(&mut talk.here);
                talk.say("250 there\r\n");
            }
            ("LIST", _) if talk.here == "/d/sub" => list(talk),
            ("MLSD", "/d/sub") => list(talk),
            ("LIST", _) => sends(
                talk,
                "-rw-r--r-- 1 0 0 1000 Nov 21 19:23 f\r\ndrwxr-xr-x 1 0 0 0 Nov 21 19:23 sub\r\n",
            ),
            ("MLSD", _) => {
                let rows = format!("Type=file;Size=1000;{MODIFIED} f\r\nType=dir; sub\r\n");
                sends(talk, &rows);
            }
            ("SIZE", "/d/f") => {
                talk.say("213 1000\r\n");
            }
            ("MDTM", "/d/f") => {
                talk.say("213 20200102030405\r\n");
            }
            ("SIZE", _) => {
                talk.say("550 no such file\r\n");
            }
            ("MLST", "/d/sub") => {
                talk.say("250-it\r\n Type=dir; sub\r\n250 End\r\n");
            }
            ("MLST", "/d/f") => {
                let facts = format!("Type=file;Size=1000;{MODIFIED}");
                talk.say(&format!("250-it\r\n {facts} f\r\n250 End\r\n"));
            }
            _ => return false,
        }
        true
    });
    let target = stage.here("got");
    let (url, path) = (fake.url("/d"), text(&target));
    let words = ["cp", "-r", "--retries=0", "--insecure", &url, &path];
    let (is_copied, said) = outcome(&mut xdfs(stage, &words));
    let is_there = target.join("sub").is_dir() && target.join("f").exists();
    assert!(!is_copied || is_there, "{said}");
    if target.exists() {
        fs::remove_dir_all(&target).unwrap();
    }
    let words = ["ls", "-a", "--insecure", &fake.url("/d/sub")];
    let (is_listed, more) = outcome(&mut xdfs(stage, &words));
    assert!(!is_listed || more.trim().is_empty(), "{more}");
    (is_copied && is_listed, said + &more)
}

#[test]
fn a_directory_without_files_may_be_refused() {
    let stage = Stage::open(432, &[]);
    for features in ["", FACTS] {
        for refusal in ["550 No files found.", "450 The directory is empty"] {
            let refuse = move |talk: &mut Talk| {
                talk.say(&format!("{refusal}\r\n"));
            };
            let (succeeded, said) = with_empty(&stage, features, refuse);
            assert!(succeeded, "{features} {refusal}: {said}");
        }
        for refusal in ["550 Permission denied", "550 what", "451 no files"] {
            let refuse = move |talk: &mut Talk| {
                talk.say(&format!("{refusal}\r\n"));
            };
            let (succeeded, said) = with_empty(&stage, features, refuse);
            let is_told = said.contains(refusal);
            assert!(!succeeded && is_told, "{features} {refusal}: {said}");
        }
        // Neither announced nor sent.
        let confirm = |talk: &mut Talk| {
            talk.say("226 done\r\n");
        };
        let (succeeded, said) = with_empty(&stage, features, confirm);
        assert!(succeeded, "{features}: {said}");
    }
}

/// A server that keeps what it gets, and whose renaming is `rename`: from, to, and the names there.
struct Keeping {
    fake: Fake,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
}

impl Keeping {
    fn start(
        features: &str,
        refuses: impl Fn(&str, bool) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Self {
        let files = Arc::new(Mutex::new(BTreeMap::<String, Vec<u8>>::new()));
        let kept = Arc::clone(&files);
        let fake = Fake::start(features, move |verb, argument, talk| {
            let size = |name: &str| kept.lock().unwrap().get(name).map(Vec::len);
            match verb {
                "CWD" if argument == "/" || argument == "/d" => {
                    talk.say("250 there\r\n");
                }
                "CWD" => {
                    talk.say("550 no such directory\r\n");
                }
                "MKD" => {
                    talk.say("257 made\r\n");
                }
                "SITE" | "MFMT" => {
                    talk.say("200 fine\r\n");
                }
                "MLSD" => {
                    let files = kept.lock().unwrap();
                    let names = files.iter().filter_map(|(path, bytes)| {
                        let name = path.strip_prefix(argument)?.strip_prefix('/')?;
                        Some((name, bytes.len()))
                    });
                    let rows: String = names
                        .map(|(name, size)| format!("Type=file;Size={size};{MODIFIED} {name}\r\n"))
                        .collect();
                    drop(files);
                    sends(talk, &rows);
                }
                "SIZE" | "MLST" => {
                    let reply = match (size(argument), verb) {
                        (None, "MLST") if argument == "/d" => {
                            "250-it\r\n Type=dir; d\r\n250 End\r\n".to_owned()
                        }
                        (None, _) => "550 no such file\r\n".to_owned(),
                        (Some(size), "SIZE") => format!("213 {size}\r\n"),
                        (Some(size), _) => {
                            let facts = format!("Type=file;Size={size};{MODIFIED}");
                            format!("250-it\r\n {facts} x\r\n250 End\r\n")
                        }
                    };
                    talk.say(&reply);
                }
                "STOR" => {
                    talk.say("150 go on\r\n");
                    let mut bytes = Vec::new();
                    talk.data().read_to_end(&mut bytes).unwrap();
                    kept.lock().unwrap().insert(argument.to_owned(), bytes);
                    talk.say("226 done\r\n");
                }
                "RNFR" => {
                    argument.clone_into(&mut talk.here);
                    talk.say("350 to what?\r\n");
                }
                "RNTO" => {
                    let refusal = refuses(argument, size(argument).is_some());
                    if refusal.is_none() {
                        let mut files = kept.lock().unwrap();
                        let bytes = files.remove(&talk.here).unwrap();
                        files.insert(argument.to_owned(), bytes);
                    }
                    talk.say(&format!("{}\r\n", refusal.unwrap_or("250 renamed")));
                }
                "DELE" => {
                    let removed = kept.lock().unwrap().remove(argument);
                    let reply = removed.map_or("550 no such file\r\n", |_| "250 removed\r\n");
                    talk.say(reply);
                }
                _ => return false,
            }
            true
        });
        Self { fake, files }
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let mut files = self.files.lock().unwrap();
        files.insert(name.to_owned(), bytes.to_vec());
    }

    fn all(&self) -> Vec<(String, Vec<u8>)> {
        self.files.lock().unwrap().clone().into_iter().collect()
    }
}

#[test]
fn a_file_is_replaced_where_renaming_replaces_nothing() {
    let stage = Stage::open(433, &[]);
    let bytes = Stage::make(&stage.here("tree/a"), 3000);
    let small = Stage::make(&stage.here("tree/b"), 10);
    let (file, tree) = (text(&stage.here("tree/a")), text(&stage.here("tree")));
    for (features, refusal) in [("", "553 exists"), (FACTS, "550 File already there")] {
        let refuses = move |_: &str, is_there: bool| is_there.then_some(refusal);
        let server = Keeping::start(features, refuses);
        let url = server.fake.url("/a");
        server.put("/a", b"earlier");
        let act = |words: &[&str]| outcome(&mut xdfs(&stage, &[words, &["--insecure"]].concat()));
        let (succeeded, said) = act(&["cp", &file, &url]);
        assert!(!succeeded && said.contains("--force"), "{said}");
        assert_eq!(server.all(), [("/a".to_owned(), b"earlier".to_vec())]);
        for words in [
            ["cp", "--force", &file, &url].as_slice(),
            &["cp", "--force", "-I", &file, &url],
        ] {
            let (succeeded, said) = act(words);
            assert!(succeeded, "{said}");
            assert_eq!(server.all(), [("/a".to_owned(), bytes.clone())]);
        }
        server.put("/d/a", b"earlier");
        let (succeeded, said) = act(&["cp", "-rf", "-I", &tree, &server.fake.url("/d/")]);
        assert!(succeeded || said.contains("tree"), "{said}");
        let _ = server.files.lock().unwrap().remove("/a");
        server.put("/d/tree/a", b"earlier");
        server.put("/d/tree/b", b"earlier");
        let (succeeded, said) = act(&["cp", "-rf", "-I", &tree, &server.fake.url("/d/")]);
        assert!(succeeded, "{said}");
        let all: BTreeMap<_, _> = server.all().into_iter().collect();
        assert_eq!(all.get("/d/tree/a"), Some(&bytes), "{said}");
        assert_eq!(all.get("/d/tree/b"), Some(&small), "{said}");
        assert!(!all.keys().any(|name| name.contains("ftp-part")), "{all:?}");
    }
    // A refusal for another reason: what was there keeps its name.
    let server = Keeping::start(FACTS, |name, _| {
        (name == "/a").then_some("550 not this name")
    });
    server.put("/a", b"earlier");
    let words = ["cp", "--force", "--insecure", &file, &server.fake.url("/a")];
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && said.contains("not this name"), "{said}");
    let contents: Vec<_> = server.all().into_iter().map(|(_, bytes)| bytes).collect();
    assert!(
        contents.contains(&b"earlier".to_vec()),
        "{:?}",
        server.all()
    );
}

/// A file from another server, straight or through this machine or by a synchronisation, replaces
/// the one that is there.
#[test]
fn a_file_of_another_server_is_replaced_where_renaming_replaces_nothing() {
    let stage = Stage::open(446, &[]);
    for refusal in ["553 exists", "550 File already there"] {
        let source = Keeping::start(FACTS, |_, _| None);
        source.put("/d/a", &content());
        let source = source.fake.url("/d");
        for words in [
            &["cp", "-f", "-I", "--between=direct"][..],
            &["cp", "-f", "-I", "--between=client"],
            &["cp", "-rf", "-I", "--between=direct"],
            &["cp", "-rf", "-I", "--between=client"],
            &["sync"],
            &["sync", "--between=direct"],
            &["sync", "--between=client"],
        ] {
            let target = Keeping::start(FACTS, move |_, is_there| is_there.then_some(refusal));
            target.put("/d/a", b"earlier");
            let (from, to) = match words[1..] {
                ["-f", ..] => (format!("{source}/a"), target.fake.url("/d/a")),
                ["-rf", ..] => (format!("{source}/"), target.fake.url("/d/")),
                _ => (source.clone(), target.fake.url("/d")),
            };
            let words = [words, &["--insecure", "--retries=0", &from, &to]].concat();
            let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
            assert!(succeeded, "{words:?}: {said}");
            assert_eq!(target.all(), [("/d/a".to_owned(), content())], "{words:?}");
        }
        // For another reason than the file there, that keeps its name.
        let target = Keeping::start(FACTS, |name, _| (name == "/d/a").then_some("550 not so"));
        target.put("/d/a", b"earlier");
        let (from, to) = (format!("{source}/a"), target.fake.url("/d/a"));
        let words = ["cp", "-f", "--insecure", "--retries=0", "--between=direct"];
        let words = [&words[..], &[&from, &to]].concat();
        let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
        assert!(!succeeded && said.contains("not so"), "{said}");
        let contents: Vec<_> = target.all().into_iter().map(|(_, bytes)| bytes).collect();
        assert!(contents.contains(&b"earlier".to_vec()), "{said}");
    }
}

#[test]
fn rows_that_can_be_read_in_two_ways_are_none() {
    let stage = Stage::open(434, &[]);
    let fake = Fake::start(FACTS, |verb, _, talk| {
        let is_listing = verb == "MLSD";
        if is_listing {
            let facts = format!("Type=file;Size=1000;{MODIFIED}");
            sends(talk, &format!("{facts}UNIX.groupname=domain users; f\r\n"));
        }
        is_listing
    });
    for words in [["ls"].as_slice(), &["find"], &["cp", "-r", "--retries=0"]] {
        let (url, target) = (fake.url("/d"), text(&stage.here("got")));
        let places: &[&str] = match words[0] {
            "cp" => &[&url, &target],
            _ => &[&url],
        };
        let words = [words, &["--insecure"], places].concat();
        let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
        let is_told = said.contains("isn't understood") && said.contains("domain users");
        assert!(!succeeded && is_told, "{words:?}: {said}");
    }
    assert!(!fake.was_read());
}

#[test]
fn facts_may_lack_what_an_entry_is() {
    let stage = Stage::open(435, &[]);
    for features in [" MLST\r\n", " MLST Size*;Modify*;\r\n"] {
        let fake = Fake::start(features, |verb, argument, talk| {
            match (verb, argument) {
                ("MLST", _) => {
                    let facts = format!("Size=1000;{MODIFIED}");
                    talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"));
                }
                ("MLSD", _) => sends(talk, &format!("Size=1000;{MODIFIED} f\r\n")),
                ("CWD", "/d" | "/") => {
                    talk.say("250 there\r\n");
                }
                ("CWD", _) => {
                    talk.say("550 no directory\r\n");
                }
                ("LIST", _) => sends(talk, "-rw-r----- 1 0 0 1000 Nov 21 19:23 f\r\n"),
                ("SIZE", "/d/f") => {
                    talk.say("213 1000\r\n");
                }
                ("SIZE", _) => {
                    talk.say("550 no such file\r\n");
                }
                ("MDTM", _) => {
                    talk.say("213 20200102030405\r\n");
                }
                _ => return false,
            }
            true
        });
        let (url, target) = (fake.url("/d"), stage.here("got"));
        let words = ["cp", "-r", "--insecure", &url, &text(&target)];
        run(&mut xdfs(&stage, &words));
        assert_bytes(&target.join("f"), &content());
        fs::remove_dir_all(&target).unwrap();
    }
    // Facts that the server doesn't send by itself are asked for.
    let fake = Fake::start(" MLST type*;size*;unix.mode;\r\n", |_, _, _| false);
    run(&mut xdfs(&stage, &["stat", "--insecure", &fake.url("/f")]));
    let wanted = "OPTS MLST type;size;unix.mode;".to_owned();
    assert!(fake.commands().contains(&wanted), "{:?}", fake.commands());
}

#[test]
fn rows_of_other_languages_are_listed() {
    let stage = Stage::open(436, &[]);
    let fake = Fake::start("", |verb, argument, talk| {
        match (verb, argument) {
            ("CWD", "/d" | "/") => {
                talk.say("250 there\r\n");
            }
            ("LIST", _) => sends(
                talk,
                "insgesamt 12\r\n 77 -rw-r--r-- 1 0 0 1000 21. M\u{e4}r 19:23 f\r\n\
                 78 drwxr-xr-x 2 0 0 0 2020-03-21 19:23 sub d\r\n",
            ),
            ("SIZE", _) => {
                talk.say("550 no such file\r\n");
            }
            _ => return false,
        }
        true
    });
    let said = run(&mut xdfs(
        &stage,
        &["ls", "-F", "--insecure", &fake.url("/d")],
    ));
    assert!(said.contains('f') && said.contains("sub d"), "{said}");
}

#[test]
fn the_time_zero_is_kept() {
    let stage = Stage::open(437, &[]);
    let Some((_server, address)) = vsftpd(&stage, "") else {
        return;
    };
    let epoch = |path: &Path| {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    };
    let time = |path: &Path| fs::metadata(path).unwrap().mtime();
    let there = stage.beside("anonymous/pub/d");
    let own = stage.root("d");
    for (url, root) in [
        (format!("ftp://{address}/pub/d"), there),
        (stage.url("/d"), own),
    ] {
        Stage::make(&root.join("zero"), 10);
        epoch(&root.join("zero"));
        let act = |words: &[&str]| run(&mut xdfs(&stage, &[words, &["--insecure"]].concat()));
        let got = stage.here("got");
        act(&["cp", "-r", &url, &text(&got)]);
        assert_eq!(time(&got.join("zero")), 0, "{url}");
        act(&["cp", "-r", "--update", &url, &text(&got)]);
        let said = act(&["sync", &url, &text(&got)]);
        assert!(said.contains("0 files"), "{said}");
        let said = act(&["ls", "-l", &url]);
        assert!(said.contains("1970"), "{said}");
        let up = format!("{}-up", url.trim_end_matches('/'));
        for wanted in ["1 file", "0 files"] {
            let said = act(&["sync", &text(&got), &up]);
            assert!(said.contains(wanted), "{url} {wanted}: {said}");
        }
        let up = root.with_file_name("d-up");
        assert_eq!(time(&up.join("zero")), 0, "{url}");
        fs::remove_dir_all(&got).unwrap();
    }
    // A time that a server doesn't tell is none.
    let fake = Fake::start(" MLST Type*;Size*;\r\n", |verb, argument, talk| {
        let is_row = verb == "MLST";
        if is_row {
            let facts = "Type=file;Size=1000;";
            talk.say(&format!("250-it\r\n {facts} {argument}\r\n250 End\r\n"));
        }
        is_row
    });
    let said = run(&mut xdfs(
        &stage,
        &["stat", "--json", "--insecure", &fake.url("/f")],
    ));
    assert!(said.contains("\"mtime_ns\":null"), "{said}");
    let target = stage.here("now");
    let began = SystemTime::now() - Duration::from_secs(60);
    let words = ["cp", "--insecure", &fake.url("/f"), &text(&target)];
    run(&mut xdfs(&stage, &words));
    assert!(fs::metadata(&target).unwrap().modified().unwrap() > began);
}

/// The address at which a server speaks xDFS.
fn own_address(stage: &Stage) -> String {
    let said = stage.server.output();
    let found = said
        .iter()
        .find_map(|line| line.strip_prefix("listening on "));
    let (_, port) = found.unwrap().rsplit_once(':').unwrap();
    format!("localhost:{port}")
}

#[test]
fn the_consent_to_ftp_is_none_for_another_server() {
    let stage = Stage::with_users(438, "listen = [\"127.0.0.1:0\"]");
    let open = Stage::open(439, &[]);
    let fake = Fake::start(FACTS, |_, _, _| false);
    let (from, password) = (fake.url("/f"), text(&stage.beside("password")));
    let there = format!("xdfs://alice@{}/alice", own_address(&stage));
    let unprotected = format!("xdfs://{}", own_address(&open));
    let insecure = ["cp", "--insecure"];
    let login = ["--password-file", &password];
    let to = format!("{there}/x");
    let words = [&insecure[..], &login, &[&from, &to]].concat();
    run(&mut xdfs(&stage, &words));
    assert_bytes(&stage.root("alice/x"), &content());
    // Line by line.
    let list = stage.here("list");
    let local = text(&stage.here("local"));
    let lines = format!("{from} {there}/y\n{from} {local}\n");
    fs::write(&list, lines).unwrap();
    let list = text(&list);
    let words = [&insecure[..], &login, &["--from-file", &list]].concat();
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    // The second line has no user to whom the password belongs.
    assert!(!succeeded && said.contains("can't be combined"), "{said}");
    assert_bytes(&stage.root("alice/y"), &content());
    // A server without protection is not taken for a protected one, nor the other way round.
    let to = format!("{unprotected}/x");
    let words = [&insecure[..], &["--retries=0", &from, &to]].concat();
    let (succeeded, _) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && !open.root("x").exists());
    // Its name says so.
    assert_eq!(stage.knows_open("open", &open), "open:");
    let config = stage.beside("client/config.toml");
    let before = fs::read_to_string(&config).unwrap();
    let archive = format!("[remote.archive]\nurl = \"{}\"\n", fake.url("/"));
    fs::write(config, format!("{before}{archive}insecure = true\n")).unwrap();
    run(&mut xdfs(&stage, &["cp", "archive:/f", "open:/x"]));
    assert_bytes(&open.root("x"), &content());
    run(&mut xdfs(&stage, &["ls", "open:/"]));
    let words = ["ls", "--anonymous", "open:/"];
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && said.contains("'open'"), "{said}");
    // Between two others it means what it says.
    let words = ["cp", "--insecure", &to, &format!("{unprotected}/z")];
    run(&mut xdfs(&stage, &words));
    assert_bytes(&open.root("z"), &content());
    let words = ["ls", "--insecure", "--anonymous", &unprotected];
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && said.contains("can't be combined"), "{said}");
    assert_eq!(PASSWORD, fs::read_to_string(&password).unwrap().trim());
}

#[test]
fn the_hint_of_an_interrupted_copy_says_that_it_starts_over() {
    let stage = Stage::open(440, &[]);
    let fake = Fake::start(FACTS, |verb, _, talk| {
        let is_wanted = verb == "RETR";
        if is_wanted {
            talk.say("150 now\r\n");
            let mut data = talk.data();
            data.write_all(&content()[..500]).unwrap();
            // Until the client has gone.
            let _ = data.read(&mut [0]);
        }
        is_wanted
    });
    let target = text(&stage.here("got"));
    let words = ["cp", "--insecure", &fake.url("/f"), &target];
    let mut client = Guard::spawn(&mut xdfs(&stage, &words)).unwrap();
    assert!(wait::until(PATIENCE, || fake.was_read()));
    client.interrupt().unwrap();
    let status = client.wait(PATIENCE).unwrap();
    assert!(!status.unwrap().success());
    let said = client.output().join("\n");
    assert!(
        said.contains("starts over") && !said.contains("to resume"),
        "{said}"
    );
}
