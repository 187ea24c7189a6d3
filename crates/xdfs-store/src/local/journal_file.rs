//! The journal on disk: loading, appending, and compaction.
//!
//! Used only by the sinks, which hold the lock of the partial file, so there is no concurrent
//! access.

use std::fs::File;
use std::io::{self, IoSlice};
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs_proto::SourceTag;
use xdfs_proto::digest::{DigestKind, Fragment, FragmentMap};
use xdfs_proto::frame::Resume;
use xdfs_sys::boot::boot_id;
use xdfs_sys::fs::{self, Dir, FileKind};

use super::journal::{self, HEADER_BYTES, Header, Parsed, Publication};
use super::path::HiddenNames;
use crate::SinkRequest;

/// A longer journal isn't read; the transfer starts over.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Minimum size for compaction, which happens when a journal is twice as long as necessary.
const COMPACT_BYTES: u64 = 64 << 10;

/// The journal of one partial file. The file is created with the first record.
#[derive(Debug)]
pub(super) struct JournalFile {
    header: Header,
    file: Option<File>,
    /// Offset of the next record.
    end: u64,
    /// Number of the next record.
    records: u64,
    /// The content of the file is uncertain after a failed write: it must be rewritten before
    /// anything is appended.
    broken: bool,
}

/// The journal of an earlier attempt at the same transfer.
#[derive(Debug)]
pub(super) struct EarlierJournal {
    pub(super) journal: JournalFile,
    /// The ranges that it claims.
    pub(super) durable: FragmentMap,
    /// The same as records, which are smaller.
    pub(super) records: Vec<Fragment>,
    /// The claimed ranges must be reread before they are relied on.
    pub(super) unverified: bool,
}

/// Durable ranges of a journal, its records, and whether the ranges must be reread before they are
/// relied on.
pub(super) type ClaimedRanges = (FragmentMap, Vec<Fragment>, bool);

