//! The pages: rendered here, and kept up to date by fragments that come as events.

mod curve;
pub(crate) mod files;
pub(crate) mod login;
pub(crate) mod new;
pub(crate) mod servers;
pub(crate) mod settings;

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Redirect, Response};
use serde::Deserialize;
use xdfs::{Code, Fault, LimitedBy};

use self::curve::Picture;
use self::new::encoded;
use crate::access::User;
use crate::api::{Parameters, bad_query, delete_job, make_change, transfer_state};
use crate::etag::Condition;
use crate::id::JobId;
use crate::model::{
    Counts, EntryFailure, JobDetail, JobFilter, JobSummary, Schedule, Transfer, TransferState,
    WebhookState,
};
use crate::problem::Problem;
use crate::shared::Shared;
use crate::state::StateName;
use crate::time::Time;
use crate::watch::watch;

/// Jobs of the list.
const JOBS_SHOWN: u32 = 100;
/// Entries that failed on the page of a job.
const FAILURES_SHOWN: usize = 10;
/// Entries and transfers on a page of their own.
const ROWS_OF_PAGE: u32 = 100;
/// The pages that every page links to.
const PAGES: [(&str, &str); 5] = [
    ("/", "Jobs"),
    ("/new", "New transfer"),
    ("/schedules", "Schedules"),
    ("/servers", "Servers"),
    ("/settings", "Settings"),
];

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    rows: Vec<Row>,
    filter: JobFilter,
    after: Option<JobId>,
    next: Option<JobId>,
}

#[derive(Template)]
#[template(path = "failures.html")]
struct FailuresPage {
    id: JobId,
    text: String,
    failures: Vec<EntryFailure>,
    /// The address of the page that follows.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "row.html")]
struct Row {
    job: JobSummary,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    body: JobBody,
}

#[derive(Template)]
#[template(path = "job_body.html")]
struct JobBody {
    detail: JobDetail,
}

#[derive(Template)]
#[template(path = "message.html")]
struct Message {
    title: &'static str,
    text: String,
}

/// A number of bytes, as `1.5 GB`.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 999.5
        && let Some(next) = units.next()
    {
        value /= 1000.0;
        unit = next;
    }
    match value {
        _ if unit == "B" => format!("{value:.0} {unit}"),
        value if value < 9.995 => format!("{value:.2} {unit}"),
        value if value < 99.95 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// A number of things, as `1 file` or `3 files`.
fn counted(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// What limited a rate ([`LimitedBy`]), in words.
fn limit(name: &str) -> &str {
    let known = LimitedBy::ALL.into_iter().find(|one| one.as_str() == name);
    match known {
        Some(LimitedBy::SourceRead) => "reading at the source",
        Some(LimitedBy::SenderCpu) => "the processor of the source",
        Some(LimitedBy::RateLimit) => "the rate that was asked for",
        Some(LimitedBy::RoundTrips) => "round trips to the server",
        Some(LimitedBy::Network) => "the network",
        Some(LimitedBy::ReceiverCpu) => "the processor of the target",
        Some(LimitedBy::TargetWrite) => "writing at the target",
        Some(LimitedBy::Durability) => "making files durable at the target",
        // Of a newer version.
        _ => name,
    }
}

/// The counts, as `1.5 of 3.0 GB, 7 files`.
fn done(counts: &Counts) -> String {
    let mut text = match counts.bytes_total {
        Some(total) if total != counts.bytes => {
            format!("{} of {}", size(counts.bytes), size(total))
        }
        _ => size(counts.bytes),
    };
    match counts.files {
        0 => {}
        1 => text.push_str(", 1 file"),
        files => text.push_str(&format!(", {files} files")),
    }
    if counts.failed > 0 {
        text.push_str(&format!(", {} failed", counts.failed));
    }
    text
}

/// The share of the bytes that have arrived, in percent.
fn percent(counts: &Counts) -> Option<u64> {
    let total = counts.bytes_total.filter(|total| *total > 0)?;
    let percent = u128::from(counts.bytes) * 100 / u128::from(total);
    u64::try_from(percent.min(100)).ok()
}

/// A time for people: the date, the time to the second, and that it is UTC.
fn shown(time: &Time) -> String {
    let text = time.to_string();
    let seconds = text
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end_matches('Z');
    seconds.replacen('T', " ", 1) + " UTC"
}

/// Transfers as rows of a table.
#[derive(Template)]
#[template(path = "transfer_rows.html")]
struct TransferRows<'a> {
    transfers: &'a [Transfer],
}

#[derive(Template)]
#[template(path = "transfers.html")]
struct TransfersPage<'a> {
    id: JobId,
    state: Option<TransferState>,
    rows: TransferRows<'a>,
    /// The address of the page that follows.
    next: Option<String>,
}

impl TransfersPage<'_> {
    fn section(&self) -> &'static str {
        "/"
    }
}

