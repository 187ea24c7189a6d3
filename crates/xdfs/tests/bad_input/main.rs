//! Everything that a hostile or unlucky peer, user or file system does, against a real server and
//! a real client: each case gives a fault that names side, operation, path and cause, leaves the
//! previous target as it was and nothing half-written under its name, and the server goes on
//! serving others.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod blocks;
mod calls;
#[cfg(unix)]
mod cancelled;
mod changing;
mod ending;
#[cfg(unix)]
mod last_packs;
mod leaving;
mod listings;
mod names;
mod opening;
mod peer;
#[cfg(unix)]
mod places;
mod rules;
mod silent;
mod sizes;
#[cfg(target_os = "linux")]
mod space;
mod stage;
