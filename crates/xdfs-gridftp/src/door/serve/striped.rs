//! Transfers that data nodes carry out for a session.

use super::*;
use crate::door::channels::Prepared;
use crate::node::SendOrder;
use crate::session::Protection;
use crate::stripe::Layout;

impl Server {
    /// Whether this user's files may go by nodes: a rate limit is kept here alone.
    fn has_nodes(&self) -> bool {
        let is_free = self.user.as_ref().is_some_and(|user| user.share.is_none());
        is_free && !self.context.nodes.is_empty()
    }

    /// Listens at data nodes if there are any, and else here.
    pub(super) fn listen_striped(&mut self) -> Result<Outcome, Fault> {
        self.channels.clear();
        if self.has_nodes() {
            let (from, peer) = (self.channels.only_peer(), self.channels.peer());
            let (nodes, clock) = (&self.context.nodes, &*self.context.clock);
            let stripes = &mut self.channels.stripes;
            let addresses = stripes.listen(nodes, clock, &self.poller, from, peer);
            if let Some(addresses) = addresses {
                return Ok(Outcome::ListeningStriped(addresses));
            }
        }
        let address = self.channels.listen(&self.poller)?;
        Ok(Outcome::ListeningStriped(vec![address]))
    }

    /// What has failed is given up, with its data connections.
    ///
    /// An unfinished file that a node may still have open is removed: later attempts would
    /// otherwise publish it, and the node write into what is published.
    pub(super) fn drop_failed(&mut self, job: &mut Job, fault: &Fault) {
        let client = self.channels.peer();
        let stripes = &mut self.channels.stripes;
        if stripes.count() > 0 && job.mode().is_some() {
            tracing::warn!(%client, %fault, hint = fault.hint, "a transfer by data nodes fails");
        }
        if let Job::Upload(job) = job
            && !stripes.end()
        {
            job.keep_nothing();
        }
        job.discard();
        if job.mode().is_some() {
            self.channels.clear();
        }
    }

    /// Has data nodes carry out a job, if it is one for them: then this follows what they report.
    ///
    /// # Errors
    /// One of them doesn't.
    pub(super) fn prepare_striped(
        &mut self,
        job: &mut Job,
        parallelism: u32,
        layout: Option<Layout>,
        protection: &Protection,
    ) -> Result<Option<Prepared>, Fault> {
        if !self.has_nodes() || *protection != Protection::Clear {
            return Ok(None);
        }
        let user = self.user.as_ref().and_then(|user| user.known_as.clone());
        let now = self.context.clock.instant();
        let reuses = match (job, layout) {
            (Job::Upload(job), _) if self.channels.stripes.is_listening() => {
                let Some(order) = job.order(user)? else {
                    return Ok(None);
                };
                let reuses = self.channels.stripes.store(order, now)?;
                job.follow_nodes();
                reuses
            }
            (Job::Download(job), Some(layout)) => {
                let Some(order) = job.order(user) else {
                    return Ok(None);
                };
                let mut to = Vec::new();
                if !self.channels.stripes.is_sending() {
                    let Some(fresh) = self.channels.fresh_targets().filter(|_| job.is_large())
                    else {
                        return Ok(None);
                    };
                    to = fresh.to_vec();
                    let (nodes, clock) = (&self.context.nodes, &*self.context.clock);
                    let stripes = &mut self.channels.stripes;
                    if !stripes.reach(nodes, clock, &self.poller, &to, parallelism) {
                        return Ok(None);
                    }
                }
                let order = SendOrder {
                    socket_buffer: self.channels.buffers(),
                    ..order
                };
                let length = order.ranges.as_slice().last().map_or(0, |last| last.end);
                let block_bytes = |count| layout.block_bytes(length, count);
                let reuses = self.channels.stripes.send(&order, &to, block_bytes, now)?;
                job.follow_nodes();
                reuses
            }
            _ => return Ok(None),
        };
        Ok(Some(Prepared {
            reuses,
            delayed: None,
        }))
    }
}
