//! A server's key, certificate and TLS configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hkdf;
use rcgen::{
    Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::file::{self, Lock, Staged};
use super::{ALPN, Fingerprint, TICKETS, Validity, pem};
use crate::trusted;

const MAKE: &str = "make the server's identity";
const LOAD: &str = "load the server's identity";
const CONFIGURE: &str = "configure TLS";
/// What the derived secret is derived for: nothing else is to be, from the key's bytes.
const SECRET_LABEL: &[u8] = b"xdfs server secret 1";

/// Whether a server requests certificates from clients.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// None are requested.
    None,
    /// A client may present one, which must be signed by one of these authorities.
    Optional(Vec<CertificateDer<'static>>),
}

/// A server's key and certificate chain.
#[derive(Clone)]
pub struct ServerIdentity {
    key: CertifiedKey,
    fingerprint: Fingerprint,
    not_after: i64,
    secret: Zeroizing<[u8; 32]>,
}

impl ServerIdentity {
    /// The files of chain and key that [`load_or_make`](Self::load_or_make) uses in a folder.
    #[must_use]
    pub fn files(folder: &Path) -> (PathBuf, PathBuf) {
        (folder.join("server.crt"), folder.join("server.key"))
    }

    /// Loads the identity in `folder`, or creates one: an ECDSA key on P-256 and a self-signed
    /// certificate for `names` (host names and addresses) that doesn't expire. The folder is
    /// created if necessary, accessible only to the owner, and so is the key file. Servers that
    /// start at the same time get the same identity.
    ///
    /// # Errors
    /// Errors of reading and writing; `PermissionDenied` if others than the owner have access to
    /// the key (on Unix); `InvalidArgument` if one of the two files is missing, if they don't
    /// match, or if a name is not allowed in a certificate; `Busy` if another process takes longer
    /// than 10 s to create it.
    pub fn load_or_make(folder: &Path, names: &[String]) -> Result<Self, Fault> {
        let (chain, key) = Self::files(folder);
        let are_there =
            || Ok::<_, Fault>((file::is_there(LOAD, &chain)?, file::is_there(LOAD, &key)?));
        // Without a lock, as the folder may not be writable.
        if are_there()? == (true, true) {
            return Self::from_pem(&chain, &key);
        }
        trusted::make_folder(MAKE, folder)?;
        let _lock = Lock::take(MAKE, &folder.join("server"))?;
        // Another process may have created it, or was between writing both files.
        match Self::load_if_made(folder)? {
            Some(identity) => Ok(identity),
            None => Self::make(&chain, &key, names),
        }
    }

    /// Loads the identity in `folder` as [`load_or_make`](Self::load_or_make) would, and creates
    /// nothing; `None` if there is none yet.
    ///
    /// # Errors
    /// Those of `load_or_make` about existing files.
    pub fn load_if_made(folder: &Path) -> Result<Option<Self>, Fault> {
        let (chain, key) = Self::files(folder);
        match (file::is_there(LOAD, &chain)?, file::is_there(LOAD, &key)?) {
            (true, true) => Self::from_pem(&chain, &key).map(Some),
            (false, false) => Ok(None),
            (true, false) => Err(one_missing(&key, &chain)),
            (false, true) => Err(one_missing(&chain, &key)),
        }
    }

    /// Creates an identity that no file keeps, otherwise as [`load_or_make`](Self::load_or_make)
    /// does.
    ///
    /// # Errors
    /// `InvalidArgument` if a name is not allowed in a certificate.
    pub fn temporary(names: &[String]) -> Result<Self, Fault> {
        let (pair, certificate) = generate(names)?;
        let secret = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
        let chain = vec![certificate.der().clone()];
        let (fingerprint, not_after) = facts(&chain)
            .ok_or_else(|| Fault::new(Code::Internal, MAKE, "the certificate can't be read"))?;
        let derived = derived(&secret)?;
        Ok(Self {
            key: pem::certified(chain, secret)?,
            fingerprint,
            not_after,
            secret: derived,
        })
    }

    /// Called with the lock of the folder.
    fn make(chain: &Path, key: &Path, names: &[String]) -> Result<Self, Fault> {
        let (pair, certificate) = generate(names)?;
        let secret = Zeroizing::new(pair.serialize_pem());
        // Both are durable before the first gets its name, so that an interruption is unlikely to
        // leave only one.
        let staged_key = Staged::write(MAKE, key, secret.as_bytes())?;
        let staged_chain = Staged::write(MAKE, chain, certificate.pem().as_bytes())?;
        staged_key.publish(MAKE)?;
        staged_chain.publish(MAKE)?;
        // From the files, as at every later start.
        Self::from_pem(chain, key)
    }

    /// Loads an identity from two PEM files: the certificate chain and the key.
    ///
    /// # Errors
    /// Errors of reading; `PermissionDenied` if others than the owner have access to the key (on
    /// Unix); `InvalidArgument` if the files are malformed or don't match.
    pub fn from_pem(chain: &Path, key: &Path) -> Result<Self, Fault> {
        let certificates = pem::read_certificates(chain)?;
        let secret = pem::read_key(key)?;
        let damaged = || {
            Fault::new(
                Code::InvalidArgument,
                "read the certificate",
                "it isn't an X.509 certificate of version 3",
            )
            .path(file::bytes(chain))
        };
        let (fingerprint, not_after) = facts(&certificates).ok_or_else(damaged)?;
        let derived = derived(&secret)?;
        let key =
            pem::certified(certificates, secret).map_err(|fault| fault.path(file::bytes(key)))?;
        Ok(Self {
            key,
            fingerprint,
            not_after,
            secret: derived,
        })
    }

    /// A secret that comes from the private key and doesn't disclose it (HKDF, RFC 5869): the same
    /// at each start with the same key file, for what has to outlive a process.
    #[must_use]
    pub fn derived_secret(&self) -> &[u8; 32] {
        &self.secret
    }

    /// The certificate chain with its key.
    pub(crate) fn certified(&self) -> CertifiedKey {
        self.key.clone()
    }

    /// The fingerprint that clients compare.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The time in which the whole chain is valid; `None` if a certificate of it is damaged.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        Validity::of(&self.key.cert)
    }

    /// Expiry of the certificate, in seconds since 1970.
    #[must_use]
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The TLS configuration of a server with this identity: TLS 1.3 and [`ALPN`]. A client that
    /// offers only other protocols is refused (RFC 7301, section 3.2); one that offers none is
    /// accepted.
    ///
    /// Sessions are resumed with stateless tickets, which makes all channels of a session after the
    /// first cheap. Each configuration has its own ticket keys: no certificates are exchanged in a
    /// resumed session, so a ticket that outlived a change of the key or of the clients'
    /// authorities would carry the old trust into the new configuration. Within one configuration a
    /// ticket lives up to 12 h, so a client certificate that expires in that time is still
    /// accepted; code that relies on certificates must check their expiry.
    ///
    /// # Errors
    /// `InvalidArgument` if the authorities contain no root or a malformed one; `Internal` if the
    /// system has no randomness for ticket keys.
    pub fn config(&self, clients: ClientCertificates) -> Result<Arc<ServerConfig>, Fault> {
        let invalid =
            |cause: String| Fault::new(Code::InvalidArgument, CONFIGURE, cause.to_lowercase());
        let internal =
            |error: rustls::Error| Fault::new(Code::Internal, CONFIGURE, error.to_string());
        let provider = super::provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(internal)?;
        let builder = match clients {
            ClientCertificates::None => builder.with_no_client_auth(),
            ClientCertificates::Optional(certificates) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates {
                    roots
                        .add(certificate)
                        .map_err(|error| invalid(error.to_string()))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .allow_unauthenticated()
                        .build()
                        .map_err(|error| invalid(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let resolver = Arc::new(SingleCertAndKey::from(self.key.clone()));
        let mut config = builder.with_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.ticketer = Ticketer::new().map_err(internal)?;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.max_tls13_tickets = usize::from(TICKETS);
        // The driver encrypts records of bulk data itself.
        config.enable_secret_extraction = true;
        // Early data can be replayed.
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }
}

fn one_missing(missing: &Path, other: &Path) -> Fault {
    let cause = format!("'{}' is there, but this isn't", other.display());
    let hint = "put it back, or remove the other to have a new identity made, which clients have \
                to trust anew";
    Fault::new(Code::InvalidArgument, LOAD, cause)
        .path(file::bytes(missing))
        .hint(hint)
}

/// Generates a key and a self-signed certificate for `names`.
fn generate(names: &[String]) -> Result<(KeyPair, Certificate), Fault> {
    let fault = |error: rcgen::Error| {
        Fault::new(
            Code::InvalidArgument,
            MAKE,
            error.to_string().to_lowercase(),
        )
    };
    // P-256 is supported by all TLS libraries.
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fault)?;
    let mut parameters = CertificateParams::new(names).map_err(fault)?;
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, "xdfs server");
    parameters.distinguished_name = subject;
    // Clients trust the key, so an expiry date would only cause failures. The end is the "no
    // expiry" date of RFC 5280, section 4.1.2.5; the start allows for clocks that are behind.
    parameters.not_before = date_time_ymd(2020, 1, 1);
    parameters.not_after = date_time_ymd(9999, 12, 31) + Duration::from_secs(86_399);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = parameters.self_signed(&pair).map_err(fault)?;
    Ok((pair, certificate))
}

/// The derived secret of a key.
fn derived(key: &PrivateKeyDer<'_>) -> Result<Zeroizing<[u8; 32]>, Fault> {
    let mut secret = Zeroizing::new([0; 32]);
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(key.secret_der());
    let info = [SECRET_LABEL];
    let okm = prk.expand(&info, hkdf::HKDF_SHA256);
    okm.and_then(|okm| okm.fill(&mut *secret)).map_err(|_| {
        Fault::new(
            Code::Internal,
            LOAD,
            "no secret can be derived from the key",
        )
    })?;
    Ok(secret)
}

/// The fingerprint and the expiry of a chain's first certificate; `None` if it is damaged.
fn facts(chain: &[CertificateDer<'_>]) -> Option<(Fingerprint, i64)> {
    let leaf = chain.first()?;
    let fingerprint = Fingerprint::of_certificate(leaf).ok()?;
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    Some((fingerprint, parsed.validity().not_after.timestamp()))
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity")
            .field("fingerprint", &self.fingerprint)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}
