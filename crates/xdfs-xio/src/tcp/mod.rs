//! TCP over IPv4 and IPv6, the default transport.
//!
//! What it gives: order, flow control and retransmission by the kernel. What it does not: its
//! 16-bit checksum is no protection at bulk rates, so [`crate::Capabilities::integrity`] is false
//! and blocks carry check values; nothing is secret or authenticated.
//!
//! Choices made here, so that nobody has to set them; [`TcpOptions`] has those that can be:
//! - `TCP_NODELAY`, because the engine writes whole frames and waiting for more only adds delay.
//! - The kernel sizes the socket buffers, unless [`crate::Stream::set_window`] is called.
//! - On paths inside one machine, cubic where the system offers it. bbr measures a rate and paces
//!   its segments to it; over loopback there is no queue to protect, and the pacing timers cost
//!   about half of the rate. Elsewhere the system's default stays: its operator knows the path.

mod driver;
mod listener;
mod options;
mod stream;

pub use driver::driver;
pub use listener::TcpListener;
pub use options::TcpOptions;
pub use stream::TcpStream;
