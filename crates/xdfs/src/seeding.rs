//! Seeding the transfer of a partly changed large file: parts of the new version that the old one
//! at the target contains are copied from there, and only the rest is sent.
//!
//! The server provides signatures of the blocks of its version; this side finds the stretches that
//! both versions share, and has them copied into the partial file of a transfer that has not
//! started yet ([`Call::Seed`], or locally). That transfer resumes from there like an interrupted
//! one, with the usual verification and counts. Wrong signatures and concurrent changes only make
//! it send more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use xdfs_proto::delta::find::{self, Index, Stretch, block_bytes, cut};
use xdfs_proto::delta::{
    PIECES_MAX, SEEDED_BYTES_MAX, SIGNATURES_MAX, SIGNED_BYTES_MAX, Seed, SeedPiece, Signature,
};
use xdfs_proto::digest::BlockHasher;
use xdfs_proto::{Code, DigestKind, Fault, FileId, SourceTag};
use xdfs_store::{LocalStore, Source, Store};

use crate::client::Client;
use crate::paths::{Answer, Attributes, Call};

/// Smallest file to seed, in bytes: below, sending costs less than comparing.
const FILE_BYTES_MIN: u64 = 1 << 20;
/// Seeding pays if at least this fraction (one in n) of the new file is found in the old one.
const SHARE_MIN: u64 = 4;
/// Signature calls in flight.
const CALLS_MAX: usize = 4;

/// Whether seeding may pay, judged by the sizes alone.
pub(crate) fn may_pay(new: u64, old: u64) -> bool {
    new >= FILE_BYTES_MIN && old >= FILE_BYTES_MIN && old >= new / SHARE_MIN
}

/// Seeds transfers of a session.
pub(crate) struct Seeding<'a> {
    pub(crate) client: &'a Client,
    /// The digest of the transfers.
    pub(crate) digest: DigestKind,
    /// Stops the search.
    pub(crate) stop: &'a AtomicBool,
}

