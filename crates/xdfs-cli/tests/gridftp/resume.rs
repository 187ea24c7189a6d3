//! Interrupted copies of large files from and to servers go on, by the same command, where the
//! servers compute checksums: only the rest is moved, and nothing wrong gets its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use xdfs_testkit::process::Guard;
use xdfs_testkit::wait;

use crate::fake::{Fake, SIZE, content};
use crate::places::{vsftpd, xdfs};
use crate::relay::Relay;
use crate::stage::{PATIENCE, Stage, assert_bytes, assert_same_tree, outcome, run};
use crate::tools::Globus;

/// Bytes of a file that takes a while.
const LARGE: usize = 64_000_001;
/// Bytes of one that takes longer than servers need to say what they have stored.
const UP: usize = 2 * LARGE;
/// At this rate.
const SLOWLY: &str = "--limit-rate=8M";
/// More than sockets and programs hold on the way.
const HUGE: usize = 200_000_001;
/// Bytes of it that are moved again after a break, at most.
const ON_THE_WAY: u64 = 100_000_000;

/// A server behind a relay, and a directory of it.
struct There {
    relay: Relay,
    root: PathBuf,
    prefix: String,
}

impl There {
    fn ours(stage: &Stage) -> Self {
        Self {
            relay: Relay::to(&stage.address),
            root: stage.root(""),
            prefix: "/".to_owned(),
        }
    }

    fn of_globus(stage: &Stage, globus: &Globus) -> Self {
        let root = stage.beside("globus");
        fs::create_dir_all(&root).unwrap();
        Self {
            relay: Relay::to(&globus.address),
            prefix: format!("/{}/", root.display()),
            root,
        }
    }

    fn url(&self, name: &str) -> String {
        self.relay.url(&format!("{}{name}", self.prefix))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn begin(stage: &Stage, from: &str, to: &str) -> Guard {
    let words = ["cp", "-v", "--insecure", SLOWLY, from, to];
    Guard::spawn(&mut xdfs(stage, &words)).unwrap()
}

/// Copies to the end, and returns what the program printed.
#[track_caller]
fn copy(stage: &Stage, from: &str, to: &str) -> String {
    run(&mut xdfs(stage, &["cp", "-v", "--insecure", from, to]))
}

/// Names in a directory that end so.
fn ending(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().path()));
    let all = entries.into_iter().flatten();
    all.filter(|path| text(path).ends_with(end)).collect()
}

/// Whether a download has recorded something.
fn has_downloaded(stage: &Stage) -> bool {
    !ending(&stage.here(""), "-journal").is_empty()
}

/// Whether an upload has recorded something.
fn has_uploaded(stage: &Stage) -> bool {
    let journals = ending(&stage.beside("client/state/uploads"), ".journal");
    let mut texts = journals
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts.any(|text| text.contains("\npart 0 "))
}

/// Waits until something is recorded, and a little longer.
#[track_caller]
fn await_record(client: &Guard, is_there: impl Fn() -> bool) {
    assert!(wait::until(PATIENCE, is_there), "{:?}", client.output());
    std::thread::sleep(Duration::from_millis(1500));
}

/// Writes other bytes into a file, which keeps its size and its time.
fn replace_unseen(path: &Path, content: &[u8]) {
    let time = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, content).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

fn make_old(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    let time = SystemTime::now() - Duration::from_secs(10_000);
    file.set_modified(time).unwrap();
}

/// A killed client: the same command gets the rest only.
#[track_caller]
fn a_download_goes_on(stage: &Stage, there: &There) {
    let content = Stage::make(&there.path("file"), LARGE);
    let (url, target) = (there.url("file"), stage.here("file"));
    let mut client = begin(stage, &url, &text(&target));
    await_record(&client, || has_downloaded(stage));
    client.kill().unwrap();
    assert!(!target.exists());
    there.relay.take_bytes();
    there.relay.take_commands("");
    let said = copy(stage, &url, &text(&target));
    assert!(said.contains("were there already"), "{said}");
    assert_bytes(&target, &content);
    let rest = there.relay.take_bytes();
    assert!(rest < LARGE as u64 * 9 / 10, "{rest} bytes: {said}");
    let restarts = there.relay.take_commands("REST");
    assert_eq!(restarts.len(), 1, "{restarts:?}");
    assert_eq!(fs::read_dir(stage.here("")).unwrap().count(), 1);
    fs::remove_file(target).unwrap();
}

