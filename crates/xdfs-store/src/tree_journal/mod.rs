//! The journal of a tree: which parts are finished, so that a restart neither lists finished
//! directories nor sends finished files again.
//!
//! A directory finished with everything beneath it is one record, which supersedes those beneath.
//! So the live records form the frontier of the walk, not the whole tree: when more than half of
//! the file is superseded, it is compacted.
//!
//! Invariant: a claim is appended only after its subject is durable (or, where durability isn't
//! required, published). An incomplete record claims nothing.

mod folder;
mod format;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use xdfs_proto::{Code, Fault};
use xdfs_sys::trusted;

pub use folder::JournalPlace;
pub use format::{
    CLAIM_BYTES, Claim, Earlier, Finished, HEADER_BYTES, Header, Mark, PREFIX_BYTES, Record,
    Records, Root, Totals,
};

use format::{Directories, Lead};

const OPERATION: &str = "keep the journal of the tree";
const BUSY_HINT: &str = "wait until the other run has ended, or stop it; then run this again";
/// Superseded bytes tolerated before compaction.
const SLACK_BYTES: u64 = 64 << 10;
/// Attempts to open a journal that is removed concurrently.
const ATTEMPTS: u32 = 8;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// An open journal, locked against other processes.
#[derive(Debug)]
pub struct TreeJournal {
    path: PathBuf,
    file: File,
    header: Header,
    bytes: u64,
    /// Bytes of live records, by directory.
    live: Directories<u64>,
    live_bytes: u64,
    lead: Lead,
    buffer: Vec<u8>,
    /// A write failed: the content of the file is uncertain.
    broken: bool,
    /// Even the lead, which names the target, could not be kept.
    lost: bool,
    /// Its name may not be durable yet.
    is_new: bool,
}

impl TreeJournal {
    /// Opens or creates the journal at `path` for the tree that `key` identifies, and returns its
    /// content: empty if it is of another tree or version, damaged at its start, or `anew` is set.
    /// `nonce`, random bytes, is that of a new journal.
    ///
    /// # Errors
    /// [`Code::Busy`] if another process has it open; [`Code::PermissionDenied`] if other users
    /// could have written it; or an error of the file system.
    pub fn open(
        path: &Path,
        key: [u8; 32],
        nonce: [u8; 16],
        anew: bool,
    ) -> Result<(Self, Earlier), Fault> {
        let fault = |error: &io::Error| io_fault(path, error);
        for _ in 0..ATTEMPTS {
            let file = open_file(path, false).map_err(|e| fault(&e))?;
            // Its claims leave out files.
            trusted::check(&file, path).map_err(|e| {
                Fault::new(Code::PermissionDenied, OPERATION, e.to_string())
                    .path(path_bytes(path))
                    .hint(e.hint())
            })?;
            lock(path, &file)?;
            // The previous holder of the lock may have removed or compacted it.
            if !is_named(path, &file) {
                unlock(&file);
                continue;
            }
            let mut journal = Self {
                path: path.to_path_buf(),
                file,
                header: Header { key, nonce },
                bytes: 0,
                live: Directories::default(),
                live_bytes: 0,
                lead: Lead::default(),
                buffer: Vec::new(),
                broken: false,
                lost: false,
                is_new: true,
            };
            let earlier = match anew {
                true => None,
                false => journal.load().map_err(|e| fault(&e))?,
            };
            let earlier = match earlier {
                Some(earlier) => earlier,
                None => {
                    journal.begin().map_err(|e| fault(&e))?;
                    Earlier::default()
                }
            };
            return Ok((journal, earlier));
        }
        let cause = "it is removed again and again";
        let fault = Fault::new(Code::Busy, OPERATION, cause).hint(BUSY_HINT);
        Err(fault.path(path_bytes(path)))
    }

    /// The header, with the keys of its claims.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Size of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records the start of a run.
    ///
    /// # Errors
    /// An error of the file system. The content stays valid, but nothing more can be appended.
    pub fn begin_run(&mut self) -> Result<(), Fault> {
        let mut buffer = Vec::new();
        let record = Record::Run(false);
        record.encode(&self.header, self.bytes, &mut buffer);
        if let Err(error) = self.file.write_all(&buffer) {
            self.broken = true;
            // A partial record is a torn tail, which readers cut off.
            let _ = self.file.set_len(self.bytes);
            return Err(io_fault(&self.path, &error));
        }
        self.lead.note(&self.header, &record, self.bytes);
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    /// Appends records in one write. With `durable` they are durable afterwards.
    ///
    /// # Errors
    /// An error of the file system; nothing more can be appended then, and only the lead, which
    /// names the target, stays.
    pub fn append(&mut self, records: &[Record], durable: bool) -> Result<(), Fault> {
        let written = self.write(records, durable);
        written.map_err(|error| self.fail_writes(&error))
    }

    /// Removes all content.
    ///
    /// # Errors
    /// An error of the file system; nothing more can be appended then.
    pub fn clear(&mut self) -> Result<(), Fault> {
        self.lead = Lead::default();
        self.begin().map_err(|error| self.fail_writes(&error))
    }

    /// Whether it contains no claims.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live_bytes == 0
    }

