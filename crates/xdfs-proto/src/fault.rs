//! Faults: one type from the system call to the wire, the log, the JSON and the exit code.
//!
//! A fault names the side, the operation, the path, the cause and what the user can do. On the
//! wire it is the body of the exception header. To people it is a sentence:
//!
//! ```text
//! server data.example.org: cannot write '/x': no space left on device
//! cannot open './x': no such file or directory
//! ```
//!
//! The first is one of the machine named, the second one of this side.

use std::fmt;
use std::sync::Arc;

use crate::quote::quoted;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $exit:literal;)*) => {
        /// The stable identity of a fault: a number on the wire, a word in JSON and logs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes, in the order of their numbers.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The number on the wire.
            #[must_use]
            pub fn number(self) -> u16 { match self { $(Self::$name => $number,)* } }

            /// The code with this number on the wire; unknown numbers become `Internal`.
            #[must_use]
            pub fn from_number(number: u16) -> Self {
                match number { $($number => Self::$name,)* _ => Self::Internal }
            }

            /// The word in JSON and logs.
            #[must_use]
            pub fn as_str(self) -> &'static str { match self { $(Self::$name => $text,)* } }

            /// The exit status of a program that fails for this reason.
            #[must_use]
            pub fn exit_code(self) -> u8 { match self { $(Self::$name => $exit,)* } }
        }
    };
}

codes! {
    /// A bug in the program itself.
    Internal = 1, "internal", 1;
    /// An argument or setting is invalid.
    InvalidArgument = 2, "invalid-argument", 2;
    /// The peer can't be reached.
    ConnectionRefused = 3, "connection-refused", 3;
    /// The connection broke and could not be replaced.
    ConnectionLost = 4, "connection-lost", 3;
    /// The peer's first bytes aren't those of xDFS.
    BadMagic = 5, "bad-magic", 10;
    /// The sides have no protocol version in common.
    VersionUnsupported = 6, "version-unsupported", 10;
    /// The other side doesn't support a mandatory feature, or a service isn't offered.
    FeatureUnsupported = 7, "feature-unsupported", 10;
    /// A frame is longer than the limit.
    FrameTooLarge = 8, "frame-too-large", 10;
    /// A frame can't be decoded.
    MalformedFrame = 9, "malformed-frame", 10;
    /// A frame that isn't allowed in this state of the session.
    ProtocolViolation = 10, "protocol-violation", 10;
    /// The session to join doesn't exist, or the secret is wrong (a single answer for both).
    SessionUnknown = 11, "session-unknown", 10;
    /// More channels than announced or allowed.
    TooManyChannels = 12, "too-many-channels", 10;
    /// More sessions, files or bytes than the side allows.
    LimitExceeded = 13, "limit-exceeded", 10;
    /// The peer was silent, or too slow, beyond the deadline.
    DeadlineExceeded = 14, "deadline-exceeded", 11;
    /// The path leaves the root of the server.
    PathEscape = 15, "path-escape", 5;
    /// No such file or directory.
    NotFound = 16, "not-found", 4;
    /// The operating system or the server's policy refuses access.
    PermissionDenied = 17, "permission-denied", 5;
    /// The server accepts no writes.
    ReadOnly = 18, "read-only", 5;
    /// The target exists, and overwriting wasn't requested.
    AlreadyExists = 19, "already-exists", 6;
    /// A directory exists where a file is needed.
    IsDirectory = 20, "is-a-directory", 6;
    /// A file exists where a directory is needed.
    NotDirectory = 21, "not-a-directory", 6;
    /// A device, socket or pipe exists where a regular file is needed.
    NotRegularFile = 22, "not-a-regular-file", 6;
    /// A name is too long for the file system or the limit.
    NameTooLong = 23, "name-too-long", 6;
    /// The target's disk or quota is full.
    NoSpace = 24, "no-space", 7;
    /// The received content differs from what was sent.
    IntegrityMismatch = 25, "integrity-mismatch", 8;
    /// The source was truncated, extended, replaced or removed while it was read.
    SourceChanged = 26, "source-changed", 9;
    /// The offset lies past the end of the source.
    OffsetPastEnd = 27, "offset-past-end", 2;
    /// Another transfer is writing the same target.
    Busy = 28, "busy", 12;
    /// The side is shutting down.
    ShuttingDown = 29, "shutting-down", 13;
    /// The user cancelled.
    Cancelled = 30, "cancelled", 130;
    /// The operation isn't supported here.
    Unsupported = 31, "unsupported", 14;
    /// Reading or writing failed for another reason.
    Io = 32, "io", 15;
    /// The identity of the initiator could not be proved.
    AuthenticationFailed = 33, "authentication-failed", 16;
    /// The acceptor's key isn't the trusted one, or its certificate isn't valid.
    ServerUntrusted = 34, "server-untrusted", 17;
    /// The channel doesn't have the protection that a side requires.
    ProtectionRefused = 35, "protection-refused", 17;
    /// The user's quota is used up.
    QuotaExceeded = 36, "quota-exceeded", 7;
    /// The directory isn't empty.
    NotEmpty = 37, "not-empty", 6;
    /// Both paths must be in one file system, or in one export.
    CrossDevice = 38, "cross-device", 14;
    /// The open file was replaced, or isn't open any more.
    Stale = 39, "stale", 9;
    /// A lock was lost: its lease ran out, or the server was restarted.
    LockLost = 40, "lock-lost", 12;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The end of the session at which a fault arose, seen from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// This process.
    Local,
    /// The peer.
    Remote,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Remote => "remote",
        })
    }
}

