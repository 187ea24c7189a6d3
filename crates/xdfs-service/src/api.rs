//! The REST interface.

use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, http::HeaderName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use xdfs::{Code, Fault};

use crate::access::{User, digest};
use crate::id::{JobId, ScheduleId};
use crate::listed::Cursor;
use crate::manifest_body;
use crate::metrics;
use crate::model::{FailurePage, FilePage, JobDetail, JobPage, Schedule, SchedulePage};
use crate::problem::Problem;
use crate::secrets::check_named;
use crate::shared::Shared;
use crate::spec::{JobSettings, ScheduleSubmission, Submission};
use crate::state::{Actor, Change, StateName};
use crate::store::Idempotency;
use crate::watch::watch;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Most bytes of a client's key.
const KEY_BYTES_MAX: usize = 255;
/// Jobs of a page.
const LIMIT: u32 = 50;
const LIMIT_MAX: u32 = 1000;

type Answer<T> = Result<T, Problem>;

/// `GET /healthz`: the service answers and can read its database.
pub(crate) async fn health(State(shared): State<Arc<Shared>>) -> Answer<&'static str> {
    shared.store.jobs(None, None, None, 1).await?;
    Ok("ok\n")
}

/// `GET /metrics`: figures for monitoring.
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Answer<Response> {
    let text = metrics::metrics(&shared).await?;
    Ok(([(CONTENT_TYPE, metrics::TYPE)], text).into_response())
}

/// The parameters in a path.
pub(crate) struct Parameters<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let read = Path::from_request_parts(parts, state).await;
        read.map(|Path(read)| Self(read)).map_err(|error| {
            let fault = Fault::new(Code::InvalidArgument, "read the path", error.body_text());
            Problem::with_status(error.status(), fault)
        })
    }
}

fn key(headers: &HeaderMap) -> Answer<Option<&str>> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    let key = value.to_str().ok();
    let key = key.filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let key = key.ok_or_else(|| {
        let cause = format!("it isn't 1 to {KEY_BYTES_MAX} printable characters");
        Fault::new(Code::InvalidArgument, "use the Idempotency-Key", cause)
    });
    Ok(Some(key?))
}

/// Checks that a user may submit a job: its places, and the secrets that it names.
///
/// # Errors
/// The user may not use one of them, or there is no such secret.
pub(crate) async fn check_rights(
    shared: &Shared,
    user: &User,
    submission: &Submission,
) -> Result<(), Fault> {
    submission.check_for(user.is_administrator())?;
    if submission.secrets.is_empty() {
        return Ok(());
    }
    let rows = shared.store.secrets(&user.name).await?;
    check_named(&submission.secrets, &rows, &submission.servers())
}

/// `POST /api/v1/jobs`: 201 with the job, or 200 if the key has one already.
pub(crate) async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Response> {
    let (body, submission): (_, Submission) = read("read the job", body)?;
    shared.webhooks.check(submission.webhook.as_deref())?;
    check_rights(&shared, &user, &submission).await?;
    let digest = digest(&String::from_utf8_lossy(&body));
    let idempotency = key(&headers)?.map(|key| Idempotency {
        key,
        digest: &digest,
    });
    let submitted = shared
        .store
        .submit(&submission, &user.name, idempotency)
        .await?;
    shared.workers.wake.notify_one();
    shared.upkeep.notify_one();
    shared.live.changed(submitted.id);
    let detail = shared.job(submitted.id).await?;
    let status = match submitted.is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let location = format!("/api/v1/jobs/{}", submitted.id);
    Ok((status, [(LOCATION, location)], Json(detail)).into_response())
}

/// Reads a body.
pub(crate) fn read<T: DeserializeOwned>(
    operation: &str,
    body: Result<Bytes, BytesRejection>,
) -> Answer<(Bytes, T)> {
    let body = body.map_err(|error| {
        let fault = Fault::new(Code::LimitExceeded, operation, error.body_text());
        Problem::with_status(error.status(), fault)
    })?;
    let value = serde_json::from_slice(&body).map_err(|error| {
        let fault = Fault::new(Code::InvalidArgument, operation, error.to_string());
        Problem::with_status(StatusCode::BAD_REQUEST, fault)
    })?;
    Ok((body, value))
}

