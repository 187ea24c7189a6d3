//! Control connections that another program carries: ssh, for `sshftp://` places.
//!
//! ```text
//!   this machine                      | the server's machine
//!   Link <-> socket <-> ssh <=========|==> sshd <-> shell <-> ~/.globus/sshftp
//!   data connections <================|=====================> server
//! ```
//!
//! Each control connection is a program of its own, which starts a server of its own there: what
//! globus-url-copy starts too. Data connections don't go through it. They go to the host as this
//! machine knows it, and of its addresses to that at which sshd there was reached, which it tells
//! before the server begins. So no server can send this machine elsewhere.

#![cfg_attr(
    not(unix),
    expect(
        dead_code,
        reason = "a program can't have sockets as its standard streams there"
    )
)]

use std::ffi::OsString;
#[cfg(not(unix))]
use std::net::TcpStream;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use xdfs_proto::{Code, Fault, Retry};

use super::fault::lost;
#[cfg(unix)]
pub(super) use process::Carried;

/// What the shell there prints before the server begins: this, and SSH_CONNECTION.
const MARK: &str = "xdfs-sshftp ";
/// What clients of GridFTP start through ssh: the first of two scripts that is there.
const SCRIPTS: &str = ".globus/sshftp /etc/grid-security/sshftp";
/// The words of those clients where neither is there.
const NONE_THERE: &str = "500 Server is not configured for SSHFTP connections.";
/// Any port but 0: nothing is sent to it.
const ANY_PORT: u16 = 9;

/// How control connections with a server are opened: by a program such as ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The program with its arguments, the last of which names the host. Another argument is added:
    /// the command for the shell there.
    pub command: Vec<OsString>,
    /// The host on the network, to which data connections go.
    pub host: String,
    /// What the shell there starts; `None` for `~/.globus/sshftp`, or else
    /// `/etc/grid-security/sshftp`.
    pub program: Option<String>,
}

/// Both ends of a control connection.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) peer: IpAddr,
    pub(super) local: IpAddr,
    /// The program that carries it.
    pub(super) carried: Option<Carried>,
    /// What was read of the server's greeting.
    pub(super) greeting: Vec<u8>,
}

impl Ends {
    /// Those of a connection of this machine.
    ///
    /// # Errors
    /// It is broken.
    pub(super) fn of(stream: &std::net::TcpStream) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| lost("open the control connection", &error);
        Ok(Self {
            peer: stream.peer_addr().map_err(failed)?.ip().to_canonical(),
            local: stream.local_addr().map_err(failed)?.ip().to_canonical(),
            carried: None,
            greeting: Vec::new(),
        })
    }
}

impl Carrier {
    /// The command for the shell of the user there, of whichever kind that is.
    fn remote_command(&self) -> String {
        let tell = format!("echo \"{MARK}$SSH_CONNECTION\"");
        match &self.program {
            Some(program) => format!("sh -c '{tell}'; {program}"),
            None => format!(
                "sh -c '{tell}; for f in {SCRIPTS}; do test -f \"$f\" && exec \"$f\"; done; \
                 printf \"{NONE_THERE}\\r\\n\"'"
            ),
        }
    }

    /// What to do about a server that doesn't begin as it should.
    pub(super) fn hinted(&self, fault: Fault) -> Fault {
        match (fault.hint.is_empty(), &self.program) {
            (false, _) => fault,
            (true, Some(program)) => fault.hint(format!("see what {program} does there")),
            (true, None) => fault.hint(
                "~/.globus/sshftp or /etc/grid-security/sshftp has to start a server there; \
                 --remote-program names another program",
            ),
        }
    }

    /// The address for data connections, of those that the host has here; `told` is that at which
    /// sshd says that it was reached. It has another one behind address translation.
    ///
    /// # Errors
    /// The host isn't known here.
    fn address(&self, told: Option<IpAddr>) -> Result<IpAddr, Fault> {
        let operation = format!("find {} for data connections", self.host);
        let unknown = |cause: String| {
            Fault::new(Code::ConnectionRefused, &operation, cause)
                .retry(Retry::Now)
                .hint(
                    "data connections don't go through ssh: use an ssh:// place, for which \
                     everything does",
                )
        };
        let found = (self.host.as_str(), ANY_PORT).to_socket_addrs();
        let found = found.map_err(|error| unknown(error.to_string()))?;
        let found: Vec<_> = found.map(|address| address.ip().to_canonical()).collect();
        choose(told, &found).ok_or_else(|| unknown("it has no address".to_owned()))
    }
}

