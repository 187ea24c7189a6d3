//! Manifests: what a job has copied, signed by the service.
//!
//! A manifest is a text of JSON lines: what it is of, its transfers, its files, their numbers, and
//! in the last line the signature of all lines before (of `ssh-keygen -Y`, in the namespace
//! `xdfs-manifest`). It is written and read in parts, and is as long as it needs to be.

mod read;
mod write;

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xdfs::security::{PublicKey, SigningKey, make_key, sign_message, trusted};
use xdfs::{Code, Fault};

pub use self::read::Manifest;
pub(crate) use self::write::body;
use crate::access::hex;
use crate::id::JobId;
use crate::time::Time;

/// Signatures of manifests are for nothing else.
const NAMESPACE: &str = "xdfs-manifest";
/// Version of the text form.
const VERSION: u32 = 1;
/// The file of the private key; the public one is beside it, with the suffix `.pub`.
const KEY_FILE: &str = "manifest-key";
const KEY_BYTES_MAX: u64 = 16 << 10;

/// A line of a manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Manifest {
        version: u32,
        job: JobId,
        owner: String,
        label: String,
        ended_at: Time,
    },
    Transfer(ListedTransfer),
    File(ListedFile),
    End {
        files: u64,
        bytes: u64,
    },
    Signature {
        key: String,
        signature: String,
    },
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// The place of its transfer in the job, from 0.
    pub position: u32,
    /// Its path.
    #[serde(flatten)]
    pub path: FilePath,
    /// Bytes of its content.
    pub bytes: u64,
    /// The BLAKE3 of its content, in hex.
    pub blake3: String,
    /// When it had arrived, or was read at the target.
    pub at: Time,
}

/// The path of a file, relative to the target of its transfer; the name of a single file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "PathText", try_from = "PathText")]
pub struct FilePath(Vec<u8>);

/// A path as text, and as bytes in hex if it isn't UTF-8.
#[derive(Clone, Serialize, Deserialize)]
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
    /// The place after a file.
    pub(crate) fn after(file: &ListedFile) -> Self {
        Self {
            position: file.position,
            path: Some(file.path.clone()),
        }
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

/// The key by which a service signs manifests.
#[derive(Debug)]
pub(crate) struct ManifestKey(Mutex<SigningKey>);

impl ManifestKey {
    /// The key in the folder of a service, which is made if there is none.
    ///
    /// # Errors
    /// It can't be read or made, or others can read it.
    pub(crate) fn new(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join(KEY_FILE);
        if fs::symlink_metadata(&path).is_err() {
            make_key(&path, "manifests of an xdfs service")?;
        }
        let key = SigningKey::load(&path, || None)?;
        Ok(Self(Mutex::new(key)))
    }

    /// Signs a text with this SHA-512. Returns the line of the public key, and the signature.
    fn sign(&self, sha512: &[u8; 64]) -> Result<(String, Vec<u8>), Fault> {
        use xdfs::security::Signer as _;
        let mut key = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let signature = sign_message(&mut *key, NAMESPACE, sha512)?;
        Ok((
            key.public_key().to_line("").trim_end().to_owned(),
            signature,
        ))
    }
}

/// Reads the public key of a service from a file, such as `manifest-key.pub` in its folder.
///
/// # Errors
/// The file can't be read, others may change it, or it has no such key.
pub fn read_manifest_key(path: &Path) -> Result<PublicKey, Fault> {
    const OPERATION: &str = "read the key of the manifest";
    let bytes = trusted::read(OPERATION, path, KEY_BYTES_MAX, trusted::Secrecy::Public)?;
    let text = String::from_utf8_lossy(&bytes);
    PublicKey::from_line(text.trim())
        .map_err(|fault| fault.path(path.as_os_str().as_encoded_bytes()))
}

/// The file of the public key of the service with this folder.
#[must_use]
pub fn manifest_key_file(folder: &Path) -> std::path::PathBuf {
    folder.join(format!("{KEY_FILE}.pub"))
}

#[cfg(test)]
mod tests;
