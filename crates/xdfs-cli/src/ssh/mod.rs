//! Servers that a command starts through ssh, for `ssh://` URLs.
//!
//! ```text
//!   xdfs cp f ssh://host/dir/                            host
//!        |                                                |
//!        |-- ssh host 'xdfs serve --over-ssh SOCKET' -----+--> a personal server
//!        |<- one line: address, fingerprint, ticket ------+     |  port, SOCKET
//!        |                                                |     |
//!        +== channels: directly to the port, =============+=====+
//!            or through ssh to SOCKET
//! ```
//!
//! One ssh serves all sessions of a command with one machine. It keeps the terminal, to ask for
//! passwords and about unknown hosts. Secrets travel within it only, and never on a command line.
//! The server ends when the standard input of its ssh does, so also when this process is killed.

mod command;
mod direct;
#[cfg(unix)]
pub(crate) mod gridftp;
mod handover;
mod server;
mod sshftp;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use xdfs::program::Program;
use xdfs::security::{ClientSecurity, Credential, NewHosts, TrustPolicy, check_level};
use xdfs::{Address, Call, Client, ClientOptions, Code, Fault, RemotePlace};

use crate::console::{Console, printable};
use crate::flags::{LevelFlag, OutputFlags, SecurityFlags, SshFlags};
use crate::identity;
use command::{Ssh, by_ssh, check_login, leave_out_settings, setting, ssh_words};
use handover::Handover;
pub(crate) use server::serve;

/// The operation in faults.
const START: &str = "start the server through ssh";
/// How long the end of ssh may take after that of the command.
const END: Duration = Duration::from_secs(2);
/// Time from the first byte that the shell there prints until the program begins: its start-up
/// files may load modules from slow file systems.
const GREETING: Duration = Duration::from_secs(60);
/// The directory of the sockets there: every Unix has it, and all users may write to it.
const SOCKETS: &str = "/tmp";
/// Longest path of a socket on common systems, in bytes.
const SOCKET_BYTES_MAX: usize = 100;

/// The servers that a command has started.
#[derive(Debug, Default)]
pub(crate) struct SshServers {
    running: Mutex<Vec<Arc<SshServer>>>,
}

/// A server that runs as long as this value.
#[derive(Debug)]
pub(crate) struct SshServer {
    address: Address,
    user: Option<String>,
    level: LevelFlag,
    /// How it was started.
    flags: SshFlags,
    /// Where sessions with it connect to.
    via: Address,
    security: ClientSecurity,
    home: Option<String>,
    program: Program,
    /// The server ends when this is closed.
    stdin: Option<ChildStdin>,
    watched: Arc<Watched>,
    /// The local socket of connections through ssh; `None` if there are none.
    local: Option<PathBuf>,
}

/// The sessions that the end of ssh affects.
#[derive(Debug, Default)]
struct Watched {
    has_ended: AtomicBool,
    is_closing: AtomicBool,
    clients: Mutex<Vec<Weak<Client>>>,
}

/// Whether a server has to be started for this place.
pub(crate) fn is_started_for(place: &RemotePlace) -> bool {
    matches!(place.address, Address::Ssh { .. })
}

impl SshServers {
    /// Ends the servers, and waits for that.
    pub(crate) fn close(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // The sessions with them are over.
        running.clear();
    }

    /// The options of a session with the server of `place`, and that server if it was started
    /// through ssh.
    ///
    /// # Errors
    /// It can't be started or reached, or a file that is named by a flag can't be used.
    pub(crate) fn options(
        &self,
        place: &RemotePlace,
        options: ClientOptions,
        flags: &SecurityFlags,
        quiet: bool,
    ) -> Result<(ClientOptions, Option<Arc<SshServer>>), Fault> {
        if is_started_for(place) {
            let server = self.reach(place, flags, quiet)?;
            return Ok((server.options(options), Some(server)));
        }
        if matches!(place.address, Address::SshFtp { .. }) {
            return Ok((sshftp::options(place, options, flags)?, None));
        }
        let security = identity::security(flags, place)?;
        let options = ClientOptions {
            security,
            ..options
        };
        Ok((options, None))
    }

