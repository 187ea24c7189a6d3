//! The routes of the service, and what every request goes through: who asks and may, and which
//! headers every answer has.
//!
//! Whatever is beneath a job or a schedule is in a router of its own, which answers for those of
//! other users as for those that don't exist.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{ConnectInfo, RawPathParams, Request, State};
use axum::http::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post, put};
use axum::{Extension, Router};
use xdfs::{Code, Fault};

use crate::access::{Scope, User};
use crate::channel::Channel;
use crate::etag::conditional;
use crate::id::{JobId, ScheduleId};
use crate::page::{PageProblem, login, settings};
use crate::problem::Problem;
use crate::shared::Shared;
use crate::store::{Store, no_job, no_schedule};
use crate::{api, logins, openapi, page, secrets, tokens};

/// Nothing from another host, nothing within the page, and no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// All routes.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let jobs = Router::new()
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
        .route("/api/v1/jobs/{id}/transfers", get(api::transfers))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(
            Arc::clone(&shared),
            own::<JobId, Problem>,
        ))
        .layer(from_fn(job_methods));
    let schedules = Router::new()
        .route(
            "/api/v1/schedules/{id}",
            get(api::schedule).delete(api::delete_schedule),
        )
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(
            Arc::clone(&shared),
            own::<ScheduleId, Problem>,
        ));
    let account_api = Router::new()
        .route("/api/v1/tokens", get(tokens::list).post(tokens::make))
        .route("/api/v1/tokens/{token}", delete(tokens::revoke))
        .route("/api/v1/secrets", get(secrets::list))
        .route(
            "/api/v1/secrets/{name}",
            put(secrets::set).delete(secrets::remove),
        )
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(account::<Problem>));
    let api = Router::new()
        .route("/api/v1/jobs", get(api::list).post(api::submit))
        .route("/api/v1/events", get(api::all_events))
        .route("/api/v1/links", get(api::links))
        .route(
            "/api/v1/schedules",
            get(api::schedules).post(api::add_schedule),
        )
        .merge(jobs)
        .merge(schedules)
        .merge(account_api)
        .route("/api/v1/places", get(api::places))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(conditional))
        .layer(from_fn_with_state(Arc::clone(&shared), api_user));
    let job_pages = Router::new()
        .route("/jobs/{id}", get(page::job))
        .route("/jobs/{id}/live", get(page::live_job))
        .route("/jobs/{id}/manifest", get(api::manifest))
        .route("/jobs/{id}/files", get(page::files::files))
        .route("/jobs/{id}/failures", get(page::failures))
        .route("/jobs/{id}/transfers", get(page::transfers))
        .route("/jobs/{id}/{change}", post(page::change))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(
            Arc::clone(&shared),
            own::<JobId, PageProblem>,
        ));
    let schedule_pages = Router::new()
        .route("/schedules/{id}/delete", post(page::delete_schedule))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(
            Arc::clone(&shared),
            own::<ScheduleId, PageProblem>,
        ));
    let account_pages = Router::new()
        .route("/settings", get(settings::show))
        .route("/settings/tokens", post(settings::make_token))
        .route(
            "/settings/tokens/{token}/revoke",
            post(settings::revoke_token),
        )
        .route("/settings/secrets", post(settings::set_secret))
        .route(
            "/settings/secrets/{name}/remove",
            post(settings::remove_secret),
        )
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(account::<PageProblem>));
    let pages = Router::new()
        .route("/", get(page::jobs))
        .route("/live", get(page::live_jobs))
        .route("/schedules", get(page::schedules))
        .route("/servers", get(page::servers::servers))
        .route("/new", get(page::new::new).post(page::new::start))
        .route("/new/pane", get(page::new::one_pane))
        .route("/new/review", post(page::new::review))
        .merge(job_pages)
        .merge(schedule_pages)
        .merge(account_pages)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&shared), page_user));
    let watched = Router::new()
        .route("/healthz", get(api::health))
        .route("/metrics", get(api::metrics))
        .route("/readyz", get(api::ready))
        .layer(from_fn_with_state(Arc::clone(&shared), operator));
    let open = Router::new()
        .merge(watched)
        .route("/login", get(login::show).post(login::log_in))
        .route("/logout", post(login::log_out))
        .route("/api/v1/challenges", post(logins::challenge))
        .route("/api/v1/logins", post(logins::log_in))
        .route("/api/v1/openapi.json", get(openapi::document))
        .route("/icon.svg", get(page::icon))
        .route("/page.css", get(page::style))
        .route("/page.js", get(page::script))
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn(conditional));
    Router::new()
        .merge(pages)
        .merge(open)
        .merge(api)
        .layer(from_fn(headers))
        .layer(from_fn_with_state(Arc::clone(&shared), counted))
        .with_state(shared)
}

/// The scope that a request needs, whatever it asks for.
fn needed(method: &Method) -> Scope {
    match method.is_safe() {
        true => Scope::Read,
        false => Scope::Submit,
    }
}

fn refuse_scope(user: &User, needed: Scope) -> Result<(), Problem> {
    if user.scope >= needed {
        return Ok(());
    }
    let cause = format!("the scope of the token is {}", user.scope);
    let fault = Fault::new(Code::PermissionDenied, "answer the request", cause);
    Err(fault
        .hint(format!("this needs a token of scope {needed}"))
        .into())
}

