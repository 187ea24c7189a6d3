//! Programs of the system.

use std::io;
use std::process::{Command, ExitStatus};

/// Runs a program of the system to its end; what it says on failure is the error.
pub(super) fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        io::Error::new(error.kind(), format!("{program}: {error}"))
    })?;
    ended(output.status, &output.stderr)
}

pub(super) fn ended(status: ExitStatus, said: &[u8]) -> io::Result<()> {
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(said);
    Err(io::Error::other(format!("{status}: {}", said.trim())))
}
