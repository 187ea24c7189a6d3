//! Which level of protection there is with which servers.

use xdfs_proto::frame;
use xdfs_proto::{Code, Fault};
use xdfs_security::Level;

use crate::remote::{Address, FtpProtection};

/// Refuses a level that the server at `address` can't have, before anything is sent.
///
/// # Errors
/// It can't.
pub fn check_level(level: Level, address: &Address) -> Result<(), Fault> {
    let operation = format!("open a session with {address}");
    let (cause, hint) = match (address, level) {
        (Address::SshFtp { .. }, Level::Private | Level::Safe) => (
            "ssh protects commands and replies only: content and names in listings go unencrypted, \
             over connections that prove nothing",
            "use ssh://, which protects everything, or accept the risk with --protect clear",
        ),
        (Address::SshFtp { .. }, Level::Clear | Level::Unauthenticated) => return Ok(()),
        (Address::Ftp { protection, .. }, _) if *protection != FtpProtection::Tls => return Ok(()),
        (Address::Ftp { .. }, Level::Private) => return Ok(()),
        (Address::Ftp { .. }, Level::Safe) => (
            "PROT S is for gsiftp://; ftps:// has PROT P, which protects no less",
            "leave out --protect",
        ),
        (Address::Ftp { .. }, Level::Clear | Level::Unauthenticated) => (
            "ftps:// protects data connections too: in clear, whoever is on the way could change \
             what they carry",
            "leave out --protect",
        ),
        _ => {
            let checked = of_xdfs(level).map(drop);
            return checked.map_err(|fault| Fault { operation, ..fault });
        }
    };
    Err(Fault::new(Code::ProtectionRefused, operation, cause).hint(hint))
}

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
