//! The routes of the service, and what every request goes through: who asks, and which headers
//! every answer has.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use xdfs::{Code, Fault};

use crate::access::User;
use crate::page::PageProblem;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::{api, page};

/// Nothing from another host, nothing within the page, and no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// All routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let api = Router::new()
        .route("/api/v1/jobs", get(api::list).post(api::submit))
        .route(
            "/api/v1/jobs/{id}",
            get(api::show)
                .post(api::change)
                .patch(api::set)
                .delete(api::delete),
        )
        .route("/api/v1/jobs/{id}/events", get(api::events))
        .route("/api/v1/jobs/{id}/failures", get(api::failures))
        .route("/api/v1/jobs/{id}/files", get(api::files))
        .route("/api/v1/jobs/{id}/manifest", get(api::manifest))
        .route("/api/v1/events", get(api::all_events))
        .route(
            "/api/v1/schedules",
            get(api::schedules).post(api::add_schedule),
        )
        .route(
            "/api/v1/schedules/{id}",
            get(api::schedule).delete(api::delete_schedule),
        )
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&shared), api_user));
    let pages = Router::new()
        .route("/", get(page::jobs))
        .route("/live", get(page::live_jobs))
        .route("/jobs/{id}", get(page::job))
        .route("/schedules", get(page::schedules))
        .route("/schedules/{id}/delete", post(page::delete_schedule))
        .route("/jobs/{id}/live", get(page::live_job))
        .route("/jobs/{id}/manifest", get(api::manifest))
        .route("/jobs/{id}/{change}", post(page::change))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&shared), page_user));
    let open = Router::new()
        .route("/healthz", get(api::health))
        .route("/login", get(page::log_in))
        .route("/icon.svg", get(page::icon))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script))
        .method_not_allowed_fallback(wrong_method);
    Router::new()
        .merge(pages)
        .merge(open)
        .merge(api)
        .layer(from_fn(headers))
        .with_state(shared)
}

async fn user(shared: &Shared, request: &mut Request) -> Result<(), Problem> {
    let (method, headers) = (request.method(), request.headers());
    let user = shared.access.user(&shared.store, method, headers).await?;
    let user = user.ok_or_else(Problem::unauthorized)?;
    request.extensions_mut().insert(User(user));
    Ok(())
}

async fn api_user(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    match user(&shared, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

async fn page_user(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match user(&shared, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => page::unauthorized(),
        Err(problem) => problem.into_response(),
    }
}

async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Any other path.
async fn unknown(headers: HeaderMap, uri: Uri) -> Response {
    let cause = "the service has no such resource";
    let fault = Fault::new(Code::NotFound, "find", cause).path(uri.path());
    problem_for(&headers, fault.into())
}

/// Another method of a path that there is.
async fn wrong_method(headers: HeaderMap, method: Method, uri: Uri) -> Response {
    let cause = "the resource doesn't have this method";
    let fault = Fault::new(Code::Unsupported, format!("{method}"), cause).path(uri.path());
    let problem = Problem::with_status(StatusCode::METHOD_NOT_ALLOWED, fault);
    problem_for(&headers, problem)
}

/// A problem as a page for browsers, and as JSON for others.
fn problem_for(headers: &HeaderMap, problem: Problem) -> Response {
    let accepted = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    match accepted.is_some_and(|accepted| accepted.contains("text/html")) {
        true => PageProblem::from(problem).into_response(),
        false => problem.into_response(),
    }
}
