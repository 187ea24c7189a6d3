//! Trees that are broken off, by whatever and on whichever side, and the same command again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use xdfs_testkit::tree::Random;

use crate::support::{Place, Running, Server, content, program, xdfs};
use crate::trees::assert_same;

/// Longest time for one round.
const PATIENCE: Duration = Duration::from_secs(60);
const FILES: u64 = 600;

/// Directories of directories with files, some of them large.
fn make_tree(root: &Path) {
    for n in 0..FILES {
        let directory = root.join(format!("{}/{}", n % 4, n % 20));
        fs::create_dir_all(&directory).unwrap();
        let size = if n % 150 == 0 { 3 << 20 } else { 12_000 };
        fs::write(directory.join(format!("f{n}")), content(n, size)).unwrap();
    }
}

/// The direction of a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
    /// From another server.
    Between,
}

const WAYS: [Way; 3] = [Way::Up, Way::Down, Way::Between];

struct Scene {
    place: Place,
    server: Server,
    /// The server of the source, if there are two.
    origin: Option<Server>,
    command: &'static str,
    way: Way,
    stack: &'static str,
}

impl Scene {
    fn new(command: &'static str, way: Way) -> Self {
        Self::over("tcp", command, way)
    }

    fn over(stack: &'static str, command: &'static str, way: Way) -> Self {
        let place = Place::new();
        let server = match stack {
            "tcp" => Server::start(&place.root()),
            _ => Server::start_with(
                &place.root(),
                &["--listen", &format!("{stack}://127.0.0.1:0")],
            ),
        };
        let origin = (way == Way::Between).then(|| Server::start(Path::new(&place.here(""))));
        let scene = Self {
            place,
            server,
            origin,
            command,
            way,
            stack,
        };
        make_tree(&scene.source());
        scene
    }

    fn source(&self) -> PathBuf {
        match self.way {
            Way::Up | Way::Between => self.place.here("tree").into(),
            Way::Down => self.place.remote("tree"),
        }
    }

    fn target(&self) -> PathBuf {
        match self.way {
            Way::Up | Way::Between => self.place.remote("copy"),
            Way::Down => self.place.here("copy").into(),
        }
    }

    /// The folder of the journals.
    fn state(&self) -> PathBuf {
        self.place.path().join("state")
    }

    /// Journals of runs that left something to do.
    fn journals(&self) -> usize {
        let entries = fs::read_dir(self.state().join("trees"));
        let paths = entries.into_iter().flatten().map(|e| e.unwrap().path());
        let left = paths.filter(|path| path.extension().is_some_and(|end| end != "ended"));
        left.count()
    }

    /// The command, which is the same each time but for the bound on the rate.
    fn start(&self, rate: Option<&str>) -> Running {
        let address = &self.server.addresses[0];
        let (_, host) = address.rsplit_once("://").unwrap_or(("", address));
        let url = |path: &str| format!("xdfs://{host}{path}");
        let (source, target) = match (self.way, &self.origin) {
            (_, Some(origin)) => (origin.url("/tree"), url("/copy")),
            (Way::Down, _) => (url("/tree"), self.place.here("copy")),
            _ => (self.place.here("tree"), url("/copy")),
        };
        let mut command = program();
        command.env("XDFS_STATE_DIR", self.state());
        command.args([self.command, "--json", "--retries", "0"]);
        command.args(["--stack", self.stack]);
        if self.command == "cp" {
            command.arg("-r");
        }
        if let Some(rate) = rate {
            command.args(["--limit-rate", rate]);
        }
        Running::start(command.args([source, target]).stdin(Stdio::null()))
    }

    /// Serves again where it did before; the port may need a moment.
    fn serve_again(&mut self) {
        let address = self.server.addresses[0].clone();
        self.server = Server::start_with(&self.place.root(), &["--listen", &address]);
    }

    /// Kills client, server or both at some moment, until the tree is there.
    fn rounds(&mut self, seed: u64, count: u64) {
        let mut random = Random::new(seed);
        for round in 0..count {
            let mut running = self.start(Some("700k"));
            std::thread::sleep(Duration::from_millis(50 + random.below(2600)));
            let victim = round % 3;
            println!("round {round}: victim {victim}");
            if victim != 1 {
                running.kill();
            }
            if victim != 0 {
                self.server.running.kill();
                // A client that lost its server ends and says so, unless it was done.
                let _ = running.wait();
                self.serve_again();
            }
        }
        let started = Instant::now();
        loop {
            let run = self.start(None).wait();
            if run.code == Some(0) {
                break;
            }
            // The server may still be at the end of a session that was killed.
            assert!(started.elapsed() < PATIENCE, "{}", run.stderr);
            std::thread::sleep(Duration::from_millis(50));
        }
        if self.command == "sync" {
            self.remove_publications();
        }
        assert_same(&self.source(), &self.target());
        assert_eq!(self.journals(), 0);
    }

