//! Programs that this process has started, and that end with it.

use std::io;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Time for a program that was asked to end: one that asks for a password has to show again what is
/// typed at the terminal.
const GRACE: Duration = Duration::from_millis(500);
/// Interval of looks at it.
const TICK: Duration = Duration::from_millis(5);

/// Those that may run.
static STARTED: Mutex<Vec<Weak<Mutex<Child>>>> = Mutex::new(Vec::new());

/// A program that ends with this value, or with [`end_all`]: it is asked to (SIGTERM), and killed
/// after half a second. Where there are no signals, it is killed at once.
#[derive(Debug)]
pub struct Program {
    child: Arc<Mutex<Child>>,
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        // Under the lock, so that `end_all` misses none.
        let mut started = lock(&STARTED);
        let child = Arc::new(Mutex::new(command.spawn()?));
        started.retain(|child| child.strong_count() > 0);
        started.push(Arc::downgrade(&child));
        drop(started);
        Ok(Self { child })
    }

    /// Its standard streams, as far as they are pipes and were not taken before.
    pub fn take_streams(
        &mut self,
    ) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        let mut child = lock(&self.child);
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// What the system says.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        lock(&self.child).try_wait()
    }

    /// Waits for its end for as long as `patience`, and ends it then.
    ///
    /// # Errors
    /// What the system says.
    pub fn end(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        if let Some(status) = wait_until(&self.child, Instant::now() + patience)? {
            return Ok(status);
        }
        ask(&self.child);
        kill_at(&self.child, Instant::now() + GRACE)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Nothing can be done about a failure.
        let _ = self.end(Duration::ZERO);
    }
}

/// Ends all programs that run, for a process that is about to exit. Takes half a second at most.
pub fn end_all() {
    let all: Vec<_> = lock(&STARTED).iter().filter_map(Weak::upgrade).collect();
    for child in &all {
        ask(child);
    }
    let deadline = Instant::now() + GRACE;
    for child in &all {
        // Nothing can be done about a failure.
        let _ = kill_at(child, deadline);
    }
}

/// Asks it to end. It may have ended by itself.
fn ask(child: &Mutex<Child>) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process};
        let mut child = lock(child);
        // An id that was waited for may belong to somebody else by now.
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
    }
    #[cfg(not(unix))]
    let _ = lock(child).kill();
}

fn kill_at(child: &Mutex<Child>, deadline: Instant) -> io::Result<ExitStatus> {
    if let Some(status) = wait_until(child, deadline)? {
        return Ok(status);
    }
    let mut child = lock(child);
    child.kill()?;
    child.wait()
}

/// Looks at least once.
fn wait_until(child: &Mutex<Child>, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = lock(child).try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(TICK);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Stdio;

    use super::*;

    /// A shell that has begun.
    fn shell(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("{script}; echo begun; while :; do sleep 0.01; done"),
        ]);
        let mut program = Program::start(command.stdout(Stdio::piped())).unwrap();
        let (_, stdout, _) = program.take_streams();
        let mut line = String::new();
        BufReader::new(stdout.unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "begun\n");
        program
    }

    #[test]
    fn it_is_asked_before_it_is_killed() {
        let mut polite = shell("trap 'exit 7' TERM");
        assert_eq!(polite.status().unwrap(), None);
        assert_eq!(polite.end(Duration::ZERO).unwrap().code(), Some(7));
        // Again, after its end.
        assert_eq!(polite.end(Duration::ZERO).unwrap().code(), Some(7));
        let began = Instant::now();
        let mut deaf = shell("trap '' TERM");
        assert_eq!(deaf.end(Duration::ZERO).unwrap().signal(), Some(9));
        assert!(began.elapsed() >= GRACE);
        let mut short = Program::start(Command::new("sh").args(["-c", "exit 3"])).unwrap();
        assert_eq!(short.end(Duration::from_secs(60)).unwrap().code(), Some(3));
    }
}
