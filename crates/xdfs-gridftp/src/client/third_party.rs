//! Files that go straight from one server to another, while this machine has only the two control
//! connections (RFC 959, section 5.2).
//!
//! ```text
//!  sender  <---- PORT, RETR ----  this machine  ---- PASV, STOR, RNTO ---->  receiver
//!     '------------------------------ data ------------------------------------^
//! ```
//!
//! The receiver listens, and the sender connects to it. **The receiver tells the port, and never
//! the address**, which is that of its control connection, or one that the user has named for its
//! data nodes (`striping`): so no server can have another one connect to a third host. The file
//! gets a hidden name, is compared by checksums that both servers compute, and is then renamed, as
//! in an upload. The data is in clear, and neither server proves to the other who it is; with GSI
//! both act for the user, prove so, and protect the data.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use xdfs_proto::digest::DigestKind;
use xdfs_proto::frame::Resume;
use xdfs_proto::{Code, Fault, Machine, Retry, SourceTag};
use xdfs_store::place::{Copied, DirectRequest, Directly};
use xdfs_store::{SinkRequest, check_cancelled};

use super::channel::Mode;
use super::dialogue::Event;
use super::fault::{refused, violation};
use super::features::name_of;
use super::link::{Link, STALL};
use super::listed::Listed;
use super::markers::Markers;
use super::missing;
use super::pool::{FtpStore, exists};
use super::sink::{AskedMetadata, hidden, rename, rename_over, same_size};
use super::source::{checksum_time, same_checksum};
use super::store::readable;
use super::striping::connect_to;
use crate::checksum::Algorithm;
use crate::reply::Reply;
use crate::restart::format_ranges;

/// Time in which the first byte has to come: the sender may wait long for a connection that a
/// firewall swallows.
const BEGIN: Duration = Duration::from_secs(30);
/// Bytes of a file in stream mode, which has no markers, that are given a second.
const UNSEEN_BYTES_PER_S: u64 = 128 << 10;
/// Time for the other server to say why a transfer has failed.
const EXPLAIN: Duration = Duration::from_secs(1);
/// Time for the servers to come back after a break, for a transfer that can go on.
const COME_BACK: Duration = Duration::from_secs(10);
/// Pause before another look at servers that were lost.
const PAUSE: Duration = Duration::from_millis(500);

/// Is told how many bytes have come of how many.
type Moved<'a> = dyn FnMut(u64, u64) + 'a;

