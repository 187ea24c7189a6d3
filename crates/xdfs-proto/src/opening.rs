//! The opening exchange: magic, service, versions and features, before any frame.
//!
//! ```text
//!  0        1        2        3        4        5        6        7
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! |  0xf8  |  'x'   |  'D'   |  'F'   |  'S'   |  0x0d  |  0x0a  |  role  |
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! |service |  min   |  max   |   0    |     length of the features        |  HELLO, role 0
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! | status |version |       0         |     length of the body            |  answer, role 1
//! +--------+--------+--------+--------+--------+--------+--------+--------+
//! ```
//!
//! The first byte can't begin any text, and the line end does not survive a text mode, so other
//! protocols, and transports that change bytes, are detected before anything is trusted. The role
//! prevents an echoed HELLO from being taken for a WELCOME.

use crate::fault::{Code, Fault};
use crate::wire::{DecodeError, FAULT_BYTES_MAX, Reader, Writer};

/// The protocol version of this crate.
pub const VERSION: u8 = 1;
/// The service byte of the file system service.
pub const SERVICE_FILE: u8 = 0;
/// The service byte of remote processes, which is not offered.
pub const SERVICE_PROCESS: u8 = 1;
/// The service byte of threads, which is not offered.
pub const SERVICE_THREAD: u8 = 2;
/// Size of the fixed part of HELLO and of WELCOME.
pub const OPENING_HEADER_BYTES: usize = 16;
/// Maximum size of a feature list, in bytes.
pub const FEATURES_BYTES_MAX: u32 = 4096;
/// Maximum length of a feature's name, in bytes.
pub const FEATURE_NAME_BYTES_MAX: usize = 64;

/// The first bytes in both directions, before the role.
const MAGIC: [u8; 7] = [0xf8, b'x', b'D', b'F', b'S', b'\r', b'\n'];
/// The eighth byte of a HELLO.
const ROLE_HELLO: u8 = 0;
/// The eighth byte of an answer.
const ROLE_ANSWER: u8 = 1;
/// The status of a WELCOME.
const STATUS_WELCOME: u8 = 0;
/// The status of a refusal.
const STATUS_REFUSED: u8 = 1;

/// A feature supported by one side. Identifiers below 0x8000 may be ignored if unknown; those from
/// 0x8000 on are mandatory: a side that doesn't know one refuses and names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// The number of the feature.
    pub id: u16,
    /// Its name, for messages (ASCII, at most 64 bytes).
    pub name: String,
    /// Its parameters, defined by the feature.
    pub value: Vec<u8>,
}

impl Feature {
    /// Whether a peer that doesn't know the feature must refuse.
    #[must_use]
    pub fn is_mandatory(&self) -> bool {
        self.id >= 0x8000
    }
}

/// HELLO: the first bytes of the initiator on every channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The requested service.
    pub service: u8,
    /// Lowest supported protocol version.
    pub version_min: u8,
    /// Highest supported protocol version.
    pub version_max: u8,
    /// The features of the initiator.
    pub features: Vec<Feature>,
}

/// WELCOME: the answer of the acceptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The chosen version.
    pub version: u8,
    /// The features common to both sides.
    pub features: Vec<Feature>,
}

/// The answer to HELLO: a welcome or a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The exchange continues.
    Welcome(Welcome),
    /// The connection is closed afterwards.
    Refused(Fault),
}

impl Default for Hello {
    fn default() -> Self {
        Self {
            service: SERVICE_FILE,
            version_min: VERSION,
            version_max: VERSION,
            features: Vec::new(),
        }
    }
}

