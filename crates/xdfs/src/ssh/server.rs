//! A server that was started through ssh, as its client sees it.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher as _;
use std::io::BufRead;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use xdfs_proto::{Code, Fault};
use xdfs_sys::program::Program;

use super::command::{Ssh, leave_out_settings};
use super::direct;
use super::handover::Handover;
use crate::scheme::{ServerRoute, StartedServer, Stop};
use crate::security::{ClientSecurity, Credential, Level, NewHosts, TrustPolicy};

/// The operation in faults.
const START: &str = "start the server through ssh";
/// How long the end of ssh may take after that of its sessions.
const END: Duration = Duration::from_secs(2);
/// Time from the first byte that the shell there prints until the program begins: its start-up
/// files may load modules from slow file systems.
const GREETING: Duration = Duration::from_secs(60);
/// The directory of the sockets there: every Unix has it, and all users may write to it.
const SOCKETS: &str = "/tmp";
/// Longest path of a socket on common systems, in bytes.
const SOCKET_BYTES_MAX: usize = 100;

/// What happens to a server, for the user. Its text is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SshNews {
    /// Channels go through ssh, which is slower than the port of the server.
    Indirect {
        /// Why that can't be reached.
        reason: String,
    },
    /// ssh has ended before its sessions, and the server with it. They are stopped.
    Ended {
        /// The machine, as messages name it: `ssh:HOST` or `ssh:HOST:PORT`.
        address: String,
    },
}

impl fmt::Display for SshNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Indirect { reason } => write!(f, "through ssh, since {reason}"),
            Self::Ended { address } => write!(
                f,
                "the connection of ssh to {address} has ended, and the server there with it"
            ),
        }
    }
}

/// Receives news.
pub(super) type Observer = Arc<dyn Fn(&SshNews) + Send + Sync>;

/// The start of a server. Equal ones lead to the same server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launch {
    /// The way to the machine.
    pub(super) ssh: Ssh,
    /// The program that is started there.
    pub(super) program: String,
    pub(super) level: Level,
}

/// A server that runs as long as this value.
#[derive(Debug)]
pub(crate) struct SshServer {
    launch: Launch,
    route: ServerRoute,
    /// Trust in it and in no other, and its ticket.
    security: ClientSecurity,
    home: Option<String>,
    process: Process,
}

/// The ssh of a server: both end when this is dropped.
#[derive(Debug)]
struct Process {
    program: Program,
    /// The server ends when this is closed.
    stdin: Option<ChildStdin>,
    watched: Arc<Watched>,
    /// The local socket of connections through ssh; `None` if there are none.
    local: Option<PathBuf>,
}

/// The sessions that the end of ssh affects.
#[derive(Default)]
struct Watched {
    has_ended: AtomicBool,
    is_closing: AtomicBool,
    sessions: Mutex<Vec<Weak<dyn Stop>>>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("has_ended", &self.has_ended)
            .field("is_closing", &self.is_closing)
            .finish_non_exhaustive()
    }
}

