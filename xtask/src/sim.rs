//! The simulation by hand: as many seeds of the engine's test `sim` as one likes, or one of them.

use std::ffi::OsString;

use crate::{Failure, Outcome, call, cargo};

/// Seeds unless said otherwise: less than a minute.
const SEEDS: &str = "3000";

/// Passes the number on to the test. It is built as the other tests are, so that it starts at once.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    let (variable, number) = match args[..] {
        [] => ("XDFS_SIM_SEEDS", SEEDS),
        ["--seeds", number] => ("XDFS_SIM_SEEDS", number),
        ["--seed", number] => ("XDFS_SIM_SEED", number),
        _ => return Err(Failure::Message("sim takes --seeds N or --seed S".into())),
    };
    if number.parse::<u64>().is_err() {
        return Err(Failure::Message(format!("{number:?} is no number")));
    }
    let mut test = cargo();
    test.args([
        "test",
        "--locked",
        "--package",
        "xdfs-engine",
        "--test",
        "sim",
    ]);
    let name = "every_run_ends_well_or_says_why_not";
    test.args(["--", "--exact", name, "--nocapture"]);
    call(test.env(variable, number))
}