/// The machine at the other end of a session, as messages name it. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine(Arc<(&'static str, String)>);

impl Machine {
    /// A server: its host, and its port if that isn't the usual one.
    #[must_use]
    pub fn server(name: impl Into<String>) -> Self {
        Self(Arc::new(("server", name.into())))
    }

    /// A client: its address.
    #[must_use]
    pub fn client(name: impl Into<String>) -> Self {
        Self(Arc::new(("client", name.into())))
    }

    /// This machine, as the other end of a session: messages don't name it.
    #[must_use]
    pub fn here() -> Self {
        Self(Arc::new(("", String::new())))
    }

    /// Whether it is this one.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.0.0.is_empty()
    }

    /// The name without the role.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_here() {
            true => f.write_str("this machine"),
            false => write!(f, "{} {}", self.0.0, self.0.1),
        }
    }
}

/// Whether and when the same request may succeed on retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Not without a change by somebody.
    Never,
    /// Immediately.
    Now,
    /// After this many milliseconds.
    AfterMs(u32),
}

/// The cause with which a server refuses to change existing entries for a user who may only add
/// some. Clients recognise it.
pub const CAUSE_ADDS_ONLY: &str = "this user may not change existing entries here";

/// A failure, in the form in which users, logs and peers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The stable identity.
    pub code: Code,
    /// The end at which it arose.
    pub side: Side,
    /// The machine at which it arose, if that is another one and known. Known only locally and
    /// never sent.
    pub machine: Option<Machine>,
    /// The operation, as a verb in the infinitive that reads well after "cannot" and before the
    /// path ("open", "set the owner of", "join the session"). Empty in a warning about something
    /// that was done, but not in full.
    pub operation: String,
    /// The affected path, as bytes; empty if none.
    pub path: Vec<u8>,
    /// The cause, in lower case, without a full stop.
    pub cause: String,
    /// A remedy for the user; empty if none is known.
    pub hint: String,
    /// Retry advice.
    pub retry: Retry,
    /// The session has ended, or accepts nothing more: further requests need another one. Known
    /// only locally and never sent.
    pub ends_session: bool,
    /// The login failed or was put off, whatever the code, and no path matters. Known only locally
    /// and never sent.
    pub fails_login: bool,
}

impl Fault {
    /// A fault of this side.
    #[must_use]
    pub fn new(code: Code, operation: impl Into<String>, cause: impl Into<String>) -> Self {
        Self {
            code,
            side: Side::Local,
            machine: None,
            operation: operation.into(),
            path: Vec::new(),
            cause: cause.into(),
            hint: String::new(),
            retry: Retry::Never,
            ends_session: false,
            fails_login: false,
        }
    }

    /// Sets the path.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<[u8]>) -> Self {
        self.path = path.as_ref().to_vec();
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// Sets the retry advice.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the path of what the fault prevents, if the fault has none and is about paths: neither
    /// a failed login nor a failed connection is.
    #[must_use]
    pub fn preventing(self, path: impl AsRef<[u8]>) -> Self {
        // What can't be reached is the server: no path there has a part in it.
        let is_unreached = self.operation.starts_with("connect to ");
        if !self.path.is_empty() || self.fails_login || is_unreached {
            return self;
        }
        self.path(path)
    }

