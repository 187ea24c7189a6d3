//! Commands: parsed from lines, typed, with everything in them checked.

use std::fmt;
use std::net::SocketAddr;

use base64ct::{Base64, Encoding as _};
use zeroize::Zeroizing;

use crate::address::{parse_extended, parse_host_port};
use crate::archive::Compression;
use crate::checksum::Algorithm;
use crate::getput::Request;
use crate::restart::{Restart, offset, parse_restart};
use crate::segment::{Numbers, SegmentRequest, TransactionId};
use crate::stripe::Layout;
use crate::time::parse_time;
use crate::xmode::{self, Sum};

/// Most addresses of SPOR.
pub const ADDRESSES_MAX: usize = 64;
/// Largest number of parallel connections that OPTS RETR may ask for.
pub const PARALLELISM_MAX: u32 = 64;

/// How bytes are laid on data connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// One connection, whose end is that of the file (MODE S).
    #[default]
    Stream,
    /// Blocks with offsets and such checksums on connections that come and go (MODE X).
    Exchange(Sum),
    /// Blocks with offsets on any number of connections (MODE E).
    Extended,
}

/// The protection of data connections (RFC 2228, PROT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// None (C).
    #[default]
    Clear,
    /// Integrity, and with TLS confidentiality too (S).
    Safe,
    /// Integrity and confidentiality (P).
    Private,
}

/// Who has to be at the other end of data connections (GFD.20, DCAU).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DataPeer {
    /// Anybody: nothing is proved (N).
    Anybody,
    /// The user of the session (A).
    #[default]
    Own,
    /// Who has this subject (S).
    Subject(String),
}

/// What OPTS RETR changes of the transfers that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// Parallelism: the number of connections.
    pub parallelism: Option<u32>,
    /// StripeLayout, with BlockSize; without a layout (`None`) everything comes from the server
    /// itself.
    pub layout: Option<Option<Layout>>,
}

/// A password, which is wiped when it isn't needed any more, and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<Vec<u8>>);

impl Password {
    /// The password, if it is text (UTF-8), as those of users are.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<&[u8]> for Password {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// The form of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Rows of facts (MLSD, MLSC).
    Facts,
    /// Rows of facts of a whole tree, with paths relative to it (MLSR).
    Tree,
    /// The same, directories first and then by size: a transaction (MLSR in MODE T).
    Catalogue,
    /// Rows as of `ls -l` (LIST).
    Long,
    /// Names (NLST).
    Names,
}

