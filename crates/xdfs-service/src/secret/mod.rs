//! Secrets that jobs log in to servers with: passwords, tokens and keys, each of one user. They are
//! stored sealed, and opened when a session is opened.

mod keyring;
mod record;
mod seal;

pub(crate) use self::keyring::{Keyring, check_named};
pub(crate) use self::record::SecretRow;
pub use self::record::{SecretInfo, SecretKind};
pub(crate) use self::seal::SealingKey;
