//! xdfs: move files between machines over n parallel channels, resumable and verified.
//!
//! ```text
//!   Queue          jobs for any servers: sessions, limits on what runs, retries
//!     |  starts
//!   Client         one session with a server; everything below happens in it, at the same time
//!     |-- Transfer       a file on its way        upload, download, upload_from, download_to
//!     |-- TreeResult     a directory, as a whole  upload_tree, download_tree, sync_to, sync_from
//!     |-- PendingCall    a question or a change   call, start_call; list gives a Listing
//!     '-- RemoteFile     a file worked on there   open_file
//!   Observer       hears how transfers, trees and queues go on
//!   Server         serves a directory to clients
//! ```
//!
//! - A [`Server`] serves a directory. A [`RemotePlace`] names a path on one.
//! - A [`Client`] opens a session and has a thread for it. Nothing is asked in advance: a server
//!   that can't be reached shows in the first thing that is wanted of it.
//! - A [`Transfer`] is a handle: wait for it, ask it for progress, cancel it, or await it. Files
//!   get their names when they are complete, verified and durable; what was broken off goes on.
//! - A [`Queue`] is for more than one file, or for as long as it takes: it keeps sessions, starts
//!   so many transfers at once, and tries again what may pass.
//! - Trees ([`Client::upload_tree`], [`Client::sync_to`], ...) move many files as one, small ones
//!   in packs, and keep a journal if they are given a folder for it.
//! - [`Client::call`] and [`Client::list`] look at paths of the server and change them; a
//!   [`RemoteFile`] has the traits of the standard library.
//! - An [`Observer`] hears what happens. Every error is a [`Fault`]: which side, which operation,
//!   which path, why, what can be done, and whether trying again makes sense.
//! - Programs bring stores of their own by [`store`] and drivers by [`drivers`], and say who may
//!   come in by [`security`].
//!
//! Everything that waits can be waited for in a thread. Transfers and calls are also futures, which
//! need no particular runtime; the engine has its own threads in both cases.
//!
//! ```
//! use std::path::Path;
//! use xdfs::{Client, ClientOptions, LocalPlace, RemotePlace, ServerBuilder, TransferOptions};
//!
//! fn copy(file: &Path, root: &Path) -> Result<u64, xdfs::Fault> {
//!     let server = ServerBuilder {
//!         listen: vec!["127.0.0.1:0".parse()?],
//!         root: root.into(),
//!         ..ServerBuilder::default()
//!     };
//!     let server = server.bind()?;
//!     let place: RemotePlace = format!("xdfs://{}/copy", server.addresses()[0]).parse()?;
//!     let handle = server.handle();
//!     let serving = std::thread::spawn(move || server.run());
//!
//!     let client = Client::connect(&place, ClientOptions::default())?;
//!     let source = LocalPlace::Path(file.into());
//!     let transfer = client.upload(&source, &place.path, &TransferOptions::default())?;
//!     let result = transfer.wait()?;
//!
//!     client.close();
//!     handle.shutdown();
//!     serving.join().expect("the server does not panic")?;
//!     Ok(result.bytes)
//! }
//! # let folder = tempfile::tempdir().unwrap();
//! # let [file, root] = ["file", "root"].map(|name| folder.path().join(name));
//! # std::fs::write(&file, "content").unwrap();
//! # std::fs::create_dir(&root).unwrap();
//! # assert_eq!(copy(&file, &root).unwrap(), 7);
//! # assert_eq!(std::fs::read(root.join("copy")).unwrap(), b"content");
//! ```
//!
//! The folder `examples` of this crate has a program for each of the parts.

#![forbid(unsafe_code)]

mod client;
pub mod drivers;
mod events;
mod files;
mod mtime;
mod paths;
mod queue;
mod recognition;
mod remote;
pub mod security;
mod seeding;
mod server;
mod session;
mod session_end;
mod sinks;
mod stack;
pub mod store;
mod transfer;
mod tree;

pub use client::{Client, ClientOptions};
pub use events::{
    LimitedBy, Observer, Progress, QueueEvent, Silent, SyncStep, TransferResult, TreeCounts,
    TreeEvent, TreeResult,
};
pub use files::{FileIdentity, HeldLock, LockRange, OpenOptions, RemoteFile};
pub use paths::{Answer, Attributes, Call, Entry, FileKind, Listing, PendingCall};
pub use queue::{Job, Queue, QueueOptions};
pub use remote::{Address, DEFAULT_PORT, Invitation, RemotePlace};
pub use server::{Server, ServerBuilder, ServerHandle};
pub use transfer::{LocalPlace, Transfer, TransferOptions, TransferRoute};
pub use tree::{Compare, Durability, Filter, FilterRule, SyncOptions, SyncResult, TreeOptions};
pub use xdfs_proto::{Code, DigestKind, DigestValue, Fault, Limits, Retry, Side};

/// The README's code, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
