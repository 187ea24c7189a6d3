//! Finds the entries of a tree that pass tests, and removes them if that is wanted.

use std::collections::VecDeque;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use xdfs_proto::{Code, Fault};
use xdfs_store::NamePattern;

use super::calls::InFlight;
use super::path::is_root;
use super::side::{PathSide, SidePath};
use super::walk::{Walk, WalkEntry, WalkOptions, WalkStep};
use crate::paths::{Answer, Call, FileKind};

/// Nanoseconds of a day.
const DAY_NS: i64 = 86_400 * 1_000_000_000;

/// How a number is compared: equal, greater, or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Exactly,
    More,
    Less,
}

impl Bound {
    /// Splits the sign off a word.
    fn split(text: &str) -> (Self, &str) {
        match text.as_bytes().first() {
            Some(b'+') => (Self::More, &text[1..]),
            Some(b'-') => (Self::Less, &text[1..]),
            _ => (Self::Exactly, text),
        }
    }

    fn holds<T: Ord>(self, found: T, wanted: T) -> bool {
        match self {
            Self::Exactly => found == wanted,
            Self::More => found > wanted,
            Self::Less => found < wanted,
        }
    }
}

/// A test of sizes, as find(1) has it: a size is rounded up to the unit of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeTest {
    bound: Bound,
    units: u64,
    unit_bytes: u64,
}

impl SizeTest {
    /// Whether a file of this size matches.
    #[must_use]
    pub fn holds(&self, bytes: u64) -> bool {
        self.bound
            .holds(bytes.div_ceil(self.unit_bytes), self.units)
    }
}

impl FromStr for SizeTest {
    type Err = Fault;

    /// Parses a number and `c` (bytes), `k`, `M`, `G` or `T` (powers of 1024); without a letter,
    /// blocks of 512 bytes. `+` before it asks for more, and `-` for less.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let (bound, rest) = Bound::split(text);
        let (number, unit_bytes) = match rest.as_bytes().last() {
            Some(b'c') => (&rest[..rest.len() - 1], 1),
            Some(b'k' | b'K') => (&rest[..rest.len() - 1], 1 << 10),
            Some(b'M') => (&rest[..rest.len() - 1], 1 << 20),
            Some(b'G') => (&rest[..rest.len() - 1], 1 << 30),
            Some(b'T') => (&rest[..rest.len() - 1], 1 << 40),
            _ => (rest, 512),
        };
        let units = whole(number).ok_or_else(|| {
            let cause = "a size is a number and c, k, M, G or T, after + for more, - for less";
            Fault::new(Code::InvalidArgument, "read the test of sizes", cause)
        })?;
        Ok(Self {
            bound,
            units,
            unit_bytes,
        })
    }
}

/// A test of the days since a time, as find(1) has it: days have 24 hours and are rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DaysTest {
    bound: Bound,
    days: i64,
}

impl DaysTest {
    /// Whether a time matches; both are in nanoseconds since 1970.
    #[must_use]
    pub fn holds(&self, time_ns: i64, now_ns: i64) -> bool {
        let days = now_ns.saturating_sub(time_ns).div_euclid(DAY_NS);
        self.bound.holds(days, self.days)
    }
}

impl FromStr for DaysTest {
    type Err = Fault;

    /// Parses a number of days. `+` before it asks for more, and `-` for less.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let (bound, rest) = Bound::split(text);
        let days = whole(rest).and_then(|days| i64::try_from(days).ok());
        let days = days.ok_or_else(|| {
            let cause = "days are a whole number, after + for more, - for less";
            Fault::new(Code::InvalidArgument, "read the test of days", cause)
        })?;
        Ok(Self { bound, days })
    }
}

/// Parses a number of digits only.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// The tests that an entry has to pass, all of them.
#[derive(Clone, Debug, Default)]
pub struct FindTests {
    /// The name of the entry; that of the start is the last part of its path.
    pub name: Option<NamePattern>,
    /// The kind.
    pub kind: Option<FileKind>,
    /// The size, of any kind of entry.
    pub size: Option<SizeTest>,
    /// The days since the last modification.
    pub modified: Option<DaysTest>,
    /// The last modification was after this time, in nanoseconds since 1970.
    pub newer_ns: Option<i64>,
}

