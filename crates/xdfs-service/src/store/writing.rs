//! Transactions that write.
//!
//! PostgreSQL has many of them at a time. SQLite has one: others would sleep and try again, and the
//! disk is waited for at each commit. So in this process they take turns, in the order in which
//! they came, and those that come without a pause between them are committed together: each is a
//! savepoint within one transaction of SQLite, and has ended when that is committed.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::any::{AnyConnectOptions, AnyQueryResult};
use sqlx::query::Query;
use sqlx::{Any, AnyConnection, AssertSqlSafe, ConnectOptions as _, Executor as _};
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use xdfs::{Code, Fault, Retry};

use super::{Connection, RETRY_AFTER_MS, Store, fault, odd};

/// What a connection with SQLite needs: it waits for another process such as a backup, writes a log
/// ahead, and a commit is on the disk when it returns.
pub(super) const SQLITE_SETTINGS: &str = "PRAGMA busy_timeout = 30000; PRAGMA journal_mode = WAL; \
    PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;";

/// The end of a transaction of SQLite, once it has ended.
type Ending = Option<Result<(), Fault>>;

/// The connection by which this process writes to SQLite.
#[derive(Debug)]
pub(super) struct Group {
    options: AnyConnectOptions,
    connection: AnyConnection,
    /// A transaction has begun.
    is_open: bool,
    /// What the connection has done is unknown, so it is to be replaced.
    is_broken: bool,
    /// The number of turns so far, which names the savepoint of the last one.
    turns: u64,
    /// A turn that ended without a commit.
    undone: Option<u64>,
    /// That of the open transaction, or the next one.
    ending: watch::Sender<Ending>,
}

async fn connect(options: &AnyConnectOptions) -> Result<AnyConnection, sqlx::Error> {
    let mut connection = options.connect().await?;
    connection.execute(SQLITE_SETTINGS).await?;
    Ok(connection)
}

impl Group {
    pub(super) async fn new(options: AnyConnectOptions) -> Result<Self, Fault> {
        Ok(Self {
            connection: connect(&options).await.map_err(fault)?,
            options,
            is_open: false,
            is_broken: false,
            turns: 0,
            undone: None,
            ending: watch::Sender::new(None),
        })
    }

    /// Writes into the database what its log has.
    pub(super) async fn empty_log(&mut self) -> Result<(), Fault> {
        self.execute("PRAGMA wal_checkpoint(TRUNCATE)".to_owned())
            .await
    }

    /// Executes a statement about a transaction. If that fails, or isn't waited for, the connection
    /// is broken.
    async fn execute(&mut self, statement: String) -> Result<(), Fault> {
        self.is_broken = true;
        let executed = self.connection.execute(AssertSqlSafe(statement)).await;
        executed.map_err(fault)?;
        self.is_broken = false;
        Ok(())
    }

    /// Ends the open transaction for those that wait for its commit.
    fn end(&mut self, result: Result<(), Fault>) {
        self.is_open = false;
        mem::replace(&mut self.ending, watch::Sender::new(None)).send_replace(Some(result));
    }

