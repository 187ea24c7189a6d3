//! The database: what is written is read again, after a restart too. Each test runs on SQLite, and
//! on PostgreSQL where it is installed.

mod lists;
mod manifests;
mod schedules;
mod terms;
mod writing;

use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;

use tempfile::TempDir;
use xdfs_testkit::postgres::Postgres;
use xdfs_testkit::skip;

use self::manifests::*;
use self::schedules::*;
use self::terms::*;
use super::open::CONNECTIONS_MAX;
use super::*;
use crate::access::record::{Scope, Token, TokenRow};
use crate::database::DatabaseUrl;
use crate::id::JobId;
use crate::model::{Counts, JobDetail, JobFilter, LiveTransfer};
use crate::scheduler::{Limits, Link};
use crate::spec::{JobSettings, Submission};
use crate::state::{Actor, Change, ProcessId, State, StateName, WorkerId};
use crate::time::{Moment, Time};

type Outcome = Result<(), Box<dyn Error>>;

/// A database of a test, which can be opened again.
enum Place {
    File(TempDir),
    Shared(DatabaseUrl),
}

impl Place {
    async fn open(&self) -> Result<Store, Fault> {
        match self {
            Self::File(folder) => Store::open(&folder.path().join("a?b %c#")).await,
            Self::Shared(url) => Store::open_shared(url).await,
        }
    }
}

fn run(name: &str, test: impl Future<Output = Outcome>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    runtime
        .block_on(test)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn on_sqlite(name: &str, test: impl AsyncFn(&Place) -> Outcome) {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    run(name, test(&Place::File(folder)));
}

macro_rules! on_both {
    ($($test:ident,)*) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                super::on_sqlite(stringify!($test), super::$test);
            })*
        }

        #[test]
        fn postgresql_does_the_same() {
            let server = Postgres::start().unwrap_or_else(|error| panic!("{error}"));
            let Some(server) = server else {
                return skip::test("PostgreSQL isn't installed");
            };
            let mut number = 0;
            $({
                number += 1;
                let url = server.create(&format!("test{number}"));
                let url = url.unwrap_or_else(|error| panic!("{error}"));
                let url = url.parse().unwrap_or_else(|fault| panic!("{fault}"));
                run(stringify!($test), $test(&Place::Shared(url)));
            })*
        }
    };
}

on_both!(
    a_job_goes_through_its_states_and_all_of_it_is_written,
    a_postponed_job_is_taken_when_its_time_has_come,
    a_key_is_for_one_job_of_a_user,
    a_newer_schema_is_refused,
    a_process_without_a_lease_writes_nothing_more,
    a_job_is_claimed_once,
    a_claim_that_nobody_knows_of_is_given_back,
    users_take_turns_and_a_server_that_is_down_is_tried_once,
    of_many_jobs_only_the_first_of_each_queue_are_looked_at,
    jobs_are_claimed_when_their_time_has_come_however_many_there_are,
    jobs_before_one_that_waits_are_counted_up_to_a_bound,
    sessions_and_tokens_end,
    the_sums_of_a_job_follow_its_transfers,
    labels_are_searched_for_what_they_contain,
    the_oldest_job_of_the_highest_priority_that_may_start_is_taken,
    overdue_jobs_are_those_that_have_not_ended_by_their_deadline,
    ended_jobs_are_deleted_when_their_time_is_over_in_steps_of_bounded_size,
    a_schedule_submits_a_job_each_time_unless_the_last_has_not_ended,
    a_clock_that_jumps_stops_no_schedule,
    a_schedule_whose_job_is_refused_says_why_and_goes_on,
    a_key_is_for_one_schedule_and_a_schedule_for_durations,
    a_list_has_what_was_seen_last_and_a_kill_loses_its_trust,
    files_of_a_job_without_a_list_are_read_page_by_page,
    a_webhook_is_due_once_when_its_job_ends,
);

#[test]
fn sqlite_may_roll_back_by_itself() {
    on_sqlite(
        "roll back",
        a_transaction_that_sqlite_rolls_back_costs_no_later_one,
    );
}

