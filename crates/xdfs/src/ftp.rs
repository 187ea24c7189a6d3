//! Sessions with FTP and GridFTP servers.
//!
//! A server in this process, which nobody else can reach, serves the files of the other one as its
//! store. So transfers, trees, calls, journals, retries and reports are those of any server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[cfg(feature = "gsi")]
use xdfs_gridftp::client::Gsi;
use xdfs_gridftp::client::{FtpStore, PathOrigin, Protection, Settings, Tls};
use xdfs_proto::{Code, Fault, Retry};
use xdfs_security::identity::{read_certificates, read_key};
use xdfs_security::trust::{NewHosts, TrustPolicy, server_name};

use crate::remote::{Address, FtpProtection, RemotePlace};
use crate::security::{ClientSecurity, Credential};
use crate::server::{ServerBuilder, ServerHandle};
use crate::session::ClientOptions;

/// Blocks between the client and its gateway: those under way stay in a processor's cache, and each
/// still costs little beside its copy.
pub(crate) const BLOCK_BYTES: u32 = 512 << 10;
/// The port of ssh, unless its configuration has another one.
const SSH_PORT: u16 = 22;
/// What servers that ssh has started ask for, and don't need.
const NO_PASSWORD: &str = "-";

/// Numbers the listeners of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The server in this process. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct FtpGateway {
    store: FtpStore,
    handle: ServerHandle,
    address: Address,
    takes_password: bool,
    thread: Option<thread::JoinHandle<()>>,
}

impl FtpGateway {
    /// A gateway to the server of `place`; `None` if that is no FTP server.
    ///
    /// # Errors
    /// The session is to be protected, which FTP without TLS can't do, or the other way round; a
    /// file of the user can't be used; or the server can't be reached, or refuses the user.
    pub(crate) fn for_place(
        place: &RemotePlace,
        options: &ClientOptions,
    ) -> Result<Option<Self>, Fault> {
        let security = options.security.as_ref();
        let (host, port, protection) = match &place.address {
            Address::Ftp {
                host,
                port,
                protection,
            } => (host, *port, protection),
            Address::SshFtp { host, port } => {
                let settings = Settings {
                    host: host.clone(),
                    port: port.unwrap_or(SSH_PORT),
                    user: place.user.clone(),
                    password: Some(NO_PASSWORD.to_owned()),
                    protection: Protection::None,
                    carrier: Some(options.ssh.carrier(place)?),
                    paths: path_origin(&place.address),
                    is_uncompared: options.ftp_uncompared,
                    channels: options.channels,
                    uploads: options.ftp_uploads.clone(),
                    stripes: options.stripes.clone(),
                };
                return Self::start(settings, &place.address).map(Some);
            }
            _ => return Ok(None),
        };
        let refused = |cause: &str, hint: &str| {
            let operation = format!("open a session with {}", place.address);
            Err(Fault::new(Code::ProtectionRefused, operation, cause).hint(hint))
        };
        let mut settings = Settings {
            host: host.clone(),
            port,
            user: place.user.clone(),
            password: place.invitation.password.clone(),
            protection: Protection::None,
            carrier: None,
            paths: path_origin(&place.address),
            is_uncompared: options.ftp_uncompared,
            channels: options.channels,
            uploads: options.ftp_uploads.clone(),
            stripes: options.stripes.clone(),
        };
        match (protection, security) {
            (FtpProtection::None, None) => {}
            (FtpProtection::None, Some(_)) => {
                return refused(
                    "FTP sends passwords, names and data unencrypted, and doesn't prove which \
                     server answers",
                    "use ftps:// if the server has TLS, or xdfs:// or ssh://; or accept the risk \
                     with --insecure",
                );
            }
            (FtpProtection::Tls | FtpProtection::Gsi, None) => {
                return refused(
                    "ftps:// and gsiftp:// protect everything, and --insecure nothing",
                    "leave out --insecure; --pin or --ca say whom to trust, and ftp:// is without \
                     protection",
                );
            }
            (FtpProtection::Tls, Some(security)) => protect(&mut settings, security)?,
            #[cfg(feature = "gsi")]
            (FtpProtection::Gsi, Some(security)) => prove(&mut settings, security)?,
            #[cfg(not(feature = "gsi"))]
            (FtpProtection::Gsi, Some(_)) => {
                return refused(
                    "this program was built without GSI",
                    "build it with `cargo build --release --features gsi`, which needs the OpenSSL \
                     of the system",
                );
            }
        }
        Self::start(settings, &place.address).map(Some)
    }

