//! Files that a group of servers sends together: real servers over one directory, each behind a
//! path of its own, which are killed, stopped, and given other files, keys and lists.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use xdfs_testkit::proxy::{FaultProxy, Faults, Plan};

use crate::support::{Place, Run, Running, Server, assert_content, content, names, program};

pub(crate) const SIZE: usize = 24 << 20;

/// A member, and the path to it.
pub(crate) struct Member {
    pub(crate) server: Server,
    /// The settings, and where its own files are.
    pub(crate) place: Place,
    pub(crate) key: String,
    pub(crate) proxy: FaultProxy,
}

/// A group over one directory, with a client whose known servers are of this scene alone.
pub(crate) struct Scene {
    /// The storage, and the client's side.
    pub(crate) here: Place,
    pub(crate) members: Vec<Member>,
}

/// The program with the keys of a scene.
pub(crate) fn own_program(here: &Place) -> Command {
    let mut command = program();
    command.env("XDFS_CONFIG_DIR", here.here("config"));
    command
}

fn start_server(here: &Place, place: &Place, more: &[&str]) -> Server {
    start_server_as(here, place, more, |_| ())
}

fn start_server_as(
    here: &Place,
    place: &Place,
    more: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> Server {
    let config = place.here("xdfs.toml");
    let flags = [&["--config", &*config], more].concat();
    Server::start_as(&here.root(), &flags, |mut serve| {
        serve.env("XDFS_CONFIG_DIR", here.here("config"));
        prepare(&mut serve);
        serve
    })
}

/// The settings of a member, which has a key of its own.
fn settings(storage: &Path) -> String {
    format!(
        "listen = [\"127.0.0.1:0\"]\nfolder = \"server\"\n[[export]]\nname = \"data\"\n\
         path = {storage:?}\n[[export.grant]]\nuser = \"*\"\n\
         rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n"
    )
}

fn list(members: &[(String, String)]) -> String {
    let member = |(address, key): &(String, String)| {
        format!("[[member]]\naddress = \"{address}\"\nkey = \"{key}\"\n")
    };
    let members = members.iter().map(member).collect::<String>();
    format!("storage = \"shared\"\n{members}")
}

impl Scene {
    pub(crate) fn new(count: usize) -> Self {
        Self::with(count, |_, _| ())
    }

    /// Members of a group, after `change` has changed the settings of each, and the list.
    pub(crate) fn with(
        count: usize,
        change: impl Fn(usize, &mut (PathBuf, String, String)),
    ) -> Self {
        let here = Place::new();
        std::fs::create_dir(here.here("config")).unwrap();
        Self::at(here, count, change)
    }

    /// Another group, with the same users.
    pub(crate) fn beside(other: &Self, count: usize) -> Self {
        let here = Place::new();
        symlink(other.here.here("config"), here.here("config")).unwrap();
        Self::at(here, count, |_, _| ())
    }

    fn at(
        here: Place,
        count: usize,
        change: impl Fn(usize, &mut (PathBuf, String, String)),
    ) -> Self {
        let mut members: Vec<_> = (0..count)
            .map(|_| {
                let place = Place::new();
                place.make_here("xdfs.toml", settings(&here.root()).as_bytes());
                // A first start makes its key.
                let server = start_server(&here, &place, &[]);
                let line = server.line_with("fingerprint ");
                let key = line
                    .split_whitespace()
                    .find(|word| word.starts_with("SHA256:"));
                let proxy = FaultProxy::new(server.addresses[0].parse().unwrap()).unwrap();
                Member {
                    key: key.unwrap().to_owned(),
                    server,
                    place,
                    proxy,
                }
            })
            .collect();
        let mut entries = Vec::new();
        for (number, member) in members.iter_mut().enumerate() {
            let address = member.proxy.addr().to_string();
            let mut own = (here.root(), address, member.key.clone());
            change(number, &mut own);
            let (storage, address, key) = own;
            member
                .place
                .make_here("xdfs.toml", settings(&storage).as_bytes());
            entries.push((address, key));
        }
        for (number, member) in members.iter_mut().enumerate() {
            member.server.running.kill();
            // The list that others have names another key for one with a wrong one.
            let mut own = entries.clone();
            own[number].1 = member.key.clone();
            let group = member.place.make_here("group.toml", list(&own).as_bytes());
            member.server = start_server(&here, &member.place, &["--group", &group]);
            let address = member.server.addresses[0].parse().unwrap();
            member.proxy.set_target(address);
        }
        Self { here, members }
    }

    /// Every path carries so many bytes a second on a channel.
    pub(crate) fn limited(self, bytes: u64) -> Self {
        let limit = |faults: &mut Faults| faults.rate = Some(bytes);
        for member in &self.members {
            member.proxy.set_plan(Plan::up(limit).and_down(limit));
        }
        self
    }

    /// Starts a member that was killed.
    pub(crate) fn restart(&mut self, number: usize) {
        self.restart_as(number, true, |_| ());
    }

    /// Starts a member that was killed, in a group or as a server that knows none.
    pub(crate) fn restart_as(
        &mut self,
        number: usize,
        is_in_group: bool,
        prepare: impl FnOnce(&mut Command),
    ) {
        let member = &mut self.members[number];
        let group = member.place.here("group.toml");
        let flags: &[&str] = match is_in_group {
            true => &["--group", &group],
            false => &[],
        };
        member.server = start_server_as(&self.here, &member.place, flags, prepare);
        let address = member.server.addresses[0].parse().unwrap();
        member.proxy.set_target(address);
    }

    fn put(&self, bytes: &[u8]) {
        std::fs::write(self.here.remote("file"), bytes).unwrap();
    }

    pub(crate) fn url(&self, member: usize) -> String {
        format!("xdfs://{}/data/file", self.members[member].proxy.addr())
    }

    fn target(&self) -> String {
        self.here.here("target/file")
    }

    /// Starts to copy the file of the first member.
    fn start(&self, more: &[&str]) -> Running {
        std::fs::create_dir_all(self.here.here("target")).unwrap();
        let mut command = own_program(&self.here);
        command
            .args(["cp", "--json", "--stripe", "-n", "1"])
            .args(more);
        Running::start(command.args([&self.url(0), &self.target()]))
    }

    fn assert_copied(&self, expected: &[u8]) {
        assert_content(self.target(), expected);
        assert_eq!(names(self.here.here("target")), ["file"]);
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Running::start(own_program(&self.here).args(args).stdin(Stdio::null())).wait()
    }
}

/// The members that a copy reports, that of the command first.
pub(crate) fn sources(run: &Run) -> Vec<Value> {
    let mut all = run.json();
    all.retain(|record| record["type"] == "source");
    all
}

pub(crate) fn bytes_of(sources: &[Value]) -> Vec<u64> {
    let bytes = sources.iter().map(|source| source["bytes"].as_u64());
    bytes.map(Option::unwrap).collect()
}

/// The members that were not used to the end, with the codes.
pub(crate) fn dropped(sources: &[Value]) -> Vec<(usize, &str)> {
    let codes = sources
        .iter()
        .map(|source| source["dropped"]["code"].as_str());
    let dropped = codes.enumerate();
    dropped.filter_map(|(at, code)| Some((at, code?))).collect()
}

#[test]
fn all_members_send_parts_of_one_file() {
    let scene = Scene::new(4).limited(6_000_000);
    let expected = content(501, SIZE);
    scene.put(&expected);
    let run = scene.start(&[]).wait().ok();
    scene.assert_copied(&expected);
    let found = sources(&run);
    let bytes = bytes_of(&found);
    assert_eq!(bytes.len(), 4, "{}", run.text());
    assert_eq!(bytes.iter().sum::<u64>(), SIZE as u64, "{}", run.text());
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{}", run.text());
    assert_eq!(dropped(&found), [], "{}", run.text());
    let urls: Vec<_> = found.iter().map(|own| own["source"].clone()).collect();
    assert_eq!(urls, (0..4).map(|at| scene.url(at)).collect::<Vec<_>>());
    // Again, there is nothing to do.
    let run = scene.start(&[]).wait().ok();
    assert!(run.text().contains("\"skipped\":true"), "{}", run.text());
    // From any member, a part of the file too.
    let part = scene.here.here("part");
    let range = ["--offset", "700000", "--length", "5m"];
    let from = scene.url(2);
    let args = [&["cp", "--stripe"][..], &range, &[&from, &part]].concat();
    scene.run(&args).ok();
    assert_content(&part, &expected[700_000..][..5 << 20]);
}

#[test]
fn files_of_any_length_arrive_whole() {
    let scene = Scene::new(2);
    for length in [0, 1, 512 << 10, (1 << 20) + 1, (5 << 20) - 1] {
        let expected = content(502, length);
        scene.put(&expected);
        // The pin is that of the first one.
        let mut run = scene.start(&["-fI", "--pin", &scene.members[0].key]);
        let run = run.wait().ok();
        scene.assert_copied(&expected);
        assert_eq!(dropped(&sources(&run)), [], "{}", run.text());
    }
}

#[test]
fn a_member_that_is_killed_is_named_and_the_copy_ends() {
    // The one that the command names, and another.
    for killed in [0, 2] {
        let mut scene = Scene::new(3).limited(3_000_000);
        let expected = content(503, SIZE);
        scene.put(&expected);
        let mut client = scene.start(&[]);
        client.wait_for_bytes(6 << 20);
        let member = &mut scene.members[killed];
        member.server.running.kill();
        member.proxy.cut_all();
        let run = client.wait().ok();
        scene.assert_copied(&expected);
        let named = format!("{} is not used any more", scene.url(killed));
        assert!(run.stderr.contains(&named), "{}", run.stderr);
        let found = sources(&run);
        let dropped = dropped(&found);
        assert_eq!((dropped.len(), dropped[0].0), (1, killed), "{}", run.text());
        let sum = bytes_of(&found).iter().sum::<u64>();
        assert_eq!(sum, SIZE as u64, "{}", run.text());
    }
}

#[test]
fn a_member_that_is_stopped_is_named_and_the_copy_ends() {
    // So slow that the rest takes longer than a member may be silent.
    let scene = Scene::new(3).limited(700_000);
    let expected = content(504, SIZE);
    scene.put(&expected);
    let mut client = scene.start(&[]);
    client.wait_for_bytes(4 << 20);
    scene.members[1].server.running.signal("STOP");
    let run = client.wait();
    scene.members[1].server.running.signal("CONT");
    let run = run.ok();
    scene.assert_copied(&expected);
    let named = format!("{} is not used any more", scene.url(1));
    assert!(run.stderr.contains(&named), "{}", run.stderr);
    let found = sources(&run);
    assert_eq!(
        dropped(&found),
        [(1, "deadline-exceeded")],
        "{}",
        run.text()
    );
}

#[test]
fn a_killed_client_goes_on_where_it_was() {
    let scene = Scene::new(2).limited(4_000_000);
    let expected = content(505, SIZE);
    scene.put(&expected);
    let mut client = scene.start(&[]);
    client.wait_for_bytes(12 << 20);
    client.kill();
    assert!(!names(scene.here.here("target")).contains(&"file".into()));
    let run = scene.start(&[]).wait().ok();
    scene.assert_copied(&expected);
    let resumed = run.result()["resumed_bytes"].as_u64().unwrap();
    assert!(resumed > 0, "{}", run.text());
    let bytes = bytes_of(&sources(&run)).iter().sum::<u64>();
    // Ranges that are partly there are sent as a whole.
    let most = SIZE as u64 - resumed + (8 << 20);
    assert!(bytes <= most, "{bytes} bytes came, {resumed} were there");
}

/// The file is written in place while it is copied, and gets its time back.
#[test]
fn a_file_that_is_changed_meanwhile_is_not_published() {
    let scene = Scene::new(3).limited(2_000_000);
    let before = content(506, SIZE);
    scene.put(&before);
    let expected = content(507, SIZE);
    let mut client = scene.start(&[]);
    client.wait_for_bytes(6 << 20);
    let name = scene.here.remote("file");
    let file = File::options().write(true).open(name).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(&expected, 0).unwrap();
    file.set_modified(time).unwrap();
    let run = client.wait();
    assert_ne!(run.code, Some(0), "{}", run.text());
    assert!(run.stderr.contains("another version"), "{}", run.stderr);
    assert!(!names(scene.here.here("target")).contains(&"file".into()));
    // The rest of it isn't used by the next copy.
    let run = scene.start(&[]).wait().ok();
    scene.assert_copied(&expected);
    assert_eq!(run.result()["resumed_bytes"], 0);
}

/// It has a file with the same content and time, which another storage keeps.
#[test]
fn a_member_over_another_storage_sends_nothing() {
    let other = Place::new();
    let elsewhere = other.root();
    let scene = Scene::with(3, |number, (storage, _, _)| {
        if number == 1 {
            storage.clone_from(&elsewhere);
        }
    });
    let expected = content(508, SIZE);
    scene.put(&expected);
    std::fs::write(other.remote("file"), &expected).unwrap();
    let time = std::fs::metadata(scene.here.remote("file")).unwrap();
    let copy = File::options().write(true).open(other.remote("file"));
    copy.unwrap()
        .set_modified(time.modified().unwrap())
        .unwrap();
    let run = scene.start(&[]).wait().ok();
    scene.assert_copied(&expected);
    let found = sources(&run);
    assert_eq!(dropped(&found), [(1, "source-changed")], "{}", run.text());
    assert_eq!(bytes_of(&found)[1], 0);
    assert!(run.stderr.contains("or another storage"), "{}", run.stderr);
}

/// The list has another key for one, and an address where nothing is for another.
#[test]
fn a_member_with_another_key_gets_no_login() {
    let wrong = format!("SHA256:{}", "A".repeat(43));
    let scene = Scene::with(4, |number, (_, address, key)| match number {
        1 => key.clone_from(&wrong),
        2 => *address = "127.0.0.1:1".into(),
        _ => {}
    });
    let expected = content(509, SIZE);
    scene.put(&expected);
    let mut client = scene.start(&[]);
    let run = client.wait().ok();
    scene.assert_copied(&expected);
    let found = sources(&run);
    let dropped = dropped(&found);
    assert_eq!(dropped.len(), 2, "{}", run.text());
    assert_eq!(dropped[0], (1, "server-untrusted"));
    assert_eq!(dropped[1].0, 2);
    // Nothing was proved to it, and its key isn't known afterwards.
    let known = std::fs::read_to_string(scene.here.here("config/known_hosts")).unwrap();
    let address = scene.members[1].proxy.addr().to_string();
    assert!(!known.contains(&address), "{known}");
}

#[test]
fn what_makes_no_sense_with_stripes_is_refused() {
    let scene = Scene::new(2);
    scene.put(b"content");
    let (url, target) = (scene.url(0), scene.here.here("target"));
    for flag in ["--remove-source", "--detach", "--stripe-block-size=1M"] {
        let run = scene.run(&["cp", "--stripe", flag, &url, &target]);
        run.fails(2, &[flag.split('=').next().unwrap()]);
    }
    let directory = url.trim_end_matches("file");
    let missing = format!("{directory}none");
    scene
        .run(&["cp", "--stripe", &missing, &target])
        .fails(4, &["no such file"]);
    let several = format!("{url},{}", scene.url(1));
    let run = scene.run(&["cp", "--stripe", &several, &url, &target]);
    run.fails(2, &["several sources of one file"]);
    // A server that is in no group.
    let alone = Place::new();
    alone.make_here("xdfs.toml", settings(&scene.here.root()).as_bytes());
    let alone = start_server(&scene.here, &alone, &[]);
    let run = scene.run(&["cp", "--stripe", &alone.url("/data/file"), &target]);
    assert_ne!(run.code, Some(0));
    assert!(run.stderr.contains("is in no group"), "{}", run.stderr);
    assert!(!names(scene.here.here("")).contains(&"target".into()));
}

#[test]
fn lists_with_mistakes_are_refused_before_the_server_listens() {
    let scene = Scene::new(2);
    let Member { place, key, .. } = &scene.members[0];
    let good = |number: usize| {
        let member = &scene.members[number];
        (format!("h{number}:2799"), member.key.clone())
    };
    let stranger = ("h:1".to_owned(), format!("SHA256:{}", "A".repeat(43)));
    let config = place.here("xdfs.toml");
    let check = |text: &str, more: &[&str]| {
        let group = place.make_here("list.toml", text.as_bytes());
        let flags = [
            "serve",
            "--check-config",
            "--config",
            &config,
            "--group",
            &group,
        ];
        scene.run(&[&flags[..], more].concat())
    };
    check(&list(&[good(0), good(1)]), &[]).ok();
    for (text, words) in [
        (list(&[good(0)]), "it has 1 members"),
        (
            list(&[good(1), stranger]),
            "no member with the key of this server",
        ),
        (
            list(&[good(0), good(0)]),
            "member 2: another one has the key",
        ),
        (
            list(&[good(0), ("h1".into(), good(1).1)]),
            "'h1' is no address",
        ),
        (
            list(&[good(0), ("h1:1".into(), "x".into())]),
            "'x' is no fingerprint",
        ),
        ("storage = \"local\"\nmember = []\n".into(), "line 1"),
        (format!("{}more = 1\n", list(&[good(0), good(1)])), "more"),
        ("member".into(), "line 1"),
        (String::new(), "name the storage"),
    ] {
        check(&text, &[]).fails(2, &[words]);
    }
    check(&list(&[good(0), good(1)]), &["--insecure"]).fails(2, &["--group"]);
    // The key of a server that has none yet can be in no list.
    let fresh = Place::new();
    fresh.make_here("xdfs.toml", settings(&scene.here.root()).as_bytes());
    let group = fresh.make_here("list.toml", list(&[good(0), good(1)]).as_bytes());
    let config = fresh.here("xdfs.toml");
    let flags = ["serve", "--config", &config, "--group", &group];
    scene
        .run(&flags)
        .fails(2, &["no member with the key of this server", "SHA256:"]);
    assert!(key.starts_with("SHA256:"));
}