impl SshServer {
    /// Starts one, which `probe` has to reach if it can't be reached directly.
    pub(super) fn start(
        address: &str,
        launch: Launch,
        observer: Observer,
        probe: &dyn Fn(&Self) -> Result<(), Fault>,
    ) -> Result<Self, Fault> {
        let ssh = &launch.ssh;
        let host = &ssh.host;
        let name = format!("xdfs-{:016x}", RandomState::new().hash_one("socket"));
        let local = forwarded(&format!("{name}-local"));
        let remote = format!("{SOCKETS}/{name}");
        let mut command = ssh.command();
        leave_out_settings(&mut command);
        for option in [
            "ExitOnForwardFailure=no",
            "ClearAllForwardings=no",
            "StreamLocalBindMask=0177",
        ] {
            command.args(["-o", option]);
        }
        if let Some(local) = &local {
            command
                .arg("-L")
                .arg(format!("{}:{remote}", local.display()));
        }
        ssh.name_host(&mut command);
        command.arg(remote_command(&launch, &remote));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::start(&mut command).map_err(|e| {
            Fault::from_io(START, ssh.program().as_encoded_bytes(), &e)
                .hint("install OpenSSH, or name another program with --ssh")
                .ending_session()
        })?;
        let (Some(stdin), Some(stdout), _) = program.take_streams() else {
            return Err(Fault::new(Code::Internal, START, "ssh has no pipes"));
        };
        let (handover, stdout) = match Handover::wait(stdout, GREETING) {
            Ok(Some(found)) => found,
            refused => {
                drop(stdin);
                let patience = match refused {
                    Ok(_) => END,
                    // It may have more to print than anybody reads.
                    Err(_) => Duration::ZERO,
                };
                let status = program.end(patience);
                let status = status.map_err(|e| Fault::from_io(START, "", &e))?;
                if let Some(local) = &local {
                    remove(local);
                }
                let fault = refused
                    .err()
                    .unwrap_or_else(|| ended(host, &launch.program, status));
                return Err(fault.path(address).ending_session());
            }
        };
        let watched = Arc::new(Watched::default());
        watch(stdout, address, &watched, Arc::clone(&observer))?;
        let security = security(&handover, launch.level)?;
        let mut process = Process {
            program,
            stdin: Some(stdin),
            watched,
            local,
        };
        let direct = direct::find(&handover.addresses, host, ssh.ask_settings());
        let reason = unreachable(&handover.addresses, host);
        let route = match direct {
            Some(address) => {
                process.remove_local();
                ServerRoute::Socket(address)
            }
            None => match process.local.clone().filter(|_| handover.socket) {
                Some(local) => ServerRoute::Unix(local),
                None => return Err(unforwarded(&reason, address)),
            },
        };
        let server = Self {
            launch,
            route,
            security,
            home: handover.home,
            process,
        };
        if let ServerRoute::Unix(_) = server.route {
            if let Err(fault) = probe(&server) {
                tracing::info!(%fault, "nothing goes through ssh");
                return Err(unforwarded(&reason, address));
            }
            observer(&SshNews::Indirect { reason });
        }
        Ok(server)
    }

    /// Whether it was started in this way.
    pub(super) fn is_of(&self, launch: &Launch) -> bool {
        self.launch == *launch
    }

    /// Whether ssh has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.process.watched.has_ended.load(Ordering::SeqCst)
    }
}

impl StartedServer for SshServer {
    fn route(&self) -> ServerRoute {
        self.route.clone()
    }

    fn security(&self) -> &ClientSecurity {
        &self.security
    }

    fn absolute(&self, path: &[u8]) -> Vec<u8> {
        match (&self.home, path.strip_prefix(b"./")) {
            (Some(home), Some(rest)) => [home.as_bytes(), b"/", rest].concat(),
            _ => path.to_vec(),
        }
    }

    fn watch_over(&self, sessions: Weak<dyn Stop>) {
        let all = &self.process.watched.sessions;
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|sessions| sessions.strong_count() > 0);
        all.push(sessions);
    }
}

