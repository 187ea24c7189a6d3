//! Schedules and the jobs that they submit.

use super::*;
use crate::spec::ScheduleSubmission;
use crate::time::Moment;

const HOUR: Duration = Duration::from_secs(3600);

fn every(rule: &str) -> ScheduleSubmission {
    ScheduleSubmission {
        every: rule.to_owned(),
        starts_at: None,
        job: submission("nightly"),
    }
}

pub(super) async fn a_schedule_submits_a_job_each_time_unless_the_last_has_not_ended(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let mut schedule = every("6h");
    schedule.job.deadline = Some(Moment::After(HOUR));
    let (id, is_new) = store.add_schedule(&schedule, "me", "", None).await?;
    assert!(is_new);
    let begin = store.schedule(id).await?.next_at;
    assert_eq!(store.next_of_schedules().await?, Some(begin));
    let jobs = store.submit_due(begin).await?;
    assert_eq!(jobs.len(), 1);
    let job = store.job(jobs[0]).await?;
    assert_eq!(
        (job.job.schedule, job.job.label.as_str()),
        (Some(id), "nightly")
    );
    assert_eq!(job.job.deadline, Some(begin.after(HOUR)));
    assert_eq!(job.transitions[0].actor, "service");
    assert!(store.submit_due(begin).await?.is_empty());
    store.close().await;

    // It was down for a day, and the job has not ended.
    let store = place.open().await?;
    let later = begin.after(25 * HOUR);
    assert!(store.submit_due(later).await?.is_empty());
    let noted = store.schedule(id).await?;
    assert_eq!((noted.submitted, noted.skipped), (1, 1));
    assert_eq!(noted.skipped_at, Some(begin.after(6 * HOUR)));
    assert_eq!(noted.next_at, begin.after(30 * HOUR));
    store
        .change(jobs[0], Change::Cancel, &Actor::Service, "")
        .await?;

    // It was down for another day: what was missed is made up for by one job.
    let much_later = begin.after(50 * HOUR);
    let next = store.submit_due(much_later).await?;
    assert_eq!(next.len(), 1);
    assert!(store.submit_due(much_later).await?.is_empty());
    let noted = store.schedule(id).await?;
    assert_eq!((noted.submitted, noted.skipped), (2, 1));
    assert_eq!(
        (noted.last_job, noted.last_at),
        (Some(next[0]), Some(much_later))
    );
    assert_eq!(noted.next_at, begin.after(54 * HOUR));

    store.delete_schedule(id).await?;
    assert!(store.submit_due(begin.after(99 * HOUR)).await?.is_empty());
    assert_eq!(store.jobs(&JobFilter::default(), None, 9).await?.len(), 2);
    let gone = store.schedule(id).await.map_err(|fault| fault.code);
    assert_eq!(gone, Err(Code::NotFound));
    Ok(())
}

pub(super) async fn a_clock_that_jumps_stops_no_schedule(place: &Place) -> Outcome {
    let store = place.open().await?;
    let (id, _) = store.add_schedule(&every("6h"), "me", "", None).await?;
    let begin = store.schedule(id).await?.next_at;
    // Years ahead, and back again.
    let ahead = begin.after(99_999 * HOUR);
    let jobs = store.submit_due(ahead).await?;
    assert_eq!(jobs.len(), 1);
    store
        .change(jobs[0], Change::Cancel, &Actor::Service, "")
        .await?;
    assert!(store.schedule(id).await?.next_at > ahead);
    let now = begin.after(HOUR);
    assert!(store.submit_due(now).await?.is_empty());
    assert_eq!(store.schedule(id).await?.next_at, now.after(6 * HOUR));
    assert_eq!(store.submit_due(now.after(6 * HOUR)).await?.len(), 1);
    Ok(())
}

pub(super) async fn a_schedule_whose_job_is_refused_says_why_and_goes_on(place: &Place) -> Outcome {
    let store = place.open().await?;
    let (id, _) = store.add_schedule(&every("1h"), "me", "", None).await?;
    let begin = store.schedule(id).await?.next_at;
    let spec = sqlx::query("SELECT spec FROM schedules")
        .fetch_one(&store.pool)
        .await?;
    let spec: String = sqlx::Row::try_get(&spec, 0)?;
    sqlx::query("UPDATE schedules SET spec = '{\"version\":9}'")
        .execute(&store.pool)
        .await?;
    assert!(store.submit_due(begin).await?.is_empty());
    let noted = store.schedule(id).await?;
    let code = noted.failure.map(|failure| failure.code);
    assert_eq!(code.as_deref(), Some("unsupported"));
    assert_eq!(noted.next_at, begin.after(HOUR));
    sqlx::query("UPDATE schedules SET spec = $1")
        .bind(spec)
        .execute(&store.pool)
        .await?;
    assert_eq!(store.submit_due(begin.after(HOUR)).await?.len(), 1);
    assert_eq!(store.schedule(id).await?.failure, None);
    Ok(())
}

pub(super) async fn a_key_is_for_one_schedule_and_a_schedule_for_durations(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let add = async |digest, key| store.add_schedule(&every("1h"), "me", digest, key).await;
    let (id, _) = add("1", Some("k")).await?;
    assert_eq!(add("1", Some("k")).await?, (id, false));
    let other = add("2", Some("k")).await.map_err(|fault| fault.code);
    assert_eq!(other, Err(Code::AlreadyExists));
    assert_ne!(add("1", None).await?.0, add("1", None).await?.0);
    let all = store.schedules(None, None, 10).await?;
    assert_eq!(all.len(), 3);
    assert_eq!(store.schedules(None, Some(all[0].id), 10).await?, all[1..]);

    let at = Moment::At(Time::now().after(HOUR));
    let refused = |change: fn(&mut ScheduleSubmission, Moment)| {
        let mut schedule = every("1h");
        change(&mut schedule, at);
        let path = schedule.check(Time::now()).map_err(|fault| fault.path);
        String::from_utf8_lossy(&path.err().unwrap_or_default()).into_owned()
    };
    assert_eq!(
        refused(|one, at| one.job.starts_at = Some(at)),
        "job.starts_at"
    );
    assert_eq!(
        refused(|one, at| one.job.deadline = Some(at)),
        "job.deadline"
    );
    assert_eq!(
        refused(|one, at| one.job.keep_until = Some(at)),
        "job.keep_until"
    );
    assert_eq!(refused(|one, _| one.job.priority = 11), "job.priority");
    assert_eq!(
        refused(|one, _| one.every = "0 0 30 2 *".to_owned()),
        "every"
    );
    assert_eq!(refused(|_, _| {}), "");
    Ok(())
}
