//! Failures of many files for one reason: one line for the first, and one for all others.
//!
//! A full disk or a directory of somebody else stops thousands of files, and a line for each says
//! no more than their number. Memory is bounded by the kinds of failures, of which the first
//! [`KINDS_MAX`] are counted one by one.

use xdfs::{Code, Fault, quoted};

/// Kinds of failures that are counted one by one, and reported with their paths. Later ones are
/// counted together.
const KINDS_MAX: usize = 24;
/// Paths that the line about the others names at most.
const PATHS_MAX: usize = 3;

/// The failures of a command so far.
#[derive(Debug, Default)]
pub(crate) struct FoldedErrors {
    kinds: Vec<Kind>,
    /// Failures of further kinds.
    others: u64,
    /// The hint that was printed last.
    hint: String,
}

/// Failures for one reason.
#[derive(Debug)]
struct Kind {
    /// The first one, which was printed.
    first: Fault,
    cause: String,
    /// Other paths of the first ones after it.
    paths: Vec<Vec<u8>>,
    /// Failures of other paths.
    more: u64,
    /// Further failures of the first path and of `paths`.
    again: u64,
}

impl FoldedErrors {
    /// The failure to print now, without a hint that was printed just before; `None` if it is
    /// counted with others of its kind. With `all`, every one is printed.
    pub(crate) fn next(&mut self, fault: &Fault, all: bool) -> Option<Fault> {
        let cause = plain_cause(fault);
        if !all {
            let is_full = self.kinds.len() == KINDS_MAX;
            let known = self.kinds.iter_mut().find(|kind| kind.has(fault, &cause));
            if let Some(kind) = known {
                kind.count(&fault.path);
                return None;
            }
            if is_full {
                self.others += 1;
                return None;
            }
            self.kinds.push(Kind {
                first: fault.clone(),
                cause,
                paths: Vec::new(),
                more: 0,
                again: 0,
            });
        }
        let mut shown = fault.clone();
        if shown.hint == self.hint {
            shown.hint.clear();
        } else {
            self.hint.clone_from(&fault.hint);
        }
        Some(shown)
    }

    /// The failures that were not printed, one for each kind, and the number of those of further
    /// kinds. Forgets all.
    pub(crate) fn take_rest(&mut self) -> (Vec<Fault>, u64) {
        let Self { kinds, others, .. } = std::mem::take(self);
        let rest = kinds
            .iter()
            .filter(|kind| kind.more + kind.again > 0)
            .map(Kind::rest);
        (rest.collect(), others)
    }
}

impl Kind {
    fn count(&mut self, path: &[u8]) {
        if self.first.path == path || self.paths.iter().any(|known| known == path) {
            self.again += 1;
            return;
        }
        self.more += 1;
        if self.paths.len() < PATHS_MAX && !path.is_empty() {
            self.paths.push(path.to_vec());
        }
    }

    fn has(&self, fault: &Fault, cause: &str) -> bool {
        let first = &self.first;
        if (first.code, &first.machine, first.side) != (fault.code, &fault.machine, fault.side) {
            return false;
        }
        // Whatever was to be written, there is no place for it.
        let is_of_target = [Code::NoSpace, Code::QuotaExceeded, Code::ReadOnly];
        is_of_target.contains(&fault.code)
            || first.operation == fault.operation && self.cause == cause
    }

    /// All but the first, as one failure.
    fn rest(&self) -> Fault {
        let named = self.paths.len() as u64;
        let rest = self.more - named;
        let mut paths: Vec<_> = self.paths.iter().map(|path| quoted(path)).collect();
        let mut fault = self.first.clone().hint("");
        if named == 0 {
            // All others have the path of the first one, or none.
            fault.cause += &match self.more + self.again {
                1 => " (once more)".to_owned(),
                times => format!(" ({times} times more)"),
            };
            return fault;
        }
        if rest > 0 {
            paths.push(format!("{rest} more"));
        }
        fault.cause += &match (self.again, rest) {
            (0, 0) => String::new(),
            (0, _) => " (-v names all)".to_owned(),
            (again, _) => format!(" ({} errors; -v names all)", self.more + again),
        };
        fault.operation += &match paths.split_last() {
            None => String::new(),
            Some((last, [])) => format!(" {last}"),
            Some((last, others)) => format!(" {} and {last}", others.join(", ")),
        };
        fault.path.clear();
        fault
    }
}

