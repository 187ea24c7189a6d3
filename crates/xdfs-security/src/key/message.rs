//! Signatures of messages and files, in the format of `ssh-keygen -Y sign` (SSHSIG), which
//! `ssh-keygen -Y verify` verifies.

use xdfs_proto::fault::Fault;

use super::public::PublicKey;
use super::signer::Signer;
use super::wire::{Reader, put_string};

const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;
const HASH: &[u8] = b"sha512";
/// Maximum size of a signature with its key and names.
const BYTES_MAX: usize = 8192;

/// Signs a message with this SHA-512, for a purpose: signatures of one namespace are none in
/// another.
///
/// # Errors
/// Those of [`Signer::sign`].
pub fn sign_message(
    signer: &mut dyn Signer,
    namespace: &str,
    sha512: &[u8; 64],
) -> Result<Vec<u8>, Fault> {
    let signature = signer.sign(&signed_data(namespace.as_bytes(), sha512))?;
    let mut out = MAGIC.to_vec();
    out.extend(VERSION.to_be_bytes());
    put_string(&mut out, signer.public_key().as_bytes());
    put_string(&mut out, namespace.as_bytes());
    put_string(&mut out, b"");
    put_string(&mut out, HASH);
    put_string(&mut out, &signature);
    Ok(out)
}

/// The key that has signed the message with this SHA-512 for this purpose; `None` if the signature
/// is of none, or of another message or purpose. Whether the key is believed is another question.
#[must_use]
pub fn signer_of_message(
    signature: &[u8],
    namespace: &str,
    sha512: &[u8; 64],
) -> Option<PublicKey> {
    if signature.len() > BYTES_MAX {
        return None;
    }
    let mut at = Reader(signature.strip_prefix(MAGIC)?);
    let is_known = at.number()? == VERSION;
    let key = PublicKey::decode(at.string()?)?;
    let is_for_it = at.string()? == namespace.as_bytes() && at.string()?.is_empty();
    let has_hash = at.string()? == HASH;
    let raw = at.string()?;
    at.end()?;
    let is_form = is_known && is_for_it && has_hash;
    let data = signed_data(namespace.as_bytes(), sha512);
    (is_form && key.has_signed(&data, raw)).then_some(key)
}

/// What is signed of a message.
pub(super) fn signed_data(namespace: &[u8], sha512: &[u8]) -> Vec<u8> {
    let mut data = MAGIC.to_vec();
    put_string(&mut data, namespace);
    put_string(&mut data, b"");
    put_string(&mut data, HASH);
    put_string(&mut data, sha512);
    data
}
