//! The store in front of the members of a group, which send and write files together.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::digest::{BlockHasher, Fragment, FragmentMap};
use xdfs_proto::path::{Answer, Call, FileKind};
use xdfs_proto::stripes::{Stripes, StripesCall, StripesOrder};
use xdfs_proto::{ByteRange, Code, Fault, FileId, RangeSet};
use xdfs_store::{Capabilities, OpenedSink, Place, Sink, SinkRequest, Source, Store};

use super::join::{Joining, Sources};
use super::open_files::OpenFiles;
use super::place;
use super::spread::{self, Home, Part, Spreading};
use super::version::FileVersion;
use crate::client::Client;

/// The fewest bytes of a file that several members move: a smaller one would be a single part.
pub const STRIPED_BYTES_MIN: u64 = 4 << 20;
/// The largest and the smallest part in bytes.
const PART_BYTES: [u64; 2] = [4 << 20, 1 << 20];
/// The time for which the answer to the end of an unfinished file is waited for: the next attempt
/// finds it free then.
const CLOSING: Duration = Duration::from_secs(5);
/// Bytes of zeros that are written at once where the source has a hole.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
const OPEN: &str = "open the target";

/// The files of a group. The first member is home: it answers calls, and opens targets.
#[derive(Debug)]
pub(super) struct StripedPlace {
    sources: Sources,
    /// The files that are read.
    files: OpenFiles,
}

impl StripedPlace {
    pub(super) fn new(sources: Sources) -> Self {
        Self {
            sources,
            files: OpenFiles::default(),
        }
    }

    fn home(&self) -> Result<Arc<Client>, Fault> {
        self.sources.client(0)
    }

    fn read(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        let home = self.home()?;
        let absolute = home.absolute(path);
        let look = Call::Stat {
            path: absolute.clone(),
            follow: true,
        };
        let Answer::Attributes(found) = home.call(look)? else {
            return Err(self.sources.fault(0, Code::Internal, "another answer"));
        };
        let version = FileVersion::of(&found).ok_or_else(|| {
            let cause = match found.kind {
                FileKind::Directory => return directory(&absolute),
                FileKind::File => "its storage doesn't identify the versions of files",
                _ => "it is no file",
            };
            Fault::new(Code::Unsupported, "open the source", cause).path(&absolute)
        })?;
        let count = match version.size < STRIPED_BYTES_MIN {
            true => 1,
            false => self.sources.set.places.len(),
        };
        let sources = self.sources.reading(&absolute, version, count);
        place::open(&self.files, path, sources)
    }

    fn write(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        let Some(length) = request.length.filter(|length| *length > 0) else {
            let cause = "a file is striped if its length is known, and not 0";
            let fault = Fault::new(Code::Unsupported, OPEN, cause).path(&request.path);
            return Err(fault.hint("leave out --stripe"));
        };
        let client = self.home()?;
        let absolute = client.absolute(&request.path);
        let order = StripesOrder {
            path: absolute.clone(),
            name: request.name.clone(),
            length,
            tag: request.tag,
            digest: request.digest,
            block_bytes: request.block_size,
            overwrite: request.overwrite,
            resume: request.resume,
            mode: request.mode,
            mtime_ns: request.mtime_ns,
        };
        let answer = client.call(Call::Stripes(StripesCall::Open(Box::new(order))))?;
        let Answer::Stripes(stripes) = answer else {
            let fault = Fault::new(Code::Internal, OPEN, "another answer");
            return Err(fault.path(&request.path).remote());
        };
        let Stripes {
            id,
            number,
            block_bytes,
            path,
            held,
        } = *stripes;
        let members = self.sources.set.places.len() as u64;
        let share = (length / (4 * members)).max(1);
        let [largest, smallest] = PART_BYTES;
        let part_bytes = (share.next_power_of_two() / 2).clamp(smallest, largest);
        let home = Home {
            client,
            id,
            number,
            path: path.clone(),
            part_bytes: part_bytes.max(u64::from(block_bytes)),
        };
        let mut whole = FragmentMap::new(request.digest);
        let mut is_held = RangeSet::new();
        for fragment in &held {
            whole.insert(*fragment);
            is_held.insert(fragment.range);
        }
        // Before the thread, so that the target is closed if that can't be started.
        let mut sink = StripedSink {
            home: home.clone(),
            spreading: None,
            length,
            held: is_held,
            whole,
            filling: BTreeMap::new(),
            failed: None,
            is_open: true,
        };
        let sources = self.sources.writing(&absolute);
        sink.spreading = Some(spread::start(Joining::begin(sources), home)?);
        Ok(OpenedSink {
            sink: Box::new(sink),
            path,
            durable: held,
            unverified: false,
            block_size: block_bytes,
        })
    }
}

