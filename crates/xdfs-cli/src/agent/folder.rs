//! The directory of the agent's sockets, and the user who may use them.
//!
//! The directory is the protection: nobody else can reach a socket in one of mode 0700. Both sides
//! check it, and on Linux the user at the other end of a connection too.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::process::geteuid;
use xdfs::security::trusted;
use xdfs::{Code, Fault};

use crate::state;

/// The operation in faults.
const USE: &str = "use the agent's directory";
/// Longest path of a socket on common systems, in bytes.
const SOCKET_BYTES_MAX: usize = 100;

/// The directory, which belongs to this user alone.
#[derive(Clone, Debug)]
pub(super) struct AgentFolder {
    path: PathBuf,
}

impl AgentFolder {
    /// The directory as it is.
    ///
    /// # Errors
    /// [`Code::NotFound`] if it isn't there; it isn't a directory, others may access it, or the
    /// path is too long for sockets.
    pub(super) fn open() -> Result<Self, Fault> {
        let path = state::agent().ok_or_else(|| {
            Fault::new(Code::NotFound, USE, "this user has no directory for it")
                .hint("set XDFS_STATE_DIR to a directory of your own")
        })?;
        let name = path.as_os_str().as_encoded_bytes().to_vec();
        let found =
            fs::symlink_metadata(&path).map_err(|e| Fault::from_io(USE, name.clone(), &e))?;
        let mode = found.permissions().mode() & 0o7777;
        let refused = |code, cause: String| Err(Fault::new(code, USE, cause).path(&name));
        if !found.is_dir() {
            return refused(Code::NotDirectory, "it is not a directory".into());
        }
        if found.uid() != geteuid().as_raw() {
            let cause = format!("it belongs to another user ({})", found.uid());
            return refused(Code::PermissionDenied, cause);
        }
        if mode & 0o077 != 0 {
            let cause = format!("its mode {mode:04o} lets others in");
            let fault = Fault::new(Code::PermissionDenied, USE, cause).path(&name);
            return Err(fault.hint("run `chmod 700` on it"));
        }
        // Who may write above it could put another one in its place.
        trusted::check_folder(USE, &path)?;
        if name.len() + 1 + SOCKET_NAME_BYTES > SOCKET_BYTES_MAX {
            let cause = "the path is too long for sockets in it".to_owned();
            return refused(Code::NameTooLong, cause);
        }
        Ok(Self { path })
    }

    /// The same, made if it isn't there.
    ///
    /// # Errors
    /// As [`Self::open`], or it can't be made.
    pub(super) fn make() -> Result<Self, Fault> {
        if let Some(path) = state::agent() {
            trusted::make_folder(USE, &path)?;
        }
        Self::open()
    }

    /// The socket at which commands ask.
    pub(super) fn socket(&self) -> PathBuf {
        self.path.join("agent.sock")
    }

    /// A file that an agent has locked while it runs.
    pub(super) fn lock(&self) -> PathBuf {
        self.path.join("agent.lock")
    }

    /// The socket of the server of one command.
    pub(super) fn numbered(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number}.sock"))
    }

    /// Removes the sockets that an agent left when it was killed.
    ///
    /// # Errors
    /// The directory can't be read, or one can't be removed.
    pub(super) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "sock") {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Longest name of a socket there.
const SOCKET_NAME_BYTES: usize = "18446744073709551615.sock".len();

/// Checks that the process at the other end belongs to this user.
///
/// # Errors
/// It doesn't, or the system doesn't say.
#[cfg(target_os = "linux")]
pub(super) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    if peer.uid == geteuid() {
        return Ok(());
    }
    let text = format!("the other end belongs to user {}", peer.uid.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Elsewhere the directory is all there is.
#[cfg(not(target_os = "linux"))]
pub(super) fn check_peer(_: &UnixStream) -> io::Result<()> {
    Ok(())
}
