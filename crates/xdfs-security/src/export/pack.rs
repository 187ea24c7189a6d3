//! Packs in exports: rights and quotas of their entries.
//!
//! | entry | rights |
//! |---|---|
//! | read | `read`; for a directory `list` too |
//! | file, directory, named pipe | `create`, `write` to replace |
//! | symbolic link | the same, over the whole export |
//! | hard link | the same, and `read` at the existing path |
//! | owner, attributes of an existing entry | `write` |
//!
//! The share of the whole pack is reserved in advance, and the rest is released afterwards. If the
//! quota doesn't suffice, each entry reserves its own share until one fails.

use std::sync::Arc;

use xdfs_proto::pack::{Content, Entry, Failures, PackReader, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{PackChange, PackOptions, PackRules};

use super::Rights;
use super::base::ReadRules;
use super::builtin::BuiltIn;
use super::file::Terms;
use super::folder::{Counted, Folder};
use super::path::{Clean, leads_to_scope, rights_by_scopes};
use super::store::{ExportStore, Located, denial, gone};
use crate::Scope;

const READ: &str = "read";
pub(super) const WRITE: &str = "write";

/// A client's directory in an export, for a principal.
struct Tree<'a> {
    store: &'a ExportStore,
    located: Located,
    /// The path of the directory, including the export.
    clean: Vec<u8>,
    folder: Arc<Folder>,
    operation: &'static str,
    /// Symbolic links are followed.
    follow: bool,
}