impl Hello {
    /// Appends the message to `out`. Features are sorted by number; those that a list can't contain
    /// (a duplicate number, a name that is empty, too long or not printable ASCII, no room left)
    /// are omitted.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.raw(&MAGIC);
        w.raw(&[
            ROLE_HELLO,
            self.service,
            self.version_min,
            self.version_max,
            0,
        ]);
        encode_features(&mut w, &self.features);
    }

    /// Decodes a message from the front of `bytes`; `Ok(None)` while it is incomplete, otherwise
    /// the message and its size. A wrong magic is detected at the first wrong byte.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((fixed, length)) = decode_header(bytes, ROLE_HELLO)? else {
            return Ok(None);
        };
        let [service, version_min, version_max, reserved] = fixed;
        if reserved != 0 {
            return Err(DecodeError::Invalid("reserved field of HELLO"));
        }
        if version_min == 0 || version_min > version_max {
            return Err(DecodeError::Invalid("version range of HELLO"));
        }
        let Some((body, total)) = decode_body(bytes, length, FEATURES_BYTES_MAX)? else {
            return Ok(None);
        };
        let features = decode_features(body)?;
        Ok(Some((
            Self {
                service,
                version_min,
                version_max,
                features,
            },
            total,
        )))
    }

    /// This side's answer: picks the highest common version and the common features, with the
    /// parameters in `known`.
    #[must_use]
    pub fn answer(&self, known: &[Feature]) -> Answer {
        const OPERATION: &str = "open a channel";
        if self.service != SERVICE_FILE {
            let name = match self.service {
                SERVICE_PROCESS => "remote processes".to_owned(),
                SERVICE_THREAD => "remote threads".to_owned(),
                number => format!("number {number}"),
            };
            let cause = format!("service not available: {name}");
            return Answer::Refused(
                Fault::new(Code::FeatureUnsupported, OPERATION, cause)
                    .hint("only the file system service is offered"),
            );
        }
        if !(self.version_min..=self.version_max).contains(&VERSION) {
            let (min, max) = (self.version_min, self.version_max);
            let cause = format!(
                "no common protocol version: this side speaks {VERSION} to {VERSION}, the peer \
                 {min} to {max}"
            );
            return Answer::Refused(
                Fault::new(Code::VersionUnsupported, OPERATION, cause)
                    .hint("install the same release on both sides"),
            );
        }
        let knows = |f: &Feature| known.iter().find(|k| k.id == f.id);
        if let Some(feature) = self
            .features
            .iter()
            .find(|f| f.is_mandatory() && knows(f).is_none())
        {
            let (name, id) = (&feature.name, feature.id);
            let cause = format!("mandatory feature not known: {name} ({id:#06x})");
            return Answer::Refused(Fault::new(Code::FeatureUnsupported, OPERATION, cause));
        }
        let features = self.features.iter().filter_map(knows).cloned().collect();
        Answer::Welcome(Welcome {
            version: VERSION,
            features,
        })
    }

    /// Checks that a welcome conforms to this message.
    ///
    /// # Errors
    /// [`Code::ProtocolViolation`] for a version out of range, or a feature not offered.
    pub fn check(&self, welcome: &Welcome) -> Result<(), Fault> {
        let cause = if !(self.version_min..=self.version_max).contains(&welcome.version) {
            let (version, min, max) = (welcome.version, self.version_min, self.version_max);
            format!("the peer chose version {version}, which isn't within {min} to {max}")
        } else if let Some(extra) = welcome
            .features
            .iter()
            .find(|w| !self.features.iter().any(|f| f.id == w.id))
        {
            format!(
                "the peer chose the feature {}, which wasn't offered",
                extra.name
            )
        } else {
            return Ok(());
        };
        Err(Fault::new(Code::ProtocolViolation, "open a channel", cause))
    }
}

impl Answer {
    /// Appends the message to `out`. Features are treated as in [`Hello::encode`]; texts of a fault
    /// are cut at 1024 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.raw(&MAGIC);
        w.u8(ROLE_ANSWER);
        match self {
            Self::Welcome(welcome) => {
                w.raw(&[STATUS_WELCOME, welcome.version, 0, 0]);
                encode_features(&mut w, &welcome.features);
            }
            Self::Refused(fault) => {
                w.raw(&[STATUS_REFUSED, 0, 0, 0]);
                let length = w.position();
                w.u32(0);
                w.fault(fault);
                w.patch_length(length, length + 4);
            }
        }
    }

    /// Decodes a message from the front of `bytes`, like [`Hello::decode`].
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, DecodeError> {
        let Some((fixed, length)) = decode_header(bytes, ROLE_ANSWER)? else {
            return Ok(None);
        };
        let [status, version, r0, r1] = fixed;
        if [r0, r1] != [0, 0] {
            return Err(DecodeError::Invalid("reserved field of the answer"));
        }
        let limit = match (status, version) {
            (STATUS_WELCOME, 1..) => FEATURES_BYTES_MAX,
            (STATUS_REFUSED, 0) => FAULT_BYTES_MAX,
            (STATUS_WELCOME | STATUS_REFUSED, _) => {
                return Err(DecodeError::Invalid("version of the answer"));
            }
            _ => return Err(DecodeError::Invalid("status of the answer")),
        };
        let Some((body, total)) = decode_body(bytes, length, limit)? else {
            return Ok(None);
        };
        let answer = if status == STATUS_WELCOME {
            Self::Welcome(Welcome {
                version,
                features: decode_features(body)?,
            })
        } else {
            let mut r = Reader::new(body);
            let fault = r.fault()?;
            r.finish()?;
            Self::Refused(fault)
        };
        Ok(Some((answer, total)))
    }
}

