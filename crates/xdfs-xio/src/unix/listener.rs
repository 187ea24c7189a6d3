//! Passive opens over Unix sockets, and the life cycle of the socket file.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mio::Interest;
use mio::net;
use socket2::{Domain, SockAddr, SockRef, Socket, Type};
use xdfs_sys::poll::{Poller, Token};

use super::stream::UnixStream;
use crate::endpoint::Endpoint;
use crate::socket::BACKLOG;
use crate::stream::{Listener, Stream};

/// Listens at a socket file, and removes the file when dropped.
///
/// The stale file of a dead server is replaced; a file with a live server, or that is no socket, is
/// not touched. If two servers replace a stale file at the same moment, the later one gets the
/// name.
#[derive(Debug)]
pub struct UnixListener {
    inner: net::UnixListener,
    path: PathBuf,
    /// Identity of the created file: one that belongs to another server by now is not removed.
    /// `None` if another program has created it.
    made: Option<(u64, u64)>,
}

impl UnixListener {
    /// Creates the socket file at `path` and listens there.
    ///
    /// # Errors
    /// The path is in use, is another kind of file, is too long for a socket, or its folder isn't
    /// writable.
    pub fn listen(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::unix(path)?)?;
        // Before `listen` nobody can connect, so there is no moment with wider permissions.
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let made = Some(identity(&fs::symlink_metadata(path)?));
        socket.listen(BACKLOG)?;
        let inner = net::UnixListener::from_std(socket.into());
        Ok(Self {
            inner,
            path: path.to_owned(),
            made,
        })
    }

    /// Listens on a socket that is open already, and whose file somebody else removes.
    pub(super) fn adopt(socket: std::os::unix::net::UnixListener) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let path = address
            .as_pathname()
            .unwrap_or_else(|| Path::new(""))
            .to_owned();
        socket.set_nonblocking(true)?;
        SockRef::from(&socket).listen(BACKLOG)?;
        Ok(Self {
            inner: net::UnixListener::from_std(socket),
            path,
            made: None,
        })
    }
}

impl Listener for UnixListener {
    fn accept(&mut self) -> io::Result<Box<dyn Stream>> {
        loop {
            match self.inner.accept() {
                Ok((stream, _)) => return Ok(Box::new(UnixStream::accepted(stream, &self.path))),
                Err(e) if is_passing(&e) => {}
                Err(e) => return Err(e),
            }
        }
    }

    fn register(&mut self, poller: &mut Poller, token: Token) -> io::Result<()> {
        poller
            .registry()
            .register(&mut self.inner, mio::Token(token.0), Interest::READABLE)
    }

    fn local_endpoint(&self) -> Endpoint {
        Endpoint::unix(self.path.as_path())
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|m| Some(identity(&m)) == self.made);
        if ours {
            // The next server will find a leftover file stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(metadata: &fs::Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Whether the error concerns only one connection or a signal, so that accepting can continue.
fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

/// Removes a stale socket file.
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(in_use("a file that is not a socket exists at the address"));
        }
        Ok(_) => {}
    }
    // The kernel refuses connections to a socket file without a server. Any other result, a full
    // queue among them, means that there may be one.
    match net::UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(e),
        _ => Err(in_use("another server listens at the address")),
    }
}

fn in_use(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_owners_alone_and_goes_with_the_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::listen(&path).unwrap();
        assert_eq!(
            fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_servers_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let _listener = UnixListener::listen(&path).unwrap();
        UnixStream::open(&path).unwrap();
    }

    #[test]
    fn a_living_servers_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let _first = UnixListener::listen(&path).unwrap();
        let second = UnixListener::listen(&path).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        UnixStream::open(&path).unwrap();
    }

    #[test]
    fn another_kind_of_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        fs::write(&path, "precious").unwrap();
        assert_eq!(
            UnixListener::listen(&path).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_name_taken_over_by_another_server_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = UnixListener::listen(&path).unwrap();
        fs::rename(&path, folder.path().join("old")).unwrap();
        let _second = UnixListener::listen(&path).unwrap();
        drop(first);
        UnixStream::open(&path).unwrap();
    }
}