#[test]
fn a_download_goes_on_after_the_client_was_killed() {
    let stage = Stage::open(150, &[]);
    a_download_goes_on(&stage, &There::ours(&stage));
    if let Some(globus) = Globus::start() {
        a_download_goes_on(&stage, &There::of_globus(&stage, &globus));
    }
}

#[test]
fn a_download_goes_on_after_the_server_was_killed() {
    let mut stage = Stage::open(151, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&there.path("file"), HUGE);
    let (url, target) = (there.url("file"), stage.here("file"));
    let words = ["cp", "-v", "--insecure", "--limit-rate=24M", &url];
    let mut client = xdfs(&stage, &[&words[..], &[&text(&target)]].concat());
    let mut client = Guard::spawn(&mut client).unwrap();
    await_record(&client, || has_downloaded(&stage));
    stage.kill_and_restart();
    let status = client.wait(PATIENCE).unwrap();
    let said = client.output().join("\n");
    assert!(status.is_some_and(|status| status.success()), "{said}");
    assert_bytes(&target, &content);
    let bytes = there.relay.take_bytes();
    assert!(bytes < HUGE as u64 + ON_THE_WAY, "{bytes} bytes: {said}");
    let restarts = there.relay.take_commands("REST 0-");
    assert!(!restarts.is_empty(), "{said}");
}

/// Size and time tell nothing; the checksum of the server does.
#[test]
fn another_version_of_the_same_size_and_time_comes_whole() {
    let stage = Stage::open(152, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&there.path("file"), LARGE);
    make_old(&there.path("file"));
    let (url, target) = (there.url("file"), stage.here("file"));
    let mut client = begin(&stage, &url, &text(&target));
    await_record(&client, || has_downloaded(&stage));
    client.kill().unwrap();
    // The rest is the same.
    let mut other = content;
    other[4000] ^= 1;
    replace_unseen(&there.path("file"), &other);
    let said = copy(&stage, &url, &text(&target));
    assert!(said.contains("an earlier attempt has left"), "{said}");
    assert_bytes(&target, &other);
    // One that is known to be another one isn't tried.
    fs::remove_file(&target).unwrap();
    let mut client = begin(&stage, &url, &text(&target));
    await_record(&client, || has_downloaded(&stage));
    client.kill().unwrap();
    let newer = Stage::make(&there.path("file"), LARGE);
    let said = copy(&stage, &url, &text(&target));
    assert!(!said.contains("there already"), "{said}");
    assert!(!said.contains("an earlier attempt"), "{said}");
    assert_bytes(&target, &newer);
}

/// What is here may have been damaged, by whomever.
#[test]
fn damage_to_what_is_here_is_found() {
    let stage = Stage::open(153, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&there.path("file"), LARGE);
    let (url, target) = (there.url("file"), stage.here("file"));
    for damage in ["other bytes", "cut off", "no journal"] {
        let mut client = begin(&stage, &url, &text(&target));
        await_record(&client, || has_downloaded(&stage));
        client.kill().unwrap();
        let partial = ending(&stage.here(""), "-part").pop().unwrap();
        let file = fs::File::options().write(true).open(&partial).unwrap();
        match damage {
            "other bytes" => {
                use std::os::unix::fs::FileExt as _;
                file.write_all_at(b"other", 100).unwrap();
            }
            "cut off" => file.set_len(1000).unwrap(),
            _ => fs::remove_file(ending(&stage.here(""), "-journal").pop().unwrap()).unwrap(),
        }
        let said = copy(&stage, &url, &text(&target));
        assert_bytes(&target, &content);
        let is_told = said.contains("an earlier attempt has left");
        assert_eq!(is_told, damage == "other bytes", "{damage}: {said}");
        fs::remove_file(&target).unwrap();
    }
}