fn directory(path: &[u8]) -> Fault {
    Fault::new(Code::IsDirectory, "open the source", "it is a directory").path(path)
}

impl Store for StripedPlace {
    fn is_slow(&self) -> bool {
        true
    }

    fn open_source(&self, path: &[u8]) -> Result<Box<dyn Source>, Fault> {
        self.read(path)
    }

    fn open_sink(&self, request: &SinkRequest) -> Result<OpenedSink, Fault> {
        self.write(request)
    }

    fn call(
        &self,
        call: &Call,
        _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
    ) -> Result<Answer, Fault> {
        self.home().and_then(|home| home.call(call.clone()))
    }

    xdfs_store::defaults!(Store: check_sink, read_pack, write_pack, packs_wait, open_file);
}

impl Place for StripedPlace {
    fn connect(&self) -> Result<(), Fault> {
        self.home().map(drop)
    }

    fn resumes_download(&self) -> bool {
        true
    }

    fn resumes_upload(&self, _: Option<u64>) -> bool {
        true
    }

    fn comparing(&self, path: &[u8], target: Arc<dyn Store>) -> Arc<dyn Store> {
        place::comparing(&self.files, path, target)
    }

    fn close(&self) {
        self.files.close();
        self.sources.stop();
    }
}

/// Bytes of a part that hasn't come as a whole.
#[derive(Debug)]
struct Filling {
    bytes: Vec<u8>,
    /// The bytes that have come.
    come: RangeSet,
}

/// The open file. What is written goes to the members as soon as a part is whole, and home takes it
/// in and records it by itself: so neither [`Sink::sync`] nor [`Sink::record`] waits, and
/// [`Sink::publish`] waits for all.
#[derive(Debug)]
struct StripedSink {
    home: Home,
    /// `None` only while it is opened.
    spreading: Option<Arc<Spreading>>,
    length: u64,
    /// Ranges of an earlier attempt.
    held: RangeSet,
    /// All that was compared with the source.
    whole: FragmentMap,
    /// By the numbers of the parts.
    filling: BTreeMap<u64, Filling>,
    /// A hole could not be written.
    failed: Option<Fault>,
    /// Home has it open.
    is_open: bool,
}

impl StripedSink {
    fn spreading(&self) -> Result<&Spreading, Fault> {
        let closed = || Fault::new(Code::Internal, "write", "it isn't open");
        self.spreading.as_deref().ok_or_else(closed)
    }

    /// The range of a part.
    fn part(&self, number: u64) -> ByteRange {
        let start = number.saturating_mul(self.home.part_bytes).min(self.length);
        ByteRange {
            start,
            end: (start + self.home.part_bytes).min(self.length),
        }
    }

    fn write(&mut self, mut offset: u64, mut bytes: &[u8]) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let number = offset / self.home.part_bytes;
            let part = self.part(number);
            let room = usize::try_from(part.end.saturating_sub(offset)).unwrap_or(usize::MAX);
            if room == 0 {
                let cause = "the source has become longer";
                return Err(Fault::new(Code::SourceChanged, "write", cause));
            }
            let (own, rest) = bytes.split_at(room.min(bytes.len()));
            let filling = self.filling.entry(number).or_insert_with(|| Filling {
                bytes: vec![0; usize::try_from(part.len()).unwrap_or(0)],
                come: RangeSet::new(),
            });
            // Within the part.
            let at = (offset - part.start) as usize;
            filling.bytes[at..][..own.len()].copy_from_slice(own);
            let end = offset + own.len() as u64;
            filling.come.insert(ByteRange { start: offset, end });
            let gaps = filling.come.gaps(part);
            let is_whole = |gap: &ByteRange| self.held.contains(*gap);
            if gaps.as_slice().iter().all(is_whole) {
                self.give(number)?;
            }
            (offset, bytes) = (end, rest);
        }
        Ok(())
    }

    /// Hands over the bytes of a part that are there, in pieces whose digests combine.
    fn give(&mut self, number: u64) -> Result<(), Fault> {
        let part = self.part(number);
        let Some(Filling { bytes, come }) = self.filling.remove(&number) else {
            return Ok(());
        };
        for range in come.as_slice() {
            for piece in subtrees(*range, self.length) {
                let at = (piece.start - part.start) as usize;
                let len = piece.len() as usize;
                let mut hasher = BlockHasher::new(self.whole.kind(), false, piece.start);
                hasher.update(&bytes[at..][..len]);
                let fragment = hasher.finish(FileId(0)).1;
                let part = Part::new(fragment, bytes[at..][..len].to_vec());
                self.spreading()?.give(part)?;
            }
        }
        Ok(())
    }

    fn ask(&self, call: StripesCall) -> Result<(), Fault> {
        self.home.client.call(Call::Stripes(call)).map(drop)
    }

    fn add(&mut self, fragments: &[Fragment]) {
        for fragment in fragments {
            self.whole.insert(*fragment);
        }
    }
}

