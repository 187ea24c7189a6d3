//! Directories of the target that are closed to their owner, while a synchronisation changes
//! entries in them. As `xdfs cp`, it gives the owner all rights, and the directory its mode at the
//! end.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use xdfs_proto::Fault;
use xdfs_store::local::SettableOwners;

use super::run::TreeRun;
use super::tracker::{OWNER_ALL, split};
use crate::paths::{Attributes, Call};

impl TreeRun<'_> {
    /// Gives the owner all rights to a directory of the target, if that is the user that the target
    /// is changed by and it hasn't got them. If that fails, what is to change there fails too and
    /// says why.
    pub(super) fn open_directory(&self, path: &[u8], found: &Attributes) {
        if self.options.parameters.dry_run || !self.would_open(found) {
            return;
        }
        if self.set_directory_mode(path, found.mode | OWNER_ALL) {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            opened.entry(path.to_vec()).or_insert(found.mode);
        }
    }

    /// Opens the directories of these entries.
    ///
    /// # Errors
    /// The session ended.
    pub(super) fn open_parents<'p>(
        &self,
        paths: impl Iterator<Item = &'p [u8]>,
    ) -> Result<(), Fault> {
        let parents: BTreeSet<_> = paths.map(|path| split(path).0).collect();
        let found = self.target.look_up(parents.iter().copied());
        for (path, found) in parents.into_iter().zip(found) {
            match found {
                Err(fault) if fault.ends_session => return Err(fault),
                Ok(Some(found)) => self.open_directory(path, &found),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives the directories that were opened their modes back, but for those `set` otherwise. What
    /// can't be reached any more gets the mode of the source in the next run.
    pub(super) fn close_directories(&self, set: &dyn Fn(&[u8]) -> bool) {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        // Subdirectories first, since the mode of a parent may deny access to them.
        for (path, mode) in std::mem::take(&mut *opened).into_iter().rev() {
            if !set(&path) {
                self.set_directory_mode(&path, mode);
            }
        }
    }

    fn set_directory_mode(&self, path: &[u8], mode: u32) -> bool {
        let call = Call::SetMode {
            path: self.target.at(path),
            mode,
        };
        self.target.start_beneath(call).wait().is_ok()
    }

    /// Whether an entry belongs to the user that the target is changed by, who has no rights beyond
    /// those of an owner.
    /// Whether a directory lacks rights of its owner, which is the user that the target is changed
    /// by.
    pub(super) fn would_open(&self, found: &Attributes) -> bool {
        found.mode & OWNER_ALL != OWNER_ALL && self.is_own(found)
    }

    fn is_own(&self, found: &Attributes) -> bool {
        match self.settable_owners() {
            SettableOwners::Any => false,
            SettableOwners::Own { uid, .. } => *uid == found.uid,
        }
    }
}
