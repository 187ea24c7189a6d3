//! A way between a client and a server, on which data connections are cut and bytes change.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// What becomes of a data connection. Numbers are bytes of both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// It ends after so many.
    Cut(usize),
    /// One bit changes after so many.
    Flip(usize),
    /// Nothing is passed on after so many, and it stays open.
    Stick(usize),
    /// All is well.
    Whole,
}

/// A proxy that passes on control connections, and data connections which the client opens.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
    opened: Arc<AtomicUsize>,
    left: Arc<AtomicUsize>,
    most: usize,
}

impl Proxy {
    /// Starts one before a server. `fate` says what becomes of each data connection, by its number,
    /// until it has come to `most` of them.
    pub(crate) fn start(server: &str, most: usize, fate: fn(usize) -> Fate) -> Self {
        let server: SocketAddr = server.parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let opened = Arc::new(AtomicUsize::new(0));
        let left = Arc::new(AtomicUsize::new(most));
        let (seen, number) = (Arc::clone(&commands), Arc::clone(&opened));
        let counted = Arc::clone(&left);
        // It ends with the process of the test.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
                let (seen, number) = (Arc::clone(&seen), Arc::clone(&number));
                let counted = Arc::clone(&counted);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pass_commands(from, to, &seen));
                thread::spawn(move || pass_replies(server, client, &number, &counted, fate));
            }
        });
        Self {
            address,
            commands,
            opened,
            left,
            most,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    /// The commands so far that begin so.
    pub(crate) fn count(&self, verb: &str) -> usize {
        let commands = self.commands.lock().unwrap();
        commands
            .iter()
            .filter(|line| line.starts_with(verb))
            .count()
    }

    /// Data connections to which their fate has come.
    pub(crate) fn harmed(&self) -> usize {
        self.most - self.left.load(Ordering::Relaxed)
    }

    /// Data connections that were opened so far.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }
}

fn pass_commands(from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        seen.lock().unwrap().push(text);
        if to.write_all(&line).is_err() {
            break;
        }
        line.clear();
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// Passes on replies, with the own port in place of that of the server.
fn pass_replies(
    from: TcpStream,
    mut to: TcpStream,
    number: &Arc<AtomicUsize>,
    left: &Arc<AtomicUsize>,
    fate: fn(usize) -> Fate,
) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines
        .read_until(b'\n', &mut line)
        .is_ok_and(|count| count > 0)
    {
        if let Some(rest) = line.strip_prefix(b"229 ") {
            let text = String::from_utf8_lossy(rest).into_owned();
            let port: u16 = text.split('|').nth(3).unwrap().parse().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let own = listener.local_addr().unwrap().port();
            line = format!("229 here (|||{own}|)\r\n").into_bytes();
            let (number, left) = (Arc::clone(number), Arc::clone(left));
            thread::spawn(move || {
                for client in listener.incoming() {
                    let client = client.unwrap();
                    let fate = fate(number.fetch_add(1, Ordering::Relaxed));
                    // The server may not listen any more.
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)) {
                        pass(client, server, fate, &left);
                    }
                }
            });
        }
        if to.write_all(&line).is_err() {
            break;
        }
        line.clear();
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn pass(client: TcpStream, server: TcpStream, fate: Fate, left: &Arc<AtomicUsize>) {
    let (total, is_harmed) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    for (mut from, mut to) in [
        (client.try_clone().unwrap(), server.try_clone().unwrap()),
        (server, client),
    ] {
        let (total, is_harmed) = (Arc::clone(&total), Arc::clone(&is_harmed));
        let left = Arc::clone(left);
        thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let before = total.fetch_add(count, Ordering::Relaxed);
                let has_come = |at: usize| {
                    if before + count <= at || is_harmed.load(Ordering::Relaxed) {
                        return before + count > at;
                    }
                    let order = Ordering::Relaxed;
                    let taken = left.fetch_update(order, order, |left| left.checked_sub(1));
                    is_harmed.store(taken.is_ok(), order);
                    taken.is_ok()
                };
                match fate {
                    Fate::Cut(at) if has_come(at) => break,
                    Fate::Flip(at) if before <= at && has_come(at) => bytes[at - before] ^= 4,
                    Fate::Stick(at) if has_come(at) => continue,
                    _ => {}
                }
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
    }
}
