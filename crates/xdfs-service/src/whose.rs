//! The user for whom a job opens sessions, and the servers that it may use.

use xdfs::{Address, Code, Fault, LoginBy, RemotePlace};

/// The user for whom a session is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The user of the process.
    Own,
    /// The user of this name.
    User(String),
}

/// Refuses a server that the user of the process is let in by, and another user isn't: by ssh, by a
/// socket, or by the settings of a name.
///
/// # Errors
/// [`Code::PermissionDenied`] with the reason.
pub(crate) fn check_server_of_user(place: &RemotePlace) -> Result<(), Fault> {
    let asks_who = match &place.address {
        Address::Host { .. } => true,
        Address::Place { scheme, .. } => !matches!(scheme.login(), LoginBy::Nothing | LoginBy::Ssh),
        _ => false,
    };
    let cause = match asks_who {
        true if place.profile.is_none() => return Ok(()),
        true => "the settings of a named server are those of the owner of the service",
        false if place.address.is_of_ssh() => {
            "ssh would log in with the keys of the owner of the service"
        }
        false => "it is reached with the rights of the owner of the service",
    };
    let fault = Fault::new(Code::PermissionDenied, "use the server", cause);
    Err(fault
        .path(place.to_string())
        .hint("name the server by an xdfs:// or ftps:// URL, or ask an administrator"))
}