impl JobsPage {
    fn section(&self) -> &'static str {
        "/"
    }

    fn label(&self) -> &str {
        self.filter.label.as_deref().unwrap_or_default()
    }

    /// Whether it lacks the newest jobs, or some of them.
    fn is_part(&self) -> bool {
        self.after.is_some() || self.filter != JobFilter::default()
    }

    /// The address of the page with older jobs.
    fn next_page(&self) -> Option<String> {
        let next = self.next?.to_string();
        let state = self.filter.state.map(StateName::as_str).unwrap_or_default();
        let pairs = [("state", state), ("label", self.label()), ("after", &next)];
        Some(format!("/?{}", encoded(&pairs)))
    }
}

impl FailuresPage {
    fn section(&self) -> &'static str {
        "/"
    }
}

impl JobPage {
    fn section(&self) -> &'static str {
        "/"
    }
}

impl Message {
    fn section(&self) -> &'static str {
        ""
    }
}

impl Row {
    fn title(&self) -> String {
        title(&self.job)
    }

    fn route(&self) -> String {
        route(&self.job)
    }

    /// The share of the bytes that have arrived, while there is more to come.
    fn percent(&self) -> Option<u64> {
        percent(&self.job.counts).filter(|_| !self.job.state.is_end())
    }
}

/// The name of a job.
fn title(job: &JobSummary) -> String {
    name(&job.label, &job.source)
}

fn name(label: &str, source: &str) -> String {
    match label {
        "" => format!("Copy of {}", last_name(source)),
        label => label.to_owned(),
    }
}

/// The last name of a place.
fn last_name(place: &str) -> &str {
    let parts = place.trim_end_matches('/').rsplit('/');
    parts
        .into_iter()
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(place)
}

