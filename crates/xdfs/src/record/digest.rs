//! Digests and checksums of files in records.

use serde::Serialize;
use xdfs_proto::{ChecksumValue, DigestValue};

#[derive(Debug, Serialize)]
pub(super) struct Digest {
    kind: &'static str,
    value: Option<String>,
}

impl From<&DigestValue> for Digest {
    fn from(digest: &DigestValue) -> Self {
        Self {
            kind: digest.kind().as_str(),
            value: digest.checksum().as_ref().map(ChecksumValue::hex),
        }
    }
}

impl From<&ChecksumValue> for Digest {
    fn from(checksum: &ChecksumValue) -> Self {
        Self {
            kind: checksum.kind().as_str(),
            value: Some(checksum.hex()),
        }
    }
}