/// The address of this machine on the way to another one.
///
/// # Errors
/// There is no way.
fn own_address(peer: IpAddr) -> Result<IpAddr, Fault> {
    let any = match peer {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    };
    // Nothing is sent: the system chooses the way.
    let found = UdpSocket::bind(SocketAddr::new(any, 0)).and_then(|socket| {
        socket.connect(SocketAddr::new(peer, ANY_PORT))?;
        socket.local_addr()
    });
    let operation = format!("find a way to {peer} for data connections");
    let found = found.map_err(|error| lost(&operation, &error))?;
    Ok(found.ip().to_canonical())
}

/// What a broken connection means if something carries it.
pub(super) fn explained(carried: Option<&mut Carried>, fault: Fault) -> Fault {
    match carried {
        Some(carried) => carried.explain(fault),
        None => fault,
    }
}

/// See [`Carrier::address`].
fn choose(told: Option<IpAddr>, found: &[IpAddr]) -> Option<IpAddr> {
    let told = told.map(|ip| ip.to_canonical());
    let is_alike = |ip: &&IpAddr| told.is_none_or(|told| told.is_ipv4() == ip.is_ipv4());
    let same = found.iter().find(|ip| Some(**ip) == told);
    let found = same.or_else(|| found.iter().find(is_alike).or_else(|| found.first()));
    found.copied()
}

/// What begins the output of a program.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// What sshd says about its connection.
    Mark(Option<IpAddr>),
    /// The shell's greetings to its user.
    Other,
    /// A reply of a server: the key allows one command only, which isn't ours.
    Reply,
}

impl Line {
    fn read(line: &[u8]) -> Self {
        // The shell's output before it may have no line end.
        let mut places = line.windows(MARK.len());
        if let Some(at) = places.rposition(|window| window == MARK.as_bytes()) {
            let words = String::from_utf8_lossy(&line[at + MARK.len()..]);
            let server = words.split_ascii_whitespace().nth(2);
            return Self::Mark(server.and_then(|word| word.parse().ok()));
        }
        // What a server may say first. Shells may greet with other numbers.
        match line {
            [b'2', b'2', b'0', b' ' | b'-', ..]
            | [b'4', b'2', b'1', b' ' | b'-', ..]
            | [b'5', b'0'..=b'9', b'0'..=b'9', b' ' | b'-', ..] => Self::Reply,
            _ => Self::Other,
        }
    }
}

