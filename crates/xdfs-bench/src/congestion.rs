//! The machine's list of allowed congestion controls, changed for as long as a value lives.
//!
//! The list belongs to the machine: other network namespaces see it and can't write it, and their
//! default can only become what it allows. So a shell in the namespace of our parent, which has
//! stayed in the machine's, writes it, waits for the end of a pipe and puts the old one back: also
//! when the benchmark is interrupted or killed. Called by `isolation` and `wan`.

use std::{
    fs,
    io::{self, BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

/// What everyone gets as the default.
pub(crate) const DEFAULT: &str = "cubic";

/// The list.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";

/// Puts its second argument into the list, says so, and undoes it at the end of its input. Of two
/// that did so at once, the later would put back what the first has set.
const HOLD: &str = r#"
exec 9<"$1" && flock -w 2 9 || exit
before=$(cat "$1") && printf %s "$2" >"$1" && echo held || exit
read -r end
printf %s "$before" >"$1"
"#;

/// A changed list; dropping it puts the old one back.
#[derive(Debug)]
pub(crate) struct Allowed {
    holder: Child,
}

impl Allowed {
    /// Allows nothing else than these, separated by spaces; `reno` can't be left out.
    ///
    /// # Errors
    /// The list isn't ours to change, another benchmark has changed it, or the kernel doesn't have
    /// what is named.
    pub(crate) fn only(names: &str) -> io::Result<Self> {
        Self::hold(ALLOWED, names)
    }

    /// Allows [`DEFAULT`] too; `None` where it is allowed anyway.
    ///
    /// # Errors
    /// As for [`Self::only`].
    pub(crate) fn with_default() -> io::Result<Option<Self>> {
        let list = fs::read_to_string(ALLOWED)?;
        if list.split_ascii_whitespace().any(|name| name == DEFAULT) {
            return Ok(None);
        }
        Self::only(&format!("{} {DEFAULT}", list.trim())).map(Some)
    }

    fn hold(file: &str, names: &str) -> io::Result<Self> {
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--target", &parent()])
            .args(["sh", "-c", HOLD, "sh", file, names])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // Out of the terminal's reach: Ctrl-C must not end the one who cleans up after it.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut holder = command.spawn()?;
        let mut said = String::new();
        if let Some(output) = holder.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        if said.trim() == "held" {
            return Ok(Self { holder });
        }
        holder.wait()?;
        Err(io::Error::other(format!("{file} can't be changed")))
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        // Closes its input first.
        let restored = self.holder.wait().is_ok_and(|status| status.success());
        if !restored {
            eprintln!("xdfs-bench: {ALLOWED} may not be what it was");
        }
    }
}

#[cfg(unix)]
fn parent() -> String {
    std::os::unix::process::parent_id().to_string()
}

/// There is nothing to enter on such systems.
#[cfg(not(unix))]
fn parent() -> String {
    String::new()
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_list_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let file = path.to_str().unwrap();
        fs::write(&path, "reno bbr\n").unwrap();
        let Ok(held) = Allowed::hold(file, "reno cubic") else {
            return xdfs_testkit::skip::test("only root can enter a network namespace");
        };
        assert_eq!(fs::read_to_string(&path).unwrap(), "reno cubic");
        assert!(Allowed::hold(file, "reno").is_err(), "held already");
        drop(held);
        assert_eq!(fs::read_to_string(&path).unwrap(), "reno bbr");
    }

    #[test]
    fn a_list_that_cannot_be_written_is_not_held() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("none");
        assert!(Allowed::hold(missing.to_str().unwrap(), "reno").is_err());
    }
}
