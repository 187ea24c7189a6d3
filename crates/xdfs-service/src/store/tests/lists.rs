//! What is asked for often is found by an index, however many jobs there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::*;
use crate::store::figures::OLDEST;
use crate::store::jobs::list_statement;
use crate::store::scheduling::{DUE, HEADS, LINKS_OF, NEXT_TIME, OUTAGES_OF};
use crate::store::terms::{COMMON_TIME, OWN_TIME};

/// Adds so many jobs like one that waits, without transfers.
pub(super) async fn multiply(store: &Store, id: JobId, jobs: i64) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO jobs (id, owner, label, state, submitted_at, retries, retries_max, starts_at,
         source_server, target_server, queue, is_later)
         WITH RECURSIVE numbers (number) AS (
             SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < $2)
         SELECT '00000000-0000-7000-8000-' || CAST(100000000000 + number AS TEXT), owner, label,
         state, submitted_at, retries, retries_max, starts_at, source_server, target_server, queue,
         is_later FROM jobs, numbers WHERE id = $1",
    )
    .bind(id.to_string())
    .bind(jobs)
    .execute(&store.pool)
    .await?;
    Ok(())
}

/// How SQLite finds the rows of a statement.
async fn plan(store: &Store, statement: &str) -> Result<Vec<String>, sqlx::Error> {
    let statement = format!("EXPLAIN QUERY PLAN {statement}");
    let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
        .fetch_all(&store.pool)
        .await?;
    rows.iter()
        .map(|row| sqlx::Row::try_get(row, "detail"))
        .collect()
}

#[test]
fn what_is_asked_for_often_is_found_by_an_index() {
    on_sqlite("plans", async |place| {
        let store = place.open().await?;
        for number in 0..8 {
            let some = |bit: u32, text: &str| (number & bit != 0).then(|| text.to_owned());
            let filter = JobFilter {
                owner: some(1, "me"),
                state: some(2, "").map(|_| StateName::Queued),
                label: some(4, "run"),
            };
            let plan = plan(&store, &list_statement(&filter)).await?;
            let is_covered = |step: &String| step.contains("USING COVERING INDEX");
            assert!(plan.iter().any(is_covered), "{filter:?}: {plan:#?}");
            assert!(
                !plan.iter().any(|step| step.starts_with("SCAN")),
                "{plan:#?}"
            );
        }
        for (statement, index) in [
            (OWN_TIME.find, "jobs_kept_until"),
            (COMMON_TIME.find, "jobs_to_expire"),
            (OLDEST[0], "jobs_by_time"),
            (OLDEST[1], "jobs_by_time"),
            (NEXT_TIME, "jobs_by_time"),
            (HEADS, "COVERING INDEX jobs_to_claim"),
            (DUE, "jobs_later"),
            (LINKS_OF, "COVERING INDEX jobs_by_servers"),
            (OUTAGES_OF, "COVERING INDEX jobs_by_servers"),
        ] {
            let plan = plan(&store, statement).await?;
            assert!(
                plan.iter().any(|step| step.contains(index)),
                "{statement}: {plan:#?}"
            );
            let scans_jobs = |step: &String| step == "SCAN jobs" || step == "SCAN heads";
            assert!(!plan.iter().any(scans_jobs), "{statement}: {plan:#?}");
        }
        Ok(())
    });
}

/// The steps of SQLite's machine that a statement takes with a time.
async fn steps(place: &Place, statement: &'static str, time: Time) -> Result<u64, Box<dyn Error>> {
    let Place::File(folder) = place else {
        return Err("it is SQLite".into());
    };
    let options = SqliteConnectOptions::new().filename(folder.path().join("a?b %c#"));
    let mut connection = options.connect().await?;
    let steps = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&steps);
    connection
        .lock_handle()
        .await?
        .set_progress_handler(1, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        });
    let query = sqlx::query(statement).bind(time.microseconds()).bind(1_i64);
    query.fetch_all(&mut connection).await?;
    Ok(steps.load(Ordering::Relaxed))
}

#[test]
fn a_claim_passes_over_none_of_100_000_jobs_that_are_to_start_later() {
    on_sqlite("later", async |place| {
        let store = place.open().await?;
        let mut later = submission("later");
        later.starts_at = Some(Moment::After(Duration::from_secs(3600)));
        let later = store.submit(&later, "me", None).await?.id;
        let due = store.submit(&submission("now"), "me", None).await?.id;
        let now = Time::now();
        let mut alone = Vec::new();
        for statement in [DUE, HEADS] {
            alone.push(steps(place, statement, now).await?);
        }
        multiply(&store, later, 100_000).await?;
        for (statement, alone) in [DUE, HEADS].into_iter().zip(alone) {
            let steps = steps(place, statement, now).await?;
            // One for each job would be 100,000 more.
            assert!(
                0 < alone && steps < alone + 100,
                "{steps}, {alone}: {statement}"
            );
        }
        assert_eq!(claim(&store).await?, Some(due));
        Ok(())
    });
}
