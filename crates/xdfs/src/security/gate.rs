//! The server's side: who comes in, and what they see.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use xdfs_engine::{Admission, Gate, Place, Proof, Verdict};
use xdfs_proto::frame::AuthRequest;
use xdfs_proto::{Code, Fault};
use xdfs_security::account::Accounts;
use xdfs_security::audit::{Audit, Event, Kind};
use xdfs_security::export::{Exports, ExportsConfig, Rights, Roots};
use xdfs_security::grid::{self, GridMapFile};
use xdfs_security::guard::{Guard, Limits as GuardLimits};
use xdfs_security::identity::{
    ClientCertificates, Fingerprint, Reloading, ServerIdentity, read_certificates,
};
use xdfs_security::password::{CachedUsers, PasswordServer, UsersFile};
use xdfs_security::ticket::TicketBox;
use xdfs_security::token::{Config as TokenConfig, Verifier};
use xdfs_security::{Binding, Method, Principal};
use xdfs_sys::ids::Ids;
use xdfs_xio::Protection;
use xdfs_xio::tls::Configs;

use super::audited::{Actor, AuditedStore};
use super::issuers;
use super::keys::KeyLists;
use super::rates::UserRates;

/// How often counts of refusals are looked at.
const AUDIT_INTERVAL: Duration = Duration::from_secs(20);

/// How a server protects itself: its key, its users, and what each of them may do.
///
/// All files are beneath `folder` unless said otherwise: `server.key` and `server.crt` (made at the
/// first start), `users` (passwords), `authorized_keys` (keys of the owner), `keys/NAME` (keys of
/// the user NAME).
#[derive(Clone, Debug)]
pub struct ServerSecurity {
    /// The folder of the server's own files.
    pub folder: PathBuf,
    /// The user who runs the server: who gives no name with a key is that user.
    pub owner: String,
    /// Further lists of the owner's keys, in the form of OpenSSH's `authorized_keys`. Lists that
    /// aren't there are empty.
    pub owner_keys: Vec<PathBuf>,
    /// Certificate chain and key as PEM, in place of those in `folder`. They are loaded again when
    /// they change.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Names for the certificate that is made at the first start.
    pub names: Vec<String>,
    /// What is served to whom; `None` for the whole root to every user.
    pub exports: Option<ExportsConfig>,
    /// The issuers whose bearer tokens are taken.
    pub tokens: Option<TokenConfig>,
    /// The authorities of client certificates (PEM), and the grid map that names their users.
    pub client_authorities: Option<(PathBuf, PathBuf)>,
    /// The file of the audit log; `None` for none.
    pub audit: Option<PathBuf>,
    /// What peers that aren't known yet, and users, may cost.
    pub limits: GuardLimits,
    /// Clients may ask for payload in the clear ([`super::Level::Clear`]); otherwise they are
    /// refused.
    pub takes_clear: bool,
    /// The local accounts that users have: each session runs with the ids of one, so that the
    /// kernel judges what it does, and files belong to the account. `*` stands for every other user
    /// who proved who it is, `anonymous` for those who prove nothing, and `{user}` in place of an
    /// account for the one with the name of the user; nobody else is served. `None` to do
    /// everything as the user who runs the server. Needs Linux, and a server that was started as
    /// root.
    pub accounts: Option<BTreeMap<String, String>>,
}

impl ServerSecurity {
    /// What a server has that was told nothing but its folder and who runs it.
    #[must_use]
    pub fn new(folder: PathBuf, owner: String) -> Self {
        Self {
            folder,
            owner,
            owner_keys: Vec::new(),
            certificate: None,
            names: vec!["localhost".into()],
            exports: None,
            tokens: None,
            client_authorities: None,
            audit: None,
            accounts: None,
            // A session opens all its channels at once, and a thousand of them is normal.
            limits: GuardLimits {
                handshakes_max: 4096,
                handshakes_per_address_max: 2048,
                ..GuardLimits::default()
            },
            takes_clear: false,
        }
    }

    /// The files and folders by which somebody could take the server over, or learn what it keeps.
    fn own_paths(&self) -> Vec<&Path> {
        let mut own: Vec<&Path> = vec![&self.folder];
        own.extend(self.audit.as_deref());
        let pairs = [&self.certificate, &self.client_authorities];
        for (one, other) in pairs.into_iter().flatten() {
            own.extend([one.as_path(), other]);
        }
        for issuer in self.tokens.iter().flat_map(|tokens| &tokens.issuers) {
            own.extend(issuer.jwks_file.as_deref());
            own.extend(issuer.jwks_authorities.as_deref());
        }
        own
    }

