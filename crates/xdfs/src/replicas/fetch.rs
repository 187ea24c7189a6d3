//! The thread of a set: it takes ranges from all sources, compares their digests or their versions,
//! and passes on what is verified.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use xdfs_engine::TransferParameters;
use xdfs_proto::digest::{BlockHasher, DigestKind};
use xdfs_proto::path::{Answer, Call};
use xdfs_proto::{Code, Fault, FileId, Retry};
use xdfs_store::MemStore;

use super::agreement::{Agreement, Verdict};
use super::join::{Joined, Joining};
use super::pace::{Pace, SILENCE, SILENCE_OF_ALL};
use super::shared::{Shared, Wanted};
use super::window::{RANGES, Window};
use crate::client::Client;
use crate::paths::PendingCall;
use crate::skip::Skip;
use crate::transfer::{Transfer, TransferOptions};

/// Bytes of a block whose digests are compared. A copy that resumes compares what is at the target
/// by whole blocks, so it is the block that a gateway moves by default.
pub(super) const BLOCK_BYTES: u32 = 512 << 10;
const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks whose digests are asked for by one call, the first, which the beginning of the copy waits
/// for, and the largest, and calls under way at each source.
const SIGNED_BLOCKS: [u64; 2] = [2, 32];
const SIGNING_CALLS: usize = 2;
/// The longest time between two looks at everything.
const TICK: Duration = Duration::from_millis(100);
const RANGE_NAME: &[u8] = b"range";

/// Starts the thread for these sources, which have files of `length` bytes.
///
/// # Errors
/// It can't be started.
pub(super) fn start(
    joining: Joining,
    joined: Vec<Joined>,
    length: u64,
) -> Result<Arc<Shared>, Fault> {
    let shared = Arc::new(Shared::new(length));
    let mut fetch = Fetch {
        window: Window::new(length, joined.len()),
        joining,
        shared: Arc::clone(&shared),
        length,
        began: Instant::now(),
        sources: Vec::new(),
        agreement: Agreement::default(),
        block: 0,
        has_passed: false,
        settling: Settling::NotYet,
    };
    joined.into_iter().for_each(|source| fetch.add(source));
    let thread = thread::Builder::new()
        .name("xdfs-replicas".into())
        .spawn(move || fetch.run());
    let thread = thread.map_err(|error| Fault::from_io("start a thread", "", &error))?;
    shared.served_by(thread.thread().clone());
    // The first look may have been before the thread was known.
    thread.thread().unpark();
    Ok(shared)
}

/// Wakes the thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Whether a source computes digests of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Votes {
    Unknown,
    Yes,
    No,
}

/// The comparison with the digest that is known beforehand.
#[derive(Debug)]
enum Settling {
    NotYet,
    UnderWay(thread::JoinHandle<()>),
    Done,
}

/// A range on its way.
#[derive(Debug)]
struct Fetching {
    number: u64,
    store: MemStore,
    transfer: Transfer,
    /// Bytes that have arrived.
    bytes: u64,
    began: Instant,
}

/// A call for the digests of some blocks.
#[derive(Debug)]
struct Signing {
    first: u64,
    count: u64,
    call: PendingCall,
}

/// A source that is used.
#[derive(Debug)]
struct Source {
    number: usize,
    client: Arc<Client>,
    votes: Votes,
    /// It came before anything was passed on, so that all of that was compared with it too.
    is_from_start: bool,
    /// The first block whose digest is compared: those before were passed on before it came.
    votes_from: u64,
    /// The next block whose digest is asked for, and the blocks of that call.
    next_signed: u64,
    signed_at_once: u64,
    signing: Vec<Signing>,
    fetching: Vec<Fetching>,
    /// Ranges that came since it was asked for its version, if that is compared, and the question
    /// with those that came before it.
    unproved: Vec<u64>,
    proving: Option<(PendingCall, Vec<u64>)>,
    pace: Pace,
}

impl Source {
    fn is_idle(&self) -> bool {
        self.signing.is_empty() && self.fetching.is_empty() && self.proving.is_none()
    }

