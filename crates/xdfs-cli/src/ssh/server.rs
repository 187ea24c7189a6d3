//! `xdfs serve --over-ssh`: the server's side of a command with an `ssh://` URL.

use std::path::Path;
use std::time::Duration;

use xdfs::{Address, Fault, Server, ServerBuilder};

use super::handover::Handover;
use crate::interrupt::handle_signals;
use crate::report::print;
use crate::user_name::user_name;

/// How long running sessions may go on after the end of standard input. The command that started
/// this may still be stopping in an orderly way: Ctrl-C ends its ssh at once.
const GRACE: Duration = Duration::from_secs(2);
/// Lifetime of the ticket in which the command can open sessions: the longest there is.
const TICKET_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Serves until standard input ends.
///
/// # Errors
/// It can't listen, or standard output is closed.
pub(crate) fn serve(socket: &Path, takes_clear: bool) -> Result<(), Fault> {
    let server = listen(socket, takes_clear)?;
    let handle = server.handle();
    handle_signals(move || handle.shutdown())?;
    print(handover(&server)?.line()?)?;
    let handle = server.handle();
    std::thread::Builder::new()
        .name("xdfs-ssh".into())
        .spawn(move || {
            // An error is an end too.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            handle.shutdown();
        })
        .map_err(|e| Fault::from_io("watch standard input", "", &e))?;
    server.run()
}

/// Listens at both places, or at the one that works.
fn listen(socket: &Path, takes_clear: bool) -> Result<Server, Fault> {
    let direct = Address::Host {
        host: direct_host(std::env::var("SSH_CONNECTION").ok().as_deref()),
        port: 0,
    };
    let socket = Address::Unix(socket.to_owned());
    let bind = |listen: &[&Address]| {
        let builder = ServerBuilder {
            listen: listen
                .iter()
                .map(|&address| address.clone().into())
                .collect(),
            grace: GRACE,
            ..ServerBuilder::default()
        };
        builder.bind_personal(user_name(), takes_clear)
    };
    bind(&[&direct, &socket])
        .or_else(|_| bind(&[&socket]))
        .or_else(|_| bind(&[&direct]))
}

/// The address of this machine that the client of ssh has reached, as sshd says in SSH_CONNECTION;
/// all addresses where nobody says.
fn direct_host(connection: Option<&str>) -> String {
    let address = connection.and_then(|text| text.split(' ').nth(2));
    match address.map(str::parse::<std::net::IpAddr>) {
        Some(Ok(address)) => address.to_string(),
        _ => "0.0.0.0".to_owned(),
    }
}

fn handover(server: &Server) -> Result<Handover, Fault> {
    let addresses = server.addresses();
    let direct = addresses
        .iter()
        .filter(|address| matches!(address, Address::Host { .. }));
    let ticket = server
        .tickets()
        .map(|tickets| tickets.issue(TICKET_LIFE, u32::MAX));
    let pin = server.fingerprint();
    let home = std::env::current_dir().ok();
    Ok(Handover {
        addresses: direct.map(ToString::to_string).collect(),
        socket: addresses
            .iter()
            .any(|address| matches!(address, Address::Unix(_))),
        // A personal server has both.
        pin: pin.map(|pin| pin.to_string()).unwrap_or_default(),
        ticket: ticket.transpose()?.unwrap_or_default(),
        home: home.and_then(|path| path.into_os_string().into_string().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_where_ssh_came_in() {
        for (connection, host) in [
            (Some("192.0.2.1 50000 192.0.2.7 22"), "192.0.2.7"),
            (Some("2001:db8::1 50000 2001:db8::7 22"), "2001:db8::7"),
            (Some("UNKNOWN 65535 UNKNOWN 65535"), "0.0.0.0"),
            (Some(""), "0.0.0.0"),
            (None, "0.0.0.0"),
        ] {
            assert_eq!(direct_host(connection), host, "{connection:?}");
        }
    }
}