impl FindTests {
    /// Whether everything passes.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.name.is_none()
            && self.kind.is_none()
            && self.size.is_none()
            && self.modified.is_none()
            && self.newer_ns.is_none()
    }

    /// Whether an entry passes; `now_ns` is the present time in nanoseconds since 1970.
    #[must_use]
    pub fn hold(&self, entry: &WalkEntry, now_ns: i64) -> bool {
        let a = &entry.attributes;
        let is_of_days = |days: DaysTest| days.holds(a.mtime_ns, now_ns);
        self.kind.is_none_or(|kind| kind == a.kind)
            && self.size.is_none_or(|size| size.holds(a.size))
            && self.modified.is_none_or(is_of_days)
            && self.newer_ns.is_none_or(|time| a.mtime_ns > time)
            && (self.name.as_ref()).is_none_or(|name| name.matches(&entry.name))
    }
}

/// What is searched for, and what is done with it.
#[derive(Clone, Debug)]
pub struct FindOptions {
    /// The tests.
    pub tests: FindTests,
    /// The time that the tests count as the present, in nanoseconds since 1970. Default: that of
    /// the clock.
    pub now_ns: i64,
    /// Levels below the start that are searched at most; 0 tests the start only. Default: all.
    pub depth_max: u32,
    /// Removes what passes, directories after their contents. A directory that isn't empty by then
    /// stays, and is a failure. The root is never removed.
    pub delete: bool,
}

impl Default for FindOptions {
    fn default() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            tests: FindTests::default(),
            now_ns: now.map_or(0, |now| i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)),
            depth_max: u32::MAX,
            delete: false,
        }
    }
}

impl FindOptions {
    /// Checks that a search that starts at `path`, on a server, doesn't remove everything there.
    /// [`Find::new`] does so too; this needs no session.
    ///
    /// # Errors
    /// It would; the fault names neither the path nor the server.
    pub fn check(&self, path: &[u8]) -> Result<(), Fault> {
        self.check_root(path, "the root of the server")
    }

    fn check_root(&self, path: &[u8], root: &str) -> Result<(), Fault> {
        if !self.delete || !self.tests.are_none() || !is_root(path) {
            return Ok(());
        }
        let cause = format!("everything below {root} would be removed");
        let fault = Fault::new(Code::InvalidArgument, "remove", cause);
        Err(fault.hint("add a test such as -name, or name a directory"))
    }
}

/// A result of a search.
#[derive(Debug)]
pub enum FindStep {
    /// An entry that passes, in the order of the walk. None are returned if they are removed.
    Found(WalkEntry),
    /// The path of an entry that passed, and was removed.
    Removed(Vec<u8>),
    /// An entry that doesn't pass, or the end of a directory: an occasion to stop the search.
    Other,
    /// A directory could not be listed completely, or an entry not be removed.
    Failed(Fault),
}

/// A search, which is an iterator over its results. Removals are made several at a time, while the
/// search is read.
#[derive(Debug)]
pub struct Find<'a> {
    side: &'a PathSide,
    options: &'a FindOptions,
    /// `None` once there is nothing more to search.
    walk: Option<Walk<'a, PathSide>>,
    removals: InFlight<Vec<u8>>,
    /// Results not yet returned.
    ready: VecDeque<FindStep>,
}

impl<'a> Find<'a> {
    /// Starts a search of the tree at `start`. A symbolic link there isn't followed.
    ///
    /// # Errors
    /// The start can't be looked up, or everything below the root would be removed.
    pub fn new(start: &'a SidePath, options: &'a FindOptions) -> Result<Self, Fault> {
        let SidePath { side, path } = start;
        let root = match side {
            PathSide::Local => "the root of this machine",
            PathSide::Remote(_) => "the root of the server",
        };
        let checked = options.check_root(path, root);
        checked.map_err(|fault| side.fault(fault.path(path)))?;
        let walked = WalkOptions {
            depth_max: options.depth_max,
            ..WalkOptions::default()
        };
        Ok(Self {
            side,
            options,
            walk: Some(start.walk(start.stat(false)?, walked)),
            removals: InFlight::new(),
            ready: VecDeque::new(),
        })
    }

    /// Searches and removes nothing more. What is still returned are the results of removals that
    /// were begun.
    pub fn stop(&mut self) {
        self.walk = None;
    }