    /// Notes that something has arrived.
    fn note_heard(&mut self) {
        self.pace.silence.end(self.is_idle());
    }
}

struct Fetch {
    joining: Joining,
    shared: Arc<Shared>,
    length: u64,
    began: Instant,
    /// In the order of the set.
    sources: Vec<Source>,
    window: Window,
    agreement: Agreement,
    /// The first block that is wanted.
    block: u64,
    /// Something was passed on.
    has_passed: bool,
    settling: Settling,
}

impl Fetch {
    fn run(mut self) {
        let _guard = self.shared.guard();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        while let Some(wanted) = self.shared.wanted() {
            match self.turn(&wanted, &mut context) {
                // New work wakes the thread only after it has been polled.
                Ok(true) => {}
                Ok(false) => thread::park_timeout(TICK),
                Err(fault) => {
                    self.shared.fail(fault);
                    break;
                }
            }
        }
        for source in &self.sources {
            let under_way = source.fetching.iter();
            under_way.for_each(|fetching| fetching.transfer.cancel());
        }
    }

    /// Does what can be done now. Returns whether new work has begun.
    fn turn(&mut self, wanted: &Wanted, context: &mut Context<'_>) -> Result<bool, Fault> {
        while let Some(joined) = self.joining.poll() {
            if self.joining.has_same(&joined, self.length) {
                self.add(joined);
            } else {
                self.joining.start_next();
            }
        }
        for source in (0..self.sources.len()).rev() {
            if let Err(fault) = self.poll(source, context) {
                self.drop_source(source, &fault);
            }
        }
        self.drop_silent();
        self.settled();
        if self.sources.is_empty() && !self.joining.is_under_way() {
            return Err(self.joining.sources.none_left());
        }
        self.move_to(wanted);
        self.judge(wanted)?;
        Ok(self.assign(wanted))
    }

    fn add(&mut self, joined: Joined) {
        let source = Source {
            number: joined.number,
            client: joined.client,
            votes: Votes::Unknown,
            is_from_start: !self.has_passed,
            votes_from: match self.has_passed {
                true => self.block,
                false => 0,
            },
            next_signed: self.block,
            signed_at_once: SIGNED_BLOCKS[0],
            signing: Vec::new(),
            fetching: Vec::new(),
            unproved: Vec::new(),
            proving: None,
            pace: Pace::new(),
        };
        self.joining.sources.log.note_use(source.number);
        let at = self
            .sources
            .partition_point(|own| own.number < source.number);
        self.sources.insert(at, source);
    }

    fn drop_source(&mut self, at: usize, fault: &Fault) {
        let source = self.sources.remove(at);
        let machine = source.client.machine();
        self.joining
            .sources
            .log
            .drop_source(source.number, &fault.clone().at(&machine));
        for fetching in &source.fetching {
            fetching.transfer.cancel();
        }
        self.window.forget(source.number);
        self.joining.try_again(source.number);
        self.joining.start_next();
    }

    fn drop_number(&mut self, number: usize, fault: &Fault) {
        if let Some(at) = self.sources.iter().position(|own| own.number == number) {
            self.drop_source(at, fault);
        }
    }

    /// Drops sources that are silent for long while others aren't. If all are, it
    /// may be the line of this side, and takes longer.
    fn drop_silent(&mut self) {
        let are_silent = self
            .sources
            .iter()
            .all(|own| own.pace.silence.is_longer(SILENCE));
        let longest = match are_silent {
            true => SILENCE_OF_ALL,
            false => SILENCE,
        };
        for at in (0..self.sources.len()).rev() {
            if self.sources[at].pace.silence.is_longer(longest) {
                let cause = format!("nothing came from it for {} seconds", longest.as_secs());
                let number = self.sources[at].number;
                let sources = &self.joining.sources;
                let fault = sources.fault(number, Code::DeadlineExceeded, cause);
                // Another attempt opens another session.
                self.sources[at].client.stop();
                self.drop_source(at, &fault.retry(Retry::Now));
            }
        }
    }

