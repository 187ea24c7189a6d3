//! How certificates and lists are signed, and whether that is strong enough.

use openssl::asn1::Asn1Object;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{HasPublic, PKeyRef};
use openssl::rsa::Padding;
use openssl::sign::{RsaPssSaltlen, Verifier};
use x509_parser::asn1_rs::Oid;
use x509_parser::signature_algorithm::RsaSsaPssParams;
use x509_parser::x509::AlgorithmIdentifier;

/// Least length of a digest that is signed, in bytes: SHA-224, of 112 bits of strength.
const DIGEST_BYTES_MIN: usize = 28;
/// Ed25519 and Ed448 (RFC 8410, section 3).
const PLAIN: [&str; 2] = ["1.3.101.112", "1.3.101.113"];
/// RSASSA-PSS (RFC 4055, section 3.1).
const PSS: &str = "1.2.840.113549.1.1.10";

/// A way to sign that is known and strong enough.
#[derive(Clone, Copy)]
pub(crate) enum Signature {
    /// The digest, with the only padding that the key has, or PKCS #1 1.5.
    Digest(MessageDigest),
    /// The key's own way: Ed25519 and Ed448.
    Plain,
    /// RSASSA-PSS. The name of the algorithm doesn't tell the digests: its parameters do.
    Pss {
        digest: MessageDigest,
        mask: MessageDigest,
        salt_bytes: u32,
    },
}

impl Signature {
    /// The way that an algorithm stands for.
    ///
    /// # Errors
    /// It isn't known, or is too weak: which of it.
    pub(crate) fn of(algorithm: &AlgorithmIdentifier<'_>) -> Result<Self, &'static str> {
        let unknown = "is signed in a way that isn't known";
        let name = algorithm.algorithm.to_id_string();
        if PLAIN.contains(&name.as_str()) {
            return Ok(Self::Plain);
        }
        if name != PSS {
            let used = nid(&algorithm.algorithm).signature_algorithms();
            return strong(used.ok_or(unknown)?.digest).map(Self::Digest);
        }
        let parameters = algorithm.parameters.as_ref().ok_or(unknown)?;
        let parameters = RsaSsaPssParams::try_from(parameters).map_err(|_| unknown)?;
        let mask = parameters.mask_gen_algorithm().map_err(|_| unknown)?;
        Ok(Self::Pss {
            digest: strong(nid(parameters.hash_algorithm_oid()))?,
            mask: strong(nid(&mask.hash))?,
            salt_bytes: parameters.salt_length(),
        })
    }

    /// Whether `signature` is one of the message by the key.
    pub(crate) fn fits<T: HasPublic>(
        self,
        key: &PKeyRef<T>,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let verify = || {
            let mut verifier = match self {
                Self::Plain => Verifier::new_without_digest(key)?,
                Self::Digest(digest) | Self::Pss { digest, .. } => Verifier::new(digest, key)?,
            };
            if let Self::Pss {
                mask, salt_bytes, ..
            } = self
            {
                verifier.set_rsa_padding(Padding::PKCS1_PSS)?;
                verifier.set_rsa_mgf1_md(mask)?;
                let salt_bytes = i32::try_from(salt_bytes).unwrap_or(i32::MAX);
                verifier.set_rsa_pss_saltlen(RsaPssSaltlen::custom(salt_bytes))?;
            }
            verifier.verify_oneshot(signature, message)
        };
        // A key of another kind fails here.
        verify().is_ok_and(|fits: bool| fits)
    }
}

fn nid(oid: &Oid<'_>) -> Nid {
    let known = Asn1Object::from_str(&oid.to_id_string());
    known.map_or(Nid::UNDEF, |object| object.nid())
}

fn strong(digest: Nid) -> Result<MessageDigest, &'static str> {
    let digest = MessageDigest::from_nid(digest).ok_or("is signed in a way that isn't known")?;
    match digest.size() < DIGEST_BYTES_MIN {
        true => Err("is signed with a digest that is too weak"),
        false => Ok(digest),
    }
}
