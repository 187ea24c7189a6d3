//! Logins by keys over REST.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};

use crate::access::{Challenge, KeyLogin, KeySession};
use crate::api::read;
use crate::problem::Problem;
use crate::shared::Shared;

/// A challenge, which a user's key signs to log in.
#[utoipa::path(post, path = "/api/v1/challenges", security(()),
    responses((status = 201, body = Challenge)))]
pub(crate) async fn challenge(
    State(shared): State<Arc<Shared>>,
) -> Result<(StatusCode, Json<Challenge>), Problem> {
    Ok((StatusCode::CREATED, Json(shared.access.challenge()?)))
}

/// Logs in a user by a key, for an hour.
#[utoipa::path(post, path = "/api/v1/logins", security(()), request_body = KeyLogin,
    responses((status = 201, body = KeySession)))]
pub(crate) async fn log_in(
    State(shared): State<Arc<Shared>>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<KeySession>), Problem> {
    let (_, login): (_, KeyLogin) = read("read the login", body).await?;
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let peer = peer.map_or(unknown, |Extension(ConnectInfo(address))| address);
    let (store, access) = (&shared.store, &shared.access);
    let session = access.log_in_by_key(store, peer, &headers, login).await?;
    Ok((StatusCode::CREATED, Json(session)))
}
