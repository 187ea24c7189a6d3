//! The driver `buffer`.

use super::filter::Buffer;
use crate::attribute::{self, Attribute};
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;

/// The size unless the attribute says otherwise, in bytes.
const SIZE: u64 = 64 << 10;

/// The options of the driver.
struct BufferOptions {
    size: u64,
}

impl Default for BufferOptions {
    fn default() -> Self {
        Self { size: SIZE }
    }
}

const ATTRIBUTES: &[Attribute<BufferOptions>] = &[Attribute {
    name: "size",
    takes: "bytes from 512 to 16M, such as 64K",
    set: |options, text| {
        options.size = attribute::bytes(text)?;
        (512..=16 << 20).contains(&options.size).then_some(())
    },
    text: |options| (options.size != SIZE).then(|| options.size.to_string()),
}];

/// The driver `buffer`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("buffer", ATTRIBUTES, |options: BufferOptions| {
        // At most 16 MiB.
        let size = options.size as usize;
        Filtering(move |_| Ok(Buffer::new(size)))
    })
    .needs(&[Property::Order])
}
