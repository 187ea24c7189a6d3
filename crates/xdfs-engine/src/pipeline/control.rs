//! Orders, frames that aren't payload, what the machines want, transfers, deadlines and the end.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use xdfs_proto::frame::{Frame, Offer, Request, Scope, SourceTag};
use xdfs_proto::{ChannelIndex, Code, DigestValue, Fault, FileId, Retry, Side, receiver, sender};
use xdfs_store::{SinkRequest, Source, Store};

use super::send::OpenSource;
use super::{BLOCK_BYTES, Pipeline, Role, SHORT_PATH, TICK};
use crate::channel::{Channel, Phase};
use crate::command::{
    Command, DownloadJob, Job, JobKind, LimitedBy, Outcome, Progress, TransferEvent, UploadJob,
};
use crate::kernel::Kernel;
use crate::rate::Bucket;
use crate::storage::{Completion, Job as StorageJob};

/// How often a transfer tells how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of frames other than blocks that may wait on one channel: far more than a peer that reads
/// ever leaves.
const CONTROL_BACKLOG_MAX: usize = 4 << 20;
/// Time that the last frames get to leave when a session ends.
const FAREWELL: Duration = Duration::from_secs(2);
/// Bytes of a file for which one channel is enough, since opening more takes longer.
const ONE_CHANNEL_BYTES: u64 = 16 << 20;
/// Channels picked for a large file on a short path, and the most on a long one.
const CHANNELS_SHORT: u32 = 4;
const CHANNELS_LONG: u32 = 16;

/// Where a download goes.
#[derive(Clone, Debug)]
struct Target {
    store: Arc<dyn Store>,
    path: Vec<u8>,
    name: Vec<u8>,
}

/// A transfer that this side started.
#[derive(Debug)]
pub(super) struct Transfer {
    events: mpsc::Sender<TransferEvent>,
    started: Duration,
    until: Option<Duration>,
    last_progress: Duration,
    dry_run: bool,
    uploads: bool,
    target: Option<Target>,
    overwrite: bool,
    resume: bool,
    path: Vec<u8>,
    resumed_bytes: u64,
    bytes_total: Option<u64>,
    retransmitted: u64,
    /// Share of the time that this side's storage was busy, in thousandths (download).
    store_permille: u16,
}

