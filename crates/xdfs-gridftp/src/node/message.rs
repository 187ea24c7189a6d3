//! Messages of a control link: one line each, a verb and fields `name=value`, separated by one
//! space. In values every byte that isn't a letter, a digit or one of `/._-:,[]` is `%` and two
//! hexadecimal digits. Unknown verbs and fields are refused: another version has another name in
//! TLS.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, SocketAddr};

use xdfs_proto::{ByteRange, Code, Fault, RangeSet};

use super::RANGES_MAX;
use crate::command::{ADDRESSES_MAX, PARALLELISM_MAX};
use crate::receiver::CONNECTIONS_MAX;
use crate::restart::{format_ranges, offset};
use crate::stripe::Stripe;

/// A line that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MalformedMessage {
    /// A field is missing, unknown, or has no such value.
    Field(&'static str),
    /// It is longer than any may be.
    TooLong,
    /// No message begins so.
    Unknown,
}

impl fmt::Display for MalformedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, "a message has no '{name}' that makes sense"),
            Self::TooLong => f.write_str("a line is too long"),
            Self::Unknown => f.write_str("a line is no message"),
        }
    }
}

impl std::error::Error for MalformedMessage {}

/// What a server wants of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Listen for data connections, in place of all earlier ones: [`Report::Listening`].
    Listen {
        /// The only host that may connect; `None` for any.
        from: Option<IpAddr>,
    },
    /// Send a part of a file: [`Report::Ready`], [`Report::Moved`] at least every two seconds, and
    /// [`Report::Done`].
    Send(SendOrder),
    /// Write what comes on the connections to the listener, until each receiver of MODE E would be
    /// satisfied; the same reports.
    Store(StoreOrder),
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendOrder {
    /// Where to connect, in place of all earlier connections; empty to use those of the last order.
    pub to: Vec<SocketAddr>,
    /// Connections to each address.
    pub parallelism: u32,
    /// Bytes of socket buffers; `None` for the system's choice.
    pub socket_buffer: Option<usize>,
    /// The user whose rights count; `None` for an anonymous one.
    pub user: Option<String>,
    /// The file.
    pub path: Vec<u8>,
    /// Its size in bytes, as the server sees it.
    pub size: u64,
    /// Its modification time in nanoseconds since 1970, as the server sees it.
    pub mtime_ns: Option<i64>,
    /// Where the wanted part begins, from which offsets on the wire count.
    pub offset: u64,
    /// What is wanted of the part, of which the node has one stripe.
    pub ranges: RangeSet,
    /// The node's stripe.
    pub stripe: Stripe,
    /// The number of EODs to tell each receiver in an EOF; `None` if another node tells it.
    pub eods: Option<u64>,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOrder {
    /// The user whose rights count; `None` for an anonymous one.
    pub user: Option<String>,
    /// The file that will be published.
    pub path: Vec<u8>,
    /// The number (inode) of the unfinished file beside it, in which the node writes.
    pub partial: u64,
}

/// What a node tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// All of the order is done: all bytes are on their way, or durable.
    Done {
        /// Bytes of payload of this order.
        bytes: u64,
        /// What is durable since the last report.
        durable: RangeSet,
    },
    /// The request failed; nothing of it goes on, and data connections are closed.
    Failed {
        /// The kind of failure.
        code: Code,
        /// Why.
        cause: String,
    },
    /// Both ends have proved who they are, and requests may come.
    Hello,
    /// There is a listener.
    Listening(SocketAddr),
    /// How far the order is.
    Moved {
        /// Bytes of payload so far.
        bytes: u64,
        /// What is durable since the last report.
        durable: RangeSet,
    },
    /// The file is open, and the order begins.
    Ready,
}

impl Report {
    /// The report of a failure.
    #[must_use]
    pub fn of_fault(fault: &Fault) -> Self {
        let operation = &fault.operation;
        let cause = match operation.is_empty() {
            true => fault.cause.clone(),
            false => format!("failed to {operation}: {}", fault.cause),
        };
        Self::Failed {
            code: fault.code,
            cause: cause.chars().take(500).collect(),
        }
    }
}

/// Writes a message.
struct Writer(String);

impl Writer {
    fn new(verb: &str) -> Self {
        Self(verb.to_owned())
    }

    fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let _ = write!(self.0, " {name}=");
        for byte in value.as_ref() {
            match byte {
                byte if is_plain(*byte) => self.0.push(char::from(*byte)),
                byte => {
                    let _ = write!(self.0, "%{byte:02X}");
                }
            }
        }
        self
    }

    fn maybe(self, name: &str, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.field(name, value),
            None => self,
        }
    }

    fn ranges(self, name: &str, ranges: &RangeSet) -> Self {
        match ranges.as_slice() {
            [] => self,
            ranges => self.field(name, format_ranges(ranges)),
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.0.push('\n');
        self.0.into_bytes()
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-:,[]".contains(&byte)
}

/// Reads the fields of a message, each of which has to be taken.
struct Reader(Vec<(Vec<u8>, Vec<u8>)>);

type Read<T> = Result<T, MalformedMessage>;

impl Reader {
    /// The verb and the fields.
    fn new(line: &[u8]) -> Read<(Vec<u8>, Self)> {
        let mut words = line.split(|byte| *byte == b' ');
        let verb = words.next().unwrap_or_default().to_vec();
        let mut fields = Vec::new();
        for word in words {
            let at = word.iter().position(|byte| *byte == b'=');
            let at = at.ok_or(MalformedMessage::Unknown)?;
            let value = decoded(&word[at + 1..]).ok_or(MalformedMessage::Unknown)?;
            // The longest message has 12.
            if fields.len() >= 16 {
                return Err(MalformedMessage::Unknown);
            }
            fields.push((word[..at].to_vec(), value));
        }
        Ok((verb, Self(fields)))
    }

    fn bytes(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|(own, _)| own == name.as_bytes())?;
        Some(self.0.swap_remove(at).1)
    }

    fn text(&mut self, name: &'static str) -> Read<Option<String>> {
        let bytes = self.bytes(name);
        let text = bytes.map(String::from_utf8);
        text.transpose().map_err(|_| MalformedMessage::Field(name))
    }

    /// A value that is there.
    fn value<T>(&mut self, name: &'static str, read: impl FnOnce(&str) -> Option<T>) -> Read<T> {
        let value = self.maybe(name, read)?;
        value.ok_or(MalformedMessage::Field(name))
    }

    fn maybe<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Read<Option<T>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let value = read(&text);
        value.map(Some).ok_or(MalformedMessage::Field(name))
    }

    fn ranges(&mut self, name: &'static str) -> Read<RangeSet> {
        Ok(self.maybe(name, read_ranges)?.unwrap_or_default())
    }

    fn path(&mut self) -> Read<Vec<u8>> {
        let path = self.bytes("path").filter(|path| !path.contains(&0));
        path.ok_or(MalformedMessage::Field("path"))
    }

    fn end<T>(self, message: T) -> Read<T> {
        match self.0.is_empty() {
            true => Ok(message),
            false => Err(MalformedMessage::Field("field")),
        }
    }
}

/// The bytes of a value; nothing may be written in more than one way.
fn decoded(value: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    };
    let mut bytes = Vec::new();
    let mut rest = value.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match *byte {
            b'%' => {
                let (high, low) = (digit(*rest.next()?)?, digit(*rest.next()?)?);
                Some(high << 4 | low).filter(|byte| !is_plain(*byte))?
            }
            byte if is_plain(byte) => byte,
            _ => return None,
        });
    }
    Some(bytes)
}

/// A number without signs and leading zeros.
fn number(text: &str) -> Option<u64> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = text == "0" || !text.starts_with('0');
    text.parse().ok().filter(|_| is_number && is_short)
}

fn read_ranges(text: &str) -> Option<RangeSet> {
    let mut ranges = RangeSet::new();
    for (count, part) in text.split(',').enumerate() {
        let (start, end) = part.split_once('-')?;
        let (start, end) = (offset(start)?, offset(end)?);
        if end <= start || count >= RANGES_MAX {
            return None;
        }
        ranges.insert(ByteRange { start, end });
    }
    // In order, and none beside another.
    (format_ranges(ranges.as_slice()) == text).then_some(ranges)
}

/// `INDEX/COUNT`.
fn read_stripe(text: &str) -> Option<(u64, u64)> {
    let (index, count) = text.split_once('/')?;
    let (index, count) = (number(index)?, number(count)?);
    (index < count && count <= super::NODES_MAX as u64).then_some((index, count))
}

fn read_addresses(text: &str) -> Option<Vec<SocketAddr>> {
    let addresses = text.split(',').map(|one| one.parse().ok());
    let addresses: Vec<_> = addresses.collect::<Option<_>>()?;
    (addresses.len() <= ADDRESSES_MAX).then_some(addresses)
}

fn code_of(text: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.as_str() == text)
}

