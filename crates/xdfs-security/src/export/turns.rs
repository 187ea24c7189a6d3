//! Turns of those who change what is counted in a directory.
//!
//! What a change costs is found by a look at what is there, and counted when it has been made. In
//! between nobody else may change the same, or both would count it, or give it back. So every
//! change has a turn, of one of two kinds:
//!
//! - [`Turns::alone`]: it takes away, replaces or shortens what has a name, and looked it up by
//!   that. Nothing else changes meanwhile.
//! - The others go on side by side: [`Turns::new_name`] for what gets a name, as two that publish
//!   can't have the same target; and, for an open file, [`Turns::length`] for what may change its
//!   length and [`Turns::content`] for what must not see that change. These two exclude each
//!   other for each file, some files having a place in common.
//!
//! Nobody takes a second turn while holding one.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Places of open files.
const PLACES: usize = 64;

/// The turns of one directory, for all sessions.
#[derive(Debug)]
pub(super) struct Turns {
    all: RwLock<()>,
    places: [RwLock<()>; PLACES],
}

/// A turn, until it is dropped.
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
    /// The only one.
    pub(super) fn alone(&self) -> Turn<'_> {
        let all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        Turn::Alone { _all: all }
    }

    /// From the look at what a new file replaces until that is counted.
    pub(super) fn new_name(&self) -> Turn<'_> {
        Turn::NewName {
            _all: self.beside(),
        }
    }

    /// For what may change the length of the open file with this number.
    pub(super) fn length(&self, number: u64) -> Turn<'_> {
        let all = self.beside();
        let place = self.place(number).write();
        Turn::Length {
            _place: place.unwrap_or_else(PoisonError::into_inner),
            _all: all,
        }
    }

    /// For what is done within the length that the open file with this number has.
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
