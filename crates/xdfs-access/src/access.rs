//! Admission for all doors.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use xdfs_proto::group::Group;
use xdfs_proto::tunnel::{Action, Host, Target};
use xdfs_proto::{Code, Fault};
use xdfs_security::account::Accounts;
use xdfs_security::audit::{Audit, Event, Kind};
use xdfs_security::export::Exports;
use xdfs_security::grid::{self, GridMapFile};
use xdfs_security::guard::{Limits, Network};
use xdfs_security::identity::Validity;
use xdfs_security::key;
use xdfs_security::password::{CachedUsers, PasswordClient, PasswordServer, UsersFile};
use xdfs_security::third_party::ThirdPartyRules;
use xdfs_security::ticket::Capability;
use xdfs_security::token::Verifier;
use xdfs_security::tunnel::TunnelRules;
use xdfs_security::{Binding, Method, Principal};
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;
use xdfs_sys::ids::Ids;

use crate::audited::{Actor, AuditedStore};
use crate::clock::Clock;
use crate::group::GroupStore;
use crate::issuers;
use crate::keys::KeyLists;
use crate::layer::StoreLayer;
use crate::login::{Basis, Login, Standing};
use crate::login_guard::LoginGuard;
use crate::ongoing::Ongoing;
use crate::password::PasswordExchange;
use crate::peer::{Evidence, Peer};
use crate::rates::UserRates;
use crate::stripes::StripesStore;
use crate::third_party::{ThirdPartyUser, opened};
use crate::tickets::Tickets;
use crate::tunnels::TunnelUser;

/// Interval between looks for calls that take long.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// Looks between checks of the refusal counts.
const AUDIT_LOOKS: u32 = 10;
/// Replaces the channel binding where both ends of a challenge are local.
const NO_CHANNEL: Binding = [0; 32];

