//! The tests, and one line with their total count.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::{Failure, Outcome, cargo, code};

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

/// Runs all tests of the workspace, or those that `args` choose, to the end even if some fail.
pub(crate) fn test(args: &[OsString]) -> Outcome {
    let mut child = cargo()
        .args(["test", "--locked", "--no-fail-fast"])
        .args(args)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("can't run cargo test: {e}"))?;
    let mut count = Count::default();
    if let Some(stdout) = child.stdout.take() {
        let mut out = std::io::stdout();
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        // By bytes: a test may print anything.
        while matches!(stdout.read_until(b'\n', &mut line), Ok(n) if n > 0) {
            // A reader of ours that is gone is no reason to stop testing.
            let _ = out.write_all(&line);
            count.add_line(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    }
    let status = child
        .wait()
        .map_err(|e| format!("can't wait for cargo test: {e}"))?;
    if !status.success() && count.failed == 0 {
        println!("xtask: cargo test failed outside of a test, see above");
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
}
