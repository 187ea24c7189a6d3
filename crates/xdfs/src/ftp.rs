//! The schemes of FTP and GridFTP servers: the first entries of the registry.

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "gsi")]
use xdfs_gridftp::client::Gsi;
use xdfs_gridftp::client::{
    Carrier, FTP_PORT, FtpStore, GSIFTP_PORT, PathOrigin, Protection, Settings, Stripes, TRAITS,
    Tls,
};
use xdfs_proto::{Code, Fault};
use xdfs_security::identity::{read_certificates, read_key};
use xdfs_security::trust::{NewHosts, TrustPolicy, server_name};
use xdfs_store::{Place, Traits};

use crate::scheme::{LoginBy, OpenPlace, Opening, Paths, PlaceRequest, Scheme};
use crate::security::{ClientSecurity, Credential, Level};
use crate::ssh::options::SshOptions;

/// The port of ssh, unless its configuration has another one.
const SSH_PORT: u16 = 22;
/// Sent to servers that ssh has started: they ask for a password, and need none.
const NO_PASSWORD: &str = "-";

/// Settings of sessions with FTP and GridFTP servers. With [`Stripes`] beside them files go to all
/// data nodes of a server at once, and come from them.
#[derive(Clone, Debug, Default)]
pub struct FtpSettings {
    /// Directory for what is remembered of large uploads, created if missing; `None` for nothing:
    /// then those that are interrupted start over. Files in it that were not used for 60 days are
    /// removed.
    pub uploads: Option<PathBuf>,
    /// Don't compare files by checksums, which the servers have to read them for: size and time
    /// have to do. So damage on the way isn't noticed, and downloads that are interrupted start
    /// over.
    pub uncompared: bool,
}

/// The protection of the connections with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FtpKind {
    /// Nothing (`ftp://`).
    Clear,
    /// TLS on the control connection and on data connections (`ftps://`, RFC 4217).
    Tls,
    /// The Grid Security Infrastructure (`gsiftp://`), where it is built in.
    Gsi,
    /// ssh, on the control connection: it starts a server for each (`sshftp://`).
    Ssh,
}

impl Scheme for FtpKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Clear => "ftp",
            Self::Tls => "ftps",
            Self::Gsi => "gsiftp",
            Self::Ssh => "sshftp",
        }
    }

    fn traits(&self) -> Traits {
        TRAITS
    }

    fn port(&self) -> Option<u16> {
        match self {
            Self::Clear | Self::Tls => Some(FTP_PORT),
            Self::Gsi => Some(GSIFTP_PORT),
            Self::Ssh => None,
        }
    }

    fn paths(&self) -> Paths {
        match self {
            // As curl has it.
            Self::Clear | Self::Tls => Paths::Login,
            // As the tools of Globus have it.
            Self::Gsi | Self::Ssh => Paths::RootOrHome,
        }
    }

    fn login(&self) -> LoginBy {
        match self {
            Self::Clear => LoginBy::ClearPassword,
            Self::Tls => LoginBy::Password,
            Self::Gsi => LoginBy::Certificate,
            Self::Ssh => LoginBy::Ssh,
        }
    }

    fn check_names(&self, host: &str, user: Option<&str>) -> Result<(), String> {
        match self {
            Self::Ssh => SshOptions::check_names(host, user),
            _ => Ok(()),
        }
    }

    fn check_level(&self, level: Level, address: &str) -> Result<(), Fault> {
        let (cause, hint) = match (self, level) {
            (Self::Clear | Self::Gsi, _)
            | (Self::Tls, Level::Private)
            | (Self::Ssh, Level::Clear | Level::Unauthenticated) => return Ok(()),
            (Self::Ssh, Level::Private | Level::Safe) => (
                "ssh protects commands and replies only: content and names in listings go \
                 unencrypted, over connections that prove nothing",
                "use ssh://, which protects everything, or accept the risk with --protect clear",
            ),
            (Self::Tls, Level::Safe) => (
                "PROT S is for gsiftp://; ftps:// has PROT P, which protects no less",
                "leave out --protect",
            ),
            (Self::Tls, Level::Clear | Level::Unauthenticated) => (
                "ftps:// protects data connections too: in clear, whoever is on the way could \
                 change what they carry",
                "leave out --protect",
            ),
        };
        let operation = format!("open a session with {address}");
        Err(Fault::new(Code::ProtectionRefused, operation, cause).hint(hint))
    }

    fn opening(&self) -> Opening<'_> {
        Opening::Place(self)
    }
}

impl OpenPlace for FtpKind {
    fn open(&self, request: &PlaceRequest<'_>) -> Result<Arc<dyn Place>, Fault> {
        let refused = |cause: &str, hint: &str| {
            let operation = format!("open a session with {}", request.address);
            Err(Fault::new(Code::ProtectionRefused, operation, cause).hint(hint))
        };
        let mut settings = self.settings(request);
        match (self, request.security) {
            (Self::Clear, None) => {}
            (Self::Clear, Some(_)) => {
                return refused(
                    "FTP sends passwords, names and data unencrypted, and doesn't prove which \
                     server answers",
                    "use ftps:// if the server has TLS, or xdfs:// or ssh://; or accept the risk \
                     with --insecure",
                );
            }
            (Self::Tls | Self::Gsi, None) => {
                return refused(
                    "ftps:// and gsiftp:// protect everything, and --insecure nothing",
                    "leave out --insecure; --pin or --ca say whom to trust, and ftp:// is without \
                     protection",
                );
            }
            (Self::Tls, Some(security)) => protect(&mut settings, security)?,
            #[cfg(feature = "gsi")]
            (Self::Gsi, Some(security)) => prove(&mut settings, security)?,
            #[cfg(not(feature = "gsi"))]
            (Self::Gsi, Some(_)) => {
                return refused(
                    "this program was built without GSI",
                    "build it with `cargo build --release --features gsi`, which needs the OpenSSL \
                     of the system",
                );
            }
            (Self::Ssh, _) => {
                let ssh: SshOptions = request.settings.get_or_default();
                let (command, host) = ssh.connection(request)?;
                settings.carrier = Some(Carrier {
                    command,
                    host,
                    program: ssh.remote_program,
                });
            }
        }
        Ok(Arc::new(FtpStore::new(settings)))
    }
}

impl FtpKind {
    /// The settings of a server, without its protection.
    fn settings(self, request: &PlaceRequest<'_>) -> Settings {
        let own: FtpSettings = request.settings.get_or_default();
        let password = match self {
            Self::Ssh => Some(NO_PASSWORD),
            _ => request.password,
        };
        Settings {
            host: request.host.to_owned(),
            port: request.port.or_else(|| self.port()).unwrap_or(SSH_PORT),
            user: request.user.map(str::to_owned),
            password: password.map(str::to_owned),
            protection: Protection::None,
            carrier: None,
            paths: match self.paths() {
                Paths::Login => PathOrigin::Login,
                Paths::Root | Paths::RootOrHome => PathOrigin::Root,
            },
            is_uncompared: own.uncompared,
            channels: request.channels,
            uploads: own.uploads,
            stripes: request.settings.get::<Stripes>().cloned(),
        }
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