/// The cause without what differs from file to file: the path, as some servers repeat it, and
/// numbers.
fn plain_cause(fault: &Fault) -> String {
    let path = String::from_utf8_lossy(&fault.path);
    let name = path.rsplit('/').next().unwrap_or_default();
    let mut cause = fault.cause.clone();
    for part in [&*path, name] {
        if part.len() > 1 {
            cause = cause.replace(part, "");
        }
    }
    cause.retain(|c| !c.is_ascii_digit());
    cause
}

#[cfg(test)]
mod tests {
    use xdfs::Machine;

    use super::*;

    fn full(path: &str) -> Fault {
        let fault = Fault::new(Code::NoSpace, "write", "no space left on device");
        fault.path(path).hint("free some")
    }

    fn rest(folded: &mut FoldedErrors) -> Vec<String> {
        let (faults, _) = folded.take_rest();
        faults.iter().map(Fault::to_string).collect()
    }

    #[test]
    fn a_reason_is_given_once_and_its_other_paths_at_the_end() {
        let mut folded = FoldedErrors::default();
        assert_eq!(folded.next(&full("/a"), false), Some(full("/a")));
        for number in 0..399 {
            assert_eq!(folded.next(&full(&format!("/d/{number}")), false), None);
        }
        let dir = Fault::new(Code::NoSpace, "make the directory", "disk full").path("/x");
        assert_eq!(folded.next(&dir, false), None, "the same full disk");
        // The one of another machine has another reason: the hint stands above it.
        let far = full("/a").remote().at(&Machine::server("lab"));
        assert_eq!(folded.next(&far, false), Some(far.clone().hint("")));
        let gone = Fault::new(Code::NotFound, "open", "no such file").path("b");
        assert_eq!(folded.next(&gone, false), Some(gone.clone()));
        assert_eq!(folded.next(&gone.clone().path("c"), false), None);
        assert_eq!(
            rest(&mut folded),
            [
                "cannot write '/d/0', '/d/1', '/d/2' and 397 more: no space left on device (-v \
                 names all)",
                "cannot open 'c': no such file",
            ]
        );
        assert_eq!(folded.take_rest(), (vec![], 0));
    }

    #[test]
    fn a_path_is_named_once() {
        let mut folded = FoldedErrors::default();
        let open = |path: &str| {
            let fault = Fault::new(Code::PermissionDenied, "write", "permission denied");
            fault.path(path)
        };
        assert!(folded.next(&open("/d/open"), false).is_some());
        for _ in 0..50 {
            assert!(folded.next(&open("/d/open"), false).is_none());
        }
        assert_eq!(
            rest(&mut folded),
            ["cannot write '/d/open': permission denied (50 times more)"]
        );
        assert!(folded.next(&open("/a"), false).is_some());
        for path in ["/a", "/b", "/c", "/b"] {
            assert!(folded.next(&open(path), false).is_none());
        }
        assert_eq!(
            rest(&mut folded),
            ["cannot write '/b' and '/c': permission denied (4 errors; -v names all)"]
        );
    }

    #[test]
    fn causes_that_repeat_the_path_are_one() {
        let mut folded = FoldedErrors::default();
        let said = |path: &str, name: &str| {
            let cause = format!("the server says 550 {name}: denied");
            Fault::new(Code::PermissionDenied, "open", cause).path(path)
        };
        assert!(folded.next(&said("/a/file1", "/a/file1"), false).is_some());
        assert!(folded.next(&said("/a/file2", "/a/file2"), false).is_none());
        assert!(folded.next(&said("/a/b", "b"), false).is_some());
        let pathless = Fault::new(Code::Io, "read", "broken");
        assert!(folded.next(&pathless, false).is_some());
        assert!(folded.next(&pathless, false).is_none());
        assert!(folded.next(&pathless, false).is_none());
        let rest = rest(&mut folded);
        assert!(rest[0].starts_with("cannot open '/a/file2': "), "{rest:?}");
        assert_eq!(rest[1], "cannot read: broken (2 times more)");
    }

    #[test]
    fn every_one_is_shown_if_details_are_wanted_and_kinds_are_bounded() {
        let mut folded = FoldedErrors::default();
        for _ in 0..3 {
            assert!(folded.next(&full("/a"), true).is_some());
        }
        assert_eq!(folded.take_rest(), (vec![], 0));
        for number in 0..KINDS_MAX + 5 {
            let operation = format!("do {number}");
            let fault = Fault::new(Code::Io, operation, "it broke").path("x");
            let shown = folded.next(&fault, false).is_some();
            assert_eq!(shown, number < KINDS_MAX);
        }
        assert_eq!(folded.take_rest(), (vec![], 5));
    }
}
