//! A TCP proxy on loopback that breaks what passes through it.
//!
//! A test points its client at [`FaultProxy::addr`] and the proxy at the server. What happens to
//! a connection is in its [`Plan`], or is done to living ones by hand. Two threads serve a
//! connection (three or four with a delay), so it is for tests of what is right and not of what
//! is fast.

mod connection;
mod datagrams;
mod plan;
mod pump;
mod shared;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use connection::{Connection, LOOK, reset_on_close};
pub use datagrams::DatagramProxy;
pub use plan::{Faults, Flip, Plan};
use pump::{Direction, Pump};
use shared::{ProxyState, Shared};

/// A proxy; dropping it cuts all connections and ends all of its threads.
#[derive(Debug)]
pub struct FaultProxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// A proxy in front of `target`, on a free port of loopback. It changes nothing until told.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(target: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::new(ProxyState {
                target,
                plan: Plan::default(),
                next: VecDeque::new(),
                blocked: false,
                accepted: 0,
                live: BTreeMap::new(),
                threads: Vec::new(),
            }),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            flights: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&listener, &for_acceptor));
        Ok(Self {
            addr,
            shared,
            acceptor: Some(acceptor),
        })
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Sends new connections to another server, for instance the same one after its restart.
    pub fn set_target(&self, target: SocketAddr) {
        self.shared.state().target = target;
    }

    /// The plan of all new connections that have none of their own.
    pub fn set_plan(&self, plan: Plan) {
        self.shared.state().plan = plan;
    }

    /// The plan of the next new connection; called again, of the one after it.
    pub fn push_plan(&self, plan: Plan) {
        self.shared.state().next.push_back(plan);
    }

    /// Whether new connections are reset as soon as they are made. Living ones go on.
    pub fn block_new(&self, blocked: bool) {
        self.shared.state().blocked = blocked;
    }

    /// How many connections were let through so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// The numbers of the living connections, oldest first; the first ever is 0.
    #[must_use]
    pub fn live(&self) -> Vec<u64> {
        let state = self.shared.state();
        state
            .live
            .iter()
            .filter(|(_, c)| c.is_open())
            .map(|(id, _)| *id)
            .collect()
    }

    /// Resets the connection with this number, and says whether it lived.
    pub fn cut(&self, id: u64) -> bool {
        self.with(id, Connection::cut)
    }

    /// Resets the `k`-th of the living connections, counted from 0, and says whether there was
    /// one.
    pub fn cut_nth(&self, k: usize) -> bool {
        self.live().get(k).is_some_and(|id| self.cut(*id))
    }

    /// Resets all living connections, and says how many there were.
    pub fn cut_all(&self) -> usize {
        self.live().into_iter().filter(|id| self.cut(*id)).count()
    }

    /// Lets nothing more through the connection with this number, and keeps it open. Says whether
    /// it lived.
    pub fn hang(&self, id: u64) -> bool {
        self.with(id, |connection| {
            connection.hung.store(true, Ordering::Release)
        })
    }

    fn with(&self, id: u64, act: impl FnOnce(&Connection)) -> bool {
        let connection = self
            .shared
            .state()
            .live
            .get(&id)
            .filter(|c| c.is_open())
            .cloned();
        connection.map(|connection| act(&connection)).is_some()
    }

    /// Flights of a client so far: runs of its bytes without any of the server between. Of one
    /// connection on which each side waits for the other, these are its round trips, and one more
    /// if the client has the last word.
    #[must_use]
    pub fn client_flights(&self) -> u64 {
        self.shared
            .flights
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .0
    }

    /// Bytes forwarded so far over all connections: to the server, and to the client.
    #[must_use]
    pub fn forwarded(&self) -> (u64, u64) {
        (
            self.shared.up.load(Ordering::Acquire),
            self.shared.down.load(Ordering::Acquire),
        )
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        // Wakes the acceptor; if this fails it has ended already.
        let _ = TcpStream::connect_timeout(&self.addr, Duration::from_secs(1));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        // The acceptor is gone, so no connection comes after this.
        let mut state = self.shared.state();
        state.live.values().for_each(|connection| connection.cut());
        let threads = std::mem::take(&mut state.threads);
        drop(state);
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept() else {
            // Out of descriptors, for instance: not at full speed, and not for ever.
            if shared.stopped.load(Ordering::Acquire) {
                return;
            }
            thread::sleep(LOOK);
            continue;
        };
        if shared.stopped.load(Ordering::Acquire) {
            return;
        }
        let mut state = shared.state();
        if state.blocked {
            reset_on_close(&client);
            continue;
        }
        let plan = state.next.pop_front().unwrap_or_else(|| state.plan.clone());
        let target = state.target;
        drop(state);
        // The server is on loopback or near: a connection that takes long is a failed one.
        let connected = TcpStream::connect_timeout(&target, Duration::from_secs(5));
        let Ok(connection) = connected.and_then(|server| Connection::new(client, server)) else {
            continue;
        };
        let connection = Arc::new(connection);
        let mut state = shared.state();
        let id = state.accepted;
        state.accepted += 1;
        state.live.retain(|_, c| c.is_live());
        state.threads.retain(|t| !t.is_finished());
        state.live.insert(id, Arc::clone(&connection));
        for direction in [Direction::Up, Direction::Down] {
            let faults = match direction {
                Direction::Up => plan.up.clone(),
                Direction::Down => plan.down.clone(),
            };
            let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
            state.threads.push(thread::spawn(move || {
                Pump {
                    faults,
                    direction,
                    connection,
                    shared,
                    done: 0,
                }
                .run();
            }));
        }
    }
}
