//! The threads that move the bytes of a connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::connection::{Connection, LOOK};
use super::plan::Faults;
use super::shared::Shared;

/// Bytes moved in one step.
const CHUNK: usize = 64 << 10;

#[derive(Clone, Copy, Debug)]
pub(super) enum Direction {
    Up,
    Down,
}

/// Why a direction ends.
enum End {
    /// The source ended; its other direction goes on.
    Orderly,
    /// A side is gone, the plan says so, or somebody cut it.
    Cut,
}

/// One direction of one connection.
pub(super) struct Pump {
    pub(super) faults: Faults,
    pub(super) direction: Direction,
    pub(super) connection: Arc<Connection>,
    pub(super) shared: Arc<Shared>,
    /// Bytes forwarded.
    pub(super) done: u64,
}

impl Pump {
    fn source(&self) -> &TcpStream {
        match self.direction {
            Direction::Up => &self.connection.client,
            Direction::Down => &self.connection.server,
        }
    }

    fn target(&self) -> &TcpStream {
        match self.direction {
            Direction::Up => &self.connection.server,
            Direction::Down => &self.connection.client,
        }
    }

    pub(super) fn run(mut self) {
        let end = if self.faults.delay.is_zero() {
            self.at_once()
        } else {
            self.delayed()
        };
        match end {
            End::Orderly => drop(self.target().shutdown(Shutdown::Write)),
            End::Cut => self.connection.cut(),
        }
        self.connection.ended.fetch_add(1, Ordering::AcqRel);
        if !self.connection.is_live() {
            // The map must not keep the sockets open: closing them is what the peers see.
            let mut state = self.shared.state();
            state.live.retain(|_, c| !Arc::ptr_eq(c, &self.connection));
        }
    }

    fn at_once(&mut self) -> End {
        let mut chunk = vec![0; self.step()];
        let start = Instant::now();
        loop {
            let n = match read(self.source(), &self.connection, &mut chunk) {
                Ok(n) => n,
                Err(end) => return end,
            };
            if let Err(end) = self.forward(&mut chunk[..n], start) {
                return end;
            }
        }
    }

    /// Reads on another thread, so that bytes wait for their time without stopping the sender.
    fn delayed(&mut self) -> End {
        // Bounded: a sender that is faster than the target waits, as over any network.
        let (into, out) = mpsc::sync_channel::<(Instant, Result<Vec<u8>, End>)>(1024);
        let (delay, step) = (self.faults.delay, self.step());
        let (direction, connection) = (self.direction, Arc::clone(&self.connection));
        let reader = thread::spawn(move || {
            let source = match direction {
                Direction::Up => &connection.client,
                Direction::Down => &connection.server,
            };
            loop {
                let mut chunk = vec![0; step];
                let read = read(source, &connection, &mut chunk).map(|n| {
                    chunk.truncate(n);
                    chunk
                });
                let last = read.is_err();
                if into.send((Instant::now() + delay, read)).is_err() || last {
                    return;
                }
            }
        });
        let end = self.drain_queue(&out);
        // With the queue gone the reader can't be stuck in sending, and with the connection cut
        // or ended it does not go on reading.
        drop(out);
        if matches!(end, End::Cut) {
            self.connection.cut();
        }
        let _ = reader.join();
        end
    }

    fn drain_queue(&mut self, queue: &Receiver<(Instant, Result<Vec<u8>, End>)>) -> End {
        let start = Instant::now();
        loop {
            let (due, read) = match queue.recv_timeout(LOOK) {
                Ok(item) => item,
                Err(RecvTimeoutError::Timeout) if !self.connection.is_cut() => continue,
                Err(_) => return End::Cut,
            };
            if self.sleep_until(due).is_err() {
                return End::Cut;
            }
            let forwarded = read.and_then(|mut chunk| self.forward(&mut chunk, start));
            if let Err(end) = forwarded {
                return end;
            }
        }
    }

    /// Bytes read in one step: few enough that a throttled direction moves smoothly.
    fn step(&self) -> usize {
        let rate = self.faults.rate.map_or(u64::MAX, |rate| rate / 50);
        usize::try_from(rate).unwrap_or(usize::MAX).clamp(1, CHUNK)
    }

    /// Sends one chunk on, with the faults that fall into it.
    fn forward(&mut self, chunk: &mut [u8], start: Instant) -> Result<(), End> {
        if self.connection.is_closing() {
            return Ok(());
        }
        let len = chunk.len() as u64;
        if let Some(flip) = self.faults.flip
            && (self.done..self.done + len).contains(&flip.byte)
        {
            // In range by the line above.
            chunk[(flip.byte - self.done) as usize] ^= 1 << (flip.bit & 7);
        }
        let stops = [
            self.faults.cut_after,
            self.faults.close_after,
            self.faults.hang_after,
        ];
        let stop = stops.into_iter().flatten().min().unwrap_or(u64::MAX);
        let allowed = stop.saturating_sub(self.done).min(len);
        // Not more than the chunk's own length, so it fits.
        self.send(&chunk[..allowed as usize])?;
        if self.done >= stop {
            if self.faults.cut_after == Some(stop) {
                return Err(End::Cut);
            }
            if self.faults.close_after == Some(stop) {
                self.connection.close();
                return Ok(());
            }
            self.connection.hung.store(true, Ordering::Release);
            return self.stay_hung();
        }
        if let Some(rate) = self.faults.rate {
            let due = Duration::from_secs_f64(self.done as f64 / rate.max(1) as f64);
            self.sleep_until(start + due)?;
        }
        Ok(())
    }

    fn send(&mut self, mut bytes: &[u8]) -> Result<(), End> {
        while !bytes.is_empty() {
            self.stay_hung()?;
            let is_up = matches!(self.direction, Direction::Up);
            self.shared.note_flight(is_up);
            match self.target().write(bytes) {
                Ok(n) => {
                    bytes = &bytes[n..];
                    self.done += n as u64;
                    let total = match self.direction {
                        Direction::Up => &self.shared.up,
                        Direction::Down => &self.shared.down,
                    };
                    total.fetch_add(n as u64, Ordering::AcqRel);
                }
                Err(e) if is_pause(&e) => {}
                Err(_) if self.connection.is_closing() => return Ok(()),
                Err(_) => return Err(End::Cut),
            }
        }
        Ok(())
    }

    /// Waits as long as the connection hangs.
    fn stay_hung(&self) -> Result<(), End> {
        while self.connection.hung.load(Ordering::Acquire) && !self.connection.is_cut() {
            thread::sleep(LOOK);
        }
        if self.connection.is_cut() {
            Err(End::Cut)
        } else {
            Ok(())
        }
    }

    fn sleep_until(&self, due: Instant) -> Result<(), End> {
        loop {
            if self.connection.is_cut() {
                return Err(End::Cut);
            }
            match due.checked_duration_since(Instant::now()) {
                None | Some(Duration::ZERO) => return Ok(()),
                Some(left) => thread::sleep(left.min(LOOK)),
            }
        }
    }
}

/// Reads at least one byte.
fn read(mut source: &TcpStream, connection: &Connection, chunk: &mut [u8]) -> Result<usize, End> {
    loop {
        if connection.is_cut() {
            return Err(End::Cut);
        }
        match source.read(chunk) {
            Ok(0) => return Err(End::Orderly),
            Ok(n) => return Ok(n),
            Err(e) if is_pause(&e) => {}
            Err(_) => return Err(End::Cut),
        }
    }
}

/// The time to look around is over, and nothing else happened.
fn is_pause(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
