//! What every front door shares: who is it, which store may they see, what are they charged,
//! and what is written down.
//!
//! ```text
//!  front door       --Evidence-->   Access::authenticate --> Principal
//!  (xDFS, others)   --Principal-->  Access::admit        --> Admission
//!                                                            { store, ids, rate, permit }
//! ```
//!
//! A door speaks a protocol, and knows how its peers log in; what it learns becomes [`Evidence`].
//! All doors of a server share one [`Access`], and with it failures, limits, quotas and the audit
//! log: whoever has to wait at one door waits at the others too.
//!
//! The mechanisms are those of [`xdfs_security`]; here they are put together. Nothing here knows a
//! protocol, the engine or a driver. Time comes from a [`Clock`]. Two kinds of threads run beside
//! the calls: they fetch the keys of issuers, and write counts of refusals when they are due.

#![forbid(unsafe_code)]

mod access;
mod audited;
mod clock;
mod issuers;
mod keys;
mod login_guard;
mod password;
mod peer;
mod rates;
mod tickets;

pub use access::{Access, Admission, Parts, Permit};
pub use clock::{Clock, SystemClock};
pub use keys::KeyLists;
pub use password::PasswordExchange;
pub use peer::{Evidence, Peer};
pub use tickets::Tickets;
