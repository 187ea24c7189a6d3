//! A local file as a sink: written under a hidden name, published by a rename.
//!
//! The rules that keep the journal honest are enforced here: [`Sink::record`] refuses ranges
//! written since the last synchronisation, and after a failed synchronisation the affected ranges
//! are refused until they have been written again.

use std::fs::FileTimes;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use xdfs_proto::digest::{Fragment, FragmentMap};
use xdfs_proto::frame::Resume;
use xdfs_proto::{ByteRange, Code, Fault, RangeSet, SourceTag};
use xdfs_sys::fs::{self, Storage};

use super::direct::{DIRECT_BYTES_MIN, DirectFile};
use super::journal::Publication;
use super::journal_file::{EarlierJournal, JournalFile};
use super::partial::{self, Partial};
use super::path::{HiddenNames, OPEN_TARGET};
use super::published::{self, PublishedSink};
use super::reread::Reread;
use super::source::LocalSource;
use super::target::Target;
use super::zeros;
use crate::{
    Capabilities, DirectWriter, OpenedSink, SharedPartial, Sink, SinkRequest, Source, work,
};

/// Files below this length aren't preallocated: file systems place them well anyway.
const PREALLOCATE_BYTES_MIN: u64 = 1 << 20;

/// Bytes copied per system call.
const COPY_BYTES: usize = 64 << 20;
/// Bytes read and written at once where the system can't copy.
const PIECE_BYTES: usize = 256 << 10;

/// Performs the checks of [`open`] without creating anything.
pub(super) fn check(target: &Target, request: &SinkRequest) -> Result<(), Fault> {
    let names = HiddenNames::of(&target.name);
    if !published::is_published(target, &names, request)? {
        target.check(OPEN_TARGET, request.overwrite)?;
    }
    target
        .dir
        .check_writable()
        .map_err(|error| Fault::from_io(OPEN_TARGET, &target.path, &error))?;
    partial::check_free(target, &names)?;
    check_space(target, &names, request)
}

/// Checks that a file would fit. What an earlier attempt has left of it takes no more.
fn check_space(target: &Target, names: &HiddenNames, request: &SinkRequest) -> Result<(), Fault> {
    // The storage needed by a sparse file is unknown.
    let Some(length) = request.length.filter(|_| !request.sparse) else {
        return Ok(());
    };
    let earlier = target.dir.meta_of(&names.partial).ok().flatten();
    let earlier = earlier.and_then(|meta| meta.allocated).unwrap_or(0);
    let left = target.dir.reopen().ok().as_ref().and_then(fs::space_left);
    check_left(target, length.saturating_sub(earlier), left)
}

/// Fails if more bytes are missing than are left. Without a limit any number fits.
fn check_left(target: &Target, missing: u64, left: Option<u64>) -> Result<(), Fault> {
    let Some(left) = left.filter(|left| *left < missing) else {
        return Ok(());
    };
    let cause = format!("{missing} bytes are needed and {left} are left");
    let fault = Fault::new(Code::NoSpace, "reserve space for", cause).path(&target.path);
    Err(fault.hint("free some space and run the same command again"))
}

/// Opens the sink of a resolved target.
pub(super) fn open(target: Target, request: &SinkRequest) -> Result<OpenedSink, Fault> {
    let names = HiddenNames::of(&target.name);
    let target = match PublishedSink::open(target, &names, request)? {
        Ok(sink) => {
            return Ok(OpenedSink {
                path: sink.path().to_vec(),
                durable: sink.durable(),
                unverified: sink.is_unverified(),
                block_size: request.block_size,
                sink: Box::new(sink),
            });
        }
        Err(target) => target,
    };
    let sink = open_local(target, request)?;
    Ok(OpenedSink {
        path: sink.target.path.clone(),
        durable: sink.durable.fragments().copied().collect(),
        unverified: sink.reread.is_some(),
        block_size: sink.journal.block_size(),
        sink: Box::new(sink),
    })
}