    /// Removes the journals of files that were published right before a kill. A synchronisation
    /// finds such a file equal and doesn't ask for it again; `xdfs partial` and the server's own
    /// removal of old ones see to the journal.
    fn remove_publications(&self) {
        for directory in (0..20).map(|n| self.target().join(format!("{}/{n}", n % 4))) {
            for entry in fs::read_dir(directory).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                let hidden = name.strip_prefix('.');
                let file = hidden.and_then(|name| name.strip_suffix(".xdfs-journal"));
                let Some(file) = file else { continue };
                assert!(entry.path().with_file_name(file).exists(), "{name}");
                let partial = format!(".{file}.xdfs-part");
                assert!(!entry.path().with_file_name(&partial).exists(), "{name}");
                fs::remove_file(entry.path()).unwrap();
            }
        }
    }
}

#[test]
fn uploads_survive_kills() {
    Scene::new("cp", Way::Up).rounds(1, 6);
}

/// A server that was killed is missed after the time of silence of QUIC.
#[test]
fn uploads_over_quic_survive_kills() {
    Scene::over("quic:idle=1", "cp", Way::Up).rounds(4, 6);
}

#[test]
fn downloads_over_quic_survive_kills() {
    Scene::over("quic:idle=1", "cp", Way::Down).rounds(5, 6);
}

#[test]
fn uploads_over_bundles_survive_kills() {
    Scene::over("ptcp:n=3:patience=2", "cp", Way::Up).rounds(6, 6);
}

#[test]
fn downloads_survive_kills() {
    Scene::new("cp", Way::Down).rounds(2, 6);
}

#[test]
fn copies_between_servers_survive_kills() {
    Scene::new("cp", Way::Between).rounds(6, 3);
}

#[test]
fn synchronisations_survive_kills() {
    Scene::new("sync", Way::Up).rounds(3, 3);
    Scene::new("sync", Way::Down).rounds(4, 3);
}

/// What the object of the tree says.
fn tree_of(run: &crate::support::Run) -> serde_json::Value {
    let mut objects = run.json().into_iter();
    objects.find(|v| v["type"] == "tree").unwrap()
}

#[test]
fn ctrl_c_leaves_what_the_same_command_goes_on_from() {
    for way in WAYS {
        let scene = Scene::new("cp", way);
        let mut running = scene.start(Some("700k"));
        running.wait_for_bytes(2_000_000);
        running.signal("INT");
        running.wait().fails(130, &["stopped"]);
        assert_eq!(scene.journals(), 1);
        let run = scene.start(None).wait().ok();
        let tree = tree_of(&run);
        let count = |name: &str| tree[name].as_u64().unwrap();
        assert!(count("resumed_files") > 50, "{tree}");
        assert!(count("resumed_bytes") > 1_000_000, "{tree}");
        assert_eq!(count("files") + count("resumed_files"), FILES);
        assert_same(&scene.source(), &scene.target());
        assert_eq!(scene.journals(), 0);
    }
}

#[test]
fn a_kill_after_claims_costs_what_came_after_them() {
    for way in WAYS {
        let scene = Scene::new("cp", way);
        let mut running = scene.start(Some("500k"));
        // The first claims are made after two seconds, if nothing is in the way.
        let deadline = Instant::now() + PATIENCE;
        let largest = || {
            let entries = fs::read_dir(scene.state().join("trees"))
                .into_iter()
                .flatten();
            let bytes = entries.filter_map(|e| Some(e.ok()?.metadata().ok()?.len()));
            bytes.max().unwrap_or(0)
        };
        while largest() < 300 {
            assert!(Instant::now() < deadline, "nothing was ever claimed");
            std::thread::sleep(Duration::from_millis(20));
        }
        running.kill();
        let run = scene.start(None).wait().ok();
        let tree = tree_of(&run);
        assert!(tree["resumed_files"].as_u64().unwrap() > 0, "{tree}");
        assert_same(&scene.source(), &scene.target());
    }
}

#[test]
fn a_tree_can_begin_anew() {
    let scene = Scene::new("cp", Way::Up);
    let mut running = scene.start(Some("700k"));
    running.wait_for_bytes(1_000_000);
    running.signal("INT");
    running.wait().fails(130, &[]);
    let (source, target) = (scene.place.here("tree"), scene.server.url("/copy"));
    // It is in the way, whoever put it there, and the tree goes into it.
    let mut command = program();
    command
        .env("XDFS_STATE_DIR", scene.state())
        .stdin(Stdio::null());
    command.args(["cp", "-r", "--no-resume", "--json", &source, &target]);
    let run = Running::start(&mut command).wait().ok();
    assert_eq!(tree_of(&run)["files"], FILES);
    assert_eq!(tree_of(&run)["resumed_files"], 0);
    assert_same(&scene.source(), &scene.target().join("tree"));
}

#[test]
fn without_a_place_for_state_a_tree_is_copied_all_the_same() {
    let scene = Scene::new("cp", Way::Up);
    fs::write(scene.state(), "a file").unwrap();
    let run = scene.start(None).wait().ok();
    assert!(run.stderr.contains("without a journal"), "{}", run.stderr);
    assert!(run.stderr.contains("can't resume it"), "{}", run.stderr);
    assert_same(&scene.source(), &scene.target());
    let [source, target] = [scene.place.here("tree"), scene.server.url("/other")];
    xdfs(["cp", "-r", "--durability", "full", &source, &target]).ok();
    assert_same(&scene.source(), &scene.place.remote("other"));
}
