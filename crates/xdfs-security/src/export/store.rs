//! The store of a session.

use std::sync::{Arc, Mutex, PoisonError};

use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{CAUSE_ADDS_ONLY, Code, Fault, Retry};
use xdfs_store::{
    File, FileRequest, OpenedFile, OpenedSink, PackOptions, SharedStore, SinkRequest, Source, Store,
};

use super::builtin::BuiltIn;
use super::file::{ExportSink, ExportSource, Prefix, Terms};
use super::folder::{Confinement, Folder, LocatedDirectory, Place};
use super::path::{Clean, rights_by_scopes};
use super::quota::Hold;
use super::{Export, Rights, Shared};
use crate::{Method, Principal};

const OPEN_SOURCE: &str = "open the source";
const OPEN_TARGET: &str = "open the target";

/// The store of one principal.
#[derive(Debug)]
pub(super) struct ExportStore {
    pub(super) shared: Arc<Shared>,
    pub(super) principal: Principal,
    /// The rights in each export.
    pub(super) rights: Vec<Rights>,
    /// The opened directories.
    folders: Vec<Mutex<Option<OpenedFolder>>>,
}

/// An open directory, and the device that it was on.
#[derive(Debug)]
struct OpenedFolder {
    device: Option<u64>,
    folder: Arc<Folder>,
}

/// A path located in an export.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) index: usize,
    pub(super) prefix: Prefix,
    /// The path in the export.
    pub(super) inner: Vec<u8>,
    /// The rights at this path.
    pub(super) rights: Rights,
}

impl ExportStore {
    pub(super) fn new(shared: Arc<Shared>, principal: Principal, rights: Vec<Rights>) -> Self {
        let folders = rights.iter().map(|_| Mutex::default()).collect();
        Self {
            shared,
            principal,
            rights,
            folders,
        }
    }

    /// Whether the root is the directory of all exports.
    pub(super) fn has_top(&self) -> bool {
        self.shared.exports.iter().all(|e| !e.name.is_empty())
    }

    /// The directories that were opened.
    fn opened_folders(&self) -> impl Iterator<Item = Arc<Folder>> {
        self.folders.iter().filter_map(|place| {
            let place = place.lock().unwrap_or_else(PoisonError::into_inner);
            place.as_ref().map(|opened| Arc::clone(&opened.folder))
        })
    }

    /// Locates a path in an export and checks that the principal has the rights `need`. `name` is
    /// appended if the path is a directory's.
    pub(super) fn locate(
        &self,
        operation: &str,
        path: &[u8],
        name: &[u8],
        need: Rights,
    ) -> Result<Located, Fault> {
        let clean = Clean::of(operation, path)?;
        let denied = |cause| Fault::new(Code::PermissionDenied, operation, cause).path(path);
        // Scopes first, so that the answer doesn't depend on what exists.
        let by_scopes = if clean.is_directory && !name.is_empty() {
            if matches!(name, b"." | b"..") || name.contains(&b'/') {
                let cause = format!("'{}' can't be the name of a file", name.escape_ascii());
                return Err(Fault::new(Code::InvalidArgument, operation, cause).path(path));
            }
            let separator: &[u8] = if clean.path.is_empty() { b"" } else { b"/" };
            let target = [&clean.path, separator, name].concat();
            rights_by_scopes(&self.principal.scopes, &target)
        } else {
            rights_by_scopes(&self.principal.scopes, &clean.path)
        };
        if !by_scopes.contains(need) {
            return Err(denied(
                "the token or ticket that you used doesn't permit this",
            ));
        }
        let (index, inner) = self.export_of(operation, path, &clean)?;
        let rights = self.rights[index] & by_scopes;
        if !rights.contains(need) {
            return Err(denied(denial(need, rights)));
        }
        let separator: &[u8] = if clean.is_directory && !inner.is_empty() {
            b"/"
        } else {
            b""
        };
        let root: &[u8] = if clean.is_absolute { b"/" } else { b"" };
        Ok(Located {
            prefix: Prefix([root, &self.shared.exports[index].name].concat()),
            inner: [inner, separator].concat(),
            index,
            rights,
        })
    }

