//! Copies that two servers make between themselves.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Place, Run, Running, Server, assert_content, content, program, xdfs};

/// Lets a server connect to the others of a test, which are on this machine.
pub(crate) const CONNECTS: [&str; 2] = ["--connect-to", "127.0.0.0/8"];

/// Two servers with keys and users of their own.
pub(crate) struct Scene {
    pub(crate) place: Place,
    pub(crate) source: Server,
    pub(crate) target: Server,
}

impl Scene {
    /// Servers with these flags, of the source and of the target.
    pub(crate) fn new(flags: [&[&str]; 2]) -> Self {
        let place = Place::new();
        let [source, target] = ["source", "target"].map(|name| {
            let flags = flags[usize::from(name == "target")];
            Self::serve(&place, name, "127.0.0.1:0", flags)
        });
        Self {
            place,
            source,
            target,
        }
    }

    pub(crate) fn serve(place: &Place, name: &str, listen: &str, flags: &[&str]) -> Server {
        Self::serve_with(place, name, listen, flags, "")
    }

    /// A server with further settings.
    fn serve_with(place: &Place, name: &str, listen: &str, flags: &[&str], more: &str) -> Server {
        Self::serve_in(place, name, (listen, more), flags, |_| ())
    }

    /// A server whose process gets another environment.
    pub(crate) fn serve_as(
        place: &Place,
        name: &str,
        flags: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Server {
        Self::serve_in(place, name, ("127.0.0.1:0", ""), flags, prepare)
    }

    fn serve_in(
        place: &Place,
        name: &str,
        (listen, more): (&str, &str),
        flags: &[&str],
        prepare: impl FnOnce(&mut Command),
    ) -> Server {
        let root = PathBuf::from(place.here(name));
        fs::create_dir_all(&root).unwrap();
        let settings = place.here(&format!("{name}.toml"));
        let folder = place.here(&format!("{name}-folder"));
        let audit = place.here(&format!("{name}.log"));
        fs::write(
            &settings,
            format!("folder = {folder:?}\naudit = {audit:?}\n{more}"),
        )
        .unwrap();
        let common = ["--config", &settings, "--listen", listen];
        Server::start_as(&root, &[&common, flags].concat(), |mut serve| {
            prepare(&mut serve);
            serve
        })
    }

    fn make(&self, name: &str, bytes: usize) -> Vec<u8> {
        let content = content(7, bytes);
        let path = PathBuf::from(self.place.here("source")).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &content).unwrap();
        content
    }

    pub(crate) fn copied(&self, name: &str) -> PathBuf {
        PathBuf::from(self.place.here("target")).join(name)
    }

    pub(crate) fn audit(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.place.here(&format!("{name}.log"))).unwrap();
        let lines = text.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().unwrap()
    }

    /// Copies `/file` to `/to`.
    fn cp(&self, flags: &[&str], to: &str) -> Run {
        let places = [self.source.url("/file"), self.target.url(to)];
        let words = ["cp", "--json"].iter().chain(flags).copied();
        xdfs(words.chain(places.iter().map(String::as_str)))
    }
}

/// The record of the one file of a run.
fn file(run: &Run) -> Value {
    let records = run.json();
    let mut files = records
        .into_iter()
        .filter(|record| record["type"] == "file");
    files.next().expect("a record of the file")
}

#[test]
fn either_server_that_may_connect_moves_the_file() {
    for (flags, operation, acts, issues) in [
        ([&[][..], &CONNECTS], "fetch", "target", "source"),
        ([&CONNECTS[..], &[]], "send", "source", "target"),
        ([&CONNECTS[..], &CONNECTS], "fetch", "target", "source"),
    ] {
        let scene = Scene::new(flags);
        let bytes = scene.make("file", 9_000_001);
        let run = scene.cp(&["--between", "direct"], "/copy").ok();
        assert_content(scene.copied("copy"), &bytes);
        let record = file(&run);
        assert_eq!(
            (&record["way"], &record["direct"]),
            (&"direct".into(), &true.into())
        );
        assert_eq!(record["bytes"], bytes.len());
        assert_ne!(record["digest"], Value::Null);
        // Both logs have the copy, by the same identifier.
        let of = |name: &str, operation: &str| {
            let mut events = scene.audit(name).into_iter();
            let found = events.find(|event| event["operation"] == operation);
            found.unwrap_or_else(|| panic!("{name} has no event {operation}"))
        };
        let delegated = match operation {
            "fetch" => "delegate reading",
            _ => "delegate writing",
        };
        let (order, delegation) = (of(acts, operation), of(issues, delegated));
        assert_eq!(order["event"], "third-party");
        let id = |event: &Value| {
            let to = event["to"].as_str().unwrap().to_owned();
            to.rsplit_once(" for copy ").unwrap().1.to_owned()
        };
        assert_eq!(id(&order), id(&delegation));
        // In a directory it keeps its name, and time and mode are those of the source.
        fs::create_dir(scene.copied("dir")).unwrap();
        scene.cp(&["--between", "direct"], "/dir").ok();
        assert_content(scene.copied("dir/file"), &bytes);
        let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
        let source = PathBuf::from(scene.place.here("source/file"));
        assert_eq!(time(scene.copied("dir/file")), time(source));
        // An existing target is replaced only if that is wanted.
        scene.make("file", 5_000);
        scene
            .cp(&["--between", "direct"], "/copy")
            .fails(6, &["copy"]);
        scene.cp(&["--between", "direct", "-f"], "/copy").ok();
        assert_content(scene.copied("copy"), &content(7, 5_000));
    }
}

