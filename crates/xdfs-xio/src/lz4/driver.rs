//! The driver `lz4`. It has no attributes.

use super::codec::Lz4;
use crate::compress::Compression;
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;

/// The driver `lz4`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("lz4", &[], |()| Filtering(|_| Ok(Compression::new(Lz4))))
        .needs(&[Property::Order])
}
