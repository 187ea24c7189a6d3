//! One directory of this machine or of a server, for people who choose what to copy.
//!
//! It is read with the same rights as the source of a job of the user who asks. The number of
//! entries, of directories that are read at a time, and the time that a request waits are bounded.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use xdfs::{Attributes, Code, Fault, FileKind, JobPlace, RemotePlace};

use crate::secret::Keyring;
use crate::sessions::{Sessions, TransferSessions};
use crate::time::Time;
use crate::whose::{Whose, check_server_of_user};

const OPERATION: &str = "browse";
/// Most entries of an answer.
const ENTRIES_MAX: usize = 5000;
/// Most characters of a directory that is named.
pub(crate) const PLACE_LENGTH_MAX: usize = 4096;
/// Most directories that are read at the same time. One on a server that doesn't answer takes a
/// thread until the session gives up.
const READ_MAX: usize = 16;
/// Longest time that a request waits.
const PATIENCE: Duration = Duration::from_secs(20);
const NANOSECONDS: i64 = 1000;

/// A directory and its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlaceListing {
    /// The directory, as a place of a transfer.
    pub at: String,
    /// The directory that it is in; none of the root.
    pub parent: Option<String>,
    /// Directories first, each kind by name.
    pub entries: Vec<PlaceEntry>,
    /// Whether these are all. A directory with more than 5000 entries isn't read to its end.
    pub is_complete: bool,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlaceEntry {
    /// The name. Bytes that aren't UTF-8 are replaced.
    pub name: String,
    /// The entry, as a place of a transfer.
    pub at: String,
    /// Its kind; a symbolic link isn't followed.
    pub kind: PlaceKind,
    /// Bytes of the content of a file.
    pub size: Option<u64>,
    /// The last change of the content, if that is known.
    pub modified_at: Option<Time>,
}

/// The kind of an entry.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum PlaceKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Other,
}

/// Reads directories.
#[derive(Debug)]
pub(crate) struct Places {
    sessions: Arc<Sessions>,
    reads: Arc<Semaphore>,
}

impl Places {
    pub(crate) fn new(sessions: Arc<Sessions>) -> Self {
        Self {
            sessions,
            reads: Arc::new(Semaphore::new(READ_MAX)),
        }
    }

    /// Reads a directory.
    ///
    /// # Errors
    /// The place is none, or no directory; it can't be read or isn't read in time; or too many are
    /// read already.
    pub(crate) async fn list(&self, at: &str, keyring: Keyring) -> Result<PlaceListing, Fault> {
        if at.chars().count() > PLACE_LENGTH_MAX {
            let cause = format!("it has more than {PLACE_LENGTH_MAX} characters");
            return Err(Fault::new(Code::InvalidArgument, "use the parameter", cause).path("at"));
        }
        let place: JobPlace = at.parse()?;
        let permit = Arc::clone(&self.reads).try_acquire_owned().map_err(|_| {
            let cause = "too many directories are read at this moment";
            Fault::new(Code::Busy, OPERATION, cause).path(at)
        })?;
        let sessions = Arc::clone(&self.sessions);
        let read = spawn_blocking(move || {
            // Held as long as the thread is, which may be longer than the request.
            let _permit = permit;
            list(sessions, &place, keyring)
        });
        match timeout(PATIENCE, read).await {
            Ok(Ok(listing)) => listing,
            Ok(Err(error)) => Err(Fault::new(Code::Internal, OPERATION, error.to_string())),
            Err(_) => {
                let cause = format!("it didn't answer for {} seconds", PATIENCE.as_secs());
                Err(Fault::new(Code::DeadlineExceeded, OPERATION, cause).path(at))
            }
        }
    }
}

