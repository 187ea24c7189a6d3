//! The thread that moves packets of one direction from device to device.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use tun_rs::SyncDevice;

use super::link::{Counters, Link};
use super::one_way_link::{OneWayLink, PacketFate};
use super::segment::{self, Shape};

/// The largest frame: an IP packet with the header that offload puts before it.
const FRAME_MAX: usize = segment::HEADER + 65_535;

/// Packets taken or delivered before looking at the other half of the work.
const BATCH: usize = 64;

/// From so many packets in one look on, the thread sleeps for [`NAP`] instead of being woken for
/// each packet: the cores are for those that send.
const BUSY: usize = 8;

/// How long that is; so much is added to the delay then, at most.
const NAP: Duration = Duration::from_micros(50);

/// After so much a delivery counts as late.
const LATE: u64 = 1_000_000;

/// One direction; dropping it ends its thread.
#[derive(Debug)]
pub(super) struct Forwarder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    link: Mutex<Link>,
    /// Set while the link is newer than what the thread has seen.
    changed: AtomicBool,
    stopped: AtomicBool,
    /// Readable when the thread has to look at those two.
    wake: OwnedFd,
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
    overrun: AtomicU64,
    late: AtomicU64,
    late_max: AtomicU64,
}

impl Forwarder {
    /// Moves packets from one device to the other, beginning now.
    pub(super) fn new(
        from: Arc<SyncDevice>,
        to: Arc<SyncDevice>,
        offload: bool,
        link: Link,
        seed: u64,
    ) -> io::Result<Self> {
        let zero = AtomicU64::default;
        let shared = Arc::new(Shared {
            link: Mutex::new(link),
            changed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            packets: zero(),
            bytes: zero(),
            lost: zero(),
            dropped: zero(),
            overrun: zero(),
            late: zero(),
            late_max: zero(),
        });
        let mover = Mover {
            from,
            to,
            header: if offload { segment::HEADER } else { 0 },
            line: OneWayLink::new(link, seed),
            scratch: vec![0; FRAME_MAX],
            start: Instant::now(),
            shared: Arc::clone(&shared),
        };
        let (ready, begun) = mpsc::sync_channel(1);
        let thread = thread::Builder::new()
            .name("wan".to_owned())
            .spawn(move || {
                hurry();
                // If nobody waits any more, it ends at once.
                let _ = ready.send(());
                mover.run();
            })?;
        let forwarder = Self {
            shared,
            thread: Some(thread),
        };
        // Packets that come before would be late. An error is a panic of the thread.
        begun.recv().map_err(io::Error::other)?;
        Ok(forwarder)
    }

