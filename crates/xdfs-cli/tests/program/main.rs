//! Tests of the real program: processes, sockets, files and signals on this machine.
//!
//! Each test has a fresh temporary directory and servers on port 0; nothing is shared, and every
//! wait has a bound.

#![expect(
    clippy::unwrap_used,
    reason = "a test ends where something can't be done"
)]

#[cfg(target_os = "linux")]
mod accounts;
#[cfg(target_os = "linux")]
mod admin_page;
#[cfg(unix)]
mod agent;
#[cfg(unix)]
mod all_exports;
#[cfg(unix)]
mod believed;
#[cfg(target_os = "linux")]
mod changing;
#[cfg(unix)]
mod check;
#[cfg(unix)]
mod chosen;
#[cfg(target_os = "linux")]
mod closed;
#[cfg(target_os = "linux")]
mod completed;
mod copy;
#[cfg(target_os = "linux")]
mod deep;
#[cfg(target_os = "linux")]
mod deletes;
mod demo;
#[cfg(unix)]
mod drivers;
#[cfg(target_os = "linux")]
mod far;
#[cfg(target_os = "linux")]
mod full;
mod generated;
#[cfg(unix)]
mod guide;
#[cfg(unix)]
mod here;
#[cfg(unix)]
mod interrupted;
mod json;
#[cfg(unix)]
#[path = "../../../xdfs-xio/tests/support/library.rs"]
mod library;
#[cfg(unix)]
mod links;
mod logged;
mod many;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(unix)]
mod modes;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(unix)]
mod moved;
#[cfg(target_os = "linux")]
mod odd_system;
#[cfg(target_os = "linux")]
mod offload;
#[cfg(target_os = "linux")]
mod operator;
#[cfg(target_os = "linux")]
mod owners;
#[cfg(unix)]
mod partial;
#[cfg(unix)]
mod paths;
mod perf;
#[cfg(unix)]
mod pipes;
#[cfg(target_os = "linux")]
mod power;
mod reconnect;
#[cfg(target_os = "linux")]
mod relay;
mod relay_ahead;
mod relay_hops;
mod relay_hostile;
mod relay_many;
#[cfg(unix)]
mod relay_seen;
#[cfg(target_os = "linux")]
mod relay_trees;
#[cfg(target_os = "linux")]
mod reload;
#[cfg(unix)]
mod remotes;
#[cfg(unix)]
mod replicas;
mod resume;
mod round_trips;
mod serve;
#[cfg(unix)]
mod shell;
#[cfg(target_os = "linux")]
mod ssh;
#[cfg(target_os = "linux")]
mod sshftp;
#[cfg(target_os = "linux")]
mod sshftp_client;
mod stacks;
#[cfg(target_os = "linux")]
mod stripes;
#[cfg(target_os = "linux")]
mod stripes_apart;
#[cfg(target_os = "linux")]
mod stripes_trees;
#[cfg(target_os = "linux")]
mod stripes_up;
mod support;
#[cfg(unix)]
mod sync;
#[cfg(target_os = "linux")]
mod third_party;
#[cfg(target_os = "linux")]
mod third_party_apart;
#[cfg(target_os = "linux")]
mod third_party_trees;
mod times;
#[cfg(unix)]
mod trees;
mod tune;
#[cfg(target_os = "linux")]
mod tunnel;
#[cfg(target_os = "linux")]
mod typed;
#[cfg(target_os = "linux")]
mod unheard;
#[cfg(target_os = "linux")]
mod unprivileged;
#[cfg(unix)]
mod unreadable;
mod usage;
#[cfg(target_os = "linux")]
mod verdict;
#[cfg(target_os = "linux")]
mod waived;
mod who;
mod within;
mod xioperf;