fn submission(label: &str) -> Submission {
    let text = format!(
        r#"{{"version":1,"label":"{label}","transfers":[
        {{"file":{{"source":"/a","target":"xdfs://h/a"}}}},
        {{"file":{{"source":"/b","target":"xdfs://h/b"}}}}]}}"#
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn in_state(state: StateName) -> JobFilter {
    JobFilter {
        state: Some(state),
        ..JobFilter::default()
    }
}

const LEASE: Duration = Duration::from_secs(600);

fn process() -> ProcessId {
    ProcessId("p".to_owned())
}

fn worker() -> WorkerId {
    process().worker(1)
}

const LIMITS: Limits = Limits {
    here: 1,
    all: 1000,
    user: 1000,
    link: 1000,
};

/// Gives a job to the first worker of a process, which has none.
async fn claim_of(store: &Store, process: &ProcessId) -> Result<Option<JobId>, Fault> {
    Ok(claim_up_to(store, process, 1).await?.pop())
}

/// Gives jobs to a process, so that it has up to so many.
async fn claim_up_to(store: &Store, process: &ProcessId, here: u32) -> Result<Vec<JobId>, Fault> {
    // Their servers are known to take many.
    sqlx::query(
        "INSERT INTO links (source_server, target_server, jobs, pause_until, vain, bytes,
         measured_at) SELECT DISTINCT source_server, target_server, 1000, 0, 0, 0, 0 FROM jobs
         WHERE TRUE ON CONFLICT DO NOTHING",
    )
    .execute(&store.pool)
    .await
    .map_err(fault)?;
    let limits = Limits { here, ..LIMITS };
    let (claimed, _) = store.claim(process, limits, &mut 0).await?;
    Ok(claimed.into_iter().map(|one| one.id).collect())
}

async fn claim(store: &Store) -> Result<Option<JobId>, Fault> {
    claim_of(store, &process()).await
}

async fn a_job_goes_through_its_states_and_all_of_it_is_written(place: &Place) -> Outcome {
    let store = place.open().await?;
    let id = store.submit(&submission("one"), "me", None).await?.id;
    assert_eq!(claim(&store).await?, Some(id));
    assert_eq!(claim(&store).await?, None);
    store.begin_transfer(id, &worker(), 0).await?;
    let counts = Counts {
        bytes: 7,
        bytes_total: Some(9),
        files: 1,
        failed: 0,
    };
    store.progress(id, &worker(), 0, &counts).await?;
    store.close().await;

    // As after a kill.
    let store = place.open().await?;
    let next = ProcessId::new()?;
    store.register(&next, LEASE).await?;
    store.unregister(&process()).await?;
    assert_eq!(store.take_over().await?, [id]);
    assert!(store.take_over().await?.is_empty());
    assert_eq!(store.state(id).await?, State::Queued);
    assert_eq!(store.tasks(id, None).await?.len(), 2);
    assert_eq!(claim(&store).await?, Some(id));
    for position in [0, 1] {
        store.begin_transfer(id, &worker(), position).await?;
        let end = End {
            counts: counts.clone(),
            limited_by: Some("network"),
            ..End::default()
        };
        store.end_transfer(id, &worker(), position, &end).await?;
    }
    assert!(store.first_failure(id).await?.is_none());
    let actor = Actor::Worker(worker());
    store
        .change(id, Change::Succeed, &actor, "all is done")
        .await?;
    let detail = store.job(id).await?;
    assert_eq!(detail.job.state, StateName::Succeeded);
    assert_eq!(detail.job.counts.bytes, 14);
    assert_eq!(detail.job.counts.bytes_total, Some(18));
    assert_eq!(detail.transfers[0].attempts, 2);
    let names: Vec<_> = detail
        .transitions
        .iter()
        .map(|one| one.to.as_str())
        .collect();
    assert_eq!(
        names,
        ["queued", "running", "queued", "running", "succeeded"]
    );
    let listed = store
        .jobs(&in_state(StateName::Succeeded), None, 10)
        .await?;
    assert_eq!(listed, [detail.job]);
    assert!(
        store
            .jobs(&in_state(StateName::Failed), None, 10)
            .await?
            .is_empty()
    );
    let text = serde_json::to_string(&store.job(id).await?)?;
    assert_eq!(
        serde_json::from_str::<JobDetail>(&text)?,
        store.job(id).await?
    );
    Ok(())
}

