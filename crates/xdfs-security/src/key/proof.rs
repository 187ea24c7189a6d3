//! The proof: what is signed, sent and verified.

use aws_lc_rs::digest::{SHA512, digest};
use xdfs_proto::fault::{Code, Fault};

use super::authorized::AuthorizedKeys;
use super::message;
use super::public::PublicKey;
use super::signer::Signer;
use super::wire::{Reader, put_string};
use crate::{Binding, NOT_ACCEPTED};

/// The namespace of these signatures, with the version of the signed content.
const NAMESPACE: &[u8] = b"xdfs-key-v1";
/// Maximum size of a signature; one of RSA with 8192 bits has 1048 bytes.
const SIGNATURE_BYTES_MAX: usize = 2048;

/// Creates the body of AUTH: proves that `signer` agrees to act as `user` on the channel of
/// `binding`.
///
/// # Errors
/// Those of [`Signer::sign`].
pub fn prove(signer: &mut dyn Signer, user: &str, binding: &Binding) -> Result<Vec<u8>, Fault> {
    let data = signed_data(user, binding, signer.public_key());
    let signature = signer.sign(&data)?;
    let mut body = Vec::new();
    put_string(&mut body, signer.public_key().as_bytes());
    put_string(&mut body, &signature);
    Ok(body)
}

/// Verifies the body of AUTH, and returns the key that signed it. Whether the key may act as `user`
/// is a separate question: see [`admit`].
///
/// # Errors
/// `AuthenticationFailed`, always with the same text.
pub fn verify(body: &[u8], user: &str, binding: &Binding) -> Result<PublicKey, Fault> {
    check(body, user, binding).ok_or_else(refusal)
}

/// Verifies the body of AUTH, and that its key is in the user's list; `None` for a user without a
/// list or that doesn't exist. The signature is verified in any case, so that neither the answer
/// nor its timing reveals whether the user exists. `now_unix` is in seconds since 1970.
///
/// # Errors
/// `AuthenticationFailed`, always with the same text.
pub fn admit(
    body: &[u8],
    user: &str,
    binding: &Binding,
    keys: Option<&AuthorizedKeys>,
    now_unix: u64,
) -> Result<PublicKey, Fault> {
    let key = verify(body, user, binding)?;
    if keys.is_some_and(|k| k.contains(&key, now_unix)) {
        Ok(key)
    } else {
        Err(refusal())
    }
}

/// The key that the body of AUTH claims to be signed by, verified or not; `None` if the body is
/// malformed. For logs.
#[must_use]
pub fn claimed(body: &[u8]) -> Option<PublicKey> {
    PublicKey::decode(Reader(body).string()?)
}

fn check(body: &[u8], user: &str, binding: &Binding) -> Option<PublicKey> {
    let mut at = Reader(body);
    let (key, signature) = (at.string()?, at.string()?);
    at.end()?;
    if signature.len() > SIGNATURE_BYTES_MAX {
        return None;
    }
    let key = PublicKey::decode(key)?;
    let data = signed_data(user, binding, &key);
    key.has_signed(&data, signature).then_some(key)
}

fn signed_data(user: &str, binding: &Binding, key: &PublicKey) -> Vec<u8> {
    let mut message = Vec::new();
    put_string(&mut message, binding);
    put_string(&mut message, user.as_bytes());
    put_string(&mut message, key.as_bytes());
    message::signed_data(NAMESPACE, digest(&SHA512, &message).as_ref())
}

fn refusal() -> Fault {
    Fault::new(
        Code::AuthenticationFailed,
        "authenticate the user",
        NOT_ACCEPTED,
    )
    .hint("check the name of the user, and that the server lists this key for it")
}
