//! The driver `zstd`.

use super::codec::Zstd;
use crate::attribute::Attribute;
use crate::compress::Compression;
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;

/// The default of the library.
const LEVEL: i32 = 3;

/// The options of the driver.
struct ZstdOptions {
    level: i32,
}

impl Default for ZstdOptions {
    fn default() -> Self {
        Self { level: LEVEL }
    }
}

const ATTRIBUTES: &[Attribute<ZstdOptions>] = &[Attribute {
    name: "level",
    takes: "a number from 1 (fast) to 19 (small)",
    set: |options, text| {
        options.level = text.parse().ok()?;
        (1..=19).contains(&options.level).then_some(())
    },
    text: |options| (options.level != LEVEL).then(|| options.level.to_string()),
}];

/// The driver `zstd`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("zstd", ATTRIBUTES, |options: ZstdOptions| {
        let level = options.level;
        Filtering(move |_| Ok(Compression::new(Zstd { level })))
    })
    .needs(&[Property::Order])
}