impl Request {
    /// The line, with its end.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Listen { from } => {
                let from = from.map(|from| from.to_string());
                Writer::new("listen").maybe("from", from).end()
            }
            Self::Send(order) => {
                let to: Vec<_> = order.to.iter().map(ToString::to_string).collect();
                let Stripe {
                    index,
                    count,
                    block_bytes,
                } = order.stripe;
                let text = |number: u64| number.to_string();
                Writer::new("send")
                    .maybe("to", (!to.is_empty()).then(|| to.join(",")))
                    .field("parallel", order.parallelism.to_string())
                    .maybe("buffer", order.socket_buffer.map(|bytes| bytes.to_string()))
                    .maybe("user", order.user.as_ref())
                    .field("path", &order.path)
                    .field("size", text(order.size))
                    .maybe("mtime", order.mtime_ns.map(|time| time.to_string()))
                    .field("offset", text(order.offset))
                    .ranges("ranges", &order.ranges)
                    .field("stripe", format!("{index}/{count}"))
                    .field("block", text(block_bytes))
                    .maybe("eods", order.eods.map(text))
                    .end()
            }
            Self::Store(order) => Writer::new("store")
                .maybe("user", order.user.as_ref())
                .field("path", &order.path)
                .field("partial", order.partial.to_string())
                .end(),
        }
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// It is no request.
    pub fn decode(line: &[u8]) -> Result<Self, MalformedMessage> {
        let (verb, mut fields) = Reader::new(line)?;
        let request = match verb.as_slice() {
            b"listen" => Self::Listen {
                from: fields.maybe("from", |text| text.parse().ok())?,
            },
            b"send" => {
                let (index, count) = fields.value("stripe", read_stripe)?;
                let parallelism = fields.value("parallel", number)?;
                let parallelism = u32::try_from(parallelism).unwrap_or(u32::MAX);
                if !(1..=PARALLELISM_MAX).contains(&parallelism) {
                    return Err(MalformedMessage::Field("parallel"));
                }
                let small = |text: &str| usize::try_from(number(text)?).ok();
                let eods =
                    |text: &str| number(text).filter(|count| (1..=CONNECTIONS_MAX).contains(count));
                Self::Send(SendOrder {
                    to: fields.maybe("to", read_addresses)?.unwrap_or_default(),
                    parallelism,
                    socket_buffer: fields.maybe("buffer", small)?,
                    user: fields.text("user")?,
                    path: fields.path()?,
                    size: fields.value("size", offset)?,
                    mtime_ns: fields.maybe("mtime", |text| text.parse().ok())?,
                    offset: fields.value("offset", offset)?,
                    ranges: fields.ranges("ranges")?,
                    stripe: Stripe {
                        index,
                        count,
                        block_bytes: fields
                            .value("block", |text| number(text).filter(|bytes| *bytes > 0))?,
                    },
                    eods: fields.maybe("eods", eods)?,
                })
            }
            b"store" => Self::Store(StoreOrder {
                user: fields.text("user")?,
                path: fields.path()?,
                partial: fields.value("partial", number)?,
            }),
            _ => return Err(MalformedMessage::Unknown),
        };
        fields.end(request)
    }
}

