//! The end of a session: its reason, the last frames, and the resumable state.

use std::time::Duration;

use xdfs_proto::frame::{Exception, Frame, Scope};
use xdfs_proto::{Code, Fault, Retry, Side};
use xdfs_store::tally::Failing;

use super::calls::refuse;
use super::open::{no_such_session, refuse_join};
use super::transfers::StartedTransfer;
use super::{Pipeline, Stage, TICK};
use crate::channel::{Channel, Phase, Written};
use crate::command::{Command, TransferEvent};
use crate::environment::{Turn, Worker};
use crate::kernel::Kernel;

/// Time for writing the last frames of a session.
const FAREWELL: Duration = Duration::from_secs(2);
/// Time for the session's workers to end.
const JOINING: Duration = Duration::from_secs(2);

impl<K: Kernel> Pipeline<K> {
    /// Whether no file and no call is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.sender.is_idle()
            && self.receiver.is_idle()
            && !self.has_pack_jobs()
            && self.calls.are_idle()
    }

    /// Ends the session after this turn. The first result is kept.
    pub(super) fn end(&mut self, result: Result<(), Fault>) {
        let result = result.map_err(Fault::ending_session);
        self.ending.result.get_or_insert(result);
    }

    /// Ends the session by an exception of the peer.
    pub(super) fn end_by_peer(&mut self, fault: Fault) {
        self.ending.is_by_peer |= !self.ending.has_ended();
        self.end(Err(fault));
    }

    /// The result of the session; `Ok` while it runs.
    pub fn result(&self) -> Result<(), Fault> {
        self.ending.result.clone().unwrap_or(Ok(()))
    }

    /// The fault of transfers and calls ended with the session.
    fn closing_fault(&self) -> Fault {
        let orderly = Fault::new(Code::ConnectionLost, "keep the connection", "it has ended");
        let orderly = orderly.retry(Retry::AfterMs(200)).ending_session();
        self.result().err().unwrap_or(orderly)
    }

    /// Sends the peer the reason or EOFT, and nothing to one that has ended the session itself.
    pub(super) fn begin_shutdown(&mut self) -> Turn {
        self.tally();
        if let (Err(fault), Some(tally)) = (self.result(), &self.moved.tally) {
            tally.failed(Failing::Session, fault.code);
        }
        match self.result() {
            _ if self.ending.is_by_peer => {}
            Err(fault) if fault.side == Side::Local => {
                let scope = Scope::Session;
                self.transmit(Frame::Exception(Exception { scope, fault }));
            }
            _ => self.transmit(Frame::Eoft),
        }
        self.stage = Stage::Flushing(self.now + FAREWELL);
        Turn::Again
    }

    /// Writes the last frames until the deadline, and closes the channels in an orderly way.
    pub(super) fn flush_channels(&mut self, until: Duration) -> Turn {
        let open = self.channels.open().filter(|_| !self.ending.is_by_peer);
        let slots: Vec<usize> = open.map(|(slot, _)| slot).collect();
        let mut waits = false;
        for slot in slots {
            let Some(channel) = self.channels.get_mut(slot) else {
                continue;
            };
            // Includes encrypted output that is not written yet.
            if !channel.has_pending() || channel.outgoing.is_some() {
                continue;
            }
            match channel.write() {
                Ok(Written::Blocked) => waits = true,
                Ok(_) => {}
                Err(_) => self.remove_channel(slot),
            }
        }
        let left = until.saturating_sub(self.now);
        if waits && !left.is_zero() {
            return Turn::Wait(Some(left));
        }
        for slot in 0..self.channels.slots_end() {
            if let Some(channel) = self.channels.get_mut(slot) {
                let _ = channel.stream.close();
            }
            self.remove_channel(slot);
        }
        debug_assert!(self.buffers.are_back(), "a buffer was lost");
        // A session that ended with a fault keeps its data in a resumable state.
        self.storage.finish();
        self.stage = Stage::Storing;
        Turn::Again
    }

    /// Waits until all data is durable, then ends transfers and calls.
    pub(super) fn await_storage(&mut self) -> Turn {
        if !self.storage.has_ended() {
            return Turn::Wait(Some(TICK));
        }
        let fault = self.closing_fault();
        for file in self.transfers.all_started() {
            let own = self.transfers.started_mut(file);
            let own = own.and_then(StartedTransfer::take_fault);
            self.transfer_ended(file, Err(own.unwrap_or_else(|| fault.clone())));
        }
        self.ending.workers = self.calls.end(&fault);
        self.ending.workers.extend(self.store_jobs.finish());
        self.refuse_commands(&fault);
        self.stage = Stage::Joining(self.now + JOINING);
        Turn::Again
    }

    /// Waits for workers. Those still blocked at the deadline are abandoned and end by themselves.
    pub(super) fn join_workers(&self, until: Duration) -> Turn {
        let left = until.saturating_sub(self.now);
        if !self.ending.workers.iter().all(Worker::has_ended) {
            if !left.is_zero() {
                return Turn::Wait(Some(left));
            }
            tracing::warn!("threads outlive their session: the file system holds them");
        }
        self.refuse_commands(&self.closing_fault());
        Turn::Ended
    }

    /// Refuses commands that arrived while the session ended.
    fn refuse_commands(&self, fault: &Fault) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start(spec) => {
                    let _ = spec.events.send(TransferEvent::Ended(Err(fault.clone())));
                }
                Command::Call(spec) => refuse(&spec, fault),
                // Handed over while the session ended.
                Command::Join {
                    stream,
                    channel,
                    output,
                    ..
                } => {
                    let mut channel = Channel::new(channel, stream, Phase::Open, self.now);
                    channel.push_bytes(&output);
                    refuse_join(channel, no_such_session());
                }
                _ => {}
            }
        }
    }
}