fn bad_query(error: QueryRejection) -> Problem {
    let fault = Fault::new(Code::InvalidArgument, "read the query", error.body_text());
    Problem::with_status(StatusCode::BAD_REQUEST, fault)
}

/// `POST /api/v1/schedules`: 201 with the schedule, or 200 if the key has one already.
pub(crate) async fn add_schedule(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Response> {
    let (body, submission): (_, ScheduleSubmission) = read("read the schedule", body)?;
    shared.webhooks.check(submission.job.webhook.as_deref())?;
    check_rights(&shared, &user, &submission.job).await?;
    let digest = digest(&String::from_utf8_lossy(&body));
    let key = key(&headers)?;
    let added = shared
        .store
        .add_schedule(&submission, &user.name, &digest, key);
    let (id, is_new) = added.await?;
    shared.upkeep.notify_one();
    let status = match is_new {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    let location = format!("/api/v1/schedules/{id}");
    let schedule = shared.store.schedule(id).await?;
    Ok((status, [(LOCATION, location)], Json(schedule)).into_response())
}

/// The query of `GET /api/v1/schedules`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SchedulesQuery {
    after: Option<String>,
    limit: Option<u32>,
}

/// `GET /api/v1/schedules`: a page of schedules, the newest first.
pub(crate) async fn schedules(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<SchedulesQuery>, QueryRejection>,
) -> Answer<Json<SchedulePage>> {
    let Query(query) = query.map_err(bad_query)?;
    let after: Option<ScheduleId> = query.after.map(|id| id.parse()).transpose()?;
    let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let schedules = shared.store.schedules(user.only(), after, limit + 1);
    let mut schedules = schedules.await?;
    let has_more = schedules.len() > limit as usize;
    schedules.truncate(limit as usize);
    let next = schedules.last().filter(|_| has_more).map(|one| one.id);
    Ok(Json(SchedulePage { schedules, next }))
}

/// `GET /api/v1/schedules/{id}`: a schedule.
pub(crate) async fn schedule(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<Json<Schedule>> {
    Ok(Json(shared.store.schedule(id.parse()?).await?))
}

/// `DELETE /api/v1/schedules/{id}`: deletes a schedule; its jobs stay.
pub(crate) async fn delete_schedule(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<StatusCode> {
    shared.store.delete_schedule(id.parse()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The query of `GET /api/v1/jobs`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    state: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

/// `GET /api/v1/jobs`: a page of jobs, the newest first.
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Answer<Json<JobPage>> {
    let Query(query) = query.map_err(bad_query)?;
    let state: Option<StateName> = query.state.map(|name| name.parse()).transpose()?;
    let after: Option<JobId> = query.after.map(|id| id.parse()).transpose()?;
    let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    // One more says whether there are more.
    let jobs = shared.store.jobs(user.only(), state, after, limit + 1);
    let mut jobs = jobs.await?;
    let has_more = jobs.len() > limit as usize;
    jobs.truncate(limit as usize);
    let next = jobs.last().filter(|_| has_more).map(|job| job.id);
    Ok(Json(JobPage { jobs, next }))
}

/// `GET /api/v1/jobs/{id}`: a job with its parts.
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<Json<JobDetail>> {
    Ok(Json(shared.job(id.parse()?).await?))
}

/// The query of `GET /api/v1/jobs/{id}/files`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FilesQuery {
    after: Option<String>,
    limit: Option<u32>,
}

/// `GET /api/v1/jobs/{id}/files`: a page of the files of a job that keeps a list of them.
pub(crate) async fn files(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
    query: Result<Query<FilesQuery>, QueryRejection>,
) -> Answer<Json<FilePage>> {
    let Query(query) = query.map_err(bad_query)?;
    let after: Option<Cursor> = query.after.map(|after| after.parse()).transpose()?;
    let after = after.unwrap_or_default();
    let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let files = shared.store.files(id.parse()?, &after, limit + 1);
    let mut files = files.await?;
    let has_more = files.len() > limit as usize;
    files.truncate(limit as usize);
    let next = files.last().filter(|_| has_more).map(Cursor::after);
    Ok(Json(FilePage { files, next }))
}

/// `GET /api/v1/jobs/{id}/manifest`: the signed list of the files of a job that has succeeded.
pub(crate) async fn manifest(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<Response> {
    let body = manifest_body::body(shared, id.parse()?).await?;
    Ok(([(CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// `PATCH /api/v1/jobs/{id}`: sets what can be set of a job.
pub(crate) async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id): Parameters<String>,
    body: Result<Bytes, BytesRejection>,
) -> Answer<Json<JobDetail>> {
    let id = id.parse()?;
    let (_, settings): (_, JobSettings) = read("read the settings", body)?;
    shared
        .store
        .set(id, &settings, &Actor::User(user.name))
        .await?;
    shared.upkeep.notify_one();
    shared.live.changed(id);
    Ok(Json(shared.job(id).await?))
}

/// `DELETE /api/v1/jobs/{id}`: deletes a job that has ended.
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<StatusCode> {
    delete_job(&shared, id.parse()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a job.
pub(crate) async fn delete_job(shared: &Shared, id: JobId) -> Result<(), Fault> {
    shared.store.delete(id).await?;
    shared.upkeep.notify_one();
    shared.live.changed(id);
    Ok(())
}

/// The query of `GET /api/v1/jobs/{id}/failures`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FailuresQuery {
    after: Option<u64>,
    limit: Option<u32>,
}

/// `GET /api/v1/jobs/{id}/failures`: a page of entries of trees that failed.
pub(crate) async fn failures(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
    query: Result<Query<FailuresQuery>, QueryRejection>,
) -> Answer<Json<FailurePage>> {
    let Query(query) = query.map_err(bad_query)?;
    let limit = query.limit.unwrap_or(LIMIT).clamp(1, LIMIT_MAX);
    let after = query.after.unwrap_or(0);
    let failures = shared.store.failures(id.parse()?, after, limit + 1);
    let mut failures = failures.await?;
    let has_more = failures.len() > limit as usize;
    failures.truncate(limit as usize);
    let next = failures.last().filter(|_| has_more).map(|one| one.number);
    Ok(Json(FailurePage { failures, next }))
}

/// `POST /api/v1/jobs/{id}:cancel`, and `:pause`, `:resume`, `:retry`.
pub(crate) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id_and_change): Parameters<String>,
) -> Answer<Json<JobDetail>> {
    let (id, word) = id_and_change
        .split_once(':')
        .unwrap_or((&id_and_change, ""));
    let id = id.parse()?;
    make_change(&shared, &user, id, word).await?;
    Ok(Json(shared.job(id).await?))
}

/// Changes a job as a user wants it.
pub(crate) async fn make_change(
    shared: &Shared,
    user: &User,
    id: JobId,
    word: &str,
) -> Result<(), Fault> {
    let change = Change::of_person(word).ok_or_else(|| {
        let cause = "a job can be paused, resumed, cancelled and retried";
        Fault::new(Code::NotFound, "change a job by", cause).path(word)
    })?;
    let actor = Actor::User(user.name.clone());
    let after = shared.store.change(id, change, &actor, "asked for").await?;
    if after.is_some_and(|state| state.worker().is_some()) {
        shared.workers.stop(id);
    }
    shared.workers.wake.notify_one();
    shared.live.changed(id);
    Ok(())
}

fn json(detail: &JobDetail) -> Result<String, Fault> {
    serde_json::to_string(detail)
        .map_err(|error| Fault::new(Code::Internal, "write the job", error.to_string()))
}

/// `GET /api/v1/jobs/{id}/events`: the job as it is, and whenever it changes, to its end.
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id): Parameters<String>,
) -> Answer<Response> {
    let id = id.parse()?;
    shared.job(id).await?;
    Ok(watch(shared, user, Some(id), json).await)
}

/// `GET /api/v1/events`: every job that changes from now on.
pub(crate) async fn all_events(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Response {
    watch(shared, user, None, json).await
}
