//! What an interrupted download has left here, and how the next one goes on with it.
//!
//! FTP tells no version of a file: size and time in seconds can stay the same when the content
//! changes. So they only say that it is worth trying. What an earlier attempt has left is read
//! back while the rest isn't asked for yet, and compared with the server's file by its checksums
//! when all bytes are here, as everything that came anew is. If it differs, it is removed, and the
//! next attempt begins anew: a mixture of two versions never gets the name of the file.

use std::sync::Arc;

use xdfs_proto::digest::Fragment;
use xdfs_proto::{ByteRange, Code, Fault, RangeSet, Retry, SourceTag};
use xdfs_store::{OpenedSink, Sink, SinkRequest, Store};

use super::features::Features;
use super::link::Link;
use super::listed::Listed;
use super::pool::FtpStore;
use super::runs::Runs;

const OPERATION: &str = "resume";
/// Bytes that are read back in a step.
const STEP_BYTES: u64 = 8 << 20;
/// Bytes that are read back at once.
const PIECE_BYTES: usize = 256 << 10;

/// Whether interrupted downloads from a server with these features can be gone on with.
pub(super) fn can_resume(features: &Features) -> bool {
    features.checksum().is_some() && features.restarts
}

/// What looks like the version of a file at a server. It is none, so that nothing is gone on with,
/// where the server computes no checksum, can't begin in the middle, or tells no time.
pub(super) fn version(server: &FtpStore, link: &Link, path: &[u8], listed: &Listed) -> SourceTag {
    let found = &listed.attributes;
    let Some(time) = found.mtime().filter(|_| can_resume(&link.features)) else {
        return SourceTag::default();
    };
    let mut hasher = blake3::Hasher::new();
    let numbers = [found.size, time.cast_unsigned()].map(u64::to_be_bytes);
    hasher.update(numbers.as_flattened());
    hasher.update(server.server().as_bytes());
    hasher.update(b"\n");
    hasher.update(path);
    let mut tag = [0; 16];
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    SourceTag(tag)
}

/// The store of the target of a download.
#[derive(Debug)]
struct Target {
    server: FtpStore,
    source: Vec<u8>,
    store: Arc<dyn Store>,
}

impl FtpStore {
    /// The store in which the file at `source` gets its target. What `store` has of an earlier
    /// attempt is compared with the server's file before it is published.
    ///
    /// The sources of this store have tags by which such an attempt is found; so every target of
    /// them has to be opened in what is returned here.
    pub(super) fn comparing_target(&self, source: &[u8], store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(Target {
            server: self.clone(),
            source: source.to_vec(),
            store,
        })
    }
}

impl Store for Target {
    xdfs_store::forward!(Store to store: is_slow, check_sink);
    // It is the target of one download.
    xdfs_store::defaults!(Store: open_source, read_pack, write_pack, packs_wait, call, open_file);

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let opened = self.store.open_sink(request)?;
        if opened.durable.is_empty() {
            return Ok(opened);
        }
        let mut sink = ResumedSink {
            server: self.server.clone(),
            source: self.source.clone(),
            offset: request.offset,
            sink: opened.sink,
            is_unverified: opened.unverified,
            held: Vec::new(),
            left: RangeSet::new(),
            runs: Runs::default(),
        };
        if !opened.unverified {
            sink.hold(opened.durable.clone());
        }
        Ok(OpenedSink {
            sink: Box::new(sink),
            unverified: true,
            ..opened
        })
    }
}

/// A target of which an earlier attempt has left a part.
#[derive(Debug)]
struct ResumedSink {
    server: FtpStore,
    source: Vec<u8>,
    /// Where the transfer begins in the source.
    offset: u64,
    sink: Box<dyn Sink>,
    /// The store itself has to look at that part first.
    is_unverified: bool,
    held: Vec<Fragment>,
    /// Ranges of it that aren't read back yet.
    left: RangeSet,
    runs: Runs,
}

impl ResumedSink {
    fn hold(&mut self, held: Vec<Fragment>) {
        for fragment in &held {
            self.left.insert(fragment.range);
        }
        self.held = held;
    }

    /// Reads back some bytes; `false` if none are left.
    fn read_some(&mut self) -> Result<bool, Fault> {
        let Some(ByteRange { start, end }) = self.left.take_front(STEP_BYTES, STEP_BYTES, 0) else {
            return Ok(false);
        };
        let kind = self.server.with(|link| Ok(link.features.checksum()))?;
        let Some(kind) = kind else {
            return Err(self.begin_anew("the server computes no checksums any more"));
        };
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = start;
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX);
            let most = most.min(piece.len());
            let count = self.sink.read_back(at, &mut piece[..most])?;
            if count == 0 {
                return Err(self.begin_anew("a part of it is missing"));
            }
            self.runs.note(self.offset + at, &piece[..count], kind);
            at += count as u64;
        }
        Ok(true)
    }

    /// Removes what an earlier attempt has left. Returns the fault of this one.
    fn begin_anew(&mut self, cause: &str) -> Fault {
        let cause = match self.sink.discard() {
            Ok(()) => format!("what an earlier attempt has left is of no use: {cause}"),
            Err(fault) => return fault,
        };
        Fault::new(Code::IntegrityMismatch, OPERATION, cause)
            .path(&self.source)
            .retry(Retry::Now)
            .hint("it is removed; the next attempt begins anew")
    }
}

impl Sink for ResumedSink {
    xdfs_store::forward!(Sink to sink: capabilities, write_at, hole, begin_write_back, sync,
        read_back, shared, record, discard);
    // A resumed download waits for the network, not for the disk.
    xdfs_store::defaults!(Sink: begin_direct, end_direct);

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        if self.is_unverified {
            if let Some(held) = self.sink.verify()? {
                self.is_unverified = false;
                self.hold(held);
            }
            return Ok(None);
        }
        match self.read_some()? {
            true => Ok(None),
            false => Ok(Some(self.held.clone())),
        }
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        let (runs, source) = (std::mem::take(&mut self.runs), &self.source);
        let compared = self.server.with(|link| {
            let path = FtpStore::resolve(link, source);
            runs.compare(link, &path, None)
        });
        match compared {
            Ok(true) => self.sink.publish(length, fresh),
            Ok(false) => Err(self.begin_anew("the server computes no checksum of this file")),
            Err(fault) if fault.code == Code::IntegrityMismatch => {
                Err(self.begin_anew(&fault.cause))
            }
            Err(fault) => Err(fault),
        }
    }
}