/// The source and the target of a job.
fn route(job: &JobSummary) -> String {
    let more = match job.transfers_count {
        0 | 1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!("{} \u{2192} {}{more}", job.source, job.target)
}

/// A button with a change, which is a verb.
fn button(change: &str) -> String {
    let mut letters = change.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// A time that is left, in its two greatest units.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

impl JobBody {
    fn title(&self) -> String {
        title(&self.detail.job)
    }

    fn route(&self) -> String {
        route(&self.detail.job)
    }

    fn percent(&self) -> Option<u64> {
        percent(&self.detail.job.counts).filter(|_| !self.detail.job.state.is_end())
    }

    /// The bytes that have arrived, of how many.
    fn arrived(&self) -> String {
        let counts = &self.detail.job.counts;
        match counts.bytes_total {
            Some(total) if total != counts.bytes => {
                format!("{} of {}", size(counts.bytes), size(total))
            }
            _ => size(counts.bytes),
        }
    }

    /// The rate, and the time that is left if that is known.
    fn rate(&self) -> Option<(String, Option<String>)> {
        let rates = self.detail.transfers.iter();
        let rate = rates.filter_map(|one| one.rate_bytes_per_s).next()?;
        let counts = &self.detail.job.counts;
        let left = counts
            .bytes_total
            .map(|total| total.saturating_sub(counts.bytes));
        let left = left.and_then(|left| left.checked_div(rate));
        Some((size(rate), left.map(duration)))
    }

    /// The time from its beginning to its end.
    fn took(&self) -> Option<String> {
        let job = &self.detail.job;
        let (began, ended) = (job.started_at?, job.ended_at?);
        let took = ended.microseconds().saturating_sub(began.microseconds());
        Some(duration(u64::try_from(took / 1_000_000).ok()?))
    }

    /// The rate over time, once there are two steps of it.
    fn curve(&self) -> Option<Picture> {
        self.detail.curve.as_ref().and_then(Picture::new)
    }

    fn rows(&self) -> TransferRows<'_> {
        let transfers = &self.detail.transfers;
        TransferRows { transfers }
    }

    /// The number of transfers that aren't shown.
    fn more_transfers(&self) -> usize {
        let count = self.detail.job.transfers_count as usize;
        count.saturating_sub(self.detail.transfers.len())
    }

    /// The job in one sentence.
    fn sentence(&self) -> String {
        let job = &self.detail.job;
        let transfers = self.detail.transfers.iter();
        let retried = transfers.clone().find_map(Transfer::retried);
        match (&job.failure, retried) {
            (Some(failure), _) => match &job.not_before {
                Some(at) => format!(
                    "Tries again at {}, after: {}",
                    shown(at),
                    failure.sentence()
                ),
                None => failure.sentence(),
            },
            (None, Some(cause)) => format!("tried again after a failure: {cause}"),
            (None, None) => match transfers.clone().find_map(|one| one.limited_by.as_deref()) {
                Some(name) => format!("{}, limited by {}", done(&job.counts), limit(name)),
                None => done(&job.counts),
            },
        }
    }

    /// The webhook in one sentence.
    fn webhook(&self) -> Option<String> {
        let webhook = self.detail.webhook.as_ref()?;
        let url = &webhook.url;
        let why = webhook.failure.as_ref().map(crate::Failure::sentence);
        let why = why.unwrap_or_default();
        Some(
            match (webhook.state, webhook.delivered_at, webhook.next_attempt_at) {
                (WebhookState::Delivered, Some(at), _) => {
                    format!("The end was sent to {url} at {}.", shown(&at))
                }
                (WebhookState::Failed, ..) => format!("The end could not be sent to {url}: {why}"),
                (WebhookState::Due, _, Some(at)) if webhook.attempts > 0 => {
                    let at = shown(&at);
                    format!("The end is sent to {url} again at {at}, after: {why}")
                }
                _ => format!("The end is sent to {url}."),
            },
        )
    }

    /// Whether there is a page of its files.
    fn has_files(&self) -> bool {
        let mut transfers = self.detail.transfers.iter();
        self.detail.job.manifest || transfers.any(|one| one.kind != "file")
    }

    /// Whether there is a list of its files, which is signed.
    fn has_manifest(&self) -> bool {
        let job = &self.detail.job;
        job.manifest && job.state == StateName::Succeeded
    }

    /// What was set of the job, in words.
    fn terms(&self) -> Vec<String> {
        let job = &self.detail.job;
        let mut terms = Vec::new();
        if job.priority != 0 {
            terms.push(format!("priority {}", job.priority));
        }
        if let Some(time) = job.starts_at.filter(|_| job.started_at.is_none()) {
            terms.push(format!("starts at {}", shown(&time)));
        }
        if let Some(time) = job.deadline.filter(|_| !job.state.is_end()) {
            terms.push(format!("to be done by {}", shown(&time)));
        }
        if let Some(schedule) = job.schedule {
            terms.push(format!("of schedule {schedule}"));
        }
        if let Some(time) = job.keep_until {
            terms.push(format!("kept until {}", shown(&time)));
        }
        terms
    }

    fn hint(&self) -> Option<&str> {
        self.detail.job.failure.as_ref()?.hint.as_deref()
    }

    /// The changes that the job can be asked for, by their words.
    fn changes(&self) -> &'static [&'static str] {
        use crate::state::StateName as S;
        match self.detail.job.state {
            S::Queued | S::Running | S::Requeueing => &["pause", "cancel"],
            S::Retrying => &["retry", "pause", "cancel"],
            S::Pausing | S::Paused => &["resume", "cancel"],
            S::Failed | S::Cancelled => &["retry", "delete"],
            S::Succeeded => &["delete"],
            S::Cancelling => &[],
        }
    }
}

impl Transfer {
    /// Why a running transfer is tried again.
    fn retried(&self) -> Option<String> {
        let is_running = self.state == TransferState::Running;
        let failure = self.failure.as_ref().filter(|_| is_running)?;
        Some(failure.sentence())
    }
}

fn rendered(template: &impl Template) -> Result<Html<String>, Fault> {
    let text = template.render();
    let text =
        text.map_err(|error| Fault::new(Code::Internal, "render the page", error.to_string()))?;
    Ok(Html(text))
}

