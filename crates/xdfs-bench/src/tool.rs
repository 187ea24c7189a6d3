//! The tools that are measured: which programs they need and how their servers are run.
//!
//! All of them run as the same user and against a server on 127.0.0.1, plain and without encryption
//! but for the rows of private channels, whose keys are those of `protection`.
//! GridFTP gets the flags that suit it best (`-fast`: data channels are kept). Nothing here starts
//! anything. Called by `session`.

mod client;

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
    /// The same with bbr whatever the default is.
    Iperf3Bbr,
    /// A copy whose reads and writes don't wait for each other: a ruler for the disk.
    Overlap,
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
    pub(crate) const ALL: [Self; 12] = [
        Self::Bare,
        Self::Cp,
        Self::GridFtp,
        Self::Iperf3,
        Self::Iperf3Bbr,
        Self::Overlap,
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
            Self::Iperf3Bbr => "iperf3 bbr",
            Self::Overlap => "overlapped copy",
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
            Self::Bare | Self::Overlap => &[BARE],
            Self::Cp => &["cp"],
            Self::GridFtp => &["globus-url-copy", "globus-gridftp-server"],
            Self::Iperf3 | Self::Iperf3Bbr => &["iperf3"],
            Self::Previous => &[PREVIOUS],
            Self::Rclone => &["rclone"],
            Self::Rsync => &["rsync"],
            Self::Scp => &["ssh", "scp", "sshd", "ssh-keygen"],
            Self::Tar => &["tar", "nc", "sh", "mkfifo"],
            Self::Xdfs => &["xdfs"],
        }
    }

    /// Whether it is a program of its own, and not another one used in a special way.
    pub(crate) fn is_a_program(self) -> bool {
        !matches!(self, Self::Bare | Self::Iperf3Bbr | Self::Overlap)
    }

    /// Whether it moves nothing but the memory of processes.
    pub(crate) fn moves_memory_only(self) -> bool {
        matches!(self, Self::Iperf3 | Self::Iperf3Bbr)
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
    /// From the memory of one process to the memory of the other.
    Memory(Amount),
}

/// When a transfer from memory to memory ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Amount {
    /// After so many bytes.
    Bytes(u64),
    /// After so many seconds.
    Seconds(u64),
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
            .filter(|tool| {
                !matches!(
                    tool,
                    Tool::Bare | Tool::Overlap | Tool::Previous | Tool::Xdfs
                )
            })
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
            Payload::Memory(_) => work,
        };
        let root = root.to_string_lossy();
        let line = match tool {
            // tar has a server for trees only.
            Tool::Cp | Tool::Overlap | Tool::Tar => return Ok(None),
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
            Tool::Iperf3 | Tool::Iperf3Bbr => {
                self.line("iperf3")
                    .args(["-s", "-B", "127.0.0.1", "-p", &port])
            }
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
                    Payload::Memory(_) if protection != Protection::None => {
                        line.arg(keys.empty().to_string_lossy())
                    }
                    _ => line.arg(root),
                }
            }
        };
        Ok(Some(line))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn toolbox() -> Toolbox {
        Toolbox {
            programs: BTreeMap::new(),
            is_root: false,
            congestion_control: Some("cubic".to_owned()),
            takes_clear: false,
            previous_takes_insecure: false,
        }
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
