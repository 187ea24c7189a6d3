//! Where the processors spend their time during a private transfer, as `perf` samples it.
//!
//! A transfer from memory to memory that would go on for hours is begun, both sides are sampled for
//! some seconds, and it is ended. Where `perf` is missing or may not sample the answer says so;
//! nothing is judged by a profile. Called by `main`, after the rows.

use std::{
    fs::File,
    io,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::{
    command_line::{CommandLine, find_program},
    meter, plan,
    protection::Protection,
    scratch::Guard,
    server::{Port, Server},
    session::Session,
    tool::{Amount, Direction, Payload, Tool},
};

/// Samples a second.
const FREQUENCY: &str = "499";
/// Most symbols that are named of a process.
const SYMBOLS_MAX: usize = 12;
/// Most characters of a symbol that are shown.
const SYMBOL_CHARACTERS_MAX: usize = 90;
/// More than can be moved in the time that a profile takes.
const ENDLESS_BYTES: u64 = 1 << 50;
/// Until all channels are open and the transfer runs as it will.
const WARM_UP: Duration = Duration::from_millis(500);
/// Longest wait for `perf` beside the time that it samples.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one process did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Profile {
    /// Which way the payload went.
    pub(crate) direction: Direction,
    /// `client` or `server`.
    pub(crate) side: &'static str,
    /// Its symbols, the busiest first.
    pub(crate) shares: Vec<Share>,
}

/// The part of one symbol in the samples of a process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    /// In percent of the samples.
    pub(crate) percent: f64,
    /// Program or library, or the kernel.
    pub(crate) object: String,
    /// Function.
    pub(crate) symbol: String,
}

/// Takes the profiles of both sides, both ways; the error is one line for the report.
pub(crate) fn take(session: &Session<'_>) -> Result<Vec<Profile>, String> {
    let perf = find_program("perf").ok_or("perf is not on this machine")?;
    if !session.toolbox.can(Tool::Xdfs, Protection::Private) {
        return Err("there is no xdfs to be sampled".to_owned());
    }
    let mut profiles = Vec::new();
    for direction in [Direction::Up, Direction::Down] {
        profiles.extend(sample(session, &perf, direction)?);
    }
    Ok(profiles)
}

fn sample(
    session: &Session<'_>,
    perf: &Path,
    direction: Direction,
) -> Result<[Profile; 2], String> {
    let broken = |error: io::Error| format!("the benchmark itself: {error}");
    let (toolbox, work) = (session.toolbox, session.shm.path());
    let tool = (Tool::Xdfs, Protection::Private);
    let payload = Payload::Memory(Amount::Bytes(ENDLESS_BYTES));
    let line = toolbox
        .server(tool, direction, payload, 0, work)
        .map_err(broken)?
        .ok_or("xdfs has no server")?;
    let log = work.join("profile.server.log");
    let server = Server::start(&line, Port::Announced, &log, session.guard)?;
    let place = (server.port, work);
    let line = toolbox.client(tool, direction, payload, Some(plan::FEW_CHANNELS), place);
    let client = Running::start(&line, &work.join("profile.client.log"), session.guard)?;
    thread::sleep(WARM_UP);

    let seconds = if session.options.quick { 1 } else { 4 };
    let sides = [("client", client.child.id()), ("server", server.pid())];
    let mut samplers = Vec::new();
    for (side, pid) in sides {
        let line = CommandLine::new(perf)
            // Not into the cache in the home of the user who measures.
            .args(["record", "-q", "--no-buildid-cache", "-F", FREQUENCY])
            .args(["-p", &pid.to_string(), "-o"])
            .arg(work.join(side).with_extension("perf").to_string_lossy())
            .args(["--", "sleep", &seconds.to_string()]);
        let log = work.join(format!("profile.{side}.err"));
        samplers.push(Running::start(&line, &log, session.guard)?);
    }
    let end = Instant::now() + Duration::from_secs(seconds) + PATIENCE;
    for mut sampler in samplers {
        sampler.finish(end)?;
    }
    drop(client);
    drop(server);

    let read = |side: &'static str| {
        let report = Command::new(perf)
            .args(["report", "--stdio", "-q", "--no-children", "-g", "none"])
            .args(["--sort", "dso,symbol", "--percent-limit", "0.5", "-i"])
            .arg(work.join(side).with_extension("perf"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("perf: {error}"))?;
        let shares = parse(&String::from_utf8_lossy(&report.stdout));
        if shares.is_empty() {
            let said = String::from_utf8_lossy(&report.stderr);
            let last = said.lines().next_back().unwrap_or_default();
            return Err(format!("perf saw nothing of the {side}: {last}"));
        }
        Ok(Profile {
            direction,
            side,
            shares,
        })
    };
    Ok([read("client")?, read("server")?])
}

