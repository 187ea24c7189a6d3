//! The opener's account of its streams: which are missing, and when to try again.

use std::time::Duration;

use super::wire::Secret;
use crate::endpoint::Endpoint;
use crate::stack::Stack;

/// Waits between attempts at one place: doubled from the first to the last.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Attempts in a row at one place before the bundle goes on with fewer streams.
const FAILURES_MAX: u32 = 10;

/// How the streams of a bundle are opened.
#[derive(Debug)]
pub(super) struct Dial {
    pub(super) stack: Stack,
    pub(super) endpoint: Endpoint,
    pub(super) id: [u8; 16],
    pub(super) secret: Secret,
    serial: u32,
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Joined,
    Dialling { failures: u32 },
    Waiting { failures: u32, until: Duration },
    GivenUp,
}

impl Dial {
    pub(super) fn new(stack: Stack, endpoint: Endpoint, id: [u8; 16], secret: Secret) -> Self {
        Self {
            stack,
            endpoint,
            id,
            secret,
            serial: 0,
            places: Vec::new(),
        }
    }

    /// The peer granted so many streams; all but the first are missing.
    pub(super) fn granted(&mut self, streams: usize) {
        let missing = Place::Waiting {
            failures: 0,
            until: Duration::ZERO,
        };
        self.places = vec![missing; streams];
        self.joined(0);
    }

    pub(super) fn joined(&mut self, index: usize) {
        if let Some(place) = self.places.get_mut(index) {
            *place = Place::Joined;
        }
    }

    pub(super) fn lost(&mut self, index: usize, now: Duration) {
        if let Some(place) = self.places.get_mut(index)
            && *place == Place::Joined
        {
            *place = Place::Waiting {
                failures: 0,
                until: now,
            };
        }
    }

    pub(super) fn failed(&mut self, index: usize, now: Duration, refused: bool) {
        let Some(place) = self.places.get_mut(index) else {
            return;
        };
        if let Place::Dialling { failures } = *place {
            *place = if refused || failures + 1 >= FAILURES_MAX {
                Place::GivenUp
            } else {
                let wait = (WAIT_MIN * (1 << failures.min(8))).min(WAIT_MAX);
                Place::Waiting {
                    failures: failures + 1,
                    until: now + wait,
                }
            };
        }
    }

    /// The places to be dialled now, each with a new serial number.
    pub(super) fn due(&mut self, now: Duration) -> Vec<(usize, u32)> {
        let mut due = Vec::new();
        for (index, place) in self.places.iter_mut().enumerate() {
            if let Place::Waiting { failures, until } = *place
                && until <= now
            {
                *place = Place::Dialling { failures };
                self.serial += 1;
                due.push((index, self.serial));
            }
        }
        due
    }

    /// Whether places are missing for which attempts are made.
    pub(super) fn is_incomplete(&self) -> bool {
        let is_tried = |p: &Place| matches!(p, Place::Waiting { .. } | Place::Dialling { .. });
        self.places.iter().any(is_tried)
    }

    /// Whether every place was given up.
    pub(super) fn is_hopeless(&self) -> bool {
        self.places.iter().all(|place| *place == Place::GivenUp)
    }
}
