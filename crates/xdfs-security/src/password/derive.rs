//! Key derivation from passwords.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use xdfs_proto::fault::{Code, Fault};
use zeroize::{Zeroize, Zeroizing};

use crate::Binding;

pub(super) const SALT_BYTES: usize = 16;
pub(super) const NONCE_BYTES: usize = 32;
pub(super) const KEY_BYTES: usize = 32;
pub(super) const CHALLENGE_BYTES: usize = SALT_BYTES + 12 + NONCE_BYTES;
/// Maximum length of a password in bytes.
const PASSWORD_BYTES_MAX: usize = 1024;

const CLIENT_KEY: &[u8] = b"xdfs-password-v1 client key";
const PROOF: &[u8] = b"xdfs-password-v1 proof\0";

pub(super) type Salt = [u8; SALT_BYTES];
pub(super) type Nonce = [u8; NONCE_BYTES];

/// Cost of deriving a key from a password (RFC 9106, section 3.1).
///
/// Memory is 7 to 256 MiB, passes are 1 to 16 and lanes 1 to 8: the lower bounds keep guessing
/// expensive, the upper bounds keep a server from overloading its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl Parameters {
    /// Validates parameters.
    ///
    /// # Errors
    /// `InvalidArgument` if one is out of range.
    pub fn new(memory_kib: u32, passes: u32, lanes: u32) -> Result<Self, Fault> {
        let is_sane = (7 * 1024..=256 * 1024).contains(&memory_kib)
            && (1..=16).contains(&passes)
            && (1..=8).contains(&lanes);
        is_sane
            .then_some(Self {
                memory_kib,
                passes,
                lanes,
            })
            .ok_or_else(|| {
                Fault::new(
                    Code::InvalidArgument,
                    "choose the cost of passwords",
                    "the parameters are out of range",
                )
                .hint("take 7168 to 262144 KiB of memory, 1 to 16 passes, 1 to 8 lanes")
            })
    }

    /// Memory in KiB.
    #[must_use]
    pub fn memory_kib(self) -> u32 {
        self.memory_kib
    }

    /// Passes over the memory.
    #[must_use]
    pub fn passes(self) -> u32 {
        self.passes
    }

    /// Lanes, which could be filled in parallel.
    #[must_use]
    pub fn lanes(self) -> u32 {
        self.lanes
    }
}

impl Default for Parameters {
    /// 64 MiB, 3 passes, 4 lanes: the recommendation of RFC 9106, section 4, where memory is
    /// scarce.
    fn default() -> Self {
        Self {
            memory_kib: 64 * 1024,
            passes: 3,
            lanes: 4,
        }
    }
}

/// The server's challenge.
#[derive(Clone, Copy)]
pub(super) struct Challenge {
    pub(super) salt: Salt,
    pub(super) parameters: Parameters,
    pub(super) nonce: Nonce,
}

impl Challenge {
    pub(super) fn encode(&self) -> [u8; CHALLENGE_BYTES] {
        let mut out = [0; CHALLENGE_BYTES];
        out[..16].copy_from_slice(&self.salt);
        out[16..20].copy_from_slice(&self.parameters.memory_kib.to_be_bytes());
        out[20..24].copy_from_slice(&self.parameters.passes.to_be_bytes());
        out[24..28].copy_from_slice(&self.parameters.lanes.to_be_bytes());
        out[28..].copy_from_slice(&self.nonce);
        out
    }

    /// `None` if the length or a parameter is out of range.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (salt, rest) = bytes.split_first_chunk()?;
        let (memory_kib, rest) = rest.split_first_chunk()?;
        let (passes, rest) = rest.split_first_chunk()?;
        let (lanes, nonce) = rest.split_first_chunk()?;
        let parameters = Parameters::new(
            u32::from_be_bytes(*memory_kib),
            u32::from_be_bytes(*passes),
            u32::from_be_bytes(*lanes),
        );
        Some(Self {
            salt: *salt,
            parameters: parameters.ok()?,
            nonce: nonce.try_into().ok()?,
        })
    }
}

/// The key that a client proves to have.
pub(super) fn client_key(
    password: &str,
    salt: &Salt,
    parameters: Parameters,
    operation: &str,
) -> Result<Zeroizing<[u8; KEY_BYTES]>, Fault> {
    if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
        let cause = format!("a password has 1 to {PASSWORD_BYTES_MAX} bytes");
        return Err(Fault::new(Code::InvalidArgument, operation, cause));
    }
    let salted = stretch(password, salt, parameters)
        .ok_or_else(|| Fault::new(Code::LimitExceeded, operation, "there isn't enough memory"))?;
    Ok(Zeroizing::new(mac(&salted[..], &[CLIENT_KEY])))
}

/// `None` if there isn't enough memory.
fn stretch(
    password: &str,
    salt: &Salt,
    parameters: Parameters,
) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let Parameters {
        memory_kib,
        passes,
        lanes,
    } = parameters;
    let parameters = Params::new(memory_kib, passes, lanes, Some(KEY_BYTES)).ok()?;
    let mut blocks: Vec<Block> = Vec::new();
    blocks.try_reserve_exact(parameters.block_count()).ok()?;
    blocks.resize(parameters.block_count(), Block::new());
    let mut out = Zeroizing::new([0; KEY_BYTES]);
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, parameters);
    let done = argon.hash_password_into_with_memory(
        password.as_bytes(),
        salt,
        &mut *out,
        blocks.as_mut_slice(),
    );
    blocks.iter_mut().for_each(Zeroize::zeroize);
    done.ok().map(|()| out)
}

/// The server's stored form of a client key.
pub(super) fn stored_key(client_key: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    let mut out = [0; KEY_BYTES];
    out.copy_from_slice(digest(&SHA256, client_key).as_ref());
    out
}

/// Masks the client key in a proof, which is valid for one exchange only.
pub(super) fn client_signature(
    stored_key: &[u8; KEY_BYTES],
    binding: &Binding,
    client_nonce: &Nonce,
    challenge: &Challenge,
    user: &str,
) -> [u8; KEY_BYTES] {
    // All fields except the last have fixed sizes.
    let user_bytes = (user.len() as u64).to_be_bytes();
    mac(
        stored_key,
        &[
            PROOF,
            binding,
            client_nonce,
            &challenge.encode(),
            &user_bytes[4..],
            user.as_bytes(),
        ],
    )
}

/// HMAC-SHA256 over the concatenation of `parts`.
pub(super) fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; KEY_BYTES] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    parts.iter().for_each(|p| context.update(p));
    let mut out = [0; KEY_BYTES];
    out.copy_from_slice(context.sign().as_ref());
    out
}

/// `a` XOR `b`.
pub(super) fn xor(a: &[u8; KEY_BYTES], b: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// Unpredictable random bytes.
pub(super) fn random<const N: usize>(operation: &str) -> Result<[u8; N], Fault> {
    let mut out = [0; N];
    getrandom::fill(&mut out)
        .map_err(|_| Fault::new(Code::Internal, operation, "the system has no randomness"))?;
    Ok(out)
}
