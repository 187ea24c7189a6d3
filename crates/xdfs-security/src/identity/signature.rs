//! Signatures by the key of a server, outside of TLS.

use rustls::SignatureScheme;
use rustls::pki_types::CertificateDer;
use rustls::server::ParsedCertificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::SubjectPublicKeyInfo;
use xdfs_proto::fault::{Code, Fault};

use super::{ServerIdentity, provider};

const SIGN: &str = "sign by the server's key";

/// The schemes of TLS 1.3, of which a key takes the first that fits it.
const SCHEMES: [SignatureScheme; 6] = [
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
];

impl ServerIdentity {
    /// Signs a message, which must begin with a text that nothing else signed by this key begins
    /// with. Returns the scheme, the key as its SubjectPublicKeyInfo in DER, and the signature.
    ///
    /// # Errors
    /// `Internal` if the key can't sign.
    pub fn sign(&self, message: &[u8]) -> Result<(u16, Vec<u8>, Vec<u8>), Fault> {
        let fault = |cause: String| Fault::new(Code::Internal, SIGN, cause);
        let certified = self.certified();
        let none = || CertificateDer::from(Vec::new());
        let leaf = certified.cert.first().cloned().unwrap_or_else(none);
        let parsed = ParsedCertificate::try_from(&leaf).map_err(|e| fault(e.to_string()))?;
        let signer = certified.key.choose_scheme(&SCHEMES);
        let signer = signer.ok_or_else(|| fault("it fits no signature of TLS 1.3".into()))?;
        let signature = signer.sign(message).map_err(|e| fault(e.to_string()))?;
        let key = parsed.subject_public_key_info().as_ref().to_vec();
        Ok((signer.scheme().into(), key, signature))
    }
}

/// Whether `key`, a SubjectPublicKeyInfo in DER, has signed the message by one of the schemes of
/// TLS 1.3.
pub(crate) fn is_signed(message: &[u8], scheme: u16, key: &[u8], signature: &[u8]) -> bool {
    let scheme = SignatureScheme::from(scheme);
    let Ok((rest, parsed)) = SubjectPublicKeyInfo::from_der(key) else {
        return false;
    };
    if !rest.is_empty() || !SCHEMES.contains(&scheme) {
        return false;
    }
    let provider = provider();
    let known = provider.signature_verification_algorithms.mapping;
    let algorithms = known.iter().filter(|(own, _)| *own == scheme);
    // A scheme may be that of several kinds of keys: only that of this one takes its bytes.
    let mut algorithms = algorithms.flat_map(|(_, algorithms)| algorithms.iter());
    let bits = &parsed.subject_public_key.data;
    algorithms.any(|algorithm| algorithm.verify_signature(bits, message, signature).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_of_one_key_and_one_message() {
        let [own, other] = [(), ()].map(|()| ServerIdentity::temporary(&[]).unwrap());
        let (scheme, key, signature) = own.sign(b"a message").unwrap();
        assert!(is_signed(b"a message", scheme, &key, &signature));
        assert!(!is_signed(b"another", scheme, &key, &signature));
        let (_, foreign, _) = other.sign(b"a message").unwrap();
        assert!(!is_signed(b"a message", scheme, &foreign, &signature));
        assert!(!is_signed(b"a message", scheme ^ 1, &key, &signature));
        assert!(!is_signed(b"a message", scheme, &key[1..], &signature));
        assert!(!is_signed(
            b"a message",
            scheme,
            &[&key[..], &[0]].concat(),
            &signature
        ));
    }
}
