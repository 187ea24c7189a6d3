//! The rows of the matrix: what is done in each, and how it is judged.
//!
//! A new row is one entry of [`ROWS`], or of those of `security`. What a client needs for it is in
//! [`How`].

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::clients::{Client, Direction, How, Lack, RATE};
use super::servers::Server;
use super::tools::{Kind, Tools};
use crate::process::{Running, run, until};

use Direction::{Down, Up};

/// A row.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) run: fn(&mut Cell<'_>) -> Outcome,
}

/// What a cell shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Pass,
    /// With the reason.
    Fail(String),
    /// With who doesn't offer it, and how that shows.
    NotOffered(String),
}

impl Outcome {
    /// Its word in a table, and the reason.
    pub(super) fn words(&self) -> (&'static str, Option<&String>) {
        match self {
            Self::Pass => ("yes", None),
            Self::Fail(why) => ("**fail**", Some(why)),
            Self::NotOffered(why) => ("no", Some(why)),
        }
    }
}

/// The rows without security, in the order of the tables.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "download",
        run: |cell| cell.file(Down, HOW, &[]),
    },
    Row {
        name: "upload",
        run: |cell| cell.file(Up, HOW, &[]),
    },
    Row {
        name: "download, MODE E, 1 stream",
        run: |cell| cell.streams(Down, 1),
    },
    Row {
        name: "download, MODE E, 4 streams",
        run: |cell| cell.streams(Down, 4),
    },
    Row {
        name: "download, MODE E, 16 streams",
        run: |cell| cell.streams(Down, 16),
    },
    Row {
        name: "upload, MODE E, 1 stream",
        run: |cell| cell.streams(Up, 1),
    },
    Row {
        name: "upload, MODE E, 4 streams",
        run: |cell| cell.streams(Up, 4),
    },
    Row {
        name: "upload, MODE E, 16 streams",
        run: |cell| cell.streams(Up, 16),
    },
    Row {
        name: "GET and PUT, download",
        run: |cell| cell.get_put(Down),
    },
    Row {
        name: "GET and PUT, upload",
        run: |cell| cell.get_put(Up),
    },
    Row {
        name: "RETR in place of GET (`-no-g2`), download",
        run: |cell| cell.file(Down, NO_GET_PUT, &[]),
    },
    Row {
        name: "STOR in place of PUT (`-no-g2`), upload",
        run: |cell| cell.file(Up, NO_GET_PUT, &[]),
    },
    Row {
        name: "part of a file, download",
        run: |cell| cell.part(Down),
    },
    Row {
        name: "part of a file, upload",
        run: |cell| cell.part(Up),
    },
    Row {
        name: "names of a directory",
        run: |cell| cell.list(),
    },
    Row {
        name: "tree, download",
        run: |cell| cell.tree(Down, HOW),
    },
    Row {
        name: "tree, upload",
        run: |cell| cell.tree(Up, HOW),
    },
    Row {
        name: "synchronise, download",
        run: |cell| cell.sync(Down),
    },
    Row {
        name: "synchronise, upload",
        run: |cell| cell.sync(Up),
    },
    Row {
        name: "commands ahead (`-pp`), tree, upload",
        run: |cell| {
            cell.tree(
                Up,
                How {
                    pipelines: true,
                    ..HOW
                },
            )
        },
    },
    Row {
        name: "4 at a time (`-cc`), tree, download",
        run: |cell| {
            cell.tree(
                Down,
                How {
                    concurrency: Some(4),
                    ..HOW
                },
            )
        },
    },
    Row {
        name: "checksum compared, download",
        run: |cell| {
            cell.file(
                Down,
                How {
                    checks: true,
                    ..HOW
                },
                &[CHECKSUM],
            )
        },
    },
    Row {
        name: "checksum compared, upload",
        run: |cell| {
            cell.file(
                Up,
                How {
                    checks: true,
                    ..HOW
                },
                &[CHECKSUM],
            )
        },
    },
    Row {
        name: "server killed in an upload (`-rst`)",
        run: |cell| cell.killed(),
    },
    Row {
        name: "third party, from globus-gridftp-server",
        run: |cell| cell.third_party(false),
    },
    Row {
        name: "third party, to globus-gridftp-server",
        run: |cell| cell.third_party(true),
    },
    Row {
        name: "stripes over 2 data nodes (`-stripe`), download",
        run: |cell| cell.striped(Down),
    },
    Row {
        name: "stripes over 2 data nodes (`-stripe`), upload",
        run: |cell| cell.striped(Up),
    },
    Row {
        name: "stripes, third party, from globus-gridftp-server",
        run: |cell| cell.striped_third_party(false),
    },
    Row {
        name: "stripes, third party, to globus-gridftp-server",
        run: |cell| cell.striped_third_party(true),
    },
    Row {
        name: "IPv6, download",
        run: |cell| cell.v6(Down),
    },
    Row {
        name: "IPv6, upload",
        run: |cell| cell.v6(Up),
    },
];

