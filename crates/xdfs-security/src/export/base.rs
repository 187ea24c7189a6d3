//! The store that an export stands on: local files, or any other store.

use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::Resume;
use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackRequest, PackWriter,
};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{Code, Fault, Limits, SourceTag};
use xdfs_store::{
    File, FileRequest, LocalStore, OpenedFile, OpenedSink, PackChange, PackOptions, PackRules,
    RemovedName, SharedStore, SinkRequest, Store, check_cancelled,
};

/// Set-user-id, set-group-id and the sticky bit.
const SPECIAL: u16 = 0o7000;
/// Bytes of a file that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// Decides about the names of a request, and rewrites the faults of those that can't be read.
pub(super) struct ReadRules<'a> {
    /// Whether a name may be read.
    pub(super) may_read: &'a dyn Fn(&[u8]) -> Result<(), Fault>,
    /// The fault that the client gets in place of this one.
    pub(super) shown: &'a dyn Fn(Fault) -> Fault,
}

/// A store beneath an export, whose larger operations can be allowed and counted step by step.
pub(super) trait Base: SharedStore {
    /// Reads names into a pack as [`Store::read_pack`] does, those that may be read. Returns
    /// `false` if the pack has no room for some of them.
    ///
    /// # Errors
    /// The errors of [`Store::read_pack`].
    fn read_pack_by(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
        rules: &ReadRules<'_>,
    ) -> Result<bool, Fault>;

    /// Writes the entries of a pack as [`Store::write_pack`] does, restricted by `rules`, and
    /// returns the changes made.
    ///
    /// # Errors
    /// The errors of [`Store::write_pack`].
    fn write_pack_by(
        &self,
        root: &[u8],
        pack: &[u8],
        rules: &mut dyn PackRules,
    ) -> Result<(Failures, PackChange), Fault>;