impl ExportStore {
    /// Answers a request in the directory of an export, or one in it; `false` if the pack has no
    /// room for some of the names.
    pub(super) fn grant_in(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<bool, Fault> {
        let mut tree = self.tree(READ, root)?;
        tree.follow = request.follow;
        let inner = trimmed(&tree.located.inner);
        let prefix = &tree.located.prefix;
        let shown = |fault| prefix.fault(fault);
        let rules = ReadRules {
            may_read: &|name| tree.may_read(name),
            shown: &shown,
        };
        let read = tree.folder.files.read_pack_by(inner, request, pack, &rules);
        read.map_err(shown)
    }

    /// Writes a pack in the directory of an export, or in one in it.
    pub(super) fn write_in(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        let tree = self.tree(WRITE, root)?;
        let inner = trimmed(&tree.located.inner).to_vec();
        let counted = tree.folder.counted.as_ref();
        let mut held = ReservedQuota::default();
        if let Some(counted) = counted {
            held.take_all(counted, pack);
        }
        let terms = tree.terms();
        let mut rules = Rules {
            tree: &tree,
            terms: &terms,
            options,
            counted,
            held,
            in_root: false,
        };
        let result = tree.folder.files.write_pack_by(&inner, pack, &mut rules);
        let held = rules.held;
        if let Some(counted) = counted {
            let change = result.as_ref().map_or_else(|_| held.directories(), |r| r.1);
            counted.ledger.settle(
                (held.bytes, held.names),
                (change.bytes, change.names),
                change.replaced_bytes,
            );
        }
        let (failures, _) = result.map_err(|fault| terms.fault(fault))?;
        Ok(failures.map(|fault| terms.fault(fault)))
    }

    pub(super) fn do_packs_wait(&self, root: &[u8]) -> bool {
        self.tree(WRITE, root).is_ok_and(|tree| {
            let inner = trimmed(&tree.located.inner);
            tree.folder.files.packs_wait(inner)
        })
    }

    /// Locates a directory and opens its export.
    fn tree(&self, operation: &'static str, root: &[u8]) -> Result<Tree<'_>, Fault> {
        if BuiltIn::of(root).is_some() {
            let fault = Fault::new(Code::NotDirectory, operation, "it is built in");
            return Err(fault.path(root));
        }
        // Rights are checked for each entry.
        let located = self.locate(operation, root, b"", Rights::NONE)?;
        let need = if operation == READ {
            Rights::READ
        } else {
            Rights::CREATE
        };
        let rights = self.rights[located.index];
        if !rights.contains(need) {
            let fault = Fault::new(Code::PermissionDenied, operation, denial(need, rights));
            return Err(fault.path(root));
        }
        let clean = Clean::of(operation, root)?.path;
        if !leads_to_scope(&self.principal.scopes, &clean) {
            let cause = "the token or ticket that you used doesn't permit this";
            return Err(Fault::new(Code::PermissionDenied, operation, cause).path(root));
        }
        let folder = self.folder(&located, true)?;
        Ok(Tree {
            store: self,
            clean,
            folder: folder.ok_or_else(|| gone(operation).path(root))?,
            located,
            operation,
            follow: false,
        })
    }
}

impl Tree<'_> {
    /// The rights at a path beneath the directory.
    fn rights(&self, path: &[u8]) -> Rights {
        let rights = self.store.rights[self.located.index];
        let scopes = &self.store.principal.scopes;
        if scopes.is_empty() {
            return rights;
        }
        rights & rights_by_scopes(scopes, &join(&self.clean, path))
    }

    /// Checks for a right. The fault has a path within the export.
    fn need(&self, path: &[u8], need: Rights) -> Result<Rights, Fault> {
        let rights = self.rights(path);
        if rights.contains(need) {
            return Ok(rights);
        }
        Err(self.denied(path, denial(need, rights)))
    }

    fn denied(&self, path: &[u8], cause: &str) -> Fault {
        Fault::new(Code::PermissionDenied, self.operation, cause).path(self.inner(path))
    }

    /// A path in the export.
    fn inner(&self, path: &[u8]) -> Vec<u8> {
        join(trimmed(&self.located.inner), path)
    }

    fn terms(&self) -> Terms {
        let export = &self.store.shared.exports[self.located.index];
        Terms {
            prefix: self.located.prefix.clone(),
            largest_file: export.largest_file,
            new_only: !self.store.rights[self.located.index].contains(Rights::WRITE),
        }
    }

    /// Whether the directory of the transfer may be created: it lies in, or leads to, a scope with
    /// that right.
    fn may_make_root(&self) -> bool {
        let above = |scope: &Scope| {
            scope.rights.contains(Rights::CREATE)
                && Clean::of("", &scope.path).is_ok_and(|scope| {
                    let rest = scope.path.strip_prefix(&*self.clean);
                    rest.is_some_and(|rest| rest.starts_with(b"/"))
                })
        };
        let scopes = &self.store.principal.scopes;
        self.rights(b"").contains(Rights::CREATE) || scopes.iter().any(above)
    }

    fn may_read(&self, path: &[u8]) -> Result<(), Fault> {
        let rights = self.need(path, Rights::READ)?;
        if rights.contains(Rights::LIST) {
            return Ok(());
        }
        let call = Call::Stat {
            path: self.inner(path),
            follow: self.follow,
        };
        match self.folder.files.call(&call, &mut |_| Ok(())) {
            Ok(Answer::Attributes(found)) if found.kind == FileKind::Directory => {
                let cause = "this user may not look at directories here";
                Err(self.denied(path, cause))
            }
            // Other problems show when it is read.
            _ => Ok(()),
        }
    }
}

/// The quota reserved for a pack.
#[derive(Clone, Copy, Debug, Default)]
struct ReservedQuota {
    bytes: u64,
    names: u64,
    /// The part for directories that no entry names.
    directories: u64,
    /// It was reserved for the whole pack.
    is_whole: bool,
}

impl ReservedQuota {
    fn take(&mut self, counted: &Counted, bytes: u64, names: u64) -> Result<(), Fault> {
        let ledger = &counted.ledger;
        ledger.take(&counted.root, counted.quota, bytes, names)?;
        self.bytes += bytes;
        self.names += names;
        Ok(())
    }

    /// Reserves the share of the whole pack, if it suffices. A pack that can't be decoded is
    /// refused later.
    fn take_all(&mut self, counted: &Counted, pack: &[u8]) {
        let limits = Limits::default();
        let (mut bytes, mut names) = (0_u64, 0);
        for entry in PackReader::new(pack, &limits).flatten() {
            bytes += own_bytes(&entry);
            names += u64::from(makes_name(&entry));
        }
        self.is_whole = self.take(counted, bytes, names).is_ok();
    }

