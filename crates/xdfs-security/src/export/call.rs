//! Calls about paths: the rights they need, and their effect on the quota.
//!
//! | call | rights |
//! |---|---|
//! | stat | `list`; `read` suffices for anything but a directory |
//! | list | `list`; the list of exports contains those with any right |
//! | look up | `list`; in the directory of all exports that of any of them |
//! | space, settable owners | any |
//! | sync | `create`, `write` or `delete`; of all exports, those with any of these |
//! | read link, checksum, signatures | `read` |
//! | make directory or symbolic link | `create` |
//! | remove | `delete` |
//! | set mode, times, owner, length | `write` |
//! | rename | `delete` at the old path, `create` at the new one, `write` to replace |
//! | copy, link, seed | `read` at the old path, `create` at the new one, `write` to replace |

use std::sync::Arc;

use xdfs_proto::path::{Answer, Attributes, Call, Entry, FileKind};
use xdfs_proto::{Code, Fault};

use super::Rights;
use super::builtin::BuiltIn;
use super::file::Terms;
use super::folder::{Counted, Folder};
use super::path::{Clean, rights_by_scopes};
use super::store::{ExportStore, Located, gone};
use crate::Method;

type Part<'a> = dyn FnMut(Answer) -> Result<(), Fault> + 'a;

impl ExportStore {
    pub(super) fn answer(&self, call: &Call, part: &mut Part<'_>) -> Result<Answer, Fault> {
        if let Call::LookUp { accounts, .. } = call {
            return self.look_up(call, accounts.len(), part);
        }
        let (first, second) = paths(call);
        if let Some(built_in) = BuiltIn::of(first).or_else(|| second.and_then(BuiltIn::of)) {
            return built_in.call(&self.principal, call);
        }
        if let Call::Seed(seed) = call {
            // Needs the rights of a download of the one and an upload to the other.
            let seeded = xdfs_store::seed(self, seed).map_err(|mut fault| {
                fault.operation = call.operation().into();
                fault
            });
            return seeded.map(|bytes| Answer::Copied { bytes });
        }
        let clean = Clean::of(call.operation(), first)?;
        if self.has_top() && clean.path.is_empty() && second.is_none() {
            return self.top(call, part);
        }
        match second {
            None => self.one(call, first, part),
            Some(second) => self.two(call, first, second),
        }
    }

    /// Looks up accounts of this system, which are the same in all exports. Anonymous users learn
    /// none: strangers need no list of names to try elsewhere.
    fn look_up(&self, call: &Call, count: usize, part: &mut Part<'_>) -> Result<Answer, Fault> {
        let list = [Rights::LIST];
        let clean = Clean::of(call.operation(), call.path())?;
        let is_above =
            self.has_top() && clean.path.is_empty() || BuiltIn::of(call.path()).is_some();
        let path = if is_above {
            let visible = self.visible().into_iter();
            let mut listed = visible.filter(|name| self.locate_any(call, name, &list).is_ok());
            listed.next().ok_or_else(|| {
                let cause = "this user may list nothing here";
                Fault::new(Code::PermissionDenied, call.operation(), cause).path(call.path())
            })?
        } else {
            call.path()
        };
        if self.principal.method == Method::Anonymous {
            self.locate_any(call, path, &list)?;
            return Ok(Answer::Accounts(vec![None; count]));
        }
        self.one(call, path, part)
    }

