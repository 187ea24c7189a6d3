//! What protects the connections with a server: nothing, TLS or GSI.

#[cfg(feature = "gsi")]
use std::fmt;

#[cfg(feature = "gsi")]
use xdfs_proto::Code;
use xdfs_proto::Fault;
#[cfg(feature = "gsi")]
use xdfs_security::Level;

use super::fault::{lost, unprotected};
use super::tls::{SessionTls, Tls};
#[cfg(feature = "gsi")]
use crate::layer::Layer;
use crate::reply::Reply;
use crate::wire::Wire;

/// What is wished for; it is never given up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Protection {
    /// Nothing: everything is sent unencrypted.
    None,
    /// TLS (RFC 4217).
    Tls(Tls),
    /// GSI (RFC 2228, GFD.20).
    #[cfg(feature = "gsi")]
    Gsi(Gsi),
}

impl Protection {
    /// Data that goes straight from one server to another has to be protected as with this
    /// machine. With GSI both servers act for the user by a proxy that was delegated to them, and
    /// prove so to each other (DCAU A), or nothing is proved anywhere (DCAU N); with TLS they know
    /// nothing of each other.
    ///
    /// # Errors
    /// Why it wouldn't be.
    pub(super) fn check_between(&self, other: &Self) -> Result<(), &'static str> {
        match (self, other) {
            (Self::None, Self::None) => Ok(()),
            #[cfg(feature = "gsi")]
            (Self::Gsi(own), Self::Gsi(other)) if own.level != other.level => Err(
                "data is to be protected at one level with one server, and at another level with \
                 the other one",
            ),
            #[cfg(feature = "gsi")]
            (Self::Gsi(own), Self::Gsi(other)) if own.authenticates_data() => {
                match [own, other].map(|gsi| subject_of(&gsi.credential).ok()) {
                    [Some(own), Some(other)] if own == other => Ok(()),
                    _ => Err(
                        "the servers act for different users, who don't trust each other's \
                              data connections",
                    ),
                }
            }
            #[cfg(feature = "gsi")]
            (Self::Gsi(_), Self::Gsi(_)) => Ok(()),
            _ => Err(
                "connections are protected with this machine only; straight from one server to \
                 the other data would be in clear, or less protected",
            ),
        }
    }
}

/// A user of GSI.
#[cfg(feature = "gsi")]
#[derive(Clone)]
pub struct Gsi {
    /// A proxy, or the user's certificate.
    pub credential: xdfs_gsi::Credential,
    /// The authorities.
    pub trust: xdfs_gsi::Trust,
    /// What protects data: PROT P, S or C with DCAU A, or PROT C with DCAU N.
    pub level: Level,
}

#[cfg(feature = "gsi")]
impl Gsi {
    /// Whether both ends of data connections prove that they act for the user. For that the server
    /// needs a proxy of theirs.
    pub(super) fn authenticates_data(&self) -> bool {
        self.level != Level::Unauthenticated
    }
}

#[cfg(feature = "gsi")]
impl fmt::Debug for Gsi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gsi").field("level", &self.level).finish()
    }
}

/// What protects the connections of one session.
#[derive(Debug)]
pub(super) enum Established {
    None,
    Tls(SessionTls),
    #[cfg(feature = "gsi")]
    Gsi {
        own: Gsi,
        /// The user's subject, which the server proves to act for.
        subject: String,
    },
}

