//! Places on servers. [`url`](crate::url) reads them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use xdfs_proto::{Code, Fault};
use xdfs_security::identity::Fingerprint;
use xdfs_xio::StackSpec;

pub use crate::address::{Address, DEFAULT_PORT, Listen};
use crate::address::{Authority, scheme_name};
use crate::here;
use crate::scheme::Paths;

/// A path on a server: `xdfs://[user@]host[:port]/path`, or
/// `xdfs+unix://SOCKET/path` with the slashes of SOCKET written as `%2F`, or `xdfs+STACK://` with
/// the names of drivers joined by `+`, as in `xdfs+quic://host/path`; or a path on a machine
/// that ssh reaches: `ssh://[user@]host[:port]/path`, where `/~/path` begins in the user's home,
/// and no path at all is the home itself; or a path on an FTP or GridFTP server:
/// `ftp://[user[:password]@]host[:port]/path`, `ftps://[user@]host[:port]/path` with TLS,
/// `gsiftp://[user@]host[:port]/path` with GSI, or `sshftp://[user@]host[:port]/path` for one that
/// ssh starts. With `ftp://` and `ftps://` a path with one slash begins in the directory of the
/// login, and `//path` at the root of the server. With `gsiftp://` and `sshftp://`, `/path` begins
/// at the root, and `/~/path` in the directory of the login, which no path at all is itself.
///
/// Bytes that a URL can't hold are percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePlace {
    /// The user to act for.
    pub user: Option<String>,
    /// The server.
    pub address: Address,
    /// The driver stack that the URL names; `None` for that of the options of a session.
    pub stack: Option<Box<StackSpec>>,
    /// The path on the server, percent-decoded, with its leading slash; a built-in store of the
    /// server such as `mem:null` has none. Empty if the URL names only the server. Paths in the
    /// home of a user of ssh are relative and begin with `./`.
    pub path: Vec<u8>,
    /// Optional end of a URL: `?ticket=SECRET&pin=FINGERPRINT`; of an FTP server, the password.
    pub invitation: Invitation,
    /// The name of the settings that a program uses for sessions with the server, if it has several
    /// for one: places with different names share no session. A URL has none.
    pub profile: Option<String>,
}

/// An invitation from the owner of a server, as a part of a URL.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Invitation {
    /// A secret that is valid once.
    pub ticket: Option<String>,
    /// Fingerprint of the only trusted server key.
    pub pin: Option<Fingerprint>,
    /// The password of the user of an FTP server, which is sent unencrypted.
    pub password: Option<String>,
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("ticket", &self.ticket.as_ref().map(|_| "..."))
            .field("pin", &self.pin)
            .field("password", &self.password.as_ref().map(|_| "..."))
            .finish()
    }
}

impl Invitation {
    /// Parses the text after the question mark; `None` if it isn't an invitation.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut invitation = Self::default();
        for item in text.split('&') {
            match item.split_once('=')? {
                ("ticket", ticket) if !ticket.is_empty() => invitation.ticket = Some(ticket.into()),
                ("pin", pin) => invitation.pin = Some(pin.parse().ok()?),
                _ => return None,
            }
        }
        Some(invitation)
    }
}

impl FromStr for Invitation {
    type Err = Fault;

    /// Parses `ticket=SECRET&pin=FINGERPRINT` or `ticket=SECRET`, a URL that ends in either, or a
    /// bare secret.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let query = text
            .rsplit_once('?')
            .map_or(text, |(_, query)| query)
            .trim();
        let found = if query.contains('=') {
            Self::parse(query)
        } else {
            Some(Self {
                ticket: (!query.is_empty()).then(|| query.to_owned()),
                ..Self::default()
            })
        };
        found.filter(|found| found.ticket.is_some()).ok_or_else(|| {
            // Without the text, which may be a secret.
            let cause = "not a ticket";
            Fault::new(Code::InvalidArgument, "read the ticket", cause)
                .hint("it is what `xdfs serve --ticket` printed: ticket=SECRET&pin=FINGERPRINT")
        })
    }
}