    /// A gateway to the server at `there`.
    fn start(settings: Settings, there: &Address) -> Result<Self, Fault> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = Address::Memory(format!("ftp-{number}"));
        let builder = ServerBuilder {
            listen: vec![address.clone().into()],
            ..ServerBuilder::default()
        };
        let is_named = settings
            .user
            .as_deref()
            .is_some_and(|user| user != "anonymous");
        let takes_password = is_named && matches!(settings.protection, Protection::Tls(_));
        let store = FtpStore::new(settings);
        // As with other servers: one that never answered isn't tried again.
        store.connect().map_err(|fault| Fault {
            retry: match fault.code {
                Code::ConnectionRefused | Code::DeadlineExceeded => Retry::Never,
                _ => fault.retry,
            },
            ..fault.at(&there.machine()).ending_session()
        })?;
        let server = builder.bind_store(Arc::new(store.clone()))?;
        let handle = server.handle();
        let thread = thread::Builder::new()
            .name("xdfs-ftp".into())
            .spawn(move || {
                if let Err(fault) = server.run() {
                    tracing::warn!(%fault, "the gateway to an FTP server failed");
                }
            })
            .map_err(|error| Fault::from_io("start the gateway's thread", "", &error))?;
        Ok(Self {
            store,
            handle,
            address,
            takes_password,
            thread: Some(thread),
        })
    }

    /// The files of the other server.
    pub(crate) fn store(&self) -> FtpStore {
        self.store.clone()
    }

    /// Where a session reaches it.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl FtpGateway {
    /// Whether the user logs in by a password, which nobody but the server sees.
    pub(crate) fn takes_password(&self) -> bool {
        self.takes_password
    }

    /// Whether the path to the server is long.
    pub(crate) fn is_far(&self) -> bool {
        self.store.is_far()
    }

    /// Asks for all of a tree at once, if the server can tell it. Returns whether it has.
    pub(crate) fn begin_tree(&self, path: &[u8]) -> bool {
        self.store.begin_tree(path)
    }

    /// Nothing of this tree is wanted any more.
    pub(crate) fn end_tree(&self) {
        self.store.end_tree();
    }

    /// Ends what waits for the other server.
    pub(crate) fn close(&self) {
        self.store.close();
    }
}

/// Where paths of a server begin.
fn path_origin(address: &Address) -> PathOrigin {
    match address.begins_at_login() {
        true => PathOrigin::Login,
        false => PathOrigin::Root,
    }
}

/// Has the connections with a server protected, and this user log in as `security` says.
///
/// # Errors
/// It says what FTP can't do, or a file can't be used.
fn protect(settings: &mut Settings, security: &ClientSecurity) -> Result<(), Fault> {
    let operation = format!("open a session with {}:{}", settings.host, settings.port);
    let refused =
        |code, cause: &str, hint: &str| Err(Fault::new(code, &operation, cause).hint(hint));
    let (mut certificate, mut is_usable) = (None, security.credentials.is_empty());
    for credential in &security.credentials {
        match credential {
            Credential::Anonymous => {}
            Credential::Certificate { chain, key } => {
                certificate = Some((read_certificates(chain)?, read_key(key)?));
            }
            Credential::Password(_) if settings.user.is_none() => {
                let cause = "there is a password, and no user whose it is";
                return refused(Code::InvalidArgument, cause, "write ftps://USER@HOST/PATH");
            }
            Credential::Password(password) => settings.password = Some(password.clone()),
            _ => continue,
        }
        is_usable = true;
    }
    if !is_usable {
        return refused(
            Code::Unsupported,
            "FTP servers know neither keys of ssh, nor tickets, nor tokens",
            "use --password-file, --cert or --anonymous",
        );
    }
    let trust = TrustPolicy {
        // A password is sent to the server itself, so its key isn't taken from whoever answers.
        new_hosts: match security.trust.new_hosts {
            NewHosts::Accept => NewHosts::RefuseUnvouched,
            other => other,
        },
        ..security.trust.clone()
    };
    let (config, _) = trust.ftp_client_config(&settings.host, settings.port, certificate)?;
    settings.protection = Protection::Tls(Tls {
        config,
        name: server_name(&settings.host)?,
    });
    Ok(())
}

/// Has both sides prove who they are by GSI: this user by the certificate or the proxy that
/// `security` has, and the server by one for its host.
///
/// # Errors
/// `security` says what GSI can't do, or a file can't be used.
#[cfg(feature = "gsi")]
fn prove(settings: &mut Settings, security: &ClientSecurity) -> Result<(), Fault> {
    let operation = format!("open a session with {}:{}", settings.host, settings.port);
    let refused =
        |code, cause: &str, hint: &str| Err(Fault::new(code, &operation, cause).hint(hint));
    if !security.trust.pins.is_empty() || !security.trust.roots.is_empty() {
        return refused(
            Code::InvalidArgument,
            "GSI has authorities of its own, in a directory",
            "leave out --ca and --pin; X509_CERT_DIR names the directory",
        );
    }
    let mut all = security.credentials.iter();
    let found = all.find_map(|credential| match credential {
        Credential::Certificate { chain, key } => Some((chain, key)),
        _ => None,
    });
    let Some((chain, key)) = found else {
        return refused(
            Code::AuthenticationFailed,
            "there is no proxy and no certificate of this user",
            "make a proxy with `xdfs proxy init`, or name a certificate with --cert and --cert-key",
        );
    };
    settings.protection = Protection::Gsi(Gsi {
        credential: crate::gsi::Credential::open(chain, key).map_err(|fault| match fault.code {
            Code::NotFound => fault.hint("make a proxy with `xdfs proxy init`"),
            _ => fault,
        })?,
        trust: crate::gsi::Trust::open(crate::gsi::authorities())?,
        level: security.level,
    });
    Ok(())
}

impl Drop for FtpGateway {
    fn drop(&mut self) {
        self.close();
        // The session with it has ended.
        self.handle.shutdown();
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            // What a panic has broken, the session has reported.
            let _ = thread.join();
        }
    }
}
