//! The machine of a control connection: bytes of commands in, replies and actions out.
//!
//! It has no socket, store or clock. Its driver
//!
//! 1. passes received bytes to [`Session::receive`], at most [`Session::room`];
//! 2. calls [`Session::poll`] until it returns `None`, and carries out each action;
//! 3. reports the end of an action by [`Session::complete`], and what happens in between by
//!    [`Session::begun`], [`Session::delayed`] and [`Session::progress`];
//! 4. sends [`Session::take_output`].
//!
//! Commands are answered strictly in order: while an action runs, later ones wait in a bounded
//! buffer, except that ABOR cancels the running action.

mod answer;
mod path;
mod security;
mod stripes;
mod transfer;

use std::net::{IpAddr, SocketAddr};

use xdfs_proto::Fault;
use xdfs_proto::pack::Failures;
use xdfs_proto::path::{Answer, Attributes, Call};

use crate::address::format_host_port;
use crate::archive::Compression;
use crate::checksum::Algorithm;
use crate::command::{Command, CommandError, DataPeer, Form, Level, Mode, Password, parse};
use crate::getput::Route;
use crate::line::{Line, LineReader};
use crate::reply::Reply;
use crate::restart::Restart;
use crate::segment::SegmentRequest;
use crate::stripe::Layout;

pub use path::resolve;
pub use security::Protection;

/// Bytes of commands that are held.
pub const INPUT_BYTES_MAX: usize = 64 << 10;
/// While more bytes of replies wait to be sent, no command is begun.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Bytes of the longest command while a security context is made: certificates in base64.
const TOKEN_LINE_BYTES_MAX: usize = 48 << 10;
/// Largest socket buffer that clients can ask for, in bytes.
const SOCKET_BUFFER_MAX: usize = 64 << 20;

/// What a session may do.
#[derive(Clone, Debug)]
pub struct Config {
    /// The client's address.
    pub peer: IpAddr,
    /// Data connections may go to other hosts, and come from them.
    pub third_party: bool,
    /// Data nodes may move files, which clients ask for by other commands than GET and PUT.
    pub is_striped: bool,
    /// Whether there is TLS.
    pub tls: Tls,
    /// Users with names may move files unencrypted.
    pub takes_clear: bool,
    /// Clients can prove by certificates who they are (AUTH GSSAPI).
    pub gsi: bool,
    /// What the connection came through has admitted its user: any name logs in.
    pub is_admitted: bool,
    /// The first current directory.
    pub home: Vec<u8>,
}

/// Whether clients can, or have to, protect their control connections with TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// There is no certificate.
    #[default]
    None,
    /// Users with names need it.
    Offered,
    /// Everybody needs it.
    Required,
}

/// What the driver shall do. Except for [`Cancel`](Self::Cancel) and [`Close`](Self::Close), each
/// is followed by [`Session::complete`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Take a token of a security context: [`Outcome::Token`], or [`Outcome::Secured`], after which
    /// the control connection is protected once the output is sent, and no more bytes are received
    /// in clear.
    Authenticate(Vec<u8>),
    /// Answer a call about paths: [`Outcome::Answer`].
    Call(Call),
    /// End the running action early, with a fault.
    Cancel,
    /// Compute a checksum: [`Outcome::Digest`].
    Checksum {
        /// Its kind.
        kind: Algorithm,
        /// First byte.
        offset: u64,
        /// Number of bytes; `None` for all up to the end.
        length: Option<u64>,
        /// The file.
        path: Vec<u8>,
    },
    /// Send the output and close the control connection.
    Close,
    /// Drop data connections, and connect to these addresses at the next transfer.
    Connect(Vec<SocketAddr>),
    /// Drop data connections, and listen at the next transfer, with [`Session::delayed`].
    DelayPassive,
    /// Look at this path: [`Outcome::Facts`].
    Facts(Vec<u8>),
    /// List here: [`Outcome::Rows`].
    ListHere(Listing),
    /// Drop data connections, and listen: [`Outcome::Listening`].
    Listen,
    /// The same at data nodes, if there are any: [`Outcome::ListeningStriped`].
    ListenStriped,
    /// Log in a user: [`Outcome::Done`]. There is a name with TLS only.
    LogIn {
        /// The name; `None` for an anonymous user.
        user: Option<String>,
        /// What was given as the password.
        password: Password,
    },
    /// Log in the user of the security context: [`Outcome::User`].
    LogInMapped {
        /// One of the users that the certificate stands for; `None` for the first.
        user: Option<String>,
    },
    /// Begin with TLS once the output is sent: [`Outcome::Done`]. No more bytes are received in
    /// clear.
    StartTls,
    /// Move a file or a listing over data connections: [`Outcome::Done`].
    Transfer(Transfer),
}

