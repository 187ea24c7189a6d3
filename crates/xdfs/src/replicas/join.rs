//! Sessions with the sources of a set: each is opened in a thread of its own, since a source that
//! can't be reached must not keep the others waiting.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::group::MEMBERS_MAX;
use xdfs_proto::path::{Answer, Attributes, Call, FileKind, NO_TIME_NS};
use xdfs_proto::{ChecksumValue, Code, Fault, Retry};

use super::set::{ReplicaLog, ReplicaSet};
use super::version::FileVersion;
use crate::client::Client;
use crate::paths::last_part;
use crate::remote::RemotePlace;

/// Sources that are used at once. More would hardly be faster than the line of this side, and each
/// reads the whole file for its digests. The others take the places of those that are dropped.
const AT_ONCE: usize = 8;
/// The same of a group, whose members read only what they send.
const MEMBERS_AT_ONCE: usize = MEMBERS_MAX;
/// The time in which the other sources may follow the first one before the copy begins.
const FOLLOWING: Duration = Duration::from_secs(2);
/// The time after which a member that was dropped is tried again.
const AGAIN: Duration = Duration::from_secs(30);
const COMPARE: &str = "use the source";
/// The cause of faults after a panic, which the process reports itself.
pub(super) const BROKEN: &str = "internal error, please report it";
/// Bytes a second that a source reads at least for the digest of its whole file.
const DIGEST_RATE: u64 = 8 << 20;

/// The longest times that sources take for an answer. A session that lives on is no proof that one
/// will come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For facts about the file.
    pub(super) facts: Duration,
    /// For the digest of a whole file, beside the time for reading it.
    pub(super) digest: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            facts: Duration::from_secs(30),
            digest: Duration::from_secs(60),
        }
    }
}

/// Opens the session with a source.
pub(super) type Connect = dyn Fn(&RemotePlace) -> Result<Arc<Client>, Fault> + Send + Sync;

/// The sources of a set, with the open sessions.
#[derive(Clone)]
pub(super) struct Sources {
    pub(super) set: Arc<ReplicaSet>,
    pub(super) log: ReplicaLog,
    connect: Arc<Connect>,
    patience: Patience,
    /// They have the file, and are asked about it; otherwise they are to write it.
    has_file: bool,
    /// By number of the source.
    clients: Arc<Mutex<Vec<Option<Arc<Client>>>>>,
    /// Held while the session with a source is opened: several files need one session.
    opening: Arc<[Mutex<()>]>,
}

/// A source with a session.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    pub(super) number: usize,
    pub(super) client: Arc<Client>,
    pub(super) found: Attributes,
}

impl Sources {
    pub(super) fn new(
        set: Arc<ReplicaSet>,
        log: ReplicaLog,
        connect: Arc<Connect>,
        patience: Patience,
    ) -> Self {
        Self {
            clients: Arc::new(Mutex::new(vec![None; set.places.len()])),
            opening: set.places.iter().map(|_| Mutex::default()).collect(),
            set,
            log,
            connect,
            patience,
            has_file: true,
        }
    }

    /// The members of a group, for a file of theirs that is to be written.
    pub(super) fn writing(&self, path: &[u8]) -> Self {
        self.of_file(path, None, self.set.places.len())
    }

    /// The first `count` members of a group, for a file that they have in this version.
    pub(super) fn reading(&self, path: &[u8], version: FileVersion, count: usize) -> Self {
        self.of_file(path, Some(version), count)
    }

    fn of_file(&self, path: &[u8], version: Option<FileVersion>, count: usize) -> Self {
        let places = self.set.places.iter().take(count).map(|place| RemotePlace {
            path: path.to_vec(),
            ..place.clone()
        });
        let set = ReplicaSet {
            places: places.collect(),
            name: last_part(path),
            length: version.map(|version| version.size),
            digest: None,
            version,
        };
        Self {
            log: self.log.of_file(&set, AGAIN),
            set: Arc::new(set),
            has_file: version.is_some(),
            ..self.clone()
        }
    }