    /// Answers a call about the directory of all exports.
    fn top(&self, call: &Call, part: &mut Part<'_>) -> Result<Answer, Fault> {
        let fault = |code, cause| Fault::new(code, call.operation(), cause).path(call.path());
        let visible = self.visible();
        if visible.is_empty() {
            return Err(fault(
                Code::PermissionDenied,
                "this user may see nothing here",
            ));
        }
        match call {
            Call::Stat { .. } => Ok(Answer::Attributes(directory())),
            Call::List {
                cursor,
                entries_max,
                ..
            } => {
                let most = usize::try_from(*entries_max).unwrap_or(usize::MAX);
                if most == 0 {
                    let cause = "a listing must ask for at least one entry";
                    return Err(fault(Code::InvalidArgument, cause));
                }
                let mut rest = visible.into_iter().filter(|name| *name > &**cursor);
                let entries: Vec<Entry> = rest
                    .by_ref()
                    .take(most)
                    .map(|name| Entry {
                        name: name.to_vec(),
                        attributes: directory(),
                    })
                    .collect();
                let last = rest.next().and_then(|_| entries.last());
                let cursor = last.map(|entry| entry.name.clone());
                Ok(Answer::Entries { entries, cursor })
            }
            Call::ListPartial { .. } => Ok(Answer::Partial {
                files: Vec::new(),
                more: false,
            }),
            Call::Sync { .. } => {
                let scopes = self.principal.scopes.iter().map(|scope| &*scope.path);
                let scopes: Vec<&[u8]> = scopes.collect();
                let is_whole = scopes.is_empty() || scopes.iter().any(|path| self.is_top(path));
                for path in if is_whole { visible } else { scopes } {
                    self.sync_part(call, path, part)?;
                }
                Ok(Answer::Done)
            }
            call if call.is_read_only() => Err(fault(
                Code::IsDirectory,
                "it is the directory of all exports, and no file",
            )),
            _ => Err(fault(
                Code::PermissionDenied,
                "the directory of all exports can't be changed",
            )),
        }
    }

    /// Synchronises an export, or a scope in one, if it exists and the principal may change
    /// anything there.
    fn sync_part(&self, call: &Call, path: &[u8], part: &mut Part<'_>) -> Result<(), Fault> {
        let changes = [Rights::CREATE, Rights::WRITE, Rights::DELETE];
        let synced = self.locate_any(call, path, &changes).and_then(|located| {
            if self.folder(&located, false)?.is_some() {
                let inner = Call::Sync {
                    path: path.to_vec(),
                };
                self.one(&inner, path, part)?;
            }
            Ok(())
        });
        match synced {
            Err(fault) if matches!(fault.code, Code::PermissionDenied | Code::NotFound) => Ok(()),
            synced => synced,
        }
    }

    /// The names of the exports visible to the principal, in order.
    fn visible(&self) -> Vec<&[u8]> {
        let in_scope = |name: &[u8]| {
            let scopes = &self.principal.scopes;
            scopes.is_empty()
                || scopes.iter().any(|scope| {
                    Clean::of("", &scope.path)
                        .is_ok_and(|scope| scope.path.is_empty() || scope.split_first().0 == name)
                })
        };
        let exports = self.shared.exports.iter().zip(&self.rights);
        let mut names: Vec<&[u8]> = exports
            .filter(|(export, rights)| **rights != Rights::NONE && in_scope(&export.name))
            .map(|(export, _)| &*export.name)
            .collect();
        names.sort_unstable();
        names
    }

    /// Locates a path for which the principal has one of these rights.
    fn locate_any(&self, call: &Call, path: &[u8], any: &[Rights]) -> Result<Located, Fault> {
        let mut denied = None;
        for need in any {
            match self.locate(call.operation(), path, b"", *need) {
                Err(fault) if fault.code == Code::PermissionDenied => {
                    denied.get_or_insert(fault);
                }
                result => return result,
            }
        }
        Err(denied.unwrap_or_else(|| gone(call.operation()).path(path)))
    }

    fn opened(&self, call: &Call, located: &Located, path: &[u8]) -> Result<Arc<Folder>, Fault> {
        let folder = self.folder(located, true)?;
        folder.ok_or_else(|| gone(call.operation()).path(path))
    }