pub(super) const HOW: How = How {
    streams: None,
    part: None,
    tls: None,
    gsi: None,
    checks: false,
    sync: false,
    pipelines: false,
    concurrency: None,
    retries: false,
    get_put: false,
    no_get_put: false,
    stripes: false,
};
const NO_GET_PUT: How = How {
    no_get_put: true,
    ..HOW
};
const STRIPES: How = How {
    stripes: true,
    streams: Some(2),
    ..HOW
};
/// A command that servers with checksums know.
const CHECKSUM: &str = "CKSM MD5 0 -1 none";
/// Size of an ordinary file, which is no multiple of a block.
pub(super) const BYTES: usize = 3_000_001;
/// Size of a file that is striped.
const STRIPED: usize = 20_000_001;
/// Size of a file that mostly takes long enough for its server to be killed.
const LARGE: usize = 192 << 20;
/// Most tries to kill a server in time, each with twice the bytes of the one before.
const KILLS: usize = 3;
/// Tries of lftp, one of which has to pass. After the loss of its connection it sometimes sends an
/// old block of 64 KiB before the file, or ends the file too early and waits for ever, at every
/// server: measured in 2 of 15 uploads to globus-gridftp-server, in 4 of 15 to vsftpd, and in 9 of
/// 11 to a server of 45 lines.
const LFTP_TRIES: usize = 12;
/// What is in a tree: an empty file, a space, a file of a block and one byte, directories.
const TREE: [(&str, usize); 5] = [
    ("a", 100),
    ("empty", 0),
    ("sub/c d.txt", (256 << 10) + 1),
    ("sub/deep/b", 700_000),
    ("sub/deep/c", 1),
];

/// A client at a server, with a directory for its files.
pub(super) struct Cell<'a> {
    pub(super) tools: &'a Tools,
    pub(super) client: Client,
    /// What the client says about itself.
    pub(super) help: &'a str,
    pub(super) server: &'a mut Server,
    /// The other server of transfers between two.
    pub(super) other: &'a Server,
    /// A directory of this machine for this cell alone. Its name is also that of the cell's
    /// directories at the servers.
    pub(super) here: PathBuf,
}

