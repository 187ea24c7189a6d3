//! One metered run of a client command against a server that is up already.
//!
//! Client: the command and its descendants; its CPU time comes from the kernel's account of
//! children waited for (10 ms steps), so it is complete even for a client that lives for a
//! millisecond. Server: the tree rooted at a process id; its CPU time is the difference over the
//! run. Memory is the largest sum over the tree of the peak resident sizes, looked at every 2 ms at
//! first and every 20 ms later. `other` is what the machine did beside both and beside us: a run
//! with much of it was disturbed. Called by `session`, mostly for one run at a time: of two that
//! run side by side, each also has the CPU time of a client that ends before it.

use std::{
    fs::File,
    hint::black_box,
    io,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{command_line::CommandLine, procfs};

/// Time between two looks at the process trees.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(20);
/// The same while the run is younger than `EARLY`.
const SAMPLE_INTERVAL_EARLY: Duration = Duration::from_millis(2);
/// How long a run counts as young.
const EARLY: Duration = Duration::from_millis(40);
/// Longest wait for a server to see the end of its client.
const SETTLE_MAX: Duration = Duration::from_millis(300);
/// Memory is populated in pieces of this size.
const WARM_PIECE_BYTES: usize = 64 << 20;
/// Distance of the touches that populate memory: the smallest page of any machine.
const PAGE_BYTES: usize = 4096;

/// What one run cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// Wall clock of the whole client command.
    pub(crate) wall_s: f64,
    /// Wall clock of making everything durable after it; zero when not asked for.
    pub(crate) sync_s: f64,
    /// CPU seconds of the client.
    pub(crate) client_cpu_s: f64,
    /// CPU seconds of the server.
    pub(crate) server_cpu_s: f64,
    /// CPU seconds of the rest of the machine while the client ran.
    pub(crate) other_cpu_s: f64,
    /// Peak memory of the client in KiB.
    pub(crate) client_peak_kib: u64,
    /// Peak memory of the server in KiB.
    pub(crate) server_peak_kib: u64,
    /// Whether the command was ended at the time limit.
    pub(crate) is_cut: bool,
}

/// How to run a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    /// Process id of the server.
    pub(crate) server: Option<u32>,
    /// Folder whose file system is made durable after the run, as part of it.
    pub(crate) sync: Option<&'a Path>,
    /// The run is ended after this time.
    pub(crate) timeout: Duration,
    /// Whether a run that was ended then counts, and hasn't failed.
    pub(crate) may_be_cut: bool,
    /// Where standard output goes.
    pub(crate) output: &'a Path,
    /// Where standard error goes.
    pub(crate) errors: &'a Path,
}

/// Runs `line` and accounts for it.
///
/// The error is one line for the report: the command could not start, failed, or hit the timeout.
pub(crate) fn measure(line: &CommandLine, conditions: Conditions<'_>) -> Result<Usage, String> {
    let failed = |error: io::Error| format!("{}: {error}", line.program());
    let mut command = line.command();
    command
        .stdin(Stdio::null())
        .stdout(File::create(conditions.output).map_err(failed)?)
        .stderr(File::create(conditions.errors).map_err(failed)?);

    let server = |pid: Option<u32>| pid.map(procfs::tree).unwrap_or_default();
    let server_before = server(conditions.server);
    let busy_before = procfs::busy_s();
    let own_before = procfs::own_cpu();
    let started = Instant::now();
    let child = command.spawn().map_err(failed)?;
    let mut peaks = Peaks::default();
    let ended = wait(child, started, conditions.timeout, |client| {
        peaks.look(client, conditions.server);
    });
    let own_after = procfs::own_cpu();
    let busy_after = procfs::busy_s();
    let (finished, status) = ended.map_err(failed)?;
    let timed_out = !status.success() && finished - started >= conditions.timeout;
    if !(status.success() || timed_out && conditions.may_be_cut) {
        let reason = if timed_out {
            "ended at the time limit".to_owned()
        } else {
            status.to_string()
        };
        return Err(format!(
            "{reason}: {}",
            last_words(conditions.errors, conditions.output)
        ));
    }

    let sync_s = match conditions.sync {
        Some(folder) => make_durable(folder).map_err(failed)?.as_secs_f64(),
        None => 0.0,
    };
    // Servers with a process a connection reap it a little after the client has gone.
    let settling = Instant::now();
    let mut server_after = server(conditions.server);
    while server_after.pids.len() > server_before.pids.len() && settling.elapsed() < SETTLE_MAX {
        thread::sleep(Duration::from_millis(5));
        server_after = server(conditions.server);
    }
    peaks.server_kib = peaks.server_kib.max(server_after.peak_kib);

    let client_cpu_s = own_after.children_s - own_before.children_s;
    let server_cpu_s = (server_after.cpu_s - server_before.cpu_s).max(0.0);
    let ours_s = own_after.own_s - own_before.own_s;
    Ok(Usage {
        wall_s: (finished - started).as_secs_f64(),
        sync_s,
        client_cpu_s,
        server_cpu_s,
        other_cpu_s: (busy_after - busy_before - client_cpu_s - server_cpu_s - ours_s).max(0.0),
        client_peak_kib: peaks.client_kib,
        server_peak_kib: peaks.server_kib,
        is_cut: timed_out,
    })
}

#[derive(Debug, Default)]
struct Peaks {
    client_kib: u64,
    server_kib: u64,
}

impl Peaks {
    fn look(&mut self, client: u32, server: Option<u32>) {
        self.client_kib = self.client_kib.max(procfs::tree(client).peak_kib);
        if let Some(server) = server {
            self.server_kib = self.server_kib.max(procfs::tree(server).peak_kib);
        }
    }
}