    /// Makes sure that nobody is served what the server itself rests on. `root` is what is served
    /// without exports; `private` are further paths that must not be. Further lists of the owner's
    /// keys are left out instead: they aren't the server's, and others may need them there.
    pub(crate) fn keep_apart(&mut self, root: &Path, private: &[PathBuf]) -> Result<(), Fault> {
        let paths: Vec<&Path> = match &self.exports {
            Some(config) => config.export.iter().map(|e| Path::new(&e.path)).collect(),
            None => vec![root],
        };
        let keys = self.folder.join("keys");
        let own = self.own_paths().into_iter().chain([keys.as_path()]);
        let own = own.chain(private.iter().map(PathBuf::as_path));
        keep_apart(paths.iter().copied(), own)?;
        self.owner_keys.retain(|list| {
            let apart = keep_apart(paths.iter().copied(), [list.as_path()]);
            if apart.is_err() {
                let list = list.display();
                tracing::warn!(%list, "a list of keys is not used, as it is served itself");
            }
            apart.is_ok()
        });
        Ok(())
    }
}

/// Makes sure that none of the paths `own` lies beneath one of `roots`.
pub(crate) fn keep_apart<'a>(
    roots: impl IntoIterator<Item = &'a Path>,
    own: impl IntoIterator<Item = &'a Path>,
) -> Result<(), Fault> {
    const OPERATION: &str = "open the root";
    let io = |e: io::Error| Fault::from_io(OPERATION, "", &e);
    let roots = Roots::new(roots).map_err(io)?;
    for path in own {
        if let Some(root) = roots.holding(path).map_err(io)? {
            let cause = format!(
                "{} lies beneath it, which the server or its owner rests on: whoever is let in \
                 could read it or write to it",
                path.display()
            );
            return Err(Fault::new(Code::InvalidArgument, OPERATION, cause)
                .path(root.as_os_str().as_encoded_bytes())
                .hint(
                    "serve another directory, or keep those files elsewhere: by `folder` in the \
                     settings, or for all of them by XDFS_CONFIG_DIR",
                ));
        }
    }
    Ok(())
}

/// Issues tickets: secrets that let somebody in once.
#[derive(Clone)]
pub struct Tickets {
    store: Arc<Mutex<TicketBox>>,
    owner: String,
}

impl Tickets {
    /// A ticket for the owner of the server, good for `uses` sessions within `life`.
    ///
    /// # Errors
    /// The life is not between a second and a week or so, or too many tickets are out.
    pub fn issue(&self, life: Duration, uses: u32) -> Result<String, Fault> {
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let text =
            store.issue_for_uses(&self.owner, Vec::new(), unix_now(), life.as_secs(), uses)?;
        Ok(text.as_str().to_owned())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets").finish_non_exhaustive()
    }
}

/// The gate of a server's acceptor.
#[derive(Debug)]
pub(crate) struct SecureGate {
    methods: Vec<u8>,
    takes_clear: bool,
    shared: Arc<Shared>,
    identity: Arc<Reloading>,
    tickets: Tickets,
}

#[derive(Debug)]
struct Shared {
    keys: KeyLists,
    users: CachedUsers,
    tickets: Tickets,
    tokens: Option<Verifier>,
    grid: Option<GridMapFile>,
    exports: Exports,
    accounts: Option<Accounts>,
    rates: Option<UserRates>,
    /// Counts what peers and users hold open.
    guard: Guard,
    /// Counts failed proofs. Apart from the other, because only proofs have to wait for them: the
    /// channels of sessions that run come from the same addresses.
    failures: Guard,
    audit: Arc<Audit>,
    started: Instant,
}

