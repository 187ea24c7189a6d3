//! Tests of how versions of a file are distinguished.

use super::*;

const SECOND: i64 = 1_000_000_000;

fn meta() -> Meta {
    Meta {
        kind: FileKind::Regular,
        length: 10,
        allocated: Some(4096),
        atime_ns: 0,
        mtime_ns: 5 * SECOND,
        ctime_ns: 100 * SECOND + 1,
        mode: Some(0o644),
        identity: Some((1, 2)),
        links: 1,
        owner: Some(0),
        group: Some(0),
    }
}

fn at(nanoseconds: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds as u64)
}

#[test]
fn a_file_is_settled_when_the_clock_has_moved_on() {
    let fine = meta();
    let changed = fine.ctime_ns;
    assert_eq!(unsettled_for(&fine, at(changed)), GRAIN);
    let almost = at(changed) + GRAIN - Duration::from_millis(1);
    assert_eq!(unsettled_for(&fine, almost), Duration::from_millis(1));
    assert_eq!(unsettled_for(&fine, at(changed) + GRAIN), Duration::ZERO);
    // From another clock, or set back.
    assert_eq!(unsettled_for(&fine, at(changed - 1)), Duration::ZERO);
    // Whole seconds.
    let coarse = Meta {
        ctime_ns: 100 * SECOND,
        ..meta()
    };
    let second = Duration::from_secs(1);
    assert_eq!(unsettled_for(&coarse, at(101 * SECOND)), second);
    assert_eq!(unsettled_for(&coarse, at(102 * SECOND)), Duration::ZERO);
    // Without a change time, the modification time must do.
    let without = Meta {
        ctime_ns: 0,
        mtime_ns: 100 * SECOND + 1,
        ..meta()
    };
    assert_eq!(unsettled_for(&without, at(100 * SECOND + 1)), GRAIN);
}

#[test]
fn every_trace_of_a_change_counts() {
    let before = meta();
    assert_eq!(difference(&before, &before), None);
    let changed: [fn(&mut Meta); 5] = [
        |meta| meta.length += 1,
        |meta| meta.length -= 1,
        |meta| meta.identity = Some((1, 3)),
        |meta| meta.mtime_ns += 1,
        |meta| meta.ctime_ns += 1,
    ];
    for change in changed {
        let mut now = before;
        change(&mut now);
        assert!(difference(&before, &now).is_some(), "{now:?}");
    }
    // Reading sets the access time, and a removal the change time.
    let mut now = before;
    now.atime_ns += 1;
    assert_eq!(difference(&before, &now), None);
    now.links = 0;
    now.ctime_ns += 1;
    assert_eq!(difference(&before, &now), None);
    now.mtime_ns += 1;
    assert!(difference(&before, &now).is_some());
}
