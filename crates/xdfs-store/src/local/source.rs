//! A local file as a source.

use std::fs::File;
use std::io;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use xdfs_proto::{ByteRange, Code, Fault, SourceTag};
use xdfs_sys::fs::{self, FileKind, Meta, ResolveError};

use super::path::{check_bytes, hidden_fault, is_hidden_name, resolve_fault, split};
use super::root::Root;
use crate::{Source, SourceInfo};

pub(super) const OPEN_SOURCE: &str = "open the source";

/// A regular file that is open for reading.
///
/// What is read is the file that was opened, whatever happens to its name: a file that is replaced
/// by a rename or removed meanwhile is still read to its end in one version. A file that is
/// written to meanwhile is found out by its length or its times: see [`difference`].
#[derive(Debug)]
pub(super) struct LocalSource {
    file: File,
    path: Vec<u8>,
    info: SourceInfo,
    opened: Meta,
    /// Every change after the open gives the file other times than it had then.
    settled: bool,
    /// The stretch of data found last, so that a block costs no call within it. Empty at first;
    /// the whole file if it isn't sparse.
    extent: ByteRange,
}

impl LocalSource {
    /// Takes an open file if it is a regular one.
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
        Ok(Self {
            file,
            path: path.to_vec(),
            info,
            opened,
            settled,
            extent,
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

/// Refuses what was found if it is no regular file, before it is opened: that would have
/// consequences, for a device as for who waits to write into a pipe and would take this for the
/// reader. What is opened then is looked at again, as it may be something else.
pub(super) fn look_first(found: Option<fs::Handle>, path: &[u8]) -> Result<(), Fault> {
    // What can't be found, or looked at, opening it has the words for.
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
    // What Unix says of a socket, and of a device that isn't there.
    const NO_SUCH_DEVICE_OR_ADDRESS: i32 = 6;
    if cfg!(unix) && error.raw_os_error() == Some(NO_SUCH_DEVICE_OR_ADDRESS) {
        let cause = "it is a socket or a device, not a regular file";
        return Fault::new(Code::NotRegularFile, OPEN_SOURCE, cause).path(path);
    }
    Fault::from_io(OPEN_SOURCE, path, error)
}

/// The clock by which a kernel stamps files may stand still for as long as this: its timer ticks a
/// hundred times a second at least, and as much again for what lies between tick and stamp.
const GRAIN: Duration = Duration::from_millis(20);
/// The same where times are kept as whole seconds, or as every other one.
const COARSE_GRAIN: Duration = Duration::from_secs(2);
/// How often a file that was changed a moment ago is waited for.
const SETTLE_ATTEMPTS: u32 = 2;

/// What is known of a file at a moment from which on every change gives it another time; `false`
/// if it was changed again and again, so that there was no such moment.
///
/// A change within the grain of the clock leaves the times as they are: of a file that was changed
/// just now nobody could tell whether it was changed once more after it was looked at. So that is
/// waited for, which takes some milliseconds, and only with files that are that young.
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

/// How long a change may still leave the times of a file as they are.
pub(super) fn unsettled_for(meta: &Meta, now: SystemTime) -> Duration {
    let changed_ns = last_change(meta);
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    // A time that lies ahead is that of another clock, or of one that was set back. What is changed
    // now gets another one.
    let Some(age) = u64::try_from(changed_ns)
        .ok()
        .and_then(|changed| since.checked_sub(Duration::from_nanos(changed)))
    else {
        return Duration::ZERO;
    };
    grain(meta).saturating_sub(age)
}

/// How long a clock may stand still that stamps files as it has stamped this one.
pub(super) fn grain(meta: &Meta) -> Duration {
    let is_coarse = last_change(meta) % 1_000_000_000 == 0;
    if is_coarse { COARSE_GRAIN } else { GRAIN }
}

/// The time of the last change, by the clock that no user sets where there is one.
fn last_change(meta: &Meta) -> i64 {
    match meta.ctime_ns {
        0 => meta.mtime_ns,
        changed => changed,
    }
}

/// In what a file differs from what it was: `None` if it is the same version.
///
/// The time of the last change of anything is what counts, since that of the content can be set
/// back. A file that lost its last name meanwhile, by a removal or since another one took its
/// place, has another such time for that reason alone: then it is judged by the rest.
pub(super) fn difference(before: &Meta, now: &Meta) -> Option<&'static str> {
    let lost_its_name = now.links == 0 && before.links > 0;
    match now.length.cmp(&before.length) {
        std::cmp::Ordering::Less => Some("truncated"),
        std::cmp::Ordering::Greater => Some("extended"),
        std::cmp::Ordering::Equal if now.identity != before.identity => Some("replaced"),
        std::cmp::Ordering::Equal if now.mtime_ns != before.mtime_ns => Some("modified"),
        std::cmp::Ordering::Equal if now.ctime_ns != before.ctime_ns && !lost_its_name => {
            Some("changed, or got other attributes or names,")
        }
        std::cmp::Ordering::Equal => None,
    }
}

/// Identifies the version: device, inode, length, and the times of modification and of change.
/// The first of these can be set back after a change (as some tools do), the second can't. That a
/// new name or other permissions change it too only makes a resumed transfer start over.
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
        fs::advise_will_need(&self.file, range.start, range.len());
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let now = fs::meta(&self.file).map_err(|error| self.fault(&error))?;
        let before = &self.opened;
        match difference(before, &now) {
            Some(what) => Err(self.changed(format!(
                "it was {what} while it was read: {} bytes at the start, {} now",
                before.length, now.length
            ))),
            None if self.settled => Ok(()),
            None => Err(self.changed("it was being written when it was opened")),
        }
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