impl SecureGate {
    /// Loads, or makes, what the settings name. `root` and `read_only` say what is served without
    /// exports.
    pub(crate) fn new(
        settings: ServerSecurity,
        root: PathBuf,
        read_only: bool,
    ) -> Result<Self, Fault> {
        // Before files are made that would belong to the wrong user.
        let accounts = settings.accounts.map(Accounts::new).transpose()?;
        let (certificates, grid) = match &settings.client_authorities {
            Some((authorities, map)) => (
                ClientCertificates::Optional(read_certificates(authorities)?),
                Some(GridMapFile::open(map)?),
            ),
            None => (ClientCertificates::None, None),
        };
        let folder = settings.folder.as_os_str().as_encoded_bytes();
        std::fs::create_dir_all(&settings.folder)
            .map_err(|e| Fault::from_io("make the folder of the server", folder, &e))?;
        let (chain, key) = match settings.certificate {
            Some(files) => files,
            None => {
                ServerIdentity::load_or_make(&settings.folder, &settings.names)?;
                ServerIdentity::files(&settings.folder)
            }
        };
        let identity = Arc::new(Reloading::new(chain, key, certificates)?);
        let rights = if read_only {
            Rights::READ | Rights::LIST
        } else {
            Rights::ALL
        };
        let is_public = settings
            .exports
            .as_ref()
            .is_some_and(|exports| exports.export.iter().any(|e| e.public));
        let exports = match settings.exports {
            Some(config) => Exports::new(config)?,
            None => Exports::single(root, rights),
        };
        let audit = match &settings.audit {
            Some(path) => Arc::new(Audit::open(path)?),
            None => Arc::new(Audit::none()),
        };
        if settings.audit.is_some() {
            watch(&audit)?;
        }
        let mut owner_lists = settings.owner_keys;
        owner_lists.push(settings.folder.join("authorized_keys"));
        let tickets = Tickets {
            store: Arc::default(),
            owner: settings.owner.clone(),
        };
        let mut methods = vec![Method::Key, Method::Password, Method::Ticket];
        let tokens = settings.tokens.map(Verifier::new).transpose()?;
        if let Some(tokens) = &tokens {
            issuers::start(tokens.take_fetches())?;
        }
        methods.extend(tokens.as_ref().map(|_| Method::Token));
        methods.extend(grid.as_ref().map(|_| Method::Certificate));
        methods.extend(is_public.then_some(Method::Anonymous));
        let users = UsersFile::new(settings.folder.join("users"));
        // Here and not at the first password, which nobody has proved anything for.
        users.init()?;
        let shared = Shared {
            keys: KeyLists {
                owner: settings.owner,
                owner_lists,
                folder: settings.folder.join("keys"),
            },
            users: CachedUsers::new(users),
            tickets: tickets.clone(),
            tokens,
            grid,
            exports,
            accounts,
            rates: settings
                .limits
                .bytes_per_second_per_user_max
                .map(UserRates::new),
            failures: Guard::new(GuardLimits {
                handshakes_max: usize::MAX,
                handshakes_per_address_max: usize::MAX,
                ..settings.limits
            }),
            guard: Guard::new(settings.limits),
            audit,
            started: Instant::now(),
        };
        Ok(Self {
            methods: methods.into_iter().map(Method::number).collect(),
            takes_clear: settings.takes_clear,
            shared: Arc::new(shared),
            identity,
            tickets,
        })
    }

    /// The configuration of TLS, as it is at the moment.
    pub(crate) fn configs(&self) -> Configs {
        let identity = Arc::clone(&self.identity);
        Arc::new(move || identity.current())
    }

    /// What clients see of the server's key.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.identity.fingerprint()
    }

    /// Lets tickets be issued.
    pub(crate) fn tickets(&self) -> Tickets {
        self.tickets.clone()
    }
}

impl Gate for SecureGate {
    fn methods(&self) -> &[u8] {
        &self.methods
    }

    fn takes_clear(&self) -> bool {
        self.takes_clear
    }

    fn knock(&self, peer: &str) -> Result<Place, Fault> {
        let shared = &self.shared;
        let place = shared
            .guard
            .begin(address_of(peer), shared.started.elapsed())?;
        Ok(held(place))
    }

    fn join(&self, user: &str) -> Result<Place, Fault> {
        // The code by which a client knows to go on with those it has.
        let too_many = |fault| Fault {
            code: Code::TooManyChannels,
            ..fault
        };
        self.shared.guard.channel(user).map(held).map_err(too_many)
    }

