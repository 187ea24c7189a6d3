//! A relay that speaks TLS with both ends and reads everything.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use xdfs::Code;
use xdfs::security::{
    Credential, ExportConfig, ExportsConfig, Fingerprint, GrantConfig, KnownHosts, Rights,
    host_port,
};
use xdfs_security::identity::{ClientCertificates, ServerIdentity};
use xdfs_security::trust::server_name;
use xdfs_testkit::wait;

use crate::world::{PATIENCE, World};

/// The relay. Each connection has a thread.
struct Relay {
    addr: SocketAddr,
    fingerprint: Fingerprint,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    target: SocketAddr,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    stopped: AtomicBool,
    /// Bytes of plaintext that came from clients and went on.
    up: AtomicU64,
}

impl Relay {
    fn new(world: &World) -> Self {
        let folder = world.path("relay");
        fs::create_dir(&folder).unwrap();
        let identity = ServerIdentity::load_or_make(&folder, &["localhost".into()]).unwrap();
        let mut trust = world.trust();
        trust.known_hosts = folder.join("known_hosts");
        let (host, port) = (world.addr.ip().to_string(), world.addr.port());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            target: world.addr,
            server: identity.config(ClientCertificates::None).unwrap(),
            client: trust.client_config(&host, port, None).unwrap().0,
            stopped: AtomicBool::new(false),
            up: AtomicU64::new(0),
        });
        let addr = listener.local_addr().unwrap();
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut threads = Vec::new();
                for socket in listener.incoming() {
                    if shared.stopped.load(Ordering::Acquire) {
                        break;
                    }
                    let (Ok(socket), shared) = (socket, Arc::clone(&shared)) else {
                        break;
                    };
                    // A connection that breaks is one end's matter to notice.
                    threads.push(thread::spawn(move || drop(relay(socket, &shared))));
                }
                threads
                    .into_iter()
                    .for_each(|thread| thread.join().unwrap());
            }
        });
        Self {
            addr,
            fingerprint: identity.fingerprint(),
            shared,
            acceptor: Some(acceptor),
        }
    }

    fn forwarded(&self) -> u64 {
        self.shared.up.load(Ordering::Acquire)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.addr);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn relay(mut near: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut far = TcpStream::connect(shared.target)?;
    let mut server = ServerConnection::new(Arc::clone(&shared.server)).unwrap();
    let name = server_name(&shared.target.ip().to_string()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(&shared.client), name).unwrap();
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    while server.is_handshaking() {
        server.complete_io(&mut near)?;
    }
    while client.is_handshaking() {
        client.complete_io(&mut far)?;
    }
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(Duration::from_millis(2)))?;
    }
    let mut near = StreamOwned::new(server, near);
    let mut far = StreamOwned::new(client, far);
    while !shared.stopped.load(Ordering::Acquire) {
        let Some(up) = pass(&mut near, &mut far)? else {
            break;
        };
        shared.up.fetch_add(up, Ordering::AcqRel);
        if pass(&mut far, &mut near)?.is_none() {
            near.conn.send_close_notify();
            near.flush()?;
            break;
        }
    }
    Ok(())
}

/// Passes on what is there; `None` at the end.
fn pass(from: &mut impl Read, to: &mut impl Write) -> io::Result<Option<u64>> {
    let mut chunk = [0; 16 << 10];
    match from.read(&mut chunk) {
        Ok(0) => Ok(None),
        Ok(n) => {
            to.write_all(&chunk[..n])?;
            to.flush()?;
            Ok(Some(n as u64))
        }
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(Some(0)),
        Err(e) => Err(e),
    }
}

/// A world with an audit log, in which everybody may read what is in `open`.
fn world() -> World {
    World::with(|security, folder| {
        fs::create_dir(folder.join("root/open")).unwrap();
        fs::write(folder.join("root/open/file"), b"for everybody").unwrap();
        security.exports = Some(ExportsConfig {
            export: vec![ExportConfig {
                name: "open".into(),
                path: folder.join("root/open").to_str().unwrap().into(),
                public: true,
                grant: vec![GrantConfig {
                    user: Some("*".into()),
                    rights: Rights::ALL,
                    ..GrantConfig::default()
                }],
                ..ExportConfig::default()
            }],
            ..ExportsConfig::default()
        });
        security.audit = Some(folder.join("audit"));
        security.limits.failures_free = 100;
    })
}

fn audit(world: &World) -> String {
    fs::read_to_string(world.path("audit")).unwrap_or_default()
}

#[test]
fn a_client_that_knows_the_server_refuses_the_relay() {
    let world = world();
    let relay = Relay::new(&world);
    let source = world.source(100_000);
    // The client was here before, and somebody got between since.
    KnownHosts::load(&world.path("client/known_hosts"))
        .unwrap()
        .add(
            &host_port("127.0.0.1", relay.addr.port()).unwrap(),
            world.fingerprint,
            "",
        )
        .unwrap();
    let visit = world.visit("", vec![world.owner_key()]).at(relay.addr);
    let fault = visit.upload(&source, "/open/copy").unwrap_err();
    assert_eq!(fault.code, Code::ServerUntrusted, "{fault}");
    assert!(
        fault.to_string().contains(&relay.fingerprint.to_string()),
        "{fault}"
    );
    let mut pinned = world.visit("", vec![Credential::Anonymous]).at(relay.addr);
    pinned.trust().pins = vec![world.fingerprint];
    let fault = pinned.upload(&source, "/open/copy").unwrap_err();
    assert_eq!(fault.code, Code::ServerUntrusted, "{fault}");
    assert_eq!(relay.forwarded(), 0);
    assert_eq!(audit(&world), "");
}

/// What proves something to the relay proves nothing to the server: it is bound to the channel.
#[test]
fn a_client_that_trusts_the_relay_is_not_impersonated_by_it() {
    let world = world();
    let relay = Relay::new(&world);
    let source = world.source(100_000);
    world.add_password("alice", "correct horse");
    let ticket = world.tickets.issue(Duration::from_secs(3600), 1).unwrap();

    // It does pass everything on: what isn't bound works through it.
    let target = world.path("client/got");
    world
        .visit("", vec![Credential::Anonymous])
        .at(relay.addr)
        .download("/open/file", &target)
        .unwrap();
    assert_eq!(fs::read(&target).unwrap(), b"for everybody");

    let proofs = [
        ("", "key", world.owner_key()),
        ("alice", "key", world.user_key("alice")),
        (
            "alice",
            "password",
            Credential::Password("correct horse".into()),
        ),
        ("", "ticket", Credential::Ticket(ticket)),
    ];
    for (user, method, credential) in proofs {
        let before = relay.forwarded();
        let visit = world.visit(user, vec![credential.clone()]);
        let fault = visit
            .clone()
            .at(relay.addr)
            .upload(&source, "/open/copy")
            .unwrap_err();
        assert_eq!(fault.code, Code::AuthenticationFailed, "{method}: {fault}");
        assert!(wait::until(PATIENCE, || relay.forwarded() > before));
        // It was the server that refused. What is alike within a minute is one line.
        let line = format!("\"method\":\"{method}\"");
        let log = audit(&world);
        let mut refusals = log
            .lines()
            .filter(|line| line.contains("authentication-failed"));
        assert!(refusals.any(|refusal| refusal.contains(&line)), "{log}");
        assert!(!world.path("root/open/copy").exists());
        // The proof was good, where it belongs.
        visit.upload(&source, "/open/mine").unwrap();
    }
}