    /// Whether writing failed, and not even the lead could be kept.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// Closes the journal to further records after an error. Its content may differ when it is read
    /// again, so only the lead stays. If that fails too, the journal is removed.
    fn fail_writes(&mut self, error: &io::Error) -> Fault {
        self.broken = true;
        if self.keep_lead().is_err() {
            self.lost = true;
            let _ = std::fs::remove_file(&self.path);
        }
        io_fault(&self.path, error)
    }

    /// Writes the lead again, and nothing after it: data that the disk failed to write once is
    /// neither written nor reported a second time.
    fn keep_lead(&mut self) -> io::Result<()> {
        let lead = self.lead.encode(&self.header);
        self.file.rewind()?;
        self.file.write_all(&lead)?;
        self.file.set_len(lead.len() as u64)?;
        self.file.sync_all()?;
        match self.is_new {
            true => sync_folder(&self.path),
            false => Ok(()),
        }
    }

    /// Removes the journal and closes it to further records. If that fails, it is emptied.
    ///
    /// # Errors
    /// As for [`Self::clear`].
    pub fn remove(&mut self) -> Result<(), Fault> {
        self.broken = true;
        self.lead = Lead::default();
        std::fs::remove_file(&self.path).map_err(|error| self.fail_writes(&error))
    }

    /// Appends the last records, and renames the journal as that of a run that left nothing to do.
    /// It is closed to further records.
    ///
    /// # Errors
    /// An error of the file system. The journal is removed then, if possible.
    pub fn end(&mut self, records: &[Record]) -> Result<(), Fault> {
        let written = self.write(records, false);
        self.broken = true;
        let path = self.path.with_extension(folder::ENDED);
        let renamed = written.and_then(|()| std::fs::rename(&self.path, path));
        renamed.map_err(|error| {
            let _ = self.remove();
            io_fault(&self.path, &error)
        })
    }

