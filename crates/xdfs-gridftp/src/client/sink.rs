//! A file that is stored at a server: under a hidden name, compared, and then renamed.

use std::io::IoSlice;

use xdfs_proto::digest::{DigestKind, Fragment};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_store::{Capabilities, Sink, SinkRequest};

use super::channel::Direction;
use super::fault::{lacking, refused};
use super::link::Link;
use super::listing::Listed;
use super::outgoing::Outgoing;
use super::pool::{FtpStore, exists};
use super::source::checksum;
use crate::checksum::{Algorithm, Hasher};
use crate::time::format_time;

/// Bytes of a name that are kept in the hidden one: with the rest, file systems take it.
const NAME_BYTES_MAX: usize = 200;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct FtpSink {
    store: FtpStore,
    path: Vec<u8>,
    hidden: Vec<u8>,
    position: u64,
    length: Option<u64>,
    mtime_ns: Option<i64>,
    mode: Option<u32>,
    overwrite: bool,
    compares: bool,
    transfer: Option<(Link, Outgoing)>,
    hasher: Option<(Algorithm, Hasher)>,
    /// The hidden file may be there.
    has_begun: bool,
}

/// A hidden name beside a resolved path, which no other upload has.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn hidden(path: &[u8]) -> Result<Vec<u8>, Fault> {
    let number = getrandom::u64()
        .map_err(|error| Fault::new(Code::Internal, "choose a hidden name", error.to_string()))?;
    let start = path.iter().rposition(|byte| *byte == b'/');
    let (directory, name) = path.split_at(start.map_or(0, |at| at + 1));
    let name = &name[..name.len().min(NAME_BYTES_MAX)];
    let end = format!(".{number:016x}.ftp-part");
    Ok([directory, b".", name, end.as_bytes()].concat())
}

impl FtpSink {
    /// # Errors
    /// As [`hidden`].
    pub(super) fn new(
        store: FtpStore,
        path: Vec<u8>,
        request: &SinkRequest,
    ) -> Result<Self, Fault> {
        Ok(Self {
            store,
            hidden: hidden(&path)?,
            path,
            position: 0,
            length: request.length,
            mtime_ns: request.mtime_ns,
            mode: request.mode,
            overwrite: request.overwrite,
            compares: request.digest != DigestKind::None,
            transfer: None,
            hasher: None,
            has_begun: false,
        })
    }

    /// Begins to store.
    fn begin(&mut self) -> Result<(Link, Outgoing), Fault> {
        let parallelism = self.store.parallelism(self.length);
        let mut link = self.store.take(Some((Direction::Send, parallelism)))?;
        let mode = self.store.mode_of(&link, Direction::Send, parallelism);
        link.prepare(Direction::Send, mode, parallelism)?;
        link.command("STOR", &self.hidden)?;
        self.has_begun = true;
        let outgoing = Outgoing::begin("store", &self.path, &mut link)?;
        let kind = link.features.checksum().filter(|_| self.compares);
        self.hasher = kind.map(|kind| (kind, Hasher::new(kind)));
        Ok((link, outgoing))
    }

    /// Ends the transfer, and removes what the server has of it: no other attempt goes on with it.
    fn abandon(&mut self) {
        let link = self.transfer.take().map(|(link, _)| link);
        match link {
            Some(mut link) => {
                self.remove_hidden(Some(&mut link));
                if link.is_usable() {
                    self.store.give_back(link);
                }
            }
            None => self.remove_hidden(None),
        }
    }

    /// Removes the hidden file over this connection, or another one, or later.
    fn remove_hidden(&mut self, link: Option<&mut Link>) {
        let was_there = std::mem::take(&mut self.has_begun);
        let is_removed = |link: &mut Link| link.abandon(&self.hidden);
        if was_there && !link.is_some_and(is_removed) {
            self.store.remove_later(self.hidden.clone());
        }
    }

    /// Sends bytes that follow those before.
    fn write(&mut self, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let (mut link, mut outgoing) = match self.transfer.take() {
            Some(begun) => begun,
            None => self.begin()?,
        };
        for buf in bufs {
            if let Some((_, hasher)) = &mut self.hasher {
                hasher.update(buf);
            }
            if let Err(fault) = outgoing.write(&mut link, buf) {
                self.remove_hidden(Some(&mut link));
                if link.is_usable() {
                    self.store.give_back(link);
                }
                return Err(fault);
            }
            self.position += buf.len() as u64;
        }
        self.transfer = Some((link, outgoing));
        Ok(())
    }

    /// Compares the hidden file, and gives it its time, its mode and its name.
    fn settle(&mut self, link: &mut Link, length: u64) -> Result<(), Fault> {
        let (hidden, path) = (&self.hidden, &self.path);
        let is_compared = match self.hasher.take() {
            Some((kind, hasher)) => checksum(link, hidden, kind, "0 -1", length, &hasher.finish())?,
            None => false,
        };
        if !is_compared {
            same_size(path, length, &FtpStore::look(link, hidden)?)?;
        }
        set_metadata(link, hidden, self.mtime_ns, self.mode)?;
        // Another one may have come meanwhile. The protocol can't tell "only if it is free".
        if !self.overwrite && FtpStore::find(link, path)?.is_some() {
            return Err(exists("publish", path));
        }
        rename(link, hidden, path)
    }
}