    /// Undoes the last turn if it is to be undone, and replaces a broken connection. After it, all
    /// that was written is to be committed.
    async fn settle(&mut self) -> Result<(), Fault> {
        if let Some(turn) = self.undone.take() {
            let statement = format!("ROLLBACK TO turn{turn}; RELEASE turn{turn}");
            if let Err(fault) = self.execute(statement).await {
                // SQLite has done it by itself, as on a full disk, with all turns before.
                tracing::debug!(%fault, "can't undo a part of a transaction");
            }
        }
        if self.is_broken {
            self.undone = None;
            let cause = "another change failed together with this one";
            self.end(Err(odd(cause).retry(Retry::AfterMs(RETRY_AFTER_MS))));
            self.connection = connect(&self.options).await.map_err(fault)?;
            self.is_broken = false;
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<u64, Fault> {
        self.settle().await?;
        if !self.is_open {
            self.execute("BEGIN IMMEDIATE".to_owned()).await?;
            self.is_open = true;
        }
        self.turns += 1;
        self.execute(format!("SAVEPOINT turn{}", self.turns))
            .await?;
        Ok(self.turns)
    }

    async fn commit(&mut self) {
        let result = match self.settle().await {
            Ok(()) if self.is_open => self.execute("COMMIT".to_owned()).await,
            // Those that wait for it have their result.
            _ => return,
        };
        self.end(result);
    }
}

/// Commits the transaction with this ending, after the turns that wait already.
async fn commit(group: Arc<Mutex<Group>>, ending: watch::Receiver<Ending>) {
    let mut group = group.lock_owned().await;
    let has_ended = ending.borrow().is_some();
    if !has_ended {
        group.commit().await;
    }
}

/// A part of a transaction of SQLite.
#[derive(Debug)]
pub(super) struct Turn {
    group: Arc<Mutex<Group>>,
    guard: OwnedMutexGuard<Group>,
    number: u64,
    is_over: bool,
}

impl Turn {
    async fn begin(group: Arc<Mutex<Group>>, length: Length) -> Result<Self, Fault> {
        let mut guard = Arc::clone(&group).lock_owned().await;
        if length == Length::Long {
            guard.commit().await;
        }
        let number = guard.begin().await?;
        Ok(Self {
            group,
            guard,
            number,
            is_over: false,
        })
    }

    async fn commit(mut self) -> Result<(), Fault> {
        let statement = format!("RELEASE turn{}", self.number);
        let released = self.guard.execute(statement).await;
        released.map_err(|fault| fault.retry(Retry::AfterMs(RETRY_AFTER_MS)))?;
        self.is_over = true;
        let (group, mut ending) = (Arc::clone(&self.group), self.guard.ending.subscribe());
        drop(self);
        // A task of its own: this one may be waited for no more, while others wait for the commit.
        tokio::spawn(commit(group, ending.clone()));
        let ended = ending.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| Err(odd("it was not committed")))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        self.guard.undone = Some(self.number);
        // The lock of SQLite isn't kept until the next turn. Without a runtime nothing comes next.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (group, ending) = (Arc::clone(&self.group), self.guard.ending.subscribe());
            runtime.spawn(commit(group, ending));
        }
    }
}

/// How long a transaction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// A few statements.
    Short,
    /// As many as a client likes: those that came before don't wait for its commit.
    Long,
}

/// A transaction that writes. It is rolled back unless it is committed.
#[derive(Debug)]
pub(super) enum Transaction {
    /// Of PostgreSQL.
    Own(sqlx::Transaction<'static, Any>),
    /// Of SQLite.
    Turn(Turn),
}

impl Transaction {
    /// Commits it, and waits until it is durable.
    ///
    /// # Errors
    /// It is rolled back, or that is unknown.
    pub(super) async fn commit(self) -> Result<(), Fault> {
        match self {
            Self::Own(transaction) => transaction.commit().await.map_err(fault),
            Self::Turn(turn) => turn.commit().await,
        }
    }
}

impl Deref for Transaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        match self {
            Self::Own(transaction) => transaction,
            Self::Turn(turn) => &turn.guard.connection,
        }
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Connection {
        match self {
            Self::Own(transaction) => transaction,
            Self::Turn(turn) => &mut turn.guard.connection,
        }
    }
}

impl Store {
    /// Begins a transaction that writes.
    pub(super) async fn begin(&self) -> Result<Transaction, Fault> {
        self.begin_of(Length::Short).await
    }

    /// Begins a transaction that writes.
    pub(super) async fn begin_of(&self, length: Length) -> Result<Transaction, Fault> {
        let Some(group) = &self.group else {
            return self.pool.begin().await.map(Transaction::Own).map_err(fault);
        };
        // A task of its own, so that a savepoint is set even if it isn't waited for.
        let begun = tokio::spawn(Turn::begin(Arc::clone(group), length)).await;
        let begun = begun.map_err(|error| Fault::new(Code::Internal, "write", error.to_string()));
        begun?.map(Transaction::Turn)
    }

    /// Executes one statement that writes.
    pub(super) async fn write(
        &self,
        query: Query<'_, Any, <Any as sqlx::Database>::Arguments>,
    ) -> Result<AnyQueryResult, Fault> {
        let mut transaction = self.begin().await?;
        let result = query.execute(&mut *transaction).await.map_err(fault)?;
        transaction.commit().await?;
        Ok(result)
    }
}
