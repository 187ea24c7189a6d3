//! The server's side of sessions with an `ssh://` place: `xdfs serve --over-ssh`.

use std::path::Path;
use std::time::Duration;

use xdfs_proto::Fault;

use super::handover::Handover;
use crate::remote::Address;
use crate::server::{Server, ServerBuilder};

/// How long running sessions may go on after the end of standard input. The client that started
/// this may still be stopping in an orderly way: Ctrl-C ends its ssh at once.
const GRACE: Duration = Duration::from_secs(2);
/// Lifetime of the ticket in which the client can open sessions: the longest there is.
const TICKET_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A server for the client that has started this process through ssh, which reaches it at a port or
/// by ssh at `socket`, and the line on standard output that tells this client so: nobody else may
/// see it, since it has the ticket. The server should end with standard input. `user` is the name
/// that clients are told; with `takes_clear` they may ask for unencrypted payload.
///
/// # Errors
/// It can't listen.
pub fn bind_over_ssh(
    socket: &Path,
    user: &str,
    takes_clear: bool,
) -> Result<(Server, String), Fault> {
    let server = listen(socket, user, takes_clear)?;
    let line = handover(&server)?.line()?;
    Ok((server, line))
}

/// Listens at both places, or at the one that works.
fn listen(socket: &Path, user: &str, takes_clear: bool) -> Result<Server, Fault> {
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
        builder.bind_personal(user.to_owned(), takes_clear)
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
