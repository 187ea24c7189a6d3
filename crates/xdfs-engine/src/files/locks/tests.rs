//! The table of locks alone, with a clock controlled by the test.

use super::*;

fn key(user: &str, owner: u8) -> OwnerKey {
    OwnerKey {
        user: user.into(),
        owner: FileOwner([owner; 16]),
    }
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange {
        offset,
        length: Some(length),
    }
}

const FILE: FileIdentity = FileIdentity {
    device: 1,
    inode: 2,
    born_ns: 3,
};
const SECOND: Duration = Duration::from_secs(1);

struct Scene {
    locks: Locks,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self {
            locks: Locks::new(u64::MAX, crate::environment::System::shared()),
            now: Instant::now(),
        }
    }

    fn lock(&self, who: &OwnerKey, range: LockRange, exclusive: bool) -> Result<u64, Refusal> {
        let lease = 10 * SECOND;
        self.locks
            .lock(&FILE, who, &range, exclusive, lease, self.now)
    }

    fn total(&self) -> usize {
        let table = self.locks.lock_table();
        let all = table.files.values().flatten();
        assert_eq!(
            table.total,
            all.map(|holder| holder.ranges.len()).sum::<usize>()
        );
        table.total
    }
}

#[test]
fn every_range_has_to_be_locked() {
    let scene = Scene::new();
    let a = key("u", 1);
    scene.lock(&a, range(0, 10), true).unwrap();
    let begin = |ranges: &[LockRange]| {
        let under = scene.locks.begin(&FILE, &a, ranges, true, scene.now);
        under.is_some()
    };
    assert!(begin(&[range(0, 4), range(6, 4)]));
    assert!(!begin(&[range(0, 4), range(20, 4)]));
    assert!(!begin(&[range(20, 4), range(0, 4)]));
    scene.lock(&a, range(20, 4), true).unwrap();
    assert!(begin(&[range(0, 4), range(20, 4)]));
}

#[test]
fn an_owner_is_a_user_and_a_number() {
    let scene = Scene::new();
    let (a, b) = (key("u", 1), key("v", 1));
    scene.lock(&a, range(0, 10), true).unwrap();
    scene.lock(&a, range(5, 10), true).unwrap();
    let held = scene.lock(&b, range(9, 1), false).unwrap_err();
    assert!(matches!(held, Refusal::Held(held) if held.range == range(0, 15)));
    let other = FileIdentity { born_ns: 4, ..FILE };
    let lock = |who| {
        let all = LockRange::ALL;
        scene.locks.lock(&other, who, &all, true, SECOND, scene.now)
    };
    assert!(lock(&b).is_ok());
    assert!(lock(&a).is_err());
    assert_eq!(scene.total(), 2);
}

#[test]
fn a_lease_ends_all_locks_of_a_holder_at_once() {
    let mut scene = Scene::new();
    let (a, b) = (key("u", 1), key("u", 2));
    let first = scene.lock(&a, range(0, 1), true).unwrap();
    scene.now += 6 * SECOND;
    assert_eq!(scene.lock(&a, range(5, 1), true).unwrap(), first);
    scene.now += 6 * SECOND;
    assert_eq!(scene.locks.renew(&FILE, &a, scene.now), Some(first));
    scene.now += 9 * SECOND;
    assert!(scene.lock(&b, range(0, 1), true).is_err());
    scene.now += SECOND;
    scene.lock(&b, LockRange::ALL, true).unwrap();
    assert_eq!(scene.locks.renew(&FILE, &a, scene.now), None);
    scene.locks.release(&FILE, &b, scene.now);
    assert_ne!(scene.lock(&a, range(0, 1), true).unwrap(), first);
    assert_eq!(scene.total(), 1);
}

#[test]
fn what_is_under_way_keeps_its_locks() {
    let mut scene = Scene::new();
    let (a, b) = (key("u", 1), key("u", 2));
    scene.lock(&a, range(0, 10), true).unwrap();
    let begin =
        |ranges: &[LockRange], exclusive, now| scene.locks.begin(&FILE, &a, ranges, exclusive, now);
    assert!(begin(&[range(0, 10), range(3, 1)], true, scene.now).is_some());
    assert!(begin(&[range(0, 11)], false, scene.now).is_none());
    let under = begin(&[range(2, 2)], true, scene.now).unwrap();
    scene.now += 60 * SECOND;
    assert!(scene.lock(&b, range(0, 1), true).is_err());
    drop(under);
    // After its end the lease applies again, by the clock of the system.
    assert!(scene.lock(&b, range(0, 1), true).is_ok());
}

