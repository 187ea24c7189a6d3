//! Compares an existing target with the source: some are skipped, as [`Skip`] says.
//!
//! One that is identical is skipped for another reason too: a receiver may be stopped after it has
//! published a file and before PUBLISHED arrives. Nothing but the file is left then, and a repeated
//! transfer is refused because its target exists. So the target is compared with the source, by
//! calls that the user could make too. If length, time, permissions and content are equal, the
//! transfer has succeeded. Neither file is changed.
//!
//! The receiver can't do that alone: the sender adopts the digest states that a receiver claims to
//! hold, so the digest at the end would compare the target with itself.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_engine::mailbox::Sender;
use xdfs_engine::{LimitedBy, Outcome, Progress, TimeShares, TransferEvent};
use xdfs_proto::digest::{BlockHasher, FragmentMap};
use xdfs_proto::pack::Failures;
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::{ChecksumKind, Code, DigestKind, DigestValue, Fault, FileId};
use xdfs_store::Store;
use xdfs_sys::fs::masked;

use crate::mtime::is_same_time;
use crate::paths::{Caller, join};
use crate::skip::Skip;

/// Bytes compared by one call: small enough to find differences early and to cancel quickly.
const PIECE_BYTES: u64 = 256 << 20;
/// Bytes read and hashed at once: one subtree of BLAKE3.
const BLOCK_BYTES: u64 = 1 << 20;
/// Bytes between progress events, which also detect that the receiver of the events is gone.
const PROGRESS_BYTES: u64 = 16 << 20;
/// The digest of the comparison, whatever digest the transfer has: it must not be possible to forge
/// a target that only looks equal.
const COMPARISON_DIGEST: DigestKind = DigestKind::Blake3;

/// Source and target of a transfer, and the range of the source.
#[derive(Debug)]
pub(crate) struct ComparedPaths {
    pub(crate) caller: Caller,
    /// The files of the other side.
    pub(crate) here: Arc<dyn Store>,
    pub(crate) is_upload: bool,
    pub(crate) source: Vec<u8>,
    pub(crate) target: Vec<u8>,
    /// The name that the target gets if it is a directory.
    pub(crate) name: Vec<u8>,
    pub(crate) offset: u64,
    pub(crate) length: Option<u64>,
    /// The kind of the digest in the result.
    pub(crate) digest: DigestKind,
    pub(crate) dry_run: bool,
    pub(crate) skip: Skip,
    /// The umask has decided on the mode of the target.
    pub(crate) masks_mode: bool,
}

/// One of the two files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    is_here: bool,
    path: Vec<u8>,
}

/// Reports the outcome: the refusal, unless another one is reported.
struct OutcomeReporter {
    events: Sender<TransferEvent>,
    refusal: Option<Fault>,
}

impl Drop for OutcomeReporter {
    fn drop(&mut self) {
        if let Some(refusal) = self.refusal.take() {
            // Nobody may be listening any more.
            let _ = self.events.send(TransferEvent::Ended(Err(refusal)));
        }
    }
}

impl ComparedPaths {
    /// Whether the fault may mean that the target exists.
    pub(crate) fn may_exist(&self, fault: &Fault) -> bool {
        // The fault for users who may create files and not replace any is another one.
        fault.code == Code::AlreadyExists || may_exist(fault) && self.is_upload && !self.dry_run
    }

    /// Compares the files in a thread of its own. It sends progress and the end as a transfer does;
    /// the end is `refusal` if the target isn't skipped.
    pub(crate) fn compare(self, events: Sender<TransferEvent>, refusal: Fault) {
        let mut reporter = OutcomeReporter {
            events,
            refusal: Some(refusal),
        };
        // If the thread can't be started, the refusal is reported.
        let _ = thread::Builder::new()
            .name("xdfs-compare".into())
            .spawn(move || {
                let result = match self.outcome(&reporter.events) {
                    Ok(Some(outcome)) => match self.make_durable(outcome) {
                        // A user without the right to sync learns nothing about the target.
                        Err(fault) if fault.code == Code::PermissionDenied => return,
                        // It is equal and perhaps not durable, which the refusal would hide.
                        result => result,
                    },
                    Err(fault) if self.caller.is_over(&fault) => Err(fault),
                    // The files differ, or can't be compared.
                    _ => return,
                };
                reporter.refusal = None;
                let _ = reporter.events.send(TransferEvent::Ended(result));
            });
    }