impl<K: Kernel> Pipeline<K> {
    /// Carries out the orders that have come.
    pub(super) fn obey(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::BreakChannel => {
                    let last = self.open_slots().last();
                    if let Some(slot) = last {
                        let fault = Fault::new(Code::ConnectionLost, "", "it was broken on order");
                        self.channel_gone(slot, Some(&fault));
                    }
                }
                Command::Cancel(file) => {
                    let fault =
                        Fault::new(Code::Cancelled, "transfer the file", "it was cancelled")
                            .hint("run the same command again to go on where it stopped");
                    self.fail_file(file, fault);
                }
                Command::Close => {
                    self.draining.get_or_insert(None);
                }
                Command::Drain(grace) => self.draining = Some(Some(self.now + grace)),
                Command::Join {
                    stream,
                    channel,
                    input,
                    output,
                } => {
                    let mut channel = Channel::new(channel, stream, Phase::Open, self.now);
                    channel.input = input;
                    channel.push_bytes(&output);
                    self.join(channel);
                }
                Command::Leave => {
                    let last = self.open_slots().last();
                    if let Some(Some(channel)) = last.and_then(|s| self.channels.get_mut(s)) {
                        channel.leaving = true;
                        channel.push(&Frame::Leave);
                    }
                    if let Some(slot) = last {
                        self.queue(slot);
                    }
                }
                Command::Start(job) => self.start(*job),
            }
        }
        if let Some(until) = self.draining
            && self.ended.is_none()
        {
            let idle = self.sender.is_idle() && self.receiver.is_idle();
            if idle && self.transfers.is_empty() {
                self.end(Ok(()));
            } else if until.is_some_and(|t| t <= self.now) {
                self.end(Err(shutting_down("go on with the session")));
            }
        }
    }

    /// Starts a transfer (initiator).
    fn start(&mut self, job: Job) {
        if let Some(rate) = job.rate_bytes_per_s_max {
            self.bucket = Some(Bucket::new(rate, self.now));
        }
        let (uploads, target) = match &job.kind {
            JobKind::Upload(_) => (true, None),
            JobKind::Download(DownloadJob {
                store,
                target,
                name,
                ..
            }) => {
                let (store, path, name) = (Arc::clone(store), target.clone(), name.clone());
                (false, Some(Target { store, path, name }))
            }
        };
        let transfer = Transfer {
            events: job.events.clone(),
            started: self.now,
            until: job.duration.map(|d| self.now + d),
            last_progress: self.now,
            dry_run: job.dry_run,
            uploads,
            target,
            overwrite: job.overwrite,
            resume: job.resume,
            path: Vec::new(),
            resumed_bytes: 0,
            bytes_total: None,
            retransmitted: 0,
            store_permille: 0,
        };
        self.transfers.insert(job.file, transfer);
        if self.ended.is_some() {
            return;
        }
        match job.kind {
            JobKind::Upload(UploadJob {
                source,
                source_path,
                target,
                name,
            }) => {
                let offer = Offer {
                    file: job.file,
                    path: target,
                    name,
                    length: None,
                    tag: SourceTag::default(),
                    mode: source.info().mode,
                    mtime_ns: source.info().mtime_ns,
                    digest: job.digest,
                    overwrite: job.overwrite,
                    resume: job.resume,
                    dry_run: job.dry_run,
                };
                match self.open_offer(source, offer, job.offset, job.length, true) {
                    Ok(length) => {
                        if let Some(transfer) = self.transfers.get_mut(&job.file) {
                            transfer.bytes_total = length;
                        }
                        self.want_channels_for(length);
                    }
                    Err(fault) => {
                        self.transfer_ended(job.file, Err(fault.path(source_path)));
                    }
                }
            }
            JobKind::Download(DownloadJob { source, .. }) => self.receiver.request(Request {
                file: job.file,
                path: source,
                offset: job.offset,
                length: job.length,
                digest: job.digest,
            }),
        }
    }

    /// Offers a source, or the part of it that is wanted; returns the length of the transfer.
    fn open_offer(
        &mut self,
        source: Box<dyn Source>,
        mut offer: Offer,
        offset: u64,
        length: Option<u64>,
        upload: bool,
    ) -> Result<Option<u64>, Fault> {
        let info = source.info().clone();
        offer.length = match info.length {
            Some(whole) if offset > whole => {
                return Err(Fault::new(
                    Code::OffsetPastEnd,
                    "read the source",
                    format!("the offset {offset} lies past its end at {whole}"),
                )
                .hint("choose an offset within the source"));
            }
            Some(whole) => Some(length.unwrap_or(u64::MAX).min(whole - offset)),
            // Endless, or of a length that shows at its end.
            None if info.random_reads => length,
            None if offset == 0 && length.is_none() => None,
            None => {
                return Err(Fault::new(
                    Code::Unsupported,
                    "read the source",
                    "an offset or a length needs a source that can be read anywhere",
                ));
            }
        };
        offer.tag = info.tag;
        if info.tag != SourceTag::default() && (offset > 0 || offer.length != info.length) {
            // A part is another source than the whole: their journals must not mix.
            let part = offset.to_be_bytes().into_iter();
            let part = part.chain(offer.length.unwrap_or(u64::MAX).to_be_bytes());
            offer
                .tag
                .0
                .iter_mut()
                .zip(part)
                .for_each(|(t, p)| *t ^= p.rotate_left(3));
        }
        let length = offer.length;
        self.sources
            .insert(offer.file, OpenSource::new(source, offset, offer.digest));
        self.sender.offer(offer, upload);
        Ok(length)
    }

    /// Picks the number of channels for a file, where the user left it open (initiator).
    fn want_channels_for(&mut self, length: Option<u64>) {
        let Role::Initiator(_) = &self.role else {
            return;
        };
        if self.explicit_channels() {
            return;
        }
        let length = length.unwrap_or(u64::MAX);
        let wanted = if length <= ONE_CHANNEL_BYTES {
            1
        } else if self.round_trip < SHORT_PATH {
            CHANNELS_SHORT
        } else {
            let by_length = u32::try_from(length / (ONE_CHANNEL_BYTES / 4)).unwrap_or(u32::MAX);
            by_length.clamp(1, CHANNELS_LONG)
        };
        self.want_channels(wanted);
    }

    /// Learns the round-trip time of the path. On a short one little in flight is enough, and
    /// keeps what is in flight in the caches; on a long one the sockets' buffers are the bound.
    pub(super) fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = round_trip;
        let bound = if round_trip < SHORT_PATH {
            self.limits.in_flight_bytes_max
        } else {
            u64::MAX
        };
        self.sender
            .set_in_flight_max(bound.max(2 * u64::from(self.block_size.max(BLOCK_BYTES))));
        tracing::debug!(?round_trip, "the path is measured");
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
            Frame::Accept(_)
            | Frame::Ack { .. }
            | Frame::Repeat { .. }
            | Frame::Durable { .. }
            | Frame::Published { .. } => self.sender.handle_frame(channel, frame, self.now),
            Frame::Cancel { file } if self.sender.has_file(file) => {
                self.sender.handle_frame(channel, frame, self.now)
            }
            Frame::Xftsmu(_) if initiator => Err(unexpected(&frame)),
            Frame::Xftsmu(ref offer)
                if self.draining.is_some() && !self.receiver.was_offered(offer.file) =>
            {
                self.refuse(offer.file, &shutting_down("offer a file"));
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
                if let Some(Some(channel)) = self.channels.get_mut(slot) {
                    channel.leaving = true;
                }
                Ok(())
            }
            Frame::Eoft => {
                self.end(Ok(()));
                Ok(())
            }
            Frame::Exception {
                scope: Scope::File(file),
                fault,
            } => {
                self.sender.fail(file, fault.clone());
                self.receiver.fail(file, fault);
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
            Frame::XpathM | Frame::XdfsM | Frame::Zxdfs => Err(Fault::new(
                Code::Unsupported,
                "change the mode of a channel",
                format!("{} is not offered here", frame.name()),
            )),
            other => Err(unexpected(&other)),
        }
    }

    /// Says no to a file before a machine knows it.
    fn refuse(&mut self, file: FileId, fault: &Fault) {
        self.sender.refuse(file, fault);
    }

    /// Opens what a downloading peer asks for (acceptor).
    fn serve_request(&mut self, request: Request) {
        let file = request.file;
        if self.sender.was_offered(file) {
            // The request came again after a lost channel; the offer comes again by itself.
            return;
        }
        let Role::Acceptor { store } = &self.role else {
            return;
        };
        let opened = if self.draining.is_some() {
            Err(shutting_down("ask for a file"))
        } else if self.sources.len() >= self.limits.open_files_max {
            Err(Fault::new(
                Code::LimitExceeded,
                "ask for a file",
                format!(
                    "more than {} files are open in the session",
                    self.limits.open_files_max
                ),
            ))
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
                resume: true,
                dry_run: false,
            };
            self.open_offer(source, offer, request.offset, request.length, false)
        });
        if let Err(mut fault) = result {
            if fault.path.is_empty() {
                fault = fault.path(&request.path);
            }
            self.refuse(file, &fault);
        }
    }

    /// Opens the sink of a file that is offered.
    fn open_sink(&mut self, offer: Offer) {
        let file = offer.file;
        let (store, mut request) = match (&self.role, self.transfers.get_mut(&file)) {
            (Role::Acceptor { store }, _) => (
                Arc::clone(store),
                sink_request(&offer, offer.path.clone(), offer.name.clone()),
            ),
            (Role::Initiator(_), Some(transfer)) => {
                let Some(Target { store, path, name }) = transfer.target.clone() else {
                    return;
                };
                transfer.bytes_total = offer.length;
                let mut request = sink_request(&offer, path, name);
                request.overwrite = transfer.overwrite;
                request.resume = transfer.resume;
                (store, request)
            }
            (Role::Initiator(_), None) => return,
        };
        request.block_size = self.block_size;
        let local_dry_run = self.transfers.get(&file).is_some_and(|t| t.dry_run);
        if offer.dry_run || local_dry_run {
            match store.check_sink(&request) {
                Ok(path) if local_dry_run => {
                    let length = offer.length.unwrap_or(0);
                    if let Some(transfer) = self.transfers.get_mut(&file) {
                        transfer.path = path;
                    }
                    self.transfer_finished(file, length, DigestValue::None, 0, 0);
                    let fault = Fault::new(Code::Cancelled, "receive the file", "a dry run");
                    self.receiver.fail(file, fault);
                }
                Ok(path) => {
                    // Nothing durable is claimed, so nothing can fail here.
                    let _ = self
                        .receiver
                        .opened(file, path, self.block_size, Vec::new());
                }
                Err(fault) => self.receiver.fail(file, fault),
            }
            return;
        }
        let opened = store.open_sink(&request).and_then(|opened| {
            if opened.block_size > self.block_size {
                return Err(Fault::new(
                    Code::InvalidArgument,
                    "resume the transfer",
                    format!("it was begun with blocks of {} bytes", opened.block_size),
                )
                .path(&opened.path)
                .hint("use a block size at least as large, or --no-resume"));
            }
            Ok(opened)
        });
        let mut ordered = false;
        let result = opened.and_then(|opened| {
            let resumed = opened.durable.iter().map(|f| f.range.len()).sum();
            // Bytes that must go out in order gain nothing from many channels.
            ordered = !opened.sink.capabilities().random_writes;
            if let Some(transfer) = self.transfers.get_mut(&file) {
                transfer.path.clone_from(&opened.path);
                transfer.resumed_bytes = resumed;
            }
            self.storage
                .attach(file, opened.sink, offer.digest, resumed)?;
            self.receiver
                .opened(file, opened.path, opened.block_size, opened.durable)
        });
        match result {
            Ok(()) => {
                if self.transfers.contains_key(&file) && !ordered {
                    self.want_channels_for(offer.length);
                }
            }
            Err(fault) => self.receiver.fail(file, fault),
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
                self.sources.remove(&file);
                self.transfer_ended(file, Err(fault));
            }
            sender::Output::Finished {
                file,
                length,
                digest,
                retransmitted_bytes,
                store_wait_permille,
            } => {
                let busy = self
                    .sources
                    .remove(&file)
                    .map_or(Duration::ZERO, |s| s.busy);
                if let Some(transfer) = self.transfers.get_mut(&file) {
                    transfer.retransmitted = retransmitted_bytes;
                    let own = permille(busy, self.now.saturating_sub(transfer.started));
                    self.transfer_finished(file, length, digest, own, store_wait_permille);
                }
            }
            sender::Output::Transmit(mut frame) => {
                if let Frame::Eofr {
                    file,
                    store_wait_permille,
                    ..
                } = &mut frame
                {
                    if let Err(fault) = self.verify_source(*file) {
                        self.sender.fail(*file, fault);
                        return;
                    }
                    if let Some(open) = self.sources.get(file) {
                        *store_wait_permille = permille(open.busy, self.now);
                    }
                }
                self.transmit(frame);
            }
            _ => {}
        }
    }

    fn do_receiver(&mut self, output: receiver::Output) {
        match output {
            receiver::Output::Discard { file } => {
                self.storage.submit(file, StorageJob::Discard(file));
            }
            receiver::Output::Failed { file, fault } => {
                self.storage.submit(file, StorageJob::Detach(file));
                self.transfer_ended(file, Err(fault));
            }
            receiver::Output::Finished {
                file,
                length,
                digest,
                store_wait_permille,
            } => {
                let own = self.transfers.get(&file).map_or(0, |t| t.store_permille);
                self.transfer_finished(file, length, digest, own, store_wait_permille);
            }
            receiver::Output::Hole { file, range } => {
                self.storage.submit(file, StorageJob::Hole { file, range });
            }
            receiver::Output::Open(offer) => self.open_sink(offer),
            receiver::Output::Publish { file, length } => {
                if let Some(transfer) = self.transfers.get_mut(&file) {
                    transfer.retransmitted = self.receiver.repeated_bytes(file);
                }
                self.storage
                    .submit(file, StorageJob::Publish { file, length });
                self.complete_inline();
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

    /// Takes what the storage side has done.
    pub(super) fn complete(&mut self) {
        while let Some(completion) = self.storage.completion() {
            match completion {
                Completion::Buffer(buffer) => {
                    self.at_storage -= 1;
                    self.receive_pool.give(buffer);
                    if let Some(slot) = self.starved.pop()
                        && let Some(Some(channel)) = self.channels.get_mut(slot)
                    {
                        channel.starved = false;
                        self.queue(slot);
                    }
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
                    self.receiver.published(file, own);
                }
                Completion::Recorded { file, bytes } => self.receiver.recorded(file, bytes),
            }
        }
    }

    /// The same, where jobs are done in this thread and buffers come back at once.
    pub(super) fn complete_inline(&mut self) {
        self.complete();
    }

    /// Sends a frame on any channel: one that isn't in the middle of a block, if there is one.
    fn transmit(&mut self, frame: Frame) {
        let slot = self
            .open_slots()
            .find(|&slot| {
                self.channels[slot]
                    .as_ref()
                    .is_some_and(|c| c.outgoing.is_none())
            })
            .or_else(|| self.open_slots().next());
        match slot {
            Some(slot) => self.transmit_on(slot, &frame),
            None => self.homeless.push_back(frame),
        }
    }

    fn transmit_on(&mut self, slot: usize, frame: &Frame) {
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
        while self.live > 0 {
            let Some(frame) = self.homeless.pop_front() else {
                return;
            };
            self.transmit(frame);
        }
    }

    /// Looks at everything that depends on time.
    pub(super) fn tick(&mut self) {
        self.next_tick = self.now + TICK.min(PROGRESS_INTERVAL);
        self.check_openings();
        if self.sender.poll_timeout().is_some_and(|t| t <= self.now) {
            self.sender.handle_timeout(self.now);
        }
        let limit = self.limits.idle_timeout;
        if self.live > 0 && self.last_said + limit / 4 <= self.now {
            self.last_said = self.now;
            self.transmit(Frame::Noop);
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
                self.storage.submit(file, StorageJob::Discard(file));
                self.receiver.fail(file, fault);
            }
        }
    }

    /// Closes channels whose frame takes too long, or stands still while others go on, and those
    /// that leave and owe nothing.
    fn check_channels(&mut self) {
        let limit = self.limits.idle_timeout;
        let (stall, last_heard) = (self.limits.stall_timeout, self.last_heard);
        let mut gone = Vec::new();
        for (slot, channel) in self.channels.iter().enumerate() {
            let Some(channel) = channel.as_ref().filter(|c| c.is_open()) else {
                continue;
            };
            let waits = !channel.starved && !channel.readable;
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
            let quiet = !channel.has_pending() && channel.incoming.is_none();
            if channel.leaving && quiet && self.sender.outstanding(channel.index) == 0 {
                gone.push((slot, None));
            }
        }
        for (slot, fault) in gone {
            if let (Some(fault), Some(Some(channel))) = (&fault, self.channels.get_mut(slot)) {
                channel.take_leave(fault);
            }
            self.channel_gone(slot, fault.as_ref());
        }
    }

    fn tick_transfer(&mut self, file: FileId) {
        let sent = self.sender.progress(file);
        let (held, length, resumed) = self.receiver.progress(file);
        let channels = self.live;
        let Some(transfer) = self.transfers.get_mut(&file) else {
            return;
        };
        let bytes = if transfer.uploads { sent } else { held };
        if !transfer.uploads {
            transfer.resumed_bytes = transfer.resumed_bytes.max(resumed);
            transfer.bytes_total = transfer.bytes_total.or(length);
        }
        if transfer.until.is_some_and(|t| t <= self.now) {
            transfer.until = None;
            if transfer.uploads {
                let end = self.sender.cursor(file);
                self.sender.source_ended(file, end);
            } else {
                self.transfer_finished(file, bytes, DigestValue::None, 0, 0);
                let fault = Fault::new(Code::Cancelled, "receive the file", "its time is over");
                self.receiver.fail(file, fault);
            }
            return;
        }
        if transfer.last_progress + PROGRESS_INTERVAL <= self.now {
            transfer.last_progress = self.now;
            let progress = Progress {
                bytes,
                bytes_total: transfer.bytes_total,
                resumed_bytes: transfer.resumed_bytes,
                channels,
            };
            // Nobody may be listening any more.
            let _ = transfer.events.send(TransferEvent::Progress(progress));
        }
    }

    fn fail_file(&mut self, file: FileId, fault: Fault) {
        if self.sender.has_file(file) {
            self.sender.fail(file, fault);
        } else if self.receiver.has_file(file) {
            self.receiver.fail(file, fault);
        } else {
            self.transfer_ended(file, Err(fault));
        }
    }

    fn transfer_finished(
        &mut self,
        file: FileId,
        length: u64,
        digest: DigestValue,
        own_permille: u16,
        peer_permille: u16,
    ) {
        let Some(transfer) = self.transfers.get_mut(&file) else {
            return;
        };
        // A transfer that waited behind another one began when that one ended.
        let began = transfer.started.max(self.last_transfer_end);
        let elapsed = self.started.elapsed().saturating_sub(began);
        let (source, target) = if transfer.uploads {
            (own_permille, peer_permille)
        } else {
            (peer_permille, own_permille)
        };
        let held_back = self.bucket.as_ref().map_or(Duration::ZERO, Bucket::waited);
        let limited_by = if permille(held_back, elapsed) > 300 {
            LimitedBy::RateLimit
        } else if target >= 600 && target >= source {
            LimitedBy::TargetWrite
        } else if source >= 600 {
            LimitedBy::SourceRead
        } else {
            LimitedBy::Network
        };
        let outcome = Outcome {
            bytes: if transfer.dry_run {
                transfer.bytes_total.unwrap_or(length)
            } else {
                length
            },
            elapsed,
            channels: self.live_max,
            resumed_bytes: transfer.resumed_bytes,
            retransmitted_bytes: transfer.retransmitted,
            digest,
            target: std::mem::take(&mut transfer.path),
            limited_by,
        };
        self.transfer_ended(file, Ok(outcome));
    }

    fn transfer_ended(&mut self, file: FileId, result: Result<Outcome, Fault>) {
        if let Some(transfer) = self.transfers.remove(&file) {
            let _ = transfer.events.send(TransferEvent::Ended(result));
            self.last_transfer_end = self.started.elapsed();
        }
        if self.transfers.is_empty() {
            self.bucket = None;
        }
    }

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
        while let Ok(command) = self.commands.try_recv() {
            if let Command::Start(job) = command {
                let _ = job.events.send(TransferEvent::Ended(Err(fault.clone())));
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
                if channel.control_pending() == 0 || channel.outgoing.is_some() {
                    continue;
                }
                match channel.write() {
                    Ok(crate::channel::Written::Blocked) => waits = true,
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

    fn explicit_channels(&self) -> bool {
        match &self.role {
            Role::Initiator(dialer) => dialer.is_explicit(),
            Role::Acceptor { .. } => true,
        }
    }
}

fn sink_request(offer: &Offer, path: Vec<u8>, name: Vec<u8>) -> SinkRequest {
    SinkRequest {
        path,
        name,
        length: offer.length,
        tag: offer.tag,
        mode: offer.mode,
        mtime_ns: offer.mtime_ns,
        digest: offer.digest,
        block_size: 0,
        overwrite: offer.overwrite,
        resume: offer.resume,
    }
}

fn permille(part: Duration, whole: Duration) -> u16 {
    if whole.is_zero() {
        return 0;
    }
    (part.as_secs_f64() / whole.as_secs_f64() * 1000.0).min(1000.0) as u16
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

fn shutting_down(operation: &str) -> Fault {
    Fault::new(Code::ShuttingDown, operation, "the server is shutting down")
        .hint("run the same command again later to go on where it stopped")
        .retry(Retry::AfterMs(1000))
}
