//! Whole trees: one walker, small files in packs, large files by transfers of their own, both at
//! the same time, on the channels of one session.
//!
//! The side that has the tree isn't asked to know it: the client walks, here or by listings, and
//! moves what it finds while it goes on. What can't be moved is told and counted, and the rest goes
//! on. Memory is bounded by packs that are under way and by the directories that aren't whole yet:
//! one gets its times when nothing more is made in it. A journal keeps what is finished, so that a
//! tree that was broken off goes on where it was.

mod alike;
mod download;
mod filter;
mod journal;
mod links;
mod moving;
mod sync;
mod tracker;
mod upload;

pub use filter::{Filter, FilterRule};
pub(crate) use journal::is_same_time;
pub use sync::{Compare, SyncOptions, SyncResult};

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use xdfs_proto::pack::Keep;
use xdfs_proto::{Code, DigestKind, Fault};

use crate::client::Client;
use crate::paths::{Attributes, Call, FileKind};

/// Largest file that travels in a pack, in bytes.
const SMALL_BYTES_MAX: u32 = 512 << 10;
/// Set-user-id and set-group-id, which files get together with their owners alone.
const SET_ID: u32 = 0o6000;
/// Bytes of the first pack, so that the other side begins soon; each further one has twice as many.
const PACK_BYTES_FIRST: usize = 64 << 10;
/// Bytes of a pack within one machine: with its copies it fits the caches.
const PACK_BYTES_SHORT: usize = 512 << 10;
/// Bytes of a pack on a long path, where all of them together have to fill it.
const PACK_BYTES_LONG: usize = 4 << 20;
/// Packs under way: with the large files, and the pack that sets directories, as many as a peer
/// takes, which is 16.
const PACKS_MAX: usize = 11;
/// Large files under way.
const LARGE_MAX: usize = 4;
/// How often what failed is tried again when everything else is moved, if the fault may pass.
const ROUNDS: u32 = 2;
/// Whole directories whose metadata are set at once.
const WHOLE_AT_ONCE: usize = 512;
/// Round-trip time from which a path is long.
const LONG_PATH: Duration = Duration::from_millis(2);

/// What is kept of a tree, and how.
#[derive(Clone, Debug, Default)]
pub struct TreeOptions {
    /// Replace files that exist; without it they are failures.
    pub overwrite: bool,
    /// Keep owner and group, by name where the other side knows it.
    pub owner: bool,
    /// Keep extended attributes of users (`user.`) and access control lists. Those of the system,
    /// such as `security.capability` and `trusted.`, aren't kept, and that is no failure.
    pub xattrs: bool,
    /// Keep the times of the last read.
    pub read_times: bool,
    /// Keep several names of one file as such. If the first of them can't be moved the others fail
    /// too, unless what stands there has the kind, the size and the time of the source.
    pub hard_links: bool,
    /// What is left out.
    pub filter: Filter,
    /// Find out what would be done, and write nothing.
    pub dry_run: bool,
    /// When what was moved is made durable.
    pub durability: Durability,
    /// The digest of large files, `None` for [`Client::default_digest`]; packs are checked block by
    /// block.
    pub digest: Option<DigestKind>,
    /// Most bytes a second; `None` for no bound.
    pub rate_bytes_per_s_max: Option<u64>,
    /// A folder for the journals of trees, made if it isn't there; `None` for none. Each tree has
    /// a file in it while it is copied, by which the same call goes on after whatever broke it off:
    /// directories that were finished aren't listed, and files that were finished aren't sent
    /// again. After a call that came to its end with failures all directories are listed again, and
    /// files are left out that it moved and that have the same size and time at both ends. The
    /// journal is removed when nothing failed. A second call with the same journal at the same time
    /// is refused with [`Code::Busy`]. So is one that can't use the journal that an earlier one
    /// left, with the reason: only that says where the tree goes. If none can be made that is a
    /// warning. Not for synchronisations, which look for themselves.
    pub journal: Option<PathBuf>,
    /// Begin anew: forget the journal, and the parts of large files that arrived earlier.
    pub begin_anew: bool,
    /// Read again what an earlier run has left of large files, as
    /// [`TransferOptions::verify_resumed`](crate::TransferOptions::verify_resumed) does.
    pub verify_resumed: bool,
}

/// When what was moved of a tree is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// What a file has before it gets its name, many at once; all names before the end is told, and
    /// before a journal claims them: the file system is synchronised at the end, and every few
    /// seconds if it takes longer. After a power cut a name has its old content, the new one, or
    /// nothing, and the same call goes on.
    #[default]
    Batch,
    /// Likewise, and the names of each pack and each large file before it counts as moved: slow.
    Full,
    /// When the system comes to it, but for large files. A journal claims then what the system may
    /// still lose, and what a power cut leaves of a file may look as if it were finished.
    None,
}

/// What a tree tells while it is moved.
#[derive(Debug)]
#[non_exhaustive]
pub enum TreeEvent<'a> {
    /// How far it is; at most ten times a second.
    Progress(&'a TreeResult),
    /// An entry that wasn't moved, or not with all that was to be kept. The path is relative.
    Failed {
        /// The entry.
        path: &'a [u8],
        /// Why.
        fault: &'a Fault,
    },
    /// Something that the tree goes on without, such as its journal.
    Warning(&'a Fault),
    /// A step of a synchronisation. In a dry run all of them are told, else those that rename and
    /// delete, when they are done. Paths are relative.
    Step {
        /// What is done.
        step: SyncStep,
        /// The entry.
        path: &'a [u8],
        /// The name that it had, if it is renamed.
        from: Option<&'a [u8]>,
    },
}

/// What a synchronisation does with an entry of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncStep {
    /// It is missing, and is made.
    Copy,
    /// It is removed.
    Delete,
    /// It gets another name.
    Rename,
    /// Its content or its kind is replaced.
    Replace,
    /// Its mode, time or owner is set.
    Set,
}

