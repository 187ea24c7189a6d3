//! API tokens over REST.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use xdfs::Fault;

use crate::access::{NewToken, TokenPage, TokenRequest, User, new_token};
use crate::api::{Parameters, read};
use crate::problem::Problem;
use crate::shared::Shared;

/// The user's tokens; for administrators those of all.
#[utoipa::path(get, path = "/api/v1/tokens", responses((status = 200, body = TokenPage)))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Result<Json<TokenPage>, Problem> {
    let tokens = shared.store.tokens(user.only()).await?;
    Ok(Json(TokenPage { tokens }))
}

/// Makes a token, which is shown this once.
#[utoipa::path(post, path = "/api/v1/tokens", request_body = TokenRequest,
    responses((status = 201, body = NewToken)))]
pub(crate) async fn make(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    body: Body,
) -> Result<(StatusCode, Json<NewToken>), Problem> {
    let (_, request) = read("read the wish for a token", body).await?;
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

/// Revokes a token by its id.
#[utoipa::path(delete, path = "/api/v1/tokens/{token}", params(("token" = String, Path)),
    responses((status = 204)))]
pub(crate) async fn revoke(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id): Parameters<String>,
) -> Result<StatusCode, Problem> {
    shared.store.revoke_token(&id, user.only()).await?;
    Ok(StatusCode::NO_CONTENT)
}
