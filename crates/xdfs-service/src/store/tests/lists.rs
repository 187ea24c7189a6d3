//! What is asked for often is found by an index, however many jobs there are.

use super::*;
use crate::store::figures::OLDEST;
use crate::store::jobs::list_statement;
use crate::store::scheduling::{HEADS, NEXT_TIME};
use crate::store::terms::{COMMON_TIME, OWN_TIME};

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
