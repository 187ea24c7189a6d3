//! Files that data nodes send: what the server does for them, and what a node does.

use super::*;
use crate::node::{RANGES_MAX, SendOrder};
use crate::stripe::Stripe;

/// Files from this length on are worth it.
const STRIPED_BYTES_MIN: u64 = 1 << 20;

impl Download {
    /// What a node is ordered.
    ///
    /// # Errors
    /// The file can't be read, or isn't the one that the server sees.
    pub(crate) fn of_order(store: &dyn Store, order: &SendOrder) -> Result<Self, Fault> {
        let path = order.path.clone();
        let part = Some((order.offset, u64::MAX));
        let mut job = Self::file(store, Mode::Extended, path, part, None)?;
        let Feed::File { source, path, .. } = &job.feed else {
            return Ok(job);
        };
        let info = source.info();
        let end = order.ranges.as_slice().last().map_or(0, |last| last.end);
        let is_it = info.length == Some(order.size)
            && info.mtime_ns == order.mtime_ns
            && order
                .offset
                .checked_add(end)
                .is_some_and(|end| end <= order.size);
        if !is_it {
            let cause = "it isn't the version of the file that the server sees";
            let fault = Fault::new(Code::SourceChanged, OPERATION, cause).path(path);
            return Err(fault.hint("all machines have to see the same file system there"));
        }
        let eofs = order.eods.map_or(Eofs::Other, Eofs::Total);
        job.portion = Some((Portion::new(order.ranges.clone(), order.stripe), eofs));
        Ok(job)
    }

    /// The order for all nodes, in place of what is done here; `None` if it isn't one for nodes.
    pub(crate) fn order(&self, user: Option<String>) -> Option<SendOrder> {
        let Feed::File {
            source,
            path,
            offset,
            ..
        } = &self.feed
        else {
            return None;
        };
        let info = source.info();
        let ranges = &self.ranges;
        let is_one = self.mode == Mode::Extended && ranges.as_slice().len() <= RANGES_MAX;
        is_one.then(|| SendOrder {
            to: Vec::new(),
            parallelism: 1,
            socket_buffer: None,
            user,
            path: path.clone(),
            size: info.length.unwrap_or(0),
            mtime_ns: info.mtime_ns,
            offset: *offset,
            ranges: ranges.clone(),
            stripe: Stripe::WHOLE,
            eods: None,
        })
    }

    /// Whether nodes are worth being asked for their connections.
    pub(crate) fn is_large(&self) -> bool {
        self.ranges.total() >= STRIPED_BYTES_MIN
    }

    /// From now on nodes send, and this follows.
    pub(crate) fn follow_nodes(&mut self) {
        self.follows = true;
    }

    /// Bytes of payload that have been dealt out to connections.
    pub(crate) fn payload(&self) -> u64 {
        self.payload
    }

    /// Takes what nodes report.
    pub(super) fn take_reports(&mut self, link: &mut Link<'_>) -> Result<Step, Fault> {
        let now = link.clock.instant();
        self.looks_at = Some(now + Duration::from_secs(1));
        for heard in link.channels.stripes.hear(now)? {
            if heard.fresh > 0 {
                link.moved(heard.fresh);
            }
        }
        if !link.channels.stripes.is_done() {
            return Ok(Step::Wait);
        }
        if let Feed::File { source, .. } = &mut self.feed
            && let Some(shared) = source.shared()
        {
            shared.read_elsewhere(self.ranges.total());
        }
        self.feed.verify()?;
        Ok(Step::Done(Outcome::Done))
    }
}
