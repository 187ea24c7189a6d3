//! The options of the driver `http`, and its attributes.

use crate::attribute::Attribute;

/// What is asked of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpOptions {
    pub(super) method: Method,
    pub(super) offset: u64,
    pub(super) length: Option<u64>,
    pub(super) size: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Method {
    #[default]
    Get,
    Put,
}

/// The attributes.
pub(super) const ATTRIBUTES: &[Attribute<HttpOptions>] = &[
    Attribute {
        name: "method",
        takes: "get or put",
        set: |options, text| {
            options.method = match text {
                "get" => Method::Get,
                "put" => Method::Put,
                _ => return None,
            };
            Some(())
        },
        text: |options| (options.method == Method::Put).then(|| "put".to_owned()),
    },
    Attribute {
        name: "offset",
        takes: "bytes from 0 to 4611686018427387903",
        set: |options, text| {
            options.offset = bytes(text)?;
            Some(())
        },
        text: |options| (options.offset > 0).then(|| options.offset.to_string()),
    },
    Attribute {
        name: "length",
        takes: "bytes from 1 to 4611686018427387903",
        set: |options, text| {
            options.length = Some(bytes(text).filter(|length| *length > 0)?);
            Some(())
        },
        text: |options| options.length.map(|length| length.to_string()),
    },
    Attribute {
        name: "size",
        takes: "bytes from 0 to 4611686018427387903",
        set: |options, text| {
            options.size = Some(bytes(text)?);
            Some(())
        },
        text: |options| options.size.map(|size| size.to_string()),
    },
];

/// A number of bytes below 2^62, so that the sum of two can't overflow.
fn bytes(text: &str) -> Option<u64> {
    text.parse().ok().filter(|bytes| *bytes < 1 << 62)
}
