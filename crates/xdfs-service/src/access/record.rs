//! API tokens as they are stored.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use xdfs::{Code, Fault};

use crate::time::Time;

/// The rights of a token. Each scope includes those before it, and none goes beyond the
/// rights of the user.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// To see the user's jobs.
    Read,
    /// To submit jobs, and to change them.
    Submit,
    /// All that the user may: also secrets and tokens, and as an administrator the jobs of others.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 3] = [Self::Read, Self::Submit, Self::Admin];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Fault;

    fn from_str(name: &str) -> Result<Self, Fault> {
        let mut all = Self::ALL.into_iter();
        all.find(|scope| scope.as_str() == name).ok_or_else(|| {
            let cause = "a scope is read, submit or admin";
            Fault::new(Code::InvalidArgument, "read the scope", cause).path(name)
        })
    }
}

/// A token, without what is secret about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Token {
    /// Its id, which is the part of it that isn't secret.
    pub id: String,
    /// Its user.
    pub owner: String,
    /// A line for people; may be empty.
    pub label: String,
    /// What it may be used for.
    pub scope: Scope,
    /// When it was made.
    pub created_at: Time,
    /// When it ends.
    pub ends_at: Time,
}

/// A token as the database has it.
#[derive(Clone, Debug)]
pub(crate) struct TokenRow {
    pub(crate) info: Token,
    pub(crate) digest: String,
}
