//! A relay: takes files for other servers, and delivers them when these are up.
//!
//! ```text
//!   RelayStore      a layer of a user's store: takes parcels, and answers calls about them
//!   Routes          another one, at all doors: a file that is put becomes a parcel
//!       |
//!     Relay         the spool, and the attempts of this process
//!       |
//!   Deliverer       threads: which parcel is due, and which target is down
//!       |
//!   delivery        one attempt: upload to a hidden name, then rename
//!   onward          or to the next relay, and what becomes of it there
//!   steps           what is decided in all of these
//! ```
//!
//! The relay is a client of the other server, with the keys and the known servers of the user who
//! runs it. What it connects to is bounded by the rules for copies with other servers.

mod attempt;
mod calls;
mod clock;
mod deliverer;
mod delivery;
mod figures;
mod links;
#[cfg(test)]
mod model;
mod onward;
mod order;
mod parcels;
mod route;
mod routes;
mod schedule;
mod sending;
mod steps;
mod store;
mod tally;
mod target;
mod tree_place;

pub use calls::new_parcel_id;
pub(crate) use deliverer::Deliverer;
pub(crate) use parcels::Relay;
pub use parcels::RelaySettings;
pub use route::RelayRoute;
pub(crate) use routes::Routes;
pub(crate) use store::RelayStore;
