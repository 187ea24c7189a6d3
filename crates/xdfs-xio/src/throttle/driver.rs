//! The driver `throttle`.

use std::sync::Arc;

use super::bucket::Bucket;
use super::filter::Throttle;
use crate::attribute::{self, Attribute};
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;

/// What may be sent at once unless the attribute says otherwise.
const BURST: u64 = 64 << 10;

/// The options of the driver.
struct ThrottleOptions {
    rate: Option<u64>,
    burst: u64,
    name: Option<String>,
}

impl Default for ThrottleOptions {
    fn default() -> Self {
        Self {
            rate: None,
            burst: BURST,
            name: None,
        }
    }
}

const ATTRIBUTES: &[Attribute<ThrottleOptions>] = &[
    Attribute {
        name: "rate",
        takes: "bytes a second from 1 to 1T, such as 10M",
        set: |options, text| {
            let rate = attribute::rate(text)?;
            options.rate = (1..=1_000_000_000_000).contains(&rate).then_some(rate);
            options.rate.map(|_| ())
        },
        text: |options| options.rate.map(|rate| rate.to_string()),
    },
    Attribute {
        name: "burst",
        takes: "bytes from 1 to 1G, such as 64K",
        set: |options, text| {
            options.burst = attribute::bytes(text)?;
            (1..=1 << 30).contains(&options.burst).then_some(())
        },
        text: |options| (options.burst != BURST).then(|| options.burst.to_string()),
    },
    Attribute {
        name: "name",
        takes: "a name, to share the limit with all streams of that name, rate and burst",
        set: |options, text| {
            options.name = Some(text.to_owned());
            (!text.is_empty()).then_some(())
        },
        text: |options| options.name.clone(),
    },
];

/// The driver `throttle`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("throttle", ATTRIBUTES, |options: ThrottleOptions| {
        let ThrottleOptions { rate, burst, name } = options;
        let shared = match (rate, name) {
            (Some(rate), Some(name)) => Some(Bucket::shared(&name, rate, burst)),
            _ => None,
        };
        Filtering(move |_| {
            let own = || rate.map(|rate| Arc::new(Bucket::new(rate, burst)));
            Ok(Throttle::new(shared.clone().or_else(own)))
        })
    })
    .needs(&[Property::Order])
}
