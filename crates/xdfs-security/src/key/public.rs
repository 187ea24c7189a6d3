//! Public keys and their signatures.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use base64ct::{Base64, Base64Unpadded, Encoding};
use xdfs_proto::fault::{Code, Fault};

use super::wire::{Reader, put_positive, put_string};

/// Maximum size of a public key; an RSA key of 8192 bits has some 1050 bytes.
pub(super) const PUBLIC_KEY_BYTES_MAX: usize = 2048;
/// Modulus of an RSA key, in bytes.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;
/// Maximum size of the public exponent of an RSA key; nearly all have 3 bytes.
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// A signature algorithm, by type of key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// ECDSA on NIST P-256 with SHA-256 (RFC 5656).
    EcdsaP256,
    /// ECDSA on NIST P-384 with SHA-384 (RFC 5656).
    EcdsaP384,
    /// Ed25519 (RFC 8709).
    Ed25519,
    /// RSA of 2048 to 8192 bits, PKCS #1 v1.5, with SHA-256 or SHA-512 (RFC 8332).
    Rsa,
}

impl Algorithm {
    /// The name of the key type in files and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EcdsaP256 => "ecdsa-sha2-nistp256",
            Self::EcdsaP384 => "ecdsa-sha2-nistp384",
            Self::Ed25519 => "ssh-ed25519",
            Self::Rsa => "ssh-rsa",
        }
    }
}

/// A public key, in SSH's canonical encoding: equal keys have equal bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    algorithm: Algorithm,
    blob: Vec<u8>,
}

impl PublicKey {
    /// Parses a key in wire format (RFC 4253, section 6.6).
    ///
    /// # Errors
    /// `InvalidArgument` if it is not a key of a supported [`Algorithm`] and size.
    pub fn from_bytes(blob: &[u8]) -> Result<Self, Fault> {
        Self::decode(blob).ok_or_else(|| {
            Fault::new(
                Code::InvalidArgument,
                "read the public key",
                "not a key of a type and size that is supported",
            )
            .hint("use an Ed25519, ECDSA P-256 or P-384 key, or RSA of 2048 to 8192 bits")
        })
    }

    /// Parses a line of a `.pub` file: type, base64, and a comment that is ignored.
    ///
    /// # Errors
    /// `InvalidArgument` as for [`PublicKey::from_bytes`], or if the line is malformed.
    pub fn from_line(line: &str) -> Result<Self, Fault> {
        Self::parse_line(line).map_or_else(|| Self::from_bytes(&[]), Ok)
    }

    pub(super) fn decode(blob: &[u8]) -> Option<Self> {
        let algorithm = Fields::decode(blob)?.algorithm();
        Some(Self {
            algorithm,
            blob: blob.to_vec(),
        })
    }

    pub(super) fn parse_line(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?;
        let text = words.next()?;
        if text.len() > PUBLIC_KEY_BYTES_MAX * 2 {
            return None;
        }
        let key = Self::decode(&Base64::decode_vec(text).ok()?)?;
        (key.algorithm.as_str() == name).then_some(key)
    }

    /// The algorithm of the key.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The key in wire format.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.blob
    }

    /// The SHA-256 of the key in OpenSSH's format: `SHA256:` and base64.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let hash = digest(&SHA256, &self.blob);
        format!("SHA256:{}", Base64Unpadded::encode_string(hash.as_ref()))
    }

    /// The key as a line of a `.pub` file or a list of keys, without a line end.
    #[must_use]
    pub fn to_line(&self, comment: &str) -> String {
        let key = Base64::encode_string(&self.blob);
        let line = format!("{} {key} {comment}", self.algorithm.as_str());
        line.trim_end().to_owned()
    }

    /// Whether `signature`, in SSH's format, was made by this key over `data`.
    pub(super) fn has_signed(&self, data: &[u8], signature: &[u8]) -> bool {
        self.check(data, signature).is_some()
    }

    fn check(&self, data: &[u8], signature: &[u8]) -> Option<()> {
        let mut at = Reader(signature);
        let (name, raw) = (at.string()?, at.string()?);
        at.end()?;
        match Fields::decode(&self.blob)? {
            Fields::Ed25519(key) if name == b"ssh-ed25519" => check(&ED25519, key, data, raw),
            Fields::EcdsaP256(point) if name == b"ecdsa-sha2-nistp256" => {
                let fixed = fixed_from_pair::<32, 64>(raw)?;
                check(&ECDSA_P256_SHA256_FIXED, point, data, &fixed)
            }
            Fields::EcdsaP384(point) if name == b"ecdsa-sha2-nistp384" => {
                let fixed = fixed_from_pair::<48, 96>(raw)?;
                check(&ECDSA_P384_SHA384_FIXED, point, data, &fixed)
            }
            Fields::Rsa { e, n } => {
                let parameters = match name {
                    b"rsa-sha2-256" => &RSA_PKCS1_2048_8192_SHA256,
                    b"rsa-sha2-512" => &RSA_PKCS1_2048_8192_SHA512,
                    // `ssh-rsa` implies SHA-1, which is broken.
                    _ => return None,
                };
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, data, raw).ok()
            }
            _ => None,
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PublicKey")
            .field(&self.algorithm)
            .field(&self.fingerprint())
            .finish()
    }
}