impl Cell<'_> {
    /// The name of something of this cell at a server.
    pub(super) fn name(&self, what: &str) -> String {
        let own = self.here.file_name().unwrap_or_default().to_string_lossy();
        format!("{own}/{what}")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.here.join("log")
    }

    /// A file on this machine and its path at the server, with its content on the side that it
    /// comes from.
    pub(super) fn place(&self, direction: Direction, bytes: usize) -> (String, PathBuf, PathBuf) {
        let (name, local) = (self.name("file"), self.here.join("file"));
        let disk = self.server.disk(&name);
        make(if direction == Down { &disk } else { &local }, bytes);
        if let Some(folder) = disk.parent() {
            // Files are stored there.
            let _ = fs::create_dir_all(folder);
        }
        (name, local, disk)
    }

    fn file(&self, direction: Direction, how: How, needs: &[&str]) -> Outcome {
        let (name, local, disk) = self.place(direction, BYTES);
        let command = self
            .client
            .file(self.tools, self.server, &how, direction, &name, &local);
        self.judge(needs, command, || same(&local, &disk))
    }

    fn streams(&self, direction: Direction, streams: u8) -> Outcome {
        let how = How {
            streams: Some(streams),
            ..HOW
        };
        let outcome = self.file(direction, how, &["MODE E"]);
        self.unless_refused("MODE E", outcome)
    }

    /// A client that has them uses them where the server has them too.
    fn get_put(&self, direction: Direction) -> Outcome {
        let how = How {
            get_put: true,
            ..HOW
        };
        let outcome = self.file(direction, how, &[]);
        self.unless_refused("GET path=none;", outcome)
    }

    /// A client may have another way. A row is about what it names, so it isn't offered then.
    fn unless_refused(&self, need: &str, outcome: Outcome) -> Outcome {
        match self.refusal(need) {
            Some(refusal) if outcome == Outcome::Pass => Outcome::NotOffered(format!(
                "{refusal}; the client moves the file in another way"
            )),
            _ => outcome,
        }
    }

    fn part(&self, direction: Direction) -> Outcome {
        let (begin, length) = (1000, 500_000);
        let how = How {
            part: Some((begin, length)),
            ..HOW
        };
        let (name, local, disk) = self.place(direction, BYTES);
        let (from, to, needs) = match direction {
            Down => (&disk, &local, ["ERET P 0 1 none"]),
            Up => (&local, &disk, ["ESTO A 0 none"]),
        };
        let content = fs::read(from).unwrap_or_default();
        let part = content[begin..begin + length].to_vec();
        // Some change a file that is there.
        let mut changed = vec![7; BYTES];
        if direction == Up {
            let _ = fs::write(to, &changed);
            changed[begin..begin + length].copy_from_slice(&part);
        }
        let sparse = [vec![0; begin], part.clone()].concat();
        let command = self
            .client
            .file(self.tools, self.server, &how, direction, &name, &local);
        self.judge(&needs, command, || {
            let found = fs::read(to).unwrap_or_default();
            // By itself, at its offset in an empty file, or in the file that was there.
            match found == part || found == sparse || direction == Up && found == changed {
                true => Ok(()),
                false => Err("other bytes have arrived".into()),
            }
        })
    }

    fn list(&self) -> Outcome {
        let name = self.name("list");
        make_tree(&self.server.disk(&name));
        let command = self
            .client
            .list(self.tools, self.server, &name, &self.here.join("list"));
        let mut command = command;
        match run(&mut command, &self.log()) {
            Ok(said) if ["a", "empty", "sub"].iter().all(|name| said.contains(name)) => {
                Outcome::Pass
            }
            Ok(said) | Err(said) => self.failed(&["MLSD none"], Ok(&said)),
        }
    }

    fn tree(&self, direction: Direction, how: How) -> Outcome {
        let (name, local) = (self.name("tree"), self.here.join("tree"));
        let disk = self.server.disk(&name);
        let (from, to) = ends(direction, &disk, &local);
        make_tree(from);
        let _ = fs::create_dir_all(to);
        let command = self
            .client
            .tree(self.tools, self.server, &how, direction, &name, &local);
        self.judge(&["MLSD none"], command, || same_tree(from, to))
    }

    /// A second run moves what has changed, and leaves the rest alone.
    fn sync(&self, direction: Direction) -> Outcome {
        let how = How { sync: true, ..HOW };
        let (name, local) = (self.name("sync"), self.here.join("sync"));
        let disk = self.server.disk(&name);
        let (from, to) = ends(direction, &disk, &local);
        make_tree(from);
        let _ = fs::create_dir_all(to);
        let needs = ["MLSD none"];
        let version = |path: &Path| fs::metadata(path).map(|m| (m.ino(), m.mtime(), m.ctime()));
        for round in 0..2 {
            let kept = to.join("sub/deep/b");
            let before = version(&kept).ok();
            if round == 1 {
                make(&from.join("a"), 4321);
                make(&from.join("sub/new"), 5);
            }
            let command = self
                .client
                .tree(self.tools, self.server, &how, direction, &name, &local);
            let outcome = self.judge(&needs, command, || {
                same_tree(from, to)?;
                match before == version(&kept).ok() || round == 0 {
                    true => Ok(()),
                    false => Err("a file that had not changed was moved again".into()),
                }
            });
            if outcome != Outcome::Pass {
                return outcome;
            }
        }
        Outcome::Pass
    }

    /// An upload, which with `globus-url-copy` is one from another server, since it repeats no
    /// others. That client takes no limit of its rate, so a transfer may end before its server is
    /// killed: then there is another, of more bytes.
    fn killed(&mut self) -> Outcome {
        let mut bytes = match self.client {
            Client::Globus => LARGE,
            _ => RATE,
        };
        let (mut early, mut tries) = (KILLS, 1);
        if self.client == Client::Lftp {
            tries = LFTP_TRIES;
        }
        while early > 0 {
            match self.killed_in(bytes) {
                Some(Outcome::Fail(_)) if tries > 1 => tries -= 1,
                Some(outcome) => return outcome,
                None => (bytes, early) = (bytes * 2, early - 1),
            }
        }
        let cause = "it always ended before the server could be killed";
        self.failed(&[], Err(cause.into()))
    }

    /// The same with so many bytes; `None` if all of them had come before the server was killed.
    fn killed_in(&mut self, bytes: usize) -> Option<Outcome> {
        let extended = self.client == Client::Globus && self.refusal("MODE E").is_none();
        let how = How {
            retries: true,
            streams: extended.then_some(2),
            ..HOW
        };
        let (name, local) = (self.name("file"), self.here.join("file"));
        let disk = self.server.disk(&name);
        if let Some(folder) = disk.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let source = match self.client {
            Client::Globus => self.other.disk(&name),
            _ => local.clone(),
        };
        make(&source, bytes);
        let command = match self.client {
            Client::Globus => {
                let to = (&*self.server, name.as_str());
                let from = (self.other, name.as_str());
                self.client.third_party(self.tools, &how, from, to, &local)
            }
            _ => self
                .client
                .file(self.tools, self.server, &how, Up, &name, &local),
        };
        let mut command = match command {
            Ok(command) => command,
            Err(lack) => return Some(self.lacking(&lack)),
        };
        let mut running = match Running::start(&mut command, &self.log()) {
            Ok(running) => running,
            Err(error) => return Some(Outcome::Fail(error.to_string())),
        };
        // Something has come, under whatever name.
        let folder = disk.parent().unwrap_or(&disk).to_owned();
        until(|| has_bytes(&folder) || !running.is_alive());
        std::thread::sleep(Duration::from_millis(15));
        let was_alive = running.is_alive();
        if let Err(error) = self.server.kill_and_restart(self.tools) {
            return Some(Outcome::Fail(error));
        }
        let succeeded = running.wait().is_some_and(|status| status.success());
        let outcome = match (succeeded, same(&source, &disk)) {
            (true, Ok(())) if !was_alive => None,
            (true, Ok(())) => Some(Outcome::Pass),
            (true, Err(cause)) => Some(self.failed(&[], Err(cause))),
            (false, _) => Some(self.failed(&[], Ok(&running.said()))),
        };
        for large in [&source, &disk] {
            let _ = fs::remove_file(large);
        }
        outcome
    }

    fn third_party(&self, to_other: bool) -> Outcome {
        self.third_party_of(BYTES, &HOW, to_other, &[])
    }

    fn third_party_of(&self, bytes: usize, how: &How, to_other: bool, needs: &[&str]) -> Outcome {
        let name = self.name("file");
        let (one, two): (&Server, &Server) = match to_other {
            true => (&*self.server, self.other),
            false => (self.other, &*self.server),
        };
        make(&one.disk(&name), bytes);
        if let Some(folder) = two.disk(&name).parent() {
            let _ = fs::create_dir_all(folder);
        }
        let (from, to) = ((one, name.as_str()), (two, name.as_str()));
        let local = self.here.join(&name);
        let command = self.client.third_party(self.tools, how, from, to, &local);
        self.judge(needs, command, || same(&one.disk(&name), &two.disk(&name)))
    }

    /// A file over the data nodes of a server of its own.
    fn striped(&self, direction: Direction) -> Outcome {
        let mut server = match self.with_nodes(self.server.kind) {
            Ok(server) => server,
            Err(outcome) => return outcome,
        };
        let cell = self.at(&mut server, self.other);
        let (name, local, disk) = cell.place(direction, STRIPED);
        let command = cell
            .client
            .file(cell.tools, cell.server, &STRIPES, direction, &name, &local);
        let outcome = cell.judge(&["SPAS"], command, || same(&local, &disk));
        cell.if_striped(outcome, &[cell.server])
    }

    /// A file from data nodes to data nodes.
    fn striped_third_party(&self, to_other: bool) -> Outcome {
        let servers = self
            .with_nodes(self.server.kind)
            .and_then(|server| Ok((server, self.with_nodes_at(Kind::Globus, "other")?)));
        let (mut server, other) = match servers {
            Ok(servers) => servers,
            Err(outcome) => return outcome,
        };
        let cell = self.at(&mut server, &other);
        let outcome = cell.third_party_of(STRIPED, &STRIPES, to_other, &["SPAS"]);
        cell.if_striped(outcome, &[cell.server, cell.other])
    }

    /// A server for this cell alone with data nodes; one without where there are none.
    fn with_nodes(&self, kind: Kind) -> Result<Server, Outcome> {
        self.with_nodes_at(kind, "server")
    }

    fn with_nodes_at(&self, kind: Kind, name: &str) -> Result<Server, Outcome> {
        let folder = self.here.join(name);
        let server = match kind {
            Kind::Vsftpd => Server::start(kind, self.tools, &folder, false),
            _ => Server::with_nodes(kind, self.tools, &folder),
        };
        server.map_err(Outcome::Fail)
    }

    /// The same cell with other servers.
    fn at<'a>(&'a self, server: &'a mut Server, other: &'a Server) -> Cell<'a> {
        Cell {
            tools: self.tools,
            client: self.client,
            help: self.help,
            server,
            other,
            here: self.here.clone(),
        }
    }

    /// A row is about stripes, so it isn't offered if a data node of a server did everything.
    fn if_striped(&self, outcome: Outcome, servers: &[&Server]) -> Outcome {
        if outcome != Outcome::Pass {
            return outcome;
        }
        let mut all = servers.iter();
        match all.try_for_each(|server| server.check_stripes(STRIPED)) {
            Ok(()) => Outcome::Pass,
            Err(why) => Outcome::NotOffered(format!("with {}, {why}", self.client.name())),
        }
    }

    fn v6(&self, direction: Direction) -> Outcome {
        let folder = self.here.join("server");
        let started = Server::start(self.server.kind, self.tools, &folder, true);
        let mut server = match started {
            Ok(server) => server,
            Err(error) => return Outcome::Fail(error),
        };
        let cell = self.at(&mut server, self.other);
        cell.file(direction, HOW, &["EPSV"])
    }

    /// What became of a client's command. `needs` are commands of which one that the server refuses
    /// explains a failure.
    pub(super) fn judge(
        &self,
        needs: &[&str],
        command: Result<Command, Lack>,
        compare: impl FnOnce() -> Result<(), String>,
    ) -> Outcome {
        let mut command = match command {
            Ok(command) => command,
            Err(lack) => return self.lacking(&lack),
        };
        match run(&mut command, &self.log()) {
            Ok(_) => match compare() {
                Ok(()) => Outcome::Pass,
                Err(cause) => self.failed(needs, Err(cause)),
            },
            Err(said) => self.failed(needs, Ok(&said)),
        }
    }

    fn lacking(&self, lack: &Lack) -> Outcome {
        let (client, what) = (self.client.name(), lack.what);
        match lack.is_true(self.help) {
            true => Outcome::NotOffered(format!("{client} has no option for {what}")),
            false => Outcome::Fail(format!("the help of {client} has an option for {what}")),
        }
    }

    /// A failure with what the client says, or with what is wrong with its outcome.
    fn failed(&self, needs: &[&str], why: Result<&str, String>) -> Outcome {
        if let Some(refusal) = needs.iter().find_map(|need| self.refusal(need)) {
            return Outcome::NotOffered(refusal);
        }
        Outcome::Fail(match why {
            Ok(said) => self.reason(said),
            Err(cause) => format!(
                "{} succeeds at {}, but {cause}",
                self.client.name(),
                self.server.kind.name()
            ),
        })
    }

    /// How the server refuses a command that it doesn't know.
    fn refusal(&self, need: &str) -> Option<String> {
        let reply = self.server.answer(need).ok()?;
        let code = reply.get(..3)?;
        let is_unknown = matches!(code, "500" | "501" | "502" | "504" | "530");
        let verb = need.split(' ').next().unwrap_or(need);
        let verb = if matches!(verb, "MODE" | "AUTH") {
            need
        } else {
            verb
        };
        let name = self.server.kind.name();
        // The Globus server has the same number for every failure.
        let is_unknown = is_unknown && !reply.ends_with("Command failed");
        is_unknown.then(|| format!("{name} answers `{reply}` to {verb}"))
    }

    /// The line of what a client says that tells most, without what differs by run.
    fn reason(&self, said: &str) -> String {
        let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
        let is_reply = |line: &&str| {
            line.len() > 4
                && matches!(line.as_bytes()[0], b'4' | b'5')
                && line.as_bytes()[1] == b'0'
                || line.starts_with("42")
                || line.starts_with("52")
                || line.starts_with("55")
        };
        let line = lines()
            .find(is_reply)
            .or_else(|| lines().next_back())
            .unwrap_or("it says nothing");
        // Paths differ by run; they come at the end.
        let line = line.split(" (").next().unwrap_or(line);
        let mut line = line.replace(&self.here.display().to_string(), "HERE");
        for server in [&*self.server, self.other] {
            line = line.replace(&server.disk("").display().to_string(), "ROOT/");
            line = line.replace(&server.address.port().to_string(), "PORT");
        }
        line.retain(|c| !c.is_control());
        format!("{} says `{}`", self.client.name(), line.replace('|', "/"))
    }
}

