//! Users who have files copied between servers: what they may delegate, what a capability opens,
//! and what the audit log says.

use std::sync::Arc;

use xdfs_proto::pack::{Failures, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::third_party::CopyId;
use xdfs_proto::{Code, Fault};
use xdfs_security::audit::{Event, Kind};
use xdfs_security::ticket::{Capability, Opens};
use xdfs_security::{Method, Principal};
use xdfs_store::{FileRequest, OpenedFile, OpenedSink, PackOptions, SinkRequest, Source, Store};

use crate::audited::Actor;

/// An admitted user who may have files copied between servers.
#[derive(Clone, Debug)]
pub struct ThirdPartyUser {
    pub(crate) principal: Principal,
    actor: Actor,
}

impl ThirdPartyUser {
    pub(crate) fn new(principal: Principal, actor: Actor) -> Self {
        Self { principal, actor }
    }

    /// The name of the user.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.principal.user
    }

    /// Whether the user may delegate: anonymous users have nothing of their own, and a session with
    /// limits would give away more than it has.
    pub(crate) fn check_delegation(&self) -> Result<(), Fault> {
        const ISSUE: &str = "issue a capability";
        if self.principal.method == Method::Anonymous {
            let cause = "the user is anonymous";
            return Err(Fault::new(Code::PermissionDenied, ISSUE, cause));
        }
        self.check_limits(ISSUE)
    }

    /// Checks whether this session has all rights of its user, whose copies no other one may look
    /// at or end.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`]: its rights are limited.
    pub fn check_limits(&self, operation: &str) -> Result<(), Fault> {
        if self.principal.scopes.is_empty() {
            return Ok(());
        }
        let cause = "the rights of the session are limited";
        Err(Fault::new(Code::PermissionDenied, operation, cause))
    }

    pub(crate) fn delegated(&self, capability: &Capability, result: Option<Code>) {
        let operation = match (capability.opens, capability.writes) {
            (Opens::File { .. }, true) => "delegate writing",
            (Opens::File { .. }, false) => "delegate reading",
            (Opens::Tree, true) => "delegate changing a tree",
            (Opens::Tree, false) => "delegate reading a tree",
        };
        let holder = format!("{} for copy {}", capability.holder, capability.copy);
        self.record(operation, &capability.path, holder.as_bytes(), result);
    }

    /// Records that a copy with another server was started, or why it was refused. `operation` is
    /// the part of it that this server has.
    pub fn started(&self, operation: &str, copy: CopyId, paths: [&[u8]; 2], result: Option<Code>) {
        let there = [paths[1], b" for copy ", copy.to_string().as_bytes()].concat();
        self.record(operation, paths[0], &there, result);
    }

    fn record(&self, operation: &str, path: &[u8], to: &[u8], result: Option<Code>) {
        let kind = match result {
            None => Kind::ThirdParty,
            Some(_) => Kind::Refuse,
        };
        self.actor.audit.record(&Event {
            operation,
            path,
            to,
            result,
            ..self.actor.event(kind)
        });
    }
}

/// The one file that a capability opens.
#[derive(Debug)]
struct OneFile {
    inner: Arc<dyn Store>,
    limits: Capability,
    bytes_max: u64,
}

/// The store of a session by this capability, over that of its user. The user's scope confines it
/// to the path already, with the rights of its direction.
pub(crate) fn opened(inner: Arc<dyn Store>, capability: &Capability) -> Arc<dyn Store> {
    match capability.opens {
        Opens::File { bytes_max } => Arc::new(OneFile::new(inner, capability.clone(), bytes_max)),
        Opens::Tree => Arc::new(OneTree {
            inner,
            writes: capability.writes,
        }),
    }
}

fn refused(operation: &str, path: &[u8]) -> Fault {
    let cause = "the capability is for something else";
    Fault::new(Code::PermissionDenied, operation, cause).path(path)
}

impl OneFile {
    fn new(inner: Arc<dyn Store>, limits: Capability, bytes_max: u64) -> Self {
        Self {
            inner,
            limits,
            bytes_max,
        }
    }

    fn check(&self, operation: &str, writes: bool, path: &[u8]) -> Result<(), Fault> {
        match writes == self.limits.writes && is_same(path, &self.limits.path) {
            true => Ok(()),
            false => Err(refused(operation, path)),
        }
    }

    fn check_length(&self, operation: &str, length: Option<u64>, path: &[u8]) -> Result<(), Fault> {
        match length {
            Some(length) if length <= self.bytes_max => Ok(()),
            _ => {
                let cause = "it is larger than the capability allows";
                Err(Fault::new(Code::PermissionDenied, operation, cause).path(path))
            }
        }
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<(), Fault> {
        const OPEN: &str = "open the target";
        self.check(OPEN, true, &request.path)?;
        if !request.name.is_empty() {
            return Err(refused(OPEN, &request.path));
        }
        self.check_length(OPEN, request.length, &request.path)
    }
}

/// Whether two paths have the same components.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let parts = |path: &'_ [u8]| {
        let parts = path.split(|byte| *byte == b'/');
        let named = parts.filter(|part| !matches!(*part, b"" | b"."));
        named.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    parts(a) == parts(b)
}

