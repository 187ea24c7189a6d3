//! Options and limits of a tree copy.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xdfs_engine::TransferParameters;
use xdfs_proto::DigestKind;
#[cfg(doc)]
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::Preserve;

use super::filter::Filter;
use super::stripes::TreeStripes;
use crate::client::Client;
#[cfg(doc)]
use crate::events::TreeResult;
use crate::paths::{Attributes, FileKind};
use crate::retry::{ReconnectObserver, RetryPolicy};
use crate::skip::Skip;

/// Largest file that travels in a pack, in bytes.
pub(super) const SMALL_BYTES_MAX: u32 = 512 << 10;
/// Set-user-id and set-group-id, which are kept only together with the owner.
pub(super) const SET_ID: u32 = 0o6000;
/// Bytes of the first pack, small so that the other side starts early; sizes double from there.
pub(super) const PACK_BYTES_FIRST: usize = 64 << 10;
/// Largest pack on a short path, in bytes: a pack and its copies fit the CPU caches.
pub(super) const PACK_BYTES_SHORT: usize = 512 << 10;
/// Largest pack on a long path, in bytes: the packs in flight have to fill it.
pub(super) const PACK_BYTES_LONG: usize = 4 << 20;
/// Bytes of a pack after a break, and the number of packs after which they double: a session that
/// broke is likely to break again.
const PACK_BYTES_BROKEN: usize = 32 << 10;
const PACKS_BROKEN: usize = 512;
/// Packs and large files in flight: with the pack of directory metadata they stay within the 16
/// transfers that a peer accepts.
pub(super) const IN_FLIGHT_MAX: usize = 14;
/// Packs in flight.
pub(super) const PACKS_MAX: usize = 11;
/// Large files in flight: to make one durable is to wait for the disk several times, and others
/// are moved meanwhile. So many of them may be in flight beside any number of packs, and at most.
pub(super) const LARGE_LEAST: usize = 4;
pub(super) const LARGE_MAX: usize = 12;
/// Files in flight that groups move, which have some of each in memory.
pub(super) const STRIPED_MAX: usize = 2;
/// Files in flight if each is a transfer of its own, between two servers: it takes several round
/// trips, and threads of its own.
pub(super) const ALONE_MAX: usize = 8;
/// Retries of entries with transient faults, after everything else has been moved.
pub(super) const ROUNDS: u32 = 4;
/// Complete directories whose metadata is gathered for one pack.
pub(super) const COMPLETED_WAITING: usize = 512;
/// Round-trip time from which a path is long.
pub(super) const LONG_PATH: Duration = Duration::from_millis(2);

/// Options of a tree copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TreeOptions {
    /// How its files are moved. Existing files that are neither replaced nor skipped are failures.
    /// The digest is that of large files, by default [`Client::default_digest`]; packs are checked
    /// block by block. [`Resume::Never`] discards the journal, and partially transferred large
    /// files. Synchronisations imply `overwrite`.
    #[serde(with = "crate::text")]
    pub parameters: TransferParameters,
    /// Existing files that are skipped, and counted as [`TreeResult::resumed`]. Symbolic links and
    /// named pipes are compared by their time. Names of one file that are to stay hard links are
    /// not skipped. Ignored by synchronisations. With [`Skip::Never`], [`Skip::Identical`] and
    /// [`Skip::Content`] there is no journal, which goes by size and time.
    pub skip: Skip,
    /// Preserve owner and group, by name where the other side knows it, and with them set-user-id
    /// and set-group-id.
    ///
    /// Without this and [`xattrs`](Self::xattrs), what is fetched gets what the umask of this
    /// process leaves of the permission bits that the server wishes, and no sticky bit. What is
    /// sent keeps its permission bits in any case.
    pub owner: bool,
    /// Preserve user extended attributes (`user.`) and access control lists, and so exact
    /// permission bits. System attributes such as `security.capability` and `trusted.` are never
    /// preserved; that isn't a failure.
    pub xattrs: bool,
    /// Preserve access times.
    pub read_times: bool,
    /// Preserve hard links. If the first name of a file can't be moved, the others fail too, unless
    /// the entry at the target has the kind, size and time of the source.
    pub hard_links: bool,
    /// Follow symbolic links in the source: what they lead to is moved under their names, files
    /// with their metadata and directories with their contents. A link that leads nowhere, or to a
    /// directory that it is in, is a failure. On this machine links lead anywhere; on a server they
    /// stay within what the user may name there. A server that can't follow links in packs fails
    /// downloads with [`Code::FeatureUnsupported`](crate::Code::FeatureUnsupported).
    pub follow_links: bool,
    /// Entries to leave out.
    pub filter: Filter,
    /// When copied entries become durable.
    pub durability: Durability,
    /// Digest of small files in [`TreeEvent::File`](crate::TreeEvent::File), which costs one more
    /// pass over their content in memory; `None` for none.
    #[serde(with = "crate::text")]
    pub file_digests: Option<DigestKind>,
    /// Directory for the journals of trees, created if missing; `None` for no journal. While a tree
    /// is copied it has a journal there, with which the same call resumes after any interruption:
    /// finished directories aren't listed again, and finished files aren't sent again. After a run
    /// that ended with failures all directories are listed again; files that it moved are skipped
    /// if their size and time are the same at both ends. The journal is removed when nothing
    /// failed.
    ///
    /// A second call with the same journal at the same time fails with
    /// [`Code::Busy`](crate::Code::Busy). If an earlier run left a journal that can't be used, the
    /// call fails with the reason, since only that journal says where the tree goes. If a new
    /// journal can't be created, that is a warning. Ignored by synchronisations, which compare both
    /// trees instead.
    #[serde(with = "crate::text")]
    pub journal: Option<PathBuf>,
    /// Count the source beside the copy, so that progress events have totals. A local source is
    /// walked once more for that, unless the copy is over soon. Ignored by synchronisations.
    pub count_source: bool,
    /// Other sessions when this one breaks: nothing that was listed or moved is listed or moved
    /// again.
    pub retry: RetryPolicy,
    /// Groups of servers that move large files together. Not a part of the text of a
    /// [`Job`](crate::Job).
    #[serde(skip)]
    pub stripes: TreeStripes,
    /// Hears when that happens. Not a part of the text of a [`Job`](crate::Job).
    #[serde(skip)]
    pub reconnect_observer: ReconnectObserver,
}

