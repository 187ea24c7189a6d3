//! Copies of whole trees: one walk; small files travel in packs and large files in separate
//! transfers, both at the same time, on the channels of one session.
//!
//! The client drives everything: it walks the source, locally or by listings, and moves entries as
//! it finds them. A failed entry is reported and counted, and the rest continues. Memory is bounded
//! by the packs in flight and the incomplete directories: a directory gets its times once nothing
//! more is created in it. A journal records finished entries, so that an interrupted tree resumes.

mod announced;
mod apart;
mod copy;
mod count;
mod ends;
mod errand;
mod feed;
mod fetching;
mod filter;
mod finish;
mod following;
mod foreseen;
mod gathered;
mod hashed;
mod inspector;
mod item;
mod journal;
mod large;
mod last_pack;
mod links;
mod moved;
mod moving;
mod name_collisions;
mod namespace;
mod opening;
mod options;
mod owners;
mod packing;
mod run;
mod scan;
pub(crate) mod session;
mod small_files;
mod space;
mod straight;
mod stripes;
mod sync;
mod tracker;
mod unsynced;
mod version;

pub(crate) use copy::ExactRoot;
pub use filter::{FileLimits, Filter, FilterRule};
pub use gathered::GatheredTree;
pub use options::{Durability, TreeOptions};
pub use small_files::{PendingSmallFiles, SmallFile, SmallSource};
pub use stripes::TreeStripes;
pub use sync::{Compare, DeletionConsent, DeletionRisk, SyncOptions, SyncResult};

use std::path::Path;

use xdfs_proto::Fault;

use self::namespace::Namespace;
use self::session::TreeSession;
use crate::between::ServerFile;
use crate::client::Client;
use crate::events::{Observer, TreeResult};
use crate::local_path::path_bytes;

impl Client {
    /// Copies the tree `source` to `target`, a path on the server: into it if it is an existing
    /// directory and `source` doesn't end in a slash, otherwise under that name. Blocks until the
    /// end.
    ///
    /// If the target's file system treats several names as equal, the first is kept, even with
    /// [`TransferParameters::overwrite`](crate::TransferParameters::overwrite); the others fail
    /// with [`Code::AlreadyExists`](crate::Code::AlreadyExists), directories with all their
    /// contents.
    ///
    /// # Errors
    /// The copy could not start, or the session ended. Failed entries are reported to `observer`
    /// and counted in the result.
    pub fn upload_tree(
        &self,
        source: &Path,
        target: &[u8],
        options: &TreeOptions,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        let session = TreeSession::new(self, options);
        let source = Namespace::local(path_bytes(source)).following(options.follow_links);
        let target = Namespace::remote(&session, target.to_vec());
        copy::copy(&session, &source, &target, options, observer)
    }

    /// Copies the tree `source`, a path on the server, to the local path `target`, like
    /// [`Client::upload_tree`].
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
        let session = TreeSession::new(self, options);
        let source = Namespace::remote(&session, source.to_vec());
        let source = source.following(options.follow_links);
        let target = Namespace::local(path_bytes(target));
        copy::copy(&session, &source, &target, options, observer)
    }

    /// Copies the tree `source` of another server, or of another directory of this one, to
    /// `target`, a path on the server, like [`Client::upload_tree`]. If one of two servers may
    /// connect to the other, the tree goes straight from one to the other, and this process looks
    /// on. Otherwise small files pass this process in packs, if both servers have them and the
    /// files don't go without it (see [`Way`](crate::Way)).
    ///
    /// # Errors
    /// As [`Client::upload_tree`]; or the options ask for what one of the servers doesn't preserve.
    pub fn copy_tree_from(
        &self,
        source: &ServerFile,
        target: &[u8],
        options: &TreeOptions,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        self.copy_tree_between(source, target, options, None, observer)
    }

    /// Copies the tree to the directory `target` itself, whether it exists or not.
    pub(crate) fn copy_tree_exactly(
        &self,
        source: &ServerFile,
        target: &[u8],
        options: &TreeOptions,
        exact: ExactRoot,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        self.copy_tree_between(source, target, options, Some(exact), observer)
    }

    fn copy_tree_between(
        &self,
        source: &ServerFile,
        target: &[u8],
        options: &TreeOptions,
        exact: Option<ExactRoot>,
        observer: &mut dyn Observer,
    ) -> Result<TreeResult, Fault> {
        let client = source.client()?;
        let there = TreeSession::with_source(&client, source, options);
        let session = TreeSession::new(self, options);
        let from = Namespace::origin(&there, source).following(options.follow_links);
        let to = Namespace::remote(&session, target.to_vec());
        from.check_kept(&to, options, "copy")?;
        copy::copy_to(&session, (&from, &to, exact), options, observer)
    }
}
