//! TCP over IPv4 and IPv6, the default transport.
//!
//! Guarantees: order, flow control and retransmission by the kernel. Limits: the 16-bit checksum
//! does not suffice at bulk rates, so [`crate::Capabilities::integrity`] is false and blocks carry
//! check values; nothing is encrypted or authenticated.
//!
//! Choices made here, so that nobody has to configure them; [`TcpOptions`] has those that can be
//! changed:
//! - `TCP_NODELAY`, because the engine writes whole frames, and waiting for more only adds delay.
//! - The kernel sizes the socket buffers, unless [`crate::Stream::set_window`] is called.
//! - On paths within one machine, cubic where available. bbr measures a rate and paces its segments
//!   accordingly; over loopback there is no queue to protect, and the pacing timers cost about half
//!   of the rate.
//! - On long paths ([`crate::Stream::suit_long_path`]), bbr where the system has it and allows it.
//!   Others halve their rate at each loss, and recover within as many round trips as the path
//!   holds segments: a loss of 0.1 % leaves a twentieth of 1 Gbit/s at 100 ms. Little data waits
//!   unsent in the socket there, so that it can still go over another channel.
//! - Anywhere else the system's default stays.

mod driver;
mod listener;
mod options;
mod stream;

pub use driver::driver;
pub use listener::TcpListener;
pub use options::{Mptcp, TcpOptions};
pub use stream::TcpStream;
