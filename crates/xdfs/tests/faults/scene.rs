//! Client, server, the line between them, and a file that goes over it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use xdfs::drivers::{Drivers, StackSpec};
use xdfs::security::{
    ClientSecurity, Credential, Level, NewHosts, ServerSecurity, TrustPolicy, make_key,
};
use xdfs::{
    Address, Client, ClientOptions, Code, DigestKind, Fault, Limits, LocalPlace, ServerBuilder,
    Transfer, TransferOptions, TransferResult,
};
use xdfs_testkit::proxy::{FaultProxy, Faults, Plan};

use crate::line::{Line, Switch};
use crate::support::{Folders, PATIENCE, Running, assert_equal, client_at, finish, hidden_names};

/// Which way a file goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// What the channels of a session go over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    #[cfg(unix)]
    Unix,
    Memory,
    Ptcp,
    Quic,
}

pub(crate) const WAYS: [Way; 2] = [Way::Up, Way::Down];
pub(crate) const DIGESTS: [DigestKind; 2] = [DigestKind::Crc64Nvme, DigestKind::Blake3];
pub(crate) const TRANSPORTS: &[Transport] = &[
    Transport::Tcp,
    #[cfg(unix)]
    Transport::Unix,
    Transport::Memory,
    Transport::Ptcp,
    Transport::Quic,
];

/// Bytes from the client on a channel that joins, before its first frame: HELLO and JOIN.
pub(crate) const JOIN_BYTES_UP: u64 = 16 + 8 + 36;
/// Bytes to it: WELCOME and JOIN-OK.
pub(crate) const JOIN_BYTES_DOWN: u64 = 16 + 8;
/// The size of the blocks that clients of these tests ask for: small, so that there are many.
pub(crate) const BLOCK: u64 = 256 << 10;

impl Transport {
    /// The driver stack, which gives up after few seconds where it waits by itself.
    pub(crate) fn stack(self) -> StackSpec {
        let text = match self {
            Self::Tcp => "tcp",
            #[cfg(unix)]
            Self::Unix => "unix",
            Self::Memory => "memory",
            Self::Ptcp => "ptcp:n=3:patience=1",
            Self::Quic => "quic:idle=2:connect=2",
        };
        text.parse().unwrap()
    }

    /// A place to listen that nobody else has.
    fn listen(self, folders: &Folders) -> Address {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Only sockets of Unix lie in a folder.
        #[cfg(not(unix))]
        let _ = folders;
        match self {
            #[cfg(unix)]
            Self::Unix => Address::Unix(folders.here(&format!("socket-{number}"))),
            Self::Memory => Address::Memory(format!("faults-{number}")),
            Self::Tcp | Self::Ptcp | Self::Quic => "127.0.0.1:0".parse().unwrap(),
        }
    }

    fn line(self) -> Box<dyn Line> {
        match self {
            Self::Tcp => Box::new(FaultProxy::new("127.0.0.1:0".parse().unwrap()).unwrap()),
            _ => Box::new(Switch::default()),
        }
    }
}

/// Over what, and how, a file is to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) transport: Transport,
    pub(crate) way: Way,
    pub(crate) digest: DigestKind,
}

/// Runs a test over every transport and both ways. The transports have threads of their own, since
/// most tests wait more than they work.
pub(crate) fn everywhere(test: impl Fn(Case) + Sync) {
    let test = &test;
    thread::scope(|scope| {
        for (number, &transport) in TRANSPORTS.iter().enumerate() {
            let run = move || {
                for (n, way) in WAYS.into_iter().enumerate() {
                    // Each digest each way over some of them.
                    let digest = DIGESTS[(number + n) % 2];
                    test(Case {
                        transport,
                        way,
                        digest,
                    });
                }
            };
            // The name is what the message of a panic begins with.
            let name = format!("over {transport:?}");
            thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, run)
                .unwrap();
        }
    });
}

impl Case {
    pub(crate) fn scene(self, seed: u64, length: u64) -> Scene {
        self.scene_with(seed, length, |_| {})
    }

    pub(crate) fn scene_with(
        self,
        seed: u64,
        length: u64,
        change: impl FnOnce(&mut ServerBuilder),
    ) -> Scene {
        let folders = Folders::new(seed);
        let (source, target) = match self.way {
            Way::Up => (folders.make_here("source", length), folders.there("target")),
            Way::Down => (folders.make_there("source", length), folders.here("target")),
        };
        let (server, address, security) = serve(self.transport, &folders, change);
        let line = self.transport.line();
        Scene {
            address: line.lead_to(&address),
            folders,
            server,
            line,
            case: self,
            source,
            target,
            options: TransferOptions::default(),
            limits: Limits::default(),
            security,
        }
        .digest(self.digest)
    }
}

