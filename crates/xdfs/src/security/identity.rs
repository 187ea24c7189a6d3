//! The client's side: trust in servers, and proof of its identity.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, OtherError};
use xdfs_engine::Identity;
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::{Code, Fault, Retry};
use xdfs_security::identity::{Fingerprint, ServerIdentity, read_certificates, read_key};
use xdfs_security::key::{self, Signer as _, SigningKey};
use xdfs_security::password::PasswordClient;
use xdfs_security::ticket;
use xdfs_security::trust::{TrustOutcome, TrustPolicy, TrustReason, client_fault, server_name};
use xdfs_security::{AUTHENTICATE, Level, Method, NOT_ACCEPTED};
use xdfs_xio::Protection;
use xdfs_xio::tls::Configs;

/// The operation of faults of logins.
const LOG_IN: &str = "log in";

/// A client's trust in servers, and its credentials.
#[derive(Clone, Debug)]
pub struct ClientSecurity {
    /// Trust in servers.
    pub trust: TrustPolicy,
    /// The credentials; the first whose method the server accepts is used.
    pub credentials: Vec<Credential>,
    /// Protection of payload. A server that doesn't accept it isn't used.
    pub level: Level,
}

/// A credential of a client.
#[derive(Clone)]
pub enum Credential {
    /// None: only for public data.
    Anonymous,
    /// A certificate chain and its key, as PEM.
    Certificate {
        /// The chain, the client's own certificate first.
        chain: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// The first key of the SSH agent with this socket.
    Agent(PathBuf),
    /// An OpenSSH private key file without a passphrase.
    Key(PathBuf),
    /// The text of such a file.
    KeyText(String),
    /// A password.
    Password(String),
    /// A ticket, as printed by the server.
    Ticket(String),
    /// A bearer token.
    Token(String),
    /// A ticket for the server with this key alone.
    Capability {
        /// Its text.
        text: String,
        /// The key.
        holder: Arc<ServerIdentity>,
    },
}

impl Credential {
    /// Checks what can be checked without a server: that the text of a key is one.
    ///
    /// # Errors
    /// It is none, or has a passphrase.
    pub fn check(&self) -> Result<(), Fault> {
        match self {
            Self::KeyText(text) => SigningKey::from_openssh(text.as_bytes(), || None).map(drop),
            _ => Ok(()),
        }
    }

    fn method(&self) -> Method {
        match self {
            Self::Anonymous => Method::Anonymous,
            Self::Certificate { .. } => Method::Certificate,
            Self::Agent(_) | Self::Key(_) | Self::KeyText(_) => Method::Key,
            Self::Password(_) => Method::Password,
            Self::Ticket(_) | Self::Capability { .. } => Method::Ticket,
            Self::Token(_) => Method::Token,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(path) | Self::Key(path) => {
                write!(f, "{}({})", self.method().as_str(), path.display())
            }
            // Secrets stay out of logs.
            _ => f.write_str(self.method().as_str()),
        }
    }
}

/// A server trusted on first use: it was unknown, and its key is trusted from now on. A man in the
/// middle at that moment would be trusted in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FirstUse {
    /// The server, as in the known hosts file.
    pub host: String,
    /// Its key.
    pub fingerprint: Fingerprint,
    /// The known hosts file.
    pub known_hosts: PathBuf,
    /// It received something that an impostor could use: a token, or an answer that allows guesses
    /// at a password.
    pub secret: bool,
}

/// The identity of a client's session.
pub(crate) struct SecureIdentity {
    user: String,
    credentials: Vec<Credential>,
    config: Arc<ClientConfig>,
    outcome: Arc<TrustOutcome>,
    name: ServerName<'static>,
    password: Mutex<Option<PasswordClient>>,
    admitted: Mutex<Option<String>>,
    /// The credential that the server was shown last, in words.
    shown: Mutex<String>,
    /// The server accepts passwords.
    takes_password: AtomicBool,
    first_use: Mutex<Option<FirstUse>>,
    /// The server accepts anonymous users, and this side used another method.
    is_open: AtomicBool,
}

