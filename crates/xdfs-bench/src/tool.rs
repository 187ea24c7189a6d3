//! The tools that are measured: which programs they need and how each is run.
//!
//! All of them run as the same user and against a server on 127.0.0.1, plain and without encryption
//! but for the rows of private channels, whose keys are those of `protection`.
//! GridFTP gets the flags that suit it best (`-fast`: data channels are kept). Nothing here starts
//! anything. Called by `session`.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    bare, calls,
    command_line::{CommandLine, find_program},
    protection::{self, Keys, OpenSsh, Protection},
};

/// The name under which this program is looked up, which also plays the bare copies.
const BARE: &str = "xdfs-bench";
/// The name under which the older program is looked up.
pub(crate) const PREVIOUS: &str = "previous xdfs";

/// What some tools use where it is there.
const OPTIONAL: [&str; 1] = ["nginx"];

/// A way of moving bytes.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tool {
    /// Two processes that only copy: a ruler for the system's copies.
    Bare,
    /// Plain `cp`: no network at all, a ruler for the file systems.
    Cp,
    /// globus-url-copy with globus-gridftp-server.
    GridFtp,
    /// iperf3, from memory to memory only.
    Iperf3,
    /// An older program than the one under test.
    Previous,
    /// rclone with its own webdav (up) and http (down) servers.
    Rclone,
    /// rsync with its daemon.
    Rsync,
    /// scp with a server of OpenSSH.
    Scp,
    /// Two tars with netcat between them.
    Tar,
    /// The program under test.
    Xdfs,
}

/// Which way the payload goes, seen from the client.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// From the server.
    Down,
    /// No server takes part.
    Local,
    /// To the server.
    Up,
}

impl Direction {
    /// Those of a transfer between two hosts.
    pub(crate) const BY_NETWORK: [Self; 2] = [Self::Up, Self::Down];

    /// The word in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Local => "local",
            Self::Up => "up",
        }
    }
}

impl Tool {
    /// Every tool.
    pub(crate) const ALL: [Self; 10] = [
        Self::Bare,
        Self::Cp,
        Self::GridFtp,
        Self::Iperf3,
        Self::Previous,
        Self::Rclone,
        Self::Rsync,
        Self::Scp,
        Self::Tar,
        Self::Xdfs,
    ];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare copies",
            Self::Cp => "cp",
            Self::GridFtp => "GridFTP",
            Self::Iperf3 => "iperf3",
            Self::Previous => PREVIOUS,
            Self::Rclone => "rclone",
            Self::Rsync => "rsync daemon",
            Self::Scp => "scp",
            Self::Tar => "tar over nc",
            Self::Xdfs => "xdfs",
        }
    }

    /// The programs it needs, first the one that tells the version.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Bare => &[BARE],
            Self::Cp => &["cp"],
            Self::GridFtp => &["globus-url-copy", "globus-gridftp-server"],
            Self::Iperf3 => &["iperf3"],
            Self::Previous => &[PREVIOUS],
            Self::Rclone => &["rclone"],
            Self::Rsync => &["rsync"],
            Self::Scp => &["ssh", "scp", "sshd", "ssh-keygen"],
            Self::Tar => &["tar", "nc", "sh", "mkfifo"],
            Self::Xdfs => &["xdfs"],
        }
    }

    /// The argument that makes its client print its version.
    fn version_argument(self) -> &'static str {
        match self {
            Self::GridFtp => "-version",
            Self::Rclone => "version",
            Self::Scp => "-V",
            _ => "--version",
        }
    }
}

/// What is moved, where from and where to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// A file beneath `base`, which is the server's root; both names are relative to it.
    File {
        base: &'a Path,
        source: &'a str,
        target: &'a str,
    },
    /// So many bytes from the memory of one process to the memory of the other.
    Memory { bytes: u64 },
}

