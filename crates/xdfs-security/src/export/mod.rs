//! Exports: what users may see and change.
//!
//! The settings define [exports](ExportConfig): directories, and the rights of users there. From
//! these come the [`Exports`] of a server, and from them the store of each session, which serves
//! exactly one [`Principal`].
//!
//! ```text
//! xdfs://host/data/run/7     the first component names the export, unless the root is the only
//! one;
//!             ---- -----     the kernel resolves the rest beneath its directory
//! ```
//!
//! Invariants:
//! - Only the first component is decided by comparing names, with two exceptions that can only
//!   restrict: `..` is refused in paths, and a [`Scope`](crate::Scope) covers the components that
//!   it names. The kernel resolves everything else, beneath the directory of the export and of the
//!   deepest scope that covers the path.
//! - A user with a scope smaller than the export can't create, rename or hard-link symbolic links;
//!   neither can anonymous users.
//! - Nothing is moved or linked to a place where its user would have more rights to it than before.
//! - An export without any right for the user and a nonexistent one give the same answer.
//! - The content of an export's directory counts against its quota: the user's own content for a
//!   path with `{user}`, and that of all users otherwise. Unfinished files count too.

mod apart;
mod base;
mod builtin;
mod call;
mod config;
mod expiry;
mod file;
mod folder;
mod mounts;
mod opened;
mod pack;
mod pack_at_top;
mod path;
mod quota;
mod rights;
mod store;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use xdfs_proto::{Code, Fault};
use xdfs_store::{SharedStore, Store};
use xdfs_sys::ids::Ids;

pub use apart::Roots;
pub use config::{ExportConfig, ExportsConfig, GrantConfig};
pub use rights::Rights;

use crate::{Method, Principal};
use folder::{ExportLocation, Place};
use mounts::Mounts;
use quota::{Ledger, Quota};
use store::ExportStore;

/// The exports of a server. Clones share the usage counts, and what is known of mounts.
#[derive(Clone, Debug)]
pub struct Exports {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Either one without a name, or only named ones.
    exports: Vec<Export>,
    /// By counted directory.
    ledgers: Arc<Mutex<HashMap<PathBuf, Arc<Ledger>>>>,
    mounts: Arc<Mounts>,
}

#[derive(Clone, Debug)]
struct Export {
    /// First component of its paths; empty for the root.
    name: Vec<u8>,
    place: Place,
    /// Rights of everybody, including anonymous users.
    public: Rights,
    grants: Vec<Grant>,
    quota: Quota,
    /// Maximum length of a file in bytes.
    largest_file: Option<u64>,
}

#[derive(Clone, Debug)]
struct Grant {
    /// `None` for all authenticated users.
    users: Option<BTreeSet<String>>,
    rights: Rights,
}

impl Exports {
    /// Validates the settings.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the name of the invalid export.
    pub fn new(config: ExportsConfig) -> Result<Self, Fault> {
        Ok(Self::of(config.check()?))
    }

    /// One directory as the root of all paths, with `rights` for all authenticated users and none
    /// for others.
    #[must_use]
    pub fn single(root: PathBuf, rights: Rights) -> Self {
        let location = ExportLocation::fixed(root, false, false);
        Self::at(Place::Directory(location), rights)
    }

    /// A store as the root of all paths, with `rights` for all authenticated users and none for
    /// others. It has no quota.
    ///
    /// Names alone decide what a user may reach in it, and not a kernel: it must not follow
    /// symbolic links. None can be made through the export.
    #[must_use]
    pub fn of_store(store: Arc<dyn Store>, rights: Rights) -> Self {
        Self::at(Place::Store(store), rights)
    }

    fn at(place: Place, rights: Rights) -> Self {
        Self::of(vec![Export {
            name: Vec::new(),
            place,
            public: Rights::NONE,
            grants: vec![Grant {
                users: None,
                rights,
            }],
            quota: Quota::default(),
            largest_file: None,
        }])
    }

    /// The same exports, in which nobody has other rights than these.
    #[must_use]
    pub fn restricted(&self, rights: Rights) -> Self {
        let mut exports = self.shared.exports.clone();
        for export in &mut exports {
            export.public = export.public & rights;
            for grant in &mut export.grants {
                grant.rights = grant.rights & rights;
            }
        }
        Self::of(exports)
    }

