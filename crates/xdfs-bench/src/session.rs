//! Runs the rows of the groups, in interleaved repetitions.
//!
//! A repetition runs every row of a group once before the next repetition begins, every other one
//! in reverse order: what drifts on the machine hits all rows alike. A row that fails is not run
//! again and the report says why. Every run gets a fresh server, so that its memory is its own;
//! only the tiny groups keep servers up, because they ask what a command costs with a server that
//! is up. Called by `main`.

mod far;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    command_line::CommandLine,
    content,
    meter::{self, Conditions},
    options::{Group, Options},
    plan::{self, Job},
    protection::Protection,
    row::{Row, Run, Timing},
    scratch::{Guard, Scratch},
    server::{self, Port, Server},
    tail,
    tool::{Direction, Payload, Tool, Toolbox},
    tree::Shape,
    tree_tool,
    wan::WanHosts,
};

/// What the group `calls` asks for, relative to its folder.
const CALLED: &str = "src/f";
/// Where a copy goes, relative to the folder of its group.
const TARGET: &str = "dst/f";
/// Memory beside the payload that is populated before a run.
const WARM_SPARE_BYTES: u64 = 1 << 30;
/// Memory that is populated before a run that moves no file.
const WARM_MEMORY_BYTES: u64 = 300 << 20;
/// The kernel's switch for forgetting cached files.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Servers that are up, by what they serve.
type Servers<'a> = BTreeMap<((Tool, Protection), Direction), Server<'a>>;

/// What a group gave.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Its rows.
    pub(crate) rows: Vec<Row>,
    /// What the report has to say of it besides.
    pub(crate) notes: Vec<Note>,
}

/// Something that the report has to say of a group.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Note {
    /// The group.
    pub(crate) group: Group,
    /// A sentence.
    pub(crate) text: String,
}

/// Where a run takes place.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    /// The folder of the group, which is the root of its servers.
    base: &'a Path,
    /// Takes keys, configurations and what the programs say.
    work: &'a Path,
    /// The hosts; this machine where there are none.
    far: Option<&'a WanHosts>,
}

/// Everything that runs share.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    /// What was asked for.
    pub(crate) options: &'a Options,
    /// The tools that are there.
    pub(crate) toolbox: &'a Toolbox,
    /// Our folder in tmpfs.
    pub(crate) shm: &'a Scratch,
    /// Our folder on disk.
    pub(crate) disk: &'a Scratch,
    /// Who cleans up if we can't.
    pub(crate) guard: &'a Guard,
}

