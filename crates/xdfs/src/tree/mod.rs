//! Whole trees: one walker, small files in packs, large files by transfers of their own, both at
//! the same time, on the channels of one session.
//!
//! The side that has the tree isn't asked to know it: the client walks, here or by listings, and
//! moves what it finds while it goes on. What can't be moved is told and counted, and the rest goes
//! on. Memory is bounded by packs that are under way and by the directories that aren't whole yet:
//! one gets its times when nothing more is made in it. A journal keeps what is finished, so that a
//! tree that was broken off goes on where it was.

mod feed;
mod fetching;
mod filter;
mod finish;
mod inspector;
mod item;
mod journal;
mod large;
mod links;
mod moving;
mod name_collisions;
mod namespace;
mod options;
mod packing;
mod run;
mod scan;
mod sync;
mod tracker;
mod version;

pub use filter::{Filter, FilterRule};
pub use options::{Durability, TreeOptions};
pub use sync::{Compare, SyncOptions, SyncResult};

use std::path::Path;

use xdfs_proto::Fault;

use self::namespace::Namespace;
use crate::client::{Client, path_bytes};
use crate::events::{Observer, TreeResult};

impl Client {
    /// Copies the tree `source` to `target`, a path on the server: into it if that is a directory
    /// that exists and `source` doesn't end in a slash, else as it. Waits for the end.
    ///
    /// Of names that the target's file system takes for one the first is kept, whatever may be
    /// replaced; the others fail with [`Code::AlreadyExists`](crate::Code::AlreadyExists),
    /// directories with all in them.
    ///
    /// # Errors
    /// Why the tree could not be begun, or why the session ended. What fails of it is told to
    /// `observer` and counted in the result.
    pub fn upload_tree(
        &self,
        source: &Path,
        target: &[u8],
        options: &TreeOptions,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        let source = Namespace::local(path_bytes(source));
        let target = Namespace::remote(self, target.to_vec());
        run::copy(self, &source, &target, options, observer)
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
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        let source = Namespace::remote(self, source.to_vec());
        let target = Namespace::local(path_bytes(target));
        run::copy(self, &source, &target, options, observer)
    }
}
