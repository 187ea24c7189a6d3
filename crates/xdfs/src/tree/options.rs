//! What is asked for when a tree is moved, and what bounds it.

use std::path::PathBuf;
use std::time::Duration;

use xdfs_proto::DigestKind;
use xdfs_proto::pack::Preserve;

use super::filter::Filter;
use crate::client::Client;

/// Largest file that travels in a pack, in bytes.
pub(super) const SMALL_BYTES_MAX: u32 = 512 << 10;
/// Set-user-id and set-group-id, which files get together with their owners alone.
pub(super) const SET_ID: u32 = 0o6000;
/// Bytes of the first pack, so that the other side begins soon; each further one has twice as many.
pub(super) const PACK_BYTES_FIRST: usize = 64 << 10;
/// Bytes of a pack within one machine: with its copies it fits the caches.
pub(super) const PACK_BYTES_SHORT: usize = 512 << 10;
/// Bytes of a pack on a long path, where all of them together have to fill it.
pub(super) const PACK_BYTES_LONG: usize = 4 << 20;
/// Packs under way: with the large files, and the pack that sets directories, as many as a peer
/// takes, which is 16.
pub(super) const PACKS_MAX: usize = 11;
/// Large files under way.
pub(super) const LARGE_MAX: usize = 4;
/// How often what failed is tried again when everything else is moved, if the fault may pass.
pub(super) const ROUNDS: u32 = 2;
/// Complete directories that wait while other things go on, until all of them are set at once.
pub(super) const COMPLETED_WAITING: usize = 512;
/// Round-trip time from which a path is long.
pub(super) const LONG_PATH: Duration = Duration::from_millis(2);

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
    /// is refused with [`Code::Busy`](crate::Code::Busy). So is one that can't use the journal that
    /// an earlier one left, with the reason: only that says where the tree goes. If none can be
    /// made that is a warning. Not for synchronisations, which look for themselves.
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

impl TreeOptions {
    /// Whether more is kept than a transfer of a single file keeps.
    pub(super) fn keeps_more(&self) -> bool {
        self.keep() != Preserve::default()
    }

    pub(super) fn keep(&self) -> Preserve {
        Preserve {
            owner: self.owner,
            xattrs: self.xattrs,
            read_times: self.read_times,
        }
    }
}

/// How packs are cut for a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackSizes {
    pub(super) is_long: bool,
}

impl PackSizes {
    /// A call to the server took `round_trip`. Within one machine no path is long: a call that took
    /// its time there waited for a processor.
    pub(super) fn new(client: &Client, round_trip: Duration) -> Self {
        let is_long = !client.is_local() && round_trip >= LONG_PATH;
        Self { is_long }
    }

    /// Bytes of the pack of this number.
    pub(super) fn pack_bytes(self, number: usize) -> usize {
        let doubled = PACK_BYTES_FIRST << number.min(8);
        doubled.min(match self.is_long {
            true => PACK_BYTES_LONG,
            false => PACK_BYTES_SHORT,
        })
    }
}