    /// The outcome of a transfer with nothing left to move; `None` if the files differ.
    fn outcome(&self, events: &Sender<TransferEvent>) -> Result<Option<Outcome>, Fault> {
        let start = Instant::now();
        let source = End {
            is_here: self.is_upload,
            path: self.source.clone(),
        };
        let mut target = End {
            is_here: !self.is_upload,
            path: self.target.clone(),
        };
        match self.stat(&target, true) {
            Ok(found) if found.kind == FileKind::Directory => {
                target.path = join(&target.path, &self.name);
            }
            // A link that leads nowhere exists too.
            Err(fault) if fault.code != Code::NotFound || self.skip != Skip::All => {
                return Err(fault);
            }
            _ => {}
        }
        // A link was never published by a transfer.
        let look = || Ok::<_, Fault>((self.stat(&source, true)?, self.stat(&target, false)?));
        let (from, there) = look()?;
        let Some(rest) = from.size.checked_sub(self.offset) else {
            return Ok(None);
        };
        let length = self.length.unwrap_or(rest).min(rest);
        if from.kind != FileKind::File || there.kind == FileKind::Directory {
            return Ok(None);
        }
        let is_file = there.kind == FileKind::File;
        let has_size = is_file && there.size == length;
        let times = there.mtime().zip(from.mtime());
        let has_time = times.is_some_and(|(there, from)| is_same_time(there, from));
        let may_skip = match self.skip {
            Skip::Never => false,
            Skip::Identical => has_size && has_time && self.has_mode(&from, &there),
            Skip::SizeAndTime => has_size && has_time,
            Skip::Content => has_size,
            Skip::NotOlder => {
                is_file && (has_time || times.is_some_and(|(there, from)| there >= from))
            }
            Skip::All => true,
        };
        if !may_skip {
            return Ok(None);
        }
        let is_read = matches!(self.skip, Skip::Identical | Skip::Content);
        let digest = match is_read {
            true => self.digest_of_both(&source, &target, length, events)?,
            false => Some(DigestValue::None),
        };
        let Some(digest) = digest else {
            return Ok(None);
        };
        let (from_now, there_now) = look()?;
        if !is_unchanged(&from, &from_now) || !is_unchanged(&there, &there_now) {
            return Ok(None);
        }
        // Of other versions nothing is known.
        let length = match self.skip {
            Skip::NotOlder | Skip::All => 0,
            _ => length,
        };
        Ok(Some(Outcome {
            bytes: length,
            elapsed: match self.dry_run {
                true => Duration::ZERO,
                false => start.elapsed(),
            },
            channels: 1,
            resumed_bytes: if self.dry_run { 0 } else { length },
            retransmitted_bytes: 0,
            digest,
            target: target.path,
            time_shares: TimeShares::only(LimitedBy::SourceRead),
            failures: Failures::default(),
            is_skipped: true,
            passage: None,
            mtime_ns: from.mtime(),
        }))
    }

    /// Makes the target durable: another program may have created it without synchronising it.
    fn make_durable(&self, mut outcome: Outcome) -> Result<Outcome, Fault> {
        let is_source = matches!(
            self.skip,
            Skip::Identical | Skip::SizeAndTime | Skip::Content
        );
        if self.dry_run || !is_source {
            return Ok(outcome);
        }
        let (start, path) = (Instant::now(), outcome.target.clone());
        match self.ask(!self.is_upload, Call::Sync { path }) {
            // A published file is durable even if the system can't synchronise on request.
            Err(fault) if fault.code == Code::Unsupported => {}
            Err(fault)
                if fault.code == Code::PermissionDenied && self.skip == Skip::SizeAndTime => {}
            synced => drop(synced?),
        }
        outcome.elapsed += start.elapsed();
        Ok(outcome)
    }

