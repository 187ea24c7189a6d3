//! Text that can't be guessed, and digests of it.

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use xdfs::{Code, Fault};

/// Random bytes of a secret.
pub(crate) const SECRET_BYTES: usize = 32;

/// Text that can't be guessed, and is shown by no debug output.
pub(crate) struct Secret(String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// A new one: [`SECRET_BYTES`] in hexadecimal digits.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> Result<Self, Fault> {
        random::<SECRET_BYTES>().map(Self)
    }

    /// The secret with this text.
    pub(crate) fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is(&self, other: &str) -> bool {
        is_same(&self.0, other)
    }
}

/// Random bytes in hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub(crate) fn random<const BYTES: usize>() -> Result<String, Fault> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::new(Code::Internal, "make a secret", error.to_string()))?;
    Ok(hex(&bytes))
}

/// Compares in a time that doesn't depend on where they differ.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn digest(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}
