//! Addresses of servers, and `xdfs://` URLs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use xdfs_gridftp::client::{FTP_PORT, GSIFTP_PORT};
use xdfs_proto::{Code, Fault, Machine};
use xdfs_security::identity::Fingerprint;
use xdfs_xio::{DriverSpec, SpecError, StackSpec};

#[cfg(test)]
mod tests;

/// The default port of xdfs servers.
pub const DEFAULT_PORT: u16 = 2799;

/// An address to listen on or to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A host name or IP address and a port.
    Host {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// Port, of TCP or of what the driver stack uses instead.
        port: u16,
    },
    /// An FTP or GridFTP server, to which its own client connects.
    Ftp {
        /// Name or address, an IPv6 address without its brackets.
        host: String,
        /// Port of the control connection.
        port: u16,
        /// What protects its connections.
        protection: FtpProtection,
    },
    /// A machine on which a server is started through ssh ([`ssh`](crate::ssh)), for as long as
    /// there are sessions with it.
    Ssh {
        /// The host as ssh takes it: a name, an address, or an alias in its configuration.
        host: String,
        /// The port of ssh; `None` for that of its configuration.
        port: Option<u16>,
    },
    /// An FTP or GridFTP server that is started through ssh for each control connection
    /// (`sshftp://`).
    SshFtp {
        /// The host as ssh takes it: a name, an address, or an alias in its configuration.
        host: String,
        /// The port of ssh; `None` for that of its configuration.
        port: Option<u16>,
    },
    /// A Unix socket.
    Unix(PathBuf),
    /// A listener in this process, by name. Only programs can create one; no text form is parsed.
    Memory(String),
}

/// What protects the connections with an FTP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FtpProtection {
    /// Nothing (`ftp://`).
    None,
    /// TLS on the control connection and on data connections (`ftps://`, RFC 4217).
    Tls,
    /// The Grid Security Infrastructure (`gsiftp://`), where it is built in.
    Gsi,
}

/// An address to listen on, and the driver stack of the channels accepted there: `HOST:PORT`,
/// `unix:PATH`, or `STACK://` before a host and port (or a path, if the transport is `unix`), as in
/// `quic://0.0.0.0:2799` or `tcp,tls,zstd://0.0.0.0:2799`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The stack; `None` for the one that other settings choose.
    pub stack: Option<StackSpec>,
    /// The address.
    pub address: Address,
}

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
    fn parse(text: &str) -> Option<Self> {
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

impl FromStr for Address {
    type Err = Fault;

    /// Parses `HOST`, `HOST:PORT`, `[IPV6]:PORT`, a bare IPv6 address, or `unix:PATH`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(bad_address("the path of the Unix socket is empty"));
            }
            return Ok(Self::Unix(path.into()));
        }
        if text == "unix" {
            return Err(bad_address("'unix' lacks the path of the Unix socket"));
        }
        let (host, port) = host_and_port(text)?;
        Ok(Self::Host {
            host: host.into(),
            port: port.unwrap_or(DEFAULT_PORT),
        })
    }
}

fn bad_address(cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, "read the address", cause)
        .hint("write HOST, HOST:PORT, [IPV6]:PORT or unix:PATH")
}

/// Splits `HOST`, `HOST:PORT`, `[IPV6]:PORT` or a bare IPv6 address.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), Fault> {
    let bad = |cause: String| bad_address(cause);
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| bad(format!("'{text}' lacks a ']'")))?;
        host.parse::<std::net::Ipv6Addr>()
            .map_err(|_| bad(format!("'{host}' is not an IPv6 address")))?;
        match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if rest.is_empty() => (host, None),
            None => return Err(bad(format!("'{rest}' follows the address"))),
        }
    } else if text.matches(':').count() > 1 {
        text.parse::<std::net::Ipv6Addr>()
            .map_err(|_| bad(format!("'{text}' is not an IPv6 address")))?;
        (text, None)
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err(bad(format!("'{text}' names no host")));
    }
    if host.bytes().all(|b| b.is_ascii_digit()) {
        // Systems take it for an IPv4 address in one number.
        return Err(
            bad(format!("'{host}' is a number, and not a host")).hint(format!(
                "write a host before the port, such as localhost:{host}"
            )),
        );
    }
    // Characters that no host name has, and that could make the address parse as another one.
    let odd = |c: char| c.is_whitespace() || c.is_control() || "/@%?#\\".contains(c);
    if host.contains(odd) {
        let host = host.escape_default();
        return Err(bad(format!("'{host}' is not a name or an address")));
    }
    let port = port.map(|port| {
        port.parse()
            .map_err(|_| bad(format!("'{port}' is not a port (0 to 65535)")))
    });
    Ok((host, port.transpose()?))
}