/// A command with its arguments. Paths are as the client wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// ABOR: cancel the running transfer.
    Abort,
    /// ALLO: bytes to come.
    Allocate(u64),
    /// SCKS: the checksum that the next file to be stored has to have, in lower case.
    Announce(Algorithm, String),
    /// APPE.
    Append(Vec<u8>),
    /// AUTH GSSAPI (RFC 2228).
    AuthGssapi,
    /// AUTH TLS (RFC 4217).
    AuthTls,
    /// ABUF: leave socket buffers to the system.
    AutomaticBuffer,
    /// CCC: give up the protection of the control connection.
    ClearControl,
    /// CKSM: of a file or a part of it; no length means up to the end.
    Checksum(Algorithm, u64, Option<u64>, Vec<u8>),
    /// CWD.
    ChangeDirectory(Vec<u8>),
    /// CDUP.
    ChangeUp,
    /// SITE CHMOD.
    ChangeMode(u32, Vec<u8>),
    /// DELE.
    Delete(Vec<u8>),
    /// PORT, EPRT, SPOR: where to connect to.
    Connect(Vec<SocketAddr>),
    /// ESTO A: store at an offset.
    StoreAt(u64, Vec<u8>),
    /// FEAT.
    Features,
    /// GET (GFD.47): RETR that tells its data connections too.
    Get(Request),
    /// HELP and SITE HELP.
    Help,
    /// LIST, MLSD, MLSR, NLST: over data connections.
    List(Form, Vec<u8>),
    /// MLSC and STAT with a path: in the reply.
    ListHere(Form, Vec<u8>),
    /// MKD.
    MakeDirectory(Vec<u8>),
    /// MLST.
    Facts(Vec<u8>),
    /// MODE S and MODE E.
    Mode(Mode),
    /// MODE T.
    ModeArchive,
    /// MDTM.
    ModificationTime(Vec<u8>),
    /// NOOP, and what clients tell about themselves.
    Nothing,
    /// OPTS PASV AllowDelayed.
    DelayPassive(bool),
    /// OPTS RETR: what it changes.
    SendOptions(SendOptions),
    /// PASS.
    Password(Password),
    /// PASV.
    Passive,
    /// EPSV.
    PassiveExtended,
    /// SPAS.
    PassiveStriped,
    /// PWD.
    PrintDirectory,
    /// PBSZ: bytes of a protection buffer, of which TLS has none.
    ProtectionBuffer(u64),
    /// DCAU: who is at the other end of data connections.
    DataAuthentication(DataPeer),
    /// ENC, MIC and CONF: a command in a token, where there is no security context.
    Protected,
    /// PROT.
    Protection(Level),
    /// PUT (GFD.47): STOR that tells its data connections too.
    Put(Request),
    /// QUIT.
    Quit,
    /// REST.
    Restart(Restart),
    /// RETR.
    Retrieve(Vec<u8>),
    /// ERET P: a part, by offset and length.
    RetrievePart(u64, u64, Vec<u8>),
    /// ERET T: a segment of a tree.
    RetrieveSegment(SegmentRequest, Vec<u8>),
    /// RMD.
    RemoveDirectory(Vec<u8>),
    /// RNFR.
    RenameFrom(Vec<u8>),
    /// RNTO.
    RenameTo(Vec<u8>),
    /// MFMT: nanoseconds since 1970.
    SetTime(i64, Vec<u8>),
    /// ADAT: a token of a security context.
    SecurityData(Vec<u8>),
    /// SIZE.
    Size(Vec<u8>),
    /// SBUF and its relatives: bytes of socket buffers.
    SocketBuffer(usize),
    /// STAT without a path.
    Status,
    /// STOR.
    Store(Vec<u8>),
    /// ESTO T: store a segment, and whether it replaces files.
    StoreSegment(Compression, bool, Vec<u8>),
    /// STOU: store under a new name, which begins with this if it isn't empty.
    StoreUnique(Vec<u8>),
    /// STRU F.
    Structure,
    /// SYST.
    System,
    /// TYPE: whether it is an image.
    Type(bool),
    /// USER.
    User(Vec<u8>),
}