fn list(
    sessions: Arc<Sessions>,
    place: &JobPlace,
    keyring: Keyring,
) -> Result<PlaceListing, Fault> {
    match place {
        JobPlace::Local(_) if keyring.whose != Whose::Own => {
            let cause = "only administrators may read files of the service's own machine";
            Err(Fault::new(Code::PermissionDenied, OPERATION, cause).path(text(place)?))
        }
        JobPlace::Local(path) if path.is_absolute() => local(place, path),
        JobPlace::Server(server) => remote(sessions, server, keyring),
        _ => {
            let cause = "it is neither a URL nor an absolute path";
            Err(Fault::new(Code::InvalidArgument, OPERATION, cause).path(text(place)?))
        }
    }
}

/// The text of a place in a transfer.
fn text(place: &JobPlace) -> Result<String, Fault> {
    match serde_json::to_value(place) {
        Ok(serde_json::Value::String(text)) => Ok(text),
        _ => {
            let cause = "the place has no text";
            Err(Fault::new(Code::InvalidArgument, OPERATION, cause))
        }
    }
}

fn local(place: &JobPlace, path: &std::path::Path) -> Result<PlaceListing, Fault> {
    let failed =
        |error: std::io::Error| Fault::from_io("list", path.as_os_str().as_encoded_bytes(), &error);
    let mut entries = Vec::new();
    let mut read = fs::read_dir(path).map_err(failed)?;
    for entry in read.by_ref().take(ENTRIES_MAX) {
        let entry = entry.map_err(failed)?;
        // One that has gone meanwhile.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => PlaceKind::Directory,
            kind if kind.is_file() => PlaceKind::File,
            kind if kind.is_symlink() => PlaceKind::Link,
            _ => PlaceKind::Other,
        };
        let modified = metadata.modified().ok();
        let modified = modified.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let modified = modified.and_then(|since| i64::try_from(since.as_micros()).ok());
        entries.push(PlaceEntry {
            name: entry.file_name().to_string_lossy().into_owned(),
            at: text(&JobPlace::Local(entry.path()))?,
            kind,
            size: (kind == PlaceKind::File).then_some(metadata.len()),
            modified_at: modified.map(Time::from_microseconds),
        });
    }
    let parent = path.parent().map(|parent| JobPlace::Local(parent.into()));
    let is_complete = read.next().is_none();
    Ok(sorted(PlaceListing {
        at: text(place)?,
        parent: parent.as_ref().map(text).transpose()?,
        entries,
        is_complete,
    }))
}

fn remote(
    sessions: Arc<Sessions>,
    server: &RemotePlace,
    keyring: Keyring,
) -> Result<PlaceListing, Fault> {
    // `xdfs://host` and `xdfs://host/` are the same directory.
    let server = match server.path.is_empty() {
        true => server.at(b"/".to_vec()),
        false => server.clone(),
    };
    if keyring.whose != Whose::Own {
        check_server_of_user(&server)?;
    }
    let sessions = TransferSessions::of(sessions, keyring);
    let client = sessions.get(&server)?;
    let mut entries = Vec::new();
    let mut listing = client.list(&server.path);
    for entry in listing.by_ref().take(ENTRIES_MAX) {
        let xdfs::Entry { name, attributes } = entry?;
        let at = child(&server, &name);
        entries.push(entry_of(&name, text(&JobPlace::Server(at))?, &attributes));
    }
    let is_complete = listing.next().is_none();
    let parent = parent(&server).map(JobPlace::Server);
    Ok(sorted(PlaceListing {
        at: text(&JobPlace::Server(server))?,
        parent: parent.as_ref().map(text).transpose()?,
        entries,
        is_complete,
    }))
}

fn entry_of(name: &[u8], at: String, attributes: &Attributes) -> PlaceEntry {
    let kind = match attributes.kind {
        FileKind::Directory => PlaceKind::Directory,
        FileKind::File => PlaceKind::File,
        FileKind::Symlink => PlaceKind::Link,
        _ => PlaceKind::Other,
    };
    let modified = attributes.mtime().map(|time_ns| time_ns / NANOSECONDS);
    PlaceEntry {
        name: String::from_utf8_lossy(name).into_owned(),
        at,
        kind,
        size: (kind == PlaceKind::File).then_some(attributes.size),
        modified_at: modified.map(Time::from_microseconds),
    }
}

