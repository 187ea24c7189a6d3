//! Authentication, as far as the engine takes part in it.
//!
//! The engine carries proofs and handles no keys. An initiator proves its identity by an
//! [`Identity`]; an acceptor checks the proof by a [`Gate`], which returns a [`SessionGrant`]: the
//! store, ids and limits of the session. `xdfs-access` decides about users; its `Admission` becomes
//! the grant.

use std::any::Any;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use xdfs_proto::frame::AuthRequest;
use xdfs_proto::tunnel::{Action, Target};
use xdfs_proto::{Code, Fault};
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;
use xdfs_sys::ids::Ids;
use xdfs_xio::Protection;

/// Proves the identity of an initiator.
pub trait Identity: Send + Sync + fmt::Debug {
    /// The first step of the proof on the channel with this `protection`, by one of the `methods`
    /// that the acceptor supports, and whether it is the only step.
    ///
    /// # Errors
    /// The acceptor is not trusted, or no credential fits.
    fn prove(&self, protection: &Protection, methods: &[u8]) -> Result<(AuthRequest, bool), Fault>;

    /// A proof of one step that may be sent before the acceptor has said which methods it supports:
    /// its key was trusted before, and it probably supports the method of this side's credential.
    /// `None` to wait for the methods.
    fn prove_ahead(&self, protection: &Protection) -> Option<AuthRequest> {
        let _ = protection;
        None
    }

    /// The acceptor supports these methods. Called if the proof went ahead.
    fn supported(&self, methods: &[u8]) {
        let _ = methods;
    }

    /// The next step of the proof.
    ///
    /// # Errors
    /// The challenge is invalid.
    fn answer(&self, protection: &Protection, challenge: &[u8]) -> Result<Vec<u8>, Fault>;

    /// The proof was accepted: the acceptor knows this side as `user`.
    fn admitted(&self, user: &str);

    /// The acceptor refused the proof. Returns the fault, with a hint of this side if it has one.
    fn refused(&self, fault: Fault) -> Fault {
        fault
    }

    /// A fault that explains why a channel could not be opened, if this side knows more than the
    /// transport.
    fn explain(&self, error: &io::Error) -> Option<Fault>;
}

/// The rights and limits of an authenticated peer's session.
#[derive(Debug)]
pub struct SessionGrant {
    /// The user's name at this server.
    pub user: String,
    /// The store, restricted to the user's rights.
    pub store: Arc<dyn Store>,
    /// Held while the session lives: its share of the user's limits.
    pub guard: PeerGuard,
    /// Whether the session may go on, as asked by [`AcceptorControl::review`].
    ///
    /// [`AcceptorControl::review`]: crate::AcceptorControl::review
    pub standing: Option<Arc<dyn Standing>>,
    /// The user and group ids that the session's threads take on before they touch the store;
    /// `None` for those of the server.
    pub ids: Option<Ids>,
    /// The rate limit for payload in both directions, shared with the user's other sessions; `None`
    /// for no limit.
    pub rate: Option<Arc<SharedRate>>,
    /// The rights to tunnels; `None` for none.
    pub tunnels: Option<Arc<dyn TunnelRights>>,
}

/// The credentials with which a session was admitted.
pub trait Standing: Send + Sync + fmt::Debug {
    /// Why the session would not be admitted now with no less than it has, as its user may read it;
    /// `None` if it would.
    fn withdrawn(&self) -> Option<&'static str>;

    /// Whether the session would be admitted now, with no less than it has.
    fn is_valid(&self) -> bool {
        self.withdrawn().is_none()
    }
}

/// Gives the calling thread the ids of a session, if the session has any.
pub(crate) fn assume_ids(ids: Option<&Ids>) -> Result<(), Fault> {
    let Some(ids) = ids else { return Ok(()) };
    ids.take_on().map_err(|error| {
        let uid = ids.uid();
        tracing::error!(uid, %error, "a thread could not take on the ids of an account");
        Fault::from_io("take on the ids of the account", "", &error)
            .hint("tell the server's administrator: its log has the details")
    })
}

/// An opaque value held while a peer is served. Dropping it releases the peer's share of the
/// limits.
pub struct PeerGuard(pub Box<dyn Any + Send>);

impl fmt::Debug for PeerGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerGuard(..)")
    }
}

/// The result of a step of a proof.
#[derive(Debug)]
pub enum Verdict {
    /// The proof is accepted.
    Admitted(SessionGrant),
    /// Another step is needed.
    Challenge(Vec<u8>, Box<dyn Proof>),
}

/// An unfinished proof.
pub trait Proof: Send + fmt::Debug {
    /// Takes the next step.
    ///
    /// # Errors
    /// The proof is refused.
    fn step(self: Box<Self>, body: &[u8]) -> Result<Verdict, Fault>;
}

/// Checks the proofs of an acceptor's peers.
pub trait Gate: Send + Sync + fmt::Debug {
    /// The supported methods, as numbers on the wire.
    fn methods(&self) -> Vec<u8>;

    /// Whether payload may be sent unencrypted.
    fn takes_clear(&self) -> bool;

    /// Whether anybody may have tunnels.
    fn has_tunnels(&self) -> bool {
        false
    }

    /// Admits a further channel of `peer` to a session of `user`. The guard is held while the
    /// channel is open.
    ///
    /// # Errors
    /// The user has too many channels.
    fn join(&self, peer: &str, user: &str) -> Result<PeerGuard, Fault>;

    /// Takes the first step of a proof on the channel with this `protection`.
    ///
    /// # Errors
    /// The proof is refused.
    fn begin(
        &self,
        peer: &str,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Verdict, Fault>;
}

/// What a peer may do with tunnels, by the settings as they are at each question.
pub trait TunnelRights: Send + Sync + fmt::Debug {
    /// Whether `target` is allowed by its name, or may turn out to be when that is looked up.
    fn may_allow(&self, action: Action, target: &Target) -> bool;

    /// Whether `target` may be reached at `address`.
    fn allows(&self, action: Action, target: &Target, address: IpAddr) -> bool;

    /// Takes a place for one more connection. The guard is held as long as the connection.
    ///
    /// # Errors
    /// The peer has too many.
    fn connection(&self) -> Result<PeerGuard, Fault>;

    /// Records what became of a request.
    fn record(&self, event: &TunnelEvent<'_>);
}

/// What became of a request for a tunnel, for the audit log.
#[derive(Clone, Copy, Debug)]
pub struct TunnelEvent<'a> {
    /// What was wanted.
    pub action: Action,
    /// The target as the peer named it.
    pub target: &'a str,
    /// What happened.
    pub outcome: TunnelOutcome,
}

/// An event in the life of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelOutcome {
    /// It was connected, or listens.
    Opened,
    /// It wasn't.
    Refused(Code),
    /// It has ended.
    Closed {
        /// Bytes from the target to the peer.
        to_peer: u64,
        /// Bytes from the peer to the target.
        from_peer: u64,
        /// How long it was open.
        elapsed: Duration,
        /// Why it ended early; `None` if both sides had ended their streams.
        result: Option<Code>,
    },
}

/// Address of a peer without its port, which differs between channels.
pub(crate) fn host_of(peer: &str) -> String {
    let host = peer.rsplit_once([':', '#']).map_or(peer, |(host, _)| host);
    host.to_owned()
}
