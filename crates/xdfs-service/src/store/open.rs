//! The opening of a database: a file of SQLite, or PostgreSQL.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AnyPool, ConnectOptions as _, Connection as _, Executor as _, SqlSafeStr as _};
use tokio::sync::Mutex;
use xdfs::{Code, Fault, RemotePlace};

use super::writing::{Group, SQLITE_SETTINGS};
use super::{OPERATION, Reading, Store, fault};
use crate::database::DatabaseUrl;

/// Connections of a process. SQLite has one writer at a time.
pub(super) const CONNECTIONS_MAX: u32 = 8;
/// Time that a request waits for a connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// The steps to the schema, each with its number: what both SQLite and PostgreSQL understand. One
/// that has been released is never changed.
const MIGRATIONS: [(i64, &str, &str); 15] = [
    (1, "jobs", include_str!("../../migrations/0001_jobs.sql")),
    (2, "terms", include_str!("../../migrations/0002_terms.sql")),
    (
        3,
        "schedules",
        include_str!("../../migrations/0003_schedules.sql"),
    ),
    (
        4,
        "manifests",
        include_str!("../../migrations/0004_manifests.sql"),
    ),
    (
        5,
        "webhooks",
        include_str!("../../migrations/0005_webhooks.sql"),
    ),
    (6, "users", include_str!("../../migrations/0006_users.sql")),
    (
        7,
        "leases",
        include_str!("../../migrations/0007_leases.sql"),
    ),
    (
        8,
        "secrets",
        include_str!("../../migrations/0008_secrets.sql"),
    ),
    (
        9,
        "counts",
        include_str!("../../migrations/0009_counts.sql"),
    ),
    (
        10,
        "scheduler",
        include_str!("../../migrations/0010_scheduler.sql"),
    ),
    (
        11,
        "limits",
        include_str!("../../migrations/0011_limits.sql"),
    ),
    (12, "lists", include_str!("../../migrations/0012_lists.sql")),
    (13, "due", include_str!("../../migrations/0013_due.sql")),
    (
        14,
        "servers",
        include_str!("../../migrations/0014_servers.sql"),
    ),
    (15, "files", include_str!("../../migrations/0015_files.sql")),
];

/// The database that a process has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// A file that one process has at a time.
    Sqlite,
    /// It may be shared by several processes.
    Postgres,
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

/// A file as a URL.
pub(super) fn file_url(path: &Path) -> Result<AnyConnectOptions, Fault> {
    let name = path.as_os_str().as_encoded_bytes();
    // In a URL `..` would have another meaning than in a path with links.
    let absolute = match cfg!(windows) {
        true => std::path::absolute(path),
        false => path.canonicalize(),
    };
    let absolute = absolute.map_err(|error| Fault::from_io(OPERATION, name, &error))?;
    let text = absolute.to_str().ok_or_else(|| {
        Fault::new(Code::InvalidArgument, OPERATION, "its name isn't UTF-8").path(name)
    })?;
    let encoded = RemotePlace::percent_encoded(text.replace('\\', "/").as_bytes());
    format!("sqlite:{encoded}").parse().map_err(fault)
}

impl Store {
    /// Opens the database in a file, makes it if there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// It can't be opened, or its schema is that of a newer version.
    pub(crate) async fn open(path: &Path) -> Result<Self, Fault> {
        let name = path.as_os_str().as_encoded_bytes();
        make(path).map_err(|error| Fault::from_io(OPERATION, name, &error))?;
        let options = AnyPoolOptions::new()
            // A question to the thread of the connection and back, before each statement. There is
            // no network that may have gone, and what is given back is tested.
            .test_before_acquire(false)
            // SQLite itself rolls back on a full disk, which sqlx doesn't notice: it would begin no
            // other transaction on the connection.
            .before_acquire(|connection, _| {
                let is_free = !connection.is_in_transaction();
                Box::pin(async move { Ok(is_free) })
            })
            .after_connect(|connection, _| {
                Box::pin(async move { connection.execute(SQLITE_SETTINGS).await.map(drop) })
            });
        let opened = Self::connect(Engine::Sqlite, options, file_url(path)?).await;
        opened.map_err(|fault| fault.path(name))
    }

    /// Connects with a database of PostgreSQL, and brings its schema up to date.
    ///
    /// # Errors
    /// It can't be reached or used, or its schema is that of a newer version.
    pub(crate) async fn open_shared(url: &DatabaseUrl) -> Result<Self, Fault> {
        sqlx::any::install_default_drivers();
        // The pool would try again and again, and never say why.
        let tried = url.options().connect().await;
        let named = |fault: Fault| fault.path(url.to_string());
        let connection = tried.map_err(|error| named(fault(error)))?;
        connection.close().await.map_err(fault)?;
        let options = AnyPoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT);
        let opened = Self::connect(Engine::Postgres, options, url.options()).await;
        opened.map_err(named)
    }

    async fn connect(
        engine: Engine,
        pool: AnyPoolOptions,
        options: AnyConnectOptions,
    ) -> Result<Self, Fault> {
        sqlx::any::install_default_drivers();
        let pool = pool.max_connections(CONNECTIONS_MAX);
        let pool: AnyPool = pool.connect_with(options.clone()).await.map_err(fault)?;
        let mut store = Self {
            pool,
            engine,
            group: None,
        };
        store.migrate().await?;
        if engine == Engine::Sqlite {
            let group = Group::new(options).await?;
            store.group = Some(Arc::new(Mutex::new(group)));
        }
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
            MigrateError::VersionMissing(version) => {
                let cause = format!("its schema has version {version}, of a newer xdfs");
                Fault::new(Code::Unsupported, OPERATION, cause)
                    .hint("start the service with the version of xdfs that it had before")
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => fault(error),
            error => Fault::new(Code::Io, OPERATION, error.to_string()),
        })
    }

    /// Whether several processes may use the database at the same time.
    pub(crate) fn is_shared(&self) -> bool {
        self.engine == Engine::Postgres
    }

    /// Begins a transaction that only reads, and reads what was there at one moment.
    pub(super) async fn begin_reading(&self) -> Result<Reading, Fault> {
        let statement = match self.engine {
            Engine::Sqlite => "BEGIN",
            Engine::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        self.pool.begin_with(statement).await.map_err(fault)
    }

    /// Ends the use of the database.
    pub(crate) async fn close(&self) {
        if let Some(group) = &self.group {
            // Nothing stays in the log beside the database.
            let emptied = group.lock().await.empty_log().await;
            if let Err(fault) = emptied {
                tracing::debug!(%fault, "can't empty the log of the database");
            }
        }
        self.pool.close().await;
    }
}
