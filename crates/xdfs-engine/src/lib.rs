//! The parallel I/O dispatcher (PIOD): one [`pipeline`] thread per session drives all its channels
//! by event dispatch, with one handle per file and no locks on the data path.
//!
//! - [`pipeline`]: the session's thread. It passes events to the machines of `xdfs-proto` and
//!   executes their outputs.
//! - `storage`: the thread that writes what a session receives, and makes it durable, and those
//!   that publish files beside it; `work_queue` hands them their work.
//! - `call_workers`: the threads that answer its calls about paths and files; `store_workers`:
//!   those that read and write packs of small files, and open sources and sinks of slow stores.
//! - `files`: open files and locks.
//! - [`acceptor`]: the thread that listens and opens channels until they belong to a session.
//! - [`environment`]: time, threads and random bytes.
//! - [`kernel`]: how a pipeline waits; replaceable.
//! - `path_decision`: decisions about the network path, for the log and the user.
//! - [`mailbox`]: the queue of events to the user of a transfer or a call.
//! - `memory`: the budget for the buffers of all sessions of a server.
//! - [`security`]: the traits by which peers authenticate.
//! - `tally`: the figures of a server, for its metrics.
//! - [`tunnel`]: channels that are byte streams to targets beyond the server.
//!
//! The crate `xdfs` offers a more convenient interface to it.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(
    test,
    expect(clippy::disallowed_methods, reason = "tests wait for real threads")
)]

pub mod acceptor;
mod call_workers;
mod channel;
pub mod command;
mod cost;
mod disk_writers;
pub mod environment;
mod feeder;
mod files;
mod guard;
pub mod kernel;
pub mod mailbox;
mod memory;
mod path_decision;
pub mod pipeline;
mod pool;
mod rate;
mod reader;
pub mod security;
mod storage;
mod store_workers;
mod tally;
pub mod tunnel;
mod verdict;
mod work_queue;

pub use acceptor::{Acceptor, AcceptorConfig, AcceptorControl, AccessPolicy};
pub use command::{
    CallPart, CallSpec, Command, Commands, DownloadSpec, Outcome, Passage, Progress, TransferEvent,
    TransferParameters, TransferSpec, UploadSpec,
};
pub use environment::{Environment, Task, Turn};
pub use files::Files;
pub use memory::MemoryBudget;
pub use path_decision::{ChannelsReason, PathClass, PathDecision, PathDecisions};
pub use pipeline::{Dial, Pipeline, Route};
pub use security::{Gate, Identity, PeerGuard, Proof, SessionGrant, Standing, Verdict};
pub use store_workers::{PackSource, Spares};
pub use tally::{Activity, ServerTally};
pub use verdict::{LimitedBy, TimeShares, TimeSum};
