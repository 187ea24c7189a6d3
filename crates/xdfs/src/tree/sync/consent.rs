//! Consent to deletions: when somebody has to agree to what a synchronisation removes.
//!
//! There are two moments. Before anything is compared or moved, a target that looks like the wrong
//! one is noticed, since then the contents of the source must not go into it either. Before
//! anything is removed, the names to remove are counted. The library decides what needs consent;
//! the program asks for it.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use xdfs_proto::third_party::RemovalQuestion;
use xdfs_proto::{Code, Fault};

use super::backup::Backup;
use super::{OPERATION, SyncOptions};
use crate::events::Deletion;
use crate::paths::{Attributes, Entry, FileKind};
use crate::tree::name_collisions::folded;
use crate::tree::namespace::{FoundName, Namespace};

/// The part of the names at the target that may be removed without consent: a tenth.
const SHARE: u64 = 10;
/// So many names may be removed without consent from any target but the root of an export.
const NAMES_MIN: u64 = 100;
/// Why a synchronisation needs consent to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeletionRisk {
    /// The target has a directory with the name of the source, which the source lacks. So the
    /// target may be meant to hold the source and not its contents. Nothing was compared or moved.
    NamedLikeSource {
        /// The name.
        name: Vec<u8>,
    },
    /// None of the entries directly in the target is in the source, and among them are
    /// directories, or the target is the root of an export. Nothing was compared or moved.
    NothingInCommon {
        /// Number of these entries.
        entries: u64,
    },
    /// The target is the root of a file system, a server or an export.
    Root {
        /// Number of names to remove.
        names: u64,
    },
    /// More than 100 names, and more than a tenth of the names at the target, would be removed.
    Share {
        /// Number of names to remove.
        names: u64,
        /// Number of names at the target.
        names_at_target: u64,
    },
}

impl From<&RemovalQuestion> for DeletionRisk {
    fn from(question: &RemovalQuestion) -> Self {
        match question {
            RemovalQuestion::NamedLikeSource(name) => Self::NamedLikeSource { name: name.clone() },
            RemovalQuestion::NothingInCommon(entries) => {
                Self::NothingInCommon { entries: *entries }
            }
            RemovalQuestion::Root(names) => Self::Root { names: *names },
            RemovalQuestion::Share(names, names_at_target) => Self::Share {
                names: *names,
                names_at_target: *names_at_target,
            },
        }
    }
}

impl fmt::Display for DeletionRisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = |count: &u64| if *count == 1 { "name" } else { "names" };
        match self {
            Self::NamedLikeSource { name } => write!(
                f,
                "the directory '{}' at the target, named like the source, would be deleted",
                String::from_utf8_lossy(name)
            ),
            Self::NothingInCommon { entries } => write!(
                f,
                "the target has nothing in common with the source, and would lose {}",
                match entries {
                    1 => "its only entry".to_owned(),
                    _ => format!("all its {entries} entries"),
                }
            ),
            Self::Root { names } => write!(
                f,
                "{names} {} would be deleted from the root of what is served",
                noun(names)
            ),
            Self::Share {
                names,
                names_at_target,
            } => write!(
                f,
                "{names} of {names_at_target} {} would be deleted, more than a tenth",
                noun(names_at_target)
            ),
        }
    }
}

impl DeletionRisk {
    /// Whether nothing was compared or moved yet, because the target seems to be the wrong one.
    #[must_use]
    pub fn is_wrong_target(&self) -> bool {
        matches!(
            self,
            Self::NamedLikeSource { .. } | Self::NothingInCommon { .. }
        )
    }

    /// The fault without consent: [`Code::NotEmpty`].
    #[must_use]
    pub fn refusal(&self) -> Fault {
        let (cause, hint) = match self {
            Self::NamedLikeSource { .. } | Self::NothingInCommon { .. } => (
                format!("nothing copied or deleted: {self}"),
                "the contents of the source go into the target, not the source itself; name the \
                 directory in it that is meant, or use --force"
                    .to_owned(),
            ),
            Self::Root { names } | Self::Share { names, .. } => (
                format!("nothing deleted: {self}"),
                format!("look at them with --dry-run; use --force or --max-delete {names}"),
            ),
        };
        Fault::new(Code::NotEmpty, OPERATION, cause).hint(hint)
    }
}

/// Decides about deletions that need consent. The default refuses them.
///
/// Called in the caller's thread, while nothing is moved; it may wait for an answer.
#[derive(Clone)]
pub struct DeletionConsent(Arc<Decide>);

type Decide = dyn Fn(&DeletionRisk) -> Result<(), Fault> + Send + Sync;

impl DeletionConsent {
    /// A decision by a function. Without consent it returns a fault, such as
    /// [`DeletionRisk::refusal`]; then nothing is deleted.
    pub fn new(
        decide: impl Fn(&DeletionRisk) -> Result<(), Fault> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(decide))
    }

    /// Whether there is consent, for a target that a server looks at.
    pub(in crate::tree) fn gives(&self, risk: &DeletionRisk) -> bool {
        (self.0)(risk).is_ok()
    }

    /// Whether there is consent.
    fn decide(&self, risk: &DeletionRisk, target: &Namespace<'_>) -> Result<(), Fault> {
        (self.0)(risk).map_err(|fault| match fault.path.is_empty() {
            true => fault.path(target.root()),
            false => fault,
        })
    }
}

impl Default for DeletionConsent {
    fn default() -> Self {
        Self::new(|risk| Err(risk.refusal()))
    }
}