    /// The change made by a pack that failed as a whole: its parent directories may exist.
    fn directories(&self) -> PackChange {
        PackChange {
            names: self.directories,
            ..PackChange::default()
        }
    }
}

fn own_bytes(entry: &Entry<'_>) -> u64 {
    match entry.content {
        Content::File(data) => data.len() as u64,
        _ => 0,
    }
}

fn makes_name(entry: &Entry<'_>) -> bool {
    let makes = matches!(
        entry.content,
        Content::File(_)
            | Content::Directory
            | Content::Symlink(_)
            | Content::HardLink(_)
            | Content::Fifo
    );
    makes && !entry.path.is_empty()
}

struct Rules<'a> {
    tree: &'a Tree<'a>,
    terms: &'a Terms,
    options: PackOptions,
    counted: Option<&'a Counted>,
    held: ReservedQuota,
    /// The directory of the transfer is open: further directories belong to entries.
    in_root: bool,
}

impl PackRules for Rules<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Result<bool, Fault> {
        let tree = self.tree;
        let path = entry.path;
        self.in_root = true;
        let need = match entry.content {
            Content::Attributes => Rights::WRITE,
            _ if entry.metadata.owner.is_some() => Rights::CREATE | Rights::WRITE,
            _ => Rights::CREATE,
        };
        let rights = tree.need(path, need)?;
        let is_export = path.is_empty() && tree.located.inner.is_empty();
        let metadata = &entry.metadata;
        match entry.content {
            Content::File(data) => self.terms.check_length(data.len() as u64)?,
            Content::Symlink(_) => {
                let checked = tree.store.check_symlink(&tree.located, rights);
                checked.map_err(|cause| tree.denied(path, cause))?;
            }
            Content::HardLink(existing) => {
                let from = tree.need(existing, Rights::READ)?;
                if !from.contains(rights) {
                    let cause = "this user would have more rights to it there";
                    return Err(tree.denied(path, cause));
                }
            }
            Content::Attributes
                if is_export
                    && (metadata.mode.is_some()
                        || metadata.owner.is_some()
                        || !metadata.xattrs.is_empty()) =>
            {
                let cause = "it is the directory of the export itself";
                return Err(tree.denied(path, cause));
            }
            _ => {}
        }
        let replace = self.options.overwrite && rights.contains(Rights::WRITE);
        self.charge(entry, replace)?;
        Ok(replace)
    }

    fn directory(&mut self) -> Result<(), Fault> {
        if !self.in_root && !self.tree.may_make_root() {
            return Err(self
                .tree
                .denied(b"", denial(Rights::CREATE, self.tree.rights(b""))));
        }
        if let Some(counted) = self.counted {
            self.held.take(counted, 0, 1)?;
            self.held.directories += 1;
        }
        Ok(())
    }

    fn is_relaxed(&self) -> bool {
        self.options.relaxed
    }

    fn may_set_id(&self) -> bool {
        let tree = self.tree;
        let may_link = tree.store.check_symlink(&tree.located, Rights::WRITE);
        may_link.is_ok() && tree.store.rights[tree.located.index].contains(Rights::WRITE)
    }

    fn counts(&self) -> bool {
        self.counted.is_some()
    }
}

impl Rules<'_> {
    /// Reserves the cost of an entry, unless that of the whole pack is reserved.
    fn charge(&mut self, entry: &Entry<'_>, replace: bool) -> Result<(), Fault> {
        let Some(counted) = self.counted else {
            return Ok(());
        };
        if let Content::HardLink(existing) = entry.content {
            // It may have been created by this pack.
            let existing = counted.replaced(&self.tree.inner(existing));
            self.held.take(counted, existing.unwrap_or(0), 0)?;
        }
        if self.held.is_whole || !makes_name(entry) {
            return Ok(());
        }
        let bytes = own_bytes(entry);
        let there = counted.replaced(&self.tree.inner(entry.path));
        match there {
            None => self.held.take(counted, bytes, 1),
            Some(length) if replace => self.held.take(counted, bytes.saturating_sub(length), 0),
            // An existing directory costs nothing, and everything else is refused.
            Some(_) => Ok(()),
        }
    }
}

fn join(root: &[u8], path: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if root.is_empty() || path.is_empty() {
        b""
    } else {
        b"/"
    };
    [root, separator, path].concat()
}

/// A path without trailing '/'.
fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}
