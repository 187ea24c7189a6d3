//! The host that ssh takes an alias in its settings for.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use xdfs_proto::{Code, Fault};
use xdfs_sys::program::Program;

/// Time for `ssh -G`, which connects to nothing.
const SETTINGS: Duration = Duration::from_secs(10);
/// Most of the output of `ssh -G` that is read.
const SETTINGS_BYTES_MAX: u64 = 256 << 10;

/// The name of the host in ssh's settings, as `ssh -G` prints it; `None` if it prints none.
///
/// # Errors
/// It takes too long: the settings may start programs.
pub(super) fn host_of_alias(mut ask: Command) -> Result<Option<String>, Fault> {
    ask.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut program) = Program::start(&mut ask) else {
        return Ok(None);
    };
    let (_, Some(stdout), _) = program.take_streams() else {
        return Ok(None);
    };
    let (sender, settings) = mpsc::channel();
    // It ends with the output.
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(SETTINGS_BYTES_MAX).read_to_string(&mut text);
        sender.send(read.map(|_| text))
    });
    match settings.recv_timeout(SETTINGS) {
        Ok(Ok(text)) => {
            let name = text.lines().find_map(|line| line.strip_prefix("hostname "));
            Ok(name.map(str::to_owned))
        }
        Ok(Err(_)) | Err(mpsc::RecvTimeoutError::Disconnected) => Ok(None),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            let cause = format!("`ssh -G` has not ended for {SETTINGS:?}");
            Err(
                Fault::new(Code::DeadlineExceeded, "read the settings of ssh", cause)
                    .hint("see what 'Match exec' in ~/.ssh/config runs"),
            )
        }
    }
}
