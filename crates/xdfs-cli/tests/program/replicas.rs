//! Copies of one file from several servers: real servers, which are stopped, killed, and changed
//! beneath their clients.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use xdfs_testkit::proxy::{FaultProxy, Faults, Plan};
use xdfs_testkit::wait;

use crate::support::{Place, Run, Running, Server, assert_content, content, names, program, xdfs};

const SIZE: usize = 24 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers with directories of their own, and a place for the target.
struct Scene {
    here: Place,
    servers: Vec<(Server, Place)>,
}

impl Scene {
    fn new(count: usize) -> Self {
        Self::limited(&vec![None; count])
    }

    /// Servers with these limits of their rates.
    fn limited(rates: &[Option<&str>]) -> Self {
        let servers = rates.iter().map(|rate| {
            let place = Place::new();
            let config = place.make_here("xdfs.toml", config(*rate).as_bytes());
            let server = Server::start_with(&place.root(), &["--config", &config]);
            (server, place)
        });
        Self {
            servers: servers.collect(),
            here: Place::new(),
        }
    }

    /// The two servers as one source, each behind a path that carries so many bytes a second on a
    /// channel.
    fn behind(&self, rates: [u64; 2]) -> ([FaultProxy; 2], String) {
        let behind = |at: usize| {
            let limit = |faults: &mut Faults| faults.rate = Some(rates[at]);
            let server = &self.servers[at].0;
            let proxy = FaultProxy::new(server.addresses[0].parse().unwrap()).unwrap();
            proxy.set_plan(Plan::up(limit).and_down(limit));
            proxy
        };
        let proxies = [behind(0), behind(1)];
        let url = |proxy: &FaultProxy| format!("xdfs://{}/data/file", proxy.addr());
        let urls = proxies.each_ref().map(url).join(",");
        (proxies, urls)
    }

    /// Starts a server again that was killed.
    fn start_again(&mut self, server: usize) {
        let (before, place) = &mut self.servers[server];
        let (config, address) = (place.here("xdfs.toml"), before.addresses[0].clone());
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, text.replace("127.0.0.1:0", &address)).unwrap();
        *before = Server::start_with(&place.root(), &["--config", &config]);
    }

    fn file(&self, server: usize) -> PathBuf {
        self.servers[server].1.remote("file")
    }

    fn put(&self, server: usize, bytes: &[u8]) {
        std::fs::write(self.file(server), bytes).unwrap();
    }

    fn url(&self, server: usize) -> String {
        self.servers[server].0.url("/data/file")
    }

    /// All servers as one source.
    fn all(&self) -> String {
        let urls: Vec<_> = (0..self.servers.len()).map(|at| self.url(at)).collect();
        urls.join(",")
    }

    fn target(&self) -> String {
        self.here.here("file")
    }

    fn assert_copied(&self, expected: &[u8]) {
        assert_content(self.target(), expected);
        assert_eq!(names(self.here.here("")), ["file"]);
    }
}

/// The settings of a server, with a limit for each user.
fn config(rate: Option<&str>) -> String {
    let limits = rate.map_or_else(String::new, |rate| {
        format!("[limits]\nbytes_per_second_per_user_max = \"{rate}\"\n")
    });
    format!(
        "listen = [\"127.0.0.1:0\"]\n{limits}[[export]]\nname = \"data\"\npath = \"../root\"\n\
         [[export.grant]]\nuser = \"*\"\nrights = [\"read\", \"list\"]\n"
    )
}

/// The sources that a copy reports, in the order of the command.
fn sources(run: &Run) -> Vec<Value> {
    let mut all = run.json();
    all.retain(|record| record["type"] == "source");
    all
}

fn bytes_of(sources: &[Value]) -> Vec<u64> {
    let bytes = sources.iter().map(|source| source["bytes"].as_u64());
    bytes.map(Option::unwrap).collect()
}

/// Starts a copy that can be interrupted.
fn start(args: &[&str]) -> Running {
    Running::start(program().args(["cp", "--json"]).args(args))
}