    fn begin(
        &self,
        peer: &str,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Verdict, Fault> {
        let method =
            Method::from_number(request.method).filter(|_| self.methods.contains(&request.method));
        let Some(method) = method else {
            let cause = format!("the method {} is not taken here", request.method);
            let fault = Fault::new(Code::AuthenticationFailed, "authenticate", cause);
            return Err(self.shared.refused(peer, &request.user, None, fault));
        };
        let shared = &self.shared;
        let refused = |fault| shared.refused(peer, &request.user, Some(method), fault);
        shared.check_failures(peer).map_err(refused)?;
        if method == Method::Password {
            let begun = shared.begin_password(peer, protection, request);
            return begun.map_err(refused);
        }
        let principal = shared
            .principal(method, &protection.binding, protection, request)
            .map_err(refused)?;
        let admitted = shared.admit(peer, &request.user, principal);
        admitted.map(Verdict::Admitted)
    }
}

impl Shared {
    /// Refuses a peer whose address has to wait after failures, whatever it comes with: an answer
    /// to a guess would be worth the wait.
    fn check_failures(&self, peer: &str) -> Result<(), Fault> {
        let begun = self
            .failures
            .begin(address_of(peer), self.started.elapsed());
        begun.map(drop)
    }

    /// Likewise a password of a user at whom too many were guessed.
    fn check_guesses(&self, peer: &str, user: &str) -> Result<(), Fault> {
        self.check_failures(peer)?;
        let now = self.started.elapsed();
        self.failures.may_guess(address_of(peer), user, now)
    }

