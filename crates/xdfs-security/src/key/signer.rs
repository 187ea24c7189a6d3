//! Private keys from files, and the interface shared with those of an agent.

use std::fmt;
use std::path::Path;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::container::{self, LOAD, damaged};
use super::file;
use super::public::{Algorithm, PublicKey, pair_from_fixed, signature};
use crate::trusted::{self, Secrecy};

/// Maximum size of a private key file.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// A signer with one public key.
pub trait Signer {
    /// The public key.
    fn public_key(&self) -> &PublicKey;

    /// Signs `data`. The signature has SSH's format (RFC 4253, section 6.6).
    ///
    /// # Errors
    /// `AuthenticationFailed` if the holder of the key refuses or can't sign.
    fn sign(&mut self, data: &[u8]) -> Result<Vec<u8>, Fault>;
}

/// A private key from an OpenSSH file.
pub struct SigningKey {
    public: PublicKey,
    pair: Pair,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl SigningKey {
    /// Loads an Ed25519 or ECDSA key (P-256, P-384) from an OpenSSH file of at most 64 KiB.
    /// `passphrase` is called only if the file is encrypted; it returns `None` if no passphrase is
    /// available.
    ///
    /// # Errors
    /// Those of [`trusted::read`], for a secret; `InvalidArgument` if it isn't such a key or is
    /// malformed; `AuthenticationFailed` if the passphrase is missing or wrong; `Unsupported` for
    /// other types, including RSA.
    pub fn load(
        path: &Path,
        passphrase: impl FnOnce() -> Option<Zeroizing<String>>,
    ) -> Result<Self, Fault> {
        let bytes = trusted::read(LOAD, path, FILE_BYTES_MAX, Secrecy::Secret)?;
        Self::from_openssh(&bytes, passphrase).map_err(|f| f.path(file::bytes_of(path)))
    }

    /// Parses the text of such a file.
    ///
    /// # Errors
    /// Those of [`SigningKey::load`], except for errors of the system.
    pub fn from_openssh(
        text: &[u8],
        passphrase: impl FnOnce() -> Option<Zeroizing<String>>,
    ) -> Result<Self, Fault> {
        let found = container::open(text, passphrase)?;
        let (secret, point) = (found.secret.as_slice(), found.point.as_slice());
        let ecdsa = |algorithm| {
            EcdsaKeyPair::from_private_key_and_public_key(algorithm, secret, point).map(Pair::Ecdsa)
        };
        let pair = match found.algorithm {
            Algorithm::EcdsaP256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::Ed25519 => {
                Ed25519KeyPair::from_seed_and_public_key(secret, point).map(Pair::Ed25519)
            }
            Algorithm::Rsa => return Err(damaged()),
        };
        let pair = pair.map_err(|_| damaged())?;
        let public = PublicKey::decode(&found.public).ok_or_else(damaged)?;
        Ok(Self { public, pair })
    }
}

impl Signer for SigningKey {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&mut self, data: &[u8]) -> Result<Vec<u8>, Fault> {
        let raw = match &self.pair {
            Pair::Ed25519(pair) => pair.try_sign(data).map(|s| s.as_ref().to_vec()),
            Pair::Ecdsa(pair) => pair
                .sign(&SystemRandom::new(), data)
                .map(|s| pair_from_fixed(s.as_ref())),
        };
        let raw = raw.map_err(|_| Fault::new(Code::Internal, "sign", "the key doesn't sign"))?;
        Ok(signature(self.public.algorithm().as_str(), &raw))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

/// Whether `name` is a valid signature type for this kind of key, in a response of an agent.
#[cfg(unix)]
pub(super) fn is_signature_name(algorithm: Algorithm, name: &[u8]) -> bool {
    match algorithm {
        Algorithm::Rsa => matches!(name, b"rsa-sha2-256" | b"rsa-sha2-512"),
        other => name == other.as_str().as_bytes(),
    }
}
