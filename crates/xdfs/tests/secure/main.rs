//! Sessions over protected channels, through the library: who comes in, whom a client believes, and
//! what somebody in between can do.

#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[cfg(target_os = "linux")]
mod accounts;
mod audit;
mod capabilities;
mod certificates;
mod channels;
mod flood;
mod forger;
mod group;
mod guard;
mod issuers;
mod join;
mod level;
mod methods;
mod middle;
mod rates;
mod raw;
mod refusals;
mod rights;
mod server_identity;
mod strangers;
mod stripes;
mod tokens;
mod unprotected;
mod world;