/// [`open`] for a target that isn't published yet, with its concrete type.
pub(super) fn open_local(target: Target, request: &SinkRequest) -> Result<LocalSink, Fault> {
    target.check(OPEN_TARGET, request.overwrite)?;
    let names = HiddenNames::of(&target.name);
    let Partial { file, is_new } = Partial::open(&target, &names)?;
    let path = target.path.clone();
    let io_fault = |error: io::Error| Fault::from_io(OPEN_TARGET, &path, &error);
    let mut sink = LocalSink {
        journal: JournalFile::new(request),
        durable: FragmentMap::new(request.digest),
        reread: None,
        size: fs::meta(&file).map_err(io_fault)?.length,
        storage: fs::storage_of(&file),
        request: request.clone(),
        preallocated: 0,
        direct: None,
        holes: RangeSet::new(),
        uncleared: RangeSet::new(),
        unsynced: RangeSet::new(),
        lost: RangeSet::new(),
        is_closed: false,
        target,
        names,
        file,
    };
    // The previous holder of the lock may have published just now.
    sink.target.check(OPEN_TARGET, request.overwrite)?;
    let mut earlier = None;
    if !is_new && request.resume != Resume::Never {
        let loaded = JournalFile::load(&sink.target.dir, &sink.names, request, sink.size);
        earlier = loaded.map_err(io_fault)?;
    }
    match earlier {
        Some(EarlierJournal {
            journal,
            durable,
            records,
            unverified,
        }) => {
            sink.reread = unverified.then(|| Reread::new(durable.kind(), records));
            (sink.journal, sink.durable) = (journal, durable);
        }
        None => sink
            .start_over(is_new)
            .map_err(|error| match error.kind() {
                // Another attempt has come in between.
                io::ErrorKind::AlreadyExists | io::ErrorKind::WouldBlock => {
                    partial::busy(&sink.target)
                }
                _ => io_fault(error),
            })?,
    }
    sink.reserve()?;
    Ok(sink)
}

/// A partial file on its way to publication.
#[derive(Debug)]
pub(super) struct LocalSink {
    target: Target,
    names: HiddenNames,
    request: SinkRequest,
    file: std::fs::File,
    journal: JournalFile,
    /// Ranges in the journal.
    durable: FragmentMap,
    /// Records to be reread before anything is claimed.
    reread: Option<Reread>,
    /// Current length of the file.
    size: u64,
    /// The same file, opened for direct I/O.
    direct: Option<Arc<DirectFile>>,
    /// Bytes of preallocated storage.
    preallocated: u64,
    /// Ranges that must read as zeros and need no storage. Their storage is released at the end,
    /// since some file systems ignore such requests beyond the current end of a file.
    holes: RangeSet,
    /// Holes that may contain other bytes, for instance of a block whose check failed.
    uncleared: RangeSet,
    storage: Storage,
    /// Ranges written since the last synchronisation.
    unsynced: RangeSet,
    /// Ranges written before a failed synchronisation and not rewritten since: the system may have
    /// dropped their data, and the next synchronisation would not report it.
    lost: RangeSet,
    /// Published or discarded.
    is_closed: bool,
}

impl LocalSink {
    fn fault(&self, operation: &str, error: &io::Error) -> Fault {
        Fault::from_io(operation, &self.target.path, error)
    }

    /// Discards an earlier attempt. The journal is removed first, durably: it must be gone before
    /// its file gets other content.
    fn start_over(&mut self, is_new: bool) -> io::Result<()> {
        if JournalFile::remove(&self.target.dir, &self.names)? {
            self.target.dir.sync()?;
        }
        if !is_new {
            // Whoever still writes into the file of the earlier attempt, as a data node that has
            // lost its server, must not write into this one.
            self.target.dir.remove(&self.names.partial)?;
            let fresh = self.target.dir.create_new(&self.names.partial)?;
            fresh.try_lock()?;
            (self.file, self.size) = (fresh, 0);
        }
        Ok(())
    }

