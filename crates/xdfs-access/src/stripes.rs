//! Uploads of which several members of a group write parts: what home does.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use xdfs_proto::digest::{BlockHasher, DigestValue, Fragment, FragmentMap};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::stripes::{HELD_MAX, Stripes, StripesCall, StripesOrder};
use xdfs_proto::{ByteRange, Code, Fault, FileId, Retry};
use xdfs_store::{File, SharedStore, Sink, SinkRequest, Store, check_cancelled, unshared};

/// Most targets that a session has open.
const OPEN_MAX: usize = 64;
/// Bytes that are read back at once.
const PIECE_BYTES: usize = 1 << 20;
const OPEN: &str = "open the target";

/// The store of a user at a member of a group, above the one that is audited.
pub(crate) struct StripesStore {
    inner: Arc<dyn Store>,
    /// The unfinished files.
    files: Arc<dyn SharedStore>,
    open: Mutex<Opens>,
}

/// The open targets by their numbers. They are closed with the session.
#[derive(Debug, Default)]
struct Opens {
    last: u64,
    targets: HashMap<u64, Arc<Mutex<Target>>>,
}

/// An open target.
#[derive(Debug)]
struct Target {
    sink: Box<dyn Sink>,
    /// To read what the members have written; `None` if nothing is to be written.
    file: Option<Box<dyn File>>,
    path: Vec<u8>,
    length: u64,
    block: u64,
    /// The ranges that are durable and recorded, with the digests of what was read back.
    taken: FragmentMap,
}

impl StripesStore {
    pub(crate) fn new(inner: Arc<dyn Store>, files: Arc<dyn SharedStore>) -> Self {
        Self {
            inner,
            files,
            open: Mutex::default(),
        }
    }

    fn opens(&self) -> MutexGuard<'_, Opens> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, call: &StripesCall) -> Result<Answer, Fault> {
        match call {
            StripesCall::Open(order) => self.open(order),
            StripesCall::TakeIn { id, fragments } => {
                let target = self.opens().targets.get(id).map(Arc::clone);
                let target = target.ok_or_else(|| gone("take in parts"))?;
                let bytes = lock(&target).take_in(fragments)?;
                Ok(Answer::Copied { bytes })
            }
            StripesCall::Publish { id, digest } => {
                let target = self.opens().targets.remove(id);
                let target = target.ok_or_else(|| gone("publish"))?;
                let published = lock(&target).publish(*digest);
                published.map(|()| Answer::Done)
            }
            StripesCall::Close { id, discard } => {
                let target = self.opens().targets.remove(id);
                if let Some(target) = target.filter(|_| *discard) {
                    lock(&target).sink.discard()?;
                }
                Ok(Answer::Done)
            }
        }
    }

    fn open(&self, order: &StripesOrder) -> Result<Answer, Fault> {
        if self.opens().targets.len() >= OPEN_MAX {
            let cause = format!("the session has {OPEN_MAX} of them open");
            return Err(Fault::new(Code::LimitExceeded, OPEN, cause).path(&order.path));
        }
        let opened = self.inner.open_sink(&SinkRequest {
            path: order.path.clone(),
            name: order.name.clone(),
            length: Some(order.length),
            offset: 0,
            tag: order.tag,
            mode: order.mode,
            mtime_ns: order.mtime_ns,
            digest: order.digest,
            block_size: order.block_bytes,
            overwrite: order.overwrite,
            resume: order.resume,
            sparse: false,
        })?;
        let mut sink = opened.sink;
        let mut held = opened.durable;
        if opened.unverified {
            held = loop {
                if let Some(held) = sink.verify()? {
                    break held;
                }
                check_cancelled()?;
            };
        }
        // Ranges that the answer leaves out are sent again.
        held.truncate(HELD_MAX);
        let mut taken = FragmentMap::new(order.digest);
        held.retain(|fragment| taken.insert(*fragment));
        let whole = ByteRange {
            start: 0,
            end: order.length,
        };
        let (number, file) = match taken.ranges().contains(whole) {
            true => (0, None),
            false => {
                let shared = sink.shared().ok_or_else(|| unshared(&opened.path))?;
                let number = shared.number()?;
                let file = self.files.open_partial(&opened.path, number)?;
                if file.attributes()?.size < order.length {
                    file.set_length(order.length)?;
                }
                // Counts the whole length against the quota.
                shared.written_elsewhere(ByteRange {
                    start: order.length,
                    end: order.length,
                })?;
                (number, Some(file))
            }
        };
        let target = Target {
            sink,
            file,
            path: opened.path.clone(),
            length: order.length,
            block: u64::from(opened.block_size),
            taken,
        };
        let mut opens = self.opens();
        opens.last += 1;
        let id = opens.last;
        opens.targets.insert(id, Arc::new(Mutex::new(target)));
        Ok(Answer::Stripes(Box::new(Stripes {
            id,
            number,
            block_bytes: opened.block_size,
            path: opened.path,
            held,
        })))
    }
}

