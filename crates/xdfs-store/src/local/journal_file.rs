//! The journal on the disk: loading it, appending to it, and writing it anew in less space.
//!
//! Called by the sink beside it only, which holds the lock of the partial file, so that nobody
//! else touches the journal meanwhile.

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

/// A journal that an earlier attempt at the same transfer left.
#[derive(Debug)]
pub(super) struct Earlier {
    pub(super) journal: JournalFile,
    /// What it claims.
    pub(super) durable: FragmentMap,
    /// The same by its records, which are smaller.
    pub(super) records: Vec<Fragment>,
    /// What it claims has to be read again first.
    pub(super) unverified: bool,
}

/// The durable ranges of a journal, its records of them, and whether they have to be read again
/// before anybody relies on them.
pub(super) type Claimed = (FragmentMap, Vec<Fragment>, bool);

impl JournalFile {
    /// A journal for a transfer that starts from nothing.
    pub(super) fn new(request: &SinkRequest) -> Self {
        // Only has to differ from those of earlier journals of the same name.
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

    /// The grid of the blocks in bytes.
    pub(super) fn block_size(&self) -> u32 {
        self.header.block_size
    }

    /// Opens the journal that an earlier attempt at the same transfer left. `None` if there is
    /// none, or none that can be trusted.
    pub(super) fn load(
        dir: &Dir,
        names: &HiddenNames,
        request: &SinkRequest,
        partial_bytes: u64,
    ) -> io::Result<Option<Earlier>> {
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
            // There is nothing that it could be compared with.
            return Ok(None);
        }
        // A torn tail, or that the file was about to be published. What comes next goes there, and
        // must not be followed by anything of it after another crash.
        if parsed.valid_bytes as u64 != length {
            file.set_len(parsed.valid_bytes as u64)?;
        }
        // Whoever wrote it may have ended before it was durable.
        file.sync_all()?;
        dir.sync()?;
        fresh.end = parsed.valid_bytes as u64;
        fresh.records = parsed.fragments.len() as u64;
        let asked = fresh.header;
        fresh.header = parsed.header;
        // The header is changed with the next record.
        if fresh.header.boot != asked.boot {
            fresh.header.boot = asked.boot;
            fresh.broken = true;
        }
        // A smaller grid serves both attempts, for ranges of the larger one lie on it.
        if asked.block_size < fresh.header.block_size && asked.block_size > 0 {
            fresh.header.block_size = asked.block_size;
            fresh.broken = true;
        }
        fresh.file = Some(file);
        Ok(Some(Earlier {
            journal: fresh,
            durable,
            records,
            unverified,
        }))
    }

    /// What an earlier attempt at the same transfer was about to publish: which file, all of it by
    /// records, and whether that has to be read again first. `None` if no journal says so.
    pub(super) fn publication(
        dir: &Dir,
        names: &HiddenNames,
        request: &SinkRequest,
    ) -> io::Result<Option<(Publication, Claimed)>> {
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

    /// Removes the journal of a name; `false` if there was none.
    pub(super) fn remove(dir: &Dir, names: &HiddenNames) -> io::Result<bool> {
        // Left by who was killed while it was rewritten. It claims nothing.
        let _ = dir.remove(&names.new_journal);
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

    /// Makes `new` durable, and that the file is about to be published. No record may follow.
    pub(super) fn announce(
        &mut self,
        dir: &Dir,
        names: &HiddenNames,
        new: &[Fragment],
        all: &FragmentMap,
        publication: &Publication,
    ) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| !self.broken) else {
            // The name of the journal may become durable together with that of the target.
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

    /// Forgets the file, which was removed.
    pub(super) fn removed(&mut self) {
        (self.file, self.end, self.records, self.broken) = (None, 0, 0, false);
    }

    /// Lets the next write to the file fail as on a full disk.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn fill_the_disk_for_test(&mut self) {
        self.file = Some(
            File::options()
                .write(true)
                .open("/dev/full")
                .expect("it is on every Linux"),
        );
    }

    /// Replaces the journal by one with `all` in it.
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

    /// Writes a journal with `all` in it beside the old one, and puts it in its place. Its name
    /// isn't durable then.
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
            // Nobody would, if the transfer can't go on.
            let _ = dir.remove(&names.new_journal);
            return Err(error);
        }
        (self.file, self.end, self.records) = (Some(file), end, count);
        Ok(())
    }
}

/// Reads the journal of a name if it belongs to the transfer that is `wanted`: the file, its length
/// and what it says.
fn read(
    dir: &Dir,
    names: &HiddenNames,
    request: &SinkRequest,
    wanted: &Header,
) -> io::Result<Option<(File, u64, Parsed)>> {
    if request.tag == SourceTag::default() || request.resume == Resume::Never {
        return Ok(None);
    }
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
    let parsed = journal::parse(&bytes).filter(|parsed| parsed.header.serves(wanted));
    Ok(parsed.map(|parsed| (file, meta.length, parsed)))
}

/// What a journal claims, as a whole and by its records.
fn claims(parsed: &Parsed) -> (FragmentMap, Vec<Fragment>) {
    let mut map = FragmentMap::new(parsed.header.digest);
    let mut records = parsed.fragments.clone();
    records.retain(|fragment| map.insert(*fragment));
    (map, records)
}

/// Whether what a journal claims has to be read again: that is wished, or the machine was started
/// anew since it was written. What the disk said to have kept then shows.
fn is_doubtful(header: &Header, request: &SinkRequest) -> bool {
    request.resume == Resume::Verify || boot_id().is_none_or(|boot| boot != header.boot)
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
