//! Trees whose connections break, and whose server goes away and comes back, within one command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use xdfs_testkit::proxy::FaultProxy;

use crate::support::{Place, Run, Running, Server, content, program};
use crate::trees::assert_same;

/// What a scene has, and what happens in it.
struct Scene {
    place: Place,
    server: Server,
    proxy: FaultProxy,
    words: Vec<&'static str>,
    up: bool,
}

/// Directories of directories with files of so many bytes, and `large` files of 3 MiB.
fn make_tree(root: &Path, files: u64, bytes: usize, large: u64) {
    for n in 0..files {
        let directory = root.join(format!("{}/{}", n % 4, n % 20));
        if n < 20 {
            fs::create_dir_all(&directory).unwrap();
        }
        fs::write(directory.join(format!("f{n}")), content(n, bytes)).unwrap();
    }
    for n in 0..large {
        fs::write(root.join(format!("large{n}")), content(n, 3 << 20)).unwrap();
    }
}

/// Bytes of all files of a tree.
fn bytes_of(root: &Path) -> u64 {
    let entries = fs::read_dir(root).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => bytes_of(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    sizes.sum()
}

/// Removes the hidden files of interrupted transfers from a tree.
fn remove_leftovers(root: &Path) {
    for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            remove_leftovers(&entry.path());
        } else if name.starts_with('.') && name.contains(".xdfs-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

impl Scene {
    fn new(words: &[&'static str], up: bool) -> Self {
        let place = Place::new();
        let server = Server::start(&place.root());
        let proxy = FaultProxy::new(server.addresses[0].parse().unwrap()).unwrap();
        Self {
            place,
            server,
            proxy,
            words: words.to_vec(),
            up,
        }
    }

    fn source(&self) -> PathBuf {
        match self.up {
            true => self.place.here("tree").into(),
            false => self.place.remote("tree"),
        }
    }

    fn target(&self) -> PathBuf {
        match self.up {
            true => self.place.remote("copy"),
            false => self.place.here("copy").into(),
        }
    }

    fn start(&self, more: &[&str]) -> Running {
        let url = |path: &str| format!("xdfs://{}{path}", self.proxy.addr());
        let (source, target) = match self.up {
            true => (self.place.here("tree"), url("/copy")),
            false => (url("/tree"), self.place.here("copy")),
        };
        let mut command = program();
        command.env("XDFS_STATE_DIR", self.place.path().join("state"));
        command.args(&self.words).args(more).args([source, target]);
        Running::start(command.stdin(Stdio::null()))
    }

    fn restart(&mut self) {
        self.restart_as(|serve| serve);
    }

    fn restart_as(&mut self, change: impl FnOnce(Command) -> Command) {
        self.server.running.kill();
        let flags = ["--listen", "127.0.0.1:0"];
        self.server = Server::start_as(&self.place.root(), &flags, change);
        self.proxy
            .set_target(self.server.addresses[0].parse().unwrap());
    }

    /// Bytes that went through the proxy in the direction of the tree.
    fn moved(&self) -> u64 {
        let (up, down) = self.proxy.forwarded();
        if self.up { up } else { down }
    }

    /// Cuts all connections `breaks` times and restarts the server `restarts` times while the tree
    /// is copied, each after an equal part of it. Returns the run, and the bytes that it took.
    fn run_with_trouble(&mut self, breaks: u64, restarts: u64, more: &[&str]) -> (Run, u64) {
        let total = bytes_of(&self.source());
        let count = breaks + restarts;
        let mut running = self.start(more);
        let deadline = Instant::now() + Duration::from_secs(600);
        for n in 0..count {
            // The last one comes well before the end.
            while self.moved() < total * (n + 1) / (count + 2) {
                assert!(Instant::now() < deadline && !running.has_ended());
                std::thread::sleep(Duration::from_millis(1));
            }
            if (n + 1) * restarts / count > n * restarts / count {
                self.restart();
            } else {
                self.proxy.cut_all();
            }
        }
        (running.wait(), self.moved())
    }

    fn check(&mut self, breaks: u64, restarts: u64, more: &[&str]) -> f64 {
        let total = bytes_of(&self.source());
        let (run, moved) = self.run_with_trouble(breaks, restarts, more);
        let run = run.ok();
        // A server that was killed may leave hidden files.
        remove_leftovers(&self.source());
        remove_leftovers(&self.target());
        assert_same(&self.source(), &self.target());
        assert!(run.stderr.contains("; retry 1 of "), "{}", run.stderr);
        assert!(run.stderr.contains("connection restored"), "{}", run.stderr);
        assert!(!run.stderr.contains("error"), "{}", run.stderr);
        moved as f64 / total as f64
    }
}

const SMALL: (u64, usize, u64) = (1500, 8000, 2);

fn survives(words: &[&'static str], up: bool) {
    let mut scene = Scene::new(words, up);
    let (files, bytes, large) = SMALL;
    make_tree(&scene.source(), files, bytes, large);
    scene.check(6, 2, &["--limit-rate", "6M"]);
}

#[test]
fn copies_go_on_up() {
    survives(&["cp", "-r"], true);
}

#[test]
fn copies_go_on_down() {
    survives(&["cp", "-r"], false);
}

#[test]
fn copies_that_replace_go_on() {
    survives(&["cp", "-a", "--force"], true);
}

#[test]
fn archives_go_on_down() {
    survives(&["cp", "-a"], false);
}

#[test]
fn synchronisations_go_on_up() {
    survives(&["sync", "--delete"], true);
}

#[test]
fn synchronisations_go_on_down() {
    survives(&["sync"], false);
}

#[test]
fn synchronisations_by_digest_go_on() {
    survives(&["sync", "--compare", "digest"], true);
}

/// The figure of the manual: `cargo test --release -p xdfs-cli --test program -- --ignored
/// --nocapture a_hundred_thousand`.
#[test]
#[ignore = "takes minutes: by hand"]
fn a_hundred_thousand_files_survive_twenty_breaks_and_five_restarts() {
    for (words, up, bytes) in [
        (&["cp", "-r"][..], true, 4096),
        (&["cp", "-r"], true, 16_384),
        (&["cp", "-r"], false, 16_384),
        (&["sync"], true, 16_384),
        (&["sync"], false, 16_384),
    ] {
        let mut undisturbed = Scene::new(words, up);
        make_tree(&undisturbed.source(), 100_000, bytes, 0);
        let (run, usual) = undisturbed.run_with_trouble(0, 0, &[]);
        run.ok();
        drop(undisturbed);
        let mut scene = Scene::new(words, up);
        make_tree(&scene.source(), 100_000, bytes, 0);
        let total = bytes_of(&scene.source()) as f64;
        let began = Instant::now();
        let share = scene.check(20, 5, &[]) * total / usual as f64;
        println!(
            "{words:?} {}, files of {bytes} bytes: {:.1} s, {share:.4} of the bytes without breaks",
            if up { "up" } else { "down" },
            began.elapsed().as_secs_f64(),
        );
    }
}

#[test]
fn without_retries_a_break_is_the_end() {
    let mut scene = Scene::new(&["cp", "-r", "--retries", "0"], true);
    make_tree(&scene.source(), 400, 8000, 0);
    let (run, _) = scene.run_with_trouble(1, 0, &["--limit-rate", "2M"]);
    run.fails(3, &["error"]);
}

/// Another server doesn't know the session, but that is not what a user has to hear.
#[test]
fn the_loss_of_a_session_is_named() {
    let mut scene = Scene::new(&["cp", "-r", "--retries", "0"], true);
    make_tree(&scene.source(), 400, 8000, 0);
    let (run, _) = scene.run_with_trouble(0, 1, &["--limit-rate", "2M"]);
    run.fails(
        3,
        &["error: cannot keep the connection to ", ": it was lost ("],
    );
}

#[test]
fn a_server_that_stays_away_is_given_up() {
    let scene = Scene::new(&["cp", "-r", "--retries", "2"], true);
    make_tree(&scene.source(), 400, 8000, 0);
    let mut running = scene.start(&["--limit-rate", "2M"]);
    while scene.moved() < 100_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.proxy.block_new(true);
    scene.proxy.cut_all();
    let run = running
        .wait()
        .fails(3, &["retry 1 of 2 in", "retry 2 of 2 in"]);
    assert!(!run.stderr.contains("retry 3"), "{}", run.stderr);
}

#[test]
#[cfg(unix)]
fn who_waits_for_a_server_can_be_stopped() {
    let scene = Scene::new(&["cp", "-r"], true);
    make_tree(&scene.source(), 400, 8000, 0);
    let mut running = scene.start(&["--limit-rate", "2M"]);
    while scene.moved() < 100_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.proxy.block_new(true);
    scene.proxy.cut_all();
    running.wait_for_message("retry 4 of 30 in");
    running.signal("INT");
    running.wait().fails(130, &["run the same command again"]);
    scene.proxy.block_new(false);
    scene.start(&[]).wait().ok();
    assert_same(&scene.source(), &scene.target());
}

/// The command, on a machine that was booted another time by what it can see.
#[cfg(target_os = "linux")]
fn after_another_boot(id: &Path, command: &Command) -> Command {
    fs::write(id, "01234567-89ab-cdef-0123-456789abcdef\n").unwrap();
    let mut other = Command::new("unshare");
    other.args(["--map-root-user", "--mount", "--", "sh", "-c"]);
    other.arg("mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"");
    other
        .arg(id)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// A machine that crashes loses what nobody made durable: here it has the old version of a file
/// again, of the same size and time. Only that it was booted again tells.
#[test]
#[cfg(target_os = "linux")]
fn what_a_crashed_machine_lost_is_noticed() {
    let mut scene = Scene::new(&["sync", "--compare", "digest"], true);
    let boot = scene.place.path().join("boot");
    let probe = after_another_boot(&boot, &Command::new("true")).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return xdfs_testkit::skip::test("no boot can be pretended here");
    }
    make_tree(&scene.source(), 1000, 8000, 0);
    make_tree(&scene.target(), 1000, 8000, 0);
    for n in 0..1000 {
        let file = format!("{}/{}/f{n}", n % 4, n % 20);
        let (old, new) = (scene.target().join(&file), scene.source().join(&file));
        fs::write(&new, content(n + 5000, 8000)).unwrap();
        let file = fs::File::options().append(true).open(new).unwrap();
        file.set_modified(fs::metadata(old).unwrap().modified().unwrap())
            .unwrap();
    }
    let (first, old) = (scene.target().join("0/0/f0"), content(0, 8000));
    let time = fs::metadata(&first).unwrap().modified().unwrap();
    let mut running = scene.start(&["--limit-rate", "2M"]);
    // Its pack is no longer in flight by then.
    while scene.moved() < 4_000_000 || fs::read(&first).unwrap() == old {
        assert!(!running.has_ended());
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.proxy.block_new(true);
    scene.proxy.cut_all();
    fs::write(&first, &old).unwrap();
    let file = fs::File::options().append(true).open(&first).unwrap();
    file.set_modified(time).unwrap();
    scene.restart_as(|serve| after_another_boot(&boot, &serve));
    scene.proxy.block_new(false);
    let run = running.wait().fails(9, &["restarted before"]);
    assert!(!run.stderr.contains("differs after"), "{}", run.stderr);
    scene.start(&[]).wait().ok();
    assert_same(&scene.source(), &scene.target());
}

/// A machine that crashes loses what nobody made durable: a file that had arrived is taken away
/// while the connection is cut. A synchronisation makes its target durable at the end only.
#[test]
fn what_a_server_lost_is_noticed() {
    let scene = Scene::new(&["sync"], true);
    make_tree(&scene.source(), 1000, 8000, 0);
    let mut running = scene.start(&["--limit-rate", "4M"]);
    let first = loop {
        let arrived = fs::read_dir(scene.target().join("0/0"));
        let mut paths = arrived.into_iter().flatten().map(|e| e.unwrap().path());
        let is_published = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with('f')
        };
        if let Some(path) = paths.find(is_published) {
            break path;
        }
        assert!(!running.has_ended());
        std::thread::sleep(Duration::from_millis(1));
    };
    // Its pack is no longer in flight by then.
    while scene.moved() < 6_000_000 {
        std::thread::sleep(Duration::from_millis(1));
    }
    scene.proxy.block_new(true);
    scene.proxy.cut_all();
    fs::remove_file(&first).unwrap();
    scene.proxy.block_new(false);
    let run = running.wait();
    assert_ne!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("had arrived"), "{}", run.stderr);
    scene.start(&[]).wait().ok();
    assert_same(&scene.source(), &scene.target());
}