impl SecureIdentity {
    /// Prepares sessions of `user` with the server of this name and port in known hosts.
    pub(crate) fn new(
        security: ClientSecurity,
        (host, port): &(String, u16),
        user: Option<&str>,
    ) -> Result<Self, Fault> {
        let certificate = security
            .credentials
            .iter()
            .find_map(|credential| match credential {
                Credential::Certificate { chain, key } => Some((chain, key)),
                _ => None,
            })
            .map(|(chain, key)| Ok::<_, Fault>((read_certificates(chain)?, read_key(key)?)))
            .transpose()?;
        let (config, outcome) = security.trust.client_config(host, *port, certificate)?;
        Ok(Self {
            user: user.unwrap_or_default().to_owned(),
            credentials: security.credentials,
            config,
            outcome,
            name: server_name(host)?,
            password: Mutex::default(),
            admitted: Mutex::default(),
            shown: Mutex::default(),
            takes_password: AtomicBool::new(false),
            first_use: Mutex::default(),
            is_open: AtomicBool::new(false),
        })
    }

    fn key_proof(
        &self,
        credential: &Credential,
        protection: &Protection,
    ) -> Result<Vec<u8>, Fault> {
        match credential {
            Credential::Key(path) => {
                let mut signer = SigningKey::load(path, || None)?;
                self.show(format!("key {}", signer.public_key().fingerprint()));
                key::prove(&mut signer, &self.user, &protection.binding)
            }
            Credential::KeyText(text) => {
                let mut signer = SigningKey::from_openssh(text.as_bytes(), || None)?;
                self.show(format!("key {}", signer.public_key().fingerprint()));
                key::prove(&mut signer, &self.user, &protection.binding)
            }
            #[cfg(unix)]
            Credential::Agent(path) => {
                let mut agent = key::Agent::connect(path)?;
                let first = agent.identities()?.into_iter().next().ok_or_else(|| {
                    Fault::new(
                        Code::AuthenticationFailed,
                        "authenticate",
                        "the agent has no key",
                    )
                    .hint("add one with ssh-add, or name a file with --key")
                })?;
                self.show(format!("key {} of the agent", first.key.fingerprint()));
                key::prove(
                    &mut agent.signer(first.key),
                    &self.user,
                    &protection.binding,
                )
            }
            _ => Err(Fault::new(
                Code::Unsupported,
                "authenticate",
                "agents are not supported on this system",
            )),
        }
    }
}

impl Identity for SecureIdentity {
    fn prove(&self, protection: &Protection, methods: &[u8]) -> Result<(AuthRequest, bool), Fault> {
        // Before any proof is sent.
        let is_new = self.outcome.commit()?;
        let mut own = self.credentials.iter();
        let found = own.find(|credential| methods.contains(&credential.method().number()));
        if is_new && let Some(fingerprint) = self.outcome.fingerprint() {
            let host = self.outcome.host();
            tracing::warn!(host, %fingerprint, "the key of a new server is trusted from now on");
            let first_use = FirstUse {
                host: host.to_owned(),
                fingerprint,
                known_hosts: self.outcome.known_hosts().to_owned(),
                secret: found.is_some_and(|credential| {
                    matches!(credential.method(), Method::Password | Method::Token)
                }),
            };
            *self.lock_first_use() = Some(first_use);
        }
        self.supported(methods);
        let Some(credential) = found else {
            return Err(self.nothing_fits(methods));
        };
        let request = self.first_step(credential, protection)?;
        Ok((request, credential.method() != Method::Password))
    }