/// The parts of an [`Access`].
#[derive(Debug)]
pub struct Parts {
    /// Public keys of users, and the owner of the server, for whom [`Tickets`] are issued.
    pub keys: KeyLists,
    /// Passwords of users. The file is created if it doesn't exist.
    pub users: UsersFile,
    /// Verifies bearer tokens; `None` to refuse them.
    pub tokens: Option<Verifier>,
    /// Users of client certificates; `None` to refuse them.
    pub grid: Option<GridMapFile>,
    /// The exports and their users.
    pub exports: Exports,
    /// The rules about tunnels.
    pub tunnels: TunnelRules,
    /// The servers that this one connects to for its users.
    pub third_party: ThirdPartyRules,
    /// The group of servers that this one is a member of; `None` if it is in none.
    pub group: Option<Arc<Group>>,
    /// Local accounts of users; `None` to act as the server's user for everybody.
    pub accounts: Option<Accounts>,
    /// Limits on unauthenticated peers and on users.
    pub limits: Limits,
    /// The audit log; `None` for none.
    pub audit: Option<Audit>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Authenticates peers at all doors, and admits users.
///
/// A door makes these calls in order, and reports invalid evidence by [`refuse`](Self::refuse):
///
/// 1. [`authenticate`](Self::authenticate), or [`challenge`](Self::challenge) and
///    [`PasswordExchange::finish`].
/// 2. [`admit`](Self::admit); the permit in the [`Admission`] is held as long as the session.
/// 3. [`join`](Self::join) for each further connection of the session.
#[derive(Debug)]
pub struct Access {
    methods: Vec<Method>,
    keys: KeyLists,
    users: Arc<CachedUsers>,
    /// Serialises checks of plaintext passwords, which take memory.
    password_turn: Arc<Mutex<()>>,
    tickets: Tickets,
    tokens: Option<Arc<Verifier>>,
    grid: Option<GridMapFile>,
    exports: Exports,
    tunnels: TunnelRules,
    third_party: ThirdPartyRules,
    group: Option<Arc<Group>>,
    accounts: Option<Accounts>,
    rates: Option<Arc<UserRates>>,
    guard: Arc<LoginGuard>,
    audit: Arc<Audit>,
    ongoing: Arc<Ongoing>,
    clock: Arc<dyn Clock>,
    /// The layer of the server, through all changes of settings.
    layer: Arc<OnceLock<Arc<dyn StoreLayer>>>,
}

/// The rights and limits of an admitted user.
#[derive(Debug)]
pub struct Admission {
    /// The user's name on this server.
    pub user: String,
    /// The store, restricted to the user's rights, scopes and quotas. Its use is written to the
    /// audit log.
    pub store: Arc<dyn Store>,
    /// The ids that threads assume before they access the store; `None` for those of the server.
    pub ids: Option<Ids>,
    /// The rate limit for payload, shared by all sessions of the user through any door, and
    /// enforced by those that move payload. `None` for no limit.
    pub rate: Option<Arc<SharedRate>>,
    /// The user, to be asked about by [`Access::may_tunnel`].
    pub tunnels: TunnelUser,
    /// The user, for copies with other servers.
    pub third_party: ThirdPartyUser,
    /// What the admission rests on.
    pub standing: Standing,
    /// The session's permit within the user's limits, including its first connection.
    pub permit: Permit,
}

/// A permit within some limit. Dropping it releases the permit.
#[must_use = "the place is free again when this is dropped"]
pub struct Permit {
    _places: Box<dyn Any + Send>,
}

impl Permit {
    fn new(places: impl Any + Send) -> Self {
        Self {
            _places: Box::new(places),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}

impl Access {
    /// Combines the parts, and starts the threads that fetch the keys of issuers and flush the
    /// audit log. They end when this is dropped.
    ///
    /// # Errors
    /// The users file can't be created or read, a file of authorities can't be read, or a thread
    /// can't be started.
    pub fn new(parts: Parts) -> Result<Self, Fault> {
        let audit = Arc::new(parts.audit.unwrap_or_else(Audit::none));
        let ongoing = Arc::new(Ongoing::new(Arc::clone(&parts.clock)));
        watch(&audit, &ongoing, &parts.clock)?;
        if let Some(tokens) = &parts.tokens {
            issuers::start(tokens.take_fetches(), &parts.clock)?;
        }
        // Now rather than at the first password attempt, which is unauthenticated.
        parts.users.init()?;
        let rate = parts.limits.bytes_per_second_per_user_max;
        let (audit_log, clock) = (Arc::clone(&audit), Arc::clone(&parts.clock));
        Ok(Self {
            methods: methods(&parts.tokens, &parts.grid, &parts.exports),
            tickets: Tickets::new(parts.keys.owner.clone(), Arc::clone(&clock)),
            keys: parts.keys,
            users: Arc::new(CachedUsers::new(parts.users)),
            password_turn: Arc::default(),
            tokens: parts.tokens.map(Arc::new),
            grid: parts.grid,
            exports: parts.exports,
            tunnels: parts.tunnels,
            third_party: parts.third_party,
            group: parts.group,
            accounts: parts.accounts,
            rates: rate.map(|rate| Arc::new(UserRates::new(rate))),
            guard: Arc::new(LoginGuard::new(parts.limits, audit_log, clock)),
            audit,
            ongoing,
            clock: parts.clock,
            layer: Arc::default(),
        })
    }

    /// The access under changed settings: those of `parts`, except for the users file, the audit
    /// log and the clock. It shares with this one what is counted and remembered: the permits of
    /// sessions, failures, tickets, the use of quotas, and keys of issuers if their settings are
    /// the same. This one stays usable, for sessions that were admitted by it.
    ///
    /// # Errors
    /// A file of authorities can't be read, or a thread can't be started. Nothing has changed then.
    pub fn renewed(&self, parts: Parts) -> Result<Self, Fault> {
        let methods = methods(&parts.tokens, &parts.grid, &parts.exports);
        let tokens = match (parts.tokens, &self.tokens) {
            (Some(new), Some(old)) if new.config() == old.config() => Some(Arc::clone(old)),
            (Some(new), _) => {
                issuers::start(new.take_fetches(), &self.clock)?;
                Some(Arc::new(new))
            }
            (None, _) => None,
        };
        let rates = parts.limits.bytes_per_second_per_user_max.map(|rate| {
            let old = self.rates.as_ref().filter(|old| old.bytes_per_s() == rate);
            old.map_or_else(|| Arc::new(UserRates::new(rate)), Arc::clone)
        });
        self.guard.set_limits(parts.limits);
        Ok(Self {
            methods,
            keys: parts.keys,
            users: Arc::clone(&self.users),
            password_turn: Arc::clone(&self.password_turn),
            tickets: self.tickets.clone(),
            tokens,
            grid: parts.grid,
            exports: parts.exports.after(&self.exports),
            tunnels: parts.tunnels,
            third_party: parts.third_party,
            group: parts.group,
            accounts: parts.accounts,
            rates,
            guard: Arc::clone(&self.guard),
            audit: Arc::clone(&self.audit),
            ongoing: Arc::clone(&self.ongoing),
            clock: Arc::clone(&self.clock),
            layer: Arc::clone(&self.layer),
        })
    }

    /// Lays something over the stores of all users who are admitted from now on, at any door: by
    /// this access, and by those that it is [renewed](Self::renewed) to. The audit log has what
    /// they do there too. Once: of several layers the first one stays.
    pub fn lay(&self, layer: Arc<dyn StoreLayer>) {
        // A second one has no effect.
        let _ = self.layer.set(layer);
    }

    /// The calls of file systems that are going on, at all doors.
    #[must_use]
    pub fn ongoing(&self) -> Arc<Ongoing> {
        Arc::clone(&self.ongoing)
    }

    /// Whether a session with this standing would be admitted now, with the same account and with
    /// the same rights or more. A token counts as valid until the settings of issuers change, and a
    /// ticket always, as it may be used up.
    #[must_use]
    pub fn still_admits(&self, standing: &Standing) -> bool {
        self.withdrawn(standing).is_none()
    }

    /// Why [`still_admits`](Self::still_admits) would be `false`, as the user may read it; `None`
    /// if the session would be admitted.
    #[must_use]
    pub fn withdrawn(&self, standing: &Standing) -> Option<&'static str> {
        let Login { principal, basis } = &standing.login;
        let user = &principal.user;
        let is_known = || match basis {
            Basis::Key(key) => self.keys.list(user, key, self.clock.unix_s()),
            Basis::Certificate(_) => self.still_maps(standing),
            Basis::Token(verifier) => {
                let current = self.tokens.as_ref();
                current.is_some_and(|current| Arc::ptr_eq(current, verifier))
            }
            Basis::User if principal.method == Method::Password => {
                let users = self.users.current(self.clock.time());
                users.is_ok_and(|users| users.contains(user))
            }
            Basis::Capability(_) | Basis::User => true,
        };
        let has_account = || match &self.accounts {
            None => standing.ids.is_none(),
            Some(accounts) => accounts.ids_for(principal).ok() == standing.ids,
        };
        if !(self.methods.contains(&principal.method) && is_known() && has_account()) {
            return Some("the right to log in was withdrawn");
        }
        match self.exports.cover(&standing.exports, principal) {
            true => None,
            false => Some("some rights were withdrawn"),
        }
    }

    /// Whether the grid map, as it is now, has the certificate of a session with this standing, and
    /// its user. Sessions that have come in by something else aren't in question.
    #[must_use]
    pub fn still_maps(&self, standing: &Standing) -> bool {
        let Login { principal, basis } = &standing.login;
        match basis {
            Basis::Certificate(chain) => self.maps(&principal.user, chain),
            _ => true,
        }
    }

    /// Whether the grid map, as it is now, has `user` for a client with these certificates, its own
    /// first. TLS must have verified them.
    #[must_use]
    pub fn maps(&self, user: &str, chain: &[Vec<u8>]) -> bool {
        let is_mapped = |grid: &GridMapFile| {
            let chain: Vec<_> = chain.iter().map(|der| der.as_slice().into()).collect();
            let map = grid.current(self.clock.unix_s_signed());
            grid::authenticate(&chain, &map, Some(user)).is_ok()
        };
        self.grid.as_ref().is_some_and(is_mapped)
    }

    /// The same, if the certificates are valid at this moment: for doors that ask again and again
    /// on a connection whose handshake was long ago.
    #[must_use]
    pub fn maps_now(&self, user: &str, chain: &[Vec<u8>]) -> bool {
        let certificates: Vec<_> = chain.iter().map(|der| der.as_slice().into()).collect();
        let validity = Validity::of(&certificates);
        validity.is_some_and(|validity| validity.holds_at(self.clock.unix_s_signed()))
            && self.maps(user, chain)
    }

    /// The accepted methods.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// The issuer of tickets.
    #[must_use]
    pub fn tickets(&self) -> Tickets {
        self.tickets.clone()
    }

    /// Authenticates `peer`, which claims to be `user` (empty for no claim). A password takes as
    /// long as the users file specifies, and passwords are checked one at a time.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`]; [`Code::LimitExceeded`] with a time to wait after wrong
    /// passwords; or a failure of the server.
    pub fn authenticate(
        &self,
        peer: &Peer,
        user: &str,
        evidence: Evidence<'_>,
    ) -> Result<Login, Fault> {
        let method = evidence.method();
        if !self.methods.contains(&method) {
            // No failed guess: a client may prove itself before it knows the methods ([A-17]).
            let fault = not_taken(method);
            let guard = &self.guard;
            guard.record_refusal(peer, user, Some(method), "", fault.code);
            return Err(fault);
        }
        if let Evidence::Password(password) = evidence {
            return self.check_password(peer, user, password);
        }
        let basis = match evidence {
            Evidence::Key { proof, .. } => key::claimed(proof).map(Basis::Key),
            Evidence::Certificate(chain) => Some(Basis::Certificate(chain.to_vec())),
            Evidence::Token(_) => self.tokens.clone().map(Basis::Token),
            _ => None,
        };
        let shown = match &basis {
            Some(Basis::Key(key)) => key.fingerprint(),
            _ => String::new(),
        };
        let (principal, capability) = self
            .principal(user, evidence)
            .map_err(|fault| self.guard.refused(peer, user, Some(method), &shown, fault))?;
        let basis = basis.or_else(|| capability.map(Basis::Capability));
        // Anonymous peers have proved nothing, and must not clear failures.
        if method != Method::Anonymous {
            self.guard.succeeded(peer, user, &principal.user);
        }
        let basis = basis.unwrap_or(Basis::User);
        Ok(Login { principal, basis })
    }

    /// Starts to verify the password of `user` by a challenge on the channel with this `binding`;
    /// `hello` comes from [`PasswordClient::begin`]. Returns the challenge and the state that
    /// checks the answer.
    ///
    /// # Errors
    /// Those of [`Self::authenticate`].
    pub fn challenge(
        &self,
        peer: &Peer,
        user: &str,
        binding: &Binding,
        hello: &[u8],
    ) -> Result<(Vec<u8>, PasswordExchange), Fault> {
        let begin = || {
            self.guard.check_guesses(peer, user)?;
            let users = self.users.current(self.clock.time())?;
            PasswordServer::begin(&users, user, hello)
        };
        let method = Some(Method::Password);
        let (server, challenge) =
            begin().map_err(|fault| self.guard.refused(peer, user, method, "", fault))?;
        let guard = Arc::clone(&self.guard);
        let exchange =
            PasswordExchange::new(server, *binding, guard, peer.clone(), user.to_owned());
        Ok((challenge, exchange))
    }

    /// Records that a door refuses `peer`, which claims to be `user`, because of invalid evidence.
    /// Returns the fault.
    pub fn refuse(&self, peer: &Peer, user: &str, fault: Fault) -> Fault {
        self.guard.refused(peer, user, None, "", fault)
    }

    /// Records that a door has let `peer` in, authenticated by `login`. For a door that opens no
    /// store; [`admit`](Self::admit) does so itself.
    pub fn record_login(&self, peer: &Peer, login: &Login) {
        self.audit.record(&Event {
            door: peer.door,
            user: &login.principal.user,
            method: Some(login.principal.method),
            key: &login.fingerprint(),
            subject: &login.subject(),
            from: &peer.name,
            ..Event::new(self.clock.time(), Kind::Authenticate)
        });
    }

    /// A value that stays the same until the password of `user` is set again; `None` if the user
    /// has no password. The password can't be derived from it. For doors whose sessions outlive
    /// this process.
    ///
    /// # Errors
    /// The users file can't be read.
    pub fn password_version(&self, user: &str) -> Result<Option<[u8; 32]>, Fault> {
        Ok(self.users.current(self.clock.time())?.version(user))
    }

    /// Whether `user` is the owner of the server, has a password or a list of keys, or is in the
    /// grid map.
    ///
    /// # Errors
    /// The users file can't be read.
    pub fn knows(&self, user: &str) -> Result<bool, Fault> {
        let in_map = |grid: &GridMapFile| {
            let map = grid.current(self.clock.unix_s_signed());
            map.users().any(|one| one == user)
        };
        let is_known = user == self.keys.owner
            || self.keys.has_list(user)
            || self.grid.as_ref().is_some_and(in_map);
        Ok(is_known || self.password_version(user)?.is_some())
    }

    /// Whether a user runs the server, and so may look at what is of all users.
    #[must_use]
    pub fn is_operator(&self, user: &ThirdPartyUser) -> bool {
        user.principal.method != Method::Anonymous && user.name() == self.keys.owner
    }

    /// Whether `user` may log in by this key.
    #[must_use]
    pub fn lists_key(&self, user: &str, key: &key::PublicKey) -> bool {
        self.keys.list(user, key, self.clock.unix_s())
    }

    /// Admits `peer`, authenticated by `login`: opens its store.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait: the user has the maximum number of sessions or
    /// connections. [`Code::PermissionDenied`]: the user has no account here, or is anonymous and
    /// nothing is public.
    pub fn admit(&self, peer: &Peer, login: &Login) -> Result<Admission, Fault> {
        let principal = &login.principal;
        let (user, key) = (&principal.user, login.fingerprint());
        let open = || {
            let places = self.guard.session(user, peer.network())?;
            let accounts = self.accounts.as_ref();
            let ids = accounts.map(|a| a.ids_for(principal)).transpose()?;
            Ok((places, ids, self.exports.store_for(principal)?))
        };
        let (places, ids, inner) = open().inspect_err(|fault: &Fault| {
            let method = Some(principal.method);
            self.guard
                .record_refusal(peer, user, method, &key, fault.code);
        })?;
        let actor = Actor {
            audit: Arc::clone(&self.audit),
            ongoing: Arc::clone(&self.ongoing),
            clock: Arc::clone(&self.clock),
            door: peer.door,
            user: user.clone(),
            method: principal.method,
            key,
            from: peer.name.clone(),
        };
        self.audit.record(&Event {
            subject: &login.subject(),
            ..actor.event(Kind::Authenticate)
        });
        if let Some(ids) = &ids {
            self.exports.make_folders(principal, ids);
        }
        let standing = Standing {
            login: login.clone(),
            exports: self.exports.clone(),
            ids: ids.clone(),
        };
        let third_party = ThirdPartyUser::new(principal.clone(), actor.clone());
        // A session by a capability has no stripes.
        let is_limited = matches!(login.basis, Basis::Capability(_));
        let files = self.group.as_ref().filter(|_| !is_limited);
        let files = files.map(|_| Arc::clone(&inner));
        let inner: Arc<dyn Store> = match &self.group {
            Some(group) => Arc::new(GroupStore {
                inner,
                group: Arc::clone(group),
            }),
            None => inner,
        };
        let inner = match self.layer.get() {
            Some(layer) => layer.over(inner, &third_party),
            None => inner,
        };
        let inner: Arc<dyn Store> = match &login.basis {
            Basis::Capability(capability) => opened(inner, capability),
            _ => inner,
        };
        Ok(Admission {
            user: user.clone(),
            tunnels: TunnelUser::new(principal.clone(), actor.clone(), ids.is_some()),
            third_party,
            store: {
                let audited = Arc::new(AuditedStore::new(inner, actor));
                match files {
                    Some(files) => Arc::new(StripesStore::new(audited, files)),
                    None => audited,
                }
            },
            ids,
            standing,
            rate: self
                .rates
                .as_ref()
                .map(|rates| rates.of(user, self.clock.instant())),
            permit: Permit::new(places),
        })
    }

    /// Admits a further connection of `peer` to a session of `user`. The permit is held as long as
    /// the connection.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait: the user has the maximum number of connections.
    pub fn join(&self, peer: &Peer, user: &str) -> Result<Permit, Fault> {
        let slot = self.guard.channel(user, peer.network())?;
        Ok(Permit::new(slot))
    }

    /// The rules about tunnels.
    #[must_use]
    pub fn tunnels(&self) -> &TunnelRules {
        &self.tunnels
    }

    /// Whether `user` may have a tunnel to `target`, or to one of its addresses: that one, or if it
    /// is `None` any that its name may turn out to have.
    #[must_use]
    pub fn may_tunnel(
        &self,
        user: &TunnelUser,
        action: Action,
        target: &Target,
        address: Option<IpAddr>,
    ) -> bool {
        let who = Some(&user.principal);
        // The server itself would connect, and not the user's account.
        if user.has_account && matches!(target, Target::Unix(_)) {
            return false;
        }
        match address {
            Some(address) => self.tunnels.allows(who, action, target, address),
            None => self.tunnels.may_allow(who, action, target),
        }
    }

    /// Issues a capability: for one file or tree, with the rights that its user has, and no more
    /// than this session has.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`] in a session that isn't the user's own or whose rights are
    /// limited; those of [`Tickets::issue`].
    pub fn delegate(
        &self,
        user: &ThirdPartyUser,
        capability: Capability,
        life: Duration,
    ) -> Result<String, Fault> {
        let issue = || {
            user.check_delegation()?;
            self.tickets
                .issue_capability(&user.principal.user, capability.clone(), life)
        };
        let issued = issue();
        user.delegated(&capability, issued.as_ref().err().map(|fault| fault.code));
        issued
    }

    /// Checks whether there is any server that this one would connect to for `user`.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`]: there is none.
    pub fn check_copies(&self, user: &ThirdPartyUser, sends: bool) -> Result<(), Fault> {
        if self.third_party.may_allow(&user.principal, sends) {
            return Ok(());
        }
        let cause = "it connects to no other server for this user";
        Err(Fault::new(Code::PermissionDenied, "start to copy", cause)
            .hint("its administrator allows that with --connect-to"))
    }

    /// Whether the server may connect for `user` to `host` at `address`, to send a file there or to
    /// fetch one.
    #[must_use]
    pub fn may_copy(
        &self,
        user: &ThirdPartyUser,
        sends: bool,
        host: (&Host, u16),
        address: IpAddr,
    ) -> bool {
        self.third_party
            .allows(&user.principal, sends, host, address)
    }

    /// Checks whether files are taken for `user`, to be sent to another server: whether its name is
    /// allowed, or may turn out to be when it is looked up.
    ///
    /// # Errors
    /// [`Code::PermissionDenied`]: the user is anonymous or the session is limited, or this one
    /// won't connect to the other server.
    pub fn check_parcels(&self, user: &ThirdPartyUser, host: (&Host, u16)) -> Result<(), Fault> {
        const OPERATION: &str = "open the parcel";
        if user.principal.method == Method::Anonymous {
            let cause = "the user is anonymous";
            return Err(Fault::new(Code::PermissionDenied, OPERATION, cause));
        }
        user.check_limits(OPERATION)?;
        match self.third_party.may_allow_host(&user.principal, true, host) {
            true => Ok(()),
            false => Err(Self::forbidden(OPERATION, host)),
        }
    }

    /// The fault of a connection to another server that isn't allowed.
    #[must_use]
    pub fn forbidden(operation: &str, (host, port): (&Host, u16)) -> Fault {
        let cause = format!("its settings don't allow connections to {host}:{port}");
        Fault::new(Code::PermissionDenied, operation, cause)
            .hint("its administrator allows them with --connect-to")
    }

    /// Whether the server may connect to `host` at `address`, to deliver a file of the user with
    /// this name, who need not have a session.
    #[must_use]
    pub fn may_deliver(&self, user: &str, host: (&Host, u16), address: IpAddr) -> bool {
        // Only users with all of their rights have files taken.
        let who = Principal {
            user: user.to_owned(),
            method: Method::Key,
            scopes: Vec::new(),
        };
        self.third_party.allows(&who, true, host, address)
    }

    /// Takes a place for a connection of `user` through a tunnel. The permit is held as long as the
    /// connection.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait: the user has the maximum number of them.
    pub fn connection(&self, user: &TunnelUser) -> Result<Permit, Fault> {
        let network = Network::of_peer(user.peer());
        let slot = self.guard.connection(&user.principal.user, network)?;
        Ok(Permit::new(slot))
    }

    /// Checks evidence of a single step. Returns the capability too, if it is one.
    fn principal(
        &self,
        user: &str,
        evidence: Evidence<'_>,
    ) -> Result<(Principal, Option<Capability>), Fault> {
        let wanted = (!user.is_empty()).then_some(user);
        let method = evidence.method();
        let mut capability = None;
        let (user, scopes) = match evidence {
            Evidence::Anonymous => ("anonymous".to_owned(), Vec::new()),
            Evidence::Key { proof, binding } => {
                let now = self.clock.unix_s();
                (self.keys.admit(proof, user, binding, now)?, Vec::new())
            }
            Evidence::Ticket { proof, binding } => {
                let redeemed = self.tickets.redeem(proof, binding)?;
                capability = redeemed.capability;
                (redeemed.user, redeemed.scopes)
            }
            Evidence::Token(token) => {
                let verifier = self.tokens.as_ref().ok_or_else(|| not_taken(method))?;
                let principal = verifier.verify(token, self.clock.unix_s_signed())?;
                return Ok((same_user(principal, wanted)?, None));
            }
            Evidence::Certificate(chain) => {
                let map = self.grid.as_ref().ok_or_else(|| not_taken(method))?;
                let chain: Vec<_> = chain.iter().map(|der| der.as_slice().into()).collect();
                let map = map.current(self.clock.unix_s_signed());
                return Ok((grid::authenticate(&chain, &map, wanted)?, None));
            }
            Evidence::Password(_) => return Err(not_taken(method)),
        };
        let principal = Principal {
            user,
            method,
            scopes,
        };
        Ok((principal, capability))
    }

    /// Checks a plaintext password by a local challenge, so that nonexistent users take as long,
    /// and failures count alike.
    fn check_password(&self, peer: &Peer, user: &str, password: &str) -> Result<Login, Fault> {
        let (client, hello) = PasswordClient::begin()?;
        // Before the challenge, which checks for failures once it is its turn.
        let turn = self.password_turn.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        let (challenge, exchange) = self.challenge(peer, user, &NO_CHANNEL, &hello)?;
        exchange.settle(|| client.answer(user, password, &NO_CHANNEL, &challenge))
    }
}

fn methods(
    tokens: &Option<Verifier>,
    grid: &Option<GridMapFile>,
    exports: &Exports,
) -> Vec<Method> {
    let mut methods = vec![Method::Key, Method::Password, Method::Ticket];
    methods.extend(tokens.as_ref().map(|_| Method::Token));
    methods.extend(grid.as_ref().map(|_| Method::Certificate));
    methods.extend(exports.has_public().then_some(Method::Anonymous));
    methods
}

/// Flushes the refusal counts in time when nothing else happens, as long as the log is used.
fn watch(audit: &Arc<Audit>, ongoing: &Arc<Ongoing>, clock: &Arc<dyn Clock>) -> Result<(), Fault> {
    let (audit, clock) = (Arc::downgrade(audit), Arc::clone(clock));
    let ongoing = Arc::downgrade(ongoing);
    let work = move || {
        for turn in (0..AUDIT_LOOKS).cycle() {
            let (Some(audit), Some(ongoing)) = (audit.upgrade(), ongoing.upgrade()) else {
                return;
            };
            ongoing.look();
            if turn == 0 {
                audit.tick(clock.time());
            }
            drop((audit, ongoing));
            thread::sleep(LOOK_INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("xdfs-audit".into());
    let started = thread.spawn(work).map(drop);
    started.map_err(|e| Fault::from_io("watch the audit log", "", &e))
}

/// A token names its bearer; a user name in the URL must agree.
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
