//! What a user may see and change.
//!
//! The settings name [exports](ExportConfig): directories, and who has which rights there. From
//! them come the [`Exports`] of a server, and from these the store of a session, which knows one
//! [`Principal`] and serves nothing else.
//!
//! ```text
//! xdfs://host/data/run/7     the first component names the export, unless there is but the root;
//!             ---- -----     the rest is resolved beneath its directory by the kernel
//! ```
//!
//! Invariants:
//! - Nothing but the first component is decided by comparing names, with two exceptions that can
//!   only refuse more: `..` has no place in a path, and a [`Scope`](crate::Scope) covers the
//!   components that it names. What a path then leads to is the kernel's word: beneath the
//!   directory of the export, and beneath that of the deepest scope that covers it.
//! - Who has a scope that is less than the export makes no symbolic link, and renames and links
//!   none; neither does who is anonymous.
//! - Nothing is moved or linked to where its user would have more rights to it than before.
//! - An export in which a user has no right at all, and one that isn't there, give one answer.
//! - What counts against a quota is what lies in the directory of the export: that is a user's own
//!   for a path with `{user}`, and what all have in common for others. Unfinished files count too.

mod apart;
mod builtin;
mod call;
mod config;
mod file;
mod folder;
mod opened;
mod pack;
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
use xdfs_store::Store;
use xdfs_sys::ids::Ids;

pub use apart::Roots;
pub use config::{ExportConfig, ExportsConfig, GrantConfig};
pub use rights::Rights;

use crate::{Method, Principal};
use folder::ExportLocation;
use quota::{Ledger, Quota};
use store::ExportStore;

/// What a server offers, and to whom. Copies share the count of what is used.
#[derive(Clone, Debug)]
pub struct Exports {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Either one without a name, or all with one.
    exports: Vec<Export>,
    /// By the directory that is counted.
    ledgers: Mutex<HashMap<PathBuf, Arc<Ledger>>>,
}

#[derive(Debug)]
struct Export {
    /// The first component of its paths; empty for the root.
    name: Vec<u8>,
    place: ExportLocation,
    /// What everybody may do, anonymous or not.
    public: Rights,
    grants: Vec<Grant>,
    quota: Quota,
    /// Longest file that is taken, in bytes.
    largest_file: Option<u64>,
}

#[derive(Debug)]
struct Grant {
    /// `None` for every user who proved who it is.
    users: Option<BTreeSet<String>>,
    rights: Rights,
}

impl Exports {
    /// Checks the settings.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] with the name of the export whose settings have no meaning.
    pub fn new(config: ExportsConfig) -> Result<Self, Fault> {
        Ok(Self::of(config.check()?))
    }

    /// One directory as the root of all paths, in which every user who proved who it is has
    /// `rights` and nobody else has any.
    #[must_use]
    pub fn single(root: PathBuf, rights: Rights) -> Self {
        Self::of(vec![Export {
            name: Vec::new(),
            place: ExportLocation::fixed(root, false),
            public: Rights::NONE,
            grants: vec![Grant {
                users: None,
                rights,
            }],
            quota: Quota::default(),
            largest_file: None,
        }])
    }

    fn of(exports: Vec<Export>) -> Self {
        Self {
            shared: Arc::new(Shared {
                exports,
                ledgers: Mutex::default(),
            }),
        }
    }

    /// Whether anything is open to those who prove nothing.
    #[must_use]
    pub fn has_public(&self) -> bool {
        let mut exports = self.shared.exports.iter();
        exports.any(|export| export.public != Rights::NONE)
    }

    /// The store of a session: what `principal` may see and change. Directories are opened when
    /// they are first used.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`]: the principal is anonymous, and nothing is public.
    pub fn store_for(&self, principal: &Principal) -> Result<Arc<dyn Store>, Fault> {
        let exports = &self.shared.exports;
        let rights: Vec<Rights> = exports.iter().map(|e| e.rights_of(principal)).collect();
        let is_anonymous = principal.method == Method::Anonymous;
        if is_anonymous && rights.iter().all(|rights| *rights == Rights::NONE) {
            let cause = "nothing here is open to those who don't prove who they are";
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

    /// Makes those directories that are a user's own, that the settings want made, and that only
    /// root can make, and gives them to the account of this user. To be called by root before the
    /// session begins; what fails is seen by the session, which finds no directory then.
    pub fn make_folders(&self, principal: &Principal, ids: &Ids) {
        for export in &self.shared.exports {
            if export.rights_of(principal) != Rights::NONE {
                export.place.make_for(&principal.user, ids);
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
    /// The count of a directory, one for all sessions.
    fn ledger(&self, root: &std::path::Path) -> Arc<Ledger> {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(ledgers.entry(root.to_owned()).or_default())
    }
}