    /// Answers a call about one path.
    fn one(&self, call: &Call, path: &[u8], part: &mut Part<'_>) -> Result<Answer, Fault> {
        let any: &[Rights] = match call {
            Call::Stat { .. } | Call::Group { .. } => &[Rights::LIST, Rights::READ],
            Call::List { .. } | Call::ListPartial { .. } | Call::LookUp { .. } => &[Rights::LIST],
            Call::Space { .. } | Call::SettableOwners { .. } => &[
                Rights::LIST,
                Rights::READ,
                Rights::CREATE,
                Rights::WRITE,
                Rights::DELETE,
            ],
            Call::Sync { .. } => &[Rights::CREATE, Rights::WRITE, Rights::DELETE],
            Call::ReadLink { .. } | Call::Checksum { .. } | Call::Signatures { .. } => {
                &[Rights::READ]
            }
            Call::MakeDirectory { .. } | Call::Symlink { .. } => &[Rights::CREATE],
            Call::RemoveFile { .. }
            | Call::RemoveDirectory { .. }
            | Call::RemoveTree { .. }
            | Call::RemovePartial { .. } => &[Rights::DELETE],
            _ => &[Rights::WRITE],
        };
        let located = self.locate_any(call, path, any)?;
        let fault = |code, cause| Fault::new(code, call.operation(), cause).path(path);
        if matches!(call, Call::SetMode { .. } | Call::SetOwner { .. }) && located.inner.is_empty()
        {
            let cause = "it is the directory of the export itself";
            return Err(fault(Code::PermissionDenied, cause));
        }
        if matches!(call, Call::Symlink { .. }) {
            self.check_symlink(&located, located.rights)
                .map_err(|cause| fault(Code::PermissionDenied, cause))?;
        }
        let folder = self.opened(call, &located, path)?;
        let mut stopped = false;
        let mut part = |answer| part(answer).inspect_err(|_| stopped = true);
        let mut call_inside = AllowedCall {
            folder: &folder,
            terms: self.terms(&located, false),
            part: &mut part,
        };
        let answer = call_inside.one(&with_path(call, &located.inner));
        let answer = answer.map_err(|mut fault| {
            if stopped {
                return fault;
            }
            fault.operation = call.operation().into();
            located.prefix.fault(fault)
        })?;
        match (&answer, &folder.counted) {
            (Answer::Space { .. }, Some(counted)) => counted.space(answer),
            (Answer::Attributes(found), _)
                if found.kind == FileKind::Directory && !located.rights.contains(Rights::LIST) =>
            {
                let cause = "this user may not look at directories here";
                Err(fault(Code::PermissionDenied, cause))
            }
            _ => Ok(answer),
        }
    }

    /// Links affect what a scope covers, and other processes on this machine may follow them.
    pub(super) fn check_symlink(
        &self,
        located: &Located,
        rights: Rights,
    ) -> Result<(), &'static str> {
        let export = &self.shared.exports[located.index];
        if self.principal.method == Method::Anonymous {
            return Err("only authenticated users may create links");
        }
        let scopes = &self.principal.scopes;
        let makes_links = !scopes.is_empty() && scopes.iter().all(|scope| scope.makes_links);
        if !makes_links && !rights_by_scopes(scopes, &export.name).contains(rights) {
            return Err("links are made by users whose rights are for the whole export");
        }
        Ok(())
    }

    fn terms(&self, located: &Located, new_only: bool) -> Terms {
        Terms {
            prefix: located.prefix.clone(),
            largest_file: self.shared.exports[located.index].largest_file,
            new_only,
        }
    }

    /// Answers a call about two paths.
    fn two(&self, call: &Call, first: &[u8], second: &[u8]) -> Result<Answer, Fault> {
        let operation = call.operation();
        let need = if matches!(call, Call::Rename { .. }) {
            Rights::DELETE
        } else {
            Rights::READ
        };
        let from = self.locate(operation, first, b"", need)?;
        let to = self.locate(operation, second, b"", Rights::CREATE)?;
        if from.index != to.index {
            let cause = "the two paths are in different exports";
            return Err(Fault::new(Code::CrossDevice, operation, cause)
                .path(second)
                .hint("copy it through the client"));
        }
        let is_moved = !matches!(call, Call::Copy { .. });
        if is_moved && !from.rights.contains(to.rights) {
            let cause = "this user would have more rights to it there";
            return Err(Fault::new(Code::PermissionDenied, operation, cause).path(second));
        }
        let may_replace = to.rights.contains(Rights::WRITE);
        let inner = match call {
            Call::Rename { overwrite, .. } => Call::Rename {
                from: from.inner.clone(),
                to: to.inner.clone(),
                overwrite: *overwrite && may_replace,
            },
            Call::Copy { overwrite, .. } => Call::Copy {
                from: from.inner.clone(),
                to: to.inner.clone(),
                overwrite: *overwrite && may_replace,
            },
            _ => Call::Link {
                existing: from.inner.clone(),
                path: to.inner.clone(),
            },
        };
        let folder = self.opened(call, &from, first)?;
        let mut inside = AllowedCall {
            folder: &folder,
            terms: self.terms(&to, !may_replace),
            part: &mut |_| Ok(()),
        };
        inside.two(&inner).map_err(|mut fault| {
            fault.operation = operation.into();
            if fault.path == to.inner {
                inside.terms.fault(fault)
            } else {
                from.prefix.fault(fault)
            }
        })
    }
}