fn lock(target: &Mutex<Target>) -> MutexGuard<'_, Target> {
    target.lock().unwrap_or_else(PoisonError::into_inner)
}

fn gone(operation: &str) -> Fault {
    let cause = "the session has no such open target";
    Fault::new(Code::NotFound, operation, cause).retry(Retry::Now)
}

impl Target {
    /// Takes in those fragments that are in the file with their digests. Returns their bytes.
    fn take_in(&mut self, fragments: &[Fragment]) -> Result<u64, Fault> {
        let mut fresh = Vec::new();
        let mut bytes = 0;
        for fragment in fragments {
            let range = fragment.range;
            let is_on_grid = range.start.is_multiple_of(self.block)
                && (range.end.is_multiple_of(self.block) || range.end == self.length);
            if range.end > self.length || !is_on_grid {
                let cause = format!("{range} isn't on the grid of its {} bytes", self.length);
                let fault = Fault::new(Code::InvalidArgument, "take in parts", cause);
                return Err(fault.path(&self.path));
            }
            if self.taken.ranges().contains(range) {
                // The call was made twice, or two members have written it.
                bytes += range.len();
            } else if self.read_back(range)? == Some(*fragment) && self.taken.insert(*fragment) {
                bytes += range.len();
                fresh.push(*fragment);
            }
        }
        for fragment in &fresh {
            let shared = self.sink.shared();
            let shared = shared.ok_or_else(|| unshared(&self.path))?;
            shared.written_elsewhere(fragment.range)?;
        }
        if !fresh.is_empty() {
            self.sink.record(&fresh)?;
        }
        Ok(bytes)
    }

    /// The digest of what is in the file; `None` if less is there.
    fn read_back(&self, range: ByteRange) -> Result<Option<Fragment>, Fault> {
        let Some(file) = &self.file else {
            return Ok(None);
        };
        let mut hasher = BlockHasher::new(self.taken.kind(), false, range.start);
        let mut buf = vec![0; PIECE_BYTES];
        let mut at = range.start;
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let piece = &mut buf[..left.min(PIECE_BYTES)];
            if file.read_at(at, piece)? < piece.len() {
                return Ok(None);
            }
            hasher.update(piece);
            at += piece.len() as u64;
            check_cancelled()?;
        }
        Ok(Some(hasher.finish(FileId(0)).1))
    }

    fn publish(&mut self, digest: DigestValue) -> Result<(), Fault> {
        if self.taken.digest(self.length) == Some(digest) {
            return self.sink.publish(self.length, &[]);
        }
        let is_whole = self.taken.ranges().total() == self.length;
        let cause = match is_whole {
            true => "the digest of the parts is not that of the source",
            false => "parts of it are missing",
        };
        // As of any upload, nothing of it can be believed.
        self.sink.discard()?;
        let fault = Fault::new(Code::IntegrityMismatch, "publish", cause).path(&self.path);
        Err(fault.retry(Retry::Now))
    }
}

impl Store for StripesStore {
    xdfs_store::forward!(Store to inner: is_slow, open_source, open_sink, check_sink, read_pack,
        write_pack, packs_wait, open_file);

    fn call(
        &self,
        call: &Call,
        part: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        match call {
            Call::Stripes(call) => self.answer(call),
            call => self.inner.call(call, part),
        }
    }
}

impl fmt::Debug for StripesStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripesStore")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