/// Is told what happens; `Break` ends the tree in an orderly way.
pub type Observer<'a> = dyn FnMut(TreeEvent<'_>) -> ControlFlow<()> + 'a;

/// What came of a tree.
#[derive(Clone, Debug, Default)]
pub struct TreeResult {
    /// Files that were moved.
    pub files: u64,
    /// Directories that were made, or were there.
    pub directories: u64,
    /// Links and named pipes that were made.
    pub others: u64,
    /// Bytes of content that were moved.
    pub bytes: u64,
    /// Bytes of them that were not sent, since the target had them already: from an attempt that
    /// was broken off, or in its old file ([`SyncOptions::delta`]).
    pub matched_bytes: u64,
    /// Entries that failed; each was told.
    pub failed: u64,
    /// Files that go without their set-user-id and set-group-id, since owners aren't kept.
    pub unkept: u64,
    /// What an earlier run had finished, and wasn't moved again; not part of the other counts.
    pub resumed: TreeCounts,
    /// Time from the order to the end.
    pub elapsed: Duration,
    /// The path of the tree at its target.
    pub target: Vec<u8>,
}

/// What a part of a tree has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounts {
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Links and named pipes.
    pub others: u64,
    /// Bytes of content of the files.
    pub bytes: u64,
}

impl TreeOptions {
    /// Whether more is kept than a transfer of a single file keeps.
    fn keeps_more(&self) -> bool {
        self.owner || self.xattrs || self.read_times
    }

    fn keep(&self) -> Keep {
        Keep {
            owner: self.owner,
            xattrs: self.xattrs,
            read_times: self.read_times,
        }
    }
}

impl Client {
    /// Copies the tree `source` to `target`, a path on the server: into it if that is a directory
    /// that exists and `source` doesn't end in a slash, else as it. Waits for the end.
    ///
    /// Of names that the target's file system takes for one the first is kept, whatever may be
    /// replaced; the others fail with [`Code::AlreadyExists`], directories with all in them.
    ///
    /// # Errors
    /// Why the tree could not be begun, or why the session ended. What fails of it is told to
    /// `observer` and counted in the result.
    pub fn upload_tree(
        &self,
        source: &Path,
        target: &[u8],
        options: &TreeOptions,
        observer: &mut Observer<'_>,
    ) -> Result<TreeResult, Fault> {
        self.prepare_packs();
        upload::run(self, source, target, options, observer)
    }

    /// Fetches the tree `source`, a path on the server, to `target`, likewise. Waits for the end.
    ///
    /// # Errors
    /// As [`Client::upload_tree`].
    pub fn download_tree(
        &self,
        source: &[u8],
        target: &Path,
        options: &TreeOptions,
        observer: &mut Observer<'_>,
    ) -> Result<TreeResult, Fault> {
        self.prepare_packs();
        download::run(self, source, target, options, observer)
    }

    /// What stands under a path on the server, if anything, and how long the answer took.
    fn look(&self, path: &[u8]) -> Result<(Option<Attributes>, Duration), Fault> {
        let call = Call::Stat {
            path: path.to_vec(),
            follow: true,
        };
        let began = Instant::now();
        match self.call(call) {
            Ok(crate::Answer::Attributes(attributes)) => Ok((Some(attributes), began.elapsed())),
            Ok(_) => Ok((None, began.elapsed())),
            Err(fault) if fault.code == Code::NotFound => Ok((None, began.elapsed())),
            Err(fault) => Err(fault),
        }
    }
}

/// How packs are cut for a path.
#[derive(Clone, Copy, Debug)]
struct Cut {
    pack_bytes_max: usize,
    is_long: bool,
}

impl Cut {
    /// A call to the server took `round_trip`. Within one machine no path is long: a call that took
    /// its time there waited for a processor.
    fn new(client: &Client, round_trip: Duration) -> Self {
        let is_long = !client.is_local && round_trip >= LONG_PATH;
        let pack_bytes_max = if is_long {
            PACK_BYTES_LONG
        } else {
            PACK_BYTES_SHORT
        };
        Self {
            pack_bytes_max,
            is_long,
        }
    }

    /// Bytes of the pack of this number.
    fn pack_bytes(self, number: usize) -> usize {
        let doubled = PACK_BYTES_FIRST << number.min(8);
        doubled.min(self.pack_bytes_max)
    }
}

/// A path and a name beneath it.
pub(crate) fn join(above: &[u8], name: &[u8]) -> Vec<u8> {
    if above.is_empty() || name.is_empty() {
        return [above, name].concat();
    }
    let slash: &[u8] = if above.ends_with(b"/") { b"" } else { b"/" };
    [above, slash, name].concat()
}

/// The last name of a path; empty if it ends in a slash, or in no name.
fn last_name(path: &[u8]) -> &[u8] {
    match path.rsplit(|b| *b == b'/').next() {
        Some(b"." | b"..") | None => b"",
        Some(name) => name,
    }
}

fn is_directory(attributes: Option<&Attributes>) -> bool {
    attributes.is_some_and(|a| a.kind == FileKind::Directory)
}

fn not_a_directory(path: &[u8]) -> Fault {
    let cause = "it is no directory";
    Fault::new(Code::NotDirectory, "copy a tree", cause).path(path)
}
