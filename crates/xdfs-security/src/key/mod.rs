//! The method `key`: proof by an OpenSSH key, both ends.
//!
//! The client sends its public key and a signature; the server checks the signature and looks the
//! key up in the user's list. This takes one frame each way and no challenge: the channel's
//! [`Binding`](crate::Binding) is as fresh as a challenge would be, and the server can't choose it.
//!
//! ```text
//! body of AUTH                          what is signed (the format of SSHSIG)
//!   string  public key                    "SSHSIG"
//!   string  signature                     string  "xdfs-key-v1"
//!                                         string  ""
//! strings, keys and signatures are        string  "sha512"
//! those of SSH (RFC 4251, 4253, 5656,     string  SHA-512 of: string binding, string user,
//! 8332, 8709)                                                 string public key
//! ```
//!
//! The SSHSIG format separates these signatures from those of SSH logins and of other programs that
//! use the same key or agent.
//!
//! Keys are Ed25519, ECDSA on P-256 or P-384, and RSA of 2048 to 8192 bits with SHA-2. Private RSA
//! keys are supported only through an agent. Callers: the client's [`prove`] with a [`SigningKey`]
//! or a key of an [`Agent`]; the server's [`admit`] with [`AuthorizedKeys`]; `xdfs keygen` calls
//! [`make_key`]. The transfer service signs its manifests by [`sign_message`].

#[cfg(unix)]
mod agent;
mod authorized;
mod container;
pub(crate) mod file;
mod make;
mod message;
mod proof;
mod public;
mod signer;
mod wire;

#[cfg(unix)]
pub use agent::{Agent, AgentKey, Identity};
pub use authorized::AuthorizedKeys;
pub use make::make_key;
pub use message::{sign_message, signer_of_message};
pub use proof::{admit, claimed, prove, verify};
pub use public::{Algorithm, PublicKey};
pub use signer::{Signer, SigningKey};

#[cfg(test)]
mod tests;
