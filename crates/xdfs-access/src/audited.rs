//! A store that writes transfers and changes to the audit log.

use std::fmt;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use xdfs_proto::digest::Fragment;
use xdfs_proto::pack::{Content, Failures, PackReader, PackRequest, PackWriter};
use xdfs_proto::path::{Answer, Attributes, Call};
use xdfs_proto::{ByteRange, Code, Fault, Limits};
use xdfs_security::Method;
use xdfs_security::audit::{Audit, Event, Kind};
use xdfs_store::{
    DirectWriter, File, FileRequest, OpenedFile, OpenedSink, PackOptions, SharedPartial,
    SharedSource, Sink, SinkRequest, Source, Store, unshared,
};

use crate::clock::Clock;
use crate::ongoing::{Ongoing, Watched};

/// Operations on files, as the log names them.
const READ: &str = "read a file";
const WRITE: &str = "write a file";

/// The user and session in audit events.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) audit: Arc<Audit>,
    pub(crate) ongoing: Arc<Ongoing>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) door: &'static str,
    pub(crate) user: String,
    pub(crate) method: Method,
    /// Fingerprint of the user's key, or empty.
    pub(crate) key: String,
    pub(crate) from: String,
}

impl Actor {
    /// An event of this actor at the present time, with no other fields.
    pub(crate) fn event(&self, kind: Kind) -> Event<'_> {
        Event {
            door: self.door,
            user: &self.user,
            method: Some(self.method),
            key: &self.key,
            from: &self.from,
            ..Event::new(self.clock.time(), kind)
        }
    }

    /// A guard by which the call is watched while the file system holds it.
    fn watch(&self, operation: &'static str, path: &[u8], is_long: bool) -> Watched {
        let who = (&*self.user, &*self.from);
        self.ongoing.watch(who, operation, path, is_long)
    }

    pub(crate) fn record(&self, kind: Kind, path: &[u8], bytes: Option<u64>, result: Option<Code>) {
        self.audit.record(&Event {
            path,
            bytes,
            result,
            ..self.event(kind)
        });
    }

    /// Logs a file that was moved.
    fn transferred(
        &self,
        kind: Kind,
        path: &[u8],
        bytes: Option<u64>,
        begun: Instant,
        result: Option<Code>,
    ) {
        let now = self.clock.instant();
        self.audit.record(&Event {
            path,
            bytes,
            elapsed: Some(now.saturating_duration_since(begun)),
            result,
            ..self.event(kind)
        });
    }

    /// Logs a change of names or attributes, successful or not.
    fn changed(&self, call: &Call, result: &Result<Answer, Fault>) {
        let (path, to): (&[u8], &[u8]) = match call {
            Call::Rename { from, to, .. } | Call::Copy { from, to, .. } => (from, to),
            Call::Link { existing, path } => (existing, path),
            Call::Symlink { target, path } => (path, target),
            Call::Seed(seed) => (&seed.from, &seed.to),
            call => (call.path(), b""),
        };
        let bytes = match result {
            Ok(Answer::Copied { bytes }) => Some(*bytes),
            _ => None,
        };
        self.audit.record(&Event {
            operation: call.operation(),
            path,
            to,
            bytes,
            result: result.as_ref().err().map(|fault| fault.code),
            ..self.event(Kind::Change)
        });
    }

    /// Logs a pack: entries, bytes of its files, and failed entries.
    fn moved(&self, kind: Kind, root: &[u8], [entries, bytes, failed]: [u64; 3]) {
        self.audit.record(&Event {
            path: root,
            bytes: Some(bytes),
            entries: Some(entries),
            failed: (failed > 0).then_some(failed),
            ..self.event(kind)
        });
    }

    /// Logs the opening of a file, with the operation.
    fn opened(&self, path: &[u8], operation: &str) {
        self.audit.record(&Event {
            operation,
            path,
            ..self.event(Kind::Open)
        });
    }

    fn closed(&self, path: &[u8], read: u64, written: u64, result: Option<Code>) {
        self.audit.record(&Event {
            path,
            bytes: Some(read),
            written: Some(written),
            result,
            ..self.event(Kind::Close)
        });
    }

    fn refused(&self, path: &[u8], fault: Fault) -> Fault {
        self.record(Kind::Refuse, path, None, Some(fault.code));
        fault
    }
}

