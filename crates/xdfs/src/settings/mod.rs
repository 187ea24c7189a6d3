//! The settings of a user: keys, known servers, named servers and the credentials for each.
//!
//! ```text
//!  UserFolder   ~/.config/xdfs: keys, known hosts, config.toml
//!      |
//!  ClientConfig   servers with names, and settings of sessions
//!      |  completes
//!  Login          how to log in, and whom to trust
//!      |  reads files, asks the user
//!  ClientOptions  of a session
//! ```
//!
//! A program that wants what `xdfs` does for a place of its user:
//!
//! ```no_run
//! use xdfs::settings::{Attendance, ClientConfig, Login};
//! use xdfs::{Client, ClientOptions, RemotePlace};
//!
//! fn connect(place: &RemotePlace) -> Result<Client, xdfs::Fault> {
//!     let config = ClientConfig::read()?;
//!     let login = config.login(place, &Login::default())?;
//!     let options = config.session(place).options(ClientOptions::default());
//!     Client::connect(place, login.options(place, options, Attendance::Unattended)?)
//! }
//! ```

mod client;
mod credentials;
mod file;
mod folder;
mod login;
mod remote;
mod secrets;
pub mod size;
#[cfg(test)]
mod tests;
pub(crate) mod user;

pub use self::client::{ClientConfig, SessionSettings, read_program};
pub use self::credentials::{AMBIENT_SECRETS, Attendance, has_ambient_secret, is_anonymous};
pub use self::file::ConfigText;
pub use self::folder::{UserFolder, make_user_key};
pub use self::login::Login;
pub use self::remote::CHANNELS_MAX;
pub use self::secrets::{Prompt, Secret, TypedSecrets};
pub use self::user::user_name;
