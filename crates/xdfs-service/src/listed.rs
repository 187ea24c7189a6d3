//! The files of a job: as they are stored, answered, and written in a manifest.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xdfs::{Code, DigestValue, Fault};

use crate::time::Time;

/// Bytes in lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A transfer in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedTransfer {
    pub(crate) position: u32,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) target: String,
}

/// A file that a job has copied, or found the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ListedFile {
    /// The place of its transfer in the job, from 0.
    pub position: u32,
    /// Its path.
    #[serde(flatten)]
    #[schema(value_type = PathText)]
    pub path: FilePath,
    /// Bytes of its content.
    pub bytes: u64,
    /// The BLAKE3 of its content, in hex.
    pub blake3: String,
    /// The time at which it had arrived, or was read at the target.
    pub at: Time,
}

/// A file of a job, and how it was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobFile {
    /// The place of its transfer in the job, from 0.
    pub position: u32,
    /// Its path.
    #[serde(flatten)]
    #[schema(value_type = PathText)]
    pub path: FilePath,
    /// Bytes of its content.
    pub bytes: u64,
    /// The digest of its content: `crc64nvme:` or `blake3:`, and its value in hex. None if its copy
    /// had none. Of a job with a manifest it is BLAKE3.
    pub digest: Option<String>,
    /// The time at which it had arrived, or was read at the target.
    pub at: Time,
    /// Attempts of its transfer until it had arrived.
    pub attempts: u32,
    /// Bytes that arrived in a second. None of a small file of a tree, which is copied together
    /// with others, and of one that was there before.
    pub rate_bytes_per_s: Option<u64>,
    /// The limit of this rate.
    pub limited_by: Option<String>,
}

/// The beginning of a digest that is BLAKE3.
pub(crate) const BLAKE3: &str = "blake3:";

/// A digest as text.
pub(crate) fn digest_text(digest: &DigestValue) -> Option<String> {
    let value = digest.checksum()?.hex();
    Some(format!("{}:{value}", digest.kind().as_str()))
}

impl JobFile {
    /// Its BLAKE3 in hex, if that is its digest.
    pub(crate) fn blake3(&self) -> Option<&str> {
        self.digest.as_deref()?.strip_prefix(BLAKE3)
    }

    /// It as a manifest has it.
    pub(crate) fn listed(self) -> ListedFile {
        ListedFile {
            blake3: self.blake3().unwrap_or_default().to_owned(),
            position: self.position,
            path: self.path,
            bytes: self.bytes,
            at: self.at,
        }
    }
}

/// The path of a file, relative to the target of its transfer; the name of a single file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "PathText", try_from = "PathText")]
pub struct FilePath(Vec<u8>);

/// A path as text, and as bytes in hex if it isn't UTF-8.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
struct PathText {
    path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
}

/// The bytes of a text in hex.
pub(crate) fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let pair = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(pair).collect()
}

impl From<FilePath> for PathText {
    fn from(path: FilePath) -> Self {
        let text = String::from_utf8_lossy(&path.0).into_owned();
        let is_text = std::str::from_utf8(&path.0).is_ok();
        Self {
            path: text,
            path_hex: (!is_text).then(|| hex(&path.0)),
        }
    }
}

impl TryFrom<PathText> for FilePath {
    type Error = &'static str;

    fn try_from(text: PathText) -> Result<Self, &'static str> {
        let bytes = match &text.path_hex {
            None => Some(text.path.into_bytes()),
            Some(hex) => bytes_of(hex),
        };
        bytes.map(Self).ok_or("path_hex isn't hex")
    }
}

impl FilePath {
    /// A relative path.
    pub(crate) fn new(path: impl Into<Vec<u8>>) -> Self {
        Self(path.into())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it leads to what is beneath a directory, and nowhere else.
    #[must_use]
    pub fn is_beneath(&self) -> bool {
        let mut parts = self.0.split(|&byte| byte == b'/');
        parts.all(|part| !matches!(part, b"" | b"." | b"..") && !part.contains(&0))
    }

    /// It as text: a slash and hex if it isn't UTF-8, since no relative path begins with one.
    pub(crate) fn column(&self) -> String {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text.to_owned(),
            Err(_) => format!("/{}", hex(&self.0)),
        }
    }

    pub(crate) fn from_column(text: &str) -> Option<Self> {
        match text.strip_prefix('/') {
            None => Some(Self::new(text)),
            Some(hex) => bytes_of(hex).map(Self),
        }
    }
}

/// A place in the list of the files of a job. Its text is opaque to clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub(crate) position: u32,
    /// `None` before all paths.
    pub(crate) path: Option<FilePath>,
}

impl Cursor {
    /// The place after a file of a list.
    pub(crate) fn after(file: &JobFile) -> Self {
        Self {
            position: file.position,
            path: Some(file.path.clone()),
        }
    }

    /// The place of a file within a batch.
    pub(crate) fn in_batch(number: u32, index: u32) -> Self {
        Self {
            position: number,
            path: Some(FilePath(index.to_be_bytes().to_vec())),
        }
    }

    /// The number of its batch, and the place in that.
    pub(crate) fn in_batches(&self) -> (u64, u32) {
        let index = self.path.as_ref().map_or(&[][..], FilePath::as_bytes);
        let index = index.try_into().map_or(0, u32::from_be_bytes);
        (u64::from(self.position), index)
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_ref().map_or(&[][..], FilePath::as_bytes);
        write!(f, "{}-{}", self.position, hex(path))
    }
}

impl FromStr for Cursor {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let read = || {
            let (position, hex) = text.split_once('-')?;
            Some(Self {
                position: position.parse().ok()?,
                path: Some(FilePath(bytes_of(hex)?)),
            })
        };
        read().ok_or_else(|| {
            let cause = "it isn't the cursor of a page of files";
            Fault::new(Code::InvalidArgument, "understand", cause).path(text)
        })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}