/// A wrapper around another store.
#[derive(Debug)]
pub(crate) struct AuditedStore {
    inner: Arc<dyn Store>,
    actor: Actor,
    /// The path of the last refused call, and whether that was to list it.
    refused: Mutex<Option<(Vec<u8>, bool)>>,
}

impl AuditedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, actor: Actor) -> Self {
        Self {
            inner,
            actor,
            refused: Mutex::default(),
        }
    }

    /// Logs that a read-only call was refused. Clients look a path up and list it at once, which is
    /// one attempt.
    fn refuse(&self, call: &Call, code: Code) {
        let (path, lists) = (call.path(), matches!(call, Call::List { .. }));
        let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if last
            .take_if(|last| last.0 == path && last.1 != lists)
            .is_none()
        {
            *last = Some((path.to_vec(), lists));
            drop(last);
            self.actor.record(Kind::Refuse, path, None, Some(code));
        }
    }
}

impl Store for AuditedStore {
    xdfs_store::forward!(Store to inner: is_slow, packs_wait);

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let watched = self.actor.watch(READ, path, false);
        let inner = watched
            .during(|| self.inner.open_source(path))
            .map_err(|fault| self.actor.refused(path, fault))?;
        Ok(Box::new(AuditedSource {
            inner,
            watched,
            actor: self.actor.clone(),
            path: path.to_vec(),
            bytes: Arc::default(),
            begun: self.actor.clock.instant(),
            result: Some(Code::Cancelled),
        }))
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let watched = self.actor.watch(WRITE, &request.path, false);
        let opened = watched
            .during(|| self.inner.open_sink(request))
            .map_err(|fault| self.actor.refused(&request.path, fault))?;
        let watched = self.actor.watch("write a file", &opened.path, false);
        let sink = AuditedSink {
            inner: opened.sink,
            watched,
            actor: self.actor.clone(),
            path: opened.path.clone(),
            bytes: 0,
            begun: self.actor.clock.instant(),
            ended: false,
        };
        Ok(OpenedSink {
            sink: Box::new(sink),
            ..opened
        })
    }

    fn check_sink(&self, request: &SinkRequest) -> Result<Vec<u8>, Fault> {
        let watched = self.actor.watch("look at a target", &request.path, false);
        watched.during(|| self.inner.check_sink(request))
    }

    /// One line for the whole pack: a line per file would cost more than the files.
    fn read_pack(
        &self,
        root: &[u8],
        wish: &PackRequest,
        pack: &mut PackWriter,
    ) -> Result<(), Fault> {
        let before = (pack.entries(), pack.len());
        let watched = self.actor.watch("read files of a tree", root, true);
        watched
            .during(|| self.inner.read_pack(root, wish, pack))
            .map_err(|fault| self.actor.refused(root, fault))?;
        let entries = u64::from(pack.entries().saturating_sub(before.0));
        let bytes = pack.len().saturating_sub(before.1) as u64;
        self.actor.moved(Kind::Download, root, [entries, bytes, 0]);
        Ok(())
    }

    /// One line for the whole pack.
    fn write_pack(
        &self,
        root: &[u8],
        options: PackOptions,
        pack: &[u8],
    ) -> Result<Failures, Fault> {
        let watched = self.actor.watch("write files of a tree", root, true);
        let failures = watched
            .during(|| self.inner.write_pack(root, options, pack))
            .map_err(|fault| self.actor.refused(root, fault))?;
        let (mut entries, mut bytes) = (0, 0);
        let limits = Limits::default();
        for (number, entry) in (0..).zip(PackReader::new(pack, &limits).flatten()) {
            entries += 1;
            if let Content::File(data) = entry.content
                && failures.of(number).is_none()
            {
                bytes += data.len() as u64;
            }
        }
        let failed = failures.runs().iter().map(|run| u64::from(run.count)).sum();
        self.actor
            .moved(Kind::Upload, root, [entries, bytes, failed]);
        Ok(failures)
    }

    /// Changes are logged whatever their result. Of read-only calls, those refused for lack of
    /// rights are logged: others would fill the log with the names of trees. Accounts are looked up
    /// by the client itself, for paths that the user may look at, so that isn't an attempt.
    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        let is_long = matches!(
            call,
            Call::List { .. }
                | Call::RemoveTree { .. }
                | Call::Copy { .. }
                | Call::Checksum { .. }
                | Call::Sync { .. }
                | Call::Signatures { .. }
                | Call::Seed(_)
        );
        let watched = self.actor.watch(call.operation(), call.path(), is_long);
        let result = watched.during(|| self.inner.call(call, part));
        if !call.is_read_only() {
            self.actor.changed(call, &result);
        } else if let Err(fault) = &result
            && matches!(fault.code, Code::PermissionDenied | Code::PathEscape)
            && !matches!(call, Call::LookUp { .. })
        {
            self.refuse(call, fault.code);
        }
        result
    }

    fn open_file(&self, request: &FileRequest) -> Result<OpenedFile, Fault> {
        let path = &*request.path;
        let watched = self.actor.watch("use a file", path, false);
        let opened = watched
            .during(|| self.inner.open_file(request))
            .map_err(|fault| {
                // It will be retried.
                let waits = fault.code == Code::Busy;
                if waits {
                    fault
                } else {
                    self.actor.refused(path, fault)
                }
            })?;
        let flags = &request.flags;
        self.actor.opened(
            path,
            match (opened.created, flags.read, flags.write) {
                (true, ..) => "make a file",
                (_, true, true) => "read and write",
                (_, _, true) => "write",
                _ => "read",
            },
        );
        let file = Box::new(AuditedFile {
            inner: opened.file,
            watched,
            actor: self.actor.clone(),
            path: path.to_vec(),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            failure: OnceLock::new(),
        });
        Ok(OpenedFile { file, ..opened })
    }
}

