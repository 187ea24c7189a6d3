//! A short run of every fuzz target, by the script of `fuzz/` that people use as well.

use std::ffi::OsString;
use std::process::{Command, Stdio};

use crate::{Failure, Outcome, call, root};

/// Seconds for each target from which on it pays to optimize them: a shorter run is mostly its
/// build.
const OPTIMIZED_FROM: u32 = 10;

/// Runs each target for as many seconds as `--seconds` says.
pub(crate) fn run(args: &[OsString]) -> Outcome {
    let seconds = match args {
        [] => 30,
        [flag, number] if flag == "--seconds" => {
            let number = number.to_string_lossy();
            number
                .parse::<u32>()
                .map_err(|_| format!("{number:?} is not a number of seconds"))?
        }
        _ => return Err(Failure::Message("fuzz takes only --seconds S".into())),
    };
    if !has_nightly() {
        let message = "the nightly toolchain is not installed, so nothing was fuzzed \
                       (rustup toolchain install nightly)";
        // Where results count, a check that did not run is not a check that passed.
        if std::env::var_os("CI").is_some() {
            return Err(Failure::Message(message.into()));
        }
        println!("xtask: {message}");
        return Ok(());
    }
    let mut command = Command::new("sh");
    command
        .current_dir(root())
        .arg("fuzz/smoke.sh")
        .arg(seconds.to_string())
        // The targets are built by another compiler with flags of their own; in a shared folder
        // each build would throw the other's away.
        .env_remove("CARGO_TARGET_DIR");
    if seconds < OPTIMIZED_FROM {
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
        // A finding is looked at with a build that has lines.
        command.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
        command.env("XDFS_FUZZ_DEBUGINFO", "0");
    }
    call(&mut command)
}

fn has_nightly() -> bool {
    Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
