//! The audit log: one line of JSON per event.
//!
//! An [`Audit`] appends [`Event`]s to a file that only its owner may read. A line is one write of
//! at most [`LINE_BYTES_MAX`], so that lines of several programs don't mix. If the file was renamed
//! (by log rotation) or removed, a new one is created; this is checked at most once a second.
//!
//! Events contain no secrets. In text from peers, bytes that aren't UTF-8, control characters and
//! backslashes are escaped, so a line is always valid text, and a single line.
//!
//! A line that can't be written is counted and dropped: a full disk doesn't stop the server.
//!
//! Each event is also a line of the program's log (see `log`), with or without a file.
//!
//! Unauthenticated peers can cause refusals at any rate. The first is written, and similar ones are
//! counted for a minute ([`Audit::record_refusal`]): then a line with the count as `repeats` is
//! written. Everything that was allowed gets a line of its own.

mod line;
mod log;
mod repeats;
#[cfg(test)]
mod tests;
mod time;

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use xdfs_crowd::Network;
use xdfs_proto::{Code, Fault, SessionId};
use xdfs_sys::ids::effective_user;

use crate::Method;

use repeats::Repeats;

pub use line::LINE_BYTES_MAX;

/// Minimum interval between checks of the file's name.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum interval between warnings about failed writes.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

const OPEN: &str = "open the audit file";

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A peer was authenticated, or failed to be.
    Authenticate,
    /// A peer changed names or attributes.
    Change,
    /// A file opened by a peer was closed.
    Close,
    /// A peer connected.
    Connect,
    /// A peer disconnected.
    Disconnect,
    /// A file was sent to the peer.
    Download,
    /// A peer opened a file for access in place.
    Open,
    /// Something was refused.
    Refuse,
    /// A session began or ended.
    Session,
    /// The server started.
    Start,
    /// The server stopped.
    Stop,
    /// A peer had the server copy a file with another one, or issue a capability for that.
    ThirdParty,
    /// A peer got a tunnel.
    Tunnel,
    /// A tunnel has ended.
    TunnelEnd,
    /// A file came from the peer.
    Upload,
}

impl Kind {
    /// The name of the kind in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Authenticate => "authenticate",
            Self::Change => "change",
            Self::Close => "close",
            Self::Connect => "connect",
            Self::Disconnect => "disconnect",
            Self::Download => "download",
            Self::Open => "open",
            Self::Refuse => "refuse",
            Self::Session => "session",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::ThirdParty => "third-party",
            Self::Tunnel => "tunnel",
            Self::TunnelEnd => "tunnel-end",
            Self::Upload => "upload",
        }
    }
}

/// An event. Fields that are `None` or empty are omitted.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// The time; it also serves as the clock of the audit log.
    pub time: SystemTime,
    /// The kind.
    pub kind: Kind,
    /// The front door used by the peer; empty for that of the server's own protocol.
    pub door: &'static str,
    /// The user's name on this server.
    pub user: &'a str,
    /// The authentication method.
    pub method: Option<Method>,
    /// The fingerprint of the key that the peer has shown; empty without one.
    pub key: &'a str,
    /// The subject of the certificate by which the peer has logged in; empty without one.
    pub subject: &'a str,
    /// The address of the peer.
    pub from: &'a str,
    /// The operation of a change, and what was wanted of the target of a tunnel.
    pub operation: &'a str,
    /// The path as given by the peer, or the target of a tunnel.
    pub path: &'a [u8],
    /// The second path of a change: the new path, or the target of a link.
    pub to: &'a [u8],
    /// Bytes moved; for a closed file, bytes read; for a tunnel, bytes sent to the peer.
    pub bytes: Option<u64>,
    /// Number of entries in a pack.
    pub entries: Option<u64>,
    /// Number of entries of a pack that failed.
    pub failed: Option<u64>,
    /// Bytes written to a closed file, or sent to the target of a tunnel.
    pub written: Option<u64>,
    /// Time from the opening to the end of a file that was moved, or of a tunnel.
    pub elapsed: Option<Duration>,
    /// The code of the failure; `None` for success.
    pub result: Option<Code>,
    /// The session.
    pub session: Option<SessionId>,
    /// Number of similar refusals since the first one was written.
    pub repeats: Option<u64>,
}

impl Event<'_> {
    /// An event with only a time and a kind.
    #[must_use]
    pub fn new(time: SystemTime, kind: Kind) -> Self {
        Self {
            time,
            kind,
            door: "",
            user: "",
            method: None,
            key: "",
            subject: "",
            from: "",
            operation: "",
            path: b"",
            to: b"",
            bytes: None,
            entries: None,
            failed: None,
            written: None,
            elapsed: None,
            result: None,
            session: None,
            repeats: None,
        }
    }
}

/// An audit log.
#[derive(Debug)]
pub struct Audit {
    file: Option<Mutex<Output>>,
    repeats: Mutex<Repeats>,
    failures: AtomicU64,
}

