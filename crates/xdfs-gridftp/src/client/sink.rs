//! A file that is stored at a server: under a hidden name, compared, and then renamed.

use std::io::IoSlice;

use xdfs_proto::digest::{DigestKind, Fragment};
use xdfs_proto::frame::Resume;
use xdfs_proto::path::FileKind;
use xdfs_proto::{Code, Fault, Retry, SourceTag};
use xdfs_store::{Capabilities, OpenedSink, Sink, SinkRequest};

use super::begun::Begun;
use super::channel::{Direction, Mode};
use super::fault::{lacking, refused};
use super::journal::{Journal, Record};
use super::link::Link;
use super::listed::Listed;
use super::outgoing::Outgoing;
use super::pool::{FtpStore, exists};
use super::source::checksum;
use crate::checksum::{Algorithm, Hasher};
use crate::time::{format_time, parse_time};

/// Bytes of a name that are kept in the hidden one: with the rest, file systems take it.
const NAME_BYTES_MAX: usize = 200;
/// Smaller files begin anew.
pub(super) const JOURNALED_BYTES_MIN: u64 = 32 << 20;

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
    /// The session for it, before it begins: the thread that writes has other files too, and must
    /// not wait for one.
    reserved: Option<Link>,
    /// Of what this attempt sends.
    hasher: Option<(Algorithm, Hasher)>,
    /// The hidden file may be there.
    has_begun: bool,
    /// What the next attempt can go on with.
    begun: Option<Begun>,
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
    /// Opens the target of a resolved path, and goes on with what an earlier attempt has stored.
    ///
    /// # Errors
    /// As [`hidden`]; or the server can't be reached, or is still busy with that attempt.
    pub(super) fn open(
        store: FtpStore,
        path: Vec<u8>,
        request: &SinkRequest,
    ) -> Result<OpenedSink, Fault> {
        let mut sink = Self {
            store,
            hidden: hidden(&path)?,
            path: path.clone(),
            position: 0,
            length: request.length,
            mtime_ns: request.mtime_ns,
            mode: request.mode,
            overwrite: request.overwrite,
            compares: request.digest != DigestKind::None,
            transfer: None,
            reserved: None,
            hasher: None,
            has_begun: false,
            begun: None,
        };
        let durable = sink.go_on(request).and_then(|durable| {
            if sink.transfer.is_none() {
                let wanted = (Direction::Send, sink.store.parallelism(sink.length));
                sink.reserved = Some(sink.store.take(Some(wanted))?);
            }
            Ok(durable)
        });
        let durable = durable.map_err(|fault| fault.preventing(&path))?;
        Ok(OpenedSink {
            sink: Box::new(sink),
            path,
            durable,
            unverified: false,
            block_size: request.block_size,
        })
    }

    /// What is remembered at first of this upload, if it can be gone on with.
    fn first_record(&self, request: &SinkRequest) -> Option<Record> {
        let is_known = request.tag != SourceTag::default() && request.resume != Resume::Never;
        let length = self.length.filter(|bytes| *bytes >= JOURNALED_BYTES_MIN)?;
        (is_known && self.compares).then(|| Record {
            tag: request.tag,
            length,
            digest: request.digest,
            hidden: self.hidden.clone(),
            parts: Vec::new(),
            states: Vec::new(),
        })
    }

    /// The journal of what has this name, which is made if it `creates` one.
    fn journal(&self, creates: bool) -> Option<(Journal, Option<Record>)> {
        let folder = self.store.uploads()?;
        let (server, user) = (self.store.server(), self.store.user());
        let key = [server.as_bytes(), user.as_bytes(), &self.path];
        Journal::open(folder, &key, creates)
    }

    /// Goes on with what an earlier attempt has stored, as far as the server has it, or removes it.
    /// Returns what that is.
    fn go_on(&mut self, request: &SinkRequest) -> Result<Vec<Fragment>, Fault> {
        let record = self.first_record(request);
        let Some((journal, mut earlier)) = self.journal(record.is_some()) else {
            return Ok(Vec::new());
        };
        let parallelism = self.store.parallelism(self.length);
        let mut link = self.store.take(Some((Direction::Send, parallelism)))?;
        let is_extended = self.store.mode(&link, Direction::Send) == Mode::Extended;
        let kind = link.features.checksum();
        // Elsewhere bytes of an earlier session could still come after the comparison.
        let kind = kind.filter(|_| is_extended && link.features.exclusive);
        let record = record.filter(|_| kind.is_some());
        let version = |of: &Record| (of.tag, of.length, of.digest);
        let is_it = |of: &mut Record| record.as_ref().map(version) == Some(version(of));
        let is_of_use = |of: &mut Record| of.bytes() > 0 && Begun::is_sound(of) && is_it(of);
        if let Some(same) = earlier.take_if(is_of_use) {
            match self.restart(&mut link, parallelism, &same) {
                Ok(outgoing) => {
                    self.hidden.clone_from(&same.hidden);
                    self.position = same.bytes();
                    self.hasher = kind.map(|kind| (kind, Hasher::new(kind)));
                    self.transfer = Some((link, outgoing));
                    self.has_begun = true;
                    let states = same.states.clone();
                    self.begun = Some(Begun::new(journal, same));
                    return Ok(states);
                }
                Err(fault) if !link.is_usable() => return Err(fault),
                // Its session is still there.
                Err(fault) if fault.code == Code::Busy && journal.is_recent() => {
                    self.store.give_back(link);
                    return Err(fault);
                }
                Err(fault) => {
                    tracing::info!(%fault, "an interrupted upload begins anew");
                    link.close_channels();
                    earlier = Some(same);
                }
            }
        }
        if let Some(left) = earlier {
            self.retire(&mut link, &left.hidden);
        }
        if link.is_usable() {
            self.store.give_back(link);
        }
        match record {
            Some(record) => self.begun = Some(Begun::new(journal, record)),
            None => journal.remove(),
        }
        Ok(Vec::new())
    }

    /// Removes what an earlier attempt has left, as far as the server does.
    fn retire(&self, link: &mut Link, hidden: &[u8]) {
        let removed = link.exchange("DELE", hidden);
        let is_removed = removed.is_ok_and(|reply| matches!(reply.code, 200..300));
        let is_extended = self.store.mode(link, Direction::Send) == Mode::Extended;
        if is_removed || !link.is_usable() || !is_extended || !link.features.exclusive {
            return;
        }
        // A server of xDFS hides it under a name of its own, and removes it when another attempt
        // begins. Of that one nothing stays.
        let operation = "remove what an earlier attempt has left";
        let prepared = link.prepare(Direction::Send, Mode::Extended, 1);
        let asked = prepared.and_then(|()| link.command("STOR", hidden));
        let begun = asked.and_then(|()| Outgoing::begin(operation, &self.path, link));
        match begun {
            Ok(_) => drop(link.abort(None)),
            Err(fault) => tracing::debug!(%fault, "the beginning of a file stays at the server"),
        }
        link.close_channels();
    }

    /// Begins to store behind the bytes that the server has.
    fn restart(
        &self,
        link: &mut Link,
        parallelism: u32,
        earlier: &Record,
    ) -> Result<Outgoing, Fault> {
        let (operation, held) = ("go on with an upload", earlier.bytes());
        link.prepare(Direction::Send, Mode::Extended, parallelism)?;
        let reply = link.exchange("REST", format!("0-{held}").as_bytes())?;
        if reply.code != 350 {
            return Err(refused(operation, &self.path, &reply));
        }
        link.command("STOR", &earlier.hidden)?;
        Ok(Outgoing::begin(operation, &self.path, link)?.behind(held))
    }

    /// Begins to store.
    fn begin(&mut self) -> Result<(Link, Outgoing), Fault> {
        let parallelism = self.store.parallelism(self.length);
        let mut link = match self.reserved.take() {
            Some(link) => self.store.renewed(link)?,
            None => self.store.take(Some((Direction::Send, parallelism)))?,
        };
        let mode = self.store.mode_of(&link, Direction::Send, parallelism);
        link.prepare(Direction::Send, mode, parallelism)?;
        // Whoever comes after a killed program has to know the name.
        if let Some(Err(error)) = self.begun.as_mut().map(Begun::write) {
            tracing::debug!(%error, "an upload has no journal");
            self.begun = None;
        }
        link.command("STOR", &self.hidden)?;
        self.has_begun = true;
        let outgoing = match Outgoing::begin("store", &self.path, &mut link) {
            Ok(outgoing) => outgoing,
            Err(fault) => return Err(self.failed(link, fault)),
        };
        let kind = link.features.checksum().filter(|_| self.compares);
        self.hasher = kind.map(|kind| (kind, Hasher::new(kind)));
        Ok((link, outgoing))
    }

    /// Ends the transfer, and leaves or removes what the server has of it.
    fn abandon(&mut self, end: impl FnOnce(&mut Self, Option<&mut Link>)) {
        let begun = self.transfer.take().map(|(link, _)| link);
        let mut link = begun.or_else(|| self.reserved.take());
        end(self, link.as_mut());
        if let Some(mut link) = link
            && link.is_usable()
        {
            self.store.give_back(link);
        }
    }

    /// Leaves the hidden file for the next attempt if that can go on with it; else removes it.
    fn leave(&mut self, link: Option<&mut Link>) {
        if self.begun.take_if(|begun| begun.has_part()).is_none() {
            return self.remove_hidden(link);
        }
        self.has_begun = false;
        if let Some(link) = link {
            link.abort(None);
        }
        tracing::info!(
            "the beginning of '{}' stays at the server, for the same command: it is hidden there, \
             where 'xdfs partial' shows it",
            self.path.escape_ascii(),
        );
    }

    /// Removes the hidden file over this connection, or another one, or later; or leaves its name
    /// to the next attempt.
    fn remove_hidden(&mut self, link: Option<&mut Link>) {
        let was_there = std::mem::take(&mut self.has_begun);
        let begun = self.begun.take();
        let is_removed = !was_there || link.is_some_and(|link| link.abandon(&self.hidden));
        match begun {
            Some(begun) if is_removed => begun.end(),
            Some(begun) => begun.forget(),
            None if is_removed => {}
            None => self.store.remove_later(self.hidden.clone()),
        }
    }

    /// Sends bytes that follow those before.
    fn write(&mut self, bufs: &[IoSlice<'_>]) -> Result<(), Fault> {
        let (mut link, mut outgoing) = match self.transfer.take() {
            Some(begun) => begun,
            None => self.begin()?,
        };
        for buf in bufs {
            match (&mut self.hasher, &mut self.begun) {
                (Some((_, hasher)), Some(begun)) => begun.hash(buf, hasher),
                (Some((_, hasher)), None) => hasher.update(buf),
                (None, _) => {}
            }
            if let Err(fault) = outgoing.write(&mut link, buf) {
                return Err(self.failed(link, fault));
            }
            self.position += buf.len() as u64;
        }
        if let (Some(begun), Some((kind, _))) = (&mut self.begun, &self.hasher) {
            let end = match outgoing.stored(&mut link, begun.start()) {
                Ok(end) => end.unwrap_or(0),
                Err(fault) => return Err(self.failed(link, fault)),
            };
            if let Err(error) = begun.stored(end, *kind) {
                tracing::debug!(%error, "the journal of an upload ends");
                self.begun = None;
            }
        }
        self.transfer = Some((link, outgoing));
        Ok(())
    }

    /// Ends a transfer that has failed.
    fn failed(&mut self, mut link: Link, fault: Fault) -> Fault {
        self.leave(Some(&mut link));
        if link.is_usable() {
            self.store.give_back(link);
        }
        fault
    }

    /// Compares the checksums of all bytes. Returns `false` if the server computes none.
    fn compare(&mut self, link: &mut Link, length: u64) -> Result<bool, Fault> {
        let hidden = &self.hidden;
        let start = self.begun.as_ref().map_or(0, Begun::start);
        let mut is_compared = match self.hasher.take() {
            // Nothing was left to send.
            Some(_) if start > 0 && start == length => true,
            Some((kind, hasher)) => {
                let (extent, own) = (format!("{start} -1"), hasher.finish());
                checksum(link, hidden, kind, &extent, length - start, &own)?
            }
            None => false,
        };
        for part in self.begun.iter().flat_map(Begun::earlier) {
            let extent = format!("{} {}", part.range.start, part.range.len());
            let bytes = part.range.len();
            is_compared &= checksum(link, hidden, part.kind, &extent, bytes, &part.checksum)?;
        }
        Ok(is_compared)
    }

    /// The fault of an upload that went on with what is of no use.
    fn useless(&self, cause: String) -> Fault {
        let cause = format!("what an earlier attempt has stored is of no use: {cause}");
        Fault::new(Code::IntegrityMismatch, "compare checksums", cause)
            .path(&self.path)
            .retry(Retry::Now)
            .hint("it is removed; the next attempt begins anew")
    }

    /// Compares the hidden file, and gives it its time, its mode and its name.
    fn settle(&mut self, link: &mut Link, length: u64) -> Result<(), Fault> {
        let start = self.begun.as_ref().map_or(0, Begun::start);
        let compared = self.compare(link, length);
        let is_compared = match compared {
            Ok(false) if start > 0 => {
                Err(self.useless("the server computes no checksum of it".to_owned()))
            }
            // A refusal; it would be the same the next time.
            Err(fault) if start > 0 && link.is_usable() => Err(self.useless(fault.cause)),
            compared => compared,
        }?;
        let (hidden, path) = (&self.hidden, &self.path);
        if start > 0 || !is_compared {
            same_size(path, length, &FtpStore::look(link, hidden)?)?;
        }
        set_metadata(link, hidden, self.mtime_ns, self.mode)?;
        // Another one may have come meanwhile. The protocol can't tell "only if it is free".
        if !self.overwrite && FtpStore::find(link, path)?.is_some() {
            return Err(exists("publish", path));
        }
        match self.overwrite {
            true => rename_over(link, hidden, path),
            false => rename(link, hidden, path),
        }
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

/// Sets the time of modification. Returns whether the server has done so.
///
/// # Errors
/// It offers to set times and fails, or the connection is broken.
pub(super) fn set_time(link: &mut Link, path: &[u8], mtime_ns: i64) -> Result<bool, Fault> {
    match AskedTime::ask(link, path, Some(mtime_ns))? {
        Some(asked) => asked.settle(link, path),
        None => Ok(false),
    }
}

/// A command that sets a time, without its reply.
pub(super) struct AskedTime(&'static str);

impl AskedTime {
    /// Queues the command, if there is a time and the server may have the command.
    ///
    /// # Errors
    /// The path can't be sent.
    pub(super) fn ask(
        link: &mut Link,
        path: &[u8],
        mtime_ns: Option<i64>,
    ) -> Result<Option<Self>, Fault> {
        let (Some(verb), Some(time)) = (link.features.sets_times_by(), mtime_ns) else {
            return Ok(None);
        };
        let argument = [format_time(time).as_bytes(), b" ", path].concat();
        link.command(verb, &argument)?;
        Ok(Some(Self(verb)))
    }

    /// Waits for the reply, which is the oldest one. Returns whether the time is set.
    ///
    /// # Errors
    /// As [`set_time`].
    pub(super) fn settle(self, link: &mut Link, path: &[u8]) -> Result<bool, Fault> {
        let reply = link.reply("set the time")?;
        let is_done = matches!(reply.code, 200..300);
        if self.0 == "MFMT" {
            return match reply.code {
                300.. => Err(refused("set the time", path, &reply)),
                _ => Ok(true),
            };
        }
        // A time is that of a file with such a name.
        let text = reply.lines.first().map(|line| line.trim_ascii());
        let is_query = text.is_some_and(|text| parse_time(text).is_some());
        if !is_done || is_query {
            tracing::debug!(?reply, "the server sets no times by MDTM");
        }
        Ok(is_done && !is_query)
    }
}

/// Commands that set time and mode, without their replies.
pub(super) struct AskedMetadata {
    mode: bool,
    time: Option<AskedTime>,
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
        Ok(Self {
            mode: mode.is_some(),
            time: AskedTime::ask(link, path, mtime_ns)?,
        })
    }

    /// Waits for the replies, which are the oldest ones.
    ///
    /// # Errors
    /// As [`set_metadata`].
    pub(super) fn settle(self, link: &mut Link, path: &[u8]) -> Result<(), Fault> {
        if self.mode {
            let reply = link.reply("set the permissions of")?;
            if reply.code >= 300 {
                tracing::debug!(?reply, "the server sets no permissions");
            }
        }
        match self.time {
            Some(asked) => asked.settle(link, path).map(drop),
            None => Ok(()),
        }
    }
}

const RENAME: &str = "rename";

/// Renames. At most servers that replaces what has the new name.
///
/// # Errors
/// The server refuses.
pub(super) fn rename(link: &mut Link, from: &[u8], to: &[u8]) -> Result<(), Fault> {
    link.command("RNFR", from)?;
    link.command("RNTO", to)?;
    let (first, second) = (link.reply(RENAME)?, link.reply(RENAME)?);
    match (first.code, second.code) {
        (300..400, 200..300) => Ok(()),
        (300..400, _) => Err(refused(RENAME, to, &second)),
        _ => Err(refused(RENAME, from, &first)),
    }
}

/// Renames, and replaces the file that has the new name, also at servers that refuse to: there that
/// file gets a hidden name for so long, and its name back if the other one can't have it.
///
/// # Errors
/// The server refuses.
pub(super) fn rename_over(link: &mut Link, from: &[u8], to: &[u8]) -> Result<(), Fault> {
    match rename(link, from, to) {
        Err(fault) if link.is_usable() => replace(link, from, to, fault),
        renamed => renamed,
    }
}

/// The second part of [`rename_over`], after a refusal.
///
/// # Errors
/// The same refusal, if it has another reason than the file there; or that of what is tried.
pub(super) fn replace(
    link: &mut Link,
    from: &[u8],
    to: &[u8],
    refusal: Fault,
) -> Result<(), Fault> {
    let is_replaceable = match FtpStore::find(link, to) {
        Ok(found) => found.is_some_and(|found| found.kind != FileKind::Directory),
        Err(fault) if !link.is_usable() => return Err(fault),
        Err(_) => false,
    };
    if !is_replaceable {
        return Err(refusal);
    }
    let earlier = hidden(to)?;
    if let Err(fault) = rename(link, to, &earlier) {
        tracing::debug!(%fault, "what has the name can't get another one");
        return Err(if link.is_usable() { refusal } else { fault });
    }
    let left = |fault: Fault| {
        let earlier = earlier.escape_ascii();
        fault.hint(format!(
            "the earlier file is '{earlier}' at the server: rename it"
        ))
    };
    let renamed = rename(link, from, to);
    if let Err(fault) = renamed {
        let is_back = link.is_usable() && rename(link, &earlier, to).is_ok();
        return Err(if is_back { fault } else { left(fault) });
    }
    let removed = link.exchange("DELE", &earlier).map_err(left)?;
    if !matches!(removed.code, 200..300) {
        let fault = left(refused("remove the earlier file", to, &removed));
        tracing::warn!(%fault, "a file is replaced, and its earlier version stays");
    }
    Ok(())
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
        match &published {
            Ok(()) => {
                self.has_begun = false;
                if let Some(begun) = self.begun.take() {
                    begun.end();
                }
            }
            Err(fault) => match fault.code {
                Code::AlreadyExists | Code::IntegrityMismatch => {
                    self.remove_hidden(Some(&mut link));
                }
                _ => self.leave(Some(&mut link)),
            },
        }
        if link.is_usable() {
            self.store.give_back(link);
        }
        published.map_err(|fault| fault.preventing(&self.path))
    }

    fn discard(&mut self) -> Result<(), Fault> {
        self.abandon(Self::remove_hidden);
        Ok(())
    }

    xdfs_store::defaults!(Sink: begin_direct, end_direct, hole, begin_write_back, verify, read_back,
        shared);
}

impl Drop for FtpSink {
    fn drop(&mut self) {
        self.abandon(Self::leave);
    }
}
