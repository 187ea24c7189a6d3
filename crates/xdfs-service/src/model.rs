//! Jobs as they are answered: the JSON of the REST interface, which its clients read again.

use serde::{Deserialize, Serialize};
use xdfs::{Code, Fault};

use crate::curve::Curve;
use crate::failure::Failure;
use crate::id::{JobId, ScheduleId};
use crate::listed::{Cursor, JobFile};
use crate::spec::LABEL_MAX;
use crate::state::StateName;
use crate::time::Time;

/// The counts so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Counts {
    /// Bytes of content that have arrived.
    pub bytes: u64,
    /// Bytes of content in all, where that is known.
    pub bytes_total: Option<u64>,
    /// Files that have arrived.
    pub files: u64,
    /// Entries that have failed.
    pub failed: u64,
}

/// Least bytes of a transfer that is large for the scheduler.
const LARGE: u64 = 64 << 20;

impl Counts {
    /// Whether the transfer is known to be large.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes_total.unwrap_or(self.bytes).max(self.bytes) >= LARGE
    }
}

/// The state of a transfer of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TransferState {
    /// It is to be done, from the beginning or from where it stopped.
    Waiting,
    /// A worker is at it.
    Running,
    /// It has succeeded.
    Succeeded,
    /// It has failed for good.
    Failed,
}

impl TransferState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Succeeded, Self::Failed];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A transfer of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Transfer {
    /// Its place in the job, from 0.
    pub position: u32,
    /// `file`, `tree` or `sync`.
    pub kind: String,
    /// The source, for people.
    pub source: String,
    /// The target, for people.
    pub target: String,
    /// Its state.
    pub state: TransferState,
    /// The number of its attempts.
    pub attempts: u32,
    /// The counts so far.
    #[serde(flatten)]
    pub counts: Counts,
    /// Bytes that arrive in a second, while it runs.
    pub rate_bytes_per_s: Option<u64>,
    /// Bytes that arrived in a second over its last attempt, of a single file that has arrived.
    pub mean_rate_bytes_per_s: Option<u64>,
    /// The limit of its rate.
    pub limited_by: Option<String>,
    /// The digest of a single file that has arrived: `crc64nvme:` or `blake3:`, and its value in
    /// hex.
    pub digest: Option<String>,
    /// Why it failed, or, while it runs, why it is tried again.
    pub failure: Option<Failure>,
    /// When it was begun first.
    pub started_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// A change of the state of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Transition {
    /// When.
    pub at: Time,
    /// Who: `user NAME`, `worker NAME` or `service`.
    pub actor: String,
    /// The state before; none of a new job.
    pub from: Option<StateName>,
    /// The state after.
    pub to: StateName,
    /// Why, for people.
    pub reason: String,
}

/// A job without its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobSummary {
    /// Its id.
    pub id: JobId,
    /// Who submitted it.
    pub owner: String,
    /// A line for people; may be empty.
    pub label: String,
    /// The source of its first transfer, for people.
    pub source: String,
    /// The target of its first transfer, for people.
    pub target: String,
    /// The number of its transfers.
    pub transfers_count: u32,
    /// Its state.
    pub state: StateName,
    /// The sums over its transfers; the total is none while that of one is unknown.
    #[serde(flatten)]
    pub counts: Counts,
    /// Why it failed, or, while it is `retrying`, why it is tried again.
    pub failure: Option<Failure>,
    /// When it is tried again, while it is `retrying`.
    pub not_before: Option<Time>,
    /// From -10 to 10: a job of a higher priority is taken first.
    pub priority: i8,
    /// No worker takes it before.
    pub starts_at: Option<Time>,
    /// It fails if it isn't done by then.
    pub deadline: Option<Time>,
    /// The time at which it is deleted, if it has ended before; without one, the service keeps it
    /// as long as all others.
    pub keep_until: Option<Time>,
    /// The schedule that submitted it.
    pub schedule: Option<ScheduleId>,
    /// It keeps a list of its files, and has a manifest when it has succeeded.
    pub manifest: bool,
    /// The number of retries in a row without progress.
    pub retries: u32,
    /// When it was submitted.
    pub submitted_at: Time,
    /// When a worker took it first.
    pub started_at: Option<Time>,
    /// When it ended.
    pub ended_at: Option<Time>,
}