    /// Whether they are members of a group.
    fn are_members(&self) -> bool {
        self.set.version.is_some() || !self.has_file
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Option<Arc<Client>>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all sessions at once.
    pub(super) fn stop(&self) {
        let clients: Vec<_> = self.clients().iter_mut().map(Option::take).collect();
        // Without the lock.
        clients.iter().flatten().for_each(|client| client.stop());
    }

    /// The path of a source.
    pub(super) fn path(&self, number: usize) -> &[u8] {
        &self.set.places[number].path
    }

    /// A fault of a source, which names its server.
    pub(super) fn fault(&self, number: usize, code: Code, cause: impl Into<String>) -> Fault {
        let place = &self.set.places[number];
        let fault = Fault::new(code, COMPARE, cause).path(&place.path).remote();
        fault.at(&place.address.machine())
    }

    /// The open session with a source, or another one.
    pub(super) fn client(&self, number: usize) -> Result<Arc<Client>, Fault> {
        let opening = self.opening[number].lock();
        let _opening = opening.unwrap_or_else(PoisonError::into_inner);
        let open = self.clients()[number].clone();
        if let Some(client) = open.filter(|client| client.ended().is_none()) {
            return Ok(client);
        }
        let client = (self.connect)(&self.set.places[number])?;
        self.clients()[number] = Some(Arc::clone(&client));
        Ok(client)
    }

    /// Looks at a source, in the open session with it or in another one.
    pub(super) fn join(&self, number: usize) -> Result<Joined, Fault> {
        let place = &self.set.places[number];
        let client = self.client(number)?;
        if !self.has_file {
            let found = unknown();
            return Ok(Joined {
                number,
                client,
                found,
            });
        }
        let call = Call::Stat {
            path: place.path.clone(),
            follow: true,
        };
        let answer = client.start_call(call)?.wait_for(self.patience.facts);
        let Some(answer) = answer else {
            // Another attempt opens another session.
            client.stop();
            return Err(self.unanswered(number));
        };
        let Answer::Attributes(found) = answer? else {
            return Err(self.fault(number, Code::Internal, "another answer"));
        };
        match found.kind {
            FileKind::File => Ok(Joined {
                number,
                client,
                found,
            }),
            FileKind::Directory => Err(self.fault(number, Code::IsDirectory, "it is a directory")),
            _ => Err(self.fault(number, Code::Unsupported, "it is no file")),
        }
    }

    /// Checks the version of the file at a source, if one is known beforehand.
    pub(super) fn check_version(&self, number: usize, found: &Attributes) -> Result<(), Fault> {
        let version = self.set.version;
        if version.is_none() || FileVersion::of(found) == version {
            return Ok(());
        }
        let cause = "it has another version of the file, or another storage";
        Err(self.fault(number, Code::SourceChanged, cause))
    }

    /// The fault of a source that takes too long for an answer.
    fn unanswered(&self, number: usize) -> Fault {
        let fault = self.fault(number, Code::DeadlineExceeded, "it doesn't answer");
        fault.retry(Retry::Now)
    }

    /// Compares the digests of the sources with open sessions with one that is known beforehand,
    /// and drops those that have another one, or don't answer. They have to read all of the file,
    /// which has `length` bytes, for it.
    pub(super) fn settle(&self, digest: ChecksumValue, length: u64) {
        let clients = self.clients().clone();
        let open = clients.into_iter().enumerate();
        let open = open.filter_map(|(number, client)| Some((number, client?)));
        let asked = open.filter(|(number, _)| !self.log.is_dropped(*number));
        let asked = asked.map(|(number, client)| {
            let call = Call::Checksum {
                path: self.path(number).to_vec(),
                offset: 0,
                length: None,
                kind: digest.kind(),
            };
            (number, client.start_call(call), client)
        });
        // All of them at the same time.
        let asked: Vec<_> = asked.collect();
        let reading = Duration::from_secs(length / DIGEST_RATE);
        let patience = self.patience.digest.saturating_add(reading);
        let began = Instant::now();
        for (number, call, client) in asked {
            let Ok(mut call) = call else {
                // The session has ended.
                continue;
            };
            let Some(answer) = call.wait_for(patience.saturating_sub(began.elapsed())) else {
                // Before what follows from the end of its session.
                self.log.drop_source(number, &self.unanswered(number));
                client.stop();
                continue;
            };
            match answer {
                Ok(Answer::Digest { value, .. }) if value != digest => {
                    let cause = format!(
                        "its {} digest is not the one that is known beforehand",
                        digest.kind().as_str()
                    );
                    let fault = self.fault(number, Code::IntegrityMismatch, cause);
                    self.log.drop_source(number, &fault);
                }
                // Others can't be compared by it.
                _ => {}
            }
        }
    }

    /// The fault of a copy of which no source is left.
    pub(super) fn none_left(&self) -> Fault {
        let shares = self.log.shares();
        let dropped = || {
            let dropped = shares.iter();
            dropped.filter_map(|share| Some((&share.place, share.dropped.as_ref()?)))
        };
        let passing = dropped().find(|(_, fault)| fault.retry != Retry::Never);
        let count = shares.len();
        let Some((place, fault)) = passing.or_else(|| dropped().next()) else {
            let cause = format!("none of its {count} sources can be used");
            return Fault::new(Code::Internal, "copy", cause).path(&self.set.name);
        };
        let cause = format!(
            "none of its {count} sources can be used; {place}: {}",
            fault.cause
        );
        Fault::new(fault.code, "copy", cause)
            .path(&self.set.name)
            .retry(fault.retry)
            .hint(fault.hint.clone())
    }
}

/// The attributes of a file that isn't there yet.
fn unknown() -> Attributes {
    Attributes {
        kind: FileKind::File,
        size: 0,
        allocated: 0,
        mode: 0,
        uid: 0,
        gid: 0,
        links: 0,
        device: 0,
        inode: 0,
        atime_ns: NO_TIME_NS,
        mtime_ns: NO_TIME_NS,
        ctime_ns: NO_TIME_NS,
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources")
            .field("set", &self.set)
            .finish_non_exhaustive()
    }
}

/// The sources that are being joined, and those that may be.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) sources: Sources,
    /// The next one that wasn't tried.
    next: usize,
    under_way: usize,
    /// Members that were dropped, and when they are tried again.
    again: Vec<(usize, Instant)>,
    sender: Sender<(usize, Result<Joined, Fault>)>,
    joined: Receiver<(usize, Result<Joined, Fault>)>,
}

