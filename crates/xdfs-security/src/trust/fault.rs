//! Faults of untrusted servers and failed handshakes.

use std::sync::Arc;

use rustls::{AlertDescription as Alert, CertificateError, Error, OtherError};
use xdfs_proto::fault::{Code, Fault};

use crate::identity::Fingerprint;

const TRUST: &str = "trust the server";
const SECURE: &str = "secure the connection";
/// Maximum number of characters of text that the peer may control.
const FOREIGN_CHARS_MAX: usize = 400;

/// The fault of a failed TLS connection at the client. If the client didn't trust the server, the
/// fault tells the reason.
#[must_use]
pub fn client_fault(error: &Error) -> Fault {
    handshake_fault(error, Code::ServerUntrusted, Code::AuthenticationFailed)
}

/// The fault of a failed TLS connection at the server.
#[must_use]
pub fn server_fault(error: &Error) -> Fault {
    handshake_fault(error, Code::AuthenticationFailed, Code::ServerUntrusted)
}

/// The codes are for a peer that this end doesn't trust, and for one that doesn't trust this end.
fn handshake_fault(error: &Error, unbelieved: Code, unbelieving: Code) -> Fault {
    let fault = |code, hint: &str| Fault::new(code, SECURE, tame(&error.to_string())).hint(hint);
    let floor = "both ends need TLS 1.3 and the protocol xdfs/1";
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => inner
            .downcast_ref::<Fault>()
            .cloned()
            .unwrap_or_else(|| fault(unbelieved, "")),
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => fault(unbelieved, ""),
        Error::AlertReceived(alert) => match alert {
            Alert::AccessDenied
            | Alert::BadCertificate
            | Alert::CertificateExpired
            | Alert::CertificateRequired
            | Alert::CertificateRevoked
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::UnsupportedCertificate => fault(
                unbelieving,
                "the other end doesn't trust this end's certificate",
            ),
            Alert::HandshakeFailure
            | Alert::InsufficientSecurity
            | Alert::NoApplicationProtocol
            | Alert::ProtocolVersion => fault(Code::ProtectionRefused, floor),
            _ => fault(Code::ConnectionLost, ""),
        }
        .remote(),
        Error::NoApplicationProtocol | Error::PeerIncompatible(_) => {
            fault(Code::ProtectionRefused, floor)
        }
        Error::InvalidMessage(_) => fault(Code::ProtectionRefused, "does the other end speak TLS?"),
        Error::DecryptError => fault(Code::IntegrityMismatch, ""),
        Error::PeerMisbehaved(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. }
        | Error::PeerSentOversizedRecord => fault(Code::ProtocolViolation, ""),
        _ => fault(Code::Internal, ""),
    }
}

/// The error that carries a fault through TLS to [`client_fault`].
pub(super) fn carry(fault: Fault) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(fault))))
}

pub(super) fn unpinned(host: &str, shown: Fingerprint) -> Fault {
    untrusted(host, format!("its key is {shown}, which isn't pinned"))
        .hint("compare the pin with the fingerprint that the server shows at its start")
}

pub(super) fn changed(host: &str, shown: Fingerprint, known: &[Fingerprint]) -> Fault {
    let known = known
        .iter()
        .take(4)
        .map(Fingerprint::to_string)
        .collect::<Vec<_>>()
        .join(" or ");
    untrusted(
        host,
        format!("its key is {shown}, but the one that is trusted is {known}"),
    )
    .hint(format!(
        "if the server got a new key on purpose, run `xdfs trust remove {host}` and connect again; \
         if not, another machine may answer in its place"
    ))
}

pub(super) fn inconsistent(host: &str, shown: Fingerprint, before: Fingerprint) -> Fault {
    untrusted(
        host,
        format!("its key is {shown}, but another channel of this session saw {before}"),
    )
    .hint("if several machines answer under this name, trust their keys or their authority first")
}

pub(super) fn unknown(host: &str, shown: Fingerprint) -> Fault {
    untrusted(host, format!("its key {shown} isn't known")).hint(format!(
        "if this is what the server shows at its start, run `xdfs trust add {host} {shown}`"
    ))
}

pub(super) fn ambient(host: &str, shown: Fingerprint) -> Fault {
    let cause = format!(
        "its key {shown} isn't known, and a token or ticket from the environment isn't shown to a \
         server that nobody vouches for"
    );
    untrusted(host, cause).hint(format!(
        "if this is what the server shows at its start, run `xdfs trust add {host} {shown}` or \
         give --pin; or name what to show it: --token-file, --ticket-file, --key"
    ))
}

/// The system's authorities refuse it with this error, if they count.
pub(super) fn unvouched(host: &str, shown: Fingerprint, error: Option<&Error>) -> Fault {
    let reason = error.map_or_else(String::new, |error| format!(": {}", reason(error)));
    let cause = format!("its key {shown} isn't known, and no authority vouches for it{reason}");
    untrusted(host, cause).hint(format!(
        "give the authority that signed its certificate with --ca; or, once its owner has \
         confirmed the key, run `xdfs trust add {host} {shown}`, or give --pin"
    ))
}

fn reason(error: &Error) -> String {
    tame(&match error {
        Error::InvalidCertificate(error) => error.to_string(),
        other => other.to_string(),
    })
}

pub(super) fn unsigned(host: &str, error: &Error) -> Fault {
    untrusted(
        host,
        format!(
            "the given authorities don't vouch for it: {}",
            reason(error)
        ),
    )
    .hint("give the authority that signed the server's certificate, and the name that is in it")
}

pub(super) fn unreadable(host: &str, error: &Fault) -> Fault {
    untrusted(
        host,
        format!("its certificate can't be read: {}", tame(&error.cause)),
    )
}

pub(super) fn unproved(host: &str) -> Fault {
    untrusted(
        host,
        "it doesn't have the key of the certificate that it shows".to_owned(),
    )
    .hint("another machine may answer in its place")
}

fn untrusted(host: &str, cause: String) -> Fault {
    Fault::new(Code::ServerUntrusted, TRUST, cause).path(host)
}

/// Sanitises text: an unknown certificate may contain any name, and messages go to terminals and
/// logs.
fn tame(text: &str) -> String {
    text.chars()
        .take(FOREIGN_CHARS_MAX)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
