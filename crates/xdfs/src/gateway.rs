//! Sessions with servers of other protocols.
//!
//! A server in this process, which nothing else can reach, serves the files of a [`Place`] as its
//! store. So transfers, trees, calls, journals, retries and reports are those of any server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use xdfs_proto::Fault;
use xdfs_store::Place;

use crate::remote::Address;
use crate::server::{ServerBuilder, ServerHandle};

/// Blocks between the client and its gateway: those under way stay in a processor's cache, and each
/// still costs little beside its copy.
pub(crate) const BLOCK_BYTES: u32 = 512 << 10;

/// Numbers the listeners of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The server in this process. Ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    place: Arc<dyn Place>,
    handle: ServerHandle,
    address: Address,
    thread: Option<thread::JoinHandle<()>>,
}

impl Gateway {
    /// A gateway to a place that is connected.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn start(place: Arc<dyn Place>) -> Result<Self, Fault> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = Address::Memory(format!("place-{number}"));
        let builder = ServerBuilder {
            listen: vec![address.clone().into()],
            ..ServerBuilder::default()
        };
        let store: Arc<dyn Place> = Arc::clone(&place);
        let server = builder.bind_store(store)?;
        let handle = server.handle();
        let thread = thread::Builder::new()
            .name("xdfs-gateway".into())
            .spawn(move || {
                if let Err(fault) = server.run() {
                    tracing::warn!(%fault, "the gateway to a server failed");
                }
            })
            .map_err(|error| Fault::from_io("start the gateway's thread", "", &error))?;
        Ok(Self {
            place,
            handle,
            address,
            thread: Some(thread),
        })
    }

    /// The place behind it.
    pub(crate) fn place(&self) -> &Arc<dyn Place> {
        &self.place
    }

    /// Where a session reaches it.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.place.close();
        // The session with it has ended.
        self.handle.shutdown();
        self.handle.shutdown();
        if let Some(thread) = self.thread.take() {
            // A panic in it was reported by the session.
            let _ = thread.join();
        }
    }
}
