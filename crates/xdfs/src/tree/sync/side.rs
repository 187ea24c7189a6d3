//! A side of a synchronisation as the comparison sees it: a tree that can be looked at, and
//! nothing else.

use xdfs_proto::{Code, DigestKind, DigestValue, Fault};
use xdfs_store::{LocalStore, Store as _};

use super::super::join;
use crate::client::Client;
use crate::paths::{Answer, Attributes, Call, Entry, Listing, PendingCall};

/// A tree, here or on the server. Only calls that change nothing go through it.
pub(super) struct Side<'a> {
    place: Place<'a>,
    root: Vec<u8>,
}

enum Place<'a> {
    Here(LocalStore),
    There(&'a Client),
}

/// A question that was asked. One about this machine is answered when somebody waits.
pub(super) enum Asked<'a> {
    Here(&'a LocalStore, Call),
    There(PendingCall),
    Names(Listing),
    Refused(Fault),
}

impl Asked<'_> {
    pub(super) fn wait(self) -> Result<Answer, Fault> {
        match self {
            Self::Here(store, call) => {
                let mut names = Vec::new();
                let answer = store.call(&call, &mut |part| {
                    if let Answer::Entries { entries, .. } = part {
                        names.extend(entries);
                    }
                    Ok(())
                })?;
                Ok(match answer {
                    Answer::Entries { entries, cursor } => {
                        names.extend(entries);
                        let entries = names;
                        Answer::Entries { entries, cursor }
                    }
                    answer => answer,
                })
            }
            Self::There(call) => call.wait(),
            Self::Names(listing) => Ok(Answer::Entries {
                entries: listing.collect::<Result<_, _>>()?,
                cursor: None,
            }),
            Self::Refused(fault) => Err(fault),
        }
    }
}

pub(super) fn odd_answer() -> Fault {
    let cause = "the answer isn't one to the question";
    Fault::new(Code::ProtocolViolation, "compare trees", cause)
}

impl<'a> Side<'a> {
    pub(super) fn here(root: Vec<u8>) -> Self {
        let place = Place::Here(LocalStore::unrooted());
        Self { place, root }
    }

    pub(super) fn there(client: &'a Client, root: Vec<u8>) -> Self {
        let place = Place::There(client);
        Self { place, root }
    }

    pub(super) fn is_remote(&self) -> bool {
        matches!(self.place, Place::There(_))
    }

    pub(super) fn root(&self) -> &[u8] {
        &self.root
    }

    fn ask(&self, call: Call) -> Asked<'_> {
        if !call.is_read_only() {
            let cause = "a comparison changes nothing";
            return Asked::Refused(Fault::new(Code::Internal, call.operation(), cause));
        }
        match &self.place {
            Place::Here(store) => Asked::Here(store, call),
            Place::There(client) => client
                .start_call(call)
                .map_or_else(Asked::Refused, Asked::There),
        }
    }

    /// What the root is; `None` if there is nothing.
    pub(super) fn look(&self) -> Result<Option<Attributes>, Fault> {
        let call = Call::Stat {
            path: self.root.clone(),
            follow: true,
        };
        match self.ask(call).wait() {
            Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Err(odd_answer()),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Asks for the names in a directory.
    pub(super) fn start_list(&self, path: &[u8]) -> Asked<'_> {
        let path = join(&self.root, path);
        match &self.place {
            Place::Here(store) => Asked::Here(
                store,
                Call::List {
                    path,
                    cursor: Vec::new(),
                    entries_max: u32::MAX,
                },
            ),
            Place::There(client) => Asked::Names(client.list(&path).begin()),
        }
    }

    /// The names in a directory, in the order of their bytes.
    pub(super) fn names(asked: Asked<'_>) -> Result<Vec<Entry>, Fault> {
        let Answer::Entries {
            entries: mut names,
            cursor: None,
        } = asked.wait()?
        else {
            return Err(odd_answer());
        };
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // What was made again while it was listed may come twice.
        names.dedup_by(|a, b| a.name == b.name);
        Ok(names)
    }

    /// Asks what stands under a path.
    pub(super) fn start_look(&self, path: &[u8]) -> Asked<'_> {
        self.ask(Call::Stat {
            path: join(&self.root, path),
            follow: false,
        })
    }

    /// Asks what a symbolic link says.
    pub(super) fn start_read_link(&self, path: &[u8]) -> Asked<'_> {
        let path = join(&self.root, path);
        self.ask(Call::ReadLink { path })
    }

    /// Asks for the digest of a file.
    pub(super) fn start_digest(&self, path: &[u8], kind: DigestKind) -> Asked<'_> {
        self.ask(Call::Checksum {
            path: join(&self.root, path),
            offset: 0,
            length: None,
            kind,
        })
    }
}

/// What is compared of the content of two entries of the same size.
#[derive(PartialEq)]
pub(super) enum Essence {
    Link(Vec<u8>),
    File(DigestValue, u64),
}

/// What an answer says of the content.
pub(super) fn essence(answer: Answer) -> Result<Essence, Fault> {
    match answer {
        Answer::Target(target) => Ok(Essence::Link(target)),
        Answer::Digest { value, length } => Ok(Essence::File(value, length)),
        _ => Err(odd_answer()),
    }
}