impl RemotePlace {
    /// A path of this machine, for sessions that serve its files to this process without a server:
    /// a tree is copied from it like one of a server. `..` in it is resolved, and all else kept: a
    /// path that ends in a slash means the contents of the directory.
    ///
    /// # Errors
    /// The path can't be made absolute.
    pub fn here(path: &Path) -> Result<Self, Fault> {
        Ok(Self {
            user: None,
            address: here::address(),
            stack: None,
            path: here::absolute(path)?,
            invitation: Invitation::default(),
            profile: None,
        })
    }

    /// A part of a path on a server as a part of a URL. Shells take it literally, in quotes and
    /// outside: it consists of ASCII letters, digits and `%+,-./:=@_`.
    #[must_use]
    pub fn percent_encoded(part: &[u8]) -> String {
        percent_encode(part, INTERPRETED)
    }

    /// Whether sessions with the server are the same for both places: their paths don't matter.
    #[must_use]
    pub fn shares_session(&self, other: &Self) -> bool {
        self.address == other.address
            && self.stack == other.stack
            && self.user == other.user
            && self.invitation == other.invitation
            && self.profile == other.profile
    }

    /// Another place on the server: `path` is what a URL has after the host, percent-decoded.
    #[must_use]
    pub fn at(&self, path: Vec<u8>) -> Self {
        let has_home = self.address.paths() == Paths::RootOrHome;
        let path = match path.strip_prefix(b"/") {
            _ if !self.address.speaks_xdfs() => match has_home && path.is_empty() {
                true => b"/~/".to_vec(),
                false => path,
            },
            // `/mem:null` names the store of the server itself, not a file.
            Some(rest) if rest.starts_with(b"mem:") => rest.to_vec(),
            _ if has_home && (path.is_empty() || path == b"/~") => b"./".to_vec(),
            Some(rest) if has_home && rest.starts_with(b"~/") => [b".", &rest[1..]].concat(),
            _ => path,
        };
        Self {
            path,
            ..self.clone()
        }
    }

    /// The path as a URL has it after the host, percent-decoded: [`Self::at`] takes it.
    #[must_use]
    pub fn url_path(&self) -> Vec<u8> {
        let has_home = self.address.paths() == Paths::RootOrHome;
        match self.path.strip_prefix(b"./") {
            Some(rest) if has_home && self.address.speaks_xdfs() => [b"/~/", rest].concat(),
            _ if self.path.is_empty() || self.path.starts_with(b"/") => self.path.clone(),
            _ => [b"/", self.path.as_slice()].concat(),
        }
    }
}

impl fmt::Display for RemotePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map_or_else(String::new, |u| {
            format!("{}@", percent_encode(u.as_bytes(), b"/:@"))
        });
        let scheme = scheme_name(self.stack.as_deref(), &self.address);
        write!(f, "{scheme}://{user}")?;
        match &self.address {
            Address::Unix(path) => {
                f.write_str(&percent_encode(path.to_string_lossy().as_bytes(), b"/@"))?;
            }
            Address::Place { host, port, .. } => write!(f, "{}", Authority(host, *port))?,
            address => write!(f, "{address}")?,
        }
        // Tickets and passwords are secrets and aren't shown.
        f.write_str(&percent_encode(&self.url_path(), b"?*["))
    }
}

/// The bytes of a percent-encoded text; `None` if a percent sign is misused.
pub(crate) fn percent_decode(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let text = text.as_ref();
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let hi = char::from(bytes.next()?).to_digit(16)?;
            let lo = char::from(bytes.next()?).to_digit(16)?;
            out.push(u8::try_from(hi * 16 + lo).ok()?);
        } else {
            out.push(b);
        }
    }
    Some(out)
}

/// Percent-encodes bytes for a URL, including those in `reserved`.
fn percent_encode(bytes: &[u8], reserved: &[u8]) -> String {
    use fmt::Write as _;
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        if b.is_ascii_graphic() && b != b'%' && !reserved.contains(&b) {
            out.push(char::from(b));
        } else {
            // Writing to a string can't fail.
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

/// ASCII characters that a shell may interpret, within quotes too, or that end the path of a URL.
const INTERPRETED: &[u8] = b"!\"#$&'()*;<>?[\\]^`{|}~";
