//! What groups of servers and several sources gain where the links of servers are the limit: on
//! machines of their own, each behind a link of so many Mbit/s; and what a copy between two servers
//! loses that a third machine has asked for. By hand, with figures:
//!
//! ```sh
//! XDFS_LINK_MBIT=200 XDFS_FILE_MB=512 cargo test -p xdfs-cli --features gsi,service \
//!     --test program -- --ignored --nocapture --test-threads 1 stripes_apart
//! ```

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use xdfs_testkit::machines::Machines;
use xdfs_testkit::wan::{Link, Side};

use crate::far::{network, on};
use crate::support::{Place, Running, Server, assert_content, content, program};

/// Servers in each group.
const MEMBERS: usize = 4;

fn setting(name: &str, default: u32) -> u32 {
    let given = std::env::var(name).ok();
    given.map_or(default, |text| text.parse().expect("a number"))
}

/// Two groups, each over one directory, and a client whose own link has no limit.
struct Scene {
    place: Place,
    machines: Machines,
    servers: Vec<Server>,
    expected: Vec<u8>,
}

const NAMES: [&str; 2 * MEMBERS] = ["a1", "a2", "a3", "a4", "b1", "b2", "b3", "b4"];

impl Scene {
    fn new() -> Option<Self> {
        let mut all: Vec<_> = NAMES.into_iter().zip(1..).collect();
        all.push(("client", 100));
        let machines = Machines::new(&all)?;
        let mbit = setting("XDFS_LINK_MBIT", 200);
        for name in NAMES {
            assert!(machines.limit(name, mbit), "the kernel limits no links");
        }
        let place = Place::new();
        fs::create_dir(place.here("config")).unwrap();
        let expected = content(701, setting("XDFS_FILE_MB", 256) as usize * 1_000_000);
        for side in ["a", "b"] {
            fs::create_dir(place.path().join(side)).unwrap();
        }
        fs::write(place.path().join("a/file"), &expected).unwrap();
        let serve = |name: &str, more: &[&str]| {
            let root = place.path().join(&name[..1]);
            let config = place.here(&format!("{name}.toml"));
            let folder = place.here(&format!("{name}-folder"));
            fs::write(&config, format!("folder = {folder:?}\n")).unwrap();
            let flags = ["--config", &config, "--listen", "0.0.0.0:2799"];
            let flags = [&flags[..], more].concat();
            Server::start_as(&root, &flags, |mut serve| {
                serve.env("XDFS_CONFIG_DIR", place.here("config"));
                machines.on(name, &serve)
            })
        };
        let mut lists = [String::new(), String::new()];
        for (number, name) in NAMES.into_iter().enumerate() {
            let server = serve(name, &[]);
            let line = server.line_with("fingerprint ");
            let mut words = line.split_whitespace();
            let key = words.find(|word| word.starts_with("SHA256:")).unwrap();
            lists[number / MEMBERS] += &format!(
                "[[member]]\naddress = \"10.77.0.{}:2799\"\nkey = \"{key}\"\n",
                number + 1
            );
        }
        let servers = NAMES.into_iter().enumerate().map(|(number, name)| {
            let list = format!("storage = \"shared\"\n{}", lists[number / MEMBERS]);
            let list = place.make_here(&format!("{name}.group"), list.as_bytes());
            serve(name, &["--group", &list])
        });
        let servers = servers.collect();
        Some(Self {
            servers,
            place,
            machines,
            expected,
        })
    }

    fn start(&self, flags: &[&str], from: &str, to: &str) -> Running {
        let mut command = program();
        // The addresses are those of each scene, and the keys aren't.
        command.env("XDFS_CONFIG_DIR", self.place.here("config"));
        command.args(["cp", "--json", "-f"]).args(flags);
        command.args([from, to]).stdin(Stdio::null());
        Running::start(&mut self.machines.on("client", &command))
    }

    /// Copies, and returns the bytes a second of the whole command.
    fn rate(&self, flags: &[&str], from: &str, to: &str, result: &str) -> f64 {
        let result = self.place.path().join(result);
        let _ = fs::remove_file(&result);
        let began = Instant::now();
        self.start(flags, from, to).wait().ok();
        let rate = self.expected.len() as f64 / began.elapsed().as_secs_f64();
        assert_content(&result, &self.expected);
        rate
    }
}

fn gain(what: &str, one: f64, all: f64, least: f64) {
    let times = all / one;
    println!(
        "{what}: one {:.1} MB/s, all {:.1} MB/s: {times:.2} x",
        one / 1e6,
        all / 1e6
    );
    assert!(times >= least, "{what}: {times:.2} x, and {least} is asked");
}

