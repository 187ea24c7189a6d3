//! The REST interface of secrets, which are never shown again.

use std::fmt;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use xdfs::{Code, Fault, RemotePlace};
use zeroize::Zeroizing;

use crate::access::{User, random};
use crate::api::Parameters;
use crate::problem::Problem;
use crate::secret::{SealingKey, SecretInfo, SecretKind, SecretRow};
use crate::shared::Shared;
use crate::time::Time;
use crate::whose::check_server_of_user;

const SET: &str = "set the secret";
const NAME_MAX: usize = 64;
/// Most bytes of a password, as servers accept them, and of another secret.
const PASSWORD_BYTES_MAX: usize = 1024;
const VALUE_BYTES_MAX: usize = 16 << 10;
const ID_BYTES: usize = 8;

/// A secret as it is set.
#[derive(Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRequest {
    /// Its kind.
    pub kind: SecretKind,
    /// The secret itself.
    #[schema(min_length = 1, max_length = 16_384)]
    pub value: String,
    /// The server that it is for, as `xdfs://user@host`: all jobs of the user log in to it with
    /// this, and it is shown to no other. None for jobs that name the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
}

impl fmt::Debug for SecretRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretRequest")
            .field("kind", &self.kind)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// The secrets of a user, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretPage {
    /// The secrets.
    pub secrets: Vec<SecretInfo>,
}

fn invalid(field: &str, cause: impl Into<String>) -> Fault {
    Fault::new(Code::InvalidArgument, SET, cause).path(field)
}

/// Whether a secret may have this name.
fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.len() <= NAME_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(fits)
}

/// The server of a secret, in the form in which it is stored.
fn server_of(text: &str) -> Result<String, Fault> {
    let field = |fault: Fault| Fault {
        operation: SET.into(),
        ..fault
    };
    let mut place: RemotePlace = text.parse().map_err(field)?;
    let is_plain = place.url_path().iter().all(|byte| *byte == b'/');
    if check_server_of_user(&place).is_err() {
        let cause = "ssh and sockets of this machine log in without secrets of the service";
        return Err(invalid("server", cause));
    }
    if !is_plain || place.invitation != xdfs::Invitation::default() {
        return Err(invalid(
            "server",
            "it is no server alone, as xdfs://USER@HOST",
        ));
    }
    place.path.clear();
    place.stack = None;
    Ok(place.to_string())
}

/// A secret as it will be stored.
pub(crate) fn new_secret(
    key: &SealingKey,
    user: &User,
    name: &str,
    request: SecretRequest,
) -> Result<SecretRow, Fault> {
    let SecretRequest {
        kind,
        value,
        server,
    } = request;
    let value = Zeroizing::new(value);
    if !is_name(name) {
        let cause = format!("a name has 1 to {NAME_MAX} of A-Z, a-z, 0-9, '-', '_' and '.'");
        return Err(invalid("name", cause));
    }
    let most = match kind {
        SecretKind::Password => PASSWORD_BYTES_MAX,
        _ => VALUE_BYTES_MAX,
    };
    if value.is_empty() || value.len() > most {
        return Err(invalid("value", format!("it has 1 to {most} bytes")));
    }
    if kind != SecretKind::Key && value.contains(char::is_control) {
        return Err(invalid(
            "value",
            "it has control characters, such as a line's end",
        ));
    }
    kind.credential(&value).check().map_err(|fault| Fault {
        operation: SET.into(),
        ..fault.path("value")
    })?;
    let server = server.filter(|server| !server.is_empty());
    let mut row = SecretRow {
        id: random::<ID_BYTES>()?,
        owner: user.name.clone(),
        info: SecretInfo {
            name: name.to_owned(),
            kind,
            server: server.as_deref().map(server_of).transpose()?,
            changed_at: Time::now(),
        },
        sealed: String::new(),
    };
    row.sealed = key.seal(&row.text(), &value)?;
    Ok(row)
}

/// The names of the user's secrets.
#[utoipa::path(get, path = "/api/v1/secrets", responses((status = 200, body = SecretPage)))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Result<Json<SecretPage>, Problem> {
    let secrets = shared.store.secrets(&user.name).await?;
    let secrets = secrets.into_iter().map(|row| row.info).collect();
    Ok(Json(SecretPage { secrets }))
}

/// Sets a secret.
#[utoipa::path(put, path = "/api/v1/secrets/{name}", params(("name" = String, Path)),
    request_body = SecretRequest, responses((status = 200, body = SecretInfo)))]
pub(crate) async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(name): Parameters<String>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<SecretInfo>, Problem> {
    let body = body.map_err(|error| {
        let fault = Fault::new(Code::LimitExceeded, SET, error.body_text());
        Problem::with_status(error.status(), fault)
    })?;
    let request: SecretRequest = serde_json::from_slice(&body).map_err(|error| {
        // The text of the error may have a part of the secret.
        let (line, column) = (error.line(), error.column());
        let cause = format!("the body is no secret: look at line {line}, column {column}");
        let fault = Fault::new(Code::InvalidArgument, SET, cause);
        Problem::with_status(StatusCode::BAD_REQUEST, fault)
    })?;
    Ok(Json(set_secret(&shared, &user, &name, request).await?))
}

/// Sets a secret of a user.
///
/// # Errors
/// Something in it isn't as it has to be, or the user has too many.
pub(crate) async fn set_secret(
    shared: &Shared,
    user: &User,
    name: &str,
    request: SecretRequest,
) -> Result<SecretInfo, Fault> {
    let row = new_secret(&shared.workers.sealing, user, name, request)?;
    shared.store.set_secret(&row).await?;
    Ok(row.info)
}

/// Removes a secret.
#[utoipa::path(delete, path = "/api/v1/secrets/{name}", params(("name" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn remove(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(name): Parameters<String>,
) -> Result<StatusCode, Problem> {
    shared.store.remove_secret(&user.name, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_for_one_server() {
        for (text, server) in [
            ("xdfs://alice@host", "xdfs://alice@host"),
            ("xdfs://host/", "xdfs://host"),
            ("ftps://alice@host:990", "ftps://alice@host:990"),
        ] {
            let found = server_of(text).unwrap_or_else(|fault| panic!("{text}: {fault}"));
            let places = [&*found, server].map(|text| text.parse::<RemotePlace>());
            let [found, server] = places.map(|place| place.unwrap_or_else(|f| panic!("{f}")));
            assert!(found.shares_session(&server), "{text}");
        }
        for text in [
            "",
            "host",
            "/host",
            "xdfs://host/a",
            "ssh://host",
            "xdfs://host?ticket=x",
        ] {
            assert!(server_of(text).is_err(), "{text}");
        }
        for name in ["lab", "a.b-c_d", "7"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "-a", "a/b", "a b", "\u{e4}", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
