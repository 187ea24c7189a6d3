//! Deadlines: silence, stalls, incomplete frames, and periodic progress reports.

use xdfs_proto::channel_set::{Step, View};
use xdfs_proto::frame::Frame;
use xdfs_proto::{ChannelIndex, Code, Fault, Retry};

use super::transfers::PROGRESS_INTERVAL;
use super::{Pipeline, Role, TICK, yielding};
use crate::channel::Channel;
use crate::kernel::Kernel;
use crate::storage::SinkJob;

impl<K: Kernel> Pipeline<K> {
    /// Checks all deadlines.
    pub(super) fn tick(&mut self) {
        let tick = match self.yielding {
            Some(_) => yielding::INTERVAL,
            None => TICK,
        };
        self.timers.set_tick(self.now + tick.min(PROGRESS_INTERVAL));
        self.tally();
        self.check_openings();
        if self.sender.poll_timeout().is_some_and(|t| t <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        if self
            .timers
            .take_resend_due(self.limits.stall_timeout, self.now)
        {
            self.sender.resend_unanswered();
            self.receiver.resend_unanswered();
        }
        let limit = self.limits.idle_timeout;
        if !self.channel_set.is_empty() && self.timers.take_keepalive_due(limit / 4, self.now) {
            self.transmit(Frame::Noop);
        }
        if self.channels.are_throttled() && self.bounds.waits_for_others(self.now) {
            // The peer is not silent: the rate limit keeps this side from reading.
            self.timers.heard(self.now);
        }
        if self.buffers.trim(self.now) {
            self.trim_packs();
            if self.is_idle() {
                xdfs_xio::free_spares();
            }
        }
        self.buffers.tell_shortage(self.environment.now());
        // The peer is not silent either while there is no memory to read what it says.
        let waits = self.channels.are_starved() || self.channels.lack_packs();
        let is_deaf = waits && self.lacks_memory();
        let is_silent = !is_deaf && self.timers.is_silent(limit, self.now);
        if !self.channel_set.is_empty() && is_silent {
            let fault = Fault::new(
                Code::DeadlineExceeded,
                "wait for the other side",
                format!("it was silent for {} s", limit.as_secs_f32()),
            )
            .hint("run the same command again to resume")
            .retry(Retry::AfterMs(1000));
            self.end(Err(fault));
            return;
        }
        if self.parameters.is_strict()
            && !self.is_started
            && self.limits.opening_timeout <= self.now
        {
            let fault = Fault::new(
                Code::DeadlineExceeded,
                "start the session",
                format!(
                    "only {} of {} channels joined",
                    self.count().live,
                    self.parameters.channels_max()
                ),
            );
            self.end(Err(fault));
            return;
        }
        self.measure_channels();
        self.follow_rate();
        self.pace_channels();
        self.tune_channels();
        self.check_channels();
        self.check_incomplete();
        for file in self.transfers.all_started() {
            self.tick_transfer(file);
        }
    }

    /// Fails files with EOFR whose missing bytes do not arrive: a block must have been lost in a
    /// way that check values don't detect, for instance by a damaged offset. The data held may then
    /// be wrong too.
    fn check_incomplete(&mut self) {
        let mut open = self.channels.open();
        let arriving = open.any(|(_, channel)| channel.incoming.is_some() || channel.starved);
        let limit = self.limits.idle_timeout;
        let (mut late, mut gone) = (Vec::new(), Vec::new());
        for (file, (since, before), waits) in self.transfers.incomplete() {
            if !self.receiver.has_file(file) {
                gone.push(file);
                continue;
            }
            let (held, length, _) = self.receiver.progress(file);
            if arriving || waits || held != *before || length == Some(held) {
                (*since, *before) = (self.now, held);
            } else if *since + limit <= self.now {
                late.push(file);
            }
        }
        for file in gone {
            self.transfers.close_sink(file);
        }
        for file in late {
            let fault = Fault::new(
                Code::IntegrityMismatch,
                "receive the file",
                "all of it was sent, but a part never arrived",
            )
            .hint("nothing was published; the next attempt starts over")
            .retry(Retry::Now);
            self.storage.submit(file, SinkJob::Discard(file));
            self.receiver.fail(file, fault);
        }
    }

    /// Closes channels whose frame is overdue or stalled while others make progress, and leaving
    /// channels without anything outstanding.
    fn check_channels(&mut self) {
        let limit = self.limits.idle_timeout;
        let initiator = matches!(self.role, Role::Initiator(_));
        let (mut gone, mut staying, mut leave) = (Vec::new(), Vec::new(), Vec::new());
        for (slot, channel) in self.channels.open() {
            if let Some(fault) = self.stall_fault(channel) {
                gone.push((slot, Some(fault)));
                continue;
            }
            let index = channel.index;
            if !self.channel_set.is_leaving(index) {
                if initiator {
                    staying.push(slot);
                }
                continue;
            }
            let view = View {
                in_block: channel.outgoing.is_some(),
                busy: channel.has_pending() || channel.incoming.is_some(),
                owes: !self.owes_nothing(index),
                heard_at: channel.heard_at,
            };
            match self.channel_set.step(index, view, self.now) {
                Some(Step::SayLeave) => leave.push(slot),
                Some(Step::Close) => gone.push((slot, None)),
                Some(Step::GiveUp) => {
                    let fault = Fault::new(
                        Code::DeadlineExceeded,
                        "let a channel leave",
                        format!("nothing came on it for {} s", limit.as_secs_f32()),
                    );
                    gone.push((slot, Some(fault)));
                }
                None => {}
            }
        }
        for slot in leave {
            if let Some(channel) = self.channels.get_mut(slot) {
                channel.push(&Frame::Leave);
                self.channels.queue(slot);
            }
        }
        for slot in staying {
            let channel = self.channels.get_mut(slot);
            let protected = channel.and_then(|channel| channel.stream.protected());
            if protected.is_some_and(|protected| protected.is_worn()) {
                self.replace_channel(slot);
            }
        }
        for (slot, fault) in gone {
            if let (Some(fault), Some(channel)) = (&fault, self.channels.get_mut(slot)) {
                channel.take_leave(fault);
            }
            self.channel_gone(slot, fault.as_ref());
        }
    }

    /// The fault of a channel whose frame is overdue or stalled.
    fn stall_fault(&self, channel: &Channel) -> Option<Fault> {
        let (limit, stall) = (self.limits.idle_timeout, self.limits.stall_timeout);
        let waits = !channel.starved && !channel.throttled && !channel.readable;
        let since = channel.frame_since.filter(|_| waits)?;
        let others_progress = channel.heard_at < self.timers.last_heard();
        let cause = if since + limit <= self.now {
            format!("it did not come within {} s", limit.as_secs_f32())
        } else if channel.heard_at + stall <= self.now && others_progress {
            "the channel stalled while others went on".into()
        } else {
            return None;
        };
        let operation = "wait for the rest of a frame";
        Some(Fault::new(Code::DeadlineExceeded, operation, cause))
    }

    /// Whether everything sent on this channel is acknowledged, and everything received on it has
    /// been acknowledged to the peer.
    fn owes_nothing(&self, index: ChannelIndex) -> bool {
        self.sender.outstanding(index) == 0 && !self.receiver.owes_ack(index)
    }
}
