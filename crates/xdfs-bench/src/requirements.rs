//! What must be reached, group by group.
//!
//! Against GridFTP a file transfer by xdfs with its own choice of channels must hold against
//! GridFTP's best setting, found afterwards among those measured: the comparison that is hardest
//! for xdfs. Requirements of groups that were not run are left out. Called by `main`.

pub(crate) mod private;
mod selection;
mod trees;
mod wan;

use self::selection::{best_gridftp, find};
use crate::{
    options::{Group, Options},
    plan::{self, FEW_CHANNELS, MANY_CHANNELS},
    row::{Row, Run, megabytes},
    tool::{Direction, Tool},
    verdict::{Bound, Verdict, absolute, ratio},
};

/// Channel counts that are compared with iperf3, and the least ratio to it.
const MEMORY_RATIOS: [(u32, f64); 4] = [(1, 0.95), (4, 1.0), (16, 1.3), (64, 1.3)];

/// Judges every requirement of the groups that were run.
pub(crate) fn verdicts(rows: &[Row], options: &Options) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for group in &options.groups {
        match group {
            Group::Mem => memory(rows, &mut verdicts),
            Group::Shm => tmpfs(rows, &mut verdicts),
            Group::Disk => disk(rows, options.disk_bytes, &mut verdicts),
            Group::Tiny => tiny(rows, &mut verdicts),
            Group::Saturation => saturation(rows, options.disk_bytes, &mut verdicts),
            Group::Channels => channels(rows, &mut verdicts),
            Group::PrivateShm | Group::PrivateMem | Group::PrivateTiny | Group::PrivateChannels => {
                verdicts.extend(private::verdicts(rows, *group, options));
            }
            Group::TreeA
            | Group::TreeB
            | Group::TreeC
            | Group::TreeDisk
            | Group::TreeWan
            | Group::TreeWanNarrow
            | Group::TreeEmpty
            | Group::Calls => verdicts.extend(trees::verdicts(rows, *group)),
            Group::Wan(link) => verdicts.extend(wan::verdicts(rows, *link)),
            Group::WanFairLossy | Group::WanFairClean => {
                verdicts.extend(wan::shares(rows, *group));
            }
        }
    }
    verdicts
}

fn memory(rows: &[Row], verdicts: &mut Vec<Verdict>) {
    for (count, required) in MEMORY_RATIOS {
        for way in Direction::BY_NETWORK {
            let find = |tool| find(rows, Group::Mem, way, tool, Some(count), None);
            verdicts.push(ratio(
                format!(
                    "memory to memory {}, n = {count}, against iperf3",
                    way.name()
                ),
                (Bound::AtLeast, Some(required)),
                (find(Tool::Xdfs), find(Tool::Iperf3)),
                ("GB/s", Run::rate),
            ));
        }
    }
}

fn tmpfs(rows: &[Row], verdicts: &mut Vec<Verdict>) {
    for way in Direction::BY_NETWORK {
        let place = format!("tmpfs to tmpfs {}", way.name());
        let ours = find(rows, Group::Shm, way, Tool::Xdfs, None, None);
        let (best, rival) = best_gridftp(rows, Group::Shm, way, None);
        let bare = find(rows, Group::Shm, way, Tool::Bare, Some(1), None);
        let mut rate = |what: &str, required, other| {
            verdicts.push(ratio(
                format!("{place}, against {what}"),
                (Bound::AtLeast, Some(required)),
                (ours, other),
                ("GB/s", Run::rate),
            ));
        };
        rate(&rival, 1.3, best);
        rate("bare copies", 1.05, bare);
        verdicts.push(ratio(
            format!("CPU for a GB, {place}, against {rival}"),
            (Bound::AtMost, Some(0.75)),
            (ours, best),
            ("s/GB", Run::cpu_per_gb),
        ));
    }
}

