//! GSI at the door: security contexts of sessions, and the layers of their connections.

use std::path::PathBuf;

use xdfs_gsi::{
    Acceptor, Credential, DataContext, Delegated, Established, Peer, Role, Step, Trust,
};
use xdfs_proto::{Code, Fault};

use crate::layer::{Layer, Side};
use crate::session::Outcome;

/// Files of the server. They are read for each session, so that they can be replaced; lists of
/// revoked certificates when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GsiHost {
    /// The certificate, and those between it and its authority (PEM).
    pub certificate: PathBuf,
    /// Its key (PEM), which only its owner may read.
    pub key: PathBuf,
    /// The directory of authorities.
    pub authorities: PathBuf,
    /// Limited proxies are taken, as Globus takes them for moving files.
    pub takes_limited: bool,
}

impl GsiHost {
    /// Reads the files.
    ///
    /// # Errors
    /// One can't be used.
    pub fn load(&self) -> Result<(Credential, Trust), Fault> {
        let credential = Credential::open(&self.certificate, &self.key)?;
        Ok((credential, Trust::open(&self.authorities)?))
    }
}

/// The files, and what all sessions share of them.
#[derive(Debug)]
pub(super) struct Host {
    files: GsiHost,
    trust: Trust,
}

impl Host {
    /// What a door needs.
    ///
    /// # Errors
    /// A file can't be used.
    pub(super) fn open(files: GsiHost) -> Result<Self, Fault> {
        let (_, trust) = files.load()?;
        Ok(Self { files, trust })
    }
}

/// The security of one session, as far as it is.
#[derive(Debug, Default)]
pub(super) struct Negotiation {
    acceptor: Option<Acceptor>,
    /// For the control connection, once its last output in clear is sent.
    established: Option<Box<Established>>,
    /// Who the peer is.
    pub(super) peer: Option<Peer>,
}

/// What data connections need.
#[derive(Clone, Debug)]
pub(super) struct DataSecurity {
    delegated: Option<Delegated>,
    trust: Trust,
    /// The user's own subject.
    name: String,
}

impl Negotiation {
    /// Takes a token of the client.
    ///
    /// # Errors
    /// The client isn't verified, or breaks the rules; or the server's own files can't be used.
    pub(super) fn step(
        &mut self,
        host: &Host,
        token: &[u8],
    ) -> Result<(Outcome, Option<DataSecurity>), Fault> {
        let mut acceptor = match self.acceptor.take() {
            Some(begun) => begun,
            None => {
                let (credential, _) = host.files.load().map_err(|fault| {
                    let cause = "the server's own certificate can't be used";
                    hidden(&fault, cause)
                })?;
                Acceptor::new(&credential, &host.trust)?
            }
        };
        let token = match acceptor.step(token)? {
            Step::Next(token) => {
                self.acceptor = Some(acceptor);
                return Ok((Outcome::Token(token), None));
            }
            Step::Done(token) => token,
        };
        let established = acceptor.established().ok_or_else(|| {
            let cause = "the context isn't established";
            Fault::new(Code::Internal, "begin a security context", cause)
        })?;
        let peer = established.peer().clone();
        if peer.is_limited && !host.files.takes_limited {
            let cause = "limited proxies aren't taken here";
            let fault = Fault::new(Code::AuthenticationFailed, "verify the peer", cause);
            return Err(fault.hint("make a proxy that isn't limited"));
        }
        let security = DataSecurity {
            delegated: established.delegated().cloned(),
            trust: host.trust.clone(),
            name: peer.name.clone(),
        };
        self.peer = Some(peer);
        self.established = Some(Box::new(established));
        Ok((Outcome::Secured(token), Some(security)))
    }

    /// The layer of the control connection, once.
    pub(super) fn take_layer(&mut self) -> Option<Layer> {
        let context = self.established.take()?;
        Some(Layer::control(context, Side::Server))
    }
}

impl DataSecurity {
    /// The layer of a data connection to `subject`, or to the user.
    ///
    /// # Errors
    /// The client has delegated nothing.
    pub(super) fn layer(
        &self,
        role: Role,
        subject: Option<&str>,
        seals: bool,
    ) -> Result<Layer, Fault> {
        let delegated = self.delegated.as_ref().ok_or_else(|| {
            let cause = "the client has delegated no credential, with which the server could prove \
                         that it acts for its user";
            let fault = Fault::new(Code::PermissionDenied, "protect a data connection", cause);
            fault.hint("delegate one, or use DCAU N")
        })?;
        let subject = subject.unwrap_or(&self.name);
        let credential = delegated.credential();
        let context = DataContext::new(role, credential, &self.trust, subject, seals)?;
        Ok(Layer::Data(Box::new(context)))
    }
}

/// What the client is told of a fault. What is wrong with the server's own files is for the log,
/// and isn't the client's failure.
pub(super) fn told(fault: Fault) -> Fault {
    match fault.path.is_empty() {
        true => fault,
        false => hidden(
            &fault,
            "what the server has of the certificate's authority can't be used, such as a list of \
             revoked certificates that has expired",
        ),
    }
}

fn hidden(fault: &Fault, cause: &str) -> Fault {
    tracing::error!(%fault, "GSI can't be used");
    let fault = Fault::new(Code::Internal, "verify the peer", cause);
    fault.hint("ask the administrator, whose log says more")
}
