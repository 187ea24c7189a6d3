//! A local file as a source.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xdfs_proto::{ByteRange, Code, Fault, SourceTag};
use xdfs_sys::fs::{self, FileKind, Meta, ResolveError};

use super::direct;
use super::path::{check_bytes, hidden_fault, is_hidden_name, resolve_fault, split};
use super::root::Root;
use crate::{Source, SourceInfo};

pub(super) const OPEN_SOURCE: &str = "open the source";

/// A regular file open for reading.
///
/// The data read is that of the opened file, whatever happens to its name: a file replaced or
/// removed meanwhile is still read to its end in one version. Modifications of the file are
/// detected by its length or times: see [`difference`].
#[derive(Debug)]
pub(super) struct LocalSource {
    file: File,
    path: Vec<u8>,
    info: SourceInfo,
    opened: Meta,
    /// Every change after the open changes the times of the file.
    settled: bool,
    /// The data range found last, so that blocks within it need no system call. Initially empty;
    /// the whole file if it isn't sparse.
    extent: ByteRange,
    /// The same file, opened for direct I/O, where that may be faster.
    direct: Option<Arc<File>>,
}

impl LocalSource {
    /// Wraps an open file if it is a regular one.
    pub(super) fn new(file: File, path: &[u8]) -> Result<Self, Fault> {
        let io_fault = |error: io::Error| Fault::from_io(OPEN_SOURCE, path, &error);
        only_regular(fs::meta(&file).map_err(io_fault)?.kind, path)?;
        let (opened, settled) = settled_meta(&file).map_err(io_fault)?;
        fs::advise_sequential(&file);
        let sparse = opened.is_sparse();
        let extent = ByteRange {
            start: 0,
            end: if sparse { 0 } else { opened.length },
        };
        let info = SourceInfo {
            length: Some(opened.length),
            tag: tag(&opened),
            mode: opened.mode,
            mtime_ns: Some(opened.mtime_ns),
            random_reads: true,
            sparse,
        };
        let direct = direct::open(&file, &opened);
        Ok(Self {
            file,
            path: path.to_vec(),
            info,
            opened,
            settled,
            extent,
            direct,
        })
    }

    /// The same version with another descriptor.
    pub(super) fn try_clone(&self) -> Option<Self> {
        Some(Self {
            file: self.file.try_clone().ok()?,
            path: self.path.clone(),
            info: self.info.clone(),
            opened: self.opened,
            settled: self.settled,
            extent: self.extent,
            direct: self.direct.clone(),
        })
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    fn fault(&self, error: &io::Error) -> Fault {
        Fault::from_io("read", &self.path, error)
    }

    fn changed(&self, cause: impl Into<String>) -> Fault {
        Fault::new(Code::SourceChanged, "read", cause)
            .path(&self.path)
            .hint("run the same command again when nothing writes to the file")
    }
}

fn only_regular(kind: FileKind, path: &[u8]) -> Result<(), Fault> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => {
            let cause = "it is a directory, not a regular file";
            Err(Fault::new(Code::IsDirectory, OPEN_SOURCE, cause).path(path))
        }
        kind => {
            let cause = format!("it is {kind}, not a regular file");
            Err(Fault::new(Code::NotRegularFile, OPEN_SOURCE, cause).path(path))
        }
    }
}

/// Refuses an entry that is no regular file before it is opened: opening has side effects on
/// devices, and on writers of a pipe, who would take this for the reader. The opened file is
/// checked again, since it may be another one.
pub(super) fn look_first(found: Option<fs::Handle>, path: &[u8]) -> Result<(), Fault> {
    // If it can't be found or inspected, opening it reports the error.
    match found.and_then(|handle| handle.meta().ok()) {
        Some(meta) => only_regular(meta.kind, path),
        None => Ok(()),
    }
}

/// Opens a source of a peer.
pub(super) fn open_beneath(root: &Root, path: &[u8]) -> Result<File, Fault> {
    check_bytes(OPEN_SOURCE, path)?;
    let (_, last) = split(path);
    if is_hidden_name(last) {
        return Err(hidden_fault(OPEN_SOURCE, path));
    }
    look_first(root.find(path).ok(), path)?;
    root.open_for_reading(path).map_err(|error| match error {
        ResolveError::Io(error) => open_fault(path, &error),
        error => resolve_fault(OPEN_SOURCE, path, &error),
    })
}

