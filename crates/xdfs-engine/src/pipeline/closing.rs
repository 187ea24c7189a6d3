//! The end of a session: the reason, the last frames, and what stays for a later resume.

use std::time::Duration;

use xdfs_proto::frame::{Exception, Frame, Scope};
use xdfs_proto::{Code, Fault, Retry, Side};

use super::calls::refuse;
use super::open::{no_such_session, refuse_join};
use super::{Pipeline, Stage, TICK};
use crate::channel::{Channel, Phase, Written};
use crate::command::{Command, TransferEvent};
use crate::environment::{Turn, Worker};
use crate::kernel::Kernel;

/// Time that the last frames get to leave when a session ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long the end of a session waits for what its threads are at.
const JOINING: Duration = Duration::from_secs(2);

/// Whether a session is to end, and how it did.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// No further file is taken; the session ends when it is idle.
    is_draining: bool,
    /// It ends at this time then, idle or not.
    until: Option<Duration>,
    result: Option<Result<(), Fault>>,
    /// Threads that end with the session.
    workers: Vec<Worker>,
}

impl Ending {
    /// The session ends when it is idle.
    pub(super) fn close(&mut self) {
        self.is_draining = true;
    }

    /// The session ends when it is idle, or at the time.
    pub(super) fn drain(&mut self, until: Duration) {
        self.is_draining = true;
        self.until = Some(until);
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether the time is over that it had to become idle.
    pub(super) fn is_overdue(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.result.is_some()
    }
}

impl<K: Kernel> Pipeline<K> {
    /// Whether neither a file nor a call is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.sender.is_idle()
            && self.receiver.is_idle()
            && !self.packs_are_busy()
            && self.calls.are_idle()
    }

    /// Ends the session at the end of this turn. The first reason stands.
    pub(super) fn end(&mut self, result: Result<(), Fault>) {
        let result = result.map_err(Fault::ending_session);
        self.ending.result.get_or_insert(result);
    }

    /// How the session ended; in an orderly way, as long as it has not.
    pub fn result(&self) -> Result<(), Fault> {
        self.ending.result.clone().unwrap_or(Ok(()))
    }

    /// What transfers and calls are told that the end of the session ends.
    fn closing_fault(&self) -> Fault {
        let orderly = Fault::new(
            Code::ConnectionLost,
            "go on with the session",
            "it has ended",
        );
        let orderly = orderly.retry(Retry::AfterMs(200)).ending_session();
        self.result().err().unwrap_or(orderly)
    }

    /// Tells the peer.
    pub(super) fn begin_shutdown(&mut self) -> Turn {
        let farewell = match self.result() {
            Err(fault) if fault.side == Side::Local => Frame::Exception(Exception {
                scope: Scope::Session,
                fault,
            }),
            _ => Frame::Eoft,
        };
        self.transmit(farewell);
        self.stage = Stage::Flushing(self.now + FAREWELL);
        Turn::Again
    }

    /// Lets the last frames leave, within bounds, and closes the channels in an orderly way.
    pub(super) fn flush_channels(&mut self, until: Duration) -> Turn {
        let slots: Vec<usize> = self.channels.open().map(|(slot, _)| slot).collect();
        let mut waits = false;
        for slot in slots {
            let Some(channel) = self.channels.get_mut(slot) else {
                continue;
            };
            // What is encrypted and not written counts, too.
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
        // Sessions that end by a fault leave what they have in a resumable state.
        self.storage.finish();
        self.stage = Stage::Storing;
        Turn::Again
    }

    /// Waits until what there is is durable, and tells the transfers and calls.
    pub(super) fn await_storage(&mut self) -> Turn {
        if !self.storage.has_ended() {
            return Turn::Wait(Some(TICK));
        }
        let fault = self.closing_fault();
        for file in self.transfers.all_local() {
            self.transfer_ended(file, Err(fault.clone()));
        }
        self.ending.workers = self.calls.end(&fault);
        self.ending.workers.extend(self.packs.finish());
        self.refuse_commands(&fault);
        self.stage = Stage::Joining(self.now + JOINING);
        Turn::Again
    }

    /// Waits for threads that are still at work. Those that take long are left behind, and end with
    /// what they do.
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

    /// Ends what was asked for while the session ended.
    fn refuse_commands(&self, fault: &Fault) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start(spec) => {
                    let _ = spec.events.send(TransferEvent::Ended(Err(fault.clone())));
                }
                Command::Call(spec) => refuse(&spec, fault),
                // It was handed over while the session ended.
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
