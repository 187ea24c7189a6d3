//! Sources and sinks of an export: faults contain the client's path, and writes count against
//! quotas.

use std::io::IoSlice;
use std::sync::Arc;

use xdfs_proto::digest::Fragment;
use xdfs_proto::{ByteRange, Code, Fault, SourceTag};
use xdfs_store::{DirectWriter, OpenedSink, SharedPartial, Sink, SinkRequest, Source, unshared};

use super::folder::Folder;
use super::quota::Hold;

/// The part of a client's path before the path in the export.
#[derive(Clone, Debug)]
pub(super) struct Prefix(pub(super) Vec<u8>);

impl Prefix {
    /// The client's path for a path in the export.
    pub(super) fn join(&self, inner: &[u8]) -> Vec<u8> {
        let needs_separator = !self.0.is_empty() && !self.0.ends_with(b"/") && !inner.is_empty();
        let separator: &[u8] = if needs_separator { b"/" } else { b"" };
        [&self.0, separator, inner].concat()
    }

    /// The fault with the client's path.
    pub(super) fn fault(&self, mut fault: Fault) -> Fault {
        fault.path = self.join(&fault.path);
        fault
    }
}

/// A source in an export.
#[derive(Debug)]
pub(super) struct ExportSource {
    pub(super) inner: Box<dyn Source>,
    pub(super) prefix: Prefix,
}

impl Source for ExportSource {
    xdfs_store::forward!(Source to inner: info, will_read, is_cold, is_slow, memory, is_uniform,
        shared);

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let result = self.inner.read_at(offset, buf);
        result.map_err(|fault| self.prefix.fault(fault))
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        let result = self.inner.next_data(offset, end);
        result.map_err(|fault| self.prefix.fault(fault))
    }

    fn direct(&self) -> Option<Box<dyn Source>> {
        let (inner, prefix) = (self.inner.direct()?, self.prefix.clone());
        Some(Box::new(Self { inner, prefix }))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let result = self.inner.verify_unchanged();
        result.map_err(|fault| self.prefix.fault(fault))
    }
}

/// Restrictions of a sink.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) prefix: Prefix,
    /// Maximum file length in bytes.
    pub(super) largest_file: Option<u64>,
    /// An existing target may not be replaced, whatever was requested.
    pub(super) new_only: bool,
}

impl Terms {
    /// The fault with the client's path.
    pub(super) fn fault(&self, mut fault: Fault) -> Fault {
        if self.new_only && fault.code == Code::AlreadyExists {
            fault.code = Code::PermissionDenied;
            fault.cause = "the target exists, and this user may not replace it".into();
            fault.hint = "choose another name".into();
        }
        self.prefix.fault(fault)
    }

    /// Checks a length against the maximum. The fault has no path yet.
    pub(super) fn check_length(&self, length: u64) -> Result<(), Fault> {
        match self.largest_file {
            Some(largest) if length > largest => {
                let cause = format!("a file may have {largest} bytes here, and this has {length}");
                Err(Fault::new(Code::QuotaExceeded, "write", cause)
                    .hint("send it in parts, or ask the server's administrator for more"))
            }
            _ => Ok(()),
        }
    }
}

/// A sink in an export.
///
/// After a write was refused because of a limit, all further ones are, and the file is never
/// published.
#[derive(Debug)]
pub(super) struct ExportSink {
    inner: Box<dyn Sink>,
    terms: Terms,
    /// The path in the export.
    path: Vec<u8>,
    folder: Arc<Folder>,
    hold: Option<Hold>,
    /// A journal is kept, since the source can be recognised later.
    is_resumable: bool,
    /// A partial file may remain on disk when this is dropped.
    leaves: bool,
    refused: Option<Fault>,
}

impl ExportSink {
    /// Wraps a sink that was opened in `folder`, with its share of the quota.
    pub(super) fn wrap(
        opened: OpenedSink,
        request: &SinkRequest,
        terms: Terms,
        folder: Arc<Folder>,
        hold: Option<Hold>,
    ) -> Result<OpenedSink, Fault> {
        let OpenedSink {
            sink,
            path,
            durable,
            unverified,
            block_size,
        } = opened;
        let end = durable.iter().map(|f| f.range.end).max().unwrap_or(0);
        let shown = terms.prefix.join(&path);
        let mut sink = Self {
            inner: sink,
            terms,
            path,
            folder,
            hold,
            is_resumable: request.tag != SourceTag::default(),
            leaves: !durable.is_empty(),
            refused: None,
        };
        sink.reach(end)?;
        Ok(OpenedSink {
            sink: Box::new(sink),
            path: shown,
            durable,
            unverified,
            block_size,
        })
    }