/// An open file. However it is closed, it is dropped.
struct AuditedFile {
    inner: Box<dyn File>,
    watched: Watched,
    actor: Actor,
    path: Vec<u8>,
    read: AtomicU64,
    written: AtomicU64,
    /// The first failure.
    failure: OnceLock<Code>,
}

impl AuditedFile {
    fn seen<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.inspect_err(|fault| {
            let _ = self.failure.set(fault.code);
        })
    }
}

impl File for AuditedFile {
    fn is_pipe(&self) -> bool {
        self.inner.is_pipe()
    }

    fn attributes(&self) -> Result<Attributes, Fault> {
        self.seen(self.watched.during(|| self.inner.attributes()))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let read = self.seen(self.watched.during(|| self.inner.read_at(offset, buf)))?;
        count(&self.read, read as u64);
        Ok(read)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.seen(self.watched.during(|| self.inner.write_at(offset, bytes)))?;
        count(&self.written, bytes.len() as u64);
        Ok(())
    }

    fn append(&self, bytes: &[u8]) -> Result<u64, Fault> {
        let offset = self.seen(self.watched.during(|| self.inner.append(bytes)))?;
        count(&self.written, bytes.len() as u64);
        Ok(offset)
    }

    fn sync(&self, data_only: bool) -> Result<(), Fault> {
        self.seen(self.watched.during(|| self.inner.sync(data_only)))
    }

    fn set_length(&self, length: u64) -> Result<(), Fault> {
        self.seen(self.watched.during(|| self.inner.set_length(length)))
    }

    fn read_pipe(&self, buf: &mut [u8]) -> Result<Option<usize>, Fault> {
        let read = self.seen(self.inner.read_pipe(buf))?;
        count(&self.read, read.unwrap_or(0) as u64);
        Ok(read)
    }

    fn write_pipe(&self, bytes: &[u8]) -> Result<Option<usize>, Fault> {
        let written = self.seen(self.inner.write_pipe(bytes))?;
        count(&self.written, written.unwrap_or(0) as u64);
        Ok(written)
    }
}

impl Drop for AuditedFile {
    fn drop(&mut self) {
        let (read, written) = (*self.read.get_mut(), *self.written.get_mut());
        let failure = self.failure.get().copied();
        self.actor.closed(&self.path, read, written, failure);
    }
}

