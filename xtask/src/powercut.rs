//! Power cuts by hand: as many rounds of the test `power` of the program as one likes.

use std::ffi::OsString;

use crate::{Failure, Outcome, call, cargo};

/// The variable in which the test finds its arguments, which are separated by spaces.
const ARGUMENTS: &str = "XDFS_POWERCUT";

/// Builds the program and the bench, and passes the arguments on. The bench has the list of them.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let (release, args): (Vec<_>, Vec<_>) = args.iter().partition(|arg| *arg == "--release");
    let mut words = Vec::new();
    for arg in args {
        let word = arg.to_string_lossy();
        if word.is_empty() || word.contains(char::is_whitespace) {
            return Err(Failure::Message(format!("{word:?} has a space in it")));
        }
        words.push(word);
    }
    let mut test = cargo();
    test.args([
        "test",
        "--locked",
        "--package",
        "xdfs-cli",
        "--test",
        "power",
    ]);
    if !release.is_empty() {
        test.arg("--release");
    }
    test.args(["--", "--ignored", "--exact", "by_hand", "--nocapture"]);
    call(test.env(ARGUMENTS, words.join(" ")))
}
