//! Adds a protocol to a server: `cargo run --example own_door -- DIRECTORY`.
//!
//! Each line of a client is `stat PATH`, and is answered by `ok SIZE`, or by the code of a fault.
//! Each is a session of its own, of an anonymous user.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use xdfs::doors::{
    Admit, Door, DoorAddress, DoorControl, Ended, Evidence, Findings, HostPort, OpenDoor, Peer,
    Site, Tally,
};
use xdfs::store::Store;
use xdfs::{Answer, Call, Code, Fault, ServerBuilder};

/// The name of the door in the audit log, and of its table in a settings file.
const NAME: &str = "stat";
/// Most bytes of a line.
const LINE_BYTES_MAX: u64 = 8192;
/// Longest wait for a client that doesn't take an answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory] = words.as_slice() else {
        return Err("usage: own_door DIRECTORY".into());
    };
    let server = ServerBuilder {
        root: directory.into(),
        doors: vec![Arc::new(StatDoor::at("127.0.0.1:0")?)],
        ..ServerBuilder::default()
    };
    let server = server.bind()?;
    for (protocol, address) in server.further_addresses() {
        println!("{protocol} on {address}");
    }
    server.run()?;
    Ok(())
}

/// The settings of the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatDoor {
    listen: HostPort,
}

impl StatDoor {
    pub(crate) fn at(listen: &str) -> Result<Self, Fault> {
        let listen = HostPort::read(listen, NAME, 2798)?;
        Ok(Self { listen })
    }

    /// Its threads can't act as others.
    fn check_accounts(site: &Site) -> Result<(), Fault> {
        match site.has_accounts {
            true => {
                let cause = "it can't act as the accounts of [accounts]";
                Err(Fault::new(Code::InvalidArgument, "serve stat", cause))
            }
            false => Ok(()),
        }
    }
}

impl Door for StatDoor {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> &'static str {
        NAME
    }

    fn listens(&self) -> Vec<HostPort> {
        vec![self.listen.clone()]
    }

    fn private(&self) -> Vec<&Path> {
        Vec::new()
    }

    fn check(&self, site: &Site, findings: &mut Findings) -> Vec<DoorAddress> {
        findings.note(NAME, 0, Self::check_accounts(site));
        let addresses = findings.note(NAME, 0, self.listen.addresses(NAME, site));
        let addresses = addresses.unwrap_or_default().into_iter();
        addresses.map(|at| DoorAddress::tcp(NAME, at)).collect()
    }

    fn open(&self, site: &Site, admit: Admit) -> Result<OpenDoor, Fault> {
        Self::check_accounts(site)?;
        let listeners = self.listen.listen(NAME, site)?;
        let addresses: io::Result<Vec<_>> = listeners.iter().map(TcpListener::local_addr).collect();
        let addresses = addresses.map_err(|error| Fault::from_io("listen for stat", "", &error))?;
        let shown = addresses.iter().map(SocketAddr::to_string).collect();
        let connections = Arc::new(Connections::default());
        let control = Control {
            settings: self.clone(),
            addresses,
            connections: Arc::clone(&connections),
        };
        let sessions_max = site.sessions_max;
        Ok(OpenDoor {
            addresses: shown,
            control: Arc::new(control),
            run: Box::new(move || {
                // Returns once the threads of all connections have ended.
                thread::scope(|scope| {
                    for listener in &listeners {
                        let (admit, connections) = (&admit, &connections);
                        scope.spawn(move || {
                            for stream in listener.incoming().flatten() {
                                let Some(number) = connections.enter(&stream, sessions_max) else {
                                    if connections.are_over() {
                                        return;
                                    }
                                    continue;
                                };
                                scope.spawn(move || {
                                    // A connection that is lost is an end like any other.
                                    let _ = serve(&stream, admit, connections);
                                    connections.leave(number);
                                });
                            }
                        });
                    }
                });
                Ok(())
            }),
        })
    }
}

/// The open connections.
#[derive(Debug, Default)]
struct Connections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    streams: HashMap<u64, TcpStream>,
    next: u64,
    are_over: bool,
}

impl Connections {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a further connection; `None` if there may be none.
    fn enter(&self, stream: &TcpStream, most: usize) -> Option<u64> {
        let mut state = self.state();
        if state.are_over || state.streams.len() >= most {
            return None;
        }
        let stream = stream.try_clone().ok()?;
        stream.set_write_timeout(Some(PATIENCE)).ok()?;
        state.next += 1;
        let number = state.next;
        state.streams.insert(number, stream);
        Some(number)
    }

    fn leave(&self, number: u64) {
        self.state().streams.remove(&number);
    }

    fn are_over(&self) -> bool {
        self.state().are_over
    }
}

/// Has no part of the [`Admit`], which ends with the door.
#[derive(Debug)]
struct Control {
    settings: StatDoor,
    addresses: Vec<SocketAddr>,
    connections: Arc<Connections>,
}

impl DoorControl for Control {
    fn reload(&self, door: &dyn Door) -> Vec<&'static str> {
        let new = door.downcast_ref::<StatDoor>();
        let differs = new.is_some_and(|new| *new != self.settings);
        differs.then_some(NAME).into_iter().collect()
    }

    fn review(&self) -> Ended {
        // The next line of a client is a new session, by the rules of then.
        Ended::default()
    }

    fn tally(&self) -> Option<Arc<Tally>> {
        None
    }

    fn drain(&self, grace: Duration) {
        let how = match grace.is_zero() {
            true => Shutdown::Both,
            false => Shutdown::Read,
        };
        let mut state = self.connections.state();
        state.are_over = true;
        for stream in state.streams.values() {
            // It may have ended by itself.
            let _ = stream.shutdown(how);
        }
        drop(state);
        for address in &self.addresses {
            // Wakes the thread that accepts. None is there any more after the first time.
            let _ = TcpStream::connect_timeout(address, PATIENCE);
        }
    }
}

/// Answers the lines of a client until the door is drained.
fn serve(stream: &TcpStream, admit: &Admit, connections: &Connections) -> io::Result<()> {
    let peer = Peer::new(NAME, stream.peer_addr()?.to_string());
    let mut lines = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        lines.by_ref().take(LINE_BYTES_MAX).read_line(&mut line)?;
        let Some(line) = line.strip_suffix('\n').filter(|_| !connections.are_over()) else {
            return Ok(());
        };
        let answer = match answer(line, &peer, admit) {
            Ok(size) => format!("ok {size}\n"),
            Err(fault) => format!("{}\n", fault.code),
        };
        writer.write_all(answer.as_bytes())?;
    }
}

/// The size of the file that a line names.
fn answer(line: &str, peer: &Peer, admit: &Admit) -> Result<u64, Fault> {
    let Some(path) = line.strip_prefix("stat ") else {
        let cause = "the only request is: stat PATH";
        return Err(Fault::new(Code::InvalidArgument, "read a line", cause));
    };
    match admit {
        Admit::Open(store) => size(&**store, path),
        Admit::Guarded(current) => {
            let access = current.access();
            let login = access.authenticate(peer, "", Evidence::Anonymous)?;
            let admission = access.admit(peer, &login)?;
            size(&*admission.store, path)
        }
    }
}

fn size(store: &dyn Store, path: &str) -> Result<u64, Fault> {
    let call = Call::Stat {
        path: path.into(),
        follow: true,
    };
    match store.call(&call, &mut |_| Ok(()))? {
        Answer::Attributes(attributes) => Ok(attributes.size),
        other => {
            let cause = format!("the store has answered {other:?}");
            Err(Fault::new(Code::Internal, "look at a file", cause))
        }
    }
}
