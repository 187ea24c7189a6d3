//! The transfer service: jobs are submitted over HTTP, kept in a database, done by the library, and
//! shown while they run.
//!
//! ```text
//!   api, page      requests and answers          client     the same from a program
//!      |  access, problem, watch
//!   service        the folder, the listener
//!      |
//!   worker         takes jobs, follows the library's copies
//!      |  sessions, live
//!   store          SQLite, PostgreSQL
//!      |
//!   state          the states of a job, without input or output
//! ```
//!
//! The service owns no mover: a transfer is an [`xdfs::Job`], which runs in threads of the library.
//! Rows of the database are written after what they say has happened. A transfer in the middle of
//! which a process was killed continues from the journals of the mover in the next process.

#![forbid(unsafe_code)]
// They panic where the descriptor can't be written.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
#[expect(unused_qualifications, reason = "in what utoipa makes of parameters")]
mod api;
mod bodies;
mod channel;
mod client;
mod concurrency;
mod curve;
mod database;
mod deliveries;
mod etag;
mod exact;
mod failure;
mod id;
mod inventory;
mod lease;
mod lines;
mod listed;
mod listen;
mod live;
mod logins;
mod manifest;
mod manifest_body;
mod metrics;
mod model;
mod openapi;
mod page;
mod places;
mod problem;
mod routes;
mod rule;
mod scheduler;
mod secret;
mod secrets;
mod service;
mod sessions;
mod shared;
mod spec;
mod state;
mod store;
mod strangers;
mod tally;
mod time;
mod tls;
mod tokens;
mod upkeep;
mod watch;
mod webhook;
mod whose;
mod worker;

pub use access::{
    Challenge, KeyLogin, KeySession, NewToken, Scope, ServiceUsers, Token, TokenPage, TokenRequest,
};
pub use client::{ServiceClient, ServiceLogin, is_of_this_machine, read_metrics, running_url};
pub use curve::Curve;
pub use database::DatabaseUrl;
pub use failure::Failure;
pub use id::{JobId, ScheduleId};
pub use listed::{Cursor, FilePath, JobFile, ListedFile};
pub use manifest::{Manifest, manifest_key_file, read_manifest_key};
pub use model::{
    Counts, Decision, EntryFailure, FailurePage, FilePage, JobDetail, JobPage, JobSummary,
    LinkState, Links, Schedule, SchedulePage, ServerOutage, Transfer, TransferPage, TransferState,
    Transition, Webhook, WebhookState,
};
pub use places::{PlaceEntry, PlaceKind, PlaceListing};
pub use secret::{SecretInfo, SecretKind};
pub use secrets::{SecretPage, SecretRequest};
pub use service::{JobLimits, Service, ServiceHandle, ServiceOptions, TlsListener, backup};
pub use sessions::Sessions;
pub use spec::{JobSettings, ScheduleSubmission, Submission};
pub use state::{Actor, Change, Rest, State, StateName, WorkerId};
pub use time::{Moment, Time, parse_duration};
pub use webhook::{WebhookOptions, WebhookSecret};
