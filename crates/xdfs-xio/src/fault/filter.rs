//! One end of a faulty channel.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::time::Instant;

use xdfs_sys::poll::{Poller, Token};

use super::course::{Course, Due};
use crate::control::Control;
use crate::filter::{Filter, first, first_mut};
use crate::stream::{Capabilities, Stream};
use crate::timer::{Alarm, Direction};

/// One end of a faulty channel.
#[derive(Debug)]
pub(super) struct Fault {
    reading: Way,
    writing: Way,
    alarm: Alarm,
    lost: bool,
    delays: u64,
    corrupted: u64,
}

/// One direction.
#[derive(Debug)]
struct Way {
    course: Course,
    /// The end of a delay.
    until: Option<Instant>,
}

impl Fault {
    pub(super) fn new(reading: Course, writing: Course) -> Self {
        let way = |course| Way {
            course,
            until: None,
        };
        Self {
            reading: way(reading),
            writing: way(writing),
            alarm: Alarm::default(),
            lost: false,
            delays: 0,
            corrupted: 0,
        }
    }

    /// Lets the faults happen that are due, and returns the number of bytes that may pass.
    fn begin(&mut self, below: &mut Box<dyn Stream>, direction: Direction) -> io::Result<usize> {
        self.check()?;
        let way = match direction {
            Direction::Reading => &mut self.reading,
            Direction::Writing => &mut self.writing,
        };
        if way.until.is_none() {
            match way.course.due() {
                Some(Due::Delay(delay)) => {
                    way.until = Some(Instant::now() + delay);
                    self.delays += 1;
                }
                Some(Due::Loss) => {
                    self.lost = true;
                    *below = Box::new(Lost {
                        peer: below.peer(),
                        capabilities: below.capabilities(),
                    });
                    return Err(ErrorKind::ConnectionReset.into());
                }
                None => {}
            }
        }
        if let Some(until) = way.until {
            if Instant::now() < until {
                self.alarm.set(until, direction)?;
                return Err(ErrorKind::WouldBlock.into());
            }
            way.until = None;
        }
        Ok(way.course.room())
    }

    fn check(&self) -> io::Result<()> {
        match self.lost {
            true => Err(ErrorKind::ConnectionReset.into()),
            false => Ok(()),
        }
    }
}

impl Filter for Fault {
    fn waits(&self) -> bool {
        true
    }

    fn read(
        &mut self,
        below: &mut Box<dyn Stream>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let room = self.begin(below, Direction::Reading)?;
        let n = below.read_vectored(&mut first_mut(bufs, room))?;
        let mut from = 0;
        while let Some((place, bit)) = self.reading.course.corrupted(from, n) {
            let mut at = place;
            for buf in bufs.iter_mut() {
                if let Some(byte) = buf.get_mut(at) {
                    *byte ^= bit;
                    break;
                }
                at -= buf.len();
            }
            self.corrupted += 1;
            from = place + 1;
        }
        self.reading.course.pass(n);
        Ok(n)
    }

    fn write(&mut self, below: &mut Box<dyn Stream>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = self.begin(below, Direction::Writing)?;
        let n = below.write_vectored(&first(bufs, room))?;
        self.writing.course.pass(n);
        Ok(n)
    }

    fn registered(&mut self, poller: &Poller, token: Token) {
        self.alarm.register(poller, token);
    }

    fn deregistered(&mut self) {
        self.alarm.deregister();
    }

    /// The faults so far: delays, changed bytes, and whether the connection was lost.
    fn controls(&self, out: &mut Vec<Control>) {
        out.push(Control::new("fault", "delays", self.delays));
        out.push(Control::new("fault", "corrupted", self.corrupted));
        out.push(Control::new("fault", "lost", self.lost));
    }
}

/// In the place of a connection that was lost.
#[derive(Debug)]
struct Lost {
    peer: String,
    capabilities: Capabilities,
}

impl Stream for Lost {
    fn read_vectored(&mut self, _: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Err(ErrorKind::ConnectionReset.into())
    }

    fn write_vectored(&mut self, _: &[IoSlice<'_>]) -> io::Result<usize> {
        Err(ErrorKind::ConnectionReset.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(ErrorKind::ConnectionReset.into())
    }

    fn finish_open(&mut self) -> io::Result<bool> {
        Err(ErrorKind::ConnectionReset.into())
    }

    fn close(&mut self) -> io::Result<()> {
        Err(ErrorKind::ConnectionReset.into())
    }

    fn register(&mut self, _: &mut Poller, _: Token) -> io::Result<()> {
        Err(ErrorKind::ConnectionReset.into())
    }

    fn deregister(&mut self, _: &mut Poller) -> io::Result<()> {
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}