    /// Removes a directory with its content: see [`LocalStore::remove_tree`].
    ///
    /// # Errors
    /// A fault that names the path; some of the tree may have been removed.
    fn remove_tree_by(
        &self,
        path: &[u8],
        removed: &mut dyn FnMut(RemovedName<'_>),
    ) -> Result<u64, Fault>;

    /// Copies a file, and calls `ready` with its length before the copy gets its name: see
    /// [`LocalStore::copy`].
    ///
    /// # Errors
    /// A fault that names one of the paths, or the fault of `ready`, in which case there is no
    /// copy.
    fn copy_by(
        &self,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
        ready: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<u64, Fault>;
}

impl Base for LocalStore {
    fn read_pack_by(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
        rules: &ReadRules<'_>,
    ) -> Result<bool, Fault> {
        let source = self.pack_builder(root, request.keep, request.file_bytes_max)?;
        let mut source = source.following(request.follow);
        for name in &request.names {
            let allowed = (rules.may_read)(name);
            if !source.grant_one(name, pack, allowed, rules.shown) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn write_pack_by(
        &self,
        root: &[u8],
        pack: &[u8],
        rules: &mut dyn PackRules,
    ) -> Result<(Failures, PackChange), Fault> {
        Self::write_pack_by(self, root, pack, rules)
    }

    fn remove_tree_by(
        &self,
        path: &[u8],
        removed: &mut dyn FnMut(RemovedName<'_>),
    ) -> Result<u64, Fault> {
        self.remove_tree(path, removed)
    }

    fn copy_by(
        &self,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
        ready: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<u64, Fault> {
        self.copy(from, to, overwrite, ready)
    }
}

/// Any store, in which names alone decide what a path leads to: no symbolic link is made in it, and
/// no special bit set.
///
/// It counts nothing, so that an export with a quota can't stand on it.
#[derive(Debug)]
pub(super) struct AnyStore {
    store: Arc<dyn Store>,
    /// Changes are refused, whatever the rights are.
    is_read_only: bool,
}

impl AnyStore {
    pub(super) fn new(store: Arc<dyn Store>, is_read_only: bool) -> Self {
        Self {
            store,
            is_read_only,
        }
    }

    fn check_writable(&self, operation: &str, path: &[u8]) -> Result<(), Fault> {
        match self.is_read_only {
            true => {
                let cause = "this server takes no writes";
                Err(Fault::new(Code::ReadOnly, operation, cause).path(path))
            }
            false => Ok(()),
        }
    }

    /// The request, without special bits.
    fn sink_request(&self, request: &SinkRequest) -> Result<SinkRequest, Fault> {
        self.check_writable("open the target", &request.path)?;
        Ok(SinkRequest {
            mode: request.mode.map(|mode| mode & !u32::from(SPECIAL)),
            ..request.clone()
        })
    }

    /// Writes one entry of a pack.
    fn write_one(
        &self,
        root: &[u8],
        options: PackOptions,
        mut entry: Entry<'_>,
    ) -> Result<(), Fault> {
        let refused = |code, cause| {
            let fault = Fault::new(code, WRITE, cause);
            Err(fault.path(join(root, entry.path)))
        };
        if matches!(entry.content, Content::Symlink(_)) {
            return refused(Code::Unsupported, NO_LINKS);
        }
        let mode = entry.metadata.mode;
        entry.metadata.mode = mode.map(|mode| mode & !SPECIAL);
        let mut pack = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        if !pack.entry(&entry) {
            return refused(Code::LimitExceeded, "it is larger than any pack");
        }
        let (bytes, length) = pack.finish();
        let pack = bytes.get(..length).unwrap_or_default();
        let failures = self.store.write_pack(root, options, pack)?;
        failures.of(0).cloned().map_or(Ok(()), Err)
    }
}

const WRITE: &str = "write";
const NO_LINKS: &str = "symbolic links can't be made here";

impl Store for AnyStore {
    xdfs_store::forward!(Store to store: is_slow, open_source, read_pack, packs_wait);

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.store.open_sink(&self.sink_request(request)?)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.store.check_sink(&self.sink_request(request)?)
    }

    fn write_pack(
        &self,
        root: &[u8],
        mut options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        let (failures, _) = self.write_pack_by(root, pack, &mut options)?;
        Ok(failures)
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let operation = call.operation();
        let fault = |code, cause| Err(Fault::new(code, operation, cause).path(call.path()));
        if !call.is_read_only() {
            self.check_writable(operation, call.path())?;
        }
        match call {
            Call::Symlink { .. } => fault(Code::Unsupported, NO_LINKS),
            Call::SetMode { mode, .. }
            | Call::MakeDirectory {
                mode: Some(mode), ..
            } if mode & u32::from(SPECIAL) != 0 => {
                let cause = "set-user-id, set-group-id and the sticky bit can't be set here";
                fault(Code::PermissionDenied, cause)
            }
            call => self.store.call(call, part),
        }
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        let flags = &request.flags;
        if flags.write || flags.create || flags.truncate {
            self.check_writable("open", &request.path)?;
        }
        self.store.open_file(&FileRequest {
            mode: request.mode.map(|mode| mode & !u32::from(SPECIAL)),
            ..request.clone()
        })
    }
}

impl SharedStore for AnyStore {
    fn open_partial(&self, path: &[u8], _: u64) -> Result<Box<dyn File>, Fault> {
        Err(xdfs_store::unshared(path))
    }
}

impl Base for AnyStore {
    fn read_pack_by(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
        rules: &ReadRules<'_>,
    ) -> Result<bool, Fault> {
        for name in &request.names {
            let has_room = match (rules.may_read)(name) {
                Ok(()) => self.read_one(root, request, name, pack, rules)?,
                Err(fault) => pack.entry(&failed(name, (rules.shown)(fault))),
            };
            if !has_room {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Each entry is written by itself, after the rules have allowed it.
    fn write_pack_by(
        &self,
        root: &[u8],
        pack: &[u8],
        rules: &mut dyn PackRules,
    ) -> Result<(Failures, PackChange), Fault> {
        self.check_writable(WRITE, root)?;
        let limits = Limits::default();
        // As a whole before anything is written, so that a damaged pack changes nothing.
        for entry in PackReader::new(pack, &limits) {
            entry.map_err(|error| {
                Fault::new(Code::MalformedFrame, WRITE, error.to_string()).path(root)
            })?;
        }
        let call = Call::Stat {
            path: root.to_vec(),
            follow: true,
        };
        if !root.is_empty() && self.store.call(&call, &mut |_| Ok(())).is_err() {
            // It would be created.
            rules.directory()?;
        }
        let mut failures = Failures::default();
        for (number, entry) in (0_u32..).zip(PackReader::new(pack, &limits).flatten()) {
            check_cancelled()?;
            let written = rules.entry(&entry).and_then(|overwrite| {
                let relaxed = rules.is_relaxed();
                let options = PackOptions { overwrite, relaxed };
                self.write_one(root, options, entry)
            });
            if let Err(fault) = written {
                failures.push(number, fault);
            }
        }
        Ok((failures, PackChange::default()))
    }

    /// `removed` isn't called: what is removed is counted for quotas alone.
    fn remove_tree_by(
        &self,
        path: &[u8],
        _: &mut dyn FnMut(RemovedName<'_>),
    ) -> Result<u64, Fault> {
        let call = Call::RemoveTree {
            path: path.to_vec(),
        };
        match self.call(&call, &mut |_| Ok(()))? {
            Answer::Removed { entries } => Ok(entries),
            _ => Err(Fault::new(Code::Internal, "", "a store gave another answer").path(path)),
        }
    }

    fn copy_by(
        &self,
        from: &[u8],
        to: &[u8],
        overwrite: bool,
        ready: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<u64, Fault> {
        let mut source = self.store.open_source(from)?;
        let info = source.info();
        let Some(length) = info.length else {
            let cause = "its length isn't known";
            return Err(Fault::new(Code::Unsupported, "copy", cause).path(from));
        };
        let request = SinkRequest {
            path: to.to_vec(),
            name: Vec::new(),
            offset: 0,
            length: Some(length),
            // An interrupted copy starts over.
            tag: SourceTag::default(),
            mode: info.mode,
            mtime_ns: info.mtime_ns,
            digest: DigestKind::None,
            block_size: 0,
            overwrite,
            resume: Resume::Never,
            sparse: false,
        };
        let mut sink = self.open_sink(&request)?.sink;
        let mut copy = || {
            let mut piece = vec![0; PIECE_BYTES];
            let mut at = 0;
            while at < length {
                check_cancelled()?;
                let left = usize::try_from(length - at).unwrap_or(usize::MAX);
                let most = left.min(piece.len());
                let count = source.read_at(at, &mut piece[..most])?;
                if count == 0 {
                    let cause = "it has become shorter";
                    return Err(Fault::new(Code::SourceChanged, "copy", cause).path(from));
                }
                sink.write_at(at, &[IoSlice::new(&piece[..count])])?;
                at += count as u64;
            }
            source.verify_unchanged()?;
            // Anything slow must happen before `ready`.
            sink.sync()?;
            ready(length)
        };
        match copy() {
            Ok(()) => sink.publish(length, &[])?,
            Err(fault) => {
                let _ = sink.discard();
                return Err(fault);
            }
        }
        Ok(length)
    }
}

impl AnyStore {
    /// Reads one name into a pack; `false` if the pack has no room for it.
    fn read_one(
        &self,
        root: &[u8],
        request: &PackRequest,
        name: &[u8],
        pack: &mut PackWriter,
        rules: &ReadRules<'_>,
    ) -> Result<bool, Fault> {
        let one = PackRequest {
            keep: request.keep,
            follow: request.follow,
            file_bytes_max: request.file_bytes_max,
            names: vec![name.to_vec()],
        };
        let mut own = PackWriter::new(Vec::new(), PACK_BYTES_MAX);
        self.store.read_pack(root, &one, &mut own)?;
        let (bytes, length) = own.finish();
        let limits = Limits::default();
        let own = bytes.get(..length).unwrap_or_default();
        let entry = PackReader::new(own, &limits).next();
        let Some(Ok(mut entry)) = entry.filter(|e| e.as_ref().is_ok_and(|e| e.path == name)) else {
            let fault = Fault::new(Code::Internal, "read", "a store gave no such entry");
            let fault = fault.path(join(root, name));
            return Ok(pack.entry(&failed(name, (rules.shown)(fault))));
        };
        if let Content::Failed(fault) = entry.content {
            entry.content = Content::Failed((rules.shown)(fault));
        }
        if pack.entry(&entry) {
            return Ok(true);
        }
        match entry.content {
            // It fits into no pack.
            Content::File(data) if pack.is_empty() => {
                entry.content = Content::Large(data.len() as u64);
                Ok(pack.entry(&entry))
            }
            _ => Ok(false),
        }
    }
}

fn failed(name: &[u8], fault: Fault) -> Entry<'_> {
    Entry {
        path: name,
        metadata: Metadata::default(),
        content: Content::Failed(fault),
    }
}

/// A path beneath a directory.
fn join(root: &[u8], path: &[u8]) -> Vec<u8> {
    let separator: &[u8] = match root.is_empty() || path.is_empty() {
        true => b"",
        false => b"/",
    };
    [root, separator, path].concat()
}