#[test]
fn servers_that_may_not_connect_have_it_copied_by_the_client() {
    let elsewhere = ["--connect-to", "127.0.0.9", "--connect-to", "*"];
    for flags in [[&[][..], &[]], [&elsewhere[..], &elsewhere]] {
        let scene = Scene::new(flags);
        let bytes = scene.make("file", 300_000);
        let record = file(&scene.cp(&[], "/copy").ok());
        assert_content(scene.copied("copy"), &bytes);
        assert_eq!(record["way"], "client");
        let why = record["way_reason"].as_str().unwrap();
        assert!(why.contains("connect"), "{why}");
        let run = scene.cp(&["--between", "direct"], "/other");
        run.fails(14, &["--between any"]);
        assert!(!scene.copied("other").exists());
    }
}

#[test]
fn nothing_passes_through_the_client_and_a_limit_is_kept_by_the_servers() {
    let scene = Scene::new([&[], &CONNECTS]);
    let bytes = scene.make("file", 3_000_000);
    let began = std::time::Instant::now();
    scene
        .cp(&["--between", "direct", "--limit-rate", "2M"], "/copy")
        .ok();
    assert_content(scene.copied("copy"), &bytes);
    // A burst at the start is allowed.
    assert!(began.elapsed() > std::time::Duration::from_millis(300));
}

#[test]
fn each_of_the_three_may_die_and_the_same_command_ends_well() {
    for victim in ["source", "target", "client"] {
        let mut scene = Scene::new([&[], &CONNECTS]);
        let bytes = scene.make("file", 24_000_000);
        let mut command = program();
        let places = [scene.source.url("/file"), scene.target.url("/copy")];
        command.args(["cp", "--json", "--retries=0", "--between=direct"]);
        command.args(["--limit-rate", "8M"]).args(&places);
        let mut running = Running::start(&mut command);
        running.wait_for_output("\"channels\":");
        let partial = || {
            let names = fs::read_dir(scene.place.here("target")).unwrap();
            let mut sizes = names.map(|entry| entry.unwrap().metadata().unwrap().len());
            sizes.any(|size| size > 0)
        };
        assert!(xdfs_testkit::wait::until(
            std::time::Duration::from_secs(60),
            partial
        ));
        match victim {
            "client" => running.kill(),
            name => {
                let server = match name {
                    "source" => &mut scene.source,
                    _ => &mut scene.target,
                };
                server.running.kill();
                let address = server.addresses[0].clone();
                let run = running.wait();
                assert_ne!(run.code, Some(0), "{run:?}");
                let flags: &[&str] = if name == "target" { &CONNECTS } else { &[] };
                let again = Scene::serve(&scene.place, name, &address, flags);
                match name {
                    "source" => scene.source = again,
                    _ => scene.target = again,
                }
            }
        }
        // The copy of a client that has died ends with its session, which takes a moment.
        let mut words = vec!["cp", "--json", "--between=direct"];
        words.extend(places.iter().map(String::as_str));
        let run = xdfs(words).ok();
        assert_content(scene.copied("copy"), &bytes);
        let names = fs::read_dir(scene.place.here("target")).unwrap();
        assert_eq!(names.count(), 1, "after {victim}: {run:?}");
    }
}