/// A server whose checksums are wrong gets nothing published, whatever was there.
#[test]
fn a_lying_server_gets_nothing_published() {
    let stage = Stage::open(154, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&there.path("file"), LARGE);
    let (url, target) = (there.url("file"), stage.here("file"));
    let mut client = begin(&stage, &url, &text(&target));
    await_record(&client, || has_downloaded(&stage));
    client.kill().unwrap();
    there.relay.set_lying(true);
    let words = ["cp", "--insecure", "--retries=1", &url, &text(&target)];
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && !target.exists(), "{said}");
    assert!(said.contains("is 0000"), "{said}");
    there.relay.set_lying(false);
    copy(&stage, &url, &text(&target));
    assert_bytes(&target, &content);
}

/// Parts of a file come from servers too that can't begin in the middle, or say so only.
#[test]
fn a_server_that_does_not_begin_in_the_middle_is_read_from_the_beginning() {
    let stage = Stage::open(163, &[]);
    let extended = " MLST Type*;Size*;Modify*;\r\n PARALLEL\r\n";
    let stream = " MLST Type*;Size*;Modify*;\r\n";
    for (features, reply) in [
        (extended, "502 no\r\n"),
        (stream, "501 what\r\n"),
        (extended, "350 fine\r\n"),
    ] {
        let fake = Fake::start(features, move |verb, _, talk| {
            verb == "REST" && talk.say(reply)
        });
        let (url, target) = (fake.url("/f"), stage.here("file"));
        let part = [
            "cp",
            "--insecure",
            "--offset=400",
            "--length=300",
            "--retries=0",
        ];
        run(&mut xdfs(
            &stage,
            &[&part[..], &[&url, &text(&target)]].concat(),
        ));
        assert_bytes(&target, &content()[400..700]);
        fs::remove_file(&target).unwrap();
    }
}

/// The checksum of that name.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let all = bytes.iter();
    !all.fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// In stream mode bytes have no place: a server that says 350 and sends from the first byte on is
/// found out by a checksum, before anything of it is taken.
#[test]
fn a_server_that_ignores_rest_in_stream_mode_is_found_out() {
    let stage = Stage::open(171, &[]);
    let features = " MLST Type*;Size*;Modify*;\r\n CKSM CRC32:1;\r\n REST STREAM\r\n";
    let fake = Fake::start(features, |verb, argument, talk| match verb {
        "REST" => talk.say("350 fine\r\n"),
        "CKSM" => {
            let words: Vec<_> = argument.split(' ').collect();
            let (start, count) = (words[1].parse::<usize>(), words[2].parse::<usize>());
            let start = start.unwrap();
            let end = count.map_or(SIZE, |count| start + count);
            let sum = crc32(&content()[start..end]);
            talk.say(&format!("213 {sum:08x}\r\n"))
        }
        _ => false,
    });
    let (url, target) = (fake.url("/f"), stage.here("file"));
    let part = ["cp", "--insecure", "--offset=400", "--length=300"];
    let rest = ["--retries=0", &url, &text(&target)];
    run(&mut xdfs(&stage, &[&part[..], &rest].concat()));
    assert_bytes(&target, &content()[400..700]);
    let commands = fake.commands();
    let reads = commands.iter().filter(|line| line.starts_with("RETR"));
    assert_eq!(reads.count(), 2, "{commands:?}");
}

/// Without checksums everything begins anew.
#[test]
fn what_can_not_be_compared_begins_anew() {
    let stage = Stage::open(155, &[]);
    let Some((_server, address)) = vsftpd(&stage, "") else {
        return;
    };
    let there = There {
        relay: Relay::to(&address.to_string()),
        root: stage.beside("anonymous/pub"),
        prefix: "/pub/".to_owned(),
    };
    let content = Stage::make(&there.path("file"), LARGE / 2);
    make_old(&there.path("file"));
    let (url, target) = (there.url("file"), stage.here("file"));
    let mut client = begin(&stage, &url, &text(&target));
    assert!(wait::until(PATIENCE, || there.relay.bytes() > 8_000_000));
    std::thread::sleep(Duration::from_millis(1500));
    client.kill().unwrap();
    assert!(!has_downloaded(&stage));
    there.relay.take_bytes();
    let said = copy(&stage, &url, &text(&target));
    assert!(!said.contains("there already"), "{said}");
    // With a listing.
    let whole = content.len() as u64..content.len() as u64 + 10_000;
    assert!(whole.contains(&there.relay.take_bytes()));
    assert_bytes(&target, &content);
    // The other way.
    let (from, url) = (text(&target), there.url("up"));
    let mut client = begin(&stage, &from, &url);
    assert!(wait::until(PATIENCE, || there.relay.bytes() > 8_000_000));
    client.kill().unwrap();
    there.relay.take_bytes();
    let said = copy(&stage, &from, &url);
    assert!(!said.contains("there already"), "{said}");
    assert!(whole.contains(&there.relay.take_bytes()));
    assert_bytes(&there.path("up"), &content);
}

