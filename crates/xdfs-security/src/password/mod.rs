//! The method `password`: proof by a password, both ends.
//!
//! It follows SCRAM (RFC 5802), with argon2id (RFC 9106) in place of PBKDF2: the server stores
//! nothing that suffices to log in and never sees the password, and the client bears the computing
//! cost.
//!
//! ```text
//! AUTH, 32 bytes        CHALLENGE, 60 bytes               PROOF, 32 bytes
//!   0  nonce (client)     0  salt, 16 bytes                 0  ClientKey XOR ClientSignature
//!                        16  memory in KiB, u32
//!                        20  passes, u32
//!                        24  lanes, u32
//!                        28  nonce (server), 32 bytes
//!
//! Salted          = argon2id(password, salt, memory, passes, lanes), 32 bytes
//! ClientKey       = HMAC-SHA256(Salted, "xdfs-password-v1 client key")
//! StoredKey       = SHA-256(ClientKey)                     what the server keeps
//! ClientSignature = HMAC-SHA256(StoredKey, "xdfs-password-v1 proof" 0 binding
//!                               nonce (client) challenge length of user, u32 user)
//! ```
//!
//! Numbers are in network order. A nonexistent user gets a challenge too: its salt is derived from
//! the name and a secret of the server, and the check takes the same steps.
//!
//! TLS authenticates the server. Passwords are used byte by byte as typed (UTF-8, without
//! normalization). Callers: the client's [`PasswordClient`], the server's [`PasswordServer`] with
//! [`Users`]; `xdfs user` calls [`UsersFile`].

mod cached;
mod client;
mod derive;
mod file;
mod server;
mod users;

pub use cached::CachedUsers;
pub use client::PasswordClient;
pub use derive::Parameters;
pub use file::UsersFile;
pub use server::PasswordServer;
pub use users::Users;

#[cfg(test)]
mod tests;
