//! A tree on one side, local or on the server, read and changed by the same calls.
//!
//! Paths from the peer never lead out of a local target: they go through [`Namespace::at`] and
//! [`Namespace::start_beneath`]. Paths from the user are resolved as usual.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use xdfs_proto::{ChecksumKind, Code, Fault, Limits, Machine};
use xdfs_store::tree_journal::Mark;
use xdfs_store::{LocalStore, Traits, local};

use super::options::TreeOptions;
use super::session::{RemoteCall, RemoteEntries, TreeSession};
use super::version::mark_of;
use crate::between::{ServerFile, Way};
use crate::local_path::path_bytes;
use crate::paths::{
    Answer, Attributes, Call, Entry, FileKind, Listing, PendingCall, call_store, join,
};

/// Calls in flight that look up or change entries.
pub(super) const CALLS_MAX: usize = 64;

/// Checks that the path of an entry beneath the root can be sent: a longer one would be refused
/// together with all entries that are sent with it.
///
/// # Errors
/// [`Code::NameTooLong`].
pub(super) fn check_length(path: &[u8]) -> Result<(), Fault> {
    let most = Limits::default().path_bytes_max;
    if path.len() <= most {
        return Ok(());
    }
    let cause = format!("its path in the tree has more than {most} bytes");
    let fault = Fault::new(Code::NameTooLong, "copy", cause).path(path);
    Err(fault.hint("copy a directory further down by itself"))
}

/// One side of a tree copy.
pub(super) struct Namespace<'a> {
    /// The session with the server; `None` for a local tree.
    session: Option<&'a TreeSession<'a>>,
    /// How its files get to another server; `None` if they go to this machine or come from it.
    origin: Option<&'a ServerFile>,
    root: Vec<u8>,
    /// Symbolic links in it are followed.
    follows: bool,
    /// Store confined to the local root, whatever links lead out of it.
    beneath: OnceLock<Arc<LocalStore>>,
    /// A listing of the root that nobody has read yet, and the number of its session.
    begun: Mutex<Option<(u64, Listing)>>,
}

/// A call in progress. A local one runs when it is waited for.
pub(super) enum Pending<'a> {
    Here(Arc<LocalStore>, Call),
    There(RemoteCall<'a>),
    /// A call that fails with its session.
    Once(Result<PendingCall, Fault>),
    Names(RemoteEntries<'a>),
    Refused(Fault),
}

impl Pending<'_> {
    pub(super) fn wait(self) -> Result<Answer, Fault> {
        match self {
            Self::Here(store, call) => call_store(&store, &call),
            Self::There(call) => call.wait(),
            Self::Once(call) => call?.wait(),
            Self::Names(entries) => Ok(Answer::Entries {
                entries: entries.collect::<Result<_, _>>()?,
                cursor: None,
            }),
            Self::Refused(fault) => Err(fault),
        }
    }

    /// The result of a [`Call::Stat`]; `None` if there is no entry.
    pub(super) fn found(self) -> LookedUp {
        match self.wait() {
            Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Err(odd_answer()),
            Err(fault) if matches!(fault.code, Code::NotFound | Code::NotDirectory) => Ok(None),
            Err(fault) => Err(fault),
        }
    }
}

/// Attributes of the entry at a path; `None` if there is none.
pub(super) type LookedUp = Result<Option<Attributes>, Fault>;

/// An entry found in a directory.
#[derive(Debug)]
pub(super) struct FoundName {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
    /// As listed by the server; `None` for a local entry, where they are read when needed. Of a
    /// link that is followed, those of what it leads to.
    pub(super) attributes: Option<Attributes>,
    /// Why a link that is followed leads to nothing that can be moved.
    pub(super) fault: Option<Box<Fault>>,
}

impl FoundName {
    /// An entry of a listing.
    pub(super) fn listed(path: Vec<u8>, attributes: Attributes) -> Self {
        Self {
            path,
            is_directory: attributes.kind == FileKind::Directory,
            attributes: Some(attributes),
            fault: None,
        }
    }
}

