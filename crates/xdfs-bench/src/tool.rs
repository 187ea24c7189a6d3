//! The tools that are measured: which programs they need and how each is run.
//!
//! All of them run plain, without encryption, as the same user and against a server on 127.0.0.1.
//! GridFTP gets the flags that suit it best (`-fast`: data channels are kept). Nothing here starts
//! anything. Called by `session`.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    bare,
    line::{Line, find_program},
};

/// The name under which this program is looked up, which also plays the bare copies.
const BARE: &str = "xdfs-bench";

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
    /// rclone with its own webdav (up) and http (down) servers.
    Rclone,
    /// rsync with its daemon.
    Rsync,
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
    pub(crate) const ALL: [Self; 7] = [
        Self::Bare,
        Self::Cp,
        Self::GridFtp,
        Self::Iperf3,
        Self::Rclone,
        Self::Rsync,
        Self::Xdfs,
    ];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare copies",
            Self::Cp => "cp",
            Self::GridFtp => "GridFTP",
            Self::Iperf3 => "iperf3",
            Self::Rclone => "rclone",
            Self::Rsync => "rsync daemon",
            Self::Xdfs => "xdfs",
        }
    }

    /// The programs it needs, the client first.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Bare => &[BARE],
            Self::Cp => &["cp"],
            Self::GridFtp => &["globus-url-copy", "globus-gridftp-server"],
            Self::Iperf3 => &["iperf3"],
            Self::Rclone => &["rclone"],
            Self::Rsync => &["rsync"],
            Self::Xdfs => &["xdfs"],
        }
    }

    /// The argument that makes its client print its version.
    fn version_argument(self) -> &'static str {
        match self {
            Self::GridFtp => "-version",
            Self::Rclone => "version",
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
#[derive(Debug)]
pub(crate) struct Toolbox {
    programs: BTreeMap<&'static str, PathBuf>,
    is_root: bool,
    congestion_control: Option<String>,
}

impl Toolbox {
    /// Looks for every tool; `xdfs` is the program under test.
    pub(crate) fn new(xdfs: Option<PathBuf>, congestion_control: Option<String>) -> Self {
        let mut programs: BTreeMap<&'static str, PathBuf> = Tool::ALL
            .into_iter()
            .filter(|tool| !matches!(tool, Tool::Bare | Tool::Xdfs))
            .flat_map(Tool::programs)
            .filter_map(|name| Some((*name, find_program(name)?)))
            .collect();
        programs.extend(xdfs.map(|path| ("xdfs", path)));
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
        }
    }

    /// Whether every program of `tool` is there.
    pub(crate) fn has(&self, tool: Tool) -> bool {
        tool.programs()
            .iter()
            .all(|name| self.programs.contains_key(name))
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

    fn line(&self, name: &'static str) -> Line {
        // Only asked for tools that `has` has found; the bare name is looked up when it is run.
        Line::new(
            self.programs
                .get(name)
                .cloned()
                .unwrap_or_else(|| PathBuf::from(name)),
        )
    }

    /// The server for a payload, listening on `port`; `None` when the tool needs none.
    ///
    /// `work` takes a configuration file where one is needed.
    pub(crate) fn server(
        &self,
        tool: Tool,
        direction: Direction,
        payload: Payload<'_>,
        port: u16,
        work: &Path,
    ) -> io::Result<Option<Line>> {
        let port = port.to_string();
        let address = format!("127.0.0.1:{port}");
        let root = match payload {
            Payload::File { base, .. } => base,
            Payload::Memory { .. } => work,
        };
        let root = root.to_string_lossy();
        let line = match tool {
            Tool::Cp => return Ok(None),
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
            // It picks a free port itself and says which.
            Tool::Xdfs => self
                .line("xdfs")
                .args(["serve", "--insecure", "--listen", "127.0.0.1:0", "--root"])
                .arg(root),
        };
        Ok(Some(line))
    }

    /// The client for a payload over `channels` (the tool's own choice when not given).
    pub(crate) fn client(
        &self,
        tool: Tool,
        direction: Direction,
        payload: Payload<'_>,
        channels: Option<u32>,
        port: u16,
    ) -> Line {
        match payload {
            Payload::Memory { bytes } => self.memory_client(tool, direction, bytes, channels, port),
            Payload::File {
                base,
                source,
                target,
            } => {
                let local = |name: &str| base.join(name).to_string_lossy().into_owned();
                let place = FilePlace {
                    local_source: local(source),
                    local_target: local(target),
                    source,
                    target,
                };
                self.file_client(tool, direction, &place, channels, port)
            }
        }
    }

    fn memory_client(
        &self,
        tool: Tool,
        direction: Direction,
        bytes: u64,
        channels: Option<u32>,
        port: u16,
    ) -> Line {
        let bytes = bytes.to_string();
        let streams = channels.map(|count| count.to_string());
        let port = port.to_string();
        match tool {
            Tool::Iperf3 => {
                let mut line = self.line("iperf3").args([
                    "-c",
                    "127.0.0.1",
                    "-p",
                    &port,
                    "-n",
                    &bytes,
                    "-l",
                    "1M",
                    "-J",
                ]);
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
                let mut line = self.line("globus-url-copy").args(["-fast", "-len", &bytes]);
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
            // The others move files only, so no row asks them for memory.
            Tool::Bare | Tool::Cp | Tool::Rclone | Tool::Rsync | Tool::Xdfs => {
                let way = if direction == Direction::Down {
                    "--download"
                } else {
                    "--upload"
                };
                let line = self
                    .line("xdfs")
                    .arg("perf")
                    .arg(format!("xdfs://127.0.0.1:{port}"))
                    .args([way, "--insecure", "--bytes", &bytes, "--json"]);
                match &streams {
                    Some(streams) => line.args(["-n", streams]),
                    None => line,
                }
            }
        }
    }

    fn file_client(
        &self,
        tool: Tool,
        direction: Direction,
        place: &FilePlace<'_>,
        channels: Option<u32>,
        port: u16,
    ) -> Line {
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
            // iperf3 moves no files, so no row asks it for one.
            Tool::Cp | Tool::Iperf3 => {
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
            Tool::Xdfs => {
                let mut line = self.line("xdfs").arg("cp");
                if let Some(count) = channels {
                    line = line.args(["-n", &count.to_string()]);
                }
                let line = line.args(["--insecure", "-q", "-f"]);
                let remote = |name: &str| format!("xdfs://127.0.0.1:{port}/{name}");
                if up {
                    line.arg(local_source.as_str()).arg(remote(target))
                } else {
                    line.arg(remote(source)).arg(local_target.as_str())
                }
            }
        }
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
        let toolbox = Toolbox {
            programs: BTreeMap::new(),
            is_root: false,
            congestion_control: Some("cubic".to_owned()),
        };
        let payload = if memory {
            Payload::Memory { bytes: 7 }
        } else {
            Payload::File {
                base: Path::new("/d"),
                source: "src/f",
                target: "dst/f",
            }
        };
        toolbox
            .client(tool, direction, payload, channels, 99)
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
            "xdfs perf xdfs://127.0.0.1:99 --upload --insecure --bytes 7 --json -n 4"
        );
    }

    #[test]
    fn file_clients() {
        assert_eq!(
            client(Tool::Xdfs, Direction::Down, None, false),
            "xdfs cp --insecure -q -f xdfs://127.0.0.1:99/src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::Xdfs, Direction::Up, Some(16), false),
            "xdfs cp -n 16 --insecure -q -f /d/src/f xdfs://127.0.0.1:99/dst/f"
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
        let toolbox = Toolbox::new(None, None);
        assert!(!toolbox.has(Tool::Xdfs));
        assert_eq!(toolbox.version(Tool::Xdfs), None);
    }
}
