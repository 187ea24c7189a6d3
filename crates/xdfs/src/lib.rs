//! xdfs: move files between machines over n parallel channels, resumable and verified.
//!
//! [`Server`] serves a directory; [`Client`] opens a session with one and starts transfers. A
//! [`Transfer`] is a handle with progress events, [`Transfer::cancel`] and [`Transfer::wait`].
//! [`Client::upload_tree`] and [`Client::download_tree`] copy whole directories,
//! [`Client::sync_to`] and [`Client::sync_from`] what differs of them.
//! [`Client::call`] and [`Client::list`] look at the paths of the server and change them, and a
//! [`RemoteFile`] is a file there that is worked on in place.
//! Everything blocks at heart: the engine has its own threads.

#![forbid(unsafe_code)]

mod client;
mod files;
mod paths;
mod recognition;
mod remote;
pub mod security;
mod server;
mod sinks;
mod transfer;
mod tree;

pub use client::{Client, ClientOptions};
pub use files::{FileIdentity, HeldLock, LockRange, OpenOptions, RemoteFile};
pub use paths::{Answer, Attributes, Call, Entry, FileKind, Listing, PendingCall};
pub use remote::{Address, DEFAULT_PORT, Invitation, RemotePlace};
pub use server::{Server, ServerBuilder, ServerHandle};
pub use transfer::{LimitedBy, LocalPlace, Progress, Transfer, TransferOptions, TransferResult};
pub use tree::{
    Compare, Durability, Filter, FilterRule, Observer, SyncOptions, SyncResult, SyncStep,
    TreeCounts, TreeEvent, TreeOptions, TreeResult,
};
pub use xdfs_proto::{Code, DigestKind, DigestValue, Fault, Limits, Retry, Side};

/// The README's code, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