/// The paths of a call.
fn paths(call: &Call) -> (&[u8], Option<&[u8]>) {
    match call {
        Call::Rename { from, to, .. } | Call::Copy { from, to, .. } => (from, Some(to)),
        Call::Link { existing, path } => (existing, Some(path)),
        Call::Seed(seed) => (&seed.from, Some(&seed.to)),
        call => (call.path(), None),
    }
}

/// The same call with another path.
fn with_path(call: &Call, inner: &[u8]) -> Call {
    let mut call = call.clone();
    match &mut call {
        Call::Stat { path, .. }
        | Call::List { path, .. }
        | Call::MakeDirectory { path, .. }
        | Call::RemoveFile { path }
        | Call::RemoveDirectory { path }
        | Call::RemoveTree { path }
        | Call::Symlink { path, .. }
        | Call::ReadLink { path }
        | Call::SetMode { path, .. }
        | Call::SetTimes { path, .. }
        | Call::SetOwner { path, .. }
        | Call::Truncate { path, .. }
        | Call::Space { path }
        | Call::Sync { path }
        | Call::Checksum { path, .. }
        | Call::ListPartial { path, .. }
        | Call::RemovePartial { path, .. }
        | Call::LookUp { path, .. }
        | Call::SettableOwners { path }
        | Call::Group { path }
        | Call::Signatures { path, .. } => *path = inner.to_vec(),
        // Calls with two paths are built from scratch.
        _ => {}
    }
    call
}

/// The attributes of an export, and of the directory of all exports.
fn directory() -> Attributes {
    Attributes {
        kind: FileKind::Directory,
        size: 0,
        allocated: 0,
        mode: 0o555,
        uid: 0,
        gid: 0,
        links: 1,
        device: 0,
        inode: 0,
        atime_ns: 0,
        mtime_ns: 0,
        ctime_ns: 0,
    }
}

/// An allowed call in the directory of its export. Paths are relative to that.
struct AllowedCall<'a, 'p> {
    folder: &'a Folder,
    terms: Terms,
    part: &'a mut Part<'p>,
}

impl AllowedCall<'_, '_> {
    fn pass(&mut self, call: &Call) -> Result<Answer, Fault> {
        self.folder.files.call(call, self.part)
    }

    fn stat(&self, path: &[u8], follow: bool) -> Result<Attributes, Fault> {
        let call = Call::Stat {
            path: path.to_vec(),
            follow,
        };
        match self.folder.files.call(&call, &mut |_| Ok(()))? {
            Answer::Attributes(found) => Ok(found),
            _ => Err(Fault::new(Code::Internal, "", "a store gave another answer").path(path)),
        }
    }

    fn one(&mut self, call: &Call) -> Result<Answer, Fault> {
        if let Call::Truncate { path, length } = call {
            let checked = self.terms.check_length(*length);
            checked.map_err(|fault| fault.path(path))?;
        }
        let Some(counted) = &self.folder.counted else {
            return self.pass(call);
        };
        let ledger = &counted.ledger;
        match call {
            Call::MakeDirectory { path, .. } => {
                let _turn = ledger.turns.alone();
                let before = self.missing(path);
                take(counted, path, 0, before)?;
                let result = self.pass(call);
                // Some of them may have been created.
                ledger.give(0, before.min(self.missing(path)));
                result
            }
            Call::Symlink { path, .. } => {
                take(counted, path, 0, 1)?;
                self.pass(call).inspect_err(|_| ledger.give(0, 1))
            }
            Call::RemoveFile { path } | Call::RemoveDirectory { path } => {
                let _turn = ledger.turns.alone();
                let length = counted.replaced(trimmed(path)).unwrap_or(0);
                self.pass(call).inspect(|_| ledger.give(length, 1))
            }
            Call::RemoveTree { path } => {
                let path = trimmed(path);
                let mut turn = None;
                let removed = self.folder.files.remove_tree_by(path, &mut |removed| {
                    if let Some((path, found)) = removed {
                        ledger.removed(path, found.kind == FileKind::File, found.size);
                    }
                    // Released first, since a turn must not be taken twice.
                    turn = None;
                    if removed.is_none() {
                        turn = Some(ledger.turns.alone());
                    }
                });
                drop(turn);
                removed.map(|entries| Answer::Removed { entries })
            }
            Call::RemovePartial { path, .. } => {
                let _turn = ledger.turns.alone();
                self.pass(call).inspect(|_| ledger.discarded(trimmed(path)))
            }
            Call::Truncate { path, length } => {
                let _turn = ledger.turns.alone();
                // Each hard link of the file is counted.
                let found = self.stat(path, true)?;
                let (before, names) = (found.size, found.links.max(1));
                let more = length.saturating_sub(before).saturating_mul(names);
                take(counted, path, more, 0)?;
                let result = self.pass(call);
                let less = before.saturating_sub(*length).saturating_mul(names);
                ledger.give(if result.is_ok() { less } else { more }, 0);
                result
            }
            call => self.pass(call),
        }
    }