impl fmt::Debug for AuditedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditedFile").field(&self.inner).finish()
    }
}

fn count(counter: &AtomicU64, bytes: u64) {
    counter.fetch_add(bytes, Ordering::Relaxed);
}

struct AuditedSource {
    inner: Box<dyn Source>,
    watched: Watched,
    actor: Actor,
    path: Vec<u8>,
    /// Bytes that were read, by workers too.
    bytes: Arc<AtomicU64>,
    begun: Instant,
    result: Option<Code>,
}

impl Source for AuditedSource {
    xdfs_store::forward!(Source to inner: info, will_read, is_cold, is_slow, is_uniform);
    // They would be read without being counted.
    xdfs_store::defaults!(Source: memory);

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let read = self.watched.during(|| self.inner.read_at(offset, buf));
        match &read {
            Ok(read) => count(&self.bytes, *read as u64),
            Err(fault) => self.result = Some(fault.code),
        }
        read
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        self.watched.during(|| self.inner.next_data(offset, end))
    }

    fn direct(&self) -> Option<Box<dyn Source>> {
        let inner = self.inner.direct()?;
        let watched = self.actor.watch(READ, &self.path, false);
        let bytes = Arc::clone(&self.bytes);
        Some(Box::new(WatchedSource {
            inner,
            watched,
            bytes,
        }))
    }

    fn shared(&mut self) -> Option<&mut dyn SharedSource> {
        Some(self)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let unchanged = self.watched.during(|| self.inner.verify_unchanged());
        // Called only after everything was read.
        self.result = unchanged.as_ref().err().map(|fault| fault.code);
        unchanged
    }
}

impl SharedSource for AuditedSource {
    fn read_elsewhere(&mut self, bytes: u64) {
        count(&self.bytes, bytes);
        if let Some(inner) = self.inner.shared() {
            inner.read_elsewhere(bytes);
        }
    }
}

impl Drop for AuditedSource {
    fn drop(&mut self) {
        // A uniform source is read without calls.
        let bytes = (!self.inner.is_uniform()).then(|| self.bytes.load(Ordering::Relaxed));
        let (kind, path) = (Kind::Download, &self.path);
        self.actor
            .transferred(kind, path, bytes, self.begun, self.result);
    }
}

impl fmt::Debug for AuditedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditedSource").field(&self.inner).finish()
    }
}

/// Another way to read an audited source, which counts the bytes.
#[derive(Debug)]
struct WatchedSource {
    inner: Box<dyn Source>,
    watched: Watched,
    bytes: Arc<AtomicU64>,
}

impl Source for WatchedSource {
    xdfs_store::forward!(Source to inner: info, will_read, is_cold, is_slow, is_uniform);
    // It is read by its own calls alone.
    xdfs_store::defaults!(Source: direct, memory, shared);

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let read = self.watched.during(|| self.inner.read_at(offset, buf))?;
        count(&self.bytes, read as u64);
        Ok(read)
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        self.watched.during(|| self.inner.next_data(offset, end))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        self.watched.during(|| self.inner.verify_unchanged())
    }
}

struct AuditedSink {
    inner: Box<dyn Sink>,
    watched: Watched,
    actor: Actor,
    path: Vec<u8>,
    bytes: u64,
    begun: Instant,
    ended: bool,
}

impl AuditedSink {
    fn end(&mut self, result: Option<Code>) {
        if !self.ended {
            self.ended = true;
            let (kind, path, bytes) = (Kind::Upload, &self.path, Some(self.bytes));
            self.actor
                .transferred(kind, path, bytes, self.begun, result);
        }
    }
}

