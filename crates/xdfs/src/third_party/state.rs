//! The state of a copy with another server, which its user asks for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use xdfs_engine::Outcome;
use xdfs_proto::third_party::{CopyState, CopyStatus, TreeFigures, TreeQuery, TreeStatus};
use xdfs_proto::{Code, DigestValue, Fault, Machine, Side};

use super::news::News;

/// The components of a path, each after a slash: different paths may be written for one tree.
fn components(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|byte| *byte == b'/');
    let named = parts.filter(|part| !matches!(*part, b"" | b"."));
    named.flat_map(|part| [b"/", part].concat()).collect()
}

/// The state of a copy.
#[derive(Debug)]
pub(super) struct Copy {
    began: Instant,
    is_cancelled: AtomicBool,
    state: Mutex<(CopyStatus, Option<Instant>)>,
    /// The news of a tree; `None` for a file.
    pub(super) news: Option<News>,
    /// The roots of a tree, here and there; empty of a file.
    roots: [Vec<u8>; 2],
}

impl Copy {
    pub(super) fn new(began: Instant) -> Self {
        let status = CopyStatus {
            state: CopyState::Connecting,
            bytes: 0,
            bytes_total: None,
            resumed_bytes: 0,
            channels: 0,
            elapsed_ms: 0,
            mtime_ns: None,
            digest: DigestValue::None,
            target: Vec::new(),
            fault: None,
            is_fault_there: false,
        };
        Self {
            began,
            is_cancelled: AtomicBool::new(false),
            state: Mutex::new((status, None)),
            news: None,
            roots: Default::default(),
        }
    }

    /// The copy of a tree, with its roots here and there.
    pub(super) fn of_tree(began: Instant, news: News, roots: [Vec<u8>; 2]) -> Self {
        Self {
            news: Some(news),
            roots: roots.map(|root| components(&root)),
            ..Self::new(began)
        }
    }

    /// Whether it runs, is of the same tree as another one, and began before.
    pub(super) fn is_in_the_way(&self, of: &Self) -> bool {
        let is_same = self.news.is_some() && self.roots == of.roots;
        is_same && self.began < of.began && self.ended_for().is_none()
    }

    fn lock(&self) -> MutexGuard<'_, (CopyStatus, Option<Instant>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it end soon.
    pub(super) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(news) = &self.news {
            news.wake();
        }
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Err(Fault::new(Code::Cancelled, "copy", "it was cancelled")),
            false => Ok(()),
        }
    }

    /// The state of a file, or of a tree as if it were one.
    pub(super) fn status(&self) -> CopyStatus {
        let mut status = self.present();
        let failure = self.news.as_ref().and_then(News::first_failure);
        if let (CopyState::Done, Some(fault)) = (status.state, failure) {
            status.state = CopyState::Failed;
            status.fault = Some(fault);
        }
        status
    }

    fn present(&self) -> CopyStatus {
        let (mut status, ended) = self.lock().clone();
        let elapsed = ended.unwrap_or_else(Instant::now) - self.began;
        status.elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        status
    }

    /// The state of a tree, with the news that were asked for.
    ///
    /// # Errors
    /// It is a file.
    pub(super) fn tree_status(&self, query: TreeQuery) -> Result<TreeStatus, Fault> {
        let Some(news) = &self.news else {
            let cause = "it is the copy of a file";
            return Err(Fault::new(Code::InvalidArgument, "look at the copy", cause));
        };
        // In this order: there are no news after an end.
        let status = self.present();
        let part = news.take(query);
        let has_failed = status.state.is_failure() && !part.more;
        Ok(TreeStatus {
            state: match part.more && status.state.is_end() {
                true => CopyState::Moving,
                false => status.state,
            },
            figures: part.figures,
            is_counted: part.is_counted,
            channels: status.channels,
            elapsed_ms: status.elapsed_ms,
            fault: status.fault.filter(|_| has_failed),
            is_fault_there: status.is_fault_there && has_failed,
            first: part.first,
            news: part.news,
            more: part.more,
        })
    }

    /// The time of its end; `None` while it runs.
    pub(super) fn ended_at(&self) -> Option<Instant> {
        self.lock().1
    }

    /// The time since its end; `None` while it runs.
    pub(super) fn ended_for(&self) -> Option<Duration> {
        self.lock().1.map(|ended| ended.elapsed())
    }

    pub(super) fn moving(&self, change: impl FnOnce(&mut CopyStatus)) {
        let mut state = self.lock();
        state.0.state = CopyState::Moving;
        change(&mut state.0);
    }

    pub(super) fn done(&self, outcome: Outcome) {
        let mut state = self.lock();
        let status = &mut state.0;
        status.state = CopyState::Done;
        status.bytes = outcome.bytes;
        status.bytes_total = Some(outcome.bytes);
        status.resumed_bytes = outcome.resumed_bytes;
        status.channels = u16::try_from(outcome.channels).unwrap_or(u16::MAX);
        status.mtime_ns = outcome.mtime_ns;
        status.digest = outcome.digest;
        status.target = outcome.target;
        state.1 = Some(Instant::now());
    }

    /// The tree is at its target, but for what has failed.
    pub(super) fn tree_done(&self, figures: &TreeFigures, target: &[u8]) {
        let mut state = self.lock();
        let status = &mut state.0;
        status.state = CopyState::Done;
        status.bytes = figures.moved.bytes;
        status.target = target.to_vec();
        state.1 = Some(Instant::now());
    }

    pub(super) fn fail(&self, fault: Fault) {
        let mut state = self.lock();
        state.0.state = match state.0.state {
            // No other way is to be tried for what isn't wanted.
            CopyState::Connecting if fault.code != Code::Cancelled => CopyState::Unreachable,
            _ => CopyState::Failed,
        };
        // The store of this server is behind a gateway, as if it were another one.
        let is_here = fault.machine.as_ref().is_some_and(Machine::is_here);
        state.0.is_fault_there = fault.side == Side::Remote && !is_here;
        state.0.fault = Some(fault);
        state.1 = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tree_is_in_the_way_however_its_path_is_written() {
        let began = Instant::now();
        let tree = |roots: [&str; 2], after_ms: u64| {
            let roots = roots.map(|root| root.as_bytes().to_vec());
            let began = began + Duration::from_millis(after_ms);
            Copy::of_tree(began, News::new(true), roots)
        };
        let earlier = tree(["/a", "b/c"], 0);
        for roots in [["/a", "b/c"], ["a/", "/b//c/"], ["./a", "b/./c"]] {
            assert!(earlier.is_in_the_way(&tree(roots, 1)), "{roots:?}");
            assert!(!tree(roots, 1).is_in_the_way(&earlier), "{roots:?}");
        }
        for roots in [["/ab", "c"], ["b/c", "a"], ["", "b/c"]] {
            assert!(!earlier.is_in_the_way(&tree(roots, 1)), "{roots:?}");
        }
    }
}