async fn a_postponed_job_is_taken_when_its_time_has_come(place: &Place) -> Outcome {
    let store = place.open().await?;
    let id = store.submit(&submission("one"), "me", None).await?.id;
    let actor = Actor::Worker(worker());
    let away = Fault::new(Code::ConnectionRefused, "connect to", "it is down");
    for (at, is_due) in [(i64::MAX, false), (0, true)] {
        assert_eq!(claim(&store).await?, Some(id));
        let at = Time::from_microseconds(at);
        store.set_retries(id, &worker(), 7).await?;
        let change = Change::Postpone(Box::new((&away).into()), at);
        store.change(id, change, &actor, "it is down").await?;
        assert_eq!(store.next_time(Time::now()).await?, (!is_due).then_some(at));
        let shown = store.job(id).await?.job;
        assert_eq!(shown.state, StateName::Retrying);
        assert_eq!(shown.not_before, Some(at));
        assert_eq!(
            shown.failure.map(|failure| failure.code),
            Some("connection-refused".to_owned())
        );
        if !is_due {
            assert_eq!(claim(&store).await?, None);
            // Somebody doesn't want to wait.
            store.change(id, Change::Retry, &actor, "asked for").await?;
            assert_eq!(store.job(id).await?.job.retries, 0);
        }
    }
    assert_eq!(claim(&store).await?, Some(id));
    assert_eq!(store.next_time(Time::now()).await?, None);
    Ok(())
}

async fn a_key_is_for_one_job_of_a_user(place: &Place) -> Outcome {
    let store = place.open().await?;
    let key = |digest| Some(Idempotency { key: "k", digest });
    let first = store.submit(&submission("one"), "me", key("1")).await?;
    let again = store.submit(&submission("one"), "me", key("1")).await?;
    assert!(first.is_new && !again.is_new);
    assert_eq!(first.id, again.id);
    let other = store.submit(&submission("two"), "me", key("2")).await;
    assert_eq!(other.map_err(|fault| fault.code), Err(Code::AlreadyExists));
    let theirs = store.submit(&submission("one"), "you", key("1")).await?;
    assert!(theirs.is_new);
    let all = store.jobs(&JobFilter::default(), None, 10).await?;
    assert_eq!(all.len(), 2);
    let older = store
        .jobs(&JobFilter::default(), Some(all[0].id), 10)
        .await?;
    assert_eq!(older, all[1..]);
    Ok(())
}

async fn a_transaction_that_sqlite_rolls_back_costs_no_later_one(place: &Place) -> Outcome {
    let store = place.open().await?;
    for number in 0..2 * CONNECTIONS_MAX {
        let mut transaction = store.begin().await?;
        // As a full disk does it, beneath the transaction.
        sqlx::query("ROLLBACK").execute(&mut *transaction).await?;
        assert!(transaction.commit().await.is_err());
        store
            .submit(&submission(&number.to_string()), "me", None)
            .await?;
    }
    assert_eq!(
        store.jobs(&JobFilter::default(), None, 100).await?.len(),
        2 * CONNECTIONS_MAX as usize
    );
    Ok(())
}

async fn a_newer_schema_is_refused(place: &Place) -> Outcome {
    let store = place.open().await?;
    sqlx::query(
        "INSERT INTO _sqlx_migrations
             (version, description, success, checksum, execution_time)
             VALUES (99, 'later', TRUE, $1, 0)",
    )
    .bind(vec![0_u8])
    .execute(&store.pool)
    .await?;
    store.close().await;
    let Err(fault) = place.open().await else {
        panic!("it was opened");
    };
    assert_eq!(fault.code, Code::Unsupported);
    assert!(fault.cause.contains("99"), "{fault}");
    Ok(())
}