/// The tools found on this machine.
#[derive(Debug, Default)]
pub(crate) struct Toolbox {
    programs: BTreeMap<&'static str, PathBuf>,
    is_root: bool,
    congestion_control: Option<String>,
    /// Whether the program under test can leave the payload clear.
    takes_clear: bool,
    /// Whether the client of the older program wants to be told to do without protection.
    previous_takes_insecure: bool,
}

impl Toolbox {
    /// Looks for every tool; `xdfs` is the program under test, `previous` an older one.
    pub(crate) fn new(
        xdfs: Option<PathBuf>,
        previous: Option<PathBuf>,
        congestion_control: Option<String>,
    ) -> Self {
        let mut programs: BTreeMap<&'static str, PathBuf> = Tool::ALL
            .into_iter()
            .filter(|tool| !matches!(tool, Tool::Bare | Tool::Previous | Tool::Xdfs))
            .flat_map(Tool::programs)
            .chain(&OPTIONAL)
            .filter_map(|name| Some((*name, find_program(name)?)))
            .collect();
        let takes = |program: &Option<PathBuf>, flag| {
            let knows = |path: &PathBuf| {
                let commands = ["cp", "perf"];
                commands
                    .iter()
                    .all(|command| protection::knows(path, command, flag))
            };
            program.as_ref().is_some_and(knows)
        };
        let takes_clear = takes(&xdfs, "--protect");
        let previous_takes_insecure = takes(&previous, "--insecure");
        programs.extend(xdfs.map(|path| ("xdfs", path)));
        programs.extend(previous.map(|path| (PREVIOUS, path)));
        programs.extend(std::env::current_exe().ok().map(|path| (BARE, path)));
        let is_root = fs::read_to_string("/proc/self/status").is_ok_and(|status| {
            status
                .lines()
                .find_map(|line| line.strip_prefix("Uid:"))
                .and_then(|ids| ids.split_ascii_whitespace().nth(1))
                == Some("0")
        });
        Self {
            programs,
            is_root,
            congestion_control,
            takes_clear,
            previous_takes_insecure,
        }
    }

    /// Whether every program of `tool` is there.
    pub(crate) fn has(&self, tool: Tool) -> bool {
        tool.programs()
            .iter()
            .all(|name| self.programs.contains_key(name))
    }

    /// Whether `tool` is there and can protect its channels so.
    pub(crate) fn can(&self, tool: Tool, protection: Protection) -> bool {
        self.has(tool) && (protection != Protection::Clear || self.takes_clear)
    }

    /// The first line of what the client of `tool` says about its version.
    pub(crate) fn version(&self, tool: Tool) -> Option<String> {
        let program = self.programs.get(tool.programs()[0])?;
        let output = Command::new(program)
            .arg(tool.version_argument())
            .stdin(Stdio::null())
            .output()
            .ok()?;
        // Some print it to standard error.
        let said = if output.stdout.is_empty() {
            output.stderr
        } else {
            output.stdout
        };
        let text = String::from_utf8_lossy(&said);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
        Some(line.chars().take(80).collect())
    }

    /// Whether a program of some tool is there.
    pub(crate) fn finds(&self, name: &str) -> bool {
        self.programs.contains_key(name)
    }

    /// Whether all of it runs as root.
    pub(crate) fn is_root(&self) -> bool {
        self.is_root
    }

    /// The client of the group `calls`, which is this program itself.
    pub(crate) fn calls_client(&self, count: u64, path: &str, port: u16) -> CommandLine {
        self.line(BARE)
            .args([calls::COMMAND, &format!("xdfs://127.0.0.1:{port}/{path}")])
            .arg(count.to_string())
    }

    /// A command without arguments.
    pub(crate) fn line(&self, name: &'static str) -> CommandLine {
        CommandLine::new(self.path(name))
    }

    /// Only asked for tools that `has` has found; a bare name is looked up when it is run.
    fn path(&self, name: &'static str) -> &Path {
        match self.programs.get(name) {
            Some(path) => path,
            None => Path::new(name),
        }
    }