    fn of(exports: Vec<Export>) -> Self {
        Self::with(exports, Arc::default(), Arc::default())
    }

    fn with(
        exports: Vec<Export>,
        ledgers: Arc<Mutex<HashMap<PathBuf, Arc<Ledger>>>>,
        mounts: Arc<Mounts>,
    ) -> Self {
        for export in &exports {
            // An export that isn't mounted is refused when it is used.
            if let Some(location) = export.place.directory() {
                let _ = location.check_mount(&mounts);
            }
        }
        Self {
            shared: Arc::new(Shared {
                exports,
                ledgers,
                mounts,
            }),
        }
    }

    /// The same exports, with the usage counts of `earlier` ones, and what is known of their
    /// mounts: for settings that replace others while there are sessions.
    #[must_use]
    pub fn after(&self, earlier: &Self) -> Self {
        let (ledgers, mounts) = (&earlier.shared.ledgers, &earlier.shared.mounts);
        let exports = self.shared.exports.clone();
        Self::with(exports, Arc::clone(ledgers), Arc::clone(mounts))
    }

    /// Whether `principal` has at least the rights here that it has in `earlier` ones, to the same
    /// directories under the same names.
    #[must_use]
    pub fn cover(&self, earlier: &Self, principal: &Principal) -> bool {
        let here = &self.shared.exports;
        earlier.shared.exports.iter().all(|export| {
            let rights = export.rights_of(principal);
            let is_same =
                |other: &&Export| other.name == export.name && other.place.is_same(&export.place);
            let found = here.iter().find(is_same);
            rights == Rights::NONE || found.is_some_and(|f| f.rights_of(principal).contains(rights))
        })
    }

    /// Whether anonymous users have any access.
    #[must_use]
    pub fn has_public(&self) -> bool {
        let mut exports = self.shared.exports.iter();
        exports.any(|export| export.public != Rights::NONE)
    }

    /// The store of a session, restricted to what `principal` may see and change. Directories are
    /// opened on first use.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`]: the principal is anonymous, and nothing is public.
    pub fn store_for(&self, principal: &Principal) -> Result<Arc<dyn SharedStore>, Fault> {
        let exports = &self.shared.exports;
        let rights: Vec<Rights> = exports.iter().map(|e| e.rights_of(principal)).collect();
        let is_anonymous = principal.method == Method::Anonymous;
        if is_anonymous && rights.iter().all(|rights| *rights == Rights::NONE) {
            let cause = "nothing here is open to anonymous users";
            return Err(
                Fault::new(Code::PermissionDenied, "open the session", cause)
                    .hint("authenticate as a user of this server"),
            );
        }
        Ok(Arc::new(ExportStore::new(
            Arc::clone(&self.shared),
            principal.clone(),
            rights,
        )))
    }

    /// Creates the user's own directories that the settings request and only root can create, and
    /// gives them to the user's account. To be called by root before the session begins; after a
    /// failure the session finds no directory.
    pub fn make_folders(&self, principal: &Principal, ids: &Ids) {
        for export in &self.shared.exports {
            if let Some(location) = export.place.directory()
                && export.rights_of(principal) != Rights::NONE
            {
                location.make_for(&principal.user, ids);
            }
        }
    }
}

impl Export {
    fn rights_of(&self, principal: &Principal) -> Rights {
        if principal.method == Method::Anonymous {
            return self.public;
        }
        self.grants
            .iter()
            .filter(|grant| {
                let users = grant.users.as_ref();
                users.is_none_or(|users| users.contains(&principal.user))
            })
            .fold(self.public, |rights, grant| rights | grant.rights)
    }
}

impl Shared {
    /// The usage count of a directory, if there is one.
    fn known_ledger(&self, root: &std::path::Path) -> Option<Arc<Ledger>> {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.get(root).map(Arc::clone)
    }

    /// The usage count of a directory, shared by all sessions.
    fn ledger(&self, root: &std::path::Path) -> Arc<Ledger> {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(ledgers.entry(root.to_owned()).or_default())
    }
}
