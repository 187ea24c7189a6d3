//! The options of the driver `fault`, and its attributes.

use crate::attribute::{self, Attribute};

/// The options of the driver: mean distances in bytes, zero for none.
#[derive(Clone, Debug)]
pub(super) struct FaultOptions {
    pub(super) seed: u64,
    pub(super) short: u64,
    pub(super) delay: u64,
    pub(super) delay_ms_max: u64,
    pub(super) corrupt: u64,
    pub(super) lose: u64,
    pub(super) lose_after: u64,
}

impl Default for FaultOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            short: 0,
            delay: 0,
            delay_ms_max: 10,
            corrupt: 0,
            lose: 0,
            lose_after: 0,
        }
    }
}

const DISTANCE: &str = "a mean distance in bytes from 1 to 1T, such as 64K";

/// Parses and sets a distance.
fn distance(to: &mut u64, text: &str) -> Option<()> {
    *to = attribute::bytes(text)?;
    (1..=1 << 40).contains(to).then_some(())
}

/// The text of a number that isn't zero.
fn text(number: u64) -> Option<String> {
    (number > 0).then(|| number.to_string())
}

/// The attributes.
pub(super) const ATTRIBUTES: &[Attribute<FaultOptions>] = &[
    Attribute {
        name: "seed",
        takes: "a number",
        set: |options, text| {
            options.seed = text.parse().ok()?;
            Some(())
        },
        text: |options| Some(options.seed.to_string()),
    },
    Attribute {
        name: "short",
        takes: DISTANCE,
        set: |options, text| distance(&mut options.short, text),
        text: |options| text(options.short),
    },
    Attribute {
        name: "delay",
        takes: DISTANCE,
        set: |options, text| distance(&mut options.delay, text),
        text: |options| text(options.delay),
    },
    Attribute {
        name: "delay_ms",
        takes: "milliseconds from 1 to 60000",
        set: |options, text| {
            options.delay_ms_max = text.parse().ok()?;
            (1..=60_000).contains(&options.delay_ms_max).then_some(())
        },
        text: |options| Some(options.delay_ms_max.to_string()),
    },
    Attribute {
        name: "corrupt",
        takes: DISTANCE,
        set: |options, text| distance(&mut options.corrupt, text),
        text: |options| text(options.corrupt),
    },
    Attribute {
        name: "lose",
        takes: DISTANCE,
        set: |options, text| distance(&mut options.lose, text),
        text: |options| text(options.lose),
    },
    Attribute {
        name: "lose_after",
        takes: "bytes of one direction from 1 to 1T, such as 64K",
        set: |options, text| distance(&mut options.lose_after, text),
        text: |options| text(options.lose_after),
    },
];
