//! The program killed at random moments, without a word: client, server or both. The same command
//! goes on afterwards, the bytes are the same, and at no moment a part of the file stands under
//! its name.
//!
//! The moments follow from a seed. Half of the rounds replace a target that exists: after a kill
//! it must be as it was.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::{Random, TempTree, first_difference};

/// Longest time that any one program may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the file, and the rate at which it is copied while something is to be killed.
const SIZE: u64 = 64_000_000;
const RATE: &str = "80M";
/// The same for a round in which the checkpoint of each second is behind when the kill comes.
const RATE_LONG: &str = "40M";
const OLD: &[u8] = b"what stood there before";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
    Both,
}

#[derive(Debug)]
struct Scene {
    tree: TempTree,
    upload: bool,
    digest: &'static str,
    server: Guard,
    /// The address on which it listens; the same after a restart.
    address: String,
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    command.env("NO_COLOR", "1");
    command.env("XDFS_CONFIG_DIR", OWN.path());
    command
}

/// The keys of both sides.
static OWN: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

/// Starts a server; the port of one that was killed may need a moment.
fn serve(root: &Path, address: &str) -> (Guard, String) {
    let start = Instant::now();
    loop {
        let mut command = program();
        command
            .args(["serve", "--listen", address, "--root"])
            .arg(root);
        let server = Guard::spawn(&mut command).unwrap();
        let listens = server.line(PATIENCE, |l| {
            l.strip_prefix("listening on ").map(str::to_owned)
        });
        match listens {
            Some(address) => return (server, address),
            None => assert!(start.elapsed() < PATIENCE, "{:?}", server.output()),
        }
    }
}

impl Scene {
    fn new(seed: u64, upload: bool, digest: &'static str) -> Self {
        let tree = TempTree::new(seed).unwrap();
        std::fs::create_dir(tree.join("root")).unwrap();
        std::fs::create_dir(tree.join("here")).unwrap();
        let folder = if upload { "here" } else { "root" };
        tree.file(&format!("{folder}/source"), SIZE).unwrap();
        let (server, address) = serve(&tree.join("root"), "127.0.0.1:0");
        Self {
            tree,
            upload,
            digest,
            server,
            address,
        }
    }

    fn source(&self) -> PathBuf {
        self.tree.join(if self.upload {
            "here/source"
        } else {
            "root/source"
        })
    }

    fn target(&self) -> PathBuf {
        self.tree.join(if self.upload {
            "root/target"
        } else {
            "here/target"
        })
    }

    /// The command, the same one in all tries but for the bound on the rate.
    fn copy(&self, rate: Option<&str>) -> Guard {
        let mut command = program();
        command.args([
            "cp",
            "--json",
            "--force",
            "-n",
            "3",
            "--digest",
            self.digest,
        ]);
        if let Some(rate) = rate {
            command.args(["--limit-rate", rate]);
        }
        let url = |name| format!("xdfs://{}/{name}", self.address);
        if self.upload {
            command.arg(self.source()).arg(url("target"));
        } else {
            command.arg(url("source")).arg(self.target());
        }
        Guard::spawn(&mut command).unwrap()
    }

    /// Fails if anything stands under the name but what stood there before, or the whole file: on a
    /// machine that is slow to kill a transfer it may be over.
    #[track_caller]
    fn assert_untouched(&self, old: bool) {
        match std::fs::read(self.target()) {
            Ok(content) if old && content == OLD => {}
            Ok(content) => assert!(
                first_difference(&self.source(), &self.target())
                    .unwrap()
                    .is_none(),
                "the target is half-written, {} bytes",
                content.len()
            ),
            Err(error) => assert!(!old, "the target is gone: {error}"),
        }
    }

    /// One round: begin, kill, look, go on, compare. Returns the bytes that needn't go again.
    fn round(&mut self, random: &mut Random, victim: Victim, old: bool, long: bool) -> u64 {
        let _ = std::fs::remove_file(self.target());
        if old {
            std::fs::write(self.target(), OLD).unwrap();
        }
        let mut copy = self.copy(Some(if long { RATE_LONG } else { RATE }));
        let after = if long {
            1200 + random.below(200)
        } else {
            random.below(700)
        };
        thread::sleep(Duration::from_millis(after));
        if victim != Victim::Server {
            copy.kill().unwrap();
        }
        if victim != Victim::Client {
            self.server.kill().unwrap();
        }
        self.assert_untouched(old);
        if victim != Victim::Client {
            (self.server, self.address) = serve(&self.tree.join("root"), &self.address);
        }
        // A client that outlived its server goes on by itself.
        let mut outcome = (victim == Victim::Server).then_some(copy);
        let start = Instant::now();
        loop {
            let mut copy = outcome.take().unwrap_or_else(|| self.copy(None));
            let status = copy.wait(PATIENCE).unwrap().expect("it hangs");
            if status.success() {
                let difference = first_difference(&self.source(), &self.target()).unwrap();
                assert_eq!(difference, None, "the bytes differ");
                return resumed_bytes(&copy);
            }
            self.assert_untouched(old);
            assert!(start.elapsed() < PATIENCE, "{:?}", copy.output());
            // The server may still be at the end of the session that was killed.
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Rounds with all victims, and the sum of the bytes that didn't go again.
    fn rounds(&mut self, seed: u64, count: u32) {
        let mut random = Random::new(seed);
        let mut resumed = [0, 0];
        for n in 0..count {
            let victim = [Victim::Client, Victim::Server, Victim::Both][n as usize % 3];
            let long = n % 5 == 4;
            let old = random.below(2) == 0;
            println!("round {n}: {victim:?}, old {old}, long {long}");
            resumed[usize::from(long)] += self.round(&mut random, victim, old, long);
        }
        println!("resumed: {resumed:?}");
        // Whoever is killed after a second, a part is durable on the side that receives.
        assert!(resumed[1] > 0, "nothing was ever resumed");
        let folder = self.target().parent().unwrap().to_owned();
        let names = std::fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name());
        let left: Vec<_> = names
            .filter(|n| n.to_string_lossy().contains(".xdfs-"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// What the result object of a successful run says.
fn resumed_bytes(copy: &Guard) -> u64 {
    let output = copy.output();
    let result = output
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .find(|value| value["type"] == "result")
        .unwrap_or_else(|| panic!("there is no result: {output:?}"));
    result["resumed_bytes"].as_u64().unwrap()
}

#[test]
fn uploads_survive() {
    Scene::new(1, true, "crc64nvme").rounds(1, 15);
}

#[test]
fn downloads_survive() {
    Scene::new(2, false, "crc64nvme").rounds(2, 15);
}

#[test]
fn uploads_with_blake3_survive() {
    Scene::new(3, true, "blake3").rounds(3, 12);
}

#[test]
fn downloads_with_blake3_survive() {
    Scene::new(4, false, "blake3").rounds(4, 12);
}