    /// Takes in the answers and bytes of a source.
    fn poll(&mut self, at: usize, context: &mut Context<'_>) -> Result<(), Fault> {
        self.poll_digests(at, context)?;
        self.poll_version(at, context)?;
        let mut next = 0;
        while let Some(fetching) = self.sources[at].fetching.get_mut(next) {
            let mut is_heard = false;
            // Progress is reported at intervals too, while nothing comes.
            while let Poll::Ready(Some(progress)) = fetching.transfer.poll_progress(context) {
                is_heard |= progress.bytes > fetching.bytes;
                fetching.bytes = progress.bytes;
            }
            let source = &mut self.sources[at];
            if source.fetching[next].transfer.is_finished() {
                let fetching = source.fetching.swap_remove(next);
                fetching.transfer.wait()?;
                let bytes = fetching.store.get(RANGE_NAME).unwrap_or_default();
                source.pace.measured(bytes.len() as u64, fetching.began);
                source.note_heard();
                let number = source.number;
                if self.joining.sources.set.version.is_some() {
                    source.unproved.push(fetching.number);
                }
                for other in self.window.arrived(fetching.number, number, bytes) {
                    self.cancel(other, fetching.number);
                }
                continue;
            }
            if is_heard {
                source.note_heard();
            }
            next += 1;
        }
        self.ask_version(at, context)
    }

    /// Asks a source for its version, if ranges came since the last time.
    fn ask_version(&mut self, at: usize, context: &mut Context<'_>) -> Result<(), Fault> {
        let source = &mut self.sources[at];
        if source.proving.is_some() || source.unproved.is_empty() {
            return Ok(());
        }
        let call = source.client.start_call(Call::Stat {
            path: self.joining.sources.path(source.number).to_vec(),
            follow: true,
        })?;
        source.pace.silence.begin();
        source.proving = Some((call, std::mem::take(&mut source.unproved)));
        self.poll_version(at, context)
    }

    /// Passes on the ranges of a source that had the right version after they came.
    fn poll_version(&mut self, at: usize, context: &mut Context<'_>) -> Result<(), Fault> {
        let source = &mut self.sources[at];
        let Some((call, _)) = &mut source.proving else {
            return Ok(());
        };
        let Poll::Ready(answer) = std::pin::Pin::new(call).poll(context) else {
            return Ok(());
        };
        let ranges = source.proving.take().map(|(_, ranges)| ranges);
        source.note_heard();
        let number = source.number;
        let sources = &self.joining.sources;
        match answer? {
            Answer::Attributes(found) => sources.check_version(number, &found)?,
            _ => return Err(sources.fault(number, Code::Internal, "another answer")),
        }
        for range in ranges.into_iter().flatten() {
            // Unless another one was faster, or the reader has left it behind.
            let Some(bytes) = self.window.unverified_of(range, number) else {
                continue;
            };
            if bytes.len() as u64 != self.window.range(range).len() {
                let cause = "it sent another number of bytes than the file has there";
                let code = Code::IntegrityMismatch;
                return Err(self.joining.sources.fault(number, code, cause));
            }
            self.pass(range, number, bytes);
        }
        Ok(())
    }

    /// Passes on a verified range.
    fn pass(&mut self, range: u64, source: usize, bytes: Arc<Vec<u8>>) {
        let start = self.window.range(range).start;
        self.joining.sources.log.add(source, bytes.len() as u64);
        self.window.verified(range);
        self.has_passed = true;
        self.shared.pass(start, bytes);
    }

