//! The REST interface.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, http::HeaderName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;
use xdfs::{Code, Fault};

use crate::access::{User, digest};
use crate::bodies;
use crate::etag::{Condition, Revision, revision};
use crate::id::{JobId, ScheduleId};
use crate::listed::Cursor;
use crate::manifest_body;
use crate::metrics;
use crate::model::{
    FailurePage, FilePage, JobDetail, JobFilter, JobPage, JobSummary, Links, Schedule,
    SchedulePage, TransferPage, TransferState,
};
use crate::places::PlaceListing;
use crate::problem::Problem;
use crate::secret::{Keyring, check_named};
use crate::shared::Shared;
use crate::spec::{JobSettings, ScheduleSubmission, Submission};
use crate::state::{Actor, Change, StateName};
use crate::store::Idempotency;
use crate::watch::watch;
use crate::whose::Whose;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The kind of a body with a job as lines.
const LINES: &str = "application/x-ndjson";
/// Most bytes of a client's key.
const KEY_BYTES_MAX: usize = 255;
/// Jobs of a page.
const LIMIT: u32 = 50;
const LIMIT_MAX: u32 = 1000;

type Answer<T> = Result<T, Problem>;

/// The service answers and can read its database.
#[utoipa::path(get, path = "/healthz", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn health(State(shared): State<Arc<Shared>>) -> Answer<&'static str> {
    shared.store.jobs(&JobFilter::default(), None, 1).await?;
    Ok("ok\n")
}

/// Figures for monitoring.
#[utoipa::path(get, path = "/metrics", security(()), responses((status = 200, body = String,
    content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8")))]
pub(crate) async fn metrics(State(shared): State<Arc<Shared>>) -> Answer<Response> {
    let text = metrics::metrics(&shared).await?;
    Ok(([(CONTENT_TYPE, metrics::TYPE)], text).into_response())
}

/// The service takes jobs: its database can be read, and it isn't about to end.
#[utoipa::path(get, path = "/readyz", security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn ready(State(shared): State<Arc<Shared>>) -> Answer<&'static str> {
    if *shared.closing.borrow() {
        let fault = Fault::new(Code::ShuttingDown, "take jobs", "the service is ending");
        return Err(fault.into());
    }
    shared.store.jobs(&JobFilter::default(), None, 1).await?;
    Ok("ready\n")
}

/// A job as an answer, whose tag says which revision it is.
fn answer(status: StatusCode, detail: JobDetail) -> Response {
    let revision = Revision(revision(&detail.job));
    let mut response = (status, Json(detail)).into_response();
    response.extensions_mut().insert(revision);
    response
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

/// Submits a job.
///
/// 201 with the job, without a reason for which it waits, or 200 if the key has one already.
#[utoipa::path(post, path = "/api/v1/jobs",
    params(("Idempotency-Key" = Option<String>, Header,
        description = "The same job with the same key is submitted once.",
        min_length = 1, max_length = 255, pattern = "^[!-~]+$")),
    request_body(content((Submission = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 201, body = JobDetail), (status = 200, body = JobDetail)))]
pub(crate) async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let key = key(&headers)?;
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next());
    let submitted = match kind.map(str::trim) {
        Some(LINES) => {
            let received = shared
                .incoming
                .receive(body, user.is_administrator())
                .await?;
            shared
                .webhooks
                .check(received.submission.webhook.as_deref())?;
            if !received.submission.secrets.is_empty() {
                let cause = "a job as lines names none: set them for servers";
                let fault = Fault::new(Code::InvalidArgument, "accept the field", cause);
                return Err(fault.path("secrets").into());
            }
            let digest = &received.digest;
            let idempotency = key.map(|key| Idempotency { key, digest });
            let specs = received.transfers.specs()?;
            shared
                .submit_all(&received.submission, specs, &user.name, idempotency)
                .await?
        }
        _ => {
            let (digest, submission): (_, Submission) = read("read the job", body).await?;
            let digest = &digest;
            shared.webhooks.check(submission.webhook.as_deref())?;
            check_rights(&shared, &user, &submission).await?;
            let idempotency = key.map(|key| Idempotency { key, digest });
            shared.submit(&submission, &user.name, idempotency).await?
        }
    };
    let (status, detail) = match submitted.is_new {
        // Why it waits is a question of its own, which looks at all jobs.
        true => (StatusCode::CREATED, shared.store.job(submitted.id).await?),
        false => (StatusCode::OK, shared.job(submitted.id).await?),
    };
    let location = format!("/api/v1/jobs/{}", submitted.id);
    Ok(([(LOCATION, location)], answer(status, detail)).into_response())
}

