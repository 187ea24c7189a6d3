//! The sealing of secrets: AES-256-GCM, by a key that isn't in the database.
//!
//! ```text
//!   1 . KEY . NONCE . CONTENT     hexadecimal digits; KEY says which key it is
//! ```
//!
//! The id, the owner, the name and the rest of a row are authenticated with its content, so that
//! no row of the database stands for another one.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use xdfs::security::trusted::{self, Secrecy};
use xdfs::{Code, Fault};
use zeroize::Zeroizing;

use crate::access::owner::write_secret;
use crate::access::secret::{digest, hex};

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// Digits that distinguish a key from others.
const ID_DIGITS: usize = 16;
const FILE_BYTES_MAX: u64 = 1024;
const VERSION: &str = "1";
/// The file of the key in the state folder.
const FILE: &str = "secrets.key";
/// The variable with the key itself.
const VARIABLE: &str = "XDFS_SERVICE_SECRETS_KEY";
/// The directory of credentials that systemd gives a service, and the name of this one.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
const CREDENTIAL: &str = "xdfs-secrets-key";
const READ: &str = "read the key of secrets";
const OPEN: &str = "open the secret";

/// The key that seals secrets.
pub(crate) struct SealingKey {
    key: RandomizedNonceKey,
    id: String,
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Bytes of hexadecimal digits; `None` if they aren't such.
fn bytes_of(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2);
    let bytes = pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok());
    bytes.collect::<Option<Vec<_>>>().map(Zeroizing::new)
}

