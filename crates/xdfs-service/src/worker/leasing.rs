//! The workers keep the lease of their process.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use xdfs::Fault;

use super::Workers;
use crate::id::JobId;
use crate::state::ProcessId;

/// Looks at the database in the time of a lease.
const LOOKS: u32 = 10;
/// Of these parts of a lease, the time without a renewal after which jobs are stopped.
const STOP_PARTS: u32 = 6;
/// Least and most time between two looks.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(1);

impl Workers {
    /// Renews the lease, takes over the jobs of processes that have none any more, and looks at
    /// what other processes have changed. For ever.
    pub(crate) async fn keep_lease(self: Arc<Self>) {
        let length = self.lease.length;
        let pause = (length / LOOKS).clamp(LOOK_MIN, LOOK_MAX);
        let mut renewed_at = Instant::now();
        let mut elsewhere = BTreeSet::new();
        loop {
            sleep(pause).await;
            let began = Instant::now();
            let looked = timeout(length / LOOKS * 3, self.look(&mut elsewhere)).await;
            match looked {
                Ok(Ok(true)) => renewed_at = began,
                Ok(Ok(false)) => {}
                Ok(Err(fault)) => tracing::warn!(%fault, "can't renew the lease"),
                Err(_) => tracing::warn!("can't renew the lease: the database doesn't answer"),
            }
            if renewed_at.elapsed() > length / LOOKS * STOP_PARTS {
                self.lose();
            }
        }
    }

    /// Stops all jobs: they may be those of another process.
    fn lose(&self) {
        if self.lease.process().is_some() {
            tracing::error!("the lease has ended: all jobs are stopped");
            self.lease.set(None);
        }
        self.stop_all();
    }

    /// Renews the lease. Whether this process has one.
    async fn look(&self, elsewhere: &mut BTreeSet<JobId>) -> Result<bool, Fault> {
        let Some(process) = self.lease.process() else {
            // What runs still ends by itself, as jobs of the lease before.
            if self.is_idle() {
                let process = ProcessId::new()?;
                self.store.register(&process, self.lease.length).await?;
                self.lease.set(Some(process));
                self.wake.notify_one();
                return Ok(true);
            }
            return Ok(false);
        };
        if !self.store.renew(&process, self.lease.length).await? {
            self.lose();
            return Ok(false);
        }
        let taken = self.store.take_over().await?;
        for id in &taken {
            tracing::info!(job = %id, "took over a job of a service that had ended");
            self.live.changed(*id);
        }
        for id in self.store.stopping(&process).await? {
            self.stop(id);
        }
        let running: BTreeSet<_> = self
            .store
            .running_elsewhere(&process)
            .await?
            .into_iter()
            .collect();
        for id in elsewhere.union(&running) {
            self.live.changed(*id);
        }
        *elsewhere = running;
        // Jobs may have been submitted to another process.
        self.wake.notify_one();
        Ok(true)
    }
}
