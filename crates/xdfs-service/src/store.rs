//! The database: jobs, their transfers and what has happened to them.
//!
//! Every change of a state is one transaction, with its row in `transitions`. A change is computed
//! by [`State::after`](crate::State::after) from the state that the transaction has read.
//!
//! The statements are the same for SQLite and PostgreSQL. In a transaction of PostgreSQL others may
//! change what was read, so a row is locked by an update before it is read.

mod backup;
mod batches;
mod changes;
mod claims;
mod curves;
mod figures;
mod jobs;
mod leases;
mod manifests;
mod open;
mod rows;
mod schedules;
mod scheduling;
mod secrets;
mod sessions;
mod states;
mod submissions;
mod targets;
mod terms;
mod tokens;
mod transfers;
mod webhooks;
mod writing;

use std::fmt::Display;
use std::sync::Arc;

use sqlx::any::AnyRow;
use sqlx::error::ErrorKind;
use sqlx::{Any, AnyConnection, AnyPool};
use tokio::sync::Mutex;
use xdfs::{Code, Fault, Retry};

use self::open::Engine;
use self::writing::Group;

pub(crate) use self::backup::backup;
pub(crate) use self::claims::Retries;
pub(crate) use self::figures::Stored;
pub(crate) use self::manifests::Unlisted;
pub(crate) use self::schedules::no_schedule;
pub(crate) use self::scheduling::Claimed;
pub(crate) use self::sessions::Session;
pub(crate) use self::states::no_job;
pub(crate) use self::submissions::{Idempotency, Submitted};
pub(crate) use self::transfers::{End, Task};
pub(crate) use self::webhooks::{Delivery, DueWebhook};

/// A connection with the database.
type Connection = AnyConnection;
/// A row of a result.
type Row = AnyRow;
/// A transaction that only reads.
type Reading = sqlx::Transaction<'static, Any>;

const OPERATION: &str = "use the database of the service";
/// Pause until the database is tried again.
const RETRY_AFTER_MS: u32 = 1000;

/// The database of a service.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: AnyPool,
    engine: Engine,
    /// That of SQLite.
    group: Option<Arc<Mutex<Group>>>,
}

/// A failure of the database.
fn fault(error: sqlx::Error) -> Fault {
    let fault = odd(match &error {
        sqlx::Error::PoolTimedOut => "it doesn't answer, or has no connection free".to_owned(),
        sqlx::Error::Database(error) => error.to_string(),
        error => error.to_string(),
    });
    match may_pass(&error) {
        true => fault.retry(Retry::AfterMs(RETRY_AFTER_MS)),
        false => fault,
    }
}

/// Whether the same statement may succeed later: the database is away, full or at its limits. One
/// that it doesn't understand will never do.
fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) if error.kind() != ErrorKind::Other => false,
        sqlx::Error::Database(error) => {
            let code = error.code().unwrap_or_default();
            // Of PostgreSQL, five characters: connections, lost transactions, resources, operators,
            // the system. Of SQLite a number, whose low byte is 1 for an error in a statement.
            match code.parse::<u32>() {
                Ok(number) if code.len() < 5 => number & 0xff != 1,
                _ => ["08", "25", "40", "53", "57", "58"]
                    .iter()
                    .any(|class| code.starts_with(class)),
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    }
}

/// What the database has isn't as it should be.
fn odd(cause: impl Display) -> Fault {
    Fault::new(Code::Io, OPERATION, cause.to_string())
}

#[cfg(test)]
mod tests;