#[test]
fn unlocking_leaves_what_is_around() {
    let scene = Scene::new();
    let a = key("u", 1);
    scene.lock(&a, LockRange::ALL, true).unwrap();
    scene.locks.unlock(&FILE, &a, &range(10, 10), scene.now);
    scene.lock(&a, range(12, 2), false).unwrap();
    let covers = |range: LockRange, exclusive| {
        let under = scene.locks.begin(&FILE, &a, &[range], exclusive, scene.now);
        under.is_some()
    };
    assert!(covers(range(0, 10), true));
    assert!(!covers(range(0, 11), true));
    assert!(covers(range(12, 2), false));
    assert!(!covers(range(12, 2), true));
    assert!(covers(
        LockRange {
            offset: 20,
            length: None
        },
        true
    ));
    assert_eq!(scene.total(), 3);
    scene.locks.release(&FILE, &a, scene.now);
    assert_eq!(scene.total(), 0);
    assert!(scene.locks.lock_table().files.is_empty());
}

#[test]
fn there_is_an_end_of_locks() {
    let scene = Scene::new();
    let mut owners = 0u8;
    // One owner of one file, then one user with many owners.
    let fill = |user: &str, owner: u8, file: u64| {
        let identity = FileIdentity {
            inode: file,
            ..FILE
        };
        let who = key(user, owner);
        (0..)
            .map(|n| {
                let one = range(2 * n, 1);
                scene
                    .locks
                    .lock(&identity, &who, &one, true, SECOND, scene.now)
            })
            .take_while(Result::is_ok)
            .count()
    };
    assert_eq!(fill("u", 1, 0), RANGES_MAX);
    let mut got = RANGES_MAX;
    loop {
        owners += 1;
        let more = fill("u", owners, u64::from(owners));
        got += more;
        if more == 0 {
            break;
        }
    }
    assert_eq!(got, TOTAL_MAX / 2);
    // Others can still lock something, but no single user everything.
    let mut other = 0;
    for owner in 0..8 {
        other += fill("v", owner, 1000 + u64::from(owner));
    }
    assert_eq!(other, SHARE_MAX);
    assert_eq!(scene.total(), TOTAL_MAX / 2 + SHARE_MAX);
    // Expired leases make room.
    let later = scene.now + 2 * SECOND;
    let taken = scene
        .locks
        .lock(&FILE, &key("u", 1), &range(0, 1), true, SECOND, later);
    assert!(taken.is_ok());
    assert_eq!(scene.total(), 1);
}

/// Compares the locks of one owner with a list of single bytes.
#[test]
fn sets_of_locks_are_sets_of_bytes() {
    const BYTES: u64 = 40;
    let mut random = 7u64;
    let mut below = |end: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % end
    };
    let mut set = LockSet::default();
    let mut model = [None; BYTES as usize];
    for _ in 0..5_000 {
        let offset = below(BYTES);
        let length = 1 + below(BYTES - offset);
        let bytes = offset as usize..(offset + length) as usize;
        let (what, exclusive) = (below(3), below(2) == 0);
        let range = range(offset, length);
        match what {
            0 => {
                set.cut(&range);
                model[bytes].fill(None);
            }
            1 => {
                set.put(&range, exclusive);
                model[bytes].fill(Some(exclusive));
            }
            _ => {
                let has = |byte: &Option<bool>| byte.is_some_and(|own| own || !exclusive);
                assert_eq!(
                    set.covers(&range, exclusive),
                    model[bytes.clone()].iter().all(has)
                );
                let parts = set.parts(offset, length, exclusive);
                let of = |(_, length, has): &(u64, u64, bool)| vec![*has; *length as usize];
                let each: Vec<bool> = parts.iter().flat_map(of).collect();
                let expected: Vec<bool> = model[bytes.clone()].iter().map(has).collect();
                assert_eq!(each, expected);
                assert!(
                    parts
                        .windows(2)
                        .all(|p| p[0].0 + p[0].1 == p[1].0 && p[0].2 != p[1].2)
                );
                let stops = |byte: &Option<bool>| byte.is_some_and(|own| own || exclusive);
                assert_eq!(
                    set.in_the_way(&range, exclusive).is_some(),
                    model[bytes].iter().any(stops)
                );
            }
        }
        // The minimum number.
        let starts = (0..model.len()).filter(|i| {
            let before = i.checked_sub(1).and_then(|i| model[i]);
            model[*i].is_some() && model[*i] != before
        });
        assert_eq!(set.len(), starts.count());
    }
}