    fn poll_digests(&mut self, at: usize, context: &mut Context<'_>) -> Result<(), Fault> {
        let source = &mut self.sources[at];
        let mut next = 0;
        while let Some(signing) = source.signing.get_mut(next) {
            let Poll::Ready(answer) = std::pin::Pin::new(&mut signing.call).poll(context) else {
                next += 1;
                continue;
            };
            let Signing { first, count, .. } = source.signing.swap_remove(next);
            source.note_heard();
            let answer = match answer {
                Err(fault) if fault.code == Code::Unsupported && source.votes != Votes::Yes => {
                    source.votes = Votes::No;
                    source.signing.clear();
                    return Ok(());
                }
                answer => answer?,
            };
            let number = source.number;
            let Answer::Signatures(signatures) = answer else {
                return Err(self
                    .joining
                    .sources
                    .fault(number, Code::Internal, "another answer"));
            };
            let is_whole = signatures.length == self.length
                && signatures.blocks.len() as u64 == count
                && signatures.digest == DigestKind::Blake3;
            if !is_whole {
                let cause = "it has changed meanwhile";
                return Err(self
                    .joining
                    .sources
                    .fault(number, Code::SourceChanged, cause));
            }
            source.votes = Votes::Yes;
            if source.is_from_start {
                self.joining.sources.log.note_witness(number);
            }
            for (block, signature) in (first..).zip(&signatures.blocks) {
                self.agreement.claim(block, number, signature.state);
            }
        }
        Ok(())
    }

    /// A source need not send a range any more.
    fn cancel(&mut self, number: usize, range: u64) {
        let source = self.sources.iter_mut().find(|own| own.number == number);
        if let Some(source) = source
            && let Some(at) = source.fetching.iter().position(|own| own.number == range)
        {
            source.fetching.swap_remove(at).transfer.cancel();
            if source.is_idle() {
                source.pace.silence.pause();
            }
        }
    }

    /// Goes to what is wanted now.
    fn move_to(&mut self, wanted: &Wanted) {
        let range_bytes = self.window.range_bytes();
        // A range is compared as a whole, also if the reader needs only its end.
        let read = wanted.position;
        let read = read.map(|position| position / range_bytes * range_bytes / BLOCK);
        let Some(block) = wanted.block.or(read) else {
            return;
        };
        if block < self.block {
            // Its digests may be forgotten.
            for source in &mut self.sources {
                source.next_signed = block;
            }
        }
        self.block = block;
        let ahead = self.blocks_ahead();
        self.agreement
            .keep(block.saturating_sub(ahead)..block + 2 * ahead);
        if let Some(position) = wanted.position {
            for (source, range) in self.window.move_to(position) {
                self.cancel(source, range);
            }
            let kept = (position / range_bytes).saturating_sub(1);
            self.shared.forget_before(kept * range_bytes);
        }
    }

    /// Blocks whose digests are asked for ahead of the first.
    fn blocks_ahead(&self) -> u64 {
        RANGES * self.window.range_bytes() / BLOCK
    }

    /// The verdict of the sources about a block. Where they differ, some of them are dropped, so
    /// that it has to be asked for again.
    fn verdict(&mut self, block: u64) -> Result<Verdict, Fault> {
        let voters = self.sources.iter().filter(|own| own.votes != Votes::No);
        if self.has_passed && !voters.clone().any(|own| own.is_from_start) {
            return Err(self.without_witnesses());
        }
        let voters = voters.filter(|own| own.votes_from <= block);
        let voters: Vec<_> = voters.map(|own| own.number).collect();
        let verdict = self.agreement.verdict(block, &voters);
        match &verdict {
            Verdict::NoVoters if self.joining.is_under_way() => Ok(Verdict::Pending),
            Verdict::NoVoters => Err(self.uncomparable()),
            Verdict::Differ(groups) => {
                self.decide(block, groups);
                Ok(verdict)
            }
            _ => Ok(verdict),
        }
    }

    /// The fault of an attempt whose beginning can't be compared with any source that is left. The
    /// next attempt compares what is at the target with all of them.
    fn without_witnesses(&self) -> Fault {
        let cause = "the sources with which its beginning was compared are gone";
        Fault::new(Code::SourceChanged, "copy", cause)
            .path(&self.joining.sources.set.name)
            .retry(Retry::Now)
    }

    /// The fault of sources of which none computes digests.
    fn uncomparable(&self) -> Fault {
        let cause =
            "none of its sources computes the digests of blocks, by which they are compared";
        Fault::new(Code::Unsupported, "copy", cause)
            .path(&self.joining.sources.set.name)
            .hint("add a server that speaks xDFS, or copy from a single source")
    }