/// Reads a body. Returns its digest too.
pub(crate) async fn read<T: DeserializeOwned>(operation: &str, body: Body) -> Answer<(String, T)> {
    let body = bodies::read(body).await?;
    let value = serde_json::from_slice(&bodies::with_whole_numbers(&body)).map_err(|error| {
        let fault = Fault::new(Code::InvalidArgument, operation, error.to_string());
        Problem::with_status(StatusCode::BAD_REQUEST, fault)
    })?;
    Ok((digest(&String::from_utf8_lossy(&body)), value))
}

pub(crate) fn bad_query(error: QueryRejection) -> Problem {
    let fault = Fault::new(Code::InvalidArgument, "read the query", error.body_text());
    Problem::with_status(StatusCode::BAD_REQUEST, fault)
}

/// Makes a schedule.
///
/// 201 with the schedule, or 200 if the key has one already.
#[utoipa::path(post, path = "/api/v1/schedules",
    params(("Idempotency-Key" = Option<String>, Header,
        description = "The same schedule with the same key is made once.",
        min_length = 1, max_length = 255, pattern = "^[!-~]+$")),
    request_body = ScheduleSubmission,
    responses((status = 201, body = Schedule), (status = 200, body = Schedule)))]
pub(crate) async fn add_schedule(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let (digest, submission): (_, ScheduleSubmission) = read("read the schedule", body).await?;
    shared.webhooks.check(submission.job.webhook.as_deref())?;
    check_rights(&shared, &user, &submission.job).await?;
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

/// The query of [`schedules`].
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SchedulesQuery {
    /// The cursor: only schedules that are older than this one.
    #[param(format = "uuid")]
    after: Option<String>,
    /// Most schedules of the page; 50 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of schedules, the newest first.
#[utoipa::path(get, path = "/api/v1/schedules", params(SchedulesQuery),
    responses((status = 200, body = SchedulePage)))]
pub(crate) async fn schedules(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<SchedulesQuery>, QueryRejection>,
) -> Answer<Json<SchedulePage>> {
    let Query(query) = query.map_err(bad_query)?;
    let after: Option<ScheduleId> = query.after.map(|id| id.parse()).transpose()?;
    let limit = page_size(query.limit)?;
    let schedules = shared.store.schedules(user.only(), after, limit + 1);
    let mut schedules = schedules.await?;
    let has_more = schedules.len() > limit as usize;
    schedules.truncate(limit as usize);
    let next = schedules.last().filter(|_| has_more).map(|one| one.id);
    Ok(Json(SchedulePage { schedules, next }))
}

/// A schedule.
#[utoipa::path(get, path = "/api/v1/schedules/{id}", params(("id" = ScheduleId, Path)),
    responses((status = 200, body = Schedule)))]
pub(crate) async fn schedule(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<Json<Schedule>> {
    Ok(Json(shared.store.schedule(id.parse()?).await?))
}

/// Deletes a schedule; its jobs stay.
#[utoipa::path(delete, path = "/api/v1/schedules/{id}", params(("id" = ScheduleId, Path)),
    responses((status = 204)))]