/// Why a transfer has ended.
enum Stop {
    /// The servers can't connect to each other; they may not, unless that is certain.
    Impossible {
        why: Fault,
        is_certain: bool,
    },
    Failed(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// The control connections of a sender and a receiver. In MODE E the data connections between them
/// stay open for the next file.
#[derive(Debug)]
pub(super) struct Pair {
    /// The receiver.
    target: FtpStore,
    receiver_name: String,
    sender_name: String,
    sender: Link,
    receiver: Link,
    mode: Option<Mode>,
    parallelism: Option<u32>,
    is_open: bool,
}

/// A file on its way.
struct Copy {
    from: Vec<u8>,
    path: Vec<u8>,
    hidden: Vec<u8>,
    overwrite: bool,
    listed: Listed,
    kind: Option<Algorithm>,
    mode: Mode,
    parallelism: u32,
    markers: Markers,
    /// The hidden file may be there.
    has_begun: bool,
    /// Only a part was sent after a break: the rest may be gone with the receiver.
    is_resumed: bool,
    /// The sender sends the rest of a file as it should.
    begins_anywhere: bool,
}

/// Says at which server a fault happened.
fn at(server: &str, fault: Fault) -> Fault {
    fault.remote().at(&Machine::server(server))
}

impl FtpStore {
    /// Has `source` send a file straight to this server. Tells `moved` how many bytes have come, as
    /// far as the servers say so, and how many there are.
    ///
    /// # Errors
    /// A server refuses the file, or is lost; a broken transfer goes on where it was if both
    /// servers are there again within 10 seconds, and their markers say where that is.
    pub(super) fn receive(
        &self,
        source: &Self,
        request: &DirectRequest,
        moved: &mut Moved<'_>,
    ) -> Result<Directly, Fault> {
        if let Some(why) = source.cannot_reach(self) {
            let is_certain = true;
            return Ok(Directly::Impossible { why, is_certain });
        }
        let mut pair = Pair::take(source, self)?;
        let mut copy = match Copy::plan(&mut pair, source, request) {
            Ok(copy) => copy,
            Err(fault) => {
                pair.give_back(source);
                return Err(fault);
            }
        };
        moved(0, copy.length());
        let mut kept = 0;
        let mut deadline = Instant::now();
        loop {
            let stop = match pair.transfer(&mut copy, moved) {
                Ok(()) => break,
                Err(stop) => stop,
            };
            let resumes = matches!(&stop, Stop::Failed(fault) if copy.can_resume(fault));
            let is_usable = pair.abort(&mut copy, resumes);
            if let Stop::Failed(_) = &stop
                && resumes
            {
                copy.markers.restart();
                if copy.markers.bytes() > kept {
                    deadline = Instant::now() + COME_BACK;
                }
                kept = copy.markers.bytes();
                if let Some(again) = copy.reconnect(source, self, deadline) {
                    pair = again;
                    continue;
                }
            }
            copy.remove(self);
            if is_usable {
                pair.give_back(source);
            }
            return match stop {
                Stop::Impossible { why, is_certain } => {
                    let is_certain = source.note_unreachable(self, &why, is_certain);
                    tracing::debug!(%why, is_certain, "a file can't go straight");
                    Ok(Directly::Impossible { why, is_certain })
                }
                Stop::Failed(fault) => Err(fault.preventing(&copy.path)),
            };
        }
        let settled = pair.settle(&copy);
        match settled {
            Ok(()) => copy.has_begun = false,
            Err(_) if copy.has_begun && pair.receiver.abort(Some(&copy.hidden)) => {
                copy.has_begun = false;
            }
            Err(_) => copy.remove(self),
        }
        pair.give_back(source);
        settled.map_err(|fault| fault.preventing(&copy.path))?;
        source.note_reached();
        Ok(Directly::Copied(Copied {
            bytes: copy.length(),
            kept_bytes: kept,
            path: copy.path,
            channels: match copy.mode {
                Mode::Extended => copy.parallelism,
                _ => 1,
            },
        }))
    }
}

impl Copy {
    /// Looks at both ends.
    fn plan(pair: &mut Pair, source: &FtpStore, request: &DirectRequest) -> Result<Self, Fault> {
        let (sender, receiver) = (&mut pair.sender, &mut pair.receiver);
        let kind = sender.features.checksum_with(&receiver.features);
        let kind = kind.filter(|_| request.compares);
        let from = FtpStore::resolve(sender, &request.from);
        let listed = readable(sender, &from, kind.is_some());
        let listed = listed.map_err(|fault| at(&pair.sender_name, fault))?;
        let found = &listed.attributes;
        let wanted = SinkRequest {
            path: request.path.clone(),
            name: request.name.clone(),
            length: Some(found.size),
            offset: 0,
            tag: SourceTag::default(),
            mode: None,
            mtime_ns: None,
            digest: DigestKind::None,
            block_size: 0,
            overwrite: request.overwrite,
            resume: Resume::Never,
            sparse: false,
        };
        let path = FtpStore::target(receiver, &wanted);
        let path = path.map_err(|fault| match fault.code {
            Code::AlreadyExists => fault,
            _ => at(&pair.receiver_name, fault),
        })?;
        let mode = match sender.features.extended && receiver.features.extended {
            true => Mode::Extended,
            false => Mode::Stream,
        };
        Ok(Self {
            parallelism: source.parallelism_between(Some(found.size)),
            from,
            hidden: hidden(&path)?,
            path,
            overwrite: request.overwrite,
            listed,
            kind,
            mode,
            markers: Markers::default(),
            has_begun: false,
            is_resumed: false,
            begins_anywhere: sender.begins_anywhere(),
        })
    }

    fn length(&self) -> u64 {
        self.listed.attributes.size
    }

    /// Whether another attempt can go on with what is stored: only if the whole is compared in the
    /// end, since a receiver that comes back may have lost what it told of.
    fn can_resume(&self, fault: &Fault) -> bool {
        let may_pass = matches!(
            fault.code,
            Code::ConnectionLost | Code::ConnectionRefused | Code::DeadlineExceeded | Code::Busy
        );
        may_pass
            && self.begins_anywhere
            && self.kind.is_some()
            && !self.markers.stored().is_empty()
            && check_cancelled().is_ok()
    }

    /// New connections, if both servers can be reached again and the source is still the same.
    fn reconnect(&self, source: &FtpStore, target: &FtpStore, deadline: Instant) -> Option<Pair> {
        while Instant::now() < deadline && check_cancelled().is_ok() {
            std::thread::sleep(PAUSE);
            let Ok(mut pair) = Pair::take(source, target) else {
                continue;
            };
            return match pair.same_source(self) {
                Ok(()) => Some(pair),
                Err(fault) => {
                    tracing::debug!(%fault, "a broken transfer can't go on");
                    None
                }
            };
        }
        None
    }

    /// Has the hidden file removed over another connection.
    fn remove(&mut self, target: &FtpStore) {
        if std::mem::take(&mut self.has_begun) {
            target.remove_later(self.hidden.clone());
        }
    }
}

impl Pair {
    /// Connections to both servers: those of an earlier file, or new ones.
    fn take(source: &FtpStore, target: &FtpStore) -> Result<Self, Fault> {
        while let Some(mut pair) = source.take_pair(target) {
            if pair.sender.is_usable() && pair.receiver.is_usable() {
                return Ok(pair);
            }
        }
        let take = |store: &FtpStore| {
            let mut link = store
                .take(None)
                .map_err(|fault| at(&store.server(), fault))?;
            link.close_channels();
            Ok(link)
        };
        Ok(Self {
            sender: take(source)?,
            receiver: take(target)?,
            target: target.clone(),
            receiver_name: target.server(),
            sender_name: source.server(),
            mode: None,
            parallelism: None,
            is_open: false,
        })
    }

    /// The receiver.
    pub(super) fn target(&self) -> &FtpStore {
        &self.target
    }

    fn give_back(self, source: &FtpStore) {
        source.give_back_pair(self);
    }

    /// Has the data connections of a transfer opened, or takes those of the last one.
    fn connect(&mut self, copy: &Copy) -> Result<(), Stop> {
        let operation = "prepare a transfer between servers";
        let must = |link: &mut Link, name: &str, verb, argument: &[u8]| {
            let reply = link.exchange(verb, argument);
            let reply = reply.map_err(|fault| at(name, fault))?;
            match reply.code {
                200..300 => Ok(()),
                _ => {
                    let fault = refused(operation, b"", &reply);
                    let why = at(name, fault);
                    Err(Stop::Impossible {
                        why,
                        is_certain: true,
                    })
                }
            }
        };
        if self.mode != Some(copy.mode) {
            self.is_open = false;
            self.mode = None;
            let name: &[u8] = match copy.mode {
                Mode::Extended => b"E",
                _ => b"S",
            };
            must(&mut self.sender, &self.sender_name, "MODE", name)?;
            must(&mut self.receiver, &self.receiver_name, "MODE", name)?;
            self.mode = Some(copy.mode);
        }
        if copy.mode == Mode::Extended && self.parallelism != Some(copy.parallelism) {
            self.is_open = false;
            let options = self.sender.send_options(copy.parallelism);
            must(
                &mut self.sender,
                &self.sender_name,
                "OPTS",
                options.as_bytes(),
            )?;
            self.parallelism = Some(copy.parallelism);
        }
        if self.is_open {
            return Ok(());
        }
        let addresses = self.receiver.passive_addresses();
        let addresses = addresses.map_err(|fault| at(&self.receiver_name, fault))?;
        let mut here = addresses.iter().map(|address| address.ip());
        if let Some(here) = here.find(IpAddr::is_loopback)
            && !self.sender.peer.is_loopback()
        {
            let cause = format!("the receiver is at {here}, where the sender would find itself");
            let fault = Fault::new(Code::Unsupported, operation, cause);
            let why = at(&self.sender_name, fault);
            return Err(Stop::Impossible {
                why,
                is_certain: true,
            });
        }
        let (verb, text) = connect_to(&addresses);
        must(&mut self.sender, &self.sender_name, verb, text.as_bytes())?;
        self.is_open = copy.mode == Mode::Extended;
        Ok(())
    }

    /// Has the file sent, once more over new data connections if those of an earlier file turn out
    /// to be gone.
    fn transfer(&mut self, copy: &mut Copy, moved: &mut Moved<'_>) -> Result<(), Stop> {
        let was_open = self.is_open;
        let first = self
            .connect(copy)
            .and_then(|()| self.send_file(copy, moved));
        match first {
            Err(Stop::Impossible { .. }) if was_open && self.abort(copy, false) => {
                self.connect(copy)?;
                self.send_file(copy, moved)
            }
            ended => ended,
        }
    }

    fn send_file(&mut self, copy: &mut Copy, moved: &mut Moved<'_>) -> Result<(), Stop> {
        let ranges = format_ranges(copy.markers.stored());
        if !ranges.is_empty() {
            for (link, name) in [
                (&mut self.sender, &self.sender_name),
                (&mut self.receiver, &self.receiver_name),
            ] {
                let reply = link.exchange("REST", ranges.as_bytes());
                let reply = reply.map_err(|fault| at(name, fault))?;
                if reply.code != 350 {
                    copy.markers.forget();
                    let fault = refused("go on with a transfer", &copy.from, &reply);
                    // From the beginning it may work.
                    return Err(at(name, fault).retry(Retry::Now).into());
                }
            }
            copy.is_resumed = true;
        }
        self.receiver.command("STOR", &copy.hidden)?;
        copy.has_begun = true;
        self.receiver.flush()?;
        self.sender.command("RETR", &copy.from)?;
        self.sender.flush()?;
        Watch::new(copy).follow(self, copy, moved)
    }

    /// Ends what is under way at both servers, and removes what has come, unless it `stays`.
    /// Returns whether the connections can be used again.
    fn abort(&mut self, copy: &mut Copy, stays: bool) -> bool {
        self.is_open = false;
        let sender = self.sender.abort(None);
        let path = (copy.has_begun && !stays).then_some(copy.hidden.as_slice());
        let receiver = self.receiver.abort(path);
        if receiver && !stays {
            copy.has_begun = false;
        }
        sender && receiver
    }

    /// Whether the source is still the same.
    fn same_source(&mut self, copy: &Copy) -> Result<(), Fault> {
        let found = FtpStore::look(&mut self.sender, &copy.from);
        self.check_source(copy, found)
    }

    fn check_source(&self, copy: &Copy, found: Result<Listed, Fault>) -> Result<(), Fault> {
        let found = found.map_err(|fault| at(&self.sender_name, fault))?;
        let version = |listed: &Listed| (listed.attributes.size, listed.attributes.mtime_ns);
        if version(&found) == version(&copy.listed) {
            return Ok(());
        }
        let cause = "its size or its time has changed meanwhile";
        let fault = Fault::new(Code::SourceChanged, "verify the source", cause);
        Err(at(&self.sender_name, fault)
            .path(&copy.from)
            .retry(Retry::Now))
    }

    /// Whether both servers tell the same checksum, for which they were asked; `false` if one of
    /// them computes none.
    fn same_content(&mut self, copy: &Copy, kind: Algorithm) -> Result<bool, Fault> {
        let operation = "compute the checksum of";
        let time = checksum_time(copy.length());
        let sent = self.sender.reply_within(operation, time);
        let sent = sent.map_err(|fault| at(&self.sender_name, fault))?;
        let stored = self.receiver.reply_within(operation, time);
        let stored = stored.map_err(|fault| at(&self.receiver_name, fault))?;
        let digits = match (sent.code, sent.lines.first()) {
            (213, Some(line)) if !kind.is_checksum(line.trim_ascii()) => {
                let cause = format!(
                    "'{}' is no checksum of kind {}",
                    line.escape_ascii(),
                    name_of(kind)
                );
                return Err(at(&self.sender_name, violation(operation, cause)));
            }
            (213, Some(line)) => String::from_utf8_lossy(line.trim_ascii()).to_ascii_lowercase(),
            (500..=504, _) => return Ok(false),
            _ => return Err(at(&self.sender_name, refused(operation, &copy.from, &sent))),
        };
        let is_exposed = self.sender.features.is_exposed || self.receiver.features.is_exposed;
        same_checksum(&copy.path, name_of(kind), &digits, &stored, is_exposed)
            .map_err(|fault| at(&self.receiver_name, fault))
    }

    /// Compares the hidden file, and gives it its time, its mode and its name. What both servers
    /// are asked for doesn't wait for each other.
    fn settle(&mut self, copy: &Copy) -> Result<(), Fault> {
        let name = copy.kind.map(name_of);
        if let Some(name) = name {
            let argument = |path: &[u8]| [format!("{name} 0 -1 ").as_bytes(), path].concat();
            self.sender.command("CKSM", &argument(&copy.from))?;
            self.receiver.command("CKSM", &argument(&copy.hidden))?;
        }
        let tells_facts = [&self.sender, &self.receiver].map(|link| link.features.mlst);
        if tells_facts[0] {
            self.sender.command("MLST", &copy.from)?;
        }
        let found = &copy.listed.attributes;
        let time = found.mtime();
        let mode = Some(found.mode).filter(|_| copy.listed.has_mode);
        let metadata = AskedMetadata::ask(&mut self.receiver, &copy.hidden, time, mode)?;
        let asks_target = tells_facts[1] && !copy.overwrite;
        if asks_target {
            self.receiver.command("MLST", &copy.path)?;
        }
        self.sender.flush()?;
        self.receiver.flush()?;
        let is_compared = match copy.kind {
            Some(kind) => self.same_content(copy, kind)?,
            None => false,
        };
        if copy.is_resumed && !is_compared {
            let cause = "it was interrupted, and a server computes no checksum of the whole";
            let fault = Fault::new(Code::IntegrityMismatch, "compare checksums", cause);
            return Err(fault.path(&copy.path).retry(Retry::Now));
        }
        match tells_facts[0] {
            true => {
                let reply = self.sender.reply("look at the source");
                let found = reply.and_then(|reply| FtpStore::looked(&copy.from, &reply));
                self.check_source(copy, found)?;
            }
            false => self.same_source(copy)?,
        }
        let published = self.publish(copy, metadata, asks_target, is_compared);
        published.map_err(|fault| match fault.code {
            Code::AlreadyExists => fault,
            _ => at(&self.receiver_name, fault),
        })
    }

    fn publish(
        &mut self,
        copy: &Copy,
        metadata: AskedMetadata,
        asks_target: bool,
        is_compared: bool,
    ) -> Result<(), Fault> {
        let receiver = &mut self.receiver;
        metadata.settle(receiver, &copy.hidden)?;
        let target = match asks_target {
            true => Some(receiver.reply("look at the target")?),
            false => None,
        };
        if !is_compared {
            let stored = FtpStore::look(receiver, &copy.hidden)?;
            same_size(&copy.path, copy.length(), &stored)?;
        }
        // Another one may have come meanwhile. The protocol can't tell "only if it is free".
        let is_taken = match target {
            _ if copy.overwrite => false,
            Some(reply) => match FtpStore::looked(&copy.path, &reply) {
                Ok(_) => true,
                Err(fault) => {
                    let fault = missing::explain(receiver, &copy.path, &reply, fault);
                    match fault.code {
                        Code::NotFound => false,
                        _ => return Err(fault),
                    }
                }
            },
            None => FtpStore::find(receiver, &copy.path)?.is_some(),
        };
        match is_taken {
            true => Err(exists("publish", &copy.path)),
            false if copy.overwrite => rename_over(receiver, &copy.hidden, &copy.path),
            false => rename(receiver, &copy.hidden, &copy.path),
        }
    }
}

/// What both servers say about a transfer.
struct Watch {
    began: Instant,
    /// When more has come.
    moved: Instant,
    /// A byte has come for sure.
    has_moved: bool,
    /// The receiver takes the file.
    is_taken: bool,
    sent: Option<Reply>,
    stored: Option<Reply>,
    /// Time for more to come.
    patience: Duration,
}

impl Watch {
    fn new(copy: &Copy) -> Self {
        let unseen = Duration::from_secs(copy.length() / UNSEEN_BYTES_PER_S);
        Self {
            began: Instant::now(),
            moved: Instant::now(),
            has_moved: false,
            is_taken: false,
            sent: None,
            stored: None,
            patience: match copy.mode {
                Mode::Extended => STALL,
                _ => STALL + unseen,
            },
        }
    }

    /// Waits until both servers confirm the file.
    fn follow(
        mut self,
        pair: &mut Pair,
        copy: &mut Copy,
        moved: &mut Moved<'_>,
    ) -> Result<(), Stop> {
        let operation = "copy";
        loop {
            self.hear_receiver(pair, copy, moved)?;
            self.hear_sender(pair, copy)?;
            if let Some(stop) = self.refusal(pair, copy) {
                return Err(stop);
            }
            let (link, name) = match (&self.stored, &self.sent) {
                (Some(_), Some(_)) => return Ok(()),
                (None, _) => (&mut pair.receiver, &pair.receiver_name),
                (Some(_), None) => (&mut pair.sender, &pair.sender_name),
            };
            let has_ended = self.sent.is_some() || self.stored.is_some();
            let is_begun = self.has_moved || has_ended;
            let patience = match is_begun || copy.mode == Mode::Stream && self.is_taken {
                _ if has_ended => STALL,
                true => self.patience,
                false => BEGIN,
            };
            let deadline = self.moved + patience;
            if Instant::now() >= deadline {
                let cause = format!("nothing has come for {} s", patience.as_secs());
                let fault = Fault::new(Code::DeadlineExceeded, operation, cause);
                let fault = at(name, fault.path(&copy.from)).retry(Retry::Now);
                return Err(match is_begun {
                    true => Stop::Failed(fault),
                    false => Stop::Impossible {
                        why: fault,
                        is_certain: true,
                    },
                });
            }
            let turned = link.turn(operation, deadline);
            turned.map_err(|fault| at(name, fault))?;
        }
    }

    fn hear_receiver(
        &mut self,
        pair: &mut Pair,
        copy: &mut Copy,
        moved: &mut Moved<'_>,
    ) -> Result<(), Stop> {
        while self.stored.is_none() {
            let event = pair.receiver.event_now();
            match event.map_err(|fault| at(&pair.receiver_name, fault))? {
                None => return Ok(()),
                Some(Event::Preliminary(reply)) => {
                    if matches!(reply.code, 125 | 150) && !self.is_taken {
                        self.is_taken = true;
                        self.moved = Instant::now();
                    }
                    if copy.markers.take(&reply, copy.length()) {
                        self.has_moved = true;
                        self.moved = Instant::now();
                        moved(copy.markers.bytes().min(copy.length()), copy.length());
                    }
                }
                Some(Event::Final(reply)) => {
                    if reply.code < 300 && !self.is_taken {
                        let cause = format!("it confirms with {} what it hasn't got", reply.code);
                        let fault = violation("copy", cause);
                        return Err(at(&pair.receiver_name, fault).into());
                    }
                    self.moved = Instant::now();
                    self.stored = Some(reply);
                }
            }
        }
        Ok(())
    }

    fn hear_sender(&mut self, pair: &mut Pair, copy: &Copy) -> Result<(), Stop> {
        while self.sent.is_none() {
            let event = pair.sender.event_now();
            match event.map_err(|fault| at(&pair.sender_name, fault))? {
                None => break,
                Some(Event::Preliminary(_)) => {}
                Some(Event::Final(reply)) => {
                    tracing::trace!(?reply, path = %copy.from.escape_ascii(), "sent");
                    self.moved = Instant::now();
                    self.sent = Some(reply);
                }
            }
        }
        Ok(())
    }

    /// What the servers have refused so far.
    fn heard_refusal(&self, pair: &Pair, copy: &Copy) -> Option<Fault> {
        let fault = |name: &str, path: &[u8], reply: &Option<Reply>| {
            let reply = reply.as_ref().filter(|reply| reply.code >= 300)?;
            Some(at(name, refused("copy", path, reply)))
        };
        let stored = fault(&pair.receiver_name, &copy.path, &self.stored);
        let sent = fault(&pair.sender_name, &copy.from, &self.sent);
        match (stored, sent) {
            (Some(stored), Some(sent)) if stored.code == Code::ConnectionLost => Some(sent),
            (stored, sent) => stored.or(sent),
        }
    }

    /// What a refusal means, once the other server had time to say more.
    fn refusal(&mut self, pair: &mut Pair, copy: &mut Copy) -> Option<Stop> {
        let mut fault = self.heard_refusal(pair, copy)?;
        // That a connection broke says less than what the other server may say.
        let is_break =
            |fault: &Fault| matches!(fault.code, Code::ConnectionLost | Code::ConnectionRefused);
        let deadline = Instant::now() + EXPLAIN;
        while is_break(&fault)
            && Instant::now() < deadline
            && (self.sent.is_none() || self.stored.is_none())
        {
            let link = match self.stored {
                None => &mut pair.receiver,
                Some(_) => &mut pair.sender,
            };
            // A server that is gone says nothing about the way.
            let turned = link.turn("copy", deadline);
            let heard = self.hear_receiver(pair, copy, &mut |_, _| {});
            if let Err(stop) = heard.and_then(|()| self.hear_sender(pair, copy)) {
                return Some(stop);
            }
            fault = self.heard_refusal(pair, copy)?;
            if turned.is_err() {
                break;
            }
        }
        let may_be_the_way = matches!(
            fault.code,
            Code::ConnectionLost
                | Code::ConnectionRefused
                | Code::Unsupported
                | Code::Busy
                | Code::Io
        );
        // "Can't open data connection."
        let is_certain = |reply: &Reply| reply.code == 425;
        let is_early = !self.has_moved && self.began.elapsed() < BEGIN;
        let is_new = copy.markers.stored().is_empty();
        Some(match may_be_the_way && is_early && is_new {
            true => Stop::Impossible {
                is_certain: [&self.sent, &self.stored]
                    .into_iter()
                    .flatten()
                    .any(is_certain),
                why: fault,
            },
            false => Stop::Failed(fault),
        })
    }
}
