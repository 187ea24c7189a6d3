//! The sources of the files that are sent, and the files whose sources are polled.

use xdfs_proto::digest::BlockHasher;
use xdfs_proto::frame::{Frame, TimeAccount};
use xdfs_proto::{ByteRange, DigestKind, Fault, FileId};
use xdfs_store::Source;

use super::buffers::piece_bytes;
use super::ledger::{Ledger, Spent};
use crate::environment::Environment;
use crate::feeder::Feeder;
use crate::reader::BlockReader;

/// How far ahead of its use data is announced to the store, in bytes.
const READ_AHEAD_BYTES: u64 = 16 << 20;
/// How much is announced at once, in bytes.
const READ_AHEAD_STEP: u64 = 4 << 20;

/// The source of a file that is sent.
#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) reader: Reader,
    /// The threads that read blocks ahead: of a slow source all of them, of one at any offset those
    /// that have to come from a disk.
    pub(super) ahead: Option<BlockReader>,
    /// Offset in the source of the first byte of the transfer.
    pub(super) offset: u64,
    pub(super) digest: DigestKind,
    /// The end of the range announced to the store.
    pub(super) announced: u64,
    /// The end of the range known to hold data.
    pub(super) data_until: u64,
    /// The account of the session when it was opened.
    pub(super) opened: Spent,
    /// The time reported in EOFR. A repeated EOFR must be identical.
    pub(super) eofr_time: Option<TimeAccount>,
    /// Whether it is unchanged, checked after its last byte was read.
    pub(super) verification: Verification,
}

/// Verification that a source is unchanged.
#[derive(Debug)]
pub(super) enum Verification {
    NotAsked,
    /// A worker checks it. This EOFR is sent when it is done.
    Asked(Frame),
    Unchanged,
    /// It has changed, so EOFR is never sent.
    Failed(Fault),
}

/// How a source is read.
#[derive(Debug)]
pub(super) enum Reader {
    /// At any offset, in the session thread.
    Random(Box<dyn Source>),
    /// At any offset, by a worker.
    Slow,
    /// In order, by a feeder that starts once the block size is known.
    Stream(Option<Box<dyn Source>>, Option<Feeder>),
}

impl OpenSource {
    pub(super) fn new(reader: Reader, offset: u64, digest: DigestKind, opened: Spent) -> Self {
        Self {
            reader,
            ahead: None,
            offset,
            digest,
            announced: 0,
            data_until: 0,
            opened,
            eofr_time: None,
            verification: Verification::NotAsked,
        }
    }

    /// Whether the session thread can read the same bytes again.
    pub(super) fn can_be_read_again(&self) -> bool {
        matches!(self.reader, Reader::Random(_))
    }

    /// The next range with data from `start` on, and before `end`; `None` if there is none, or if
    /// the source can't be read at any offset here. All offsets are those of the transfer.
    pub(super) fn next_data(&mut self, start: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        let base = self.offset;
        let Reader::Random(source) = &mut self.reader else {
            return Ok(None);
        };
        let data = source.next_data(base + start, base + end)?;
        Ok(data.map(|data| ByteRange {
            start: data.start.saturating_sub(base),
            end: data.end - base,
        }))
    }

    /// Announces to the store that the data from `start` on is read next. Offsets are those of the
    /// transfer, which ends at `end`.
    pub(super) fn announce_reads(&mut self, start: u64, end: u64) {
        let from = self.announced.max(start);
        let to = (from + READ_AHEAD_STEP).min(end);
        if let Reader::Random(source) = &mut self.reader
            && from < to
            && from < start + READ_AHEAD_BYTES
        {
            source.will_read(ByteRange {
                start: self.offset + from,
                end: self.offset + to,
            });
            self.announced = to;
        }
    }

    /// Reads and hashes from `start`, an offset of the transfer, until `buffer` is full or the
    /// source ends. Returns the number of bytes read, and puts the time of the source on `ledger`.
    pub(super) fn read_pieces(
        &mut self,
        start: u64,
        buffer: &mut [u8],
        hasher: &mut BlockHasher,
        environment: &dyn Environment,
        ledger: &mut Ledger,
    ) -> Result<usize, Fault> {
        let Reader::Random(source) = &mut self.reader else {
            return Ok(0);
        };
        let mut n = 0;
        // In pieces, so that data is hashed while it is in the cache.
        for piece in buffer.chunks_mut(piece_bytes()) {
            let began = environment.now();
            let read = source.read_at(self.offset + start + n as u64, piece);
            ledger.read_source(environment.now() - began);
            let read = read?;
            hasher.update(&piece[..read]);
            n += read;
            if read < piece.len() {
                break;
            }
        }
        Ok(n)
    }
}

/// Files whose sources have no data now or are read by workers, in ascending order.
#[derive(Debug, Default)]
pub(super) struct SlowSources {
    files: Vec<FileId>,
}

impl SlowSources {
    /// Adds a file, to be polled later.
    pub(super) fn wait_for(&mut self, file: FileId) {
        if let Err(at) = self.files.binary_search(&file) {
            self.files.insert(at, file);
        }
    }

    /// Takes all files. Those that still have no data are to be added again.
    pub(super) fn take(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.files)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}
