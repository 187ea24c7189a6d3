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

#[cfg(test)]
mod unit_tests {
    use openssl::pkey::PKey;
    use openssl::rsa::Rsa;
    use openssl::sign::Signer;
    use x509_parser::asn1_rs::FromDer as _;

    use super::*;

    /// SHA-256 for the message and the mask, and 32 bytes of salt.
    const STRONG_PSS: &[u8] = b"\x30\x41\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a\x30\x34\
        \xa0\x0f\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\
        \xa1\x1c\x30\x1a\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08\x30\x0d\
        \x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\
        \xa2\x03\x02\x01\x20";

    fn of(der: &[u8]) -> Result<Signature, &'static str> {
        let (_, algorithm) = AlgorithmIdentifier::from_der(der).unwrap();
        Signature::of(&algorithm)
    }

    #[test]
    fn pss_is_what_its_parameters_say() {
        let key = PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap();
        let mut signer = Signer::new(MessageDigest::sha256(), &key).unwrap();
        signer.set_rsa_padding(Padding::PKCS1_PSS).unwrap();
        let salt = RsaPssSaltlen::custom(32);
        signer.set_rsa_pss_saltlen(salt).unwrap();
        let signature = signer.sign_oneshot_to_vec(b"message").unwrap();
        let way = of(STRONG_PSS).unwrap();
        assert!(way.fits(&key, b"message", &signature));
        assert!(!way.fits(&key, b"massage", &signature));
        let mut longer = STRONG_PSS.to_vec();
        *longer.last_mut().unwrap() = 33;
        assert!(!of(&longer).unwrap().fits(&key, b"message", &signature));
        // Digests that aren't known.
        let mut at = 0;
        let place = |at: usize| {
            let mut pairs = STRONG_PSS[at..].windows(2);
            pairs.position(|pair| pair == b"\x02\x01")
        };
        while let Some(found) = place(at) {
            at += found + 2;
            let mut other = STRONG_PSS.to_vec();
            other[at - 1] = 0x77;
            assert!(of(&other).is_err());
        }
        assert!(at > 0);
        let bare = b"\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a";
        assert!(of(bare).is_err());
    }

    #[test]
    fn weak_and_unknown_ways_are_refused() {
        for (last, is_strong) in [
            (4, false),
            (5, false),
            (0xb, true),
            (0xd, true),
            (0xe, true),
        ] {
            let mut der = *b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x00\x05\x00";
            der[12] = last;
            assert_eq!(of(&der).is_ok(), is_strong, "{last}");
        }
        assert!(of(b"\x30\x05\x06\x03\x2a\x03\x04").is_err());
        // Ed25519 has a digest of its own.
        let key = PKey::generate_ed25519().unwrap();
        let mut signer = Signer::new_without_digest(&key).unwrap();
        let signature = signer.sign_oneshot_to_vec(b"message").unwrap();
        let way = of(b"\x30\x05\x06\x03\x2b\x65\x70").unwrap();
        assert!(way.fits(&key, b"message", &signature));
        assert!(!way.fits(&key, b"massage", &signature));
    }
}