/// Programs with sockets as their standard streams.
#[cfg(unix)]
mod process {
    use std::io::{self, BufRead as _, BufReader, Read as _};
    use std::net::TcpStream;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{ChildStderr, Command, ExitStatus, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    use xdfs_proto::{Code, Fault, Retry};
    use xdfs_store::check_cancelled;
    use xdfs_sys::program::Program;

    use super::{Carrier, Ends, Line, own_address};
    use crate::client::fault::lost;

    const OPEN: &str = "open the control connection through ssh";
    /// Time until the server begins, in which somebody may be asked for a password: sshd gives 120
    /// seconds for that.
    const LOGIN: Duration = Duration::from_secs(150);
    /// Time for a program that has closed its output to end.
    const LAST_WORDS: Duration = Duration::from_millis(500);
    /// Interval of looks at it, and at whether the connection is still wanted.
    const TICK: Duration = Duration::from_millis(20);
    /// Most bytes before the server begins: what shells print is not long.
    const BEGINNING_BYTES_MAX: usize = 256 << 10;
    /// Bytes of a line of the program's messages that are shown at most.
    const MESSAGE_BYTES_MAX: u64 = 300;

    /// Programs log in one after the other: each may ask for a password.
    static LOGGING_IN: Mutex<()> = Mutex::new(());

    /// A program that carries a connection. It ends with this value, and the server there with it.
    #[derive(Debug)]
    pub(in crate::client) struct Carried {
        program: Program,
        /// The last line of its messages.
        said: Arc<Mutex<String>>,
        /// Disconnected once there are no more.
        has_said: Mutex<mpsc::Receiver<()>>,
    }

    impl Carrier {
        /// Opens a control connection, on which the server's greeting comes.
        ///
        /// # Errors
        /// The program can't be started, doesn't log in, or takes too long.
        pub(in crate::client) fn open(
            &self,
            is_closed: &AtomicBool,
        ) -> Result<(TcpStream, Ends), Fault> {
            let check = || {
                check_cancelled()?;
                match is_closed.load(Ordering::Relaxed) {
                    true => Err(Fault::new(Code::Cancelled, OPEN, "the session has ended")),
                    false => Ok(()),
                }
            };
            let deadline = Instant::now() + LOGIN;
            let turn = turn(&check, deadline)?;
            let failed = |error: io::Error| lost(OPEN, &error);
            let (own, its) = UnixStream::pair().map_err(failed)?;
            let (mut carried, program) = self.start(its)?;
            own.set_read_timeout(Some(TICK)).map_err(failed)?;
            let begun = begin(&own, &check, deadline);
            drop(turn);
            let (told, greeting) = match begun {
                Ok(Some(begun)) => begun,
                Ok(None) => return Err(carried.refused(&program)),
                Err(fault) => return Err(carried.explain(fault)),
            };
            let peer = self.address(told)?;
            let ends = Ends {
                peer,
                local: own_address(peer)?,
                carried: Some(carried),
                greeting,
            };
            tracing::debug!(%peer, "data connections go to the host of ssh");
            Ok((TcpStream::from(OwnedFd::from(own)), ends))
        }

        /// Starts the program with `its` end of a connection. Returns its name too.
        fn start(&self, its: UnixStream) -> Result<(Carried, String), Fault> {
            let mut words = self.command.iter();
            let program = words.next().cloned().unwrap_or_default();
            let failed = |error: io::Error| {
                Fault::from_io(OPEN, program.as_encoded_bytes(), &error)
                    .hint("install OpenSSH, or name another program with --ssh")
            };
            let (stdin, stdout) = (its.try_clone().map_err(failed)?, its);
            let mut command = Command::new(&program);
            command.args(words).arg(self.remote_command());
            command
                .stdin(OwnedFd::from(stdin))
                .stdout(OwnedFd::from(stdout))
                .stderr(Stdio::piped());
            let mut started = Program::start(&mut command).map_err(failed)?;
            let said = Arc::default();
            let (sender, has_said) = mpsc::channel();
            if let (_, _, Some(stderr)) = started.take_streams() {
                let said = Arc::clone(&said);
                let listen = move || {
                    // Dropped at the end.
                    let _sender = sender;
                    listen(stderr, &said);
                };
                let thread = thread::Builder::new().name("xdfs-ssh".into());
                thread.spawn(listen).map_err(failed)?;
            }
            let carried = Carried {
                program: started,
                said,
                has_said: Mutex::new(has_said),
            };
            Ok((carried, program.to_string_lossy().into_owned()))
        }
    }

    /// Waits for its turn to log in.
    fn turn(
        check: &dyn Fn() -> Result<(), Fault>,
        deadline: Instant,
    ) -> Result<MutexGuard<'static, ()>, Fault> {
        loop {
            match LOGGING_IN.try_lock() {
                Ok(turn) => return Ok(turn),
                Err(TryLockError::Poisoned(error)) => return Ok(error.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            check()?;
            if Instant::now() >= deadline {
                let cause = "other connections take too long to log in";
                let fault = Fault::new(Code::DeadlineExceeded, OPEN, cause);
                return Err(fault.retry(Retry::Now));
            }
            thread::sleep(TICK);
        }
    }

    /// What sshd tells before the server begins, and what came of the server's greeting.
    type Beginning = (Option<std::net::IpAddr>, Vec<u8>);

    /// Reads up to the beginning of the server; `None` if the program ends before. Byte by byte:
    /// what follows is the server's.
    fn begin(
        mut own: &UnixStream,
        check: &dyn Fn() -> Result<(), Fault>,
        deadline: Instant,
    ) -> Result<Option<Beginning>, Fault> {
        let (mut line, mut count) = (Vec::new(), 0);
        loop {
            let mut byte = [0];
            match own.read(&mut byte) {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    count += 1;
                    line.push(byte[0]);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        check()?;
                        if Instant::now() >= deadline {
                            let cause = format!("nothing has begun there for {LOGIN:?}");
                            let fault = Fault::new(Code::DeadlineExceeded, OPEN, cause);
                            return Err(fault.retry(Retry::Now));
                        }
                    }
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::ConnectionReset => return Ok(None),
                    _ => return Err(lost(OPEN, &error)),
                },
            }
            if count > BEGINNING_BYTES_MAX {
                let cause = "the shell there prints too much before the server begins";
                return Err(Fault::new(Code::LimitExceeded, OPEN, cause)
                    .hint("let its start-up files print nothing to commands of ssh"));
            }
            if !line.ends_with(b"\n") {
                continue;
            }
            match Line::read(&line) {
                Line::Mark(told) => return Ok(Some((told, Vec::new()))),
                Line::Reply => return Ok(Some((None, line))),
                Line::Other => line.clear(),
            }
        }
    }

    /// Keeps the last line of the program's messages.
    fn listen(stderr: ChildStderr, said: &Mutex<String>) {
        let mut stderr = BufReader::new(stderr);
        loop {
            let mut line = Vec::new();
            let mut part = io::Read::take(&mut stderr, MESSAGE_BYTES_MAX);
            match part.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let shown = |c: char| if c.is_control() { '?' } else { c };
            let text: String = text.trim().chars().map(shown).collect();
            if !text.is_empty() {
                tracing::info!("ssh says: {text}");
                *said.lock().unwrap_or_else(PoisonError::into_inner) = text;
            }
        }
    }

