//! What the kernel says about processes and the machine, read from `/proc`.
//!
//! Every reader has a parser that takes text, so that the parsers are tested without a kernel.
//! A process that ends while it is read is simply not there any more: readers answer `None` or a
//! smaller sum, never an error. On a system without `/proc` all sums are zero. Called by `meter`,
//! `server` and `machine`.

use std::fs;

/// Clock ticks a second in which Linux shows CPU time to programs, on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// Deepest process tree that is followed, so that a cycle made by process id reuse ends.
const TREE_DEPTH_MAX: u32 = 16;

/// CPU time of one process in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTime {
    /// User and system time of its own threads.
    pub(crate) own_s: f64,
    /// User and system time of its children that have ended and been waited for.
    pub(crate) children_s: f64,
}

/// A process and all its descendants at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tree {
    /// Process ids, the root first.
    pub(crate) pids: Vec<u32>,
    /// CPU seconds of the living processes and of those they have waited for.
    pub(crate) cpu_s: f64,
    /// Sum of the peak resident sizes of the living processes, in KiB.
    pub(crate) peak_kib: u64,
}

/// Reads the CPU time from the text of `/proc/PID/stat`.
///
/// The name field may hold spaces and parentheses, so fields are counted from the last `)`.
pub(crate) fn parse_stat(text: &str) -> Option<CpuTime> {
    let fields: Vec<&str> = text
        .get(text.rfind(')')? + 1..)?
        .split_ascii_whitespace()
        .collect();
    // After the name: state is field 0, utime 11, stime 12, cutime 13, cstime 14.
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(CpuTime {
        own_s: (ticks(11)? + ticks(12)?) / TICKS_PER_SECOND,
        children_s: (ticks(13)? + ticks(14)?) / TICKS_PER_SECOND,
    })
}

/// Reads a `Name:   123 kB` line, as in `/proc/PID/status` and `/proc/meminfo`, in KiB.
pub(crate) fn parse_kib(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        value.split_ascii_whitespace().next()?.parse().ok()
    })
}

/// Reads the seconds all CPUs were busy from the text of `/proc/stat`.
pub(crate) fn parse_busy(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq: idle and iowait are not busy.
    let busy: Option<f64> = [0, 1, 2, 5, 6].iter().map(|index| fields.get(*index)).sum();
    Some(busy? / TICKS_PER_SECOND)
}

/// Whether the text of `/proc/net/tcp` or `tcp6` shows a listening socket on `port`.
pub(crate) fn parse_listening(text: &str, port: u16) -> bool {
    text.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local_port = fields
            .next()
            .and_then(|local| local.rsplit_once(':'))
            .and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        // 0A is LISTEN; the remote address stands between.
        local_port == Some(port) && fields.nth(1) == Some("0A")
    })
}

/// The file system type of the mount that holds `path`, from the text of `/proc/self/mounts`.
pub(crate) fn parse_file_system(mounts: &str, path: &str) -> Option<String> {
    let mut best: Option<(&str, &str)> = None;
    for line in mounts.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (Some(point), Some(kind)) = (fields.next(), fields.next()) else {
            continue;
        };
        let beneath = path
            .strip_prefix(point.trim_end_matches('/'))
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        // A later mount on the same point hides the earlier one.
        if beneath && best.is_none_or(|(other, _)| point.len() >= other.len()) {
            best = Some((point, kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

/// CPU time of this process and of the children it has waited for.
pub(crate) fn own_cpu() -> CpuTime {
    fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|text| parse_stat(&text))
        .unwrap_or_default()
}

/// Seconds that all CPUs together were busy since boot.
pub(crate) fn busy_s() -> f64 {
    fs::read_to_string("/proc/stat")
        .ok()
        .and_then(|text| parse_busy(&text))
        .unwrap_or_default()
}

/// Whether a TCP socket in the network namespace of a process listens on `port`.
///
/// Asked of the kernel, because a trial connection would be a failed test to an iperf3 server.
pub(crate) fn is_listening(port: u16, pid: u32) -> bool {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok())
        .any(|text| parse_listening(&text, port))
}

/// The process tree rooted at `pid`; empty when the process has ended.
pub(crate) fn tree(pid: u32) -> Tree {
    let mut tree = Tree::default();
    collect(pid, TREE_DEPTH_MAX, &mut tree);
    tree
}

fn collect(pid: u32, depth: u32, tree: &mut Tree) {
    let Some(cpu) = fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|text| parse_stat(&text))
    else {
        return;
    };
    tree.pids.push(pid);
    tree.cpu_s += cpu.own_s + cpu.children_s;
    // A zombie has no memory lines.
    if let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) {
        tree.peak_kib += parse_kib(&status, "VmHWM").unwrap_or_default();
    }
    if depth == 0 {
        return;
    }
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return;
    };
    for thread in threads.flatten() {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children
            .split_ascii_whitespace()
            .filter_map(|text| text.parse().ok())
        {
            collect(child, depth - 1, tree);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_with_an_awkward_name() {
        let text = "7 (a) b (c)) S 1 7 7 0 -1 4194560 616 0 6 0 150 50 25 75 20 0 1 0 99 0 0\n";
        assert_eq!(
            parse_stat(text),
            Some(CpuTime {
                own_s: 2.0,
                children_s: 1.0
            })
        );
        assert_eq!(parse_stat("7 (short) S 1 2"), None);
        assert_eq!(parse_stat("no name"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn memory_lines() {
        let text = "Name:\txdfs\nVmHWM:\t    5120 kB\nVmRSS:\t    4096 kB\n";
        assert_eq!(parse_kib(text, "VmHWM"), Some(5120));
        assert_eq!(parse_kib(text, "VmRSS"), Some(4096));
        assert_eq!(parse_kib(text, "VmSwap"), None);
        assert_eq!(parse_kib("VmHWM: lots", "VmHWM"), None);
    }

    #[test]
    fn busy_leaves_out_idle_and_waiting() {
        let text = "cpu  100 200 300 9999 8888 50 50 0 0 0\ncpu0 1 2 3 4 5 6 7\n";
        assert_eq!(parse_busy(text), Some(7.0));
        assert_eq!(parse_busy("cpu  1 2"), None);
        assert_eq!(parse_busy(""), None);
    }

    #[test]
    fn listening_ports() {
        let text = "  sl  local_address rem_address   st tx_queue\n   \
                    0: 0100007F:16B3 00000000:0000 0A 00000000:00000000\n   \
                    1: 0100007F:16B4 0100007F:9C40 01 00000000:00000000\n";
        assert!(parse_listening(text, 5811));
        assert!(
            !parse_listening(text, 5812),
            "an established connection does not listen"
        );
        assert!(!parse_listening(text, 40000));
    }

    #[test]
    fn file_system_of_the_nearest_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\nnone /d xfs rw 0 0\n";
        assert_eq!(
            parse_file_system(mounts, "/dev/shm/x").as_deref(),
            Some("tmpfs")
        );
        assert_eq!(
            parse_file_system(mounts, "/dev/shmx").as_deref(),
            Some("ext4")
        );
        assert_eq!(parse_file_system(mounts, "/d").as_deref(), Some("xfs"));
        assert_eq!(parse_file_system("", "/d"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn own_tree_is_alive() {
        let tree = tree(std::process::id());
        assert_eq!(tree.pids.first(), Some(&std::process::id()));
        assert!(tree.peak_kib > 0);
        assert!(busy_s() > 0.0);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_listening(
            listener.local_addr().unwrap().port(),
            std::process::id()
        ));
    }
}