/// An entry of a directory on a server.
fn child(directory: &RemotePlace, name: &[u8]) -> RemotePlace {
    let mut path = directory.url_path();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    directory.at(path)
}

/// The directory that one on a server is in.
fn parent(directory: &RemotePlace) -> Option<RemotePlace> {
    let path = directory.url_path();
    let end = path.iter().rposition(|byte| *byte != b'/')?;
    let slash = path[..=end].iter().rposition(|byte| *byte == b'/')?;
    // The home of a user of ssh is where its URLs begin.
    (path[..=end] != *b"/~").then(|| directory.at(path[..slash.max(1)].to_vec()))
}

fn sorted(mut listing: PlaceListing) -> PlaceListing {
    listing
        .entries
        .sort_by(|a, b| (a.kind, &a.name, &a.at).cmp(&(b.kind, &b.name, &b.at)));
    listing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> RemotePlace {
        url.parse().unwrap_or_else(|fault| panic!("{url}: {fault}"))
    }

    #[test]
    fn a_directory_on_a_server_has_entries_and_a_parent() {
        for (directory, above) in [
            ("xdfs://h/", None),
            ("xdfs://h/a", Some("xdfs://h/")),
            ("xdfs://h/a/b/", Some("xdfs://h/a")),
        ] {
            assert_eq!(parent(&place(directory)), above.map(place), "{directory}");
        }
        for (directory, name, url) in [
            ("xdfs://h/", "a b", "xdfs://h/a%20b"),
            ("xdfs://h/a/", "?", "xdfs://h/a/%3F"),
            ("xdfs://h/a", "100%", "xdfs://h/a/100%25"),
        ] {
            let entry = child(&place(directory), name.as_bytes());
            assert_eq!(entry, place(url), "{directory} {name}");
        }
    }

    #[test]
    fn other_users_read_neither_files_nor_by_credentials_of_the_owner() {
        for text in ["/", "ssh://localhost/", "xdfs+unix://%2Ftmp%2Fs/"] {
            let place = text.parse().unwrap_or_else(|fault| panic!("{fault}"));
            let whose = Whose::User("ada".to_owned());
            let mut user = Keyring::own();
            user.whose = whose;
            let listed = list(Arc::new(Sessions::of_user()), &place, user);
            let code = listed.err().map(|fault| fault.code);
            assert_eq!(code, Some(Code::PermissionDenied), "{text}");
        }
    }

    #[test]
    fn directories_of_this_machine_are_listed_with_all_that_is_in_them() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path();
        assert!(fs::create_dir(path.join("z")).is_ok());
        assert!(fs::write(path.join("a"), "four").is_ok());
        let sessions = || Arc::new(Sessions::of_user());
        let here = JobPlace::Local(path.to_owned());
        let listing =
            list(sessions(), &here, Keyring::own()).unwrap_or_else(|fault| panic!("{fault}"));
        let seen: Vec<_> = listing
            .entries
            .iter()
            .map(|entry| (entry.name.as_str(), entry.kind, entry.size))
            .collect();
        let expected = [
            ("z", PlaceKind::Directory, None),
            ("a", PlaceKind::File, Some(4)),
        ];
        assert_eq!(seen, expected);
        assert!(listing.is_complete && listing.entries[1].modified_at.is_some());
        let above = path.parent().map(|parent| parent.display().to_string());
        assert_eq!(listing.parent, above);
        let missing = JobPlace::Local(path.join("none"));
        let code = list(sessions(), &missing, Keyring::own())
            .err()
            .map(|fault| fault.code);
        assert_eq!(code, Some(Code::NotFound));
        for text in ["relative", "-", "mem:"] {
            let place = text.parse().unwrap_or_else(|fault| panic!("{fault}"));
            let code = list(sessions(), &place, Keyring::own())
                .err()
                .map(|fault| fault.code);
            assert_eq!(code, Some(Code::InvalidArgument), "{text}");
        }
    }
}
