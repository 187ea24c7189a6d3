//! Sender and receiver machines against each other, over simulated channels, stores and time.
//!
//! - `random`: some thousand seeds of random schedules with breaks, crashes, damage and failures.
//! - `directed_sender`, `directed_receiver`: one test for each rule, named by its number in the
//!   specification.
//!
//! A failing seed is printed; `XDFS_SIM_SEED=N cargo test -p xdfs-proto --test pair random` runs
//! it alone and prints its steps. `XDFS_SIM_SEEDS=N` changes how many are run.

mod directed_receiver;
mod directed_sender;
mod link;
mod random;
mod rng;
mod store;
mod world;