impl Joining {
    /// Begins with the first sources.
    pub(super) fn begin(sources: Sources) -> Self {
        let (sender, joined) = mpsc::channel();
        let mut joining = Self {
            sources,
            next: 0,
            under_way: 0,
            again: Vec::new(),
            sender,
            joined,
        };
        // Members that another file of theirs has dropped.
        for number in 0..joining.sources.set.places.len() {
            if joining.sources.log.is_dropped(number) {
                joining.try_again(number);
            }
        }
        let at_once = match joining.sources.are_members() {
            true => MEMBERS_AT_ONCE,
            false => AT_ONCE,
        };
        while joining.under_way < at_once && joining.start_next() {}
        joining
    }

    /// Starts to join the next source; `false` if there is none.
    pub(super) fn start_next(&mut self) -> bool {
        while self.next < self.sources.set.places.len() {
            let number = self.next;
            self.next += 1;
            if !self.sources.log.is_dropped(number) && self.start(number) {
                return true;
            }
        }
        false
    }

    /// Starts to join a source; `false` if that can't be done.
    fn start(&mut self, number: usize) -> bool {
        let (sources, sender) = (self.sources.clone(), self.sender.clone());
        let join = move || {
            // The session is opened by code of the caller, which may panic.
            let joined = catch_unwind(AssertUnwindSafe(|| sources.join(number)));
            let broken = |_| Err(sources.fault(number, Code::Internal, BROKEN));
            let joined = joined.unwrap_or_else(broken);
            // Nothing waits for one that comes after the end.
            let _ = sender.send((number, joined));
        };
        let thread = thread::Builder::new().name("xdfs-join".into()).spawn(join);
        if let Err(error) = thread {
            let fault = Fault::from_io("start a thread", "", &error);
            self.sources.log.drop_source(number, &fault);
            return false;
        }
        self.under_way += 1;
        true
    }

