//! Secrets as they are stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xdfs::security::Credential;
use xdfs::{Code, Fault, RemotePlace};

use crate::time::Time;

/// The kind of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretKind {
    /// A password of the user whom the URL of a server names.
    Password,
    /// A bearer token.
    Token,
    /// A private key of OpenSSH, without a passphrase.
    Key,
}

impl SecretKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Password, Self::Token, Self::Key];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Password => "password",
            Self::Token => "token",
            Self::Key => "key",
        }
    }

    pub(crate) fn credential(self, value: &str) -> Credential {
        match self {
            Self::Password => Credential::Password(value.to_owned()),
            Self::Token => Credential::Token(value.to_owned()),
            Self::Key => Credential::KeyText(value.to_owned()),
        }
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SecretKind {
    type Err = Fault;

    fn from_str(name: &str) -> Result<Self, Fault> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.as_str() == name).ok_or_else(|| {
            let cause = "a secret is a password, a token or a key";
            Fault::new(Code::InvalidArgument, "read the kind", cause).path(name)
        })
    }
}

/// A secret, without what is secret about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretInfo {
    /// Its name, which jobs use it by.
    pub name: String,
    /// Its kind.
    pub kind: SecretKind,
    /// The server that it is for.
    pub server: Option<String>,
    /// When it was set.
    pub changed_at: Time,
}

/// A secret as the database has it.
#[derive(Clone, Debug)]
pub(crate) struct SecretRow {
    /// Another one whenever it is set.
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) info: SecretInfo,
    pub(crate) sealed: String,
}

impl SecretRow {
    /// The text of what is sealed with the secret.
    pub(crate) fn text(&self) -> String {
        let info = &self.info;
        let server = info.server.as_deref().unwrap_or_default();
        let parts = [
            &self.id,
            &self.owner,
            &info.name,
            info.kind.as_str(),
            server,
        ];
        serde_json::Value::from(parts.to_vec()).to_string()
    }

    pub(super) fn server(&self) -> Result<Option<RemotePlace>, Fault> {
        self.info.server.as_deref().map(str::parse).transpose()
    }
}
