//! The database: what is written is read again, after a restart too.

mod schedules;
mod terms;

use std::time::Duration;

use super::*;
use crate::access::{Scope, Token, TokenRow};
use crate::model::{Counts, JobDetail};
use crate::spec::Submission;
use crate::state::{Actor, Change, State, StateName, WorkerId};
use crate::time::Time;

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .unwrap_or_else(|error| panic!("{error}"))
        .block_on(future)
}

fn submission(label: &str) -> Submission {
    let text = format!(
        r#"{{"version":1,"label":"{label}","transfers":[
        {{"file":{{"source":"/a","target":"xdfs://h/a"}}}},
        {{"file":{{"source":"/b","target":"xdfs://h/b"}}}}]}}"#
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn worker() -> WorkerId {
    WorkerId("w".to_owned())
}

#[test]
fn a_job_goes_through_its_states_and_all_of_it_is_written() {
    run(async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("db");
        let store = Store::open(&path).await?;
        let id = store.submit(&submission("one"), "me", None).await?.id;
        assert_eq!(store.claim(&worker()).await?, Some(id));
        assert_eq!(store.claim(&worker()).await?, None);
        store.begin_transfer(id, 0).await?;
        let counts = Counts {
            bytes: 7,
            bytes_total: Some(9),
            files: 1,
            failed: 0,
        };
        store.progress(id, 0, &counts).await?;
        store.close().await;

        // As after a kill.
        let store = Store::open(&path).await?;
        assert_eq!(store.take_back().await?, 1);
        assert_eq!(store.state(id).await?, State::Queued);
        assert_eq!(store.tasks(id).await?.len(), 2);
        assert_eq!(store.claim(&worker()).await?, Some(id));
        for position in [0, 1] {
            store.begin_transfer(id, position).await?;
            let end = End {
                counts: counts.clone(),
                limited_by: Some("network"),
                failure: None,
                target: None,
                is_listed: false,
            };
            store.end_transfer(id, position, &end).await?;
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
            .jobs(None, Some(StateName::Succeeded), None, 10)
            .await?;
        assert_eq!(listed, [detail.job]);
        assert!(
            store
                .jobs(None, Some(StateName::Failed), None, 10)
                .await?
                .is_empty()
        );
        let text = serde_json::to_string(&store.job(id).await?)?;
        assert_eq!(
            serde_json::from_str::<JobDetail>(&text)?,
            store.job(id).await?
        );
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_postponed_job_is_taken_when_its_time_has_come() {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("db")).await?;
        let id = store.submit(&submission("one"), "me", None).await?.id;
        let actor = Actor::Worker(worker());
        let away = Fault::new(Code::ConnectionRefused, "connect to", "it is down");
        for (at, is_due) in [(i64::MAX, false), (0, true)] {
            assert_eq!(store.claim(&worker()).await?, Some(id));
            let at = Time::from_microseconds(at);
            let change = Change::Postpone(Box::new((&away).into()), at);
            store.change(id, change, &actor, "it is down").await?;
            assert_eq!(store.next_retry().await?, Some(at));
            let shown = store.job(id).await?.job;
            assert_eq!(shown.state, StateName::Retrying);
            assert_eq!(shown.not_before, Some(at));
            assert_eq!(
                shown.failure.map(|failure| failure.code),
                Some("connection-refused".to_owned())
            );
            if !is_due {
                assert_eq!(store.claim(&worker()).await?, None);
                // Somebody doesn't want to wait.
                store.set_retries(id, 7).await?;
                store.change(id, Change::Retry, &actor, "asked for").await?;
                assert_eq!(store.retries(id).await?.count, 0);
            }
        }
        assert_eq!(store.claim(&worker()).await?, Some(id));
        assert_eq!(store.next_retry().await?, None);
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_key_is_for_one_job_of_a_user() {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("db")).await?;
        let key = |digest| Some(Idempotency { key: "k", digest });
        let first = store.submit(&submission("one"), "me", key("1")).await?;
        let again = store.submit(&submission("one"), "me", key("1")).await?;
        assert!(first.is_new && !again.is_new);
        assert_eq!(first.id, again.id);
        let other = store.submit(&submission("two"), "me", key("2")).await;
        assert_eq!(other.map_err(|fault| fault.code), Err(Code::AlreadyExists));
        let theirs = store.submit(&submission("one"), "you", key("1")).await?;
        assert!(theirs.is_new);
        let all = store.jobs(None, None, None, 10).await?;
        assert_eq!(all.len(), 2);
        let older = store.jobs(None, None, Some(all[0].id), 10).await?;
        assert_eq!(older, all[1..]);
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_transaction_that_sqlite_rolls_back_costs_no_later_one() {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("db")).await?;
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
            store.jobs(None, None, None, 100).await?.len(),
            2 * CONNECTIONS_MAX as usize
        );
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_newer_schema_is_refused() {
    run(async {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("db");
        let store = Store::open(&path).await?;
        sqlx::query(
            "INSERT INTO _sqlx_migrations
             (version, description, success, checksum, execution_time)
             VALUES (99, 'later', TRUE, x'00', 0)",
        )
        .execute(&store.pool)
        .await?;
        store.close().await;
        let Err(fault) = Store::open(&path).await else {
            panic!("it was opened");
        };
        assert_eq!(fault.code, Code::Unsupported);
        assert!(fault.cause.contains("99"), "{fault}");
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn sessions_and_tokens_end() {
    run(async {
        let folder = tempfile::tempdir()?;
        let store = Store::open(&folder.path().join("db")).await?;
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
        Ok::<_, Box<dyn std::error::Error>>(())
    })
    .unwrap_or_else(|error| panic!("{error}"));
}