pub(super) fn odd_answer() -> Fault {
    let cause = "the answer does not match the call";
    Fault::new(Code::ProtocolViolation, "list the tree", cause).ending_session()
}

impl<'a> Namespace<'a> {
    /// A local tree.
    pub(super) fn local(root: Vec<u8>) -> Self {
        Self {
            session: None,
            origin: None,
            root,
            follows: false,
            beneath: OnceLock::new(),
            begun: Mutex::default(),
        }
    }

    /// A tree on the server.
    pub(super) fn remote(session: &'a TreeSession<'a>, root: Vec<u8>) -> Self {
        Self {
            session: Some(session),
            ..Self::local(root)
        }
    }

    /// The tree of a server whose files go to another one.
    pub(super) fn origin(session: &'a TreeSession<'a>, origin: &'a ServerFile) -> Self {
        Self {
            origin: Some(origin),
            ..Self::remote(session, origin.place().path.clone())
        }
    }

    /// The same tree; with `follows`, its symbolic links are followed.
    pub(super) fn following(self, follows: bool) -> Self {
        Self { follows, ..self }
    }

    /// Another tree on the same side.
    pub(super) fn with_root(&self, root: Vec<u8>) -> Self {
        Self {
            session: self.session,
            origin: self.origin,
            follows: self.follows,
            ..Self::local(root)
        }
    }

    pub(super) fn is_remote(&self) -> bool {
        self.session.is_some()
    }