/// Finds out whose request it is, and whether its token is good for such requests.
async fn identify(shared: &Shared, request: &mut Request) -> Result<(), Problem> {
    let (method, headers) = (request.method(), request.headers());
    let channel = request.extensions().get::<Channel>();
    let channel = channel.cloned().unwrap_or_default();
    let (access, store) = (&shared.access, &shared.store);
    let user = access.user(store, peer(request), method, headers, &channel);
    let user = user.await?;
    let user = user.ok_or_else(|| Problem::unauthorized(access.people.has_users()))?;
    channel.is_known();
    refuse_scope(&user, needed(request.method()))?;
    request.extensions_mut().insert(user);
    Ok(())
}

/// The address of a client. That of a proxy, if there is one.
fn peer(request: &Request) -> SocketAddr {
    let known = request.extensions().get::<ConnectInfo<SocketAddr>>();
    known.map_or_else(
        || SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        |ConnectInfo(address)| *address,
    )
}

async fn api_user(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    identify(&shared, &mut request).await?;
    Ok(next.run(request).await)
}

/// Lets an administrator see what this machine sees without a login.
async fn operator(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let channel = request.extensions().get::<Channel>();
    if channel.is_some_and(Channel::is_protected) {
        identify(&shared, &mut request).await?;
        let user = request.extensions().get::<User>();
        if !user.is_some_and(User::sees_all) {
            let cause = "it is about all users, for administrators";
            let fault = Fault::new(Code::PermissionDenied, "answer the request", cause);
            return Err(fault.into());
        }
    }
    Ok(next.run(request).await)
}

async fn page_user(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match identify(&shared, &mut request).await {
        Ok(()) => next.run(request).await,
        Err(problem) if problem.status == StatusCode::UNAUTHORIZED => {
            login::unauthorized(&shared, request.method(), request.uri())
        }
        Err(problem) => PageProblem::from(problem).into_response(),
    }
}

/// The id in the path of a request, without a change that follows a colon.
fn id_in<T: FromStr<Err = Fault>>(
    path: Result<RawPathParams, RawPathParamsRejection>,
) -> Result<T, Problem> {
    let path = path.map_err(|error| {
        let fault = Fault::new(Code::InvalidArgument, "read the path", error.body_text());
        Problem::with_status(error.status(), fault)
    })?;
    let id = path.iter().find(|(name, _)| *name == "id");
    let id = id
        .and_then(|(_, id)| id.split(':').next())
        .unwrap_or_default();
    Ok(id.parse()?)
}

/// What belongs to a user, and is named by an id in the path.
trait Owned: FromStr<Err = Fault> + Copy + Send {
    /// The name of its owner.
    fn owner(self, store: &Store) -> impl Future<Output = Result<String, Fault>> + Send;

    /// The fault of one that doesn't exist.
    fn missing(self) -> Fault;
}

impl Owned for JobId {
    fn owner(self, store: &Store) -> impl Future<Output = Result<String, Fault>> + Send {
        store.owner(self)
    }

    fn missing(self) -> Fault {
        no_job(self)
    }
}

impl Owned for ScheduleId {
    fn owner(self, store: &Store) -> impl Future<Output = Result<String, Fault>> + Send {
        store.owner_of_schedule(self)
    }

    fn missing(self) -> Fault {
        no_schedule(self)
    }
}

/// Lets a user see what belongs to that user. Something of another user answers as something that
/// doesn't exist.
async fn own<T: Owned, E: From<Problem>>(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    path: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Result<Response, E> {
    let may_see = async {
        let id: T = id_in(path)?;
        match user.sees(&id.owner(&shared.store).await?) {
            true => Ok(()),
            false => Err(Problem::from(id.missing())),
        }
    };
    may_see.await?;
    Ok(next.run(request).await)
}

/// Lets those in whose scope is everything that their user may.
async fn account<E: From<Problem>>(
    Extension(user): Extension<User>,
    request: Request,
    next: Next,
) -> Result<Response, E> {
    refuse_scope(&user, Scope::Admin)?;
    Ok(next.run(request).await)
}

/// The methods of a job, and of a change of it, which has a colon: the router has one route for
/// both. `None` for what is beneath a job.
fn methods(path: &str) -> Option<&'static str> {
    let name = path.strip_prefix("/api/v1/jobs/")?;
    let has_colon = [":", "%3a", "%3A"].iter().any(|colon| name.contains(colon));
    match (name.contains('/'), has_colon) {
        (true, _) => None,
        (false, true) => Some("POST"),
        (false, false) => Some("GET,HEAD,PATCH,DELETE"),
    }
}

async fn job_methods(request: Request, next: Next) -> Response {
    let method = request.method();
    let allowed = methods(request.uri().path());
    match allowed.filter(|all| all.split(',').all(|one| one != method.as_str())) {
        None => next.run(request).await,
        Some(allowed) => {
            let (parts, _) = request.into_parts();
            let mut response = wrong_method(parts.headers, parts.method, parts.uri).await;
            let headers = response.headers_mut();
            headers.insert(ALLOW, HeaderValue::from_static(allowed));
            response
        }
    }
}

/// Counts the answers.
async fn counted(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    shared.live.tally.answered(response.status());
    response
}

async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // With none at all, browsers hide the origin of forms too, by which requests are known.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in headers {
        response
            .headers_mut()
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
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