pub(crate) async fn delete_schedule(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<StatusCode> {
    shared.store.delete_schedule(id.parse()?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The number of rows in a page.
///
/// # Errors
/// It is out of its range.
fn page_size(limit: Option<u32>) -> Result<u32, Fault> {
    let limit = limit.unwrap_or(LIMIT);
    match limit {
        1..=LIMIT_MAX => Ok(limit),
        _ => {
            let cause = format!("it is {limit}, and a page has 1 to {LIMIT_MAX}");
            Err(Fault::new(Code::InvalidArgument, "use the parameter", cause).path("limit"))
        }
    }
}

/// The query of [`list`].
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only jobs in this state.
    #[param(value_type = Option<StateName>)]
    state: Option<String>,
    /// Only jobs with this in their label, whatever the case of ASCII letters.
    #[param(max_length = 200)]
    label: Option<String>,
    /// The cursor: only jobs that are older than this one.
    #[param(format = "uuid")]
    after: Option<String>,
    /// Most jobs of the page; 50 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of jobs, the newest first.
#[utoipa::path(get, path = "/api/v1/jobs", params(ListQuery),
    responses((status = 200, body = JobPage)))]
pub(crate) async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Answer<Json<JobPage>> {
    let Query(query) = query.map_err(bad_query)?;
    let state: Option<StateName> = query.state.map(|name| name.parse()).transpose()?;
    let after: Option<JobId> = query.after.map(|id| id.parse()).transpose()?;
    let limit = page_size(query.limit)?;
    let filter = JobFilter::new(user.only(), state, query.label)?;
    // One more says whether there are more.
    let mut jobs = shared.store.jobs(&filter, after, limit + 1).await?;
    let has_more = jobs.len() > limit as usize;
    jobs.truncate(limit as usize);
    let next = jobs.last().filter(|_| has_more).map(|job| job.id);
    Ok(Json(JobPage { jobs, next }))
}

/// The scheduler's knowledge of the servers of the user's jobs; for administrators, of all.
#[utoipa::path(get, path = "/api/v1/links", responses((status = 200, body = Links)))]
pub(crate) async fn links(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Answer<Json<Links>> {
    Ok(Json(known_links(&shared, &user).await?))
}

/// The scheduler's knowledge of the servers of the jobs that a user sees.
pub(crate) async fn known_links(shared: &Shared, user: &User) -> Result<Links, Fault> {
    Ok(Links {
        links: shared.store.links(user.only()).await?,
        outages: shared.store.outages(user.only()).await?,
    })
}

/// A job with its parts.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", params(("id" = JobId, Path)),
    responses((status = 200, body = JobDetail)))]
pub(crate) async fn show(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<Response> {
    let detail = shared.job(id.parse()?).await?;
    Ok(answer(StatusCode::OK, detail))
}

/// The query of [`files`].
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FilesQuery {
    /// The cursor: the `next` of the page before.
    #[param(pattern = "^[0-9]{1,9}-([0-9a-f]{2})*$")]
    after: Option<String>,
    /// Most files of the page; 50 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of the files of a job: of one with a manifest all, of others those of its trees.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/files", params(("id" = JobId, Path), FilesQuery),
    responses((status = 200, body = FilePage)))]
pub(crate) async fn files(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
    query: Result<Query<FilesQuery>, QueryRejection>,
) -> Answer<Json<FilePage>> {
    let Query(query) = query.map_err(bad_query)?;
    let after: Option<Cursor> = query.after.map(|after| after.parse()).transpose()?;
    let after = after.unwrap_or_default();
    let limit = page_size(query.limit)?;
    let page = shared.store.page_of_files(id.parse()?, &after, limit);
    let (files, next) = page.await?;
    Ok(Json(FilePage { files, next }))
}

/// The signed list of the files of a job that has succeeded.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/manifest", params(("id" = JobId, Path)),
    responses((status = 200, body = String, content_type = "application/jsonl")))]
pub(crate) async fn manifest(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
) -> Answer<Response> {
    let body = manifest_body::body(shared, id.parse()?).await?;
    Ok(([(CONTENT_TYPE, "application/jsonl")], body).into_response())
}

/// Sets what can be set of a job. What is left out stays as it is.
#[utoipa::path(patch, path = "/api/v1/jobs/{id}",
    params(("id" = JobId, Path), ("If-Match" = Option<String>, Header,
            description = "The tag of the job as it was seen. Its counts may have grown.")),
    request_body = JobSettings, responses((status = 200, body = JobDetail)))]