impl From<Address> for Listen {
    fn from(address: Address) -> Self {
        let stack = None;
        Self { stack, address }
    }
}

impl Listen {
    /// The scheme of URLs of servers that listen there, such as `xdfs` or `xdfs+quic`.
    #[must_use]
    pub fn scheme(&self) -> String {
        scheme(self.stack.as_ref(), &self.address)
    }
}

impl FromStr for Listen {
    type Err = Fault;

    /// Parses `ADDRESS` or `STACK://ADDRESS`.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let Some((stack, address)) = text.split_once("://") else {
            return Ok(text.parse::<Address>()?.into());
        };
        let stack: StackSpec = stack.parse().map_err(|error: SpecError| {
            bad_address(format!(
                "'{stack}' names no drivers such as tcp,tls,zstd: {error}"
            ))
        })?;
        let is_unix = stack.transport().name() == "unix";
        Ok(Self {
            address: match is_unix && !address.is_empty() {
                true => Address::Unix(address.into()),
                false => address.parse()?,
            },
            stack: Some(stack),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.stack, &self.address) {
            (None, address) => address.fmt(f),
            (Some(stack), Address::Unix(path)) => write!(f, "{stack}://{}", path.display()),
            (Some(stack), address) => write!(f, "{stack}://{address}"),
        }
    }
}

impl Address {
    /// The server there, as messages name it: its port only if that isn't the usual one.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let usual = match self {
            Self::Ftp { protection, .. } => usual_port(protection),
            _ => DEFAULT_PORT,
        };
        Machine::server(match self {
            Self::Host { host, port } | Self::Ftp { host, port, .. } => {
                Authority(host, Some(*port).filter(|port| *port != usual)).to_string()
            }
            Self::Ssh { host, port } | Self::SshFtp { host, port } => {
                Authority(host, *port).to_string()
            }
            Self::Unix(_) | Self::Memory(_) => self.to_string(),
        })
    }

    /// Whether the server there speaks FTP or GridFTP.
    #[must_use]
    pub fn is_ftp(&self) -> bool {
        matches!(self, Self::Ftp { .. } | Self::SshFtp { .. })
    }

    /// Whether paths with one slash begin in the directory of the login, and those with two at the
    /// root: `ftp://` and `ftps://`, as RFC 1738 and curl have it. Elsewhere paths begin at the
    /// root.
    #[must_use]
    pub fn begins_at_login(&self) -> bool {
        use FtpProtection::{None, Tls};
        matches!(
            self,
            Self::Ftp {
                protection: None | Tls,
                ..
            }
        )
    }

    /// Whether ssh leads to it, and logs the user in.
    #[must_use]
    pub fn is_of_ssh(&self) -> bool {
        matches!(self, Self::Ssh { .. } | Self::SshFtp { .. })
    }
}

/// The host and the port in a URL.
struct Authority<'a>(&'a str, Option<u16>);

impl fmt::Display for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(host, port) = self;
        match host.contains(':') {
            true => write!(f, "[{host}]")?,
            false => f.write_str(host)?,
        }
        port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { host, port } | Self::Ftp { host, port, .. } => {
                Authority(host, Some(*port)).fmt(f)
            }
            Self::Ssh { host, port } => write!(f, "ssh:{}", Authority(host, *port)),
            Self::SshFtp { host, port } => write!(f, "sshftp:{}", Authority(host, *port)),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Memory(name) => write!(f, "memory:{name}"),
        }
    }
}

/// The port of FTP servers with this protection.
fn usual_port(protection: &FtpProtection) -> u16 {
    match protection {
        FtpProtection::Gsi => GSIFTP_PORT,
        _ => FTP_PORT,
    }
}

