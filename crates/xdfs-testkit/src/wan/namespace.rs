//! Network namespaces, made and removed by the `ip` program.
//!
//! A name holds the id of the process that made it, so that what a killed process left behind is
//! removed by the next one.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps its names.
const FOLDER: &str = "/run/netns";

/// How all of our names begin; the process id follows.
const PREFIX: &str = "xdfs-wan-";

/// A namespace; dropping it removes its name. It is gone when no process is in it any more.
#[derive(Debug)]
pub(super) struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// A new namespace with nothing in it but loopback, which is down.
    pub(super) fn new(role: &str) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        remove_stale();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}-{role}", std::process::id());
        ip(&["netns", "add", &name], "")?;
        match File::open(Path::new(FOLDER).join(&name)) {
            Ok(file) => Ok(Self { name, file }),
            Err(error) => {
                remove(&name);
                Err(error)
            }
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `act` on a thread of its own in this namespace.
    pub(super) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = thread::Builder::new().spawn_scoped(scope, || {
                let network = Some(LinkNameSpaceType::Network);
                move_into_link_name_space(self.file.as_fd(), network)?;
                Ok(act())
            })?;
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs the lines of `script` in this namespace, each the arguments of `ip`, up to the first
    /// that fails.
    pub(super) fn ip(&self, script: &str) -> io::Result<()> {
        ip(&["-n", &self.name, "-batch", "-"], script)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// Runs `ip`, and says `Unsupported` where this machine or user has no namespaces at all.
fn ip(args: &[&str], input: &str) -> io::Result<()> {
    let mut command = Command::new("ip");
    command.args(args).stdin(Stdio::piped());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => unsupported("there is no program `ip` (iproute2)"),
        _ => error,
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // If it ends without reading all of it, its status says so.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = format!("ip {}: {}", args.join(" "), said.trim());
    if said.contains("not permitted") || said.contains("ermission denied") {
        return Err(unsupported(&said));
    }
    Err(io::Error::other(said))
}

pub(super) fn unsupported(why: &str) -> io::Error {
    io::Error::new(ErrorKind::Unsupported, why)
}

fn remove(name: &str) {
    // What can't be removed now is stale for the next process.
    let _ = ip(&["netns", "del", name], "");
}

/// Removes the namespaces of processes that are gone.
fn remove_stale() {
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let maker = maker(name);
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            remove(name);
        }
    }
}

/// The id of the process that made the namespace, if it is one of ours.
fn maker(name: &str) -> Option<&str> {
    let (id, _) = name.strip_prefix(PREFIX)?.split_once('-')?;
    id.parse::<u32>().is_ok().then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_have_a_maker() {
        assert_eq!(maker("xdfs-wan-4711-0-left"), Some("4711"));
        for other in ["xdfs-wan-4711", "xdfs-wan-x-0", "xdfs-wan--0", "mine", ""] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
