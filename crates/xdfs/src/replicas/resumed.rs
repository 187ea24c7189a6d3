//! The target of a copy from a set: what an earlier attempt has left is compared with the digests
//! on which the sources agree, and the whole with a digest that is known beforehand.

use std::sync::Arc;

use xdfs_proto::digest::{BlockHasher, DigestKind, Fragment};
use xdfs_proto::path::Answer;
use xdfs_proto::{ByteRange, ChecksumValue, Code, Fault, FileId, RangeSet, Retry, SourceTag};
use xdfs_store::{OpenedSink, Sink, SinkRequest, Source, SourceInfo, Store, checksum};

use super::fetch::BLOCK_BYTES;
use super::join::Sources;
use super::open_files::OpenFiles;
use super::shared::Shared;

const BLOCK: u64 = BLOCK_BYTES as u64;
const RESUME: &str = "resume";

/// The store of the target.
#[derive(Debug)]
pub(super) struct Target {
    /// The open files of the place, of which this is the target of one.
    pub(super) files: OpenFiles,
    pub(super) path: Vec<u8>,
    pub(super) store: Arc<dyn Store>,
}

impl Store for Target {
    xdfs_store::forward!(Store to store: is_slow, check_sink);
    // It is the target of one download.
    xdfs_store::defaults!(Store: open_source, read_pack, write_pack, packs_wait, call, open_file);

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let Some((shared, sources)) = self.files.find(&self.path) else {
            let cause = "the sources were closed";
            let fault = Fault::new(Code::SourceChanged, "open the target", cause);
            return Err(fault.path(&request.path).retry(Retry::Now));
        };
        let opened = self.store.open_sink(request)?;
        // A digest is that of the whole file.
        let length = request.length.unwrap_or(u64::MAX);
        let is_part = request.offset > 0 || length != shared.length();
        let digest = sources.set.digest.filter(|_| !is_part);
        if digest.is_some() && !opened.sink.capabilities().durable {
            let cause =
                "what goes there can't be compared with the digest that is known beforehand";
            let fault = Fault::new(Code::Unsupported, "open the target", cause);
            return Err(fault.path(&request.path).hint("copy it to a file"));
        }
        let end = request.offset.saturating_add(length);
        let outside = [(0, request.offset), (end, u64::MAX)];
        let outside = outside.map(|(start, end)| ByteRange { start, end });
        shared.hold(outside.into_iter().filter(|range| !range.is_empty()));
        let mut sink = ComparedSink {
            sources,
            shared,
            offset: request.offset,
            length,
            digest,
            sink: opened.sink,
            is_unverified: opened.unverified,
            held: Vec::new(),
            left: RangeSet::new(),
        };
        let is_fresh = opened.durable.is_empty();
        if !opened.unverified {
            sink.hold(opened.durable.clone());
        }
        Ok(OpenedSink {
            sink: Box::new(sink),
            unverified: !is_fresh,
            ..opened
        })
    }
}

/// The target, of which an earlier attempt may have left a part.
#[derive(Debug)]
struct ComparedSink {
    sources: Sources,
    shared: Arc<Shared>,
    /// The beginning of the transfer in the file, and its length.
    offset: u64,
    length: u64,
    digest: Option<ChecksumValue>,
    sink: Box<dyn Sink>,
    /// The store itself has to look at that part first.
    is_unverified: bool,
    held: Vec<Fragment>,
    /// Ranges of it that aren't compared yet.
    left: RangeSet,
}

impl ComparedSink {
    fn hold(&mut self, held: Vec<Fragment>) {
        let ranges = held.iter().map(|fragment| fragment.range);
        match self.sources.set.version {
            // By its tag it is of this version.
            Some(_) => self.shared.hold(ranges.map(|range| ByteRange {
                start: self.offset.saturating_add(range.start),
                end: self.offset.saturating_add(range.end),
            })),
            None => ranges.for_each(|range| self.left.insert(range)),
        }
        self.held = held;
    }

