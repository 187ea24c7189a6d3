//! An FTP server that says exactly what a test says.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::stage::PATIENCE;

/// Size of every file.
pub(crate) const SIZE: usize = 1000;

/// The content of every file.
pub(crate) fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

/// A connection in clear, or with TLS.
pub(crate) enum Socket {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Socket {
    /// Begins with TLS, as its server.
    pub(crate) fn secured(stream: TcpStream, tls: &Arc<ServerConfig>) -> Self {
        let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
        Self::Tls(Box::new(StreamOwned::new(connection, stream)))
    }

    /// Tells the end, as far as there is TLS.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(stream) = self {
            stream.conn.send_close_notify();
            // The client may be gone.
            let _ = stream.flush();
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// A control connection, as the server sees it.
pub(crate) struct Talk {
    control: Socket,
    tls: Option<Arc<ServerConfig>>,
    /// PROT P.
    protects: bool,
    passive: Option<TcpListener>,
    active: Option<SocketAddr>,
    pub(crate) is_extended: bool,
    /// The directory that the client has changed to, for answers that keep it.
    pub(crate) here: String,
    /// Replies end with LF alone.
    is_bare: bool,
}

impl Talk {
    /// Sends replies. The client may be gone.
    pub(crate) fn say(&mut self, text: &str) -> bool {
        let text = match self.is_bare {
            true => &text.replace("\r\n", "\n"),
            false => text,
        };
        let said = self.control.write_all(text.as_bytes());
        said.and_then(|()| self.control.flush()).is_ok()
    }

    /// Whether the client has sent another command already.
    pub(crate) fn has_more(&self) -> bool {
        let stream = self.control.tcp();
        stream.set_nonblocking(true).unwrap();
        let seen = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        matches!(seen, Ok(1))
    }

    /// The next line of the client; `None` at the end.
    pub(crate) fn line(&mut self) -> Option<String> {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") {
            match self.control.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                _ => return None,
            }
        }
        line.truncate(line.len() - 2);
        String::from_utf8(line).ok()
    }

    /// Begins with TLS on the control connection.
    pub(crate) fn secure(&mut self) {
        let stream = self.control.tcp().try_clone().unwrap();
        self.control = Socket::secured(stream, self.tls.as_ref().unwrap());
    }

    /// A data connection with what protects it.
    pub(crate) fn secure_data(&self) -> Socket {
        match self.tls.as_ref().filter(|_| self.protects) {
            Some(tls) => Socket::secured(self.data(), tls),
            None => Socket::Clear(self.data()),
        }
    }

    /// A data connection, by the way that the client has chosen.
    pub(crate) fn data(&self) -> TcpStream {
        let stream = match (&self.passive, self.active) {
            (Some(listener), _) => listener.accept().unwrap().0,
            (None, Some(address)) => TcpStream::connect(address).unwrap(),
            (None, None) => panic!("the client has told no way"),
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends data as a whole file, or what is one in MODE E, and confirms it.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.say("150 now\r\n");
        let mut data = self.secure_data();
        if self.is_extended {
            data.write_all(&block(0, 0, bytes)).unwrap();
            data.write_all(&header(0x48, 0, 1)).unwrap();
            data.flush().unwrap();
        } else {
            data.write_all(bytes).unwrap();
            data.end();
        }
        if !self.is_extended {
            drop(data);
        }
        self.say("226 done\r\n");
    }

    pub(crate) fn close(&self) {
        // The client may have closed it.
        let _ = self.control.tcp().shutdown(std::net::Shutdown::Both);
    }
}

/// A header of MODE E.
pub(crate) fn header(bits: u8, count: u64, offset: u64) -> Vec<u8> {
    [&[bits][..], &count.to_be_bytes(), &offset.to_be_bytes()].concat()
}

/// A block of MODE E.
pub(crate) fn block(bits: u8, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [header(bits, bytes.len() as u64, offset), bytes.to_vec()].concat()
}

/// The server, and the commands that it got.
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Starts a server with these lines in FEAT. `answer` says whether it has answered a command;
    /// others get the replies of a server with files of [`SIZE`] bytes and a directory `/d`.
    pub(crate) fn start(
        features: &str,
        answer: impl Fn(&str, &str, &mut Talk) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start_with(None, features, answer)
    }