/// Waits for `child`, calling `look` with its id now and then; ends its tree at the time limit.
///
/// A thread of its own waits, so that the end is seen when it happens and not at the next look.
fn wait(
    mut child: Child,
    started: Instant,
    timeout: Duration,
    mut look: impl FnMut(u32),
) -> io::Result<(Instant, ExitStatus)> {
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    let waiter = thread::Builder::new()
        .name("wait".to_owned())
        .spawn(move || {
            let status = child.wait();
            // The other side is gone only when the benchmark itself is ending.
            let _ = sender.send((Instant::now(), status));
        })?;
    let mut ending = false;
    let ended = loop {
        look(pid);
        let elapsed = started.elapsed();
        if elapsed >= timeout && !ending {
            end_tree(pid);
            ending = true;
        }
        let interval = if elapsed < EARLY {
            SAMPLE_INTERVAL_EARLY
        } else {
            SAMPLE_INTERVAL
        };
        match receiver.recv_timeout(interval) {
            Ok(ended) => break ended,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("the waiting thread ended early"));
            }
        }
    };
    // It has sent already and can't panic any more.
    let _ = waiter.join();
    Ok((ended.0, ended.1?))
}

/// Ends a process that we started, with its descendants, by their ids.
pub(crate) fn end_tree(pid: u32) {
    let pids = procfs::tree(pid)
        .pids
        .into_iter()
        .map(|pid| pid.to_string());
    // The shell's own `kill`: a separate program for it is not installed everywhere.
    let _ = Command::new("sh")
        .args(["-c", "for pid; do kill -KILL \"$pid\"; done", "sh"])
        .args(pids)
        .stderr(Stdio::null())
        .status();
}

/// Makes everything written to the file system of `folder` durable; answers how long it took.
pub(crate) fn make_durable(folder: &Path) -> io::Result<Duration> {
    let started = Instant::now();
    let status = Command::new("sync").arg("-f").arg(folder).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("sync -f: {status}")));
    }
    Ok(started.elapsed())
}

/// Touches and frees `bytes` of memory, at most half of what the machine has available.
///
/// A virtual machine may have given its free pages back to the host; the next touch of such a page
/// costs a fault there. Whoever ran first after a pause would pay for all.
pub(crate) fn warm_memory(bytes: u64) {
    let available_kib = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| procfs::parse_kib(&text, "MemAvailable"))
        .unwrap_or_default();
    let bounded = usize::try_from(bytes.min(available_kib * 512)).unwrap_or_default();
    let mut pieces = Vec::new();
    for _ in 0..bounded.div_ceil(WARM_PIECE_BYTES) {
        let mut piece = vec![0_u8; WARM_PIECE_BYTES];
        for touched in piece.iter_mut().step_by(PAGE_BYTES) {
            *touched = 1;
        }
        pieces.push(black_box(piece));
    }
}

/// The last line of what a failed command said, on standard error or else on standard output.
fn last_words(errors: &Path, output: &Path) -> String {
    [errors, output]
        .into_iter()
        .filter_map(|path| std::fs::read(path).ok())
        .find_map(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let line = text
                .lines()
                .rev()
                .map(str::trim)
                .find(|line| line.len() > 2)?;
            Some(line.chars().take(200).collect::<String>())
        })
        .unwrap_or_else(|| "it said nothing".to_owned())
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, timeout: Duration) -> Result<Usage, String> {
        run_or_cut(script, timeout, false)
    }

    fn run_or_cut(script: &str, timeout: Duration, may_be_cut: bool) -> Result<Usage, String> {
        let folder = tempfile::tempdir().unwrap();
        let line = CommandLine::new("sh").args(["-c", script]);
        measure(
            &line,
            Conditions {
                server: Some(std::process::id()),
                sync: None,
                timeout,
                may_be_cut,
                output: &folder.path().join("output"),
                errors: &folder.path().join("errors"),
            },
        )
    }

    #[test]
    fn a_command_is_timed_and_its_memory_seen() {
        let usage = run("sleep 0.1", Duration::from_secs(20)).unwrap();
        assert!(usage.wall_s >= 0.1, "{usage:?}");
        assert!(
            usage.client_peak_kib > 0 && usage.server_peak_kib > 0,
            "{usage:?}"
        );
    }

    #[test]
    fn a_failure_carries_the_last_words() {
        let error = run(
            "echo noise; echo first >&2; echo why >&2; exit 3",
            Duration::from_secs(20),
        )
        .unwrap_err();
        assert!(error.contains("3") && error.ends_with("why"), "{error}");
        let missing = CommandLine::new("/nonexistent/program");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let conditions = Conditions {
            server: None,
            sync: None,
            timeout: Duration::from_secs(1),
            may_be_cut: true,
            output: &path,
            errors: &path,
        };
        assert!(measure(&missing, conditions).is_err());
    }

    #[test]
    fn a_hanging_tree_is_ended() {
        let started = Instant::now();
        let error = run("sleep 300 & sleep 301; true", Duration::from_millis(200)).unwrap_err();
        assert!(error.contains("time limit"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_may_be_cut_has_not_failed() {
        let limit = Duration::from_millis(200);
        let usage = run_or_cut("sleep 300", limit, true).unwrap();
        assert!(usage.is_cut && usage.wall_s >= 0.2, "{usage:?}");
        let error = run_or_cut("exit 3", Duration::from_secs(20), true).unwrap_err();
        assert!(error.contains('3'), "{error}");
    }

    #[test]
    fn warming_ends() {
        warm_memory(1);
        warm_memory(0);
    }
}
