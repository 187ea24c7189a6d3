//! Sessions with FTP and GridFTP servers.
//!
//! A server in this process, which nobody else can reach, serves the files of the other one as its
//! store. So transfers, trees, calls, journals, retries and reports are those of any server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use xdfs_gridftp::client::{FtpStore, Settings};
use xdfs_proto::{Code, Fault};

use crate::remote::{Address, RemotePlace};
use crate::server::{ServerBuilder, ServerHandle};

/// Numbers the listeners of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The server in this process. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct FtpGateway {
    store: FtpStore,
    handle: ServerHandle,
    address: Address,
    thread: Option<thread::JoinHandle<()>>,
}

impl FtpGateway {
    /// A gateway to the server of `place`; `None` if that is no FTP server.
    ///
    /// # Errors
    /// The session is to be protected, which FTP can't do, or the server can't be started.
    pub(crate) fn for_place(
        place: &RemotePlace,
        is_protected: bool,
        channels: Option<u32>,
    ) -> Result<Option<Self>, Fault> {
        let Address::Ftp { host, port } = &place.address else {
            return Ok(None);
        };
        if is_protected {
            let cause = "FTP sends passwords, names and data unencrypted, and doesn't prove which \
                server answers";
            let operation = format!("open a session with {}", place.address);
            return Err(Fault::new(Code::ProtectionRefused, operation, cause)
                .hint("accept the risk with --insecure, or use xdfs:// or ssh://"));
        }
        let settings = Settings {
            host: host.clone(),
            port: *port,
            user: place.user.clone(),
            password: place.invitation.password.clone(),
            channels,
        };
        Self::start(settings).map(Some)
    }

    fn start(settings: Settings) -> Result<Self, Fault> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = Address::Memory(format!("ftp-{number}"));
        let builder = ServerBuilder {
            listen: vec![address.clone().into()],
            ..ServerBuilder::default()
        };
        let store = FtpStore::new(settings);
        let server = builder.bind_store(Arc::new(store.clone()))?;
        let handle = server.handle();
        let thread = thread::Builder::new()
            .name("xdfs-ftp".into())
            .spawn(move || {
                if let Err(fault) = server.run() {
                    tracing::warn!(%fault, "the gateway to an FTP server failed");
                }
            })
            .map_err(|error| Fault::from_io("start the gateway's thread", "", &error))?;
        Ok(Self {
            store,
            handle,
            address,
            thread: Some(thread),
        })
    }

    /// The files of the other server.
    pub(crate) fn store(&self) -> FtpStore {
        self.store.clone()
    }

    /// Where a session reaches it.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl FtpGateway {
    /// Whether the path to the server is long.
    pub(crate) fn is_far(&self) -> bool {
        self.store.is_far()
    }

    /// Asks for all of a tree at once, if the server can tell it. Returns whether it has.
    pub(crate) fn begin_tree(&self, path: &[u8]) -> bool {
        self.store.begin_tree(path)
    }

    /// Nothing of this tree is wanted any more.
    pub(crate) fn end_tree(&self) {
        self.store.end_tree();
    }

    /// Ends what waits for the other server.
    pub(crate) fn close(&self) {
        self.store.close();
    }
}

impl Drop for FtpGateway {
    fn drop(&mut self) {
        self.close();
        // The session with it has ended.
        self.handle.shutdown();
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            // What a panic has broken, the session has reported.
            let _ = thread.join();
        }
    }
}