impl Established {
    /// Commands by which data connections are protected, all of which have to succeed.
    pub(super) fn commands(&self) -> &'static [(&'static str, &'static [u8])] {
        match self {
            Self::None => &[],
            Self::Tls(_) => &[("PBSZ", b"0"), ("PROT", b"P")],
            #[cfg(feature = "gsi")]
            Self::Gsi { own, .. } => match own.level {
                Level::Private => &[("PBSZ", b"1048576"), ("PROT", b"P"), ("DCAU", b"A")],
                Level::Safe => &[("PBSZ", b"1048576"), ("PROT", b"S"), ("DCAU", b"A")],
                Level::Clear => &[("PBSZ", b"1048576"), ("PROT", b"C"), ("DCAU", b"A")],
                Level::Unauthenticated => &[("PBSZ", b"1048576"), ("PROT", b"C"), ("DCAU", b"N")],
            },
        }
    }

    /// Takes the reply to one of [`Self::commands`].
    ///
    /// # Errors
    /// The server refuses it: nothing is done without.
    pub(super) fn check(
        &self,
        (verb, argument): (&str, &[u8]),
        reply: &Reply,
    ) -> Result<(), Fault> {
        if reply.code == 200 {
            return Ok(());
        }
        let command = format!("{verb} {}", argument.escape_ascii());
        let fault = unprotected("protect data connections", &command, reply);
        Err(match self {
            Self::None | Self::Tls(_) => fault,
            #[cfg(feature = "gsi")]
            Self::Gsi { own, .. } => fault.hint(match (own.level, verb, argument) {
                (_, "DCAU", b"A") => {
                    "--protect unauthenticated does without: whoever is on the way then reads and \
                     changes data, and so does whoever is first at a data connection"
                }
                (_, "DCAU", _) => {
                    "leave out --protect; a server without DCAU can't be used with GSI"
                }
                (Level::Private, ..) => {
                    "--protect clear does without: whoever is on the way then reads and changes \
                     data"
                }
                (Level::Safe, ..) => "leave out --protect safe: PROT P protects no less",
                (Level::Clear | Level::Unauthenticated, ..) => {
                    "leave out --protect: the server wants data to be protected"
                }
            }),
        })
    }

    /// What to do about a refused login.
    pub(super) fn login_hint(&self) -> &'static str {
        match self {
            Self::None => "ftp://USER:PASSWORD@HOST/ names a user",
            Self::Tls(_) => {
                "ftps://USER@HOST/ names a user, and --password-file - asks for a password"
            }
            #[cfg(feature = "gsi")]
            Self::Gsi { .. } => "the server maps the subjects of certificates to users",
        }
    }

    /// Protects a data connection, which the server has opened if it `is_open`.
    ///
    /// # Errors
    /// The configuration or the credential can't be used.
    pub(super) fn protect_data(&self, wire: &mut Wire, is_open: bool) -> Result<(), Fault> {
        let _ = is_open;
        match self {
            Self::None => Ok(()),
            Self::Tls(tls) => {
                let protected = tls.protect_data(wire);
                protected.map_err(|error| lost("protect a data connection", &error))
            }
            #[cfg(feature = "gsi")]
            Self::Gsi { own, subject } => {
                let role = match is_open {
                    true => xdfs_gsi::Role::Accepted,
                    false => xdfs_gsi::Role::Opened,
                };
                let (credential, trust) = (&own.credential, &own.trust);
                if !own.authenticates_data() {
                    return Ok(());
                }
                let seals = own.level.encrypts();
                let context = xdfs_gsi::DataContext::new(role, credential, trust, subject, seals)?;
                wire.protect_by(Layer::Data(Box::new(context)));
                Ok(())
            }
        }
    }

    /// A data connection has resumed the session of the control connection.
    pub(super) fn note_resumed(&self) {
        if let Self::Tls(tls) = self {
            tls.note_resumed();
        }
    }

    /// Whether commands are protected, and data isn't.
    pub(super) fn exposes_data(&self) -> bool {
        match self {
            Self::None | Self::Tls(_) => false,
            #[cfg(feature = "gsi")]
            Self::Gsi { own, .. } => !own.level.encrypts(),
        }
    }

    /// Whether no data connection can prove any more that it belongs to the session.
    pub(super) fn is_used_up(&self) -> bool {
        matches!(self, Self::Tls(tls) if tls.is_used_up())
    }
}

/// The user's own subject.
///
/// # Errors
/// The credential doesn't tell it.
#[cfg(feature = "gsi")]
pub(super) fn subject_of(credential: &xdfs_gsi::Credential) -> Result<String, Fault> {
    credential.describe()?.identity.ok_or_else(|| {
        let cause = "the certificate of the user isn't in the file of the proxy";
        Fault::new(Code::InvalidArgument, "use the proxy", cause)
            .hint("make another one with `xdfs proxy init`")
    })
}