/// A listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The form of its rows.
    pub form: Form,
    /// The directory, a file, or in LIST and NLST what has wildcards in its last part.
    pub path: Vec<u8>,
    /// What NLST puts before names that match them: what the client has written there.
    pub prefix: Vec<u8>,
}

/// A transfer over data connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// How bytes are laid on connections.
    pub mode: Mode,
    /// Number of connections to open, if this side opens them.
    pub parallelism: u32,
    /// How a file is dealt out to data nodes; `None` for nothing of it.
    pub layout: Option<Layout>,
    /// Bytes of socket buffers; `None` for the system's choice.
    pub socket_buffer: Option<usize>,
    /// The protection of data connections.
    pub protection: Protection,
    /// How data connections come about.
    pub route: Route,
    /// What moves.
    pub what: What,
}

/// What a transfer moves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A listing to the client.
    List(Listing),
    /// A file to the client.
    Send {
        /// The file.
        path: Vec<u8>,
        /// Offset and length of the wanted part; offsets on the wire begin with it.
        part: Option<(u64, u64)>,
        /// What the client has already.
        restart: Option<Restart>,
    },
    /// A segment of a tree to the client.
    SendSegment {
        /// What it shall have.
        request: SegmentRequest,
        /// The directory.
        path: Vec<u8>,
    },
    /// A segment of a tree from the client.
    StoreSegment {
        /// How it is compressed.
        compression: Compression,
        /// Its files replace others.
        overwrites: bool,
        /// The directory.
        path: Vec<u8>,
        /// The kind and the digits of its checksum.
        announced: (Algorithm, String),
    },
    /// A file from the client.
    Store {
        /// The file, or what the name of a new one begins with.
        path: Vec<u8>,
        /// The kind and the digits of the checksum that it has to have.
        announced: Option<(Algorithm, String)>,
        /// Where the bytes go.
        place: Place,
        /// What this side should have already.
        restart: Option<Restart>,
    },
}

/// Where stored bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To this offset of the file, in place.
    At(u64),
    /// To the end of the file, in place.
    End,
    /// To a new file with a name that no other has, told to [`Session::begun`].
    Unique,
    /// They replace the file.
    Whole,
}

/// The result of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Of a call.
    Answer(Answer),
    /// The digits of a checksum.
    Digest(String),
    /// Success with nothing to tell.
    Done,
    /// The attributes of what is at a path, and where it leads if it is a link.
    Facts(Attributes, Option<Vec<u8>>),
    /// A listing is sent, without so many names that can't stand in it.
    Listed(u64),
    /// Members of a segment that could not be stored.
    Partly(Failures),
    /// The success of a transfer, with what is told of it.
    Receipt(String),
    /// The address to tell to the client.
    Listening(SocketAddr),
    /// The addresses to tell, one for each stripe.
    ListeningStriped(Vec<SocketAddr>),
    /// Rows without their ends, and the number of names that can't stand in any.
    Rows(Vec<Vec<u8>>, u64),
    /// The security context is established; the token for the client, which may be empty.
    Secured(Vec<u8>),
    /// A token for the client, which answers.
    Token(Vec<u8>),
    /// The name of the user.
    User(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginState {
    None,
    Named,
    In,
}

/// How far a security context is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gsi {
    None,
    /// Tokens are exchanged.
    Begun,
    Established,
}