impl Seeding<'_> {
    /// Seeds an upload: the server copies those parts of the local file `source` that its file
    /// `target`, of `old` bytes, contains. Returns the number of bytes copied.
    ///
    /// # Errors
    /// The reason why the file has to be sent as a whole.
    pub(crate) fn seed_upload(&self, source: &[u8], target: &[u8], old: u64) -> Result<u64, Fault> {
        let mut file = LocalStore::unrooted().open_source(source)?;
        let (tag, length) = version(&*file)?;
        let Some(block) = block_bytes(length.max(old)).filter(|_| may_pay(length, old)) else {
            return Ok(0);
        };
        let (_, signatures) = self.signatures(target, old, block, DigestKind::None)?;
        let index = Index::new(block, old, signatures);
        let mut stretches = Vec::new();
        let (mut at, mut data) = (0, 0);
        // Holes of the new file cost nothing to send.
        while let Some(range) = file.next_data(at, length)? {
            let mut read = |at, buf: &mut [u8]| file.read_at(at, buf);
            index.find_in_new(range, &mut read, self.stop, &mut stretches)?;
            data += range.len();
            at = range.end;
        }
        file.verify_unchanged()?;
        drop(index);
        if self.is_stopped() || !pays(&stretches, data) {
            return Ok(0);
        }
        let seed = self.seed_of(target, block, (tag, length), file.info().sparse);
        let mut buf = Vec::new();
        self.seed(
            &stretches,
            seed,
            &mut |seed| match self.client.call(Call::Seed(Box::new(seed)))? {
                Answer::Copied { bytes } => Ok(bytes),
                _ => Err(odd("another answer")),
            },
            &mut |range| {
                buf.resize(usize::try_from(range.len()).unwrap_or(0), 0);
                file.read_at(range.start, &mut buf)?;
                let mut hasher = BlockHasher::new(self.digest, false, range.start);
                hasher.update(&buf);
                Ok(Some(hasher.finish(FileId(0)).1.state))
            },
        )
    }

    /// Seeds a download: copies those parts of the file `source` on the server, with these
    /// attributes, that the file `target` of a local store contains. Returns the number of bytes
    /// copied.
    ///
    /// # Errors
    /// As [`Self::seed_upload`].
    pub(crate) fn seed_download(
        &self,
        source: &[u8],
        attributes: &Attributes,
        store: &LocalStore,
        target: &[u8],
    ) -> Result<u64, Fault> {
        let new = attributes.size;
        let mut file = store.open_source(target)?;
        let (_, old) = version(&*file)?;
        let Some(block) = block_bytes(new.max(old)).filter(|_| may_pay(new, old)) else {
            return Ok(0);
        };
        let (tag, signatures) = self.signatures(source, new, block, self.digest)?;
        let index = Index::new(block, new, signatures);
        let stretches = index.find_in_old(old, &mut |at, buf| file.read_at(at, buf), self.stop)?;
        file.verify_unchanged()?;
        if !pays(&stretches, new) {
            return Ok(0);
        }
        let is_sparse = attributes.allocated < new;
        let seed = self.seed_of(target, block, (tag, new), is_sparse);
        drop(file);
        self.seed(
            &stretches,
            seed,
            &mut |seed| xdfs_store::seed(store, &seed),
            &mut |range| Ok(index.state(range.start / u64::from(block))),
        )
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The seed of a target's partial file, without pieces.
    fn seed_of(
        &self,
        target: &[u8],
        block_bytes: u32,
        (tag, length): (SourceTag, u64),
        sparse: bool,
    ) -> Seed {
        Seed {
            from: target.to_vec(),
            to: target.to_vec(),
            overwrite: true,
            sparse,
            tag,
            length,
            digest: self.digest,
            block_bytes,
            pieces: Vec::new(),
        }
    }

    /// The version of a file of `length` bytes on the server, and the signatures of its blocks.
    fn signatures(
        &self,
        path: &[u8],
        length: u64,
        block: u32,
        digest: DigestKind,
    ) -> Result<(SourceTag, Vec<Signature>), Fault> {
        let count = length.div_ceil(u64::from(block));
        let each = (SIGNED_BYTES_MAX / u64::from(block)).min(u64::from(SIGNATURES_MAX));
        let mut signatures = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        let mut version = None;
        let (mut under_way, mut next) = (VecDeque::new(), 0);
        while (signatures.len() as u64) < count {
            if self.is_stopped() {
                return Err(Fault::new(Code::Cancelled, OPERATION, "it was stopped"));
            }
            while under_way.len() < CALLS_MAX && next < count {
                let wanted = each.min(count - next);
                let call = self.client.start_call(Call::Signatures {
                    path: path.to_vec(),
                    digest,
                    block_bytes: block,
                    first: next,
                    count: u32::try_from(wanted).unwrap_or(SIGNATURES_MAX),
                })?;
                under_way.push_back((call, wanted));
                next += wanted;
            }
            let Some((call, wanted)) = under_way.pop_front() else {
                break;
            };
            let Answer::Signatures(answer) = call.wait()? else {
                return Err(odd("another answer"));
            };
            let is_same = *version.get_or_insert(answer.tag) == answer.tag;
            if !is_same || answer.length != length || answer.blocks.len() as u64 != wanted {
                return Err(odd("it has changed"));
            }
            signatures.extend(answer.blocks);
        }
        Ok((version.unwrap_or_default(), signatures))
    }

    /// Copies the pieces of stretches with as few calls as possible, one after the other, since a
    /// partial file has one user at a time. Returns the number of bytes copied.
    fn seed(
        &self,
        stretches: &[Stretch],
        seed: Seed,
        send: &mut dyn FnMut(Seed) -> Result<u64, Fault>,
        state_of: &mut find::StateOf<'_>,
    ) -> Result<u64, Fault> {
        let (mut copied, mut bytes) = (0, 0);
        let mut pieces: Vec<SeedPiece> = Vec::new();
        let mut flush = |pieces: &mut Vec<SeedPiece>| {
            let pieces = std::mem::take(pieces);
            if !pieces.is_empty() {
                let seed = seed.clone();
                copied += send(Seed { pieces, ..seed })?;
            }
            Ok(())
        };
        let shape = (seed.block_bytes, seed.length, seed.digest);
        cut(stretches, shape, state_of, &mut |piece| {
            let length = u64::from(piece.length);
            if pieces.len() >= PIECES_MAX || bytes + length > SEEDED_BYTES_MAX {
                flush(&mut pieces)?;
                bytes = 0;
            }
            pieces.push(piece);
            bytes += length;
            Ok(!self.is_stopped())
        })?;
        flush(&mut pieces)?;
        Ok(copied)
    }
}

const OPERATION: &str = "find changed parts";

fn odd(cause: &str) -> Fault {
    Fault::new(Code::SourceChanged, OPERATION, cause)
}

/// The version of a file, and its length in bytes.
fn version(file: &dyn Source) -> Result<(SourceTag, u64), Fault> {
    let info = file.info();
    let length = info.length.filter(|_| info.tag != SourceTag::default());
    let unversioned = || Fault::new(Code::Unsupported, OPERATION, "its store has no versions");
    let length = length.ok_or_else(unversioned);
    length.map(|length| (info.tag, length))
}

/// Whether enough of the `data` bytes was found.
fn pays(stretches: &[Stretch], data: u64) -> bool {
    let found: u64 = stretches.iter().map(|stretch| stretch.length).sum();
    found > 0 && found >= data / SHARE_MIN
}