    fn prove_ahead(&self, protection: &Protection) -> Option<AuthRequest> {
        let known = self.credentials.first().filter(|_| self.outcome.is_known());
        // No secret is shown to a server that may have no use for it.
        let fits = |credential: &&Credential| {
            matches!(
                credential.method(),
                Method::Key | Method::Certificate | Method::Anonymous
            )
        };
        // What is wrong with a credential matters only if the server supports its method.
        self.first_step(known.filter(fits)?, protection).ok()
    }

    fn supported(&self, methods: &[u8]) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open =
            methods.contains(&Method::Anonymous.number()) && *shown != Method::Anonymous.as_str();
        self.is_open.store(is_open, Ordering::Relaxed);
        let takes_password = methods.contains(&Method::Password.number());
        self.takes_password.store(takes_password, Ordering::Relaxed);
    }

    fn answer(&self, protection: &Protection, challenge: &[u8]) -> Result<Vec<u8>, Fault> {
        let client = self
            .password
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let password = self
            .credentials
            .iter()
            .find_map(|credential| match credential {
                Credential::Password(password) => Some(password),
                _ => None,
            });
        let (Some(client), Some(password)) = (client, password) else {
            let cause = "the server asks for a step that the method doesn't have";
            return Err(Fault::new(Code::ProtocolViolation, "authenticate", cause));
        };
        client.answer(&self.user, password, &protection.binding, challenge)
    }

    fn admitted(&self, user: &str) {
        *self.admitted.lock().unwrap_or_else(PoisonError::into_inner) = Some(user.to_owned());
    }

    fn refused(&self, mut fault: Fault) -> Fault {
        let is_put_off = fault.code == Code::LimitExceeded && fault.operation == AUTHENTICATE;
        if !is_put_off && fault.code != Code::AuthenticationFailed {
            return fault;
        }
        let user = match self.user.as_str() {
            "" => String::new(),
            user => format!(" of '{user}'"),
        };
        let reason = match fault.cause.as_str() {
            // Nothing but the fact.
            NOT_ACCEPTED => String::new(),
            cause if is_put_off => format!(" without checking it: {cause}"),
            cause => format!(": {cause}"),
        };
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        fault.cause = format!("the server refused the login{user} ({shown}){reason}");
        drop(shown);
        fault.operation = LOG_IN.into();
        fault.fails_login = true;
        if !is_put_off && self.takes_password() && !self.has_password() {
            let password = "a password is asked for with --password-file -";
            fault.hint = match fault.hint.as_str() {
                "" => password.to_owned(),
                hint => format!("{hint}; {password}"),
            };
        }
        self.hint_at_public(fault)
    }

    fn explain(&self, error: &io::Error) -> Option<Fault> {
        use io::ErrorKind as K;
        // A server at its limit of handshakes can't say so: it only speaks TLS, and a TLS answer
        // would cost a handshake. Its close may arrive as a reset, since it hasn't read the data
        // from this side.
        let is_cut_off = error.get_ref().is_none_or(|e| !e.is::<rustls::Error>())
            && matches!(
                error.kind(),
                K::UnexpectedEof | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe
            );
        if is_cut_off {
            let cause = "the server closed the connection before the TLS handshake was through";
            return Some(
                Fault::new(Code::ConnectionLost, "secure the connection", cause)
                    .hint(
                        "--stack names the drivers that the server listens with, such as \
                         tcp,tls,zstd; if it is busy instead, try again later",
                    )
                    .retry(Retry::AfterMs(500)),
            );
        }
        let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        let mut fault = match (error, self.outcome.reason()) {
            // QUIC tells of the check of a certificate only that it failed, and all channels share
            // its connection.
            (
                rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(cause))),
                Some(TrustReason::Refused(refusal)),
            ) if !cause.is::<Fault>() => refusal,
            _ => client_fault(error),
        };
        if matches!(error, rustls::Error::InvalidMessage(_)) {
            fault = Fault::new(
                Code::ProtectionRefused,
                "secure the connection",
                "the server doesn't speak TLS",
            )
            .hint("a server that was started with --insecure is used with --insecure");
        }
        // The server could not verify a signature: that of the certificate or of its key.
        if matches!(
            error,
            rustls::Error::AlertReceived(AlertDescription::DecryptError)
        ) {
            fault.code = Code::AuthenticationFailed;
            fault.hint = "the other end doesn't trust this end's certificate".into();
        }
        Some(fault)
    }
}

