//! Connections that say nothing, from one address.

use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::{wait, warnings};

/// Time to connect.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of looks at the connections.
const INTERVAL: Duration = Duration::from_millis(2);
/// Connections that a flood opens at a time, and all in all.
const STEP: usize = 16;
const FLOOD: usize = 20_000;
/// Time for the last warning about a flood, which may have to be waited for again.
const LAST_WARNING: Duration = Duration::from_secs(5);
const ATTEMPTS: usize = 10;

/// A number of connections that say nothing, of which those that the server closes are opened again
/// at once. They end when this is dropped.
#[derive(Debug)]
pub struct Strangers {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Strangers {
    /// Opens `count` connections from the address `from`.
    ///
    /// # Errors
    /// This machine doesn't have the address, or no more sockets.
    pub fn open(from: IpAddr, to: SocketAddr, count: usize) -> io::Result<Self> {
        let mut all: Vec<_> = (0..count)
            .map(|_| connect(from, to))
            .collect::<io::Result<_>>()?;
        let ends = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ends);
        let work = move || {
            while !told.load(Ordering::Relaxed) {
                for stream in all.iter_mut().filter_map(|stream| has_ended(stream)) {
                    // A server that is too busy to accept is tried again.
                    if let Ok(again) = connect(from, to) {
                        *stream = again;
                    }
                }
                thread::sleep(INTERVAL);
            }
        };
        let thread = Some(thread::Builder::new().spawn(work)?);
        Ok(Self { ends, thread })
    }
}

impl Drop for Strangers {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It doesn't panic.
            let _ = thread.join();
        }
    }
}

/// Floods a listener of this process, and returns whether its log counts the connections that had
/// to give way: one in a warning at once, and others in a later one, though nothing happens any
/// more by then. `open` opens so many connections, which stay open. The interval between warnings
/// has to be short, and [`warnings::keep`] was called.
///
/// # Errors
/// Those of `open`.
pub fn are_counted(
    listener: SocketAddr,
    mut open: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<bool> {
    let end = format!(":{}", listener.port());
    let counts = || {
        let all = warnings::all();
        let about = all
            .iter()
            .filter(|warning| warning.get("listener").is_some_and(|at| at.ends_with(&end)));
        let counts = about.filter_map(|warning| warning.get("closed")?.parse().ok());
        counts.collect::<Vec<u64>>()
    };
    let mut opened = 0;
    for _ in 0..ATTEMPTS {
        let before = counts().len();
        while counts().len() == before {
            if opened > FLOOD {
                return Ok(false);
            }
            open(STEP)?;
            opened += STEP;
            thread::sleep(INTERVAL);
        }
        open(STEP)?;
        let is_counted = || {
            let counts = counts();
            counts.len() > before + 1 && counts[before..].iter().sum::<u64>() > 1
        };
        // On a busy machine those that are late may have left before others had to.
        if wait::until(LAST_WARNING, is_counted) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// The connection, if the server has closed it. A greeting is read and ignored.
fn has_ended(stream: &mut TcpStream) -> Option<&mut TcpStream> {
    loop {
        match stream.read(&mut [0; 512]) {
            Ok(0) => return Some(stream),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Some(stream),
        }
    }
}
