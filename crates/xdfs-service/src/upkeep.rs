//! What has to happen when it is due, without a request: deadlines, the jobs of schedules,
//! and the end of what is kept.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use xdfs::{Code, Fault};

use crate::failure::Failure;
use crate::live::is_set;
use crate::shared::Shared;
use crate::state::{Actor, Change};
use crate::time::Time;

/// Longest time between two looks: clocks can be set.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Looks after all jobs until the service ends. Ended ones are kept for `keep`, or for ever.
pub(crate) async fn run(
    shared: Arc<Shared>,
    keep: Option<Duration>,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let pause = match look(&shared, keep).await {
            Ok(next) => {
                let left = next.map(|next| next.seconds_since(Time::now()).max(0.0));
                left.map_or(LOOK_EVERY, Duration::from_secs_f64)
            }
            Err(fault) => {
                tracing::error!(%fault, "can't look after the jobs");
                LOOK_EVERY
            }
        };
        tokio::select! {
            () = shared.upkeep.notified() => {}
            () = sleep(pause.min(LOOK_EVERY)) => {}
            () = is_set(&mut closing) => return,
        }
    }
}

/// Does what is due. Returns the time of what comes next.
async fn look(shared: &Shared, keep: Option<Duration>) -> Result<Option<Time>, Fault> {
    let now = Time::now();
    for id in shared.store.overdue(now).await? {
        let Some(deadline) = shared.store.deadline(id).await? else {
            continue;
        };
        let change = Change::Expire(Box::new(Failure::late(deadline)));
        let reason = format!("its deadline was {deadline}");
        let expired = shared.store.change(id, change, &Actor::Service, &reason);
        match expired.await {
            Ok(_) => shared.live.changed(id),
            // Its worker ends it; or it has just ended.
            Err(fault) if fault.code == Code::Stale => shared.workers.stop(id),
            Err(fault) if fault.code == Code::NotFound => {}
            Err(fault) => return Err(fault),
        }
    }
    for id in shared.store.submit_due(now).await? {
        shared.live.changed(id);
        shared.workers.wake.notify_one();
    }
    while shared.store.expire(now, keep).await? {}
    while shared.store.sweep().await? {}
    let deadline = shared.store.next_deadline(now).await?;
    let due = shared.store.next_of_schedules().await?;
    Ok(deadline.into_iter().chain(due).min())
}
