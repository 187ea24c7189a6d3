//! Access control shared by all front doors: authentication, stores, limits and audit.
//!
//! ```text
//!  front door       --Evidence-->   Access::authenticate --> Principal
//!  (xDFS, others)   --Principal-->  Access::admit        --> Admission
//!                                                            { store, ids, rate, permit }
//! ```
//!
//! A door speaks a protocol, and turns its logins into [`Evidence`]. All doors of a server share
//! one [`Access`], and with it failures, limits, quotas and the audit log: a peer that must wait at
//! one door must wait at the others too. To its server each is a [`Door`].
//!
//! This crate combines the mechanisms of [`xdfs_security`]. Nothing here depends on a protocol, the
//! engine or a driver. Time comes from a [`Clock`]. Two kinds of background threads fetch the keys
//! of issuers, and flush refusal counts to the audit log and look for calls that take long.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod admit;
mod audited;
mod clock;
mod door;
mod door_address;
mod findings;
mod group;
mod issuers;
mod keys;
mod layer;
mod login;
mod login_guard;
mod ongoing;
mod part;
mod password;
mod peer;
mod rates;
mod site;
mod stripes;
mod third_party;
mod tickets;
mod tunnels;

pub use access::{Access, Admission, Parts, Permit};
pub use admit::{Admit, CurrentAccess};
pub use clock::{Clock, SystemClock};
pub use door::{Door, DoorControl, Ended, OpenDoor};
pub use door_address::{DoorAddress, HostPort, ListensAt};
pub use findings::{Findings, SettingFault};
pub use keys::KeyLists;
pub use layer::StoreLayer;
pub use login::{Login, Standing};
pub use ongoing::Ongoing;
pub use password::PasswordExchange;
pub use peer::{Evidence, Peer};
pub use site::Site;
pub use third_party::ThirdPartyUser;
pub use tickets::Tickets;
pub use tunnels::TunnelUser;