    /// The same, whose replies end with LF alone.
    pub(crate) fn start_bare(
        features: &str,
        answer: impl Fn(&str, &str, &mut Talk) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(None, true, features, answer)
    }

    /// The same, which has TLS after AUTH if `tls` is something.
    pub(crate) fn start_with(
        tls: Option<Arc<ServerConfig>>,
        features: &str,
        answer: impl Fn(&str, &str, &mut Talk) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self::start_as(tls, false, features, answer)
    }

    fn start_as(
        tls: Option<Arc<ServerConfig>>,
        is_bare: bool,
        features: &str,
        answer: impl Fn(&str, &str, &mut Talk) -> bool + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (Arc::clone(&commands), Arc::new(answer));
        let features = features.to_owned();
        // It ends with the process of the test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                let (stream, features) = (stream.unwrap(), features.clone());
                let tls = tls.clone();
                thread::spawn(move || serve(stream, (tls, is_bare), &features, &seen, &*answer));
            }
        });
        Self { address, commands }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    /// The same with TLS, by the name that is in certificates.
    pub(crate) fn secure_url(&self, path: &str) -> String {
        format!("ftps://localhost:{}{path}", self.address.port())
    }

    /// Whether a file was asked for.
    pub(crate) fn was_read(&self) -> bool {
        self.commands()
            .iter()
            .any(|command| command.starts_with("RETR"))
    }

    /// The commands so far.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.commands.lock().unwrap().clone()
    }
}

fn serve(
    stream: TcpStream,
    (tls, is_bare): (Option<Arc<ServerConfig>>, bool),
    features: &str,
    seen: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str, &str, &mut Talk) -> bool,
) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut talk = Talk {
        control: Socket::Clear(stream),
        tls,
        protects: false,
        passive: None,
        active: None,
        is_extended: false,
        here: String::new(),
        is_bare,
    };
    talk.say("220 ready\r\n");
    while let Some(line) = talk.line() {
        seen.lock().unwrap().push(line.clone());
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        if verb == "MODE" {
            talk.is_extended = matches!(argument, "E" | "T");
        }
        if verb == "PORT" {
            let numbers: Vec<u16> = argument.split(',').map(|n| n.parse().unwrap()).collect();
            talk.active = Some(SocketAddr::from((
                [127, 0, 0, 1],
                numbers[4] << 8 | numbers[5],
            )));
            talk.passive = None;
        }
        if answer(verb, argument, &mut talk) {
            continue;
        }
        let text = match verb {
            "AUTH" if talk.tls.is_some() => {
                talk.say("234 go on\r\n");
                talk.secure();
                continue;
            }
            "PBSZ" | "PROT" if talk.tls.is_some() => {
                talk.protects = argument == "P";
                "200 fine\r\n".to_owned()
            }
            "USER" => "331 password\r\n".to_owned(),
            "PASS" => "230 welcome\r\n".to_owned(),
            "FEAT" => format!("211-Features\r\n{features}211 End\r\n"),
            "PWD" => "257 \"/\" is it\r\n".to_owned(),
            "MLST" => {
                let kind = if argument == "/d" { "dir" } else { "file" };
                let facts = format!("Type={kind};Size={SIZE};Modify=20260102030405;");
                format!("250-it\r\n {facts} {argument}\r\n250 End\r\n")
            }
            "EPSV" => {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let port = listener.local_addr().unwrap().port();
                talk.passive = Some(listener);
                format!("229 here (|||{port}|)\r\n")
            }
            "RETR" => {
                talk.send(&content());
                continue;
            }
            "TYPE" | "MODE" | "OPTS" | "PORT" => "200 fine\r\n".to_owned(),
            _ => "502 unknown\r\n".to_owned(),
        };
        if !talk.say(&text) {
            return;
        }
    }
}
