//! Doors: the protocols by which a server is reached, beside its own.
//!
//! A [`Door`] is a value with the settings of a protocol. A server checks it with its own settings,
//! opens it, runs it, reloads it and drains it ([`ServerBuilder::doors`]), and gives it its users,
//! rights, quotas, limits and audit log ([`Admit`]). So a protocol costs one crate, which needs
//! nothing of the server but the names in this module. The example `own_door` is one.
//!
//! Peers prove to a door who they are by [`Evidence`]; [`Access`] turns that into an [`Admission`],
//! whose store is all that the door serves.
//!
//! [`ServerBuilder::doors`]: crate::ServerBuilder::doors

mod running;
#[cfg(test)]
mod tests;
mod xdfs;

pub use xdfs_access::{
    Access, Admission, Admit, CurrentAccess, Door, DoorAddress, DoorControl, Ended, Evidence,
    Findings, HostPort, ListensAt, Login, OpenDoor, PasswordExchange, Peer, Permit, SettingFault,
    Site, Standing,
};
pub use xdfs_crowd::{Crowd, Network};
pub use xdfs_store::tally::Tally;

pub(crate) use running::{Opened, check_addresses, check_names, run};
pub(crate) use xdfs::{Entrance, XDFS, XdfsDoor};