/// Either side is killed at moments that nobody has chosen, several times in a row; then the same
/// command comes to its end.
#[test]
fn downloads_survive_kills_at_any_moment() {
    let mut stage = Stage::open(156, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&there.path("file"), LARGE);
    let (url, target) = (there.url("file"), stage.here("file"));
    for milliseconds in [5, 60, 300, 700, 1100, 1700] {
        let mut client = begin(&stage, &url, &text(&target));
        std::thread::sleep(Duration::from_millis(milliseconds));
        if milliseconds % 200 == 100 {
            stage.kill_and_restart();
            std::thread::sleep(Duration::from_millis(milliseconds));
        }
        client.kill().unwrap();
        assert!(!target.exists());
    }
    let said = copy(&stage, &url, &text(&target));
    assert!(said.contains("were there already"), "{said}");
    assert_bytes(&target, &content);
    assert_eq!(fs::read_dir(stage.here("")).unwrap().count(), 1);
}

/// Fails unless a server has a file with these bytes, and nothing else is left anywhere.
#[track_caller]
fn has_come(stage: &Stage, there: &There, content: &[u8]) {
    assert_bytes(&there.path("file"), content);
    let names = fs::read_dir(&there.root).unwrap().count();
    assert_eq!(names, 1, "{:?}", ending(&there.root, ""));
    assert!(ending(&stage.beside("client/state/uploads"), "").is_empty());
}

/// A killed client: the same command sends the rest only.
#[track_caller]
fn an_upload_goes_on(stage: &Stage, there: &There) {
    let content = Stage::make(&stage.here("file"), UP);
    let (source, url) = (text(&stage.here("file")), there.url("file"));
    let mut client = begin(stage, &source, &url);
    await_record(&client, || has_uploaded(stage));
    client.kill().unwrap();
    assert!(!there.path("file").exists());
    there.relay.take_bytes();
    there.relay.take_commands("");
    let said = copy(stage, &source, &url);
    assert!(said.contains("were there already"), "{said}");
    let rest = there.relay.take_bytes();
    assert!(rest < UP as u64 * 9 / 10, "{rest} bytes: {said}");
    let restarts = there.relay.take_commands("REST");
    assert!(!restarts.is_empty(), "{said}");
    has_come(stage, there, &content);
    fs::remove_file(there.path("file")).unwrap();
}

#[test]
fn an_upload_goes_on_after_the_client_was_killed() {
    let stage = Stage::open(157, &[]);
    an_upload_goes_on(&stage, &There::ours(&stage));
}

/// Elsewhere the session of the killed client could still write what is on its way, after
/// everything was compared.
#[test]
fn an_upload_to_another_server_begins_anew_under_another_name() {
    let stage = Stage::open(169, &[]);
    let Some(globus) = Globus::start() else {
        return;
    };
    let there = There::of_globus(&stage, &globus);
    let content = Stage::make(&stage.here("file"), UP);
    let (source, url) = (text(&stage.here("file")), there.url("file"));
    let mut client = begin(&stage, &source, &url);
    assert!(wait::until(PATIENCE, || there.relay.bytes() > 50_000_000));
    client.kill().unwrap();
    let left = ending(&there.root, ".ftp-part");
    assert_eq!(left.len(), 1);
    assert!(ending(&stage.beside("client/state/uploads"), "").is_empty());
    there.relay.take_bytes();
    there.relay.take_commands("");
    let said = copy(&stage, &source, &url);
    assert!(!said.contains("there already"), "{said}");
    assert!(there.relay.take_bytes() >= UP as u64);
    let commands = there.relay.take_commands("");
    let name = left[0].file_name().unwrap().to_str().unwrap();
    let is_other = |line: &String| !line.starts_with("REST") && !line.contains(name);
    assert!(commands.iter().all(is_other), "{commands:?}");
    assert_bytes(&there.path("file"), &content);
}

