//! The end of a session: the reason, the last frames, and what stays for a later resume.

use std::time::{Duration, Instant};

use xdfs_proto::frame::{Frame, Scope};
use xdfs_proto::{Code, Fault, FileId, Retry, Side};

use super::Pipeline;
use super::calls::refuse;
use super::open::{no_such_session, refuse_join};
use crate::channel::{Channel, Phase, Written};
use crate::command::{Command, TransferEvent};
use crate::kernel::Kernel;

/// Time that the last frames get to leave when a session ends.
const FAREWELL: Duration = Duration::from_secs(2);

impl<K: Kernel> Pipeline<K> {
    /// Ends the session at the end of this turn. The first reason stands.
    pub(super) fn end(&mut self, result: Result<(), Fault>) {
        if self.ended.is_none() {
            self.ended = Some(result);
        }
    }

    /// Tells the peer, makes durable what there is, and tells the transfers.
    pub(super) fn finish(mut self, result: Result<(), Fault>) -> Result<(), Fault> {
        let farewell = match &result {
            Ok(()) => Frame::Eoft,
            Err(fault) if fault.side == Side::Local => Frame::Exception {
                scope: Scope::Session,
                fault: fault.clone(),
            },
            Err(_) => Frame::Eoft,
        };
        self.transmit(farewell);
        self.part();
        // Sessions that end by a fault leave what they have in a resumable state.
        self.storage.finish();
        let fault = match &result {
            Ok(()) => Fault::new(
                Code::ConnectionLost,
                "go on with the session",
                "it has ended",
            )
            .retry(Retry::AfterMs(200)),
            Err(fault) => fault.clone(),
        };
        let files: Vec<FileId> = self.transfers.keys().copied().collect();
        for file in files {
            self.transfer_ended(file, Err(fault.clone()));
        }
        self.calls.end(&fault);
        self.packs.finish();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Start(job) => {
                    let _ = job.events.send(TransferEvent::Ended(Err(fault.clone())));
                }
                Command::Call(job) => refuse(&job, &fault),
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
        result
    }

    /// Lets the last frames leave, within bounds, and closes the channels in an orderly way.
    fn part(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        let mut events = Vec::new();
        loop {
            let slots: Vec<usize> = self.open_slots().collect();
            let mut waits = false;
            for slot in slots {
                let Some(Some(channel)) = self.channels.get_mut(slot) else {
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
            let left = deadline.saturating_duration_since(Instant::now());
            if !waits || left.is_zero() || self.kernel.wait(&mut events, Some(left)).is_err() {
                break;
            }
            events.clear();
        }
        for slot in 0..self.channels.len() {
            if let Some(Some(channel)) = self.channels.get_mut(slot) {
                let _ = channel.stream.close();
            }
            self.remove_channel(slot);
        }
    }
}
