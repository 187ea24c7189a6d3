//! The login of a browser, by a link or by a password, and its end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::{FormRejection, QueryRejection};
use axum::extract::{ConnectInfo, Form, Query, State};
use axum::http::header::{RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use xdfs::{Code, Fault};

use super::{PageProblem, message, rendered};
use crate::access::{is_of_own_page, local_path};
use crate::channel::Channel;
use crate::problem::Problem;
use crate::shared::Shared;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    /// The page to go to.
    next: &'a str,
    user: &'a str,
    failure: Option<String>,
}

fn form(status: StatusCode, page: &LoginPage<'_>) -> Response {
    match rendered(page) {
        Ok(page) => (status, page).into_response(),
        Err(fault) => Problem::from(fault).into_response(),
    }
}

/// The page of a browser that isn't logged in, for which it asked for `uri`.
pub(crate) fn unauthorized(shared: &Shared, method: &Method, uri: &Uri) -> Response {
    let wanted = uri.path_and_query().map_or("/", |path| path.as_str());
    let next = match *method {
        Method::GET => local_path(wanted),
        _ => "/",
    };
    please(shared, StatusCode::UNAUTHORIZED, next)
}

fn please(shared: &Shared, status: StatusCode, next: &str) -> Response {
    if shared.access.people.has_users() {
        let page = LoginPage {
            next,
            user: "",
            failure: None,
        };
        return form(status, &page);
    }
    let text = "Open the link that the service printed when it started. A link works once; \
        starting the service again prints another one.";
    message(StatusCode::UNAUTHORIZED, "Please log in", text.to_owned())
}

/// The query of `GET /login`.
#[derive(Debug, Deserialize)]
pub(crate) struct LoginQuery {
    #[serde(default)]
    link: String,
}

/// `GET /login?link=`: gives a browser its cookie; without a link, the form.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(channel): Extension<Channel>,
    headers: HeaderMap,
    query: Result<Query<LoginQuery>, QueryRejection>,
) -> Result<Response, PageProblem> {
    let link = query.map(|Query(query)| query.link).unwrap_or_default();
    if link.is_empty() {
        return Ok(please(&shared, StatusCode::OK, "/"));
    }
    let access = &shared.access;
    let cookie = access
        .log_in_by_link(&shared.store, &headers, &channel, &link)
        .await?;
    Ok(match cookie {
        Some(cookie) => ([(SET_COOKIE, cookie)], Redirect::to("/")).into_response(),
        None => please(&shared, StatusCode::UNAUTHORIZED, "/"),
    })
}

/// The form of `POST /login`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginForm {
    user: String,
    password: String,
    #[serde(default)]
    next: String,
}

/// A request that changes something, and that no page of this service has sent.
fn foreign() -> Problem {
    let cause = "it comes from no page of this service";
    let fault = Fault::new(Code::PermissionDenied, "take the form", cause);
    Problem::from(fault)
}

/// `POST /login`: gives a browser its cookie, if the password is right.
pub(crate) async fn log_in(
    State(shared): State<Arc<Shared>>,
    peer: Option<Extension<ConnectInfo<SocketAddr>>>,
    Extension(channel): Extension<Channel>,
    headers: HeaderMap,
    sent: Result<Form<LoginForm>, FormRejection>,
) -> Result<Response, PageProblem> {
    if !is_of_own_page(&headers) {
        return Err(foreign().into());
    }
    let Form(sent) = sent.map_err(|error| {
        let fault = Fault::new(Code::InvalidArgument, "read the form", error.body_text());
        Problem::with_status(error.status(), fault)
    })?;
    let unknown = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let peer = peer.map_or(unknown, |Extension(ConnectInfo(address))| address);
    let LoginForm {
        user,
        password,
        next,
    } = sent;
    let next = local_path(&next);
    let (store, access) = (&shared.store, &shared.access);
    let (name, sender) = (user.clone(), (peer, &channel));
    let logged_in = access.log_in_by_password(store, sender, &headers, name, password);
    let (status, failure, pause) = match logged_in.await {
        Ok(Some(cookie)) => {
            return Ok(([(SET_COOKIE, cookie)], Redirect::to(next)).into_response());
        }
        Ok(None) => {
            let text = "The name or the password is wrong.";
            (StatusCode::UNAUTHORIZED, text.to_owned(), None)
        }
        Err(fault) => {
            let text = format!("{}: {}.", fault.cause, fault.hint);
            let problem = Problem::from(fault);
            let Some(pause) = problem.retry_after() else {
                return Err(problem.into());
            };
            (problem.status, text, Some(pause))
        }
    };
    let page = LoginPage {
        next,
        user: &user,
        failure: Some(failure),
    };
    let mut response = form(status, &page);
    if let Some(pause) = pause {
        response.headers_mut().insert(RETRY_AFTER, pause.into());
    }
    Ok(response)
}

/// `POST /logout`: ends the session of a browser.
pub(crate) async fn log_out(
    State(shared): State<Arc<Shared>>,
    Extension(channel): Extension<Channel>,
    headers: HeaderMap,
) -> Result<Response, PageProblem> {
    if !is_of_own_page(&headers) {
        return Err(foreign().into());
    }
    let (store, access) = (&shared.store, &shared.access);
    let cookie = access.log_out(store, &headers, &channel).await?;
    Ok(([(SET_COOKIE, cookie)], Redirect::to("/login")).into_response())
}
