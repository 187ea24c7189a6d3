//! Files that a group of servers writes together: real servers over one directory, which are
//! killed and stopped, are over another storage, or have other keys.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use crate::stripes::{SIZE, Scene, bytes_of, dropped, own_program, sources};
use crate::support::{Place, Run, Running, assert_content, content, names};

impl Scene {
    fn source(&self, bytes: &[u8]) -> String {
        self.here.make_here("source", bytes)
    }

    /// Starts to copy the source to the first member.
    fn start_up(&self, more: &[&str]) -> Running {
        let mut command = own_program(&self.here);
        command
            .args(["cp", "--json", "--stripe", "-n", "1", "-f"])
            .args(more);
        Running::start(command.args([&self.here.here("source"), &self.url(0)]))
    }

    /// Waits until so many bytes are in the unfinished file, and some are recorded if that is
    /// wanted; or until it is published.
    fn wait_for_parts(&self, bytes: u64, is_recorded: bool) {
        let began = Instant::now();
        let [file, part, journal] = ["file", ".file.xdfs-part", ".file.xdfs-journal"]
            .map(|name| self.here.root().join(name));
        loop {
            let written = fs::metadata(&part).map_or(0, |own| own.blocks() * 512);
            let is_there = written >= bytes && (!is_recorded || journal.exists());
            if is_there || file.exists() {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(60), "{written} bytes");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The file is there as a whole, and nothing else.
    fn assert_written(&self, expected: &[u8]) {
        assert_content(self.here.remote("file"), expected);
        assert_eq!(names(self.here.root()), ["file"]);
    }
}

fn resumed(run: &Run) -> u64 {
    run.result()["resumed_bytes"].as_u64().unwrap()
}

#[test]
fn all_members_write_parts_of_one_file() {
    let scene = Scene::new(4).limited(6_000_000);
    let expected = content(601, SIZE);
    scene.source(&expected);
    let run = scene.start_up(&[]).wait().ok();
    scene.assert_written(&expected);
    let found = sources(&run);
    let bytes = bytes_of(&found);
    assert_eq!(bytes.len(), 4, "{}", run.text());
    assert_eq!(bytes.iter().sum::<u64>(), SIZE as u64, "{}", run.text());
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{}", run.text());
    assert_eq!(dropped(&found), [], "{}", run.text());
    // The time of the source and its permissions came too.
    let [here, there] = [scene.here.here("source").into(), scene.here.remote("file")]
        .map(|path: std::path::PathBuf| fs::metadata(path).unwrap());
    assert_eq!(here.modified().unwrap(), there.modified().unwrap());
    assert_eq!(here.permissions(), there.permissions());
    // Again, there is nothing to do; without --force neither.
    let run = scene.start_up(&[]).wait().ok();
    assert!(run.text().contains("\"skipped\":true"), "{}", run.text());
    // An existing file isn't replaced by another one unless that is wanted.
    let other = scene.here.make_here("other", &content(602, SIZE));
    let run = scene.run(&["cp", "--stripe", &other, &scene.url(1)]);
    assert_ne!(run.code, Some(0));
    assert!(run.stderr.contains("--force"), "{}", run.stderr);
    scene.assert_written(&expected);
}

#[test]
fn files_of_any_length_and_digest_are_written() {
    let scene = Scene::new(2);
    for length in [0, 1, (4 << 20) + 1, (5 << 20) - 1, (9 << 20) + 12_345] {
        for digest in ["crc64", "blake3"] {
            let expected = content(603, length);
            scene.source(&expected);
            let run = scene.start_up(&["-I", "--digest", digest]).wait().ok();
            scene.assert_written(&expected);
            assert_eq!(dropped(&sources(&run)), [], "{}", run.text());
        }
    }
    // Into a directory, and with a hole.
    let source = scene.here.here("sparse");
    let file = fs::File::create(&source).unwrap();
    file.set_len(20 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"in the middle", 9_000_001).unwrap();
    let directory = scene.url(0).trim_end_matches("file").to_owned();
    scene.run(&["cp", "--stripe", &source, &directory]).ok();
    let expected = fs::read(&source).unwrap();
    assert_content(scene.here.remote("sparse"), &expected);
    // A target that several write, of a file that several send.
    let more = format!("{directory}more");
    let from = format!("{directory}sparse");
    scene.run(&["cp", "--stripe", &from, &more]).ok();
    assert_content(scene.here.remote("more"), &expected);
}

#[test]
fn a_writing_member_that_is_killed_is_named_and_the_copy_ends() {
    let mut scene = Scene::new(3).limited(2_000_000);
    let expected = content(604, SIZE);
    scene.source(&expected);
    let mut client = scene.start_up(&[]);
    scene.wait_for_parts(6 << 20, true);
    let member = &mut scene.members[2];
    member.server.running.kill();
    member.proxy.cut_all();
    let run = client.wait().ok();
    scene.assert_written(&expected);
    let named = format!("{} is not used any more", scene.url(2));
    assert!(run.stderr.contains(&named), "{}", run.stderr);
    let found = sources(&run);
    let dropped = dropped(&found);
    assert_eq!((dropped.len(), dropped[0].0), (1, 2), "{}", run.text());
    let sum = bytes_of(&found).iter().sum::<u64>();
    assert_eq!(sum, SIZE as u64, "{}", run.text());
}

/// The member that has the file open dies, and is there again: the same command continues.
#[test]
fn a_home_that_is_killed_resumes_from_its_journal() {
    let mut scene = Scene::new(3).limited(1_500_000);
    let expected = content(605, SIZE);
    scene.source(&expected);
    let mut client = scene.start_up(&["--retries", "0"]);
    scene.wait_for_parts(6 << 20, true);
    let home = &mut scene.members[0];
    home.server.running.kill();
    home.proxy.cut_all();
    let run = client.wait();
    assert_ne!(run.code, Some(0), "{}", run.text());
    assert!(!names(scene.here.root()).contains(&"file".into()));
    scene.restart(0);
    let run = scene.start_up(&[]).wait().ok();
    scene.assert_written(&expected);
    let resumed = resumed(&run);
    assert!(resumed > 0, "{}", run.text());
    let sum = bytes_of(&sources(&run)).iter().sum::<u64>();
    assert_eq!(sum, SIZE as u64 - resumed, "{}", run.text());
}

#[test]
fn a_killed_client_of_a_striped_upload_resumes() {
    let scene = Scene::new(3).limited(2_000_000);
    let expected = content(606, SIZE);
    scene.source(&expected);
    let mut client = scene.start_up(&[]);
    scene.wait_for_parts(6 << 20, true);
    client.kill();
    assert!(!names(scene.here.root()).contains(&"file".into()));
    let run = scene.start_up(&[]).wait().ok();
    scene.assert_written(&expected);
    assert!(resumed(&run) > 0, "{}", run.text());
    // An upload that began striped continues without stripes, too.
    let expected = content(607, SIZE);
    scene.source(&expected);
    fs::remove_file(scene.here.remote("file")).unwrap();
    let mut client = scene.start_up(&[]);
    scene.wait_for_parts(6 << 20, true);
    client.kill();
    let args = [
        "cp",
        "--json",
        "-f",
        &scene.here.here("source"),
        &scene.url(1),
    ];
    let run = scene.run(&args).ok();
    scene.assert_written(&expected);
    assert!(resumed(&run) > 0, "{}", run.text());
}

#[test]
fn a_writing_member_that_is_stopped_is_named_and_writes_nothing_late() {
    let scene = Scene::new(3).limited(500_000);
    let expected = content(608, SIZE);
    scene.source(&expected);
    let mut client = scene.start_up(&[]);
    scene.wait_for_parts(6 << 20, true);
    scene.members[1].server.running.signal("STOP");
    let run = client.wait();
    let time = fs::metadata(scene.here.remote("file")).and_then(|own| own.modified());
    scene.members[1].server.running.signal("CONT");
    let run = run.ok();
    let found = sources(&run);
    assert_eq!(
        dropped(&found),
        [(1, "deadline-exceeded")],
        "{}",
        run.text()
    );
    scene.assert_written(&expected);
    // It is there again, and has looked at what it was sent.
    scene.run(&["ls", &scene.url(1)]).ok();
    scene.assert_written(&expected);
    let after = fs::metadata(scene.here.remote("file")).unwrap();
    assert_eq!(time.unwrap(), after.modified().unwrap());
}

/// It has an unfinished file of the same name, with another number.
#[test]
fn a_member_over_another_storage_writes_nothing() {
    let other = Place::new();
    let elsewhere = other.root();
    let scene = Scene::with(3, |number, (storage, _, _)| {
        if number == 1 {
            storage.clone_from(&elsewhere);
        }
    });
    let expected = content(609, SIZE);
    scene.source(&expected);
    let run = scene.start_up(&[]).wait().ok();
    scene.assert_written(&expected);
    let found = sources(&run);
    assert_eq!(dropped(&found), [(1, "not-found")], "{}", run.text());
    assert_eq!(bytes_of(&found)[1], 0);
    assert_eq!(names(other.root()), [] as [&str; 0]);
}

/// One knows no groups, as programs that are older than they are; another one has an unfinished
/// file of that name, from an earlier attempt on another storage.
#[test]
fn a_member_that_is_older_or_has_another_unfinished_file_writes_nothing() {
    let other = Place::new();
    let elsewhere = other.root();
    let mut scene = Scene::with(4, |number, (storage, _, _)| {
        if number == 2 {
            storage.clone_from(&elsewhere);
        }
    });
    scene.members[1].server.running.kill();
    scene.restart_as(1, false, |_| ());
    fs::write(other.remote(".file.xdfs-part"), b"an earlier attempt").unwrap();
    let expected = content(612, SIZE);
    scene.source(&expected);
    let run = scene.start_up(&[]).wait().ok();
    scene.assert_written(&expected);
    let found = sources(&run);
    let expected = [(1, "not-found"), (2, "stale")];
    assert_eq!(dropped(&found), expected, "{}", run.text());
    assert_eq!(bytes_of(&found)[1..3], [0, 0]);
    assert_content(other.remote(".file.xdfs-part"), b"an earlier attempt");
}

#[test]
fn a_writing_member_with_another_key_gets_no_login() {
    let wrong = format!("SHA256:{}", "A".repeat(43));
    let scene = Scene::with(3, |number, (_, _, key)| {
        if number == 1 {
            key.clone_from(&wrong);
        }
    });
    let expected = content(610, SIZE);
    scene.source(&expected);
    let run = scene.start_up(&[]).wait().ok();
    scene.assert_written(&expected);
    assert_eq!(dropped(&sources(&run)), [(1, "server-untrusted")]);
}

#[test]
fn what_can_not_be_written_in_stripes_is_refused() {
    let scene = Scene::new(2);
    let source = scene.source(&content(611, 5 << 20));
    let url = scene.url(0);
    for flag in ["--remove-source", "--detach", "--dry-run"] {
        let run = scene.run(&["cp", "--stripe", flag, &source, &url]);
        run.fails(2, &[flag]);
    }
    // A directory that isn't there.
    let missing = format!("{}none/file", url.trim_end_matches("file"));
    let run = scene.run(&["cp", "--stripe", &source, &missing]);
    let hint = format!("mkdir -p {}none", url.trim_end_matches("file"));
    run.fails(4, &["no such directory", &hint]);
    assert_eq!(names(scene.here.root()), [] as [&str; 0]);
}

/// Rounds in which something dies at some time: `XDFS_TEST_ROUNDS` of them.
#[test]
fn whatever_dies_the_same_command_ends() {
    let rounds = std::env::var("XDFS_TEST_ROUNDS").ok();
    let rounds = rounds.map_or(2, |rounds| rounds.parse().unwrap());
    let mut scene = Scene::new(3).limited(8_000_000);
    let mut random = 20_261_130_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for round in 0..rounds {
        let expected = content(10_000 + round, SIZE);
        scene.source(&expected);
        let _ = fs::remove_file(scene.here.remote("file"));
        let victim = next(4) as usize;
        let from = next(20 << 20);
        println!("round {round}: {victim} dies from byte {from} on");
        let mut client = scene.start_up(&[]);
        scene.wait_for_parts(from, false);
        if victim == 3 {
            client.kill();
        } else {
            let member = &mut scene.members[victim];
            member.server.running.kill();
            member.proxy.cut_all();
            scene.restart(victim);
            // It may have had enough retries.
            client.wait();
        }
        scene.start_up(&[]).wait().ok();
        scene.assert_written(&expected);
    }
}