impl SealingKey {
    /// The key of a service: that of the file, of the environment, or of systemd's credentials; or
    /// else the one in the state folder, which is made if there is none.
    ///
    /// # Errors
    /// It can't be read or made, is none, or other users could have written it or may read it.
    pub(crate) fn find(folder: &Path, file: Option<&Path>) -> Result<Self, Fault> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        if let Some(file) = file {
            return Self::read(file, Secrecy::Secret);
        }
        if let Some(text) = set(VARIABLE) {
            return Self::of_variable(text);
        }
        let of_systemd = set(CREDENTIALS).map(|folder| PathBuf::from(folder).join(CREDENTIAL));
        if let Some(file) = of_systemd.filter(|file| file.exists()) {
            // Its mode shows a list of accesses as rights of the group; systemd keeps it secret.
            return Self::read(&file, Secrecy::Public);
        }
        let file = folder.join(FILE);
        match Self::read(&file, Secrecy::Secret) {
            Err(fault) if fault.code == Code::NotFound => Self::make(&file),
            key => key,
        }
    }

    fn of_variable(text: OsString) -> Result<Self, Fault> {
        let text = Zeroizing::new(text.into_string().unwrap_or_default());
        Self::of_text(&text).map_err(|fault| fault.path(VARIABLE))
    }

    fn read(file: &Path, secrecy: Secrecy) -> Result<Self, Fault> {
        let text = trusted::read(READ, file, FILE_BYTES_MAX, secrecy)?;
        let text = str::from_utf8(&text).unwrap_or_default();
        Self::of_text(text).map_err(|fault| fault.path(file.as_os_str().as_encoded_bytes()))
    }

    fn make(file: &Path) -> Result<Self, Fault> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *bytes)
            .map_err(|error| Fault::new(Code::Internal, "make a key", error.to_string()))?;
        let text = Zeroizing::new(hex(&*bytes) + "\n");
        write_secret(file, text.as_bytes()).map_err(|error| {
            let name = file.as_os_str().as_encoded_bytes();
            Fault::from_io("write the key of secrets", name, &error)
        })?;
        Self::of_text(&text)
    }

    fn of_text(text: &str) -> Result<Self, Fault> {
        let digits = text.trim();
        let bytes = bytes_of(digits).filter(|bytes| bytes.len() == KEY_BYTES);
        let key = bytes.and_then(|bytes| RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok());
        let key = key.ok_or_else(|| {
            let cause = "it isn't 64 hexadecimal digits";
            Fault::new(Code::InvalidArgument, READ, cause)
                .hint("make one with: openssl rand -hex 32")
        })?;
        let mut id = digest(&format!("xdfs sealing key {}", digits.to_ascii_lowercase()));
        id.truncate(ID_DIGITS);
        Ok(Self { key, id })
    }

    /// Whether this key has sealed a text.
    pub(crate) fn has_sealed(&self, sealed: &str) -> bool {
        let mut parts = sealed.split('.');
        parts.next() == Some(VERSION) && parts.next() == Some(&self.id)
    }

    /// Seals a secret, together with the row that it belongs to.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn seal(&self, row: &str, secret: &str) -> Result<String, Fault> {
        // With room for the tag, so that no copy stays behind.
        let mut content = Zeroizing::new(Vec::with_capacity(secret.len() + TAG_BYTES));
        content.extend_from_slice(secret.as_bytes());
        let sealed = self
            .key
            .seal_in_place_append_tag(Aad::from(row), &mut *content);
        let nonce =
            sealed.map_err(|error| Fault::new(Code::Internal, "seal", error.to_string()))?;
        let (nonce, content) = (hex(nonce.as_ref()), hex(&content));
        Ok(format!("{VERSION}.{}.{nonce}.{content}", self.id))
    }

    /// Opens what was sealed with this row.
    ///
    /// # Errors
    /// It was sealed by another key, or for another row.
    pub(crate) fn open(&self, row: &str, sealed: &str) -> Result<Zeroizing<String>, Fault> {
        if !self.has_sealed(sealed) {
            let fault = Fault::new(Code::InvalidArgument, OPEN, "another key has sealed it");
            return Err(fault.hint("start the service with that key, or set the secret again"));
        }
        let mut parts = sealed.split('.').skip(2);
        let (nonce, content) = (parts.next(), parts.next());
        let opened = nonce.zip(content).and_then(|(nonce, content)| {
            let nonce = Nonce::try_assume_unique_for_key(&bytes_of(nonce)?).ok()?;
            let mut content = bytes_of(content)?;
            let opened = self.key.open_in_place(nonce, Aad::from(row), &mut content);
            let text = str::from_utf8(opened.ok()?).ok()?;
            Some(Zeroizing::new(text.to_owned()))
        });
        opened.ok_or_else(|| {
            let fault = Fault::new(Code::Internal, OPEN, "it is damaged, or of another row");
            fault.hint("set the secret again")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> SealingKey {
        SealingKey::of_text(text).unwrap_or_else(|fault| panic!("{fault}"))
    }

    #[test]
    fn a_secret_is_opened_by_its_key_for_its_row_alone() {
        let (one, other) = (key(&"a1".repeat(32)), key(&"b2".repeat(32)));
        let seal = |secret| {
            let sealed = one.seal("row", secret);
            sealed.unwrap_or_else(|fault| panic!("{fault}"))
        };
        let code = |opened: Result<_, Fault>| opened.err().map(|fault| fault.code);
        for secret in ["hunter2", "\u{e4}\n", ""] {
            let sealed = seal(secret);
            assert!(!sealed.contains("hunter2"));
            assert_ne!(sealed, seal(secret));
            let opened = one.open("row", &sealed).map(|text| text.to_string());
            assert_eq!(opened.as_deref(), Ok(secret));
            assert_eq!(code(one.open("rows", &sealed)), Some(Code::Internal));
            assert_eq!(
                code(other.open("row", &sealed)),
                Some(Code::InvalidArgument)
            );
            let mut damaged = sealed.clone();
            let last = damaged.pop();
            damaged.push(if last == Some('0') { '1' } else { '0' });
            assert_eq!(code(one.open("row", &damaged)), Some(Code::Internal));
        }
        for sealed in ["", "1", "2.x.y", "\u{e4}.\u{e4}", &format!("1.{}", one.id)] {
            assert!(one.open("row", sealed).is_err(), "{sealed}");
        }
    }

    #[test]
    fn a_key_is_made_once_and_for_its_owner_only() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let find = |file| SealingKey::find(folder.path(), file).map(|key| key.id);
        let first = find(None);
        assert!(first.is_ok());
        assert_eq!(find(None), first);
        let file = folder.path().join("own.key");
        assert!(write_secret(&file, "c3".repeat(32).as_bytes()).is_ok());
        assert_eq!(find(Some(&file)), Ok(key(&"C3".repeat(32)).id));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| std::fs::metadata(path).map(|m| m.permissions().mode());
            assert_eq!(
                mode(&folder.path().join(FILE)).ok().map(|m| m & 0o777),
                Some(0o600)
            );
            for mode in [0o640, 0o604, 0o620] {
                let permissions = std::fs::Permissions::from_mode(mode);
                assert!(std::fs::set_permissions(&file, permissions).is_ok());
                let code = find(Some(&file)).err().map(|fault| fault.code);
                assert_eq!(code, Some(Code::PermissionDenied), "{mode:o}");
            }
        }
        for text in ["", "c3", &"c3".repeat(33), &"x3".repeat(32)] {
            assert!(SealingKey::of_text(text).is_err(), "{text}");
        }
    }
}