fn message(status: StatusCode, title: &'static str, text: String) -> Response {
    match rendered(&Message { title, text }) {
        Ok(page) => (status, page).into_response(),
        Err(fault) => Problem::from(fault).into_response(),
    }
}

/// A problem as a page.
pub(crate) struct PageProblem(Problem);

impl<E: Into<Problem>> From<E> for PageProblem {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for PageProblem {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let title = problem.status.canonical_reason().unwrap_or("Failure");
        message(problem.status, title, problem.fault().to_string())
    }
}

/// The query of [`jobs`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct JobsQuery {
    state: String,
    label: String,
    after: String,
}

/// `GET /`: the newest jobs.
pub(crate) async fn jobs(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    query: Result<Query<JobsQuery>, QueryRejection>,
) -> Result<Html<String>, PageProblem> {
    let Query(query) = query.map_err(bad_query)?;
    let word = |text: String| (!text.is_empty()).then_some(text);
    let state = word(query.state).map(|name| name.parse()).transpose()?;
    let after = word(query.after).map(|id| id.parse()).transpose()?;
    let filter = JobFilter::new(user.only(), state, Some(query.label))?;
    let mut jobs = shared.store.jobs(&filter, after, JOBS_SHOWN + 1).await?;
    let has_more = jobs.len() > JOBS_SHOWN as usize;
    jobs.truncate(JOBS_SHOWN as usize);
    let next = jobs.last().filter(|_| has_more).map(|job| job.id);
    let rows = jobs.into_iter().map(|job| Row { job }).collect();
    Ok(rendered(&JobsPage {
        rows,
        filter,
        after,
        next,
    })?)
}

/// The query of [`transfers`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TransfersQuery {
    state: String,
    after: Option<u32>,
}

/// `GET /jobs/{id}/transfers`: the transfers of a job.
pub(crate) async fn transfers(
    State(shared): State<Arc<Shared>>,
    path: Result<Parameters<String>, Problem>,
    query: Result<Query<TransfersQuery>, QueryRejection>,
) -> Result<Html<String>, PageProblem> {
    let Parameters(id) = path?;
    let id: JobId = id.parse()?;
    let Query(TransfersQuery { state, after }) = query.map_err(bad_query)?;
    let word = (!state.is_empty()).then(|| transfer_state(&state));
    let only = word.transpose()?;
    let transfers = shared.store.transfers(id, only, after, ROWS_OF_PAGE + 1);
    let mut transfers = transfers.await?;
    let has_more = transfers.len() > ROWS_OF_PAGE as usize;
    transfers.truncate(ROWS_OF_PAGE as usize);
    let next = transfers.last().filter(|_| has_more).map(|one| {
        let after = one.position.to_string();
        let query = encoded(&[("state", &state), ("after", &after)]);
        format!("/jobs/{id}/transfers?{query}")
    });
    Ok(rendered(&TransfersPage {
        id,
        state: only,
        rows: TransferRows {
            transfers: &transfers,
        },
        next,
    })?)
}

/// The query of [`failures`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FailuresQuery {
    text: String,
    after: u64,
}

/// `GET /jobs/{id}/failures`: the entries of a job that failed.
pub(crate) async fn failures(
    State(shared): State<Arc<Shared>>,
    path: Result<Parameters<String>, Problem>,
    query: Result<Query<FailuresQuery>, QueryRejection>,
) -> Result<Html<String>, PageProblem> {
    let Parameters(id) = path?;
    let id: JobId = id.parse()?;
    let Query(FailuresQuery { text, after }) = query.map_err(bad_query)?;
    let failures = shared.store.failures(id, &text, after, ROWS_OF_PAGE + 1);
    let mut failures = failures.await?;
    let has_more = failures.len() > ROWS_OF_PAGE as usize;
    failures.truncate(ROWS_OF_PAGE as usize);
    let next = failures.last().filter(|_| has_more).map(|one| {
        let after = one.number.to_string();
        let query = encoded(&[("text", &text), ("after", &after)]);
        format!("/jobs/{id}/failures?{query}")
    });
    Ok(rendered(&FailuresPage {
        id,
        text,
        failures,
        next,
    })?)
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesPage {
    schedules: Vec<Schedule>,
}

impl SchedulesPage {
    fn section(&self) -> &'static str {
        "/schedules"
    }

    fn title(schedule: &Schedule) -> String {
        name(&schedule.label, &schedule.source)
    }

    fn sentence(schedule: &Schedule) -> String {
        let mut text = format!("{} submitted", schedule.submitted);
        if let Some(at) = schedule.skipped_at {
            let count = schedule.skipped;
            let at = shown(&at);
            text.push_str(&format!(
                "; {count} skipped since the job before had not ended, last at {at}"
            ));
        }
        text
    }
}

