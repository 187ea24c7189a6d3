//! The page of a user's settings: who it is, its tokens and its secrets.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::FormRejection;
use axum::extract::{Form, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse as _, Redirect, Response};
use serde::Deserialize;
use xdfs::{Code, Fault};

use super::{PAGES, PageProblem, rendered, shown};
use crate::access::{Scope, Token, TokenRequest, User};
use crate::api::Parameters;
use crate::problem::Problem;
use crate::secret::{SecretInfo, SecretKind};
use crate::secrets::SecretRequest;
use crate::shared::Shared;
use crate::{secrets, tokens};

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage {
    user: User,
    tokens: Vec<Token>,
    secrets: Vec<SecretInfo>,
    /// A token that was just made.
    made: Option<String>,
}

impl SettingsPage {
    fn section(&self) -> &'static str {
        "/settings"
    }
}

async fn page(
    shared: &Shared,
    user: User,
    made: Option<String>,
) -> Result<Html<String>, PageProblem> {
    let tokens = shared.store.tokens(user.only()).await?;
    let secrets = shared.store.secrets(&user.name).await?;
    Ok(rendered(&SettingsPage {
        user,
        tokens,
        secrets: secrets.into_iter().map(|row| row.info).collect(),
        made,
    })?)
}

/// `GET /settings`.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Result<Html<String>, PageProblem> {
    page(&shared, user, None).await
}

/// The form of a new token.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenForm {
    #[serde(default)]
    label: String,
    scope: String,
    days: String,
}

pub(super) fn bad_form(error: &FormRejection) -> Problem {
    let fault = Fault::new(Code::InvalidArgument, "read the form", error.body_text());
    Problem::with_status(error.status(), fault)
}

/// `POST /settings/tokens`: makes a token, and shows it once.
pub(crate) async fn make_token(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    form: Result<Form<TokenForm>, FormRejection>,
) -> Result<Response, PageProblem> {
    let Form(form) = form.map_err(|error| bad_form(&error))?;
    let days = form.days.trim().parse().map_err(|_| {
        let cause = "it is no number of days";
        Fault::new(Code::InvalidArgument, "make a token", cause).path(form.days.as_bytes())
    })?;
    let request = TokenRequest {
        label: form.label,
        scope: form.scope.parse()?,
        days,
    };
    let made = tokens::make_token(&shared, &user, request).await?;
    let page = page(&shared, user, Some(made.token)).await?;
    Ok((StatusCode::CREATED, page).into_response())
}

/// `POST /settings/tokens/{token}/revoke`.
pub(crate) async fn revoke_token(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    path: Result<Parameters<String>, Problem>,
) -> Result<Redirect, PageProblem> {
    let Parameters(id) = path?;
    shared.store.revoke_token(&id, user.only()).await?;
    Ok(Redirect::to("/settings"))
}

/// The form of a secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretForm {
    name: String,
    kind: String,
    #[serde(default)]
    server: String,
    value: String,
}

/// `POST /settings/secrets`: sets a secret.
pub(crate) async fn set_secret(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    form: Result<Form<SecretForm>, FormRejection>,
) -> Result<Redirect, PageProblem> {
    let Form(form) = form.map_err(|error| bad_form(&error))?;
    let kind: SecretKind = form.kind.parse()?;
    let server = form.server.trim();
    let request = SecretRequest {
        kind,
        value: match kind {
            // As its file has it: browsers send other ends of lines.
            SecretKind::Key => form.value.replace("\r\n", "\n"),
            _ => form.value,
        },
        server: (!server.is_empty()).then(|| server.to_owned()),
    };
    secrets::set_secret(&shared, &user, form.name.trim(), request).await?;
    Ok(Redirect::to("/settings"))
}

/// `POST /settings/secrets/{name}/remove`.
pub(crate) async fn remove_secret(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    path: Result<Parameters<String>, Problem>,
) -> Result<Redirect, PageProblem> {
    let Parameters(name) = path?;
    shared.store.remove_secret(&user.name, &name).await?;
    Ok(Redirect::to("/settings"))
}
