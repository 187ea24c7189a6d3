//! Builds the program under test.
//!
//! A release build by the workspace's own cargo, so that nobody measures a stale or a debug program
//! by accident. Called by `main` before it leaves the machine's network.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use serde::Deserialize;

/// The package and the program in it.
const PACKAGE: &str = "xdfs-cli";
const PROGRAM: &str = "xdfs";

/// Builds the program; answers where it is. The error is one line for the user.
pub(crate) fn build() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "-p", PACKAGE, "--bin", PROGRAM])
        .arg("--message-format=json-render-diagnostics")
        // The workspace that we were built from.
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("can't run cargo: {error} (or give a program by --xdfs)"))?;
    if !output.status.success() {
        return Err(format!("building {PACKAGE} failed ({})", output.status));
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("cargo built {PACKAGE} but named no program {PROGRAM}"))
}

/// Finds the program among the messages of cargo, one JSON object a line.
fn executable(messages: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
    }
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Message>(line).ok())
        .filter(|message| {
            message
                .target
                .as_ref()
                .is_some_and(|target| target.name == PROGRAM)
        })
        .find_map(|message| message.executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_among_the_messages() {
        let messages = r#"not json
{"reason":"compiler-artifact","target":{"name":"xdfs"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
{"reason":"compiler-artifact","target":{"name":"xdfs"},"executable":"/t/release/xdfs"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some(PathBuf::from("/t/release/xdfs")));
        assert_eq!(executable(""), None);
    }
}