/// `GET /schedules`: the newest schedules.
pub(crate) async fn schedules(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Result<Html<String>, PageProblem> {
    let schedules = shared
        .store
        .schedules(user.only(), None, JOBS_SHOWN)
        .await?;
    Ok(rendered(&SchedulesPage { schedules })?)
}

/// `POST /schedules/{id}/delete`: a button.
pub(crate) async fn delete_schedule(
    State(shared): State<Arc<Shared>>,
    path: Result<Parameters<String>, Problem>,
) -> Result<Redirect, PageProblem> {
    let Parameters(id) = path?;
    let id = id.parse::<crate::ScheduleId>()?;
    shared.store.delete_schedule(id).await?;
    Ok(Redirect::to("/schedules"))
}

/// `GET /live`: rows of the list, as they change.
pub(crate) async fn live_jobs(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
) -> Response {
    watch(shared, user, None, |detail| {
        let row = Row {
            job: detail.job.clone(),
        };
        Ok(rendered(&row)?.0)
    })
    .await
}

/// `GET /jobs/{id}`: a job.
pub(crate) async fn job(
    State(shared): State<Arc<Shared>>,
    path: Result<Parameters<String>, Problem>,
) -> Result<Html<String>, PageProblem> {
    let Parameters(id) = path?;
    let detail = shared.job(id.parse::<JobId>()?).await?;
    let body = JobBody { detail };
    Ok(rendered(&JobPage { body })?)
}

/// `GET /jobs/{id}/live`: the page's body, as it changes.
pub(crate) async fn live_job(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    path: Result<Parameters<String>, Problem>,
) -> Result<Response, PageProblem> {
    let Parameters(id) = path?;
    let id = id.parse::<JobId>()?;
    Ok(watch(shared, user, Some(id), |detail| {
        let body = JobBody {
            detail: detail.clone(),
        };
        Ok(rendered(&body)?.0)
    })
    .await)
}

/// `POST /jobs/{id}/{change}`: a button.
pub(crate) async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(user): Extension<User>,
    path: Result<Parameters<(String, String)>, Problem>,
) -> Result<Redirect, PageProblem> {
    let Parameters((id, word)) = path?;
    let id = id.parse::<JobId>()?;
    if word == "delete" {
        delete_job(&shared, id, &Condition::None).await?;
        return Ok(Redirect::to("/"));
    }
    make_change(&shared, &user, id, &word, &Condition::None).await?;
    Ok(Redirect::to(&format!("/jobs/{id}")))
}

/// `GET /page.css`.
pub(crate) async fn style() -> impl IntoResponse {
    let text = include_str!("../assets/page.css");
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], text)
}

/// `GET /icon.svg`.
pub(crate) async fn icon() -> impl IntoResponse {
    let text = include_str!("../assets/icon.svg");
    ([(CONTENT_TYPE, "image/svg+xml")], text)
}

/// `GET /page.js`.
pub(crate) async fn script() -> impl IntoResponse {
    let text = include_str!("../assets/page.js");
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_500), "1.50 kB");
        assert_eq!(size(999_600_000), "1.00 GB");
        let counts = Counts {
            bytes: 500_000,
            bytes_total: Some(1_000_000),
            files: 2,
            failed: 1,
        };
        assert_eq!(done(&counts), "500 kB of 1.00 MB, 2 files, 1 failed");
        assert_eq!(percent(&counts), Some(50));
        assert_eq!(percent(&Counts::default()), None);
        assert_eq!(last_name("xdfs://host/data/runs/"), "runs");
        assert_eq!(last_name("/"), "/");
        assert_eq!(button("pause"), "Pause");
        let times = [59, 60, 3_725, 90_000].map(duration);
        assert_eq!(times, ["59 s", "1 min 0 s", "1 h 2 min", "1 d 1 h"]);
        let time = Time::from_microseconds(1_700_000_000_123_456);
        assert_eq!(shown(&time), "2023-11-14 22:13:20 UTC");
    }
}