/// Why a line is no command of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// The argument is malformed; what it should be.
    Argument(&'static str),
    /// The command is known, but not with this parameter.
    Parameter(&'static str),
    /// The level of PROT is none of TLS (RFC 4217, section 9).
    ProtectionLevel,
    /// The command isn't known here.
    Unknown,
}

/// Reads a line without its end.
///
/// # Errors
/// It is no command that is known here.
pub fn parse(line: &[u8]) -> Result<Command, CommandError> {
    if line.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(CommandError::Argument(
            "a command without control characters",
        ));
    }
    let (verb, argument) = split(line);
    let verb = verb.to_ascii_uppercase();
    let path = || match argument.is_empty() {
        true => Err(CommandError::Argument("a path")),
        false => Ok(argument.to_vec()),
    };
    Ok(match verb.as_slice() {
        b"ABOR" => Command::Abort,
        b"ABUF" => Command::AutomaticBuffer,
        b"ADAT" => {
            let text = std::str::from_utf8(argument).ok();
            let token = text.and_then(|text| Base64::decode_vec(text).ok());
            let token = token.filter(|token| !token.is_empty());
            Command::SecurityData(token.ok_or(CommandError::Argument("a token in base64"))?)
        }
        b"ALLO" => Command::Allocate(number(split(argument).0)?),
        b"APPE" => Command::Append(path()?),
        b"AUTH" => match argument.to_ascii_uppercase().as_slice() {
            // TLS-C is the same by an older name (RFC 4217, section 17).
            b"TLS" | b"TLS-C" => Command::AuthTls,
            b"GSSAPI" => Command::AuthGssapi,
            _ => {
                return Err(CommandError::Parameter(
                    "there are AUTH TLS and AUTH GSSAPI",
                ));
            }
        },
        b"CCC" => Command::ClearControl,
        b"CDUP" | b"XCUP" => Command::ChangeUp,
        b"CKSM" => checksum(argument)?,
        b"CWD" | b"XCWD" => Command::ChangeDirectory(path()?),
        b"DCAU" => Command::DataAuthentication(data_peer(argument)?),
        b"DELE" => Command::Delete(path()?),
        b"ENC" | b"MIC" | b"CONF" => Command::Protected,
        b"EPRT" => {
            let address = parse_extended(argument);
            Command::Connect(vec![
                address.ok_or(CommandError::Argument("|1|HOST|PORT|"))?,
            ])
        }
        b"EPSV" => match argument {
            b"" | b"1" | b"2" => Command::PassiveExtended,
            _ if argument.eq_ignore_ascii_case(b"ALL") => Command::Nothing,
            _ => return Err(CommandError::Parameter("the network is not supported")),
        },
        b"ERET" => part(argument)?,
        b"ESTO" => match split(argument) {
            (b"A" | b"a", rest) => {
                let (at, path) = split(rest);
                Command::StoreAt(number(at)?, some_path(path)?)
            }
            (b"T" | b"t", rest) => store_segment(rest)?,
            _ => return Err(CommandError::Parameter("there are ESTO A and ESTO T")),
        },
        b"FEAT" => Command::Features,
        b"GET" => Command::Get(Request::parse(argument)?),
        b"HELP" => Command::Help,
        b"LIST" => Command::List(Form::Long, without_flags(argument).to_vec()),
        b"MDTM" => Command::ModificationTime(path()?),
        b"MFMT" => {
            let (time, path) = split(argument);
            let time = parse_time(time).ok_or(CommandError::Argument("YYYYMMDDhhmmss"))?;
            Command::SetTime(time, some_path(path)?)
        }
        b"MKD" | b"XMKD" => Command::MakeDirectory(path()?),
        b"MLSC" => Command::ListHere(Form::Facts, argument.to_vec()),
        b"MLSD" => Command::List(Form::Facts, argument.to_vec()),
        b"MLSR" => Command::List(Form::Tree, argument.to_vec()),
        b"MLST" => Command::Facts(argument.to_vec()),
        b"MODE" => match argument {
            b"S" | b"s" => Command::Mode(Mode::Stream),
            b"E" | b"e" => Command::Mode(Mode::Extended),
            b"T" | b"t" => Command::ModeArchive,
            [b'X' | b'x', rest @ ..] => Command::Mode(Mode::Exchange(exchange(rest)?)),
            _ => {
                return Err(CommandError::Parameter(
                    "there are MODE S, MODE E and MODE T",
                ));
            }
        },
        b"NLST" => Command::List(Form::Names, without_flags(argument).to_vec()),
        b"NOOP" => Command::Nothing,
        b"OPTS" => options(argument)?,
        b"PASS" => Command::Password(Password::from(argument)),
        b"PASV" => Command::Passive,
        b"PORT" => {
            let address = parse_host_port(argument);
            Command::Connect(vec![
                address.ok_or(CommandError::Argument("h1,h2,h3,h4,p1,p2"))?,
            ])
        }
        b"PBSZ" => Command::ProtectionBuffer(number(argument)?),
        b"PROT" => match argument {
            b"C" | b"c" => Command::Protection(Level::Clear),
            b"S" | b"s" => Command::Protection(Level::Safe),
            b"P" | b"p" => Command::Protection(Level::Private),
            b"E" | b"e" => return Err(CommandError::ProtectionLevel),
            _ => return Err(CommandError::Parameter("there are PROT C and PROT P")),
        },
        b"PWD" | b"XPWD" => Command::PrintDirectory,
        b"PUT" => Command::Put(Request::parse(argument)?),
        b"QUIT" => Command::Quit,
        b"REST" => {
            let restart = parse_restart(argument);
            Command::Restart(restart.ok_or(CommandError::Argument("an offset, or ranges"))?)
        }
        b"RETR" => Command::Retrieve(path()?),
        b"RMD" | b"XRMD" => Command::RemoveDirectory(path()?),
        b"RNFR" => Command::RenameFrom(path()?),
        b"RNTO" => Command::RenameTo(path()?),
        b"SBUF" => buffer(argument)?,
        b"SCKS" => announced(argument)?,
        b"SITE" => site(argument)?,
        b"SIZE" => Command::Size(path()?),
        b"SPAS" => Command::PassiveStriped,
        b"SPOR" => ports(argument)?,
        b"STAT" => match argument {
            b"" => Command::Status,
            _ => Command::ListHere(Form::Long, without_flags(argument).to_vec()),
        },
        b"STOR" => Command::Store(path()?),
        b"STOU" => Command::StoreUnique(argument.to_vec()),
        b"STRU" => match argument {
            b"F" | b"f" => Command::Structure,
            _ => return Err(CommandError::Parameter("there is STRU F only")),
        },
        b"SYST" => Command::System,
        b"TYPE" => match argument.to_ascii_uppercase().as_slice() {
            b"I" | b"L 8" => Command::Type(true),
            b"A" | b"A N" => Command::Type(false),
            _ => return Err(CommandError::Parameter("there are TYPE I and TYPE A")),
        },
        b"USER" => Command::User(some_path(argument).map_err(|_| NO_NAME)?),
        _ => return Err(CommandError::Unknown),
    })
}

