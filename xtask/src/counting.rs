//! The tests, and one line with their total count.
//!
//! A test that can't run on a machine returns early, and the test harness counts it as passed. It
//! tells why in a file (`xdfs_testkit::skip`), by which it is counted as skipped here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::{Failure, OPTIONAL, Outcome, cargo, code, root};

/// The variable with the path of the file, as `xdfs_testkit::skip` reads it.
const LIST: &str = "XDFS_SKIPPED_LIST";
/// The variable with the number of tests at a time, as the test harness reads it.
const THREADS: &str = "RUST_TEST_THREADS";

/// Numbers of tests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Count {
    /// Adds what one result line of the test runner says; other lines change nothing.
    fn add_line(&mut self, line: &str) {
        let Some(numbers) = line
            .strip_prefix("test result: ")
            .and_then(|l| l.split_once(". "))
        else {
            return;
        };
        for part in numbers.1.split("; ") {
            let Some((number, what)) = part.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

/// A test that did not run, or only in part, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Skipped {
    is_part: bool,
    /// The test program and the test in it.
    test: String,
    reason: String,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = if self.is_part { " (in part)" } else { "" };
        write!(f, "{}{part}: {}", self.test, self.reason)
    }
}

/// The skipped tests of the file, each once.
fn skipped(list: &str) -> BTreeSet<Skipped> {
    let mut skipped = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for line in list.lines() {
        let fields: Vec<&str> = line.splitn(4, '\t').collect();
        let [kind, program, test, reason] = fields[..] else {
            continue;
        };
        let (is_part, test) = (kind == "part", format!("{program} {test}"));
        // A test may say it for each of its cases.
        if seen.insert((is_part, test.clone())) {
            skipped.insert(Skipped {
                is_part,
                test,
                reason: reason.to_owned(),
            });
        }
    }
    skipped
}

/// A test that the harness itself left out, from the line that says so.
fn ignored(line: &str) -> Option<Skipped> {
    let (test, result) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let reason = match result.strip_prefix("ignored")? {
        "" => "no reason given",
        reason => reason.strip_prefix(", ")?,
    };
    Some(Skipped {
        is_part: false,
        test: test.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Runs all tests of the workspace, or those that `args` choose, to the end even if some fail.
pub(crate) fn test(args: &[OsString]) -> Outcome {
    let list = root()
        .join("target")
        .join(format!("skipped-{}.txt", std::process::id()));
    let _ = std::fs::create_dir_all(root().join("target"));
    std::fs::write(&list, "").map_err(|e| format!("can't write {}: {e}", list.display()))?;
    // A choice of packages may leave out those that have it.
    let all: &[&str] = match args {
        [] => &["--workspace", "--features", OPTIONAL],
        _ => &[],
    };
    let mut tests = cargo();
    tests
        .args(["test", "--locked", "--no-fail-fast"])
        .args(all)
        .args(args)
        .env(LIST, &list);
    if std::env::var_os(THREADS).is_none()
        && let Ok(processors) = std::thread::available_parallelism()
    {
        // Most tests wait: for other processes, for disks, for times to pass.
        tests.env(THREADS, (2 * processors.get()).to_string());
    }
    let mut child = tests
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("can't run cargo test: {e}"))?;
    let mut count = Count::default();
    let mut left_out = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        let mut out = std::io::stdout();
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        // By bytes: a test may print anything.
        while matches!(stdout.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            // A reader of ours that is gone is no reason to stop testing.
            let _ = out.write_all(&line);
            let text = String::from_utf8_lossy(&line);
            count.add_line(text.trim_end());
            left_out.extend(ignored(text.trim_end()));
            line.clear();
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("can't wait for cargo test: {e}"))?;
    let told = std::fs::read_to_string(&list)
        .map_err(|e| format!("can't read what was skipped, {}: {e}", list.display()))?;
    let _ = std::fs::remove_file(&list);
    if !status.success() && count.failed == 0 {
        println!("xtask: cargo test failed outside of a test, see above");
    }
    let told = skipped(&told);
    // The harness counted them as passed.
    let early = told.iter().filter(|skipped| !skipped.is_part).count() as u64;
    count.passed = count.passed.saturating_sub(early);
    count.skipped += early;
    left_out.extend(told);
    if !left_out.is_empty() {
        println!("skipped:");
        left_out.iter().for_each(|skipped| println!("  {skipped}"));
    }
    println!(
        "{} passed, {} failed, {} skipped",
        count.passed, count.failed, count.skipped
    );
    if status.success() {
        Ok(())
    } else {
        Err(Failure::Status(code(status)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_added_up() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; \
             finished in 0.00s",
            "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out",
            "a test that prints: test result: ok. 100 passed; 0 failed",
            "test result: nonsense",
        ] {
            count.add_line(line);
        }
        assert_eq!(
            count,
            Count {
                passed: 5,
                failed: 5,
                skipped: 1
            }
        );
    }

    #[test]
    fn skipped_tests_are_named_once_with_their_reason() {
        let list = "test\tsuite\ta::b\tthis user can't mount\n\
                    test\tsuite\ta::b\tthis user can't mount\n\
                    part\tsuite\tc\tno holes\n\
                    nonsense\n";
        let shown: Vec<String> = skipped(list).iter().map(Skipped::to_string).collect();
        let expected = [
            "suite a::b: this user can't mount",
            "suite c (in part): no holes",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn ignored_tests_are_named_with_their_reason() {
        let found = ignored("test model::all ... ignored, takes minutes").unwrap();
        assert_eq!(found.to_string(), "model::all: takes minutes");
        assert!(ignored("test model::all ... ignored").is_some());
        for line in ["test model::all ... ok", "test result: ok. 1 ignored", ""] {
            assert_eq!(ignored(line), None, "{line}");
        }
    }
}
