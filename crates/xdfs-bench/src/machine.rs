//! On what machine and with which tools it was measured.
//!
//! Called by `main` for the head of the report. What the system does not tell is left out.

use std::{fs, path::Path, thread};

use serde::Serialize;

use crate::{
    isolation::Isolation,
    options::Options,
    procfs,
    protection::Protection,
    session,
    tool::{Tool, Toolbox},
};

/// What an xdfs lacks that can't leave the payload clear.
const CLEAR: &str = "clear channels (this xdfs has no --protect)";

/// The head of a report.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// Cores that we may use.
    pub(crate) cores: usize,
    /// Model of the processor.
    pub(crate) model: String,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// File system of the tmpfs folder.
    pub(crate) shm_file_system: String,
    /// File system of the disk folder.
    pub(crate) disk_file_system: String,
    /// Largest receive and send buffers that TCP gives by itself, in bytes.
    pub(crate) tcp_buffers_max: [String; 2],
    /// Where the benchmark ran.
    pub(crate) isolation: Isolation,
    /// Whether sources on disk were cold.
    pub(crate) cold_source: bool,
    /// Tools found, with their versions.
    pub(crate) versions: Vec<String>,
    /// Tools not found.
    pub(crate) absent: Vec<&'static str>,
}

impl Machine {
    /// Looks around.
    pub(crate) fn look(
        isolation: Isolation,
        toolbox: &Toolbox,
        options: &Options,
        [shm, disk]: [&Path; 2],
    ) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = read("/proc/self/mounts");
        let file_system = |path: &Path| {
            procfs::parse_file_system(&mounts, &path.to_string_lossy()).unwrap_or_default()
        };
        let largest = |name: &str| {
            let sizes = read(&format!("/proc/sys/net/ipv4/{name}"));
            sizes
                .split_ascii_whitespace()
                .nth(2)
                .unwrap_or("unknown")
                .to_owned()
        };
        let (here, absent): (Vec<Tool>, Vec<Tool>) =
            Tool::ALL.into_iter().partition(|tool| toolbox.has(*tool));
        let wants_clear = options.groups.iter().any(|group| group.is_private());
        let lacks_clear = toolbox.has(Tool::Xdfs) && !toolbox.can(Tool::Xdfs, Protection::Clear);
        Self {
            cores: thread::available_parallelism().map_or(0, usize::from),
            model: model(&read("/proc/cpuinfo")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: procfs::parse_kib(&read("/proc/meminfo"), "MemTotal").unwrap_or_default()
                / 1024,
            shm_file_system: file_system(shm),
            disk_file_system: file_system(disk),
            tcp_buffers_max: [largest("tcp_rmem"), largest("tcp_wmem")],
            isolation,
            cold_source: !options.quick && session::can_forget_cached_files(),
            versions: here
                .iter()
                .filter(|tool| tool.is_a_program())
                .map(|tool| {
                    let version = toolbox.version(*tool).unwrap_or_default();
                    format!("{} ({version})", tool.name())
                })
                .collect(),
            // An older program is absent only from a comparison that nobody asked for.
            absent: absent
                .iter()
                .filter(|tool| tool.is_a_program() && **tool != Tool::Previous)
                .map(|tool| tool.name())
                .chain((wants_clear && lacks_clear).then_some(CLEAR))
                .collect(),
        }
    }
}

fn model(cpuinfo: &str) -> String {
    cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |(_, name)| name.trim().to_owned(),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_of_the_processor() {
        assert_eq!(
            model("processor\t: 0\nmodel name\t: Fast 9000\n"),
            "Fast 9000"
        );
        assert_eq!(model("nothing"), std::env::consts::ARCH);
    }
}
