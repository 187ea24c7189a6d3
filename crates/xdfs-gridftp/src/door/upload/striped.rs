//! Files that come by data nodes: what the server does for them, and what a node does.

use xdfs_store::{SharedStore, unshared};

use super::*;
use crate::door::stripes::Heard;
use crate::node::{Report, StoreOrder};

/// What the server knows of the stripes of a file.
#[derive(Debug)]
pub(super) struct Told {
    /// When the client was last told of each.
    at: Vec<Instant>,
}

impl Upload {
    /// What a node is ordered: to write into the unfinished file that is open here.
    pub(crate) fn of_order(store: &dyn SharedStore, order: &StoreOrder) -> Result<Self, Fault> {
        let file = store.open_partial(&order.path, order.partial)?;
        let target = Target::InPlace(file, 0);
        Ok(Self {
            obeys: true,
            ..Self::new(target, Mode::Extended, order.path.clone())
        })
    }

    /// The order for nodes, in place of what is done here; `None` if nodes can't do it.
    ///
    /// # Errors
    /// Nobody else can write there.
    pub(crate) fn order(&mut self, user: Option<String>) -> Result<Option<StoreOrder>, Fault> {
        let (Target::Sink(sink), Mode::Extended) = (&mut self.target, self.mode) else {
            return Ok(None);
        };
        let shared = sink.shared().ok_or_else(|| unshared(&self.path))?;
        Ok(Some(StoreOrder {
            user,
            path: self.path.clone(),
            partial: shared.number()?,
        }))
    }

    /// From now on nodes write, and this follows.
    pub(crate) fn follow_nodes(&mut self) {
        self.told = Some(Told { at: Vec::new() });
    }

    /// Bytes of payload that have come.
    pub(crate) fn payload(&self) -> u64 {
        self.receiver.bytes()
    }

    /// Takes what nodes report. Returns whether all is there.
    pub(super) fn take_reports(&mut self, link: &mut Link<'_>) -> Result<bool, Fault> {
        let now = link.clock.instant();
        let count = link.channels.stripes.count();
        // Silence is looked for now and then.
        self.marker_at = Some(now + Duration::from_secs(1));
        let mut told = self.told.take().map_or_else(Vec::new, |told| told.at);
        if told.is_empty() {
            told = vec![now; count];
            for index in 0..count {
                self.tell_of(link, (index, count), 0, &RangeSet::new());
            }
        }
        for Heard {
            index,
            report,
            fresh,
        } in link.channels.stripes.hear(now)?
        {
            let (durable, is_done) = match report {
                Report::Moved { durable, .. } => (durable, false),
                Report::Done { durable, .. } => (durable, true),
                _ => continue,
            };
            if fresh > 0 {
                link.moved(fresh);
            }
            self.take_durable(&durable)?;
            let is_due = told
                .get(index)
                .is_some_and(|at| now >= *at + MARKER_INTERVAL);
            let is_news = !durable.as_slice().is_empty() || is_done || is_due;
            // To a client that doesn't read, the next marker tells these ranges too.
            if is_news && !link.machine.is_full() {
                let bytes = link.channels.stripes.bytes(index);
                let fresh = self.receiver.take_fresh();
                self.tell_of(link, (index, count), bytes, &fresh);
                if let Some(at) = told.get_mut(index) {
                    *at = now;
                }
            }
        }
        self.told = Some(Told { at: told });
        let is_done = link.channels.stripes.is_done();
        if is_done {
            let expected = link.machine.expected().filter(|_| count > 1);
            self.check_end(expected)?;
        }
        Ok(is_done)
    }

    /// Checks that all has come that was told before. Clients may tell too much (RFC 959), but to
    /// several stripes globus-url-copy, which tells the size, was seen to leave out the end of a
    /// file and to send the ends of all stripes nevertheless: with `-sbs` below `-bs`, at Globus'
    /// server too.
    fn check_end(&self, expected: Option<u64>) -> Result<(), Fault> {
        let ranges = self.receiver.ranges().as_slice();
        let end = ranges.last().map_or(0, |last| last.end);
        match expected {
            Some(expected) if end < expected => {
                let cause = format!("the stripes end at byte {end}, and ALLO has told {expected}");
                let fault = Fault::new(Code::OffsetPastEnd, OPERATION, cause).path(&self.path);
                Err(fault.hint("with globus-url-copy, let -bs be no more than -sbs"))
            }
            _ => Ok(()),
        }
    }

    /// Nodes have made these ranges durable.
    fn take_durable(&mut self, durable: &RangeSet) -> Result<(), Fault> {
        let Target::Sink(sink) = &mut self.target else {
            return Ok(());
        };
        let ranges = durable.as_slice();
        if ranges.is_empty() {
            return Ok(());
        }
        let mut fragments = Vec::new();
        for range in ranges {
            let shared = sink.shared().ok_or_else(|| unshared(&self.path))?;
            shared.written_elsewhere(*range)?;
            self.receiver.stored(*range).map_err(|e| violation(&e))?;
            fragments.push(Fragment {
                range: *range,
                state: FragmentState::None,
            });
        }
        sink.record(&fragments)?;
        self.is_kept = true;
        Ok(())
    }
}
