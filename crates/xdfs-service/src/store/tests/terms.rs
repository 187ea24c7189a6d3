//! Priorities, deadlines and lifetimes.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn me() -> Actor {
    Actor::User("me".to_owned())
}

pub(super) async fn the_oldest_job_of_the_highest_priority_that_may_start_is_taken(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let mut ids = Vec::new();
    for (priority, starts_in) in [(0, None), (5, Some(HOUR)), (-1, None), (0, None)] {
        let mut submission = submission("");
        submission.priority = priority;
        submission.starts_at = starts_in.map(Moment::After);
        ids.push(store.submit(&submission, "me", None).await?.id);
    }
    let due = store.next_time(Time::now()).await?;
    assert_eq!(due, store.job(ids[1]).await?.job.starts_at);
    let settings = JobSettings {
        priority: Some(10),
        ..JobSettings::default()
    };
    store.set(ids[2], &settings, &me(), |_| true).await?;
    let taken = claim_up_to(&store, &process(), 10).await?;
    assert_eq!(taken, [ids[2], ids[0], ids[3]]);
    Ok(())
}

pub(super) async fn overdue_jobs_are_those_that_have_not_ended_by_their_deadline(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let mut with_deadline = submission("");
    with_deadline.deadline = Some(Moment::After(HOUR));
    let taken = store.submit(&with_deadline, "me", None).await?.id;
    assert_eq!(claim(&store).await?, Some(taken));
    let waits = store.submit(&with_deadline, "me", None).await?.id;
    store.submit(&submission(""), "me", None).await?;
    let now = Time::now();
    assert!(store.overdue(now).await?.is_empty());
    assert_eq!(
        store.next_deadline(now).await?,
        store.deadline(taken).await?
    );
    let later = now.after(2 * HOUR);
    assert_eq!(store.overdue(later).await?, [waits, taken]);
    assert_eq!(store.next_deadline(later).await?, None);
    let late = Fault::new(Code::DeadlineExceeded, "run the job", "it is late");
    let expire = Change::Expire(Box::new((&late).into()));
    let refused = store
        .change(taken, expire.clone(), &Actor::Service, "")
        .await;
    assert_eq!(refused.map_err(|fault| fault.code), Err(Code::Stale));
    store.change(waits, expire, &Actor::Service, "").await?;
    assert_eq!(store.overdue(later).await?, [taken]);
    Ok(())
}

pub(super) async fn ended_jobs_are_deleted_when_their_time_is_over_in_steps_of_bounded_size(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let mut ids = Vec::new();
    for keep in [None, Some(HOUR), Some(5 * HOUR), None] {
        let mut submission = submission("");
        submission.keep_until = keep.map(Moment::After);
        ids.push(store.submit(&submission, "me", None).await?.id);
    }
    for id in &ids[..3] {
        store.change(*id, Change::Cancel, &me(), "").await?;
    }
    let listed = async || {
        let jobs = store.jobs(&JobFilter::default(), None, 10).await?;
        let mut listed: Vec<_> = jobs.iter().map(|job| job.id).collect();
        listed.reverse();
        Ok::<_, Fault>(listed)
    };
    let now = Time::now();
    for (after, keep, left) in [
        (Duration::ZERO, Some(HOUR), &ids[..]),
        (2 * HOUR, None, &[ids[0], ids[2], ids[3]][..]),
        (2 * HOUR, Some(HOUR), &ids[2..]),
        (6 * HOUR, Some(HOUR), &ids[3..]),
        (1000 * HOUR, Some(HOUR), &ids[3..]),
    ] {
        assert!(!store.expire(now.after(after), keep).await?);
        assert_eq!(listed().await?, left, "{after:?} {keep:?}");
    }
    let gone = store.job(ids[0]).await;
    assert_eq!(gone.map_err(|fault| fault.code), Err(Code::NotFound));

    sqlx::query(
        "INSERT INTO failures (job_id, number, position, failure)
         WITH RECURSIVE numbers (number) AS (
             SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < 2500)
         SELECT $1, number, 0, '{}' FROM numbers",
    )
    .bind(ids[0].to_string())
    .execute(&store.pool)
    .await?;
    assert!(store.sweep().await?);
    assert!(!store.sweep().await?);
    let rows = async |table: &'static str| {
        let row = sqlx::query(table).fetch_one(&store.pool).await?;
        sqlx::Row::try_get::<i64, _>(&row, 0)
    };
    assert_eq!(rows("SELECT COUNT(*) FROM jobs").await?, 1);
    assert_eq!(rows("SELECT COUNT(*) FROM transfers").await?, 2);
    assert_eq!(rows("SELECT COUNT(*) FROM transitions").await?, 1);
    assert_eq!(rows("SELECT COUNT(*) FROM failures").await?, 0);
    Ok(())
}
