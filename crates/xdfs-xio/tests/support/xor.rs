//! A driver from outside of the crate: a transform that changes every byte by its key.

use std::io::{self, IoSlice};

use xdfs_xio::{Attribute, Driver, Output, Property, Room, Transform};

/// The options of the driver.
#[derive(Debug)]
struct XorOptions {
    key: u8,
}

impl Default for XorOptions {
    fn default() -> Self {
        Self { key: 0x5a }
    }
}

const ATTRIBUTES: &[Attribute<XorOptions>] = &[Attribute {
    name: "key",
    takes: "a number from 0 to 255",
    set: |options, text| {
        options.key = text.parse().ok()?;
        Some(())
    },
    text: |options| Some(options.key.to_string()),
}];

/// The driver `xor`.
pub(crate) fn xor() -> Driver {
    Driver::transform("xor", ATTRIBUTES, |options| {
        let key = options.key;
        move |_| Ok(Xor { key })
    })
    .needs(&[Property::Order])
}

#[derive(Debug)]
struct Xor {
    key: u8,
}

impl Transform for Xor {
    fn encode(&mut self, content: &[IoSlice<'_>], out: &mut Output) -> io::Result<usize> {
        let mut taken = 0;
        for slice in content {
            let room = out.room();
            let n = slice.len().min(room.len());
            for (to, from) in room.iter_mut().zip(&slice[..n]) {
                *to = from ^ self.key;
            }
            out.advance(n);
            taken += n;
        }
        Ok(taken)
    }

    fn decode(
        &mut self,
        encoded: &[u8],
        content: &mut Room<'_, '_>,
        _: &mut Output,
    ) -> io::Result<usize> {
        let mut used = 0;
        while used < encoded.len() && content.left() > 0 {
            let room = content.slice();
            let n = room.len().min(encoded.len() - used);
            for (to, from) in room[..n].iter_mut().zip(&encoded[used..]) {
                *to = from ^ self.key;
            }
            content.advance(n);
            used += n;
        }
        Ok(used)
    }
}
