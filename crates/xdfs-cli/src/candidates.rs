//! The names in a directory from which a path is completed, in `xdfs shell` ([`crate::shell`]) and
//! in the shells of the system ([`crate::complete`]).
//!
//! A completion must not block the prompt for long: listings have bounds on time and number of
//! names, and whoever asks a server does it [`within`] a time.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs::{Answer, Call, Client, Entry, FileKind};

/// Longest duration of a listing.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Most names read from a directory.
const NAMES_MAX: usize = 100_000;

/// A possible completion of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) bytes: Vec<u8>,
    pub(crate) kind: FileKind,
}

/// The names in a directory.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) names: Vec<Name>,
    /// Whether the directory was read to its end.
    pub(crate) is_whole: bool,
}

impl Listed {
    /// Reads names up to the bounds, or to the first that can't be read.
    pub(crate) fn read<E>(names: impl Iterator<Item = Result<Name, E>>) -> Self {
        let until = Instant::now() + PATIENCE;
        let mut listed = Self::default();
        for name in names {
            let Ok(name) = name else {
                return listed;
            };
            if listed.names.len() == NAMES_MAX || Instant::now() > until {
                return listed;
            }
            listed.names.push(name);
        }
        listed.is_whole = true;
        listed
    }

    /// The names in a directory of a server.
    pub(crate) fn on_server(client: &Client, directory: &[u8]) -> Self {
        let name = |Entry { name, attributes }| Name {
            bytes: name,
            kind: attributes.kind,
        };
        Self::read(client.list(directory).map(|entry| entry.map(name)))
    }

    /// The names with this prefix, in order; hidden ones only if the prefix starts with a dot.
    pub(crate) fn matching(&self, begin: &[u8]) -> Vec<Name> {
        let fits = |name: &&Name| {
            name.bytes.starts_with(begin)
                && (begin.starts_with(b".") || !name.bytes.starts_with(b"."))
        };
        let mut names: Vec<Name> = self.names.iter().filter(fits).cloned().collect();
        names.sort_by(|a, b| a.bytes.cmp(&b.bytes));
        names
    }
}

/// The kind of what a path on a server leads to; that of a link if it leads nowhere.
pub(crate) fn kind_on_server(client: &Client, path: Vec<u8>) -> FileKind {
    match client.call(Call::Stat { path, follow: true }) {
        Ok(Answer::Attributes(found)) => found.kind,
        _ => FileKind::Symlink,
    }
}

/// Runs `act` in a separate thread; `None` if it takes longer than a completion may, in all less
/// than two seconds. It then goes on alone.
pub(crate) fn within<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (sender, end) = mpsc::channel();
    let work = move || {
        let answer = act();
        // The receiver may have timed out.
        let _ = sender.send(answer);
    };
    let thread = thread::Builder::new().name("xdfs-complete".into());
    thread.spawn(work).ok()?;
    // Accept a result that is slightly late.
    end.recv_timeout(PATIENCE + PATIENCE / 4).ok()
}