/// An entry of a tree that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EntryFailure {
    /// Its number in the job: a cursor. Later ones are greater.
    pub number: u64,
    /// The place of its transfer in the job, from 0.
    pub position: u32,
    /// Why, with the path.
    #[serde(flatten)]
    pub failure: Failure,
}

/// Entries that failed, in the order in which they did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FailurePage {
    /// The entries.
    pub failures: Vec<EntryFailure>,
    /// The cursor of the page that follows, for `after`; none after the last one.
    pub next: Option<u64>,
}

/// The state of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookState {
    /// The job has not ended.
    Waiting,
    /// It is sent, or tried again later.
    Due,
    /// It has arrived.
    Delivered,
    /// It is not tried again.
    Failed,
}

impl WebhookState {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Due => "due",
            Self::Delivered => "delivered",
            Self::Failed => "failed",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Waiting, Self::Due, Self::Delivered, Self::Failed];
        all.into_iter().find(|state| state.as_str() == name)
    }
}

/// The webhook of a job, which is sent when the job ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Webhook {
    /// Its URL.
    pub url: String,
    /// Its state.
    pub state: WebhookState,
    /// The number of attempts to send it.
    pub attempts: u32,
    /// When it is tried next.
    pub next_attempt_at: Option<Time>,
    /// The time at which it had arrived.
    pub delivered_at: Option<Time>,
    /// Why the last attempt has failed.
    pub failure: Option<Failure>,
}

/// A job with its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobDetail {
    /// The job itself.
    #[serde(flatten)]
    pub job: JobSummary,
    /// Why it waits, for people; none while it doesn't.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// The first hundred transfers, and those that run, in their order. There may be more.
    pub transfers: Vec<Transfer>,
    /// The first hundred entries of trees that failed in the last attempt. There may be more.
    pub failures: Vec<EntryFailure>,
    /// The changes of its state, the oldest first.
    pub transitions: Vec<Transition>,
    /// Its webhook.
    pub webhook: Option<Webhook>,
    /// Its bytes over time, once it has run.
    pub curve: Option<Curve>,
}

/// Transfers of a job, in their order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TransferPage {
    /// The transfers.
    pub transfers: Vec<Transfer>,
    /// The cursor of the page that follows, for `after`; none after the last one.
    pub next: Option<u32>,
}

/// A change of the number of jobs that may run on a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Decision {
    /// When.
    pub at: Time,
    /// Jobs that may run at the same time since then.
    pub jobs_max: u32,
    /// Why, for people.
    pub reason: String,
}

/// The scheduler's knowledge of a link: the pair of servers between which jobs copy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct LinkState {
    /// The server of the sources; empty for the machine of the service.
    pub source: String,
    /// The server of the targets; empty for the machine of the service.
    pub target: String,
    /// Jobs that may run at the same time.
    pub jobs_max: u32,
    /// The rate of all of them together, when it was measured last.
    pub rate_bytes_per_s: Option<u64>,
    /// The limit of the largest transfer that ended of late.
    pub limited_by: Option<String>,
    /// When that ended.
    pub limited_at: Option<Time>,
    /// The last changes of `jobs_max`, the newest first.
    pub decisions: Vec<Decision>,
}

/// A server that is down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServerOutage {
    /// The server, or the two of a copy of which one is down.
    pub server: String,
    /// Tries in a row that failed.
    pub failures: u32,
    /// When one job tries it again.
    pub try_at: Time,
    /// Why it is said to be down.
    pub cause: String,
}

/// The scheduler's knowledge of servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Links {
    /// The links on which something was copied.
    pub links: Vec<LinkState>,
    /// The servers that are down.
    pub outages: Vec<ServerOutage>,
}

/// A page of jobs, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobSummary>,
    /// The cursor of the page that follows, for `after`; none after the last one.
    pub next: Option<JobId>,
}

/// Files of a job: of one with a manifest in the order of their transfers and paths, of others
/// those of its trees, in the order in which they arrived.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct FilePage {
    /// The files.
    pub files: Vec<JobFile>,
    /// The cursor of the page that follows, for `after`; none after the last one.
    #[schema(value_type = Option<String>)]
    pub next: Option<Cursor>,
}