/// The version and the checksum of MODE X.
fn exchange(text: &[u8]) -> Result<Sum, CommandError> {
    let (version, sum) = split(text.trim_ascii_start());
    let is_known = version == xmode::VERSION.as_bytes();
    Sum::from_name(sum)
        .filter(|_| is_known)
        .ok_or(CommandError::Parameter(
            "MODE X has a version and a checksum: see FEAT",
        ))
}

fn data_peer(argument: &[u8]) -> Result<DataPeer, CommandError> {
    let (kind, subject) = split(argument);
    match (kind, std::str::from_utf8(subject)) {
        (b"N" | b"n", Ok("")) => Ok(DataPeer::Anybody),
        (b"A" | b"a", Ok("")) => Ok(DataPeer::Own),
        (b"S" | b"s", Ok(subject)) if !subject.is_empty() => {
            Ok(DataPeer::Subject(subject.to_owned()))
        }
        _ => Err(CommandError::Argument("N, A, or S and a subject")),
    }
}

const NO_NAME: CommandError = CommandError::Argument("a name");

/// The bytes before the first space, and those after it.
fn split(text: &[u8]) -> (&[u8], &[u8]) {
    match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, b""),
    }
}

fn some_path(path: &[u8]) -> Result<Vec<u8>, CommandError> {
    match path.is_empty() {
        true => Err(CommandError::Argument("a path")),
        false => Ok(path.to_vec()),
    }
}

fn number(text: &[u8]) -> Result<u64, CommandError> {
    let text = std::str::from_utf8(text).ok();
    text.and_then(offset)
        .ok_or(CommandError::Argument("a number of bytes"))
}

/// The path after flags of `ls`, which some clients send.
fn without_flags(mut argument: &[u8]) -> &[u8] {
    while argument.first() == Some(&b'-') {
        argument = split(argument).1;
    }
    argument
}

fn checksum(argument: &[u8]) -> Result<Command, CommandError> {
    let (name, rest) = split(argument);
    let (start, rest) = split(rest);
    let (length, path) = split(rest);
    let kind = Algorithm::from_name(name);
    let kind = kind.ok_or(CommandError::Parameter(
        "the checksum isn't known: see FEAT",
    ))?;
    let length = match length {
        b"-1" => None,
        length => Some(number(length)?),
    };
    Ok(Command::Checksum(
        kind,
        number(start)?,
        length,
        some_path(path)?,
    ))
}

fn announced(argument: &[u8]) -> Result<Command, CommandError> {
    let (name, sum) = split(argument);
    let kind = Algorithm::from_name(name);
    let kind = kind.ok_or(CommandError::Parameter(
        "the checksum isn't known: see FEAT",
    ))?;
    let sum = std::str::from_utf8(sum).ok();
    let sum = sum.filter(|sum| kind.is_checksum(sum.as_bytes()));
    let sum = sum.ok_or(CommandError::Argument("a checksum in hexadecimal digits"))?;
    Ok(Command::Announce(kind, sum.to_ascii_lowercase()))
}

