//! A server in this process, clients of it, and waits that end.
//!
//! Each test binary takes this module in; everything here is used by all of them.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs::{
    Address, Client, ClientOptions, Fault, LocalPlace, RemotePlace, Server, ServerBuilder,
    ServerHandle, Transfer, TransferOptions, TransferResult,
};
use xdfs_testkit::tree::TempTree;

/// Longest time that any one transfer may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs in a thread and is ended when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) handle: ServerHandle,
    thread: Option<JoinHandle<Result<(), Fault>>>,
}

impl Running {
    pub(crate) fn new(server: Server) -> Self {
        let handle = server.handle();
        let thread = Some(thread::spawn(move || server.run()));
        Self { handle, thread }
    }

    /// Ends it, the running sessions too, and waits until it is gone.
    pub(crate) fn stop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.handle.shutdown();
            self.handle.shutdown();
            thread.join().unwrap().unwrap();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if thread::panicking() {
            // What is to be seen is the first failure, not one of the clean-up.
            self.handle.shutdown();
            self.handle.shutdown();
        } else {
            self.stop();
        }
    }
}

/// A running server that listens on TCP.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) addr: SocketAddr,
    running: Running,
}

impl Serving {
    /// Serves `root` on a free port, with settings changed by `change`.
    #[track_caller]
    pub(crate) fn start(root: &Path, change: impl FnOnce(&mut ServerBuilder)) -> Self {
        let mut builder = ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            root: root.to_owned(),
            ..ServerBuilder::default()
        };
        change(&mut builder);
        Self::run(builder.bind().unwrap())
    }

    /// Runs a server that listens on TCP already.
    #[track_caller]
    pub(crate) fn run(server: Server) -> Self {
        let addr = match server.addresses().first() {
            Some(Address::Host { host, port }) => SocketAddr::new(host.parse().unwrap(), *port),
            other => panic!("the server listens on {other:?}"),
        };
        let running = Running::new(server);
        Self { addr, running }
    }
}

impl Deref for Serving {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl DerefMut for Serving {
    fn deref_mut(&mut self) -> &mut Running {
        &mut self.running
    }
}

/// A client of the server at `addr`.
#[track_caller]
pub(crate) fn client(addr: SocketAddr, change: impl FnOnce(&mut ClientOptions)) -> Client {
    let address = Address::Host {
        host: addr.ip().to_string(),
        port: addr.port(),
    };
    client_at(address, change)
}

/// A client of the server at `address`, of whatever kind that is.
#[track_caller]
pub(crate) fn client_at(address: Address, change: impl FnOnce(&mut ClientOptions)) -> Client {
    let mut options = ClientOptions::default();
    change(&mut options);
    let place = RemotePlace {
        user: None,
        address,
        path: Vec::new(),
        invitation: xdfs::Invitation::default(),
        profile: None,
        stack: None,
    };
    Client::connect(&place, options).unwrap()
}

/// Waits for the end of a transfer, and fails if it doesn't come.
#[track_caller]
pub(crate) fn finish(mut transfer: Transfer) -> Result<TransferResult, Fault> {
    let start = Instant::now();
    while !transfer.is_finished() {
        let _ = transfer.progress(Duration::from_millis(100));
        if start.elapsed() > PATIENCE {
            // Or its client would wait for it when it is dropped.
            transfer.cancel();
            panic!("the transfer did not end");
        }
    }
    transfer.wait()
}

/// Uploads and waits for the end.
#[track_caller]
pub(crate) fn upload(
    client: &Client,
    source: &Path,
    target: impl AsRef<[u8]>,
    options: &TransferOptions,
) -> Result<TransferResult, Fault> {
    let source = LocalPlace::Path(source.to_owned());
    finish(client.upload(&source, target.as_ref(), options)?)
}

/// Downloads and waits for the end.
#[track_caller]
pub(crate) fn download(
    client: &Client,
    source: impl AsRef<[u8]>,
    target: &Path,
    options: &TransferOptions,
) -> Result<TransferResult, Fault> {
    let target = LocalPlace::Path(target.to_owned());
    finish(client.download(source.as_ref(), &target, options)?)
}

/// A temporary folder with `root`, which a server serves, and `here`, which is the client's.
#[derive(Debug)]
pub(crate) struct Folders {
    tree: TempTree,
}

impl Folders {
    pub(crate) fn new(seed: u64) -> Self {
        let tree = TempTree::new(seed).unwrap();
        std::fs::create_dir(tree.join("root")).unwrap();
        std::fs::create_dir(tree.join("here")).unwrap();
        Self { tree }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.tree.join("root")
    }

    /// A path on the server's side.
    pub(crate) fn there(&self, name: &str) -> PathBuf {
        self.tree.join("root").join(name)
    }

    /// A path on the client's side.
    pub(crate) fn here(&self, name: &str) -> PathBuf {
        self.tree.join("here").join(name)
    }

    /// Makes a file on the client's side.
    pub(crate) fn make_here(&self, name: &str, len: u64) -> PathBuf {
        self.tree.file(&format!("here/{name}"), len).unwrap()
    }

    /// Makes a file on the server's side.
    pub(crate) fn make_there(&self, name: &str, len: u64) -> PathBuf {
        self.tree.file(&format!("root/{name}"), len).unwrap()
    }
}

/// Fails unless two files are equal.
#[track_caller]
pub(crate) fn assert_equal(a: &Path, b: &Path) {
    let different = xdfs_testkit::tree::first_difference(a, b).unwrap();
    assert_eq!(different, None, "{} and {}", a.display(), b.display());
}

/// The names in a folder that no transfer may leave behind when it ended well: hidden ones.
#[track_caller]
pub(crate) fn hidden_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(".xdfs-"))
        .collect();
    names.sort();
    names
}