    pub(super) fn link(&self) -> Link {
        *self.shared.link.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn set(&self, link: Link) {
        *self.shared.link.lock().unwrap_or_else(|e| e.into_inner()) = link;
        self.shared.changed.store(true, Ordering::Release);
        self.shared.wake();
    }

    pub(super) fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            packets: read(&self.shared.packets),
            bytes: read(&self.shared.bytes),
            lost: read(&self.shared.lost),
            dropped: read(&self.shared.dropped),
            overrun: read(&self.shared.overrun),
            late: read(&self.shared.late),
            late_max: Duration::from_nanos(read(&self.shared.late_max)),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wake(&self) {
        // Fails only if it is to be woken already.
        let _ = rustix::io::write(&self.wake, &[1, 0, 0, 0, 0, 0, 0, 1]);
    }

    fn count(counter: &AtomicU64, more: usize) {
        counter.fetch_add(u64::try_from(more).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// Asks the system to run this thread whenever it has something to do. All of it is a favour:
/// without it packets are less punctual, which the counters show.
fn hurry() {
    let own = rustix::thread::gettid();
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
    let _ = rustix::process::setpriority_process(Some(own), -20);
    // On a busy machine only this helps: the least of the real-time priorities, of which the
    // system keeps some time for all others. The program saves us an unsafe call.
    let mut command = Command::new("chrt");
    command.args(["--rr", "--pid", "1"]);
    let _ = command.arg(own.as_raw_nonzero().to_string()).output();
}

struct Mover {
    from: Arc<SyncDevice>,
    to: Arc<SyncDevice>,
    /// Bytes before each packet.
    header: usize,
    line: OneWayLink,
    scratch: Vec<u8>,
    start: Instant,
    shared: Arc<Shared>,
}

impl Mover {
    fn run(mut self) {
        while !self.shared.stopped.load(Ordering::Acquire) {
            if self.shared.changed.swap(false, Ordering::AcqRel) {
                let link = *self.shared.link.lock().unwrap_or_else(|e| e.into_inner());
                let now = self.now();
                self.line.set(now, link);
            }
            // The device is gone, and with it what there was to do.
            let Ok(taken) = self.take() else { return };
            let delivered = self.deliver();
            if taken.max(delivered) < BATCH && self.pause(taken + delivered).is_err() {
                return;
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes packets in, and says how many.
    fn take(&mut self) -> io::Result<usize> {
        for taken in 0..BATCH {
            let room = self.line.room(FRAME_MAX);
            let full = room.is_none();
            let room = room.unwrap_or(&mut self.scratch);
            let len = match rustix::io::read(&*self.from, &mut *room) {
                Ok(len) => len,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(taken),
                Err(error) => return Err(error.into()),
            };
            let frame = room.get(..len).unwrap_or(&[]);
            let Some(packet) = frame.get(self.header..) else {
                continue;
            };
            if !segment::is_routed(packet) {
                continue;
            }
            let wire = packet.len();
            let shape = (self.header > 0).then(|| Shape::of(frame)).flatten();
            if full {
                let packets = shape.map_or(1, |shape| shape.packets());
                Shared::count(&self.shared.overrun, packets);
                continue;
            }
            match shape {
                None => self.take_packet(len, wire),
                Some(shape) => self.take_segment(len, &shape),
            }
        }
        Ok(BATCH)
    }

    /// Takes in the packet that stands in the line's room.
    fn take_packet(&mut self, len: usize, wire: usize) {
        let now = self.now();
        let wire = u64::try_from(wire).unwrap_or(u64::MAX);
        match self.line.fate(now, 0, wire) {
            PacketFate::Dropped => Shared::count(&self.shared.dropped, 1),
            PacketFate::Kept => self.line.keep(now, len, wire),
            PacketFate::Lost => Shared::count(&self.shared.lost, 1),
        }
    }

    /// Takes in the packets of the segment that stands in the line's room.
    fn take_segment(&mut self, len: usize, shape: &Shape) {
        let now = self.now();
        let bytes = |wire: usize| u64::try_from(wire).unwrap_or(u64::MAX);
        let all = 0..shape.packets();
        // What is left, as runs of packets; mostly there is one.
        let mut runs = Vec::with_capacity(1);
        let (mut first, mut ahead) = (0, 0);
        for packet in all.clone() {
            let wire = bytes(shape.wire(&(packet..packet + 1)));
            match self.line.fate(now, ahead, wire) {
                PacketFate::Kept => {
                    ahead += wire;
                    continue;
                }
                PacketFate::Dropped => Shared::count(&self.shared.dropped, 1),
                PacketFate::Lost => Shared::count(&self.shared.lost, 1),
            }
            runs.push(first..packet);
            first = packet + 1;
        }
        if first == 0 {
            self.line.keep(now, len, bytes(shape.wire(&all)));
            return;
        }
        runs.push(first..all.end);
        let Some(room) = self.line.room(len) else {
            return;
        };
        let Some(segment) = self.scratch.get_mut(..len) else {
            return;
        };
        segment.copy_from_slice(room);
        for run in runs.into_iter().filter(|run| !run.is_empty()) {
            let room = self.line.room(len);
            let cut = room.and_then(|room| shape.cut(segment, &run, room));
            match cut {
                Some(cut) => self.line.keep(now, cut, bytes(shape.wire(&run))),
                None => Shared::count(&self.shared.overrun, run.len()),
            }
        }
    }

    /// Delivers what has arrived, and says how many.
    fn deliver(&mut self) -> usize {
        let mut now = self.now();
        for delivered in 0..BATCH {
            if delivered % 8 == 7 {
                now = self.now();
            }
            let Some((frame, due, wire)) = self.line.arrived(now) else {
                return delivered;
            };
            let shape = (self.header > 0).then(|| Shape::of(frame)).flatten();
            let packets = shape.map_or(1, |shape| shape.packets());
            if rustix::io::write(&*self.to, frame).is_ok() {
                Shared::count(&self.shared.packets, packets);
                self.shared.bytes.fetch_add(wire, Ordering::Relaxed);
                let late = now.saturating_sub(due);
                self.shared.late_max.fetch_max(late, Ordering::Relaxed);
                if late > LATE {
                    Shared::count(&self.shared.late, packets);
                }
            } else {
                Shared::count(&self.shared.overrun, packets);
            }
            self.line.forget();
        }
        BATCH
    }

    /// Waits for a packet, for the time of the next delivery, or to be woken.
    fn pause(&self, moved: usize) -> io::Result<()> {
        if moved >= BUSY {
            thread::sleep(NAP);
            return Ok(());
        }
        let next = self.line.next();
        let left = next.map(|next| Duration::from_nanos(next.saturating_sub(self.now())));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(());
        }
        // A time that is too long for the system is one that nobody waits for.
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut waited = [
            PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.shared.wake.as_fd(), PollFlags::IN),
        ];
        match poll(&mut waited, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if !waited[1].revents().is_empty() {
            let _ = rustix::io::read(&self.shared.wake, &mut [0_u8; 8]);
        }
        Ok(())
    }
}