/// The fault of a source that can't be opened.
pub(super) fn open_fault(path: &[u8], error: &io::Error) -> Fault {
    // Unix reports this for a socket and for a missing device.
    const NO_SUCH_DEVICE_OR_ADDRESS: i32 = 6;
    if cfg!(unix) && error.raw_os_error() == Some(NO_SUCH_DEVICE_OR_ADDRESS) {
        let cause = "it is a socket or a device, not a regular file";
        return Fault::new(Code::NotRegularFile, OPEN_SOURCE, cause).path(path);
    }
    Fault::from_io(OPEN_SOURCE, path, error)
}

/// Upper bound on the resolution of file times: kernel timers tick at least 100 times a second, and
/// as much again is allowed between tick and time stamp.
const GRAIN: Duration = Duration::from_millis(20);
/// The same where times have a resolution of one or two seconds.
const COARSE_GRAIN: Duration = Duration::from_secs(2);
/// Attempts to let a recently modified file settle.
const SETTLE_ATTEMPTS: u32 = 2;

/// Attributes of a file at a moment after which every change affects its times; `false` if it kept
/// changing, so that there was no such moment.
///
/// A change within the resolution of the clock leaves the times unchanged, so further changes of a
/// file modified just now would go unnoticed. Waiting for that takes some milliseconds, and only
/// for files that recent.
fn settled_meta(file: &File) -> io::Result<(Meta, bool)> {
    for _ in 0..SETTLE_ATTEMPTS {
        let meta = fs::meta(file)?;
        let wait = unsettled_for(&meta, SystemTime::now());
        if wait.is_zero() {
            return Ok((meta, true));
        }
        thread::sleep(wait);
    }
    let meta = fs::meta(file)?;
    let settled = unsettled_for(&meta, SystemTime::now()).is_zero();
    Ok((meta, settled))
}

/// For how long a change may still leave the times of a file unchanged.
pub(super) fn unsettled_for(meta: &Meta, now: SystemTime) -> Duration {
    let changed_ns = last_change(meta);
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // A time in the future is from another clock, or the clock was set back. A change now sets
    // another time.
    let Some(age) = u64::try_from(changed_ns)
        .ok()
        .and_then(|changed| since.checked_sub(Duration::from_nanos(changed)))
    else {
        return Duration::ZERO;
    };
    grain(meta).saturating_sub(age)
}

/// Resolution of the clock that set the times of this file.
pub(super) fn grain(meta: &Meta) -> Duration {
    let is_coarse = last_change(meta) % 1_000_000_000 == 0;
    if is_coarse { COARSE_GRAIN } else { GRAIN }
}

/// Time of the last change, preferably by the clock that users can't set.
fn last_change(meta: &Meta) -> i64 {
    match meta.ctime_ns {
        0 => meta.mtime_ns,
        changed => changed,
    }
}

/// What happened to a file of which only the modification time differs.
const MODIFIED: &str = "modified";

/// How a file differs from its earlier attributes: `None` if it is the same version.
///
/// The change time counts, since the modification time can be set back. Losing its last name, by
/// removal or replacement, also updates the change time of a file; in that case the other
/// attributes decide.
pub(super) fn difference(before: &Meta, now: &Meta) -> Option<&'static str> {
    let lost_its_name = now.links == 0 && before.links > 0;
    match now.length.cmp(&before.length) {
        std::cmp::Ordering::Less => Some("truncated"),
        std::cmp::Ordering::Greater => Some("extended"),
        std::cmp::Ordering::Equal if now.identity != before.identity => Some("replaced"),
        std::cmp::Ordering::Equal if now.mtime_ns != before.mtime_ns => Some(MODIFIED),
        std::cmp::Ordering::Equal if now.ctime_ns != before.ctime_ns && !lost_its_name => {
            Some("changed, or got other attributes or names,")
        }
        std::cmp::Ordering::Equal => None,
    }
}

/// Identifies the version: device, inode, length, and times of modification and change. Some tools
/// set the modification time back after a change, but the change time can't be set. That renaming
/// or changing permissions alters the tag only makes a resumed transfer start over.
fn tag(meta: &Meta) -> SourceTag {
    let mut hasher = blake3::Hasher::new();
    let (device, inode) = meta.identity.unwrap_or_default();
    for number in [device, inode, meta.length] {
        hasher.update(&number.to_be_bytes());
    }
    for number in [meta.mtime_ns, meta.ctime_ns] {
        hasher.update(&number.to_be_bytes());
    }
    let mut tag = [0; 16];
    tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    SourceTag(tag)
}

