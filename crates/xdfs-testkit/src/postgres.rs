//! A PostgreSQL of its own: in a temporary folder, on a Unix socket, for one test.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::nobody::{ID, is_root};
use crate::process::Guard;
use crate::wait;

const PATIENCE: Duration = Duration::from_secs(60);
/// The folders of Debian's versions.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A running PostgreSQL, which ends when it is dropped.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    folder: TempDir,
    server: Guard,
}

/// The folder with the programs of PostgreSQL.
fn programs() -> Option<PathBuf> {
    let has = |folder: &PathBuf| folder.join("initdb").exists() && folder.join("postgres").exists();
    let versions = fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut versions: Vec<_> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = versions
        .into_iter()
        .rev()
        .chain(std::env::split_paths(&path));
    let mut all = all.filter(has);
    all.next()
}

/// A command as an ordinary user: PostgreSQL refuses to be root.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(ID).gid(ID);
    }
    // Messages that tests wait for.
    command.env("LC_ALL", "C").env_remove("PGDATA");
    command
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

fn serve(programs: &Path, folder: &Path) -> io::Result<Guard> {
    let mut command = command(&programs.join("postgres"));
    command
        .current_dir(folder)
        .arg("-D")
        .arg(folder.join("data"));
    // What the system has taken survives the end of processes, and no test cuts the power.
    for setting in ["listen_addresses=", "fsync=off", "max_connections=60"] {
        command.args(["-c", setting]);
    }
    let mut server = Guard::spawn(command.arg("-k").arg(folder))?;
    let is_ready = |line: &str| line.contains("ready to accept connections").then_some(());
    if server.line(PATIENCE, is_ready).is_some() {
        return Ok(server);
    }
    let _ = server.kill();
    Err(io::Error::other(format!("{:?}", server.output())))
}

impl Postgres {
    /// Starts one; `None` if it isn't installed.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start() -> io::Result<Option<Self>> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let folder = TempDir::new()?;
        let path = folder.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        if is_root() {
            chown(path, Some(ID), Some(ID))?;
        }
        let mut initdb = command(&programs.join("initdb"));
        initdb.current_dir(path).arg("-D").arg(path.join("data"));
        run(initdb.args([
            "-U",
            "xdfs",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        ]))?;
        let server = serve(&programs, path)?;
        Ok(Some(Self {
            programs,
            folder,
            server,
        }))
    }

    /// The URL of a database of it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let socket = self.folder.path().display();
        format!("postgres://xdfs@localhost/{database}?host={socket}")
    }

    /// Makes a database, and returns its URL.
    ///
    /// # Errors
    /// It can't be made.
    pub fn create(&self, database: &str) -> io::Result<String> {
        let mut createdb = command(&self.programs.join("createdb"));
        createdb.arg("-h").arg(self.folder.path());
        run(createdb.args(["-U", "xdfs", database]))?;
        Ok(self.url(database))
    }

    /// Stops it as a crash does: connections break, and transactions are lost.
    ///
    /// # Errors
    /// What the system says, or `TimedOut`.
    pub fn crash(&mut self) -> io::Result<()> {
        self.server.signal(Signal::QUIT)?;
        let ended = self.server.wait(PATIENCE)?;
        ended
            .map(drop)
            .ok_or_else(|| io::ErrorKind::TimedOut.into())
    }

    /// Starts it again after [`Self::crash`].
    ///
    /// # Errors
    /// It can't be started.
    pub fn start_again(&mut self) -> io::Result<()> {
        let mut last = Ok(());
        // The lock of the one before may still be there for a moment.
        let _ = wait::until(PATIENCE, || {
            match serve(&self.programs, self.folder.path()) {
                Ok(server) => {
                    self.server = server;
                    last = Ok(());
                    true
                }
                Err(error) => {
                    last = Err(error);
                    false
                }
            }
        });
        last
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Killed, it would leave its shared memory.
        let _ = self.crash();
    }
}
