//! Which rows a group has.
//!
//! Rows that are compared with each other stand side by side, so that their runs follow each other
//! closely. Called by `session`; runs nothing.

use std::time::Duration;

use crate::{
    link::WanLink,
    options::{Group, Options},
    protection::Protection,
    tool::{Amount, Direction, Tool},
    tree::Shape,
};

/// Most parallel streams that iperf3 takes.
const IPERF3_STREAMS_MAX: u32 = 128;
/// The stream counts among which GridFTP's best is found, and that xdfs is measured with beside
/// its own choice.
const FILE_CHANNELS: [u32; 3] = [1, 4, 16];
/// GridFTP's stream counts on disk, where runs are long.
const DISK_CHANNELS: [u32; 2] = [1, 4];
/// The channel count that many channels are compared with.
pub(crate) const FEW_CHANNELS: u32 = 4;
/// The channel count that counts as many.
pub(crate) const MANY_CHANNELS: u32 = 1000;
/// The channel counts that are compared with those of an older program.
pub(crate) const PREVIOUS_CHANNELS: [u32; 2] = [4, 1];
/// Payload of the runs that ask how long opening takes: enough that the transfer isn't over before
/// all channels are there, and little beside the time that opening takes.
pub(crate) const OPENING_BYTES: u64 = 128 << 20;
/// Size of the small file of the saturation group when the big one has 4 GiB; scaled with it.
const SMALL_BYTES: u64 = 400_000_000;
/// Size of the big file that `SMALL_BYTES` belongs to.
const BIG_BYTES: u64 = 4 << 30;
/// Size of the file of the tiny group.
pub(crate) const TINY_BYTES: u64 = 2;

/// Calls in a run of the group `calls`.
const CALLS: u64 = 200_000;
/// The same in a quick run.
const CALLS_QUICK: u64 = 1000;
/// Rivals that took longer than this for a tree, in seconds, are not run again: a median of theirs
/// would cost more time than all others together.
pub(crate) const SLOW_TREE_S: f64 = 30.0;

/// Payload of the run that shows what the emulator carries.
const CEILING_BYTES: u64 = 2_000_000_000;
/// The same in a quick run.
const CEILING_QUICK_BYTES: u64 = 50_000_000;
/// How long two transfers run beside each other, in seconds.
const FAIR_S: u64 = 20;
/// The same in a quick run.
const FAIR_QUICK_S: u64 = 2;

/// How many times longer the runs with many channels are than other runs in memory: opening a
/// thousand channels, which takes a tenth of a second and is part of the run, shall weigh little.
pub(crate) const LONG: u64 = 3;

/// One row to be measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Job {
    /// The group it belongs to.
    pub(crate) group: Group,
    /// Which way the payload goes.
    pub(crate) direction: Direction,
    /// Who moves it.
    pub(crate) tool: Tool,
    /// How its channels are protected.
    pub(crate) protection: Protection,
    /// Parallel channels; the tool's own choice when not given.
    pub(crate) channels: Option<u32>,
    /// Payload in bytes; zero where a time is given instead.
    pub(crate) bytes: u64,
    /// Files of a tree, or calls; zero elsewhere.
    pub(crate) items: u64,
    /// Who moves payload over the same link at the same time.
    pub(crate) beside: Option<Tool>,
}

impl Job {
    /// Whether the payload is a file.
    pub(crate) fn moves_a_file(&self) -> bool {
        self.group.moves_a_file() && !self.tool.moves_memory_only()
    }

    /// Whether no other tool moves anything at the same time.
    pub(crate) fn is_of_xdfs_alone(&self) -> bool {
        self.tool == Tool::Xdfs && self.beside.is_none_or(|other| other == Tool::Xdfs)
    }
}