    /// The exit status of a program that fails for this reason: that of the code, or that of every
    /// failed login.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.fails_login {
            true => Code::AuthenticationFailed.exit_code(),
            false => self.code.exit_code(),
        }
    }

    /// The sentence about the fault with `object` in place of the path, such as the list of the
    /// paths that it concerns.
    #[must_use]
    pub fn about(&self, object: &str) -> String {
        let place = match (&self.machine, self.side) {
            (Some(machine), _) if machine.is_here() => String::new(),
            (Some(machine), _) => format!("{machine}: "),
            (None, Side::Remote) => "the other side: ".to_owned(),
            (None, Side::Local) => String::new(),
        };
        let Self {
            operation, cause, ..
        } = self;
        match (operation.as_str(), object) {
            ("", "") => format!("{place}{cause}"),
            ("", object) => format!("{place}{object}: {cause}"),
            (operation, "") => format!("{place}cannot {operation}: {cause}"),
            (operation, object) => format!("{place}cannot {operation} {object}: {cause}"),
        }
    }

    /// Marks the fault as ending its session.
    #[must_use]
    pub fn ending_session(mut self) -> Self {
        self.ends_session = true;
        self
    }

    /// Marks the fault as arisen at the other end.
    #[must_use]
    pub fn remote(mut self) -> Self {
        self.side = Side::Remote;
        self
    }

    /// Names the machine of a fault of the other end, unless it has a name already: the other end
    /// of a session may itself have used another server.
    #[must_use]
    pub fn at(mut self, machine: &Machine) -> Self {
        if self.machine.is_some() {
            self.side = Side::Remote;
        } else if self.side == Side::Remote {
            self.machine = Some(machine.clone());
        }
        self
    }

    /// Marks the fault as arisen at this end. It keeps the name of a third machine.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.side = Side::Local;
        self
    }

    /// The fault of a failed system call.
    #[must_use]
    pub fn from_io(
        operation: impl Into<String>,
        path: impl AsRef<[u8]>,
        error: &std::io::Error,
    ) -> Self {
        use std::io::ErrorKind as K;
        let (code, hint) = match error.kind() {
            K::NotFound => (Code::NotFound, ""),
            K::PermissionDenied => (Code::PermissionDenied, "check the permissions of the path"),
            K::AlreadyExists => (Code::AlreadyExists, "use --force to overwrite"),
            K::IsADirectory => (Code::IsDirectory, "name a file"),
            K::NotADirectory => (Code::NotDirectory, ""),
            K::DirectoryNotEmpty => (Code::NotEmpty, "remove its content first"),
            K::CrossesDevices => (Code::CrossDevice, "copy it, and remove it then"),
            K::InvalidFilename => (Code::NameTooLong, "use a shorter name"),
            K::StorageFull | K::QuotaExceeded => (
                Code::NoSpace,
                "free some space and run the same command again to resume",
            ),
            K::FileTooLarge => (
                Code::LimitExceeded,
                "the file system, or the limits of the process, allow no file of this size",
            ),
            K::ReadOnlyFilesystem => (Code::ReadOnly, ""),
            K::ConnectionRefused => (Code::ConnectionRefused, "is `xdfs serve` running there?"),
            K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::UnexpectedEof => {
                (Code::ConnectionLost, "run the same command again to resume")
            }
            K::HostUnreachable | K::NetworkUnreachable | K::AddrNotAvailable => {
                (Code::ConnectionRefused, "check the address and the network")
            }
            K::TimedOut => (Code::DeadlineExceeded, ""),
            K::Unsupported => (Code::Unsupported, ""),
            _ => (Code::Io, ""),
        };
        Self::new(code, operation, describe(error))
            .path(path)
            .hint(hint)
    }
}

/// The text of an I/O error in lower case and without the number of the operating system.
fn describe(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| {
        c.to_lowercase().collect::<String>() + chars.as_str()
    })
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_slice() {
            b"" => f.write_str(&self.about("")),
            path => f.write_str(&self.about(&quoted(path))),
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_a_sentence_with_the_machine_in_it() {
        let fault = Fault::new(Code::NoSpace, "write", "no space left on device").path("/x");
        let of = |fault: &Fault| fault.to_string();
        assert_eq!(of(&fault), "cannot write '/x': no space left on device");
        let lab = Machine::server("lab:2811");
        assert_eq!(fault.clone().at(&lab), fault, "it is one of this side");
        let far = fault.remote();
        assert_eq!(
            of(&far),
            "the other side: cannot write '/x': no space left on device"
        );
        let far = far.at(&lab).at(&Machine::client("10.0.0.1"));
        assert_eq!(
            of(&far),
            "server lab:2811: cannot write '/x': no space left on device"
        );
        assert_eq!(of(&far.clone().local()), of(&far));
        assert_eq!(far.machine.unwrap().name(), "lab:2811");
        let partly = Fault::new(Code::PermissionDenied, "", "1 owner was not kept").remote();
        assert_eq!(of(&partly), "the other side: 1 owner was not kept");
        let partly = partly.path("/x").at(&lab);
        assert_eq!(of(&partly), "server lab:2811: '/x': 1 owner was not kept");
        // The other end of a session may be on this machine.
        let here = Fault::new(Code::Io, "read", "broken").path("/x").remote();
        assert_eq!(of(&here.at(&Machine::here())), "cannot read '/x': broken");
        let bare = Fault::new(Code::Io, "read", "broken");
        assert_eq!(of(&bare), "cannot read: broken");
        assert_eq!(
            of(&bare.path(b"a\n\xffb")),
            "cannot read 'a'$'\\n\\377''b': broken"
        );
    }
}
