//! Commands, control frames, and the outputs of the machines.

use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::{Cancel, Eofr, Exception, Frame, Offer, Request, Resume, Scope};
use xdfs_proto::pack::Failures;
use xdfs_proto::receiver::ReceiverOutput;
use xdfs_proto::sender::SenderOutput;
use xdfs_proto::{ChannelIndex, Code, Fault, FileId, NumberUse, Retry, SourceTag};
use xdfs_store::Source;
use xdfs_store::tally::Failing;

use super::buffers::BLOCK_BYTES;
use super::network_path::Workload;
use super::transfers::StartedTransfer;
use super::{Pipeline, Role};
use crate::channel::{Channel, Phase};
use crate::command::Command;
use crate::kernel::Kernel;
use crate::storage::{SinkCompletion, SinkJob};
use crate::tally::SessionTally;
use crate::verdict::{SideTime, TimeShares};

/// Bound in bytes on the control frames queued on one channel: far more than is ever queued for a
/// peer that reads.
const CONTROL_BACKLOG_MAX: usize = 8 << 20;

impl<K: Kernel> Pipeline<K> {
    /// Handles the commands that have arrived.
    pub(super) fn process_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Abandon(number) => self.calls.abandon(number),
                Command::BreakChannel => {
                    let last = self.channels.open().last();
                    if let Some((slot, _)) = last {
                        let fault =
                            Fault::new(Code::ConnectionLost, "", "it was broken on request");
                        self.channel_gone(slot, Some(&fault));
                    }
                }
                Command::Call(spec) => self.calls.call(spec, self.ending.is_draining()),
                Command::Cancel(file) => {
                    let fault =
                        Fault::new(Code::Cancelled, "transfer the file", "it was cancelled")
                            .hint("run the same command again to resume");
                    self.fail_file(file, fault);
                }
                Command::Close => {
                    self.ending.close();
                    self.calls.end_listings();
                }
                Command::Drain(grace) => self.ending.drain(self.now + grace),
                Command::Withdraw(why) => self.ending.withdraw(self.now, why),
                Command::Join {
                    stream,
                    channel,
                    input,
                    output,
                    guard,
                } => {
                    let mut channel = Channel::new(channel, stream, Phase::Open, self.now);
                    channel.guard = guard;
                    channel.input = input;
                    channel.push_bytes(&output);
                    self.join(channel);
                }
                Command::Leave => match self.channels.open().last() {
                    Some((slot, _)) => self.replace_channel(slot),
                    None => {
                        if let Role::Initiator(dialer) = &mut self.role {
                            dialer.leave_later();
                        }
                    }
                },
                Command::Measure(reply) => {
                    let open = self.channels.open();
                    let samples = open.filter_map(|(_, channel)| channel.stream.measure());
                    // Nobody waits for it any more.
                    let _ = reply.send(samples.collect());
                }
                Command::PreparePacks => self.pick_channels(Workload::Packs),
                Command::Protect(level) => self.want_level(level),
                Command::Start(spec) => self.start(*spec),
                Command::Took(number) => self.calls.took(number),
            }
        }
    }

    /// Ends a draining session once it is idle or overdue.
    pub(super) fn end_if_drained(&mut self) {
        if !self.ending.is_draining() || self.ending.has_ended() {
            return;
        }
        let idle = self.is_idle() && !self.transfers.any_started();
        if self.channel_set.end(idle) {
            self.end(Ok(()));
        } else if self.ending.is_overdue(self.now) {
            let fault = self.ending.refusal("keep the connection");
            self.end(Err(fault));
        }
    }

    /// Sets the round-trip time of the network path.
    pub(super) fn set_round_trip(&mut self, round_trip: Option<Duration>) {
        self.network_path.set_round_trip(round_trip);
        round_trip
            .into_iter()
            .for_each(|time| self.see_answer(time));
        self.bound_in_flight();
    }

    /// Records the time in which the peer has answered something, and follows what it shows of the
    /// path.
    pub(super) fn see_answer(&mut self, time: Duration) {
        if !self.network_path.see_answer(time) {
            return;
        }
        self.bound_in_flight();
        if self.transfers.any_started() && self.network_path.is_long() {
            self.pick_channels(Workload::file(self.bytes_left()));
        }
    }

    /// Follows the rate with the bound on the bytes in flight.
    pub(super) fn follow_rate(&mut self) {
        let moved = self.moved_bytes();
        let is_reached = self.sender.in_flight() >= self.in_flight_max;
        let is_working = self.sender.in_flight() > 0 || self.receiver.is_receiving();
        // A rate that somebody has set says nothing of the path.
        if !is_working || self.bounds.are_set() {
            self.in_flight_bound.rest(self.now, moved);
        } else if self.in_flight_bound.step(self.now, moved, is_reached) {
            self.bound_in_flight();
        }
    }

    /// Payload bytes moved so far, in both directions.
    pub(super) fn moved_bytes(&self) -> u64 {
        self.sender.acknowledged_bytes() + self.moved.received_bytes
    }

    /// Bounds the bytes in flight by what is known of the path. Within one machine few suffice, and
    /// stay in the CPU caches; elsewhere the socket buffers are the limit, which follow the
    /// bandwidth-delay product.
    pub(super) fn bound_in_flight(&mut self) {
        let least = 2 * u64::from(self.parameters.block_size().max(BLOCK_BYTES));
        let first = self.limits.in_flight_bytes_max.max(least);
        self.in_flight_max = match self.network_path.is_local() {
            true => self.in_flight_bound.bytes(first),
            false => u64::MAX,
        };
        self.sender.set_in_flight_max(self.in_flight_max);
        self.channels.set_local(self.network_path.is_local());
    }

    /// Handles a frame other than BLOCK.
    pub(super) fn handle_frame(
        &mut self,
        slot: usize,
        channel: ChannelIndex,
        frame: Frame,
    ) -> Result<(), Fault> {
        let initiator = matches!(self.role, Role::Initiator(_));
        if !initiator && self.answer_used_number(&frame)? {
            return Ok(());
        }
        match frame {
            Frame::Noop | Frame::Conm => Ok(()),
            Frame::Accept(ref accept) => {
                if let Some(time) = self.network_path.answered(accept.file, self.now) {
                    match self.network_path.is_measured() {
                        true => self.see_answer(time),
                        false => self.set_round_trip(Some(time)),
                    }
                }
                self.sender.handle_frame(channel, frame, self.now)
            }
            Frame::Ack(_) => {
                self.sender.handle_frame(channel, frame, self.now)?;
                let time = self.sender.take_acknowledgement_time();
                time.into_iter().for_each(|time| self.see_answer(time));
                Ok(())
            }
            Frame::Repeat(_) | Frame::Durable(_) | Frame::Published(_) => {
                self.sender.handle_frame(channel, frame, self.now)
            }
            Frame::Cancel(Cancel { file }) if self.sender.has_file(file) => {
                self.sender.handle_frame(channel, frame, self.now)
            }
            Frame::Cancel(Cancel { file }) if self.transfers.preparing_mut(file).is_some() => {
                if let Some(pack) = self.transfers.preparing_mut(file) {
                    pack.is_unwanted = true;
                }
                Ok(())
            }
            Frame::Xftsmu(_) if initiator => Err(unexpected(&frame)),
            Frame::Xftsmu(ref offer)
                if self.ending.is_draining() && !self.receiver.was_offered(offer.file) =>
            {
                self.receiver
                    .refuse(offer.clone(), &self.ending.refusal("offer the file"));
                Ok(())
            }
            Frame::Offer(_) if !initiator => Err(unexpected(&frame)),
            Frame::Offer(ref offer) => {
                let time = self.network_path.answered(offer.file, self.now);
                time.into_iter().for_each(|time| self.see_answer(time));
                self.receiver.handle_frame(channel, frame)
            }
            Frame::Eofr(Eofr { file, .. }) => {
                self.receiver.handle_frame(channel, frame)?;
                if self.receiver.has_file(file) {
                    let held = self.receiver.progress(file).0;
                    self.transfers.eofr_received(file, self.now, held);
                }
                Ok(())
            }
            Frame::Xftsmu(_) | Frame::Hole(_) | Frame::Cancel(_) => {
                self.receiver.handle_frame(channel, frame)
            }
            Frame::Xftsm(request) if !initiator => {
                self.serve_request(request);
                Ok(())
            }
            Frame::Leave => {
                self.channel_set.handle_leave(channel, self.now);
                self.dial_missing();
                Ok(())
            }
            Frame::Protect(level) => self.take_level(slot, level),
            Frame::Eoft => {
                if self.channel_set.handle_eoft() {
                    self.end(Ok(()));
                }
                Ok(())
            }
            Frame::Exception(Exception {
                scope: Scope::File(file),
                fault,
            }) => {
                self.sender.fail(file, fault.clone());
                self.receiver.withdraw(file, fault);
                Ok(())
            }
            Frame::Exception(Exception {
                scope: Scope::Session,
                fault,
            }) => {
                self.end_by_peer(fault);
                Ok(())
            }
            Frame::Exception(Exception {
                scope: Scope::Channel,
                fault,
            }) => {
                tracing::info!(%channel, %fault, "the peer ends a channel");
                self.channel_gone(slot, Some(&fault));
                Ok(())
            }
            Frame::Xpathm(_) | Frame::Taken(_) if !initiator => self.calls.handle_frame(frame),
            Frame::Answer(_) if initiator => self.calls.handle_frame(frame),
            Frame::XdfsM | Frame::Zxdfs => Err(Fault::new(
                Code::Unsupported,
                "change the mode of a channel",
                format!("{} is not offered here", frame.name()),
            )),
            other => Err(unexpected(&other)),
        }
    }

    /// Answers the first frame of a file if its number was used in the other direction; `true` if
    /// it was.
    fn answer_used_number(&mut self, frame: &Frame) -> Result<bool, Fault> {
        let (file, used) = match frame {
            Frame::Xftsmu(offer) if !self.receiver.was_offered(offer.file) => {
                let file = offer.file;
                match self.transfers.preparing_mut(file) {
                    Some(_) => (file, NumberUse::Known),
                    None => (file, self.sender.number_use(file)),
                }
            }
            Frame::Xftsm(request) if !self.sender.was_offered(request.file) => {
                (request.file, self.receiver.number_use(request.file))
            }
            _ => return Ok(false),
        };
        let answer = used.answer(file)?;
        let is_used = answer.is_some();
        answer.into_iter().for_each(|frame| self.transmit(frame));
        Ok(is_used)
    }

    /// Opens the source that a downloading peer requests (acceptor).
    fn serve_request(&mut self, mut request: Request) {
        let file = request.file;
        if self.transfers.preparing_mut(file).is_some() {
            return;
        }
        if self.sender.was_offered(file) {
            self.sender.handle_repeated_request(file);
            return;
        }
        let Role::Acceptor { store, .. } = &self.role else {
            return;
        };
        let open = self.transfers.sources();
        let opened = if self.ending.is_draining() {
            Err(self.ending.refusal("ask for the file"))
        } else if open >= self.limits.open_files_max {
            Err(Fault::new(
                Code::LimitExceeded,
                "ask for the file",
                format!(
                    "more than {} files are open in the session",
                    self.limits.open_files_max
                ),
            )
            // The final frames of other files may be in flight, or lost with a channel.
            .retry(Retry::AfterMs(100)))
        } else if let Some(pack_request) = request.pack.take() {
            return self.read_pack(request, pack_request);
        } else if store.is_slow() {
            let store = Arc::clone(store);
            match self.open_source_in_worker(request.clone(), store) {
                Ok(()) => return,
                Err(fault) => Err(fault),
            }
        } else {
            store.open_source(&request.path)
        };
        self.answer_request(&request, opened);
    }

    /// Offers the source that a downloading peer requested, or refuses the request (acceptor).
    pub(super) fn answer_request(
        &mut self,
        request: &Request,
        opened: Result<Box<dyn Source>, Fault>,
    ) {
        let file = request.file;
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
                last: None,
            };
            self.open_offer(source, offer, request.offset, request.length, false)
        });
        if let Err(mut fault) = result {
            if fault.path.is_empty() {
                fault = fault.path(&request.path);
            }
            self.refuse_request(file, &fault);
        }
    }

    /// Refuses what a downloading peer has asked for (acceptor).
    pub(super) fn refuse_request(&mut self, file: FileId, fault: &Fault) {
        self.count_failure(fault);
        self.sender.refuse(file, fault);
    }

    /// Executes the outputs of the machines.
    pub(super) fn pump_machines(&mut self) {
        loop {
            while let Some(output) = self.sender.poll_output() {
                self.handle_sender_output(output);
            }
            while let Some(output) = self.receiver.poll_output() {
                self.handle_receiver_output(output);
            }
            if self.write_packs().is_ok() {
                break;
            }
        }
        self.pump_calls();
    }

    fn handle_sender_output(&mut self, output: SenderOutput) {
        match output {
            SenderOutput::CloseChannel(index) => {
                if let Some(slot) = self.channels.slot_of(index) {
                    let fault = Fault::new(
                        Code::DeadlineExceeded,
                        "wait for an acknowledgement",
                        "the channel stalled while others went on",
                    );
                    self.channel_gone(slot, Some(&fault));
                }
            }
            SenderOutput::Accepted {
                file,
                path,
                resumed_bytes,
            } => {
                if let Some(transfer) = self.transfers.started_mut(file) {
                    transfer.set_path(path);
                    transfer.set_resumed(resumed_bytes);
                }
            }
            SenderOutput::Failed { file, fault } => {
                self.network_path.ended(file);
                self.transfers.close_source(file);
                self.count_failure(&fault);
                self.transfer_ended(file, Err(fault));
            }
            SenderOutput::Finished {
                file,
                length,
                digest,
                retransmitted_bytes,
                time,
                failures,
            } => {
                self.network_path.ended(file);
                let source = self.transfers.close_source(file);
                if let (Some(source), Some(_)) = (source, &self.moved.tally) {
                    let spent = self.account() - source.opened;
                    let peer = SideTime::of_peer(time, spent.all());
                    let shares = TimeShares::of_sides(spent.of_sender(), peer);
                    let count = |tally: &SessionTally| {
                        tally.transferred(true, &shares);
                        tally.repeated(retransmitted_bytes);
                    };
                    self.moved.tally.as_ref().into_iter().for_each(count);
                }
                if let Some(transfer) = self.transfers.started_mut(file) {
                    transfer.set_retransmitted(retransmitted_bytes);
                    transfer.set_failures(failures);
                    self.transfer_finished(file, length, digest, time);
                }
            }
            SenderOutput::Transmit(mut frame) => {
                if let Frame::Offer(offer) | Frame::Xftsmu(offer) = &frame {
                    self.network_path.offered(offer.file, self.now);
                }
                if self.prepare_end(&mut frame) {
                    self.transmit(frame);
                }
            }
            SenderOutput::TransmitOn(index, mut frame) => {
                if let Some(slot) = self.channels.slot_of(index)
                    && self.prepare_end(&mut frame)
                {
                    self.transmit_on(slot, &frame);
                }
            }
            _ => {}
        }
    }

    /// Sends the EOFR of a file that had to wait, unless the source has changed since the offer, or
    /// the file was offered anew.
    pub(super) fn transmit_end(&mut self, file: FileId, mut frame: Frame) {
        if !self.sender.is_end_due(file) || !self.prepare_end(&mut frame) {
            return;
        }
        match self.sender.end_channel(file) {
            None => self.transmit(frame),
            Some(index) => {
                if let Some(slot) = self.channels.slot_of(index) {
                    self.transmit_on(slot, &frame);
                }
            }
        }
    }

    /// Sends the EOFR that waited for the rate limit.
    pub(super) fn send_delayed_ends(&mut self) {
        if self.delayed_ends.is_empty() || self.bounds.owes(self.now) {
            return;
        }
        for frame in std::mem::take(&mut self.delayed_ends) {
            if let Frame::Eofr(Eofr { file, .. }) = frame
                && self.transfers.source_mut(file).is_some()
            {
                self.transmit_end(file, frame);
            }
        }
    }

    /// Prepares an EOFR for sending: checks that the source is unchanged, and sets the account of
    /// the time spent. `false` if it must not be sent, or not yet. Other frames need no
    /// preparation.
    fn prepare_end(&mut self, frame: &mut Frame) -> bool {
        let Frame::Eofr(Eofr { file, .. }) = *frame else {
            return true;
        };
        // A block may exceed the rate limit, and after the last one nothing else would wait.
        if self.bounds.owes(self.now) {
            let is_other = |end: &Frame| !matches!(end, Frame::Eofr(end) if end.file == file);
            self.delayed_ends.retain(is_other);
            self.delayed_ends.push(frame.clone());
            return false;
        }
        match self.verify_source(file, frame) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(fault) => {
                self.sender.fail(file, fault.local());
                return false;
            }
        }
        let spent = self.account();
        let reports = self.parameters.reports_time();
        if let Frame::Eofr(Eofr { time, .. }) = frame
            && let Some(open) = self.transfers.source_mut(file)
        {
            *time = *open
                .eofr_time
                .get_or_insert_with(|| (spent - open.opened).of_sender().report(reports));
        }
        true
    }

    fn handle_receiver_output(&mut self, output: ReceiverOutput) {
        match output {
            ReceiverOutput::Discard { file } => {
                self.transfers.take_pack(file);
                self.storage.submit(file, SinkJob::Discard(file));
            }
            ReceiverOutput::Failed { file, fault } => {
                self.transfers.take_pack(file);
                self.count_failure(&fault);
                // Its user may try again at once, so the target has to be free before.
                if let Some(transfer) = self.transfers.started_mut(file) {
                    transfer.set_fault(fault);
                }
                self.network_path.ended(file);
                let is_being_opened = self.transfers.close_sink(file);
                if !is_being_opened {
                    self.storage.submit(file, SinkJob::Detach(file));
                    self.process_completions();
                }
            }
            ReceiverOutput::Finished {
                file,
                length,
                digest,
                time,
                failures,
            } => {
                let shares = self.transfers.time_shares(file, time);
                if let (Some(tally), Some(shares)) = (&self.moved.tally, shares) {
                    tally.transferred(false, &shares);
                }
                self.transfers.close_sink(file);
                if let Some(transfer) = self.transfers.started_mut(file) {
                    transfer.set_failures(failures);
                }
                self.transfer_finished(file, length, digest, time);
            }
            ReceiverOutput::Hole {
                file,
                range,
                fragments,
            } => {
                let in_pack = self.transfers.zero_pack(file, range);
                if !in_pack {
                    let late = self.receiver.is_open_end(file, range.end);
                    let hole = SinkJob::Hole {
                        file,
                        range,
                        fragments,
                        late,
                    };
                    self.storage.submit(file, hole);
                }
            }
            ReceiverOutput::Open(offer) => self.handle_offer(offer),
            ReceiverOutput::Publish { file, length } => {
                self.transfers.begin_storing(file);
                self.count_again(file, self.receiver.repeated_bytes(file));
                if !self.write_pack(file) {
                    self.storage.submit(file, SinkJob::Publish { file, length });
                    self.process_completions();
                }
            }
            ReceiverOutput::Transmit(frame) => {
                if let Frame::Xftsm(request) = &frame {
                    self.network_path.offered(request.file, self.now);
                }
                self.transmit(frame);
            }
            ReceiverOutput::TransmitOn(index, frame) => {
                if let Some(slot) = self.channels.slot_of(index) {
                    self.transmit_on(slot, &frame);
                }
            }
            _ => {}
        }
    }

    /// A transfer has failed.
    fn count_failure(&self, fault: &Fault) {
        if let Some(tally) = &self.moved.tally {
            tally.failed(Failing::Transfer, fault.code);
        }
    }

    /// Handles the results of the storage thread and of the workers.
    pub(super) fn process_completions(&mut self) {
        if self.calls.process_completions(self.moved.tally.as_ref()) {
            self.bounds.catch_up();
        }
        self.process_store_completions();
        while let Some(completion) = self.storage.completion() {
            match completion {
                SinkCompletion::Buffer(buffer) => {
                    self.buffers.give_stored(buffer);
                }
                SinkCompletion::Closed(file) => {
                    self.receiver.closed(file);
                    let transfer = self.transfers.started_mut(file);
                    if let Some(fault) = transfer.and_then(StartedTransfer::take_fault) {
                        self.transfer_ended(file, Err(fault));
                    }
                }
                SinkCompletion::Failed { file, fault } => {
                    self.receiver.fail(file, fault.local());
                }
                SinkCompletion::Published { file, time } => {
                    self.published(file, time, Failures::default());
                }
                SinkCompletion::Recorded { file, bytes } => self.receiver.recorded(file, bytes),
                SinkCompletion::Verified { file, durable } => self.sink_verified(file, durable),
            }
        }
    }

    /// Sends a frame on any channel, preferably one without LEAVE that is not in the middle of a
    /// block.
    pub(super) fn transmit(&mut self, frame: Frame) {
        let cost = |channel: &Channel| {
            (
                self.channel_set.has_left(channel.index),
                channel.outgoing.is_some(),
            )
        };
        let open = || {
            self.channels
                .open()
                .map(|(slot, channel)| (cost(channel), slot))
        };
        let best = open().find(|(cost, _)| *cost == (false, false));
        match best.or_else(|| open().min()) {
            Some((_, slot)) => self.transmit_on(slot, &frame),
            None => self.channels.keep_frame(frame),
        }
    }

    pub(super) fn transmit_on(&mut self, slot: usize, frame: &Frame) {
        if let Some(channel) = self.channels.get_mut(slot) {
            channel.push(frame);
            let backlog = channel.control_pending();
            self.channels.queue(slot);
            if backlog > CONTROL_BACKLOG_MAX {
                let fault = Fault::new(
                    Code::LimitExceeded,
                    "answer the other side",
                    format!("it left {backlog} bytes of answers unread"),
                );
                self.end(Err(fault));
            }
        }
    }

    /// Sends the frames that waited for a channel to open.
    pub(super) fn transmit_unrouted(&mut self) {
        while !self.channel_set.is_empty() {
            let Some(frame) = self.channels.take_frame() else {
                return;
            };
            self.transmit(frame);
        }
    }
}

fn unexpected(frame: &Frame) -> Fault {
    Fault::new(
        Code::ProtocolViolation,
        "keep the connection",
        format!(
            "{} came from the wrong side, or at the wrong time",
            frame.name()
        ),
    )
}
