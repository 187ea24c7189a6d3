//! Long paths with trouble, over an emulated network: they change while a file is moved, or one end
//! allows less than the other asks for. Judged by counts, never by times.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use xdfs_testkit::wan::{Link, Wan};

use crate::far::{network, run, serve, serve_as, start_as};
use crate::support::{Place, Run, Running, Server, assert_content, content};

const MIB: u64 = 1 << 20;

/// A long path: a round trip of 40 ms.
fn good() -> Link {
    Link::delay(Duration::from_millis(20)).with_bandwidth(8_000_000)
}

/// The JSON objects of one kind.
fn objects(run: &Run, kind: &str) -> Vec<Value> {
    let all = run.json().into_iter();
    all.filter(|object| object["type"] == kind).collect()
}

/// The numbers of channels that were decided for one reason.
fn channels(run: &Run, reason: &str) -> Vec<u64> {
    let decisions = objects(run, "path").into_iter();
    let chosen = decisions.filter(|decision| decision["reason"] == reason);
    chosen.filter_map(|d| d["channels"].as_u64()).collect()
}

/// A copy of one file, either way.
struct Copy {
    place: Place,
    server: Server,
    source: Vec<u8>,
    up: bool,
}

impl Copy {
    fn new(wan: &Wan, bytes: u64, up: bool) -> Self {
        let place = Place::new();
        let log = place.here("server.log");
        let flags = ["--log", "debug", "--log-file", &log];
        let server = serve(wan, &place.root(), &flags);
        let source = content(bytes, usize::try_from(bytes).unwrap());
        match up {
            true => fs::write(place.here("big"), &source).unwrap(),
            false => fs::write(place.remote("big"), &source).unwrap(),
        }
        Self {
            place,
            server,
            source,
            up,
        }
    }

    fn start(&self, wan: &Wan) -> Running {
        let (here, there) = (self.place.here("big"), self.server.url("/big"));
        let ends = match self.up {
            true => [&here, &there],
            false => [&there, &here],
        };
        let words = ["cp", "-vv", "--json", "--insecure", ends[0], ends[1]];
        start_as(wan, &words, |command| command)
    }

    /// It came to its end in one session, and little was sent again. Returns the result.
    #[track_caller]
    fn ended_in_one_session(&self, run: &Run) -> Value {
        let target = match self.up {
            true => self.place.remote("big"),
            false => self.place.here("big").into(),
        };
        assert_content(target, &self.source);
        let log = fs::read_to_string(self.place.here("server.log")).unwrap();
        assert_eq!(log.matches("a session begins").count(), 1, "{log}");
        // What was in flight on channels that TCP didn't bring back within the stall deadline.
        let result = run.result();
        let again = result["retransmitted_bytes"].as_u64().unwrap();
        let most = self.source.len() as u64 / 4;
        assert!(again <= most, "{again} bytes again\n{}", run.stderr);
        result
    }
}

/// A tenth of the rate, ten times the delay, and losses, one after the other, and back.
fn survive_changes(up: bool) {
    let Some(wan) = network(good()) else { return };
    let copy = Copy::new(&wan, 48 * MIB, up);
    let mut running = copy.start(&wan);
    // The path is full, and the search begins anew when the rate falls.
    running.wait_for_messages("the rate of a number of channels is measured", 1);
    wan.set(good().with_bandwidth(800_000));
    running.wait_for_messages("reason=trial", 1);
    wan.set(Link::delay(Duration::from_millis(200)).with_bandwidth(8_000_000));
    running.wait_for_bytes(20 * MIB);
    wan.set(good().with_loss(0.05));
    running.wait_for_bytes(24 * MIB);
    wan.set(good());
    let run = running.wait().ok();
    let result = copy.ended_in_one_session(&run);
    assert!(result["channels"].as_u64() <= Some(64), "{result}");
    let changes = channels(&run, "trial").len() + channels(&run, "no-gain").len();
    assert!((1..=16).contains(&changes), "{}", run.stderr);
}

#[test]
fn an_upload_goes_on_over_a_path_that_gets_worse_and_better() {
    survive_changes(true);
}

#[test]
fn a_download_goes_on_over_a_path_that_gets_worse_and_better() {
    survive_changes(false);
}