/// The bytes of a percent-encoded text; `None` if a percent sign is misused.
pub(crate) fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
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

/// What the beginning of a URL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme<'a> {
    Plain,
    /// The names of drivers.
    Stack(&'a str),
    Ssh,
    SshFtp,
    Ftp(FtpProtection),
}

/// The scheme of a URL of a remote place, and the rest of the URL.
fn scheme_of(text: &str) -> Option<(Scheme<'_>, &str)> {
    if let Some(rest) = text.strip_prefix(SSH) {
        return Some((Scheme::Ssh, rest));
    }
    if let Some(rest) = text.strip_prefix(SSHFTP) {
        return Some((Scheme::SshFtp, rest));
    }
    for (begin, protection) in [
        (FTP, FtpProtection::None),
        (FTPS, FtpProtection::Tls),
        (GSIFTP, FtpProtection::Gsi),
    ] {
        if let Some(rest) = text.strip_prefix(begin) {
            return Some((Scheme::Ftp(protection), rest));
        }
    }
    let (scheme, rest) = text.strip_prefix("xdfs")?.split_once("://")?;
    match scheme.strip_prefix('+') {
        None => scheme.is_empty().then_some((Scheme::Plain, rest)),
        // A slash would be one of a local path.
        Some(names) => (!names.contains('/')).then_some((Scheme::Stack(names), rest)),
    }
}

/// The scheme of a URL with this stack. Attributes have no place in it.
fn scheme(stack: Option<&StackSpec>, address: &Address) -> String {
    let names = stack.map(|stack| {
        let all = std::iter::once(stack.transport()).chain(stack.transforms());
        all.map(DriverSpec::name).collect::<Vec<_>>().join("+")
    });
    match (names, address) {
        (Some(names), _) => format!("xdfs+{names}"),
        (None, Address::Unix(_)) => "xdfs+unix".to_owned(),
        (None, Address::Ftp { protection, .. }) => match protection {
            FtpProtection::None => "ftp".to_owned(),
            FtpProtection::Tls => "ftps".to_owned(),
            FtpProtection::Gsi => "gsiftp".to_owned(),
        },
        (None, _) => "xdfs".to_owned(),
    }
}

/// The stack in the scheme of a URL: names with `+` between them, or with commas as elsewhere.
/// Schemes have no characters for attributes.
fn stack_of(names: &str) -> Result<StackSpec, String> {
    let mut drivers = names.split(['+', ',']).map(DriverSpec::new);
    let invalid =
        |error: SpecError| format!("'{names}' names no drivers such as tcp+tls+zstd: {error}");
    let transport = drivers.next().ok_or("it names no driver")?;
    let mut stack = StackSpec::new(transport.map_err(invalid)?);
    for driver in drivers {
        stack = stack.with(driver.map_err(invalid)?);
    }
    Ok(stack)
}

/// The beginning of URLs of machines that ssh reaches.
const SSH: &str = "ssh://";
/// The same, where FTP or GridFTP is spoken.
const SSHFTP: &str = "sshftp://";
/// The beginning of URLs of FTP and GridFTP servers.
const FTP: &str = "ftp://";
/// The same with TLS.
const FTPS: &str = "ftps://";
/// The same with GSI.
const GSIFTP: &str = "gsiftp://";
/// Characters that ssh refuses in names of hosts and users: it may pass both to a shell.
const REFUSED_BY_SSH: &str = "'`\"$\\;&<>|(){}";

