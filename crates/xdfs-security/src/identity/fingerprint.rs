//! The short form of a public key, for comparison by people.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use xdfs_proto::fault::{Code, Fault};

/// The SHA-256 of a certificate's SubjectPublicKeyInfo in DER (RFC 5280, section 4.1.2.7).
///
/// It identifies the key and not the certificate: it stays the same when a certificate is renewed
/// for the same key. As text it is `SHA256:` and base64 without padding. It is public, so
/// comparison need not take constant time.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of the key in a certificate.
    ///
    /// # Errors
    /// `InvalidArgument` if it isn't an X.509 certificate of version 3.
    pub fn of_certificate(certificate: &CertificateDer<'_>) -> Result<Self, Fault> {
        let parsed = ParsedCertificate::try_from(certificate).map_err(|error| {
            Fault::new(
                Code::InvalidArgument,
                "read the certificate",
                error.to_string(),
            )
        })?;
        Ok(Self::of_key(parsed.subject_public_key_info().as_ref()))
    }

    /// The fingerprint of a key, given as its SubjectPublicKeyInfo in DER.
    #[must_use]
    pub fn of_key(key: &[u8]) -> Self {
        let hash = digest(&SHA256, key);
        let mut out = [0; 32];
        // SHA-256 has 32 bytes; `zip` avoids a panic.
        for (to, from) in out.iter_mut().zip(hash.as_ref()) {
            *to = *from;
        }
        Self(out)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ssh_key::Fingerprint::Sha256(self.0), f)
    }
}

impl FromStr for Fingerprint {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let refuse = || {
            Fault::new(
                Code::InvalidArgument,
                "read the fingerprint",
                "it isn't a SHA-256 in base64",
            )
            .hint("write it as the server shows it: SHA256: and 43 characters")
        };
        // 7 for the prefix, 43 for the digest.
        if text.len() != 50 {
            return Err(refuse());
        }
        text.parse::<ssh_key::Fingerprint>()
            .ok()
            .and_then(ssh_key::Fingerprint::sha256)
            .map(Self)
            .ok_or_else(refuse)
    }
}