impl Session<'_> {
    /// Measures one group.
    ///
    /// An error is one of the benchmark itself, such as a full disk; tools that fail are rows.
    pub(crate) fn run(&self, group: Group) -> io::Result<Measured> {
        let mut notes = Vec::new();
        let mut note = |text: String| {
            eprintln!("{}: {text}", group.name());
            notes.push(Note { group, text });
        };
        let (jobs, left_out): (Vec<Job>, Vec<Job>) = plan::jobs(group, self.options)
            .into_iter()
            .filter(|job| self.toolbox.can(job.tool, job.protection))
            .filter(|job| job.beside.is_none_or(|other| self.toolbox.has(other)))
            .partition(|job| {
                !group.moves_a_tree() || self.toolbox.can_copy_trees(job.tool, job.direction)
            });
        for job in left_out {
            let (tool, way) = (job.tool.name(), job.direction.name());
            note(format!("{tool} {way} is left out: it has no server here."));
        }
        let far = match group.is_far().then(|| self.hosts(group, &mut note)) {
            Some(Err(reason)) => {
                note(format!("Skipped: {reason}."));
                let rows = Vec::new();
                return Ok(Measured { rows, notes });
            }
            Some(Ok(hosts)) => Some(hosts),
            None => None,
        };
        let mut rows: Vec<Row> = jobs.iter().map(empty_row).collect();
        let base = self.base(group);
        self.make_sources(&base, &jobs)?;
        let mut servers = BTreeMap::new();
        for repetition in 0..plan::runs(group, self.options) {
            let mut order: Vec<usize> = (0..jobs.len()).collect();
            if repetition % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let row = &mut rows[index];
                if row.failure.is_some() || is_too_slow(row) {
                    continue;
                }
                let place = Place {
                    base: &base,
                    work: self.shm.path(),
                    far: far.as_ref(),
                };
                let job = &jobs[index];
                if let Some(far) = &far {
                    far.give_buffers(job.is_of_xdfs_alone());
                }
                let result = match job.beside {
                    Some(other) => self.run_two(job, other, repetition, place, row),
                    None => self.run_once(job, repetition, place, &mut servers, row),
                };
                if !group.keeps_servers() {
                    servers.clear();
                }
                match result {
                    Ok(run) => {
                        announce(row, &run);
                        row.runs.push(run);
                    }
                    Err(failure) => {
                        eprintln!("{}: failed: {failure}", label(row));
                        row.failure = Some(failure);
                    }
                }
            }
        }
        drop(servers);
        fs::remove_dir_all(&base)?;
        if let Some(far) = &far {
            note(far.emulation_quality());
        }
        Ok(Measured { rows, notes })
    }

    /// The folder of a group, which is the root of its servers.
    fn base(&self, group: Group) -> PathBuf {
        let scratch = if group.on_disk() { self.disk } else { self.shm };
        scratch.path().join(group.name())
    }

    fn make_sources(&self, base: &Path, jobs: &[Job]) -> io::Result<()> {
        fs::create_dir_all(base.join("src"))?;
        content::empty(&base.join("dst"))?;
        if let Some(first) = jobs.first() {
            if let Some(shape) = Shape::of(first.group, self.options.quick) {
                shape.make(&base.join(tree_tool::SOURCE))?;
            }
            if first.group == Group::Calls {
                content::make(&base.join(CALLED), plan::TINY_BYTES)?;
            }
        }
        for job in jobs.iter().filter(|job| job.moves_a_file()) {
            let path = base.join(source(job));
            if !path.exists() {
                content::make(&path, job.bytes)?;
            }
        }
        Ok(())
    }

    fn run_once<'a>(
        &'a self,
        job: &Job,
        repetition: u32,
        place: Place<'_>,
        servers: &mut Servers<'a>,
        row: &mut Row,
    ) -> Result<Run, String> {
        let broken = |error: io::Error| format!("the benchmark itself: {error}");
        let Place { base, work, far } = place;
        let source = source(job);
        let is_beneath_base = job.moves_a_file() || job.group == Group::Calls;
        let payload = if is_beneath_base {
            Payload::File {
                base,
                source: &source,
                target: TARGET,
            }
        } else {
            Payload::Memory(plan::amount(job, self.options.quick))
        };
        self.prepare(job, base).map_err(broken)?;

        let tool = (job.tool, job.protection);
        let key = (tool, job.direction);
        if let Entry::Vacant(free) = servers.entry(key)
            && let Some(server) = self.start(job, payload, place, row)?
        {
            free.insert(server);
        }
        let server = servers.get(&key);
        let port = server.map_or(0, |server| server.port);
        let place = (port, work);
        let line = if job.group.moves_a_tree() {
            self.toolbox.tree_client(tool, job.direction, base, place)
        } else if job.group == Group::Calls {
            self.toolbox.calls_client(job.items, CALLED, port)
        } else {
            self.toolbox
                .client(tool, job.direction, payload, job.channels, place)
        };
        let tells_its_tail = job.tool == Tool::Xdfs && matches!(job.group, Group::Wan(_));
        let line = if tells_its_tail {
            line.arg("--json")
        } else {
            line
        };
        let line = match far {
            Some(far) => far.addressed(line),
            None => line,
        };
        if row.command.is_empty() {
            row.command = shown(&line, base, work, port);
        }
        let line = match far {
            Some(far) => far.client(line),
            None => line,
        };
        let output = work.join("client.out");
        let timeout = Duration::from_secs(self.options.timeout_s);
        let patience = plan::patience(job);
        let delivered = || far.map_or(0, |far| far.delivered(job.direction));
        let delivered_before = delivered();
        let usage = meter::measure(
            &line,
            Conditions {
                server: server.map(Server::pid),
                sync: job.group.on_disk().then_some(base),
                timeout: patience.map_or(timeout, |patience| patience.min(timeout)),
                may_be_cut: patience.is_some(),
                output: &output,
                errors: &work.join("client.err"),
            },
        )?;

        if usage.is_cut {
            let bytes = delivered().saturating_sub(delivered_before);
            return Ok(Run::new(repetition, bytes, usage, None));
        }
        if let Some(shape) = Shape::of(job.group, self.options.quick) {
            let copy = base.join(tree_tool::TARGET);
            shape.check(&base.join(tree_tool::SOURCE), &copy)?;
        } else if job.moves_a_file() {
            self.check_copy(base, &source, job.bytes, row.runs.is_empty())?;
        }
        let own = timing(job, &output)?;
        let tail = tells_its_tail.then(|| tail::share(&said(&output)?));
        let run = Run::new(repetition, job.bytes, usage, own).with_items(job.items);
        Ok(run.with_tail(tail.transpose()?))
    }

    /// Starts the server of a row, where its tool needs one.
    fn start<'a>(
        &'a self,
        job: &Job,
        payload: Payload<'_>,
        Place { base, work, far }: Place<'_>,
        row: &mut Row,
    ) -> Result<Option<Server<'a>>, String> {
        let broken = |error: io::Error| format!("the benchmark itself: {error}");
        let port = server::free_port().map_err(broken)?;
        let tool = (job.tool, job.protection);
        let line = if job.group.moves_a_tree() {
            let place = (port, work);
            self.toolbox.tree_server(tool, job.direction, base, place)
        } else {
            self.toolbox
                .server(tool, job.direction, payload, port, work)
        };
        let Some(line) = line.map_err(broken)? else {
            return Ok(None);
        };
        let kind = match job.tool {
            Tool::Previous | Tool::Xdfs => Port::Announced,
            _ => Port::Given(port),
        };
        let log = work.join(format!("server.{}.log", job.tool.name()));
        let line = match far {
            Some(far) => far.addressed(line),
            None => line,
        };
        let started = match far {
            Some(far) => far.server(line.clone()),
            None => line.clone(),
        };
        let server = Server::start(&started, kind, &log, self.guard)?;
        row.server
            .get_or_insert_with(|| shown(&line, base, work, server.port));
        Ok(Some(server))
    }

    /// Brings the machine into the state that every run of a row starts from.
    fn prepare(&self, job: &Job, base: &Path) -> io::Result<()> {
        if job.moves_a_file() || job.group.moves_a_tree() {
            content::empty(&base.join(tree_tool::TARGET))?;
        }
        if job.group.on_disk() {
            meter::make_durable(base)?;
        }
        if self.options.quick {
            return Ok(());
        }
        if job.group.on_disk() {
            // Only root may; the report says whether the source was cold.
            let _ = forget_cached_files();
        }
        match job.group {
            Group::Tiny | Group::PrivateTiny | Group::WanFairLossy | Group::WanFairClean => {}
            Group::Mem
            | Group::Channels
            | Group::PrivateMem
            | Group::PrivateChannels
            | Group::Calls => {
                meter::warm_memory(WARM_MEMORY_BYTES);
            }
            Group::Shm
            | Group::Disk
            | Group::Saturation
            | Group::PrivateShm
            | Group::TreeA
            | Group::TreeB
            | Group::TreeC
            | Group::TreeDisk
            | Group::TreeWan
            | Group::TreeWanNarrow
            | Group::TreeEmpty
            | Group::Wan(_) => {
                meter::warm_memory(job.bytes + WARM_SPARE_BYTES);
            }
        }
        Ok(())
    }

    /// Checks the size of the copy, and after the first run of a row every byte of it.
    fn check_copy(&self, base: &Path, source: &str, bytes: u64, first: bool) -> Result<(), String> {
        let target = base.join(TARGET);
        let size = fs::metadata(&target)
            .map_err(|error| format!("no copy: {error}"))?
            .len();
        if size != bytes {
            return Err(format!("the copy has {size} bytes instead of {bytes}"));
        }
        if first {
            let same = content::same(&base.join(source), &target)
                .map_err(|error| format!("comparing the copy: {error}"))?;
            if !same {
                return Err("the copy differs from the source".to_owned());
            }
        }
        Ok(())
    }
}

