//! A protected server in this process, and visits to it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use xdfs::drivers::Drivers;
use xdfs::security::{
    ClientSecurity, Credential, Fingerprint, Level, NewHosts, ServerSecurity, Tickets, TrustPolicy,
    UsersFile, make_key,
};
use xdfs::{
    Address, Client, ClientOptions, Fault, LocalPlace, RemotePlace, ServerBuilder, ServerHandle,
    Transfer, TransferOptions, TransferParameters, TransferResult,
};
use xdfs_security::password::Parameters;
use xdfs_testkit::proxy::{DatagramProxy, FaultProxy};
use xdfs_testkit::tree::random_bytes;

/// Longest time that anything may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What protected channels go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    Quic,
}

/// Runs a test over both.
pub(crate) fn over_both(test: impl Fn(Over)) {
    for over in [Over::Tcp, Over::Quic] {
        // What is shown if the test fails.
        println!("{over:?}");
        test(over);
    }
}

impl Over {
    pub(crate) fn world(self) -> World {
        self.world_with(|_, _| {})
    }

    /// With other settings; the path is that of the folder with `root`, `server` and `client`.
    pub(crate) fn world_with(self, change: impl FnOnce(&mut ServerSecurity, &Path)) -> World {
        let mut world = World::build(|builder, folder| {
            builder.drivers = self.drivers();
            change(builder.security.as_mut().unwrap(), folder);
        });
        world.over = self;
        world
    }

    /// TLS is added where it is missing. QUIC misses a server that says nothing after a second.
    fn drivers(self) -> Drivers {
        let text = match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic:idle=1",
        };
        Drivers {
            stacks: vec![text.parse().unwrap()],
            ..Drivers::default()
        }
    }

    pub(crate) fn door(self, to: SocketAddr) -> Door {
        match self {
            Self::Tcp => Door::Tcp(FaultProxy::new(to).unwrap()),
            Self::Quic => Door::Quic(DatagramProxy::new(to).unwrap()),
        }
    }
}

/// An address that can lead to one server and then to another.
pub(crate) enum Door {
    Tcp(FaultProxy),
    Quic(DatagramProxy),
}

impl Door {
    pub(crate) fn addr(&self) -> SocketAddr {
        match self {
            Self::Tcp(proxy) => proxy.addr(),
            Self::Quic(proxy) => proxy.addr(),
        }
    }

    /// Leads to another server, and to none what leads to one already.
    pub(crate) fn set_target(&self, to: SocketAddr) {
        match self {
            Self::Tcp(proxy) => {
                proxy.set_target(to);
                proxy.cut_all();
            }
            Self::Quic(proxy) => proxy.set_target(to),
        }
    }
}

