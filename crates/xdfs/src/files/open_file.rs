//! An open file: its session, read-ahead and write-behind, and recovery from a broken session.
//!
//! Invariants:
//! - A write or read isn't sent while a write to the same bytes is unanswered. So sent calls may be
//!   executed in any order, and sent again in another session.
//! - An error of a buffered write is returned once, by the next call.
//! - After a lock is lost, writes under it, even in part, are no longer sent, and the error names
//!   their bytes. All other writes continue.
//! - Calls that can't be repeated aren't sent again; they fail with an unknown outcome.

mod locks;
mod read;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use xdfs_proto::file::{
    DATA_BYTES_MAX, EXTENTS_MAX, Extent, FileAnswer, FileCall, FileFlags, FileIdentity, FileOwner,
    LockSet,
};
use xdfs_proto::path::{Answer, Attributes, Call, FileKind};
use xdfs_proto::range::RangeSet;
use xdfs_proto::{ByteRange, Code, Fault, Retry};

use super::OpenOptions;
use super::read_ahead::ReadAhead;
use super::write_behind::{Sent, WriteBehind};
use crate::paths::{Caller, PendingCall};
use crate::reconnecting_session::ReconnectingSession;
use crate::retry::is_session_lost;

/// Pause between two attempts to open a session: initially, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct OpenFile {
    session: Arc<ReconnectingSession>,
    generation: u64,
    caller: Caller,
    handle: u32,
    path: Vec<u8>,
    /// Flags for reopening the file.
    flags: FileFlags,
    owner: FileOwner,
    identity: FileIdentity,
    run: u64,
    is_pipe: bool,
    reconnect: Duration,
    pub(super) position: u64,
    ahead: ReadAhead,
    behind: WriteBehind,
    /// Something was written since the last synchronisation.
    is_dirty: bool,
    /// Faults for the next calls: first a lost lock, then another failure.
    lock_lost: Option<Fault>,
    failure: Option<Fault>,
    /// The fault that made the file unusable.
    dead: Option<Fault>,
    locks: LockSet,
    holding: u64,
    /// Ranges not written because their lock was lost; reported with that fault.
    unwritten: RangeSet,
    is_closed: bool,
}

fn asks_for_retry(fault: &Fault) -> bool {
    fault.code == Code::Busy && fault.retry == Retry::Now
}

fn unexpected(operation: &str) -> Fault {
    Fault::new(
        Code::Internal,
        operation,
        "the answer belongs to another call",
    )
}

impl OpenFile {
    pub(super) fn open(
        session: Arc<ReconnectingSession>,
        path: &[u8],
        options: &OpenOptions,
        owner: FileOwner,
    ) -> Result<Self, Fault> {
        let flags = options.flags();
        let (generation, caller) = session.caller();
        let deadline = Instant::now() + options.patience;
        let opened = loop {
            let call = FileCall::Open {
                path: path.to_vec(),
                flags: flags.clone(),
                mode: options.mode.filter(|_| flags.create),
                owner,
                identity: None,
            };
            match ask(&caller, call) {
                Err(fault) if asks_for_retry(&fault) && Instant::now() < deadline => {}
                result => break result?,
            }
        };
        let Answer::File(FileAnswer::Opened {
            handle,
            identity,
            run,
            attributes,
            ..
        }) = opened
        else {
            return Err(unexpected("open"));
        };
        Ok(Self {
            session,
            generation,
            caller,
            handle,
            path: path.to_vec(),
            flags: FileFlags {
                create: false,
                exclusive: false,
                truncate: false,
                ..flags
            },
            owner,
            identity,
            run,
            is_pipe: attributes.kind == FileKind::Fifo,
            reconnect: options.reconnect,
            position: 0,
            ahead: ReadAhead::new(),
            behind: WriteBehind::default(),
            is_dirty: false,
            lock_lost: None,
            failure: None,
            dead: None,
            locks: LockSet::default(),
            holding: 0,
            unwritten: RangeSet::new(),
            is_closed: false,
        })
    }

    pub(super) fn is_pipe(&self) -> bool {
        self.is_pipe
    }