impl Report {
    /// The line, with its end.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let progress = |verb, bytes: u64, durable: &RangeSet| {
            let writer = Writer::new(verb).field("bytes", bytes.to_string());
            writer.ranges("durable", durable).end()
        };
        match self {
            Self::Done { bytes, durable } => progress("done", *bytes, durable),
            Self::Failed { code, cause } => Writer::new("failed")
                .field("code", code.as_str())
                .field("cause", cause)
                .end(),
            Self::Hello => Writer::new("hello").end(),
            Self::Listening(address) => Writer::new("listening")
                .field("at", address.to_string())
                .end(),
            Self::Moved { bytes, durable } => progress("moved", *bytes, durable),
            Self::Ready => Writer::new("ready").end(),
        }
    }

    /// Reads a line without its end.
    ///
    /// # Errors
    /// It is no report.
    pub fn decode(line: &[u8]) -> Result<Self, MalformedMessage> {
        let (verb, mut fields) = Reader::new(line)?;
        let report = match verb.as_slice() {
            b"done" => Self::Done {
                bytes: fields.value("bytes", number)?,
                durable: fields.ranges("durable")?,
            },
            b"failed" => Self::Failed {
                code: fields.value("code", code_of)?,
                cause: fields.value("cause", |text| {
                    let tame = text.chars().filter(|own| !own.is_control());
                    Some(tame.take(500).collect())
                })?,
            },
            b"hello" => Self::Hello,
            b"listening" => Self::Listening(fields.value("at", |text| text.parse().ok())?),
            b"moved" => Self::Moved {
                bytes: fields.value("bytes", number)?,
                durable: fields.ranges("durable")?,
            },
            b"ready" => Self::Ready,
            _ => return Err(MalformedMessage::Unknown),
        };
        fields.end(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u64, u64)]) -> RangeSet {
        let mut set = RangeSet::new();
        for (start, end) in list {
            set.insert(ByteRange {
                start: *start,
                end: *end,
            });
        }
        set
    }

    fn line(encoded: &[u8]) -> &[u8] {
        let line = encoded.strip_suffix(b"\n").unwrap();
        assert!(!line.contains(&b'\n'));
        line
    }

    fn order() -> SendOrder {
        SendOrder {
            to: vec![
                "192.0.2.7:5000".parse().unwrap(),
                "[::1]:6".parse().unwrap(),
            ],
            parallelism: 4,
            socket_buffer: Some(65536),
            user: Some("alice b".to_owned()),
            path: b"/d/a b%\n\xff=".to_vec(),
            size: 300,
            mtime_ns: Some(-5),
            offset: 10,
            ranges: ranges(&[(0, 20), (50, 290)]),
            stripe: Stripe {
                index: 1,
                count: 3,
                block_bytes: 65536,
            },
            eods: Some(12),
        }
    }

    #[test]
    fn requests_read_back() {
        let bare = SendOrder {
            to: Vec::new(),
            socket_buffer: None,
            user: None,
            mtime_ns: None,
            ranges: RangeSet::new(),
            eods: None,
            ..order()
        };
        for request in [
            Request::Listen { from: None },
            Request::Listen {
                from: Some("2001:db8::1".parse().unwrap()),
            },
            Request::Send(order()),
            Request::Send(bare),
            Request::Store(StoreOrder {
                user: None,
                path: b"/d/x".to_vec(),
                partial: u64::MAX,
            }),
        ] {
            let encoded = request.encode();
            assert_eq!(Request::decode(line(&encoded)), Ok(request));
        }
    }

    /// The form that the documentation shows.
    #[test]
    fn messages_have_the_form_of_the_specification() {
        let store = Request::Store(StoreOrder {
            user: Some("alice".to_owned()),
            path: b"/data/run 7".to_vec(),
            partial: 123,
        });
        let wanted: &[u8] = b"store user=alice path=/data/run%207 partial=123\n";
        assert_eq!(store.encode(), wanted);
        let moved = Report::Moved {
            bytes: 70,
            durable: ranges(&[(0, 40), (60, 90)]),
        };
        assert_eq!(moved.encode(), b"moved bytes=70 durable=0-40,60-90\n");
    }

    #[test]
    fn reports_read_back() {
        let durable = ranges(&[(5, 9), (20, i64::MAX as u64)]);
        for report in [
            Report::Hello,
            Report::Ready,
            Report::Listening("192.0.2.11:5000".parse().unwrap()),
            Report::Moved { bytes: 7, durable },
            Report::Done {
                bytes: 0,
                durable: RangeSet::new(),
            },
            Report::Failed {
                code: Code::NotFound,
                cause: "it's \u{e9} there".to_owned(),
            },
        ] {
            let encoded = report.encode();
            assert_eq!(Report::decode(line(&encoded)), Ok(report));
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let text = String::from_utf8(Request::Send(order()).encode()).unwrap();
        let text = text.trim_end();
        for (from, to) in [
            ("stripe=1/3", "stripe=3/3"),
            ("stripe=1/3", "stripe=0/0"),
            ("stripe=1/3", "stripe=0/65"),
            ("parallel=4", "parallel=0"),
            ("parallel=4", "parallel=65"),
            ("block=65536", "block=0"),
            ("eods=12", "eods=0"),
            ("eods=12", "eods=257"),
            ("size=300", "size=9223372036854775808"),
            ("size=300", "size=+1"),
            ("ranges=0-20,50-290", "ranges=0-20,20-290"),
            ("ranges=0-20,50-290", "ranges=20-0"),
            ("ranges=0-20,50-290", "ranges="),
            ("to=192.0.2.7:5000", "to=localhost:5000"),
            ("path=", "path=%00"),
            ("path=", "path=%41"),
            ("path=", "pat="),
            (" path=", " more=1 path="),
            (" path=", "  path="),
        ] {
            assert!(text.contains(from), "{from}");
            let changed = text.replacen(from, to, 1);
            assert!(Request::decode(changed.as_bytes()).is_err(), "{changed}");
        }
        for line in [
            "",
            "listen now",
            "listen from=any",
            "ready x=1",
            "moved",
            "moved bytes=-1",
            "moved bytes=1 bytes=2",
            "failed code=none cause=x",
            "done bytes=1 durable=5-1",
            "done bytes=1 durable=0-9223372036854775808",
        ] {
            assert!(Request::decode(line.as_bytes()).is_err(), "{line}");
            assert!(Report::decode(line.as_bytes()).is_err(), "{line}");
        }
        let many: Vec<_> = (0..=RANGES_MAX)
            .map(|n| format!("{}-{}", 2 * n, 2 * n + 1))
            .collect();
        let many = format!("done bytes=1 durable={}", many.join(","));
        assert!(Report::decode(many.as_bytes()).is_err());
    }
}
