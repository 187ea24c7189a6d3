//! xdfs: move files between machines over n parallel channels, resumable and verified.
//!
//! ```text
//!   Job            a file, tree, synchronisation or removal as a value, with a text form
//!   Queue          files of any servers: sessions, limits, retries
//!     |  starts
//!   Client         one session with a server; everything below happens in it, at the same time
//!     |-- Transfer       one file                 upload, download, upload_from, download_to
//!     |-- TreeResult     a directory tree         upload_tree, download_tree, sync_to, sync_from
//!     |-- PendingCall    a call about a path      call, start_call; list returns a Listing
//!     '-- RemoteFile     an open file             open_file
//!   Tunnel         local ports whose connections travel through a server
//!   Observer       receives events of transfers, trees and queues
//!   Server         serves a directory to clients
//! ```
//!
//! - A [`Server`] serves a directory. A [`RemotePlace`] names a path on one.
//! - A [`Client`] opens a session and has a thread for it. It doesn't wait for the server: an
//!   unreachable server shows in the first transfer or call.
//! - A [`Transfer`] is a handle: wait for it, poll its progress, cancel it, or await it. Files are
//!   published when they are complete, verified and durable; interrupted transfers resume.
//! - A [`Queue`] copies several files, or one with retries: it keeps sessions, limits concurrent
//!   transfers, and retries transient failures.
//! - A [`Job`] is a value that can be written as JSON and read again. [`Job::start`] runs it in a
//!   thread; a [`RunningJob`] is waited for, polled, cancelled or awaited like a transfer.
//! - Trees ([`Client::upload_tree`], [`Client::sync_to`], ...) move many files in one call, small
//!   ones in packs. Copies keep a journal if they are given a folder for it.
//! - [`Client::call`] and [`Client::list`] inspect and change paths on the server, [`call_local`]
//!   those of this machine; a [`RemoteFile`] implements the I/O traits of the standard library.
//! - [`operations`] are more than a call, on either side: searching and comparing trees, digests,
//!   removing the sources of copies, patterns of names, planning copies.
//! - [`tune()`] measures which number of channels and which window suit the path to a server.
//! - An [`Observer`] receives events. Every error is a [`Fault`]: side, operation, path, cause,
//!   remedy, and whether a retry makes sense.
//! - A server of an `ssh://` place is started when a session with it is opened ([`ssh`]).
//! - [`settings`] finds a user's keys, named servers and credentials.
//! - [`record`] is the JSON form of events and results, and [`metrics`] the text of figures.
//! - Programs can add their own stores ([`store`]) and drivers ([`drivers`]). Authentication and
//!   access control are in [`security`].
//!
//! All waiting can be done by blocking a thread. Transfers and calls are also futures, for any
//! runtime; the engine has its own threads in both cases.
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
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod between;
mod client;
mod data_node;
pub mod doors;
pub mod drivers;
mod events;
mod expiry;
mod files;
mod forwarding;
mod ftp;
mod gateway;
#[cfg(feature = "gsi")]
pub mod gsi;
mod here;
mod job;
mod local_path;
mod made_file;
pub mod metrics;
mod mtime;
pub mod operations;
mod paths;
mod queue;
mod recognition;
mod reconnecting_session;
pub mod record;
mod registry;
mod relay;
mod remote;
mod replicas;
mod retry;
mod scheme;
pub mod security;
mod seeding;
mod server;
mod session;
mod session_end;
pub mod settings;
mod sinks;
mod skip;
pub mod ssh;
mod ssh_session;
mod stack;
mod stack_perf;
pub mod store;
mod text;
mod third_party;
mod transfer;
mod tree;
mod tune;
mod tunnel;
mod url;
pub mod words;

