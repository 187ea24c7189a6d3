//! `xdfs serve --gridftp-over-ssh`: the server's side of an `sshftp://` URL.
//!
//! ```text
//!   client's machine            | this machine
//!   client <-> ssh <============|==> sshd <-> standard input and output
//!                               |                       | pump
//!                               |             socket of the control connection
//!   data connections <==========|=====================> session
//! ```

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown};
use std::os::unix::net::UnixStream;
use std::thread;

use xdfs::{Fault, GridftpOverSsh};

/// Bytes of commands or replies that are passed on at once.
const BUFFER_BYTES: usize = 16 << 10;

/// Serves the client behind standard input and output until its session ends.
///
/// # Errors
/// The session can't begin.
pub(crate) fn serve() -> Result<(), Fault> {
    let fault = |error: io::Error| Fault::from_io("serve GridFTP through ssh", "", &error);
    let (pumped, served) = UnixStream::pair().map_err(fault)?;
    let (commands, replies) = (pumped.try_clone().map_err(fault)?, pumped);
    let (peer, local) = ends(std::env::var("SSH_CONNECTION").ok().as_deref());
    // It ends with standard input, which may be after the session, and so with the process.
    let thread = thread::Builder::new().name("xdfs-commands".into());
    let pump = thread.spawn(move || {
        // An error is an end too.
        let _ = io::copy(&mut io::stdin().lock(), &mut &commands);
        let _ = commands.shutdown(Shutdown::Write);
    });
    pump.map_err(fault)?;
    let thread = thread::Builder::new().name("xdfs-replies".into());
    let pump = thread.spawn(move || {
        if pass_on(&replies).is_err() {
            // Nobody reads any more.
            let _ = replies.shutdown(Shutdown::Both);
        }
    });
    let pump = pump.map_err(fault)?;
    let client = GridftpOverSsh {
        control: served.into(),
        local,
        peer,
    };
    let ended = client.serve();
    // The last replies.
    let _ = pump.join();
    ended
}

/// Prints replies as they come.
fn pass_on(mut replies: &UnixStream) -> io::Result<()> {
    let mut bytes = [0; BUFFER_BYTES];
    let mut out = io::stdout().lock();
    loop {
        match replies.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                out.write_all(&bytes[..read])?;
                out.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The addresses of the client and of this machine, as sshd says in SSH_CONNECTION; this machine
/// for both where nobody says.
fn ends(connection: Option<&str>) -> (IpAddr, IpAddr) {
    let mut words = connection.unwrap_or_default().split(' ').step_by(2);
    let mut address = || words.next()?.parse().ok();
    let here = IpAddr::from(Ipv4Addr::LOCALHOST);
    address().zip(address()).unwrap_or((here, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_those_of_ssh() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let here = ip("127.0.0.1");
        for (connection, expected) in [
            (
                Some("192.0.2.1 50000 192.0.2.7 22"),
                (ip("192.0.2.1"), ip("192.0.2.7")),
            ),
            (
                Some("2001:db8::1 50000 2001:db8::7 22"),
                (ip("2001:db8::1"), ip("2001:db8::7")),
            ),
            (Some("UNKNOWN 65535 UNKNOWN 65535"), (here, here)),
            (Some("192.0.2.1"), (here, here)),
            (None, (here, here)),
        ] {
            assert_eq!(ends(connection), expected, "{connection:?}");
        }
    }
}
