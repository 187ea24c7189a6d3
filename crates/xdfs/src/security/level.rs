//! The levels of protection that sessions with servers of xDFS have.

use xdfs_proto::frame;
use xdfs_proto::{Code, Fault};
use xdfs_security::Level;

/// The level of a session with a server of xDFS.
///
/// # Errors
/// It is one of GridFTP.
pub(crate) fn of_xdfs(level: Level) -> Result<frame::Level, Fault> {
    match level {
        Level::Private => Ok(frame::Level::Private),
        Level::Clear => Ok(frame::Level::Clear),
        Level::Safe | Level::Unauthenticated => {
            let cause = "--protect safe and unauthenticated are for gsiftp:// places";
            let fault = Fault::new(Code::ProtectionRefused, "open a session", cause);
            Err(fault.hint(
                "leave out --protect; if another place of the command needs it, give that server a \
                 name, with `protect`, in config.toml",
            ))
        }
    }
}

/// Refuses a level that sessions with the server of xDFS at this address can't have.
///
/// # Errors
/// They can't have it.
pub(crate) fn check_of_xdfs(level: Level, address: &str) -> Result<(), Fault> {
    of_xdfs(level).map(drop).map_err(|fault| Fault {
        operation: format!("open a session with {address}"),
        ..fault
    })
}