pub use between::{DetachedCopy, ServerFile, Way};
pub use client::{Client, ClientOptions};
pub use data_node::{DataNode, DataNodeHandle, DataNodeSettings};
pub use events::{
    Deletion, FilePace, LimitedBy, Observer, Passage, Progress, QueueEvent, Silent, SyncStep,
    TimeShares, TimeSum, TransferResult, TreeActivity, TreeCounts, TreeEvent, TreeResult,
};
pub use files::{
    FileBytes, FileIdentity, FileRange, FileRanges, HeldLock, LockRange, OpenOptions,
    PendingRanges, RemoteFile,
};
pub use ftp::FtpSettings;
pub use job::{
    FileJob, Job, JobEvent, JobPlace, JobResult, RemoveJob, RunningJob, SyncJob, TreeJob,
};
pub use made_file::MadeFile;
pub use mtime::time_warning;
pub use paths::{
    Account, AccountNames, Answer, Attributes, Call, Entry, FileKind, Listing, OwnerNames,
    PartialFile, PendingAccountNames, PendingCall, call_local, known_time,
};
pub use queue::{FileCopy, Queue, QueueOptions};
pub use registry::register_scheme;
pub use relay::{RelayRoute, RelaySettings, new_parcel_id};
pub use remote::{Address, DEFAULT_PORT, Invitation, Listen, RemotePlace};
pub use replicas::{
    FileVersion, ReplicaLog, ReplicaSet, ReplicaShare, Replicas, STRIPED_BYTES_MIN,
};
pub use retry::{ReconnectEvent, ReconnectObserver, RetryPolicy};
pub use scheme::{
    LoginBy, OpenPlace, Opening, Paths, PlaceRequest, PlaceSetting, PlaceSettings,
    RegisteredScheme, Scheme, ServerRoute, StartServer, StartedServer, Stop,
};
pub use server::{Reloaded, Server, ServerBuilder, ServerHandle};
pub use skip::Skip;
pub use stack_perf::{
    MESSAGE_BYTES_MAX, PerfCase, PerfIdentity, PerfListener, PerfPattern, PerfSample, PerfStack,
};
pub use transfer::{LocalPlace, Transfer, TransferOptions, TransferRoute};
pub use tree::{
    Compare, DeletionConsent, DeletionRisk, Durability, FileLimits, Filter, FilterRule,
    GatheredTree, PendingSmallFiles, SmallFile, SmallSource, SyncOptions, SyncResult, TreeOptions,
    TreeStripes,
};
pub use tune::{
    KernelLimits, MeasuredPath, TuneAdvice, TuneEnd, TuneOptions, TunePhase, TuneReport,
    TuneSample, TuneSetting, tune,
};
pub use tunnel::{Forward, Host, Tunnel, TunnelNews, TunnelPlan, TunnelPort, TunnelTarget};
pub use xdfs_engine::{ChannelsReason, PathClass, PathDecision, TransferParameters};
pub use xdfs_gridftp::client::{NodeAddresses, Stripes};
#[cfg(unix)]
pub use xdfs_gridftp::door::GridftpOverSsh;
pub use xdfs_gridftp::door::{
    GRIDFTP_PORT, GridftpNode, GridftpSettings, node_address as gridftp_node_address,
    server_address as gridftp_address,
};
pub use xdfs_proto::frame::Resume;
pub use xdfs_proto::relay::{
    ListedParcel, PARCEL_LIFE_S_MAX, ParcelEnd, ParcelList, ParcelName, ParcelOrder, ParcelQuery,
    ParcelState, ParcelStatus, RELAYS_MAX, RelayId, parcel_path,
};
pub use xdfs_proto::third_party::{CopyId, CopyState, CopyStatus};
pub use xdfs_proto::{
    ChecksumKind, ChecksumValue, Code, DigestKind, DigestValue, Fault, Limits, Machine, Quoting,
    Retry, Side, quoted,
};
pub use xdfs_store::NamePattern;
pub use xdfs_store::stream::{fault as stream_fault, is_unread};
pub use xdfs_sys::limit::raise_descriptor_limit;
pub use xdfs_sys::program;
pub use xdfs_sys::standard::{Input as StandardInput, Output as StandardOutput};
pub use xdfs_xio::{ListeningSocket, PathSample};
