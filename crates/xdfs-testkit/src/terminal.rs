//! A program at a terminal of its own: what it shows, and keys that are typed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::wait;

/// How long a killed program may take to be gone.
const KILL_PATIENCE: Duration = Duration::from_secs(60);
/// Wide enough that no line of a test is broken.
const SIZE: Winsize = Winsize {
    ws_row: 50,
    ws_col: 200,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// A program that runs at a terminal; dropping it kills the program.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Screen>,
    reader: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Screen {
    seen: Mutex<Vec<u8>>,
    changed: Condvar,
}

impl Screen {
    fn seen(&self) -> MutexGuard<'_, Vec<u8>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Terminal {
    /// Starts a program, all of whose standard streams are the terminal, as the one that gets the
    /// signals of its keys. Needs setsid(1) of util-linux, and
    /// env(1) of coreutils where those signals are ignored.
    ///
    /// # Errors
    /// There is no terminal to be had, or the program can't be started.
    pub fn start(command: &Command) -> io::Result<Self> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&controller)?;
        unlockpt(&controller)?;
        tcsetwinsize(&controller, SIZE)?;
        let name = ptsname(&controller, Vec::new())?;
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let there = OpenOptions::new().read(true).write(true).open(name)?;
        let mut started = setsid();
        started.arg("--ctty").arg(command.get_program());
        started.args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        if let Some(directory) = command.get_current_dir() {
            started.current_dir(directory);
        }
        started.stdin(there.try_clone()?);
        started.stdout(there.try_clone()?).stderr(there);
        let child = started.spawn()?;
        // It holds the other end of the terminal, which would never be seen to close.
        drop(started);
        let keys = File::from(controller);
        let screen = Arc::new(Screen::default());
        let mut shown = keys.try_clone()?;
        let theirs = Arc::clone(&screen);
        let reader = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = shown.read(&mut piece) {
                theirs.seen().extend_from_slice(&piece[..read]);
                theirs.changed.notify_all();
            }
        });
        Ok(Self {
            child,
            keys,
            screen,
            reader: Some(reader),
        })
    }

    /// Types keys, as the bytes that a terminal sends for them.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn send(&mut self, keys: &[u8]) -> io::Result<()> {
        self.keys.write_all(keys)
    }

    /// Changes the size of the terminal, of which the program gets a signal.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ..SIZE
        };
        Ok(tcsetwinsize(&self.keys, size)?)
    }

    /// Signals to the program that its terminal has closed, as a window does (SIGHUP),
    /// and waits for its end; `None` if that took longer than `patience`.
    ///
    /// # Errors
    /// The program can't be reached.
    pub fn hang_up(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::HUP)?;
        Ok(self.wait(patience))
    }

    /// Everything that was shown since the start.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.seen()).into_owned()
    }

    /// Waits until `words` were shown after the first `from` bytes; returns where they end, or
    /// `None` if that took longer than `patience`.
    #[must_use = "words that never came are a failed test"]
    pub fn wait_for(&self, words: &str, from: usize, patience: Duration) -> Option<usize> {
        let deadline = Instant::now() + patience;
        let mut seen = self.screen.seen();
        loop {
            let new = seen.get(from..).unwrap_or_default();
            let mut windows = new.windows(words.len().max(1));
            if let Some(at) = windows.position(|window| window == words.as_bytes()) {
                return Some(from + at + words.len());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.screen.changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for the end of the program; `None` if that took longer than `patience`.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let mut status = None;
        let _ = wait::until(patience, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        });
        if status.is_some() {
            // What it showed last is still on its way; the end of the terminal follows it.
            let reader = self.reader.as_ref();
            let _ = wait::until(KILL_PATIENCE, || {
                reader.is_none_or(|reader| reader.is_finished())
            });
        }
        status
    }
}

/// Starts setsid(1) with the signals of keys as a terminal has them. Who runs tests in the
/// background ignores them, and a program that is started inherits that.
fn setsid() -> Command {
    if !ignores_signals() {
        return Command::new("setsid");
    }
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT", "setsid"]);
    command
}

/// Whether this process ignores one of SIGHUP (1), SIGINT (2) and SIGQUIT (3).
fn ignores_signals() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & 0b111 != 0)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let gone = wait::until(KILL_PATIENCE, || !matches!(self.child.try_wait(), Ok(None)));
        if let Some(reader) = self.reader.take()
            && gone
        {
            // The terminal ends with the last program that has it.
            let ended = wait::until(KILL_PATIENCE, || reader.is_finished());
            if ended {
                let _ = reader.join();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek as _;
    use std::process::Stdio;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_reads_keys_and_gets_the_signals_of_the_terminal() {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "trap 'echo caught; exit 7' INT; read x; echo got=$x; sleep 60 & wait",
        ]);
        let mut terminal = Terminal::start(&command).expect("a terminal");
        terminal.send(b"word\r").expect("typed");
        let at = terminal.wait_for("got=word", 0, PATIENCE);
        assert!(at.is_some(), "{}", terminal.text());
        // A shell may overlook a signal that comes right before it begins to wait.
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            terminal.send(b"\x03").expect("typed");
            let status = terminal.wait(Duration::from_millis(200));
            if status.is_some() || Instant::now() > deadline {
                break status;
            }
        };
        assert_eq!(status.and_then(|s| s.code()), Some(7));
        assert!(terminal.wait_for("caught", 0, PATIENCE).is_some());
        assert!(terminal.wait_for("never", 0, Duration::ZERO).is_none());
    }

    /// As under nohup(1), or in the background of a script.
    #[test]
    fn a_program_gets_signals_that_this_process_ignores() {
        let mut said = tempfile::tempfile().expect("a file");
        let mut again = Command::new("sh");
        again.args(["-c", "trap '' HUP INT QUIT; exec \"$0\" \"$@\""]);
        again.arg(std::env::current_exe().expect("this program"));
        again.args(["--exact", "--nocapture"]).arg(concat!(
            "terminal::tests::",
            "a_program_reads_keys_and_gets_the_signals_of_the_terminal"
        ));
        // Not inherited: who counts tests would see its results twice.
        again.stdin(Stdio::null());
        again.stdout(said.try_clone().expect("the file"));
        again.stderr(said.try_clone().expect("the file"));
        let mut child = again.spawn().expect("a shell");
        let mut status = None;
        // It waits three times at most.
        let ended = wait::until(4 * PATIENCE, || {
            status = child.try_wait().expect("a child");
            status.is_some()
        });
        if !ended {
            let _ = child.kill();
            let _ = child.wait();
        }
        let mut text = String::new();
        said.rewind().expect("its begin");
        said.read_to_string(&mut text).expect("text");
        assert!(status.is_some_and(|s| s.success()), "{text}");
        assert!(text.contains("1 passed"), "{text}");
    }
}