    /// The server on the machine of `place`: the running one, or another one.
    ///
    /// # Errors
    /// It can't be started or reached, or the flags are not for `ssh://` URLs.
    pub(crate) fn reach(
        &self,
        place: &RemotePlace,
        flags: &SecurityFlags,
        quiet: bool,
    ) -> Result<Arc<SshServer>, Fault> {
        check(flags)?;
        let level = flags.protect.unwrap_or_default();
        check_level(level.into(), &place.address)?;
        // One after the other: each may ask for a password.
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|server| !server.watched.has_ended.load(Ordering::SeqCst));
        let found = running.iter().find(|server| {
            server.address == place.address
                && server.user == place.user
                && server.level == level
                && server.flags == flags.ssh
        });
        if let Some(server) = found {
            return Ok(Arc::clone(server));
        }
        let server = Arc::new(SshServer::start(place, flags, level, quiet)?);
        running.push(Arc::clone(&server));
        Ok(server)
    }
}

/// Refuses flags that would be ignored with the server of a place that ssh leads to.
pub(crate) fn check_for(place: &RemotePlace, flags: &SecurityFlags) -> Result<(), Fault> {
    match place.address {
        Address::SshFtp { .. } => sshftp::check(flags),
        _ => check(flags),
    }
}

fn check(flags: &SecurityFlags) -> Result<(), Fault> {
    match flags.insecure {
        true => Err(by_ssh(START)),
        false => check_login(flags, START),
    }
}

impl SshServer {
    fn start(
        place: &RemotePlace,
        flags: &SecurityFlags,
        level: LevelFlag,
        quiet: bool,
    ) -> Result<Self, Fault> {
        let Address::Ssh { host, port } = &place.address else {
            return Err(Fault::new(Code::Internal, START, "it isn't an ssh:// URL"));
        };
        let ssh = Ssh {
            words: ssh_words(flags)?,
            user: place.user.clone(),
            host: host.clone(),
            port: *port,
        };
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
        command.arg(remote_command(flags, level, &remote));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::start(&mut command).map_err(|e| {
            let program = ssh.words.first().cloned().unwrap_or_default();
            Fault::from_io(START, program.as_encoded_bytes(), &e)
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
                let fault = refused.err().unwrap_or_else(|| ended(&ssh, flags, status));
                return Err(fault.path(place.address.to_string()).ending_session());
            }
        };
        let watched = Arc::new(Watched::default());
        watch(stdout, place, &watched, quiet)?;
        let mut server = Self {
            address: place.address.clone(),
            user: place.user.clone(),
            level,
            flags: flags.ssh.clone(),
            via: place.address.clone(),
            security: security(&handover, level)?,
            home: handover.home,
            program,
            stdin: Some(stdin),
            watched,
            local: local.clone(),
        };
        let mut ask = ssh.command();
        ask.arg("-G");
        ssh.name_host(&mut ask);
        let direct = direct::find(&handover.addresses, host, ask);
        if let Some(address) = direct {
            server.via = address;
            server.remove_local();
            return Ok(server);
        }
        let reason = unreachable(&handover.addresses, host);
        let local = local.filter(|_| handover.socket);
        if let Some(local) = local {
            server.via = Address::Unix(local);
        }
        if let Err(fault) = server.open_once(place) {
            tracing::info!(%fault, "nothing goes through ssh");
            let cause = format!("{reason}, and ssh forwards nothing to the server");
            return Err(Fault::new(Code::ConnectionRefused, START, cause)
                .path(place.address.to_string())
                .hint(
                    "open that port in the firewall there, or allow AllowStreamLocalForwarding in \
                     the settings of sshd",
                )
                .ending_session());
        }
        console(quiet).info(&format!("through ssh, since {reason}"));
        Ok(server)
    }