/// How the end of the running action is answered.
#[derive(Clone, Debug)]
enum Pending {
    Authenticate,
    ChangeDirectory(Vec<u8>),
    Checksum,
    Connect,
    DelayPassive,
    Facts(Vec<u8>),
    ListHere,
    LogIn,
    MakeDirectory(Vec<u8>),
    ModificationTime,
    Passive,
    PassiveExtended,
    PassiveStriped,
    Plain(&'static str),
    RenameFrom(Vec<u8>),
    SetTime(Vec<u8>, String),
    Size,
    StartTls,
    Transfer,
}

/// The machine. See the [module](self).
#[derive(Debug)]
pub struct Session {
    config: Config,
    input: LineReader,
    output: Vec<u8>,
    login: LoginState,
    /// The name of USER; `None` for an anonymous user.
    user: Option<String>,
    /// The control connection is protected.
    is_secure: bool,
    gsi: Gsi,
    /// The user is that of the security context.
    is_mapped: bool,
    /// PBSZ has come, and so PROT may.
    has_buffer_size: bool,
    /// Of data connections.
    level: Level,
    data_peer: DataPeer,
    pending: Option<Pending>,
    is_cancelled: bool,
    is_closing: bool,
    directory: Vec<u8>,
    mode: Mode,
    /// The mode is MODE T: that of blocks, with trees in segments.
    has_segments: bool,
    parallelism: u32,
    layout: Option<Layout>,
    socket_buffer: Option<usize>,
    delays_passive: bool,
    restart: Option<Restart>,
    /// The checksum of the next file to be stored.
    announced: Option<(Algorithm, String)>,
    /// The transfer that is about to begin is to have it.
    is_announced: bool,
    /// Bytes that ALLO has told of the next transfer.
    allocated: Option<u64>,
    /// The same of the running transfer.
    expected: Option<u64>,
    /// The running transfer has to end as it was told.
    needs_end: bool,
    /// Its command is GET or PUT, which has a reply 127 of its own.
    tells_port: bool,
    /// Bytes that the running action has moved.
    moved: u64,
    rename_from: Option<Vec<u8>>,
}

impl Session {
    /// A session that greets its client.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut session = Self {
            directory: config.home.clone(),
            config,
            input: LineReader::new(),
            output: Vec::new(),
            login: LoginState::None,
            user: None,
            is_secure: false,
            gsi: Gsi::None,
            is_mapped: false,
            has_buffer_size: false,
            level: Level::Clear,
            data_peer: DataPeer::Own,
            pending: None,
            is_cancelled: false,
            is_closing: false,
            mode: Mode::Stream,
            has_segments: false,
            parallelism: 1,
            layout: Some(Layout::default()),
            socket_buffer: None,
            delays_passive: false,
            restart: None,
            announced: None,
            is_announced: false,
            allocated: None,
            expected: None,
            needs_end: false,
            tells_port: false,
            moved: 0,
            rename_from: None,
        };
        session.say(220, "xdfs GridFTP server ready.");
        session
    }

    /// A session that is refused before it begins.
    #[must_use]
    pub fn refused(config: Config, why: &Fault) -> Self {
        let mut session = Self::new(config);
        session.output.clear();
        session.end(&format!("{}.", why.cause));
        session
    }

    /// Bytes that may be received now.
    #[must_use]
    pub fn room(&self) -> usize {
        INPUT_BYTES_MAX.saturating_sub(self.input.held())
    }

    /// Takes received bytes, at most [`Self::room`].
    pub fn receive(&mut self, bytes: &[u8]) {
        self.input.push(bytes);
    }

    /// Whether there is a logged-in user.
    #[must_use]
    pub fn is_logged_in(&self) -> bool {
        self.login == LoginState::In
    }

    /// Whether an action runs.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether so many replies wait to be sent that there should be no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.output.len() >= OUTPUT_BYTES_MAX
    }

    /// Whether the session has had its last reply.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.is_closing
    }

    /// Whether replies wait to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// The bytes to send.
    #[must_use]
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// The next action; `None` if there is none now.
    #[must_use]
    pub fn poll(&mut self) -> Option<Action> {
        loop {
            if self.pending.is_some() {
                while !self.is_full() && self.input.take_command(b"STAT") {
                    let text = format!("A command is running; {} bytes have moved.", self.moved);
                    self.say(211, text);
                }
                let cancels = !self.is_cancelled && self.input.holds_command(b"ABOR");
                self.is_cancelled |= cancels;
                return cancels.then_some(Action::Cancel);
            }
            if self.is_closing {
                return Some(Action::Close);
            }
            if self.is_full() {
                return None;
            }
            let action = match self.input.next_line()? {
                Line::TooLong(_) => {
                    let most = self.input.line_bytes_max();
                    let text = format!("A command has at most {most} bytes here.");
                    self.say(500, text);
                    None
                }
                Line::Text(line) => match parse(&line) {
                    Ok(command) => self.command(command),
                    Err(error) => {
                        self.refuse(&error);
                        None
                    }
                },
            };
            if action.is_some() {
                return action;
            }
        }
    }

    /// Ends the session with a last reply, once the running action has ended.
    pub fn end(&mut self, why: &str) {
        if !self.is_closing {
            self.is_closing = true;
            self.say(421, why);
        }
    }

    /// The same, in place of the action that was to begin.
    pub fn abandon(&mut self, why: &str) {
        self.pending = None;
        self.end(why);
    }

    /// The data connections of a transfer are about to be used; they may be those of the last one.
    /// `unique` is the path of the new file of [`Place::Unique`], `transaction` that of MODE X.
    pub fn begun(&mut self, reuses: bool, unique: Option<&[u8]>, transaction: Option<u64>) {
        // One that is refused before leaves the checksum for the next attempt.
        if std::mem::take(&mut self.is_announced) {
            self.announced = None;
        }
        let (code, text) = match reuses {
            true => (125, "Using the open data connections."),
            false => (150, "Beginning the transfer."),
        };
        match (unique, transaction) {
            // The form of RFC 1123, section 4.1.2.9.
            (Some(path), _) => self.say(code, [b"FILE: ", path].concat()),
            (None, Some(id)) => self.say(code, format!("TRANSACTION: {id:016x}")),
            (None, None) => self.say(code, text),
        }
    }

    /// The running action has moved more bytes, which STAT tells.
    pub fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.saturating_add(bytes);
    }

    /// A delayed listener has this address.
    pub fn delayed(&mut self, address: SocketAddr) {
        match format_host_port(address) {
            Some(text) if self.tells_port => self.say(127, format!("PORT ({text})")),
            Some(text) => self.say(127, format!("Entering Passive Mode ({text})")),
            None => self.say(229, extended(address)),
        }
    }

    fn say(&mut self, code: u16, text: impl AsRef<[u8]>) {
        self.reply(&Reply::new(code, text));
    }

    fn reply(&mut self, reply: &Reply) {
        reply.encode(&mut self.output);
    }

    fn refuse(&mut self, error: &CommandError) {
        match error {
            CommandError::Argument(what) => {
                self.say(501, format!("The argument has to be: {what}."));
            }
            CommandError::Parameter(why) => self.say(504, format!("Not possible here: {why}.")),
            CommandError::ProtectionLevel => {
                self.say(536, "There are PROT C, PROT S and PROT P.");
            }
            CommandError::Unknown => self.say(500, "The command is not known here."),
        }
    }

    fn path(&self, argument: &[u8]) -> Vec<u8> {
        resolve(&self.directory, argument)
    }

    /// Begins with a command; `None` if it is answered already.
    fn command(&mut self, command: Command) -> Option<Action> {
        // A point of restart is for the next transfer, a listing too; what comes between doesn't
        // matter.
        match command {
            _ if self.waits_for_token(&command) => self.say(503, "ADAT has to follow."),
            Command::Abort => {
                self.allocated = None;
                self.say(226, "Nothing is running any more.");
            }
            Command::Features => self.features(),
            Command::Help => self.help(),
            Command::Nothing => self.say(200, "Fine."),
            Command::AuthGssapi => self.start_gsi(),
            Command::AuthTls => return self.start_tls(),
            Command::DataAuthentication(peer) => self.data_authentication(peer),
            Command::ClearControl => self.say(534, "The control connection stays protected."),
            Command::Password(password) => return self.password(password),
            Command::Protected => self.say(503, "There is no security context: use AUTH first."),
            Command::ProtectionBuffer(bytes) => self.protection_buffer(bytes),
            Command::Protection(level) => self.protection(level),
            Command::Quit => {
                self.is_closing = true;
                self.say(221, "Goodbye.");
            }
            Command::SecurityData(token) => return self.take_token(token),
            Command::System => self.say(215, "UNIX Type: L8"),
            Command::User(name) => self.user(&name),
            _ if self.login != LoginState::In => {
                self.say(530, "Please log in with USER and PASS.");
            }
            Command::Announce(kind, sum) => {
                self.announced = Some((kind, sum));
                self.say(200, "The next file to be stored has to have this checksum.");
            }
            Command::AutomaticBuffer => {
                self.socket_buffer = None;
                self.say(200, "The system chooses the size of buffers.");
            }
            Command::Append(_) | Command::StoreAt(..) if self.announced.take().is_some() => {
                self.say(504, "Not possible here: SCKS is for STOR and STOU.");
            }
            Command::Allocate(bytes) => {
                self.allocated = Some(bytes);
                self.say(200, "Room is made as bytes come.");
            }
            Command::DelayPassive(delays) => {
                self.delays_passive = delays;
                self.say(200, "Options of PASV are set.");
            }
            Command::Mode(mode) => {
                (self.mode, self.has_segments) = (mode, false);
                self.say(200, "The mode is set.");
            }
            Command::ModeArchive => {
                (self.mode, self.has_segments) = (Mode::Extended, true);
                self.say(200, "The mode is set.");
            }
            Command::RetrieveSegment(..) | Command::StoreSegment(..) if !self.has_segments => {
                self.say(503, "MODE T comes first.");
            }
            Command::StoreSegment(..) if self.announced.is_none() => {
                self.say(503, "SCKS comes first, with the checksum of the segment.");
            }
            Command::SendOptions(options) => self.set_send_options(options),
            Command::PrintDirectory => {
                let text = answer::quoted(&self.directory);
                self.say(257, [text, b" is the directory.".to_vec()].concat());
            }
            Command::Restart(restart) => {
                let text = "The next transfer goes on there.";
                self.restart = Some(restart);
                self.say(350, text);
            }
            Command::SocketBuffer(bytes) => {
                self.socket_buffer = Some(bytes.clamp(1, SOCKET_BUFFER_MAX));
                self.say(200, "The size of buffers is set.");
            }
            Command::Status => self.say(211, "xdfs GridFTP server; no transfer is running."),
            Command::Structure => self.say(200, "Files have no structure."),
            Command::Type(_) => self.say(200, "Files are moved as they are."),
            command => return self.begin(command),
        }
        None
    }

    /// Begins with a command that needs an action.
    fn begin(&mut self, command: Command) -> Option<Action> {
        let (pending, action) = match command {
            Command::Connect(addresses) => {
                if let Some(why) = self.bounces(&addresses) {
                    self.say(500, why);
                    return None;
                }
                (Pending::Connect, Action::Connect(addresses))
            }
            Command::Passive if self.delays_passive => {
                (Pending::DelayPassive, Action::DelayPassive)
            }
            Command::Passive => (Pending::Passive, Action::Listen),
            Command::PassiveExtended => (Pending::PassiveExtended, Action::Listen),
            Command::PassiveStriped => (Pending::PassiveStriped, self.listen_striped()),
            Command::Checksum(kind, offset, length, path) => {
                let path = self.path(&path);
                let action = Action::Checksum {
                    kind,
                    offset,
                    length,
                    path,
                };
                (Pending::Checksum, action)
            }
            Command::ListHere(form, path) => {
                let path = self.path(&path);
                let prefix = Vec::new();
                let listing = Listing { form, path, prefix };
                (Pending::ListHere, Action::ListHere(listing))
            }
            Command::Facts(given) => {
                let path = self.path(&given);
                (Pending::Facts(given), Action::Facts(path))
            }
            Command::RenameTo(path) => {
                let to = self.path(&path);
                let Some(from) = self.rename_from.take() else {
                    self.say(503, "RNFR comes first.");
                    return None;
                };
                let call = Call::Rename {
                    from,
                    to,
                    overwrite: true,
                };
                (Pending::Plain("Renamed."), Action::Call(call))
            }
            command if let Some((code, why)) = self.refuses_route(&command) => {
                self.say(code, why);
                return None;
            }
            command => match self.transfer(&command) {
                Some(transfer) if self.needs_private() && !transfer.protection.is_sealed() => {
                    let text = "Data connections have to be protected: use PROT P, and not DCAU N.";
                    self.say(521, text);
                    return None;
                }
                Some(transfer) if !transfer.what.suits(transfer.mode) => {
                    self.say(
                        504,
                        "Not possible here: MODE X is for files that have a name.",
                    );
                    return None;
                }
                Some(transfer) if transfer.protection == Protection::Clear && self.is_torn() => {
                    self.say(521, "With DCAU N there is PROT C only.");
                    return None;
                }
                Some(transfer) => (Pending::Transfer, Action::Transfer(transfer)),
                None => {
                    let (pending, call) = self.call(command)?;
                    (pending, Action::Call(call))
                }
            },
        };
        self.pending = Some(pending);
        self.is_cancelled = false;
        self.moved = 0;
        Some(action)
    }

    /// The call of a command about a path.
    fn call(&self, command: Command) -> Option<(Pending, Call)> {
        let stat = |path: &[u8]| Call::Stat {
            path: path.to_vec(),
            follow: true,
        };
        Some(match command {
            Command::ChangeDirectory(path) => {
                let path = self.path(&path);
                let call = stat(&path);
                (Pending::ChangeDirectory(path), call)
            }
            Command::ChangeUp => {
                let path = self.path(b"..");
                let call = stat(&path);
                (Pending::ChangeDirectory(path), call)
            }
            Command::ChangeMode(mode, path) => {
                let path = self.path(&path);
                (
                    Pending::Plain("The mode is set."),
                    Call::SetMode { path, mode },
                )
            }
            Command::Delete(path) => {
                let path = self.path(&path);
                (Pending::Plain("Removed."), Call::RemoveFile { path })
            }
            Command::MakeDirectory(path) => {
                let path = self.path(&path);
                let call = Call::MakeDirectory {
                    path: path.clone(),
                    mode: None,
                    parents: false,
                };
                (Pending::MakeDirectory(path), call)
            }
            Command::ModificationTime(path) => (Pending::ModificationTime, stat(&self.path(&path))),
            Command::RemoveDirectory(path) => {
                let path = self.path(&path);
                (Pending::Plain("Removed."), Call::RemoveDirectory { path })
            }
            Command::RenameFrom(path) => {
                let path = self.path(&path);
                let call = Call::Stat {
                    path: path.clone(),
                    follow: false,
                };
                (Pending::RenameFrom(path), call)
            }
            Command::SetTime(mtime_ns, given) => {
                let call = Call::SetTimes {
                    path: self.path(&given),
                    atime_ns: None,
                    mtime_ns: Some(mtime_ns),
                    follow: true,
                };
                let time = crate::time::format_time(mtime_ns);
                (Pending::SetTime(given, time), call)
            }
            Command::Size(path) => (Pending::Size, stat(&self.path(&path))),
            _ => return None,
        })
    }
}

/// The text of 229 for one address (RFC 2428, section 3).
fn extended(address: SocketAddr) -> String {
    format!("Entering Extended Passive Mode (|||{}|)", address.port())
}

#[cfg(test)]
mod tests;
