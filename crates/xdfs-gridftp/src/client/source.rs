//! A file of a server that is read.
//!
//! What was read is compared by checksums of the server, where it has them, and size and time are
//! looked at again: so a file that changes meanwhile is not taken for one version.

use std::time::Duration;

use xdfs_proto::{ByteRange, Code, Fault, Retry, SourceTag};
use xdfs_store::{Source, SourceInfo};

use super::channel::{Direction, Mode};
use super::fault::refused;
use super::features::name_of;
use super::incoming::Incoming;
use super::link::{Link, STALL};
use super::listing::Listed;
use super::pool::FtpStore;
use crate::checksum::{Algorithm, Hasher};

/// Bytes of a file that a server is given a second to compute a checksum of.
const CHECKSUM_BYTES_PER_S: u64 = 20 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct FtpSource {
    store: FtpStore,
    path: Vec<u8>,
    length: u64,
    info: SourceInfo,
    transfer: Option<(Link, Incoming)>,
    /// How the last transfer was begun; `None` if the server wasn't reached.
    mode: Option<Mode>,
    /// What was read in one piece, the last one still growing.
    runs: Vec<Run>,
}

#[derive(Debug)]
struct Run {
    range: ByteRange,
    kind: Algorithm,
    hasher: Hasher,
}

impl FtpSource {
    /// The file at a resolved path, with these attributes.
    pub(super) fn new(store: FtpStore, path: Vec<u8>, listed: &Listed) -> Self {
        let found = &listed.attributes;
        Self {
            store,
            path,
            length: found.size,
            info: SourceInfo {
                length: Some(found.size),
                // Size and time, a second at best, tell no version for sure, and what was received
                // may be damaged: so nothing of an earlier attempt is used.
                tag: SourceTag::default(),
                mode: Some(found.mode).filter(|_| listed.has_mode),
                mtime_ns: Some(found.mtime_ns).filter(|time| *time != 0),
                random_reads: true,
                sparse: false,
            },
            transfer: None,
            mode: None,
            runs: Vec::new(),
        }
    }

    fn begin(&mut self, offset: u64) -> Result<(Link, Incoming), Fault> {
        self.mode = None;
        let parallelism = self.store.parallelism(Some(self.length - offset));
        let mut link = self.store.take(Some((Direction::Receive, parallelism)))?;
        let mode = self.store.mode_of(&link, Direction::Receive, parallelism);
        self.mode = Some(mode);
        link.prepare(Direction::Receive, mode, parallelism)?;
        if offset > 0 {
            let place = match mode {
                Mode::Exchange | Mode::Extended => format!("0-{offset}"),
                Mode::Stream => offset.to_string(),
            };
            let reply = link.exchange("REST", place.as_bytes())?;
            if reply.code != 350 {
                return Err(refused("begin in the middle", &self.path, &reply));
            }
        }
        link.command("RETR", &self.path)?;
        let incoming = Incoming::new("read", &self.path, mode, offset, Some(self.length));
        Ok((link, incoming))
    }

    /// Reads, and returns the number of bytes with the checksum that the server has.
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> Result<(usize, Option<Algorithm>), Fault> {
        let (mut link, mut incoming) = match self.transfer.take() {
            Some(same) if same.1.position() == offset => same,
            // The other one ends with its connections.
            _ => self.begin(offset)?,
        };
        let kind = link.features.checksum();
        let read = incoming.read(&mut link, buf);
        match read {
            Ok(_) if incoming.is_complete() => self.store.give_back(link),
            Ok(_) => self.transfer = Some((link, incoming)),
            Err(_) if !incoming.has_started() && link.is_usable() => self.store.give_back(link),
            Err(_) => {}
        }
        read.map(|count| (count, kind))
    }

    fn note(&mut self, offset: u64, bytes: &[u8], kind: Option<Algorithm>) {
        let Some(kind) = kind else {
            return;
        };
        let end = offset + bytes.len() as u64;
        match self.runs.last_mut() {
            Some(run) if run.range.end == offset => {
                run.hasher.update(bytes);
                run.range.end = end;
            }
            _ => {
                let mut hasher = Hasher::new(kind);
                hasher.update(bytes);
                let range = ByteRange { start: offset, end };
                self.runs.push(Run {
                    range,
                    kind,
                    hasher,
                });
            }
        }
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
            && self.store.falls_back(mode, fault)
        {
            read = self.read(offset, buf);
        }
        let (count, kind) = read?;
        self.note(offset, &buf[..count], kind);
        Ok(count)
    }

    fn is_slow(&self) -> bool {
        true
    }

    fn verify_unchanged(&mut self) -> Result<(), Fault> {
        let (runs, path, length) = (std::mem::take(&mut self.runs), &self.path, self.length);
        let time = self.info.mtime_ns.unwrap_or_default();
        self.store.with(|link| {
            for run in runs {
                compare(link, path, length, run)?;
            }
            let found = FtpStore::look(link, path)?.attributes;
            if (found.size, found.mtime_ns) == (length, time) {
                return Ok(());
            }
            let cause = "its size or its time has changed meanwhile";
            Err(Fault::new(Code::SourceChanged, "verify the source", cause)
                .path(path)
                .retry(Retry::Now))
        })
    }
}

/// Compares what was read with a checksum of the server.
fn compare(link: &mut Link, path: &[u8], length: u64, run: Run) -> Result<(), Fault> {
    let ByteRange { start, end } = run.range;
    let extent = match (start, end) == (0, length) {
        true => "0 -1".to_owned(),
        false => format!("{start} {}", end - start),
    };
    let own = run.hasher.finish();
    // Where the server refuses, its size and time are what there is; the caller looks at them.
    checksum(link, path, run.kind, &extent, end - start, &own).map(|_| ())
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
    let reply = link.reply_within("compute a checksum", checksum_time(bytes))?;
    same_checksum(path, name, own, &reply)
}

/// The time that a server is given to compute a checksum.
pub(super) fn checksum_time(bytes: u64) -> Duration {
    STALL + Duration::from_secs(bytes / CHECKSUM_BYTES_PER_S)
}

/// Compares what the reply to CKSM says with `own`; `false` if the server refuses to compute it.
///
/// # Errors
/// It says something else, or that the file can't be read.
pub(super) fn same_checksum(
    path: &[u8],
    name: &str,
    own: &str,
    reply: &crate::reply::Reply,
) -> Result<bool, Fault> {
    let said = match (reply.code, reply.lines.first()) {
        (213, Some(line)) => String::from_utf8_lossy(line.trim_ascii()).to_ascii_lowercase(),
        (500..=504, _) => {
            tracing::debug!(?reply, "the server computes no checksum");
            return Ok(false);
        }
        _ => return Err(refused("compute a checksum", path, reply)),
    };
    if said == own {
        return Ok(true);
    }
    let cause = format!("{name} is {said} at the server and {own} of what was transferred");
    Err(
        Fault::new(Code::IntegrityMismatch, "compare checksums", cause)
            .path(path)
            .retry(Retry::Now)
            .hint("the file may have changed meanwhile"),
    )
}
