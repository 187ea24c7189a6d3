//! A UDP forwarder between one client and one server, on threads of its own, that harms datagrams
//! as a bad path does.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What happens to datagrams, in both directions. Shares are of 1000.
#[derive(Debug, Default)]
pub(crate) struct Path {
    pub(crate) lost: AtomicU64,
    pub(crate) doubled: AtomicU64,
    pub(crate) overtaken: AtomicU64,
    pub(crate) corrupted: AtomicU64,
    pub(crate) delay_ms: AtomicU64,
    /// Larger ones vanish; zero for no limit.
    pub(crate) bytes_max: AtomicU64,
    /// Datagrams that were harmed.
    pub(crate) harmed: AtomicU64,
    /// Those that came from the client.
    pub(crate) from_client: AtomicU64,
    server: Mutex<Option<SocketAddr>>,
    client: Mutex<Option<SocketAddr>>,
    back: Mutex<Option<Arc<UdpSocket>>>,
    ended: AtomicBool,
}

/// The forwarder. Dropping it cuts the path.
#[derive(Debug)]
pub(crate) struct Forwarder {
    /// Its address for the client.
    pub(crate) address: SocketAddr,
    pub(crate) path: Arc<Path>,
    threads: Vec<JoinHandle<()>>,
}

const PATIENCE: Duration = Duration::from_millis(2);

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

impl Forwarder {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let path = Arc::new(Path::default());
        path.lead_to(server);
        path.rebind();
        let front = Arc::new(socket());
        let address = front.local_addr().unwrap();
        let up = {
            let (path, front) = (Arc::clone(&path), Arc::clone(&front));
            thread::spawn(move || {
                forward(&path, 1, |buffer| {
                    let (count, from) = front.recv_from(buffer).ok()?;
                    path.from_client.fetch_add(1, Relaxed);
                    *path.client.lock().unwrap() = Some(from);
                    let server = (*path.server.lock().unwrap())?;
                    Some((count, path.back(), server))
                });
            })
        };
        let down = {
            let path = Arc::clone(&path);
            thread::spawn(move || {
                forward(&path, 2, |buffer| {
                    let (count, _) = path.back().recv_from(buffer).ok()?;
                    let client = (*path.client.lock().unwrap())?;
                    Some((count, Arc::clone(&front), client))
                });
            })
        };
        Self {
            address,
            path,
            threads: vec![up, down],
        }
    }
}

impl Path {
    /// Forwards to another server.
    pub(crate) fn lead_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap() = Some(server);
    }

    /// Gives the client another address, as seen by the server.
    pub(crate) fn rebind(&self) {
        *self.back.lock().unwrap() = Some(Arc::new(socket()));
    }

    /// The client's address, once something came from it.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        *self.client.lock().unwrap()
    }

    /// The same, with this IP address.
    pub(crate) fn rebind_at(&self, ip: &str) {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        *self.back.lock().unwrap() = Some(Arc::new(socket));
    }

    fn back(&self) -> Arc<UdpSocket> {
        Arc::clone(self.back.lock().unwrap().as_ref().unwrap())
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.path.ended.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

struct Held {
    due: Instant,
    bytes: Vec<u8>,
    socket: Arc<UdpSocket>,
    to: SocketAddr,
}

fn forward(
    path: &Path,
    seed: u64,
    mut receive: impl FnMut(&mut [u8]) -> Option<(usize, Arc<UdpSocket>, SocketAddr)>,
) {
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ seed;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut buffer = vec![0; 65_536];
    let mut held: Vec<Held> = Vec::new();
    while !path.ended.load(Relaxed) {
        if let Some((count, socket, to)) = receive(&mut buffer) {
            let mut hit = |share: &AtomicU64| {
                let is_hit = next() % 1000 < share.load(Relaxed);
                path.harmed.fetch_add(u64::from(is_hit), Relaxed);
                is_hit
            };
            let limit = path.bytes_max.load(Relaxed);
            let mut bytes = buffer[..count].to_vec();
            let is_large = limit != 0 && count as u64 > limit;
            if !is_large && !hit(&path.lost) {
                if hit(&path.corrupted) {
                    let at = (next() as usize) % count.max(1);
                    bytes[at] ^= 1 << (next() % 8);
                } else if hit(&path.doubled) {
                    let _ = socket.send_to(&bytes, to);
                }
                let delay = path.delay_ms.load(Relaxed);
                let is_late = (next() % 1000) < path.overtaken.load(Relaxed);
                let delay = Duration::from_millis(delay + 3 * u64::from(is_late));
                let due = Instant::now() + delay;
                held.push(Held {
                    due,
                    bytes,
                    socket,
                    to,
                });
            }
        }
        let now = Instant::now();
        held.retain(|datagram| {
            let is_due = datagram.due <= now;
            if is_due {
                // The system may lose it, too.
                let _ = datagram.socket.send_to(&datagram.bytes, datagram.to);
            }
            !is_due
        });
    }
}
