//! Paths on either side, looked at by the same calls.

use std::ffi::OsStr;

use xdfs::{Answer, Attributes, Call, Code, Entry, Fault, Listing, PendingCall, call_local};

use super::calls::unexpected;
use super::command::PathCommand;
use super::operand::{Operand, join, last_part, text_of};
use super::walk::{LISTINGS_AHEAD, List, Walk, WalkEntry};
use crate::client::SharedClient;
use crate::place::Place;

/// The side of a path.
#[derive(Clone, Debug)]
pub(crate) enum PathSide {
    /// This machine.
    Local,
    /// A server.
    Remote(SharedClient),
}

/// A call in progress. A local one runs when its answer is waited for.
pub(crate) enum SideCall {
    Local(Call),
    Remote(Result<PendingCall, Fault>),
}

impl SideCall {
    /// Waits for the answer.
    ///
    /// # Errors
    /// As the call.
    pub(crate) fn wait(self) -> Result<Answer, Fault> {
        match self {
            Self::Local(call) => call_local(&call),
            Self::Remote(pending) => pending?.wait(),
        }
    }
}

impl PathSide {
    /// A fault about a path of this side.
    pub(crate) fn fault(&self, fault: Fault) -> Fault {
        match self {
            Self::Local => fault,
            Self::Remote(client) => client.client().fault_there(fault),
        }
    }

    /// Starts a call.
    pub(crate) fn start_call(&self, call: Call) -> SideCall {
        match self {
            Self::Local => SideCall::Local(call),
            Self::Remote(client) => SideCall::Remote(client.start_call(call)),
        }
    }
}

/// A listing in progress.
pub(crate) enum SideListing {
    Local(Vec<u8>),
    Remote(Box<Listing>),
}

impl List for PathSide {
    type Pending = SideListing;

    fn start(&self, path: &[u8]) -> SideListing {
        match self {
            Self::Local => SideListing::Local(path.to_vec()),
            Self::Remote(client) => SideListing::Remote(Box::new(client.start(path))),
        }
    }

    fn finish(&self, pending: SideListing, take: &mut dyn FnMut(Entry)) -> Result<(), Fault> {
        match pending {
            SideListing::Remote(mut listing) => listing.try_for_each(|entry| entry.map(&mut *take)),
            SideListing::Local(path) => {
                let call = Call::List {
                    path: path.clone(),
                    cursor: Vec::new(),
                    entries_max: u32::MAX,
                };
                let Answer::Entries { entries, .. } = call_local(&call)? else {
                    return Err(unexpected("list", &path));
                };
                entries.into_iter().for_each(take);
                Ok(())
            }
        }
    }
}

/// An operand on either side.
#[derive(Clone, Debug)]
pub(crate) struct SideOperand {
    /// The word, for messages.
    pub(crate) text: String,
    pub(crate) side: PathSide,
    /// The path, without trailing slashes; `/` if the URL names only the server.
    pub(crate) path: Vec<u8>,
}

impl SideOperand {
    /// An operand, with a session if it is on a server.
    ///
    /// # Errors
    /// It is no path, or the session can't be opened.
    pub(crate) fn open(command: &mut PathCommand, word: &OsStr) -> Result<Self, Fault> {
        let (side, path) = match Place::parse(command.config()?, word)? {
            Place::Remote(place) => {
                let operand = Operand::new(word, place);
                (PathSide::Remote(command.client(&operand)?), operand.path)
            }
            Place::Local(path) => {
                let path = without_slashes(path.as_os_str().as_encoded_bytes());
                (PathSide::Local, path.to_vec())
            }
            Place::Standard => {
                let cause = "standard input is not a path";
                return Err(Fault::new(Code::InvalidArgument, "read the path", cause)
                    .hint("name a file; one of this name is written ./-"));
            }
        };
        let text = text_of(word);
        Ok(Self { text, side, path })
    }

    /// Attributes of the path; links are followed.
    ///
    /// # Errors
    /// As the call.
    pub(crate) fn stat(&self) -> Result<Attributes, Fault> {
        let path = self.path.clone();
        match self
            .side
            .start_call(Call::Stat { path, follow: true })
            .wait()?
        {
            Answer::Attributes(attributes) => Ok(attributes),
            _ => Err(unexpected("look at", &self.path)),
        }
    }

    /// A sorted walk of the tree, whose root has these attributes.
    pub(crate) fn walk(&self, attributes: Attributes) -> Walk<'_, PathSide> {
        let start = WalkEntry {
            name: last_part(&self.path).to_vec(),
            path: self.path.clone(),
            attributes,
            depth: 0,
        };
        Walk::new(&self.side, start, u32::MAX, LISTINGS_AHEAD).sorted()
    }

    /// The name of an entry with this path relative to the root, as from where the command runs: a
    /// local tree has the path as it was written, and one on a server, of which a copy may be here,
    /// its last part.
    pub(crate) fn name_of(&self, relative: &[u8]) -> Vec<u8> {
        let root = match &self.side {
            PathSide::Local if self.path == b"." => b"",
            PathSide::Local => self.path.as_slice(),
            PathSide::Remote(_) => last_part(&self.path),
        };
        match (root, relative) {
            (b"", relative) => relative.to_vec(),
            (root, b"") => root.to_vec(),
            (root, relative) => join(root, relative),
        }
    }

    /// The path of an entry of the tree, relative to its root; empty for the root.
    pub(crate) fn relative<'p>(&self, path: &'p [u8]) -> &'p [u8] {
        let rest = path.get(self.path.len()..).unwrap_or_default();
        rest.strip_prefix(b"/").unwrap_or(rest)
    }
}

/// A path without trailing slashes, unless it is the root.
fn without_slashes(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&b| b != b'/') {
        Some(last) => &path[..=last],
        None => &path[..1],
    }
}