    /// The server for a payload, listening on `port`; `None` when the tool needs none.
    ///
    /// `work` takes a configuration file and keys where they are needed.
    pub(crate) fn server(
        &self,
        (tool, protection): (Tool, Protection),
        direction: Direction,
        payload: Payload<'_>,
        port: u16,
        work: &Path,
    ) -> io::Result<Option<CommandLine>> {
        let port = port.to_string();
        let address = format!("127.0.0.1:{port}");
        let root = match payload {
            Payload::File { base, .. } => base,
            Payload::Memory { .. } => work,
        };
        let root = root.to_string_lossy();
        let line = match tool {
            // tar has a server for trees only.
            Tool::Cp | Tool::Tar => return Ok(None),
            Tool::Bare => self.line(BARE).args([bare::COMMAND, "serve", &port]),
            Tool::GridFtp => {
                let line = self
                    .line("globus-gridftp-server")
                    .args(["-s", "-p", &port, "-aa", "-control-interface", "127.0.0.1"])
                    .args(["-data-interface", "127.0.0.1", "-connections-max", "100000"])
                    .args(["-no-chdir", "-d", "ERROR"]);
                if self.is_root {
                    line.args(["-anonymous-user", "root", "-allow-root"])
                } else {
                    line
                }
            }
            Tool::Iperf3 => self
                .line("iperf3")
                .args(["-s", "-B", "127.0.0.1", "-p", &port]),
            Tool::Rclone => {
                let kind = if direction == Direction::Up {
                    "webdav"
                } else {
                    "http"
                };
                self.line("rclone")
                    .args(["--config", "", "serve", kind, "--addr", &address])
                    .arg(root)
            }
            Tool::Rsync => {
                let configuration = work.join(format!("rsyncd.{port}.conf"));
                let user = if self.is_root {
                    "uid = root\ngid = root\n"
                } else {
                    ""
                };
                fs::write(
                    &configuration,
                    format!(
                        "use chroot = no\nreverse lookup = no\n{user}[r]\npath = {root}\n\
                         read only = no\n"
                    ),
                )?;
                self.line("rsync")
                    .args(["--daemon", "--no-detach", "--port", &port])
                    .args(["--address", "127.0.0.1"])
                    .arg(format!("--config={}", configuration.display()))
            }
            Tool::Scp => {
                let file = OpenSsh::at(work).make(self.path("ssh-keygen"), &port)?;
                self.line("sshd")
                    .args(["-D", "-e", "-f"])
                    .arg(file.to_string_lossy())
            }
            // It picks a free port itself and says which.
            Tool::Previous => self
                .line(PREVIOUS)
                .args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--root"])
                .arg(root),
            Tool::Xdfs => {
                let keys = Keys::at(work);
                if protection != Protection::None {
                    keys.make(self.path("xdfs"))?;
                }
                let line = keys.server(self.line("xdfs").arg("serve"), protection);
                let line = line.args(["--listen", "127.0.0.1:0", "--root"]);
                match payload {
                    Payload::Memory { .. } if protection != Protection::None => {
                        line.arg(keys.empty().to_string_lossy())
                    }
                    _ => line.arg(root),
                }
            }
        };
        Ok(Some(line))
    }

