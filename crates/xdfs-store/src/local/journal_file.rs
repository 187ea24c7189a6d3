//! The journal on the disk: loading it, appending to it, and writing it anew in less space.
//!
//! Called by the sink beside it only, which holds the lock of the partial file, so that nobody
//! else touches the journal meanwhile.

use std::fs::File;
use std::io::{self, IoSlice};
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs_proto::digest::{Fragment, FragmentMap};
use xdfs_proto::frame::SourceTag;
use xdfs_sys::fs::{self, Dir, FileKind};

use super::journal::{self, HEADER_BYTES, Header};
use super::path::HiddenNames;
use crate::SinkRequest;

/// A longer journal isn't read; the transfer starts over.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// A journal is written anew when it is longer than this and twice as long as it need be.
const COMPACT_BYTES: u64 = 64 << 10;

/// The journal of one partial file. It has no file before the first record.
#[derive(Debug)]
pub(super) struct JournalFile {
    header: Header,
    file: Option<File>,
    /// Where the next record goes.
    end: u64,
    /// The number of the next record.
    records: u64,
    /// The file may not hold what was written to it: it has to be written anew before it is
    /// trusted with more.
    broken: bool,
}

impl JournalFile {
    /// A journal for a transfer that starts from nothing.
    pub(super) fn new(request: &SinkRequest) -> Self {
        // Only has to differ from those of earlier journals of the same name.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let header = Header {
            tag: request.tag,
            length: request.length,
            digest: request.digest,
            block_size: request.block_size,
            nonce: now.as_nanos() as u64,
        };
        Self {
            header,
            file: None,
            end: 0,
            records: 0,
            broken: false,
        }
    }

    /// The grid of the blocks in bytes.
    pub(super) fn block_size(&self) -> u32 {
        self.header.block_size
    }

    /// Opens the journal that an earlier attempt at the same transfer left, and what it holds.
    /// `None` if there is none, or none that can be trusted.
    pub(super) fn load(
        dir: &Dir,
        names: &HiddenNames,
        request: &SinkRequest,
        partial_bytes: u64,
    ) -> io::Result<Option<(Self, FragmentMap)>> {
        if request.tag == SourceTag::default() {
            return Ok(None);
        }
        let mut fresh = Self::new(request);
        // There is none, or it is a link or another user's: not ours to go on from.
        let Ok(file) = dir.open_existing(&names.journal) else {
            return Ok(None);
        };
        let meta = fs::meta(&file)?;
        let is_sound = meta.kind == FileKind::Regular
            && meta.links == 1
            && fs::is_ours(&meta)
            && meta.length <= FILE_BYTES_MAX;
        if !is_sound {
            return Ok(None);
        }
        let bytes = read_all(&file, meta.length)?;
        let Some(parsed) = journal::parse(&bytes).filter(|p| p.header.serves(&fresh.header)) else {
            return Ok(None);
        };
        let mut map = FragmentMap::new(parsed.header.digest);
        for fragment in &parsed.fragments {
            map.insert(*fragment);
        }
        let claimed = map.ranges().as_slice().last().map_or(0, |range| range.end);
        if claimed == 0 || claimed > partial_bytes {
            return Ok(None);
        }
        // The torn tail, which the next record overwrites anyway.
        file.set_len(parsed.valid_bytes as u64)?;
        fresh.end = parsed.valid_bytes as u64;
        fresh.records = parsed.fragments.len() as u64;
        // A smaller grid serves both attempts, for ranges of the larger one lie on it.
        let asked = fresh.header.block_size;
        fresh.header = parsed.header;
        if asked < fresh.header.block_size && asked > 0 {
            fresh.header.block_size = asked;
            // The header is changed with the next record.
            fresh.broken = true;
        }
        fresh.file = Some(file);
        Ok(Some((fresh, map)))
    }

    /// Removes the journal of a name; `false` if there was none.
    pub(super) fn remove(dir: &Dir, names: &HiddenNames) -> io::Result<bool> {
        match dir.remove(&names.journal) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes `new` durable; `all` is everything that is durable, `new` included.
    pub(super) fn append(
        &mut self,
        dir: &Dir,
        names: &HiddenNames,
        new: &[Fragment],
        all: &FragmentMap,
    ) -> io::Result<()> {
        let needed =
            HEADER_BYTES + all.fragments().count() * journal::record_bytes(self.header.digest);
        let is_wasteful = self.end > COMPACT_BYTES && self.end / 2 > needed as u64;
        let Some(file) = self.file.as_ref().filter(|_| !self.broken && !is_wasteful) else {
            return self.rewrite(dir, names, all);
        };
        let mut bytes = Vec::new();
        let count = journal::encode_records(&self.header, self.records, new.iter(), &mut bytes);
        if count == 0 {
            return Ok(());
        }
        // Until it is known to be durable; what the file holds after a failure isn't known.
        self.broken = true;
        fs::write_all_at(file, &[IoSlice::new(&bytes)], self.end)?;
        file.sync_data()?;
        self.broken = false;
        self.end += bytes.len() as u64;
        self.records += count;
        Ok(())
    }

    /// As after a write that failed.
    #[cfg(test)]
    pub(super) fn break_for_test(&mut self) {
        self.broken = true;
    }

    /// Writes a journal with `all` in it beside the old one, and puts it in its place.
    fn rewrite(&mut self, dir: &Dir, names: &HiddenNames, all: &FragmentMap) -> io::Result<()> {
        self.broken = true;
        match dir.remove(&names.new_journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut bytes = self.header.encode().to_vec();
        let count = journal::encode_records(&self.header, 0, all.fragments(), &mut bytes);
        let file = dir.create_new(&names.new_journal)?;
        fs::write_all_at(&file, &[IoSlice::new(&bytes)], 0)?;
        file.sync_all()?;
        dir.rename(&names.new_journal, &names.journal)?;
        dir.sync()?;
        self.file = Some(file);
        self.end = bytes.len() as u64;
        self.records = count;
        self.broken = false;
        Ok(())
    }
}

/// Reads `length` bytes, fewer if the file is shorter meanwhile. The caller has bounded `length`.
fn read_all(file: &File, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let mut done = 0;
    while done < bytes.len() {
        match fs::read_at(file, &mut bytes[done..], done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