async fn a_process_without_a_lease_writes_nothing_more(place: &Place) -> Outcome {
    let store = place.open().await?;
    let id = store.submit(&submission("one"), "me", None).await?.id;
    store.register(&process(), Duration::ZERO).await?;
    assert_eq!(claim(&store).await?, Some(id));
    store.begin_transfer(id, &worker(), 0).await?;
    let next = ProcessId("q".to_owned());
    store.register(&next, LEASE).await?;
    assert_eq!(store.take_over().await?, [id]);
    assert!(store.take_over().await?.is_empty());
    assert!(!store.renew(&process(), LEASE).await?);
    assert!(store.renew(&next, LEASE).await?);
    assert_eq!(store.state(id).await?, State::Queued);

    let counts = Counts::default();
    let end = End {
        counts: counts.clone(),
        ..End::default()
    };
    for is_taken in [false, true] {
        if is_taken {
            assert_eq!(claim_of(&store, &next).await?, Some(id));
            assert_eq!(store.running_elsewhere(&process()).await?, [id]);
        }
        let before = store.job(id).await?;
        let old = &worker();
        for written in [
            store.begin_transfer(id, old, 0).await,
            store.progress(id, old, 0, &counts).await,
            store.add_failures(id, old, 0, &[]).await,
            store.postpone_transfer(id, old, 0, &counts).await,
            store.end_transfer(id, old, 0, &end).await,
            store.set_retries(id, old, 3).await,
        ] {
            assert_eq!(written.map_err(|fault| fault.code), Err(Code::LockLost));
        }
        let actor = Actor::Worker(old.clone());
        for change in [Change::Succeed, Change::Stopped] {
            let changed = store.change(id, change, &actor, "it is late").await;
            let expected = match is_taken {
                true => Code::LockLost,
                false => Code::Stale,
            };
            assert_eq!(changed.map_err(|fault| fault.code), Err(expected));
        }
        assert_eq!(store.job(id).await?, before);
    }
    let asked = Actor::User("me".to_owned());
    store.change(id, Change::Pause, &asked, "asked for").await?;
    assert_eq!(store.stopping(&next).await?, [id]);
    assert!(store.stopping(&process()).await?.is_empty());
    Ok(())
}

async fn a_job_is_claimed_once(place: &Place) -> Outcome {
    const COUNT: usize = 12;
    let stores = [place.open().await?, place.open().await?];
    for number in 0..COUNT {
        let submitted = submission(&number.to_string());
        stores[0].submit(&submitted, "me", None).await?;
    }
    let mut claims = tokio::task::JoinSet::new();
    for (number, store) in (0..).zip(stores.iter().cycle()).take(COUNT) {
        let store = store.clone();
        claims.spawn(async move {
            let process = ProcessId(number.to_string());
            let claimed = claim_of(&store, &process).await;
            let claimed = claimed.unwrap_or_else(|fault| panic!("{fault}"));
            claimed.unwrap_or_else(|| panic!("there are as many jobs as processes"))
        });
    }
    let claimed = claims.join_all().await;
    assert_eq!(claimed.len(), COUNT);
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>().len(), COUNT);
    Ok(())
}

async fn a_claim_that_nobody_knows_of_is_given_back(place: &Place) -> Outcome {
    let store = place.open().await?;
    store.register(&process(), LEASE).await?;
    let first = store.submit(&submission("one"), "me", None).await?.id;
    let second = store.submit(&submission("two"), "me", None).await?.id;
    assert_eq!(claim_up_to(&store, &process(), 2).await?.len(), 2);
    store.give_back(&process(), &[second]).await?;
    assert_eq!(store.state(first).await?, State::Queued);
    assert_eq!(store.state(second).await?.name(), StateName::Running);
    Ok(())
}

async fn sessions_and_tokens_end(place: &Place) -> Outcome {
    let store = place.open().await?;
    let hour = Duration::from_secs(3600);
    let (past, future) = (Time::from_microseconds(1), Time::now().after(hour));
    let session = Session {
        owner: "me".to_owned(),
        password_version: Some("1".to_owned()),
    };
    store.add_session("old", &session, past).await?;
    store.add_session("new", &session, future).await?;
    assert_eq!(store.session("old").await?, None);
    assert_eq!(store.session("new").await?, Some(session.clone()));
    // More of them end the oldest ones.
    for number in 0..200 {
        let later = future.after(Duration::from_secs(number));
        store
            .add_session(&number.to_string(), &session, later)
            .await?;
    }
    assert_eq!(store.session("new").await?, None);
    assert_eq!(store.session("99").await?, None);
    assert!(store.session("100").await?.is_some());
    store.end_session("100").await?;
    assert_eq!(store.session("100").await?, None);

    let token = |id: &str, ends_at| TokenRow {
        digest: "0".to_owned(),
        info: Token {
            id: id.to_owned(),
            owner: "me".to_owned(),
            label: String::new(),
            scope: Scope::Read,
            created_at: past,
            ends_at,
        },
    };
    store.add_token(&token("old", past)).await?;
    assert!(store.token("old").await?.is_none());
    assert_eq!(store.tokens(None).await?, []);
    for number in 0..200 {
        store.add_token(&token(&number.to_string(), future)).await?;
    }
    assert!(store.token("0").await?.is_some());
    let full = store.add_token(&token("more", future)).await;
    assert_eq!(
        full.err().map(|fault| fault.code),
        Some(Code::LimitExceeded)
    );
    assert!(store.revoke_token("0", Some("you")).await.is_err());
    store.revoke_token("0", Some("me")).await?;
    assert!(store.token("0").await?.is_none());
    Ok(())
}