/// Fails unless what is stored for `path` has this size.
///
/// # Errors
/// It has another one, or the server doesn't tell.
pub(super) fn same_size(path: &[u8], length: u64, stored: &Listed) -> Result<(), Fault> {
    if !stored.has_size {
        let cause = "the server tells neither checksum nor size, so that nothing can be compared";
        return Err(lacking("compare sizes", path, cause));
    }
    let stored = stored.attributes.size;
    if stored == length {
        return Ok(());
    }
    let cause = format!("{stored} bytes are stored of {length}");
    let fault = Fault::new(Code::IntegrityMismatch, "compare sizes", cause);
    Err(fault.path(path).retry(Retry::Now))
}

/// Sets time and mode as far as the server can.
///
/// # Errors
/// It offers to set times and fails, or the connection is broken.
pub(super) fn set_metadata(
    link: &mut Link,
    path: &[u8],
    mtime_ns: Option<i64>,
    mode: Option<u32>,
) -> Result<(), Fault> {
    AskedMetadata::ask(link, path, mtime_ns, mode)?.settle(link, path)
}

/// Commands that set time and mode, without their replies.
pub(super) struct AskedMetadata {
    mode: bool,
    time: bool,
}

impl AskedMetadata {
    /// Queues the commands, as far as the server has them.
    ///
    /// # Errors
    /// The path can't be sent.
    pub(super) fn ask(
        link: &mut Link,
        path: &[u8],
        mtime_ns: Option<i64>,
        mode: Option<u32>,
    ) -> Result<Self, Fault> {
        if let Some(mode) = mode {
            let argument = [format!("CHMOD {:03o} ", mode & 0o777).as_bytes(), path].concat();
            link.command("SITE", &argument)?;
        }
        let time = mtime_ns.filter(|_| link.features.mfmt);
        if let Some(time) = time {
            let argument = [format_time(time).as_bytes(), b" ", path].concat();
            link.command("MFMT", &argument)?;
        }
        Ok(Self {
            mode: mode.is_some(),
            time: time.is_some(),
        })
    }

    /// Waits for the replies, which are the oldest ones.
    ///
    /// # Errors
    /// As [`set_metadata`].
    pub(super) fn settle(self, link: &mut Link, path: &[u8]) -> Result<(), Fault> {
        if self.mode {
            let reply = link.reply("set the permissions")?;
            if reply.code >= 300 {
                tracing::debug!(?reply, "the server sets no permissions");
            }
        }
        if self.time {
            let reply = link.reply("set the time")?;
            if reply.code >= 300 {
                return Err(refused("set the time", path, &reply));
            }
        }
        Ok(())
    }
}

/// Renames, and replaces what has the new name.
///
/// # Errors
/// The server refuses.
pub(super) fn rename(link: &mut Link, from: &[u8], to: &[u8]) -> Result<(), Fault> {
    let operation = "rename";
    link.command("RNFR", from)?;
    link.command("RNTO", to)?;
    let (first, second) = (link.reply(operation)?, link.reply(operation)?);
    match (first.code, second.code) {
        (300..400, 200..300) => Ok(()),
        (300..400, _) => Err(refused(operation, to, &second)),
        _ => Err(refused(operation, from, &first)),
    }
}

impl Sink for FtpSink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            random_writes: false,
            slow_writes: true,
            durable: false,
            // The time between two commands, in which the server has both names.
            atomic_publish: true,
        }
    }

    fn write_at(&mut self, offset: u64, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        if offset != self.position {
            let cause = format!("bytes at {offset} come before those at {}", self.position);
            return Err(Fault::new(Code::Internal, "store", cause).path(&self.path));
        }
        let written = self.write(bufs);
        written.map_err(|fault| fault.preventing(&self.path))
    }

    fn sync(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn record(&mut self, _durable: &[Fragment]) -> Result<(), Fault> {
        Ok(())
    }

    fn publish(&mut self, length: u64, _fresh: &[Fragment]) -> Result<(), Fault> {
        // Of a file without bytes.
        let begun = match self.transfer.take() {
            Some(begun) => Ok(begun),
            None => self.begin(),
        };
        let (mut link, mut outgoing) = begun.map_err(|fault| fault.preventing(&self.path))?;
        let ended = outgoing.end(&mut link);
        let finished = ended.and_then(|()| outgoing.confirm(&mut link));
        let published = finished.and_then(|()| self.settle(&mut link, length));
        if published.is_ok() {
            self.has_begun = false;
        } else {
            self.remove_hidden(Some(&mut link));
        }
        if link.is_usable() {
            self.store.give_back(link);
        }
        published.map_err(|fault| fault.preventing(&self.path))
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.abandon();
        Ok(())
    }
}

impl Drop for FtpSink {
    fn drop(&mut self) {
        self.abandon();
    }
}