#[test]
fn a_detached_copy_goes_on_without_its_client() {
    for (flags, at_source) in [([&[][..], &CONNECTS], false), ([&CONNECTS[..], &[]], true)] {
        let scene = Scene::new(flags);
        let bytes = scene.make("file", 6_000_000);
        let run = scene.cp(&["--detach", "--limit-rate", "4M"], "/copy").ok();
        let records = run.json();
        assert_eq!(records.len(), 1, "{run:?}");
        let (id, server) = (&records[0]["id"], &records[0]["server"]);
        assert_eq!(records[0]["type"], "detached");
        let [id, server] = [id, server].map(|text| text.as_str().unwrap().to_owned());
        let other = match at_source {
            true => (scene.source.url(""), scene.target.url("")),
            false => (scene.target.url(""), scene.source.url("")),
        };
        assert_eq!(server, other.0);
        let status = xdfs(["status", "--json", &id, &server]).ok().json();
        assert!(["moving", "done"].contains(&status[0]["state"].as_str().unwrap()));
        xdfs(["status", &id, &other.1]).fails(4, &["no copy"]);
        let ended = xdfs(["wait", "--json", &id, &server]).ok().json();
        assert_eq!(
            (&ended[0]["state"], &ended[0]["bytes"]),
            (&"done".into(), &bytes.len().into())
        );
        assert_content(scene.copied("copy"), &bytes);
    }
}

#[test]
fn a_detached_copy_is_cancelled_and_resumed() {
    let scene = Scene::new([&[], &CONNECTS]);
    let bytes = scene.make("file", 24_000_000);
    let run = scene.cp(&["--detach", "--limit-rate", "4M"], "/copy").ok();
    let id = run.json()[0]["id"].as_str().unwrap().to_owned();
    let server = scene.target.url("");
    let has_begun = || {
        let status = xdfs(["status", "--json", &id, &server]).ok().json();
        status[0]["bytes"].as_u64().unwrap() > 0
    };
    assert!(xdfs_testkit::wait::until(
        std::time::Duration::from_secs(60),
        has_begun
    ));
    xdfs(["cancel", &id, &server]).ok();
    xdfs(["wait", &id, &server]).fails(130, &["cancelled"]);
    assert!(!scene.copied("copy").exists());
    xdfs(["status", "zz", &server]).fails(2, &["32 hexadecimal"]);
    let record = file(&scene.cp(&["--between", "direct"], "/copy").ok());
    assert_content(scene.copied("copy"), &bytes);
    assert!(record["resumed_bytes"].as_u64().unwrap() > 0, "{record}");
    // Nothing else can be left to servers.
    let here = scene.place.make_here("mine", b"x");
    xdfs(["cp", "--detach", &here, &scene.target.url("/mine")]).fails(2, &["--detach"]);
    let alone = Scene::new([&[], &[]]);
    alone.make("file", 10);
    alone.cp(&["--detach"], "/copy").fails(5, &["--connect-to"]);
}

#[test]
fn what_a_capability_does_not_open_is_copied_by_the_client() {
    let scene = Scene::new([&[], &CONNECTS]);
    let bytes = scene.make("real", 300_000);
    std::os::unix::fs::symlink("real", scene.place.here("source/file")).unwrap();
    let record = file(&scene.cp(&[], "/copy").ok());
    assert_content(scene.copied("copy"), &bytes);
    assert_eq!(record["way"], "client");
    // The next one is asked for all the same, with as many channels as are wanted.
    fs::remove_file(scene.place.here("source/file")).unwrap();
    let bytes = scene.make("file", 9_000_000);
    let record = file(&scene.cp(&["-n", "3"], "/other").ok());
    assert_content(scene.copied("other"), &bytes);
    assert_eq!(
        (&record["way"], &record["channels"]),
        (&"direct".into(), &3.into())
    );
    // A fault names the server that has it.
    fs::remove_file(scene.place.here("source/file")).unwrap();
    fs::create_dir(scene.place.here("source/file")).unwrap();
    let at = scene.source.addresses[0].clone();
    scene.cp(&[], "/third").fails(6, &[&at]);
    let at = scene.target.addresses[0].clone();
    scene.make("file2", 10);
    let [from, to] = [scene.source.url("/file2"), scene.target.url("/no/dir")];
    xdfs(["cp", &from, &to]).fails(4, &[&at]);
}

/// The client's machine isn't on the way, so that neither of its sessions can hold the copy back.
#[test]
fn the_limit_of_a_user_counts_at_the_server_that_copies() {
    let mut scene = Scene::new([&[], &CONNECTS]);
    let bytes = scene.make("file", 4_000_000);
    let limit = "[limits]\nbytes_per_second_per_user_max = \"2M\"\n";
    scene.target = Scene::serve_with(&scene.place, "target", "127.0.0.1:0", &CONNECTS, limit);
    let began = std::time::Instant::now();
    scene.cp(&["--between", "direct"], "/copy").ok();
    assert_content(scene.copied("copy"), &bytes);
    // Less than two seconds, for the burst at its start.
    assert!(began.elapsed() > std::time::Duration::from_millis(1500));
}
