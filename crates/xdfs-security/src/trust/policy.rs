//! The user's trust policy, and the TLS configuration of a client that follows it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::client::{Resumption, TicketRequest, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use xdfs_proto::fault::{Code, Fault};

use super::outcome::TrustOutcome;
use super::verifier::{NewHosts, Verifier};
use super::{KnownHosts, host_port, server_name};
use crate::identity::{ALPN, Fingerprint, TICKETS, certified, ftp_provider, provider};

const CONFIGURE: &str = "configure TLS";

/// A client's certificate chain and key, from
/// [`read_certificates`](crate::identity::read_certificates) and
/// [`read_key`](crate::identity::read_key).
pub type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Which servers a client trusts.
#[derive(Clone, Debug)]
pub struct TrustPolicy {
    /// The known hosts file. It need not exist.
    pub known_hosts: PathBuf,
    /// If there are any, the server must have one of these keys, and nothing else counts.
    pub pins: Vec<Fingerprint>,
    /// Authorities for servers. If there are any, an unknown server without a valid certificate
    /// from one of them (or of the system's, if those count) is refused.
    pub roots: Vec<CertificateDer<'static>>,
    /// Whether the system's authorities count too.
    pub system_roots: bool,
    /// How to treat other servers.
    pub new_hosts: NewHosts,
}

impl TrustPolicy {
    /// The TLS configuration for the channels of a session with one server, and the outcome of its
    /// checks: TLS 1.3, [`ALPN`], resumption.
    ///
    /// Connections must use the name from [`server_name`]. When the handshake of the first one is
    /// complete, [`TrustOutcome::commit`] remembers a new host.
    ///
    /// All channels of the session share the configuration, so that the later ones resume the TLS
    /// session of the first (up to eight at a time). A resumed handshake has no certificate, so it
    /// isn't checked again. This is safe: tickets are kept only in this configuration, which is for
    /// one server and one policy; only a connection whose full handshake passed the check gets any;
    /// and nobody can resume without the secret of that connection. Changes of the known hosts file
    /// take effect with the next configuration.
    ///
    /// # Errors
    /// `InvalidArgument` if `host` is neither a name nor an address, if a given authority or the
    /// client's certificate is malformed, or the latter doesn't match its key; those of
    /// [`KnownHosts::load`].
    pub fn client_config(
        &self,
        host: &str,
        port: u16,
        client_certificate: Option<ClientCertificate>,
    ) -> Result<(Arc<ClientConfig>, Arc<TrustOutcome>), Fault> {
        let speech = (provider(), &[&TLS13][..]);
        let (mut config, outcome) = self.configure(host, port, client_certificate, speech)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::in_memory_sessions(usize::from(TICKETS));
        config.send_ticket_request = Some(TicketRequest {
            new_session_count: TICKETS,
            // The one that was used, and a spare one for a channel that fails.
            resumption_count: 2,
        });
        // The driver encrypts records of bulk data itself.
        config.enable_secret_extraction = true;
        Ok((Arc::new(config), outcome))
    }

    /// The same for a server of FTP, many of which have TLS 1.2 alone: that is taken too, with
    /// ephemeral keys, AEAD, and the extended master secret (RFC 7627), without which a resumed
    /// session wouldn't prove whose it is. Protocol names and resumption are left to the caller.
    ///
    /// # Errors
    /// Those of [`client_config`](Self::client_config).
    pub fn ftp_client_config(
        &self,
        host: &str,
        port: u16,
        client_certificate: Option<ClientCertificate>,
    ) -> Result<(Arc<ClientConfig>, Arc<TrustOutcome>), Fault> {
        let speech = (ftp_provider(), &[&TLS13, &TLS12][..]);
        let (mut config, outcome) = self.configure(host, port, client_certificate, speech)?;
        config.require_ems = true;
        config.resumption = Resumption::disabled();
        Ok((Arc::new(config), outcome))
    }

    /// What both have in common, with this provider and these versions.
    fn configure(
        &self,
        host: &str,
        port: u16,
        client_certificate: Option<ClientCertificate>,
        (provider, versions): (Arc<CryptoProvider>, &[&'static SupportedProtocolVersion]),
    ) -> Result<(ClientConfig, Arc<TrustOutcome>), Fault> {
        let name = server_name(host)?;
        let host = host_port(host, port)?;
        let known = if self.pins.is_empty() {
            KnownHosts::load(&self.known_hosts)?.lookup(&host)
        } else {
            // A pin works even with a malformed file.
            Vec::new()
        };
        let outcome = Arc::new(TrustOutcome::new(host.clone(), self.known_hosts.clone()));
        let verifier = Verifier {
            host,
            name,
            pins: self.pins.clone(),
            known,
            roots: self.authorities()?,
            system: self.system_roots.then(OnceLock::new),
            new_hosts: self.new_hosts,
            outcome: Arc::clone(&outcome),
        };
        // The verifier always checks the handshake's signature.
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(|error| Fault::new(Code::Internal, CONFIGURE, error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match client_certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let key = SingleCertAndKey::from(certified(chain, key)?);
                builder.with_client_cert_resolver(Arc::new(key))
            }
        };
        // Early data can be replayed.
        config.enable_early_data = false;
        Ok((config, outcome))
    }

    fn authorities(&self) -> Result<Option<Arc<WebPkiServerVerifier>>, Fault> {
        if self.roots.is_empty() {
            return Ok(None);
        }
        let fault =
            |cause: String| Fault::new(Code::InvalidArgument, "read the authorities", cause);
        let mut store = RootCertStore::empty();
        for root in &self.roots {
            store
                .add(root.clone())
                .map_err(|error| fault(error.to_string()))?;
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider())
            .build()
            .map(Some)
            .map_err(|error| fault(error.to_string()))
    }
}