/// A protected server on a free port, and the folders of both sides.
pub(crate) struct World {
    folder: tempfile::TempDir,
    handle: ServerHandle,
    thread: Option<JoinHandle<Result<(), Fault>>>,
    over: Over,
    pub(crate) addr: SocketAddr,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) tickets: Tickets,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_, _| {})
    }

    /// With other settings; the path is that of the folder with `root`, `server` and `client`.
    pub(crate) fn with(change: impl FnOnce(&mut ServerSecurity, &Path)) -> Self {
        Self::build(|builder, folder| change(builder.security.as_mut().unwrap(), folder))
    }

    pub(crate) fn build(change: impl FnOnce(&mut ServerBuilder, &Path)) -> Self {
        Self::build_then(change, || {})
    }

    /// The same; `then` is what the thread of the server does before it serves.
    pub(crate) fn build_then(
        change: impl FnOnce(&mut ServerBuilder, &Path),
        then: impl FnOnce() + Send + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["root", "server", "server/keys", "client"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let security = ServerSecurity::new(folder.path().join("server"), "owner".into());
        let mut builder = ServerBuilder {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            root: folder.path().join("root"),
            security: Some(security),
            ..ServerBuilder::default()
        };
        change(&mut builder, folder.path());
        let server = builder.bind().unwrap();
        let addr = match server.addresses().first() {
            Some(Address::Host { host, port }) => SocketAddr::new(host.parse().unwrap(), *port),
            other => panic!("the server listens on {other:?}"),
        };
        Self {
            handle: server.handle(),
            fingerprint: server.fingerprint().unwrap(),
            tickets: server.tickets().unwrap(),
            thread: Some(thread::spawn(move || {
                then();
                server.run()
            })),
            over: Over::Tcp,
            addr,
            folder,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What a client trusts that has seen no server yet.
    pub(crate) fn trust(&self) -> TrustPolicy {
        TrustPolicy {
            known_hosts: self.path("client/known_hosts"),
            pins: Vec::new(),
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Accept,
        }
    }

    /// A key of the client, under a name of its own, and its line for a list of keys.
    pub(crate) fn key(&self, name: &str) -> (Credential, String) {
        let path = self.path("client").join(name);
        let public = make_key(&path, "test").unwrap();
        (Credential::Key(path), public.to_line("test") + "\n")
    }

    /// A key that the server takes for the owner.
    pub(crate) fn owner_key(&self) -> Credential {
        let (key, line) = self.key("owner");
        fs::write(self.path("server/authorized_keys"), line).unwrap();
        key
    }

    /// A key that the server takes for the user of this name.
    pub(crate) fn user_key(&self, user: &str) -> Credential {
        let (key, line) = self.key(user);
        fs::write(self.path("server/keys").join(user), line).unwrap();
        key
    }

    /// Gives a user a password, of little cost.
    pub(crate) fn add_password(&self, user: &str, password: &str) {
        UsersFile::new(self.path("server/users"))
            .with_parameters(Parameters::new(7 * 1024, 1, 1).unwrap())
            .add(user, password)
            .unwrap();
    }

    pub(crate) fn visit(&self, user: &str, credentials: Vec<Credential>) -> Visit {
        Visit {
            addr: self.addr,
            user: user.to_owned(),
            options: ClientOptions {
                channels: Some(1),
                security: Some(ClientSecurity {
                    trust: self.trust(),
                    credentials,
                    level: Level::Private,
                }),
                drivers: self.over.drivers(),
                ..ClientOptions::default()
            },
            rate: None,
        }
    }

    /// A file of the client.
    pub(crate) fn source(&self, bytes: usize) -> PathBuf {
        let path = self.path("client/source");
        fs::write(&path, random_bytes(1, bytes)).unwrap();
        path
    }

    /// Nothing was published, and nothing but unfinished files lies there.
    #[track_caller]
    pub(crate) fn nothing_published(&self) {
        let names: Vec<_> = fs::read_dir(self.path("root"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.contains(".xdfs-"))
            .collect();
        assert!(names.is_empty(), "{names:?}");
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.handle.shutdown();
        if let Some(thread) = self.thread.take()
            && !thread::panicking()
        {
            thread.join().unwrap().unwrap();
        }
    }
}

/// How a client comes to a server.
#[derive(Clone)]
pub(crate) struct Visit {
    pub(crate) addr: SocketAddr,
    pub(crate) user: String,
    pub(crate) options: ClientOptions,
    pub(crate) rate: Option<u64>,
}

impl Visit {
    pub(crate) fn at(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    pub(crate) fn channels(mut self, channels: u32) -> Self {
        self.options.channels = Some(channels);
        self
    }

    /// Asks for payload in the clear.
    pub(crate) fn clear(mut self) -> Self {
        if let Some(security) = &mut self.options.security {
            security.level = Level::Clear;
        }
        self
    }

    pub(crate) fn rate(mut self, bytes_per_s: u64) -> Self {
        self.rate = Some(bytes_per_s);
        self
    }

    pub(crate) fn trust(&mut self) -> &mut TrustPolicy {
        &mut self.options.security.as_mut().unwrap().trust
    }

    pub(crate) fn connect(&self) -> Result<Client, Fault> {
        let place = RemotePlace {
            user: (!self.user.is_empty()).then(|| self.user.clone()),
            address: Address::Host {
                host: self.addr.ip().to_string(),
                port: self.addr.port(),
            },
            path: Vec::new(),
            invitation: xdfs::Invitation::default(),
            profile: None,
            stack: None,
        };
        Client::connect(&place, self.options.clone())
    }

    pub(crate) fn transfer(&self) -> TransferOptions {
        TransferOptions {
            parameters: TransferParameters {
                overwrite: true,
                rate_bytes_per_s_max: self.rate,
                ..TransferParameters::default()
            },
            ..TransferOptions::default()
        }
    }

    pub(crate) fn upload(&self, source: &Path, target: &str) -> Result<TransferResult, Fault> {
        let client = self.connect()?;
        let source = LocalPlace::Path(source.to_owned());
        finish(client.upload(&source, target.as_bytes(), &self.transfer())?)
    }

    pub(crate) fn download(&self, source: &str, target: &Path) -> Result<TransferResult, Fault> {
        let client = self.connect()?;
        let target = LocalPlace::Path(target.to_owned());
        finish(client.download(source.as_bytes(), &target, &self.transfer())?)
    }
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

#[track_caller]
pub(crate) fn assert_same(a: &Path, b: &Path) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "they differ");
}
