//! The server's end: a key, its certificate, and what TLS is to do with them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, date_time_ymd,
};
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::prelude::{FromDer, X509Certificate};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::file::{self, Lock, Staged};
use super::{ALPN, Fingerprint, TICKETS, pem};

const MAKE: &str = "make the server's identity";
const LOAD: &str = "load the server's identity";
const CONFIGURE: &str = "configure TLS";

/// What a server asks of its clients' certificates.
#[derive(Clone, Debug)]
pub enum ClientCertificates {
    /// Nothing: clients aren't asked for one.
    None,
    /// One may be shown, and has to be signed by one of these authorities then.
    Optional(Vec<CertificateDer<'static>>),
}

/// The key of a server, with its certificate and those of the authorities in between.
#[derive(Clone)]
pub struct ServerIdentity {
    key: CertifiedKey,
    fingerprint: Fingerprint,
    not_after: i64,
}

impl ServerIdentity {
    /// The chain and the key that [`load_or_make`](Self::load_or_make) has in a folder.
    #[must_use]
    pub fn files(folder: &Path) -> (PathBuf, PathBuf) {
        (folder.join("server.crt"), folder.join("server.key"))
    }

    /// The identity that is in `folder`; if it has none, a new one: an ECDSA key on P-256 and a
    /// certificate for `names` (names and addresses) that it signs itself and that doesn't expire.
    /// The folder is made if needed, for its owner alone, and so is the file of the key. Servers
    /// that start at the same time get the same identity.
    ///
    /// # Errors
    /// Those of reading and writing; `PermissionDenied` if others than the owner have access to the
    /// key (on Unix); `InvalidArgument` if one of both files is missing, if they don't belong
    /// together, or if a name can't be in a certificate; `Busy` if another process takes longer
    /// than 10 s to make it.
    pub fn load_or_make(folder: &Path, names: &[String]) -> Result<Self, Fault> {
        let (chain, key) = Self::files(folder);
        let are_there =
            || Ok::<_, Fault>((file::is_there(LOAD, &chain)?, file::is_there(LOAD, &key)?));
        // Without a lock, as the folder may be one that the server can't write to.
        if are_there()? == (true, true) {
            return Self::from_pem(&chain, &key);
        }
        file::make_folder(MAKE, folder)?;
        let _lock = Lock::take(MAKE, &folder.join("server"))?;
        // Another one may have made it, or have been between both files.
        let (missing, other) = match are_there()? {
            (true, true) => return Self::from_pem(&chain, &key),
            (false, false) => return Self::make(&chain, &key, names),
            (true, false) => (&key, &chain),
            (false, true) => (&chain, &key),
        };
        Err(Fault::new(
            Code::InvalidArgument,
            LOAD,
            format!("'{}' is there, but this isn't", other.display()),
        )
        .path(file::bytes(missing))
        .hint(
            "put it back, or remove the other to have a new identity made, which clients have to \
             trust anew",
        ))
    }

    /// Under the lock of the folder.
    fn make(chain: &Path, key: &Path, names: &[String]) -> Result<Self, Fault> {
        let fault = |error: rcgen::Error| {
            Fault::new(
                Code::InvalidArgument,
                MAKE,
                error.to_string().to_lowercase(),
            )
        };
        // P-256 is what peers with other TLS libraries have for certain.
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fault)?;
        let mut parameters = CertificateParams::new(names).map_err(fault)?;
        let mut subject = DistinguishedName::new();
        subject.push(DnType::CommonName, "xdfs server");
        parameters.distinguished_name = subject;
        // Clients trust the key, so an end would only break things. The date of no end is that of
        // RFC 5280, section 4.1.2.5; the begin suits clocks that are behind.
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(9999, 12, 31) + Duration::from_secs(86_399);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = parameters.self_signed(&pair).map_err(fault)?;
        let secret = Zeroizing::new(pair.serialize_pem());
        // Both are durable before the first has its name: there is hardly a moment in which an
        // interruption leaves one alone.
        let staged_key = Staged::write(MAKE, key, secret.as_bytes())?;
        let staged_chain = Staged::write(MAKE, chain, certificate.pem().as_bytes())?;
        staged_key.publish(MAKE)?;
        staged_chain.publish(MAKE)?;
        // From the files: what was written is what every later start will read.
        Self::from_pem(chain, key)
    }

    /// The identity of two PEM files: the certificate with those of the authorities in between, and
    /// the key.
    ///
    /// # Errors
    /// Those of reading; `PermissionDenied` if others than the owner have access to the key (on
    /// Unix); `InvalidArgument` if the files are damaged or don't belong together.
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
        let leaf = certificates.first().ok_or_else(damaged)?;
        let fingerprint = Fingerprint::of_certificate(leaf).map_err(|_| damaged())?;
        let (_, parsed) = X509Certificate::from_der(leaf).map_err(|_| damaged())?;
        let not_after = parsed.validity().not_after.timestamp();
        let key =
            pem::certified(certificates, secret).map_err(|fault| fault.path(file::bytes(key)))?;
        Ok(Self {
            key,
            fingerprint,
            not_after,
        })
    }

    /// What clients compare.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The end of the certificate, in seconds since 1970.
    #[must_use]
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// The TLS configuration of a server with this identity: TLS 1.3, [`ALPN`]. A client that
    /// offers other protocols only is refused (RFC 7301, section 3.2); one that offers none isn't.
    ///
    /// Sessions are resumed by tickets without state, which makes the second to the last channel of
    /// a session cheap. Each configuration has ticket keys of its own, and that has a reason: in a
    /// resumed session neither end shows its certificate. A ticket that outlives a change of the
    /// key or of the clients' authorities would carry the old trust into the new configuration.
    /// Within one configuration a ticket lives up to 12 h, so a client's certificate that ends in
    /// that time is still believed; who goes by certificates compares the end of them with the
    /// time.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no root among the authorities or one is damaged; `Internal` if
    /// the system has no randomness for ticket keys.
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
        // The driver makes the records of bulk data itself.
        config.enable_secret_extraction = true;
        // Early data can be replayed.
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }
}

impl fmt::Debug for ServerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerIdentity")
            .field("fingerprint", &self.fingerprint)
            .field("not_after", &self.not_after)
            .finish_non_exhaustive()
    }
}