pub(crate) async fn set(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id): Parameters<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer<Response> {
    let id = id.parse()?;
    let condition = Condition::read(&headers)?;
    let (_, settings): (_, JobSettings) = read("read the settings", body).await?;
    let (actor, is_met) = (Actor::User(user.name), |job: &JobSummary| {
        condition.is_met(job)
    });
    if !shared.store.set(id, &settings, &actor, is_met).await? {
        return Err(not_met(id, "set"));
    }
    shared.upkeep.notify_one();
    shared.live.changed(id);
    Ok(answer(StatusCode::OK, shared.job(id).await?))
}

/// Deletes a job that has ended.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}",
    params(("id" = JobId, Path), ("If-Match" = Option<String>, Header,
            description = "The tag of the job as it was seen. Its counts may have grown.")),
    responses((status = 204)))]
pub(crate) async fn delete(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    delete_job(&shared, id.parse()?, &Condition::read(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deletes a job, if it meets the condition.
pub(crate) async fn delete_job(shared: &Shared, id: JobId, condition: &Condition) -> Answer<()> {
    if !shared.store.delete(id, |job| condition.is_met(job)).await? {
        return Err(not_met(id, "delete"));
    }
    shared.upkeep.notify_one();
    shared.live.changed(id);
    Ok(())
}

/// The query of [`transfers`].
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TransfersQuery {
    /// Only transfers in this state.
    #[param(value_type = Option<TransferState>)]
    state: Option<String>,
    /// The cursor: only transfers with a greater position.
    after: Option<u32>,
    /// Most transfers of the page; 50 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of the transfers of a job, in their order, as they were stored last.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/transfers",
    params(("id" = JobId, Path), TransfersQuery),
    responses((status = 200, body = TransferPage)))]
pub(crate) async fn transfers(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
    query: Result<Query<TransfersQuery>, QueryRejection>,
) -> Answer<Json<TransferPage>> {
    let Query(query) = query.map_err(bad_query)?;
    let limit = page_size(query.limit)?;
    let state = query.state.map(|name| transfer_state(&name)).transpose()?;
    let transfers = shared
        .store
        .transfers(id.parse()?, state, query.after, limit + 1);
    let mut transfers = transfers.await?;
    let has_more = transfers.len() > limit as usize;
    transfers.truncate(limit as usize);
    let next = transfers
        .last()
        .filter(|_| has_more)
        .map(|one| one.position);
    Ok(Json(TransferPage { transfers, next }))
}

/// The state of transfers with a name.
pub(crate) fn transfer_state(name: &str) -> Result<TransferState, Fault> {
    TransferState::from_name(name).ok_or_else(|| {
        let cause = "it is no state of a transfer";
        Fault::new(Code::InvalidArgument, "understand", cause).path(name)
    })
}

/// The query of [`failures`].
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FailuresQuery {
    /// Only entries with this in their fault, whatever the case of ASCII letters.
    #[serde(default)]
    #[param(value_type = Option<String>)]
    text: String,
    /// The cursor: only entries with a greater number.
    after: Option<u64>,
    /// Most entries of the page; 50 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// A page of the entries of trees that failed in the last attempt.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/failures",
    params(("id" = JobId, Path), FailuresQuery),
    responses((status = 200, body = FailurePage)))]
pub(crate) async fn failures(
    State(shared): State<Arc<Shared>>,
    Parameters(id): Parameters<String>,
    query: Result<Query<FailuresQuery>, QueryRejection>,
) -> Answer<Json<FailurePage>> {
    let Query(query) = query.map_err(bad_query)?;
    let limit = page_size(query.limit)?;
    let after = query.after.unwrap_or(0);
    let failures = shared
        .store
        .failures(id.parse()?, &query.text, after, limit + 1);
    let mut failures = failures.await?;
    let has_more = failures.len() > limit as usize;
    failures.truncate(limit as usize);
    let next = failures.last().filter(|_| has_more).map(|one| one.number);
    Ok(Json(FailurePage { failures, next }))
}

/// Cancels, pauses, resumes or retries a job.
#[utoipa::path(post, path = "/api/v1/jobs/{id}:{change}",
    params(("id" = JobId, Path), ("change" = String, Path),
        ("If-Match" = Option<String>, Header,
            description = "The tag of the job as it was seen. Its counts may have grown.")),
    responses((status = 200, body = JobDetail)))]