#[test]
fn an_upload_goes_on_after_the_server_was_killed() {
    let mut stage = Stage::open(158, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&stage.here("file"), UP);
    let mut client = begin(&stage, &text(&stage.here("file")), &there.url("file"));
    await_record(&client, || has_uploaded(&stage));
    stage.kill_and_restart();
    let status = client.wait(PATIENCE).unwrap();
    let said = client.output().join("\n");
    assert!(status.is_some_and(|status| status.success()), "{said}");
    let bytes = there.relay.take_bytes();
    assert!(bytes < 2 * UP as u64 - 4_000_000, "{bytes} bytes: {said}");
    has_come(&stage, &there, &content);
}

/// What the server has may be removed, cut off or damaged, or the source may be another one.
#[test]
fn an_upload_that_is_of_no_use_begins_anew() {
    let stage = Stage::open(159, &[]);
    let there = There::ours(&stage);
    let mut content = Stage::make(&stage.here("file"), UP);
    let (source, url) = (text(&stage.here("file")), there.url("file"));
    for damage in ["removed", "other bytes", "a directory", "another source"] {
        let mut client = begin(&stage, &source, &url);
        await_record(&client, || has_uploaded(&stage));
        client.kill().unwrap();
        let hidden = ending(&there.root, "-part");
        assert_eq!(hidden.len(), 1);
        let file = fs::File::options().write(true).open(&hidden[0]).unwrap();
        let stored = there.relay.take_commands("STOR /");
        let named = there.path(stored.last().unwrap().trim_start_matches("STOR /"));
        match damage {
            "removed" => fs::remove_file(&hidden[0]).unwrap(),
            // It can't be stored any more, nor removed.
            "a directory" => Stage::make(&named.join("x"), 1).truncate(0),
            "other bytes" => {
                use std::os::unix::fs::FileExt as _;
                file.write_all_at(b"other", 100).unwrap();
            }
            _ => {
                content[100] ^= 1;
                replace_unseen(&stage.here("file"), &content);
            }
        }
        let said = copy(&stage, &source, &url);
        let is_told = said.contains("an earlier attempt has stored is of no use");
        assert_eq!(is_told, damage == "other bytes", "{damage}: {said}");
        assert!(
            is_told || !said.contains("there already"),
            "{damage}: {said}"
        );
        if damage == "a directory" {
            fs::remove_dir_all(named).unwrap();
            let left = ending(&there.root, "-part");
            left.iter().for_each(|path| fs::remove_file(path).unwrap());
            let left = ending(&there.root, "-journal");
            left.iter().for_each(|path| fs::remove_file(path).unwrap());
        }
        has_come(&stage, &there, &content);
        fs::remove_file(there.path("file")).unwrap();
    }
}

#[test]
fn an_interrupt_leaves_an_upload_for_the_same_command() {
    let stage = Stage::open(160, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&stage.here("file"), UP);
    let (source, url) = (text(&stage.here("file")), there.url("file"));
    let mut client = begin(&stage, &source, &url);
    await_record(&client, || has_uploaded(&stage));
    client.interrupt().unwrap();
    assert!(client.wait(PATIENCE).unwrap().is_some());
    let said = client.output().join("\n");
    assert!(
        said.contains("run the same command again to resume"),
        "{said}"
    );
    assert!(said.contains("stays at the server, for"), "{said}");
    assert_eq!(ending(&there.root, "-part").len(), 1);
    // A server that says something wrong about it gets nothing published.
    there.relay.set_lying(true);
    let words = ["cp", "--insecure", "--retries=0", &source, &url];
    let (succeeded, said) = outcome(&mut xdfs(&stage, &words));
    assert!(!succeeded && said.contains("is 0000"), "{said}");
    assert!(!there.path("file").exists());
    there.relay.set_lying(false);
    copy(&stage, &source, &url);
    has_come(&stage, &there, &content);
}

