//! The news of a tree, which wait to be asked for.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use xdfs_proto::Fault;
use xdfs_proto::third_party::{NEWS_BYTES, RemovalQuestion, TreeFigures, TreeNews, TreeQuery};

/// Bytes of news from which on the tree waits for its reader.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// Most news in one answer: their count has two bytes.
const PART_MAX: usize = 4096;
/// Interval of looks at whether the copy is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// The figures of a tree, and its news.
#[derive(Debug)]
pub(super) struct News {
    /// Somebody reads them. Otherwise only the first failure is kept.
    is_read: bool,
    state: Mutex<State>,
    taken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    figures: TreeFigures,
    is_counted: bool,
    /// The number of the first one that waits.
    first: u64,
    waiting: VecDeque<TreeNews>,
    bytes: usize,
    consent: Option<bool>,
    first_failure: Option<Fault>,
}

/// A part of the news, for one answer.
pub(super) struct Part {
    pub(super) figures: TreeFigures,
    pub(super) is_counted: bool,
    pub(super) first: u64,
    pub(super) news: Vec<TreeNews>,
    /// There are more.
    pub(super) more: bool,
}

impl News {
    pub(super) fn new(is_read: bool) -> Self {
        Self {
            is_read,
            state: Mutex::default(),
            taken: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has those that wait look whether they are still wanted.
    pub(super) fn wake(&self) {
        self.taken.notify_all();
    }

    pub(super) fn count(&self, figures: TreeFigures, is_counted: bool) {
        let mut state = self.lock();
        (state.figures, state.is_counted) = (figures, is_counted);
    }

    /// Adds one, once there is room.
    pub(super) fn add(&self, news: TreeNews, is_cancelled: impl Fn() -> bool) {
        let mut state = self.lock();
        if let TreeNews::Failed { fault, .. } = &news {
            state.first_failure.get_or_insert_with(|| fault.clone());
        }
        if !self.is_read {
            return;
        }
        while state.bytes >= WAITING_BYTES_MAX {
            if is_cancelled() {
                return;
            }
            let waited = self.taken.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.bytes += news.bytes_max();
        state.waiting.push_back(news);
    }

    /// Asks for consent, and waits for the answer. Without a reader there is none.
    pub(super) fn ask(&self, question: RemovalQuestion, is_cancelled: impl Fn() -> bool) -> bool {
        if !self.is_read {
            return false;
        }
        self.lock().consent = None;
        self.add(TreeNews::Question(question), &is_cancelled);
        let mut state = self.lock();
        loop {
            match state.consent {
                Some(consent) => return consent,
                None if is_cancelled() => return false,
                None => {}
            }
            let waited = self.taken.wait_timeout(state, TICK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Forgets those that wait, which may never be asked for.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.first += state.waiting.len() as u64;
        state.waiting = VecDeque::new();
        state.bytes = 0;
    }

    /// The first failure of an entry.
    pub(super) fn first_failure(&self) -> Option<Fault> {
        self.lock().first_failure.clone()
    }

    /// The news from a number on; those before were taken.
    pub(super) fn take(&self, query: TreeQuery) -> Part {
        let mut state = self.lock();
        while state.first < query.from
            && let Some(taken) = state.waiting.pop_front()
        {
            state.bytes -= taken.bytes_max();
            state.first += 1;
        }
        if query.consent.is_some() {
            state.consent = query.consent;
        }
        let mut bytes = 0;
        let fits = |news: &&TreeNews| {
            bytes += news.bytes_max();
            bytes <= NEWS_BYTES
        };
        let news: Vec<_> = state
            .waiting
            .iter()
            .take(PART_MAX)
            .take_while(fits)
            .collect();
        let news: Vec<_> = news.into_iter().cloned().collect();
        let part = Part {
            figures: state.figures,
            is_counted: state.is_counted,
            first: state.first,
            more: news.len() < state.waiting.len(),
            news,
        };
        drop(state);
        self.wake();
        part
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use xdfs_proto::third_party::{CopyId, TreeStep};

    use super::*;

    fn step(number: usize) -> TreeNews {
        TreeNews::Step {
            step: TreeStep::Copy,
            path: number.to_string().into_bytes(),
            from: vec![b'x'; 4000],
        }
    }

    fn query(from: u64, consent: Option<bool>) -> TreeQuery {
        TreeQuery {
            copy: CopyId([1; 16]),
            from,
            consent,
        }
    }

    #[test]
    fn a_full_queue_waits_for_its_reader_and_loses_nothing() {
        let news = News::new(true);
        let wanted = 3 * WAITING_BYTES_MAX / 4000;
        let mut taken = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| (0..wanted).for_each(|number| news.add(step(number), || false)));
            while taken.len() < wanted {
                let from = taken.len() as u64;
                let part = news.take(query(from, None));
                assert!(part.news.iter().map(TreeNews::bytes_max).sum::<usize>() <= NEWS_BYTES);
                assert!(news.lock().bytes < WAITING_BYTES_MAX + 5000);
                assert_eq!(part.first, from);
                // An answer that was lost is given again.
                let again = news.take(query(from, None));
                assert_eq!(again.news[..part.news.len()], part.news);
                taken.extend(part.news);
            }
        });
        assert_eq!(taken, (0..wanted).map(step).collect::<Vec<_>>());
        assert!(!news.take(query(wanted as u64, None)).more);
    }

    #[test]
    fn news_that_are_forgotten_leave_their_numbers() {
        let news = News::new(true);
        (0..3).for_each(|number| news.add(step(number), || false));
        news.forget();
        assert_eq!(news.lock().bytes, 0);
        news.add(step(3), || false);
        let part = news.take(query(1, None));
        assert_eq!(
            (part.first, part.news, part.more),
            (3, vec![step(3)], false)
        );
    }

    #[test]
    fn a_question_waits_for_an_answer_or_the_end() {
        let ask = |news: &News, is_cancelled: &AtomicBool| {
            news.ask(RemovalQuestion::Root(1), || {
                is_cancelled.load(Ordering::Relaxed)
            })
        };
        let never = AtomicBool::new(false);
        for answer in [true, false] {
            let news = News::new(true);
            thread::scope(|scope| {
                let asking = scope.spawn(|| ask(&news, &never));
                while news.take(query(0, None)).news.is_empty() {
                    thread::yield_now();
                }
                news.take(query(1, Some(answer)));
                assert_eq!(asking.join().unwrap(), answer);
            });
        }
        assert!(!ask(&News::new(false), &never), "without a reader");
        assert!(!ask(&News::new(true), &AtomicBool::new(true)), "cancelled");
    }
}