/// Decodes the header: the four bytes after the magic, and the length of the body; `None` while it
/// is incomplete.
fn decode_header(bytes: &[u8], role: u8) -> Result<Option<([u8; 4], u32)>, DecodeError> {
    let expected = MAGIC.iter().chain([&role]);
    if bytes
        .iter()
        .zip(expected)
        .any(|(got, expected)| got != expected)
    {
        return Err(DecodeError::BadMagic);
    }
    let Some(&header) = bytes.first_chunk::<OPENING_HEADER_BYTES>() else {
        return Ok(None);
    };
    let [_, _, _, _, _, _, _, _, a, b, c, d, length @ ..] = header;
    Ok(Some(([a, b, c, d], u32::from_be_bytes(length))))
}

/// The body of a message and the total length; `None` while it is incomplete.
fn decode_body(
    bytes: &[u8],
    length: u32,
    limit: u32,
) -> Result<Option<(&[u8], usize)>, DecodeError> {
    if length > limit {
        let (actual, limit) = (u64::from(length), u64::from(limit));
        return Err(DecodeError::TooLarge {
            field: "length of the opening",
            actual,
            limit,
        });
    }
    // At most a few thousand.
    let total = OPENING_HEADER_BYTES + length as usize;
    Ok(bytes
        .get(OPENING_HEADER_BYTES..total)
        .map(|body| (body, total)))
}

/// Whether a name is allowed in a list.
fn is_name(name: &[u8]) -> bool {
    (1..=FEATURE_NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}

/// Encodes a feature list, with its length.
fn encode_features(w: &mut Writer<'_>, features: &[Feature]) {
    let length = w.position();
    w.u32(0);
    let body = w.position();
    let mut sorted: Vec<&Feature> = features
        .iter()
        .filter(|f| is_name(f.name.as_bytes()))
        .collect();
    sorted.sort_by_key(|f| f.id);
    sorted.dedup_by_key(|f| f.id);
    for feature in sorted {
        let bytes = 2 + 2 + feature.name.len() + 2 + feature.value.len();
        if w.position() - body + bytes <= FEATURES_BYTES_MAX as usize {
            w.u16(feature.id);
            w.bytes(feature.name.as_bytes(), FEATURE_NAME_BYTES_MAX);
            w.bytes(&feature.value, FEATURES_BYTES_MAX as usize);
        }
    }
    w.patch_length(length, body);
}

fn decode_features(body: &[u8]) -> Result<Vec<Feature>, DecodeError> {
    let mut r = Reader::new(body);
    let mut features: Vec<Feature> = Vec::new();
    while r.remaining() > 0 {
        let id = r.u16("number of a feature")?;
        if features.last().is_some_and(|last| last.id >= id) {
            return Err(DecodeError::Invalid("order of the features"));
        }
        let name = match std::str::from_utf8(r.bytes(FEATURE_NAME_BYTES_MAX, "name of a feature")?)
        {
            Ok(name) if is_name(name.as_bytes()) => name.to_owned(),
            _ => return Err(DecodeError::Invalid("name of a feature")),
        };
        let value = r
            .bytes(FEATURES_BYTES_MAX as usize, "value of a feature")?
            .to_vec();
        features.push(Feature { id, name, value });
    }
    Ok(features)
}
