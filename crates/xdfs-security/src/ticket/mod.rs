//! The method `ticket`: proof by a secret that can be used once, both ends.
//!
//! A server issues a ticket for somebody without an account, or for another machine of a user; its
//! text is part of a link. The client proves that it has the secret without sending it.
//!
//! ```text
//! text: base64url of            body of AUTH, 40 bytes
//!   0  id, 8 bytes                0  id, 8 bytes
//!   8  secret, 32 bytes           8  HMAC-SHA256(secret, "xdfs-ticket-v1" 0 binding id)
//! ```
//!
//! The proof doesn't contain a user: the ticket determines it, and the client's claim is ignored.
//! Tickets exist only in memory: a restarted server has none. Callers: the client's [`prove`], the
//! server's [`TicketBox`].
//!
//! A [`Capability`] is a ticket that is valid only for the server with one key, and for one file.
//! Its proof continues with a signature by that key:
//!
//! ```text
//! after the 40 bytes
//!  40  signature scheme of TLS, 2 bytes
//!  42  length of the key, 2 bytes, and the key: its SubjectPublicKeyInfo in DER
//!  ..  signature of "xdfs-capability-v1" 0 binding id
//! ```

mod capability;
mod server;

use aws_lc_rs::hmac;
use base64ct::{Base64UrlUnpadded, Encoding};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use crate::Binding;

pub use capability::{Capability, Opens, prove_as};
pub use server::{Redeemed, TicketBox};

#[cfg(test)]
mod tests;

const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
const TEXT_BYTES: usize = (ID_BYTES + SECRET_BYTES) * 4 / 3 + 1;
const CONTEXT: &[u8] = b"xdfs-ticket-v1\0";

type Id = [u8; ID_BYTES];
type Secret = Zeroizing<[u8; SECRET_BYTES]>;

/// Creates the body of AUTH: proves on the channel of `binding` that the client has the ticket with
/// this `text`.
///
/// # Errors
/// `InvalidArgument` if the text isn't a ticket's.
pub fn prove(text: &str, binding: &Binding) -> Result<Vec<u8>, Fault> {
    let (id, secret) = parse(text).ok_or_else(|| {
        Fault::new(
            Code::InvalidArgument,
            "read the ticket",
            "this isn't a ticket",
        )
        .hint("copy the whole line with ticket= and pin=")
    })?;
    let mut body = id.to_vec();
    body.extend(tag(&secret, binding, &id).as_ref());
    Ok(body)
}

fn parse(text: &str) -> Option<(Id, Secret)> {
    if text.len() != TEXT_BYTES {
        return None;
    }
    let mut bytes = Zeroizing::new([0; ID_BYTES + SECRET_BYTES]);
    Base64UrlUnpadded::decode(text, &mut *bytes).ok()?;
    let (id, secret) = bytes.split_first_chunk()?;
    let mut out = Zeroizing::new([0; SECRET_BYTES]);
    out.copy_from_slice(secret);
    Some((*id, out))
}

fn to_text(id: &Id, secret: &Secret) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new([0; ID_BYTES + SECRET_BYTES]);
    bytes[..ID_BYTES].copy_from_slice(id);
    bytes[ID_BYTES..].copy_from_slice(&secret[..]);
    Zeroizing::new(Base64UrlUnpadded::encode_string(&*bytes))
}

fn tag(secret: &Secret, binding: &Binding, id: &Id) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret[..]);
    let mut context = hmac::Context::with_key(&key);
    context.update(CONTEXT);
    context.update(binding);
    context.update(id);
    context.sign()
}
