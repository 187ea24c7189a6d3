//! Tests that can't run on this machine, told to whoever counts.
//!
//! The standard test harness knows no test that skips itself: one that returns early counts as
//! passed, and what it printed is swallowed. So it says why here, and then returns:
//!
//! ```no_run
//! # fn is_root() -> bool { false }
//! if !is_root() {
//!     return xdfs_testkit::skip::test("only root can change ids");
//! }
//! ```
//!
//! `cargo xtask test` sets [`LIST`] and counts what stands there afterwards as skipped. Without the
//! variable the reason is only printed.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::panic::Location;

/// Environment variable with the path of the file that collects the reasons. A line has four
/// fields between tabs: `test` or `part`, the test program, the test, the reason.
pub const LIST: &str = "XDFS_SKIPPED_LIST";

/// The calling test can't run here, and returns right after this.
///
/// Call it in the thread of the test: the harness names that one by the test.
#[track_caller]
pub fn test(reason: impl Display) {
    report("test", &reason);
}

/// A part of the calling test can't run here; the rest does, and the test counts by its end.
#[track_caller]
pub fn part(reason: impl Display) {
    report("part", &reason);
}

#[track_caller]
fn report(kind: &str, reason: &dyn Display) {
    let thread = std::thread::current();
    let name = match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        // Tests run one by one have no threads of their own.
        _ => Location::caller().to_string(),
    };
    let reason = reason.to_string();
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("skipped ({kind}): {name}: {reason}");
    if let Some(path) = std::env::var_os(LIST) {
        let line = format!("{kind}\t{}\t{name}\t{reason}\n", program());
        let added = OpenOptions::new().append(true).create(true).open(&path);
        // One write, so that lines of other tests don't get between.
        let added = added.and_then(|mut list| list.write_all(line.as_bytes()));
        lost(added, &path.to_string_lossy());
    }
}

/// A skipped test that nobody counts would be a passed one.
fn lost(added: io::Result<()>, path: &str) {
    if let Err(error) = added {
        panic!("{LIST} names {path}, which can't be written: {error}");
    }
}

/// The name of the test program, without the hash that cargo puts behind it.
fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&path).file_stem().unwrap_or_default();
    let name = name.to_string_lossy();
    match name.rsplit_once('-') {
        Some((name, hash)) if hash.len() == 16 => name.to_owned(),
        _ => name.into_owned(),
    }
}
