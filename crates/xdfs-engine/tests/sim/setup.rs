//! What a seed chooses beforehand: the network, the disks, and what is moved.

use std::collections::BTreeMap;
use std::time::Duration;

use xdfs_engine::Spares;
use xdfs_proto::frame::{Resume, Start};
use xdfs_proto::{ByteRange, DigestKind, Limits};
use xdfs_sim::Random;
use xdfs_sim::network::Weather;
use xdfs_sim::store::{FileContent, Habits};

use crate::transfers::{Moved, Pack, What};

pub(crate) fn weather(random: &mut Random) -> Weather {
    let rough = random.permille(600);
    let mut chance = |most| match rough {
        true => random.range(0, most),
        false => 0,
    };
    let (breaks, silences, stalls) = (chance(20), chance(4), chance(10));
    let (damages, forgeries, refusals) = (chance(60), chance(40), chance(100));
    Weather {
        latency: Duration::from_micros(random.pick(&[0, 50, 1_000, 20_000, 150_000])),
        jitter: Duration::from_micros(random.pick(&[0, 100, 50_000, 500_000])),
        rate: random.pick(&[100_000, 1_000_000, 100_000_000, 10_000_000_000]),
        slow_channels: random.pick(&[0, 0, 200]),
        // Less would take all of the steps on a long path.
        room: random.pick(&[20_000, 200_000, 1 << 20]),
        breaks,
        silences,
        stalls,
        damages,
        forgeries,
        refusals,
        local: random.permille(300),
    }
}

pub(crate) fn habits(random: &mut Random) -> Habits {
    let bad = random.permille(350);
    let mut chance = |most| match bad {
        true => random.range(0, most),
        false => 0,
    };
    let (failing_opens, failing_reads, failing_writes) = (chance(150), chance(60), chance(100));
    let (failing_syncs, failing_publishes) = (chance(200), chance(200));
    let changed_sources = match random.permille(350) {
        true => random.range(300, 1000),
        false => 0,
    };
    let changes = changed_sources > 0;
    Habits {
        failing_opens,
        failing_reads,
        changed_sources,
        failing_writes,
        failing_syncs,
        failing_publishes,
        faults: random.range(if changes { 2 } else { 0 }, 5),
        // The word of a change is lost then, and the end of the source is told again.
        breaks_channels: random.permille(if changes { 900 } else { 500 }),
        room: match random.permille(100) {
            true => random.range(10_000, 300_000),
            false => u64::MAX,
        },
        slow_writes: random.permille(700),
        random_writes: random.permille(850),
        is_slow: random.permille(500),
        packs_wait: random.permille(500),
    }
}

fn content(random: &mut Random) -> FileContent {
    let most = random.pick(&[0, 1, 1_000, 5_000, 70_000, 300_000]);
    let length = random.range(0, most);
    let hole = match random.permille(200) {
        true => {
            let start = random.range(0, length);
            let end = random.range(start, length);
            ByteRange { start, end }
        }
        false => ByteRange { start: 0, end: 0 },
    };
    FileContent {
        seed: random.draw(),
        length,
        hole,
        is_stream: random.permille(120),
    }
}

/// What is moved, and the sources and the files that a client and a server have of it.
#[derive(Default)]
pub(crate) struct Content {
    pub(crate) moved: Vec<Moved>,
    pub(crate) sources: [BTreeMap<Vec<u8>, FileContent>; 2],
    pub(crate) files: [BTreeMap<Vec<u8>, Vec<u8>>; 2],
}

impl Content {
    /// Nothing is resumed where blocks are forged: what an earlier attempt took for good is trusted
    /// by the next one, and its digest with it.
    pub(crate) fn new(random: &mut Random, has_forgeries: bool) -> Self {
        let mut all = Self::default();
        for number in 0..random.range(1, 5) {
            let path = format!("/file-{number}").into_bytes();
            let is_upload = random.permille(500);
            let sources = &mut all.sources[usize::from(!is_upload)];
            sources.insert(path.clone(), content(random));
            all.moved.push(moved(random, path, is_upload, What::File));
        }
        let packs = random.pick(&[0, 0, 1, 2, 4]);
        for number in 0..packs {
            let path = format!("/pack-{number}").into_bytes();
            let is_upload = random.permille(500);
            let mut names = Vec::new();
            for number in 0..random.range(1, 30) {
                let name = format!("{}/{number}", number % 3).into_bytes();
                let mut bytes = vec![0; random.pick(&[0, 1, 10, 500, 4_000])];
                bytes.fill_with(|| random.draw() as u8);
                let file = [b"/tree", path.as_slice(), b"/", &name].concat();
                all.files[usize::from(!is_upload)].insert(file, bytes);
                names.push(name);
            }
            let pack = Pack {
                left: (0..names.len()).collect(),
                asked: Vec::new(),
                names,
                spares: Spares::default(),
            };
            all.moved
                .push(moved(random, path, is_upload, What::Pack(pack)));
        }
        if has_forgeries {
            all.moved
                .iter_mut()
                .for_each(|moved| moved.resume = Resume::Never);
        }
        all
    }
}

fn moved(random: &mut Random, path: Vec<u8>, is_upload: bool, what: What) -> Moved {
    let rate = random.permille(100);
    let resume = random.pick(&[Resume::Never, Resume::Trust, Resume::Trust, Resume::Verify]);
    let is_file = matches!(what, What::File);
    Moved {
        path,
        is_upload,
        what,
        digest: random.pick(&[DigestKind::Crc64Nvme, DigestKind::Blake3]),
        // A pack is small enough to begin anew.
        resume: if is_file { resume } else { Resume::Never },
        rate: rate.then(|| random.range(50_000, 5_000_000)),
        ..Moved::default()
    }
}

/// How the two sides are set.
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    /// Most time that a worker takes for a turn.
    pub(crate) slowness: Duration,
    pub(crate) channels: Option<u32>,
    pub(crate) block_size: u32,
    pub(crate) start: Start,
    /// Cancels, broken channels and the like.
    pub(crate) disturbances: u64,
    /// Ends of a whole side.
    pub(crate) restarts: u64,
    pub(crate) users: u64,
}

impl Settings {
    pub(crate) fn new(random: &mut Random) -> Self {
        let slowness = random.pick(&[0, 100, 10_000, 300_000, 3_000_000]);
        let patience = random.pick(&[2, 15, 60]);
        Self {
            limits: Limits {
                idle_timeout: Duration::from_secs(patience),
                stall_timeout: Duration::from_secs(patience.min(10) / 2),
                ..Limits::default()
            },
            slowness: Duration::from_micros(slowness),
            channels: random.pick(&[None, Some(1), Some(2), Some(4), Some(9)]),
            block_size: random.pick(&[1 << 10, 1 << 12, 1 << 14, 1 << 16]),
            start: random.pick(&[Start::Elastic, Start::Elastic, Start::Strict]),
            disturbances: random.range(0, 3),
            restarts: random.pick(&[0, 0, 0, 1, 2]),
            users: random.pick(&[0, 0, 1, 2, 3]),
        }
    }

    /// Workers that take longer than the peers' patience are a fault of their own.
    pub(crate) fn are_slow(&self) -> bool {
        self.slowness * 4 > self.limits.stall_timeout
    }
}