    /// Drops sources that differ from others at a block.
    fn decide(&mut self, block: u64, groups: &[Vec<usize>]) {
        match (self.joining.sources.set.digest, &self.settling) {
            (Some(digest), Settling::NotYet) => {
                let sources = self.joining.sources.clone();
                let length = self.length;
                let settle = move || sources.settle(digest, length);
                let thread = thread::Builder::new()
                    .name("xdfs-settle".into())
                    .spawn(settle);
                self.settling = thread.map_or(Settling::Done, Settling::UnderWay);
            }
            (_, Settling::UnderWay(_)) => {}
            _ => {
                let believed = groups.first().and_then(|group| group.first());
                let Some(&believed) = believed else {
                    return;
                };
                let of = self.joining.sources.set.places[believed].to_string();
                let at = block * BLOCK;
                let cause = format!("its content differs from that of {of}, from byte {at} on");
                for &number in groups.iter().skip(1).flatten() {
                    let code = Code::IntegrityMismatch;
                    let fault = self.joining.sources.fault(number, code, cause.clone());
                    self.joining.sources.log.note_outvoted(number);
                    self.drop_number(number, &fault);
                }
            }
        }
    }

    /// Drops the sources that have another digest than the one known beforehand, once they have
    /// been asked.
    fn settled(&mut self) {
        match std::mem::replace(&mut self.settling, Settling::Done) {
            Settling::UnderWay(thread) if thread.is_finished() => {
                // A panic in it was reported; then the sources decide.
                let _ = thread.join();
                let log = self.joining.sources.log.clone();
                for at in (0..self.sources.len()).rev() {
                    let number = self.sources[at].number;
                    if log.is_dropped(number) {
                        // The reason is known already.
                        let fault = Fault::new(Code::IntegrityMismatch, "", "");
                        self.drop_source(at, &fault);
                    }
                }
            }
            before => self.settling = before,
        }
    }

    /// Passes on what the sources agree on.
    fn judge(&mut self, wanted: &Wanted) -> Result<(), Fault> {
        if let Some(block) = wanted.block
            && let Verdict::Agreed(state) = self.verdict(block)?
        {
            self.has_passed = true;
            self.shared.agree(block, state);
        }
        if self.joining.sources.set.version.is_some() {
            return Ok(());
        }
        for (number, source, bytes) in self.window.unverified() {
            let is_used = self.sources.iter().any(|own| own.number == source);
            if !is_used {
                // Dropped a moment ago, by an earlier range.
                continue;
            }
            match self.compare(number, &bytes)? {
                Compared::NotYet => {}
                Compared::Equal => self.pass(number, source, bytes),
                Compared::Other(at) => {
                    let cause = format!("it sent other bytes than its digest has, at byte {at}");
                    let code = Code::IntegrityMismatch;
                    let fault = self.joining.sources.fault(source, code, cause);
                    self.drop_number(source, &fault);
                }
            }
        }
        Ok(())
    }

    /// Compares a range with the digests that the sources agree on.
    fn compare(&mut self, number: u64, bytes: &[u8]) -> Result<Compared, Fault> {
        let range = self.window.range(number);
        if bytes.len() as u64 != range.len() {
            return Ok(Compared::Other(range.start));
        }
        let mut at = range.start;
        let mut agreed = Vec::new();
        while at < range.end {
            match self.verdict(at / BLOCK)? {
                Verdict::Agreed(state) => agreed.push((at, state)),
                _ => return Ok(Compared::NotYet),
            }
            at += BLOCK;
        }
        for (block, (at, state)) in bytes.chunks(BLOCK_BYTES as usize).zip(agreed) {
            let mut hasher = BlockHasher::new(DigestKind::Blake3, false, at);
            hasher.update(block);
            if hasher.finish(FileId(0)).1.state != state {
                return Ok(Compared::Other(at));
            }
        }
        Ok(Compared::Equal)
    }

