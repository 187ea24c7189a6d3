//! Turns of SQLite, which are committed together.

use tokio::task::yield_now;

use super::*;
use crate::store::writing::{Length, Transaction};

async fn labels(store: &Store) -> Result<Vec<String>, Fault> {
    let jobs = store.jobs(&JobFilter::default(), None, 100).await?;
    let mut labels: Vec<_> = jobs.into_iter().map(|job| job.label).collect();
    labels.sort();
    Ok(labels)
}

async fn name(transaction: &mut Transaction, from: &str, to: &str) -> Result<(), sqlx::Error> {
    let named = sqlx::query("UPDATE jobs SET label = $2 WHERE label = $1")
        .bind(from.to_owned())
        .bind(to.to_owned())
        .execute(&mut **transaction)
        .await?;
    assert_eq!(named.rows_affected(), 1);
    Ok(())
}

#[test]
fn a_turn_ends_with_the_commit_and_one_that_is_undone_undoes_no_other() {
    on_sqlite("turns", async |place| {
        let store = place.open().await?;
        for label in ["a", "b"] {
            store.submit(&submission(label), "me", None).await?;
        }
        let mut first = store.begin().await?;
        name(&mut first, "a", "a1").await?;
        let first = tokio::spawn(first.commit());
        // It comes before the commit, and sees what is to be committed.
        let mut second = store.begin().await?;
        name(&mut second, "a1", "a2").await?;
        yield_now().await;
        assert!(!first.is_finished());
        assert_eq!(labels(&store).await?, ["a", "b"]);
        drop(second);
        first.await??;
        assert_eq!(labels(&store).await?, ["a1", "b"]);

        // SQLite rolls back all of it by itself, as on a full disk.
        let mut first = store.begin().await?;
        name(&mut first, "a1", "a2").await?;
        let first = tokio::spawn(first.commit());
        let mut second = store.begin().await?;
        name(&mut second, "b", "b1").await?;
        sqlx::query("ROLLBACK").execute(&mut *second).await?;
        assert!(second.commit().await.is_err());
        let failed = first.await?;
        assert!(failed.is_err_and(|fault| fault.retry != Retry::Never));
        assert_eq!(labels(&store).await?, ["a1", "b"]);

        // A long one doesn't delay the commit of those before it.
        let mut first = store.begin().await?;
        name(&mut first, "a1", "a2").await?;
        let first = tokio::spawn(first.commit());
        let long = store.begin_of(Length::Long).await?;
        first.await??;
        assert_eq!(labels(&store).await?, ["a2", "b"]);
        drop(long);
        Ok(())
    });
}

#[test]
fn of_many_that_come_at_once_and_may_give_up_those_that_say_so_are_stored() {
    on_sqlite("many", async |place| {
        let store = place.open().await?;
        let mut tasks = Vec::new();
        for number in 0..200_usize {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let submit = submission(&format!("{number:03}"));
                store.submit(&submit, "me", None).await
            }));
        }
        // Each at another step.
        for step in 0..100 {
            yield_now().await;
            tasks[step * 2].abort();
        }
        let mut said = Vec::new();
        for (number, task) in tasks.into_iter().enumerate() {
            match task.await {
                Ok(submitted) => {
                    submitted?;
                    said.push(format!("{number:03}"));
                }
                Err(error) => assert!(error.is_cancelled() && number % 2 == 0),
            }
        }
        let jobs = store.jobs(&JobFilter::default(), None, 1000).await?;
        let stored: BTreeSet<_> = jobs.iter().map(|job| job.label.clone()).collect();
        assert_eq!(stored.len(), jobs.len());
        assert!(said.len() >= 100 && said.iter().all(|label| stored.contains(label)));
        // It may still write.
        store.submit(&submission("last"), "me", None).await?;
        Ok(())
    });
}
