//! The configurations of quinn-proto, made from those of TLS.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};
use std::time::Duration;

use aws_lc_rs::{hkdf, hmac, rand};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{ClientConfig, EndpointConfig, ServerConfig};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid, RandomConnectionIdGenerator};
use rustls::quic;

use xdfs_sys::boot::boot_id;

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

/// Random bytes of connection identifiers, so many that none comes twice: the token that resets a
/// connection depends on its identifier only, and peers remember those they were told (RFC 9000,
/// section 10.3.2).
const ID_BYTES: usize = 8;
/// Bytes that follow them, which only a listener of the same identity at the same address makes.
const ID_TAG_BYTES: usize = 4;
/// What keys are derived for: those of stateless resets, and those of connection identifiers.
const RESET_LABEL: &[u8] = b"xdfs quic stateless reset 1";
const ID_LABEL: &[u8] = b"xdfs quic connection identifier 1";

/// Address validation tokens hold for all listeners of a process, and for none after it.
static TOKEN: LazyLock<Option<hkdf::Prk>> = LazyLock::new(|| {
    let bytes = random().ok()?;
    Some(hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&bytes))
});

fn token() -> io::Result<hkdf::Prk> {
    TOKEN.clone().ok_or_else(no_random)
}

fn random() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| no_random())?;
    Ok(bytes)
}

fn no_random() -> io::Error {
    io::Error::other("the system gives no random bytes")
}

/// The key of the stateless resets of a listener at `local` (RFC 9000, section 10.3): with it,
/// whoever listens at the same address after a restart can tell peers that their connections are
/// gone.
///
/// An endpoint that has the key, and not the connections, discloses how to end them to everybody
/// who knows their identifiers (section 10.3.2). So no two that may run at the same time have the
/// same: the key depends on the boot of the machine, the network namespace and the address beside
/// the secret. Without one of these, it is random.
fn reset_key(secret: Option<&tls::StableSecret>, local: SocketAddr) -> io::Result<[u8; 32]> {
    derived(RESET_LABEL, secret, local)
}

/// A key for one purpose, of which the same holds as of [`reset_key`].
fn derived(
    label: &[u8],
    secret: Option<&tls::StableSecret>,
    local: SocketAddr,
) -> io::Result<[u8; 32]> {
    let Some((secret, (boot, namespace))) = secret.zip(boot_id().zip(network_namespace())) else {
        return random();
    };
    let address = local.to_string();
    let info = [label, &boot, &namespace, address.as_bytes()];
    let mut key = [0; 32];
    let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret.bytes());
    let okm = prk.expand(&info, hkdf::HKDF_SHA256);
    okm.and_then(|okm| okm.fill(&mut key))
        .map_err(|_| io::Error::other("no key can be derived from the secret"))?;
    Ok(key)
}

/// Makes connection identifiers, and tells those that it or its predecessors made from others:
/// packets with others get no resets. The number of resets in a time is bounded, so that garbage
/// would keep true peers from theirs.
struct Identifiers {
    random: RandomConnectionIdGenerator,
    key: hmac::Key,
}

impl Identifiers {
    fn new(key: hmac::Key) -> Self {
        let random = RandomConnectionIdGenerator::new(ID_BYTES);
        Self { random, key }
    }

    /// The identifier that begins so.
    fn complete(&self, random: &[u8]) -> ConnectionId {
        let mut bytes = [0; ID_BYTES + ID_TAG_BYTES];
        let (beginning, tag) = bytes.split_at_mut(ID_BYTES);
        beginning.copy_from_slice(random);
        let signed = hmac::sign(&self.key, random);
        tag.copy_from_slice(&signed.as_ref()[..ID_TAG_BYTES]);
        ConnectionId::new(&bytes)
    }
}

impl ConnectionIdGenerator for Identifiers {
    fn generate_cid(&mut self) -> ConnectionId {
        let random = self.random.generate_cid();
        self.complete(&random)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let random = id.get(..ID_BYTES).ok_or(InvalidCid)?;
        match self.complete(random) == *id {
            true => Ok(()),
            false => Err(InvalidCid),
        }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES + ID_TAG_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The numbers that identify the network namespace within a boot, as containers with one identity
/// may run beside each other: that of this thread, in which its sockets are made. Threads of one
/// process may have different ones.
#[cfg(target_os = "linux")]
fn network_namespace() -> Option<[u8; 16]> {
    use std::os::unix::fs::MetadataExt as _;

    let file = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&file.dev().to_be_bytes());
    bytes[8..].copy_from_slice(&file.ino().to_be_bytes());
    Some(bytes)
}

/// There are none.
#[cfg(not(target_os = "linux"))]
fn network_namespace() -> Option<[u8; 16]> {
    Some([0; 16])
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

    /// The configuration of a UDP endpoint: of a listener, if `listens_at` is its address.
    pub(super) fn endpoint(
        &self,
        listens_at: Option<SocketAddr>,
    ) -> io::Result<Arc<EndpointConfig>> {
        let secret = self.tls.secret.as_ref();
        let (reset, ids) = match listens_at {
            Some(local) => (reset_key(secret, local)?, derived(ID_LABEL, secret, local)?),
            None => (random()?, random()?),
        };
        let ids = hmac::Key::new(hmac::HMAC_SHA256, &ids);
        let reset = hmac::Key::new(hmac::HMAC_SHA256, &reset);
        let mut config = EndpointConfig::new(Arc::new(reset));
        config
            .cid_generator(move || Box::new(Identifiers::new(ids.clone())) as _)
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
        config.transport_config(Arc::new(self.options.opening()));
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
        let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(token()?));
        config
            .transport_config(Arc::new(self.options.accepting()))
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_reset_key_is_of_the_namespace_of_the_thread() {
        use nix::sched::{CloneFlags, unshare};

        let secret = tls::StableSecret::new([5; 32]);
        let local = SocketAddr::from(([0, 0, 0, 0], 2799));
        let key = || reset_key(Some(&secret), local).unwrap();
        std::thread::scope(|scope| {
            assert_eq!(scope.spawn(key).join().unwrap(), key());
            let elsewhere = scope.spawn(|| unshare(CloneFlags::CLONE_NEWNET).map(|()| key()));
            match elsewhere.join().unwrap() {
                Ok(other) => assert_ne!(other, key()),
                Err(e) => xdfs_testkit::skip::test(format!("no network namespace: {e}")),
            }
        });
    }
}
