//! A tree at one end, here or on the server: looked at, listed and changed by the same calls.
//!
//! What another end sent never leads out of a target here: such paths go by [`Namespace::at`] and
//! [`Namespace::start_beneath`]. Paths that the user named follow the ordinary rules.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use xdfs_proto::{Code, Fault};
use xdfs_store::tree_journal::Mark;
use xdfs_store::{LocalStore, Store as _, local};

use super::version::mark_of;
use crate::client::{Client, path_bytes};
use crate::paths::{Answer, Attributes, Call, Entry, FileKind, Listing, PendingCall, join};

/// Calls under way that ask about names.
pub(super) const CALLS_MAX: usize = 64;

/// One end of a tree.
pub(super) struct Namespace<'a> {
    /// The session with the server that has it; `None` for this machine.
    client: Option<&'a Client>,
    root: Vec<u8>,
    /// What is beneath a root here and nothing else, whatever links lead there.
    beneath: OnceLock<Arc<LocalStore>>,
}

/// A call that was made. One about this machine is carried out when somebody waits for it.
pub(super) enum Pending {
    Here(Arc<LocalStore>, Call),
    There(PendingCall),
    Names(Listing),
    Refused(Fault),
}

impl Pending {
    pub(super) fn wait(self) -> Result<Answer, Fault> {
        match self {
            Self::Here(store, call) => {
                let mut names = Vec::new();
                let mut answer = store.call(&call, &mut |part| {
                    if let Answer::Entries { entries, .. } = part {
                        names.extend(entries);
                    }
                    Ok(())
                })?;
                if let Answer::Entries { entries, .. } = &mut answer {
                    names.append(entries);
                    *entries = names;
                }
                Ok(answer)
            }
            Self::There(call) => call.wait(),
            Self::Names(listing) => Ok(Answer::Entries {
                entries: listing.collect::<Result<_, _>>()?,
                cursor: None,
            }),
            Self::Refused(fault) => Err(fault),
        }
    }