/// A schedule, which submits a job whenever it is due.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// Who made it.
    pub owner: String,
    /// The label of its jobs.
    pub label: String,
    /// The source of their first transfer, for people.
    pub source: String,
    /// The target of their first transfer, for people.
    pub target: String,
    /// The rule of its times.
    pub every: String,
    /// When it was made.
    pub created_at: Time,
    /// When it submits the next job.
    pub next_at: Time,
    /// The last job that it submitted.
    pub last_job: Option<JobId>,
    /// When it did so.
    pub last_at: Option<Time>,
    /// The number of jobs that it has submitted.
    pub submitted: u64,
    /// The number of times that were skipped, since the last job had not ended.
    pub skipped: u64,
    /// The last of these times.
    pub skipped_at: Option<Time>,
    /// Why the last submission was refused.
    pub failure: Option<Failure>,
}

/// A page of schedules, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SchedulePage {
    /// The schedules.
    pub schedules: Vec<Schedule>,
    /// The cursor of the page that follows, for `after`; none after the last one.
    pub next: Option<ScheduleId>,
}

/// Which jobs a list has; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobFilter {
    /// Only jobs of this user.
    pub(crate) owner: Option<String>,
    pub(crate) state: Option<StateName>,
    /// Text in the label, whatever the case of ASCII letters.
    pub(crate) label: Option<String>,
}

impl JobFilter {
    /// The jobs of a user in a state with a text in their label.
    ///
    /// # Errors
    /// No label has the text, since it is too long.
    pub(crate) fn new(
        owner: Option<&str>,
        state: Option<StateName>,
        label: Option<String>,
    ) -> Result<Self, Fault> {
        if label
            .as_ref()
            .is_some_and(|label| label.chars().count() > LABEL_MAX)
        {
            let cause = format!("it has more than {LABEL_MAX} characters");
            return Err(
                Fault::new(Code::InvalidArgument, "use the parameter", cause).path("label"),
            );
        }
        Ok(Self {
            owner: owner.map(str::to_owned),
            state,
            label: label.filter(|label| !label.is_empty()),
        })
    }
}

/// The running transfer of a job, as its worker knows it.
#[derive(Clone, Debug)]
pub(crate) struct LiveTransfer {
    pub(crate) position: u32,
    pub(crate) counts: Counts,
    /// Bytes that arrive in a second.
    pub(crate) rate: Option<u64>,
    /// Why it is tried again.
    pub(crate) failure: Option<Failure>,
}

/// What is known of the totals of a job's transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    /// The sum of those that are known.
    pub(crate) bytes: u64,
    /// Their number.
    pub(crate) count: u32,
}

/// A job as the database has it.
#[derive(Clone, Debug)]
pub(crate) struct StoredJob {
    pub(crate) detail: JobDetail,
    pub(crate) totals: Totals,
}

impl StoredJob {
    /// The job with what is known of its running transfer this moment.
    pub(crate) fn with(self, live: Option<&LiveTransfer>) -> JobDetail {
        let Self {
            mut detail,
            mut totals,
        } = self;
        let transfers = detail.transfers.iter_mut();
        let running = transfers
            .zip(std::iter::repeat(live))
            .filter_map(|(transfer, live)| Some((transfer, live?)))
            .find(|(transfer, live)| {
                transfer.state == TransferState::Running && transfer.position == live.position
            });
        if let Some((transfer, live)) = running {
            let stored = std::mem::replace(&mut transfer.counts, live.counts.clone());
            transfer.rate_bytes_per_s = live.rate;
            transfer.failure = live.failure.clone();
            let sum = |all: u64, before: u64, now: u64| all.saturating_sub(before) + now;
            let (counts, now) = (&mut detail.job.counts, &live.counts);
            counts.bytes = sum(counts.bytes, stored.bytes, now.bytes);
            counts.files = sum(counts.files, stored.files, now.files);
            counts.failed = sum(counts.failed, stored.failed, now.failed);
            let known = |total: Option<u64>| u32::from(total.is_some());
            totals.count += known(now.bytes_total);
            totals.count = totals.count.saturating_sub(known(stored.bytes_total));
            let total = |total: Option<u64>| total.unwrap_or(0);
            let (before, now) = (total(stored.bytes_total), total(now.bytes_total));
            totals.bytes = sum(totals.bytes, before, now);
            let all = totals.count == detail.job.transfers_count;
            counts.bytes_total = all.then_some(totals.bytes);
        }
        detail
    }
}
