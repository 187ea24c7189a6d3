//! The one place that decides for all doors.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use xdfs_proto::{Code, Fault};
use xdfs_security::account::Accounts;
use xdfs_security::audit::{Audit, Kind};
use xdfs_security::export::Exports;
use xdfs_security::grid::{self, GridMapFile};
use xdfs_security::guard::Limits;
use xdfs_security::password::{CachedUsers, PasswordClient, PasswordServer, UsersFile};
use xdfs_security::token::Verifier;
use xdfs_security::{Binding, Method, Principal};
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;
use xdfs_sys::ids::Ids;

use crate::audited::{Actor, AuditedStore};
use crate::clock::Clock;
use crate::issuers;
use crate::keys::KeyLists;
use crate::login_guard::LoginGuard;
use crate::password::PasswordExchange;
use crate::peer::{Evidence, Peer};
use crate::rates::UserRates;
use crate::tickets::Tickets;

/// How often counts of refusals are looked at.
const AUDIT_INTERVAL: Duration = Duration::from_secs(20);
/// In place of the channel's, where both ends of a challenge are here.
const NO_CHANNEL: Binding = [0; 32];

/// What an [`Access`] decides by.
#[derive(Debug)]
pub struct Parts {
    /// The user who runs the server, for whom [`Tickets`] are, and the keys of users.
    pub keys: KeyLists,
    /// The passwords of users. The file is made if it isn't there.
    pub users: UsersFile,
    /// Verifies bearer tokens; `None` to take none.
    pub tokens: Option<Verifier>,
    /// The users of client certificates; `None` to take none.
    pub grid: Option<GridMapFile>,
    /// What is served to whom.
    pub exports: Exports,
    /// The local accounts of users; `None` to do everything as the user who runs the server.
    pub accounts: Option<Accounts>,
    /// What peers that aren't known yet, and users, may cost.
    pub limits: Limits,
    /// Where to write what happens; `None` for nowhere.
    pub audit: Option<Audit>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Who may come in, by whatever door, and what they see.
///
/// A door asks in this order, and gives what is no evidence at all to [`refuse`](Self::refuse):
///
/// 1. [`admit_connection`](Self::admit_connection) when a connection begins; the permit is held
///    until somebody is admitted there.
/// 2. [`authenticate`](Self::authenticate), or [`challenge`](Self::challenge) and
///    [`PasswordExchange::finish`].
/// 3. [`admit`](Self::admit); the permit in the [`Admission`] is held as long as the session.
/// 4. [`join`](Self::join) for each further connection of the session.
#[derive(Debug)]
pub struct Access {
    methods: Vec<Method>,
    keys: KeyLists,
    users: CachedUsers,
    /// Whose turn it is to have a password checked that came as such: that takes memory.
    password_turn: Mutex<()>,
    tickets: Tickets,
    tokens: Option<Verifier>,
    grid: Option<GridMapFile>,
    exports: Exports,
    accounts: Option<Accounts>,
    rates: Option<UserRates>,
    guard: Arc<LoginGuard>,
    audit: Arc<Audit>,
    clock: Arc<dyn Clock>,
}

/// What somebody may do who was let in.
#[derive(Debug)]
pub struct Admission {
    /// The name of the user here.
    pub user: String,
    /// What they see, with their rights, scopes and quotas in it. What is done with it is written
    /// to the audit log.
    pub store: Arc<dyn Store>,
    /// The ids that threads take on before they touch the store; `None` for those of the server.
    pub ids: Option<Ids>,
    /// The bound on the payload a second that all sessions of the user share, by whatever door;
    /// who moves payload keeps it. `None` for no bound.
    pub rate: Option<Arc<SharedRate>>,
    /// The session's place in the limits of its user, its first connection included.
    pub permit: Permit,
}

/// A place in some limit. It is free again when this is dropped.
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
    /// Puts the parts together, and starts the threads that fetch the keys of issuers and keep
    /// the audit log up to date; they end when this is dropped.
    ///
    /// # Errors
    /// The file of users can't be made or read, a file of authorities can't be read, or there is
    /// no thread to be had.
    pub fn new(parts: Parts) -> Result<Self, Fault> {
        let is_audited = parts.audit.is_some();
        let audit = Arc::new(parts.audit.unwrap_or_else(Audit::none));
        if is_audited {
            watch(&audit, &parts.clock)?;
        }
        if let Some(tokens) = &parts.tokens {
            issuers::start(tokens.take_fetches(), &parts.clock)?;
        }
        // Here and not at the first password, which nobody has proved anything for.
        parts.users.init()?;
        let mut methods = vec![Method::Key, Method::Password, Method::Ticket];
        methods.extend(parts.tokens.as_ref().map(|_| Method::Token));
        methods.extend(parts.grid.as_ref().map(|_| Method::Certificate));
        methods.extend(parts.exports.has_public().then_some(Method::Anonymous));
        let rate = parts.limits.bytes_per_second_per_user_max;
        let (audit_log, clock) = (Arc::clone(&audit), Arc::clone(&parts.clock));
        Ok(Self {
            methods,
            tickets: Tickets::new(parts.keys.owner.clone(), Arc::clone(&clock)),
            keys: parts.keys,
            users: CachedUsers::new(parts.users),
            password_turn: Mutex::default(),
            tokens: parts.tokens,
            grid: parts.grid,
            exports: parts.exports,
            accounts: parts.accounts,
            rates: rate.map(UserRates::new),
            guard: Arc::new(LoginGuard::new(parts.limits, audit_log, clock)),
            audit,
            clock: parts.clock,
        })
    }

