//! For tests: certificates of all kinds, and two ends of TLS connected in memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use super::ServerIdentity;

/// A certificate with its key.
pub(crate) struct Made {
    pub(crate) certificate: rcgen::Certificate,
    pub(crate) key: KeyPair,
}

impl Made {
    /// A self-signed one.
    pub(crate) fn alone(name: &str) -> Self {
        Self::alone_until(name, 2100)
    }

    /// A self-signed one that expired at the end of the year before.
    pub(crate) fn alone_until(name: &str, year: i32) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
        parameters.not_after = date_time_ymd(year, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap();
        Self { certificate, key }
    }

    pub(crate) fn write(&self, folder: &Path) {
        let (chain, key) = ServerIdentity::files(folder);
        fs::write(chain, self.certificate.pem()).unwrap();
        // Removed first, so that the new one gets another inode.
        let _ = fs::remove_file(&key);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(key).unwrap();
        std::io::Write::write_all(&mut file, self.key.serialize_pem().as_bytes()).unwrap();
    }

    pub(crate) fn identity(&self) -> ServerIdentity {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path());
        let (chain, key) = ServerIdentity::files(folder.path());
        ServerIdentity::from_pem(&chain, &key).unwrap()
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.certificate.der().clone()]
    }

    pub(crate) fn secret(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::try_from(self.key.serialize_der()).unwrap()
    }
}

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) root: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = parameters.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(parameters, key),
            root,
        }
    }

    /// A certificate valid from the start of one year to that of another.
    pub(crate) fn sign(&self, name: &str, from: i32, until: i32) -> Made {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new([name.to_owned()]).unwrap();
        parameters.not_before = date_time_ymd(from, 1, 1);
        parameters.not_after = date_time_ymd(until, 1, 1);
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Made { certificate, key }
    }
}

/// The errors of both ends of a failed handshake.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) client: Option<Error>,
    pub(crate) server: Option<Error>,
}

/// Opens a connection and delivers all initial messages in both directions.
pub(crate) fn connect(
    client: &Arc<ClientConfig>,
    name: &str,
    server: &Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), Box<Failure>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let server = ServerConnection::new(Arc::clone(server)).unwrap();
    let mut client = Connection::Client(client);
    let mut server = Connection::Server(server);
    let mut failure = Failure {
        client: None,
        server: None,
    };
    // A full handshake with all its tickets takes three rounds.
    for _ in 0..6 {
        pass(&mut client, &mut server, &mut failure.server);
        pass(&mut server, &mut client, &mut failure.client);
    }
    match (client, server) {
        (Connection::Client(client), Connection::Server(server))
            if failure.client.is_none() && failure.server.is_none() =>
        {
            assert!(!client.is_handshaking() && !server.is_handshaking());
            Ok((client, server))
        }
        _ => Err(Box::new(failure)),
    }
}

fn pass(from: &mut Connection, to: &mut Connection, error: &mut Option<Error>) {
    while from.wants_write() {
        let mut bytes = Vec::new();
        from.write_tls(&mut bytes).unwrap();
        let mut rest = bytes.as_slice();
        while !rest.is_empty() && error.is_none() {
            to.read_tls(&mut rest).unwrap();
            *error = to.process_new_packets().err();
        }
    }
}
