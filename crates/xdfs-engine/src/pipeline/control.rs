//! Orders, frames that aren't payload, and what the machines want.

use std::time::Duration;

use xdfs_proto::frame::{Frame, Offer, Request, Resume, Scope, SourceTag};
use xdfs_proto::pack::Failures;
use xdfs_proto::{ChannelIndex, Code, Fault, Retry, receiver, sender};

use super::transfer::{Moved, permille};
use super::{BLOCK_BYTES, Pipeline, Role, SHORT_PATH};
use crate::channel::{Channel, Phase};
use crate::command::Command;
use crate::kernel::Kernel;
use crate::storage::{Completion, Job as StorageJob};

/// Bytes of frames other than blocks that may wait on one channel: far more than a peer that reads
/// ever leaves.
const CONTROL_BACKLOG_MAX: usize = 8 << 20;

impl<K: Kernel> Pipeline<K> {
    /// Carries out the orders that have come.
    pub(super) fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Abandon(number) => self.calls.abandon(number),
                Command::BreakChannel => {
                    let last = self.open_slots().last();
                    if let Some(slot) = last {
                        let fault = Fault::new(Code::ConnectionLost, "", "it was broken on order");
                        self.channel_gone(slot, Some(&fault));
                    }
                }
                Command::Call(job) => self.calls.call(job, self.draining.is_some()),
                Command::Cancel(file) => {
                    let fault =
                        Fault::new(Code::Cancelled, "transfer the file", "it was cancelled")
                            .hint("run the same command again to go on where it stopped");
                    self.fail_file(file, fault);
                }
                Command::Close => {
                    self.draining.get_or_insert(None);
                    self.calls.end_listings();
                }
                Command::Drain(grace) => self.draining = Some(Some(self.now + grace)),
                Command::Join {
                    stream,
                    channel,
                    input,
                    output,
                    place,
                } => {
                    let mut channel = Channel::new(channel, stream, Phase::Open, self.now);
                    channel.place = place;
                    channel.input = input;
                    channel.push_bytes(&output);
                    self.join(channel);
                }
                Command::Leave => match self.open_slots().last() {
                    Some(slot) => self.replace_channel(slot),
                    None => self.leave_due = true,
                },
                Command::PreparePacks => self.pick_channels(Moved::Packs),
                Command::Protect(level) => self.want_level(level),
                Command::Start(job) => self.start(*job),
                Command::Took(number) => self.calls.took(number),
            }
        }
        if let Some(until) = self.draining
            && self.ended.is_none()
        {
            let idle = self.sender.is_idle() && self.receiver.is_idle();
            let idle = idle && self.packs.are_idle();
            let idle = idle && self.transfers.is_empty() && self.calls.are_idle();
            if self.set.end(idle) {
                self.end(Ok(()));
            } else if until.is_some_and(|t| t <= self.now) {
                self.end(Err(shutting_down("go on with the session")));
            }
        }
    }

    /// Learns the round-trip time of the path. On a short one little in flight is enough, and
    /// keeps what is in flight in the caches; on one that is long, or isn't measured yet, the
    /// sockets' buffers are the bound.
    pub(super) fn set_round_trip(&mut self, round_trip: Option<Duration>) {
        self.round_trip = round_trip;
        let bound = if self.is_short_path() {
            self.limits.in_flight_bytes_max
        } else {
            u64::MAX
        };
        self.sender
            .set_in_flight_max(bound.max(2 * u64::from(self.block_size.max(BLOCK_BYTES))));
        tracing::debug!(?round_trip, "the path is measured");
    }

    /// Whether little in flight is enough. Within one machine it always is: a round trip that took
    /// long there was measured while a process waited for its turn.
    pub(super) fn is_short_path(&self) -> bool {
        self.local || self.round_trip.is_some_and(|time| time < SHORT_PATH)
    }

    /// Takes a frame that isn't a BLOCK.
    pub(super) fn handle_frame(
        &mut self,
        slot: usize,
        channel: ChannelIndex,
        frame: Frame,
    ) -> Result<(), Fault> {
        let initiator = matches!(self.role, Role::Initiator(_));
        match frame {
            Frame::Noop | Frame::Conm => Ok(()),
            Frame::Accept(ref accept) => {
                if let Some((file, at)) = self.offered_at
                    && file == accept.file
                {
                    self.offered_at = None;
                    if self.round_trip.is_none() {
                        self.set_round_trip(Some(self.now.saturating_sub(at)));
                    }
                }
                self.sender.handle_frame(channel, frame, self.now)
            }
            Frame::Ack { .. }
            | Frame::Repeat { .. }
            | Frame::Durable { .. }
            | Frame::Published { .. } => self.sender.handle_frame(channel, frame, self.now),
            Frame::Cancel { file } if self.sender.has_file(file) => {
                self.sender.handle_frame(channel, frame, self.now)
            }
            Frame::Cancel { file } if self.packs.is_made(file) => {
                self.packs.unwant(file);
                Ok(())
            }
            Frame::Xftsmu(_) if initiator => Err(unexpected(&frame)),
            Frame::Xftsmu(ref offer)
                if self.draining.is_some() && !self.receiver.was_offered(offer.file) =>
            {
                self.receiver
                    .refuse(offer.clone(), &shutting_down("offer a file"));
                Ok(())
            }
            Frame::Offer(_) if !initiator => Err(unexpected(&frame)),
            Frame::Eofr { file, .. } => {
                self.receiver.handle_frame(channel, frame)?;
                if self.receiver.has_file(file) {
                    let held = self.receiver.progress(file).0;
                    self.incomplete.insert(file, (self.now, held));
                }
                Ok(())
            }
            Frame::Xftsmu(_) | Frame::Offer(_) | Frame::Hole { .. } | Frame::Cancel { .. } => {
                self.receiver.handle_frame(channel, frame)
            }
            Frame::Xftsm(request) if !initiator => {
                self.serve_request(request);
                Ok(())
            }
            Frame::Leave => {
                self.set.handle_leave(channel, self.now);
                self.dial_missing();
                Ok(())
            }
            Frame::Protect(level) => self.take_level(slot, level),
            Frame::Eoft => {
                if self.set.handle_eoft() {
                    self.end(Ok(()));
                }
                Ok(())
            }
            Frame::Exception {
                scope: Scope::File(file),
                fault,
            } => {
                self.sender.fail(file, fault.clone());
                self.receiver.withdraw(file, fault);
                Ok(())
            }
            Frame::Exception {
                scope: Scope::Session,
                fault,
            } => {
                self.end(Err(fault));
                Ok(())
            }
            Frame::Exception {
                scope: Scope::Channel,
                fault,
            } => {
                tracing::info!(%channel, %fault, "the peer ends a channel");
                self.channel_gone(slot, Some(&fault));
                Ok(())
            }
            Frame::Xpathm { .. } | Frame::UnknownCall { .. } | Frame::Taken { .. }
                if !initiator =>
            {
                self.calls.handle_frame(frame)
            }
            Frame::Answer { .. } if initiator => self.calls.handle_frame(frame),
            Frame::XdfsM | Frame::Zxdfs => Err(Fault::new(
                Code::Unsupported,
                "change the mode of a channel",
                format!("{} is not offered here", frame.name()),
            )),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens what a downloading peer asks for (acceptor).
    fn serve_request(&mut self, mut request: Request) {
        let file = request.file;
        if self.packs.is_made(file) {
            return;
        }
        if self.sender.was_offered(file) {
            self.sender.requested_again(file);
            return;
        }
        let Role::Acceptor { store, .. } = &self.role else {
            return;
        };
        let open = self.sources.len() + self.packs.being_made();
        let opened = if self.draining.is_some() {
            Err(shutting_down("ask for a file"))
        } else if open >= self.limits.open_files_max {
            Err(Fault::new(
                Code::LimitExceeded,
                "ask for a file",
                format!(
                    "more than {} files are open in the session",
                    self.limits.open_files_max
                ),
            )
            // The word that others are done may be on its way, or lost with a channel.
            .retry(Retry::AfterMs(100)))
        } else if let Some(wish) = request.pack.take() {
            match self.make_pack(&request, wish) {
                Ok(()) => return,
                Err(fault) => Err(fault),
            }
        } else {
            store.open_source(&request.path)
        };
        let result = opened.and_then(|source| {
            let name = request
                .path
                .rsplit(|b| *b == b'/')
                .next()
                .unwrap_or(&[])
                .to_vec();
            let offer = Offer {
                file,
                path: Vec::new(),
                name,
                length: None,
                tag: SourceTag::default(),
                mode: source.info().mode,
                mtime_ns: source.info().mtime_ns,
                digest: request.digest,
                overwrite: false,
                resume: Resume::Never,
                dry_run: false,
                pack: false,
                sparse: source.info().sparse,
                relaxed: false,
            };
            self.open_offer(source, offer, request.offset, request.length, false)
        });
        if let Err(mut fault) = result {
            if fault.path.is_empty() {
                fault = fault.path(&request.path);
            }
            self.sender.refuse(file, &fault);
        }
    }

    /// Does what the machines want.
    pub(super) fn drive(&mut self) {
        while let Some(output) = self.sender.poll_output() {
            self.do_sender(output);
        }
        while let Some(output) = self.receiver.poll_output() {
            self.do_receiver(output);
        }
        self.drive_calls();
    }

    fn do_sender(&mut self, output: sender::Output) {
        match output {
            sender::Output::CloseChannel(index) => {
                if let Some(slot) = self.slots.get(&index).copied() {
                    let fault = Fault::new(
                        Code::DeadlineExceeded,
                        "wait for an acknowledgement",
                        "the channel stalled while others went on",
                    );
                    self.channel_gone(slot, Some(&fault));
                }
            }
            sender::Output::Accepted {
                file,
                path,
                resumed_bytes,
            } => {
                if let Some(transfer) = self.transfers.get_mut(&file) {
                    transfer.path = path;
                    transfer.resumed_bytes = resumed_bytes;
                }
            }
            sender::Output::Failed { file, fault } => {
                // Its answer measures nothing any more.
                self.offered_at = self.offered_at.filter(|(offered, _)| *offered != file);
                self.sources.remove(&file);
                self.transfer_ended(file, Err(fault));
            }
            sender::Output::Finished {
                file,
                length,
                digest,
                retransmitted_bytes,
                store_wait_permille,
                failures,
            } => {
                self.offered_at = self.offered_at.filter(|(offered, _)| *offered != file);
                let busy = self
                    .sources
                    .remove(&file)
                    .map_or(Duration::ZERO, |s| s.busy);
                if let Some(transfer) = self.transfers.get_mut(&file) {
                    transfer.retransmitted = retransmitted_bytes;
                    transfer.failures = failures;
                    let own = permille(busy, self.now.saturating_sub(transfer.started));
                    self.transfer_finished(file, length, digest, own, store_wait_permille);
                }
            }
            sender::Output::Transmit(mut frame) => {
                if let Frame::Offer(offer) = &frame {
                    self.offered_at.get_or_insert((offer.file, self.now));
                }
                if self.make_end_ready(&mut frame) {
                    self.transmit(frame);
                }
            }
            sender::Output::TransmitOn(index, mut frame) => {
                if let Some(slot) = self.slots.get(&index).copied()
                    && self.make_end_ready(&mut frame)
                {
                    self.transmit_on(slot, &frame);
                }
            }
            _ => {}
        }
    }

    /// Before the end of a file is told: checks that its source is what was offered, and tells how
    /// busy the store was. `false` if the file failed.
    fn make_end_ready(&mut self, frame: &mut Frame) -> bool {
        let Frame::Eofr {
            file,
            store_wait_permille,
            ..
        } = frame
        else {
            return true;
        };
        if let Err(fault) = self.verify_source(*file) {
            self.sender.fail(*file, fault);
            return false;
        }
        if let Some(open) = self.sources.get_mut(file) {
            let elapsed = self.now.saturating_sub(open.opened_at);
            let wait = permille(open.busy, elapsed);
            *store_wait_permille = *open.told_wait.get_or_insert(wait);
        }
        true
    }

    fn do_receiver(&mut self, output: receiver::Output) {
        match output {
            receiver::Output::Discard { file } => {
                self.packs.discard(file);
                self.storage.submit(file, StorageJob::Discard(file));
            }
            receiver::Output::Failed { file, fault } => {
                self.packs.discard(file);
                self.ordered.remove(&file);
                self.unverified.remove(&file);
                self.storage.submit(file, StorageJob::Detach(file));
                self.transfer_ended(file, Err(fault));
            }
            receiver::Output::Finished {
                file,
                length,
                digest,
                store_wait_permille,
                failures,
            } => {
                self.ordered.remove(&file);
                if let Some(transfer) = self.transfers.get_mut(&file) {
                    transfer.failures = failures;
                }
                let own = self.transfers.get(&file).map_or(0, |t| t.store_permille);
                self.transfer_finished(file, length, digest, own, store_wait_permille);
            }
            receiver::Output::Hole { file, range } => {
                let in_pack = self.packs.zero(file, range);
                if !in_pack {
                    self.storage.submit(file, StorageJob::Hole { file, range });
                }
            }
            receiver::Output::Open(offer) => self.open_sink(offer),
            receiver::Output::Publish { file, length } => {
                if let Some(transfer) = self.transfers.get_mut(&file) {
                    transfer.retransmitted += self.receiver.repeated_bytes(file);
                }
                if !self.carry_out(file) {
                    self.storage
                        .submit(file, StorageJob::Publish { file, length });
                    self.complete();
                }
            }
            receiver::Output::Transmit(frame) => self.transmit(frame),
            receiver::Output::TransmitOn(index, frame) => {
                if let Some(slot) = self.slots.get(&index).copied() {
                    self.transmit_on(slot, &frame);
                }
            }
            _ => {}
        }
    }

    /// Takes what the storage side and the threads of the calls have done.
    pub(super) fn complete(&mut self) {
        if self.calls.complete() {
            self.bounds.catch_up();
        }
        self.complete_packs();
        while let Some(completion) = self.storage.completion() {
            match completion {
                Completion::Buffer(buffer) => {
                    self.at_storage = self.at_storage.saturating_sub(1);
                    self.receive_pool.give(buffer);
                }
                Completion::Failed { file, fault } => self.receiver.fail(file, fault),
                Completion::Published { file, busy } => {
                    let elapsed = self.transfers.get(&file).map_or(self.now, |t| {
                        self.started.elapsed().saturating_sub(t.started)
                    });
                    let own = permille(busy, elapsed);
                    if let Some(transfer) = self.transfers.get_mut(&file) {
                        transfer.store_permille = own;
                    }
                    self.receiver.published(file, own, Failures::default());
                }
                Completion::Recorded { file, bytes } => self.receiver.recorded(file, bytes),
                Completion::Verified { file, durable } => self.sink_verified(file, durable),
            }
        }
    }

    /// Sends a frame on any channel: one on which LEAVE wasn't said, and that isn't in the middle
    /// of a block, if there is one.
    pub(super) fn transmit(&mut self, frame: Frame) {
        let cost = |slot: &usize| {
            let channel = self.channels.get(*slot).and_then(Option::as_ref);
            channel.map(|c| (self.set.has_left(c.index), c.outgoing.is_some()))
        };
        let best = self.open_slots().find(|s| cost(s) == Some((false, false)));
        match best.or_else(|| self.open_slots().min_by_key(cost)) {
            Some(slot) => self.transmit_on(slot, &frame),
            None => self.homeless.push_back(frame),
        }
    }

    pub(super) fn transmit_on(&mut self, slot: usize, frame: &Frame) {
        if let Some(Some(channel)) = self.channels.get_mut(slot) {
            channel.push(frame);
            let backlog = channel.control_pending();
            self.queue(slot);
            if backlog > CONTROL_BACKLOG_MAX {
                let fault = Fault::new(
                    Code::LimitExceeded,
                    "answer the peer",
                    format!("it left {backlog} bytes of answers unread"),
                );
                self.end(Err(fault));
            }
        }
    }

    /// Sends what waited for a channel to open.
    pub(super) fn transmit_homeless(&mut self) {
        while !self.set.is_empty() {
            let Some(frame) = self.homeless.pop_front() else {
                return;
            };
            self.transmit(frame);
        }
    }
}

fn unexpected(frame: &Frame) -> Fault {
    Fault::new(
        Code::ProtocolViolation,
        "go on with the session",
        format!(
            "{} came from the wrong side, or at the wrong time",
            frame.name()
        ),
    )
}

pub(super) fn shutting_down(operation: &str) -> Fault {
    Fault::new(Code::ShuttingDown, operation, "the server is shutting down")
        .hint("run the same command again later to go on where it stopped")
        .retry(Retry::AfterMs(1000))
}
