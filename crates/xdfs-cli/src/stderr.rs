//! Text on standard error.
//!
//! The macros of the standard library panic where it can't be written: on a full disk, or into a
//! pipe that has no reader. Nothing may end because of that.

use std::io::Write as _;

/// Writes in one call. What can't be written is lost.
pub(crate) fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