    /// The client for a payload over `channels` (the tool's own choice when not given); `work` is
    /// what the server was given.
    pub(crate) fn client(
        &self,
        (tool, protection): (Tool, Protection),
        direction: Direction,
        payload: Payload<'_>,
        channels: Option<u32>,
        (port, work): (u16, &Path),
    ) -> CommandLine {
        let keys = Keys::at(work);
        match (tool, payload) {
            (Tool::Xdfs, Payload::Memory { bytes }) => keys.client(
                perf(self.line("xdfs"), direction, bytes, channels, port),
                protection,
            ),
            (Tool::Previous, Payload::Memory { bytes }) => {
                let line = perf(self.line(PREVIOUS), direction, bytes, channels, port);
                if self.previous_takes_insecure {
                    line.arg("--insecure")
                } else {
                    line
                }
            }
            (_, Payload::Memory { bytes }) => {
                self.memory_client(tool, direction, bytes, channels, port)
            }
            (
                _,
                Payload::File {
                    base,
                    source,
                    target,
                },
            ) => {
                let local = |name: &str| base.join(name).to_string_lossy().into_owned();
                let place = FilePlace {
                    local_source: local(source),
                    local_target: local(target),
                    source,
                    target,
                };
                match tool {
                    Tool::Xdfs => {
                        let mut line = self.line("xdfs").arg("cp");
                        if let Some(count) = channels {
                            line = line.args(["-n", &count.to_string()]);
                        }
                        copy(keys.client(line, protection), direction, &place, port)
                    }
                    Tool::Scp => self.scp_client(direction, &place, port, work),
                    _ => self.file_client(tool, direction, &place, channels, port),
                }
            }
        }
    }

    fn scp_client(
        &self,
        direction: Direction,
        place: &FilePlace<'_>,
        port: u16,
        work: &Path,
    ) -> CommandLine {
        let settings = OpenSsh::at(work).client_file();
        let line = self
            .line("scp")
            .args(["-q", "-F", &settings.to_string_lossy()])
            .args(["-P", &port.to_string()]);
        let remote = |path: &str| format!("127.0.0.1:{path}");
        if direction == Direction::Up {
            line.arg(place.local_source.as_str())
                .arg(remote(&place.local_target))
        } else {
            line.arg(remote(&place.local_source))
                .arg(place.local_target.as_str())
        }
    }

    fn memory_client(
        &self,
        tool: Tool,
        direction: Direction,
        bytes: u64,
        channels: Option<u32>,
        port: u16,
    ) -> CommandLine {
        let size = bytes.to_string();
        let streams = channels.map(|count| count.to_string());
        match tool {
            Tool::Iperf3 => {
                let mut line = self
                    .line("iperf3")
                    .args(["-c", "127.0.0.1", "-p", &port.to_string()])
                    .args(["-n", &size, "-l", "1M", "-J"]);
                if let Some(congestion_control) = &self.congestion_control {
                    line = line.args(["-C", congestion_control]);
                }
                if let Some(streams) = &streams {
                    line = line.args(["-P", streams]);
                }
                if direction == Direction::Down {
                    line.arg("-R")
                } else {
                    line
                }
            }
            Tool::GridFtp => {
                let mut line = self.line("globus-url-copy").args(["-fast", "-len", &size]);
                if let Some(streams) = &streams {
                    line = line.args(["-p", streams]);
                }
                let remote = format!("ftp://127.0.0.1:{port}");
                if direction == Direction::Down {
                    line.arg(format!("{remote}/dev/zero"))
                        .arg("file:///dev/null")
                } else {
                    line.arg("file:///dev/zero")
                        .arg(format!("{remote}/dev/null"))
                }
            }
            // xdfs has its own lines; the others move files only, so no row asks them for memory.
            Tool::Bare
            | Tool::Cp
            | Tool::Previous
            | Tool::Rclone
            | Tool::Rsync
            | Tool::Scp
            | Tool::Tar
            | Tool::Xdfs => perf(self.line("xdfs"), direction, bytes, channels, port),
        }
    }