    /// Reserves space, as far as possible, so that the file will fit.
    fn reserve(&mut self) -> Result<(), Fault> {
        // The storage needed by a sparse file is unknown, and preallocation would fill its holes.
        // Its pieces may be small, which makes direct I/O slow.
        let Some(length) = self.request.length.filter(|_| !self.request.sparse) else {
            return Ok(());
        };
        match self.storage {
            Storage::Extents if length >= PREALLOCATE_BYTES_MIN => {
                fs::preallocate(&self.file, length)
                    .map_err(|error| self.fault("reserve space for", &error))?;
                self.preallocated = length;
                if length >= DIRECT_BYTES_MIN {
                    self.open_direct(length);
                }
            }
            // Reserving pages costs as much as writing them.
            Storage::Memory => {
                let missing = length.saturating_sub(self.durable.ranges().total());
                check_left(&self.target, missing, fs::space_left(&self.file))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Enables direct I/O, if it is supported here.
    fn open_direct(&mut self, length: u64) {
        self.direct = DirectFile::open(&self.file, &self.target.path).map(Arc::new);
        // Writes that extend a file would be serialised.
        if self.direct.is_some() && self.size < length && self.file.set_len(length).is_ok() {
            self.size = length;
        }
    }

    /// Writes non-zero data, and zeros where the file may contain something else.
    fn write_sparse(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            for stretch in zeros::stretches(at, buf) {
                let range = ByteRange {
                    start: at + stretch.range.start as u64,
                    end: at + stretch.range.end as u64,
                };
                if !(stretch.is_zero && self.is_empty(range)) {
                    self.write_all(range.start, &[IoSlice::new(&buf[stretch.range])])?;
                }
            }
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Whether a range reads as zeros without having been written. Asks the file system, which also
    /// knows the data of earlier attempts and of blocks whose check failed.
    fn is_empty(&self, range: ByteRange) -> bool {
        // Pages whose write-back failed may appear as written.
        if self.lost.overlaps(range) {
            return false;
        }
        let is_past = |data: Option<(u64, u64)>| data.is_none_or(|(start, _)| start >= range.end);
        range.start >= self.size || fs::next_extent(&self.file, range.start).is_ok_and(is_past)
    }

    /// Writes all bytes, by direct I/O if possible.
    fn write_all(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        match &self.direct {
            Some(direct) => direct.write_all(offset, bufs)?,
            None => fs::write_all_at(&self.file, bufs, offset)?,
        }
        let length: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.size = self.size.max(offset + length);
        Ok(())
    }

    /// Copies a range of a source to the same offset, within the kernel where possible.
    pub(super) fn copy_from(
        &mut self,
        source: &mut LocalSource,
        range: ByteRange,
    ) -> Result<(), Fault> {
        let mut at = range.start;
        self.unsynced.insert(range);
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            match fs::copy_range(source.file(), &self.file, at, left.min(COPY_BYTES)) {
                // Some file systems return this for files without an end; reading decides.
                Ok(0) => break,
                Ok(copied) => {
                    at += copied as u64;
                    work::passed(copied as u64)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Unsupported => break,
                Err(error) => return Err(self.fault("write", &error)),
            }
            self.size = self.size.max(at);
        }
        if at == range.end {
            return Ok(());
        }
        let mut buf = vec![0; PIECE_BYTES];
        while at < range.end {
            let left = usize::try_from(range.end - at).unwrap_or(usize::MAX);
            let piece = &mut buf[..left.min(PIECE_BYTES)];
            // A short read is a fault already.
            source.read_at(at, piece)?;
            self.write_at(at, &[IoSlice::new(piece)])?;
            at += piece.len() as u64;
            work::passed(piece.len() as u64)?;
        }
        Ok(())
    }

    /// Zeroes holes that contain other data.
    fn clear_holes(&mut self) -> io::Result<()> {
        for hole in self.uncleared.clone().as_slice() {
            let range = ByteRange {
                start: hole.start,
                end: hole.end.min(self.size),
            };
            if range.is_empty() || self.is_empty(range) {
                continue;
            }
            self.unsynced.insert(range);
            match fs::punch_hole(&self.file, range.start, range.len()) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    write_zeros(&self.file, range)?;
                }
                result => result?,
            }
        }
        self.uncleared = RangeSet::new();
        Ok(())
    }

    /// Sets length, mode and time of the file.
    fn finish_file(&mut self, length: u64) -> io::Result<()> {
        // Also releases preallocated storage past the end.
        if self.size != length || self.preallocated > length {
            self.file.set_len(length)?;
            self.size = length;
        }
        for hole in self.holes.as_slice() {
            match fs::punch_hole(&self.file, hole.start, hole.len()) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    if !self.is_empty(*hole) {
                        write_zeros(&self.file, *hole)?;
                    }
                }
                result => result?,
            }
        }
        // Without set-id bits: a peer must not create programs that run as another user.
        let mode = self
            .request
            .mode
            .map_or_else(fs::default_mode, |mode| mode & 0o777);
        match fs::set_mode(&self.file, mode) {
            // The file is ours, so the file system doesn't support permissions.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        if let Some(time) = self.request.mtime_ns.and_then(time_of) {
            self.file.set_times(FileTimes::new().set_modified(time))?;
        }
        Ok(())
    }