impl Store for OneFile {
    xdfs_store::forward!(Store to inner: is_slow, packs_wait);

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        const OPEN: &str = "open the source";
        self.check(OPEN, false, path)?;
        let source = self.inner.open_source(path)?;
        self.check_length(OPEN, source.info().length, path)?;
        Ok(source)
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.check_sink(request)?;
        self.inner.open_sink(request)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.check_sink(request)?;
        self.inner.check_sink(request)
    }

    fn read_pack(&self, root: &[u8], _: &PackRequest, _: &mut PackWriter) -> Result<(), Fault> {
        Err(refused("read files of a tree", root))
    }

    fn write_pack(&self, root: &[u8], _: PackOptions, _: &[u8]) -> Result<Failures, Fault> {
        Err(refused("write files of a tree", root))
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        Err(refused(call.operation(), call.path()))
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        Err(refused("open", &request.path))
    }
}

/// The tree that a capability opens: to be read, or to be changed without its content being read.
#[derive(Debug)]
struct OneTree {
    inner: Arc<dyn Store>,
    writes: bool,
}

impl OneTree {
    fn check(&self, operation: &str, writes: bool, path: &[u8]) -> Result<(), Fault> {
        match writes == self.writes {
            true => Ok(()),
            false => Err(refused(operation, path)),
        }
    }
}

impl Store for OneTree {
    xdfs_store::forward!(Store to inner: is_slow, packs_wait);

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.check("open the source", false, path)?;
        self.inner.open_source(path)
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.check("open the target", true, &request.path)?;
        self.inner.open_sink(request)
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        self.check("open the target", true, &request.path)?;
        self.inner.check_sink(request)
    }

    fn read_pack(
        &self,
        root: &[u8],
        request: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        self.check("read files of a tree", false, root)?;
        self.inner.read_pack(root, request, pack)
    }

    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        self.check("write files of a tree", true, root)?;
        self.inner.write_pack(root, options, pack)
    }

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let is_allowed = match call {
            Call::File(_) | Call::ThirdParty(_) | Call::Stripes(_) | Call::Group { .. } => false,
            // A digest of a few bytes is as good as the bytes.
            Call::Signatures { .. } => !self.writes,
            Call::Checksum { offset, length, .. } => {
                !self.writes || *offset == 0 && length.is_none()
            }
            call => self.writes || call.is_read_only(),
        };
        match is_allowed {
            true => self.inner.call(call, part),
            false => Err(refused(call.operation(), call.path())),
        }
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        match self.writes || request.flags.write {
            true => Err(refused("open", &request.path)),
            false => self.inner.open_file(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use xdfs_proto::path::Call;
    use xdfs_proto::{DigestKind, SourceTag};
    use xdfs_security::identity::Fingerprint;
    use xdfs_store::MemStore;

    use super::*;

    fn one_file(store: &MemStore, path: &str, writes: bool) -> OneFile {
        let limits = Capability {
            holder: Fingerprint([1; 32]),
            copy: CopyId([2; 16]),
            path: path.into(),
            writes,
            opens: Opens::File { bytes_max: 10 },
        };
        OneFile::new(Arc::new(store.clone()), limits, 10)
    }

    fn request(path: &str, length: Option<u64>) -> SinkRequest {
        SinkRequest {
            path: path.into(),
            name: Vec::new(),
            length,
            offset: 0,
            tag: SourceTag([1; 16]),
            mode: None,
            mtime_ns: None,
            digest: DigestKind::None,
            block_size: 4096,
            overwrite: true,
            resume: xdfs_proto::frame::Resume::Never,
            sparse: false,
        }
    }

    #[track_caller]
    fn refused<T: std::fmt::Debug>(result: Result<T, Fault>) {
        assert_eq!(result.unwrap_err().code, Code::PermissionDenied);
    }

    #[test]
    fn a_capability_opens_its_file_and_nothing_else() {
        let store = MemStore::new();
        store.insert("data/file", vec![7; 10]);
        store.insert("data/long", vec![7; 11]);
        store.insert("data/file2", vec![7; 1]);
        let reading = one_file(&store, "data/file", false);
        for same in ["data/file", "/data/file", "//data/./file"] {
            assert!(
                reading.check("open", false, same.as_bytes()).is_ok(),
                "{same}"
            );
        }
        assert!(reading.open_source(b"data/file").is_ok());
        for other in ["data/file2", "data", "data/file/x", "data/x/../file", ""] {
            refused(reading.open_source(other.as_bytes()));
        }
        refused(reading.open_sink(&request("data/file", Some(1))));
        refused(reading.check_sink(&request("data/file", Some(1))));
        let call = Call::Stat {
            path: b"data/file".to_vec(),
            follow: true,
        };
        refused(Store::call(&reading, &call, &mut |_| Ok(())));
        refused(one_file(&store, "data/long", false).open_source(b"data/long"));
        let writing = one_file(&store, "data/new", true);
        assert!(writing.open_sink(&request("data/new", Some(10))).is_ok());
        refused(writing.open_sink(&request("data/new", Some(11))));
        refused(writing.open_sink(&request("data/new", None)));
        refused(writing.open_sink(&request("data/file", Some(1))));
        let named = SinkRequest {
            name: b"x".to_vec(),
            ..request("data/new", Some(1))
        };
        refused(writing.open_sink(&named));
        refused(writing.open_source(b"data/new"));
        refused(writing.write_pack(b"data/new", PackOptions::default(), b""));
    }
}
