//! GridFTP: `xdfs serve --gridftp` with the real tools, and with peers that break the rules.
//!
//! Each test has a directory and a server of its own on free loopback ports, and every wait has a
//! bound.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod careless;
mod client;
mod fake;
mod far;
mod few_sessions;
mod ftps;
#[cfg(feature = "gsi")]
mod grid;
#[cfg(feature = "gsi")]
mod gsi;
#[cfg(feature = "gsi")]
mod gsi_between;
#[cfg(feature = "gsi")]
mod gsiftp;
mod hostile;
mod hostile_servers;
mod left_out;
mod listed;
mod lists;
mod losses;
mod mode_t;
mod mode_x;
mod nodes;
mod nodes_apart;
mod older_tls;
mod places;
mod plain;
mod proxy;
mod relay;
mod resume;
mod routes;
mod rules;
mod security;
mod shell;
mod stage;
mod stores;
mod stripes;
mod sync_between;
mod sync_segments;
mod sync_stripes;
mod third_party;
mod tls_breaks;
mod tls_tools;
mod tools;
mod v2;
mod wildcards;
