//! The folder of a user's keys, known servers and settings.

use std::env;
use std::path::{Path, PathBuf};

use xdfs_proto::{Code, Fault};

use super::user::user_name;
use crate::remote::RemotePlace;
use crate::security::{Fingerprint, KnownHosts, PublicKey, make_key, trusted};

/// Name of the folder, unless XDFS_CONFIG_DIR is set.
const NAME: &str = "xdfs";

/// The folder of a user's keys, known servers and settings. It need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFolder(PathBuf);

impl UserFolder {
    /// That of the current user: XDFS_CONFIG_DIR, or `xdfs` in XDG_CONFIG_HOME or in `~/.config`.
    ///
    /// # Errors
    /// The user has no home.
    pub fn find() -> Result<Self, Fault> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        if let Some(folder) = set("XDFS_CONFIG_DIR") {
            return Ok(Self(folder.into()));
        }
        if let Some(folder) = set("XDG_CONFIG_HOME").map(PathBuf::from)
            && folder.is_absolute()
        {
            return Ok(Self(folder.join(NAME)));
        }
        let home = set("HOME").or_else(|| set("USERPROFILE"));
        home.map(|home| Self(Path::new(&home).join(".config").join(NAME)))
            .ok_or_else(|| {
                let cause = "neither XDFS_CONFIG_DIR nor HOME is set";
                Fault::new(Code::NotFound, "find the key directory", cause)
                    .hint("set XDFS_CONFIG_DIR to a directory of your own")
            })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, for this user only, unless it is there.
    ///
    /// # Errors
    /// It can't be made, or others could write to it.
    pub fn make(&self) -> Result<(), Fault> {
        trusted::make_folder("create the key directory", &self.0)
    }

    /// The default key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.0.join("id_ed25519")
    }

    /// The known hosts file.
    #[must_use]
    pub fn known_hosts(&self) -> PathBuf {
        self.0.join("known_hosts")
    }

    /// The file of [`ClientConfig`](super::ClientConfig).
    #[must_use]
    pub fn client_config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// The keys by which the user knows the server of `place`.
    ///
    /// # Errors
    /// The known hosts file can't be read, or isn't to be believed.
    pub fn known_keys(&self, place: &RemotePlace) -> Result<Vec<Fingerprint>, Fault> {
        let hosts = KnownHosts::load(&self.known_hosts())?;
        Ok(hosts.lookup(&place.address.known_name()?))
    }
}

/// Creates a key with the user's name as its comment, and the directory above it.
///
/// # Errors
/// It can't be written, or exists already.
pub fn make_user_key(path: &Path) -> Result<PublicKey, Fault> {
    if let Some(parent) = path.parent() {
        trusted::make_folder("create the key directory", parent)?;
    }
    make_key(path, &format!("{} xdfs", user_name()))
}
