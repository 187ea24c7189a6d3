//! Server-sent events: a stream of jobs as they change, at most twice a second.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use xdfs::Fault;

use crate::access::User;
use crate::id::JobId;
use crate::live::is_set;
use crate::model::JobDetail;
use crate::shared::Shared;

/// Least time between two looks at what has changed.
const INTERVAL: Duration = Duration::from_millis(500);

/// The form of a job in an event.
pub(crate) type Form = fn(&JobDetail) -> Result<String, Fault>;

/// Writes the jobs that change and that a user sees as events, or one of them, which is the first
/// event.
pub(crate) async fn watch(
    shared: Arc<Shared>,
    user: User,
    only: Option<JobId>,
    form: Form,
) -> Response {
    let watcher = Watcher {
        user,
        changes: shared.live.subscribe(),
        closing: shared.closing.subscribe(),
        due: only.into_iter().collect(),
        only,
        form,
        next_look: Instant::now(),
        last: None,
        is_over: false,
        shared,
    };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await?;
        Some((Ok::<_, Infallible>(event), watcher))
    });
    // nginx keeps parts of other answers until there is enough of them.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    (
        unbuffered,
        Sse::new(events).keep_alive(KeepAlive::default()),
    )
        .into_response()
}

struct Watcher {
    shared: Arc<Shared>,
    user: User,
    changes: Receiver<JobId>,
    closing: watch::Receiver<bool>,
    /// Jobs that have changed.
    due: BTreeSet<JobId>,
    only: Option<JobId>,
    form: Form,
    next_look: Instant,
    /// The last text of the only job.
    last: Option<String>,
    is_over: bool,
}

impl Watcher {
    fn note(&mut self, id: JobId) {
        if self.only.is_none_or(|only| only == id) {
            self.due.insert(id);
        }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.is_over {
                return None;
            }
            if self.due.is_empty() {
                let change = tokio::select! {
                    change = self.changes.recv() => change,
                    () = is_set(&mut self.closing) => return None,
                };
                match change {
                    Ok(id) => self.note(id),
                    Err(RecvError::Lagged(_)) => match self.only {
                        Some(id) => self.note(id),
                        // Jobs have changed, and which ones is lost: the reader looks again.
                        None => return Some(Event::default().event("behind").data("look again")),
                    },
                    Err(RecvError::Closed) => return None,
                }
                continue;
            }
            if self.next_look > Instant::now() {
                sleep_until(self.next_look).await;
            }
            loop {
                match self.changes.try_recv() {
                    Ok(id) => self.note(id),
                    Err(TryRecvError::Lagged(_)) => continue,
                    Err(_) => break,
                }
            }
            let id = self.due.pop_first()?;
            if self.due.is_empty() {
                self.next_look = Instant::now() + INTERVAL;
            }
            let Ok(detail) = self.shared.job(id).await else {
                // The job is gone, or the database: the reader will see when it asks again.
                self.is_over = self.only.is_some();
                continue;
            };
            if !self.user.sees(&detail.job.owner) {
                continue;
            }
            // The user may have logged out meanwhile, or the token may have ended.
            let access = &self.shared.access;
            let accepted = access.still_accepts(&self.shared.store, &self.user).await;
            if !accepted.is_ok_and(|is_accepted| is_accepted) {
                return None;
            }
            let text = match (self.form)(&detail) {
                Ok(text) => text,
                Err(fault) => {
                    tracing::error!(%fault, "can't write an event");
                    return None;
                }
            };
            self.is_over = self.only.is_some() && detail.job.state.is_end();
            if self.only.is_some() && self.last.as_ref() == Some(&text) {
                continue;
            }
            self.last = Some(text.clone());
            return Some(Event::default().event("job").data(text));
        }
    }
}