    /// Tries a member of a group again in a while, if what it was dropped for may pass: it may have
    /// been restarted.
    pub(super) fn try_again(&mut self, number: usize) {
        if self.sources.are_members() {
            self.again.push((number, Instant::now() + AGAIN));
        }
    }

    /// Whether a source may still come.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    fn take(&mut self, (number, joined): (usize, Result<Joined, Fault>)) -> Option<Joined> {
        self.under_way -= 1;
        match joined {
            Ok(joined) => Some(joined),
            Err(fault) => {
                self.sources.log.drop_source(number, &fault);
                self.try_again(number);
                self.start_next();
                None
            }
        }
    }

    /// A source that was joined meanwhile.
    pub(super) fn poll(&mut self) -> Option<Joined> {
        let now = Instant::now();
        let due: Vec<_> = self.again.extract_if(.., |(_, at)| *at <= now).collect();
        for (number, _) in due {
            if self.sources.log.take_back(number) {
                self.start(number);
            }
        }
        while let Ok(joined) = self.joined.try_recv() {
            if let Some(joined) = self.take(joined) {
                return Some(joined);
            }
        }
        None
    }

    /// Waits for the first sources, and for a while for the others, and drops those with another
    /// length. Returns them in the order of the set.
    ///
    /// # Errors
    /// None can be used.
    pub(super) fn wait(&mut self) -> Result<Vec<Joined>, Fault> {
        let mut joined: Vec<Joined> = Vec::new();
        let mut first = None;
        while self.under_way > 0 {
            let left = first.map(|first: Instant| FOLLOWING.saturating_sub(first.elapsed()));
            let next = match left {
                // Each ends by itself: sessions have deadlines.
                None => self
                    .joined
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(left) => self.joined.recv_timeout(left),
            };
            let Ok(next) = next else {
                break;
            };
            if let Some(source) = self.take(next) {
                joined.push(source);
                first.get_or_insert_with(Instant::now);
            }
        }
        joined.sort_by_key(|source| source.number);
        let length = self.length_of(&joined);
        let length = length.ok_or_else(|| self.sources.none_left())?;
        joined.retain(|source| self.has_same(source, length));
        match joined.is_empty() {
            true => Err(self.sources.none_left()),
            false => Ok(joined),
        }
    }

    /// The length of the file: the one that is known beforehand, or that most sources have, or of
    /// equally many the one that is named first.
    fn length_of(&self, joined: &[Joined]) -> Option<u64> {
        if self.sources.set.length.is_some() {
            return self.sources.set.length;
        }
        let count = |length: u64| joined.iter().filter(|own| own.found.size == length).count();
        let lengths = joined.iter().map(|source| source.found.size);
        // The last of equal ones would be taken.
        lengths.rev().max_by_key(|length| count(*length))
    }

    /// Drops a source with another length, or another version than the one that is known
    /// beforehand.
    pub(super) fn has_same(&self, source: &Joined, length: u64) -> bool {
        if let Err(fault) = self.sources.check_version(source.number, &source.found) {
            self.sources.log.drop_source(source.number, &fault);
            return false;
        }
        let size = source.found.size;
        if size != length {
            let cause = format!("it has {size} bytes, and the file has {length}");
            let code = Code::IntegrityMismatch;
            let fault = self.sources.fault(source.number, code, cause);
            self.sources.log.drop_source(source.number, &fault);
        }
        size == length
    }
}