pub(crate) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id_and_change): Parameters<String>,
    headers: HeaderMap,
) -> Answer<Response> {
    let (id, word) = id_and_change
        .split_once(':')
        .unwrap_or((&id_and_change, ""));
    let id = id.parse()?;
    let condition = Condition::read(&headers)?;
    make_change(&shared, &user, id, word, &condition).await?;
    let detail = shared.job(id).await?;
    Ok(answer(StatusCode::OK, detail))
}

/// The refusal of a change whose condition a job doesn't meet.
fn not_met(id: JobId, word: &str) -> Problem {
    let cause = "it has changed since it was read";
    let fault = Fault::new(Code::Stale, format!("{word} the job"), cause);
    let fault = fault.path(id.to_string()).hint("read it again");
    Problem::with_status(StatusCode::PRECONDITION_FAILED, fault)
}

/// Changes a job as a user wants it, if it meets the condition.
pub(crate) async fn make_change(
    shared: &Shared,
    user: &User,
    id: JobId,
    word: &str,
    condition: &Condition,
) -> Answer<()> {
    let change = Change::of_person(word).ok_or_else(|| {
        let cause = "a job can be paused, resumed, cancelled and retried";
        Fault::new(Code::NotFound, "change a job by", cause).path(word)
    })?;
    let actor = Actor::User(user.name.clone());
    let is_met = |job: &JobSummary| condition.is_met(job);
    let changed = shared
        .store
        .change_if(id, change, &actor, "asked for", is_met);
    let Some(after) = changed.await? else {
        return Err(not_met(id, word));
    };
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

/// A stream of events: the job as it is, and whenever it changes, to its end.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/events", params(("id" = JobId, Path)),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(crate) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    Parameters(id): Parameters<String>,
) -> Answer<Response> {
    let id = id.parse()?;
    shared.job(id).await?;
    Ok(watch(shared, user, Some(id), json).await)
}

/// A stream of events: every job that changes from now on.
#[utoipa::path(get, path = "/api/v1/events",
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(crate) async fn all_events(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Response {
    watch(shared, user, None, json).await
}

/// The query of [`places`].
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlacesQuery {
    /// A directory: a URL, or an absolute path on the machine of the service.
    at: String,
}

/// The entries of a directory, for those who choose what to copy.
#[utoipa::path(get, path = "/api/v1/places", params(PlacesQuery),
    responses((status = 200, body = PlaceListing)))]
pub(crate) async fn places(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<PlacesQuery>, QueryRejection>,
) -> Answer<Json<PlaceListing>> {
    let Query(query) = query.map_err(bad_query)?;
    Ok(Json(browse(&shared, &user, &query.at).await?))
}

/// Reads a directory for a user.
pub(crate) async fn browse(shared: &Shared, user: &User, at: &str) -> Answer<PlaceListing> {
    let whose = match user.is_administrator() {
        true => Whose::Own,
        false => Whose::User(user.name.clone()),
    };
    let secrets = shared.store.secrets(&user.name).await?;
    let key = Arc::clone(&shared.workers.sealing);
    let keyring = Keyring::new(whose, key, secrets, &[])?;
    shared
        .places
        .list(at, keyring)
        .await
        .map_err(|fault| match fault.code {
            Code::InvalidArgument
            | Code::Unsupported
            | Code::NotFound
            | Code::PermissionDenied
            | Code::Busy
            | Code::Internal => fault.into(),
            // Neither the request nor the service is wrong.
            _ => Problem::with_status(StatusCode::FAILED_DEPENDENCY, fault),
        })
}