    /// The tree as one whose files go to another server.
    pub(super) fn server(&self) -> Option<&'a ServerFile> {
        self.origin
    }

    /// The session with its server.
    pub(super) fn session(&self) -> Option<&'a TreeSession<'a>> {
        self.session
    }

    /// A file of it, as one that goes to another server.
    pub(super) fn server_file(&self, path: &[u8]) -> Option<ServerFile> {
        self.origin.map(|origin| origin.at(self.path(path)))
    }

    /// A fault of its server, which may be another one than that of the target. The session with
    /// the target hasn't ended by it then.
    pub(super) fn apart(&self, fault: Fault) -> Fault {
        match self.origin {
            Some(origin) => origin.named(fault),
            None => fault,
        }
    }

    /// Whether its small files go to `target` together, in packs. Otherwise each is a transfer of
    /// its own, which the servers may do without this machine.
    pub(super) fn packs_for(&self, target: &Self, options: &TreeOptions) -> bool {
        let (Some(origin), Some(session)) = (self.origin, target.session) else {
            return true;
        };
        let (source, there) = (self.traits(), target.traits());
        let stays = there.copies && session.client.place().shares_session(origin.place());
        let is_relayed = match origin.way() {
            Way::Any => !stays || options.keeps_more(),
            Way::Direct => false,
            Way::Client => true,
        };
        source.packs && there.packs && is_relayed
    }

    /// Refuses metadata and hard links that one of two servers can't keep.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    pub(super) fn check_kept(
        &self,
        target: &Self,
        options: &TreeOptions,
        operation: &str,
    ) -> Result<(), Fault> {
        let keeps_packs = self.packs_for(target, options) || self.may_go_straight(target);
        self.check_kept_if(keeps_packs, target, options, operation)
    }

    /// Refuses the same, once it is certain that the servers don't move the tree by themselves.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    pub(super) fn check_kept_alone(
        &self,
        target: &Self,
        options: &TreeOptions,
        operation: &str,
    ) -> Result<(), Fault> {
        self.check_kept_if(self.packs_for(target, options), target, options, operation)
    }

    /// Whether the servers may be able to move the tree by themselves.
    fn may_go_straight(&self, target: &Self) -> bool {
        let (Some(origin), Some(session)) = (self.origin, target.session) else {
            return false;
        };
        let there = session.client.place();
        origin.way() != Way::Client
            && origin.place().address.speaks_xdfs()
            && there.address.speaks_xdfs()
            && !there.shares_session(origin.place())
    }

    fn check_kept_if(
        &self,
        keeps_packs: bool,
        target: &Self,
        options: &TreeOptions,
        operation: &str,
    ) -> Result<(), Fault> {
        let refused = |what: &str| {
            let cause = format!("{what} can't be kept between these two servers in this way");
            Err(Fault::new(Code::InvalidArgument, operation, cause).path(target.root()))
        };
        if options.keeps_more() && !keeps_packs {
            return refused("owners, extended attributes and access times");
        }
        let ends = [self.traits(), target.traits()];
        let have_links = ends.iter().all(|end| end.hard_links) && ends[0].identities;
        if options.hard_links && !have_links {
            return refused("hard links");
        }
        Ok(())
    }

    /// Whether this tree and another one may be on one machine.
    pub(super) fn may_share_machine(&self, other: &Self) -> bool {
        match (self.session, other.session) {
            (Some(session), None) | (None, Some(session)) => session.client.is_local(),
            _ => true,
        }
    }

    /// Whether symbolic links in it are followed.
    pub(super) fn follows(&self) -> bool {
        self.follows
    }

    pub(super) fn root(&self) -> &[u8] {
        &self.root
    }

    /// The full path of an entry.
    pub(super) fn path(&self, path: &[u8]) -> Vec<u8> {
        join(&self.root, path)
    }

    /// The full path of a local entry.
    fn local_path(&self, path: &[u8]) -> PathBuf {
        // Names that are invalid on this system don't occur on it.
        let whole = xdfs_sys::fs::path_from_bytes(&self.path(path));
        whole.unwrap_or_default()
    }

    /// Starts a call with full paths.
    pub(super) fn start(&self, call: Call) -> Pending<'a> {
        match self.session {
            None => Pending::Here(Arc::new(LocalStore::unrooted()), call),
            Some(session) => Pending::There(RemoteCall::start(session, call)),
        }
    }

    /// The path of an entry, as [`Self::start_beneath`] takes it.
    pub(super) fn at(&self, path: &[u8]) -> Vec<u8> {
        match self.session {
            Some(_) => self.path(path),
            None if path.is_empty() => b"/".to_vec(),
            None => path.to_vec(),
        }
    }

    /// Starts a call with paths from [`Self::at`]. No link leads out of a local root.
    pub(super) fn start_beneath(&self, call: Call) -> Pending<'a> {
        match self.session {
            Some(_) => self.start(call),
            None => match self.beneath() {
                Ok(store) => Pending::Here(store, call),
                Err(fault) => Pending::Refused(fault),
            },
        }
    }

    /// A store confined to the local root.
    pub(super) fn beneath(&self) -> Result<Arc<LocalStore>, Fault> {
        if let Some(store) = self.beneath.get() {
            return Ok(Arc::clone(store));
        }
        let root = xdfs_sys::fs::path_from_bytes(&self.root);
        let root = root.map_err(|e| Fault::from_io("open the target", &self.root, &e))?;
        let store = Arc::new(LocalStore::rooted(&root, false)?);
        Ok(Arc::clone(self.beneath.get_or_init(|| store)))
    }

    /// Looks up a full path, following links.
    pub(super) fn start_find(&self, path: &[u8]) -> Pending<'a> {
        self.start(Call::Stat {
            path: path.to_vec(),
            follow: true,
        })
    }

    /// Attributes of the root; `None` if it doesn't exist.
    pub(super) fn find_root(&self) -> LookedUp {
        Self::root_found(self.start_find(&self.root))
    }

    /// The result of [`Self::start_find`] of a root.
    pub(super) fn root_found(asked: Pending<'_>) -> LookedUp {
        match asked.wait() {
            Ok(Answer::Attributes(attributes)) => Ok(Some(attributes)),
            Ok(_) => Err(odd_answer()),
            Err(fault) if fault.code == Code::NotFound => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Attributes of the root, which must be a directory if it exists. Sets `round_trip` to the
    /// duration of the call if the tree is on the server.
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

    /// Likewise. If the tree is on the server it begins to list the root too, to save a round trip.
    pub(super) fn find_and_list(&self, round_trip: &mut Duration) -> LookedUp {
        self.begin_listing();
        let found = self.find_directory(round_trip);
        if !matches!(found, Ok(Some(_))) {
            self.end_listing();
        }
        found
    }

    /// Begins to list the root of a tree on the server, for the first who lists it.
    pub(super) fn begin_listing(&self) {
        *self.begun() = self.session.map(|session| session.list(&self.root));
    }

    /// Ends a listing that was begun and isn't wanted. It lacks what is created from now on.
    pub(super) fn end_listing(&self) {
        *self.begun() = None;
    }

    fn begun(&self) -> MutexGuard<'_, Option<(u64, Listing)>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a directory on the server.
    fn remote_entries(&self, session: &'a TreeSession<'a>, directory: &[u8]) -> RemoteEntries<'a> {
        let path = self.path(directory);
        let begun = self.begun().take_if(|_| directory.is_empty());
        let begun = begun.unwrap_or_else(|| session.list(&path));
        RemoteEntries::new(session, path, begun)
    }

    /// The fault of a root that isn't a directory.
    pub(super) fn not_a_directory(&self) -> Fault {
        let fault = Fault::new(Code::NotDirectory, "copy", "not a directory");
        self.fault(fault.path(&self.root))
    }

    /// A fault about this tree, with its machine.
    pub(super) fn fault(&self, fault: Fault) -> Fault {
        match self.machine() {
            Some(machine) => fault.remote().at(&machine),
            None => fault,
        }
    }

    /// The server that has it, if one has.
    pub(super) fn machine(&self) -> Option<Machine> {
        self.session.map(|session| session.client.machine())
    }

    /// Creates the root if it is missing, with the directories above it.
    pub(super) fn make_root(&self) -> Result<(), Fault> {
        let call = Call::MakeDirectory {
            path: self.root.clone(),
            mode: None,
            parents: true,
        };
        self.start(call).wait().map(|_| ())
    }

    /// Starts to make everything in the root durable.
    pub(super) fn start_sync(&self) -> Pending<'a> {
        let path = self.root.clone();
        self.start(Call::Sync { path })
    }

    /// Likewise, in the present session and no other: what was moved in another one may be lost.
    pub(super) fn start_sync_once(&self) -> Pending<'static> {
        let call = Call::Sync {
            path: self.root.clone(),
        };
        match self.session {
            None => Pending::Here(Arc::new(LocalStore::unrooted()), call),
            Some(session) => Pending::Once(session.start_call(call).1),
        }
    }

    /// Starts to list a directory.
    pub(super) fn start_list(&self, path: &[u8]) -> Pending<'a> {
        match self.session {
            Some(session) => Pending::Names(self.remote_entries(session, path)),
            None => self.start(Call::List {
                path: self.path(path),
                cursor: Vec::new(),
                entries_max: u32::MAX,
            }),
        }
    }

    /// Waits for a listing, and sorts it by the bytes of the names.
    pub(super) fn names(asked: Pending<'_>) -> Result<Vec<Entry>, Fault> {
        let Answer::Entries {
            entries,
            cursor: None,
        } = asked.wait()?
        else {
            return Err(odd_answer());
        };
        Ok(Self::sorted(entries))
    }

    /// Likewise, with the names that a server has told before it said that it can't tell the
    /// rest, as FTP can't tell some names.
    pub(super) fn told_names(asked: Pending<'_>) -> (Vec<Entry>, Option<Fault>) {
        let Pending::Names(mut entries) = asked else {
            return match Self::names(asked) {
                Ok(names) => (names, None),
                Err(fault) => (Vec::new(), Some(fault)),
            };
        };
        let mut names = Vec::new();
        let fault = entries.find_map(|entry| match entry {
            Ok(entry) => {
                names.push(entry);
                None
            }
            Err(fault) => Some(fault),
        });
        if fault
            .as_ref()
            .is_some_and(|fault| fault.code != Code::Unsupported)
        {
            names.clear();
        }
        (Self::sorted(names), fault)
    }

    fn sorted(mut names: Vec<Entry>) -> Vec<Entry> {
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        // An entry created again during the listing may be listed twice.
        names.dedup_by(|a, b| a.name == b.name);
        names
    }

    /// The traits of its side.
    pub(super) fn traits(&self) -> Traits {
        self.session
            .map_or(Traits::FULL, |session| session.client.traits())
    }

    /// Whether its side computes checksums of this kind where the files are.
    pub(super) fn computes(&self, kind: ChecksumKind) -> bool {
        let place = self.session.and_then(|session| session.client.behind());
        place.is_none_or(|place| place.computes(kind))
    }

    /// Looks up the path of an entry. A link there is followed only where all are.
    pub(super) fn start_look(&self, path: &[u8]) -> Pending<'a> {
        self.start(Call::Stat {
            path: self.path(path),
            follow: self.follows,
        })
    }

    /// Starts to compute the digest by which contents are compared: it must not be possible to
    /// forge one that only looks equal.
    pub(super) fn start_digest(&self, path: &[u8]) -> Pending<'a> {
        self.start(Call::Checksum {
            path: self.path(path),
            offset: 0,
            length: None,
            kind: ChecksumKind::Blake3,
        })
    }

    /// Looks up the paths of entries, several at a time. The results are in the order of the paths.
    /// No link leads out of a local root.
    pub(super) fn look_up<'p>(&self, paths: impl Iterator<Item = &'p [u8]>) -> Vec<LookedUp> {
        let mut found = Vec::new();
        let mut asked: VecDeque<Pending<'_>> = VecDeque::new();
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

    /// The entries of a directory, unsorted, without following links, and whether each entry is
    /// one. An error is the last item. With `attributes`, they are looked up of local entries too:
    /// that takes less time here than later by whole paths.
    pub(super) fn listed(
        &self,
        directory: &[u8],
        attributes: bool,
    ) -> Box<dyn Iterator<Item = Result<(FoundName, bool), Fault>> + 'a> {
        let above = directory.to_vec();
        if let Some(session) = self.session {
            let listing = self.remote_entries(session, directory);
            return Box::new(listing.map(move |entry| {
                let Entry { name, attributes } = entry?;
                let is_link = attributes.kind == FileKind::Symlink;
                Ok((FoundName::listed(join(&above, &name), attributes), is_link))
            }));
        }
        let failed =
            |directory: &[u8], error: &std::io::Error| Fault::from_io("list", directory, error);
        let path = self.local_path(directory);
        let opened = attributes.then(|| local::Directory::open(&path)).flatten();
        match std::fs::read_dir(&path) {
            Err(error) => Box::new(std::iter::once(Err(failed(directory, &error)))),
            Ok(entries) => Box::new(entries.map(move |entry| {
                let entry = entry.and_then(|e| Ok((e.file_type()?, e.file_name())));
                let (kind, name) = entry.map_err(|error| failed(&above, &error))?;
                let name = path_bytes(Path::new(&name));
                let found = FoundName {
                    path: join(&above, &name),
                    is_directory: kind.is_dir(),
                    attributes: opened.as_ref().and_then(|opened| opened.look(&name)),
                    fault: None,
                };
                Ok((found, kind.is_symlink()))
            })),
        }
    }

    /// Attributes of an entry, looked up if the listing didn't provide them; `None` if it is gone.
    pub(super) fn attributes(&self, found: &FoundName) -> Option<Attributes> {
        let known = found.attributes.clone();
        known.or_else(|| self.local_attributes(&found.path))
    }

    /// The mark of an entry in a journal.
    pub(super) fn mark(&self, found: &FoundName) -> Option<Mark> {
        mark_of(&self.attributes(found)?)
    }

    /// Attributes of a local entry, by a single system call: a store would open its directory
    /// first.
    pub(super) fn local_attributes(&self, path: &[u8]) -> Option<Attributes> {
        // The user named the root, so a link there is followed.
        local::look(&self.local_path(path), self.follows || path.is_empty())
    }
}
