//! Tickets for one file or tree, and the server with one key.

use xdfs_proto::Fault;
use xdfs_proto::third_party::CopyId;

use super::{ID_BYTES, SECRET_BYTES};
use crate::Binding;
use crate::identity::{Fingerprint, ServerIdentity, is_signed};

const CONTEXT: &[u8] = b"xdfs-capability-v1\0";
/// Size of the proof of any ticket.
const PROOF_BYTES: usize = ID_BYTES + SECRET_BYTES;

/// The limits of a capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The key of its holder.
    pub holder: Fingerprint,
    /// The copy that it is for.
    pub copy: CopyId,
    /// The file or tree, from the root of the exports, without a leading slash.
    pub path: Vec<u8>,
    /// It is written; otherwise it is read.
    pub writes: bool,
    /// The part of the store that it opens.
    pub opens: Opens,
}

/// The part of a store that a capability opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opens {
    /// The file at its path.
    File {
        /// The largest size of the file in bytes.
        bytes_max: u64,
    },
    /// Everything beneath its path.
    Tree,
}

/// Creates the body of AUTH for a capability with this `text`, held by `identity`.
///
/// # Errors
/// Those of [`prove`](super::prove); `Internal` if the key can't sign.
pub fn prove_as(
    identity: &ServerIdentity,
    text: &str,
    binding: &Binding,
) -> Result<Vec<u8>, Fault> {
    let mut body = super::prove(text, binding)?;
    let signed = message(&body[..ID_BYTES], binding);
    let (scheme, key, signature) = identity.sign(&signed)?;
    body.extend(scheme.to_be_bytes());
    // No key in a certificate has 64 KiB.
    body.extend(u16::try_from(key.len()).unwrap_or(u16::MAX).to_be_bytes());
    body.extend(key);
    body.extend(signature);
    Ok(body)
}

/// Whether what follows the proof of a ticket is a signature by the key of `holder`.
pub(super) fn is_held_by(body: &[u8], holder: Fingerprint, binding: &Binding) -> bool {
    let parts = || {
        let id = body.get(..ID_BYTES)?;
        let (scheme, rest) = body.get(PROOF_BYTES..)?.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, signature) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        Some((id, u16::from_be_bytes(*scheme), key, signature))
    };
    let Some((id, scheme, key, signature)) = parts() else {
        return false;
    };
    Fingerprint::of_key(key) == holder && is_signed(&message(id, binding), scheme, key, signature)
}

fn message(id: &[u8], binding: &Binding) -> Vec<u8> {
    [CONTEXT, binding, id].concat()
}