/// A server, its address, and what its clients need.
fn serve(
    transport: Transport,
    folders: &Folders,
    change: impl FnOnce(&mut ServerBuilder),
) -> (Running, Address, Option<ClientSecurity>) {
    let mut builder = ServerBuilder {
        listen: vec![transport.listen(folders).into()],
        root: folders.root(),
        drivers: Drivers {
            stacks: vec![transport.stack()],
            ..Drivers::default()
        },
        ..ServerBuilder::default()
    };
    let (own, key) = (folders.here("server"), folders.here("key"));
    if transport == Transport::Quic {
        if !key.exists() {
            std::fs::create_dir(&own).unwrap();
            let public = make_key(&key, "test").unwrap();
            std::fs::write(own.join("authorized_keys"), public.to_line("test") + "\n").unwrap();
        }
        builder.security = Some(ServerSecurity::new(own, "owner".into()));
    }
    change(&mut builder);
    let server = builder.bind().unwrap();
    let security = server.fingerprint().map(|pin| ClientSecurity {
        trust: TrustPolicy {
            known_hosts: folders.here("known_hosts"),
            pins: vec![pin],
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Refuse,
        },
        credentials: vec![Credential::Key(key)],
        level: Level::Private,
    });
    let address = server.addresses().remove(0);
    (Running::new(server), address, security)
}

/// A file on one side that is to get to the other.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) folders: Folders,
    pub(crate) server: Running,
    /// Where clients connect.
    pub(crate) address: Address,
    pub(crate) line: Box<dyn Line>,
    pub(crate) case: Case,
    pub(crate) source: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) options: TransferOptions,
    pub(crate) limits: Limits,
    security: Option<ClientSecurity>,
}

impl Scene {
    /// One over TCP.
    pub(crate) fn new(seed: u64, way: Way, length: u64) -> Self {
        let case = Case {
            transport: Transport::Tcp,
            way,
            digest: DIGESTS[0],
        };
        case.scene(seed, length)
    }

    /// Serves the same again, from another address.
    pub(crate) fn serve_again(&mut self) {
        let (server, address, security) = serve(self.case.transport, &self.folders, |_| {});
        self.address = self.line.lead_to(&address);
        (self.server, self.security) = (server, security);
    }

    pub(crate) fn digest(mut self, digest: DigestKind) -> Self {
        self.options.parameters.digest = Some(digest);
        self
    }

    /// Bounds the rate, so that things can happen while the transfer goes on.
    pub(crate) fn rate(mut self, bytes_per_s: u64) -> Self {
        self.options.parameters.rate_bytes_per_s_max = Some(bytes_per_s);
        self
    }

    /// A plan with faults in the direction of the payload.
    pub(crate) fn plan(&self, change: impl FnOnce(&mut Faults)) -> Plan {
        match self.case.way {
            Way::Up => Plan::up(change),
            Way::Down => Plan::down(change),
        }
    }

    /// Bytes on a channel that joins before its first frame in the direction of the payload.
    pub(crate) fn join_bytes(&self) -> u64 {
        match self.case.way {
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
        client_at(self.address.clone(), |options| {
            options.limits = self.limits.clone();
            options.security = self.security.clone();
            options.drivers = self.line.drivers(self.case.transport.stack());
            options.block_size = u32::try_from(BLOCK).ok();
            change(options);
        })
    }

    /// Starts the transfer.
    #[track_caller]
    pub(crate) fn start(&self, client: &Client) -> Transfer {
        match self.case.way {
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
                    thread::sleep(Duration::from_millis(20));
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

/// Waits until so many bytes have arrived. Returns the number of channels that are open then.
#[track_caller]
pub(crate) fn wait_for_bytes(transfer: &mut Transfer, bytes: u64) -> u32 {
    let start = Instant::now();
    loop {
        match transfer.progress(Duration::from_millis(200)) {
            Some(progress) if progress.bytes >= bytes => return progress.channels,
            _ => {
                assert!(!transfer.is_finished(), "it ended before it came so far");
                assert!(start.elapsed() < PATIENCE, "it did not come so far");
            }
        }
    }
}
