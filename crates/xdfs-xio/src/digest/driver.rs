//! The driver `digest`.

use super::filter::{Digest, Kind};
use crate::attribute::Attribute;
use crate::driver::Driver;
use crate::filter::Filtering;
use crate::layer::Property;

const ATTRIBUTES: &[Attribute<Kind>] = &[Attribute {
    name: "kind",
    takes: "crc64nvme, blake3 or sha256",
    set: |kind, text| {
        *kind = match text {
            "crc64nvme" => Kind::Crc64Nvme,
            "blake3" => Kind::Blake3,
            "sha256" => Kind::Sha256,
            _ => return None,
        };
        Some(())
    },
    text: |kind| match kind {
        Kind::Crc64Nvme => None,
        Kind::Blake3 => Some("blake3".to_owned()),
        Kind::Sha256 => Some("sha256".to_owned()),
    },
}];

/// The driver `digest`.
#[must_use]
pub fn driver() -> Driver {
    Driver::layer("digest", ATTRIBUTES, |kind: Kind| {
        Filtering(move |_| Ok(Digest::new(kind)))
    })
    .needs(&[Property::Order])
}