    /// Gives work to the sources. Returns whether any has begun.
    fn assign(&mut self, wanted: &Wanted) -> bool {
        if wanted.position.is_none() && wanted.block.is_none() {
            return false;
        }
        let mut has_begun = false;
        let mut failed = Vec::new();
        for at in 0..self.sources.len() {
            match self.ask_digests(at) {
                Ok(is_asked) => has_begun |= is_asked,
                Err(fault) => failed.push((self.sources[at].number, fault)),
            }
        }
        // One range for each in turn, the one that is named first before the others.
        let mut gives = wanted.position.is_some();
        while gives {
            gives = false;
            for at in 0..self.sources.len() {
                match self.ask_range(at, wanted) {
                    Ok(is_given) => {
                        gives |= is_given;
                        has_begun |= is_given;
                    }
                    Err(fault) => failed.push((self.sources[at].number, fault)),
                }
            }
        }
        for (number, fault) in failed {
            self.drop_number(number, &fault);
        }
        has_begun
    }

    /// Asks a source for the digests of the next blocks; `false` if there are none to ask for.
    fn ask_digests(&mut self, at: usize) -> Result<bool, Fault> {
        let end = (self.block + self.blocks_ahead()).min(self.length.div_ceil(BLOCK));
        let source = &mut self.sources[at];
        if source.votes == Votes::No || self.joining.sources.set.version.is_some() {
            return Ok(false);
        }
        let mut is_asked = false;
        // Blocks in between are not wanted any more.
        source.next_signed = source.next_signed.max(self.block);
        while source.signing.len() < SIGNING_CALLS && source.next_signed < end {
            let first = source.next_signed;
            let count = (end - first).min(source.signed_at_once);
            let call = source.client.start_call(Call::Signatures {
                path: self.joining.sources.path(source.number).to_vec(),
                digest: DigestKind::Blake3,
                block_bytes: BLOCK_BYTES,
                first,
                // At most the constant.
                count: count as u32,
            })?;
            source.pace.silence.begin();
            source.signing.push(Signing { first, count, call });
            source.next_signed += count;
            source.signed_at_once = (2 * source.signed_at_once).min(SIGNED_BLOCKS[1]);
            is_asked = true;
        }
        Ok(is_asked)
    }

    /// Asks a source for a range, if there is one for it and it may have another one.
    fn ask_range(&mut self, at: usize, wanted: &Wanted) -> Result<bool, Fault> {
        let range_bytes = self.window.range_bytes();
        let source = &mut self.sources[at];
        if source.fetching.len() >= source.pace.ranges_max(range_bytes) {
            return Ok(false);
        }
        let own = match source.pace.rate {
            0.0 => Duration::ZERO,
            rate => Duration::from_secs_f64((range_bytes as f64 / rate).min(3600.0)),
        };
        let idle = source.fetching.is_empty().then_some(own);
        let now = self.began.elapsed();
        let Some(number) = self.window.take(source.number, now, &wanted.held, idle) else {
            return Ok(false);
        };
        let range = self.window.range(number);
        let store = MemStore::with_limit(range.len());
        let options = TransferOptions {
            parameters: TransferParameters {
                // Its blocks are compared here, unless the version is.
                digest: match self.joining.sources.set.version {
                    Some(_) => None,
                    None => Some(DigestKind::None),
                },
                ..TransferParameters::default()
            },
            offset: range.start,
            length: Some(range.len()),
            skip: Skip::Never,
            ..TransferOptions::default()
        };
        let path = self.joining.sources.path(source.number);
        let target = Arc::new(store.clone());
        let started = source
            .client
            .download_to(path, target, RANGE_NAME, &options);
        let transfer = match started {
            Ok(transfer) => transfer,
            Err(fault) => {
                self.window.give_back(number, source.number);
                return Err(fault);
            }
        };
        source.pace.silence.begin();
        source.fetching.push(Fetching {
            number,
            store,
            transfer,
            bytes: 0,
            began: Instant::now(),
        });
        Ok(true)
    }
}

/// The result of the comparison of a range.
enum Compared {
    /// Digests are missing, or the sources differ.
    NotYet,
    Equal,
    /// Its bytes differ in the block that begins here.
    Other(u64),
}
