//! A web server on the loopback interface whose answers are those of a test, also wrong ones.
//!
//! It reads a request up to its empty line, looks at its path alone, and answers one request a
//! connection.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// How often a connection that waits looks whether the server has ended.
const TICK: Duration = Duration::from_millis(5);

/// What a request gets.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These bytes, status line and headers included, and then the end.
    Raw(Vec<u8>),
    /// Nothing, on a connection that stays open.
    Silence,
    /// These bytes, and then one zero byte after the other, slowly and without an end.
    Drip(Vec<u8>),
}

impl Answer {
    /// An answer with this status, these lines of headers (each with its end), and this body.
    #[must_use]
    pub fn new(status: &str, headers: &str, body: &[u8]) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{headers}\r\n",
            body.len()
        );
        Self::Raw([head.as_bytes(), body].concat())
    }

    /// A document.
    #[must_use]
    pub fn ok(body: &[u8]) -> Self {
        Self::new("200 OK", "", body)
    }
}

/// A connection, as the server uses it.
pub trait Connection: Read + Write {}

impl<T: Read + Write> Connection for T {}

/// A web server that runs until it is dropped.
pub struct Web {
    addr: SocketAddr,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Web {
    /// A server on a free port of 127.0.0.1; `answer` gets the path of each request.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        Self::start_over(|stream| Some(Box::new(stream)), answer)
    }

    /// The same over what `wrap` makes of a connection, such as TLS. One that it refuses is
    /// closed.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start_over(
        wrap: impl Fn(TcpStream) -> Option<Box<dyn Connection>> + Send + Sync + 'static,
        answer: impl Fn(&str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stopped);
        let wrap = Arc::new(wrap);
        let answer = Arc::new(answer);
        let thread = thread::spawn(move || {
            let mut connections = Vec::new();
            while let Ok((stream, _)) = listener.accept() {
                if is_stopped.load(Ordering::SeqCst) {
                    break;
                }
                let (wrap, answer) = (Arc::clone(&wrap), Arc::clone(&answer));
                let is_stopped = Arc::clone(&is_stopped);
                connections.push(thread::spawn(move || {
                    // A read that gives up now and then sees the end of the server.
                    let _ = stream.set_read_timeout(Some(TICK));
                    if let Some(mut stream) = wrap(stream) {
                        serve(stream.as_mut(), &*answer, &is_stopped);
                    }
                }));
            }
            for connection in connections {
                let _ = connection.join();
            }
        });
        Self {
            addr,
            stopped,
            thread: Some(thread),
        }
    }

    /// The address on which it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address of a path that begins with a slash, of `http`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Ends the wait for the next connection.
        let woken = TcpStream::connect(self.addr).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").field("addr", &self.addr).finish()
    }
}

fn serve(stream: &mut dyn Connection, answer: &dyn Fn(&str) -> Answer, is_stopped: &AtomicBool) {
    let Some(path) = request(stream, is_stopped) else {
        return;
    };
    match answer(&path) {
        // The peer may have gone; that is its right.
        Answer::Raw(bytes) => drop(stream.write_all(&bytes).and_then(|()| stream.flush())),
        Answer::Silence => {
            while !is_stopped.load(Ordering::SeqCst) {
                thread::sleep(TICK);
            }
        }
        Answer::Drip(bytes) => {
            let mut written = stream.write_all(&bytes);
            while written.is_ok() && !is_stopped.load(Ordering::SeqCst) {
                thread::sleep(TICK);
                written = stream.write_all(&[0]).and_then(|()| stream.flush());
            }
        }
    }
}

/// The path of the request; none if there is none.
fn request(stream: &mut dyn Connection, is_stopped: &AtomicBool) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() > REQUEST_BYTES_MAX || is_stopped.load(Ordering::SeqCst) {
            return None;
        }
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(n) => bytes.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
    }
    let text = String::from_utf8(bytes).ok()?;
    let path = text.split(' ').nth(1)?;
    Some(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(web: &Web, path: &str) -> String {
        let mut stream = TcpStream::connect(web.addr()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn answers_by_path_and_ends_silent_connections_with_itself() {
        let web = Web::start(|path| match path {
            "/a" => Answer::ok(b"one"),
            "/b" => Answer::new("404 Not Found", "X: y\r\n", b""),
            _ => Answer::Silence,
        });
        assert!(web.url("/a").starts_with("http://127.0.0.1:"));
        assert!(ask(&web, "/a").ends_with("\r\n\r\none"));
        let missing = ask(&web, "/b");
        assert!(missing.starts_with("HTTP/1.1 404 ") && missing.contains("X: y\r\n"));
        let mut silent = TcpStream::connect(web.addr()).unwrap();
        silent.write_all(b"GET /c HTTP/1.1\r\n\r\n").unwrap();
        drop(web);
        let mut rest = Vec::new();
        assert_eq!(silent.read_to_end(&mut rest).unwrap_or(0), 0);
    }
}
