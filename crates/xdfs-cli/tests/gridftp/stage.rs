//! A server with its directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use xdfs_testkit::process::Guard;
use xdfs_testkit::tree::{TempTree, random_bytes};

/// Longest time that anything here may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The password of all users.
pub(crate) const PASSWORD: &str = "correct horse";

/// Names in the served directory, hidden ones too.
pub(crate) fn names(stage: &Stage) -> Vec<String> {
    let entries = fs::read_dir(stage.root("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// A server, and a directory for it and for clients.
pub(crate) struct Stage {
    pub(crate) server: Guard,
    /// The address for GridFTP.
    pub(crate) address: String,
    flags: Vec<String>,
    place: TempTree,
}

impl Stage {
    /// Serves a directory to everybody.
    #[track_caller]
    pub(crate) fn open(seed: u64, flags: &[&str]) -> Self {
        let place = Self::place(seed);
        let root = place.join("root");
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        let all = [
            "--insecure".to_owned(),
            format!("--root={}", root.display()),
        ];
        Self::start(place, all.into_iter().chain(flags))
    }

    /// Serves what a configuration file says, in which ROOT stands for the directory.
    #[track_caller]
    pub(crate) fn configured(seed: u64, config: &str) -> Self {
        Self::prepared(seed, config, |_| {})
    }

    /// The same, with what `prepare` puts into the directory before the server starts.
    #[track_caller]
    pub(crate) fn prepared(seed: u64, config: &str, prepare: impl FnOnce(&Path)) -> Self {
        let place = Self::place(seed);
        let root = place.join("root").display().to_string();
        fs::write(place.join("xdfs.toml"), config.replace("ROOT", &root)).unwrap();
        prepare(&place.join("root"));
        let flag = format!("--config={}", place.join("xdfs.toml").display());
        Self::start(place, [flag])
    }

    /// A server with the users `alice` and `bob`, each with [`PASSWORD`] and an export of the same
    /// name, and with what `more` adds to its settings.
    #[track_caller]
    pub(crate) fn with_users(seed: u64, more: &str) -> Self {
        let export = |name: &str| {
            format!(
                "[[export]]\nname = \"{name}\"\npath = \"ROOT/{name}\"\n\
                 [[export.grant]]\nuser = \"{name}\"\n\
                 rights = [\"read\", \"list\", \"create\", \"write\", \"delete\"]\n"
            )
        };
        let (alice, bob) = (export("alice"), export("bob"));
        let config = format!("folder = \"server\"\naudit = \"audit.jsonl\"\n{more}\n{alice}{bob}");
        Self::prepared(seed, &config, |root| {
            let place = root.parent().unwrap();
            fs::write(place.join("password"), format!("{PASSWORD}\n")).unwrap();
            for user in ["alice", "bob"] {
                fs::create_dir(root.join(user)).unwrap();
                let mut add = Command::new(env!("CARGO_BIN_EXE_xdfs"));
                let config = place.join("xdfs.toml");
                add.env("XDFS_CONFIG_DIR", place.join("keys"))
                    .args(["user", "add", user, "--config"])
                    .arg(config)
                    .stdin(fs::File::open(place.join("password")).unwrap());
                assert!(add.status().unwrap().success(), "{user}");
            }
        })
    }

    /// The server's certificate, as a file that clients can be told to trust.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.beside("server/server.crt")
    }

    /// The address by the name that is in the certificate.
    pub(crate) fn named_address(&self) -> String {
        self.address.replace("127.0.0.1", "localhost")
    }

    fn place(seed: u64) -> TempTree {
        let place = TempTree::new(seed).unwrap();
        for name in ["root", "here", "keys"] {
            fs::create_dir(place.join(name)).unwrap();
        }
        place
    }

    #[track_caller]
    fn start(place: TempTree, flags: impl IntoIterator<Item = String>) -> Self {
        let mut flags: Vec<_> = flags.into_iter().collect();
        if !flags.iter().any(|flag| flag.starts_with("--gridftp")) {
            flags.push("--gridftp=127.0.0.1:0".to_owned());
        }
        let (server, address) = serve(&place, &flags);
        Self {
            server,
            address,
            flags,
            place,
        }
    }

    /// Kills the server, and starts another one at the same address.
    #[track_caller]
    pub(crate) fn kill_and_restart(&mut self) {
        self.server.kill().unwrap();
        self.flags.retain(|flag| !flag.starts_with("--gridftp"));
        self.flags.push(format!("--gridftp={}", self.address));
        (self.server, self.address) = serve(&self.place, &self.flags);
    }

    /// A path in the served directory.
    pub(crate) fn root(&self, name: &str) -> PathBuf {
        self.place.join("root").join(name)
    }

    /// A path beside the served directory.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// A path of the client.
    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.place.join("here").join(name)
    }

    /// Makes a file with bytes that follow from its length.
    pub(crate) fn make(path: &Path, bytes: usize) -> Vec<u8> {
        let content = random_bytes(bytes as u64, bytes);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &content).unwrap();
        content
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    /// Has the client know another server, which speaks xDFS without protection, by this name.
    /// Returns the place of its root.
    pub(crate) fn knows_open(&self, name: &str, other: &Self) -> String {
        let said = other.server.output();
        let mut lines = said.iter();
        let address = lines.find_map(|line| line.strip_prefix("listening on "));
        let settings = format!(
            "[remote.{name}]\nurl = \"xdfs://{}/\"\ninsecure = true\n",
            address.unwrap()
        );
        let config = self.beside("client/config.toml");
        fs::create_dir_all(config.parent().unwrap()).unwrap();
        let before = fs::read_to_string(&config).unwrap_or_default();
        fs::write(config, before + &settings).unwrap();
        format!("{name}:")
    }
}

/// Starts a server, and returns its address for GridFTP.
#[track_caller]
fn serve(place: &TempTree, flags: &[String]) -> (Guard, String) {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_xdfs"));
    serve
        .env("XDFS_CONFIG_DIR", place.join("keys"))
        .env_remove("HOME")
        .args(["serve", "--log=debug", "--listen=127.0.0.1:0"])
        .args(flags);
    let server = Guard::spawn(&mut serve).unwrap();
    let address = |line: &str| Some(line.strip_prefix("GridFTP on ")?.to_owned());
    let Some(address) = server.line(PATIENCE, address) else {
        panic!("the server did not start: {:?}", server.output());
    };
    (server, address)
}

/// Fails unless a file has these bytes.
#[track_caller]
pub(crate) fn assert_bytes(path: &Path, wanted: &[u8]) {
    let found = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Byte by byte takes unoptimized code seconds for a large file.
    if found == wanted {
        return;
    }
    let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
    let lengths = (found.len(), wanted.len());
    assert!(
        differs.is_none(),
        "{}: differs at {differs:?}",
        path.display()
    );
    assert_eq!(lengths.0, lengths.1, "{}", path.display());
}

/// Fails unless two trees have the same names and bytes.
#[track_caller]
pub(crate) fn assert_same_tree(a: &Path, b: &Path) {
    let mut diff = Command::new("diff");
    let out = diff.arg("-r").args([a, b]).output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stdout)
    );
}

/// Whether a program is there.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

/// Runs a program to its end, and fails unless it succeeds. Returns what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let (succeeded, text) = outcome(command);
    assert!(succeeded, "{command:?}: {text}");
    text
}

/// Runs a program to its end. Returns whether it succeeded, and what it printed.
#[track_caller]
pub(crate) fn outcome(command: &mut Command) -> (bool, String) {
    let mut running = Guard::spawn(command.stdin(Stdio::null())).unwrap();
    let status = running.wait(PATIENCE).unwrap();
    let text = running.output().join("\n");
    let Some(status) = status else {
        panic!("{command:?} did not end: {text}");
    };
    (status.success(), text)
}