#[test]
fn two_servers_send_parts_of_one_file() {
    let scene = Scene::new(2);
    let expected = content(401, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let run = xdfs(["cp", "--json", &scene.all(), &scene.target()]).ok();
    scene.assert_copied(&expected);
    let sources = sources(&run);
    let bytes = bytes_of(&sources);
    assert_eq!(bytes.iter().sum::<u64>(), SIZE as u64, "{}", run.text());
    assert!(bytes.iter().all(|bytes| *bytes > 0), "{}", run.text());
    assert_eq!(sources[0]["source"], scene.url(0));
    assert!(sources.iter().all(|source| source["dropped"].is_null()));
    assert_eq!(run.result()["bytes"], SIZE);
    // Again, there is nothing to do.
    let run = xdfs(["cp", "--json", &scene.all(), &scene.target()]).ok();
    assert!(run.text().contains("\"skipped\":true"), "{}", run.text());
}

#[test]
fn files_of_any_length_arrive_whole() {
    let scene = Scene::new(2);
    for length in [0, 1, 512 << 10, (1 << 20) + 1, (5 << 20) - 1] {
        let expected = content(402, length);
        scene.put(0, &expected);
        scene.put(1, &expected);
        xdfs(["cp", "-fI", &scene.all(), &scene.target()]).ok();
        scene.assert_copied(&expected);
    }
}

#[test]
fn the_faster_server_sends_more() {
    let scene = Scene::new(2);
    let expected = content(403, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let (_proxies, urls) = scene.behind([2_000_000, 8_000_000]);
    let run = xdfs(["cp", "--json", "-n", "1", &urls, &scene.target()]).ok();
    scene.assert_copied(&expected);
    let bytes = bytes_of(&sources(&run));
    assert!(bytes[0] > 0 && bytes[1] > 2 * bytes[0], "{bytes:?}");
}

#[test]
fn a_server_that_is_killed_is_named_and_the_copy_ends() {
    let mut scene = Scene::limited(&[Some("8M"), Some("8M")]);
    let expected = content(404, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let mut client = start(&[&scene.all(), &scene.target()]);
    client.wait_for_bytes(4 << 20);
    scene.servers[0].0.running.kill();
    let run = client.wait().ok();
    scene.assert_copied(&expected);
    let named = format!("{} is not used any more", scene.url(0));
    assert!(run.stderr.contains(&named), "{}", run.stderr);
    let sources = sources(&run);
    assert!(!sources[0]["dropped"].is_null() && sources[1]["dropped"].is_null());
    assert_eq!(run.result()["retransmitted_bytes"], 0);
}

#[test]
fn a_server_that_is_stopped_is_named_and_the_copy_ends() {
    let scene = Scene::new(2);
    let expected = content(405, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    // So slow that the rest takes more than twice as long as a source may be silent.
    let (proxies, urls) = scene.behind([700_000, 1_400_000]);
    let mut client = start(&["-n", "1", &urls, &scene.target()]);
    // On a busy machine a source may join long after the other one.
    assert!(wait::until(PATIENCE, || proxies[1].forwarded().1 > 2 << 20));
    scene.servers[1].0.running.signal("STOP");
    let run = client.wait();
    scene.servers[1].0.running.signal("CONT");
    let run = run.ok();
    scene.assert_copied(&expected);
    let named = format!(
        "xdfs://{}/data/file is not used any more",
        proxies[1].addr()
    );
    assert!(run.stderr.contains(&named), "{}", run.stderr);
    assert!(
        run.stderr.contains("nothing came from it"),
        "{}",
        run.stderr
    );
    assert_eq!(sources(&run)[1]["dropped"]["code"], "deadline-exceeded");
}

#[test]
fn a_copy_without_servers_waits_for_one_to_come_back() {
    let mut scene = Scene::limited(&[Some("8M"), Some("8M")]);
    let expected = content(406, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let mut client = start(&[&scene.all(), &scene.target()]);
    client.wait_for_bytes(4 << 20);
    scene.servers[0].0.running.kill();
    scene.servers[1].0.running.kill();
    client.wait_for_message("retry 1 of");
    scene.start_again(1);
    let run = client.wait().ok();
    scene.assert_copied(&expected);
    assert!(run.result()["resumed_bytes"].as_u64().is_some());
}

#[test]
fn a_killed_client_goes_on_with_other_servers() {
    let scene = Scene::limited(&[Some("6M"), Some("6M"), None]);
    let expected = content(407, SIZE);
    (0..3).for_each(|server| scene.put(server, &expected));
    let two = format!("{},{}", scene.url(0), scene.url(1));
    let mut client = start(&[&two, &scene.target()]);
    client.wait_for_bytes(12 << 20);
    client.kill();
    assert!(!Path::new(&scene.target()).exists());
    let others = format!("{},{}", scene.url(2), scene.url(1));
    let run = xdfs(["cp", "--json", &others, &scene.target()]).ok();
    scene.assert_copied(&expected);
    let resumed = run.result()["resumed_bytes"].as_u64().unwrap();
    assert!(resumed > 0, "{}", run.text());
    let bytes = bytes_of(&sources(&run)).iter().sum::<u64>();
    // Ranges that are partly there are sent as a whole.
    let most = SIZE as u64 - resumed + (8 << 20);
    assert!(bytes <= most, "{bytes} bytes came, {resumed} were there");
}

/// An earlier attempt has left a part of another version, with the same length.
#[test]
fn what_was_left_of_another_version_is_not_used() {
    let scene = Scene::limited(&[Some("6M"), Some("6M")]);
    let before = content(408, SIZE);
    scene.put(0, &before);
    scene.put(1, &before);
    let mut client = start(&[&scene.all(), &scene.target()]);
    client.wait_for_bytes(12 << 20);
    client.kill();
    let mut expected = before;
    expected[100] ^= 1;
    scene.put(0, &expected);
    scene.put(1, &expected);
    let run = xdfs(["cp", "--json", &scene.all(), &scene.target()]).ok();
    scene.assert_copied(&expected);
    assert!(
        run.stderr.contains("differs from the sources"),
        "{}",
        run.stderr
    );
}

/// The first is believed, unless there are more of the others.
#[test]
fn a_server_with_other_content_is_named() {
    for (count, liar) in [(2, 1), (3, 0), (3, 2)] {
        let scene = Scene::new(count);
        let expected = content(409, SIZE);
        (0..count).for_each(|server| scene.put(server, &expected));
        let mut other = expected.clone();
        other[SIZE - 7] ^= 1;
        scene.put(liar, &other);
        let run = xdfs(["cp", "--json", &scene.all(), &scene.target()]).ok();
        scene.assert_copied(&expected);
        let named = format!("{} is not used any more", scene.url(liar));
        assert!(run.stderr.contains(&named), "{}", run.stderr);
        let begins = SIZE - (512 << 10);
        let from = format!("from byte {begins} on");
        assert!(run.stderr.contains(&from), "{}", run.stderr);
        let sources = sources(&run);
        assert_eq!(sources[liar]["dropped"]["code"], "integrity-mismatch");
        let dropped = sources.iter().filter(|source| !source["dropped"].is_null());
        assert_eq!(dropped.count(), 1, "{}", run.text());
    }
}

#[test]
fn a_server_with_another_length_or_without_the_file_is_named() {
    let scene = Scene::new(4);
    let expected = content(410, SIZE);
    scene.put(0, &expected[1..]);
    scene.put(2, &expected);
    scene.put(3, &expected);
    let run = xdfs(["cp", "--json", &scene.all(), &scene.target()]).ok();
    scene.assert_copied(&expected);
    for (server, reason) in [(0, "the file has 25165824"), (1, "no such file")] {
        let named = format!("{} is not used any more", scene.url(server));
        let line = run.stderr.lines().find(|line| line.contains(&named));
        let line = line.unwrap_or_else(|| panic!("{}", run.stderr));
        assert!(line.to_lowercase().contains(reason), "{line}");
    }
}

#[test]
fn without_any_server_that_has_it_the_copy_fails() {
    let scene = Scene::new(2);
    let run = xdfs([
        "cp",
        "--json",
        "--retries",
        "0",
        &scene.all(),
        &scene.target(),
    ]);
    run.fails(4, &["none of its 2 sources can be used"]);
    assert!(names(scene.here.here("")).is_empty());
}

/// A server whose file is changed beneath the copy, with its length and time kept.
#[test]
fn a_file_that_is_changed_meanwhile_leaves_no_trace() {
    let scene = Scene::limited(&[Some("4M"), Some("4M")]);
    let expected = content(411, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let mut client = start(&[&scene.all(), &scene.target()]);
    client.wait_for_bytes(4 << 20);
    let file = std::fs::File::options()
        .write(true)
        .open(scene.file(1))
        .unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; SIZE], 0).unwrap();
    file.set_modified(time).unwrap();
    let run = client.wait().ok();
    scene.assert_copied(&expected);
    let named = format!("{} is not used any more", scene.url(1));
    assert!(run.stderr.contains(&named), "{}", run.stderr);
}

#[test]
fn what_makes_no_sense_with_several_sources_is_refused() {
    let scene = Scene::new(2);
    let (all, target) = (scene.all(), scene.target());
    for flag in ["-r", "-a", "--remove-source", "--detach"] {
        xdfs(["cp", flag, &all, &target]).fails(2, &["several sources of one file"]);
    }
    let directory = format!("{},{}", scene.url(0), scene.servers[1].0.url("/data/"));
    xdfs(["cp", &directory, &target]).fails(2, &["does not name a file"]);
    let list = scene
        .here
        .make_here("list", format!("{all} {target}\n").as_bytes());
    xdfs(["cp", "--from-file", &list]).fails(2, &["on a line of a list"]);
}

/// To a server, and into a pipe.
#[test]
fn other_targets_than_files() {
    let scene = Scene::new(2);
    let expected = content(412, 3 << 20);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let run = xdfs(["cp", "-q", &scene.all(), "-"]).ok();
    assert!(run.stdout == expected);
    let place = Place::new();
    let target = Server::start(&place.root());
    xdfs(["cp", &scene.all(), &target.url("/")]).ok();
    assert_content(place.remote("file"), &expected);
    let run = xdfs([
        "cp",
        "--offset",
        "700000",
        "--length",
        "1m",
        &scene.all(),
        &scene.target(),
    ]);
    run.ok();
    scene.assert_copied(&expected[700_000..][..1 << 20]);
}

/// A Metalink of these URLs.
fn metalink(name: &str, digest: &str, urls: &[String]) -> String {
    let urls = urls.iter().map(|url| format!("<url>{url}</url>"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"{name}\">\n\
         <hash type=\"sha-256\">{digest}</hash>{}</file></metalink>\n",
        urls.collect::<String>()
    )
}

/// The digest of a file, by the program itself.
fn sha256(scene: &Scene, server: usize) -> String {
    let file = scene.file(server);
    let sum = xdfs(["sum", "--digest", "sha256", file.to_str().unwrap()]).ok();
    sum.text().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn lists_of_mirrors_name_the_sources() {
    let scene = Scene::new(2);
    let expected = content(413, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    let digest = sha256(&scene, 0);
    let urls = [scene.url(0), "http://127.0.0.1:1/file".into(), scene.url(1)];
    let text = format!(
        "# two of three\nsha256 {digest}\nsize {SIZE}\n{}\n",
        urls.join("\n")
    );
    for (name, list) in [
        ("list", text),
        ("list.meta4", metalink("file", &digest, &urls)),
    ] {
        let place = Place::new();
        let path = place.make_here(name, list.as_bytes());
        let directory = scene.here.here("");
        let run = xdfs(["cp", "--json", "-fI", "--mirrors", &path, &directory]).ok();
        scene.assert_copied(&expected);
        assert!(
            run.stderr.contains("1 of 3 URLs are left out"),
            "{}",
            run.stderr
        );
        assert_eq!(bytes_of(&sources(&run)).len(), 2, "{}", run.text());
    }
}

/// The digest decides against the two that agree, and nothing is published if none has it.
#[test]
fn the_digest_of_a_list_decides() {
    let scene = Scene::new(3);
    let (expected, other) = (content(414, SIZE), content(415, SIZE));
    scene.put(0, &other);
    scene.put(1, &other);
    scene.put(2, &expected);
    let urls: Vec<_> = (0..3).map(|server| scene.url(server)).collect();
    let place = Place::new();
    let list = metalink("file", &sha256(&scene, 2), &urls);
    let list = place.make_here("list.meta4", list.as_bytes());
    let run = xdfs(["cp", "--json", "--mirrors", &list, &scene.target()]).ok();
    scene.assert_copied(&expected);
    let sources = sources(&run);
    assert_eq!(sources[0]["dropped"]["code"], "integrity-mismatch");
    assert_eq!(sources[1]["dropped"]["code"], "integrity-mismatch");
    std::fs::remove_file(scene.target()).unwrap();
    let list = metalink("file", &"0".repeat(64), &urls[..2]);
    let list = place.make_here("list.meta4", list.as_bytes());
    let run = xdfs(["cp", "--mirrors", &list, &scene.target()]);
    assert_ne!(run.code, Some(0));
    assert!(run.stderr.contains("known beforehand"), "{}", run.stderr);
    assert!(names(scene.here.here("")).is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_thousand_mirrors_of_which_two_answer() {
    let scene = Scene::new(2);
    let expected = content(416, SIZE);
    scene.put(0, &expected);
    scene.put(1, &expected);
    // The others refuse at once: nothing listens on these ports of an address of this machine.
    let mut urls: Vec<_> = (0..1000)
        .map(|number| format!("xdfs://127.1.{}.{}:1/file", number / 250, number % 250 + 1))
        .collect();
    urls.insert(400, scene.url(0));
    urls.insert(800, scene.url(1));
    let list = Place::new();
    let list_path = list.make_here("list", urls.join("\n").as_bytes());
    let run = xdfs(["cp", "--json", "--mirrors", &list_path, &scene.target()]).ok();
    scene.assert_copied(&expected);
    let dropped = run.stderr.matches("is not used any more").count();
    assert!(dropped >= 400, "{dropped}");
}

#[test]
fn lists_with_mistakes_are_refused_before_a_server_is_asked() {
    let place = Place::new();
    let target = place.here("target");
    let list = place.here("list");
    let doctype = "<!DOCTYPE m [<!ENTITY a \"b\">]><metalink>&a;</metalink>";
    let url = ["xdfs://127.0.0.1:1/f".to_owned()];
    let digest = "0".repeat(64);
    for (text, words) in [
        // It names itself.
        (list.clone(), "neither a URL"),
        (format!("file://{list}"), "none of its 1 URLs"),
        ("https://h/f".into(), "none of its 1 URLs"),
        (metalink("../f", &digest, &url), "is not the name of a file"),
        (
            metalink("/etc/f", &digest, &url),
            "is not the name of a file",
        ),
        (doctype.into(), "document type"),
        ("<metalink".into(), "cannot read the list of mirrors"),
        ("xdfs://127.0.0.1:1/d/".into(), "does not name a file"),
    ] {
        std::fs::write(&list, &text).unwrap();
        let run = xdfs(["cp", "--mirrors", &list, &target]);
        assert_ne!(run.code, Some(0), "{text}");
        assert!(run.stderr.contains(words), "{text}: {}", run.stderr);
    }
    assert_eq!(names(place.here("")), ["list"]);
    let missing = place.here("none");
    xdfs(["cp", "--mirrors", &missing, &target]).fails(4, &["no such file"]);
}

/// A list isn't trusted, so its servers get no secrets.
#[test]
fn secrets_are_not_for_lists_of_mirrors() {
    let place = Place::new();
    let list = place.make_here("list", b"xdfs://127.0.0.1:1/f\n");
    let secret = place.make_here("secret", b"secret\n");
    let target = place.here("target");
    for flag in ["--password-file", "--token-file", "--ticket-file"] {
        let run = xdfs(["cp", flag, &secret, "--mirrors", &list, &target]);
        run.fails(2, &[flag, "any server that a list names"]);
    }
}

/// The second server comes after the first one was killed, and has another file.
#[test]
fn the_files_of_two_servers_are_never_mixed() {
    let mut scene = Scene::limited(&[Some("6M"), None]);
    let (before, expected) = (content(417, SIZE), content(418, SIZE));
    scene.put(0, &before);
    scene.put(1, &expected);
    scene.servers[1].0.running.signal("STOP");
    let mut client = start(&[&scene.all(), &scene.target()]);
    client.wait_for_bytes(4 << 20);
    scene.servers[0].0.running.kill();
    scene.servers[1].0.running.signal("CONT");
    let run = client.wait().ok();
    scene.assert_copied(&expected);
    let gone = "its beginning was compared are gone";
    assert!(run.stderr.contains(gone), "{}", run.stderr);
}
