//! Segments of MODE T: files of a tree that are read, packed and sent piece by piece, and those
//! that have come, which are held until they are whole, and then unpacked.
//!
//! Both use the packs of the store, as xDFS does: what is stored is published as from there.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use xdfs_proto::pack::{
    Content, Entry, Failures, Metadata, PACK_BYTES_MAX, PackReader, PackRequest, PackWriter,
    Preserve,
};
use xdfs_proto::path::Call;
use xdfs_proto::{Code, Fault, Limits};
use xdfs_store::{PackOptions, Store};

use super::catalogue::{Catalogue, Item};
use crate::archive::{
    ArchiveWriter, Compression, FILE_BYTES_MAX, Kind, Member, SEGMENT_BYTES_MAX, members, unpack,
};
use crate::checksum::{Algorithm, Hasher};
use crate::segment::{Closing, SegmentRequest};

const SEND: &str = "send";
const STORE: &str = "store";
/// Bytes of files that are read at once.
const PIECE_BYTES: u64 = 512 << 10;
/// Bytes of an archive beside the content of a file and its path, at most: two headers, the records
/// of one, and padding.
const MEMBER_BYTES: u64 = 2048;
const NS: i64 = 1_000_000_000;

/// What segments are held in, with any content: fresh memory costs more than filling it, so that
/// the next segment gets that of the last one.
#[derive(Debug, Default)]
pub(super) struct SegmentMemory {
    bytes: Vec<u8>,
    pack: Vec<u8>,
}

impl SegmentMemory {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.capacity() + self.pack.capacity() == 0
    }
}

/// A segment on its way to the client.
#[derive(Debug)]
pub(super) struct Segment {
    store: Arc<dyn Store>,
    root: Vec<u8>,
    catalogue: Arc<Catalogue>,
    /// Those that are still to be read.
    numbers: std::vec::IntoIter<usize>,
    /// `None` once everything is handed out.
    writer: Option<ArchiveWriter>,
    hasher: Hasher,
    members: u64,
    memory: SegmentMemory,
}

fn failed(operation: &str, error: &io::Error) -> Fault {
    Fault::new(Code::Internal, operation, error.to_string())
}

impl Segment {
    /// Begins with what is asked for.
    ///
    /// # Errors
    /// The transaction has no such entries, or they are too many.
    pub(super) fn new(
        store: Arc<dyn Store>,
        root: Vec<u8>,
        catalogue: Arc<Catalogue>,
        request: &SegmentRequest,
        memory: SegmentMemory,
    ) -> Result<Self, Fault> {
        let numbers: Vec<_> = request
            .numbers
            .iter()
            .map(|number| number as usize)
            .collect();
        let mut bytes = 0;
        for number in &numbers {
            let item = catalogue.items.get(*number).ok_or_else(|| {
                let cause = format!("the transaction has {} entries", catalogue.items.len());
                Fault::new(Code::InvalidArgument, SEND, cause).path(&root)
            })?;
            if item.is_small_file {
                bytes += item.size + item.path.len() as u64 + MEMBER_BYTES;
            }
        }
        if bytes > SEGMENT_BYTES_MAX as u64 {
            let cause = format!("it would have more than {} MiB", SEGMENT_BYTES_MAX >> 20);
            let fault = Fault::new(Code::LimitExceeded, SEND, cause).path(root);
            return Err(fault.hint("ask for fewer entries"));
        }
        let writer = ArchiveWriter::new(request.compression);
        Ok(Self {
            store,
            root,
            numbers: numbers.into_iter(),
            catalogue,
            writer: Some(writer.map_err(|error| failed(SEND, &error))?),
            hasher: Hasher::new(Algorithm::Crc64Nvme),
            members: 0,
            memory,
        })
    }