/// The rows of `group`.
pub(crate) fn jobs(group: Group, options: &Options) -> Vec<Job> {
    if group.is_private() {
        return private_jobs(group, options);
    }
    if group.is_of_trees() {
        return tree_jobs(group, options);
    }
    if let Some(link) = group.link() {
        return link_jobs(group, link, options);
    }
    let mut jobs = Vec::new();
    let mut add = |direction, tool, channels, bytes| {
        jobs.push(Job {
            group,
            direction,
            tool,
            protection: Protection::None,
            channels,
            bytes,
            items: 0,
            beside: None,
        });
    };
    let ways = [Direction::Up, Direction::Down];
    match group {
        Group::Mem => {
            for count in options
                .channels
                .iter()
                .filter(|count| **count <= IPERF3_STREAMS_MAX)
            {
                for way in ways {
                    for tool in [Tool::Iperf3, Tool::Xdfs, Tool::GridFtp] {
                        add(way, tool, Some(*count), options.memory_bytes);
                    }
                }
            }
        }
        Group::Shm => {
            let bytes = options.shm_bytes;
            add(Direction::Local, Tool::Cp, None, bytes);
            for way in ways {
                add(way, Tool::Bare, Some(1), bytes);
                add(way, Tool::Rclone, None, bytes);
                add(way, Tool::Rsync, None, bytes);
                for count in FILE_CHANNELS {
                    add(way, Tool::GridFtp, Some(count), bytes);
                    add(way, Tool::Xdfs, Some(count), bytes);
                }
                add(way, Tool::Xdfs, None, bytes);
            }
        }
        Group::Disk => {
            for bytes in disk_sizes(options.disk_bytes) {
                add(Direction::Local, Tool::Cp, None, bytes);
                add(Direction::Local, Tool::Overlap, None, bytes);
                for way in ways {
                    add(way, Tool::Rsync, None, bytes);
                    for count in DISK_CHANNELS {
                        add(way, Tool::GridFtp, Some(count), bytes);
                    }
                    add(way, Tool::Xdfs, None, bytes);
                    if options.previous.is_some() {
                        add(way, Tool::Previous, None, bytes);
                    }
                }
            }
        }
        Group::Tiny => {
            add(Direction::Local, Tool::Cp, None, TINY_BYTES);
            for way in ways {
                for tool in [Tool::Rclone, Tool::Rsync, Tool::GridFtp, Tool::Xdfs] {
                    add(way, tool, None, TINY_BYTES);
                }
            }
        }
        Group::Saturation => {
            let big = options.disk_bytes;
            for way in ways {
                for bytes in [small_bytes(big), big] {
                    add(way, Tool::GridFtp, Some(FEW_CHANNELS), bytes);
                    add(way, Tool::Xdfs, None, bytes);
                }
            }
        }
        Group::Channels => {
            let bytes = options.memory_bytes * LONG;
            let most = options.channels.last().copied().unwrap_or(FEW_CHANNELS);
            for count in &options.channels {
                for way in ways {
                    add(way, Tool::Xdfs, Some(*count), bytes);
                    if *count == FEW_CHANNELS || *count == most {
                        add(way, Tool::GridFtp, Some(*count), bytes);
                    }
                }
            }
        }
        // They have been answered above.
        Group::PrivateShm
        | Group::PrivateMem
        | Group::PrivateTiny
        | Group::PrivateChannels
        | Group::TreeA
        | Group::TreeB
        | Group::TreeC
        | Group::TreeDisk
        | Group::TreeWan
        | Group::TreeWanNarrow
        | Group::TreeEmpty
        | Group::Calls
        | Group::Wan(_)
        | Group::WanFairLossy
        | Group::WanFairClean => {}
    }
    jobs
}

/// The rows of a group over an emulated link.
fn link_jobs(group: Group, link: WanLink, options: &Options) -> Vec<Job> {
    let properties = link.properties();
    let job = |direction, (tool, channels)| Job {
        group,
        direction,
        tool,
        protection: Protection::None,
        channels,
        bytes: if group.is_fair() {
            // As many as the time allows.
            0
        } else {
            options.bytes_over(link)
        },
        items: 0,
        beside: None,
    };
    let own = (Tool::Xdfs, None);
    if group.is_fair() {
        let one = job(Direction::Up, own);
        let others = [Tool::Xdfs, Tool::Iperf3, Tool::Iperf3Bbr].map(Some);
        return others.map(|beside| Job { beside, ..one }).to_vec();
    }
    let mut jobs = Vec::new();
    for way in Direction::BY_NETWORK {
        let mut rivals = Vec::new();
        if way == Direction::Up || properties.both_ways {
            // Without bbr their rows would be those of the link with it.
            if properties.allows_bbr {
                // From its web server rclone fetches with several connections.
                let count = (way == Direction::Down).then_some(FEW_CHANNELS);
                rivals.extend([(Tool::Rclone, count), (Tool::Rsync, None)]);
            }
            let mut parallel = |tool| {
                rivals.extend(FILE_CHANNELS.map(|count| (tool, Some(count))));
            };
            parallel(Tool::GridFtp);
            parallel(Tool::Iperf3);
            if properties.allows_bbr {
                parallel(Tool::Iperf3Bbr);
            }
        }
        jobs.extend(rivals.into_iter().chain([own]).map(|tool| job(way, tool)));
    }
    jobs
}

