//! The figures of a server, which its doors count and its metrics show. All counts begin with the
//! server and have no names of users, paths or peers.
//!
//! Counting must cost sessions nothing that can be measured. So a session keeps its own counts of
//! what happens often, and adds them here several times a second at most.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use xdfs_proto::Code;

/// A count that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number of things that are there at present.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Replaces the number, where one thread knows it.
    pub fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    /// Replaces the part of the number that somebody has added before.
    pub fn replace(&self, old: u64, new: u64) {
        // Wraps around where it becomes less.
        self.0.fetch_add(new.wrapping_sub(old), Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, until the guard is dropped. `gauge` chooses it among the figures of `of`.
    #[must_use]
    pub fn one<T>(of: &Arc<T>, gauge: fn(&T) -> &Self) -> One<T> {
        gauge(of).replace(0, 1);
        One {
            of: Arc::clone(of),
            gauge,
        }
    }
}

/// One of the things that a [`Gauge`] counts.
#[derive(Debug)]
pub struct One<T> {
    of: Arc<T>,
    gauge: fn(&T) -> &Gauge,
}

impl<T> Drop for One<T> {
    fn drop(&mut self) {
        (self.gauge)(&self.of).replace(1, 0);
    }
}

/// What failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failing {
    /// A channel or a connection was refused before anybody logged in.
    Opening,
    /// Somebody couldn't log in.
    Login,
    /// A session ended by a fault.
    Session,
    /// A transfer of a file, or of a pack of small files.
    Transfer,
    /// A call about a path or an open file.
    Call,
}

impl Failing {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Opening,
        Self::Login,
        Self::Session,
        Self::Transfer,
        Self::Call,
    ];

    /// Its stable name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Opening => "opening",
            Self::Login => "login",
            Self::Session => "session",
            Self::Transfer => "transfer",
            Self::Call => "call",
        }
    }
}

/// Failures by what failed and by the code of the fault.
#[derive(Debug)]
pub struct Failures([[Counter; Code::ALL.len()]; Failing::ALL.len()]);

impl Default for Failures {
    fn default() -> Self {
        Self(std::array::from_fn(|_| {
            std::array::from_fn(|_| Counter::default())
        }))
    }
}

impl Failures {
    /// Counts a failure.
    pub fn count(&self, what: Failing, code: Code) {
        let of = Failing::ALL.iter().position(|own| *own == what);
        let code = Code::ALL.iter().position(|own| *own == code);
        if let Some((of, code)) = of.zip(code) {
            self.0[of][code].add(1);
        }
    }

    /// The counts that aren't zero.
    pub fn iter(&self) -> impl Iterator<Item = (Failing, Code, u64)> {
        let all = Failing::ALL.into_iter().zip(&self.0);
        let each = all.flat_map(|(what, of)| {
            let codes = Code::ALL.iter().zip(of);
            codes.map(move |(code, count)| (what, *code, count.get()))
        });
        each.filter(|(.., count)| *count > 0)
    }
}

/// The figures of one door.
#[derive(Debug, Default)]
pub struct Tally {
    /// Sessions at present: of clients that have logged in, where they have to.
    pub sessions: Gauge,
    /// Sessions that have begun.
    pub sessions_begun: Counter,
    /// Connections at present of clients that haven't logged in, or have no session yet.
    pub strangers: Gauge,
    /// Open channels, or data connections, at present.
    pub channels: Gauge,
    /// Channels, or data connections, that were opened.
    pub channels_opened: Counter,
    /// Bytes of payload received in transfers.
    pub received_bytes: Counter,
    /// Bytes of payload sent in transfers.
    pub sent_bytes: Counter,
    /// Transfers to this server at present.
    pub receiving: Gauge,
    /// Transfers from this server at present.
    pub sending: Gauge,
    /// Transfers to this server that have succeeded.
    pub received: Counter,
    /// Transfers from this server that have succeeded.
    pub sent: Counter,
    /// Failures.
    pub failures: Failures,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_goes_up_and_down() {
        let tally = Arc::new(Tally::default());
        let guards = [(); 2].map(|()| Gauge::one(&tally, |tally| &tally.channels));
        assert_eq!(tally.channels.get(), 2);
        tally.channels.replace(5, 3);
        assert_eq!(tally.channels.get(), 0);
        tally.channels.replace(3, 5);
        drop(guards);
        assert_eq!(tally.channels.get(), 0);
    }

    #[test]
    fn failures_are_counted_by_their_codes() {
        let failures = Failures::default();
        for &code in Code::ALL {
            failures.count(Failing::Call, code);
        }
        failures.count(Failing::Login, Code::AuthenticationFailed);
        failures.count(Failing::Login, Code::AuthenticationFailed);
        let all: Vec<_> = failures.iter().collect();
        assert_eq!(all.len(), Code::ALL.len() + 1);
        assert_eq!(all[0], (Failing::Login, Code::AuthenticationFailed, 2));
        assert!(
            all[1..]
                .iter()
                .all(|(what, _, n)| (*what, *n) == (Failing::Call, 1))
        );
    }
}
