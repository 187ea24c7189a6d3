//! API tokens over REST.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use axum::{Extension, Json};
use xdfs::Fault;

use crate::access::{NewToken, TokenPage, TokenRequest, User, new_token};
use crate::api::{Parameters, read};
use crate::problem::Problem;
use crate::shared::Shared;

/// `GET /api/v1/tokens`: the user's tokens; for administrators those of all.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Result<Json<TokenPage>, Problem> {
    let tokens = shared.store.tokens(user.only()).await?;
    Ok(Json(TokenPage { tokens }))
}

/// `POST /api/v1/tokens`: 201 with a new token, which is shown this once.
pub(crate) async fn make(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<NewToken>), Problem> {
    let (_, request) = read("read the wish for a token", body)?;
    let token = make_token(&shared, &user, request).await?;
    Ok((StatusCode::CREATED, Json(token)))
}

/// Makes a token for a user.
///
/// # Errors
/// Something in the request isn't as it has to be, or the user may not.
pub(crate) async fn make_token(
    shared: &Shared,
    user: &User,
    request: TokenRequest,
) -> Result<NewToken, Fault> {
    let (row, token) = new_token(user, request)?;
    shared.store.add_token(&row).await?;
    Ok(NewToken {
        info: row.info,
        token: token.as_str().to_owned(),
    })
}

/// `DELETE /api/v1/tokens/{token}`: revokes a token by its id.
pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id): Parameters<String>,
) -> Result<StatusCode, Problem> {
    shared.store.revoke_token(&id, user.only()).await?;
    Ok(StatusCode::NO_CONTENT)
}