    fn file_client(
        &self,
        tool: Tool,
        direction: Direction,
        place: &FilePlace<'_>,
        channels: Option<u32>,
        port: u16,
    ) -> CommandLine {
        let up = direction == Direction::Up;
        let FilePlace {
            local_source,
            local_target,
            source,
            target,
        } = place;
        match tool {
            Tool::Bare => {
                let port = port.to_string();
                self.line(BARE)
                    .args([bare::COMMAND, direction.name(), &port])
                    .args([local_source, local_target])
            }
            // scp and xdfs have their own lines; the others move no files, so no row asks them.
            Tool::Cp | Tool::Iperf3 | Tool::Previous | Tool::Scp | Tool::Tar | Tool::Xdfs => {
                // Sharing the blocks of the source would move nothing.
                self.line("cp")
                    .args(["--reflink=never", local_source, local_target])
            }
            Tool::GridFtp => {
                let mut line = self.line("globus-url-copy").arg("-fast");
                if let Some(count) = channels {
                    line = line.args(["-p", &count.to_string()]);
                }
                let remote = |path: &str| format!("ftp://127.0.0.1:{port}{path}");
                if up {
                    line.arg(format!("file://{local_source}"))
                        .arg(remote(local_target))
                } else {
                    line.arg(remote(local_source))
                        .arg(format!("file://{local_target}"))
                }
            }
            Tool::Rclone => {
                let line = self
                    .line("rclone")
                    .args(["--config", "", "copyto", "--ignore-times"]);
                let url = format!("http://127.0.0.1:{port}");
                if up {
                    line.args(["--webdav-url", &url, local_source])
                        .arg(format!(":webdav:{target}"))
                } else {
                    line.args(["--http-url", &url])
                        .arg(format!(":http:{source}"))
                        .arg(local_target.as_str())
                }
            }
            Tool::Rsync => {
                let line = self.line("rsync").arg("-W");
                let remote = |name: &str| format!("rsync://127.0.0.1:{port}/r/{name}");
                if up {
                    line.arg(local_source.as_str()).arg(remote(target))
                } else {
                    line.arg(remote(source)).arg(local_target.as_str())
                }
            }
        }
    }
}

/// A run of `xdfs perf`, without what says how its channels are protected.
fn perf(
    program: CommandLine,
    direction: Direction,
    bytes: u64,
    channels: Option<u32>,
    port: u16,
) -> CommandLine {
    let way = if direction == Direction::Down {
        "--download"
    } else {
        "--upload"
    };
    let line = program
        .arg("perf")
        .arg(format!("xdfs://127.0.0.1:{port}"))
        .args([way, "--bytes", &bytes.to_string(), "--json"]);
    match channels {
        Some(count) => line.args(["-n", &count.to_string()]),
        None => line,
    }
}

/// The rest of a run of `xdfs cp`.
fn copy(line: CommandLine, direction: Direction, place: &FilePlace<'_>, port: u16) -> CommandLine {
    // Otherwise the second repetition would find the file of the first, and skip it.
    let line = line.args(["-q", "-f", "-I"]);
    let remote = |name: &str| format!("xdfs://127.0.0.1:{port}/{name}");
    if direction == Direction::Up {
        line.arg(place.local_source.as_str())
            .arg(remote(place.target))
    } else {
        line.arg(remote(place.source))
            .arg(place.local_target.as_str())
    }
}

