//! Checksums of CKSM: their names, and their computation.

use std::fmt::Write as _;

use crc_fast::{CrcAlgorithm, Digest as Crc};
use sha2::Digest as _;

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// Adler-32 (RFC 1950).
    Adler32,
    /// BLAKE3.
    Blake3,
    /// CRC-32 as of gzip (RFC 1952).
    Crc32,
    /// CRC-64/NVME.
    Crc64Nvme,
    /// MD5.
    Md5,
    /// SHA-1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// All kinds, with their names in commands and their priorities in FEAT: a lower number is
    /// preferred.
    pub const ALL: [(Self, &str, u32); 8] = [
        (Self::Md5, "MD5", 10),
        (Self::Adler32, "ADLER32", 10),
        (Self::Crc32, "CRC32", 10),
        (Self::Crc64Nvme, "CRC64NVME", 10),
        (Self::Sha1, "SHA1", 10),
        (Self::Sha256, "SHA256", 11),
        (Self::Sha512, "SHA512", 12),
        (Self::Blake3, "BLAKE3", 11),
    ];

    /// The kind with this name, in either case.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        let has_name = |(_, known, _): &&(Self, &str, u32)| {
            let text = known.as_bytes();
            name.eq_ignore_ascii_case(text)
        };
        Self::ALL.iter().find(has_name).map(|(kind, ..)| *kind)
    }

    /// Whether `text` is written as a checksum of this kind, in either case.
    #[must_use]
    pub fn is_checksum(self, text: &[u8]) -> bool {
        // That of no bytes is as long as any other.
        text.len() == Hasher::new(self).finish().len() && text.iter().all(u8::is_ascii_hexdigit)
    }
}

/// Computes a checksum from pieces.
#[derive(Clone, Debug)]
pub enum Hasher {
    /// For [`Algorithm::Adler32`].
    Adler32(adler2::Adler32),
    /// For [`Algorithm::Blake3`].
    Blake3(Box<blake3::Hasher>),
    /// For both kinds of CRC, with the number of digits.
    Crc(Crc, usize),
    /// For [`Algorithm::Md5`].
    Md5(md5::Md5),
    /// For [`Algorithm::Sha1`].
    Sha1(sha1::Sha1),
    /// For [`Algorithm::Sha256`].
    Sha256(sha2::Sha256),
    /// For [`Algorithm::Sha512`].
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// A hasher of nothing so far.
    #[must_use]
    pub fn new(kind: Algorithm) -> Self {
        match kind {
            Algorithm::Adler32 => Self::Adler32(adler2::Adler32::new()),
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Crc32 => Self::Crc(Crc::new(CrcAlgorithm::Crc32IsoHdlc), 8),
            Algorithm::Crc64Nvme => Self::Crc(Crc::new(CrcAlgorithm::Crc64Nvme), 16),
            Algorithm::Md5 => Self::Md5(md5::Md5::default()),
            Algorithm::Sha1 => Self::Sha1(sha1::Sha1::default()),
            Algorithm::Sha256 => Self::Sha256(sha2::Sha256::default()),
            Algorithm::Sha512 => Self::Sha512(sha2::Sha512::default()),
        }
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Adler32(sum) => sum.write_slice(bytes),
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Crc(crc, _) => crc.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Sha1(hasher) => sha1::Digest::update(hasher, bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The checksum as lower-case hexadecimal digits.
    #[must_use]
    pub fn finish(self) -> String {
        match self {
            Self::Adler32(sum) => format!("{:08x}", sum.checksum()),
            Self::Blake3(hasher) => hex(hasher.finalize().as_bytes()),
            Self::Crc(crc, digits) => format!("{:0digits$x}", crc.finalize()),
            Self::Md5(hasher) => hex(&hasher.finalize()),
            Self::Sha1(hasher) => hex(&sha1::Digest::finalize(hasher)),
            Self::Sha256(hasher) => hex(&hasher.finalize()),
            Self::Sha512(hasher) => hex(&hasher.finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_come_out() {
        // Of the RFCs and of programs with the same names, for "123456789".
        for (name, wanted) in [
            ("adler32", "091e01de"),
            ("crc32", "cbf43926"),
            ("CRC64NVME", "ae8b14860a799888"),
            ("MD5", "25f9e794323b453885f5181f1b624d0b"),
            ("SHA1", "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (
                "SHA256",
                "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            ),
        ] {
            let kind = Algorithm::from_name(name.as_bytes()).unwrap();
            let mut hasher = Hasher::new(kind);
            hasher.update(b"1234");
            hasher.update(b"56789");
            assert_eq!(hasher.finish(), wanted, "{name}");
        }
        for (kind, _, _) in Algorithm::ALL {
            assert!(!Hasher::new(kind).finish().is_empty());
        }
        assert_eq!(Algorithm::from_name(b"MD"), None);
    }
}
