//! The journal of a tree: what of it is finished, so that a restart neither lists finished
//! directories nor sends finished files again.
//!
//! A directory that is finished with all below it is one record, which makes those below needless.
//! What is live of a journal is therefore the edge of the walk, and not the tree: when more than
//! half of the file is needless it is written anew.
//!
//! Invariant: a record that claims something is appended only after that is durable (or, where
//! durability isn't wanted, published). A record that isn't whole claims nothing.

mod folder;
mod format;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use xdfs_proto::{Code, Fault};

pub use folder::JournalPlace;
pub use format::{
    CLAIM_BYTES, Claim, Earlier, Finished, HEADER_BYTES, Header, Mark, PREFIX_BYTES, Record,
    Records, Root, Totals,
};

use format::{Directories, Lead};

const OPERATION: &str = "keep the journal of the tree";
const BUSY_HINT: &str = "wait until the other run has ended, or stop it; then run this again";
/// Needless bytes that are left where they are.
const SLACK_BYTES: u64 = 64 << 10;
/// How often a journal is opened anew that is removed meanwhile.
const ATTEMPTS: u32 = 8;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// An open journal, which nobody else has open.
#[derive(Debug)]
pub struct TreeJournal {
    path: PathBuf,
    file: File,
    header: Header,
    bytes: u64,
    /// Bytes of the records of each directory that aren't needless.
    live: Directories<u64>,
    live_bytes: u64,
    lead: Lead,
    buffer: Vec<u8>,
    /// Writing failed: what is in the file isn't known any more.
    broken: bool,
    /// Nor can what says where the tree goes be kept.
    lost: bool,
    /// Its name may not be durable yet.
    is_new: bool,
}

impl TreeJournal {
    /// Opens the journal at `path` or makes it, for the tree that `key` names, and tells what it
    /// says; nothing if it is of another tree or version, damaged at its start, or `anew` is set.
    /// `nonce` is that of a journal that is made: random bytes.
    ///
    /// # Errors
    /// [`Code::Busy`] if another process has it open, or a failure of the file system.
    pub fn open(
        path: &Path,
        key: [u8; 32],
        nonce: [u8; 16],
        anew: bool,
    ) -> Result<(Self, Earlier), Fault> {
        let fault = |error: &io::Error| io_fault(path, error);
        for _ in 0..ATTEMPTS {
            let file = open_file(path, false).map_err(|e| fault(&e))?;
            lock(path, &file)?;
            // Who had it before may have removed it, or written it anew.
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

    /// What its claims are made with.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// A run begins, to which the journal belongs now.
    ///
    /// # Errors
    /// A failure of the file system. What the journal says is as true as before and stays; it
    /// takes nothing more.
    pub fn begin_run(&mut self) -> Result<(), Fault> {
        let mut buffer = Vec::new();
        let record = Record::Run(false);
        record.encode(&self.header, self.bytes, &mut buffer);
        if let Err(error) = self.file.write_all(&buffer) {
            self.broken = true;
            // A part of a record is a torn tail, which is cut off by who reads it.
            let _ = self.file.set_len(self.bytes);
            return Err(io_fault(&self.path, &error));
        }
        self.lead.note(&self.header, &record, self.bytes);
        self.bytes += buffer.len() as u64;
        Ok(())
    }

    /// Appends records in one go. With `durable` they are on the disk afterwards.
    ///
    /// # Errors
    /// A failure of the file system; the journal takes nothing more then, and says no more than
    /// where the tree goes.
    pub fn append(&mut self, records: &[Record], durable: bool) -> Result<(), Fault> {
        let written = self.write(records, durable);
        written.map_err(|error| self.given_up(&error))
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// A failure of the file system; the journal takes nothing more then.
    pub fn clear(&mut self) -> Result<(), Fault> {
        self.lead = Lead::default();
        self.begin().map_err(|error| self.given_up(&error))
    }

    /// Whether it claims nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live_bytes == 0
    }

    /// Whether writing failed, and not even what says where the tree goes could be kept.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The journal takes nothing more. What is in it may not be so any more when it is read again:
    /// nothing stays but what says where the tree goes. If that can't be kept it is removed.
    fn given_up(&mut self, error: &io::Error) -> Fault {
        self.broken = true;
        if self.keep_lead().is_err() {
            self.lost = true;
            let _ = std::fs::remove_file(&self.path);
        }
        io_fault(&self.path, error)
    }

    /// Writes again what says where the tree goes, and nothing behind it. What the disk didn't take
    /// once, the system neither writes nor reports a second time.
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

    /// Removes the journal, which takes nothing more then. If it can't be removed it is emptied.
    ///
    /// # Errors
    /// As [`Self::clear`].
    pub fn remove(&mut self) -> Result<(), Fault> {
        self.broken = true;
        self.lead = Lead::default();
        std::fs::remove_file(&self.path).map_err(|error| self.given_up(&error))
    }

    /// Appends records that nothing follows, and gives the journal the name of those that left
    /// nothing to do. It takes nothing more then.
    ///
    /// # Errors
    /// A failure of the file system. The journal is removed then, if it can be.
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

    /// Keeps account of what is live.
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
            // The few that are live again are counted again.
            Record::Root(_) | Record::ForgetEntries(_) | Record::Run(_) => {}
        }
    }

    /// Writes what is live to a new file, which takes the place of this one.
    fn compact(&mut self) -> io::Result<()> {
        let mut reader = File::open(&self.path)?;
        let earlier = match Records::new(BufReader::with_capacity(READ_BYTES, &mut reader))? {
            Some(mut records) => Earlier::read(&mut records)?,
            None => return Err(io::Error::other("it was changed by somebody else")),
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
            // The one that has the name, which is to be cut.
            self.lead = lead;
            std::mem::replace(&mut self.file, old)
        } else {
            old
        };
        unlock(&needless);
        replaced
    }

    /// Writes what is live to the file, which takes the place of the old one. Whichever of them is
    /// found after a crash of the system has all that was written to it.
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

    /// Reads what is there; `None` if it can't be used.
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
            // Or what is cut off could stand behind what is appended, after a crash of the system.
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
            // Or what it said would come back after a crash of the system.
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

/// Gives the lock back. Closing the file isn't enough: a process that another thread is starting
/// at this moment holds a copy of the descriptor, and with it the lock, until it runs.
fn unlock(file: &File) {
    // A failure leaves the lock to end with the last copy of the descriptor.
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

/// Folders can't be opened there.
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

/// A file that is open can't be removed there.
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
