//! The delivery of webhooks: which are sent when, and again.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;
use xdfs::{Code, Fault};

use crate::failure::Failure;
use crate::live::is_set;
use crate::shared::Shared;
use crate::store::{Delivery, DueWebhook};
use crate::time::Time;
use crate::webhook::OPERATION;

/// Time after which another process may send what this one has taken.
const TAKEN_FOR: Duration = Duration::from_secs(60);
/// Attempts at the same time.
const AT_ONCE: usize = 16;
/// The pause after the first attempt; each further one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// Attempts, over about half a day.
const ATTEMPTS_MAX: u32 = 20;
/// Longest time between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Least time between two looks at what has changed.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// The end of an attempt.
fn delivery(result: Result<(), Fault>, attempts_before: u32) -> Delivery {
    let Err(fault) = result else {
        return Delivery::Delivered;
    };
    let failure = Box::new(Failure::from(&fault));
    if !failure.may_pass() || attempts_before + 1 >= ATTEMPTS_MAX {
        return Delivery::Failed(failure);
    }
    let pause = PAUSE_FIRST.saturating_mul(1 << attempts_before.min(20));
    Delivery::Again(failure, Time::now().after(pause.min(PAUSE_MAX)))
}

async fn send(shared: Arc<Shared>, due: DueWebhook) {
    let Ok(detail) = shared.store.job(due.job).await else {
        // It was deleted, or the database is away: then others take it later.
        return;
    };
    let (sender, url, job) = (Arc::clone(&shared), due.url.clone(), detail.job);
    let sent = spawn_blocking(move || sender.webhooks.send(&url, &job)).await;
    let sent =
        sent.unwrap_or_else(|error| Err(Fault::new(Code::Internal, OPERATION, error.to_string())));
    if let Err(fault) = &sent {
        tracing::warn!(job = %due.job, attempt = due.attempts + 1, %fault);
    }
    let delivery = delivery(sent, due.attempts);
    if let Err(fault) = shared.store.end_attempt(&due, &delivery).await {
        tracing::error!(job = %due.job, %fault, "can't store the end of a webhook");
    }
    shared.live.changed(due.job);
}

/// Sends webhooks until the service ends.
pub(crate) async fn run(shared: Arc<Shared>, mut closing: watch::Receiver<bool>) {
    let mut sending = JoinSet::new();
    loop {
        while sending.len() < AT_ONCE {
            let now = Time::now();
            match shared.store.take_webhook(now, now.after(TAKEN_FOR)).await {
                Ok(Some(due)) => {
                    sending.spawn(send(Arc::clone(&shared), due));
                }
                Ok(None) => break,
                Err(fault) => {
                    tracing::error!(%fault, "can't take a webhook");
                    break;
                }
            }
        }
        let pause = match shared.store.next_webhook().await {
            Ok(Some(next)) => {
                let left = next.seconds_since(Time::now()).max(0.0);
                Duration::from_secs_f64(left).clamp(LOOK_AFTER, LOOK_EVERY)
            }
            _ => LOOK_EVERY,
        };
        tokio::select! {
            () = sleep(pause) => {}
            // Changes come often; one look is for many.
            () = shared.live.any_change() => sleep(LOOK_AFTER).await,
            Some(ended) = sending.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "the sender of a webhook has failed");
                }
            }
            () = is_set(&mut closing) => break,
        }
    }
    // Each ends within its time.
    while sending.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let away = || Err(Fault::new(Code::ConnectionRefused, OPERATION, "it is away"));
        let pauses: Vec<_> = (0..ATTEMPTS_MAX)
            .map_while(|attempt| match delivery(away(), attempt) {
                Delivery::Again(_, at) => Some(at.seconds_since(Time::now()).round()),
                _ => None,
            })
            .collect();
        assert_eq!(pauses.len() + 1, ATTEMPTS_MAX as usize);
        assert_eq!(pauses[..3], [5.0, 10.0, 20.0]);
        assert_eq!(pauses.last(), Some(&3600.0));
        let refused = Fault::new(Code::PermissionDenied, OPERATION, "it isn't public");
        assert!(matches!(delivery(Err(refused), 0), Delivery::Failed(_)));
        assert!(matches!(delivery(Ok(()), 0), Delivery::Delivered));
    }
}