    fn sync_by(&mut self, sync: impl FnOnce(&std::fs::File) -> io::Result<()>) -> io::Result<()> {
        if !self.lost.as_slice().is_empty() {
            return Err(io::Error::other(format!(
                "{} bytes were lost by an earlier failure and not written again",
                self.lost.total()
            )));
        }
        let result = sync(&self.file);
        let unsynced = std::mem::take(&mut self.unsynced);
        if result.is_err() {
            self.lost = unsynced;
        }
        result
    }

    /// Adds a publication to the journal, with `fresh` in addition to the recorded fragments. Does
    /// nothing where the system provides no file identity, since the file could not be recognised
    /// later.
    fn announce(&mut self, length: u64, fresh: &[Fragment]) -> io::Result<()> {
        let meta = fs::meta(&self.file)?;
        let Some(identity) = meta.identity.filter(|_| self.is_recognisable()) else {
            return Ok(());
        };
        let publication = Publication {
            length,
            identity,
            mtime_ns: meta.mtime_ns,
        };
        let new: Vec<Fragment> = fresh
            .iter()
            .filter(|fragment| self.durable.insert(**fragment))
            .copied()
            .collect();
        self.journal.announce(
            &self.target.dir,
            &self.names,
            &new,
            &self.durable,
            &publication,
        )
    }

    /// Whether the source can be recognised in a later attempt.
    fn is_recognisable(&self) -> bool {
        self.request.tag != SourceTag::default()
    }

    /// The fault of using the sink before claimed ranges are verified.
    fn unverified(&self, operation: &str) -> Result<(), Fault> {
        match self.reread {
            None => Ok(()),
            Some(_) => {
                let cause = "the data of an earlier attempt has not been verified yet";
                Err(Fault::new(Code::Internal, operation, cause).path(&self.target.path))
            }
        }
    }

