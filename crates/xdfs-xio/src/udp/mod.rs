//! UDP: datagrams, with their edges kept.
//!
//! One write sends one datagram, and one read returns one. A datagram for which the reader has no
//! room is an error and is lost. Datagrams may be lost, doubled or arrive in another order, so the
//! driver doesn't give order, and no transform that needs it can be pushed. There is no opening
//! exchange and no end: opening only sets the peer, `close` ends writing without telling it, and a
//! peer that is gone is at best seen as [`std::io::ErrorKind::ConnectionRefused`]. Empty datagrams
//! are neither sent nor delivered, as a read of nothing is the end.
//!
//! A listener makes a stream of the first datagram of each peer. The kernel sorts the following
//! ones: each stream has a socket of its own at the listener's address, connected to the peer.
//! Datagrams that arrive before it is connected wait in a short queue. While the system looks for
//! the socket of a new peer, a datagram may be lost. Limits: listening is possible only on Linux,
//! and at one address, not all (`0.0.0.0`), because answers have to come from the address that was
//! asked.

mod driver;
mod listener;
mod options;
mod stream;

pub use driver::driver;
pub use listener::UdpListener;
pub use options::UdpOptions;
pub use stream::UdpStream;