fn check(
    algorithm: &'static dyn VerificationAlgorithm,
    key: &[u8],
    data: &[u8],
    signature: &[u8],
) -> Option<()> {
    UnparsedPublicKey::new(algorithm, key)
        .verify(data, signature)
        .ok()
}

/// The fields of an encoded key.
enum Fields<'a> {
    EcdsaP256(&'a [u8]),
    EcdsaP384(&'a [u8]),
    Ed25519(&'a [u8]),
    Rsa { e: &'a [u8], n: &'a [u8] },
}

impl<'a> Fields<'a> {
    fn decode(blob: &'a [u8]) -> Option<Self> {
        if blob.len() > PUBLIC_KEY_BYTES_MAX {
            return None;
        }
        let mut at = Reader(blob);
        let fields = match at.string()? {
            b"ssh-ed25519" => Self::Ed25519(at.string().filter(|k| k.len() == 32)?),
            b"ecdsa-sha2-nistp256" => Self::EcdsaP256(point(&mut at, b"nistp256", 32)?),
            b"ecdsa-sha2-nistp384" => Self::EcdsaP384(point(&mut at, b"nistp384", 48)?),
            b"ssh-rsa" => {
                let e = at.positive()?;
                let n = at.positive()?;
                let has_size = RSA_BYTES.contains(&n.len()) && e.len() <= RSA_EXPONENT_BYTES_MAX;
                has_size.then_some(Self::Rsa { e, n })?
            }
            _ => return None,
        };
        at.end()?;
        Some(fields)
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::EcdsaP256(_) => Algorithm::EcdsaP256,
            Self::EcdsaP384(_) => Algorithm::EcdsaP384,
            Self::Ed25519(_) => Algorithm::Ed25519,
            Self::Rsa { .. } => Algorithm::Rsa,
        }
    }
}

/// The point of an ECDSA key, uncompressed (SEC 1, section 2.3.3): the only form written by
/// OpenSSH.
fn point<'a>(at: &mut Reader<'a>, curve: &[u8], field_bytes: usize) -> Option<&'a [u8]> {
    if at.string()? != curve {
        return None;
    }
    let point = at.string()?;
    (point.len() == 1 + 2 * field_bytes && point.first() == Some(&4)).then_some(point)
}

/// Converts an ECDSA signature from SSH's format to fixed size.
fn fixed_from_pair<const FIELD: usize, const BOTH: usize>(pair: &[u8]) -> Option<[u8; BOTH]> {
    let mut at = Reader(pair);
    let mut out = [0; BOTH];
    for half in out.chunks_exact_mut(FIELD) {
        let number = at.positive()?;
        let skip = FIELD.checked_sub(number.len())?;
        half.get_mut(skip..)?.copy_from_slice(number);
    }
    at.end()?;
    Some(out)
}

/// Converts an ECDSA signature from fixed size to SSH's format.
pub(super) fn pair_from_fixed(fixed: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let (r, s) = fixed.split_at(fixed.len() / 2);
    put_positive(&mut out, r);
    put_positive(&mut out, s);
    out
}

/// A signature in SSH's format.
pub(super) fn signature(name: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_string(&mut out, name.as_bytes());
    put_string(&mut out, raw);
    out
}