    fn passes(&self, entry: &WalkEntry) -> bool {
        self.options.tests.hold(entry, self.options.now_ns)
    }

    fn take(&mut self, step: WalkStep) {
        let is_entered =
            |entry: &WalkEntry| entry.is_directory() && entry.depth < self.options.depth_max;
        match step {
            WalkStep::Failed(fault) => self.ready.push_back(FindStep::Failed(fault)),
            WalkStep::Entry(entry) if !self.options.delete => {
                if self.passes(&entry) {
                    self.ready.push_back(FindStep::Found(entry));
                }
            }
            WalkStep::Left(_) if !self.options.delete => {}
            // A directory that is entered is removed after its contents.
            WalkStep::Entry(entry) if is_entered(&entry) => {}
            WalkStep::Entry(entry) | WalkStep::Left(entry) => {
                if self.passes(&entry) {
                    self.remove(entry);
                }
            }
        }
    }

    fn remove(&mut self, entry: WalkEntry) {
        let is_directory = entry.is_directory();
        let path = entry.path;
        if is_root(&path) {
            return;
        }
        if !is_directory {
            let call = Call::RemoveFile { path: path.clone() };
            let earliest = self.removals.push(path, self.side.start_call(call));
            self.ready.extend(earliest.map(outcome));
            return;
        }
        // Its contents first.
        while let Some(earlier) = self.removals.pop() {
            self.ready.push_back(outcome(earlier));
        }
        let call = Call::RemoveDirectory { path: path.clone() };
        let removed = self.side.start_call(call).wait();
        self.ready.push_back(outcome((path, removed)));
    }
}

fn outcome((path, result): (Vec<u8>, Result<Answer, Fault>)) -> FindStep {
    match result {
        Ok(_) => FindStep::Removed(path),
        Err(fault) => FindStep::Failed(fault),
    }
}

impl Iterator for Find<'_> {
    type Item = FindStep;

    fn next(&mut self) -> Option<FindStep> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(step);
            }
            let Some(walk) = &mut self.walk else {
                return self.removals.pop().map(outcome);
            };
            match walk.next() {
                Some(step) => {
                    self.take(step);
                    if self.ready.is_empty() {
                        return Some(FindStep::Other);
                    }
                }
                None => self.walk = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_their_unit() {
        for (test, bytes, holds) in [
            ("1", 1, true),
            ("1", 513, false),
            ("+1", 513, true),
            ("-1", 1, false),
            ("-1", 0, true),
            ("5c", 5, true),
            ("+5c", 5, false),
            ("1k", 1024, true),
            ("1M", 1, true),
            ("+1M", (1 << 20) + 1, true),
            ("-1G", 1, false),
        ] {
            let parsed: SizeTest = test.parse().unwrap();
            assert_eq!(parsed.holds(bytes), holds, "{test} {bytes}");
        }
        for bad in [
            "",
            "+",
            "k",
            "1.5k",
            "--1",
            "1x",
            "99999999999999999999",
            "\u{e9}",
        ] {
            assert!(bad.parse::<SizeTest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn days_are_rounded_down() {
        let now = 10 * DAY_NS;
        for (test, days_ago, holds) in [
            ("0", 0, true),
            ("1", 1, true),
            ("+1", 1, false),
            ("+1", 2, true),
            ("-1", 0, true),
            ("-1", 1, false),
        ] {
            let parsed: DaysTest = test.parse().unwrap();
            let time = now - days_ago * DAY_NS - 5;
            assert_eq!(parsed.holds(time, now), holds, "{test} {days_ago}");
        }
        assert!(!"0".parse::<DaysTest>().unwrap().holds(i64::MAX, now));
        assert!("x".parse::<DaysTest>().is_err() && "".parse::<DaysTest>().is_err());
    }

    #[test]
    fn the_root_is_removed_only_by_a_test() {
        let mut options = FindOptions {
            delete: true,
            ..FindOptions::default()
        };
        for root in [&b"/"[..], b"/a/.."] {
            let fault = options.check(root).unwrap_err();
            assert!(fault.cause.contains("below the root of the server"));
        }
        assert!(options.check(b"/a").is_ok());
        let here = SidePath::new(PathSide::Local, b"//");
        assert!(Find::new(&here, &options).is_err());
        options.tests.kind = Some(FileKind::Fifo);
        assert!(options.check(b"/").is_ok());
    }
}
