//! An FTP server that says exactly what a test says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::stage::PATIENCE;

/// Size of every file.
pub(crate) const SIZE: usize = 1000;

/// The content of every file.
pub(crate) fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8).collect()
}

/// A control connection, as the server sees it.
pub(crate) struct Talk {
    control: TcpStream,
    passive: Option<TcpListener>,
    active: Option<SocketAddr>,
    pub(crate) is_extended: bool,
}

impl Talk {
    /// Sends replies. The client may be gone.
    pub(crate) fn say(&mut self, text: &str) -> bool {
        self.control.write_all(text.as_bytes()).is_ok()
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
        let mut data = self.data();
        if self.is_extended {
            data.write_all(&block(0, 0, bytes)).unwrap();
            data.write_all(&header(0x48, 0, 1)).unwrap();
        } else {
            data.write_all(bytes).unwrap();
        }
        if !self.is_extended {
            drop(data);
        }
        self.say("226 done\r\n");
    }

    pub(crate) fn close(&self) {
        // The client may have closed it.
        let _ = self.control.shutdown(std::net::Shutdown::Both);
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
                thread::spawn(move || serve(stream, &features, &seen, &*answer));
            }
        });
        Self { address, commands }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
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
    features: &str,
    seen: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str, &str, &mut Talk) -> bool,
) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut talk = Talk {
        control: stream.try_clone().unwrap(),
        passive: None,
        active: None,
        is_extended: false,
    };
    talk.say("220 ready\r\n");
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
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