    /// The export of a path, if the principal has any right there, and the rest of the path.
    fn export_of<'a>(
        &self,
        operation: &str,
        path: &[u8],
        clean: &'a Clean,
    ) -> Result<(usize, &'a [u8]), Fault> {
        let is_root = |export: &Export| export.name.is_empty();
        let (name, inner) = if self.shared.exports.iter().any(is_root) {
            (&b""[..], &*clean.path)
        } else if clean.path.is_empty() {
            let cause = "it is the directory of all exports, and no file";
            return Err(Fault::new(Code::IsDirectory, operation, cause)
                .path(path)
                .hint("name an export, and a file in it"));
        } else {
            clean.split_first()
        };
        let exports = self.shared.exports.iter().zip(&self.rights);
        exports
            .enumerate()
            .find(|(_, (export, rights))| export.name == name && **rights != Rights::NONE)
            .map(|(index, _)| (index, inner))
            .ok_or_else(|| {
                let cause = "no such export, or this user may not use it";
                Fault::new(Code::NotFound, operation, cause)
                    .path(path)
                    .hint("the directory / lists the exports")
            })
    }

    /// The open directory of an export; `None` if it doesn't exist and must be created first.
    pub(super) fn folder(
        &self,
        located: &Located,
        may_make: bool,
    ) -> Result<Option<Arc<Folder>>, Fault> {
        let export = &self.shared.exports[located.index];
        let see = |fault| located.prefix.fault(fault);
        let device = |place: &Place| match place {
            Place::Directory(location) => location.check_mount(&self.shared.mounts).map_err(see),
            Place::Store(_) => Ok(None),
        };
        let before = device(&export.place)?;
        let place = || {
            let place = &self.folders[located.index];
            place.lock().unwrap_or_else(PoisonError::into_inner)
        };
        let is_same = |opened: &&OpenedFolder| opened.device == before;
        if let Some(opened) = place().as_ref().filter(is_same) {
            return Ok(Some(Arc::clone(&opened.folder)));
        }
        // A second line of defence: the store beneath refuses changes as well.
        let changes = Rights::CREATE | Rights::WRITE | Rights::DELETE;
        let read_only = self.rights[located.index] & changes == Rights::NONE;
        let folder = match &export.place {
            Place::Directory(location) => {
                let found = location.find(&self.principal.user, may_make);
                let LocatedDirectory::Here(root) = found.map_err(see)? else {
                    return Ok(None);
                };
                let held = self.held(export);
                let folder = Folder::open(root, read_only, &held, export.quota, |root| {
                    self.shared.ledger(root)
                });
                folder.map_err(see)?
            }
            Place::Store(store) => Folder::over(Arc::clone(store), read_only),
        };
        let folder = Arc::new(folder);
        // It may have been unmounted before the directory was opened, which now prevents that.
        let device = device(&export.place)?;
        *place() = Some(OpenedFolder {
            device,
            folder: Arc::clone(&folder),
        });
        Ok(Some(folder))
    }

    /// How the principal is confined in an export.
    fn held(&self, export: &Export) -> Confinement {
        let principal = &self.principal;
        if !principal.scopes.is_empty() {
            let within = principal.scopes.iter();
            return Confinement::Within(within.filter_map(|s| part_of(export, &s.path)).collect());
        }
        match principal.method {
            Method::Anonymous => Confinement::Here,
            _ => Confinement::Nowhere,
        }
    }

    /// Checks a request's rights, and translates it for its export.
    fn sink(&self, request: &SinkRequest) -> Result<(Located, SinkRequest, Terms), Fault> {
        let located = self.locate(OPEN_TARGET, &request.path, &request.name, Rights::CREATE)?;
        let may_replace = located.rights.contains(Rights::WRITE);
        let inner = SinkRequest {
            path: located.inner.clone(),
            // So that the store itself refuses, now and when publishing.
            overwrite: request.overwrite && may_replace,
            ..request.clone()
        };
        let terms = Terms {
            prefix: located.prefix.clone(),
            largest_file: self.shared.exports[located.index].largest_file,
            new_only: !may_replace,
        };
        if let Some(length) = request.length {
            let result = terms.check_length(length);
            result.map_err(|fault| terms.fault(fault.path(&inner.path)))?;
        }
        Ok((located, inner, terms))
    }
}

/// The part of an export that a scope covers, as a path in its directory; `None` if there is none.
fn part_of(export: &Export, scope: &[u8]) -> Option<Vec<u8>> {
    let scope = Clean::of("", scope).ok()?;
    if export.name.is_empty() || scope.path.is_empty() {
        return Some(scope.path);
    }
    let (name, inner) = scope.split_first();
    (name == export.name).then(|| inner.to_vec())
}

/// Checks a request in its directory, and reserves its share of the quota. Without a quota there is
/// none, and the path isn't known before the sink is open.
fn hold(folder: &Folder, request: &SinkRequest) -> Result<Option<(Vec<u8>, Hold)>, Fault> {
    let Some(counted) = &folder.counted else {
        return Ok(None);
    };
    let path = folder.files.check_sink(request)?;
    let replaced = counted.replaced(&path);
    let (ledger, quota) = (&counted.ledger, counted.quota);
    ledger
        .hold(&counted.root, quota, &path, request.length, replaced)
        .map(|hold| Some((path.clone(), hold)))
        .map_err(|fault| fault.path(path))
}

