//! Lists of files, and webhooks.

use super::*;
use crate::failure::Failure;
use crate::listed::{Cursor, FilePath, JobFile};
use crate::model::WebhookState;

fn file(position: u32, path: &[u8], bytes: u64) -> JobFile {
    JobFile {
        position,
        path: FilePath::new(path),
        bytes,
        digest: Some(format!("blake3:{}", "ab".repeat(32))),
        at: Time::from_microseconds(7),
        attempts: 1,
        rate_bytes_per_s: (bytes > 4).then_some(bytes * 1000),
        limited_by: (bytes > 4).then(|| "network".to_owned()),
    }
}

fn succeeded(is_listed: bool) -> End {
    End {
        target: Some(b"/b/\xff".to_vec()),
        is_listed,
        ..End::default()
    }
}

pub(super) async fn a_list_has_what_was_seen_last_and_a_kill_loses_its_trust(
    place: &Place,
) -> Outcome {
    let store = place.open().await?;
    let mut listed = submission("");
    listed.manifest = true;
    let id = store.submit(&listed, "me", None).await?.id;
    let plain = store.submit(&submission(""), "me", None).await?.id;
    assert!(store.job(id).await?.job.manifest && !store.job(plain).await?.job.manifest);
    let none = store.files(plain, &Cursor::default(), 9).await;
    assert_eq!(none.map_err(|fault| fault.code), Err(Code::NotFound));

    assert_eq!(claim(&store).await?, Some(id));
    store.begin_transfer(id, &worker(), 0).await?;
    let attempt = store.attempt(id, 0).await?;
    let all = [file(0, b"a", 1), file(0, b"b\xff", 2), file(0, b"gone", 3)];
    store.add_files(id, attempt, &all).await?;
    // A later one takes the place of an earlier one.
    store.add_files(id, attempt, &[file(0, b"a", 5)]).await?;
    assert_eq!(store.count_files(id, 0, attempt).await?, 3);
    let (mut found, mut after) = (Vec::new(), Cursor::default());
    loop {
        let page = store.files(id, &after, 2).await?;
        let Some(last) = page.last() else { break };
        after = Cursor::after(last);
        found.extend(page);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert_eq!(found, [file(0, b"a", 5), all[1].clone(), all[2].clone()]);
    let early = store.check_manifest(id).await.map_err(|fault| fault.code);
    assert_eq!(early, Err(Code::Stale));

    // The next attempt sees two of them, and one more.
    let stopped = Change::Stopped;
    let actor = Actor::Worker(worker());
    store.change(id, stopped.clone(), &actor, "").await?;
    assert_eq!(claim(&store).await?, Some(id));
    store.begin_transfer(id, &worker(), 0).await?;
    let attempt = store.attempt(id, 0).await?;
    let paths = || {
        let paths = [&b"a"[..], b"b\xff", b"new"];
        paths.map(FilePath::new).to_vec()
    };
    let unknown = store.see_files(id, (0, attempt), paths()).await?;
    assert_eq!(unknown, [FilePath::new("new")]);

    // Of a worker that ended without a word, nothing is believed.
    store.change(id, stopped, &Actor::Service, "").await?;
    assert_eq!(claim(&store).await?, Some(id));
    store.begin_transfer(id, &worker(), 0).await?;
    let attempt = store.attempt(id, 0).await?;
    let unknown = store.see_files(id, (0, attempt), paths()).await?;
    assert_eq!(unknown.len(), 3);
    store.add_files(id, attempt, &[file(0, b"new", 4)]).await?;
    assert_eq!(store.target_path(id, 0).await?, None);
    let settled = store.settle_target(id, 0, b"/b/\xff").await?;
    let again = store.settle_target(id, 0, b"/other").await?;
    assert_eq!(
        (settled.as_deref(), &again),
        (Some(&b"/b/\xff"[..]), &settled)
    );
    store
        .end_transfer(id, &worker(), 0, &succeeded(false))
        .await?;
    store.begin_transfer(id, &worker(), 1).await?;
    store
        .end_transfer(id, &worker(), 1, &succeeded(true))
        .await?;
    let unlisted = store.unlisted(id).await?;
    assert_eq!(unlisted.len(), 1);
    assert_eq!((unlisted[0].position, &unlisted[0].target), (0, &settled));
    store.end_list(id, 0, attempt).await?;
    assert!(store.unlisted(id).await?.is_empty());
    let left = store.files(id, &Cursor::default(), 9).await?;
    assert_eq!(left, [file(0, b"new", 4)]);
    store.change(id, Change::Succeed, &actor, "").await?;
    store.check_manifest(id).await?;
    assert_eq!(store.listed_transfers(id, 1, 9).await?.len(), 1);

    store.delete(id, |_| true).await?;
    assert!(!store.sweep().await?);
    let gone = store.files(id, &Cursor::default(), 9).await;
    assert_eq!(gone.map_err(|fault| fault.code), Err(Code::NotFound));
    Ok(())
}

pub(super) async fn files_of_a_job_without_a_list_are_read_page_by_page(place: &Place) -> Outcome {
    let store = place.open().await?;
    let id = store.submit(&submission(""), "me", None).await?.id;
    let other = store.submit(&submission(""), "me", None).await?.id;
    let none = store.page_of_files(id, &Cursor::default(), 9).await?;
    assert_eq!(none, (Vec::new(), None));
    let of = |position, attempts, path: &str, bytes| JobFile {
        attempts,
        digest: (bytes > 2).then(|| "crc64nvme:0123456789abcdef".to_owned()),
        ..file(position, path.as_bytes(), bytes)
    };
    let strange = JobFile {
        path: FilePath::new(&b"b\xff"[..]),
        ..of(0, 1, "", 2)
    };
    let batches = [
        vec![of(0, 1, "a", 1), strange, of(0, 1, "c", 3)],
        vec![of(0, 2, "a", 9)],
        vec![of(1, 1, "a", 5), of(1, 1, "'); --", 6)],
    ];
    for batch in &batches {
        let attempt = (batch[0].position, batch[0].attempts);
        store.add_batch(id, attempt, batch).await?;
    }
    store.add_batch(other, (0, 1), &batches[0]).await?;
    let all = batches.concat();
    for limit in 1..=7 {
        let (mut found, mut after) = (Vec::new(), Cursor::default());
        loop {
            let (page, next) = store.page_of_files(id, &after, limit).await?;
            assert!(page.len() == limit as usize || next.is_none());
            found.extend(page);
            let Some(next) = next else { break };
            after = next.to_string().parse()?;
        }
        assert_eq!(found, all, "{limit}");
    }
    for odd in [
        "999999999-00",
        "0-ffffffff",
        "2-ffffffff",
        "0-0102030405060708",
    ] {
        store.page_of_files(id, &odd.parse()?, 9).await?;
    }
    let actor = Actor::User("me".to_owned());
    store.change(id, Change::Cancel, &actor, "").await?;
    store.delete(id, |_| true).await?;
    while store.sweep().await? {}
    let left = sqlx::query("SELECT DISTINCT job_id FROM file_batches");
    assert_eq!(left.fetch_all(&store.pool).await?.len(), 1);
    let gone = store.page_of_files(id, &Cursor::default(), 9).await;
    assert_eq!(gone.map_err(|fault| fault.code), Err(Code::NotFound));
    let kept = store.page_of_files(other, &Cursor::default(), 9).await?;
    assert_eq!(kept, (batches[0].clone(), None));
    Ok(())
}

pub(super) async fn a_webhook_is_due_once_when_its_job_ends(place: &Place) -> Outcome {
    let store = place.open().await?;
    let url = "http://example.org/hook";
    let mut submitted = submission("");
    submitted.webhook = Some(url.to_owned());
    let id = store.submit(&submitted, "me", None).await?.id;
    let (now, actor) = (Time::now(), Actor::User("me".to_owned()));
    let hour = Duration::from_secs(3600);
    let (later, until) = (now.after(hour), now.after(2 * hour));
    assert!(store.take_webhook(later, until).await?.is_none());
    assert_eq!(store.next_webhook().await?, None);
    store.change(id, Change::Cancel, &actor, "").await?;
    let due = store.take_webhook(later, until).await?.ok_or("it is due")?;
    assert_eq!((due.job, due.url.as_str(), due.attempts), (id, url, 0));
    // Another process doesn't take it, unless this one is gone.
    assert!(store.take_webhook(later, until).await?.is_none());
    assert!(
        store
            .take_webhook(until, until.after(hour))
            .await?
            .is_some()
    );
    let away = Fault::new(Code::ConnectionRefused, "send", "it is away");
    let again = Delivery::Again(Box::new(Failure::from(&away)), later);
    store.end_attempt(&due, &again).await?;
    // The other process ends late, and changes nothing.
    store.end_attempt(&due, &Delivery::Delivered).await?;
    let webhook = store.job(id).await?.webhook.ok_or("it has one")?;
    assert_eq!((webhook.state, webhook.attempts), (WebhookState::Due, 1));
    assert_eq!(webhook.next_attempt_at, Some(later));
    assert!(webhook.failure.is_some());

    // A job that is retried and ends again sends it again.
    store.change(id, Change::Retry, &actor, "").await?;
    assert_eq!(store.next_webhook().await?, None);
    store.change(id, Change::Cancel, &actor, "").await?;
    let due = store.take_webhook(later, until).await?.ok_or("it is due")?;
    assert_eq!(due.attempts, 0);
    store.end_attempt(&due, &Delivery::Delivered).await?;
    let webhook = store.job(id).await?.webhook.ok_or("it has one")?;
    assert_eq!(webhook.state, WebhookState::Delivered);
    assert!(webhook.delivered_at.is_some() && webhook.failure.is_none());
    assert!(store.take_webhook(until, until).await?.is_none());
    Ok(())
}
