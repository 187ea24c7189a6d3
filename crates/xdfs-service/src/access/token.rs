//! API tokens: what programs log in by, with a scope and an end. Only their digests are stored.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xdfs::{Code, Fault};

use super::record::{Scope, Token, TokenRow};
use super::secret::{Secret, digest, is_same, random};
use super::{Access, Proof, User};
use crate::store::Store;
use crate::time::Time;

/// The beginning of each token, by which scanners of secrets find it.
const PREFIX: &str = "xdfs_";
/// Random bytes of an id.
const ID_BYTES: usize = 8;
/// Days until a token ends, where a request doesn't say, and most of them.
const DAYS: u32 = 30;
const DAYS_MAX: u32 = 366;
/// Most characters of a label.
const LABEL_MAX: usize = 100;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MAKE: &str = "make a token";

/// A wish for a token.
#[derive(Clone, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// A line for people. Empty for none.
    #[serde(default)]
    #[schema(max_length = 100)]
    pub label: String,
    /// What it may be used for.
    pub scope: Scope,
    /// Days until it ends: 1 to 366.
    #[serde(default = "days")]
    #[schema(minimum = 1, maximum = 366)]
    pub days: u32,
}

fn days() -> u32 {
    DAYS
}

/// A token that was just made.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NewToken {
    /// The token, without what is secret about it.
    #[serde(flatten)]
    pub info: Token,
    /// The value for `Authorization: Bearer`. It is shown once.
    pub token: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// Tokens, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TokenPage {
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// Makes a token for a user. Returns what is stored, and the token itself.
///
/// # Errors
/// [`Code::InvalidArgument`] with the field; [`Code::PermissionDenied`] if the request itself comes
/// with an API token, whose end would mean nothing then.
pub(crate) fn new_token(user: &User, request: TokenRequest) -> Result<(TokenRow, Secret), Fault> {
    let invalid =
        |field: &str, cause: String| Fault::new(Code::InvalidArgument, MAKE, cause).path(field);
    if matches!(user.proof, Proof::Token(_)) {
        let cause = "a token can't make another one";
        return Err(Fault::new(Code::PermissionDenied, MAKE, cause)
            .hint("log in by password, or with the token in the service's folder"));
    }
    let TokenRequest { label, scope, days } = request;
    if label.chars().count() > LABEL_MAX || label.contains(char::is_control) {
        let cause = format!("it has more than {LABEL_MAX} characters, or control characters");
        return Err(invalid("label", cause));
    }
    if !(1..=DAYS_MAX).contains(&days) {
        let cause = format!("a token ends after 1 to {DAYS_MAX} days");
        return Err(invalid("days", cause));
    }
    let (id, secret) = (random::<ID_BYTES>()?, Secret::new()?);
    let created_at = Time::now();
    let row = TokenRow {
        digest: digest(secret.as_str()),
        info: Token {
            owner: user.name.clone(),
            label,
            scope,
            created_at,
            ends_at: created_at.after(DAY * days),
            id: id.clone(),
        },
    };
    Ok((
        row,
        Secret::from_text(format!("{PREFIX}{id}_{}", secret.as_str())),
    ))
}

impl Access {
    /// The user of an API token; `None` if there is none, or it has ended, or its user is gone.
    pub(super) async fn user_of_token(
        &self,
        store: &Store,
        text: &str,
    ) -> Result<Option<User>, Fault> {
        let parts = text.strip_prefix(PREFIX);
        let Some((id, secret)) = parts.and_then(|parts| parts.split_once('_')) else {
            return Ok(None);
        };
        let Some(TokenRow { info, digest: own }) = store.token(id).await? else {
            return Ok(None);
        };
        let is_right = is_same(&digest(secret), &own) && self.people.knows(&info.owner)?;
        let proof = Proof::Token(info.id);
        Ok(is_right.then(|| self.proved(info.owner, info.scope, proof)))
    }
}
