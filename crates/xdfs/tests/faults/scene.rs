//! Client, proxy, server and a file that goes through them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use xdfs::{
    Client, ClientOptions, Code, DigestKind, Fault, Limits, LocalPlace, ServerBuilder, Transfer,
    TransferOptions, TransferResult,
};
use xdfs_testkit::proxy::{FaultProxy, Faults, Plan};

use crate::support::{Folders, PATIENCE, Serving, assert_equal, client, finish, hidden_names};

/// Which way a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

pub(crate) const WAYS: [Way; 2] = [Way::Up, Way::Down];
pub(crate) const DIGESTS: [DigestKind; 2] = [DigestKind::Crc64Nvme, DigestKind::Blake3];

/// Bytes from the client on a channel that joins, before its first frame: HELLO and JOIN.
pub(crate) const JOIN_BYTES_UP: u64 = 16 + 8 + 36;
/// Bytes to it: WELCOME and JOIN-OK.
pub(crate) const JOIN_BYTES_DOWN: u64 = 16 + 8;
/// The size of the blocks that clients of these tests ask for: small, so that there are many.
pub(crate) const BLOCK: u64 = 256 << 10;

/// A file on one side that is to get to the other through a proxy.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) folders: Folders,
    pub(crate) server: Serving,
    pub(crate) proxy: FaultProxy,
    pub(crate) way: Way,
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) options: TransferOptions,
    pub(crate) limits: Limits,
}

impl Scene {
    pub(crate) fn new(seed: u64, way: Way, length: u64) -> Self {
        Self::with(seed, way, length, |_| {})
    }

    pub(crate) fn with(
        seed: u64,
        way: Way,
        length: u64,
        change: impl FnOnce(&mut ServerBuilder),
    ) -> Self {
        let folders = Folders::new(seed);
        let (source, target) = match way {
            Way::Up => (folders.make_here("source", length), folders.there("target")),
            Way::Down => (folders.make_there("source", length), folders.here("target")),
        };
        let server = Serving::start(&folders.root(), change);
        let proxy = FaultProxy::new(server.addr).unwrap();
        Self {
            folders,
            server,
            proxy,
            way,
            source,
            target,
            options: TransferOptions::default(),
            limits: Limits::default(),
        }
    }

    pub(crate) fn digest(mut self, digest: DigestKind) -> Self {
        self.options.digest = Some(digest);
        self
    }

    /// Bounds the rate, so that things can happen while the transfer goes on.
    pub(crate) fn rate(mut self, bytes_per_s: u64) -> Self {
        self.options.rate_bytes_per_s_max = Some(bytes_per_s);
        self
    }

    /// A plan with faults in the direction of the payload.
    pub(crate) fn plan(&self, change: impl FnOnce(&mut Faults)) -> Plan {
        match self.way {
            Way::Up => Plan::up(change),
            Way::Down => Plan::down(change),
        }
    }

    /// Bytes on a channel that joins before its first frame in the direction of the payload.
    pub(crate) fn join_bytes(&self) -> u64 {
        match self.way {
            Way::Up => JOIN_BYTES_UP,
            Way::Down => JOIN_BYTES_DOWN,
        }
    }

    /// A client with so many channels, all of them there before the first block.
    pub(crate) fn client(&self, channels: u32) -> Client {
        self.client_with(|options| {
            options.channels = Some(channels);
            options.strict = true;
        })
    }

    pub(crate) fn client_with(&self, change: impl FnOnce(&mut ClientOptions)) -> Client {
        self.client_at(self.proxy.addr(), change)
    }

    fn client_at(&self, addr: SocketAddr, change: impl FnOnce(&mut ClientOptions)) -> Client {
        client(addr, |options| {
            options.limits = self.limits.clone();
            options.block_size = u32::try_from(BLOCK).ok();
            change(options);
        })
    }

    /// Starts the transfer.
    #[track_caller]
    pub(crate) fn start(&self, client: &Client) -> Transfer {
        match self.way {
            Way::Up => {
                let source = LocalPlace::Path(self.source.clone());
                client.upload(&source, b"/target", &self.options)
            }
            Way::Down => {
                let target = LocalPlace::Path(self.target.clone());
                client.download(b"/source", &target, &self.options)
            }
        }
        .unwrap()
    }

    #[track_caller]
    pub(crate) fn run(&self, client: &Client) -> Result<TransferResult, Fault> {
        finish(self.start(client))
    }

    /// Runs it again with a fresh client; the server may still be busy with the end of the last
    /// one.
    #[track_caller]
    pub(crate) fn again(&self, channels: u32) -> TransferResult {
        let start = Instant::now();
        loop {
            match self.run(&self.client(channels)) {
                Err(fault) if fault.code == Code::Busy && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                result => return result.unwrap(),
            }
        }
    }

    /// Fails unless the target is the source, with nothing hidden beside it.
    #[track_caller]
    pub(crate) fn arrived(&self) {
        assert_equal(&self.source, &self.target);
        assert_eq!(hidden_names(self.target.parent().unwrap()), [""; 0]);
    }

    /// Fails if anything stands under the name of the target.
    #[track_caller]
    pub(crate) fn unpublished(&self) {
        assert!(!self.target.exists(), "an unfinished file is visible");
    }
}

/// Waits until so many bytes have arrived.
#[track_caller]
pub(crate) fn wait_for_bytes(transfer: &mut Transfer, bytes: u64) {
    let start = Instant::now();
    loop {
        match transfer.progress(Duration::from_millis(200)) {
            Some(progress) if progress.bytes >= bytes => return,
            _ => assert!(
                !transfer.is_finished() && start.elapsed() < PATIENCE,
                "it did not come so far"
            ),
        }
    }
}