async fn the_sums_of_a_job_follow_its_transfers(place: &Place) -> Outcome {
    let store = place.open().await?;
    let id = store.submit(&submission("one"), "me", None).await?.id;
    let counts = |bytes, bytes_total, failed| Counts {
        bytes,
        bytes_total,
        files: bytes / 2,
        failed,
    };
    let job = async |live: Option<&LiveTransfer>| {
        let stored = store.stored_job(id).await?;
        Ok::<_, Fault>(stored.with(live).job)
    };
    let first = job(None).await?;
    assert_eq!((first.source.as_str(), first.transfers_count), ("/a", 2));
    assert_eq!(first.counts, counts(0, None, 0));
    claim(&store).await?;
    store.begin_transfer(id, &worker(), 0).await?;
    store
        .progress(id, &worker(), 0, &counts(4, Some(10), 1))
        .await?;
    assert_eq!(job(None).await?.counts, counts(4, None, 1));
    store
        .progress(id, &worker(), 0, &counts(6, None, 2))
        .await?;
    assert_eq!(job(None).await?.counts, counts(6, None, 2));
    store
        .progress(id, &worker(), 0, &counts(10, Some(10), 3))
        .await?;
    let fault = Fault::new(Code::NoSpace, "write", "the disk is full");
    let end = End {
        counts: counts(8, Some(10), 3),
        failure: Some((&fault).into()),
        ..End::default()
    };
    store.end_transfer(id, &worker(), 0, &end).await?;
    store.begin_transfer(id, &worker(), 1).await?;
    // What is known this moment takes the place of what is stored.
    let live = LiveTransfer {
        position: 1,
        counts: counts(2, Some(20), 0),
        rate: Some(7),
        failure: None,
    };
    assert_eq!(job(Some(&live)).await?.counts, counts(10, Some(30), 3));
    store
        .progress(id, &worker(), 1, &counts(2, Some(20), 0))
        .await?;
    assert_eq!(job(None).await?.counts, counts(10, Some(30), 3));
    // A retry forgets what has failed.
    let actor = Actor::Worker(worker());
    let failed = Change::Fail(Box::new((&fault).into()));
    store.change(id, failed, &actor, "failed").await?;
    store.change(id, Change::Retry, &actor, "asked for").await?;
    assert_eq!(job(None).await?.counts, counts(10, Some(30), 0));
    let listed = store.jobs(&JobFilter::default(), None, 1).await?;
    assert_eq!(listed, [job(None).await?]);
    Ok(())
}

async fn labels_are_searched_for_what_they_contain(place: &Place) -> Outcome {
    let store = place.open().await?;
    for label in ["Results of May", "100% of it", "a_b", "ab"] {
        store.submit(&submission(label), "me", None).await?;
    }
    for (text, expected) in [
        ("results", 1),
        ("OF", 2),
        ("%", 1),
        ("_", 1),
        ("b", 2),
        ("' OR '1' = '1", 0),
    ] {
        let filter = JobFilter::new(None, None, Some(text.to_owned()))?;
        let found = store.jobs(&filter, None, 10).await?;
        assert_eq!(found.len(), expected, "{text}");
        let filter = JobFilter {
            state: Some(StateName::Failed),
            ..filter
        };
        assert!(store.jobs(&filter, None, 10).await?.is_empty());
    }
    Ok(())
}