/// What is left of an upload goes with the next one to the same name, which is none that goes on.
#[test]
fn a_later_upload_removes_what_is_left() {
    let stage = Stage::open(170, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&stage.here("file"), UP);
    let small = Stage::make(&stage.here("small"), 1000);
    let url = there.url("file");
    for (name, flag, content) in [
        ("file", "--no-resume", &content),
        ("file", "--digest=none", &content),
        ("small", "-v", &small),
    ] {
        let mut client = begin(&stage, &text(&stage.here("file")), &url);
        await_record(&client, || has_uploaded(&stage));
        client.kill().unwrap();
        assert_eq!(ending(&there.root, "-part").len(), 1);
        // Its session may still be there, and then nothing is removed.
        std::thread::sleep(Duration::from_secs(1));
        let from = text(&stage.here(name));
        let said = run(&mut xdfs(&stage, &["cp", "--insecure", flag, &from, &url]));
        assert!(!said.contains("there already"), "{said}");
        has_come(&stage, &there, content);
        fs::remove_file(there.path("file")).unwrap();
    }
}

/// Two programs send to one name, the second one while the first one has its journal.
#[test]
fn two_uploads_to_one_name_do_not_meet() {
    let stage = Stage::open(161, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&stage.here("file"), UP);
    let other = Stage::make(&stage.here("other"), UP - 7);
    let url = there.url("file");
    let mut first = begin(&stage, &text(&stage.here("file")), &url);
    await_record(&first, || has_uploaded(&stage));
    let from = text(&stage.here("other"));
    run(&mut xdfs(&stage, &["cp", "--insecure", &from, &url]));
    assert_bytes(&there.path("file"), &other);
    let status = first.wait(PATIENCE).unwrap();
    let said = first.output().join("\n");
    assert!(status.is_some_and(|status| !status.success()), "{said}");
    assert!(said.contains("exists"), "{said}");
    has_come(&stage, &there, &other);
    assert_eq!(content.len(), UP);
}

#[test]
fn uploads_survive_kills_at_any_moment() {
    let mut stage = Stage::open(162, &[]);
    let there = There::ours(&stage);
    let content = Stage::make(&stage.here("file"), HUGE / 2);
    let (source, url) = (text(&stage.here("file")), there.url("file"));
    for milliseconds in [5, 200, 700, 1100, 5300, 5100] {
        let mut client = begin(&stage, &source, &url);
        std::thread::sleep(Duration::from_millis(milliseconds));
        if milliseconds % 200 == 100 {
            stage.kill_and_restart();
            std::thread::sleep(Duration::from_millis(500));
        }
        client.kill().unwrap();
        assert!(!there.path("file").exists());
    }
    copy(&stage, &source, &url);
    has_come(&stage, &there, &content);
}

/// A tree goes on within its large file, both ways.
#[test]
fn trees_go_on_within_large_files() {
    let stage = Stage::open(164, &[]);
    let there = There::ours(&stage);
    for tree in [there.path("tree"), stage.here("tree")] {
        Stage::make(&tree.join("large"), UP);
        for number in 0..20 {
            Stage::make(&tree.join(format!("d/f{number}")), number * 100);
        }
    }
    let ways: [(_, _, _, &dyn Fn() -> bool); 2] = [
        (
            there.url("tree/"),
            text(&stage.here("down")),
            stage.here("down"),
            &|| !ending(&stage.here("down"), "-journal").is_empty(),
        ),
        (
            text(&stage.here("tree/")),
            there.url("up"),
            there.path("up"),
            &|| has_uploaded(&stage),
        ),
    ];
    for (from, to, target, has_part) in ways {
        let words = ["cp", "-r", "--insecure", SLOWLY, &from, &to];
        let mut client = Guard::spawn(&mut xdfs(&stage, &words)).unwrap();
        await_record(&client, has_part);
        client.kill().unwrap();
        assert!(!target.join("large").exists());
        there.relay.take_bytes();
        there.relay.take_commands("");
        run(&mut xdfs(&stage, &["cp", "-r", "--insecure", &from, &to]));
        assert_same_tree(&stage.here("tree"), &target);
        let rest = there.relay.take_bytes();
        assert!(rest < UP as u64 * 9 / 10, "{rest} bytes");
        assert_eq!(there.relay.take_commands("REST 0-").len(), 1);
    }
}