    /// Reads both files, each on its own side. Returns the digest of the content, of the kind in
    /// the result; `None` if they differ.
    fn digest_of_both(
        &self,
        source: &End,
        target: &End,
        length: u64,
        events: &Sender<TransferEvent>,
    ) -> Result<Option<DigestValue>, Fault> {
        let (here, there) = match self.is_upload {
            true => (source, target),
            false => (target, source),
        };
        let first_of = |end: &End| if end == source { self.offset } else { 0 };
        let mut file = self.here.open_source(&here.path)?;
        let mut whole = Digester::new(self.digest);
        let mut at = 0;
        while at < length {
            let bytes = PIECE_BYTES.min(length - at);
            let asked = self.caller.start_pending(Call::Checksum {
                path: there.path.clone(),
                offset: first_of(there) + at,
                length: Some(bytes),
                kind: COMPARISON_DIGEST.checksum().unwrap_or(ChecksumKind::Blake3),
            })?;
            let mut piece = Digester::new(COMPARISON_DIGEST);
            let mut done = 0;
            while done < bytes {
                let mut block = vec![0; BLOCK_BYTES.min(bytes - done) as usize];
                if file.read_at(first_of(here) + at + done, &mut block)? < block.len() {
                    return Ok(None);
                }
                piece.update(&block);
                whole.update(&block);
                done += block.len() as u64;
                if !(at + done).is_multiple_of(PROGRESS_BYTES) {
                    continue;
                }
                let progress = Progress {
                    bytes: at + done,
                    bytes_total: Some(length),
                    resumed_bytes: at + done,
                    channels: 1,
                };
                if events.send(TransferEvent::Progress(progress)).is_err() {
                    let cause = "its result is no longer wanted";
                    return Err(Fault::new(Code::Cancelled, "compare the target", cause));
                }
            }
            let own = piece.finish().and_then(|own| own.checksum());
            match asked.wait()? {
                Answer::Digest { value, length } if length == bytes && Some(value) == own => {}
                _ => return Ok(None),
            }
            at += bytes;
        }
        file.verify_unchanged()?;
        Ok(whole.finish())
    }

    /// Whether a target has the permissions that a transfer gives it, if both sides have any.
    fn has_mode(&self, source: &Attributes, target: &Attributes) -> bool {
        let given = |mode: u32| match self.masks_mode {
            true => masked(mode & 0o777),
            false => mode & 0o777,
        };
        let modes = mode_of(source).zip(mode_of(target));
        modes.is_none_or(|(source, target)| target == given(source))
    }

    fn stat(&self, end: &End, follow: bool) -> Result<Attributes, Fault> {
        let path = end.path.clone();
        match self.ask(end.is_here, Call::Stat { path, follow })? {
            Answer::Attributes(attributes) => Ok(attributes),
            // The engine lets nothing else through.
            _ => Err(Fault::new(Code::Internal, "look at", "another answer").path(&end.path)),
        }
    }

    fn ask(&self, is_here: bool, call: Call) -> Result<Answer, Fault> {
        match is_here {
            true => self.here.call(&call, &mut |_| Ok(())),
            false => self.caller.start_pending(call)?.wait(),
        }
    }
}

/// Whether the fault of some transfer may mean that its target exists.
pub(crate) fn may_exist(fault: &Fault) -> bool {
    matches!(fault.code, Code::AlreadyExists | Code::PermissionDenied)
}

/// The mode of an entry, if its store has modes. One that has none has no inode numbers either.
fn mode_of(attributes: &Attributes) -> Option<u32> {
    let is_known = attributes.mode != 0 || attributes.inode != 0;
    is_known.then_some(attributes.mode)
}

/// Whether a file is still the same version.
fn is_unchanged(before: &Attributes, now: &Attributes) -> bool {
    let version = |of: &Attributes| (of.device, of.inode, of.size, of.mtime_ns, of.ctime_ns);
    version(before) == version(now)
}

/// The digest of consecutive blocks.
struct Digester {
    states: FragmentMap,
    at: u64,
}

impl Digester {
    fn new(kind: DigestKind) -> Self {
        Self {
            states: FragmentMap::new(kind),
            at: 0,
        }
    }

    fn update(&mut self, block: &[u8]) {
        let mut hasher = BlockHasher::new(self.states.kind(), false, self.at);
        hasher.update(block);
        // Consecutive blocks never overlap.
        self.states.insert(hasher.finish(FileId(0)).1);
        self.at += block.len() as u64;
    }

    fn finish(&self) -> Option<DigestValue> {
        self.states.digest(self.at)
    }
}