impl Audit {
    /// Opens the file at `path` for appending, creating it for its owner only if necessary.
    ///
    /// # Errors
    /// A fault that names the path: it can't be opened, or isn't a regular file.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let file = open(path).map_err(|error| {
            let path = path.as_os_str().as_encoded_bytes();
            Fault::from_io(OPEN, path, &error)
        })?;
        let output = Output {
            path: path.to_owned(),
            file,
            opened_as: effective_user(),
            looked: None,
            complained: None,
            is_torn: false,
        };
        Ok(Self {
            file: Some(Mutex::new(output)),
            repeats: Mutex::default(),
            failures: AtomicU64::new(0),
        })
    }

    /// Checks that [`open`](Self::open) would succeed, without creating anything.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn check(path: &Path) -> Result<(), Fault> {
        let fault = |path: &Path, error: io::Error| {
            Fault::from_io(OPEN, path.as_os_str().as_encoded_bytes(), &error)
        };
        match std::fs::metadata(path) {
            Ok(_) => open(path).map(drop).map_err(|e| fault(path, e)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|f| !f.as_os_str().is_empty());
                let folder = folder.unwrap_or_else(|| Path::new("."));
                let found = std::fs::read_dir(folder).map(drop);
                found.map_err(|e| fault(folder, e))
            }
            Err(error) => Err(fault(path, error)),
        }
    }

    /// No file: events are only in the program's log.
    #[must_use]
    pub fn none() -> Self {
        Self {
            file: None,
            repeats: Mutex::default(),
            failures: AtomicU64::new(0),
        }
    }

    /// Writes an event. Failures are counted, and logged at most once a minute.
    pub fn record(&self, event: &Event<'_>) {
        self.write_repeats(Some(event.time));
        self.write(event);
    }

    /// Writes that a peer at `address` was refused, or counts it if a similar refusal was written
    /// less than a minute ago.
    pub fn record_refusal(&self, event: &Event<'_>, address: IpAddr) {
        self.write_repeats(Some(event.time));
        if self.repeats().note(event, Network::of(address)) {
            self.write(event);
        }
    }

    /// Writes the counts whose minute is over at `now`. Every event does so too; this is for times
    /// without events.
    pub fn tick(&self, now: SystemTime) {
        self.write_repeats(Some(now));
    }

    fn write_repeats(&self, now: Option<SystemTime>) {
        let runs = self.repeats().take(now);
        runs.iter().for_each(|run| self.write(&run.event()));
    }

    fn repeats(&self) -> MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, event: &Event<'_>) {
        log::log(event);
        let Some(file) = &self.file else { return };
        let line = line::encode(event);
        let mut output = file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = output.write(&line, event.time) {
            let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            output.complain(&error, failures, event.time);
        }
    }

    /// Number of events that could not be written.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.write_repeats(None);
    }
}

/// An open file and its expected name.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    file: File,
    /// The user who opened it.
    opened_as: Option<u32>,
    looked: Option<SystemTime>,
    complained: Option<SystemTime>,
    /// The last line is incomplete.
    is_torn: bool,
}

impl Output {
    fn write(&mut self, line: &[u8], now: SystemTime) -> io::Result<()> {
        // A thread with the ids of an account writes to the open file. It must not create a new one
        // after a rotation, since that would belong to the account.
        let may_open = self.opened_as == effective_user();
        if may_open && is_due(self.looked, now, LOOK_INTERVAL) {
            if !self.is_named()? {
                self.file = open(&self.path)?;
                self.is_torn = false;
            }
            // Not before: without the file every line would count as a failure.
            self.looked = Some(now);
        }
        let ended;
        let line = if self.is_torn {
            ended = [b"\n", line].concat();
            &ended
        } else {
            line
        };
        // One call, without writing the rest after a short write: lines of other programs could
        // come between.
        let written = loop {
            match self.file.write(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        if written < line.len() {
            self.is_torn |= written > 0;
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.is_torn = false;
        Ok(())
    }

    /// Whether the open file still has its name.
    fn is_named(&self) -> io::Result<bool> {
        match std::fs::metadata(&self.path) {
            Ok(named) => Ok(is_same(&named, &self.file.metadata()?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn complain(&mut self, error: &io::Error, failures: u64, now: SystemTime) {
        if is_due(self.complained, now, COMPLAINT_INTERVAL) {
            self.complained = Some(now);
            let path = self.path.as_os_str().as_encoded_bytes().escape_ascii();
            tracing::error!(%path, %error, failures, "the audit file can't be written");
        }
    }
}

/// Whether `interval` has passed since `last`, or the clock was set back.
fn is_due(last: Option<SystemTime>, now: SystemTime, interval: Duration) -> bool {
    last.and_then(|last| now.duration_since(last).ok())
        .is_none_or(|since| since >= interval)
}

fn open(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for a reader.
    if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let cause = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
    }
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)
}

#[cfg(unix)]
fn is_same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// On other systems an open file can't be renamed.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}