    impl Carried {
        /// How the program has ended, if it has, and its last words.
        fn end(&mut self) -> Option<(ExitStatus, String)> {
            let deadline = Instant::now() + LAST_WORDS;
            let has_said = self.has_said.get_mut();
            let has_said = has_said.unwrap_or_else(PoisonError::into_inner);
            // Nothing is sent. If it goes on for longer, so be it.
            let _ = has_said.recv_timeout(LAST_WORDS);
            loop {
                if let Some(status) = self.program.status().ok().flatten() {
                    let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
                    return Some((status, said.clone()));
                }
                if Instant::now() >= deadline {
                    return None;
                }
                thread::sleep(TICK);
            }
        }

        /// What a broken connection means if the program has ended.
        pub(in crate::client) fn explain(&mut self, fault: Fault) -> Fault {
            let may_be = matches!(fault.code, Code::ConnectionLost | Code::DeadlineExceeded);
            match may_be.then(|| self.end()).flatten() {
                Some((status, said)) => Fault {
                    cause: format!("ssh has ended ({status}){}", after(&said)),
                    code: Code::ConnectionLost,
                    ..fault
                },
                None => fault,
            }
        }

        /// The fault of a program that has ended before the server began.
        fn refused(mut self, program: &str) -> Fault {
            let ended = self.end();
            let (code, cause, hint) = match ended {
                Some((status, said)) if status.code() == Some(255) => (
                    Code::ConnectionRefused,
                    format!("{program} could not connect or log in{}", after(&said)),
                    "see that ssh can log in there",
                ),
                Some((status, said)) => (
                    Code::ConnectionRefused,
                    format!(
                        "what {program} starts there has ended ({status}){}",
                        after(&said)
                    ),
                    "see what ssh prints there for 'sh -c true'",
                ),
                None => (
                    Code::ConnectionLost,
                    format!("{program} has closed the connection"),
                    "see that ssh can log in there",
                ),
            };
            Fault::new(code, OPEN, cause).retry(Retry::Now).hint(hint)
        }
    }

    /// Last words behind something else.
    fn after(said: &str) -> String {
        match said {
            "" => String::new(),
            said => format!(": {said}"),
        }
    }
}

/// There are none: sockets can't be the standard streams of a program.
#[cfg(not(unix))]
#[derive(Debug)]
pub(super) enum Carried {}

#[cfg(not(unix))]
impl Carried {
    pub(super) fn explain(&mut self, _: Fault) -> Fault {
        match *self {}
    }
}

#[cfg(not(unix))]
impl Carrier {
    /// # Errors
    /// Always.
    pub(super) fn open(
        &self,
        _: &std::sync::atomic::AtomicBool,
    ) -> Result<(TcpStream, Ends), Fault> {
        let cause = "sshftp:// places are not supported on this system";
        Err(Fault::new(
            Code::Unsupported,
            "open the control connection",
            cause,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn what_begins_is_told_apart() {
        let mark = |text: &str| Line::read(format!("xdfs-sshftp {text}\n").as_bytes());
        for (text, told) in [
            ("192.0.2.1 50000 192.0.2.7 22", Some("192.0.2.7")),
            ("2001:db8::1 5 2001:db8::7 22", Some("2001:db8::7")),
            ("UNKNOWN 65535 UNKNOWN 65535", None),
            ("", None),
        ] {
            assert_eq!(mark(text), Line::Mark(told.map(ip)), "{text}");
        }
        let noisy = Line::read(b"hello, \xff220 xdfs-sshftp 192.0.2.1 5 192.0.2.7 22\n");
        assert_eq!(noisy, Line::Mark(Some(ip("192.0.2.7"))));
        for line in ["220 ready\r\n", "421 closing\r\n", "500-no\r\n"] {
            assert_eq!(Line::read(line.as_bytes()), Line::Reply);
        }
        for line in [
            "welcome\n",
            "\n",
            "22 users\n",
            "100 users\n",
            "200-300\n",
            "5oo \n",
            "xdfs-sshftp\n",
        ] {
            assert_eq!(Line::read(line.as_bytes()), Line::Other);
        }
    }

    #[test]
    fn data_goes_to_the_host_only() {
        let host = ["2001:db8::7", "192.0.2.7", "192.0.2.8"].map(ip);
        for (told, chosen) in [
            (Some("192.0.2.8"), "192.0.2.8"),
            (Some("::ffff:192.0.2.8"), "192.0.2.8"),
            // Behind address translation.
            (Some("10.0.0.1"), "192.0.2.7"),
            (Some("127.0.0.1"), "192.0.2.7"),
            (Some("fe80::1"), "2001:db8::7"),
            (None, "2001:db8::7"),
        ] {
            assert_eq!(choose(told.map(ip), &host), Some(ip(chosen)), "{told:?}");
        }
        assert_eq!(choose(Some(ip("::1")), &host[1..]), Some(host[1]));
        assert_eq!(choose(Some(host[0]), &[]), None);
    }
}
