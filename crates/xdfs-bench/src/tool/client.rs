//! How the client of each tool is run for a file, or from memory to memory.
//!
//! Trees have their own (`tree_tool`). Nothing here starts anything. Called by `session` and
//! `profile`.

use std::path::Path;

use super::{Amount, BARE, Direction, PREVIOUS, Payload, Tool, Toolbox};
use crate::{
    bare,
    command_line::CommandLine,
    overlap,
    protection::{Keys, OpenSsh, Protection},
};

impl Toolbox {
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
            (Tool::Xdfs, Payload::Memory(amount)) => keys.client(
                perf(self.line("xdfs"), direction, amount, channels, port),
                protection,
            ),
            (Tool::Previous, Payload::Memory(amount)) => {
                let line = perf(self.line(PREVIOUS), direction, amount, channels, port);
                if self.previous_takes_insecure {
                    line.arg("--insecure")
                } else {
                    line
                }
            }
            (_, Payload::Memory(amount)) => {
                self.memory_client(tool, direction, amount, channels, port)
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
        amount: Amount,
        channels: Option<u32>,
        port: u16,
    ) -> CommandLine {
        let streams = channels.map(|count| count.to_string());
        match tool {
            Tool::Iperf3 | Tool::Iperf3Bbr => {
                let (until, amount) = match amount {
                    Amount::Bytes(bytes) => ("-n", bytes),
                    Amount::Seconds(seconds) => ("-t", seconds),
                };
                let mut line = self
                    .line("iperf3")
                    .args(["-c", "127.0.0.1", "-p", &port.to_string()])
                    .args([until, &amount.to_string(), "-l", "1M", "-J"]);
                let congestion_control = match tool {
                    Tool::Iperf3Bbr => Some("bbr"),
                    _ => self.congestion_control.as_deref(),
                };
                if let Some(congestion_control) = congestion_control {
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
                let mut line = self.line("globus-url-copy").arg("-fast");
                // It can't end by the clock, so no row asks it to.
                if let Amount::Bytes(bytes) = amount {
                    line = line.args(["-len", &bytes.to_string()]);
                }
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
            | Tool::Overlap
            | Tool::Previous
            | Tool::Rclone
            | Tool::Rsync
            | Tool::Scp
            | Tool::Tar
            | Tool::Xdfs => perf(self.line("xdfs"), direction, amount, channels, port),
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
            Tool::Overlap => self
                .line(BARE)
                .args([overlap::COMMAND, local_source, local_target]),
            // scp and xdfs have their own lines; the others move no files, so no row asks them.
            Tool::Cp | Tool::Iperf3 | Tool::Iperf3Bbr | Tool::Scp | Tool::Tar | Tool::Xdfs => {
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
            Tool::Previous => {
                let line = self.line(PREVIOUS).args(["cp", "--insecure"]);
                copy(line, direction, place, port)
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
                    let line = match channels {
                        Some(count) => line.args([
                            "--multi-thread-cutoff",
                            "1M",
                            "--multi-thread-streams",
                            &count.to_string(),
                        ]),
                        None => line,
                    };
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
    amount: Amount,
    channels: Option<u32>,
    port: u16,
) -> CommandLine {
    let (until, amount) = match amount {
        Amount::Bytes(bytes) => ("--bytes", bytes),
        Amount::Seconds(seconds) => ("--seconds", seconds),
    };
    let way = if direction == Direction::Down {
        "--download"
    } else {
        "--upload"
    };
    let line = program
        .arg("perf")
        .arg(format!("xdfs://127.0.0.1:{port}"))
        .args([way, until, &amount.to_string(), "--json"]);
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
    use crate::tool::tests::toolbox;

    fn client(tool: Tool, direction: Direction, channels: Option<u32>, memory: bool) -> String {
        protected(tool, Protection::None, direction, channels, memory)
    }

    fn protected(
        tool: Tool,
        protection: Protection,
        direction: Direction,
        channels: Option<u32>,
        memory: bool,
    ) -> String {
        let payload = if memory {
            Payload::Memory(Amount::Bytes(7))
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
            client(Tool::Iperf3Bbr, Direction::Up, Some(1), true),
            "iperf3 -c 127.0.0.1 -p 99 -n 7 -l 1M -J -C bbr -P 1"
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
    fn clients_that_end_by_the_clock() {
        let client = |tool, channels| {
            let payload = Payload::Memory(Amount::Seconds(20));
            let (tool, place) = ((tool, Protection::None), (99, Path::new("/w")));
            let line = toolbox().client(tool, Direction::Up, payload, channels, place);
            line.to_string()
        };
        assert_eq!(
            client(Tool::Iperf3, Some(1)),
            "iperf3 -c 127.0.0.1 -p 99 -t 20 -l 1M -J -C cubic -P 1"
        );
        assert_eq!(
            client(Tool::Xdfs, None),
            "xdfs perf xdfs://127.0.0.1:99 --upload --seconds 20 --json --insecure"
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
            client(Tool::Rclone, Direction::Down, Some(4), false),
            "rclone --config '' copyto --ignore-times --multi-thread-cutoff 1M \
             --multi-thread-streams 4 --http-url http://127.0.0.1:99 :http:src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::Cp, Direction::Local, None, false),
            "cp --reflink=never /d/src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::Overlap, Direction::Local, None, false),
            "xdfs-bench overlap /d/src/f /d/dst/f"
        );
        assert_eq!(
            client(Tool::Bare, Direction::Down, None, false),
            "xdfs-bench bare down 99 /d/src/f /d/dst/f"
        );
    }
}
