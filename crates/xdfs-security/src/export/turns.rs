//! Serialisation of changes that affect a directory's usage count.
//!
//! The cost of a change is determined by looking at what exists, and counted after the change. In
//! between, no conflicting change may happen, or both would count or release the same. So each
//! change takes a turn, of one of two kinds:
//!
//! - [`Turns::alone`]: for changes that remove, replace or shorten an entry found by name. It
//!   excludes all others.
//! - Those that may run concurrently: [`Turns::new_name`] for creating a name, since two
//!   publications can't have the same target; and, for an open file, [`Turns::length`] for
//!   changing its length and [`Turns::content`] for what must not overlap with that. These two
//!   exclude each other per file, where some files share a lock.
//!
//! A thread holds at most one turn.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of locks for open files.
const PLACES: usize = 64;

/// The turns in one directory, for all sessions.
#[derive(Debug)]
pub(super) struct Turns {
    all: RwLock<()>,
    places: [RwLock<()>; PLACES],
}

/// A turn, held until it is dropped.
#[derive(Debug)]
#[must_use]
pub(super) enum Turn<'a> {
    Alone {
        _all: RwLockWriteGuard<'a, ()>,
    },
    NewName {
        _all: RwLockReadGuard<'a, ()>,
    },
    Length {
        _place: RwLockWriteGuard<'a, ()>,
        _all: RwLockReadGuard<'a, ()>,
    },
    Content {
        _place: RwLockReadGuard<'a, ()>,
        _all: RwLockReadGuard<'a, ()>,
    },
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            all: RwLock::new(()),
            places: std::array::from_fn(|_| RwLock::new(())),
        }
    }
}

impl Turns {
    /// An exclusive turn.
    pub(super) fn alone(&self) -> Turn<'_> {
        let all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        Turn::Alone { _all: all }
    }

    /// A turn from looking up what a new file replaces until that is counted.
    pub(super) fn new_name(&self) -> Turn<'_> {
        Turn::NewName {
            _all: self.beside(),
        }
    }

    /// A turn for changing the length of the open file with this number.
    pub(super) fn length(&self, number: u64) -> Turn<'_> {
        let all = self.beside();
        let place = self.place(number).write();
        Turn::Length {
            _place: place.unwrap_or_else(PoisonError::into_inner),
            _all: all,
        }
    }

    /// A turn for access within the present length of the open file with this number.
    pub(super) fn content(&self, number: u64) -> Turn<'_> {
        let all = self.beside();
        let place = self.place(number).read();
        Turn::Content {
            _place: place.unwrap_or_else(PoisonError::into_inner),
            _all: all,
        }
    }

    fn beside(&self) -> RwLockReadGuard<'_, ()> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, number: u64) -> &RwLock<()> {
        &self.places[(number % PLACES as u64) as usize]
    }
}
