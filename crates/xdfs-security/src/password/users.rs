//! Users with passwords, and the format of their file.
//!
//! ```text
//! # a comment
//! !secret:<32 bytes>
//! name:argon2id$m=65536,t=3,p=4$<salt, 16 bytes>$<StoredKey, 32 bytes>
//! ```
//!
//! Bytes are in base64 without padding. This module defines the format only, without I/O.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use base64ct::{Base64Unpadded, Encoding};
use subtle::Choice;
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::derive::{KEY_BYTES, Parameters, SALT_BYTES, Salt, client_key, mac, random, stored_key};

const SECRET_BYTES: usize = 32;
const NAME_BYTES_MAX: usize = 64;
const FAKE_SALT: &[u8] = b"xdfs-password-v1 salt\0";
const FAKE_KEY: &[u8] = b"xdfs-password-v1 key\0";
const VERSION: &[u8] = b"xdfs-password-v1 version\0";
const HEAD: &str = "# Users of xdfs and what their passwords are checked by.\n\
                    # `xdfs user` writes this file; other comments aren't kept.\n";

/// Users with passwords, as of the last read of their file.
pub struct Users {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    entries: BTreeMap<String, Entry>,
    /// For new passwords, and for challenges of nonexistent users.
    parameters: Parameters,
}

/// The stored form of a password.
#[derive(Clone)]
pub(super) struct Entry {
    salt: Salt,
    parameters: Parameters,
    stored_key: [u8; KEY_BYTES],
}

/// The data for an exchange with a name, whether the user exists or not.
pub(super) struct Record {
    pub(super) salt: Salt,
    pub(super) parameters: Parameters,
    pub(super) stored_key: Zeroizing<[u8; KEY_BYTES]>,
    pub(super) is_known: Choice,
}

impl Entry {
    /// The stored form of a new password.
    pub(super) fn new(
        password: &str,
        parameters: Parameters,
        operation: &str,
    ) -> Result<Self, Fault> {
        let salt = random::<SALT_BYTES>(operation)?;
        let key = client_key(password, &salt, parameters, operation)?;
        Ok(Self {
            salt,
            parameters,
            stored_key: stored_key(&key),
        })
    }

    fn write_line(&self, name: &str, out: &mut String) {
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "{name}:argon2id$m={},t={},p={}${}${}",
            self.parameters.memory_kib(),
            self.parameters.passes(),
            self.parameters.lanes(),
            Base64Unpadded::encode_string(&self.salt),
            Base64Unpadded::encode_string(&self.stored_key),
        );
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('$');
        if fields.next()? != "argon2id" {
            return None;
        }
        let mut costs = fields.next()?.split(',');
        let mut cost = |name: &str| parse_number(costs.next()?.strip_prefix(name)?);
        let (memory_kib, passes, lanes) = (cost("m=")?, cost("t=")?, cost("p=")?);
        let entry = Self {
            salt: decode(fields.next()?)?,
            parameters: Parameters::new(memory_kib, passes, lanes).ok()?,
            stored_key: decode(fields.next()?)?,
        };
        (costs.next().is_none() && fields.next().is_none()).then_some(entry)
    }
}

impl Users {
    /// No users, with a new secret.
    pub(super) fn empty(parameters: Parameters, operation: &str) -> Result<Self, Fault> {
        Ok(Self {
            secret: Zeroizing::new(random(operation)?),
            entries: BTreeMap::new(),
            parameters,
        })
    }

    /// Parses the text of a file; `parameters` are for new passwords, and for challenges of
    /// nonexistent users. `operation` is for faults.
    ///
    /// # Errors
    /// `InvalidArgument` with the line number if it is malformed or has a duplicate user.
    pub fn parse(text: &str, parameters: Parameters, operation: &str) -> Result<Self, Fault> {
        let mut secret = None;
        let mut entries = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let fault = |cause: &str| {
                let cause = format!("line {}: {cause}", index + 1);
                Fault::new(Code::InvalidArgument, operation, cause)
                    .hint("mend the line, or remove it and set the password again")
            };
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            if let Some(text) = line.strip_prefix("!secret:") {
                let bytes = decode(text).ok_or_else(|| fault("the secret can't be read"))?;
                if secret.replace(Zeroizing::new(bytes)).is_some() {
                    return Err(fault("there is a second secret"));
                }
                continue;
            }
            let (name, rest) = line
                .split_once(':')
                .filter(|(name, _)| is_name(name))
                .ok_or_else(|| fault("there is no name of a user before a colon"))?;
            let entry =
                Entry::parse(rest).ok_or_else(|| fault("the stored password is malformed"))?;
            if entries.insert(name.to_owned(), entry).is_some() {
                return Err(fault("the user is there twice"));
            }
        }
        let secret = secret.ok_or_else(|| {
            Fault::new(
                Code::InvalidArgument,
                operation,
                "it has no line `!secret:`",
            )
            .hint("restore the file from a backup, or add the users to a new one")
        })?;
        Ok(Self {
            secret,
            entries,
            parameters,
        })
    }

    /// The text of the file, a secret of the server.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        // About 130 bytes per user, with a reserve: growing would leave copies behind.
        let mut out = Zeroizing::new(String::with_capacity(512 + self.entries.len() * 256));
        out.push_str(HEAD);
        let secret = Zeroizing::new(Base64Unpadded::encode_string(&*self.secret));
        let _ = writeln!(out, "!secret:{}", *secret);
        for (name, entry) in &self.entries {
            entry.write_line(name, &mut out);
        }
        out
    }

    /// The names of the users, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Whether `name` has a password.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// A value that stays the same until the password of `name` is set again; `None` if it has
    /// none. The password can't be derived from it.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<[u8; KEY_BYTES]> {
        let entry = self.entries.get(name)?;
        let parts = [VERSION, name.as_bytes(), &entry.salt, &entry.stored_key];
        Some(mac(&self.secret[..], &parts))
    }

    /// Stores an entry, and returns whether it replaced one.
    pub(super) fn put(&mut self, name: &str, entry: Entry) -> bool {
        self.entries.insert(name.to_owned(), entry).is_some()
    }

    /// Removes a user, and returns whether it existed.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.entries.remove(name).is_some()
    }

    /// The data for an exchange. The fake record is computed for all names, so that the timing
    /// doesn't reveal which exist.
    pub(super) fn record(&self, name: &str) -> Record {
        let fake_salt = mac(&self.secret[..], &[FAKE_SALT, name.as_bytes()]);
        let fake_key = mac(&self.secret[..], &[FAKE_KEY, name.as_bytes()]);
        let mut record = Record {
            salt: std::array::from_fn(|i| fake_salt[i]),
            parameters: self.parameters,
            stored_key: Zeroizing::new(fake_key),
            is_known: Choice::from(0),
        };
        if let Some(entry) = self.entries.get(name) {
            record.salt = entry.salt;
            record.parameters = entry.parameters;
            *record.stored_key = entry.stored_key;
            record.is_known = Choice::from(1);
        }
        record
    }
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users")
            .field("names", &self.entries.keys())
            .finish_non_exhaustive()
    }
}

/// Whether `name` is a valid user name: 1 to 64 characters of `a`-`z`, `0`-`9` and `._-@`, not
/// starting with `-` or `.`.
pub(super) fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with(['-', '.'])
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'@'))
}

/// Parses digits only, without a sign.
fn parse_number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then_some(())?;
    text.parse().ok()
}

fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let length = Base64Unpadded::decode(text, &mut out).ok()?.len();
    (length == N).then_some(out)
}
