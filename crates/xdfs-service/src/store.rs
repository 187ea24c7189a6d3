//! The database: jobs, their transfers and what has happened to them.
//!
//! Every change of a state is one transaction, with its row in `transitions`. A change is computed
//! by [`State::after`] from the state that the transaction has read.

mod changes;
mod claims;
mod jobs;
mod manifests;
mod rows;
mod schedules;
mod sessions;
mod submissions;
mod terms;
mod tokens;
mod transfers;
mod webhooks;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{Connection as _, SqlSafeStr as _, Sqlite, SqlitePool};
use xdfs::{Code, Fault};

pub(crate) use self::changes::no_job;
pub(crate) use self::claims::Retries;
pub(crate) use self::manifests::Unlisted;
pub(crate) use self::schedules::no_schedule;
pub(crate) use self::sessions::Session;
pub(crate) use self::submissions::Idempotency;
pub(crate) use self::transfers::{End, Task};
pub(crate) use self::webhooks::{Delivery, DueWebhook};

/// A connection with the database.
type Connection = SqliteConnection;
/// A row of a result.
type Row = SqliteRow;
/// A transaction, which is rolled back unless it is committed.
type Transaction = sqlx::Transaction<'static, Sqlite>;

const OPERATION: &str = "use the database of the service";
/// Time that a statement waits for another process, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECTIONS_MAX: u32 = 8;
/// A writer takes the lock at its beginning: a transaction that reads first may find that what it
/// read has changed.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// The steps to the schema, each with its number: what both SQLite and PostgreSQL understand. One
/// that has been released is never changed.
const MIGRATIONS: [(i64, &str, &str); 6] = [
    (1, "jobs", include_str!("../migrations/0001_jobs.sql")),
    (2, "terms", include_str!("../migrations/0002_terms.sql")),
    (
        3,
        "schedules",
        include_str!("../migrations/0003_schedules.sql"),
    ),
    (
        4,
        "manifests",
        include_str!("../migrations/0004_manifests.sql"),
    ),
    (
        5,
        "webhooks",
        include_str!("../migrations/0005_webhooks.sql"),
    ),
    (6, "users", include_str!("../migrations/0006_users.sql")),
];

/// The database of a service.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    pool: SqlitePool,
}

/// Makes the file of the database, if there is none: for its owner alone, as SQLite makes the files
/// beside it then.
fn make(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

fn fault(error: impl Display) -> Fault {
    Fault::new(Code::Io, OPERATION, error.to_string())
}

impl Store {
    /// Opens the database in a file, makes it if there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// It can't be opened, or its schema is that of a newer version.
    pub(crate) async fn open(path: &Path) -> Result<Self, Fault> {
        make(path).map_err(|error| {
            Fault::from_io(OPERATION, path.as_os_str().as_encoded_bytes(), &error)
        })?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .foreign_keys(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            // SQLite itself rolls back on a full disk, which sqlx doesn't notice: it would begin no
            // other transaction on the connection.
            .before_acquire(|connection, _| {
                let is_free = !connection.is_in_transaction();
                Box::pin(async move { Ok(is_free) })
            })
            .connect_with(options)
            .await
            .map_err(|error| fault(error).path(path.as_os_str().as_encoded_bytes()))?;
        let store = Self { pool };
        store.migrate().await?;
        Ok(store)
    }

    async fn migrate(&self) -> Result<(), Fault> {
        let migrations = MIGRATIONS.iter().map(|&(version, name, text)| {
            let (kind, text) = (MigrationType::Simple, text.into_sql_str());
            Migration::new(version, name.into(), kind, text, false)
        });
        let migrations = Migrator::with_migrations(migrations.collect());
        let migrated = migrations.run(&self.pool).await;
        migrated.map_err(|error| match error {
            sqlx::migrate::MigrateError::VersionMissing(version) => {
                let cause = format!("its schema has version {version}, of a newer xdfs");
                Fault::new(Code::Unsupported, OPERATION, cause)
                    .hint("start the service with the version of xdfs that it had before")
            }
            error => fault(error),
        })
    }

    async fn begin(&self) -> Result<Transaction, Fault> {
        self.pool.begin_with(BEGIN).await.map_err(fault)
    }

    /// Ends the use of the database.
    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

#[cfg(test)]
mod tests;
