//! A deterministic simulation for tests: whole clients and servers in one thread, from one seed.
//! Not published.
//!
//! - [`World`] holds what a run shares: its [`Course`] with the clock, the seed's [`Random`], the
//!   trace and the counts; the network; the workers.
//!   [`World::environment`] is what engines of the world take time and workers from.
//! - [`Scheduler`] gives their tasks turns in an order of chance, and moves the clock.
//! - [`network`] has channels with latency, rates and little room, that stall, break at any byte,
//!   fall silent, and change bytes; [`transport`] is how engines use them.
//! - [`store`] has disks that forget what was not synchronised, fail, and fill up.
//!
//! A test makes a world from a seed, adds its tasks, calls [`Scheduler::round`] until it has what
//! it waits for, and then asks [`World::violations`]. The same seed does the same, whatever the
//! machine: [`Course::trace`] is a digest of all that happened. Nothing here waits or starts
//! threads, so that runs may be in as many threads as there are processors.
//!
//! Not simulated: two threads at the same moment. A turn is never interrupted by another task.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a run that fails has failed")]

mod course;
pub mod network;
mod random;
mod scheduler;
pub mod store;
pub mod transport;
mod world;

pub use course::Course;
pub use random::{Random, mix};
pub use scheduler::Scheduler;
pub use world::{Held, Host, World};