    /// The methods that are taken.
    #[must_use]
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// Lets tickets be issued.
    #[must_use]
    pub fn tickets(&self) -> Tickets {
        self.tickets.clone()
    }

    /// A connection of `peer` begins.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait: too many peers that aren't known yet are there.
    pub fn admit_connection(&self, peer: &Peer) -> Result<Permit, Fault> {
        self.guard.handshake(peer).map(Permit::new)
    }

    /// Finds out who `peer` is, which claims to be `user` (empty if it makes no claim). A password
    /// takes as long as the file of users says, and one is checked at a time.
    ///
    /// # Errors
    /// [`Code::AuthenticationFailed`]; [`Code::LimitExceeded`] with a time to wait after failures;
    /// or what keeps the server from looking.
    pub fn authenticate(
        &self,
        peer: &Peer,
        user: &str,
        evidence: Evidence<'_>,
    ) -> Result<Principal, Fault> {
        let method = evidence.method();
        if !self.methods.contains(&method) {
            return Err(self.refuse(peer, user, not_taken(method)));
        }
        if let Evidence::Password(password) = evidence {
            return self.check_password(peer, user, password);
        }
        let principal = self
            .guard
            .check_failures(peer)
            .and_then(|()| self.principal(user, evidence))
            .map_err(|fault| self.guard.refused(peer, user, Some(method), fault))?;
        // Who is anonymous proved nothing, and would buy new guesses by that.
        if method != Method::Anonymous {
            self.guard.succeeded(peer, user, &principal.user);
        }
        Ok(principal)
    }