fn disk(rows: &[Row], big: u64, verdicts: &mut Vec<Verdict>) {
    for bytes in plan::disk_sizes(big) {
        for way in Direction::BY_NETWORK {
            let find = |way, tool| find(rows, Group::Disk, way, tool, None, Some(bytes));
            let ours = find(way, Tool::Xdfs);
            let (best, rival) = best_gridftp(rows, Group::Disk, way, Some(bytes));
            let what = format!("a file of {} MB, disk to disk {}", mb(bytes), way.name());
            let mut rate = |other: &str, required, row| {
                verdicts.push(ratio(
                    format!("{what}, against {other}"),
                    (Bound::AtLeast, Some(required)),
                    (ours, row),
                    ("GB/s", Run::rate),
                ));
            };
            rate(&rival, 1.2, best);
            rate("cp and sync", 1.0, find(Direction::Local, Tool::Cp));
            rate(
                "an overlapped copy",
                0.95,
                find(Direction::Local, Tool::Overlap),
            );
            if let Some(older) = find(way, Tool::Previous) {
                rate("the previous xdfs", 0.98, Some(older));
            }
            verdicts.push(absolute(
                format!("{what}, peak memory of a side"),
                (Bound::AtMost, Some(64.0), "MB"),
                ours,
                |run| megabytes(run.client_peak_kib.max(run.server_peak_kib)),
            ));
        }
    }
}

fn tiny(rows: &[Row], verdicts: &mut Vec<Verdict>) {
    for way in Direction::BY_NETWORK {
        let row = find(rows, Group::Tiny, way, Tool::Xdfs, None, None);
        verdicts.push(absolute(
            format!("a 2-byte file {}, whole command", way.name()),
            (Bound::AtMost, Some(10.0), "ms"),
            row,
            |run| run.command_seconds * 1e3,
        ));
    }
}

fn saturation(rows: &[Row], big: u64, verdicts: &mut Vec<Verdict>) {
    let small = plan::small_bytes(big);
    for way in Direction::BY_NETWORK {
        let find = |bytes| find(rows, Group::Saturation, way, Tool::Xdfs, None, Some(bytes));
        verdicts.push(ratio(
            format!(
                "disk {}, a file of {} MB against one of {} MB",
                way.name(),
                mb(big),
                mb(small)
            ),
            (Bound::AtLeast, Some(0.9)),
            (find(big), find(small)),
            ("GB/s", Run::rate),
        ));
        let ours = find(small);
        let mut rivals = rows.iter().filter(|row| row.tool == Tool::GridFtp);
        let wanted = (Group::Saturation, way, small);
        let rival = rivals.find(|row| (row.group, row.direction, row.bytes) == wanted);
        verdicts.push(ratio(
            format!(
                "disk {}, a file of {} MB against GridFTP",
                way.name(),
                mb(small)
            ),
            (Bound::AtLeast, Some(1.1)),
            (ours, rival),
            ("GB/s", Run::rate),
        ));
    }
}

fn channels(rows: &[Row], verdicts: &mut Vec<Verdict>) {
    for way in Direction::BY_NETWORK {
        let find = |count| find(rows, Group::Channels, way, Tool::Xdfs, Some(count), None);
        let (many, few) = (find(MANY_CHANNELS), find(FEW_CHANNELS));
        let name = way.name();
        let compared = format!("n = {MANY_CHANNELS} against n = {FEW_CHANNELS}");
        verdicts.push(ratio(
            format!("rate {name}, {compared}"),
            (Bound::AtLeast, Some(0.95)),
            (many, few),
            ("GB/s", Run::rate),
        ));
        verdicts.push(ratio(
            format!("peak memory of both sides {name}, {compared}"),
            (Bound::AtMost, Some(1.5)),
            (many, few),
            ("MB", Run::memory_mb),
        ));
        verdicts.push(absolute(
            format!("peak memory of both sides {name}, n = {MANY_CHANNELS}"),
            (Bound::AtMost, Some(100.0), "MB"),
            many,
            Run::memory_mb,
        ));
    }
}

fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Outcome, tests::row};

    fn options(group: &str) -> Options {
        Options::parse(&[group.to_owned()]).unwrap()
    }

    #[test]
    fn judged_by_the_median_of_paired_ratios() {
        let up = |tool, seconds: &[f64]| row(Group::Mem, Direction::Up, tool, Some(4), seconds);
        // The machine got slower by ten for both in the second repetition.
        let rows = [
            up(Tool::Xdfs, &[1.0, 10.0, 1.0]),
            up(Tool::Iperf3, &[1.1, 11.0, 0.5]),
        ];
        let verdicts = verdicts(&rows, &options("mem"));
        assert_eq!(verdicts.len(), 8);
        let measured: Vec<&Verdict> = verdicts
            .iter()
            .filter(|verdict| verdict.measured.is_some())
            .collect();
        assert_eq!(measured.len(), 1);
        assert_eq!(
            measured[0].what,
            "memory to memory up, n = 4, against iperf3"
        );
        assert!((measured[0].measured.unwrap().median - 1.1).abs() < 1e-9);
        assert_eq!(measured[0].outcome, Outcome::Reached);
        assert!(
            verdicts
                .iter()
                .all(|verdict| verdict.outcome != Outcome::Short)
        );
    }

    #[test]
    fn the_best_setting_of_the_rival_counts() {
        let down = |tool, channels, seconds: &[f64]| {
            row(Group::Shm, Direction::Down, tool, channels, seconds)
        };
        let rows = [
            down(Tool::GridFtp, Some(1), &[1.0]),
            down(Tool::GridFtp, Some(4), &[0.5]),
            down(Tool::Xdfs, Some(4), &[0.1]),
            down(Tool::Xdfs, None, &[0.5]),
        ];
        let verdicts = verdicts(&rows, &options("shm"));
        let rate = verdicts
            .iter()
            .find(|verdict| verdict.what.contains("(-p 4)"))
            .unwrap();
        assert!(
            (rate.measured.unwrap().median - 1.0).abs() < 1e-9,
            "own choice, not n = 4"
        );
        assert_eq!(rate.outcome, Outcome::Short);
        let cpu = verdicts
            .iter()
            .find(|verdict| verdict.what.starts_with("CPU"))
            .unwrap();
        assert_eq!(
            (cpu.bound, cpu.outcome),
            (Bound::AtMost, Outcome::NotMeasured)
        );
        let cpu = verdicts
            .iter()
            .rfind(|verdict| verdict.what.starts_with("CPU"))
            .unwrap();
        assert_eq!(cpu.outcome, Outcome::Short);
    }

    #[test]
    fn absolute_bounds() {
        let rows = [
            row(
                Group::Tiny,
                Direction::Up,
                Tool::Xdfs,
                None,
                &[0.02, 0.005, 0.006],
            ),
            row(Group::Tiny, Direction::Down, Tool::Xdfs, None, &[0.011]),
        ];
        let verdicts = verdicts(&rows, &options("tiny"));
        assert_eq!(verdicts[0].outcome, Outcome::Reached);
        assert_eq!(verdicts[1].outcome, Outcome::Short);
    }

    #[test]
    fn a_failure_is_named_and_never_reached() {
        let mut failed = row(Group::Tiny, Direction::Up, Tool::Xdfs, None, &[]);
        failed.failure = Some("exit status: 1: no such file".to_owned());
        let verdicts = verdicts(&[failed], &options("tiny"));
        assert_eq!(verdicts[0].outcome, Outcome::NotMeasured);
        assert!(verdicts[0].detail.contains("no such file"));
        assert_eq!(verdicts[1].detail, "no such row in this run");
    }

    #[test]
    fn every_group_has_requirements() {
        // Shares are only reported, of the rows that there are.
        let links = 8 + 6 + 4 + 4 + 4 + 4;
        assert_eq!(
            verdicts(&[], &options("all")).len(),
            8 + 6 + 24 + 2 + 4 + 6 + 4 + 4 + 2 + 4 + (10 + 10 + 12 + 4 + 4 + 4 + 2 + 1) + links
        );
    }
}
