//! Fault injection and other tools for tests of xdfs. Not published.
//!
//! - `folding::FoldingDisk` (on Linux, feature `fuse`) is a file system that doesn't tell names
//!   apart which differ in case.
//! - `nobody` (on Unix; to act, on Linux) does as an ordinary user what root would be allowed.
//! - `powercut::Disk` (on Linux, feature `fuse`) is a disk that forgets at a power cut what was not
//!   flushed.
//! - `postgres::Postgres` (on Unix) is a PostgreSQL of its own.
//! - [`proxy::FaultProxy`] stands between a client and a server and breaks what passes through, as
//!   [`proxy::DatagramProxy`] does over UDP.
//! - `recorder::Recorder` (feature `store`) is a store that shows what a layer over it passes on.
//! - `stores` (feature `store`) are the cases that every store with paths has to pass.
//! - [`strangers::Strangers`] are connections that say nothing.
//! - `sshd::Sshd` (on Unix) is an sshd on loopback with keys of its own.
//! - `terminal::Terminal` (on Linux) runs a program at a terminal and types.
//! - [`skip`] tells that a test can't run on this machine.
//! - [`tree::TempTree`] makes files whose content follows from a seed.
//! - [`process::Guard`] runs a program and never outlives its test.
//! - [`wait::until`] waits for a fact, with a deadline.
//! - [`warnings`] keeps those in the log of this process.
//! - `wan::Wan` (on Linux) is two hosts of their own with a long, narrow or lossy link between
//!   them.
//! - [`web::Web`] is a web server that answers what the test says.
//!
//! Everything binds port 0 on loopback or stays in network namespaces of its own, is bounded in
//! time, and ends its threads and processes when dropped. Nothing here but `stores` panics on what
//! a tested program does; the test decides.

#![forbid(unsafe_code)]

#[cfg(all(target_os = "linux", feature = "fuse"))]
pub mod folding;
#[cfg(target_os = "linux")]
pub mod machines;
#[cfg(unix)]
pub mod nobody;
#[cfg(unix)]
pub mod postgres;
#[cfg(all(target_os = "linux", feature = "fuse"))]
pub mod powercut;
pub mod process;
pub mod proxy;
#[cfg(feature = "store")]
pub mod recorder;
pub mod skip;
#[cfg(unix)]
pub mod sshd;
#[cfg(feature = "store")]
pub mod stores;
pub mod strangers;
#[cfg(target_os = "linux")]
pub mod terminal;
pub mod tree;
pub mod wait;
#[cfg(target_os = "linux")]
pub mod wan;
pub mod warnings;
pub mod web;