/// Less than the silence after which a peer counts as gone, 60 s.
#[test]
fn five_seconds_without_any_packet_cost_no_session() {
    let Some(wan) = network(good()) else { return };
    // Seven channels have three quarters of a MiB each in flight, in the socket and the block that
    // they are at. A channel whose retransmission comes later than the stall deadline, as on a busy
    // machine, costs its part twice: idle channels send it again, and so does its successor.
    let copy = Copy::new(&wan, 48 * MIB, true);
    let mut running = copy.start(&wan);
    running.wait_for_bytes(8 * MIB);
    wan.set(good().with_loss(1.0));
    // That is how long the fault lasts.
    std::thread::sleep(Duration::from_secs(5));
    wan.set(good());
    let run = running.wait().ok();
    copy.ended_in_one_session(&run);
    // A path that is silent is no reason for more channels.
    let most = channels(&run, "trial").into_iter().max();
    assert!(most <= Some(32), "{}", run.stderr);
}

/// Lets nobody but root use other congestion controls than these, until it is dropped. The setting
/// is that of the whole system; programs of root don't notice it.
struct Allowed(String);

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

impl Allowed {
    fn only(names: &str) -> std::io::Result<Self> {
        let before = fs::read_to_string(ALLOWED)?;
        fs::write(ALLOWED, names)?;
        Ok(Self(before))
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        fs::write(ALLOWED, &self.0).unwrap();
    }
}

/// The same command by a root that may not change the network.
fn without_network_rights(command: &Command) -> Command {
    let mut without = Command::new("setpriv");
    without.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    crate::unheard::beneath(without, command)
}

const REFUSED: &str = "the system refuses bbr";

#[test]
fn bbr_may_be_refused_at_one_end_only() {
    let Some(wan) = network(good()) else { return };
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    if !known.is_ok_and(|known| known.split_whitespace().any(|name| name == "bbr")) {
        return xdfs_testkit::skip::test("the system has no bbr");
    }
    let can_drop = Command::new("setpriv").arg("--version").output();
    if !can_drop.is_ok_and(|output| output.status.success()) {
        return xdfs_testkit::skip::test("there is no setpriv");
    }
    let allowed = match Allowed::only("reno cubic") {
        Ok(allowed) => allowed,
        Err(error) => return xdfs_testkit::skip::test(format_args!("{ALLOWED}: {error}")),
    };
    for side in [wan.left(), wan.right()] {
        let own = side.set_option("net.ipv4.tcp_congestion_control", "reno");
        own.unwrap();
    }
    for server_is_refused in [true, false] {
        let place = Place::new();
        let log = place.here("server.log");
        let flags = ["--insecure", "--log", "debug", "--log-file", &log];
        let server = serve_as(
            &wan,
            &place.root(),
            &flags,
            |serve| match server_is_refused {
                true => without_network_rights(&serve),
                false => serve,
            },
        );
        let source = content(7, 18 << 20);
        let (local, back) = (place.make_here("big", &source), place.here("back"));
        for ends in [[&local, &server.url("/big")], [&server.url("/big"), &back]] {
            let words = ["cp", "-vv", "--json", "--insecure", ends[0], ends[1]];
            let mut running = start_as(&wan, &words, |command| match server_is_refused {
                true => command,
                false => without_network_rights(&command),
            });
            let run = running.wait().ok();
            let told = run.stderr.matches(REFUSED).count();
            assert_eq!(told, usize::from(!server_is_refused), "{}", run.stderr);
            let decisions = objects(&run, "path").into_iter();
            let refused: Vec<Value> = decisions.filter(|d| !d["refused"].is_null()).collect();
            assert_eq!(refused.len(), told, "{refused:?}");
        }
        assert_content(place.remote("big"), &source);
        assert_content(&back, &source);
        drop(server);
        // Once in each session.
        let log = fs::read_to_string(&log).unwrap();
        let told = log.matches(REFUSED).count();
        assert_eq!(told, 2 * usize::from(server_is_refused), "{log}");
    }
    drop(allowed);
}

