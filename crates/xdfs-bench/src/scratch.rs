//! Folders that vanish and a guard that outlives a killed benchmark.
//!
//! A scratch folder has a name nobody else has and is removed when its value is dropped. Dropping
//! is not enough when the benchmark is interrupted or killed, and files of gigabytes in a tmpfs are
//! memory: so a small shell in a process group of its own waits for the end of a pipe, and then
//! ends the servers and removes the folders that are still registered with it. It ends only
//! processes that this benchmark started, by their ids. Called by `main`, `session` and `server`.

use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::Mutex,
};

/// Reads `+pid`, `-pid`, and at the end of its input ends the pids that are left with their
/// children and removes the folders given as arguments.
const GUARD_SCRIPT: &str = r#"
pids=" "
while read -r line; do
  case $line in
    +*) pids="$pids${line#+} ";;
    -*) pid=${line#-}
        case $pids in *" $pid "*) pids="${pids%%" $pid "*} ${pids#*" $pid "}";; esac;;
  esac
done
for pid in $pids; do
  kill -KILL "$pid" $(cat "/proc/$pid/task/$pid/children" 2>/dev/null) 2>/dev/null
done
rm -rf -- "$@"
"#;

/// A folder of our own, removed with everything in it on drop.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a folder with a unique name in `parent`, which is made too when it is missing.
    pub(crate) fn new(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        let parent = parent.canonicalize()?;
        for attempt in 0_u32..1000 {
            let path = parent.join(format!("xdfs-bench.{}.{attempt}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "no free name for a scratch folder",
        ))
    }

    /// Where it is; absolute.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing can be done about a failure here; the guard tries once more.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The shell that cleans up after us whatever happens to us.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    input: Mutex<Option<ChildStdin>>,
}

impl Guard {
    /// Starts the guard over `folders`.
    pub(crate) fn start(folders: &[&Path]) -> io::Result<Self> {
        let mut command = Command::new("sh");
        command
            .args(["-c", GUARD_SCRIPT, "sh"])
            .args(folders)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Out of the terminal's reach: Ctrl-C must not end the one who cleans up after it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let input = Mutex::new(child.stdin.take());
        Ok(Self { child, input })
    }

    /// Registers a process to be ended if we end first.
    pub(crate) fn watch(&self, pid: u32) {
        self.update('+', pid);
    }

    /// Takes a process off the list; call it when the process has ended.
    pub(crate) fn release(&self, pid: u32) {
        self.update('-', pid);
    }

    fn update(&self, sign: char, pid: u32) {
        if let Ok(mut input) = self.input.lock()
            && let Some(pipe) = input.as_mut()
        {
            // Without a guard the benchmark still cleans up in the ordinary way.
            let _ = writeln!(pipe, "{sign}{pid}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Ok(mut input) = self.input.lock() {
            input.take();
        }
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_unique_and_vanish() {
        let parent = tempfile::tempdir().unwrap();
        let one = Scratch::new(parent.path()).unwrap();
        let two = Scratch::new(parent.path()).unwrap();
        assert_ne!(one.path(), two.path());
        fs::write(one.path().join("file"), "x").unwrap();
        drop(one);
        drop(two);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn guard_ends_what_is_left_and_spares_what_was_released() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("left behind");
        fs::create_dir(&folder).unwrap();
        let sleeper = || Command::new("sleep").arg("60").spawn().unwrap();
        let (mut first, mut spared, mut last) = (sleeper(), sleeper(), sleeper());
        let guard = Guard::start(&[&folder]).unwrap();
        for child in [&first, &spared, &last] {
            guard.watch(child.id());
        }
        guard.release(spared.id());
        drop(guard);
        assert!(!folder.exists());
        assert!(!first.wait().unwrap().success());
        assert!(!last.wait().unwrap().success());
        assert!(
            spared.try_wait().unwrap().is_none(),
            "a released process lives on"
        );
        spared.kill().unwrap();
        spared.wait().unwrap();
    }
}