/// The row that shows what the emulator of a link carries when it slows nothing down.
pub(crate) fn ceiling(group: Group, quick: bool) -> Job {
    Job {
        group,
        direction: Direction::Up,
        tool: Tool::Iperf3,
        protection: Protection::None,
        channels: Some(FEW_CHANNELS),
        bytes: if quick {
            CEILING_QUICK_BYTES
        } else {
            CEILING_BYTES
        },
        items: 0,
        beside: None,
    }
}

/// When the payload of a job that moves no file ends.
pub(crate) fn amount(job: &Job, quick: bool) -> Amount {
    match job.bytes {
        0 => Amount::Seconds(fair_seconds(quick)),
        bytes => Amount::Bytes(bytes),
    }
}

/// How long a rival may take over a link that may be hard for it; it is ended then, and what it has
/// moved counts.
pub(crate) fn patience(job: &Job) -> Option<Duration> {
    match job.group {
        Group::Wan(link) if job.tool != Tool::Xdfs => Some(link.patience(job.bytes)),
        _ => None,
    }
}

/// How long two transfers run beside each other, in seconds.
pub(crate) fn fair_seconds(quick: bool) -> u64 {
    if quick { FAIR_QUICK_S } else { FAIR_S }
}

/// The rows of a group of private channels.
fn private_jobs(group: Group, options: &Options) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut add = |direction, tool, protection, channels, bytes| {
        jobs.push(Job {
            group,
            direction,
            tool,
            protection,
            channels,
            bytes,
            items: 0,
            beside: None,
        });
    };
    // In this order, so that what is compared runs next to each other: private, clear, none.
    let kinds = [Protection::Private, Protection::Clear, Protection::None];
    let both = [Protection::Private, Protection::None];
    for way in [Direction::Up, Direction::Down] {
        match group {
            Group::PrivateMem => {
                for count in PREVIOUS_CHANNELS {
                    let channels = Some(count);
                    for kind in kinds {
                        // One channel is a matter of the comparison with the older program alone.
                        if count == FEW_CHANNELS || kind == Protection::Clear {
                            add(way, Tool::Xdfs, kind, channels, options.memory_bytes);
                        }
                        if kind == Protection::Clear {
                            let none = Protection::None;
                            add(way, Tool::Previous, none, channels, options.memory_bytes);
                        }
                    }
                }
            }
            Group::PrivateTiny => {
                add(way, Tool::Scp, Protection::Private, None, TINY_BYTES);
                for kind in both {
                    add(way, Tool::Xdfs, kind, None, TINY_BYTES);
                }
            }
            Group::PrivateChannels => {
                for kind in both {
                    add(way, Tool::Xdfs, kind, Some(MANY_CHANNELS), OPENING_BYTES);
                }
            }
            _ => {
                add(
                    way,
                    Tool::Scp,
                    Protection::Private,
                    None,
                    options.private_bytes,
                );
                for kind in kinds {
                    add(way, Tool::Xdfs, kind, None, options.private_bytes);
                }
            }
        }
    }
    jobs
}

/// The rows of a group of trees, or of the calls.
fn tree_jobs(group: Group, options: &Options) -> Vec<Job> {
    let shape = Shape::of(group, options.quick);
    let calls = if options.quick { CALLS_QUICK } else { CALLS };
    let job = |direction, (tool, protection)| Job {
        group,
        direction,
        tool,
        protection,
        channels: (group == Group::Calls).then_some(1),
        bytes: shape.map_or(0, Shape::bytes),
        items: shape.map_or(calls, |shape| u64::from(shape.files)),
        beside: None,
    };
    let plain = |tool| (tool, Protection::None);
    let ours = [(Tool::Xdfs, Protection::Private), plain(Tool::Xdfs)];
    let rivals = match group {
        Group::TreeEmpty | Group::Calls => return vec![job(Direction::Up, plain(Tool::Xdfs))],
        Group::TreeDisk => vec![Tool::GridFtp, Tool::Rsync],
        Group::TreeWan | Group::TreeWanNarrow => vec![Tool::Rsync],
        // The slow ones far from the middle, where xdfs and what it is close to are.
        _ => vec![Tool::Rclone, Tool::GridFtp, Tool::Rsync, Tool::Tar],
    };
    // Beside the one that it is compared with.
    let previous = options.previous.iter().map(|_| plain(Tool::Previous));
    let ranked = || {
        let rivals = rivals.iter().copied().map(plain);
        rivals.chain(ours).chain(previous.clone())
    };
    let mut jobs: Vec<Job> = ranked().map(|tool| job(Direction::Up, tool)).collect();
    let down = jobs.iter().rev().map(|up| Job {
        direction: Direction::Down,
        ..*up
    });
    let down: Vec<Job> = down.collect();
    if !group.is_far() {
        jobs.push(job(Direction::Local, plain(Tool::Cp)));
    }
    jobs.extend(down);
    jobs
}

