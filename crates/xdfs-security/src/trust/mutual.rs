//! TLS between two servers that have told each other their keys: each shows its certificate and
//! takes only keys that its settings name. Names, dates and authorities don't count, as with pinned
//! servers, and nothing is resumed: every connection proves both keys anew.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::verify_tls13_signature;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};
use xdfs_proto::fault::{Code, Fault};

use super::fault::carry;
use crate::identity::{Fingerprint, ServerIdentity, provider};

const CONFIGURE: &str = "configure TLS";

/// Takes the keys of a list.
#[derive(Debug)]
struct Named {
    keys: Vec<Fingerprint>,
}

impl Named {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let shown = Fingerprint::of_certificate(shown).map_err(carry)?;
        if self.keys.contains(&shown) {
            return Ok(());
        }
        let cause = format!("the other end has the key {shown}, which isn't named here");
        let fault = Fault::new(Code::ServerUntrusted, "secure the connection", cause);
        let hint = "compare it with the fingerprint that the other end prints, and name it";
        Err(carry(fault.hint(hint)))
    }

    fn verify(
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = provider().signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, &algorithms)
    }

    fn schemes() -> Vec<SignatureScheme> {
        let algorithms = provider().signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// TLS 1.2 is never offered, so this is never reached.
fn too_old() -> Error {
    Error::General("TLS 1.2 isn't supported".to_owned())
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}

impl ClientCertVerifier for Named {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(too_old())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::verify(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}

/// TLS of a server with this identity that takes only clients with these keys, for the protocol
/// `alpn`. A client that doesn't offer that protocol is refused if it offers others; that it was
/// agreed on is for the caller to check.
///
/// # Errors
/// `Internal`: TLS 1.3 isn't there.
pub fn mutual_server(
    identity: &ServerIdentity,
    clients: Vec<Fingerprint>,
    alpn: &[u8],
) -> Result<Arc<ServerConfig>, Fault> {
    let resolver = Arc::new(SingleCertAndKey::from(identity.certified()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(internal)?
        .with_client_cert_verifier(Arc::new(Named { keys: clients }))
        .with_cert_resolver(resolver);
    config.alpn_protocols = vec![alpn.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

/// TLS of a client with this identity that takes only a server with this key, for the protocol
/// `alpn`, of which the same holds.
///
/// # Errors
/// `Internal`: TLS 1.3 isn't there.
pub fn mutual_client(
    identity: &ServerIdentity,
    server: Fingerprint,
    alpn: &[u8],
) -> Result<Arc<ClientConfig>, Fault> {
    let keys = vec![server];
    let resolver = Arc::new(SingleCertAndKey::from(identity.certified()));
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(internal)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Named { keys }))
        .with_client_cert_resolver(resolver);
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    Ok(Arc::new(config))
}

fn internal(error: Error) -> Fault {
    Fault::new(Code::Internal, CONFIGURE, error.to_string())
}

#[cfg(test)]
mod tests {
    use rustls::version::TLS12;

    use super::*;
    use crate::identity::ftp_provider;
    use crate::identity::pair::{Made, connect};

    #[test]
    fn both_ends_need_a_key_that_the_other_names() {
        let one = Made::alone("one.example").identity();
        let other = Made::alone("other.example").identity();
        let stranger = Made::alone("one.example").identity();
        let of = ServerIdentity::fingerprint;
        let try_with = |client: &ServerIdentity, wanted, clients| {
            let client = mutual_client(client, wanted, b"x/1").unwrap();
            let server = mutual_server(&other, clients, b"x/1").unwrap();
            connect(&client, "other.example", &server)
        };
        let (client, server) = try_with(&one, of(&other), vec![of(&one)]).unwrap();
        assert_eq!(client.alpn_protocol(), Some(&b"x/1"[..]));
        assert_eq!(server.alpn_protocol(), Some(&b"x/1"[..]));
        // The client's key isn't named.
        let refused = try_with(&stranger, of(&other), vec![of(&one)]).unwrap_err();
        assert!(refused.server.is_some());
        let refused = try_with(&one, of(&other), Vec::new()).unwrap_err();
        assert!(refused.server.is_some());
        // The server's isn't.
        let refused = try_with(&one, of(&stranger), vec![of(&one)]).unwrap_err();
        assert!(refused.client.is_some());
        // A client without a certificate.
        let bare = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Named {
                keys: vec![of(&other)],
            }))
            .with_no_client_auth();
        let server = mutual_server(&other, vec![of(&one)], b"x/1").unwrap();
        let refused = connect(&Arc::new(bare), "other.example", &server).unwrap_err();
        assert!(refused.server.is_some());
    }

    #[test]
    fn neither_end_takes_tls_1_2() {
        let one = Made::alone("one.example").identity();
        let key = ServerIdentity::fingerprint(&one);
        let named = || Arc::new(Named { keys: vec![key] });
        let resolver = || Arc::new(SingleCertAndKey::from(one.certified()));
        let older = ClientConfig::builder_with_provider(ftp_provider())
            .with_protocol_versions(&[&TLS12])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(named())
            .with_client_cert_resolver(resolver());
        let server = mutual_server(&one, vec![key], b"x/1").unwrap();
        let refused = connect(&Arc::new(older), "one.example", &server).unwrap_err();
        assert!(refused.server.is_some());
        let older = ServerConfig::builder_with_provider(ftp_provider())
            .with_protocol_versions(&[&TLS12])
            .unwrap()
            .with_client_cert_verifier(named())
            .with_cert_resolver(resolver());
        let client = mutual_client(&one, key, b"x/1").unwrap();
        let refused = connect(&client, "one.example", &Arc::new(older)).unwrap_err();
        assert!(refused.server.is_some());
    }
}
