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
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use xdfs::{Code, Fault, GridftpOverSsh, StandardOutput};

use crate::interrupt::handle_signals;

/// Bytes of commands or replies that are passed on at once.
const BUFFER_BYTES: usize = 16 << 10;
/// Time to pass on the last replies to a client that doesn't read.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Serves the client behind standard input and output until its session ends.
///
/// # Errors
/// The session can't begin.
pub(crate) fn serve() -> Result<(), Fault> {
    let fault = |error: io::Error| Fault::from_io("serve GridFTP through ssh", "", &error);
    let (pumped, served) = UnixStream::pair().map_err(fault)?;
    let (commands, replies) = (pumped.try_clone().map_err(fault)?, &pumped);
    let replies = replies.try_clone().map_err(fault)?;
    let (peer, local) = ends(std::env::var("SSH_CONNECTION").ok().as_deref())?;
    let ended = pumped.try_clone().map_err(fault)?;
    handle_signals(move || {
        // As the end of ssh. What isn't whole is removed.
        let _ = ended.shutdown(Shutdown::Both);
    })?;
    // It ends with standard input, which may be after the session, and so with the process.
    let thread = thread::Builder::new().name("xdfs-commands".into());
    let pump = thread.spawn(move || {
        // An error is an end too.
        let _ = io::copy(&mut io::stdin().lock(), &mut &commands);
        let _ = commands.shutdown(Shutdown::Write);
    });
    pump.map_err(fault)?;
    let thread = thread::Builder::new().name("xdfs-replies".into());
    let (told, passed_on) = mpsc::channel::<()>();
    let pump = thread.spawn(move || {
        // Dropped at the end.
        let _told = told;
        if pass_on(&replies).is_err() {
            // Nobody reads any more.
            let _ = replies.shutdown(Shutdown::Both);
        }
    });
    pump.map_err(fault)?;
    let client = GridftpOverSsh {
        control: served.into(),
        local,
        peer,
    };
    let served = client.serve();
    // Nobody may read them.
    let _ = passed_on.recv_timeout(LAST_WORDS);
    served
}

/// Prints replies as they come.
fn pass_on(mut replies: &UnixStream) -> io::Result<()> {
    let mut bytes = [0; BUFFER_BYTES];
    let mut out = StandardOutput;
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
///
/// # Errors
/// They are no addresses that data connections can have.
fn ends(connection: Option<&str>) -> Result<(IpAddr, IpAddr), Fault> {
    let Some(connection) = connection else {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        return Ok((here, here));
    };
    let mut words = connection.split(' ').step_by(2);
    let mut address = || words.next()?.parse().ok();
    address().zip(address()).ok_or_else(|| {
        let cause = format!("SSH_CONNECTION has no addresses for data connections: '{connection}'");
        Fault::new(Code::Unsupported, "serve GridFTP through ssh", cause)
            .hint("log in at an address that is reached without a zone, or use ssh:// places")
    })
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
            (None, (here, here)),
        ] {
            assert_eq!(ends(connection).unwrap(), expected, "{connection:?}");
        }
        for odd in [
            "UNKNOWN 65535 UNKNOWN 65535",
            "192.0.2.1",
            "",
            "fe80::1%lo 1 fe80::2%lo 22",
        ] {
            assert!(ends(Some(odd)).is_err(), "{odd}");
        }
    }
}