fn part(argument: &[u8]) -> Result<Command, CommandError> {
    let rest = match split(argument) {
        (b"P" | b"p", rest) => rest,
        (b"T" | b"t", rest) => return segment(rest),
        _ => return Err(CommandError::Parameter("there are ERET P and ERET T")),
    };
    let (start, rest) = split(rest);
    let (length, path) = split(rest);
    let (start, length) = (number(start)?, number(length)?);
    Ok(Command::RetrievePart(start, length, some_path(path)?))
}

/// ERET T: the transaction, the compression, the numbers of the entries, and the path of the tree.
fn segment(argument: &[u8]) -> Result<Command, CommandError> {
    let (transaction, rest) = split(argument);
    let (compression, rest) = split(rest);
    let (numbers, path) = split(rest);
    let transaction = TransactionId::parse(transaction);
    let numbers = Numbers::parse(numbers);
    let request = SegmentRequest {
        transaction: transaction.ok_or(CommandError::Argument("a transaction of 32 digits"))?,
        compression: Compression::from_name(compression).ok_or(NO_COMPRESSION)?,
        numbers: numbers.ok_or(CommandError::Argument("ascending numbers of entries"))?,
    };
    Ok(Command::RetrieveSegment(request, some_path(path)?))
}

/// ESTO T: the compression, whether files are replaced, and the path of the tree.
fn store_segment(argument: &[u8]) -> Result<Command, CommandError> {
    let (compression, rest) = split(argument);
    let (how, path) = split(rest);
    let compression = Compression::from_name(compression).ok_or(NO_COMPRESSION)?;
    let overwrites = match how.to_ascii_lowercase().as_slice() {
        b"new" => false,
        b"any" => true,
        _ => return Err(CommandError::Argument("new or any")),
    };
    Ok(Command::StoreSegment(
        compression,
        overwrites,
        some_path(path)?,
    ))
}

const NO_COMPRESSION: CommandError =
    CommandError::Parameter("the compression isn't known: see FEAT");

fn ports(argument: &[u8]) -> Result<Command, CommandError> {
    let parts = argument.split(|byte| *byte == b' ');
    let parts = parts.filter(|part| !part.is_empty());
    let addresses: Option<Vec<_>> = parts.take(ADDRESSES_MAX + 1).map(parse_host_port).collect();
    match addresses {
        Some(addresses) if (1..=ADDRESSES_MAX).contains(&addresses.len()) => {
            Ok(Command::Connect(addresses))
        }
        _ => Err(CommandError::Argument("h1,h2,h3,h4,p1,p2 for each stripe")),
    }
}

fn buffer(argument: &[u8]) -> Result<Command, CommandError> {
    let bytes = number(argument)?;
    Ok(Command::SocketBuffer(
        usize::try_from(bytes).unwrap_or(usize::MAX),
    ))
}

fn site(argument: &[u8]) -> Result<Command, CommandError> {
    let (verb, argument) = split(argument);
    match verb.to_ascii_uppercase().as_slice() {
        b"CHMOD" => {
            let (mode, path) = split(argument);
            let mode = std::str::from_utf8(mode).ok();
            let mode = mode.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let mode = mode.and_then(|text| u32::from_str_radix(text, 8).ok());
            let mode = mode.filter(|mode| *mode <= 0o7777);
            let mode = mode.ok_or(CommandError::Argument("a mode in octal digits"))?;
            Ok(Command::ChangeMode(mode, some_path(path)?))
        }
        b"CLIENTINFO" => Ok(Command::Nothing),
        b"HELP" => Ok(Command::Help),
        b"BUFSIZE" | b"RETRBUFSIZE" | b"STORBUFSIZE" | b"RBUFSZ" | b"SBUFSZ" | b"RBUFSIZ"
        | b"SBUFSIZ" => buffer(argument),
        _ => Err(CommandError::Unknown),
    }
}