#[test]
fn a_server_that_allows_fewer_channels_is_not_asked_again_and_again() {
    let Some(wan) = network(good()) else { return };
    let place = Place::new();
    let (log, settings) = (
        place.here("server.log"),
        "[limits]\nchannels_per_user_max = 3\n",
    );
    let config = place.make_here(
        "xdfs.toml",
        format!("owner = \"alice\"\n{settings}").as_bytes(),
    );
    let flags = ["--config", &config, "--log", "debug", "--log-file", &log];
    let server = serve_as(&wan, &place.root(), &flags, |serve| serve);
    let source = content(8, 48 << 20);
    let local = place.make_here("big", &source);
    let run = run(&wan, &["cp", "-vv", "--json", &local, &server.url("/big")]).ok();
    assert_content(place.remote("big"), &source);
    assert_eq!(run.result()["channels"], 3);
    // It wanted 8 channels.
    assert_eq!(channels(&run, "workload"), [8]);
    assert_eq!(channels(&run, "refused"), [3], "{}", run.stderr);
    assert_eq!(channels(&run, "trial"), [0; 0], "{}", run.stderr);
    let log = fs::read_to_string(&log).unwrap();
    let refusals = log.matches("a channel is refused").count();
    assert!((1..=5).contains(&refusals), "{log}");
}

/// The peer takes long to answer the first time, while the system measures the path.
#[test]
fn a_server_that_answers_late_makes_no_long_path() {
    let Some(wan) = network(Link::delay(Duration::from_micros(200))) else {
        return;
    };
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    let source = content(9, 40 << 20);
    let local = place.make_here("big", &source);
    server.running.signal("STOP");
    let words = [
        "cp",
        "-vv",
        "--json",
        "--insecure",
        &local,
        &server.url("/big"),
    ];
    let mut running = start_as(&wan, &words, |command| command);
    running.wait_for_message("the network path is measured");
    std::thread::sleep(Duration::from_secs(1));
    server.running.signal("CONT");
    let run = running.wait().ok();
    assert_content(place.remote("big"), &source);
    let decisions = objects(&run, "path");
    let classes: Vec<&Value> = decisions
        .iter()
        .filter(|d| d["decision"] == "class")
        .collect();
    // The second without an answer is no part of it.
    let round_trip = classes[0]["round_trip_seconds"].as_f64().unwrap();
    assert!(round_trip < 0.5, "{decisions:?}");
    // On a busy machine the emulated path is really longer.
    if classes.iter().all(|d| d["class"] == "short") {
        assert!(!run.stderr.contains("a channel suits"), "{}", run.stderr);
        assert_eq!(channels(&run, "workload")[0], 4, "{decisions:?}");
    }
}

/// Each channel moves 4 KiB in a round trip at most, whatever the path would take.
#[test]
fn a_receiver_with_tiny_windows_bounds_the_search() {
    let Some(wan) = network(good()) else { return };
    let memory = wan
        .right()
        .set_option("net.ipv4.tcp_rmem", "4096 8192 8192");
    memory.unwrap();
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    let source = content(10, 24 << 20);
    let local = place.make_here("big", &source);
    let words = ["cp", "-vv", "--json", "--insecure", &local];
    let run = run(&wan, &[&words[..], &[&server.url("/big")]].concat()).ok();
    assert_content(place.remote("big"), &source);
    let result = run.result();
    assert!(result["channels"].as_u64() <= Some(64), "{result}");
    // No channel was replaced; a few blocks went again at the end, as idle channels do it.
    let again = result["retransmitted_bytes"].as_u64();
    assert!(again <= Some(source.len() as u64 / 2), "{result}");
    // From 8 to 64 are three trials, and hardly anything is left then.
    let (trials, back) = (channels(&run, "trial"), channels(&run, "no-gain"));
    assert!(trials.len() <= 4 && back.len() <= 1, "{}", run.stderr);
}

/// A session keeps 32 MiB to send at most, however much its client has asked for.
#[test]
fn the_memory_of_a_server_is_bounded_by_its_sessions() {
    const SESSIONS: u64 = 6;
    let Some(wan) = network(good()) else { return };
    let place = Place::new();
    let server = serve(&wan, &place.root(), &[]);
    fs::write(place.remote("big"), content(11, 96 << 20)).unwrap();
    let mut clients: Vec<Running> = (0..SESSIONS)
        .map(|n| {
            let target = place.here(&n.to_string());
            let words = ["cp", "--json", "--insecure", &server.url("/big"), &target];
            start_as(&wan, &words, |command| command)
        })
        .collect();
    for client in &mut clients {
        client.wait_for_bytes(2 * MIB);
    }
    let peak = server.running.peak_memory();
    assert!(peak <= SESSIONS * 32 * MIB + 32 * MIB, "{} MiB", peak / MIB);
    // The next one is served all the same.
    drop(clients);
    fs::write(place.remote("small"), content(12, 1000)).unwrap();
    let target = place.here("small");
    run(&wan, &["cp", "--insecure", &server.url("/small"), &target]).ok();
    assert_content(&target, &content(12, 1000));
}
