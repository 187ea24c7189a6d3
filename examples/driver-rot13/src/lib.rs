//! The driver `rot13`: it rotates the letters of ASCII, which hides nothing from anybody.
//!
//! A program registers it, and names it in stacks: `tcp,rot13`, or `tcp,rot13:by=3`.

#![forbid(unsafe_code)]

use std::io::{self, IoSlice};

use xdfs_xio::{Attribute, Control, Driver, Output, Property, Room, Transform};

/// The options of the driver.
#[derive(Clone, Debug)]
struct Options {
    /// The distance, 1 to 25.
    by: u8,
}

impl Default for Options {
    fn default() -> Self {
        Self { by: 13 }
    }
}

const ATTRIBUTES: &[Attribute<Options>] = &[Attribute {
    name: "by",
    takes: "a number from 1 to 25",
    set: |options, text| {
        options.by = text.parse().ok().filter(|by| (1..26).contains(by))?;
        Some(())
    },
    text: |options| (options.by != 13).then(|| options.by.to_string()),
}];

/// The driver `rot13`.
#[must_use]
pub fn driver() -> Driver {
    Driver::transform("rot13", ATTRIBUTES, |options: Options| {
        // Called once for each end of each channel.
        move |_end| Ok(Rot13::new(options.by))
    })
    .needs(&[Property::Order])
}

/// One end of a channel.
#[derive(Debug)]
struct Rot13 {
    by: u8,
    decoded_bytes: u64,
}

impl Rot13 {
    fn new(by: u8) -> Self {
        Self {
            by,
            decoded_bytes: 0,
        }
    }
}

impl Transform for Rot13 {
    /// Uses as much content as there is room for; the rest is offered again.
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let mut used = 0;
        for slice in content {
            let count = rotate(self.by, slice, out.room());
            out.advance(count);
            used += count;
        }
        Ok(used)
    }

    /// Fills the caller's buffers one after the other.
    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _answers: &mut Output,
    ) -> io::Result<usize> {
        let mut used = 0;
        while used < encoded.len() && content.left() > 0 {
            let count = rotate(26 - self.by, &encoded[used..], content.slice());
            content.advance(count);
            used += count;
        }
        self.decoded_bytes += used as u64;
        Ok(used)
    }

    fn controls(&self, out: &mut Vec<Control>) {
        out.push(Control::new("rot13", "bytes", self.decoded_bytes));
    }
}

/// Rotates as many bytes as fit, and returns their number.
fn rotate(by: u8, from: &[u8], to: &mut [u8]) -> usize {
    for (to, from) in to.iter_mut().zip(from) {
        *to = match *from {
            letter @ b'a'..=b'z' => b'a' + (letter - b'a' + by) % 26,
            letter @ b'A'..=b'Z' => b'A' + (letter - b'A' + by) % 26,
            other => other,
        };
    }
    from.len().min(to.len())
}
