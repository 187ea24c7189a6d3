//! What limited a copy: each cause made real, at either side, and named.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::folding::FoldingDisk;
use xdfs_testkit::proxy::{FaultProxy, Faults, Plan};
use xdfs_testkit::skip;

use crate::support::{Place, Run, Running, Server, content, program, time_shares, xdfs};

/// Attempts to see a cause named; the targets have their number. Where others use the processors,
/// waiting for one of them can truly take most of a copy's time.
pub(crate) const ATTEMPTS: [&str; 4] = ["1", "2", "3", "4"];

#[track_caller]
fn assert_limited_by(cause: &str, copy: impl Fn(&str) -> Run) {
    let mut seen = Vec::new();
    for attempt in ATTEMPTS {
        let shares = time_shares(&copy(attempt).ok().result());
        let is_less = |(by, share): (&String, &f64)| by == cause || *share < shares[cause];
        if shares.iter().all(is_less) {
            return;
        }
        seen.push(shares);
    }
    panic!("not {cause}: {seen:?}");
}

/// Copies a file to `there` and, from what came of that, `back`, each with these flags.
#[track_caller]
fn assert_both_limited_by(cause: &str, flags: &[&str], [source, there, back]: [&str; 3]) {
    let copy = |from: &str, to: &str| {
        let words = [&["cp", "--json"], flags, &[from, to]].concat();
        xdfs(words)
    };
    assert_limited_by(cause, |attempt| copy(source, &format!("{there}{attempt}")));
    let there = format!("{there}{}", ATTEMPTS[0]);
    assert_limited_by(cause, |attempt| copy(&there, &format!("{back}{attempt}")));
}

/// Copies a file there and back, without protection, with these faults of the path.
#[track_caller]
fn assert_path_limited_by(cause: &str, bytes: usize, fault: impl Fn(&mut Faults)) {
    let place = Place::new();
    let flags = ["--listen", "127.0.0.1:0", "--insecure"];
    let server = Server::start_with(&place.root(), &flags);
    let proxy = FaultProxy::new(server.addresses[0].parse().unwrap()).unwrap();
    proxy.set_plan(Plan::up(&fault).and_down(&fault));
    let there = format!("xdfs://{}/file", proxy.addr());
    let (source, back) = (
        place.make_here("file", &content(1, bytes)),
        place.here("back"),
    );
    assert_both_limited_by(cause, &["--insecure"], [&source, &there, &back]);
}

#[test]
fn round_trips_are_named_where_little_is_moved() {
    let far = |faults: &mut Faults| faults.delay = Duration::from_millis(100);
    assert_path_limited_by("round-trips", 1, far);
}

/// Nothing is left to send then, while the sockets still hold all of it.
#[test]
fn the_network_is_named_for_a_file_that_fits_into_sockets() {
    let narrow = |faults: &mut Faults| faults.rate = Some(200_000);
    assert_path_limited_by("network", 200_000, narrow);
}

#[test]
fn the_rate_limit_of_a_user_is_named() {
    let place = Place::new();
    let config = "listen = [\"127.0.0.1:0\"]\n[limits]\nbytes_per_second_per_user_max = \"4M\"\n\
                  [[export]]\nname = \"data\"\npath = \"../root\"\n[[export.grant]]\nuser = \"*\"\n\
                  rights = [\"read\", \"list\", \"create\", \"write\"]\n";
    let config = place.make_here("xdfs.toml", config.as_bytes());
    let server = Server::start_with(&place.root(), &["--config", &config]);
    // 3 s, beside which it counts little that other tests use the processors.
    let source = place.make_here("file", &content(2, 12 << 20));
    let (there, back) = (server.url("/data/file"), place.here("back"));
    assert_both_limited_by("rate-limit", &[], [&source, &there, &back]);
}

#[test]
fn slow_synchronisation_is_named() {
    let place = Place::new();
    let source = place.make_here("file", &content(3, 1 << 20));
    let slow = place.here("slow");
    fs::create_dir(&slow).unwrap();
    let disk = match FoldingDisk::mount_slow(slow.as_ref(), Duration::from_millis(300)) {
        Ok(disk) => disk,
        Err(error) => return skip::test(format_args!("no file system by FUSE: {error}")),
    };
    // At the server, and at the client.
    let server = Server::start(slow.as_ref());
    assert_limited_by("durability", |attempt| {
        xdfs(["cp", "--json", &source, &server.url(&format!("/{attempt}"))])
    });
    drop(server);
    let server = Server::start(&place.path().join("here"));
    let there = server.url("/file");
    assert_limited_by("durability", |attempt| {
        xdfs(["cp", "--json", &there, &format!("{slow}/back{attempt}")])
    });
    drop((server, disk));
}

/// The same command on one processor, which is that of all commands made so.
fn on_one_processor(command: &Command) -> Command {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.unwrap().trim().split([',', '-']).next().unwrap();
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", first]).arg(command.get_program());
    pinned.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    pinned
}

#[test]
fn busy_processors_are_named() {
    let memory = std::path::Path::new("/dev/shm");
    if !memory.is_dir() || Command::new("taskset").arg("--version").output().is_err() {
        return skip::test("there is no taskset, or no memory at /dev/shm");
    }
    // What a disk does is no matter here.
    let folder = tempfile::tempdir_in(memory).unwrap();
    let source = folder.path().join("file");
    fs::write(&source, content(4, 64 << 20)).unwrap();
    let flags = ["--listen", "127.0.0.1:0"];
    let server = Server::start_as(folder.path(), &flags, |serve| on_one_processor(&serve));
    let (source, back) = (source.display().to_string(), folder.path().join("back"));
    let (up, down) = (server.url("/up"), server.url("/file"));
    for ends in [[&source, &up], [&down, &back.display().to_string()]] {
        let mut command = program();
        command.args(["cp", "--json", "--digest", "blake3", ends[0], ends[1]]);
        let mut command = on_one_processor(&command);
        let run = Running::start(command.stdin(Stdio::null())).wait();
        let shares = time_shares(&run.ok().result());
        // Encrypting and hashing is the work of both.
        let busy = shares["sender-cpu"] + shares["receiver-cpu"];
        let others = shares.iter().filter(|(by, _)| !by.ends_with("-cpu"));
        assert!(
            others.map(|(_, share)| *share).all(|share| share < busy),
            "{shares:?}"
        );
    }
}