/// What the tool says of its own time, where it does.
fn timing(job: &Job, output: &Path) -> Result<Option<Timing>, String> {
    if job.moves_a_file() || job.group.moves_a_tree() {
        return Ok(None);
    }
    let said = said(output)?;
    let timing = match job.tool {
        _ if job.group == Group::Calls => Timing::from_calls(&said, job.items),
        Tool::Iperf3 | Tool::Iperf3Bbr => Timing::from_iperf3(&said),
        Tool::Previous | Tool::Xdfs => Timing::from_perf(&said),
        _ => return Ok(None),
    };
    timing.map(Some)
}

/// What a client has written to standard output.
fn said(output: &Path) -> Result<String, String> {
    let text = fs::read_to_string(output);
    text.map_err(|error| format!("the benchmark itself: {}: {error}", output.display()))
}

/// Whether a rival has taken so long that once is enough.
fn is_too_slow(row: &Row) -> bool {
    let is_of_trees = row.group.moves_a_tree();
    let is_slow = |run: &Run| run.is_cut || is_of_trees && run.command_seconds > plan::SLOW_TREE_S;
    row.tool != Tool::Xdfs && row.runs.iter().any(is_slow)
}

/// Makes the kernel forget cached files that are durable.
fn forget_cached_files() -> io::Result<()> {
    fs::write(DROP_CACHES, "3")
}