async fn users_take_turns_and_a_server_that_is_down_is_tried_once(place: &Place) -> Outcome {
    let store = place.open().await?;
    let mut all = Vec::new();
    for number in 0..30 {
        // Most are of one who came first.
        let owner = if number < 28 { "ann" } else { "bob" };
        let submitted = submission(&number.to_string());
        all.push(store.submit(&submitted, owner, None).await?.id);
    }
    let taken = claim_up_to(&store, &process(), 4).await?;
    let mut owners = Vec::new();
    for id in &taken {
        owners.push(store.job(*id).await?.job.owner);
    }
    owners.sort();
    assert_eq!(owners, ["ann", "ann", "bob", "bob"]);
    let limits = Limits { here: 4, ..LIMITS };
    let waits = store.waits_for(&process(), limits, all[10]).await?;
    let reason = waits.ok_or("it waits")?;
    assert!(
        reason.contains("which is the limit") && reason.contains(" jobs of ann"),
        "{reason}"
    );
    assert_eq!(store.waits_for(&process(), LIMITS, taken[0]).await?, None);

    // All of them find that the server is down, which is one failure.
    let link = Link {
        source: String::new(),
        target: store.links(None).await?[0].target.clone(),
    };
    for id in &taken {
        store.note_outage(&link, "it refuses").await?;
        let away = Fault::new(Code::ConnectionRefused, "connect to", "it is down");
        let change = Change::Postpone(Box::new((&away).into()), Time::from_microseconds(0));
        store
            .change(*id, change, &Actor::Service, "it is down")
            .await?;
    }
    let outages = store.outages(None).await?;
    assert_eq!(outages.len(), 1);
    assert_eq!((&outages[0].server, outages[0].failures), (&link.target, 1));
    // A user sees those of own jobs.
    for (user, seen) in [("ann", 1), ("bob", 1), ("eve", 0)] {
        assert_eq!(store.links(Some(user)).await?.len(), seen, "{user}");
        assert_eq!(store.outages(Some(user)).await?.len(), seen, "{user}");
    }
    assert!(claim_up_to(&store, &process(), 4).await?.is_empty());
    let waits = store.waits_for(&process(), LIMITS, all[10]).await?;
    assert!(waits.is_some_and(|reason| reason.contains("it refuses")));
    // Its pause is over.
    sqlx::query("UPDATE outages SET try_at = 0")
        .execute(&store.pool)
        .await?;
    assert_eq!(claim_up_to(&store, &process(), 4).await?.len(), 1);
    assert!(claim_up_to(&store, &process(), 4).await?.is_empty());
    store.end_outage(&link).await?;
    assert_eq!(claim_up_to(&store, &process(), 4).await?.len(), 3);
    Ok(())
}

async fn of_many_jobs_only_the_first_of_each_queue_are_looked_at(place: &Place) -> Outcome {
    let store = place.open().await?;
    let first = store.submit(&submission("first"), "ann", None).await?.id;
    for number in 0..40 {
        store
            .submit(&submission(&number.to_string()), "ann", None)
            .await?;
    }
    let urgent = store.submit(&submission("urgent"), "ann", None).await?.id;
    let settings = JobSettings {
        priority: Some(5),
        ..JobSettings::default()
    };
    let actor = Actor::User("ann".to_owned());
    store.set(urgent, &settings, &actor, |_| true).await?;
    let taken = claim_up_to(&store, &process(), 100).await?;
    assert_eq!(
        (taken.len(), taken[0], taken.contains(&first)),
        (16, urgent, true)
    );
    assert_eq!(claim_up_to(&store, &process(), 100).await?.len(), 16);
    Ok(())
}

