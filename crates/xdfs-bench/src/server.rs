//! A rival's server (or ours) on a loopback port, for as long as a value lives.
//!
//! Ends by the process ids of its tree, on drop. Called by `session`.

use std::{
    fs::{self, File},
    io,
    net::TcpListener,
    path::Path,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{command_line::CommandLine, meter, procfs, scratch::Guard};

/// Longest wait for a server to listen.
const START_MAX: Duration = Duration::from_secs(10);
/// Time between two looks whether it does.
const START_INTERVAL: Duration = Duration::from_millis(5);
/// What our own server prints before its address.
const ANNOUNCEMENT: &str = "listening on ";

/// How a server's port is learned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Port {
    /// It prints the address it listens on.
    Announced,
    /// It was told to use this one.
    Given(u16),
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server<'a> {
    child: Child,
    guard: &'a Guard,
    /// The port it listens on.
    pub(crate) port: u16,
}

impl<'a> Server<'a> {
    /// Starts `line` and waits until it listens; `log` takes what it prints.
    ///
    /// The error is one line for the report.
    pub(crate) fn start(
        line: &CommandLine,
        port: Port,
        log: &Path,
        guard: &'a Guard,
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("server {}: {error}", line.program());
        let output = File::create(log).map_err(failed)?;
        let mut command = line.command();
        command
            .stdin(Stdio::null())
            .stderr(output.try_clone().map_err(failed)?)
            .stdout(output);
        let child = command.spawn().map_err(failed)?;
        guard.watch(child.id());
        // From here on a drop ends the process.
        let mut server = Self {
            child,
            guard,
            port: 0,
        };
        let started = Instant::now();
        loop {
            let said = fs::read_to_string(log).unwrap_or_default();
            match port {
                Port::Given(port) if procfs::is_listening(port, server.pid()) => {
                    server.port = port;
                }
                Port::Given(_) => {}
                Port::Announced => server.port = parse_announcement(&said).unwrap_or_default(),
            }
            if server.port != 0 {
                return Ok(server);
            }
            let ended = server.child.try_wait().map_err(failed)?;
            if ended.is_some() || started.elapsed() > START_MAX {
                let reason = ended.map_or_else(
                    || "does not listen".to_owned(),
                    |status| format!("ended ({status})"),
                );
                let words = said
                    .lines()
                    .rfind(|line| !line.trim().is_empty())
                    .unwrap_or_default();
                return Err(format!("server {} {reason}: {words}", line.program()));
            }
            thread::sleep(START_INTERVAL);
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        meter::end_tree(self.child.id());
        // Reaps it; it has ended by now or can't be ended at all.
        let _ = self.child.wait();
        self.guard.release(self.child.id());
    }
}

/// A port that nobody uses at the moment.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Finds the port in `listening on 127.0.0.1:PORT`, once the line is complete.
fn parse_announcement(text: &str) -> Option<u16> {
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .find_map(|line| {
            let address = line
                .split_once(ANNOUNCEMENT)?
                .1
                .split_ascii_whitespace()
                .next()?;
            address
                .rsplit_once(':')?
                .1
                .parse()
                .ok()
                .filter(|port| *port != 0)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements() {
        assert_eq!(
            parse_announcement("hello\nlistening on 127.0.0.1:2799\n"),
            Some(2799)
        );
        assert_eq!(
            parse_announcement("listening on 127.0.0.1:279"),
            None,
            "cut in the middle"
        );
        assert_eq!(parse_announcement("listening on unix:/x\n"), None);
        assert_eq!(parse_announcement("listening on 127.0.0.1:99999\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_server_that_ends_at_once_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let guard = Guard::start(&[]).unwrap();
        let line = CommandLine::new("sh").args(["-c", "echo no such root; exit 2"]);
        let log = folder.path().join("log");
        let error = Server::start(&line, Port::Announced, &log, &guard).unwrap_err();
        assert!(error.contains("no such root"), "{error}");
        let line =
            CommandLine::new("sh").args(["-c", "echo listening on 127.0.0.1:7; exec sleep 60"]);
        let server = Server::start(&line, Port::Announced, &log, &guard).unwrap();
        assert_eq!(server.port, 7);
        let pid = server.pid();
        drop(server);
        assert!(procfs::tree(pid).pids.is_empty());
    }
}
