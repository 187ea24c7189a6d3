//! The file format of OpenSSH private keys, for reading.
//!
//! ```text
//! base64 between "-----BEGIN OPENSSH PRIVATE KEY-----" and its end:
//!   "openssh-key-v1" 0
//!   string  cipher
//!   string  key derivation      "none" or "bcrypt"
//!   string  its options         nothing, or: string salt, u32 rounds
//!   u32     number of keys      1
//!   string  public key
//!   string  secret part         encrypted unless the cipher is "none"
//!   tag, for some ciphers
//!
//! secret part: u32 check, u32 check again, string type, fields of the type, string comment,
//! bytes 1 2 3 ... up to a multiple of the cipher's block
//! ```

use base64ct::{Base64, Encoding};
use ssh_key::{Cipher, Kdf};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::public::Algorithm;
use super::wire::{Reader, put_string};

pub(super) const LOAD: &str = "load the key";
const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// Maximum number of rounds of the key derivation; OpenSSH uses 24 by default. A file that takes
/// hours was not made by a user.
const ROUNDS_MAX: u32 = 10_000;
/// Maximum size of its salt; OpenSSH uses 16 bytes.
const SALT_BYTES_MAX: usize = 1024;

/// The decrypted content of a file.
pub(super) struct Container {
    /// The public key in wire format; the same as in the secret part.
    pub(super) public: Vec<u8>,
    /// The secret scalar or seed: 32 bytes for Ed25519 and P-256, 48 bytes for P-384.
    pub(super) secret: Zeroizing<Vec<u8>>,
    /// The public part in the type's own form: 32 bytes, or a point.
    pub(super) point: Vec<u8>,
    /// The type.
    pub(super) algorithm: Algorithm,
}

/// Decrypts a file, calling `passphrase` only if necessary.
pub(super) fn open(
    text: &[u8],
    passphrase: impl FnOnce() -> Option<Zeroizing<String>>,
) -> Result<Container, Fault> {
    let bytes = unarmor(text).ok_or_else(damaged)?;
    let outer = EncryptedFile::parse(&bytes).ok_or_else(damaged)?;
    // Before anybody types a passphrase in vain.
    let algorithm = algorithm(outer.public)?;
    if outer.cipher.is_none() {
        return inner(outer.secret, outer.public, algorithm).ok_or_else(damaged);
    }
    let Some(passphrase) = passphrase() else {
        return Err(Fault::new(
            Code::AuthenticationFailed,
            LOAD,
            "the key is encrypted and there is no passphrase",
        )
        .hint("add the key to an agent (`ssh-add`), or run it where you can type the passphrase"));
    };
    outer
        .decrypt(&passphrase)
        .and_then(|secret| inner(&secret, outer.public, algorithm))
        .ok_or_else(|| {
            Fault::new(
                Code::AuthenticationFailed,
                LOAD,
                "the passphrase is wrong, or the file is damaged",
            )
            .hint("type the passphrase again")
        })
}

/// A file whose secret part is still encrypted.
struct EncryptedFile<'a> {
    cipher: Cipher,
    kdf: Kdf,
    public: &'a [u8],
    secret: &'a [u8],
    tag: Option<[u8; 16]>,
}