/// Cuts a range of a file of `length` bytes into subtrees of BLAKE3.
fn subtrees(range: ByteRange, length: u64) -> Vec<ByteRange> {
    let mut cut = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let left = range.end - start;
        let most = match start {
            0 => left,
            start => 1 << start.trailing_zeros(),
        };
        let is_end = range.end == length && left <= most;
        let len = match is_end {
            true => left,
            false => 1 << left.min(most).ilog2(),
        };
        cut.push(ByteRange {
            start,
            end: start + len,
        });
        start += len;
    }
    cut
}

impl Sink for StripedSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            slow_writes: true,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let mut at = offset;
        for buf in bufs {
            self.write(at, buf)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Zeros are sent as all other bytes: what is in the unfinished file there is unknown.
    fn hole(&mut self, range: ByteRange) {
        let mut at = range.start;
        while at < range.end && self.failed.is_none() {
            let count = (range.end - at).min(ZEROS.len() as u64);
            self.failed = self.write(at, &ZEROS[..count as usize]).err();
            at += count;
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        // Home has done that.
        Ok(Some(self.whole.fragments().copied().collect()))
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        self.add(durable);
        Ok(())
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        self.sync()?;
        self.add(fresh);
        let left: Vec<_> = self.filling.keys().copied().collect();
        for number in left {
            self.give(number)?;
        }
        self.spreading()?.finish()?;
        let digest = self.whole.digest(length).filter(|_| length == self.length);
        let digest = digest.ok_or_else(|| {
            let cause = "the file is not as long as it was";
            Fault::new(Code::SourceChanged, "publish", cause).path(&self.home.path)
        })?;
        let id = self.home.id;
        // Closed there, whatever comes of it.
        self.is_open = false;
        self.ask(StripesCall::Publish { id, digest })
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.is_open = false;
        let id = self.home.id;
        self.ask(StripesCall::Close { id, discard: true })
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, begin_write_back, read_back, shared);
}

impl Drop for StripedSink {
    fn drop(&mut self) {
        if let Some(spreading) = &self.spreading {
            spreading.close();
        }
        if !self.is_open {
            return;
        }
        let id = self.home.id;
        let close = Call::Stripes(StripesCall::Close { id, discard: false });
        if let Ok(mut call) = self.home.client.start_call(close) {
            // Otherwise the end of the session closes it.
            let _ = call.wait_for(CLOSING);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_into_subtrees_that_combine() {
        const KIB: u64 = 1024;
        let cut = |start: u64, end: u64, length: u64| {
            let range = ByteRange {
                start: start * KIB,
                end: end * KIB,
            };
            let cut = subtrees(range, length * KIB).into_iter();
            cut.map(|own| (own.start / KIB, own.end / KIB))
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 4, 100), [(0, 4)]);
        assert_eq!(cut(0, 3, 100), [(0, 2), (2, 3)]);
        assert_eq!(cut(1, 8, 100), [(1, 2), (2, 4), (4, 8)]);
        assert_eq!(cut(8, 11, 11), [(8, 11)]);
        assert_eq!(cut(4, 11, 11), [(4, 8), (8, 11)]);
        assert_eq!(cut(4, 11, 12), [(4, 8), (8, 10), (10, 11)]);
        assert_eq!(cut(0, 11, 11), [(0, 11)]);
    }

    /// Whatever the pieces are, their digests combine to that of the whole.
    #[test]
    fn the_digest_of_the_pieces_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..70_000_u64).map(|n| ((n * n) >> 7) as u8).collect();
        let length = bytes.len() as u64;
        for cut in [1024, 4096, 17 * 1024, 64 * 1024] {
            let mut whole = FragmentMap::new(xdfs_proto::DigestKind::Blake3);
            let mut start = 0;
            while start < length {
                let end = (start + cut).min(length);
                for piece in subtrees(ByteRange { start, end }, length) {
                    let mut hasher = BlockHasher::new(whole.kind(), false, piece.start);
                    hasher.update(&bytes[piece.start as usize..piece.end as usize]);
                    assert!(whole.insert(hasher.finish(FileId(0)).1), "{piece}");
                }
                start = end;
            }
            let expected = blake3::hash(&bytes).into();
            let found = whole.digest(length);
            assert_eq!(
                found,
                Some(xdfs_proto::digest::DigestValue::Blake3(expected))
            );
        }
    }
}