/// OPTS: `RETR Parallelism=4,4,4;`, `PASV AllowDelayed=1;`, `MLST facts`, `UTF8 ON`.
fn options(argument: &[u8]) -> Result<Command, CommandError> {
    let (verb, rest) = split(argument);
    let rest = String::from_utf8_lossy(rest).to_ascii_lowercase();
    let settings = rest.split(';').filter(|part| !part.is_empty());
    let mut settings = settings.map(|part| part.split_once('=').unwrap_or((part, "")));
    match verb.to_ascii_uppercase().as_slice() {
        b"RETR" => send_options(settings).map(Command::SendOptions),
        b"PASV" => match settings.next() {
            Some(("allowdelayed", value @ ("0" | "1"))) => Ok(Command::DelayPassive(value == "1")),
            _ => Err(CommandError::Parameter("the option isn't known")),
        },
        // All facts are always told.
        b"MLST" | b"UTF8" => Ok(Command::Nothing),
        _ => Err(CommandError::Parameter("the command has no options")),
    }
}

/// `StripeLayout=Blocked;BlockSize=65536;Parallelism=2,2,2;`, in any order.
fn send_options<'a>(
    settings: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<SendOptions, CommandError> {
    let mut options = SendOptions::default();
    let mut block = None;
    for (name, value) in settings {
        match (name, value) {
            ("parallelism", value) => {
                let first = value.split(',').next().unwrap_or_default();
                let wanted = first.parse::<u32>().ok().filter(|wanted| *wanted > 0);
                let wanted = wanted.ok_or(CommandError::Argument("Parallelism=N,N,N;"))?;
                options.parallelism = Some(wanted.min(PARALLELISM_MAX));
            }
            ("stripelayout", "blocked") => options.layout = Some(Some(Layout::default())),
            ("stripelayout", "partitioned") => options.layout = Some(Some(Layout::Partitioned)),
            ("stripelayout", "none") => options.layout = Some(None),
            ("blocksize", value) => {
                block = Some(offset(value).ok_or(CommandError::Argument("BlockSize=BYTES;"))?);
            }
            _ => return Err(CommandError::Parameter("the option isn't known")),
        }
    }
    if let (Some(bytes), None | Some(Some(Layout::Blocked(_)))) = (block, options.layout) {
        options.layout = Some(Some(Layout::Blocked(bytes)));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::getput::Route;

    fn sending(parallelism: Option<u32>, layout: Option<Option<Layout>>) -> Command {
        Command::SendOptions(SendOptions {
            parallelism,
            layout,
        })
    }

    #[test]
    fn commands_of_the_real_tools_are_read() {
        let path = || b"/d/c d.txt".to_vec();
        let port = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (line, command) in [
            ("USER anonymous", Command::User(b"anonymous".to_vec())),
            ("pass globus@", Command::Password(b"globus@"[..].into())),
            ("PASS", Command::Password(b""[..].into())),
            ("PASS a  b ", Command::Password(b"a  b "[..].into())),
            ("AUTH tls", Command::AuthTls),
            ("PBSZ 0", Command::ProtectionBuffer(0)),
            ("PROT P", Command::Protection(Level::Private)),
            ("PROT C", Command::Protection(Level::Clear)),
            ("TYPE I", Command::Type(true)),
            ("MODE E", Command::Mode(Mode::Extended)),
            (
                "MODE X xdfs-1 CRC32C",
                Command::Mode(Mode::Exchange(Sum::Crc32c)),
            ),
            ("OPTS RETR Parallelism=4,4,4;", sending(Some(4), None)),
            (
                "OPTS RETR StripeLayout=Blocked;BlockSize=65536;Parallelism=2,2,2;",
                sending(Some(2), Some(Some(Layout::Blocked(65536)))),
            ),
            (
                "OPTS RETR StripeLayout=Partitioned;",
                sending(None, Some(Some(Layout::Partitioned))),
            ),
            ("OPTS RETR StripeLayout=None;", sending(None, Some(None))),
            ("OPTS PASV AllowDelayed=1;", Command::DelayPassive(true)),
            ("OPTS UTF8 ON", Command::Nothing),
            ("RETR /d/c d.txt", Command::Retrieve(path())),
            (
                "ERET P 5 10 /d/c d.txt",
                Command::RetrievePart(5, 10, path()),
            ),
            ("ESTO A 7 /d/c d.txt", Command::StoreAt(7, path())),
            ("ALLO 100 R 5", Command::Allocate(100)),
            (
                "PORT 127,0,0,1,1,2",
                Command::Connect(vec![port("127.0.0.1:258")]),
            ),
            (
                "SPOR 127,0,0,1,1,2 127,0,0,1,1,3",
                Command::Connect(vec![port("127.0.0.1:258"), port("127.0.0.1:259")]),
            ),
            ("EPRT |2|::1|9|", Command::Connect(vec![port("[::1]:9")])),
            ("LIST -la", Command::List(Form::Long, Vec::new())),
            ("LIST -a /d/c d.txt", Command::List(Form::Long, path())),
            ("STAT", Command::Status),
            ("ABUF T 100 5", Command::AutomaticBuffer),
            (
                "SCKS adler32 00A0ffFF",
                Command::Announce(Algorithm::Adler32, "00a0ffff".into()),
            ),
            ("STOU", Command::StoreUnique(Vec::new())),
            (
                "CKSM md5 0 -1 /d/c d.txt",
                Command::Checksum(Algorithm::Md5, 0, None, path()),
            ),
            (
                "SITE CHMOD 644 /d/c d.txt",
                Command::ChangeMode(0o644, path()),
            ),
            ("SITE CLIENTINFO scheme=ftp;", Command::Nothing),
            ("SITE STORBUFSIZE 65536", Command::SocketBuffer(65_536)),
            ("REST 3", Command::Restart(Restart::At(3))),
            (
                "GET path=/d/c d.txt;pasv;",
                Command::Get(Request {
                    mode: None,
                    path: path(),
                    route: Route::Passive,
                }),
            ),
            (
                "PUT path=/d/c d.txt;port=127,0,0,1,1,2;",
                Command::Put(Request {
                    mode: None,
                    path: path(),
                    route: Route::Connect(port("127.0.0.1:258")),
                }),
            ),
        ] {
            assert_eq!(parse(line.as_bytes()), Ok(command), "{line}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            " ",
            "NOSUCH",
            "RETR",
            "RETR ",
            "MODE X",
            "MODE X xdfs-2 CRC32C",
            "MODE X xdfs-1",
            "MODE X xdfs-1 SHA1",
            "MODE Xxdfs-1 ",
            "MODE",
            "TYPE L 7",
            "PORT 1,2,3",
            "ALLO",
            "ALLO -5",
            "ALLO 99999999999999999999",
            "ERET X 1 2 /a",
            "ERET P 1 /a",
            "ESTO A x /a",
            "ESTO B 1 /a",
            "CKSM NONE 0 -1 /a",
            "CKSM MD5 0 -2 /a",
            "CKSM MD5",
            "REST",
            "REST 5-",
            "OPTS",
            "OPTS RETR Parallelism=0,0,0;",
            "OPTS RETR Nosuch=1;",
            "OPTS RETR StripeLayout=Round;",
            "OPTS RETR StripeLayout=Blocked;BlockSize=-1;",
            "OPTS PASV",
            "SITE",
            "SITE EXEC ls",
            "SITE CHMOD 99 a",
            "SITE CHMOD 10000 a",
            "SITE CHMOD +x a",
            "SPOR",
            "SPOR x",
            "EPSV 3",
            "MFMT 2026 a",
            "USER",
            "RETR a\nDELE b",
            "RETR a\rb",
            "RETR a\0b",
            "GET",
            "GET /a",
            "PUT pasv;",
            "PUT path=/a\r;pasv;",
            "PUT path=/a;pasv;port=127,0,0,1,1,2;",
            "STRU R",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
        let many = "1,1,1,1,1,1 ".repeat(ADDRESSES_MAX + 1);
        assert!(parse(format!("SPOR {many}").as_bytes()).is_err());
        let most = parse(b"OPTS RETR Parallelism=4000000000,1,1;");
        assert_eq!(most, Ok(sending(Some(PARALLELISM_MAX), None)));
    }
}
