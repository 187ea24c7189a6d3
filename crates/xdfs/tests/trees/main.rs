//! Whole trees, by a real client of a real server, both ways.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "../support/mod.rs"]
mod support;

#[cfg(target_os = "linux")]
mod alike;
mod beside;
mod between;
#[cfg(target_os = "linux")]
mod closed;
mod delta;
mod holes;
mod journal;
mod kept;
#[cfg(target_os = "linux")]
mod links;
mod older;
#[cfg(target_os = "linux")]
mod order;
#[cfg(unix)]
mod owners;
mod picture;
mod refused;
mod scene;
mod swap;
mod sync;
#[cfg(target_os = "linux")]
mod unkept;