impl Process {
    /// Removes the local socket, which ssh leaves there.
    fn remove_local(&mut self) {
        if let Some(local) = self.local.take() {
            remove(&local);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.watched.is_closing.store(true, Ordering::SeqCst);
        drop(self.stdin.take());
        // Nothing can be done about a failure.
        let _ = self.program.end(END);
        self.remove_local();
    }
}

/// The command for the shell there.
fn remote_command(launch: &Launch, socket: &str) -> String {
    let program = &launch.program;
    let protect = match launch.level {
        Level::Clear => " --protect clear",
        // The others aren't for such servers.
        _ => "",
    };
    format!("{program} serve --log error{protect} --over-ssh {socket}")
}

/// The local socket of what goes through ssh, which makes it for this user only; `None` if it can't
/// listen there.
fn forwarded(name: &str) -> Option<PathBuf> {
    let path = std::env::temp_dir().join(name);
    let text = path.to_str()?;
    // A colon separates it from the other socket.
    let fits = text.len() <= SOCKET_BYTES_MAX && !text.contains(':');
    (cfg!(unix) && fits).then_some(path)
}

fn remove(local: &Path) {
    // There is none if ssh couldn't listen.
    let _ = std::fs::remove_file(local);
}

/// The fault of an ssh that ended before the server was there.
fn ended(host: &str, program: &str, status: ExitStatus) -> Fault {
    let (code, cause, hint) = match status.code() {
        Some(255) => (
            Code::ConnectionRefused,
            "ssh could not connect or log in; its message is above".to_owned(),
            format!("see that `ssh {host} true` works"),
        ),
        Some(127) => (
            Code::NotFound,
            format!("there is no program '{program}' there"),
            "install xdfs there, or name its path: --remote-program '~/.cargo/bin/xdfs'".to_owned(),
        ),
        Some(126) => (
            Code::PermissionDenied,
            format!("'{program}' can't be run there"),
            "see whether it is a program for that machine".to_owned(),
        ),
        // How the parser of flags ends.
        Some(2) => (
            Code::Unsupported,
            format!("'{program}' there doesn't know serve --over-ssh"),
            "install this version of xdfs there".to_owned(),
        ),
        _ => (
            Code::ConnectionRefused,
            format!("'{program}' there ended before it listened ({status})"),
            format!("see what `ssh {host} {program} --version` prints"),
        ),
    };
    Fault::new(code, START, cause).hint(hint)
}

/// The fault of a server that neither its port nor ssh leads to.
fn unforwarded(reason: &str, address: &str) -> Fault {
    let cause = format!("{reason}, and ssh forwards nothing to the server");
    Fault::new(Code::ConnectionRefused, START, cause)
        .path(address)
        .hint(
            "open that port in the firewall there, or allow AllowStreamLocalForwarding in the \
             settings of sshd",
        )
        .ending_session()
}

/// Why nothing goes directly.
fn unreachable(addresses: &[String], host: &str) -> String {
    let mut addresses = addresses.iter();
    match addresses.find_map(|address| address.parse::<SocketAddr>().ok()) {
        Some(address) => format!("port {} of {host} can't be reached", address.port()),
        None => format!("no port could be opened on {host}"),
    }
}

/// Trust in the server that was handed over and in no other.
fn security(handover: &Handover, level: Level) -> Result<ClientSecurity, Fault> {
    let pin = handover.pin.parse().map_err(|_| {
        let cause = "the handover has no valid fingerprint";
        Fault::new(Code::ProtocolViolation, START, cause)
    })?;
    Ok(ClientSecurity {
        trust: TrustPolicy {
            known_hosts: PathBuf::new(),
            pins: vec![pin],
            roots: Vec::new(),
            system_roots: false,
            new_hosts: NewHosts::Refuse,
        },
        credentials: vec![Credential::Ticket(handover.ticket.clone())],
        level,
    })
}

/// Waits for the end of ssh. Sessions that are open after that can't go on: they are stopped,
/// rather than to try for long to reach a server that has ended.
fn watch(
    mut stdout: impl BufRead + Send + 'static,
    address: &str,
    watched: &Arc<Watched>,
    observer: Observer,
) -> Result<(), Fault> {
    let watched = Arc::clone(watched);
    let address = address.to_owned();
    let watching = move || {
        // An error is an end too.
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        watched.has_ended.store(true, Ordering::SeqCst);
        // Ctrl-C ends ssh at once, and the program in an orderly way.
        thread::sleep(END);
        if !watched.is_closing.load(Ordering::SeqCst) {
            observer(&SshNews::Ended { address });
            let sessions = watched.sessions.lock();
            for sessions in sessions.unwrap_or_else(PoisonError::into_inner).iter() {
                if let Some(sessions) = sessions.upgrade() {
                    sessions.stop();
                }
            }
        }
    };
    thread::Builder::new()
        .name("xdfs-ssh".into())
        .spawn(watching)
        .map_err(|e| Fault::from_io(START, "", &e))?;
    Ok(())
}