    pub(super) fn appends(&self) -> bool {
        self.flags.append || self.is_pipe
    }

    pub(super) fn identity(&self) -> FileIdentity {
        self.identity
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Returns a failure since the last call.
    fn check(&mut self) -> Result<(), Fault> {
        if let Some(fault) = self.lock_lost.take() {
            return Err(self.with_unwritten(fault));
        }
        if let Some(fault) = self.failure.take() {
            return Err(fault);
        }
        self.dead.clone().map_or(Ok(()), Err)
    }

    /// Makes a call, and repeats it in another session if this one breaks.
    fn call(&mut self, make: &dyn Fn(&Self) -> FileCall) -> Result<Answer, Fault> {
        loop {
            match ask(&self.caller, make(self)) {
                Err(fault) if is_session_lost(&fault) => self.recover_and_check(fault)?,
                result => return self.note_lock_loss(result),
            }
        }
    }

    /// Reconnects, and returns a failure that this has revealed.
    fn recover_and_check(&mut self, fault: Fault) -> Result<(), Fault> {
        self.recover(fault)?;
        self.check()
    }

    /// Makes a call that must not be repeated.
    fn call_once(&mut self, make: &dyn Fn(&Self) -> FileCall) -> Result<Answer, Fault> {
        loop {
            match ask(&self.caller, make(self)) {
                // Refused before it had any effect.
                Err(fault) if fault.code == Code::ShuttingDown => self.recover_and_check(fault)?,
                Err(fault) if is_session_lost(&fault) => {
                    // The file stays usable, whatever its user decides.
                    self.recover(fault.clone())?;
                    let hint = "it may have been done: check before you retry";
                    return Err(fault.path(&self.path).hint(hint).retry(Retry::Never));
                }
                result => return self.note_lock_loss(result),
            }
        }
    }

    /// Reopens the file in another session, and resends unanswered writes.
    fn recover(&mut self, fault: Fault) -> Result<(), Fault> {
        if self.is_closed || self.reconnect.is_zero() {
            return Err(fault);
        }
        self.ahead.forget();
        let deadline = Instant::now() + self.reconnect;
        let mut pause = PAUSE_MIN;
        let mut last;
        let mut broken = self.generation;
        loop {
            let attempt = self
                .session
                .replace(broken)
                .and_then(|(generation, caller)| {
                    broken = generation;
                    self.open_again(generation, caller)
                });
            match attempt {
                Ok(()) => return Ok(()),
                Err(fault) if is_session_lost(&fault) => last = fault,
                // Calls of the earlier session are still running; the new session is fine.
                Err(fault) if asks_for_retry(&fault) => {
                    last = fault;
                    broken = broken.saturating_sub(1);
                }
                Err(fault) => return Err(self.die(fault)),
            }
            if Instant::now() + pause > deadline {
                let lost = self.behind.give_up();
                if lost > 0 {
                    last.hint = format!("{lost} bytes that were written may not have arrived");
                }
                return Err(last);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn open_again(&mut self, generation: u64, caller: Caller) -> Result<(), Fault> {
        let call = FileCall::Open {
            path: self.path.clone(),
            flags: self.flags.clone(),
            mode: None,
            owner: self.owner,
            identity: (!self.is_pipe).then_some(self.identity),
        };
        let Answer::File(FileAnswer::Opened { handle, run, .. }) = ask(&caller, call)? else {
            return Err(unexpected("open"));
        };
        if !self.locks.is_empty() {
            let holding = self.holding;
            match ask(&caller, FileCall::Renew { handle, holding }) {
                Err(fault) if fault.code == Code::LockLost => {
                    self.lose_locks();
                    for sent in self.behind.take_locked() {
                        self.note_unwritten(&sent.extents);
                    }
                    self.note(self.with_path(fault));
                }
                result => {
                    result?;
                }
            }
        }
        self.generation = generation;
        self.caller = caller;
        self.handle = handle;
        if run != self.run {
            self.run = run;
            if std::mem::take(&mut self.is_dirty) {
                let cause = "the server's machine was restarted before the data was durable";
                let fault = Fault::new(Code::Io, "write to", cause).path(&self.path);
                let hint = "check the content of the file, and write missing parts again";
                self.note(fault.hint(hint));
            }
        }
        for sent in self.behind.sent_mut() {
            sent.call = start_write(
                &self.caller,
                handle,
                &sent.extents,
                &sent.bytes,
                sent.locked,
            );
        }
        Ok(())
    }

    /// Makes the file unusable.
    fn die(&mut self, fault: Fault) -> Fault {
        self.behind.give_up();
        self.ahead.forget();
        self.dead = Some(fault.clone());
        fault
    }

    // Writing.

    /// Buffers a write, to be sent with others.
    pub(super) fn write_behind(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.check()?;
        self.check_end(offset, bytes.len())?;
        // Before any wait, during which the locks may be lost.
        let cut = self.cut_at_locks(offset, bytes);
        if cut.iter().any(|piece| piece.2) && cut.iter().any(|piece| !piece.2) {
            self.settle(offset, bytes.len() as u64)?;
            self.ahead.forget_range(offset, bytes.len() as u64);
            return self.write_cut(&cut);
        }
        for (at, piece, locked) in cut {
            let length = piece.len() as u64;
            let is_lost = |own: &Self| locked && !own.is_locked(at, Some(length), true);
            self.settle_sent(at, length)?;
            let is_taken = is_lost(self)
                || !self.behind.gathers(at, length) && self.behind.gather(at, piece, locked);
            if !is_taken {
                self.send_gathered()?;
                self.settle_sent(at, length)?;
                if !is_lost(self) {
                    self.behind.gather(at, piece, locked);
                }
            }
            if is_lost(self) {
                let end = offset.saturating_add(bytes.len() as u64);
                self.unwritten.insert(ByteRange { start: at, end });
                self.check()?;
                return Err(self.lost_lock());
            }
            self.ahead.forget_range(at, length);
            if self.behind.is_block_full() {
                self.send_gathered()?;
            }
        }
        Ok(())
    }

    fn check_end(&self, offset: u64, length: usize) -> Result<(), Fault> {
        if offset.checked_add(length as u64).is_some() {
            return Ok(());
        }
        let cause = "no file is that long";
        Err(Fault::new(Code::InvalidArgument, "write to", cause).path(&self.path))
    }

    /// Writes several extents in one call.
    pub(super) fn write_pieces(&mut self, pieces: &[(u64, &[u8])]) -> Result<(), Fault> {
        self.check()?;
        let count = pieces.iter().filter(|(_, bytes)| !bytes.is_empty()).count();
        let total = pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        if count > EXTENTS_MAX || total > DATA_BYTES_MAX {
            let cause = format!("{count} pieces of {total} bytes in total are too much");
            let fault = Fault::new(Code::InvalidArgument, "write to", cause);
            return Err(fault.path(&self.path));
        }
        // Before any wait, as above.
        let cut = pieces
            .iter()
            .flat_map(|(offset, bytes)| self.cut_at_locks(*offset, bytes));
        let cut: Vec<(u64, &[u8], bool)> = cut.collect();
        for (offset, bytes) in pieces.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            self.check_end(*offset, bytes.len())?;
            self.settle(*offset, bytes.len() as u64)?;
            self.ahead.forget_range(*offset, bytes.len() as u64);
        }
        self.write_cut(&cut)
    }

    /// Writes pieces, locked ones first. If the lock is lost, the others aren't written either: a
    /// write across the edge of a lock is not done in part.
    fn write_cut(&mut self, pieces: &[(u64, &[u8], bool)]) -> Result<(), Fault> {
        let mut is_lost = false;
        for locked in [true, false] {
            let mut rest = pieces.iter().filter(|piece| piece.2 == locked).peekable();
            while rest.peek().is_some() {
                let (mut extents, mut bytes) = (Vec::new(), Vec::new());
                while extents.len() < EXTENTS_MAX
                    && let Some((offset, piece, _)) =
                        rest.next_if(|piece| bytes.len() + piece.1.len() <= DATA_BYTES_MAX)
                {
                    bytes.extend_from_slice(piece);
                    extents.push(Extent {
                        offset: *offset,
                        length: u32::try_from(piece.len()).unwrap_or(u32::MAX),
                    });
                }
                for Extent { offset, length } in &extents {
                    while self.behind.overlaps(*offset, u64::from(*length)) {
                        self.wait_oldest()?;
                    }
                }
                is_lost |= locked && self.locks.is_empty();
                if is_lost {
                    self.note_unwritten(&extents);
                } else {
                    self.send(extents, bytes, locked)?;
                }
            }
            while !self.behind.is_empty() {
                self.wait_oldest()?;
            }
            is_lost |= self.locks.is_empty() && pieces.iter().any(|piece| piece.2);
        }
        self.check()?;
        if is_lost {
            return Err(self.lost_lock());
        }
        Ok(())
    }

    fn lost_lock(&mut self) -> Fault {
        let cause = "the lock for this write was lost";
        let fault = Fault::new(Code::LockLost, "write to", cause);
        self.with_unwritten(fault.path(&self.path))
    }

    /// Splits a write into pieces that fit a call, each entirely locked or entirely unlocked, with
    /// that flag.
    fn cut_at_locks<'b>(&self, offset: u64, bytes: &'b [u8]) -> Vec<(u64, &'b [u8], bool)> {
        let mut pieces = Vec::new();
        let mut rest = bytes;
        for (start, length, locked) in self.locks.parts(offset, bytes.len() as u64, true) {
            let length = usize::try_from(length).unwrap_or(rest.len());
            let (part, after) = rest.split_at(length.min(rest.len()));
            rest = after;
            for (n, piece) in part.chunks(DATA_BYTES_MAX).enumerate() {
                pieces.push((start + (n * DATA_BYTES_MAX) as u64, piece, locked));
            }
        }
        pieces
    }

    fn send_gathered(&mut self) -> Result<(), Fault> {
        let Some((extent, bytes, locked)) = self.behind.take_gathered() else {
            return Ok(());
        };
        self.send(vec![extent], bytes, locked)
    }

    fn send(&mut self, extents: Vec<Extent>, bytes: Vec<u8>, locked: bool) -> Result<(), Fault> {
        self.is_dirty = true;
        let bytes = Arc::new(bytes);
        let call = start_write(&self.caller, self.handle, &extents, &bytes, locked);
        self.behind.push(Sent {
            extents,
            bytes,
            locked,
            call,
        });
        while self.behind.is_full() {
            self.wait_oldest()?;
        }
        Ok(())
    }

    /// Waits until the oldest write is answered. The next call returns its failure.
    fn wait_oldest(&mut self) -> Result<(), Fault> {
        let Some(mut sent) = self.behind.pop() else {
            return self.send_gathered();
        };
        let gone = Fault::new(Code::ConnectionLost, "write to", "it was not sent");
        let gone = gone.ending_session();
        let call = std::mem::replace(&mut sent.call, Err(gone));
        match call.and_then(PendingCall::wait) {
            Err(fault) if is_session_lost(&fault) => {
                self.behind.push_front(sent);
                self.recover(fault)
            }
            result => {
                if let Err(fault) = result {
                    if fault.code == Code::LockLost {
                        self.lose_locks();
                        self.note_unwritten(&sent.extents);
                    }
                    self.note(self.with_path(fault));
                }
                Ok(())
            }
        }
    }

    /// Keeps a fault for the next call, unless there is one of its kind already.
    fn note(&mut self, fault: Fault) {
        if fault.code == Code::LockLost {
            self.lock_lost.get_or_insert(fault);
        } else {
            self.failure.get_or_insert(fault);
        }
    }

    fn with_path(&self, fault: Fault) -> Fault {
        if fault.path.is_empty() {
            fault.path(&self.path)
        } else {
            fault
        }
    }

    /// Waits until no sent write to this range is unanswered.
    fn settle_sent(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        while self.behind.overlaps(offset, length) && !self.behind.gathers(offset, length) {
            self.wait_oldest()?;
        }
        Ok(())
    }

    /// Sends and waits until no write to this range is buffered or unanswered.
    fn settle(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        if self.behind.gathers(offset, length) {
            self.send_gathered()?;
        }
        while self.behind.overlaps(offset, length) {
            self.wait_oldest()?;
        }
        self.check()
    }

    /// Waits until every write is answered, and returns a failure.
    pub(super) fn drain(&mut self) -> Result<(), Fault> {
        let mut drain = || {
            self.send_gathered()?;
            while !self.behind.is_empty() {
                self.wait_oldest()?;
            }
            Ok(())
        };
        let drained: Result<(), Fault> = drain();
        self.check()?;
        drained
    }

    /// Appends atomically, or to a pipe as much as fits. Returns the offset and the number of
    /// bytes.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(u64, usize), Fault> {
        self.check()?;
        if bytes.is_empty() {
            return Ok((self.position, 0));
        }
        let bytes = Arc::new(bytes[..bytes.len().min(DATA_BYTES_MAX)].to_vec());
        self.ahead.forget();
        self.is_dirty = true;
        loop {
            let answer = self.call_once(&|own| FileCall::Append {
                handle: own.handle,
                // Only a lock of the whole file covers its end.
                locked: own.is_locked(0, None, true),
                bytes: Arc::clone(&bytes),
            });
            match answer {
                Err(fault) if self.is_pipe && asks_for_retry(&fault) => {}
                Ok(Answer::File(FileAnswer::Appended { offset, length })) => {
                    return Ok((offset, length as usize));
                }
                Ok(_) => return Err(unexpected("append to")),
                Err(fault) => return Err(fault),
            }
        }
    }

    // Everything else.

    pub(super) fn attributes(&mut self) -> Result<Attributes, Fault> {
        self.drain()?;
        match self.call(&|own| FileCall::Stat { handle: own.handle })? {
            Answer::Attributes(attributes) => Ok(attributes),
            _ => Err(unexpected("look at")),
        }
    }

    pub(super) fn set_length(&mut self, length: u64) -> Result<(), Fault> {
        self.drain()?;
        self.ahead.forget();
        self.is_dirty = true;
        self.call(&|own| FileCall::SetLength {
            handle: own.handle,
            locked: own.is_locked(0, None, true),
            length,
        })?;
        Ok(())
    }

    pub(super) fn sync(&mut self, data_only: bool) -> Result<(), Fault> {
        self.drain()?;
        if self.is_pipe {
            return Ok(());
        }
        self.call(&|own| FileCall::Flush {
            handle: own.handle,
            data_only,
        })?;
        self.check()?;
        self.is_dirty = false;
        Ok(())
    }

    /// Closes the file, and returns a failed write. Further calls do nothing.
    pub(super) fn close(&mut self, may_reconnect: bool) -> Result<(), Fault> {
        if self.is_closed {
            return Ok(());
        }
        if !may_reconnect {
            self.reconnect = Duration::ZERO;
        }
        let mut drained = self.drain();
        if let (Err(first), Some(second)) = (&mut drained, self.failure.take()) {
            // There is no next call to return it.
            let hint = std::mem::take(&mut first.hint);
            let between = if hint.is_empty() { "" } else { "; " };
            first.hint = format!("{hint}{between}another failure: {}", second.cause);
        }
        self.is_closed = true;
        let handle = self.handle;
        let closed = match ask(&self.caller, FileCall::Close { handle }) {
            // Everything was answered, and the end of a session closes its files.
            Err(fault) if is_session_lost(&fault) || fault.code == Code::Stale => Ok(()),
            Err(fault) if fault.code == Code::Cancelled => Ok(()),
            result => result.map(|_| ()),
        };
        drained.and(closed)
    }
}

fn ask(caller: &Caller, call: FileCall) -> Result<Answer, Fault> {
    caller.start_pending(Call::File(call))?.wait()
}

fn start_write(
    caller: &Caller,
    handle: u32,
    extents: &[Extent],
    bytes: &Arc<Vec<u8>>,
    locked: bool,
) -> Result<PendingCall, Fault> {
    caller.start_pending(Call::File(FileCall::Write {
        handle,
        locked,
        extents: extents.to_vec(),
        bytes: Arc::clone(bytes),
    }))
}
