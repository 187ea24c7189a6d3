//! Programs with an end: each runs in a process group of its own, and none outlives its owner.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a program or a wait may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);
/// Interval of looks at what is waited for.
const TICK: Duration = Duration::from_millis(3);

/// A running program, which writes to a file.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a program. What it says goes to the file `log`.
    pub(crate) fn start(command: &mut Command, log: &Path) -> io::Result<Self> {
        let out = File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0);
        Ok(Self {
            child: command.spawn()?,
            log: log.to_owned(),
        })
    }

    /// What it has said so far.
    pub(crate) fn said(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end; `None` if it doesn't end in time.
    pub(crate) fn wait(&mut self) -> Option<ExitStatus> {
        let mut status = None;
        until(|| {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        status
    }

    /// Waits for a line, of which `pick` returns what is wanted.
    pub(crate) fn line<T>(&self, pick: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut found = None;
        until(|| {
            found = self.said().lines().find_map(&pick);
            found.is_some()
        });
        found
    }

    /// Kills it with everything that it has started in its group.
    pub(crate) fn kill(&mut self) {
        let group = format!("-{}", self.child.id());
        // It may be gone already.
        let mut kill = Command::new("kill");
        kill.args(["-KILL", "--", &group]);
        let _ = kill.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until something holds. Returns whether it does in the end.
pub(crate) fn until(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(TICK);
    }
}

/// Runs a program to its end.
///
/// # Errors
/// What it said, if it has not succeeded.
pub(crate) fn run(command: &mut Command, log: &Path) -> Result<String, String> {
    let mut running = Running::start(command, log).map_err(|error| error.to_string())?;
    match running.wait() {
        Some(status) if status.success() => Ok(running.said()),
        Some(_) => Err(running.said()),
        None => Err(format!("{}\nit did not end in time", running.said())),
    }
}

/// Whether a program is installed.
pub(crate) fn has(program: &str) -> bool {
    std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file())
}

/// The folders of programs, with those of servers.
pub(crate) fn search_path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
