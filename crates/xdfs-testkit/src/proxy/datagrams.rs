//! A UDP proxy on loopback.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use socket2::SockRef;

use super::connection::LOOK;
use crate::tree::Random;

/// A proxy for datagrams, of which it loses some; dropping it ends all of its threads.
#[derive(Debug)]
pub struct DatagramProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    front: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Of 1000 datagrams.
    lost: AtomicU64,
    stopped: AtomicBool,
}

#[derive(Debug)]
struct State {
    target: SocketAddr,
    /// By the address of the client, the socket that stands for it at the server.
    flows: HashMap<SocketAddr, Arc<UdpSocket>>,
    threads: Vec<JoinHandle<()>>,
}

/// Asked for buffers of a socket: the proxy itself is not to lose bursts.
const SOCKET_BYTES: usize = 4 << 20;

fn socket() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(LOOK))?;
    let _ = SockRef::from(&socket).set_recv_buffer_size(SOCKET_BYTES);
    Ok(socket)
}

impl DatagramProxy {
    /// A proxy in front of `target`, on a free port of loopback. It loses nothing until told.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(target: SocketAddr) -> io::Result<Self> {
        let front = Arc::new(socket()?);
        let addr = front.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                target,
                flows: HashMap::new(),
                threads: Vec::new(),
            }),
            lost: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        });
        let for_front = Arc::clone(&shared);
        let front = thread::spawn(move || for_front.serve(&front));
        Ok(Self {
            addr,
            shared,
            front: Some(front),
        })
    }

    /// Where clients send to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sends what comes from now on to another server, from other addresses than before.
    pub fn set_target(&self, target: SocketAddr) {
        self.shared.state().target = target;
        self.rebind();
    }

    /// Gives the clients other addresses, as a router does that has forgotten them.
    pub fn rebind(&self) {
        self.shared.state().flows.clear();
    }

    /// Loses so many of 1000 datagrams both ways; with 1000, all of them.
    pub fn lose(&self, of_1000: u64) {
        self.shared.lost.store(of_1000, Ordering::Release);
    }
}

impl Drop for DatagramProxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        let _ = self.front.take().map(JoinHandle::join);
        // With the front gone no thread comes after these.
        let threads = std::mem::take(&mut self.shared.state().threads);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Passes on what clients send.
    fn serve(self: &Arc<Self>, front: &Arc<UdpSocket>) {
        self.forward(front, |bytes, client| {
            let mut state = self.state();
            let target = state.target;
            let back = match state.flows.get(&client) {
                Some(back) => Arc::clone(back),
                None => {
                    let back = Arc::new(socket()?);
                    state.flows.insert(client, Arc::clone(&back));
                    let (shared, back_too) = (Arc::clone(self), Arc::clone(&back));
                    let front = Arc::clone(front);
                    // It goes on when the client has another address: what is on its way arrives.
                    state.threads.push(thread::spawn(move || {
                        shared.forward(&back_too, |bytes, _| front.send_to(bytes, client));
                    }));
                    back
                }
            };
            drop(state);
            back.send_to(bytes, target)
        });
    }

    fn forward(
        &self,
        from: &UdpSocket,
        mut to: impl FnMut(&[u8], SocketAddr) -> io::Result<usize>,
    ) {
        let mut random = Random::new(1);
        let mut buffer = vec![0; 64 << 10];
        while !self.stopped.load(Ordering::Acquire) {
            // An error is of an earlier datagram, or the end of the time to look around.
            let Ok((count, peer)) = from.recv_from(&mut buffer) else {
                continue;
            };
            if random.below(1000) >= self.lost.load(Ordering::Acquire) {
                // The system may lose it, too.
                let _ = to(&buffer[..count], peer);
            }
        }
    }
}