/// When the copied entries of a tree become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Durability {
    /// A file's content before its name, in groups; names before the call returns, and before a
    /// journal claims them: the file system is synchronised at the end, and every few seconds
    /// during a longer run. After a power cut a name has its old content, the new one, or doesn't
    /// exist, and the same call resumes.
    #[default]
    Batch,
    /// Likewise, and the names of each pack and large file are durable before it counts as moved.
    /// Slow.
    Full,
    /// Whenever the system writes them, except large files. A journal then claims entries that may
    /// still be lost, and a file damaged by a power cut may look complete.
    None,
}

impl TreeOptions {
    /// Whether the target gives permission bits exactly, also those that a server wishes. They are
    /// a part of access control lists.
    pub(super) fn has_exact_modes(&self) -> bool {
        self.owner || self.xattrs
    }

    /// The bits of a source's mode that the target gets: set-user-id and set-group-id only together
    /// with the owner.
    pub(super) fn kept_mode(&self, mode: u32) -> u32 {
        match self.owner {
            true => mode,
            false => mode & !SET_ID,
        }
    }

    /// Whether the filter leaves out an entry because of its size or age, which counts from
    /// `mtime_ns`, if that is known.
    pub(crate) fn is_beyond_limits(&self, found: &Attributes, mtime_ns: Option<i64>) -> bool {
        let mtime_ns = match mtime_ns {
            None if self.filter.limits_ages() => return found.kind == FileKind::File,
            time => time.unwrap_or_default(),
        };
        found.kind == FileKind::File && self.filter.leaves_out_file(found.size, mtime_ns)
    }

    /// Whether more metadata is preserved than by the transfer of a single file.
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

/// Sizes of packs: by the kind of network path, by the number of packs begun so far, and by how
/// long ago a session broke, since packs in flight are then sent again.
#[derive(Debug)]
pub(super) struct PackSizes {
    pub(super) is_long: bool,
    begun: AtomicUsize,
    /// Breaks noticed so far, and the packs begun before the latest one.
    breaks: AtomicU64,
    begun_before: AtomicUsize,
}

impl PackSizes {
    /// For packs that pass these servers. `round_trip` is the duration of the slowest call to one
    /// of them. Within one machine no path is long: a slow call there waited for a CPU.
    pub(super) fn new<'c>(
        servers: impl IntoIterator<Item = &'c Client>,
        round_trip: Duration,
    ) -> Self {
        let is_long = servers.into_iter().any(|client| {
            let is_long = !client.is_local() && round_trip >= LONG_PATH;
            // The session with a place is within this machine, and its server may be far away.
            client.behind().map_or(is_long, |place| place.is_far())
        });
        Self::on_path(is_long)
    }

    fn on_path(is_long: bool) -> Self {
        Self {
            is_long,
            begun: AtomicUsize::new(0),
            breaks: AtomicU64::new(0),
            begun_before: AtomicUsize::new(0),
        }
    }

    /// Counts a pack as begun.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Size of the next pack in bytes, after so many `breaks` of sessions.
    pub(super) fn pack_bytes(&self, breaks: u64) -> usize {
        let begun = self.begun.load(Ordering::Relaxed);
        if self.breaks.swap(breaks, Ordering::Relaxed) != breaks {
            self.begun_before.store(begun, Ordering::Relaxed);
        }
        let bytes = match breaks {
            0 => PACK_BYTES_FIRST << begun.min(8),
            _ => {
                let since = begun.saturating_sub(self.begun_before.load(Ordering::Relaxed));
                PACK_BYTES_BROKEN << (since / PACKS_BROKEN).min(8)
            }
        };
        bytes.min(match self.is_long {
            true => PACK_BYTES_LONG,
            false => PACK_BYTES_SHORT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_grow_and_begin_small_after_each_break() {
        let sizes = PackSizes::on_path(false);
        let next = |breaks| {
            let bytes = sizes.pack_bytes(breaks);
            sizes.begin();
            bytes >> 10
        };
        assert_eq!(
            [next(0), next(0), next(0), next(0), next(0)],
            [64, 128, 256, 512, 512]
        );
        assert_eq!(next(1), 32);
        for _ in 0..PACKS_BROKEN {
            assert!(next(1) <= 64);
        }
        assert_eq!(next(1), 64);
        assert_eq!(next(2), 32, "another break");
        for _ in 0..4 * PACKS_BROKEN {
            next(2);
        }
        assert_eq!(next(2), 512, "they are as large again in the end");
        let long = PackSizes::on_path(true);
        (0..10).for_each(|_| long.begin());
        assert_eq!(long.pack_bytes(0), PACK_BYTES_LONG);
    }
}
