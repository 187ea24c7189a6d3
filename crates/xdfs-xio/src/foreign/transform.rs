//! A channel of a driver in a library as a [`Transform`].

use std::io::{self, IoSlice};

use xdfs_sys::driver::{Channel, property};

use crate::control::Control;
use crate::stream::Capabilities;
use crate::transform::{Output, Room, Transform};

/// One end of a driver in a library.
#[derive(Debug)]
pub(super) struct ForeignTransform {
    channel: Channel,
}

impl ForeignTransform {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel }
    }
}

impl Transform for ForeignTransform {
    fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// The driver is asked once for each of the slices, or more often if it takes parts of them.
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        if !self.channel.is_open() {
            let moved = self.channel.encode(&[], out.room())?;
            out.advance(moved.filled);
            return Ok(0);
        }
        let mut taken = 0;
        for slice in content {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let moved = self.channel.encode(rest, out.room())?;
                out.advance(moved.filled);
                if moved.used == 0 {
                    // At first there was all the room that the interface promises.
                    return match taken {
                        0 => Err(self.channel.give_up("makes no progress in encode")),
                        _ => Ok(taken),
                    };
                }
                taken += moved.used;
                rest = &rest[moved.used..];
            }
        }
        Ok(taken)
    }

    /// Each call but the last uses bytes or fills room, both of which are finite.
    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        let was_open = self.channel.is_open();
        let mut used = 0;
        loop {
            let room = content.slice();
            let room_bytes = room.len();
            let moved = self.channel.decode(&encoded[used..], room)?;
            content.advance(moved.filled);
            used += moved.used;
            let is_stuck = moved.used == 0 && moved.filled == 0;
            let is_drained = used == encoded.len() && moved.filled < room_bytes;
            let is_over = self.channel.is_ended() || was_open != self.channel.is_open();
            if is_stuck || is_drained || is_over || (was_open && content.left() == 0) {
                return Ok(used);
            }
        }
    }

    fn is_ended(&self) -> bool {
        self.channel.is_ended()
    }

    fn end(&mut self, held: &[u8]) -> io::Result<()> {
        self.channel.end(held.len())
    }

    fn close(&mut self, out: &mut Output) {
        if !self.channel.is_open() {
            return;
        }
        match self.channel.close(out.room()) {
            Ok(filled) => out.advance(filled),
            // The peer sees that the end of content is missing, if the driver has one.
            Err(error) => tracing::warn!(%error, "a channel isn't closed in order"),
        }
    }

    fn capabilities(&self, below: Capabilities) -> Capabilities {
        let own = self.channel.driver().gives() & property::INTEGRITY != 0;
        Capabilities {
            integrity: below.integrity || own,
            ..below
        }
    }

    fn controls(&self, out: &mut Vec<Control>) {
        let driver = self.channel.driver();
        for (index, name) in driver.controls().iter().enumerate() {
            if let Some(value) = self.channel.control(index) {
                out.push(Control::new(driver.name(), name, value));
            }
        }
    }
}