    /// Checks a proof of one step.
    fn principal(
        &self,
        method: Method,
        binding: &Binding,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Principal, Fault> {
        let wanted = (!request.user.is_empty()).then_some(request.user.as_str());
        let (user, scopes) = match method {
            Method::Anonymous => ("anonymous".to_owned(), Vec::new()),
            Method::Key => {
                let now = unix_now();
                let user = self
                    .keys
                    .admit(&request.body, &request.user, binding, now)?;
                (user, Vec::new())
            }
            Method::Ticket => {
                let mut tickets = self
                    .tickets
                    .store
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                tickets.redeem(&request.body, binding, unix_now())?
            }
            Method::Token => {
                let verifier = self.tokens.as_ref().ok_or_else(|| not_taken(method))?;
                let principal = verifier.verify(&request.body, unix_now_signed())?;
                return same_user(principal, wanted);
            }
            Method::Certificate => {
                let map = self.grid.as_ref().ok_or_else(|| not_taken(method))?;
                let chain: Vec<_> = protection
                    .peer_certificates
                    .iter()
                    .map(|der| der.as_slice().into())
                    .collect();
                let map = map.current(unix_now_signed());
                return grid::authenticate(&chain, &map, wanted);
            }
            _ => return Err(not_taken(method)),
        };
        Ok(Principal {
            user,
            method,
            scopes,
        })
    }

    fn begin_password(
        self: &Arc<Self>,
        peer: &str,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Verdict, Fault> {
        self.check_guesses(peer, &request.user)?;
        let users = self.users.current(SystemTime::now())?;
        let (server, challenge) = PasswordServer::begin(&users, &request.user, &request.body)?;
        let proof = PasswordProof {
            shared: Arc::clone(self),
            server: Some(server),
            peer: peer.to_owned(),
            user: request.user.clone(),
            binding: protection.binding,
        };
        Ok(Verdict::Challenge(challenge, Box::new(proof)))
    }

    /// Opens what a peer may see who is known now, and who asked for the name `wanted`.
    fn admit(&self, peer: &str, wanted: &str, principal: Principal) -> Result<Admission, Fault> {
        // Who is anonymous proved nothing, and would buy new guesses by that.
        if principal.method != Method::Anonymous {
            let address = address_of(peer);
            self.failures.succeeded(address, wanted, &principal.user);
        }
        let actor = Actor {
            audit: Arc::clone(&self.audit),
            user: principal.user.clone(),
            method: principal.method,
            from: peer.to_owned(),
        };
        let opened = self
            .guard
            .session(&principal.user)
            .and_then(|slot| Ok((slot, self.guard.channel(&principal.user)?)))
            .and_then(|slots| Ok((slots, self.ids_for(&principal)?)))
            .and_then(|(slots, ids)| Ok((slots, ids, self.exports.store_for(&principal)?)));
        match &opened {
            Ok(_) => actor.record(Kind::Authenticate, b"", None, None),
            Err(fault) => {
                self.audit_refusal(peer, &principal.user, Some(principal.method), fault.code);
            }
        }
        let (slots, ids, inner) = opened?;
        if let Some(ids) = &ids {
            self.exports.make_folders(&principal, ids);
        }
        let rates = self.rates.as_ref();
        Ok(Admission {
            rate: rates.map(|rates| rates.of(&principal.user, Instant::now())),
            user: principal.user,
            store: Arc::new(AuditedStore { inner, actor }),
            place: held(slots),
            ids,
        })
    }

    /// The ids of the account of a principal; `None` if accounts aren't asked for.
    fn ids_for(&self, principal: &Principal) -> Result<Option<Ids>, Fault> {
        let accounts = self.accounts.as_ref();
        accounts.map(|a| a.ids_for(principal)).transpose()
    }

    /// Notes a failure.
    fn refused(&self, peer: &str, user: &str, method: Option<Method>, fault: Fault) -> Fault {
        // Faults of the server itself are no guesses of the peer.
        if fault.code == Code::AuthenticationFailed {
            let now = self.started.elapsed();
            self.failures.failed(address_of(peer), user, now);
            if method == Some(Method::Password) {
                self.failures.guessed(user, now);
            }
        }
        self.audit_refusal(peer, user, method, fault.code);
        fault
    }
}

impl Shared {
    fn audit_refusal(&self, peer: &str, user: &str, method: Option<Method>, code: Code) {
        let event = Event {
            user,
            method,
            from: peer,
            result: Some(code),
            ..Event::new(SystemTime::now(), Kind::Authenticate)
        };
        self.audit.record_refusal(&event, address_of(peer));
    }
}

/// Has counts of refusals written in time when nothing else happens, as long as the log is used.
fn watch(audit: &Arc<Audit>) -> Result<(), Fault> {
    let audit = Arc::downgrade(audit);
    let work = move || {
        while let Some(audit) = audit.upgrade() {
            audit.tick(SystemTime::now());
            drop(audit);
            thread::sleep(AUDIT_INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("xdfs-audit".into());
    let started = thread.spawn(work).map(drop);
    started.map_err(|e| Fault::from_io("watch the audit log", "", &e))
}

/// A password that is being proved. One that is never finished counts as a failure of the address:
/// else challenges would cost nothing.
#[derive(Debug)]
struct PasswordProof {
    shared: Arc<Shared>,
    /// `None` once it was asked.
    server: Option<PasswordServer>,
    peer: String,
    user: String,
    binding: Binding,
}

impl Proof for PasswordProof {
    fn step(mut self: Box<Self>, body: &[u8]) -> Result<Verdict, Fault> {
        let (shared, peer, user) = (&self.shared, &self.peer, &self.user);
        let refused = |fault| shared.refused(peer, user, Some(Method::Password), fault);
        let server = self.server.take();
        // Asked again: of many proofs that were begun at once all but the first failures wait.
        let checked = shared.check_guesses(peer, user).and_then(|()| {
            let server = server.ok_or_else(|| not_taken(Method::Password))?;
            server.finish(body, &self.binding)
        });
        checked.map_err(refused)?;
        let principal = Principal {
            user: user.clone(),
            method: Method::Password,
            scopes: Vec::new(),
        };
        let admitted = shared.admit(peer, user, principal);
        admitted.map(Verdict::Admitted)
    }
}

impl Drop for PasswordProof {
    fn drop(&mut self) {
        if self.server.is_some() {
            let now = self.shared.started.elapsed();
            let address = address_of(&self.peer);
            self.shared.failures.failed(address, &self.user, now);
            let cause = "it went away before it answered the challenge";
            let fault = Fault::new(Code::ConnectionLost, "authenticate", cause);
            let method = Some(Method::Password);
            self.shared.refused(&self.peer, &self.user, method, fault);
        }
    }
}

/// A token says itself who its bearer is; a name in the URL has to agree.
fn same_user(principal: Principal, wanted: Option<&str>) -> Result<Principal, Fault> {
    match wanted {
        Some(wanted) if wanted != principal.user => Err(Fault::new(
            Code::AuthenticationFailed,
            "authenticate",
            "the token is of another user",
        )
        .hint("leave the user name out of the URL")),
        _ => Ok(principal),
    }
}

fn not_taken(method: Method) -> Fault {
    let cause = format!("the method {} is not taken here", method.as_str());
    Fault::new(Code::AuthenticationFailed, "authenticate", cause)
}

fn held<T: Any + Send>(place: T) -> Place {
    Place(Box::new(place))
}

/// The address of a peer; that of this machine for peers without one, which are on it.
fn address_of(peer: &str) -> IpAddr {
    peer.parse::<SocketAddr>()
        .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| {
            address.ip().to_canonical()
        })
}

fn unix_now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

fn unix_now_signed() -> i64 {
    i64::try_from(unix_now()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
