//! Calls about paths, by a real client of a real server: each does there what it does on a local
//! store, once, while channels break and files move in the same session.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "../support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
mod accounts;
#[cfg(unix)]
mod broken;
#[cfg(unix)]
mod each;
#[cfg(unix)]
mod many;
mod place;
#[cfg(unix)]
mod random;
mod refused;