    /// Removes the local socket, which ssh leaves there.
    fn remove_local(&mut self) {
        if let Some(local) = self.local.take() {
            remove(&local);
        }
    }

    /// Opens a session and ends it: whether sshd forwards anything shows in nothing less.
    fn open_once(&self, place: &RemotePlace) -> Result<(), Fault> {
        let options = ClientOptions {
            channels: Some(1),
            ..ClientOptions::default()
        };
        let client = Client::connect(place, self.options(options))?;
        let path = b"/".to_vec();
        let follow = true;
        client.call(Call::Stat { path, follow }).map(drop)
    }

    /// The options of a session with it.
    pub(crate) fn options(&self, options: ClientOptions) -> ClientOptions {
        ClientOptions {
            security: Some(self.security.clone()),
            via: Some(self.via.clone()),
            ..options
        }
    }

    /// Stops `client` some time after ssh has ended.
    pub(crate) fn watch_over(&self, client: &Arc<Client>) {
        let clients = &self.watched.clients;
        let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(Arc::downgrade(client));
    }

    /// The path with relative ones made absolute.
    pub(crate) fn absolute(&self, path: &[u8]) -> Vec<u8> {
        match (&self.home, path.strip_prefix(b"./")) {
            (Some(home), Some(rest)) => [home.as_bytes(), b"/", rest].concat(),
            _ => path.to_vec(),
        }
    }
}

impl Drop for SshServer {
    fn drop(&mut self) {
        self.watched.is_closing.store(true, Ordering::SeqCst);
        drop(self.stdin.take());
        // Nothing can be done about a failure.
        let _ = self.program.end(END);
        self.remove_local();
    }
}

fn remote_program(flags: &SecurityFlags) -> String {
    let program = flags.ssh.remote_program.as_deref();
    setting(program, "XDFS_REMOTE_PROGRAM").unwrap_or_else(|| "xdfs".into())
}

/// The command for the shell there.
fn remote_command(flags: &SecurityFlags, level: LevelFlag, socket: &str) -> String {
    let program = remote_program(flags);
    let protect = match level {
        LevelFlag::Clear => " --protect clear",
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
fn ended(ssh: &Ssh, flags: &SecurityFlags, status: ExitStatus) -> Fault {
    let host = &ssh.host;
    let program = remote_program(flags);
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

/// Why nothing goes directly.
fn unreachable(addresses: &[String], host: &str) -> String {
    let port = addresses
        .iter()
        .find_map(|address| address.rsplit_once(':'))
        .map(|(_, port)| port);
    match port {
        Some(port) => format!("port {} of {host} can't be reached", printable(port)),
        None => format!("no port could be opened on {host}"),
    }
}

fn console(quiet: bool) -> Console {
    Console::new(OutputFlags {
        quiet,
        ..OutputFlags::default()
    })
}

/// Trust in the server that was handed over and in no other.
fn security(handover: &Handover, level: LevelFlag) -> Result<ClientSecurity, Fault> {
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
        level: level.into(),
    })
}

/// Waits for the end of ssh. If the command continues after that, its sessions can't: they are
/// stopped, rather than to try for long to reach a server that has ended.
fn watch(
    mut stdout: impl BufRead + Send + 'static,
    place: &RemotePlace,
    watched: &Arc<Watched>,
    quiet: bool,
) -> Result<(), Fault> {
    let watched = Arc::clone(watched);
    let host = printable(&place.address.to_string());
    let watching = move || {
        // An error is an end too.
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        watched.has_ended.store(true, Ordering::SeqCst);
        // Ctrl-C ends ssh at once, and the command in an orderly way.
        thread::sleep(END);
        if !watched.is_closing.load(Ordering::SeqCst) {
            console(quiet).info(&format!(
                "the connection of ssh to {host} has ended, and the server there with it"
            ));
            let clients = watched.clients.lock();
            for client in clients.unwrap_or_else(PoisonError::into_inner).iter() {
                if let Some(client) = client.upgrade() {
                    client.stop();
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
