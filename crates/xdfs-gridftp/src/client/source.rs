//! A file of a server that is read.
//!
//! What was read is compared by checksums of the server, where it has them, and size and time are
//! looked at again: so a file that changes meanwhile is not taken for one version.

use std::time::Duration;

use xdfs_proto::{Code, Fault, Retry, SourceTag};
use xdfs_store::{Source, SourceInfo};

use super::channel::{Direction, Mode};
use super::fault::{refused, violation};
use super::features::name_of;
use super::incoming::Incoming;
use super::link::{Link, STALL};
use super::listed::Listed;
use super::parked::Parking;
use super::pool::FtpStore;
use super::runs::Runs;
use crate::checksum::Algorithm;

const RESTART: &str = "resume";
/// Bytes that are read at once and left out, where the server can't begin in the middle.
const SKIPPED_AT_ONCE: usize = 256 << 10;
/// Bytes of a file that a server is given a second to compute a checksum of.
const CHECKSUM_BYTES_PER_S: u64 = 20 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct FtpSource {
    store: FtpStore,
    path: Vec<u8>,
    length: u64,
    info: SourceInfo,
    /// A transfer that has begun.
    parking: Parking,
    /// How the last transfer was begun; `None` if the server wasn't reached.
    mode: Option<Mode>,
    /// Where it was begun.
    begun_at: u64,
    /// What was read.
    runs: Runs,
}

impl FtpSource {
    /// The file at a resolved path, with these attributes, and what looks like its version.
    pub(super) fn new(store: FtpStore, path: Vec<u8>, listed: &Listed, tag: SourceTag) -> Self {
        let found = &listed.attributes;
        Self {
            store,
            path,
            length: found.size,
            info: SourceInfo {
                length: Some(found.size),
                tag,
                mode: Some(found.mode).filter(|_| listed.has_mode),
                mtime_ns: found.mtime(),
                random_reads: true,
                sparse: false,
            },
            parking: Parking::default(),
            mode: None,
            begun_at: 0,
            runs: Runs::default(),
        }
    }

    fn begin(&mut self, offset: u64) -> Result<(Link, Incoming), Fault> {
        self.mode = None;
        let parallelism = self.store.parallelism(Some(self.length - offset));
        let mut link = self.store.take(Some((Direction::Receive, parallelism)))?;
        let mode = self.store.mode_of(&link, Direction::Receive, parallelism);
        self.mode = Some(mode);
        link.prepare(Direction::Receive, mode, parallelism)?;
        link.check_part(&self.path)?;
        let restarts = self.store.restarts() && link.begins_anywhere();
        let is_restarted = offset > 0 && restarts && {
            let place = match mode {
                Mode::Exchange | Mode::Extended => format!("0-{offset}"),
                Mode::Stream => offset.to_string(),
            };
            let reply = link.exchange("REST", place.as_bytes())?;
            let is_restarted = reply.code == 350;
            if !is_restarted {
                self.store
                    .note_no_restarts(&refused(RESTART, &self.path, &reply));
            }
            is_restarted
        };
        link.command("RETR", &self.path)?;
        let from = if is_restarted { offset } else { 0 };
        self.begun_at = from;
        let mut incoming = Incoming::new("read", &self.path, mode, from, Some(self.length));
        let mut piece = vec![0; if from < offset { SKIPPED_AT_ONCE } else { 0 }];
        while incoming.position() < offset {
            let left = usize::try_from(offset - incoming.position()).unwrap_or(usize::MAX);
            let most = left.min(piece.len());
            incoming.read(&mut link, &mut piece[..most])?;
        }
        Ok((link, incoming))
    }

    /// Whether to read again from the first byte on, since the server has agreed to begin in the
    /// middle and then did something else. In stream mode bytes have no place, so that a retry of
    /// the transfer has to look at what was read.
    fn begins_anew(&self, offset: u64, mode: Mode, fault: &Fault) -> bool {
        let is_stream = mode == Mode::Stream;
        let is_else = match fault.code {
            Code::ProtocolViolation => true,
            Code::SourceChanged => is_stream,
            _ => false,
        };
        let is_else = is_else && self.begun_at > 0;
        if is_else {
            self.store.note_no_restarts(fault);
        }
        is_else && (!is_stream || offset == self.begun_at)
    }

    /// Compares the first bytes from the middle of a file in stream mode, where the server can have
    /// begun elsewhere.
    fn check_place(&self, bytes: &[u8], kind: Algorithm) -> Result<(), Fault> {
        let mut runs = Runs::default();
        runs.note(self.begun_at, bytes, kind);
        let path = &self.path;
        let Some(mut link) = self.store.take_now(None)? else {
            // All bytes are compared in the end.
            return Ok(());
        };
        let compared = runs.compare(&mut link, path, None);
        if link.is_usable() {
            self.store.give_back(link);
        }
        compared.map(drop).map_err(|fault| match fault.code {
            Code::IntegrityMismatch => violation(RESTART, fault.cause).path(path),
            _ => fault,
        })
    }

    /// The transfer that has begun, if others have not taken its session.
    fn take_transfer(&self) -> Option<(Link, Incoming)> {
        self.store.parkings().remove(&self.parking);
        self.parking.take()
    }

