//! The check of a server's certificate, called by TLS.

use std::sync::{Arc, OnceLock};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_platform_verifier::Verifier as SystemVerifier;
use xdfs_proto::fault::Fault;

use super::fault;
use super::outcome::{TrustOutcome, TrustReason};
use crate::identity::{Fingerprint, provider};

/// How to treat an unknown server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewHosts {
    /// Accept it and remember its key.
    Accept,
    /// Refuse it.
    Refuse,
    /// Refuse it, since the credential was found in the environment and not specified for this
    /// server: a stolen token could be used elsewhere.
    RefuseAmbient,
    /// Refuse it, since it would get a password: somebody in its place could keep that.
    RefuseUnvouched,
}

/// The verifier for one server.
#[derive(Debug)]
pub(super) struct Verifier {
    /// As in the known hosts file.
    pub(super) host: String,
    /// As in certificates, regardless of the name used for the connection.
    pub(super) name: ServerName<'static>,
    pub(super) pins: Vec<Fingerprint>,
    pub(super) known: Vec<Fingerprint>,
    /// The given authorities.
    pub(super) roots: Option<Arc<WebPkiServerVerifier>>,
    /// The system's, if they count: loaded on demand, as that takes a while.
    pub(super) system: Option<OnceLock<Option<SystemVerifier>>>,
    pub(super) new_hosts: NewHosts,
    pub(super) outcome: Arc<TrustOutcome>,
}

impl Verifier {
    fn decide(
        &self,
        shown: Fingerprint,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<TrustReason, Fault> {
        if !self.pins.is_empty() {
            return if self.pins.contains(&shown) {
                Ok(TrustReason::Pinned)
            } else {
                Err(fault::unpinned(&self.host, shown))
            };
        }
        if !self.known.is_empty() {
            return if self.known.contains(&shown) {
                Ok(TrustReason::Known)
            } else {
                Err(fault::changed(&self.host, shown, &self.known))
            };
        }
        let check = |verifier: &dyn ServerCertVerifier| {
            // Stapled OCSP responses aren't requested, so there are none.
            verifier.verify_server_cert(certificate, intermediates, &self.name, &[], now)
        };
        let given = self.roots.as_deref().map(|roots| check(roots));
        if matches!(given, Some(Ok(_))) {
            return Ok(TrustReason::Authority);
        }
        let system = self.system().map(|system| check(system));
        if matches!(system, Some(Ok(_))) {
            return Ok(TrustReason::Authority);
        }
        if let Some(Err(error)) = given {
            // The user specified authorities, so unknown servers aren't accepted on first use.
            return Err(fault::unsigned(&self.host, &error));
        }
        match self.new_hosts {
            NewHosts::Accept => Ok(TrustReason::FirstUse(shown)),
            NewHosts::Refuse => Err(fault::unknown(&self.host, shown)),
            NewHosts::RefuseAmbient => Err(fault::ambient(&self.host, shown)),
            NewHosts::RefuseUnvouched => {
                let error = system.and_then(Result::err);
                Err(fault::unvouched(&self.host, shown, error.as_ref()))
            }
        }
    }

    fn system(&self) -> Option<&SystemVerifier> {
        self.system
            .as_ref()?
            .get_or_init(|| {
                SystemVerifier::new(provider())
                    .inspect_err(|error| {
                        tracing::warn!(%error, "the system's authorities can't be read");
                    })
                    .ok()
            })
            .as_ref()
    }

    /// Takes note that the server has the key of this certificate, if its signature says so.
    fn prove(
        &self,
        certificate: &CertificateDer<'_>,
        signature: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = signature.map_err(|_| self.refuse(fault::unproved(&self.host)))?;
        let shown = Fingerprint::of_certificate(certificate)
            .map_err(|error| self.refuse(fault::unreadable(&self.host, &error)))?;
        self.outcome.prove(shown).map_err(fault::carry)?;
        Ok(valid)
    }

    fn refuse(&self, fault: Fault) -> Error {
        self.outcome.refuse(fault.clone());
        fault::carry(fault)
    }
}

impl ServerCertVerifier for Verifier {
    /// For pinned, known and new keys, neither the name nor the dates of the certificate count: the
    /// key is trusted.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = Fingerprint::of_certificate(end_entity)
            .map_err(|error| self.refuse(fault::unreadable(&self.host, &error)))?;
        let reason = self
            .decide(shown, end_entity, intermediates, now)
            .map_err(|fault| self.refuse(fault))?;
        self.outcome.consider(shown, reason);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        self.prove(
            cert,
            verify_tls12_signature(message, cert, dss, &algorithms),
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        self.prove(
            cert,
            verify_tls13_signature(message, cert, dss, &algorithms),
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
