//! The client's end, which knows the password.

use std::fmt;

use xdfs_proto::fault::{Code, Fault};

use super::derive::{
    Challenge, NONCE_BYTES, Nonce, client_key, client_signature, random, stored_key, xor,
};
use crate::Binding;

const PROVE: &str = "prove the password";

/// The client's part of the exchange.
pub struct PasswordClient {
    nonce: Nonce,
}

impl PasswordClient {
    /// Starts an exchange, and returns the body of AUTH.
    ///
    /// # Errors
    /// `Internal` if the system has no randomness.
    pub fn begin() -> Result<(Self, Vec<u8>), Fault> {
        let nonce: Nonce = random::<NONCE_BYTES>(PROVE)?;
        Ok((Self { nonce }, nonce.to_vec()))
    }

    /// The body of PROOF in response to `challenge`, the body of CHALLENGE. Takes as much time and
    /// memory as the challenge requires, within the ranges of [`Parameters`](super::Parameters).
    ///
    /// # Errors
    /// `AuthenticationFailed` if the challenge is malformed or its cost out of range;
    /// `InvalidArgument` if the password is empty or longer than 1024 bytes; `LimitExceeded` if
    /// there isn't enough memory.
    pub fn answer(
        self,
        user: &str,
        password: &str,
        binding: &Binding,
        challenge: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let challenge = Challenge::decode(challenge).ok_or_else(|| {
            Fault::new(
                Code::AuthenticationFailed,
                PROVE,
                "the server's challenge is malformed, or its cost is out of range",
            )
            .hint("check the address; the server may ask for 7 to 256 MiB, 16 passes, 8 lanes")
        })?;
        let key = client_key(password, &challenge.salt, challenge.parameters, PROVE)?;
        let signature = client_signature(&stored_key(&key), binding, &self.nonce, &challenge, user);
        Ok(xor(&key, &signature).to_vec())
    }
}

impl fmt::Debug for PasswordClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordClient").finish_non_exhaustive()
    }
}