    /// Leaves the transfer until more of it is wanted.
    fn leave(&self, link: Link, incoming: Incoming) {
        self.parking.leave(link, incoming);
        self.store.parkings().add(&self.parking);
    }

    /// Reads, and returns the number of bytes with the checksum that the server has.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(usize, Option<Algorithm>), Fault> {
        let (mut link, mut incoming) = match self.take_transfer() {
            Some(same) if same.1.position() == offset => same,
            Some((other, _)) => {
                self.store.let_go(other);
                self.begin(offset)?
            }
            None => self.begin(offset)?,
        };
        let is_first = incoming.position() == self.begun_at;
        let kind = link.features.checksum();
        let read = incoming.read(&mut link, buf);
        let read = read.map_err(|fault| link.explained(fault, incoming.has_moved()));
        let mut begun = None;
        match read {
            Ok(_) if incoming.is_complete() => self.store.give_back(link),
            Ok(_) => begun = Some((link, incoming)),
            Err(_) if !incoming.has_started() && link.is_usable() => self.store.give_back(link),
            Err(_) => {}
        }
        let count = read?;
        if let Some(kind) = kind
            && is_first
            && self.begun_at > 0
            && self.mode == Some(Mode::Stream)
        {
            self.check_place(&buf[..count], kind)?;
        }
        if let Some((link, incoming)) = begun {
            self.leave(link, incoming);
        }
        Ok((count, kind))
    }
}

impl Source for FtpSource {
    fn info(&self) -> &SourceInfo {
        &self.info
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Fault> {
        let left = self.length.saturating_sub(offset);
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
        let buf = &mut buf[..most];
        if buf.is_empty() {
            return Ok(0);
        }
        let mut read = self.read(offset, buf);
        if let Err(fault) = &read
            && let Some(mode) = self.mode
            && (self.store.falls_back(mode, fault) || self.begins_anew(offset, mode, fault))
        {
            read = self.read(offset, buf);
        }
        let (count, kind) = read?;
        if let Some(kind) = kind {
            self.runs.note(offset, &buf[..count], kind);
        }
        Ok(count)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let (runs, path, length) = (std::mem::take(&mut self.runs), &self.path, self.length);
        let time = self.info.mtime_ns;
        // The digest is of a part.
        if let Some((link, _)) = self.take_transfer() {
            self.store.let_go(link);
        }
        self.store.with(|link| {
            // Where the server refuses, its size and time are what there is.
            runs.compare(link, path, Some(length))?;
            let found = FtpStore::look(link, path)?.attributes;
            if (found.size, found.mtime()) == (length, time) {
                return Ok(());
            }
            let cause = "its size or its time has changed meanwhile";
            Err(Fault::new(Code::SourceChanged, "verify the source", cause)
                .path(path)
                .retry(Retry::Now))
        })
    }

    xdfs_store::defaults!(Source: next_data, will_read, is_cold, direct, memory, is_uniform,
        shared);
}

impl Drop for FtpSource {
    fn drop(&mut self) {
        drop(self.take_transfer());
    }
}

/// Compares the server's checksum of a part of a file with `own`. Returns `false` if the server
/// refuses to compute it: then the caller has to compare sizes.
///
/// # Errors
/// It differs, or the connection is broken.
pub(super) fn checksum(
    link: &mut Link,
    path: &[u8],
    kind: Algorithm,
    extent: &str,
    bytes: u64,
    own: &str,
) -> Result<bool, Fault> {
    let name = name_of(kind);
    let argument = [format!("{name} {extent} ").as_bytes(), path].concat();
    link.command("CKSM", &argument)?;
    let reply = link.reply_within("compute the checksum of", checksum_time(bytes))?;
    same_checksum(path, name, own, &reply, link.features.is_exposed)
}

/// The time that a server is given to compute a checksum.
pub(super) fn checksum_time(bytes: u64) -> Duration {
    STALL + Duration::from_secs(bytes / CHECKSUM_BYTES_PER_S)
}

/// Compares what the reply to CKSM says with `own`; `false` if the server refuses to compute it.
/// `is_exposed`: see [`super::features::Features`].
///
/// # Errors
/// It says something else, or that the file can't be read.
pub(super) fn same_checksum(
    path: &[u8],
    name: &str,
    own: &str,
    reply: &crate::reply::Reply,
    is_exposed: bool,
) -> Result<bool, Fault> {
    let said = match (reply.code, reply.lines.first()) {
        (213, Some(line)) => String::from_utf8_lossy(line.trim_ascii()).to_ascii_lowercase(),
        (500..=504, _) => {
            tracing::debug!(?reply, "the server computes no checksum");
            return Ok(false);
        }
        _ => return Err(refused("compute the checksum of", path, reply)),
    };
    if said == own {
        tracing::debug!("{name} is the same at the server");
        return Ok(true);
    }
    let cause = format!("{name} is {said} at the server and {own} of what was transferred");
    Err(
        Fault::new(Code::IntegrityMismatch, "compare checksums", cause)
            .path(path)
            .retry(Retry::Now)
            .hint(match is_exposed {
                true => {
                    "the file may have changed meanwhile, or somebody on the way changes data: \
                     ssh:// and gsiftp:// places protect it"
                }
                false => "the file may have changed meanwhile",
            }),
    )
}