impl SecureIdentity {
    /// The first step of a proof by this credential.
    fn first_step(
        &self,
        credential: &Credential,
        protection: &Protection,
    ) -> Result<AuthRequest, Fault> {
        let method = credential.method();
        self.show(method.as_str().to_owned());
        if method == Method::Anonymous {
            self.is_open.store(false, Ordering::Relaxed);
        }
        let body = match credential {
            Credential::Anonymous | Credential::Certificate { .. } => Vec::new(),
            Credential::Agent(_) | Credential::Key(_) | Credential::KeyText(_) => {
                self.key_proof(credential, protection)?
            }
            Credential::Ticket(text) => ticket::prove(text, &protection.binding)?,
            Credential::Capability { text, holder } => {
                ticket::prove_as(holder, text, &protection.binding)?
            }
            Credential::Token(text) => text.clone().into_bytes(),
            Credential::Password(_) => {
                let (client, body) = PasswordClient::begin()?;
                *self.password.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
                body
            }
        };
        Ok(AuthRequest {
            method: method.number(),
            user: self.user.clone(),
            body,
        })
    }

    fn show(&self, credential: String) {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = credential;
    }

    /// Configuration of the driver `tls` for channels to the server.
    pub(crate) fn tls(&self) -> Configs {
        Configs {
            client: Some((Arc::clone(&self.config), self.name.clone())),
            server: None,
            secret: None,
        }
    }

    /// The user's name at the server, once the session is open.
    pub(crate) fn user(&self) -> Option<String> {
        let admitted = self.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        admitted.clone()
    }

    /// Whether the server takes passwords; `false` before it has said so.
    pub(crate) fn takes_password(&self) -> bool {
        self.takes_password.load(Ordering::Relaxed)
    }

    fn has_password(&self) -> bool {
        let mut own = self.credentials.iter();
        own.any(|credential| credential.method() == Method::Password)
    }

    /// The server, if this session was the first to see its key.
    pub(crate) fn first_use(&self) -> Option<FirstUse> {
        self.lock_first_use().clone()
    }

    fn lock_first_use(&self) -> MutexGuard<'_, Option<FirstUse>> {
        let first_use = self.first_use.lock();
        first_use.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a hint on public data if the server has any.
    fn hint_at_public(&self, fault: Fault) -> Fault {
        if fault.code != Code::AuthenticationFailed || !self.is_open.load(Ordering::Relaxed) {
            return fault;
        }
        let public = "what is public there is open to xdfs://anonymous@HOST/PATH";
        let hint = match fault.hint.as_str() {
            "" => public.to_owned(),
            hint => format!("{hint}; {public}"),
        };
        fault.hint(hint)
    }

    /// Fingerprint of the server's proven key.
    pub(crate) fn server(&self) -> Option<Fingerprint> {
        self.outcome.fingerprint()
    }

    fn nothing_fits(&self, methods: &[u8]) -> Fault {
        let names: Vec<&str> = methods
            .iter()
            .filter_map(|number| Method::from_number(*number))
            .map(Method::as_str)
            .collect();
        let cause = format!(
            "the server takes none of what there is, but {}",
            names.join(", ")
        );
        let mut fault = Fault::new(Code::AuthenticationFailed, LOG_IN, cause)
            .hint("make a key with `xdfs keygen`, or get a ticket from the server's owner");
        fault.fails_login = true;
        self.hint_at_public(fault)
    }
}

impl fmt::Debug for SecureIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecureIdentity")
            .field("user", &self.user)
            .field("credentials", &self.credentials)
            .finish_non_exhaustive()
    }
}