    /// Appends the next bytes; nothing at the end.
    ///
    /// # Errors
    /// The directory of the tree can't be read.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) -> Result<(), Fault> {
        let start = out.len();
        while out.len() == start
            && let Some(mut writer) = self.writer.take()
        {
            let batch = self.next_batch();
            writer.swap(out);
            debug_assert!(out.is_empty(), "something was ready before");
            if batch.is_empty() {
                *out = writer.finish().map_err(|error| failed(SEND, &error))?;
                tracing::debug!(members = self.members, "a segment is sent");
                break;
            }
            self.read(&batch, &mut writer)?;
            writer.swap(out);
            self.writer = Some(writer);
        }
        self.hasher.update(&out[start..]);
        Ok(())
    }

    fn next_batch(&mut self) -> Vec<usize> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < PIECE_BYTES
            && let Some(number) = self.numbers.next()
        {
            let item = &self.catalogue.items[number];
            if item.is_small_file {
                bytes += item.size + item.path.len() as u64;
                batch.push(number);
            }
        }
        batch
    }

    /// Adds the files of a batch that are still as the transaction says. The client asks for others
    /// in another way, and hears what is wrong.
    fn read(&mut self, batch: &[usize], writer: &mut ArchiveWriter) -> Result<(), Fault> {
        let mut batch = batch;
        let limits = Limits::default();
        while !batch.is_empty() {
            let paths = batch
                .iter()
                .map(|number| self.catalogue.items[*number].path.clone());
            let request = PackRequest {
                keep: Preserve::default(),
                follow: false,
                file_bytes_max: FILE_BYTES_MAX,
                names: paths.collect(),
            };
            let memory = std::mem::take(&mut self.memory.pack);
            let mut pack = PackWriter::new(memory, PACK_BYTES_MAX);
            self.store.read_pack(&self.root, &request, &mut pack)?;
            let (memory, length) = pack.finish();
            let mut count = 0;
            for (entry, number) in PackReader::new(&memory[..length], &limits).zip(batch) {
                count += 1;
                let entry = entry.map_err(|error| {
                    Fault::new(Code::Internal, SEND, error.to_string()).path(&self.root)
                })?;
                if let Some(member) = unchanged(&self.catalogue.items[*number], &entry) {
                    writer.add(&member).map_err(|error| failed(SEND, &error))?;
                    self.members += 1;
                }
            }
            self.memory.pack = memory;
            // One that doesn't even fit into an empty pack is left out.
            batch = &batch[count.max(1)..];
        }
        Ok(())
    }

    /// The memory, once everything is sent.
    pub(super) fn take_memory(&mut self) -> SegmentMemory {
        std::mem::take(&mut self.memory)
    }

    /// What the client is told at the end.
    pub(super) fn receipt(&self) -> String {
        let closing = Closing {
            digits: self.hasher.clone().finish(),
            members: self.members,
        };
        closing.to_string()
    }
}

/// The member for an entry, if it is what the transaction says.
fn unchanged<'a>(item: &Item, entry: &Entry<'a>) -> Option<Member<'a>> {
    let Content::File(data) = entry.content else {
        return None;
    };
    let mtime_s = entry.metadata.mtime_ns.map(|time| time.div_euclid(NS));
    let is_same =
        entry.path == item.path && data.len() as u64 == item.size && mtime_s == Some(item.mtime_s);
    is_same.then(|| Member {
        path: Cow::Borrowed(entry.path),
        kind: Kind::File,
        mode: entry.metadata.mode.unwrap_or(0o644),
        mtime_s,
        data,
    })
}

/// A segment that comes from the client.
#[derive(Debug)]
pub(super) struct Arriving {
    store: Arc<dyn Store>,
    root: Vec<u8>,
    compression: Compression,
    overwrites: bool,
    announced: (Algorithm, String),
    memory: SegmentMemory,
    /// Bytes of it that have come, or are before such bytes.
    length: usize,
}

impl Arriving {
    pub(super) fn new(
        store: Arc<dyn Store>,
        root: Vec<u8>,
        compression: Compression,
        overwrites: bool,
        announced: (Algorithm, String),
        memory: SegmentMemory,
    ) -> Self {
        Self {
            store,
            root,
            compression,
            overwrites,
            announced,
            memory,
            length: 0,
        }
    }

