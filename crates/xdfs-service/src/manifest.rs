//! Manifests: what a job has copied, signed by the service.
//!
//! A manifest is a text of JSON lines: what it is of, its transfers, its files, their numbers, and
//! in the last line the signature of all lines before (of `ssh-keygen -Y`, in the namespace
//! `xdfs-manifest`). It is written and read in parts, and is as long as it needs to be.

mod read;

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use xdfs::Fault;
use xdfs::security::{PublicKey, SigningKey, make_key, sign_message, trusted};

pub use self::read::Manifest;
use crate::id::JobId;
use crate::listed::{ListedFile, ListedTransfer};
use crate::time::Time;

/// Signatures of manifests are for nothing else.
const NAMESPACE: &str = "xdfs-manifest";
/// Version of the text form.
pub(crate) const VERSION: u32 = 1;
/// The file of the private key; the public one is beside it, with the suffix `.pub`.
const KEY_FILE: &str = "manifest-key";
const KEY_BYTES_MAX: u64 = 16 << 10;

/// A line of a manifest.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Line {
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
    pub(crate) fn sign(&self, sha512: &[u8; 64]) -> Result<(String, Vec<u8>), Fault> {
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