/// Source and target.
fn ends<'a>(direction: Direction, disk: &'a Path, local: &'a Path) -> (&'a Path, &'a Path) {
    match direction {
        Down => (disk, local),
        Up => (local, disk),
    }
}

fn has_bytes(folder: &Path) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .any(|meta| meta.is_file() && meta.len() > 0)
}

/// Makes a file with bytes that follow from its length.
pub(super) fn make(path: &Path, bytes: usize) {
    if let Some(folder) = path.parent() {
        // What fails here shows when the bytes are compared.
        let _ = fs::create_dir_all(folder);
    }
    let mut state = bytes as u64 | 1 << 40;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        content.extend_from_slice(&state.to_le_bytes());
    }
    content.truncate(bytes);
    let _ = fs::write(path, content);
}

fn make_tree(folder: &Path) {
    for (name, bytes) in TREE {
        make(&folder.join(name), bytes);
    }
}

pub(super) fn same(a: &Path, b: &Path) -> Result<(), String> {
    let (a, b) = (fs::read(a), fs::read(b));
    match (a, b) {
        (Ok(a), Ok(b)) if a == b && !a.is_empty() => Ok(()),
        (Ok(_), Ok(_)) => Err("other bytes have arrived".into()),
        _ => Err("nothing has arrived".into()),
    }
}

fn same_tree(from: &Path, to: &Path) -> Result<(), String> {
    let names = |folder: &Path| {
        let mut found = Vec::new();
        collect(folder, "", &mut found);
        found.sort();
        found
    };
    let (wanted, found) = (names(from), names(to));
    match wanted == found && !wanted.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} entries are not the {} wanted",
            found.len(),
            wanted.len()
        )),
    }
}

/// The names in a tree with the bytes of files.
fn collect(folder: &Path, above: &str, found: &mut Vec<(String, Option<Vec<u8>>)>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{above}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            found.push((name.clone(), None));
            collect(&entry.path(), &name, found);
        } else {
            found.push((name, fs::read(entry.path()).ok()));
        }
    }
}

/// Whether a row has to pass with xdfs in either place where it passes with both Globus tools. The
/// clients and servers are those of one row.
pub(super) fn is_owed(client: Client, server: Kind) -> bool {
    matches!(
        (client, server),
        (Client::Globus | Client::Xdfs, Kind::Xdfs) | (Client::Xdfs, Kind::Globus)
    )
}