    /// Renames the partial file to the target.
    fn rename(&self) -> Result<(), Fault> {
        let target = &self.target;
        let fault = |error: &io::Error| Fault::from_io("publish", &target.path, error);
        if !partial::is_named(target, &self.names, &self.file).map_err(|error| fault(&error))? {
            let cause = "the partial file was removed or replaced";
            return Err(Fault::new(Code::Io, "publish", cause).path(&target.path));
        }
        target.check("publish", self.request.overwrite)?;
        if self.request.overwrite {
            return target
                .dir
                .rename(&self.names.partial, &target.name)
                .map_err(|e| fault(&e));
        }
        match target.dir.rename_new(&self.names.partial, &target.name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(target.exists("publish"))
            }
            result => result.map_err(|error| fault(&error)),
        }
    }

    /// Makes the name durable, and removes the journal, which is no longer needed.
    fn finish_publication(&self) -> Result<(), Fault> {
        self.target
            .dir
            .sync()
            .map_err(|error| self.fault("publish", &error))?;
        // A leftover journal has no partial file, and the next attempt removes it.
        let _ = JournalFile::remove(&self.target.dir, &self.names);
        Ok(())
    }

    /// Removes damaged ranges from the journal, before anything is written there.
    fn forget_wrong(&mut self) -> io::Result<()> {
        if !self.durable.ranges().as_slice().is_empty() {
            let (dir, names) = (&self.target.dir, &self.names);
            return self.journal.rewrite(dir, names, &self.durable);
        }
        JournalFile::remove(&self.target.dir, &self.names)?;
        self.target.dir.sync()?;
        self.journal.removed();
        Ok(())
    }

    fn remove_hidden(&mut self) -> io::Result<()> {
        self.is_closed = true;
        JournalFile::remove(&self.target.dir, &self.names)?;
        if partial::is_named(&self.target, &self.names, &self.file)? {
            self.target.dir.remove(&self.names.partial)?;
        }
        Ok(())
    }
}

impl Sink for LocalSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: true,
            // Data for memory is best written by the thread that has it in its cache.
            slow_writes: self.storage != Storage::Memory,
            durable: true,
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let length = bufs.iter().map(|buf| buf.len() as u64).sum();
        let Some(range) = ByteRange::at(offset, length) else {
            let cause = "the file would be longer than any file can be";
            return Err(Fault::new(Code::InvalidArgument, "write", cause).path(&self.target.path));
        };
        // Before the write, since a failed write may have changed a part.
        self.unsynced.insert(range);
        let done = if self.request.sparse {
            self.write_sparse(offset, bufs)
        } else {
            self.write_all(offset, bufs)
        };
        done.map_err(|error| self.fault("write", &error))?;
        self.lost.remove(range);
        Ok(())
    }

    fn begin_direct(&mut self, range: ByteRange) -> Result<Option<Arc<dyn DirectWriter>>, Fault> {
        let Some(direct) = &self.direct else {
            return Ok(None);
        };
        // Before the write, since a failed write may have changed a part.
        self.unsynced.insert(range);
        Ok(Some(Arc::clone(direct) as Arc<_>))
    }

    fn end_direct(&mut self, range: ByteRange, result: Result<(), Fault>) -> Result<(), Fault> {
        result?;
        self.lost.remove(range);
        self.size = self.size.max(range.end);
        Ok(())
    }

    fn hole(&mut self, range: ByteRange) {
        // The range may contain data of a block whose check failed.
        if range.start < self.preallocated.max(self.size) {
            self.holes.insert(range);
            self.uncleared.insert(range);
        }
    }

    fn begin_write_back(&mut self, range: ByteRange) {
        if self.storage != Storage::Memory && self.direct.is_none() {
            fs::begin_write_back(&self.file, range.start, range.len());
        }
    }

    fn sync(&mut self) -> Result<(), Fault> {
        // Otherwise a hole could be claimed that contains other data.
        self.clear_holes()
            .map_err(|error| self.fault("sync", &error))?;
        self.sync_by(std::fs::File::sync_data)
            .map_err(|error| self.fault("sync", &error))
    }

    fn verify(&mut self) -> Result<Option<Vec<Fragment>>, Fault> {
        if let Some(reread) = &mut self.reread
            && reread.step(&self.file)
        {
            return Ok(None);
        }
        if let Some(reread) = self.reread.take() {
            let (sound, wrong) = reread.finish();
            self.durable = sound;
            if wrong > 0 {
                self.forget_wrong()
                    .map_err(|error| self.fault("verify the resumed data", &error))?;
            }
        }
        Ok(Some(self.durable.fragments().copied().collect()))
    }

    fn read_back(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let read = fs::read_at(&self.file, buf, offset);
        read.map_err(|error| self.fault("read back", &error))
    }

    fn shared(&mut self) -> Option<&mut dyn SharedPartial> {
        Some(self)
    }

    fn record(&mut self, durable: &[Fragment]) -> Result<(), Fault> {
        self.unverified("record")?;
        // A source that can't be recognised can't be resumed.
        if !self.is_recognisable() {
            return Ok(());
        }
        let is_early = |f: &&Fragment| {
            self.unsynced.overlaps(f.range)
                || self.lost.overlaps(f.range)
                || self.uncleared.overlaps(f.range)
        };
        if let Some(early) = durable.iter().find(is_early) {
            let cause = format!("the range {} isn't durable yet", early.range);
            return Err(Fault::new(Code::Internal, "record", cause).path(&self.target.path));
        }
        // For a hole at the end, the file must be as long as the journal says.
        let end = durable
            .iter()
            .map(|fragment| fragment.range.end)
            .max()
            .unwrap_or(0);
        if end > self.size {
            self.file
                .set_len(end)
                .and_then(|()| self.file.sync_data())
                .map_err(|error| self.fault("record", &error))?;
            self.size = end;
        }
        let new: Vec<Fragment> = durable
            .iter()
            .filter(|fragment| self.durable.insert(**fragment))
            .copied()
            .collect();
        self.journal
            .append(&self.target.dir, &self.names, &new, &self.durable)
            .map_err(|error| self.fault("record", &error))
    }

    fn publish(&mut self, length: u64, fresh: &[Fragment]) -> Result<(), Fault> {
        self.unverified("publish")?;
        self.finish_file(length)
            .map_err(|error| self.fault("publish", &error))?;
        self.sync_by(std::fs::File::sync_all)
            .map_err(|error| self.fault("publish", &error))?;
        // Without the publication the file can't be recognised after a crash, but is still correct.
        let _ = self.announce(length, fresh);
        self.rename()?;
        self.is_closed = true;
        self.finish_publication()
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.remove_hidden()
            .map_err(|error| self.fault("discard", &error))
    }
}