/// With TLS it is the same.
#[test]
fn a_protected_copy_goes_on() {
    let stage = Stage::with_users(165, "");
    let content = Stage::make(&stage.root("alice/file"), UP);
    let address = stage.named_address();
    let certificate = stage.certificate();
    let password = stage.beside("password");
    let flags = [
        format!("--ca={}", text(&certificate)),
        format!("--password-file={}", text(&password)),
    ];
    let place = format!("ftps://alice@{address}/alice");
    let (down, up) = (format!("{place}/file"), format!("{place}/again"));
    let target = text(&stage.here("file"));
    let ways: [(_, _, &dyn Fn() -> bool); 2] = [
        (&down, &target, &|| has_downloaded(&stage)),
        (&target, &up, &|| has_uploaded(&stage)),
    ];
    for (from, to, has_part) in ways {
        let words = ["cp", "-v", &flags[0], &flags[1], from, to];
        let mut slowly = xdfs(&stage, &words);
        let mut client = Guard::spawn(slowly.arg(SLOWLY)).unwrap();
        await_record(&client, has_part);
        client.kill().unwrap();
        let said = run(&mut xdfs(&stage, &words));
        assert!(said.contains("were there already"), "{said}");
    }
    assert_bytes(&stage.here("file"), &content);
    assert_bytes(&stage.root("alice/again"), &content);
}

/// The network breaks in the middle, and neither side is told more.
#[test]
fn cut_connections_are_survived() {
    let stage = Stage::open(166, &[]);
    cut_connections(&stage, &There::ours(&stage), true);
    if let Some(globus) = Globus::start() {
        cut_connections(&stage, &There::of_globus(&stage, &globus), false);
    }
}

#[track_caller]
fn cut_connections(stage: &Stage, there: &There, goes_up: bool) {
    let content = Stage::make(&there.path("down"), UP);
    let (down, up) = (there.url("down"), there.url("file"));
    let target = text(&stage.here("file"));
    let goes_on = |is_up: bool| !is_up || goes_up;
    for (from, to, is_up) in [(&down, &target, false), (&target, &up, true)] {
        let mut client = begin(stage, from, to);
        await_record(&client, || match is_up {
            false => has_downloaded(stage),
            true if goes_up => has_uploaded(stage),
            true => there.relay.bytes() > 50_000_000,
        });
        there.relay.cut();
        let status = client.wait(PATIENCE).unwrap();
        let said = client.output().join("\n");
        assert!(status.is_some_and(|status| status.success()), "{said}");
        let bytes = there.relay.take_bytes();
        let is_rest = bytes < 2 * UP as u64 - 4_000_000;
        assert!(is_rest || !goes_on(is_up), "{bytes}: {said}");
    }
    assert_bytes(&stage.here("file"), &content);
    fs::remove_file(there.path("down")).unwrap();
    has_come(stage, there, &content);
    fs::remove_file(there.path("file")).unwrap();
    fs::remove_file(stage.here("file")).unwrap();
}

/// A target at another server can't be compared with the source, so nothing is gone on with there.
#[test]
fn what_goes_through_here_to_another_server_begins_anew() {
    let (stage, other) = (Stage::open(167, &[]), Stage::open(168, &[]));
    let mut content = Stage::make(&stage.root("file"), UP);
    make_old(&stage.root("file"));
    let there = stage.knows_open("other", &other);
    let (from, to) = (stage.url("/file"), format!("{there}/file"));
    let mut client = begin(&stage, &from, &to);
    let arrives = || !ending(&other.root(""), "-part").is_empty();
    await_record(&client, arrives);
    client.kill().unwrap();
    content[4000] ^= 1;
    replace_unseen(&stage.root("file"), &content);
    let said = copy(&stage, &from, &to);
    assert!(!said.contains("there already"), "{said}");
    assert_bytes(&other.root("file"), &content);
}