    /// What a question about a name is answered with; `None` if nothing has it.
    pub(super) fn found(self) -> LookedUp {
        match self.wait() {
            Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Err(odd_answer()),
            Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// What stands under a path, if anything.
pub(super) type LookedUp = Result<Option<Attributes>, Fault>;

/// A name that was found in a directory.
#[derive(Debug)]
pub(super) struct FoundName {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
    /// What a listing of the server said of it. Here it is asked for when somebody needs it.
    pub(super) attributes: Option<Attributes>,
}

impl FoundName {
    /// What a listing told.
    pub(super) fn listed(path: Vec<u8>, attributes: Attributes) -> Self {
        Self {
            path,
            is_directory: attributes.kind == FileKind::Directory,
            attributes: Some(attributes),
        }
    }
}

pub(super) fn odd_answer() -> Fault {
    let cause = "the answer does not fit the question";
    Fault::new(Code::ProtocolViolation, "look at a tree", cause).ending_session()
}

impl<'a> Namespace<'a> {
    /// A tree on this machine.
    pub(super) fn local(root: Vec<u8>) -> Self {
        Self {
            client: None,
            root,
            beneath: OnceLock::new(),
        }
    }

    /// A tree on the server.
    pub(super) fn remote(client: &'a Client, root: Vec<u8>) -> Self {
        Self {
            client: Some(client),
            ..Self::local(root)
        }
    }

    /// Another tree at the same end.
    pub(super) fn with_root(&self, root: Vec<u8>) -> Self {
        Self {
            client: self.client,
            ..Self::local(root)
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        self.client.is_some()
    }

    pub(super) fn root(&self) -> &[u8] {
        &self.root
    }

    /// The whole path of an entry.
    pub(super) fn path(&self, path: &[u8]) -> Vec<u8> {
        join(&self.root, path)
    }

    /// The path of an entry here, for the system.
    fn local_path(&self, path: &[u8]) -> PathBuf {
        // A name that this system can't have was not found on it.
        let whole = xdfs_sys::fs::path_from_bytes(&self.path(path));
        whole.unwrap_or_default()
    }

    /// Makes a call with whole paths.
    pub(super) fn start(&self, call: Call) -> Pending {
        match self.client {
            None => Pending::Here(Arc::new(LocalStore::unrooted()), call),
            Some(client) => client
                .start_call(call)
                .map_or_else(Pending::Refused, Pending::There),
        }
    }

    /// The path of an entry, as [`Self::start_beneath`] takes it.
    pub(super) fn at(&self, path: &[u8]) -> Vec<u8> {
        match self.client {
            Some(_) => self.path(path),
            None if path.is_empty() => b"/".to_vec(),
            None => path.to_vec(),
        }
    }

    /// Makes a call about what is beneath the root. No link leads out of a root here.
    pub(super) fn start_beneath(&self, call: Call) -> Pending {
        match self.client {
            Some(_) => self.start(call),
            None => match self.beneath() {
                Ok(store) => Pending::Here(store, call),
                Err(fault) => Pending::Refused(fault),
            },
        }
    }

    /// The root here as a store that no path leaves.
    pub(super) fn beneath(&self) -> Result<Arc<LocalStore>, Fault> {
        if let Some(store) = self.beneath.get() {
            return Ok(Arc::clone(store));
        }
        let root = xdfs_sys::fs::path_from_bytes(&self.root);
        let root = root.map_err(|e| Fault::from_io("open the target", &self.root, &e))?;
        let store = Arc::new(LocalStore::rooted(&root, false)?);
        Ok(Arc::clone(self.beneath.get_or_init(|| store)))
    }

    /// What stands under a whole path, if anything, links followed.
    pub(super) fn start_find(&self, path: &[u8]) -> Pending {
        self.start(Call::Stat {
            path: path.to_vec(),
            follow: true,
        })
    }

    /// What the root is; `None` if there is nothing.
    pub(super) fn find_root(&self) -> LookedUp {
        match self.start_find(&self.root).wait() {
            Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Err(odd_answer()),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// The root, which is a directory if there is anything. On the server that takes about
    /// `round_trip`.
    pub(super) fn find_directory(&self, round_trip: &mut Duration) -> LookedUp {
        let began = Instant::now();
        let root = self.find_root()?;
        if self.is_remote() {
            *round_trip = began.elapsed();
        }
        match &root {
            Some(root) if root.kind != FileKind::Directory => Err(self.not_a_directory()),
            _ => Ok(root),
        }
    }

    /// The fault of a root that is something else.
    pub(super) fn not_a_directory(&self) -> Fault {
        let fault = Fault::new(Code::NotDirectory, "copy a tree", "not a directory");
        let fault = fault.path(&self.root);
        match self.is_remote() {
            true => fault.remote(),
            false => fault,
        }
    }

    /// Makes the root, if it isn't there.
    pub(super) fn make_root(&self) -> Result<(), Fault> {
        let call = Call::MakeDirectory {
            path: self.root.clone(),
            mode: None,
            parents: true,
        };
        self.start(call).wait().map(|_| ())
    }

    /// Has everything in the root made durable.
    pub(super) fn start_sync(&self) -> Pending {
        let path = self.root.clone();
        self.start(Call::Sync { path })
    }

    /// Asks for the names in a directory.
    pub(super) fn start_list(&self, path: &[u8]) -> Pending {
        let path = self.path(path);
        match self.client {
            Some(client) => Pending::Names(client.list(&path).begin()),
            None => self.start(Call::List {
                path,
                cursor: Vec::new(),
                entries_max: u32::MAX,
            }),
        }
    }

    /// The names in a directory, in the order of their bytes.
    pub(super) fn names(asked: Pending) -> Result<Vec<Entry>, Fault> {
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

    /// Asks what stands under the path of an entry.
    pub(super) fn start_look(&self, path: &[u8]) -> Pending {
        self.start(Call::Stat {
            path: self.path(path),
            follow: false,
        })
    }

    /// What stands under the paths of entries, in their order. Many are asked for at once. No link
    /// leads out of a root here.
    pub(super) fn look_up<'p>(&self, paths: impl Iterator<Item = &'p [u8]>) -> Vec<LookedUp> {
        let mut found = Vec::new();
        let mut asked: VecDeque<Pending> = VecDeque::new();
        for path in paths {
            asked.push_back(self.start_beneath(Call::Stat {
                path: self.at(path),
                follow: false,
            }));
            if asked.len() >= CALLS_MAX {
                found.extend(asked.pop_front().map(Pending::found));
            }
        }
        found.extend(asked.into_iter().map(Pending::found));
        found
    }

    /// What is in a directory, as it comes. After an error nothing follows.
    pub(super) fn entries(
        &self,
        directory: &[u8],
    ) -> Box<dyn Iterator<Item = Result<FoundName, Fault>>> {
        let above = directory.to_vec();
        if let Some(client) = self.client {
            let listing = client.list(&self.path(directory));
            return Box::new(listing.map(move |entry| {
                let Entry { name, attributes } = entry?;
                Ok(FoundName::listed(join(&above, &name), attributes))
            }));
        }
        let failed = |directory: &[u8], error: &std::io::Error| {
            Fault::from_io("list a directory", directory, error)
        };
        match std::fs::read_dir(self.local_path(directory)) {
            Err(error) => Box::new(std::iter::once(Err(failed(directory, &error)))),
            Ok(entries) => Box::new(entries.map(move |entry| {
                let entry = entry.and_then(|e| Ok((e.file_type()?.is_dir(), e.file_name())));
                let (is_directory, name) = entry.map_err(|error| failed(&above, &error))?;
                let path = join(&above, &path_bytes(Path::new(&name)));
                Ok(FoundName {
                    path,
                    is_directory,
                    attributes: None,
                })
            })),
        }
    }

    /// What is known of an entry that was found here or on the server; `None` if it is gone.
    pub(super) fn attributes(&self, found: &FoundName) -> Option<Attributes> {
        let known = found.attributes.clone();
        known.or_else(|| self.local_attributes(&found.path))
    }

    /// What an entry that was found is known by in a journal.
    pub(super) fn mark(&self, found: &FoundName) -> Option<Mark> {
        mark_of(&self.attributes(found)?)
    }

    /// What the system here says of an entry. One call: a store would open its directory first.
    pub(super) fn local_attributes(&self, path: &[u8]) -> Option<Attributes> {
        // The user named the root: a link there is followed.
        local::look(&self.local_path(path), path.is_empty())
    }
}