/// A process that is ended when its value is dropped.
struct Running<'a> {
    child: Child,
    guard: &'a Guard,
    program: String,
    log: std::path::PathBuf,
}

impl<'a> Running<'a> {
    fn start(line: &CommandLine, log: &Path, guard: &'a Guard) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{}: {error}", line.program());
        let output = File::create(log).map_err(failed)?;
        let child = line
            .command()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        guard.watch(child.id());
        Ok(Self {
            child,
            guard,
            program: line.program(),
            log: log.to_owned(),
        })
    }

    /// Waits until it ends by itself, at most until `end`.
    fn finish(&mut self, end: Instant) -> Result<(), String> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                    let last = said.lines().rfind(|line| !line.trim().is_empty());
                    let last = last.unwrap_or("it said nothing");
                    return Err(format!("{}: {status}: {last}", self.program));
                }
                Ok(None) if Instant::now() >= end => {
                    return Err(format!("{} did not end", self.program));
                }
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(format!("{}: {error}", self.program)),
            }
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // An id that was waited for may be another's by now.
        if matches!(self.child.try_wait(), Ok(None)) {
            meter::end_tree(self.child.id());
            let _ = self.child.wait();
        }
        self.guard.release(self.child.id());
    }
}

/// Reads the lines `31.20%  xdfs  [.] aes_gcm` of a report, the busiest first.
fn parse(text: &str) -> Vec<Share> {
    let mut shares: Vec<Share> = text.lines().filter_map(parse_line).collect();
    shares.sort_by(|left, right| right.percent.total_cmp(&left.percent));
    shares.truncate(SYMBOLS_MAX);
    shares
}

fn parse_line(line: &str) -> Option<Share> {
    let (percent, rest) = line.trim().split_once('%')?;
    let percent = percent.parse().ok().filter(|it: &f64| it.is_finite())?;
    // The space that the symbol is in stands between: `[k]` for the kernel, `[.]` for the process.
    let at = rest.find(" [")?;
    let at = match rest[at..].find("] ") {
        // The name of the kernel has brackets, too: `[kernel.kallsyms]`.
        Some(end) if end > 3 => at + end + 1 + rest[at + end + 1..].find(" [")?,
        Some(_) => at,
        None => return None,
    };
    let (object, marked) = rest.split_at(at);
    let (_, symbol) = marked.split_once("] ")?;
    // Some versions fill the rest of the line with columns that nobody asked for.
    let symbol = symbol.trim_start().split("  ").next()?.trim_end();
    Some(Share {
        percent,
        object: object.trim().to_owned(),
        symbol: symbol.chars().take(SYMBOL_CHARACTERS_MAX).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_report() {
        let text = "\n# comment\n    \
                    12.5%  [kernel.kallsyms]  [k] copy to user       -      -  \n    \
                    31.20%  xdfs               [.] <a::B<u8> as c::D>::encrypt\n     \
                    0.60%  [unknown]          [.] 0x00007f\nnoise 5% of all\n";
        let shares = parse(text);
        let shown: Vec<_> = shares
            .iter()
            .map(|share| (share.percent, share.object.as_str(), share.symbol.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (31.2, "xdfs", "<a::B<u8> as c::D>::encrypt"),
                (12.5, "[kernel.kallsyms]", "copy to user"),
                (0.6, "[unknown]", "0x00007f"),
            ]
        );
    }

    #[test]
    fn a_report_of_nothing() {
        for text in [
            "",
            "Error: no data",
            "5% a b",
            "x% a [.] b",
            "5%  [k",
            "nan%  a  [.] b",
        ] {
            assert_eq!(parse(text), [], "{text:?}");
        }
        let many = "1%  xdfs  [.] f\n".repeat(100);
        assert_eq!(parse(&many).len(), SYMBOLS_MAX);
    }

    #[cfg(unix)]
    #[test]
    fn processes_end_and_say_why() {
        let folder = tempfile::tempdir().unwrap();
        let guard = Guard::start(&[]).unwrap();
        let log = folder.path().join("log");
        let start = |script: &str| {
            let line = CommandLine::new("sh").args(["-c", script]);
            Running::start(&line, &log, &guard).unwrap()
        };
        let end = Instant::now() + PATIENCE;
        start("true").finish(end).unwrap();
        let error = start("echo why >&2; exit 3").finish(end).unwrap_err();
        assert!(error.contains('3') && error.ends_with("why"), "{error}");
        let mut long = start("exec sleep 60");
        assert!(long.finish(Instant::now()).is_err());
        let pid = long.child.id();
        drop(long);
        assert!(crate::procfs::tree(pid).pids.is_empty());
    }
}