/// Size of the small file that belongs to a big one of `big` bytes.
pub(crate) fn small_bytes(big: u64) -> u64 {
    let scaled = u128::from(big) * u128::from(SMALL_BYTES) / u128::from(BIG_BYTES);
    u64::try_from(scaled).unwrap_or(SMALL_BYTES).max(1)
}

/// Sizes of the files that are copied on disk, the biggest of `big` bytes.
pub(crate) fn disk_sizes(big: u64) -> [u64; 3] {
    [small_bytes(big), big / 2, big]
}

/// How often the rows of a group are run in all. Empty files are a matter of memory, which does
/// not scatter, and each run of them takes long.
pub(crate) fn runs(group: Group, options: &Options) -> u32 {
    match group {
        Group::TreeEmpty => 1,
        _ => options.repetitions * runs_per_repetition(group, options.quick),
    }
}

/// How often a row is run in one repetition: short runs scatter, and more of them cost nothing.
pub(crate) fn runs_per_repetition(group: Group, quick: bool) -> u32 {
    match (group, quick) {
        (Group::Tiny | Group::PrivateTiny, false) => 10,
        (Group::Tiny | Group::PrivateTiny, true) => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Options::parse(&words).unwrap()
    }

    #[test]
    fn iperf3_gets_no_more_streams_than_it_takes() {
        let jobs = jobs(Group::Mem, &options(&["--channels", "1,128,129,1000"]));
        assert_eq!(jobs.len(), 12);
        assert!(jobs.iter().all(|job| job.channels <= Some(128)));
    }

    #[test]
    fn no_row_twice() {
        for group in Group::ALL {
            let jobs = jobs(group, &options(&[]));
            assert!(!jobs.is_empty());
            for (index, job) in jobs.iter().enumerate() {
                assert!(!jobs[..index].contains(job), "{job:?}");
            }
        }
    }

    #[test]
    fn what_is_compared_runs_next_to_each_other() {
        let jobs = jobs(Group::PrivateMem, &options(&[]));
        let up: Vec<_> = jobs
            .iter()
            .filter(|job| job.direction == Direction::Up && job.channels == Some(FEW_CHANNELS))
            .map(|job| (job.tool, job.protection))
            .collect();
        assert_eq!(
            up,
            [
                (Tool::Xdfs, Protection::Private),
                (Tool::Xdfs, Protection::Clear),
                (Tool::Previous, Protection::None),
                (Tool::Xdfs, Protection::None),
            ]
        );
        assert_eq!(jobs.len(), 2 * (4 + 2));
    }

    #[test]
    fn private_groups_have_private_rows_both_ways() {
        for group in Group::ALL.into_iter().filter(|group| group.is_private()) {
            let jobs = jobs(group, &options(&["--file-mib", "7"]));
            for way in [Direction::Up, Direction::Down] {
                let private = |job: &&Job| {
                    (job.direction, job.tool, job.protection)
                        == (way, Tool::Xdfs, Protection::Private)
                };
                assert_eq!(jobs.iter().filter(private).count(), 1, "{group:?}");
            }
            let rivals = jobs.iter().filter(|job| job.tool == Tool::Scp).count();
            assert_eq!(rivals, if group.moves_a_file() { 2 } else { 0 });
            if group == Group::PrivateShm {
                assert!(jobs.iter().all(|job| job.bytes == 7 << 20));
            }
        }
    }

    #[test]
    fn trees_have_xdfs_and_its_rivals_close_together() {
        for group in [Group::TreeA, Group::TreeB, Group::TreeC] {
            let jobs = jobs(group, &options(&["trees"]));
            assert_eq!(jobs.len(), 6 + 1 + 6);
            let kinds: Vec<_> = jobs[3..10]
                .iter()
                .map(|job| (job.direction, job.tool, job.protection))
                .collect();
            let (private, none) = (Protection::Private, Protection::None);
            assert_eq!(
                kinds,
                [
                    (Direction::Up, Tool::Tar, none),
                    (Direction::Up, Tool::Xdfs, private),
                    (Direction::Up, Tool::Xdfs, none),
                    (Direction::Local, Tool::Cp, none),
                    (Direction::Down, Tool::Xdfs, none),
                    (Direction::Down, Tool::Xdfs, private),
                    (Direction::Down, Tool::Tar, none),
                ]
            );
            let all = |job: &Job| (job.bytes, job.items) == (jobs[0].bytes, jobs[0].items);
            assert!(jobs.iter().all(all));
        }
        for far in [Group::TreeWan, Group::TreeWanNarrow] {
            let jobs = jobs(far, &options(&[]));
            assert_eq!(jobs.len(), 2 * 3);
            assert!(jobs.iter().all(|job| job.items == 2874));
        }
    }

    #[test]
    fn links_have_xdfs_both_ways_and_rivals_upwards() {
        let rows = |link| jobs(Group::Wan(link), &options(&[]));
        let count = |rows: &[Job], direction, tool| {
            let found = |job: &&Job| (job.direction, job.tool) == (direction, tool);
            rows.iter().filter(found).count()
        };
        for link in WanLink::ALL {
            let rows = rows(link);
            for way in Direction::BY_NETWORK {
                assert_eq!(count(&rows, way, Tool::Xdfs), 1, "{link:?}");
            }
            assert_eq!(count(&rows, Direction::Up, Tool::GridFtp), 3);
            assert_eq!(count(&rows, Direction::Up, Tool::Iperf3), 3);
            let bbr = count(&rows, Direction::Up, Tool::Iperf3Bbr);
            assert_eq!(bbr, if link == WanLink::LossyCubic { 0 } else { 3 });
            let bytes = link.properties().bytes;
            assert!(rows.iter().all(|job| job.bytes == bytes));
            assert!(
                rows.iter()
                    .all(|job| job.moves_a_file() != job.tool.moves_memory_only())
            );
        }
        for job in rows(WanLink::Lossy) {
            assert_eq!(patience(&job).is_none(), job.tool == Tool::Xdfs, "{job:?}");
        }
        assert_eq!(rows(WanLink::Lossy).len(), 2 * (2 + 3 + 3 + 3 + 1));
        assert_eq!(rows(WanLink::Clean).len(), 2 + 3 + 3 + 3 + 1 + 1);
        let small = jobs(Group::Wan(WanLink::Far), &options(&["--file-mib", "3"]));
        assert!(small.iter().all(|job| job.bytes == 3 << 20));
    }

    #[test]
    fn two_at_once_run_for_a_time() {
        let rows = jobs(Group::WanFairClean, &options(&[]));
        let alone: Vec<_> = rows.iter().map(Job::is_of_xdfs_alone).collect();
        assert_eq!(alone, [true, false, false]);
        assert_eq!(patience(&rows[0]), None);
        let beside: Vec<_> = rows.iter().map(|job| job.beside).collect();
        let others = [Tool::Xdfs, Tool::Iperf3, Tool::Iperf3Bbr];
        assert_eq!(beside, others.map(Some));
        assert_eq!(amount(&rows[0], false), Amount::Seconds(FAIR_S));
        let ceiling = ceiling(Group::WanFairClean, true);
        assert_eq!(amount(&ceiling, true), Amount::Bytes(CEILING_QUICK_BYTES));
    }

    #[test]
    fn empty_files_and_calls_have_one_row() {
        let three = options(&["--repetitions", "3"]);
        let empty = jobs(Group::TreeEmpty, &three);
        assert_eq!(empty.len(), 1);
        assert_eq!((empty[0].bytes, empty[0].items), (0, 1_000_000));
        assert_eq!(runs(Group::TreeEmpty, &three), 1);
        let calls = jobs(Group::Calls, &three);
        assert_eq!(calls.len(), 1);
        assert_eq!((calls[0].channels, calls[0].items), (Some(1), CALLS));
        assert_eq!(runs(Group::Calls, &three), 3);
        assert_eq!(runs(Group::Tiny, &three), 30);
    }

    #[test]
    fn the_small_file_scales() {
        assert_eq!(small_bytes(4 << 30), 400_000_000);
        assert_eq!(small_bytes(2 << 30), 200_000_000);
        assert_eq!(small_bytes(1), 1);
    }
}