impl fmt::Debug for DeletionConsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeletionConsent")
    }
}

/// Consent to one synchronisation.
pub(super) struct Consent<'a> {
    source: &'a Namespace<'a>,
    target: &'a Namespace<'a>,
    options: &'a SyncOptions,
    /// Given for everything at the target.
    is_given: bool,
}

impl<'a> Consent<'a> {
    pub(super) fn new(
        (source, target): (&'a Namespace<'a>, &'a Namespace<'a>),
        options: &'a SyncOptions,
    ) -> Self {
        let is_given = options.force || options.tree.parameters.dry_run;
        Self {
            source,
            target,
            options,
            is_given,
        }
    }

    /// Refuses a target that seems to be the wrong one, by the names directly in both directories.
    /// `names` are those of the source, without those that are left out.
    pub(super) fn decide_on_target(
        &mut self,
        names: &[Entry],
        backup: Option<&Backup<'_>>,
    ) -> Result<(), Fault> {
        // A limit bounds the loss, even in a wrong target.
        if self.is_given || self.options.delete_max.is_some() {
            return Ok(());
        }
        // The target may spell them differently.
        let names: HashSet<Vec<u8>> = names.iter().map(|entry| folded(&entry.name)).collect();
        let risk = match self.named_like_source(&names)? {
            None => self.nothing_in_common(&names, backup)?,
            risk => risk,
        };
        if let Some(risk) = risk {
            self.options.consent.decide(&risk, self.target)?;
            self.is_given = true;
        }
        Ok(())
    }

    fn named_like_source(&self, names: &HashSet<Vec<u8>>) -> Result<Option<DeletionRisk>, Fault> {
        let Some(name) = self
            .name_of_source()
            .filter(|name| !names.contains(&folded(name)))
        else {
            return Ok(None);
        };
        let found = self.target.start_look(&name).found()?;
        let is_directory = found.is_some_and(|found| found.kind == FileKind::Directory);
        let is_left_out = || self.options.tree.filter.leaves_out(&name, true);
        Ok((is_directory && !is_left_out()).then_some(DeletionRisk::NamedLikeSource { name }))
    }

    fn name_of_source(&self) -> Option<Vec<u8>> {
        let root = self.source.root();
        if self.source.is_remote() {
            return components(root).last().map(<[u8]>::to_vec);
        }
        let path = xdfs_sys::fs::path_from_bytes(root).ok()?;
        let name = path.canonicalize().ok()?.file_name()?.to_owned();
        Some(crate::local_path::path_bytes(Path::new(&name)))
    }

    fn nothing_in_common(
        &self,
        names: &HashSet<Vec<u8>>,
        backup: Option<&Backup<'_>>,
    ) -> Result<Option<DeletionRisk>, Fault> {
        let mut entries = 0;
        let mut has_directory = false;
        for entry in self.target.entries(b"") {
            let FoundName {
                path, is_directory, ..
            } = match entry {
                // It can't tell some names, which stay.
                Err(fault) if fault.code == Code::Unsupported && entries > 0 => break,
                entry => entry?,
            };
            if names.contains(&folded(&path)) {
                return Ok(None);
            }
            let is_kept = backup.is_some_and(|backup| backup.is_beneath(&path));
            if !is_kept && !self.options.tree.filter.leaves_out(&path, is_directory) {
                entries += 1;
                has_directory |= is_directory;
            }
        }
        let is_risky = entries > 0 && (has_directory || self.is_root()?);
        Ok(is_risky.then_some(DeletionRisk::NothingInCommon { entries }))
    }

    /// Refuses the removal of too many names.
    pub(super) fn decide_on_deletion(&self, deletion: &Deletion) -> Result<(), Fault> {
        let &Deletion {
            names,
            names_at_target,
            ..
        } = deletion;
        if let Some(max) = self.options.delete_max {
            if names <= max {
                return Ok(());
            }
            let cause = format!("nothing deleted: {names} names exceed the limit of {max}");
            return Err(Fault::new(Code::NotEmpty, OPERATION, cause)
                .path(self.target.root())
                .hint("look at them with --dry-run; raise --max-delete"));
        }
        if self.is_given || names == 0 {
            return Ok(());
        }
        let risk = if names > NAMES_MIN.max(names_at_target / SHARE) {
            DeletionRisk::Share {
                names,
                names_at_target,
            }
        } else if self.is_root()? {
            DeletionRisk::Root { names }
        } else {
            return Ok(());
        };
        self.options.consent.decide(&risk, self.target)
    }

    /// Whether the target is the root of a file system, a server or an export.
    fn is_root(&self) -> Result<bool, Fault> {
        let root = self.target.root();
        if !self.target.is_remote() {
            let path = xdfs_sys::fs::path_from_bytes(root).unwrap_or_default();
            return Ok(path
                .canonicalize()
                .is_ok_and(|path| path.parent().is_none()));
        }
        Ok(match components(root).count() {
            0 => true,
            1 => self
                .target
                .with_root(b"/".to_vec())
                .find_root()?
                .is_some_and(|found| lists_exports(&found)),
            _ => false,
        })
    }
}

/// The names in a path of a server.
fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let names = path.split(|b| *b == b'/');
    names.filter(|name| !matches!(*name, b"" | b"."))
}

/// Whether the root of a server is no directory of a disk, but a list of exports.
fn lists_exports(root: &Attributes) -> bool {
    (root.device, root.inode, root.mtime_ns) == (0, 0, 0)
}
