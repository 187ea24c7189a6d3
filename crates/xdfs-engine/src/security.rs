//! Who a peer is: the two questions that the engine asks of xSec, one at each end.
//!
//! The engine carries proofs and knows nothing of keys. [`Identity`] proves who an initiator
//! is; [`Gate`] says for an acceptor who may come in and what it sees
//! then.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use xdfs_proto::Fault;
use xdfs_proto::frame::AuthRequest;
use xdfs_store::Store;
use xdfs_store::rate::SharedRate;
use xdfs_sys::ids::Ids;
use xdfs_xio::Protection;

/// The initiator's side.
pub trait Identity: Send + Sync + fmt::Debug {
    /// The first step of the proof, on the channel with this `protection`, by one of the `methods`
    /// that the acceptor takes; and whether it is the only step.
    ///
    /// # Errors
    /// The acceptor isn't to be trusted, or there is nothing to prove with.
    fn prove(&self, protection: &Protection, methods: &[u8]) -> Result<(AuthRequest, bool), Fault>;

    /// The next step of the proof.
    ///
    /// # Errors
    /// The challenge makes no sense.
    fn answer(&self, protection: &Protection, challenge: &[u8]) -> Result<Vec<u8>, Fault>;

    /// It is proved: at the acceptor this side is `user`.
    fn admitted(&self, user: &str);

    /// The acceptor refused it: the same, with what this side knows about it.
    fn refused(&self, fault: Fault) -> Fault {
        fault
    }

    /// Why a channel could not be opened, in words for the user, where this side knows more than
    /// the transport.
    fn explain(&self, error: &io::Error) -> Option<Fault>;
}

/// What a peer may do that has come in.
#[derive(Debug)]
pub struct Admission {
    /// Its name here.
    pub user: String,
    /// What it sees.
    pub store: Arc<dyn Store>,
    /// Lives as long as the session, which takes its share of the limits of its user.
    pub permit: Permit,
    /// The ids that the threads of its session take on before they touch the store; `None` for
    /// those of the server.
    pub ids: Option<Ids>,
    /// The bound on the payload a second that its session shares with others, both directions
    /// counted together; `None` for no bound.
    pub rate: Option<Arc<SharedRate>>,
}

/// Gives the calling thread the ids of a session, if it has some of its own.
pub(crate) fn assume_ids(ids: Option<&Ids>) -> Result<(), Fault> {
    let Some(ids) = ids else { return Ok(()) };
    ids.take_on().map_err(|error| {
        let uid = ids.uid();
        tracing::error!(uid, %error, "a thread could not take on the ids of an account");
        Fault::from_io("take on the ids of the account", "", &error)
            .hint("tell those who run the server: its log says more")
    })
}

/// Something that is held for as long as a peer is served.
pub struct Permit(pub Box<dyn Any + Send>);

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}

/// What came of a step of a proof.
#[derive(Debug)]
pub enum Verdict {
    /// It is proved.
    Admitted(Admission),
    /// The next step is needed.
    Challenge(Vec<u8>, Box<dyn Proof>),
}

/// A proof of several steps that is under way.
pub trait Proof: Send + fmt::Debug {
    /// Takes the next step.
    ///
    /// # Errors
    /// It proves nothing.
    fn step(self: Box<Self>, body: &[u8]) -> Result<Verdict, Fault>;
}

/// The acceptor's side.
pub trait Gate: Send + Sync + fmt::Debug {
    /// The methods that are taken, as numbers on the wire.
    fn methods(&self) -> &[u8];

    /// Whether payload may travel in the clear, beside the protection.
    fn takes_clear(&self) -> bool;

    /// A channel of `peer` begins. What is returned is held until the channel is in a session.
    ///
    /// # Errors
    /// It has to wait.
    fn admit_connection(&self, peer: &str) -> Result<Permit, Fault>;

    /// A further channel joins a session of `user`. What is returned is held as long as the
    /// channel.
    ///
    /// # Errors
    /// The user has as many as are allowed.
    fn join(&self, user: &str) -> Result<Permit, Fault>;

    /// Takes the first step of a proof on the channel with this `protection`.
    ///
    /// # Errors
    /// It proves nothing.
    fn begin(
        &self,
        peer: &str,
        protection: &Protection,
        request: &AuthRequest,
    ) -> Result<Verdict, Fault>;
}
