//! What a user may move in a second. Never asserted to be fast, only not to be too fast.

use std::fs;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use xdfs::{Call, ChecksumKind, LocalPlace, OpenOptions};

use crate::world::{Visit, World, assert_same, finish};

/// Bytes a second of a user.
const RATE: u64 = 2_000_000;
/// What may pass without a wait: a burst, and the last piece of each session.
const SLACK: u64 = 500_000;

fn world() -> World {
    World::with(|security, _| {
        security.limits.bytes_per_second_per_user_max = NonZeroU64::new(RATE);
    })
}

fn alice(world: &World) -> Visit {
    world.visit("alice", vec![world.user_key("alice")])
}

/// So many bytes can't have passed in less than this.
#[track_caller]
fn assert_bounded(since: Instant, bytes: u64) {
    let least = Duration::from_secs_f64((bytes - SLACK) as f64 / RATE as f64);
    let took = since.elapsed();
    assert!(
        took >= least,
        "{bytes} bytes in {took:?}, and not {least:?}"
    );
}

/// Two sessions at once, one up and one down, with several channels each.
#[test]
fn sessions_of_a_user_share_one_bound() {
    let world = world();
    let source = world.source(2_000_000);
    fs::copy(&source, world.path("root/there")).unwrap();
    let alice = alice(&world);
    let (up, down) = (alice.clone().channels(3), alice.channels(2));
    let (sender, receiver) = (up.connect().unwrap(), down.connect().unwrap());
    let got = world.path("client/got");
    let start = Instant::now();
    let place = LocalPlace::Path(source.clone());
    let upload = sender.upload(&place, b"copy", &up.transfer()).unwrap();
    let place = LocalPlace::Path(got.clone());
    let download = receiver.download(b"there", &place, &down.transfer());
    finish(upload).unwrap();
    finish(download.unwrap()).unwrap();
    assert_bounded(start, 4_000_000);
    assert_same(&source, &got);
    assert_same(&source, &world.path("root/copy"));
}

/// A session that begins pays for what those before it took.
#[test]
fn coming_back_is_no_way_around() {
    let world = world();
    let source = world.source(300_000);
    let alice = alice(&world);
    let start = Instant::now();
    for _ in 0..10 {
        alice.upload(&source, "copy").unwrap();
    }
    assert_bounded(start, 3_000_000);
}

/// Payload that comes along with the header of its block is counted as well.
#[test]
fn small_blocks_count_too() {
    let world = world();
    let source = world.source(2_000_000);
    let mut alice = alice(&world);
    alice.options.block_size = Some(4096);
    let start = Instant::now();
    alice.upload(&source, "copy").unwrap();
    assert_bounded(start, 2_000_000);
    assert_same(&source, &world.path("root/copy"));
}

/// What calls make the server read and write is paid for like payload, also by the next session.
#[test]
fn the_work_of_calls_counts_too() {
    let world = world();
    let there = world.path("root/there");
    fs::write(&there, vec![7; 1_000_000]).unwrap();
    let tree = world.path("root/tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..200 {
        fs::write(tree.join(number.to_string()), "").unwrap();
    }
    let alice = alice(&world);
    let path = || b"there".to_vec();
    let sum = |length| Call::Checksum {
        path: path(),
        offset: 0,
        length,
        kind: ChecksumKind::Crc64Nvme,
    };
    let copy = Call::Copy {
        from: path(),
        to: b"copy".to_vec(),
        overwrite: false,
    };
    let remove = Call::RemoveTree {
        path: b"tree".to_vec(),
    };
    let costly = [
        (sum(None), 1_000_000),
        (copy, 1_000_000),
        (remove, 201 * 4096),
    ];
    for (call, bytes) in costly {
        let start = Instant::now();
        alice.connect().unwrap().call(call).unwrap();
        let client = alice.connect().unwrap();
        // The next one waits until the first is paid for; what costs nothing doesn't have to.
        let stat = Call::Stat {
            path: path(),
            follow: false,
        };
        client.call(stat).unwrap();
        client.call(sum(Some(1))).unwrap();
        assert_bounded(start, bytes);
    }
    let start = Instant::now();
    let client = alice.connect().unwrap();
    let options = OpenOptions {
        read: true,
        write: true,
        ..OpenOptions::default()
    };
    let file = client.open_file(b"there", &options).unwrap();
    file.write_at(0, &vec![8; 1_000_000]).unwrap();
    file.sync().unwrap();
    let mut back = vec![0; 1_000_000];
    file.read_at(0, &mut back).unwrap();
    file.close().unwrap();
    assert_bounded(start, 1_500_000);
    assert_eq!(fs::read(&there).unwrap(), back);
}