impl Store for ExportStore {
    fn is_slow(&self) -> bool {
        let mut exports = self.shared.exports.iter();
        exports.any(|export| export.place.is_slow())
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        if let Some(built_in) = BuiltIn::of(path) {
            return built_in.source(&self.principal);
        }
        let located = self.locate(OPEN_SOURCE, path, b"", Rights::READ)?;
        let prefix = located.prefix.clone();
        let Some(folder) = self.folder(&located, true)? else {
            return Err(gone(OPEN_SOURCE).path(path));
        };
        let inner = folder.files.open_source(&located.inner);
        Ok(Box::new(ExportSource {
            inner: inner.map_err(|fault| prefix.fault(fault))?,
            prefix,
        }))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        if let Some(built_in) = BuiltIn::of(&request.path) {
            return built_in.sink(&self.principal, request);
        }
        let (located, inner, terms) = self.sink(request)?;
        let Some(folder) = self.folder(&located, true)? else {
            return Err(gone(OPEN_TARGET).path(&request.path));
        };
        // Before opening the sink, which reserves storage.
        let held = hold(&folder, &inner).map_err(|fault| terms.fault(fault))?;
        let opened = folder.files.open_sink(&inner);
        let opened = opened.map_err(|fault| terms.fault(fault))?;
        let hold = match held {
            Some((path, _)) if path != opened.path => {
                let cause = "the directories on the way to the target changed at this moment";
                let fault = Fault::new(Code::Busy, OPEN_TARGET, cause).path(path);
                return Err(terms.fault(fault.retry(Retry::Now)));
            }
            held => held.map(|(_, hold)| hold),
        };
        ExportSink::wrap(opened, &inner, terms, folder, hold)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        if let Some(built_in) = BuiltIn::of(&request.path) {
            return built_in.sink_path(&self.principal);
        }
        let (located, inner, terms) = self.sink(request)?;
        let Some(folder) = self.folder(&located, false)? else {
            let path = foreseen(&inner).map_err(|fault| terms.fault(fault))?;
            return Ok(terms.prefix.join(&path));
        };
        let held = hold(&folder, &inner).map_err(|fault| terms.fault(fault))?;
        let path = match held {
            Some((path, _)) => path,
            None => {
                let path = folder.files.check_sink(&inner);
                path.map_err(|fault| terms.fault(fault))?
            }
        };
        Ok(terms.prefix.join(&path))
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        if self.is_top(root) {
            self.grant_at_top(root, request, pack);
            return Ok(());
        }
        self.grant_in(root, request, pack).map(|_| ())
    }

    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        match self.is_top(root) {
            true => self.write_at_top(root, options, pack),
            false => self.write_in(root, options, pack),
        }
    }

    fn packs_wait(&self, root: &[u8]) -> bool {
        match self.is_top(root) {
            true => self
                .opened_folders()
                .any(|folder| folder.files.packs_wait(b"")),
            false => self.do_packs_wait(root),
        }
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        self.answer(call, part)
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        self.open_in_place(request)
    }
}

impl SharedStore for ExportStore {
    fn open_partial(&self, path: &[u8], number: u64) -> Result<Box<dyn File>, Fault> {
        let located = self.locate(OPEN_TARGET, path, b"", Rights::CREATE)?;
        let prefix = located.prefix.clone();
        let Some(folder) = self.folder(&located, false)? else {
            return Err(gone(OPEN_TARGET).path(path));
        };
        let opened = folder.files.open_partial(&located.inner, number);
        opened.map_err(|fault| prefix.fault(fault))
    }
}

/// The cause of a refusal for lack of a right of a user with these rights.
pub(super) fn denial(need: Rights, has: Rights) -> &'static str {
    let changes = [Rights::CREATE, Rights::WRITE, Rights::DELETE];
    let may_change = changes.iter().any(|right| has.contains(*right));
    match need {
        _ if changes.contains(&need) && !may_change => "it is read-only for this user",
        Rights::READ => "this user may not read here",
        Rights::LIST => "this user may not list directories here",
        Rights::WRITE => CAUSE_ADDS_ONLY,
        Rights::DELETE => "this user may not remove anything here",
        _ => "this user may not make files here",
    }
}

pub(super) fn gone(operation: &str) -> Fault {
    Fault::new(
        Code::NotFound,
        operation,
        "the directory of the export isn't there",
    )
}

/// The path of a target in a directory that doesn't exist yet, and will be empty.
fn foreseen(request: &SinkRequest) -> Result<Vec<u8>, Fault> {
    let SinkRequest { path, name, .. } = request;
    if path.contains(&b'/') {
        return Err(Fault::new(Code::NotFound, OPEN_TARGET, "no such directory").path(path));
    }
    if path.is_empty() && name.is_empty() {
        let fault = Fault::new(Code::IsDirectory, OPEN_TARGET, "is a directory");
        return Err(fault.hint("name a file in it"));
    }
    Ok(if path.is_empty() { name } else { path }.clone())
}
