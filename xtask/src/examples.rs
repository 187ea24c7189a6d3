//! The examples that are crates of their own, outside of the workspace, as users of the libraries
//! have them.

use crate::{Outcome, call, cargo};

/// Their folders.
const EXAMPLES: [&str; 2] = ["driver-rot13", "place-mem"];

/// The profile of the workspace, so that what is built of others is built once.
const PROFILE: [&str; 3] = [
    "profile.dev.debug=\"line-tables-only\"",
    "profile.dev.package.\"*\".opt-level=2",
    "profile.dev.package.\"*\".debug=false",
];

pub(crate) fn run() -> Outcome {
    for example in EXAMPLES {
        let manifest = format!("examples/{example}/Cargo.toml");
        call(cargo().args(["fmt", "--check", "--manifest-path", &manifest]))?;
        let mut test = cargo();
        test.args(["test", "--locked", "--manifest-path", &manifest]);
        test.args(["--target-dir", "target"]);
        for value in PROFILE {
            test.args(["--config", value]);
        }
        call(&mut test)?;
    }
    Ok(())
}