impl<'a> EncryptedFile<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut at = Reader(bytes.strip_prefix(MAGIC)?);
        let cipher = Cipher::new(str::from_utf8(at.string()?).ok()?).ok()?;
        let name = at.string()?;
        let mut options = Reader(at.string()?);
        let kdf = match name {
            b"none" => Kdf::None,
            b"bcrypt" => {
                let salt = options.string().filter(|s| s.len() <= SALT_BYTES_MAX)?;
                let rounds = options.number().filter(|r| *r <= ROUNDS_MAX)?;
                let salt = salt.to_vec();
                Kdf::Bcrypt { salt, rounds }
            }
            _ => return None,
        };
        options.end()?;
        if cipher.is_none() != kdf.is_none() || at.number()? != 1 {
            return None;
        }
        let public = at.string()?;
        let secret = at.string()?;
        let tag = if cipher.has_tag() {
            let (tag, rest) = at.0.split_first_chunk()?;
            at.0 = rest;
            Some(*tag)
        } else {
            None
        };
        at.end()?;
        let is_whole = secret.len().is_multiple_of(cipher.block_size());
        is_whole.then_some(Self {
            cipher,
            kdf,
            public,
            secret,
            tag,
        })
    }

    fn decrypt(&self, passphrase: &str) -> Option<Zeroizing<Vec<u8>>> {
        let (key, iv) = self
            .kdf
            .derive_key_and_iv(self.cipher, passphrase.as_bytes())
            .ok()?;
        let mut secret = Zeroizing::new(self.secret.to_vec());
        self.cipher.decrypt(&key, &iv, &mut secret, self.tag).ok()?;
        Some(secret)
    }
}

/// Parses the secret part, and checks that it belongs to `public`.
fn inner(secret: &[u8], public: &[u8], algorithm: Algorithm) -> Option<Container> {
    let mut at = Reader(secret);
    if at.number()? != at.number()? {
        return None;
    }
    let name = at.string()?;
    let mut again = Vec::new();
    put_string(&mut again, name);
    let (secret, point) = if algorithm == Algorithm::Ed25519 {
        let point = at.string()?;
        // The seed, and the public key again.
        let (seed, rest) = at.string()?.split_at_checked(32)?;
        (rest == point).then_some(())?;
        (Zeroizing::new(seed.to_vec()), point)
    } else {
        let curve = at.string()?;
        put_string(&mut again, curve);
        let point = at.string()?;
        (scalar(at.positive()?, algorithm)?, point)
    };
    put_string(&mut again, point);
    at.string()?;
    let is_padding = at.0.len() < 256 && at.0.iter().zip(1..).all(|(b, n)| *b == n);
    (is_padding && again == public).then(|| Container {
        public: public.to_vec(),
        secret,
        point: point.to_vec(),
        algorithm,
    })
}

/// An ECDSA scalar, padded to the size of its curve.
fn scalar(digits: &[u8], algorithm: Algorithm) -> Option<Zeroizing<Vec<u8>>> {
    let length = match algorithm {
        Algorithm::EcdsaP384 => 48,
        _ => 32,
    };
    let mut out = Zeroizing::new(vec![0; length]);
    let zeros = length.checked_sub(digits.len())?;
    out.get_mut(zeros..)?.copy_from_slice(digits);
    Some(out)
}

fn algorithm(public: &[u8]) -> Result<Algorithm, Fault> {
    let fault = Fault::new(
        Code::Unsupported,
        LOAD,
        "keys of this type can't be used from a file",
    );
    match Reader(public).string() {
        Some(b"ssh-ed25519") => Ok(Algorithm::Ed25519),
        Some(b"ecdsa-sha2-nistp256") => Ok(Algorithm::EcdsaP256),
        Some(b"ecdsa-sha2-nistp384") => Ok(Algorithm::EcdsaP384),
        Some(b"ssh-rsa") => Err(fault.hint("add the key to an agent: `ssh-add`")),
        Some(_) => Err(fault.hint("use an Ed25519 key: `xdfs keygen` makes one")),
        None => Err(damaged()),
    }
}

fn unarmor(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = str::from_utf8(text).ok()?;
    let body = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let mut packed = Zeroizing::new(Vec::with_capacity(body.len()));
    packed.extend(body.bytes().filter(|b| !b.is_ascii_whitespace()));
    let mut out = Zeroizing::new(vec![0; packed.len()]);
    let length = Base64::decode(&*packed, &mut out).ok()?.len();
    out.truncate(length);
    Some(out)
}

pub(super) fn damaged() -> Fault {
    Fault::new(
        Code::InvalidArgument,
        LOAD,
        "not a private key in the format of OpenSSH, or damaged",
    )
    .hint("make one by `xdfs keygen`, or convert an older format by `ssh-keygen -p -f FILE`")
}