    fn write(&mut self, records: &[Record], durable: bool) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("an earlier write failed"));
        }
        self.buffer.clear();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut lead = self.lead.clone();
        for record in records {
            let before = buffer.len();
            let at = self.bytes + before as u64;
            record.encode(&self.header, at, &mut buffer);
            self.count(record, (buffer.len() - before) as u64);
            lead.note(&self.header, record, at);
        }
        self.file.write_all(&buffer)?;
        self.lead = lead;
        self.bytes += buffer.len() as u64;
        buffer.clear();
        buffer.shrink_to(READ_BYTES);
        self.buffer = buffer;
        if self.bytes > SLACK_BYTES + 2 * self.live_bytes {
            self.compact()?;
        }
        if durable {
            self.file.sync_data()?;
            if self.is_new {
                sync_folder(&self.path)?;
                self.is_new = false;
            }
        }
        Ok(())
    }

    /// Updates the count of live bytes.
    fn count(&mut self, record: &Record, bytes: u64) {
        let total = &mut self.live_bytes;
        let mut remove = |live: &mut Directories<u64>, path: &[u8]| {
            live.remove(path, |bytes| *total = total.saturating_sub(bytes));
        };
        match record {
            Record::Entries(path, _) => {
                *self.live.entry(path) += bytes;
                self.live_bytes += bytes;
            }
            Record::Directory(path, _) => {
                remove(&mut self.live, path);
                *self.live.entry(path) = bytes;
                self.live_bytes += bytes;
            }
            Record::Forget(path) => remove(&mut self.live, path),
            // Entries claimed again after `ForgetEntries` are counted twice, but they are few.
            Record::Root(_) | Record::ForgetEntries(_) | Record::Run(_) => {}
        }
    }

    /// Replaces the file by one with the live records only.
    fn compact(&mut self) -> io::Result<()> {
        let mut reader = File::open(&self.path)?;
        let earlier = match Records::new(BufReader::with_capacity(READ_BYTES, &mut reader))? {
            Some(mut records) => Earlier::read(&mut records)?,
            None => return Err(io::Error::other("another process changed it")),
        };
        let mut path = self.path.clone().into_os_string();
        path.push(".new");
        let path = PathBuf::from(path);
        let file = open_file(&path, true)?;
        if file.try_lock().is_err() {
            return Err(io::Error::other("its successor is locked"));
        }
        let (old, lead) = (std::mem::replace(&mut self.file, file), self.lead.clone());
        let replaced = self.replace(&old, &path, &earlier);
        let needless = if replaced.is_err() {
            // The file that keeps the name; its content will be cut back to the lead.
            self.lead = lead;
            std::mem::replace(&mut self.file, old)
        } else {
            old
        };
        unlock(&needless);
        replaced
    }

    /// Writes the live records to the new file, and renames it over the old one. Either file, found
    /// after a system crash, contains everything written so far.
    fn replace(&mut self, old: &File, path: &Path, earlier: &Earlier) -> io::Result<()> {
        self.restart()?;
        let mut buffer = Vec::new();
        for record in earlier.records() {
            let before = buffer.len();
            let at = self.bytes + before as u64;
            record.encode(&self.header, at, &mut buffer);
            self.count(&record, (buffer.len() - before) as u64);
            self.lead.note(&self.header, &record, at);
            if buffer.len() >= READ_BYTES {
                self.file.write_all(&buffer)?;
                self.bytes += buffer.len() as u64;
                buffer.clear();
            }
        }
        self.file.write_all(&buffer)?;
        self.bytes += buffer.len() as u64;
        self.file.sync_data()?;
        old.sync_data()?;
        std::fs::rename(path, &self.path)?;
        sync_folder(&self.path)
    }

    /// Reads the content; `None` if it is unusable.
    fn load(&mut self) -> io::Result<Option<Earlier>> {
        self.file.rewind()?;
        let reader = BufReader::with_capacity(READ_BYTES, &self.file);
        let Some(mut records) = Records::new(reader)? else {
            return Ok(None);
        };
        if records.header().key != self.header.key {
            return Ok(None);
        }
        let earlier = Earlier::read(&mut records)?;
        let (header, bytes) = (*records.header(), records.valid_bytes);
        drop(records);
        self.header = header;
        self.lead = earlier.lead.clone();
        if self.file.metadata()?.len() > bytes {
            // Otherwise the cut-off bytes might follow appended records after a system crash.
            self.file.set_len(bytes)?;
            self.file.sync_all()?;
        }
        self.file.seek(SeekFrom::End(0))?;
        self.bytes = bytes;
        for (path, known) in earlier.directories.iter().chain(earlier.past.iter()) {
            let claims = (CLAIM_BYTES * known.claims.len()) as u64;
            let bytes = claims + path.len() as u64 + HEADER_BYTES as u64;
            *self.live.entry(path) += bytes;
            self.live_bytes += bytes;
        }
        Ok(Some(earlier))
    }

    /// Begins an empty journal.
    fn begin(&mut self) -> io::Result<()> {
        let had_bytes = self.file.metadata()?.len() > 0;
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.restart()?;
        if had_bytes {
            // Otherwise the old content might return after a system crash.
            self.file.sync_all()?;
        }
        Ok(())
    }

    fn restart(&mut self) -> io::Result<()> {
        self.file.write_all(&self.header.encode())?;
        self.bytes = HEADER_BYTES as u64;
        self.live = Directories::default();
        self.live_bytes = 0;
        self.lead = Lead::default();
        Ok(())
    }
}

impl Drop for TreeJournal {
    fn drop(&mut self) {
        unlock(&self.file);
    }
}

/// Releases the lock. Closing the file isn't enough: a process being started by another thread
/// holds a copy of the descriptor, and with it the lock, until it executes.
fn unlock(file: &File) {
    // After a failure the lock ends with the last copy of the descriptor.
    let _ = file.unlock();
}

fn open_file(path: &Path, truncate: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(truncate);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Makes a name durable.
#[cfg(unix)]
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// Folders can't be opened on this system.
#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    Ok(())
}

fn lock(path: &Path, file: &File) -> Result<(), Fault> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let cause = "another run is copying the same tree";
            let fault = Fault::new(Code::Busy, OPERATION, cause);
            Err(fault.hint(BUSY_HINT).path(path_bytes(path)))
        }
        Err(TryLockError::Error(error)) => Err(io_fault(path, &error)),
    }
}

/// Whether a file still has its name.
#[cfg(unix)]
fn is_named(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let id = |meta: io::Result<std::fs::Metadata>| meta.ok().map(|m| (m.dev(), m.ino()));
    let own = id(file.metadata());
    own.is_some() && own == id(std::fs::metadata(path))
}

/// An open file can't be removed on this system.
#[cfg(not(unix))]
fn is_named(_: &Path, _: &File) -> bool {
    true
}

fn io_fault(path: &Path, error: &io::Error) -> Fault {
    Fault::from_io(OPERATION, path_bytes(path), error)
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_encoded_bytes()
}

#[cfg(test)]
mod tests;