impl SharedPartial for LocalSink {
    fn number(&mut self) -> Result<u64, Fault> {
        let meta = fs::meta(&self.file).map_err(|error| self.fault("share the file", &error))?;
        let number = meta.identity.map(|(_, number)| number);
        number.ok_or_else(|| {
            let cause = "files have no numbers in this file system";
            Fault::new(Code::Unsupported, "share the file", cause).path(&self.target.path)
        })
    }

    fn written_elsewhere(&mut self, range: ByteRange) -> Result<(), Fault> {
        self.unverified("share the file")?;
        let meta = fs::meta(&self.file).map_err(|error| self.fault("share the file", &error))?;
        if range.end > meta.length {
            let cause = format!(
                "{range} is reported as written, and the file has {} bytes",
                meta.length
            );
            return Err(Fault::new(Code::Io, "share the file", cause).path(&self.target.path));
        }
        self.size = self.size.max(meta.length);
        self.unsynced.remove(range);
        self.lost.remove(range);
        Ok(())
    }
}

impl Drop for LocalSink {
    /// Durable ranges stay for the next attempt; a partial file without any is removed.
    fn drop(&mut self) {
        if !self.is_closed && self.durable.ranges().as_slice().is_empty() {
            let _ = self.remove_hidden();
        }
        partial::unlock(&self.file);
    }
}

/// Writes zeros over a range that may contain other data.
fn write_zeros(file: &std::fs::File, range: ByteRange) -> io::Result<()> {
    let zeros = vec![0; 256 << 10];
    let mut at = range.start;
    while at < range.end {
        let len = zeros
            .len()
            .min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
        fs::write_all_at(file, &[IoSlice::new(&zeros[..len])], at)?;
        at += len as u64;
    }
    Ok(())
}

/// A time in nanoseconds since 1970, if the system can represent it.
fn time_of(nanoseconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_nanos(nanoseconds.unsigned_abs());
    if nanoseconds < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    }
}

#[cfg(test)]
#[path = "sink_tests.rs"]
mod tests;
