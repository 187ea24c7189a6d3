//! Removal of unfinished transfers that nobody has continued for long.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use xdfs_proto::path::{Call, PartialFile};
use xdfs_store::{LocalStore, Store as _};

use super::folder::{ExportLocation, LocatedDirectory, USER};
use super::{Exports, Shared};

impl Exports {
    /// Discards the unfinished transfers in all exports that haven't changed since `before_ns`
    /// (nanoseconds since 1970), except those that run. Asks `goes_on` before each. Returns how
    /// many it has discarded. What fails is logged, and tried again the next time.
    pub fn expire_partial(&self, before_ns: i64, goes_on: &dyn Fn() -> bool) -> u64 {
        let mut count = 0;
        for root in self
            .shared
            .exports
            .iter()
            .filter_map(|export| export.place.directory())
            .flat_map(ExportLocation::all)
        {
            count += self.shared.expire_in(&root, before_ns, goes_on);
        }
        count
    }
}

impl Shared {
    fn expire_in(&self, root: &Path, before_ns: i64, goes_on: &dyn Fn() -> bool) -> u64 {
        let shown = root.as_os_str().as_encoded_bytes().escape_ascii();
        let files = match LocalStore::rooted(root, false) {
            Ok(files) => files,
            Err(fault) => {
                tracing::warn!(%fault, "unfinished transfers can't be looked for");
                return 0;
            }
        };
        let mut count = 0;
        let unread = files.each_partial(&mut |path: &[u8], file: &PartialFile| {
            if !goes_on() {
                return ControlFlow::Break(());
            }
            if file.mtime_ns >= before_ns {
                return ControlFlow::Continue(());
            }
            let call = Call::RemovePartial {
                path: path.to_vec(),
                unchanged_since_ns: Some(before_ns),
            };
            let ledger = self.known_ledger(root);
            let turn = ledger.as_ref().map(|ledger| ledger.turns.alone());
            match files.call(&call, &mut |_| Ok(())) {
                Ok(_) => {
                    count += 1;
                    if let Some(ledger) = &ledger {
                        ledger.discarded(path.strip_prefix(b"/").unwrap_or(path));
                    }
                    let path = path.escape_ascii();
                    tracing::info!(root = %shown, %path, "an unfinished transfer has expired");
                }
                Err(fault) => {
                    tracing::info!(root = %shown, %fault, "an unfinished transfer stays");
                }
            }
            drop(turn);
            ControlFlow::Continue(())
        });
        if unread > 0 {
            tracing::warn!(root = %shown, unread, "directories can't be read for expiry");
        }
        count
    }
}

impl ExportLocation {
    /// The directories of all users that exist.
    fn all(&self) -> Vec<PathBuf> {
        let Some((above, name)) = self.users() else {
            return match self.find("", false) {
                Ok(LocatedDirectory::Here(path)) => vec![path],
                _ => Vec::new(),
            };
        };
        let (before, after) = name.split_once(USER).unwrap_or_default();
        let names = fs::read_dir(above).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| {
                let user = name.strip_prefix(before)?.strip_suffix(after)?;
                match self.find(user, false) {
                    Ok(LocatedDirectory::Here(path)) => Some(path),
                    _ => None,
                }
            })
            .collect()
    }
}