    /// Compares a block; `false` if none are left.
    fn compare_some(&mut self) -> Result<bool, Fault> {
        let Some(range) = self.left.take_front(BLOCK, BLOCK, 0) else {
            return Ok(false);
        };
        let begins = self.offset.saturating_add(range.start);
        let is_whole =
            begins.is_multiple_of(BLOCK) && (range.len() == BLOCK || range.end == self.length);
        if !is_whole {
            return Err(self.begin_anew("it has parts of blocks, which can't be compared"));
        }
        let mut bytes = vec![0; usize::try_from(range.len()).unwrap_or_default()];
        let mut filled = 0;
        while filled < bytes.len() {
            let at = range.start + filled as u64;
            let count = self.sink.read_back(at, &mut bytes[filled..])?;
            if count == 0 {
                return Err(self.begin_anew("a part of it is missing"));
            }
            filled += count;
        }
        let mut hasher = BlockHasher::new(DigestKind::Blake3, false, begins);
        hasher.update(&bytes);
        let own = hasher.finish(FileId(0)).1.state;
        if self.shared.agreed(begins / BLOCK)? != own {
            return Err(self.begin_anew("it differs from the sources"));
        }
        let start = begins;
        let end = start + range.len();
        self.shared.hold([ByteRange { start, end }]);
        Ok(true)
    }

    /// Removes what was copied. Returns the fault of this attempt.
    fn begin_anew(&mut self, cause: &str) -> Fault {
        let cause = match self.sink.discard() {
            Ok(()) => format!("what an earlier attempt has left can't be used: {cause}"),
            Err(fault) => return fault,
        };
        Fault::new(Code::IntegrityMismatch, RESUME, cause)
            .path(&self.sources.set.name)
            .retry(Retry::Now)
            .hint("it is removed; the next attempt starts over")
    }

    /// Compares the whole with a digest that is known beforehand.
    fn compare_whole(&mut self, length: u64, digest: ChecksumValue) -> Result<(), Fault> {
        let mut written = Written {
            sink: &mut *self.sink,
            info: SourceInfo {
                length: Some(length),
                tag: SourceTag::default(),
                mode: None,
                mtime_ns: None,
                random_reads: true,
                sparse: false,
            },
        };
        let name = &self.sources.set.name;
        let answer = checksum(&mut written, name, (0, Some(length)), digest.kind())?;
        if matches!(answer, Answer::Digest { value, .. } if value == digest) {
            return Ok(());
        }
        // All that were used agree on it, so those with another digest are found by asking.
        let before = self.used();
        self.sources.settle(digest, length);
        let kind = digest.kind().as_str();
        let cause = format!("its {kind} digest is not the one that is known beforehand");
        let mut has_dropped = self.used() < before;
        if !has_dropped {
            // They claim to have that digest, and what they sent has another one.
            let fault = |number| {
                let cause = format!("the {kind} digest that it computes is not that of its bytes");
                self.sources.fault(number, Code::IntegrityMismatch, cause)
            };
            has_dropped = self.sources.log.drop_witnesses(fault);
        }
        self.sink.discard()?;
        let fault = Fault::new(Code::IntegrityMismatch, "publish", cause).path(name);
        Err(match has_dropped && self.used() > 0 {
            true => fault.retry(Retry::Now),
            false => fault.hint("the list has a wrong digest, or all of its sources another file"),
        })
    }

    /// The number of sources that aren't dropped.
    fn used(&self) -> usize {
        let shares = self.sources.log.shares();
        shares
            .iter()
            .filter(|share| share.dropped.is_none())
            .count()
    }
}

impl Sink for ComparedSink {
    xdfs_store::forward!(Sink to sink: capabilities, write_at, hole, begin_write_back, sync,
        read_back, shared, record, discard);
    // The copy waits for the network, not for the disk.
    xdfs_store::defaults!(Sink: begin_direct, end_direct);

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        if self.is_unverified {
            if let Some(held) = self.sink.verify()? {
                self.is_unverified = false;
                self.hold(held);
            }
            return Ok(None);
        }
        match self.compare_some()? {
            true => Ok(None),
            false => Ok(Some(self.held.clone())),
        }
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        if let Some(digest) = self.digest {
            self.compare_whole(length, digest)?;
        }
        self.sink.publish(length, fresh)
    }
}

/// The written bytes, to be read.
#[derive(Debug)]
struct Written<'a> {
    sink: &'a mut dyn Sink,
    info: SourceInfo,
}

impl Source for Written<'_> {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        self.sink.read_back(offset, buf)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory,
        is_uniform, shared);
}
