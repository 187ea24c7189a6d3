//! The server's end, which doesn't know the password.

use std::fmt;

use subtle::{Choice, ConstantTimeEq};
use xdfs_proto::fault::{Code, Fault};
use zeroize::Zeroizing;

use super::derive::{
    Challenge, KEY_BYTES, NONCE_BYTES, Nonce, client_signature, random, stored_key, xor,
};
use super::users::Users;
use crate::{Binding, NOT_ACCEPTED};

const PROVE: &str = "authenticate the user";

/// The server's part of the exchange.
pub struct PasswordServer {
    user: String,
    client_nonce: Nonce,
    challenge: Challenge,
    stored_key: Zeroizing<[u8; KEY_BYTES]>,
    is_known: Choice,
}

impl PasswordServer {
    /// Starts an exchange with the user's name and the body of AUTH, and returns the body of
    /// CHALLENGE. It doesn't reveal whether the user exists.
    ///
    /// # Errors
    /// `AuthenticationFailed` if the body is malformed; `Internal` if the system has no randomness.
    pub fn begin(users: &Users, user: &str, body: &[u8]) -> Result<(Self, Vec<u8>), Fault> {
        let client_nonce: Nonce = body.try_into().map_err(|_| refusal())?;
        let record = users.record(user);
        let challenge = Challenge {
            salt: record.salt,
            parameters: record.parameters,
            nonce: random::<NONCE_BYTES>(PROVE)?,
        };
        let server = Self {
            user: user.to_owned(),
            client_nonce,
            challenge,
            stored_key: record.stored_key,
            is_known: record.is_known,
        };
        Ok((server, challenge.encode().to_vec()))
    }

    /// Checks the body of PROOF from the channel of `binding`.
    ///
    /// # Errors
    /// `AuthenticationFailed`, always with the same text.
    pub fn finish(self, proof: &[u8], binding: &Binding) -> Result<(), Fault> {
        let proof: &[u8; KEY_BYTES] = proof.try_into().map_err(|_| refusal())?;
        let signature = client_signature(
            &self.stored_key,
            binding,
            &self.client_nonce,
            &self.challenge,
            &self.user,
        );
        let client_key = Zeroizing::new(xor(proof, &signature));
        let is_equal = stored_key(&client_key).ct_eq(&*self.stored_key);
        if bool::from(is_equal & self.is_known) {
            Ok(())
        } else {
            Err(refusal())
        }
    }
}

impl fmt::Debug for PasswordServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Doesn't show whether the user exists, either.
        f.debug_struct("PasswordServer")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

fn refusal() -> Fault {
    Fault::new(Code::AuthenticationFailed, PROVE, NOT_ACCEPTED)
        .hint("check the name of the user and the password")
}