    /// Number of missing directories in a path, including the last.
    fn missing(&self, path: &[u8]) -> u64 {
        let path = trimmed(path);
        let cuts = path.iter().enumerate().filter(|(_, b)| **b == b'/');
        let ends: Vec<usize> = cuts.map(|(cut, _)| cut).chain([path.len()]).collect();
        let mut missing = 0;
        for end in ends.into_iter().rev() {
            match self.stat(&path[..end], true) {
                Err(fault) if fault.code == Code::NotFound => missing += 1,
                _ => break,
            }
        }
        missing
    }

    fn two(&mut self, call: &Call) -> Result<Answer, Fault> {
        if let Call::Copy {
            from,
            to,
            overwrite,
        } = call
        {
            return self.copy(from, to, *overwrite);
        }
        let Some(counted) = &self.folder.counted else {
            return self.pass(call);
        };
        let ledger = &counted.ledger;
        match call {
            Call::Rename { from, to, .. } => {
                let _turn = ledger.turns.alone();
                let (from, to) = (trimmed(from), trimmed(to));
                let replaced = counted.replaced(to);
                let is_directory = self.stat(from, false)?.kind == FileKind::Directory;
                let answer = self.pass(call)?;
                // Renaming between two hard links of one file keeps both.
                if let Some(length) = replaced
                    && counted.replaced(from).is_none()
                {
                    ledger.give(length, 1);
                }
                if is_directory {
                    ledger.moved(from, to);
                }
                Ok(answer)
            }
            Call::Link { existing, path } => {
                let _turn = ledger.turns.alone();
                let found = self.stat(existing, false)?;
                let is_file = found.kind == FileKind::File;
                let length = if is_file { found.size } else { 0 };
                take(counted, path, length, 1)?;
                self.pass(call).inspect_err(|_| ledger.give(length, 1))
            }
            call => self.pass(call),
        }
    }

    fn copy(&self, from: &[u8], to: &[u8], overwrite: bool) -> Result<Answer, Fault> {
        let fault = |fault: Fault| fault.path(to);
        let length = self.stat(from, true)?.size;
        self.terms.check_length(length).map_err(fault)?;
        let files = &self.folder.files;
        let Some(counted) = &self.folder.counted else {
            let mut ready = |length| self.terms.check_length(length).map_err(fault);
            let copied = files.copy_by(from, to, overwrite, &mut ready);
            return copied.map(|bytes| Answer::Copied { bytes });
        };
        let mut replaced = counted.replaced(to);
        let (ledger, quota) = (&counted.ledger, counted.quota);
        let mut hold = ledger
            .hold(&counted.root, quota, to, Some(length), replaced)
            .map_err(fault)?;
        let mut turn = None;
        let bytes = files.copy_by(from, to, overwrite, &mut |length| {
            // The source may have grown.
            let checked = self.terms.check_length(length);
            checked.and_then(|()| hold.reach(length)).map_err(fault)?;
            turn = Some(ledger.turns.new_name());
            replaced = counted.replaced(to);
            Ok(())
        })?;
        hold.published(bytes, replaced);
        drop(turn);
        Ok(Answer::Copied { bytes })
    }
}

/// A path without trailing '/'.
fn trimmed(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn take(counted: &Counted, path: &[u8], bytes: u64, files: u64) -> Result<(), Fault> {
    let taken = counted
        .ledger
        .take(&counted.root, counted.quota, bytes, files);
    taken.map_err(|fault| fault.path(path))
}
