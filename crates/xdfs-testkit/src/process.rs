//! Programs under test: started, watched line by line, and ended by their own id.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::wait;

/// How long a killed program may take to be gone. The system kills at once; only one that hangs
/// in the kernel takes longer, and then the test must not hang with it.
const KILL_PATIENCE: Duration = Duration::from_secs(60);

/// A running program; dropping the guard kills it and waits until it is gone.
///
/// What it prints is collected, both streams in the order in which the lines came.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    lines: Arc<OutputLines>,
    readers: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct OutputLines {
    seen: Mutex<OutputSoFar>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutputSoFar {
    lines: Vec<String>,
    ended: usize,
}

impl OutputLines {
    fn seen(&self) -> MutexGuard<'_, OutputSoFar> {
        self.seen.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn collect(&self, stream: impl Read) {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while matches!(stream.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            self.seen().lines.push(text);
            self.changed.notify_all();
        }
        self.seen().ended += 1;
        self.changed.notify_all();
    }
}

/// The umask of this process, which the programs that it starts inherit.
///
/// # Errors
/// There is no room for a temporary directory.
#[cfg(unix)]
pub fn umask() -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir()?;
    let made = place.path().join("made");
    std::fs::create_dir(&made)?;
    Ok(0o777 & !std::fs::metadata(&made)?.permissions().mode())
}

impl Guard {
    /// Starts `command` with nothing to read, and collects both of its outputs.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let lines = Arc::new(OutputLines::default());
        let mut readers = Vec::new();
        if let Some(stream) = child.stdout.take() {
            let lines = Arc::clone(&lines);
            readers.push(thread::spawn(move || lines.collect(stream)));
        }
        if let Some(stream) = child.stderr.take() {
            let lines = Arc::clone(&lines);
            readers.push(thread::spawn(move || lines.collect(stream)));
        }
        Ok(Self {
            child,
            lines,
            readers,
        })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The first line that `wanted` takes something from, among those printed and those that come
    /// within `patience`. `None` if none came, or none can come any more.
    pub fn line<T>(
        &self,
        patience: Duration,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> Option<T> {
        let start = Instant::now();
        let mut seen = self.lines.seen();
        let mut asked = 0;
        loop {
            while let Some(line) = seen.lines.get(asked) {
                asked += 1;
                if let Some(found) = wanted(line) {
                    return Some(found);
                }
            }
            let left = patience.checked_sub(start.elapsed())?;
            if seen.ended == self.readers.len() {
                return None;
            }
            seen = match self.lines.changed.wait_timeout(seen, left) {
                Ok((seen, _)) => seen,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// All lines printed so far, of both streams.
    #[must_use]
    pub fn output(&self) -> Vec<String> {
        self.lines.seen().lines.clone()
    }

    /// Waits until the program ends by itself; `None` if it is still running after `patience`.
    /// After `Some`, [`Self::output`] is complete unless a child of the program holds its outputs.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let mut status = Ok(None);
        let ended = wait::until(patience, || {
            status = self.child.try_wait();
            !matches!(status, Ok(None))
        });
        if ended {
            let _ = wait::until(Duration::from_secs(2), || {
                self.lines.seen().ended == self.readers.len()
            });
        }
        status
    }

    /// Asks it to end (SIGTERM). Does nothing if it has ended and been waited for.
    ///
    /// # Errors
    /// What the system says.
    #[cfg(unix)]
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(rustix::process::Signal::TERM)
    }

    /// Interrupts it, as Ctrl-C does (SIGINT).
    ///
    /// # Errors
    /// What the system says.
    #[cfg(unix)]
    pub fn interrupt(&mut self) -> io::Result<()> {
        self.signal(rustix::process::Signal::INT)
    }

    #[cfg(unix)]
    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        // An id that was waited for may belong to somebody else by now.
        if self.child.try_wait()?.is_none() {
            let id = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process(id, signal)?;
        }
        Ok(())
    }

    /// Kills it (SIGKILL) without waiting: one that waits for a disk is gone only when that has
    /// answered.
    ///
    /// # Errors
    /// What the system says.
    pub fn begin_to_kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Kills it at once (SIGKILL), and waits until it is gone.
    ///
    /// # Errors
    /// What the system says, or `TimedOut` if it is still there after ten seconds.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.wait(KILL_PATIENCE)?
            .ok_or_else(|| io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.kill();
        }
        for reader in self.readers.drain(..) {
            // A grandchild may hold the outputs open; its reader ends with it.
            if reader.is_finished() {
                let _ = reader.join();
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Guard {
        Guard::spawn(Command::new("sh").args(["-c", script])).expect("every Unix has sh")
    }

    #[test]
    fn lines_of_both_streams_are_seen() {
        let mut guard = shell("echo port 4711; echo oops >&2; exec sleep 100");
        let port = guard.line(PATIENCE, |l| l.strip_prefix("port ")?.parse::<u16>().ok());
        assert_eq!(port, Some(4711));
        assert!(
            guard
                .line(PATIENCE, |l| (l == "oops").then_some(()))
                .is_some()
        );
        assert_eq!(guard.wait(Duration::ZERO).unwrap(), None);
    }

    #[test]
    fn a_line_that_cannot_come_ends_the_wait() {
        let guard = shell("echo something else");
        assert_eq!(
            guard.line(PATIENCE, |l| (l == "wanted").then_some(())),
            None
        );
    }

    #[test]
    fn the_exit_status_comes_with_all_output() {
        let mut guard = shell("echo last words; exit 3");
        let status = guard.wait(PATIENCE).unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(guard.output(), ["last words"]);
    }

    #[test]
    fn it_can_be_asked_and_killed() {
        use std::os::unix::process::ExitStatusExt;
        let mut guard = shell("exec sleep 100");
        guard.terminate().unwrap();
        assert_eq!(guard.wait(PATIENCE).unwrap().unwrap().signal(), Some(15));
        let mut guard = shell("exec sleep 100");
        assert_eq!(guard.kill().unwrap().signal(), Some(9));
    }

    #[test]
    fn dropping_kills() {
        let guard = shell("exec sleep 100");
        let id = rustix::process::Pid::from_child(&guard.child);
        assert!(rustix::process::test_kill_process(id).is_ok());
        drop(guard);
        assert!(rustix::process::test_kill_process(id).is_err());
    }
}