/// The names of a file on both sides.
struct FilePlace<'a> {
    local_source: String,
    local_target: String,
    source: &'a str,
    target: &'a str,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(tool: Tool, direction: Direction, channels: Option<u32>, memory: bool) -> String {
        protected(tool, Protection::None, direction, channels, memory)
    }

    fn toolbox() -> Toolbox {
        Toolbox {
            programs: BTreeMap::new(),
            is_root: false,
            congestion_control: Some("cubic".to_owned()),
            takes_clear: false,
            previous_takes_insecure: false,
        }
    }

    fn protected(
        tool: Tool,
        protection: Protection,
        direction: Direction,
        channels: Option<u32>,
        memory: bool,
    ) -> String {
        let payload = if memory {
            Payload::Memory { bytes: 7 }
        } else {
            Payload::File {
                base: Path::new("/d"),
                source: "src/f",
                target: "dst/f",
            }
        };
        let place = (99, Path::new("/w"));
        toolbox()
            .client((tool, protection), direction, payload, channels, place)
            .to_string()
    }

    #[test]
    fn memory_clients() {
        assert_eq!(
            client(Tool::Iperf3, Direction::Down, Some(4), true),
            "iperf3 -c 127.0.0.1 -p 99 -n 7 -l 1M -J -C cubic -P 4 -R"
        );
        assert_eq!(
            client(Tool::GridFtp, Direction::Up, Some(4), true),
            "globus-url-copy -fast -len 7 -p 4 file:///dev/zero ftp://127.0.0.1:99/dev/null"
        );
        assert_eq!(
            client(Tool::Xdfs, Direction::Up, Some(4), true),
            "xdfs perf xdfs://127.0.0.1:99 --upload --bytes 7 --json -n 4 --insecure"
        );
        assert_eq!(
            client(Tool::Previous, Direction::Down, Some(1), true),
            "previous xdfs perf xdfs://127.0.0.1:99 --download --bytes 7 --json -n 1"
        );
        assert_eq!(
            protected(Tool::Xdfs, Protection::Clear, Direction::Up, Some(4), true),
            "XDFS_CONFIG_DIR=/w/xdfs.client xdfs perf xdfs://127.0.0.1:99 --upload --bytes 7 \
             --json -n 4 --protect clear --key /w/xdfs.client/id_ed25519"
        );
    }

    #[test]
    fn file_clients() {
        assert_eq!(
            client(Tool::Xdfs, Direction::Down, None, false),
            "xdfs cp --insecure -q -f -I xdfs://127.0.0.1:99/src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::Xdfs, Direction::Up, Some(16), false),
            "xdfs cp -n 16 --insecure -q -f -I /d/src/f xdfs://127.0.0.1:99/dst/f"
        );
        assert_eq!(
            protected(Tool::Xdfs, Protection::Private, Direction::Up, None, false),
            "XDFS_CONFIG_DIR=/w/xdfs.client xdfs cp --key /w/xdfs.client/id_ed25519 -q -f -I \
             /d/src/f xdfs://127.0.0.1:99/dst/f"
        );
        assert_eq!(
            client(Tool::Scp, Direction::Up, None, false),
            "scp -q -F /w/ssh/client.conf -P 99 /d/src/f 127.0.0.1:/d/dst/f"
        );
        assert_eq!(
            client(Tool::Scp, Direction::Down, None, false),
            "scp -q -F /w/ssh/client.conf -P 99 127.0.0.1:/d/src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::GridFtp, Direction::Down, Some(16), false),
            "globus-url-copy -fast -p 16 ftp://127.0.0.1:99/d/src/f file:///d/dst/f"
        );
        assert_eq!(
            client(Tool::Rsync, Direction::Up, None, false),
            "rsync -W /d/src/f rsync://127.0.0.1:99/r/dst/f"
        );
        assert_eq!(
            client(Tool::Rclone, Direction::Up, None, false),
            "rclone --config '' copyto --ignore-times --webdav-url http://127.0.0.1:99 /d/src/f \
             :webdav:dst/f"
        );
        assert_eq!(
            client(Tool::Cp, Direction::Local, None, false),
            "cp --reflink=never /d/src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::Bare, Direction::Down, None, false),
            "xdfs-bench bare down 99 /d/src/f /d/dst/f"
        );
    }

    #[test]
    fn absent_tools_are_known() {
        let toolbox = Toolbox::new(None, None, None);
        assert!(!toolbox.has(Tool::Xdfs) && !toolbox.has(Tool::Previous));
        assert!(!toolbox.can(Tool::Xdfs, Protection::Private));
        assert_eq!(toolbox.version(Tool::Xdfs), None);
    }

    #[test]
    fn clear_is_for_programs_that_know_it() {
        let mut toolbox = toolbox();
        toolbox.programs.insert("xdfs", PathBuf::from("/x/xdfs"));
        assert!(toolbox.can(Tool::Xdfs, Protection::Private));
        assert!(!toolbox.can(Tool::Xdfs, Protection::Clear));
        toolbox.takes_clear = true;
        assert!(toolbox.can(Tool::Xdfs, Protection::Clear));
        assert!(!toolbox.can(Tool::Previous, Protection::None));
    }
}