/// Whether the kernel lets us forget cached files, asked without doing it.
pub(crate) fn can_forget_cached_files() -> bool {
    fs::OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

/// Where the source of a row is, relative to the folder of its group.
fn source(job: &Job) -> String {
    format!("src/{}", job.bytes)
}

/// A command as the report shows it.
fn shown(line: &CommandLine, base: &Path, work: &Path, port: u16) -> String {
    let text = line
        .to_string()
        .replace(&*base.to_string_lossy(), "DIR")
        .replace(&*work.to_string_lossy(), "WORK");
    // With what stands before it, because sizes may hold the same digits.
    [
        "127.0.0.1:",
        "127.0.0.1 ",
        "10.77.0.2:",
        "--sftp-port ",
        "-p ",
        "-P ",
        "--port ",
        "rsyncd.",
        "sshd.",
        "serve ",
        "up ",
        "down ",
    ]
    .into_iter()
    .fold(text, |text, before| {
        text.replace(&format!("{before}{port}"), &format!("{before}PORT"))
    })
}

fn empty_row(job: &Job) -> Row {
    Row {
        group: job.group,
        direction: job.direction,
        tool: job.tool,
        protection: job.protection,
        channels: job.channels,
        bytes: job.bytes,
        beside: job.beside,
        command: String::new(),
        server: None,
        runs: Vec::new(),
        failure: None,
    }
}

fn label(row: &Row) -> String {
    let channels = row
        .channels
        .map(|count| format!(" n={count}"))
        .unwrap_or_default();
    let (group, direction, tool) = (row.group.name(), row.direction.name(), row.tool_name());
    format!("{group} {direction} {tool}{channels} ({} bytes)", row.bytes)
}

/// One line on standard error for every run, so that a long benchmark can be watched.
fn announce(row: &Row, run: &Run) {
    let items = match run.items {
        0 => String::new(),
        _ => format!(", {:.0} files or calls/s", run.items_per_second()),
    };
    eprintln!(
        "{}: {:.3} GB/s{items}, {:.4} s + {:.3} s sync, CPU {:.2} + {:.2} s (other {:.2}), \
         {} + {} KiB",
        label(row),
        run.rate(),
        run.command_seconds,
        run.sync_seconds,
        run.client_cpu_seconds,
        run.server_cpu_seconds,
        run.other_cpu_seconds,
        run.client_peak_kib,
        run.server_peak_kib,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_commands_name_no_machine() {
        let line = CommandLine::new("/usr/bin/xdfs")
            .args([
                "cp",
                "/s/xdfs-bench.1.0/shm/src/2",
                "xdfs://127.0.0.1:4711/dst/f",
            ])
            .arg("--config=/s/xdfs-bench.1.0/c");
        let base = Path::new("/s/xdfs-bench.1.0/shm");
        let shown = shown(&line, base, Path::new("/s/xdfs-bench.1.0"), 4711);
        assert_eq!(
            shown,
            "xdfs cp DIR/src/2 xdfs://127.0.0.1:PORT/dst/f --config=WORK/c"
        );
    }
}
