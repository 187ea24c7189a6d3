//! An sshd on loopback with keys of its own, and the settings of an ssh for it.

use std::fmt::Display;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::{nobody, skip, wait};

const SSHD: &str = "/usr/sbin/sshd";
/// Where sshd as root wants an empty directory. The system's service makes it at its start.
const PRIVILEGES: &str = "/run/sshd";
/// Longest wait for its start.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running sshd. Ends when it is dropped.
///
/// In its folder are `ssh_config` for a client that it lets in, its own `sshd_config` and `log`,
/// the keys `host`, `user` and `other`, and the known hosts `known` and `wrong`.
#[derive(Debug)]
pub struct Sshd {
    folder: PathBuf,
    port: u16,
    daemon: Child,
}

impl Sshd {
    /// Starts one with further settings and its files in `folder`; `None` where there is none, and
    /// the test is [skipped](skip).
    ///
    /// # Errors
    /// A file can't be written, or it doesn't start.
    #[track_caller]
    pub fn start(folder: &Path, settings: &str) -> io::Result<Option<Self>> {
        let has = |program: &str| Path::new(program).exists();
        if !has(SSHD) || !has("/usr/bin/ssh") || !has("/usr/bin/ssh-keygen") {
            skip::test("it needs openssh-server and openssh-client");
            return Ok(None);
        }
        if nobody::is_root() && !has(PRIVILEGES) {
            match fs::create_dir(PRIVILEGES) {
                // Another test was faster.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        for key in ["host", "user", "other"] {
            let made = Command::new("/usr/bin/ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(folder.join(key))
                .status()?;
            if !made.success() {
                return Err(failed(format!("ssh-keygen: {made}")));
            }
        }
        let port = free_port()?;
        let dir = folder.display();
        // A shell within another one doesn't read what the user of this machine has for shells that
        // sshd starts, which may say something, or be in the way of other tests.
        let text = format!(
            "{settings}\nListenAddress 127.0.0.1\nPort {port}\nHostKey {dir}/host\n\
             AuthorizedKeysFile {dir}/user.pub\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin yes\nSetEnv SHLVL=1\n"
        );
        fs::write(folder.join("sshd_config"), text)?;
        for (key, hosts) in [("host.pub", "known"), ("other.pub", "wrong")] {
            let key = fs::read_to_string(folder.join(key))?;
            fs::write(folder.join(hosts), format!("tested {key}"))?;
        }
        let text = format!(
            "HostKeyAlias tested\nIdentityFile {dir}/user\nIdentitiesOnly yes\nBatchMode yes\n\
             StrictHostKeyChecking yes\nUserKnownHostsFile {dir}/known\n"
        );
        fs::write(folder.join("ssh_config"), text)?;
        let daemon = Command::new(SSHD)
            .arg("-D")
            .arg("-f")
            .arg(folder.join("sshd_config"))
            .arg("-E")
            .arg(folder.join("log"))
            .stdin(Stdio::null())
            .spawn()?;
        let mut sshd = Self {
            folder: folder.to_owned(),
            port,
            daemon,
        };
        let mut has_ended = false;
        let is_there = wait::until(PATIENCE, || {
            has_ended = !matches!(sshd.daemon.try_wait(), Ok(None));
            has_ended || sshd.log().contains("Server listening")
        });
        match is_there && !has_ended {
            true => Ok(Some(sshd)),
            false => Err(failed(format!("sshd doesn't listen: {}", sshd.log()))),
        }
    }

    /// The port that it listens at, on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The settings of a client that it lets in.
    #[must_use]
    pub fn client_config(&self) -> PathBuf {
        self.folder.join("ssh_config")
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The number of logins so far.
    #[must_use]
    pub fn logins(&self) -> usize {
        self.log().matches("Accepted publickey").count()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A port of loopback without a listener. The system gives it to others last.
///
/// # Errors
/// There is none.
pub fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

fn failed(cause: impl Display) -> io::Error {
    io::Error::other(cause.to_string())
}
