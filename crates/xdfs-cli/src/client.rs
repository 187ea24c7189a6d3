//! A session shared by commands, and the copies in it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use xdfs::security::FirstUse;
use xdfs::{
    Client, Code, Fault, LocalPlace, Progress, Side, Transfer, TransferOptions, TransferResult,
    TransferRoute,
};

use crate::agent::AgentLease;
use crate::pipe::{self, Flow};

/// A session that reports a server trusted on first use once. Cheap to clone; the session ends with
/// the last clone.
#[derive(Clone, Debug)]
pub(crate) struct SharedClient {
    client: Arc<Client>,
    is_reported: Arc<AtomicBool>,
    /// Of a session that the agent shares. Dropped after the client.
    lease: Option<Arc<AgentLease>>,
}

impl SharedClient {
    /// A newly opened session.
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self {
            client,
            is_reported: Arc::default(),
            lease: None,
        }
    }

    /// A session that the agent shares.
    pub(crate) fn shared(client: Arc<Client>, lease: AgentLease) -> Self {
        Self {
            lease: Some(Arc::new(lease)),
            ..Self::new(client)
        }
    }

    /// What `fault` means if the agent that shares this session has ended.
    pub(crate) fn explained(&self, fault: &Fault) -> Option<Fault> {
        let lease = self.lease.as_ref()?;
        // The loss of the channels may be told before the end of the session, and a session that
        // is being closed refuses calls.
        let is_told = matches!(fault.code, Code::ConnectionLost | Code::Cancelled);
        let is_end = is_told || self.client.ended().is_some();
        let is_end = is_end && fault.side == Side::Local;
        is_end.then(|| lease.explained(fault)).flatten()
    }

    /// The session itself.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// The server if this session trusted it on first use. Returned once.
    pub(crate) fn first_use(&self) -> Option<FirstUse> {
        if self.is_reported.load(Ordering::Relaxed) {
            return None;
        }
        let found = self.client.first_use();
        self.is_reported.store(found.is_some(), Ordering::Relaxed);
        found
    }

    /// Doesn't repeat the report of an earlier session with the same server.
    pub(crate) fn share_reported(&mut self, before: &Self) {
        self.is_reported = Arc::clone(&before.is_reported);
    }

    /// Starts to copy a file, or a stream into or out of a named pipe.
    ///
    /// # Errors
    /// The local end can't be opened, or the session has ended.
    pub(crate) fn copy(
        &self,
        route: &TransferRoute,
        options: &TransferOptions,
    ) -> Result<RunningCopy, Fault> {
        let client = Arc::clone(&self.client);
        let rate = options.parameters.rate_bytes_per_s_max;
        match route {
            // Standard streams can be copied to and from named pipes.
            TransferRoute::Upload {
                from: LocalPlace::Standard,
                to,
            } if !options.parameters.dry_run && pipe::is_pipe(&client, to) => {
                Ok(RunningCopy::Pipe(Flow::into_pipe(client, to, rate)))
            }
            TransferRoute::Download {
                from,
                to: LocalPlace::Standard,
            } if !options.parameters.dry_run
                && options.offset == 0
                && pipe::is_pipe(&client, from) =>
            {
                let length = options.length;
                Ok(RunningCopy::Pipe(Flow::out_of_pipe(
                    client, from, length, rate,
                )))
            }
            _ => client.transfer(route, options).map(Into::into),
        }
    }
}

impl Deref for SharedClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// A copy in progress.
#[derive(Debug)]
pub(crate) enum RunningCopy {
    /// Into or out of a named pipe.
    Pipe(Flow),
    /// Everything else.
    Transfer(Box<Transfer>),
}

impl From<Transfer> for RunningCopy {
    fn from(transfer: Transfer) -> Self {
        Self::Transfer(Box::new(transfer))
    }
}

impl RunningCopy {
    /// Waits for the next progress.
    pub(crate) fn progress(&mut self, timeout: Duration) -> Option<Progress> {
        match self {
            Self::Pipe(pipe) => pipe.progress(timeout),
            Self::Transfer(transfer) => transfer.progress(timeout),
        }
    }

    /// Whether it has ended.
    pub(crate) fn is_finished(&self) -> bool {
        match self {
            Self::Pipe(pipe) => pipe.is_finished(),
            Self::Transfer(transfer) => transfer.is_finished(),
        }
    }

    /// Ends it in an orderly way.
    pub(crate) fn cancel(&self) {
        match self {
            Self::Pipe(pipe) => pipe.cancel(),
            Self::Transfer(transfer) => transfer.cancel(),
        }
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// The fault that ended it.
    pub(crate) fn wait(self) -> Result<TransferResult, Fault> {
        match self {
            Self::Pipe(pipe) => pipe.wait(),
            Self::Transfer(transfer) => transfer.wait(),
        }
    }
}