    /// Ensures that the file may grow to `end` bytes.
    fn reach(&mut self, end: u64) -> Result<(), Fault> {
        if let Some(fault) = &self.refused {
            return Err(fault.clone());
        }
        let result = self.terms.check_length(end);
        let result = result.and_then(|()| self.hold.as_mut().map_or(Ok(()), |h| h.reach(end)));
        result.map_err(|fault| {
            let fault = self.terms.fault(fault.path(&self.path));
            self.refused.insert(fault).clone()
        })
    }

    fn seen<T>(&self, result: Result<T, Fault>) -> Result<T, Fault> {
        result.map_err(|fault| self.terms.fault(fault))
    }
}

impl Sink for ExportSink {
    xdfs_store::forward!(Sink to inner: capabilities, hole, begin_write_back);

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let length = bufs.iter().map(|buf| buf.len() as u64).sum();
        // An overflowing end exceeds any limit.
        self.reach(offset.saturating_add(length))?;
        let result = self.inner.write_at(offset, bufs);
        self.seen(result)
    }

    fn begin_direct(&mut self, range: ByteRange) -> Result<Option<Arc<dyn DirectWriter>>, Fault> {
        self.reach(range.end)?;
        let begun = self.inner.begin_direct(range);
        self.seen(begun)
    }

    fn end_direct(&mut self, range: ByteRange, result: Result<(), Fault>) -> Result<(), Fault> {
        let written = self.inner.end_direct(range, result);
        self.seen(written)
    }

    fn sync(&mut self) -> Result<(), Fault> {
        let result = self.inner.sync();
        self.seen(result)
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        let result = self.inner.verify();
        self.seen(result)
    }

    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let result = self.inner.read_back(offset, buf);
        self.seen(result)
    }

    fn shared(&mut self) -> Option<&mut dyn SharedPartial> {
        let is_shared = self.inner.shared().is_some();
        is_shared.then_some(self as &mut dyn SharedPartial)
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        // This also extends the file to the end of the last fragment.
        self.reach(durable.iter().map(|f| f.range.end).max().unwrap_or(0))?;
        self.leaves |= self.is_resumable && !durable.is_empty();
        let result = self.inner.record(durable);
        self.seen(result)
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        self.reach(length)?;
        let counted = self.folder.counted.as_ref();
        let _turn = counted.map(|counted| counted.ledger.turns.new_name());
        let replaced = counted.and_then(|counted| counted.replaced(&self.path));
        let result = self.inner.publish(length, fresh);
        match &result {
            Ok(()) => {
                if let Some(hold) = self.hold.take() {
                    hold.published(length, replaced);
                }
            }
            Err(fault) if fault.code == Code::AlreadyExists => {}
            // It may already have its name, with only that not durable yet.
            Err(_) => self.leaves = true,
        }
        self.seen(result)
    }

    fn discard(&mut self) -> Result<(), Fault> {
        let result = self.inner.discard();
        if result.is_ok()
            && let Some(hold) = self.hold.take()
        {
            hold.removed();
        }
        self.leaves |= result.is_err();
        self.seen(result)
    }
}

impl SharedPartial for ExportSink {
    fn number(&mut self) -> Result<u64, Fault> {
        let inner = self.inner.shared();
        let result = inner.map_or_else(|| Err(unshared(&self.path)), |shared| shared.number());
        self.seen(result)
    }

    fn written_elsewhere(&mut self, range: ByteRange) -> Result<(), Fault> {
        self.reach(range.end)?;
        let result = match self.inner.shared() {
            Some(shared) => shared.written_elsewhere(range),
            None => Err(unshared(&self.path)),
        };
        self.seen(result)
    }
}

impl Drop for ExportSink {
    /// Before the inner sink releases its lock, so that the next sink of this target finds a
    /// consistent count.
    fn drop(&mut self) {
        match self.hold.take() {
            Some(hold) if self.leaves => hold.kept(),
            Some(hold) => hold.removed(),
            None => {}
        }
    }
}
