//! Which rows a group has.
//!
//! Rows that are compared with each other stand side by side, so that their runs follow each other
//! closely. Called by `session`; runs nothing.

use crate::{
    options::{Group, Options},
    tool::{Direction, Tool},
};

/// Most parallel streams that iperf3 takes.
const IPERF3_STREAMS_MAX: u32 = 128;
/// The stream counts among which GridFTP's best is found, and that xdfs is measured with beside
/// its own choice.
const FILE_CHANNELS: [u32; 3] = [1, 4, 16];
/// The channel count that many channels are compared with.
pub(crate) const FEW_CHANNELS: u32 = 4;
/// Size of the small file of the saturation group when the big one has 4 GiB; scaled with it.
const SMALL_BYTES: u64 = 400_000_000;
/// Size of the big file that `SMALL_BYTES` belongs to.
const BIG_BYTES: u64 = 4 << 30;
/// Size of the file of the tiny group.
pub(crate) const TINY_BYTES: u64 = 2;

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
    /// Parallel channels; the tool's own choice when not given.
    pub(crate) channels: Option<u32>,
    /// Payload in bytes.
    pub(crate) bytes: u64,
}

/// The rows of `group`.
pub(crate) fn jobs(group: Group, options: &Options) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut add = |direction, tool, channels, bytes| {
        jobs.push(Job {
            group,
            direction,
            tool,
            channels,
            bytes,
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
        Group::Shm | Group::Disk => {
            let on_disk = group == Group::Disk;
            let bytes = if on_disk {
                options.disk_bytes
            } else {
                options.shm_bytes
            };
            add(Direction::Local, Tool::Cp, None, bytes);
            for way in ways {
                if !on_disk {
                    add(way, Tool::Bare, Some(1), bytes);
                }
                add(way, Tool::Rclone, None, bytes);
                add(way, Tool::Rsync, None, bytes);
                for count in FILE_CHANNELS {
                    add(way, Tool::GridFtp, Some(count), bytes);
                    // A disk run is long; there one count beside xdfs's own choice must do.
                    if !on_disk || count == FEW_CHANNELS {
                        add(way, Tool::Xdfs, Some(count), bytes);
                    }
                }
                add(way, Tool::Xdfs, None, bytes);
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
    }
    jobs
}

/// Size of the small file that belongs to a big one of `big` bytes.
pub(crate) fn small_bytes(big: u64) -> u64 {
    let scaled = u128::from(big) * u128::from(SMALL_BYTES) / u128::from(BIG_BYTES);
    u64::try_from(scaled).unwrap_or(SMALL_BYTES).max(1)
}

/// How often a row is run in one repetition: short runs scatter, and more of them cost nothing.
pub(crate) fn runs_per_repetition(group: Group, quick: bool) -> u32 {
    match (group, quick) {
        (Group::Tiny, false) => 10,
        (Group::Tiny, true) => 3,
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
    fn the_small_file_scales() {
        assert_eq!(small_bytes(4 << 30), 400_000_000);
        assert_eq!(small_bytes(2 << 30), 200_000_000);
        assert_eq!(small_bytes(1), 1);
    }
}