async fn jobs_are_claimed_when_their_time_has_come_however_many_there_are(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let mut all = Vec::new();
    for priority in 0..10_i8 {
        let mut later = submission("later");
        later.starts_at = Some(Moment::After(Duration::from_secs(3600)));
        later.priority = priority;
        all.push(store.submit(&later, "ann", None).await?.id);
    }
    lists::multiply(&store, all[0], 3000).await?;
    assert_eq!(claim(&store).await?, None);
    let last = store.submit(&submission("now"), "ann", None).await?.id;
    let limits = Limits { here: 0, ..LIMITS };
    let reason = store.waits_for(&process(), limits, last).await?;
    let reason = reason.ok_or("it waits")?;
    assert!(!reason.contains("come before it"), "{reason}");
    assert_eq!(claim_up_to(&store, &process(), 5).await?, [last]);

    // More than are looked at in one step, and the most urgent of them the last.
    sqlx::query("UPDATE jobs SET starts_at = 1 + priority WHERE starts_at IS NOT NULL")
        .execute(&store.pool)
        .await?;
    all.reverse();
    assert_eq!(claim_up_to(&store, &process(), 5).await?, all[..4]);

    // One that is to start later again, as after a failure.
    let away = Fault::new(Code::ConnectionRefused, "connect to", "it is down");
    let change = Change::Postpone(Box::new((&away).into()), Time::from_microseconds(i64::MAX));
    store
        .change(all[0], change, &Actor::Service, "it is down")
        .await?;
    assert_eq!(claim_up_to(&store, &process(), 5).await?, [all[4]]);
    store
        .change(all[0], Change::Retry, &Actor::Service, "")
        .await?;
    assert_eq!(claim_up_to(&store, &process(), 6).await?, [all[0]]);
    Ok(())
}

async fn jobs_before_one_that_waits_are_counted_up_to_a_bound(place: &Place) -> Outcome {
    let store = place.open().await?;
    let running = store.submit(&submission("running"), "ann", None).await?.id;
    assert_eq!(claim(&store).await?, Some(running));
    let last = store.submit(&submission("last"), "ann", None).await?.id;
    let mut later = submission("later");
    later.starts_at = Some(Moment::After(Duration::from_secs(3600)));
    let later = store.submit(&later, "ann", None).await?.id;
    let reason = async |id| {
        let waits = store.waits_for(&process(), LIMITS, id).await?;
        waits.ok_or_else(|| odd("it waits"))
    };
    let alone = reason(last).await?;
    assert!(alone.ends_with("which is the limit"), "{alone}");
    for (more, count) in [(3, "3 jobs of ann"), (1200, "1000 or more jobs of ann")] {
        sqlx::query(
            "INSERT INTO jobs (id, owner, label, state, submitted_at, retries, retries_max,
             source_server, target_server, queue)
             WITH RECURSIVE numbers (number) AS (
                 SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < $2)
             SELECT '00000000-0000-7000-8000-' || CAST(100000000000 + number AS TEXT), owner,
             label, state, submitted_at, retries, retries_max, source_server, target_server, queue
             FROM jobs, numbers WHERE id = $1 ON CONFLICT DO NOTHING",
        )
        .bind(last.to_string())
        .bind(more)
        .execute(&store.pool)
        .await?;
        let waits = reason(last).await?;
        assert!(waits.contains(&format!("; {count} on ")), "{waits}");
    }
    // They don't matter to one that has a time.
    let waits = reason(later).await?;
    assert!(waits.starts_with("it is not to start before"), "{waits}");
    Ok(())
}

#[cfg(unix)]
#[test]
fn a_backup_is_a_whole_database_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    on_sqlite("back up", async |place| {
        let store = place.open().await?;
        let id = store.submit(&submission("one"), "me", None).await?.id;
        let Place::File(folder) = place else {
            return Err("it is SQLite".into());
        };
        let (database, copy) = (folder.path().join("a?b %c#"), folder.path().join("copy"));
        // It is used meanwhile.
        let mut writing = store.begin().await?;
        sqlx::query("UPDATE jobs SET label = 'later'")
            .execute(&mut *writing)
            .await?;
        backup(&database, &copy).await?;
        writing.commit().await?;
        assert_eq!(
            std::fs::metadata(&copy)?.permissions().mode() & 0o777,
            0o600
        );
        let copied = Store::open(&copy).await?;
        assert_eq!(copied.job(id).await?.job.label, "one");
        let again = backup(&database, &copy).await;
        assert_eq!(again.map_err(|fault| fault.code), Err(Code::AlreadyExists));
        let none = backup(&folder.path().join("none"), &folder.path().join("other")).await;
        assert_eq!(none.map_err(|fault| fault.code), Err(Code::NotFound));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder.path())? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        assert!(
            names.iter().all(|name| !name.contains("unfinished")),
            "{names:?}"
        );
        Ok(())
    });
}
