//! The configurations of quinn-proto, made from those of TLS.

use std::io;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, EndpointConfig, HashedConnectionIdGenerator, ServerConfig};
use rustls::quic;

use super::options::QuicOptions;
use crate::tls;

/// Handshake data buffered for a connection that isn't accepted yet: the rest of one flight. All is
/// accepted or refused at once, so that it is hardly ever used.
const INCOMING_BYTES: u64 = 64 << 10;

/// The configurations of both ends.
pub(super) struct Configs {
    pub(super) options: Arc<QuicOptions>,
    tls: tls::Configs,
    /// The client's, once a stream was opened.
    opened: OnceLock<(ClientConfig, String)>,
    /// The server's last configuration of TLS, and what was made from it.
    served: Mutex<Option<(Arc<rustls::ServerConfig>, Arc<ServerConfig>)>>,
}

/// Secrets of this process: stateless resets (RFC 9000, section 10.3) and address validation tokens
/// hold for all listeners of a process, and for none after it.
struct Secrets {
    reset: hmac::Key,
    token: hkdf::Prk,
    connection_ids: u64,
}

static SECRETS: LazyLock<Option<Secrets>> = LazyLock::new(|| {
    let mut bytes = [0; 72];
    rand::fill(&mut bytes).ok()?;
    let (reset, rest) = bytes.split_at(32);
    let (token, ids) = rest.split_at(32);
    Some(Secrets {
        reset: hmac::Key::new(hmac::HMAC_SHA256, reset),
        token: hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(token),
        connection_ids: u64::from_be_bytes(ids.try_into().ok()?),
    })
});

fn secrets() -> io::Result<&'static Secrets> {
    let secrets = SECRETS.as_ref();
    secrets.ok_or_else(|| io::Error::other("the system gives no random bytes"))
}

impl Configs {
    pub(super) fn new(options: QuicOptions, tls: tls::Configs) -> Self {
        Self {
            options: Arc::new(options),
            tls,
            opened: OnceLock::new(),
            served: Mutex::default(),
        }
    }

    /// The configuration of a UDP endpoint.
    pub(super) fn endpoint(&self) -> io::Result<Arc<EndpointConfig>> {
        let secrets = secrets()?;
        let mut config = EndpointConfig::new(Arc::new(secrets.reset.clone()));
        let ids = || {
            Box::new(HashedConnectionIdGenerator::from_key(
                secrets.connection_ids,
            )) as _
        };
        config
            .cid_generator(ids)
            .max_udp_payload_size(self.options.mtu)
            .map_err(io::Error::other)?
            // The version of RFC 9000, and no drafts.
            .supported_versions(vec![1]);
        Ok(Arc::new(config))
    }

    /// The configuration of the next opened connection, and the name that its acceptor must prove.
    pub(super) fn client(&self) -> io::Result<(ClientConfig, String)> {
        if let Some(made) = self.opened.get() {
            return Ok(made.clone());
        }
        let made = self.make_client()?;
        Ok(self.opened.get_or_init(|| made).clone())
    }

    fn make_client(&self) -> io::Result<(ClientConfig, String)> {
        let (tls, name) = self.tls.client.as_ref().ok_or_else(|| missing("client"))?;
        let mut tls = (**tls).clone();
        tls.enable_early_data = false;
        let tls = Arc::new(tls);
        quic::ClientConnection::new(
            Arc::clone(&tls),
            quic::Version::V1,
            name.clone(),
            Vec::new(),
        )
        .map_err(unsuitable)?;
        let crypto = QuicClientConfig::try_from(tls).map_err(unsuitable)?;
        let mut config = ClientConfig::new(Arc::new(crypto));
        // An acceptor opens no streams.
        config.transport_config(Arc::new(self.options.transport(0)));
        Ok((config, name.to_str().into_owned()))
    }

    /// The configuration of the next accepted connection.
    pub(super) fn server(&self) -> io::Result<Arc<ServerConfig>> {
        let configs = self.tls.server.as_ref().ok_or_else(|| missing("server"))?;
        let tls = configs();
        let mut served = self.served.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((last, config)) = &*served
            && Arc::ptr_eq(last, &tls)
        {
            return Ok(Arc::clone(config));
        }
        let mut own = (*tls).clone();
        own.max_early_data_size = 0;
        let own = Arc::new(own);
        // quinn-proto relies on it.
        quic::ServerConnection::new(Arc::clone(&own), quic::Version::V1, Vec::new())
            .map_err(unsuitable)?;
        let crypto = QuicServerConfig::try_from(own).map_err(unsuitable)?;
        let token = secrets()?.token.clone();
        let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(token));
        config
            .transport_config(Arc::new(self.options.transport(self.options.streams)))
            .incoming_buffer_size(INCOMING_BYTES)
            .incoming_buffer_size_total(INCOMING_BYTES);
        let config = Arc::new(config);
        *served = Some((tls, Arc::clone(&config)));
        Ok(config)
    }
}

fn missing(end: &str) -> io::Error {
    let why = format!("the driver 'quic' has no TLS configuration for the {end} end");
    io::Error::new(io::ErrorKind::Unsupported, why)
}

fn unsuitable(cause: impl std::fmt::Display) -> io::Error {
    let why = format!("the TLS configuration doesn't suit QUIC: {cause}");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl std::fmt::Debug for Configs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Configs")
            .field("options", &self.options)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}