impl Source for LocalSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.opened.length.saturating_sub(offset);
        let wanted = usize::try_from(left).map_or(buf.len(), |left| buf.len().min(left));
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            match fs::read_at(&self.file, &mut buf[done..wanted], at) {
                Ok(0) => {
                    return Err(self.changed(format!(
                        "it was truncated while it was read: {} bytes at the start, {at} now",
                        self.opened.length
                    )));
                }
                Ok(read) => done += read,
                Err(error) => return Err(self.fault(&error)),
            }
        }
        Ok(done)
    }

    fn next_data(&mut self, offset: u64, end: u64) -> Result<Option<ByteRange>, Fault> {
        let end = end.min(self.opened.length);
        if offset >= end {
            return Ok(None);
        }
        if offset < self.extent.start || offset >= self.extent.end {
            match fs::next_extent(&self.file, offset).map_err(|error| self.fault(&error))? {
                Some((start, end)) => self.extent = ByteRange { start, end },
                None => return Ok(None),
            }
        }
        let start = offset.max(self.extent.start);
        let end = end.min(self.extent.end);
        Ok((start < end).then_some(ByteRange { start, end }))
    }

    fn will_read(&mut self, range: ByteRange) {
        // Otherwise everything would be in the page cache soon, read by one request at a time.
        if self.direct.is_none() {
            fs::advise_will_need(&self.file, range.start, range.len());
        }
    }

    fn is_cold(&self, range: ByteRange) -> bool {
        self.direct.is_some() && direct::is_cold(&self.file, range)
    }

    fn direct(&self) -> Option<Box<dyn Source>> {
        let direct = Arc::clone(self.direct.as_ref()?);
        Some(Box::new(DirectSource::new(self.try_clone()?, direct)))
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let now = fs::meta(&self.file).map_err(|error| self.fault(&error))?;
        let before = &self.opened;
        match difference(before, &now) {
            Some(MODIFIED) => Err(self.changed("its modification time changed while it was read")),
            Some(what) if before.length == now.length => {
                Err(self.changed(format!("it was {what} while it was read")))
            }
            Some(what) => Err(self.changed(format!(
                "it was {what} while it was read: {} bytes at the start, {} now",
                before.length, now.length
            ))),
            None if self.settled => Ok(()),
            None => Err(self.changed("it was being written when it was opened")),
        }
    }

    crate::defaults!(Source: is_slow, memory, is_uniform, shared);
}

/// A source that is read by direct I/O, except for its last bytes and for memory that is not
/// aligned.
#[derive(Debug)]
pub(super) struct DirectSource {
    cached: LocalSource,
    /// The same file.
    direct: Arc<File>,
}

impl DirectSource {
    /// A source by both ways of the same file.
    pub(super) fn new(cached: LocalSource, direct: Arc<File>) -> Self {
        Self { cached, direct }
    }

    /// Reads whole sectors by direct I/O and returns the number of bytes. It is smaller after an
    /// error: reading the rest by the page cache shows whether that is one of the file.
    fn read_sectors(&self, offset: u64, buf: &mut [u8]) -> usize {
        let sectors = buf.len() - buf.len() % fs::DIRECT_ALIGNMENT;
        let is_aligned = offset.is_multiple_of(fs::DIRECT_ALIGNMENT as u64)
            && buf.as_ptr().addr().is_multiple_of(fs::DIRECT_ALIGNMENT);
        let mut done = 0;
        while is_aligned && done < sectors {
            match fs::read_at(&self.direct, &mut buf[done..sectors], offset + done as u64) {
                Ok(read) if read > 0 && read.is_multiple_of(fs::DIRECT_ALIGNMENT) => done += read,
                Ok(_) | Err(_) => break,
            }
        }
        done
    }
}

impl Source for DirectSource {
    fn info(&self) -> &SourceInfo {
        self.cached.info()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let range = ByteRange {
            start: offset,
            end: offset + buf.len() as u64,
        };
        let done = match self.cached.is_cold(range) {
            true => self.read_sectors(offset, buf),
            false => 0,
        };
        if done == buf.len() {
            return Ok(done);
        }
        let rest = self
            .cached
            .read_at(offset + done as u64, &mut buf[done..])?;
        Ok(done + rest)
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        self.cached.verify_unchanged()
    }

    crate::defaults!(Source: next_data, will_read, is_cold, direct, is_slow, memory, is_uniform,
        shared);
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
