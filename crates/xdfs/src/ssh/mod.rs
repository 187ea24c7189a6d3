//! Servers that are started through ssh, for `ssh://` and `sshftp://` places.
//!
//! ```text
//!   this machine                                         host
//!        |                                                |
//!        |-- ssh host 'xdfs serve --over-ssh SOCKET' -----+--> a personal server
//!        |<- one line: address, fingerprint, ticket ------+     |  port, SOCKET
//!        |                                                |     |
//!        +== channels: directly to the port, =============+=====+
//!            or through ssh to SOCKET
//! ```
//!
//! One ssh serves all sessions with one machine whose options share their [`SshServers`]. It keeps
//! the terminal, to ask for passwords and about unknown hosts. Secrets travel within it only, and
//! never on a command line. The server ends when the standard input of its ssh does, so also when
//! this process is killed.
//!
//! `sshftp://` places have an ssh, and a server of their own, for each control connection.

mod alias;
mod command;
mod connection;
mod direct;
mod handover;
mod listen;
pub(crate) mod options;
pub(crate) mod server;
mod servers;

pub use self::listen::bind_over_ssh;
pub use self::options::SshOptions;
pub use self::server::SshNews;
pub use self::servers::SshServers;
