//! What depends on time alone: silence, stalls, frames that don't end, progress that is due.

use xdfs_proto::frame::Frame;
use xdfs_proto::{ChannelIndex, Code, Fault, FileId, Retry};

use super::transfer::PROGRESS_INTERVAL;
use super::{Pipeline, Role, TICK};
use crate::kernel::Kernel;
use crate::storage::Job;

impl<K: Kernel> Pipeline<K> {
    /// Looks at everything that depends on time.
    pub(super) fn tick(&mut self) {
        self.next_tick = self.now + TICK.min(PROGRESS_INTERVAL);
        self.check_openings();
        if self.sender.poll_timeout().is_some_and(|t| t <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        if self.next_ask <= self.now {
            self.next_ask = self.now + self.limits.stall_timeout;
            self.sender.ask_again();
            self.receiver.ask_again();
        }
        let limit = self.limits.idle_timeout;
        if self.live > 0 && self.last_said + limit / 4 <= self.now {
            self.last_said = self.now;
            self.transmit(Frame::Noop);
        }
        if !self.throttled.is_empty() && self.bounds.waits_for_others(self.now) {
            // It is not the peer that is silent: this side doesn't listen.
            self.last_heard = self.now;
        }
        if self.live > 0 && self.last_heard + limit <= self.now {
            let fault = Fault::new(
                Code::DeadlineExceeded,
                "wait for the peer",
                format!("it was silent for {} s", limit.as_secs_f32()),
            )
            .hint("run the same command again to go on where it stopped")
            .retry(Retry::AfterMs(1000));
            self.end(Err(fault));
            return;
        }
        if self.strict && !self.strict_met && self.limits.opening_timeout <= self.now {
            let fault = Fault::new(
                Code::DeadlineExceeded,
                "start the session",
                format!(
                    "only {} of {} channels joined",
                    self.live, self.channels_max
                ),
            );
            self.end(Err(fault));
            return;
        }
        self.check_channels();
        self.check_incomplete();
        let files: Vec<FileId> = self.transfers.keys().copied().collect();
        for file in files {
            self.tick_transfer(file);
        }
    }

    /// Fails files of which everything was sent, of which bytes are missing, and of which nothing
    /// comes any more: a block must have got lost in a way that no check value shows, such as one
    /// with another offset than it was sent with. What is held may then be wrong too.
    fn check_incomplete(&mut self) {
        let arriving = self.open_slots().any(|slot| {
            let channel = self.channels[slot].as_ref();
            channel.is_some_and(|c| c.incoming.is_some() || c.starved)
        });
        let limit = self.limits.idle_timeout;
        let mut late = Vec::new();
        for (&file, (since, before)) in &mut self.incomplete {
            let (held, length, _) = self.receiver.progress(file);
            if arriving || held != *before || length == Some(held) {
                (*since, *before) = (self.now, held);
            } else if *since + limit <= self.now {
                late.push(file);
            }
        }
        self.incomplete
            .retain(|&file, _| self.receiver.has_file(file));
        for file in late {
            if self.receiver.has_file(file) {
                let fault = Fault::new(
                    Code::IntegrityMismatch,
                    "receive the file",
                    "all of it was sent and a part never came",
                )
                .hint("nothing was published; the next attempt starts over")
                .retry(Retry::Now);
                self.storage.submit(file, Job::Discard(file));
                self.receiver.fail(file, fault);
            }
        }
    }

    /// Closes channels whose frame takes too long, or stands still while others go on, and those
    /// that leave and owe nothing.
    fn check_channels(&mut self) {
        let limit = self.limits.idle_timeout;
        let (stall, last_heard) = (self.limits.stall_timeout, self.last_heard);
        let initiator = matches!(self.role, Role::Initiator(_));
        let (mut gone, mut worn, mut leave) = (Vec::new(), Vec::new(), Vec::new());
        let mut live = self.live;
        for (slot, channel) in self.channels.iter().enumerate() {
            let Some(channel) = channel.as_ref().filter(|c| c.is_open()) else {
                continue;
            };
            let waits = !channel.starved && !channel.throttled && !channel.readable;
            if waits
                && channel
                    .frame_since
                    .is_some_and(|since| since + limit <= self.now)
            {
                let fault = Fault::new(
                    Code::DeadlineExceeded,
                    "wait for the rest of a frame",
                    format!("it did not come within {} s", limit.as_secs_f32()),
                );
                gone.push((slot, Some(fault)));
            } else if waits
                && channel.frame_since.is_some()
                && channel.heard_at + stall <= self.now
                && channel.heard_at < last_heard
            {
                let fault = Fault::new(
                    Code::DeadlineExceeded,
                    "wait for the rest of a frame",
                    "the channel stalled while others went on",
                );
                gone.push((slot, Some(fault)));
            }
            let idle = !channel.has_pending() && channel.incoming.is_none();
            // The last one waits for the one that takes its place, though others leave with it.
            let is_last = live <= 1;
            let lingers = channel.leaving && !is_last && {
                let since = channel.leaving_since.max(channel.heard_at);
                channel.outgoing.is_none() && since + limit <= self.now
            };
            if lingers {
                live -= 1;
                let fault = Fault::new(
                    Code::DeadlineExceeded,
                    "let a channel leave",
                    format!("nothing came on it for {} s", limit.as_secs_f32()),
                );
                gone.push((slot, Some(fault)));
            } else if !channel.leaving {
                if initiator && channel.stream.is_worn() {
                    worn.push(slot);
                }
            } else if !channel.leave_said {
                if channel.outgoing.is_none() {
                    leave.push(slot);
                }
            } else if channel.leave_heard && idle && !is_last && self.owes_nothing(channel.index) {
                live -= 1;
                gone.push((slot, None));
            }
        }
        for slot in leave {
            if let Some(Some(channel)) = self.channels.get_mut(slot) {
                channel.leave_said = true;
                channel.push(&Frame::Leave);
                self.queue(slot);
            }
        }
        for slot in worn {
            self.replace_channel(slot);
        }
        for (slot, fault) in gone {
            if let (Some(fault), Some(Some(channel))) = (&fault, self.channels.get_mut(slot)) {
                channel.take_leave(fault);
            }
            self.channel_gone(slot, fault.as_ref());
        }
    }

    /// Whether on this channel everything that was sent is acknowledged, and that it was read is
    /// acknowledged to the peer.
    fn owes_nothing(&self, index: ChannelIndex) -> bool {
        self.sender.outstanding(index) == 0 && !self.receiver.owes_ack(index)
    }
}