    /// Begins to find out whether `peer` has the password of `user`, by a challenge that the
    /// channel of `binding` carries; `hello` is what [`PasswordClient::begin`] has made. Returns
    /// the challenge and what takes its answer.
    ///
    /// # Errors
    /// As [`Self::authenticate`].
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
            begin().map_err(|fault| self.guard.refused(peer, user, method, fault))?;
        let guard = Arc::clone(&self.guard);
        let exchange =
            PasswordExchange::new(server, *binding, guard, peer.clone(), user.to_owned());
        Ok((challenge, exchange))
    }

    /// Notes that a door refuses `peer`, which claims to be `user`: it came with something that is
    /// no evidence at all. It counts as a failure if the code of the fault is
    /// [`Code::AuthenticationFailed`]. Returns the fault.
    pub fn refuse(&self, peer: &Peer, user: &str, fault: Fault) -> Fault {
        self.guard.refused(peer, user, None, fault)
    }

    /// Lets `peer` in, which was found to be `principal`: opens what that may see.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait: the user has as many sessions or connections
    /// as are allowed. [`Code::PermissionDenied`]: the user has no account here, or is anonymous
    /// where nothing is public.
    pub fn admit(&self, peer: &Peer, principal: &Principal) -> Result<Admission, Fault> {
        let user = &principal.user;
        let open = || {
            let places = self.guard.session(user)?;
            let accounts = self.accounts.as_ref();
            let ids = accounts.map(|a| a.ids_for(principal)).transpose()?;
            Ok((places, ids, self.exports.store_for(principal)?))
        };
        let (places, ids, inner) = open().inspect_err(|fault: &Fault| {
            let method = Some(principal.method);
            self.guard.record_refusal(peer, user, method, fault.code);
        })?;
        let actor = Actor {
            audit: Arc::clone(&self.audit),
            clock: Arc::clone(&self.clock),
            door: peer.door,
            user: user.clone(),
            method: principal.method,
            from: peer.name.clone(),
        };
        actor.record(Kind::Authenticate, b"", None, None);
        if let Some(ids) = &ids {
            self.exports.make_folders(principal, ids);
        }
        Ok(Admission {
            user: user.clone(),
            store: Arc::new(AuditedStore { inner, actor }),
            ids,
            rate: self
                .rates
                .as_ref()
                .map(|rates| rates.of(user, self.clock.instant())),
            permit: Permit::new(places),
        })
    }

    /// A further connection joins a session of `user`. The permit is held as long as it.
    ///
    /// # Errors
    /// [`Code::LimitExceeded`] with a time to wait: the user has as many as are allowed.
    pub fn join(&self, user: &str) -> Result<Permit, Fault> {
        self.guard.channel(user).map(Permit::new)
    }

    /// Checks evidence of one step.
    fn principal(&self, user: &str, evidence: Evidence<'_>) -> Result<Principal, Fault> {
        let wanted = (!user.is_empty()).then_some(user);
        let method = evidence.method();
        let (user, scopes) = match evidence {
            Evidence::Anonymous => ("anonymous".to_owned(), Vec::new()),
            Evidence::Key { proof, binding } => {
                let now = self.clock.unix_s();
                (self.keys.admit(proof, user, binding, now)?, Vec::new())
            }
            Evidence::Ticket { proof, binding } => self.tickets.redeem(proof, binding)?,
            Evidence::Token(token) => {
                let verifier = self.tokens.as_ref().ok_or_else(|| not_taken(method))?;
                let principal = verifier.verify(token, self.clock.unix_s_signed())?;
                return same_user(principal, wanted);
            }
            Evidence::Certificate(chain) => {
                let map = self.grid.as_ref().ok_or_else(|| not_taken(method))?;
                let chain: Vec<_> = chain.iter().map(|der| der.as_slice().into()).collect();
                let map = map.current(self.clock.unix_s_signed());
                return grid::authenticate(&chain, &map, wanted);
            }
            Evidence::Password(_) => return Err(not_taken(method)),
        };
        Ok(Principal {
            user,
            method,
            scopes,
        })
    }

    /// Checks a password that came as such: by the challenge, with both ends here, so that users
    /// who don't exist take as long, and failures count alike.
    fn check_password(&self, peer: &Peer, user: &str, password: &str) -> Result<Principal, Fault> {
        let (client, hello) = PasswordClient::begin()?;
        // Before the challenge, which looks at failures when the turn has come.
        let turn = self.password_turn.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        let (challenge, exchange) = self.challenge(peer, user, &NO_CHANNEL, &hello)?;
        exchange.settle(|| client.answer(user, password, &NO_CHANNEL, &challenge))
    }
}

/// Has counts of refusals written in time when nothing else happens, as long as the log is used.
fn watch(audit: &Arc<Audit>, clock: &Arc<dyn Clock>) -> Result<(), Fault> {
    let (audit, clock) = (Arc::downgrade(audit), Arc::clone(clock));
    let work = move || {
        while let Some(audit) = audit.upgrade() {
            audit.tick(clock.time());
            drop(audit);
            thread::sleep(AUDIT_INTERVAL);
        }
    };
    let thread = thread::Builder::new().name("xdfs-audit".into());
    let started = thread.spawn(work).map(drop);
    started.map_err(|e| Fault::from_io("watch the audit log", "", &e))
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
