//! Random sequences of calls, against the same on a local store.

use xdfs::{Call, ChecksumKind};
use xdfs_testkit::tree::Random;

use crate::each::Twins;
use crate::place::{list, rename, stat};

const NAMES: [&str; 4] = ["a", "b", "c\n", "d d"];

fn a_path(rng: &mut Random) -> String {
    (0..1 + rng.below(3))
        .map(|_| format!("/{}", NAMES[rng.below(4) as usize]))
        .collect()
}

fn a_call(rng: &mut Random) -> Call {
    let (one, two) = (a_path(rng), a_path(rng));
    let flag = rng.below(2) == 0;
    let (path, other) = (one.clone().into_bytes(), two.clone().into_bytes());
    match rng.below(14) {
        0 => stat(&one),
        1 => list(&one, 1000),
        2 | 3 => Call::MakeDirectory {
            path,
            mode: None,
            parents: flag,
        },
        4 => Call::RemoveFile { path },
        5 => Call::RemoveDirectory { path },
        6 => Call::RemoveTree { path },
        7 => rename(&one, &two),
        8 => Call::Copy {
            from: path,
            to: other,
            overwrite: flag,
        },
        9 => Call::Link {
            existing: path,
            path: other,
        },
        10 => Call::Symlink {
            target: NAMES[rng.below(4) as usize].into(),
            path,
        },
        11 => Call::Truncate {
            path,
            length: rng.below(100),
        },
        12 => Call::ReadLink { path },
        _ => Call::Checksum {
            path,
            offset: rng.below(10),
            length: None,
            kind: ChecksumKind::Crc64Nvme,
        },
    }
}

#[test]
fn no_sequence_of_calls_makes_a_difference() {
    let mut worked = 0;
    for seed in 0..8 {
        let twins = Twins::new(seed, false, Some(1 + seed as u32 % 3));
        for dir in [&twins.place.folders.root(), &twins.twin] {
            std::fs::write(dir.join("b"), "content").unwrap();
        }
        let mut rng = Random::new(seed);
        for _ in 0..200 {
            worked += u32::from(twins.ask(&a_call(&mut rng)).is_ok());
        }
    }
    assert!(worked > 100, "hardly any call had an effect");
}