    /// Takes bytes that have come, in any order.
    ///
    /// # Errors
    /// They lie past the end of any segment.
    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.checked_add(bytes.len());
        let Some(end) = end.filter(|end| *end <= SEGMENT_BYTES_MAX) else {
            let cause = format!("it has more than {} MiB", SEGMENT_BYTES_MAX >> 20);
            return Err(Fault::new(Code::LimitExceeded, STORE, cause).path(&self.root));
        };
        self.length = self.length.max(end);
        let held = &mut self.memory.bytes;
        if held.len() < end {
            held.resize(end, 0);
        }
        held[start..end].copy_from_slice(bytes);
        Ok(())
    }

    /// Stores everything, once it is whole. Returns what could not be stored.
    ///
    /// # Errors
    /// It isn't what was announced, or is no segment: then nothing is stored. Or the directory of
    /// the tree can't be written.
    pub(super) fn finish(&mut self) -> Result<Failures, Fault> {
        let memory = std::mem::take(&mut self.memory.pack);
        let (kind, digits) = &self.announced;
        let mut hasher = Hasher::new(*kind);
        let bytes = &self.memory.bytes[..self.length];
        hasher.update(bytes);
        let found = hasher.finish();
        if found != *digits {
            let cause = format!("its checksum is {found}, and SCKS has told {digits}");
            return Err(Fault::new(Code::IntegrityMismatch, STORE, cause).path(&self.root));
        }
        let refused = |error: crate::archive::ArchiveError| {
            let fault = Fault::new(Code::ProtocolViolation, STORE, error.to_string());
            fault.path(&self.root)
        };
        let archive = unpack(self.compression, bytes).map_err(refused)?;
        let mut failures = Failures::default();
        let (mut first, mut count) = (0, 0);
        let mut pack = PackWriter::new(memory, PACK_BYTES_MAX);
        for member in members(&archive).map_err(refused)? {
            let entry = entry_of(&member);
            if !pack.entry(&entry) {
                pack = self.write(pack, first, &mut failures)?;
                first = count;
                if !pack.entry(&entry) {
                    let cause = "it is too large for a segment";
                    failures.push(count, Fault::new(Code::LimitExceeded, STORE, cause));
                    first += 1;
                }
            }
            count += 1;
        }
        let pack = self.write(pack, first, &mut failures)?;
        if count > 0 {
            // Packs leave the names to this, and the reply says that all of it is on disk.
            let path = self.root.clone();
            self.store.call(&Call::Sync { path }, &mut |_| Ok(()))?;
        }
        tracing::debug!(members = count, "a segment is stored");
        (self.memory.pack, _) = pack.finish();
        Ok(failures)
    }

    /// The memory, once everything is stored.
    pub(super) fn take_memory(&mut self) -> SegmentMemory {
        std::mem::take(&mut self.memory)
    }

    /// Writes a pack, whose first entry is the member of this number. Returns an empty one.
    fn write(
        &self,
        pack: PackWriter,
        first: u32,
        failures: &mut Failures,
    ) -> Result<PackWriter, Fault> {
        let is_empty = pack.is_empty();
        let (memory, length) = pack.finish();
        if !is_empty {
            let options = PackOptions {
                overwrite: self.overwrites,
                relaxed: false,
            };
            let failed = self
                .store
                .write_pack(&self.root, options, &memory[..length])?;
            for run in failed.runs() {
                for number in run.first..run.first.saturating_add(run.count) {
                    failures.push(first + number, run.fault.clone());
                }
            }
        }
        Ok(PackWriter::new(memory, PACK_BYTES_MAX))
    }
}

fn entry_of<'a>(member: &'a Member<'_>) -> Entry<'a> {
    Entry {
        path: &member.path,
        metadata: Metadata {
            mode: Some(member.mode),
            mtime_ns: member.mtime_s.map(|time| time.saturating_mul(NS)),
            ..Metadata::default()
        },
        content: match member.kind {
            Kind::Attributes => Content::Attributes,
            Kind::Directory => Content::Directory,
            Kind::File => Content::File(member.data),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use xdfs_proto::path::Answer;

    use super::*;

    /// Takes note of what is done, on a disk that works or fails.
    #[derive(Debug, Default)]
    struct Noted {
        done: Mutex<Vec<&'static str>>,
        fails: bool,
    }

    impl Store for Noted {
        fn write_pack(&self, _: &[u8], _: PackOptions, _: &[u8]) -> Result<Failures, Fault> {
            self.done.lock().unwrap().push("pack");
            Ok(Failures::default())
        }

        fn call(
            &self,
            call: &Call,
            _: &mut dyn FnMut(Answer) -> Result<(), Fault>,
        ) -> Result<Answer, Fault> {
            assert!(matches!(call, Call::Sync { path } if path == b"/tree"));
            self.done.lock().unwrap().push("sync");
            match self.fails {
                true => Err(Fault::new(Code::Io, "", "the disk fails")),
                false => Ok(Answer::Done),
            }
        }

        xdfs_store::defaults!(Store: is_slow, open_source, open_sink, check_sink, read_pack,
            packs_wait, open_file);
    }

    #[test]
    fn a_segment_is_confirmed_once_its_names_are_durable() {
        let mut writer = ArchiveWriter::new(Compression::None).unwrap();
        let member = Member {
            path: Cow::Borrowed(b"a"),
            kind: Kind::File,
            mode: 0o644,
            mtime_s: Some(1),
            data: b"content",
        };
        writer.add(&member).unwrap();
        let mut bytes = writer.take();
        bytes.append(&mut writer.finish().unwrap());
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(&bytes);
        let announced = (Algorithm::Sha256, hasher.finish());
        for fails in [false, true] {
            let store = Arc::new(Noted {
                fails,
                ..Noted::default()
            });
            let own = Arc::clone(&store) as Arc<dyn Store>;
            let root = b"/tree".to_vec();
            // What was there before doesn't count.
            let memory = SegmentMemory {
                bytes: vec![7; 100_000],
                pack: vec![7; 10],
            };
            let announced = announced.clone();
            let none = Compression::None;
            let mut segment = Arriving::new(own, root, none, false, announced, memory);
            segment.put(0, &bytes).unwrap();
            assert_eq!(segment.finish().is_err(), fails);
            assert_eq!(*store.done.lock().unwrap(), ["pack", "sync"]);
        }
    }
}