#[test]
#[ignore = "by hand: it needs the machine for itself, and measures"]
fn four_members_move_a_file_almost_four_times_as_fast() {
    let Some(scene) = Scene::new() else {
        return;
    };
    let (a, b) = ("xdfs://10.77.0.1/file", "xdfs://10.77.0.5/file");
    let here = scene.place.here("file");
    let one = scene.rate(&[], a, &here, "here/file");
    let all = scene.rate(&["--stripe"], a, &here, "here/file");
    gain("download", one, all, 3.6);
    let one = scene.rate(&[], &here, b, "b/file");
    let all = scene.rate(&["--stripe"], &here, b, "b/file");
    gain("upload", one, all, 3.6);
    let one = scene.rate(&["--between", "client"], a, b, "b/file");
    let all = scene.rate(&["--stripe", "--between", "client"], a, b, "b/file");
    gain("group to group", one, all, 3.6);
}

#[test]
#[ignore = "by hand: it needs the machine for itself, and measures"]
fn two_sources_send_almost_twice_as_fast_and_one_may_stop() {
    let Some(scene) = Scene::new() else {
        return;
    };
    fs::copy(
        scene.place.path().join("a/file"),
        scene.place.path().join("b/file"),
    )
    .unwrap();
    let (a, b) = ("xdfs://10.77.0.1/file", "xdfs://10.77.0.5/file");
    let here = scene.place.here("file");
    let both = format!("{a},{b}");
    let one = scene.rate(&[], a, &here, "here/file");
    let all = scene.rate(&[], &both, &here, "here/file");
    gain("two sources", one, all, 1.9);
    fs::remove_file(&here).unwrap();
    let mut client = scene.start(&[], &both, &here);
    client.wait_for_bytes(scene.expected.len() as u64 / 3);
    scene.servers[MEMBERS].running.signal("STOP");
    let run = client.wait();
    scene.servers[MEMBERS].running.signal("CONT");
    run.ok();
    assert_content(&here, &scene.expected);
}

/// Files of the tree, and bytes of each.
const FILES: usize = 10_000;
const FILE_BYTES: usize = 4000;

/// The client is on the machine of the source, where its own traffic passes no link.
#[test]
#[ignore = "by hand: it needs the machine for itself, and measures"]
fn a_copy_between_servers_is_as_fast_as_one_from_the_source() {
    let bytes_per_s = u64::from(setting("XDFS_LINK_MBIT", 1000)) * 125_000;
    let delay = Duration::from_millis(setting("XDFS_ROUND_TRIP_MS", 50).into()) / 2;
    let Some(wan) = network(Link::delay(delay).with_bandwidth(bytes_per_s)) else {
        return;
    };
    let place = Place::new();
    let serve = |name: &str, side: &Side, more: &[&str]| {
        let root = place.path().join(name);
        fs::create_dir(&root).unwrap();
        let config = place.here(&format!("{name}.toml"));
        let folder = place.here(&format!("{name}-folder"));
        fs::write(&config, format!("folder = {folder:?}\n")).unwrap();
        let listen = format!("{}:0", side.address());
        let flags = [&["--config", &config, "--listen", &listen], more].concat();
        Server::start_as(&root, &flags, |serve| on(side, &serve))
    };
    let a = serve("a", wan.left(), &[]);
    let b = serve("b", wan.right(), &["--connect-to", "10.0.0.0/8"]);
    let file = content(702, setting("XDFS_FILE_MB", 256) as usize * 1_000_000);
    fs::write(place.path().join("a/file"), &file).unwrap();
    fs::create_dir(place.path().join("a/tree")).unwrap();
    for number in 0..FILES {
        let bytes = content(number as u64, FILE_BYTES);
        fs::write(place.path().join(format!("a/tree/{number}")), bytes).unwrap();
    }
    let rate = |flags: &[&str], from: &str, to: &str, bytes: usize| {
        let mut command = program();
        command.args(["cp", "--json", "-f"]).args(flags);
        command.args([from, to]).stdin(Stdio::null());
        let began = Instant::now();
        Running::start(&mut on(wan.left(), &command)).wait().ok();
        bytes as f64 / began.elapsed().as_secs_f64()
    };
    for (name, flags, bytes, least) in [
        ("file", &[][..], file.len(), 0.97),
        ("tree", &["-r"], FILES * FILE_BYTES, 0.9),
    ] {
        let own = place.path().join("a").join(name);
        let to = |number: usize| b.url(&format!("/{name}{number}"));
        let one = rate(flags, own.to_str().unwrap(), &to(1), bytes);
        let direct = [&["--between", "direct"], flags].concat();
        let all = rate(&direct, &a.url(&format!("/{name}")), &to(2), bytes);
        gain(name, one, all, least);
    }
    assert_content(place.path().join("b/file2"), &file);
    let copied = place.path().join("b/tree2");
    assert_eq!(fs::read_dir(copied).unwrap().count(), FILES);
}