impl Sink for AuditedSink {
    xdfs_store::forward!(Sink to inner: capabilities, hole, begin_write_back);

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let written = self.watched.during(|| self.inner.write_at(offset, bufs));
        match &written {
            Ok(()) => self.bytes += bufs.iter().map(|b| b.len() as u64).sum::<u64>(),
            Err(fault) => self.end(Some(fault.code)),
        }
        written
    }

    fn begin_direct(&mut self, range: ByteRange) -> Result<Option<Arc<dyn DirectWriter>>, Fault> {
        let begun = self.inner.begin_direct(range);
        if let Err(fault) = &begun {
            self.end(Some(fault.code));
        }
        let actor = self.actor.clone();
        let path = self.path.clone();
        Ok(begun?.map(|inner| Arc::new(WatchedWriter { inner, actor, path }) as Arc<_>))
    }

    fn end_direct(&mut self, range: ByteRange, result: Result<(), Fault>) -> Result<(), Fault> {
        let written = self.inner.end_direct(range, result);
        match &written {
            Ok(()) => self.bytes += range.len(),
            Err(fault) => self.end(Some(fault.code)),
        }
        written
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.watched.during(|| self.inner.sync())
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        self.watched.during(|| self.inner.verify())
    }

    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.watched.during(|| self.inner.read_back(offset, buf))
    }

    fn shared(&mut self) -> Option<&mut dyn SharedPartial> {
        let is_shared = self.inner.shared().is_some();
        is_shared.then_some(self as &mut dyn SharedPartial)
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        self.watched.during(|| self.inner.record(durable))
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        let published = self.watched.during(|| self.inner.publish(length, fresh));
        self.end(published.as_ref().err().map(|fault| fault.code));
        published
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.watched.during(|| self.inner.discard())
    }
}

impl SharedPartial for AuditedSink {
    fn number(&mut self) -> Result<u64, Fault> {
        match self.inner.shared() {
            Some(shared) => shared.number(),
            None => Err(unshared(&self.path)),
        }
    }

    fn written_elsewhere(&mut self, range: ByteRange) -> Result<(), Fault> {
        let written = match self.inner.shared() {
            Some(shared) => shared.written_elsewhere(range),
            None => Err(unshared(&self.path)),
        };
        match &written {
            Ok(()) => self.bytes += range.len(),
            Err(fault) => self.end(Some(fault.code)),
        }
        written
    }
}

/// Writes of other threads, each watched by itself.
struct WatchedWriter {
    inner: Arc<dyn DirectWriter>,
    actor: Actor,
    path: Vec<u8>,
}

impl DirectWriter for WatchedWriter {
    fn write_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let watched = self.actor.watch(WRITE, &self.path, false);
        watched.during(|| self.inner.write_at(offset, bufs))
    }
}

impl fmt::Debug for WatchedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedWriter").field(&self.inner).finish()
    }
}

impl Drop for AuditedSink {
    fn drop(&mut self) {
        self.end(Some(Code::Cancelled));
    }
}

impl fmt::Debug for AuditedSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AuditedSink").field(&self.inner).finish()
    }
}

#[cfg(test)]
mod tests {
    use xdfs_testkit::recorder::{Recorder, all_methods, recorded};

    use super::*;
    use crate::clock::SystemClock;

    fn audited(inner: &Recorder, audit: Audit) -> AuditedStore {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let actor = Actor {
            audit: Arc::new(audit),
            ongoing: Arc::new(Ongoing::new(Arc::clone(&clock))),
            clock,
            door: "xdfs",
            user: "alice".to_owned(),
            method: Method::Key,
            key: String::new(),
            from: "192.0.2.1:7".to_owned(),
        };
        AuditedStore::new(Arc::new(inner.clone()), actor)
    }

    #[test]
    fn every_method_is_passed_on_but_those_that_would_not_be_counted() {
        let recorder = Recorder::default();
        let store = audited(&recorder, Audit::none());
        let mut expected = all_methods();
        expected.remove("Source::memory");
        assert_eq!(recorded(&store, &recorder, b"file"), expected);
    }

    /// Workers read files past the page cache, each by a source of its own.
    #[test]
    fn what_other_threads_read_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("audit");
        let store = audited(&Recorder::default(), Audit::open(&log).unwrap());
        let mut source = store.open_source(b"file").unwrap();
        for _ in 0..2 {
            let mut worker = source.direct().unwrap();
            assert_eq!(worker.read_at(0, &mut [0; 4]).unwrap(), 4);
        }
        source.verify_unchanged().unwrap();
        drop((source, store));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains(r#""bytes":8"#), "{log}");
    }
}