impl RemotePlace {
    /// Whether `text` is meant as a remote place, well formed or not.
    #[must_use]
    pub fn is_remote(text: &str) -> bool {
        scheme_of(text).is_some()
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
        let is_ssh = matches!(self.address, Address::Ssh { .. });
        let is_ftp = self.address.is_ftp();
        let path = match path.strip_prefix(b"/") {
            _ if is_ftp && path.is_empty() && !self.address.begins_at_login() => b"/~/".to_vec(),
            _ if is_ftp => path,
            // `/mem:null` names the store of the server itself, not a file.
            Some(rest) if rest.starts_with(b"mem:") => rest.to_vec(),
            _ if is_ssh && (path.is_empty() || path == b"/~") => b"./".to_vec(),
            Some(rest) if is_ssh && rest.starts_with(b"~/") => [b".", &rest[1..]].concat(),
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
        match self.path.strip_prefix(b"./") {
            Some(rest) if matches!(self.address, Address::Ssh { .. }) => [b"/~/", rest].concat(),
            _ if self.path.is_empty() || self.path.starts_with(b"/") => self.path.clone(),
            _ => [b"/", self.path.as_slice()].concat(),
        }
    }
}

impl RemotePlace {
    /// What looks like a URL, valid or not, as it may be shown: without a password, which
    /// URLs of FTP servers can have. Other text stays as it is.
    #[must_use]
    pub fn without_password(text: &str) -> String {
        let same = || text.to_owned();
        let Some((scheme, slashes)) = text.split_once(":/") else {
            return same();
        };
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let is_url = scheme.chars().all(is_scheme)
            && (slashes.starts_with('/') || scheme.to_ascii_lowercase().contains("ftp"));
        let rest = slashes.trim_start_matches('/');
        if !is_url {
            return same();
        }
        let authority = rest.split('/').next().unwrap_or(rest);
        let start = &text[..text.len() - rest.len()];
        if let Some((user, host)) = authority.rsplit_once('@') {
            let encoded = || user.to_ascii_lowercase().find("%3a");
            let (colon, end) = (user.find(':').or_else(encoded), &rest[authority.len()..]);
            return colon.map_or_else(same, |at| format!("{start}{}@{host}{end}", &user[..at]));
        }
        // A password may have a slash that isn't encoded, and a path an '@'.
        match (authority.split_once(':'), rest.rsplit_once('@')) {
            (Some((user, begin)), Some((_, after)))
                if !authority.starts_with('[')
                    && (begin.is_empty() || !begin.bytes().all(|byte| byte.is_ascii_digit())) =>
            {
                format!("{start}{user}@{after}")
            }
            _ => same(),
        }
    }
}

impl FromStr for RemotePlace {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let bad = |cause: &str| {
            // Without a possible secret.
            let shown = Self::without_password(text);
            let shown = match shown.split_once("?ticket=") {
                Some((shown, _)) => shown.to_owned(),
                None => shown,
            };
            let mut schemes = [SSH, SSHFTP, FTP, FTPS, GSIFTP].into_iter();
            let scheme = schemes.find(|scheme| text.starts_with(scheme));
            let scheme = scheme.unwrap_or("xdfs://");
            Fault::new(Code::InvalidArgument, "read the URL", cause)
                .path(shown)
                .hint(format!("write {scheme}[user@]host[:port]/path"))
        };
        let Some((scheme, rest)) = scheme_of(text) else {
            return Err(bad("it does not start with xdfs://"));
        };
        let stack = match scheme {
            Scheme::Stack(names) => Some(stack_of(names).map_err(|cause| bad(&cause))?),
            _ => None,
        };
        let transport = stack.as_ref().map(|stack| stack.transport().name());
        let unix = transport == Some("unix");
        let ssh = matches!(scheme, Scheme::Ssh | Scheme::SshFtp);
        let protection = match scheme {
            Scheme::Ftp(protection) => Some(protection),
            _ => None,
        };
        let ftp = protection.is_some() || scheme == Scheme::SshFtp;
        // The address says it.
        let stack = stack.filter(|stack| !unix || !stack.transforms().is_empty());
        let (authority, path) = match rest.find('/') {
            Some(i) => rest.split_at(i),
            None => (rest, ""),
        };
        let mut password = None;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => {
                let (user, secret) = match user.split_once(':') {
                    Some((user, secret)) => (user, Some(secret)),
                    None => (user, None),
                };
                if secret.is_some() && protection != Some(FtpProtection::None) {
                    let cause = "a password in a URL can be seen by others on this machine";
                    let begin = &text[..text.len() - rest.len()];
                    let instead = match protection {
                        None if ssh => "ssh asks for the password",
                        Some(FtpProtection::Gsi) => "a certificate logs in, not a password",
                        _ => "--password-file FILE or - gives the password",
                    };
                    return Err(bad(cause).hint(format!("write {begin}USER@HOST/PATH; {instead}")));
                }
                if let Some(secret) = secret {
                    let secret = percent_decode(secret).and_then(|p| String::from_utf8(p).ok());
                    password = Some(secret.ok_or_else(|| bad("the password is not valid"))?);
                }
                let user = percent_decode(user).and_then(|u| String::from_utf8(u).ok());
                let user = user.ok_or_else(|| bad("the user name is not valid"))?;
                if user.is_empty() {
                    return Err(bad("no user stands before the '@'"));
                }
                if !ftp && user.contains(':') {
                    return Err(bad("the name of a user has no ':'"));
                }
                (Some(user), host)
            }
            None => (None, authority),
        };
        let address = if unix {
            let path = percent_decode(host).ok_or_else(|| bad("a percent sign is misused"))?;
            let path = String::from_utf8(path).map_err(|_| bad("the socket is not UTF-8"))?;
            if path.is_empty() {
                return Err(bad("it names no socket"));
            }
            Address::Unix(path.into())
        } else {
            if host.is_empty() {
                return Err(bad("it names no host"));
            }
            // What addresses without a scheme begin with.
            if !ssh && (host == "unix" || host.starts_with("unix:")) {
                return Err(bad("the host is not a name or an IP address"));
            }
            let parsed = host_and_port(host).map_err(|f| match ftp && rest.contains('@') {
                // What stands there may be the begin of a password.
                true => bad("the host or its port is not valid; write a '/' in a password as %2F"),
                false => bad(&f.cause),
            })?;
            match parsed {
                (host, port) if ssh => {
                    let odd = |name: &str| {
                        name.starts_with('-')
                            || name.contains(|c: char| c.is_control() || REFUSED_BY_SSH.contains(c))
                    };
                    if odd(host) || user.as_deref().is_some_and(odd) {
                        return Err(bad("ssh takes no such name of a host or a user"));
                    }
                    let host = host.to_owned();
                    match ftp {
                        true => Address::SshFtp { host, port },
                        false => Address::Ssh { host, port },
                    }
                }
                (host, port) => {
                    let host = host.to_owned();
                    match protection {
                        Some(protection) => Address::Ftp {
                            host,
                            port: port.unwrap_or_else(|| usual_port(&protection)),
                            protection,
                        },
                        None => Address::Host {
                            host,
                            port: port.unwrap_or(DEFAULT_PORT),
                        },
                    }
                }
            }
        };
        let (path, invitation) = match path.rsplit_once('?') {
            Some((path, query))
                if !ssh && !ftp && (query.starts_with("ticket=") || query.starts_with("pin=")) =>
            {
                let invitation = Invitation::parse(query)
                    .ok_or_else(|| bad("neither a ticket nor a pin follows the question mark"))?;
                (path, invitation)
            }
            _ => (path, Invitation::default()),
        };
        let invitation = Invitation {
            password,
            ..invitation
        };
        let path = percent_decode(path).ok_or_else(|| bad("a percent sign is misused"))?;
        let server = Self {
            user,
            address,
            stack: stack.map(Box::new),
            path: Vec::new(),
            invitation,
            profile: None,
        };
        Ok(server.at(path))
    }
}

impl fmt::Display for RemotePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map_or_else(String::new, |u| {
            format!("{}@", percent_encode(u.as_bytes(), b"/:@"))
        });
        let scheme = scheme(self.stack.as_deref(), &self.address);
        match &self.address {
            Address::Unix(path) => {
                let path = percent_encode(path.to_string_lossy().as_bytes(), b"/@");
                write!(f, "{scheme}://{user}{path}")?;
            }
            Address::Ssh { host, port } => write!(f, "{SSH}{user}{}", Authority(host, *port))?,
            Address::SshFtp { host, port } => {
                write!(f, "{SSHFTP}{user}{}", Authority(host, *port))?;
            }
            address => write!(f, "{scheme}://{user}{address}")?,
        }
        // Tickets and passwords are secrets and aren't shown.
        f.write_str(&percent_encode(&self.url_path(), b"?*["))
    }
}