impl JournalFile {
    /// A journal for a transfer from the start.
    pub(super) fn new(request: &SinkRequest) -> Self {
        // It only has to differ from those of earlier journals of the same name.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let header = Header {
            tag: request.tag,
            offset: request.offset,
            length: request.length,
            digest: request.digest,
            block_size: request.block_size,
            boot: boot_id().unwrap_or_default(),
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

    /// Grid of the blocks in bytes.
    pub(super) fn block_size(&self) -> u32 {
        self.header.block_size
    }

    /// Loads the journal of an earlier attempt at the same transfer. `None` if there is none, or it
    /// can't be trusted.
    pub(super) fn load(
        dir: &Dir,
        names: &HiddenNames,
        request: &SinkRequest,
        partial_bytes: u64,
    ) -> io::Result<Option<EarlierJournal>> {
        let mut fresh = Self::new(request);
        let Some((file, length, parsed)) = read(dir, names, request, &fresh.header)? else {
            return Ok(None);
        };
        let (durable, records) = claims(&parsed);
        let claimed = durable
            .ranges()
            .as_slice()
            .last()
            .map_or(0, |range| range.end);
        if claimed == 0 || claimed > partial_bytes {
            return Ok(None);
        }
        let unverified = is_doubtful(&parsed.header, request);
        if unverified && parsed.header.digest == DigestKind::None {
            // There are no digest states to verify the data with.
            return Ok(None);
        }
        // A torn tail or a publication. New records are written there, and after another crash none
        // of the old bytes may follow them.
        if parsed.valid_bytes as u64 != length {
            file.set_len(parsed.valid_bytes as u64)?;
        }
        // The previous process may have ended before the content was durable.
        file.sync_all()?;
        dir.sync()?;
        fresh.end = parsed.valid_bytes as u64;
        fresh.records = parsed.fragments.len() as u64;
        let requested = fresh.header;
        fresh.header = parsed.header;
        // The header is rewritten with the next record.
        if fresh.header.boot != requested.boot {
            fresh.header.boot = requested.boot;
            fresh.broken = true;
        }
        // A smaller grid serves both attempts, since it divides the larger one.
        if requested.block_size < fresh.header.block_size && requested.block_size > 0 {
            fresh.header.block_size = requested.block_size;
            fresh.broken = true;
        }
        fresh.file = Some(file);
        Ok(Some(EarlierJournal {
            journal: fresh,
            durable,
            records,
            unverified,
        }))
    }

    /// The publication of an earlier attempt at the same transfer: the file's identity, its
    /// records, and whether the file must be reread first. `None` if no journal contains one.
    pub(super) fn publication(
        dir: &Dir,
        names: &HiddenNames,
        request: &SinkRequest,
    ) -> io::Result<Option<(Publication, ClaimedRanges)>> {
        let wanted = Self::new(request).header;
        let Some((_, _, parsed)) = read(dir, names, request, &wanted)? else {
            return Ok(None);
        };
        let Some(publication) = parsed.publication else {
            return Ok(None);
        };
        let (durable, records) = claims(&parsed);
        let is_whole = match durable.ranges().as_slice() {
            [] => publication.length == 0,
            [range] => range.start == 0 && range.end == publication.length,
            _ => false,
        };
        let unverified = is_doubtful(&parsed.header, request) && publication.length > 0;
        if !is_whole || (unverified && parsed.header.digest == DigestKind::None) {
            return Ok(None);
        }
        Ok(Some((publication, (durable, records, unverified))))
    }

    /// Bytes that a journal claims, and the length of its transfer, if known. `None` if there is no
    /// journal, or none that can be read.
    pub(super) fn arrived(dir: &Dir, names: &HiddenNames) -> Option<(u64, Option<u64>)> {
        let file = dir.open_name(&names.journal).ok()?;
        let meta = fs::meta(&file).ok()?;
        if meta.kind != FileKind::Regular || meta.length > FILE_BYTES_MAX {
            return None;
        }
        let parsed = journal::parse(&read_all(&file, meta.length).ok()?)?;
        let (durable, _) = claims(&parsed);
        let ranges = durable.ranges().as_slice().iter();
        let bytes = ranges.map(|range| range.end - range.start).sum();
        Some((bytes, parsed.header.length))
    }

    /// Removes the journal of a target; `false` if there was none.
    pub(super) fn remove(dir: &Dir, names: &HiddenNames) -> io::Result<bool> {
        // Left by a process killed during compaction. It claims nothing.
        let _ = dir.remove(&names.new_journal);
        match dir.remove(&names.journal) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Records `new` durably; `all` is everything that is durable, including `new`.
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
        // Until success: after a failure the content of the file is unknown.
        self.broken = true;
        fs::write_all_at(file, &[IoSlice::new(&bytes)], self.end)?;
        file.sync_data()?;
        self.broken = false;
        self.end += bytes.len() as u64;
        self.records += count;
        Ok(())
    }

    /// Records `new` durably, followed by a publication. No record may follow.
    pub(super) fn announce(
        &mut self,
        dir: &Dir,
        names: &HiddenNames,
        new: &[Fragment],
        all: &FragmentMap,
        publication: &Publication,
    ) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.broken) else {
            // The journal's name may become durable together with the target's.
            return self.write_anew(dir, names, all, Some(publication));
        };
        let mut bytes = Vec::new();
        let count = journal::encode_records(&self.header, self.records, new.iter(), &mut bytes);
        let records = self.records + count;
        journal::encode_publication(&self.header, records, publication, &mut bytes);
        self.broken = true;
        fs::write_all_at(file, &[IoSlice::new(&bytes)], self.end)?;
        file.sync_data()
    }

    /// Resets the state after the file was removed.
    pub(super) fn removed(&mut self) {
        (self.file, self.end, self.records, self.broken) = (None, 0, 0, false);
    }

    /// Makes the next write to the file fail as on a full disk.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn fill_the_disk_for_test(&mut self) {
        self.file = Some(
            File::options()
                .write(true)
                .open("/dev/full")
                .expect("it is on every Linux"),
        );
    }

    /// Replaces the journal by one that contains `all`.
    pub(super) fn rewrite(
        &mut self,
        dir: &Dir,
        names: &HiddenNames,
        all: &FragmentMap,
    ) -> io::Result<()> {
        self.write_anew(dir, names, all, None)?;
        self.broken = true;
        dir.sync()?;
        self.broken = false;
        Ok(())
    }

    /// Writes a journal that contains `all` under another name, and renames it over the old one.
    /// The rename is not durable yet.
    fn write_anew(
        &mut self,
        dir: &Dir,
        names: &HiddenNames,
        all: &FragmentMap,
        publication: Option<&Publication>,
    ) -> io::Result<()> {
        self.broken = true;
        match dir.remove(&names.new_journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut bytes = self.header.encode().to_vec();
        let count = journal::encode_records(&self.header, 0, all.fragments(), &mut bytes);
        let end = bytes.len() as u64;
        if let Some(publication) = publication {
            journal::encode_publication(&self.header, count, publication, &mut bytes);
        }
        let file = dir.create_new(&names.new_journal)?;
        let done = fs::write_all_at(&file, &[IoSlice::new(&bytes)], 0)
            .and_then(|()| file.sync_all())
            .and_then(|()| dir.rename(&names.new_journal, &names.journal));
        if let Err(error) = done {
            // Nobody else would remove it if the transfer can't continue.
            let _ = dir.remove(&names.new_journal);
            return Err(error);
        }
        (self.file, self.end, self.records) = (Some(file), end, count);
        Ok(())
    }
}

/// Reads the journal of a target if it belongs to the transfer `wanted`: the file, its length and
/// its content.
fn read(
    dir: &Dir,
    names: &HiddenNames,
    request: &SinkRequest,
    wanted: &Header,
) -> io::Result<Option<(File, u64, Parsed)>> {
    if request.tag == SourceTag::default() || request.resume == Resume::Never {
        return Ok(None);
    }
    // There is none, or it is a link or another user's: not to be resumed from.
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
    let parsed = journal::parse(&bytes).filter(|parsed| parsed.header.serves(wanted));
    Ok(parsed.map(|parsed| (file, meta.length, parsed)))
}

/// The ranges that a journal claims, combined and as records.
fn claims(parsed: &Parsed) -> (FragmentMap, Vec<Fragment>) {
    let mut map = FragmentMap::new(parsed.header.digest);
    let mut records = parsed.fragments.clone();
    records.retain(|fragment| map.insert(*fragment));
    (map, records)
}

/// Whether claimed ranges must be reread: on request, or because the system has rebooted since,
/// which shows whether the disk kept what it acknowledged.
fn is_doubtful(header: &Header, request: &SinkRequest) -> bool {
    request.resume == Resume::Verify || boot_id().is_none_or(|boot| boot != header.boot)
}

/// Reads `length` bytes, fewer if the file has shrunk. The caller has bounded `length`.
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
